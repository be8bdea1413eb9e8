//! The fixture as a worker: each effect on its machines is asked for and told on the call's stream.

use std::sync::Arc;

use async_trait::async_trait;
use provisioner::Provisioner;
use provisioner_external::serve::{About, Worker, about_to, did, serve_stream, worker};
use provisioner_external::{InMemory, Reached, Site, v1};
use provisioner_fixture::{Effect, FixtureProvisioner, Machines, Watch, capabilities};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

struct Told;

const fn kind(effect: Effect) -> v1::Effect {
    match effect {
        Effect::On | Effect::Off | Effect::Restart | Effect::Vacate => v1::Effect::Power,
        Effect::Inspect => v1::Effect::Inspect,
        Effect::Provision | Effect::BootLive | Effect::Deploy => v1::Effect::Write,
        Effect::Deprovision | Effect::Erase => v1::Effect::Wipe,
        Effect::Prepare | Effect::Service | Effect::Steps => v1::Effect::Configure,
        Effect::Attach | Effect::Detach => v1::Effect::Media,
        Effect::Subscribe | Effect::Unsubscribe => v1::Effect::Events,
        Effect::Stop => v1::Effect::End,
        Effect::Light | Effect::Darken => v1::Effect::Locate,
    }
}

#[async_trait]
impl Watch for Told {
    async fn before(&self, _: &str, effect: Effect) {
        // The fixture has looked whether it may act.
        about_to(kind(effect), &effect.to_string()).await;
    }
    async fn after(&self, _: &str, effect: Effect, happened: bool) {
        did(kind(effect), happened, &effect.to_string()).await;
    }
}

/// Machines whose orders are told.
pub fn machines() -> Machines {
    Machines::watched(Arc::new(Told))
}

/// What the fixture says of itself.
pub fn about() -> About {
    About {
        name: "fixture".into(),
        program: "1.2.3".into(),
        id_prefix: "fixture-".into(),
        capabilities: capabilities(),
        schemes: Vec::new(),
        check_address: None,
    }
}

/// A worker's process over these machines.
pub fn fixture(machines: Machines) -> Worker {
    let provisioner: Arc<dyn Provisioner> = Arc::new(FixtureProvisioner::new(machines));
    worker(provisioner, about(), None)
}

/// Serves this worker in memory, until the other end and its connections are gone.
pub fn in_memory(worker: Worker) -> InMemory {
    let (sender, mut connections) = mpsc::channel::<DuplexStream>(4);
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            tokio::spawn(serve_stream(stream, worker.clone()));
        }
    });
    InMemory(sender)
}

/// The entry of a provisioner of this name.
pub fn site(name: &str) -> Site {
    Site::new(name, Reached::Socket("/nowhere".into(), None))
}
