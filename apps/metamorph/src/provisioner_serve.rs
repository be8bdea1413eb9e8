//! `provisioner serve`: a provisioner of this program's, behind the protocol of those that are other programs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow};
use async_trait::async_trait;
use provisioner::Provisioner;
use provisioner_external::serve::{About, Bound, Troubles, Worker, about_to, did, listen_tls, listen_unix, worker};
use provisioner_external::{Identity, file, socket_address, tls_server, v1};
use provisioner_fixture::{Effect, FixtureProvisioner, Machines, Trouble, Watch, capabilities};
use provisioner_kit::FOREIGN_OWNER;

use crate::cli::{ProvisionerServe, ServedProvisioner};
use crate::stop;

/// Serves until it is stopped.
pub async fn run(options: ProvisionerServe) -> anyhow::Result<()> {
    let worker = match options.name {
        ServedProvisioner::Fixture => fixture(),
    };
    let bound = listen(&options, worker.clone()).await?;
    match bound.address {
        Some(address) => tracing::info!(%address, "listening"),
        None => tracing::info!(address = %options.listen, "listening"),
    }
    stop::stop_signal().await?;
    worker.drain(true);
    drop(bound);
    Ok(())
}

async fn listen(options: &ProvisionerServe, worker: Worker) -> anyhow::Result<Bound> {
    let attempt = || format!("listen on {}", options.listen);
    let address = match options.listen.parse::<SocketAddr>() {
        Err(_) => {
            let path = socket_address(&options.listen).map_err(|why| anyhow!(why)).with_context(attempt)?;
            return listen_unix(&path, worker).await.with_context(attempt);
        }
        Ok(address) => address,
    };
    let (Some(certificate), Some(key), Some(authority)) =
        (&options.tls_certificate, &options.tls_key, &options.client_ca)
    else {
        return Err(anyhow!("passwords of BMCs go over it: name --tls-certificate, --tls-key and --client-ca"))
            .with_context(attempt);
    };
    let (certificate, key, authority) = (read(certificate).await?, read(key).await?, read(authority).await?);
    let identity = Identity { certificate: &certificate, key: &key };
    let config = tls_server(&authority, &identity).map_err(|why| anyhow!(why)).with_context(attempt)?;
    listen_tls(address, config, worker).await.with_context(attempt)
}

async fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    file(path).await.map_err(|why| anyhow!(why))
}

fn fixture() -> Worker {
    let machines = Machines::watched(Arc::new(Told));
    let about = About {
        name: provisioner_fixture::NAME.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        id_prefix: "fixture-".to_owned(),
        capabilities: capabilities(),
        schemes: Vec::new(),
        check_address: Some("redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/{n}".to_owned()),
    };
    let troubled = Troubled { machines: machines.clone(), before: Mutex::default() };
    let provisioner: Arc<dyn Provisioner> = Arc::new(FixtureProvisioner::new(machines));
    worker(provisioner, about, Some(Arc::new(troubled)))
}

/// Has each effect asked for and told on the call's stream.
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
        // The fixture has looked whether it may act; the server is told what is about to happen.
        about_to(kind(effect), &effect.to_string()).await;
    }

    async fn after(&self, _: &str, effect: Effect, happened: bool) {
        did(kind(effect), happened, &effect.to_string()).await;
    }
}

/// What was on a disk before it became another's.
type Before = HashMap<String, Option<(String, String)>>;

struct Troubled {
    machines: Machines,
    before: Mutex<Before>,
}

#[async_trait]
impl Troubles for Troubled {
    async fn set(&self, address: &str, condition: v1::Condition, on: bool) -> bool {
        let trouble = match condition {
            // Its machines have no BMC that reads media.
            v1::Condition::Unspecified | v1::Condition::Occupied | v1::Condition::Unread => return false,
            v1::Condition::Slow => Trouble::Slow,
            v1::Condition::Failing => Trouble::Failing,
            v1::Condition::Refusing => Trouble::Refusing,
            v1::Condition::Silent => Trouble::Silent,
            v1::Condition::Busy => Trouble::Busy,
            // What is known again is known by its registration.
            v1::Condition::Forgotten if !on => return true,
            v1::Condition::Forgotten => Trouble::Forgotten,
            v1::Condition::Another => Trouble::Another,
            v1::Condition::Foreign => {
                self.foreign(address, on);
                return true;
            }
        };
        self.machines.trouble(address, trouble, on);
        true
    }
}

impl Troubled {
    fn foreign(&self, address: &str, on: bool) {
        let there = self.machines.system(address);
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if on {
            before.insert(address.to_owned(), there);
            self.machines.put(address, Some(("theirs".to_owned(), FOREIGN_OWNER.to_owned())));
        } else {
            let earlier = before.remove(address).flatten();
            if there.is_some_and(|(_, owner)| owner == FOREIGN_OWNER) {
                self.machines.put(address, earlier);
            }
        }
    }
}
