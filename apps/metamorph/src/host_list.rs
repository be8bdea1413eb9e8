//! `host list`: the current hosts of a cluster or of a state folder. For a folder without a running server it starts the embedded API alone for the
//! time of the answer, without touching any machine.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use api::metal3::BareMetalHost;
use api::metamorph::HostOperation;
use kube::Client;
use kube::api::{Api, ListParams};
use operator::Readable;
use serde_json::json;

use crate::cli::{HostList, Output};
use crate::{client, flags, host_watch, say, server};

/// Prints them.
pub async fn run(options: HostList) -> anyhow::Result<()> {
    let print = async |client: Client| print(&client, &options).await;
    with_client(options.kubeconfig.as_deref(), options.state.as_deref(), print).await
}

/// Does something with a client of this folder's API, or without one of the cluster's.
pub async fn with_client(
    kubeconfig: Option<&Path>,
    state: Option<&Path>,
    act: impl AsyncFnOnce(Client) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Some(state) = state else {
        return act(client::connect(kubeconfig).await?).await;
    };
    flags::folder(state, "--state")?;
    let store = server::api_folder(state).join(apiserver::STORE);
    ensure!(store.is_file(), "--state: {} holds no state (there is no {})", state.display(), store.display());
    let attempt = || format!("open the state {}", state.display());
    match server::open_api(state).await {
        Ok(api) => {
            let done = act(client::of_served(&api)).await;
            api.shutdown().await;
            done
        }
        Err(apiserver::StartError::InUse { .. }) => act(running(state).await.with_context(attempt)?).await,
        Err(error) => Err(error).with_context(attempt),
    }
}

/// The server that runs on the folder has written a kubeconfig into it.
async fn running(state: &Path) -> anyhow::Result<Client> {
    let kubeconfig = state.join("kubeconfig");
    if !kubeconfig.is_file() {
        bail!("it is in use, and whoever uses it has written no {}; try again", kubeconfig.display());
    }
    client::connect(Some(&kubeconfig)).await
}

async fn print(client: &Client, options: &HostList) -> anyhow::Result<()> {
    let (hosts, operations): (Api<Readable<BareMetalHost>>, Api<HostOperation>) = match &options.namespace {
        Some(namespace) => (Api::namespaced(client.clone(), namespace), Api::namespaced(client.clone(), namespace)),
        None => (Api::all(client.clone()), Api::all(client.clone())),
    };
    let found = hosts.list(&ListParams::default()).await.context("list the hosts")?.items;
    let hosts = host_watch::read(found);
    if options.output == Output::Json {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": hosts });
        return say::out(&format!("{}\n", serde_json::to_string_pretty(&list).context("write JSON")?));
    }
    let operations = operations.list(&ListParams::default()).await.context("list the operations")?.items;
    if hosts.is_empty() {
        say::note("there are no hosts");
        return Ok(());
    }
    say::out(&host_watch::listed(hosts, operations, options.namespace.is_none()))
}
