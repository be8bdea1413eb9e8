//! The firmware settings that the BMC has: one of them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bmc::{Bios, BiosSchema, BiosSeen, BmcError, JobState};

use super::Control;

#[async_trait]
impl Bios for Control {
    async fn seen(&self, _: bool) -> Result<Option<BiosSeen>, BmcError> {
        self.call(|plant| {
            let machine = plant.lock();
            let named = |value: &str| BTreeMap::from([("BootDelay".to_owned(), value.to_owned())]);
            let pending = machine.is.pending.as_deref().map(named).unwrap_or_default();
            let current = named(machine.is.delay.as_deref().unwrap_or("5"));
            Some(BiosSeen { current, pending, ..BiosSeen::default() })
        })
        .await
    }
    async fn schema(&self) -> Result<Option<BiosSchema>, BmcError> {
        self.call(|_| None).await
    }
    async fn set(&self, wished: &BTreeMap<String, String>) -> Result<Option<String>, BmcError> {
        let wished = wished["BootDelay"].clone();
        self.call(|plant| {
            plant.note(format!("set BootDelay={wished}"));
            plant.lock().is.pending = Some(wished);
        })
        .await?;
        Ok(None)
    }
    async fn job(&self, _: &str) -> Result<JobState, BmcError> {
        Ok(JobState::Over)
    }
}
