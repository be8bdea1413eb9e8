//! The same life without any Ironic: the native provisioner boots ironic-python-agent by Redfish virtual media and drives it itself.

use std::time::Instant;

use api::metal3::ProvisioningState;
use e2e::{CallHome, Options, World, agent_image_ipa, demo_os, free_addresses};
use serde_json::Value;

use super::life::{HOST, Life, PATIENCE, image, machine, parameters};

const IMAGE: &str = "debian-12.raw";

async fn comes_to(life: &Life, state: ProvisioningState) {
    if let Err(failure) = life.comes_to(state).await {
        panic!("{failure}\n{}\nthe end of the machine's console:\n{}", life.world.server.tail(), life.console());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_lives_its_life_by_ironic_python_agent_without_an_ironic() {
    let (started, folder) = (Instant::now(), tempfile::tempdir().unwrap());
    let call_home = CallHome::start().await.unwrap();
    let [port] = free_addresses(std::net::Ipv4Addr::LOCALHOST).unwrap();
    let (disk, machine) = machine(folder.path(), 2560, port.port());
    let options = Options { machines: vec![machine], tls: false, arguments: Vec::new() }.with(&[
        &format!("--agent-image={}", agent_image_ipa().unwrap().display()),
        "--agent-host",
        &HOST.to_string(),
        "--images",
        &demo_os().unwrap().display().to_string(),
        "--agent-boot-timeout",
        &PATIENCE.to_string(),
        "--agent-kernel-arguments",
        &parameters(port.port()),
    ]);
    let life = Life { started, world: World::start(options).await.unwrap(), disk };
    life.declare(&call_home).await;
    comes_to(&life, ProvisioningState::Available).await;
    life.is_inspected().await;
    let url = format!("http://{HOST}:{}/images/{IMAGE}", life.world.media_port());
    life.is_to_run(&image(IMAGE, &url)).await;
    comes_to(&life, ProvisioningState::Provisioned).await;
    // Ironic-python-agent gives the partition of the config drive no name.
    life.has_its_system(&call_home, "").await;
    life.is_to_run(&Value::Null).await;
    comes_to(&life, ProvisioningState::Available).await;
    life.is_emptied();
    life.goes().await;
}
