//! `metamorph operator` on an API that is there already: one of several works, and the API server asks it about hosts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{EmbeddedApi, Options, Running, Sim, World, agent_image, own_addresses, program};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const HOST: &str = "node-0";

struct Stage {
    folder: TempDir,
    _api: apiserver::Server,
    sim: Sim,
    client: Client,
    kubeconfig: PathBuf,
}

impl Stage {
    async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let EmbeddedApi { server, client } = EmbeddedApi::start(folder.path()).await?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.admin_kubeconfig())?;
        let sim = Sim::start(folder.path(), &[e2e::machine(HOST)], false).await?;
        Ok(Self { folder, _api: server, sim, client, kubeconfig })
    }

    fn operator(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Running> {
        operator(self.folder.path(), name, &self.kubeconfig, arguments)
    }

    fn hosts(&self) -> Api<BareMetalHost> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create_host(&self) -> anyhow::Result<()> {
        let machine = self.sim.machine(HOST);
        let secret = serde_json::from_value(json!({ "metadata": { "name": "bmc" },
            "stringData": { "username": machine["username"], "password": machine["password"] } }))?;
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(self.client.clone());
        secrets.create(&PostParams::default(), &secret).await?;
        let host = serde_json::from_value(json!({ "metadata": { "name": HOST }, "spec": {
            "online": false, "inspectionMode": "disabled", "bootMACAddress": machine["mac"],
            "bmc": { "address": self.sim.address(HOST), "credentialsName": "bmc" } } }))?;
        self.hosts().create(&PostParams::default(), &host).await?;
        Ok(())
    }

    async fn wait_available(&self) -> anyhow::Result<()> {
        let available = |host: Option<&BareMetalHost>| host.is_some_and(|h| h.state() == ProvisioningState::Available);
        let waited = kube::runtime::wait::await_condition(self.hosts(), HOST, available);
        tokio::time::timeout(Duration::from_secs(60), waited).await.context("the host is not available")??;
        Ok(())
    }

    /// Switches the host and waits until its machine is.
    async fn switch(&self, online: bool, seconds: u64) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "spec": { "online": online } }));
        self.hosts().patch(HOST, &PatchParams::default(), &patch).await?;
        let wanted = if online { "On" } else { "Off" };
        self.sim.wait(HOST, seconds, wanted, |m| m["power"] == wanted).await.map(|_| ())
    }

    async fn holder(&self) -> anyhow::Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "metamorph-system");
        let lease = leases.get("metamorph").await?;
        Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
    }
}

/// Starts an operator on the API of this kubeconfig.
fn operator(folder: &Path, name: &str, kubeconfig: &Path, arguments: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(program("metamorph")?);
    command.arg("operator").arg("--kubeconfig").arg(kubeconfig).arg("--agent-image").arg(agent_image()?);
    command.args(["--media-listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0", "--power-poll", "1"]);
    command.args(["--health-listen", "127.0.0.1:0", "--allow-address", "127.0.0.0/8"]);
    command.args(arguments);
    Running::start(command, &folder.join(format!("{name}.log")))
}

/// One works while the other stands by; the other takes over when the first is gone without a word, and at once when it says so.
#[tokio::test]
async fn of_two_processes_one_works_and_the_other_takes_over() {
    let stage = Stage::start().await.unwrap();
    let mut first = stage.operator("first", &["--lease-duration", "3"]).unwrap();
    first.wait_logged("this process leads", 30).await.unwrap();
    let mut second = stage.operator("second", &["--lease-duration", "60"]).unwrap();
    second.wait_logged("standing by", 30).await.unwrap();
    stage.create_host().await.unwrap();
    stage.wait_available().await.unwrap();
    assert!(!second.logged().contains("this process leads"), "{}", second.tail());
    let holder = stage.holder().await.unwrap();
    first.kill().await.unwrap();
    second.wait_logged("this process leads", 15).await.unwrap();
    assert_ne!(stage.holder().await.unwrap(), holder);
    stage.switch(true, 30).await.unwrap();
    // The second would be waited for for a minute, if it did not let go.
    let third = stage.operator("third", &["--lease-duration", "60"]).unwrap();
    third.wait_logged("standing by", 30).await.unwrap();
    second.stop().await.unwrap();
    third.wait_logged("this process leads", 15).await.unwrap();
    stage.switch(false, 30).await.unwrap();
}

/// A process that slept through the end of its Lease finds another in its place: it ends, and touches no machine.
#[tokio::test]
async fn a_process_that_overslept_does_nothing_more() {
    let stage = Stage::start().await.unwrap();
    let mut first = stage.operator("first", &["--lease-duration", "3"]).unwrap();
    first.wait_logged("this process leads", 30).await.unwrap();
    stage.create_host().await.unwrap();
    stage.wait_available().await.unwrap();
    let second = stage.operator("second", &["--lease-duration", "3"]).unwrap();
    second.wait_logged("standing by", 30).await.unwrap();
    let pid = first.pid().unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    second.wait_logged("this process leads", 20).await.unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    first.wait_logged("was lost", 20).await.unwrap();
    let ended = async {
        while first.is_running() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it still runs");
    stage.switch(true, 30).await.unwrap();
}

/// The API server asks the operator about hosts, by HTTPS.
#[tokio::test]
async fn the_operator_is_asked_about_hosts_before_they_are_stored() {
    let stage = Stage::start().await.unwrap();
    let [address] = own_addresses().unwrap().map(|address: std::net::SocketAddr| address.to_string());
    let url = format!("https://{address}");
    let operator = stage.operator("operator", &["--webhook-listen", &address, "--webhook-url", &url]).unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(stage.client.clone());
    let there =
        kube::runtime::wait::await_condition(configurations, "metamorph-webhook", |found: Option<&_>| found.is_some());
    tokio::time::timeout(Duration::from_secs(60), there)
        .await
        .unwrap_or_else(|_| panic!("{}", operator.tail()))
        .unwrap();
    let host = |spec: Value| {
        serde_json::from_value::<BareMetalHost>(json!({ "metadata": { "name": "x" }, "spec": spec })).unwrap()
    };
    let wrong = host(json!({ "online": false, "disablePowerOff": true }));
    let refused = stage.hosts().create(&PostParams::default(), &wrong).await.unwrap_err().to_string();
    assert!(refused.contains("baremetalhost.metal3.io") && refused.contains("disablePowerOff"), "{refused}");
    stage.hosts().create(&PostParams::default(), &host(json!({ "online": true }))).await.unwrap();
}

/// `up` works by the same Lease on its API: an operator beside it stands by, the next `up` on the same folder waits for nothing, and one that is
/// not the holder any more ends.
#[tokio::test]
async fn of_up_and_an_operator_beside_it_one_works() {
    let mut world = World::start(Options::one_fake()).await.unwrap();
    // Its API is served before it has the Lease: an operator that came just then would be the one that leads.
    world.server.wait_logged("Metamorph is up", 30).await.unwrap();
    let beside = operator(world.folder.path(), "operator", &world.kubeconfig(), &["--lease-duration", "3"]).unwrap();
    beside.wait_logged("standing by: up_", 30).await.unwrap();
    let plain = json!({ "online": false, "inspectionMode": "disabled" });
    world.apply_host(HOST, plain).await.unwrap();
    world.wait_state(HOST, 60, ProvisioningState::Available).await.unwrap();
    world.server.kill().await.unwrap();
    world.start_server_again().await.unwrap();
    let on = Patch::Merge(json!({ "spec": { "online": true } }));
    world.hosts().patch(HOST, &PatchParams::default(), &on).await.unwrap();
    world.sim.wait(HOST, 30, "On", |m| m["power"] == "On").await.unwrap();
    assert!(!world.server.logged().contains("standing by"), "{}", world.server.tail());
    assert!(!beside.logged().contains("this process leads"), "{}", beside.tail());
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "metamorph-system");
    let taken = Patch::Merge(json!({ "spec": { "holderIdentity": "somebody" } }));
    leases.patch("metamorph", &PatchParams::default(), &taken).await.unwrap();
    let ended = world.server.ended(Duration::from_secs(20)).await.unwrap();
    assert!(!ended.success() && world.server.logged().contains("was lost"), "{}", world.server.tail());
}

/// An operator that holds the Lease of an API whose server is started anew, as `up` this time, goes on; `up` waits for it, and serves the API.
#[tokio::test]
async fn up_waits_for_an_operator_that_works_on_its_api() {
    let mut world = World::start(Options::one_fake()).await.unwrap();
    let plain = json!({ "online": false, "inspectionMode": "disabled" });
    world.apply_host(HOST, plain).await.unwrap();
    world.wait_state(HOST, 60, ProvisioningState::Available).await.unwrap();
    world.server.stop().await.unwrap();
    let mut api = Command::new(program("metamorph").unwrap());
    api.args(["api", "serve", "--api-listen", &world.api_endpoint().to_string(), "--data"]);
    api.arg(world.folder.path().join("data"));
    let mut api = Running::start(api, &world.folder.path().join("api.log")).unwrap();
    let lease = ["--lease-duration", "60"];
    let mut working = operator(world.folder.path(), "operator", &world.kubeconfig(), &lease).unwrap();
    working.wait_logged("this process leads", 30).await.unwrap();
    api.stop().await.unwrap();
    world.start_server_again().await.unwrap();
    world.server.wait_logged("standing by", 30).await.unwrap();
    let on = Patch::Merge(json!({ "spec": { "online": true } }));
    world.hosts().patch(HOST, &PatchParams::default(), &on).await.unwrap();
    world.sim.wait(HOST, 30, "On", |m| m["power"] == "On").await.unwrap();
    assert!(working.is_running(), "{}", working.tail());
    assert!(!world.server.logged().contains("this process leads"), "{}", world.server.tail());
    working.stop().await.unwrap();
    let off = Patch::Merge(json!({ "spec": { "online": false } }));
    world.hosts().patch(HOST, &PatchParams::default(), &off).await.unwrap();
    world.sim.wait(HOST, 30, "Off", |m| m["power"] == "Off").await.unwrap();
}
