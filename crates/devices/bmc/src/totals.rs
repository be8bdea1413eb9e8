//! Counters of the calls to all BMCs of a process, for `/metrics`.

use exposition::{Counter, Family, Histogram};

use crate::ledger::{Call, CallOutcome};

/// Upper bounds of the buckets, seconds: a BMC answers in tenths of a second, inserts media in ten, and may take a minute.
const SECONDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0];

/// Methods with counters of their own.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"];

/// Calls to all BMCs.
#[derive(Debug)]
pub struct Totals {
    calls: Counter,
    retries: Counter,
    bytes: Counter,
    seconds: Histogram,
}

impl Default for Totals {
    fn default() -> Self {
        let help = "Calls to BMCs, by method and end: the class of the status, or why there was no usable answer.";
        let family = Family {
            name: "metamorph_bmc_call_duration_seconds",
            help: "Time from sending a call to a BMC to the end of its answer.",
            labels: &["method"],
        };
        Self {
            calls: Counter::new("metamorph_bmc_calls_total", help, &["method", "outcome"]),
            retries: Counter::new(
                "metamorph_bmc_call_retries_total",
                "Calls to BMCs that repeated an earlier one.",
                &[],
            ),
            bytes: Counter::new(
                "metamorph_bmc_answer_bytes_total",
                "Bytes of the bodies that BMCs have answered with, as they came.",
                &[],
            ),
            seconds: Histogram::new(family, SECONDS),
        }
    }
}

impl Totals {
    pub(crate) fn count(&self, call: &Call) {
        let method = METHODS.into_iter().find(|known| *known == call.method).unwrap_or("other");
        let outcome = match call.outcome {
            CallOutcome::Status(200..300) => "2xx",
            CallOutcome::Status(300..400) => "3xx",
            CallOutcome::Status(400..500) => "4xx",
            CallOutcome::Status(_) => "5xx",
            CallOutcome::Failed(kind) => kind.as_str(),
            CallOutcome::Abandoned => "abandoned",
        };
        self.calls.count(&[method, outcome]);
        if call.retry > 0 {
            self.retries.count(&[]);
        }
        if matches!(call.outcome, CallOutcome::Status(_)) {
            self.seconds.observe(&[method], std::time::Duration::from_millis(call.milliseconds).as_secs_f64());
        }
    }

    /// A body of so many bytes has come.
    pub(crate) fn received(&self, bytes: usize) {
        self.bytes.add(&[], u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// The calls in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.calls.write(&mut out);
        self.retries.write(&mut out);
        self.bytes.write(&mut out);
        self.seconds.write(&mut out);
        out
    }
}
