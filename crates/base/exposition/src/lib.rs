//! Counters, gauges and histograms in Prometheus' text exposition format, version 0.0.4
//! (prometheus.io/docs/instrumenting/exposition_formats).
//!
//! A family has a name, a help text and label names; each series appears with its first value. A family without labels reports 0 from the start.
//! The number of series is bounded: all series beyond [`MAX_SERIES`] are counted together in one series with empty labels.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most series of one family.
pub const MAX_SERIES: usize = 20_000;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The values of a family's labels, in the order of their names.
type Values = Vec<String>;

/// What a family is called.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Name of the metric; a counter's ends in `_total`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
}

impl Family {
    fn head(&self, out: &mut String, kind: &str) {
        // A String takes everything.
        let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {kind}", self.name, self.help, self.name);
    }

    /// One sample: `suffix` behind the name, `more` behind the labels.
    fn sample(&self, out: &mut String, suffix: &str, values: &[String], more: &str, value: f64) {
        let _ = write!(out, "{}{suffix}", self.name);
        let mut pairs: Vec<String> =
            self.labels.iter().zip(values).map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        if !more.is_empty() {
            pairs.push(more.to_owned());
        }
        if !pairs.is_empty() {
            let _ = write!(out, "{{{}}}", pairs.join(","));
        }
        let _ = writeln!(out, " {value}");
    }

    /// The key of a series; empty label values once the family is full.
    fn key<T>(&self, series: &BTreeMap<Values, T>, values: &[&str]) -> Values {
        let key: Values = values.iter().map(|value| (*value).to_owned()).collect();
        if series.len() < MAX_SERIES || series.contains_key(&key) {
            key
        } else {
            vec![String::new(); self.labels.len()]
        }
    }
}

/// A label's value, escaped as the format requires.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn lock<T>(series: &Mutex<T>) -> MutexGuard<'_, T> {
    series.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A family of counters.
#[derive(Debug)]
pub struct Counter {
    family: Family,
    series: Mutex<BTreeMap<Values, u64>>,
}

impl Counter {
    /// A family in which nothing has been counted.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { family: Family { name, help, labels }, series: Mutex::new(BTreeMap::new()) }
    }

    /// Counts one more of the series with these values.
    pub fn count(&self, values: &[&str]) {
        self.add(values, 1);
    }

    /// Counts so many more of the series with these values.
    pub fn add(&self, values: &[&str], more: u64) {
        let mut series = lock(&self.series);
        let key = self.family.key(&series, values);
        let count = series.entry(key).or_default();
        *count = count.saturating_add(more);
    }

    /// The current count.
    #[must_use]
    pub fn value(&self, values: &[&str]) -> u64 {
        let key: Values = values.iter().map(|value| (*value).to_owned()).collect();
        lock(&self.series).get(&key).copied().unwrap_or_default()
    }

    /// Drops the series whose first values are these.
    pub fn forget(&self, first: &[&str]) {
        lock(&self.series).retain(|key, _| !begins(key, first));
    }

    /// Writes the family's text.
    pub fn write(&self, out: &mut String) {
        self.family.head(out, "counter");
        let series = lock(&self.series);
        if self.family.labels.is_empty() && series.is_empty() {
            self.family.sample(out, "", &[], "", 0.0);
        }
        for (values, count) in series.iter() {
            self.family.sample(out, "", values, "", *count as f64);
        }
    }
}

#[derive(Debug, Default)]
struct Observed {
    /// One count per bucket, not cumulative.
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
}

/// A family of histograms.
#[derive(Debug)]
pub struct Histogram {
    family: Family,
    bounds: &'static [f64],
    series: Mutex<BTreeMap<Values, Observed>>,
}

impl Histogram {
    /// A family in which nothing has been observed; `bounds` are the upper bounds of its buckets, ascending, in the unit that its name states.
    #[must_use]
    pub const fn new(family: Family, bounds: &'static [f64]) -> Self {
        Self { family, bounds, series: Mutex::new(BTreeMap::new()) }
    }

    /// Adds one observation to the series with these values.
    pub fn observe(&self, values: &[&str], value: f64) {
        let mut series = lock(&self.series);
        let key = self.family.key(&series, values);
        let seen = series.entry(key).or_default();
        seen.buckets.resize(self.bounds.len(), 0);
        seen.count += 1;
        seen.sum += value;
        if let Some(at) = self.bounds.iter().position(|bound| value <= *bound) {
            seen.buckets[at] += 1;
        }
    }

    /// How many observations the series has.
    #[must_use]
    pub fn observations(&self, values: &[&str]) -> u64 {
        let key: Values = values.iter().map(|value| (*value).to_owned()).collect();
        lock(&self.series).get(&key).map(|seen| seen.count).unwrap_or_default()
    }

    /// Drops the series whose first values are these.
    pub fn forget(&self, first: &[&str]) {
        lock(&self.series).retain(|key, _| !begins(key, first));
    }

    /// Writes the family's text.
    pub fn write(&self, out: &mut String) {
        self.family.head(out, "histogram");
        for (values, seen) in lock(&self.series).iter() {
            let mut sum = 0;
            for (bound, count) in self.bounds.iter().zip(&seen.buckets) {
                sum += count;
                self.family.sample(out, "_bucket", values, &format!("le=\"{bound}\""), sum as f64);
            }
            self.family.sample(out, "_bucket", values, "le=\"+Inf\"", seen.count as f64);
            self.family.sample(out, "_sum", values, "", seen.sum);
            self.family.sample(out, "_count", values, "", seen.count as f64);
        }
    }
}

fn begins(key: &[String], first: &[&str]) -> bool {
    key.len() >= first.len() && key.iter().zip(first).all(|(have, want)| have == want)
}

/// Writes a family of gauges from samples taken now.
pub fn gauges(out: &mut String, family: Family, samples: impl IntoIterator<Item = (Vec<String>, f64)>) {
    family.head(out, "gauge");
    for (values, value) in samples {
        family.sample(out, "", &values, "", value);
    }
}

/// Writes a family of counters that are counted elsewhere.
pub fn counters(out: &mut String, family: Family, samples: impl IntoIterator<Item = (Vec<String>, f64)>) {
    family.head(out, "counter");
    for (values, value) in samples {
        family.sample(out, "", &values, "", value);
    }
}

/// Clock ticks a second in `/proc`: `USER_HZ`, 100 on Linux.
const TICKS: f64 = 100.0;
/// Bytes of a page in `/proc`, on the machines that this is built for.
const PAGE: u64 = 4096;

/// Writes the metrics of a process under the names that Prometheus' client libraries use: `stat` is its `/proc/<pid>/stat`, `descriptors` the number
/// of its open files. Values that the system does not report are left out.
pub fn process(out: &mut String, stat: &str, descriptors: Option<usize>) {
    // After the program's name in parentheses, which may hold anything: field 3 of proc_pid_stat(5) is the first.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).and_then(|f| f.parse::<u64>().ok());
    let family = |name, help| Family { name, help, labels: &[] };
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        let seconds = user.saturating_add(system) as f64 / TICKS;
        counters(out, family("process_cpu_seconds_total", "Processor time used, in seconds."), [(vec![], seconds)]);
    }
    let bytes = [
        ("process_resident_memory_bytes", "Resident memory.", field(24).map(|pages| pages.saturating_mul(PAGE))),
        ("process_virtual_memory_bytes", "Virtual memory.", field(23)),
        ("process_open_fds", "Open file descriptors.", descriptors.and_then(|count| u64::try_from(count).ok())),
    ];
    for (name, help, value) in bytes {
        if let Some(value) = value {
            gauges(out, family(name, help), [(vec![], value as f64)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn a_family_without_labels_is_there_before_anything_was_counted() {
        let counter = Counter::new("x_total", "Things.", &[]);
        assert_eq!(text(|out| counter.write(out)), "# HELP x_total Things.\n# TYPE x_total counter\nx_total 0\n");
        counter.count(&[]);
        assert!(text(|out| counter.write(out)).ends_with("\nx_total 1\n"));
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let counter = Counter::new("x_total", "Things.", &["a", "b"]);
        counter.count(&["q\"\\\n", "z"]);
        assert!(text(|out| counter.write(out)).ends_with("x_total{a=\"q\\\"\\\\\\n\",b=\"z\"} 1\n"));
    }

    #[test]
    fn buckets_are_sums_of_all_below() {
        let seconds = Histogram::new(Family { name: "s", help: "Time.", labels: &["host"] }, &[1.0, 2.5]);
        for value in [0.5, 1.0, 2.0, 9.0] {
            seconds.observe(&["h"], value);
        }
        let expected = "# HELP s Time.\n# TYPE s histogram\ns_bucket{host=\"h\",le=\"1\"} 2\ns_bucket{host=\"h\",le=\"2.5\"} 3\n\
                        s_bucket{host=\"h\",le=\"+Inf\"} 4\ns_sum{host=\"h\"} 12.5\ns_count{host=\"h\"} 4\n";
        assert_eq!(text(|out| seconds.write(out)), expected);
    }

    #[test]
    fn invented_series_are_counted_as_one() {
        let counter = Counter::new("x_total", "Things.", &["a"]);
        (0..MAX_SERIES + 5).for_each(|i| counter.count(&[&i.to_string()]));
        assert_eq!(counter.value(&[""]), 5);
        counter.count(&["3"]);
        assert_eq!(counter.value(&["3"]), 2, "a known one is told apart for ever");
    }

    #[test]
    fn a_process_is_told_by_what_the_system_says_of_it() {
        let mut fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        (fields[11], fields[12]) = ("250".into(), "50".into());
        let stat = format!("7 (a) b (c) {}", fields.join(" "));
        let found = text(|out| process(out, &stat, Some(9)));
        for line in [
            "process_cpu_seconds_total 3",
            "process_resident_memory_bytes 98304",
            "process_virtual_memory_bytes 23",
            "process_open_fds 9",
        ] {
            assert!(found.lines().any(|found| found == line), "{line}: {found}");
        }
        assert!(found.contains("# TYPE process_cpu_seconds_total counter\n"), "{found}");
        assert_eq!(text(|out| process(out, "nothing", None)), "");
    }

    #[test]
    fn what_is_gone_is_dropped() {
        let counter = Counter::new("x_total", "Things.", &["namespace", "host", "on_off"]);
        counter.count(&["n", "a", "on"]);
        counter.count(&["n", "b", "on"]);
        counter.forget(&["n", "a"]);
        assert_eq!((counter.value(&["n", "a", "on"]), counter.value(&["n", "b", "on"])), (0, 1));
    }
}
