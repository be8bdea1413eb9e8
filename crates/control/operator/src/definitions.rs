//! Whether the definitions in the cluster keep what this version writes.
//!
//! An earlier version's definition drops unknown fields silently. A dry-run creation shows what becomes of a record: at the start, and whenever
//! a write succeeded and was not kept.

use std::time::Duration;

use api::metamorph::{HostReference, MachineRecord, MachineRecordSpec, ProvisionerRecord};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::kube_errors::api_message;

/// Pause before the next check when the last one failed or found a fault.
const AGAIN: Duration = Duration::from_secs(10);
/// Name of the dry run's record, which is never created.
const PROBE: &str = "metamorph-definition-check";

/// What is known of the definitions.
#[derive(Debug)]
pub struct Definitions {
    /// Whether they have been looked at, and what is wrong with them.
    known: watch::Sender<(bool, Option<String>)>,
    invalidated: Notify,
}

impl Default for Definitions {
    fn default() -> Self {
        Self { known: watch::Sender::new((false, None)), invalidated: Notify::new() }
    }
}

impl Definitions {
    /// Has the definitions checked again: a write was not kept.
    pub fn invalidate(&self) {
        self.invalidated.notify_one();
    }

    /// What is wrong with them.
    pub fn fault(&self) -> Option<String> {
        self.known.borrow().1.clone()
    }

    /// Resolves once they have been checked and no fault is known.
    pub async fn sound(&self) {
        let mut known = self.known.subscribe();
        // The sender is `self`.
        let _ = known.wait_for(|(looked, fault)| *looked && fault.is_none()).await;
    }

    /// Checks them at the start, when invalidated, and repeatedly while there is a fault; never returns.
    pub async fn keep(&self, client: &Client, namespace: Option<&str>) {
        loop {
            let (fault, is_valid) = match look(client, namespace).await {
                Ok(fault) => {
                    let is_valid = fault.is_none();
                    (fault, is_valid)
                }
                Err(error) => {
                    tracing::debug!(error = %api_message(&error), "look whether the definition of MachineRecords keeps all that is written");
                    // A failed check leaves the last result as it was.
                    (self.fault(), false)
                }
            };
            let news = self.known.send_replace((true, fault.clone())).1 != fault;
            match fault {
                Some(fault) if news => tracing::error!("{fault}"),
                None if news => tracing::info!("the definition of MachineRecords keeps all that is written"),
                _ => {}
            }
            if is_valid {
                self.invalidated.notified().await;
            } else {
                tokio::select! {
                    () = self.invalidated.notified() => {}
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }
}

/// What is wrong with the definition of MachineRecords, if something is.
async fn look(client: &Client, namespace: Option<&str>) -> Result<Option<String>, kube::Error> {
    let fault = |what: &str| {
        format!("nothing is done to any host: {what} — apply the definitions that `metamorph crds` prints")
    };
    let api: Api<MachineRecord> = Api::namespaced(client.clone(), namespace.unwrap_or("default"));
    let part = ProvisionerRecord {
        name: "metamorph".to_owned(),
        version: 1,
        revision: 1,
        data: json!({ "definition": "keeps what it does not know" }),
    };
    let spec = MachineRecordSpec {
        host: HostReference { name: PROBE.to_owned(), uid: None },
        provisioner: Some(part),
        ..MachineRecordSpec::default()
    };
    let how = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&how, &MachineRecord::new(PROBE, spec.clone())).await {
        Ok(kept) if kept.spec.provisioner == spec.provisioner => Ok(None),
        Ok(_) => Ok(Some(fault("the cluster's definition of MachineRecords does not keep spec.provisioner"))),
        // A missing namespace says nothing about the definition.
        Err(kube::Error::Api(status))
            if status.code == 404 && status.details.as_ref().is_none_or(|details| details.kind != "namespaces") =>
        {
            Ok(Some(fault("the cluster has no definition of MachineRecords")))
        }
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let what = format!("the cluster's definition of MachineRecords refuses them ({})", status.message);
            Ok(Some(fault(&what)))
        }
        Err(error) => Err(error),
    }
}
