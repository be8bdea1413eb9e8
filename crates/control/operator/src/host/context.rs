//! What the controller works with: its settings, its view of the objects, and what it remembers between reconciles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, HardwareData};
use api::metamorph::{MachineRecord, ProvisionerRecord};
use host_lifecycle::HealthHeard;
use kube::Client;
use kube::runtime::reflector::ObjectRef;
use provisioner::in_use::OnMachine;
use provisioner::{MayAct, Registry};

use super::begun::Brake;
use super::beside::Beside;
use super::bodies::Bodies;
use super::heard::AllHeard;
use super::history::Histories;
use super::objects::Objects;
use super::records::{Common, Records};
use super::rests::Rests;
use super::seal::{SealKeys, Seals};
use super::sources::{Documents, ImageDefaults};
use super::step::Watch;
use super::turns::Turns;
use super::{index, looks, versions};
use crate::Clock;
use crate::calls::Calls;
use crate::definitions::Definitions;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::news::News;

/// How long the initial lists may take before hosts are looked at anyway.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// Settings of the controller.
#[derive(Clone)]
pub struct HostSettings {
    /// Namespace to look after; all if `None`.
    pub namespace: Option<String>,
    /// Life-cycle settings.
    pub lifecycle: host_lifecycle::Settings,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Hosts that may begin to be deprovisioned within ten minutes; 0 for any number.
    pub deprovisioning_limit: usize,
    /// Machines that may be switched on within ten seconds; 0 for any number.
    pub power_on_limit: usize,
    /// Whether this process, of several, is the one that acts.
    pub may_act: MayAct,
    /// What MachineRecords are sealed with.
    pub seal_keys: SealKeys,
    /// How images are read where no ConfigMap says it.
    pub images: ImageDefaults,
    /// Read the records of this program's own provisioners, also of those that this server does not use.
    pub readers: &'static [RecordReader],
}

/// What is on the machine of a record; `None` where it is another provisioner's.
pub type RecordReader = fn(&ProvisionerRecord) -> Option<OnMachine>;

/// What a reconcile works with.
pub(crate) struct Context {
    pub client: Client,
    /// How many calls of that client are under way.
    pub calls: Arc<Calls>,
    pub registry: Registry,
    pub settings: HostSettings,
    pub histories: Histories,
    pub machines: Records,
    /// What all of them are read and written with.
    pub of_machines: Arc<Common>,
    /// Which versions of Secrets hold the same.
    pub versions: versions::Versions,
    pub recorder: Recorder,
    /// Whether the cluster keeps what is written.
    pub definitions: Arc<Definitions>,
    /// The hosts.
    pub hosts: Arc<Objects<BareMetalHost>>,
    /// What inspections have found.
    pub hardware_data: Objects<HardwareData>,
    /// Which machines hosts are.
    pub records: Arc<Objects<MachineRecord>>,
    /// Whether this server wrote them.
    pub seals: Arc<Seals>,
    /// Objects beside hosts.
    pub beside: Beside,
    /// Whose call to a host's provisioner it is.
    pub turns: Turns,
    /// Secrets that hosts name.
    pub bodies: Bodies,
    /// How images are read, by namespace.
    pub documents: Documents,
    /// Which hosts are at a BMC, and which name a Secret.
    pub index: index::Index,
    /// How the last look at each host has ended.
    pub looks: looks::Looks,
    pub brake: Brake,
    pub metrics: Arc<Metrics>,
    /// What is new, for others.
    pub news: News,
    pub watch: Watch,
    pub rests: Rests,
    /// Set once all watches have listed their objects, or have taken too long.
    pub begun: tokio::sync::OnceCell<()>,
    /// How the machine of a host (by its uid) was when its BMC last said so.
    pub health: Mutex<HashMap<String, HealthHeard>>,
    /// Whether the machine of a host (by its uid) is to be heard by itself; none of whom that is not known yet.
    pub listening: Mutex<HashMap<String, bool>>,
    /// Hosts to be looked at, though no object that the controller watches for them has changed.
    pub pokes: super::looks::Pokes,
    /// Places for diagnoses that are under way at once.
    pub diagnoses: tokio::sync::Semaphore,
    /// Which labels of HardwareClassifications say, by namespace and key, whether errors of the hosts that bear them are diagnosed; `None` until they have
    /// been listed by a controller that will.
    pub detecting: Mutex<Option<HashMap<(String, String), bool>>>,
    /// What the HostClasses that a host is of say of that, by its namespace and name; `None` until a controller that will has judged by all of them.
    pub detecting_classes: Mutex<Option<HashMap<(String, String), bool>>>,
    /// How often in a row the reconcile of a host (by its uid) could not be completed.
    pub stumbles: Mutex<HashMap<String, u32>>,
    /// What provisioners say of their work.
    pub heard: AllHeard,
}

impl Context {
    /// See [`Self::listening`].
    pub(crate) fn listening(&self) -> MutexGuard<'_, HashMap<String, bool>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the host looked at.
    pub(crate) fn poke(&self, host: &ObjectRef<BareMetalHost>) {
        self.looks.wake(host);
        self.pokes.poke(host.clone());
    }

    /// Waits until all watches are in step.
    pub(crate) async fn in_step(&self) {
        self.hosts.in_step.wait().await;
        self.hardware_data.in_step.wait().await;
        self.records.in_step.wait().await;
        self.bodies.in_step.wait().await;
        self.beside.in_step().await;
    }

    /// At the start, waits for all watches, so that not every host reads what they are about to show. Later, what is not in step is read.
    pub(crate) async fn begin(&self) {
        let begin = async {
            if tokio::time::timeout(LISTED_WITHIN, self.in_step()).await.is_err() {
                tracing::warn!(
                    "not all objects have been listed: hosts are looked at with more calls to the Kubernetes API"
                );
            }
        };
        self.begun.get_or_init(|| begin).await;
    }
}
