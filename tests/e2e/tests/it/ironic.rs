//! A machine's whole life under a real Ironic, which our provisioner drives: enrolled, inspected, cleaned, provisioned, emptied, let go. Ironic builds
//! the ISO, boots the machine from it by Redfish virtual media (UEFI firmware, shim, GRUB, kernel: emulated, minutes), and tells the agent there what to
//! do; the machine then boots its own system, which reports in. Once with our agent, once with ironic-python-agent.

mod life;
mod native;

use std::path::{Path, PathBuf};
use std::time::Instant;

use api::metal3::ProvisioningState;
use e2e::{CallHome, Ironic, Options, Setup, World, agent_image, agent_image_ipa, demo_os, free_addresses};
use life::{HOST, Life, as_qcow2, image, machine, parameters};
use serde_json::{Value, json};

/// The demo's system, packed.
const PACKED: &str = "debian-12.raw.zst";

/// What machines boot for Ironic.
struct Agent {
    folder: PathBuf,
    memory: u32,
    /// Its image is a qcow2 file, which ironic-python-agent fetches whole; else one that zstd has packed, which our agent unpacks.
    qcow2: bool,
    manager: &'static str,
    /// Names of the partitions that it adds: ironic-python-agent gives that of the config drive none.
    added: &'static [&'static str],
}

struct Lab {
    ironic: Ironic,
    life: Life,
    image: Value,
}

impl Lab {
    async fn start(agent: &Agent, folder: &Path) -> Self {
        let started = Instant::now();
        let [port] = free_addresses(std::net::Ipv4Addr::LOCALHOST).unwrap();
        let port = port.port();
        let ironic = Ironic::start(&Setup {
            agent: agent.folder.clone(),
            loaders: agent_image().unwrap(),
            parameters: parameters(port),
            seen_at: HOST,
            unpacks: false,
        })
        .await
        .unwrap();
        let (disk, machine) = machine(folder, agent.memory, port);
        let list = ironic.list().unwrap().display().to_string();
        let options = Options { machines: vec![machine], tls: false, arguments: Vec::new() };
        let world = World::start(options.with(&["--provisioner", "ironic", "--ironics", &list])).await.unwrap();
        let image = if agent.qcow2 {
            let (path, mut image) = as_qcow2(folder);
            image["url"] = ironic.publish(&path).unwrap().into();
            image
        } else {
            image(PACKED, &ironic.publish(&demo_os().unwrap().join(PACKED)).unwrap())
        };
        let lab = Self { ironic, life: Life { started, world, disk }, image };
        lab.life.milestone("Ironic and the server run");
        lab
    }

    /// Waits for a state; what fails on the way fails the test, with what all that took part have said.
    async fn comes_to(&self, state: ProvisioningState) {
        if let Err(failure) = self.life.comes_to(state).await {
            let fields = "provision_state,last_error,power_state,clean_step,deploy_step";
            let node = self.ironic.get(&format!("/v1/nodes?fields={fields}")).await;
            let (said, console) = (self.ironic.tail(), self.life.console());
            panic!("{failure}\n{node:?}\n{said}\nthe end of the machine's console:\n{console}");
        }
    }

    async fn nodes(&self) -> Value {
        self.ironic.get("/v1/nodes/detail").await.unwrap()["nodes"].clone()
    }
}

async fn live(agent: &Agent) {
    let folder = tempfile::tempdir().unwrap();
    let call_home = CallHome::start().await.unwrap();
    let lab = Lab::start(agent, folder.path()).await;
    lab.life.declare(&call_home).await;
    lab.comes_to(ProvisioningState::Available).await;
    let nodes = lab.nodes().await;
    let uuid = nodes[0]["uuid"].as_str().unwrap().to_owned();
    let found = lab.ironic.get(&format!("/v1/nodes/{uuid}/inventory")).await.unwrap();
    let managers = found["plugin_data"]["configuration"]["managers"].as_array().unwrap();
    assert!(managers.iter().any(|manager| manager["name"] == agent.manager), "{found}");
    lab.life.is_inspected().await;

    lab.life.is_to_run(&lab.image).await;
    lab.comes_to(ProvisioningState::Provisioned).await;
    lab.life.has_its_system(&call_home, agent.added).await;

    lab.life.is_to_run(&Value::Null).await;
    lab.comes_to(ProvisioningState::Available).await;
    lab.life.is_emptied();
    let nodes = lab.nodes().await;
    assert_eq!((&nodes[0]["last_error"], &nodes[0]["maintenance"]), (&Value::Null, &json!(false)), "{nodes}");
    assert!(lab.ironic.agents_logs() >= 1, "Ironic keeps the agent's logs");

    let machine = lab.life.goes().await;
    // With fast track it ends no agent, and keeps the medium that the agent was booted from.
    let medium = machine["medium"]["url"].as_str().unwrap_or_default().to_owned();
    assert!(machine["medium"].is_null() || medium.contains("/redfish/boot-"), "{machine}");
    assert_eq!(lab.nodes().await, json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_lives_its_life_under_ironic_by_our_agent() {
    let folder = agent_image().unwrap();
    live(&Agent {
        folder,
        memory: 512,
        qcow2: false,
        manager: "MetamorphAgent",
        added: &["metamorph-mark", "config-2"],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_lives_its_life_under_ironic_by_ironic_python_agent() {
    let folder = agent_image_ipa().unwrap();
    live(&Agent { folder, memory: 2560, qcow2: true, manager: "generic_hardware_manager", added: &[""] }).await;
}
