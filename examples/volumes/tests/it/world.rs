//! The embedded Kubernetes API in process with the definition of StorageVolume, and what a test does there.

use std::sync::Arc;
use std::time::Duration;

use apiserver::in_process::{Disk, ExecutorClock, Identity, InProcess, Setup};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use provisioner::{Now, Provides, Registry};
use provisioner_external::{Connect, External, Site};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use volumes::{Phase, StorageVolume, StorageVolumeSpec, StorageVolumeStatus, Volume};

/// The API, and a client of it.
pub struct World {
    pub api: Api<StorageVolume>,
    client: Client,
    now: Now,
    _server: InProcess,
}

impl World {
    pub async fn start() -> Self {
        let clock = Arc::new(ExecutorClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
        let setup = Setup { disk: Disk::new().unwrap(), clock: clock.clone(), seed: 7, reviewers: vec![] };
        let server = InProcess::start(setup).await.unwrap();
        server.install(serde_json::to_value(volumes::kind::definition()).unwrap()).await.unwrap();
        let client = Client::new(server.caller(Identity::administrator()), "default");
        let now: Now = Arc::new(move || clock::Clock::now(clock.as_ref()));
        Self { api: Api::default_namespaced(client.clone()), client, now, _server: server }
    }

    /// Starts a controller with this worker; to abort it is to kill it.
    pub fn controller(&self, site: Site, connect: Arc<dyn Connect>) -> JoinHandle<()> {
        let worker: Arc<dyn Provides<Volume>> = Arc::new(External::<Volume>::new(site, connect));
        let (client, now) = (self.client.clone(), Arc::clone(&self.now));
        tokio::spawn(volumes::run(client, Registry::new(worker), now, std::future::pending()))
    }

    pub async fn create(&self, name: &str, size_mebibytes: u64) -> StorageVolume {
        let spec = StorageVolumeSpec { size_mebibytes, provisioner: None };
        self.api.create(&PostParams::default(), &StorageVolume::new(name, spec)).await.unwrap()
    }

    pub async fn patch(&self, name: &str, change: Value) -> kube::Result<StorageVolume> {
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await
    }

    pub async fn resize(&self, name: &str, size: u64) {
        self.patch(name, json!({ "spec": { "sizeMebibytes": size } })).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the status is so.
    pub async fn wait(&self, name: &str, what: &str, is_so: impl Fn(&StorageVolumeStatus) -> bool) -> StorageVolume {
        let mut found = None;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(300) {
            found = self.api.get_opt(name).await.unwrap();
            let status = found.as_ref().and_then(|volume| volume.status.clone()).unwrap_or_default();
            if let Some(found) = found.clone().filter(|_| is_so(&status)) {
                return found;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{what}: {:?}", found.map(|found| (found.metadata, found.status)));
    }

    pub async fn ready(&self, name: &str, size: u64) -> StorageVolume {
        let is_so = |status: &StorageVolumeStatus| status.phase == Phase::Ready && status.size_mebibytes == size;
        self.wait(name, "it is ready", is_so).await
    }

    pub async fn gone(&self, name: &str) {
        let begun = Instant::now();
        while let Some(found) = self.api.get_opt(name).await.unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(300), "{}: {:?}", found.name_any(), found.status);
            sleep(Duration::from_millis(100)).await;
        }
    }
}
