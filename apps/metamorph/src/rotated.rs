//! A certificate of this server's own with its successors: the one to serve, and those that clients must trust.

use std::future::Future;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use provisioner::MayAct;

use crate::kept::{CERTIFICATE, Data, KEY, Series};
use crate::renewal::{self, Times};

/// Certificate chain and key, PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// Chain, the endpoint's own certificate first.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// Makes a certificate as of this time.
type Make = Box<dyn Fn(Timestamp) -> anyhow::Result<Data> + Send + Sync>;

/// A rotated certificate: a series of successive ones.
pub struct Rotated {
    series: Series,
    times: Times,
    make: Make,
}

impl Rotated {
    /// Those of a series.
    pub fn new(
        series: Series,
        times: Times,
        make: impl Fn(Timestamp) -> anyhow::Result<Data> + Send + Sync + 'static,
    ) -> Self {
        Self { series, times, make: Box::new(make) }
    }

    /// Makes the next one if it is time, and deletes obsolete ones. Returns the one to serve, and the chains of all that clients must trust.
    pub async fn look(&self, now: Timestamp) -> anyhow::Result<(Pair, Vec<String>)> {
        let mut all = self.series.all_or_first(|| (self.make)(now)).await?;
        let plan = |all: &[crate::kept::Kept]| {
            let made: Vec<Timestamp> = all.iter().map(|kept| kept.made).collect();
            renewal::plan(&made, now, self.times).context("there is no certificate")
        };
        let mut planned = plan(&all)?;
        if planned.make
            && let Some(newest) = all.last()
        {
            all = self.series.next(newest.number, (self.make)(now)?).await?;
            planned = plan(&all)?;
        }
        let served = all.get(planned.served).context("there is no certificate")?;
        let pair = Pair { certificate: served.text(CERTIFICATE)?, key: served.text(KEY)? };
        let given = all.iter().skip(planned.given).map(|kept| kept.text(CERTIFICATE)).collect::<Result<_, _>>()?;
        for over in all.iter().take(planned.given) {
            self.series.delete(over.number).await?;
        }
        Ok((pair, given))
    }
}

/// Repeats `look` for as long as the server runs. Failures are logged and retried at the next turn; a process that does not lead changes nothing.
pub async fn keep<F: Future<Output = anyhow::Result<()>> + Send>(
    every: Duration,
    what: &'static str,
    may_act: MayAct,
    look: impl Fn(Timestamp) -> F + Send,
) {
    loop {
        tokio::time::sleep(every).await;
        if !may_act() {
            continue;
        }
        if let Err(error) = look(Timestamp::now()).await {
            let error = format!("{error:#}");
            tracing::warn!(error, "look at {what}: it is tried again");
        }
    }
}
