//! The same life without any Ironic: the native provisioner boots ironic-python-agent by Redfish virtual media and drives it itself. In it, steps of a
//! vendor's hardware manager (`tests/ironic/ramdisk`) are asked for by name.

use std::time::Instant;

use api::metal3::ProvisioningState;
use api::metamorph::{HardwareManager, OperationPhase, StepResult};
use e2e::{CallHome, Options, World, agent_image_ipa, bytes_at, demo_os, free_addresses};
use serde_json::{Value, json};

use super::life::{DISK, HOST, Life, PATIENCE, image, machine, parameters};

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
    steps_are_run_by_name(&life).await;
    let url = format!("http://{HOST}:{}/images/{IMAGE}", life.world.media_port());
    life.is_to_run(&image(IMAGE, &url)).await;
    comes_to(&life, ProvisioningState::Provisioned).await;
    // Ironic-python-agent gives the partition of the config drive no name.
    life.has_its_system(&call_home, &[""]).await;
    life.is_to_run(&Value::Null).await;
    comes_to(&life, ProvisioningState::Available).await;
    life.is_emptied();
    let machine = life.goes().await;
    assert!(machine["medium"].is_null(), "{machine}");
}

/// What the vendor's hardware manager offers is listed, what is asked for of it is done to the machine and told, and what it says of a failure as well: in the boot
/// that has inspected the machine.
async fn steps_are_run_by_name(life: &Life) {
    let starts = life.starts().await;
    let label = json!([{ "step": "label_disks", "interface": "management", "args": "{\"label\": \"rack 7\"}" }]);
    let status = life.steps("label", label).await;
    assert_eq!(status.phase, OperationPhase::Succeeded, "{status:?}");
    let report = status.steps_report.unwrap();
    let vendor = HardwareManager { name: "AcmeHardwareManager".into(), version: "1.2".into() };
    assert!(report.managers.contains(&vendor) && report.managers.len() > 1, "{report:?}");
    let offered = |name: &str| report.offered.iter().find(|offered| offered.step == name).unwrap();
    let (ours, its_own) = (offered("label_disks"), offered("erase_devices_metadata"));
    assert_eq!((ours.manager.as_str(), ours.interface.as_str(), ours.priority), (&*vendor.name, "management", 0));
    assert!(ours.args.as_ref().unwrap().iter().any(|arg| arg.name == "label" && arg.required), "{ours:?}");
    assert_eq!(its_own.manager, "GenericHardwareManager");
    assert_eq!((report.ran.len(), report.ran[0].result), (1, StepResult::Done), "{report:?}");
    assert!(report.ran[0].message.contains("/dev/vda"), "{report:?}");
    assert_eq!(bytes_at(&life.disk, (DISK - 1) << 20, 7).unwrap(), b"rack 7\xff", "what was there before follows");

    let fails = json!([{ "step": "check_backplane" }, { "step": "erase_devices_metadata" }]);
    let status = life.steps("backplane", fails).await;
    assert_eq!(status.error.as_ref().unwrap().cause, "StepFailed", "{status:?}");
    let ran = status.steps_report.unwrap().ran;
    let results: Vec<StepResult> = ran.iter().map(|ran| ran.result).collect();
    assert_eq!(results, [StepResult::Failed, StepResult::NotBegun], "{ran:?}");
    assert!(ran[0].message.contains("slot 3 of the backplane does not answer"), "{ran:?}");
    assert_eq!(life.starts().await, starts, "the agent's boot goes on");
    // Nothing was wiped.
    life.is_inspected().await;
    comes_to(life, ProvisioningState::Available).await;
}
