//! The agent under an Ironic that is a script: when it asks and heartbeats, what it does as it is told, and what it refuses.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use agent::commands::Runner;
use agent::ironic::{
    Answer, Api, ApiError, Certificate, Commands, Context, HttpApi, Known, Settings, beat, introduce, serve,
};
use agent::report::LogRing;
use agent_protocol::{DiskMark, Leave};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use disk_image::{FileDisk, MarkFound, find_config_volumes, read_mark};
use ipa_protocol::{
    CommandRequest, ExecuteStep, Heartbeat, InspectionData, LookupAnswer, LookupConfig, LookupNode, Parameters, Secret,
    StepKind, StepsAnswer,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::common::{add_disk, machine, machine_root, plant};
use crate::disks::{self, MIB};

const TOKEN: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
const NODE: &str = "8a1d0c6e-1f6a-4a2c-9d55-3f0f6f4b7a11";

/// What is answered, and when what was asked.
#[derive(Default)]
struct Script {
    inspections: Mutex<VecDeque<Result<Option<String>, ApiError>>>,
    lookups: Mutex<VecDeque<Result<LookupAnswer, ApiError>>>,
    beats: Mutex<VecDeque<Result<(), ApiError>>>,
    asked: Mutex<Vec<(Instant, String)>>,
    sent: Mutex<Vec<InspectionData>>,
}

impl Script {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push((Instant::now(), what));
    }

    /// Seconds between one call and the next.
    fn pauses(&self) -> Vec<f64> {
        let asked = self.asked.lock().unwrap();
        asked.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs_f64()).collect()
    }
}

impl Api for Script {
    async fn inspected(&self, data: &InspectionData) -> Result<Option<String>, ApiError> {
        self.note("inspection".into());
        self.sent.lock().unwrap().push(data.clone());
        self.inspections.lock().unwrap().pop_front().unwrap()
    }

    async fn lookup(&self, addresses: &[String], node: Option<&str>) -> Result<LookupAnswer, ApiError> {
        self.note(format!("lookup of {} as {node:?}", addresses.join(",")));
        self.lookups.lock().unwrap().pop_front().unwrap()
    }

    async fn heartbeat(&self, node: &str, beat: &Heartbeat) -> Result<(), ApiError> {
        assert!(beat.agent_token.as_ref().unwrap().is(TOKEN) && beat.agent_verify_ca.as_deref() == Some("pem"));
        self.note(format!("{node} at {}", beat.callback_url));
        self.beats.lock().unwrap().pop_front().unwrap_or(Ok(()))
    }
}

fn found(token: &str) -> Result<LookupAnswer, ApiError> {
    let config =
        LookupConfig { heartbeat_timeout: 300, agent_token: Some(Secret::new(token)), ..LookupConfig::default() };
    Ok(LookupAnswer { node: LookupNode { uuid: NODE.into(), ..LookupNode::default() }, config })
}

fn runner(root: &Path) -> Arc<Runner> {
    let runner = Runner::new(machine(root), tokio::runtime::Handle::current(), "", Arc::default());
    Arc::new(runner.with_patience(Duration::ZERO))
}

fn add_nic(root: &Path) {
    let nic = root.join("sys/class/net/eth0");
    std::fs::create_dir_all(nic.join("device")).unwrap();
    for (name, text) in [("type", "1\n"), ("address", "52:54:00:00:00:01\n"), ("carrier", "1\n"), ("speed", "10000\n")]
    {
        std::fs::write(nic.join(name), text).unwrap();
    }
    std::fs::write(nic.join("device/vendor"), "0x8086\n").unwrap();
    std::fs::write(nic.join("device/device"), "0x1572\n").unwrap();
}

fn commands(root: &Path, parameters: &str) -> Arc<Commands> {
    let parameters = Parameters::parse(parameters).unwrap();
    let settings = Settings { node: NODE.into(), config: LookupConfig::default(), parameters };
    Arc::new(Commands::new(Arc::new(Context::new(runner(root), settings, LogRing::new())), Secret::new(TOKEN)))
}

fn order(name: &str, params: Value) -> CommandRequest {
    let Value::Object(params) = params else { panic!("{params}") };
    CommandRequest { name: name.into(), params }
}

fn step(kind: StepKind, name: &str, args: Map<String, Value>, node: Value) -> CommandRequest {
    let mut step = ExecuteStep::new("deploy", name, args);
    step.node = node;
    CommandRequest { name: kind.execute_command(), params: step.to_params(kind) }
}

/// Runs a step to its end; its result, or the words of its failure.
async fn done(commands: &Arc<Commands>, kind: StepKind, name: &str, args: Value, node: Value) -> Result<Value, String> {
    let Value::Object(args) = args else { panic!("{args}") };
    let answer = commands.order(step(kind, name, args, node), true).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    match answer.body["command_status"].as_str().unwrap() {
        "SUCCEEDED" => Ok(answer.body["command_result"].clone()),
        "FAILED" => Err(answer.body["command_error"]["details"].as_str().unwrap().to_owned()),
        other => panic!("{other}: {answer:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_is_looked_for_with_pauses_and_with_what_was_inspected() {
    let folder = machine_root();
    add_nic(folder.path());
    add_disk(folder.path(), "vda", 4, 5 << 30);
    for (name, value) in [("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2330"), ("revision", "0xa1")] {
        plant(folder.path(), &format!("sys/bus/pci/devices/0000:3b:00.0/{name}"), value);
    }
    let runner = runner(folder.path());
    let line =
        "ipa-api-url=http://i:6385 ipa-inspection-collectors=default,logs,pci-devices,extra BOOTIF=52:54:00:00:00:01";
    let parameters = Parameters::parse(line).unwrap();
    let script = Script::default();
    let away = || ApiError::Unreachable { url: "http://i:6385".into(), why: "refused".into() };
    let unknown = || Err(ApiError::Status { status: 404, text: "no".into() });
    let unknown_yet = || Err(ApiError::Status { status: 404, text: "no".into() });
    script.inspections.lock().unwrap().extend([Err(away()), unknown_yet(), Ok(Some(NODE.into()))]);
    let locked = || Err(ApiError::Locked("x".into()));
    script.lookups.lock().unwrap().extend([unknown(), locked(), locked(), locked(), locked(), unknown(), found(TOKEN)]);
    let known = introduce(&script, &runner, &parameters, &LogRing::new()).await.unwrap();
    assert!(known.node == NODE && known.token.is(TOKEN));
    let pauses = script.pauses();
    assert_eq!(&pauses[..2], [5.0, 10.0], "between inspections");
    assert_eq!(&pauses[4..8], [5.0, 10.0, 30.0, 30.0], "while the node is locked");
    assert!((1.0..=60.0).contains(&pauses[3]) && (1.0..=2.0).contains(&pauses[8]), "{pauses:?}");
    let last = script.asked.lock().unwrap().last().unwrap().1.clone();
    assert_eq!(last, format!("lookup of 52:54:00:00:00:01 as Some({NODE:?})"));
    let sent = script.sent.lock().unwrap().pop().unwrap();
    let nic = &sent.inventory.interfaces[0];
    assert_eq!(
        (nic.mac_address.as_deref(), nic.vendor.as_deref(), nic.speed_mbps),
        (Some("52:54:00:00:00:01"), Some("0x8086"), Some(10000))
    );
    assert_eq!(sent.inventory.memory.as_ref().unwrap().total, Some(2_147_483_648));
    assert_eq!(
        (sent.inventory.disks[0].name.as_str(), sent.inventory.disks[0].logical_sectors),
        ("/dev/vda", Some(512))
    );
    let gpus: Vec<_> = sent.pci_devices.iter().flatten().map(|device| serde_json::to_value(device).unwrap()).collect();
    let gpu = json!({ "vendor_id": "10de", "product_id": "2330", "class": "030200", "revision": "a1", "bus": "0000:3b:00.0", "numa_node_id": -1 });
    assert!(gpus.contains(&gpu), "{gpus:?}");
    assert_eq!(sent.root_disk.unwrap().name, "/dev/vda");
    assert_eq!(
        sent.configuration.unwrap().collectors,
        ["default", "logs", "pci-devices"],
        "what it has not is not said to have looked"
    );
    assert!(STANDARD.decode(sent.logs.unwrap()).unwrap().starts_with(&[0x1f, 0x8b]));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_somebody_else_has_ends_it_unless_the_medium_has_one() {
    let folder = machine_root();
    let runner = runner(folder.path());
    let script = Script::default();
    script.lookups.lock().unwrap().extend([found("******"), found("******"), found("short")]);
    let without = Parameters::parse("ipa-api-url=http://i").unwrap();
    let with = Parameters::parse(&format!("ipa-api-url=http://i ipa-agent-token={TOKEN}")).unwrap();
    assert!(introduce(&script, &runner, &without, &LogRing::new()).await.is_none());
    assert!(introduce(&script, &runner, &with, &LogRing::new()).await.unwrap().token.is(TOKEN));
    assert!(introduce(&script, &runner, &without, &LogRing::new()).await.is_none(), "a short one is none");
    // An inspection alone: nobody is asked for a node.
    let inspection = Parameters::parse("ipa-inspection-callback-url=http://i/v1/continue_inspection").unwrap();
    script.inspections.lock().unwrap().push_back(Err(ApiError::Status { status: 400, text: "no".into() }));
    let asked = script.asked.lock().unwrap().len();
    assert!(introduce(&script, &runner, &inspection, &LogRing::new()).await.is_none());
    assert_eq!(script.asked.lock().unwrap().len(), asked + 1, "what Ironic refuses is not sent again");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_come_in_time_at_once_after_a_command_and_end_with_the_machine() {
    let folder = machine_root();
    let commands = commands(folder.path(), "");
    assert_eq!(commands.list().status, 200);
    let script = Arc::new(Script::default());
    script.beats.lock().unwrap().extend([Ok(()), Err(ApiError::Locked("x".into())), Ok(())]);
    let Ok(answer) = found(TOKEN) else { panic!() };
    let known = Known { node: NODE.into(), config: answer.config, token: Secret::new(TOKEN) };
    let living = tokio::spawn({
        let (script, commands) = (Arc::clone(&script), Arc::clone(&commands));
        async move { beat(&*script, &commands, &known, "https://192.0.2.7:9999", "pem").await }
    });
    tokio::time::sleep(Duration::from_secs(400)).await;
    let pauses = script.pauses();
    assert!((90.0..=180.1).contains(&pauses[0]), "{pauses:?}");
    assert!((5.0..=10.1).contains(&pauses[1]), "after an error: {pauses:?}");
    assert_eq!(script.asked.lock().unwrap()[0].1, format!("{NODE} at https://192.0.2.7:9999"));
    // A command ends: Ironic hears it within seconds, and not twice within five.
    let before = script.asked.lock().unwrap().len();
    for _ in 0..3 {
        assert_eq!(commands.order(order("standby.sync", json!({})), true).await.status, 200);
    }
    tokio::time::sleep(Duration::from_secs(12)).await;
    let after = script.asked.lock().unwrap().len();
    assert!((1..=3).contains(&(after - before)), "{before} {after}");
    assert!(script.pauses().iter().skip(before).all(|pause| *pause >= 4.9), "{:?}", script.pauses());
    let off = commands.order(order("standby.power_off", json!({})), false).await;
    assert_eq!(off.body["command_status"], "RUNNING");
    let late = commands.order(order("standby.sync", json!({})), false).await;
    assert_eq!(late.status, 409, "{late:?}");
    assert_eq!(living.await.unwrap(), Leave::PowerOff);
}

/// Ironic takes a heartbeat that comes while it has the node locked, and drops it.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_after_which_ironic_does_not_call_is_sent_again_soon_and_not_for_ever() {
    let folder = machine_root();
    let commands = commands(folder.path(), "");
    let script = Arc::new(Script::default());
    let Ok(answer) = found(TOKEN) else { panic!() };
    let known = Known { node: NODE.into(), config: answer.config, token: Secret::new(TOKEN) };
    tokio::spawn({
        let (script, commands) = (Arc::clone(&script), Arc::clone(&commands));
        async move { beat(&*script, &commands, &known, "https://192.0.2.7:9999", "pem").await }
    });
    let are = |pauses: &[f64], least: f64, most: f64| pauses.iter().all(|pause| (least..=most).contains(pause));
    tokio::time::sleep(Duration::from_secs(300)).await;
    let pauses = script.pauses();
    assert!(are(&pauses[..6], 5.0, 10.1) && are(&pauses[6..], 90.0, 180.1), "nobody calls: {pauses:?}");
    // The command has ended, and nobody asks.
    let before = pauses.len() + 1;
    let begun = commands.order(order("standby.sync", json!({})), false).await;
    commands.get(begun.body["id"].as_str().unwrap(), true).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let pauses = script.pauses();
    assert!(pauses.len() > before && are(&pauses[before..], 4.9, 10.1), "{before}: {pauses:?}");
    let before = pauses.len() + 1;
    assert_eq!(commands.list().status, 200);
    tokio::time::sleep(Duration::from_secs(300)).await;
    let pauses = script.pauses();
    assert!(pauses.len() > before && are(&pauses[before..], 90.0, 180.1), "{before}: {pauses:?}");
}

#[tokio::test]
async fn one_command_at_a_time_and_what_is_not_served_is_answered_as_upstream_does() {
    let folder = machine_root();
    add_disk(folder.path(), "vda", 4, MIB);
    let commands = commands(folder.path(), "");
    assert!(
        commands.knows(Some(TOKEN)) && !commands.knows(Some("x")) && !commands.knows(None) && !commands.knows(Some(""))
    );
    let steps = |kind: StepKind, body: &Value| StepsAnswer::from_value(kind, &body["command_result"]).unwrap();
    let listed = commands.order(order("clean.get_clean_steps", json!({ "node": {}, "ports": [] })), true).await;
    let clean = steps(StepKind::Clean, &listed.body);
    let priorities: Vec<(&str, i64)> =
        clean.steps["MetamorphAgent"].iter().map(|step| (step.step.as_str(), step.priority)).collect();
    assert_eq!(priorities, [("erase_devices", 10), ("erase_devices_metadata", 99), ("erase_devices_express", 0)]);
    let listed = commands.order(order("deploy.get_deploy_steps", json!({ "node": {}, "ports": [] })), true).await;
    assert!(
        steps(StepKind::Deploy, &listed.body).steps["MetamorphAgent"].iter().any(|step| step.step == "write_image")
    );
    let listed = commands.order(order("service.get_service_steps", json!({ "node": {}, "ports": [] })), true).await;
    assert!(steps(StepKind::Service, &listed.body).steps.is_empty());

    // On this runtime's one thread nothing ends between two orders.
    let first = commands.order(step(StepKind::Clean, "erase_devices_metadata", Map::new(), json!({})), false).await;
    assert_eq!(first.body["command_status"], "RUNNING");
    let second = commands.order(order("standby.sync", json!({})), false).await;
    assert_eq!(second.status, 409);
    assert!(second.body["faultstring"].as_str().unwrap().contains("Agent is busy"), "{second:?}");
    let id = first.body["id"].as_str().unwrap();
    assert_eq!(commands.get(id, true).await.body["command_status"], "SUCCEEDED");
    assert_eq!(commands.get("nothing", true).await.status, 404);

    for (name, status) in [
        ("rescue.finalize_rescue", 404),
        ("poll.get_hardware_info", 404),
        ("standby.execute_bootc_install", 400),
        // It names no node, whose hints, kept disks and consent would count.
        ("standby.prepare_image", 400),
        ("clean.execute_deploy_step", 400),
        ("nothing", 400),
    ] {
        assert_eq!(commands.order(order(name, json!({})), true).await.status, status, "{name}");
    }
    for kind in [StepKind::Clean, StepKind::Deploy, StepKind::Service] {
        for name in ["create_configuration", "burnin_cpu", "inject_files", "erase_pstore"] {
            let why = done(&commands, kind, name, json!({}), json!({})).await.unwrap_err();
            assert_eq!(why, format!("Could not find method: {name}"));
        }
    }
    let mut other = ExecuteStep::new("deploy", "erase_devices_metadata", Map::new());
    other.versions = Some([("generic_hardware_manager".to_owned(), "1.2".to_owned())].into());
    let other = CommandRequest { name: StepKind::Clean.execute_command(), params: other.to_params(StepKind::Clean) };
    assert_eq!(commands.order(other, true).await.body["command_status"], "CLEAN_VERSION_MISMATCH");
    let nothing = commands
        .order(order("image.install_bootloader", json!({ "root_uuid": null, "target_boot_mode": "uefi" })), true)
        .await;
    assert!(nothing.body["command_error"]["details"].as_str().unwrap().contains("no image was written"), "{nothing:?}");
    let logs = commands.order(order("log.collect_system_logs", json!({})), true).await;
    assert!(logs.body["command_result"]["system_logs"].as_str().unwrap().len() > 100);
    let Answer { body, .. } = commands.list();
    assert!(body["commands"].as_array().unwrap().len() > 10);
    for _ in 0..80 {
        commands.order(order("standby.get_partition_uuids", json!({})), true).await;
    }
    assert_eq!(commands.list().body["commands"].as_array().unwrap().len(), 64, "older ones are forgotten");
}

fn mark_firmware(root: &Path, owner: &str) {
    let variables = agent::efi::EfiVariables::new(root.join("sys/firmware/efi/efivars"));
    let mark = DiskMark { owner: owner.into(), host: "ns/other".into(), operation: "op".into(), consent: None };
    agent::efi::owner::write(&variables, &mark).unwrap();
}

#[tokio::test]
async fn whoever_else_owns_the_machine_is_asked_for_and_ironic_itself_is_not() {
    let folder = machine_root();
    let root = folder.path();
    add_disk(root, "vda", 4, 4 * MIB);
    std::fs::write(root.join("dev/vda"), vec![0xFF; 4 * MIB as usize]).unwrap();
    let commands = commands(root, "");
    let clean = async |name: &str, node: Value| done(&commands, StepKind::Clean, name, json!({}), node).await;
    mark_firmware(root, "uid-7");
    for name in ["erase_devices_metadata", "erase_devices", "erase_devices_express"] {
        let why = clean(name, json!({})).await.unwrap_err();
        assert!(why.contains("another owner, uid-7 (host ns/other)"), "{why}");
    }
    let why = clean("erase_devices_metadata", json!({ "extra": { "metamorph-overwrite-owner": "uid-8" } }))
        .await
        .unwrap_err();
    assert!(why.contains("uid-7"), "{why}");
    let kept = json!({ "properties": { "skip_block_devices": [{ "name": "/dev/vda" }] } });
    for name in ["erase_devices_metadata", "erase_devices", "erase_devices_express"] {
        assert!(clean(name, kept.clone()).await.unwrap_err().contains("skip_block_devices"));
    }
    assert_eq!(std::fs::read(root.join("dev/vda")).unwrap()[..512], [0xFF; 512], "nothing was changed by all that");
    let done =
        clean("erase_devices_metadata", json!({ "extra": { "metamorph-overwrite-owner": "uid-7" } })).await.unwrap();
    assert_eq!(done["clean_step"]["step"], "erase_devices_metadata");
    assert_eq!(done["clean_result"]["wiped"].as_array().unwrap().len(), 1, "{done}");
    assert_eq!(std::fs::read(root.join("dev/vda")).unwrap()[..512], [0; 512]);
    // An order of another node's is none of this machine's, whatever its hints say.
    let theirs = json!({ "uuid": "00000000-0000-0000-0000-000000000009" });
    assert!(clean("erase_devices_metadata", theirs).await.unwrap_err().contains("the order is for the node"));
    clean("erase_devices_metadata", json!({ "uuid": NODE })).await.unwrap();
    // A mark that is no node's is somebody's, and its text is no consent for others.
    mark_firmware(root, "ironic:x,(unreadable)");
    let why = clean("erase_devices_metadata", json!({})).await.unwrap_err();
    assert!(why.contains("another owner, (unreadable)"), "{why}");
    // What another node of Ironic's has written is Ironic's.
    mark_firmware(root, "ironic:00000000-0000-0000-0000-000000000000");
    clean("erase_devices_metadata", json!({})).await.unwrap();
    // A disk that takes no command is overwritten.
    std::fs::write(root.join("dev/vda"), vec![0xFF; 4 * MIB as usize]).unwrap();
    let done = clean("erase_devices", json!({ "driver_internal_info": { "agent_erase_devices_iterations": 1 } }))
        .await
        .unwrap();
    assert_eq!(done["clean_result"]["disks"][0]["result"], "Cleared", "{done}");
    let after = std::fs::read(root.join("dev/vda")).unwrap();
    assert!(after.chunks(512).all(|sector| sector != [0xFF; 512]), "each sector was written");
    let thrice = json!({ "driver_internal_info": { "agent_erase_devices_iterations": 3 } });
    assert!(clean("erase_devices", thrice).await.unwrap_err().contains("overwrites once"));
}

/// A volume with the label of config drives, gzipped, in base64, as Ironic sends one.
fn config_drive() -> String {
    use std::io::Write as _;
    let folder = tempfile::tempdir().unwrap();
    let latest = folder.path().join("files/openstack/latest");
    std::fs::create_dir_all(&latest).unwrap();
    std::fs::write(latest.join("meta_data.json"), r#"{"uuid":"u-1"}"#).unwrap();
    let iso = folder.path().join("drive.iso");
    let files = folder.path().join("files");
    disks::run(
        "xorrisofs",
        &["-quiet", "-r", "-J", "-V", "config-2", "-o", iso.to_str().unwrap(), files.to_str().unwrap()],
    );
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&std::fs::read(&iso).unwrap()).unwrap();
    STANDARD.encode(gzip.finish().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_written_with_its_config_drive_as_it_came_and_again_if_it_is_ordered_again() {
    let images = disks::serve().await;
    let folder = disks::machine();
    let root = folder.path();
    let commands = commands(root, "metamorph-image-addresses=127.0.0.0/8");
    let image = json!({
        "id": "image.raw", "urls": [format!("http://{}/image.raw", images.address)], "disk_format": "raw", "stream_raw_images": true,
        "os_hash_algo": "sha256", "os_hash_value": images.sha256, "node_uuid": NODE, "image_type": "whole-disk",
    });
    let node =
        json!({ "uuid": NODE, "name": "ns~node-1", "properties": { "root_device": { "serial": "s== SN-vdb" } } });
    let drive = config_drive();
    let write = async |image: &Value, node: &Value| {
        let args = json!({ "image_info": image, "configdrive": drive });
        done(&commands, StepKind::Deploy, "write_image", args, node.clone()).await
    };
    let mut partition = image.clone();
    partition["image_type"] = json!("partition");
    assert!(write(&partition, &node).await.unwrap_err().contains("whole-disk"));
    let mut wrong = image.clone();
    wrong["os_hash_value"] = json!("0".repeat(64));
    assert!(write(&wrong, &node).await.unwrap_err().contains("checksum"), "a digest that differs");
    let mut elsewhere = node.clone();
    elsewhere["properties"]["root_device"] = json!({ "serial": "s== SN-none" });
    assert!(write(&image, &elsewhere).await.unwrap_err().contains("serialNumber=SN-none"));
    for _ in 0..2 {
        let done = write(&image, &node).await.unwrap();
        assert!(
            done["deploy_result"].as_str().unwrap().starts_with("image (image.raw) written to device /dev/"),
            "{done}"
        );
        assert_eq!(
            (&done["deploy_step"]["step"], &done["deploy_step"]["args"]),
            (&json!("write_image"), &Value::Null),
            "no secrets are kept"
        );
    }
    let disk = FileDisk::open(&root.join("dev/vdb"), 512).unwrap();
    let volumes = find_config_volumes(&disk).unwrap();
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    let at = usize::try_from(volumes[0].offset).unwrap();
    let whole = std::fs::read(root.join("dev/vdb")).unwrap();
    let volume = boot_media::iso::find_file(&whole[at..].to_vec(), "openstack/latest/meta_data.json").unwrap();
    let at = at + usize::try_from(volume.offset).unwrap();
    assert_eq!(&whole[at..at + 14], br#"{"uuid":"u-1"}"#);
    let MarkFound::Owner(mark) = read_mark(&disk).unwrap() else { panic!("no mark") };
    assert_eq!(
        (mark.owner, mark.host.as_str()),
        (format!("ironic:{NODE}"), NODE),
        "a name that is no name is not used"
    );
    let boots = commands
        .order(order("image.install_bootloader", json!({ "root_uuid": null, "target_boot_mode": "uefi" })), true)
        .await;
    assert_eq!(boots.body["command_status"], "SUCCEEDED", "{boots:?}");
    let listed = commands.order(order("standby.get_partition_uuids", json!({})), false).await;
    assert_eq!(listed.body["command_result"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_served_to_who_has_the_token_by_a_certificate_that_is_pinned() {
    let folder = machine_root();
    let commands = commands(folder.path(), "");
    let now = SystemTime::now();
    let certificate = Certificate::new("agent", [127, 0, 0, 1].into(), now).unwrap();
    let tls = certificate.server(Some("1.3")).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(serve(listener, tls, commands, 1.5));
    let mut roots = rustls::RootCertStore::empty();
    let der = <rustls::pki_types::CertificateDer as rustls::pki_types::pem::PemObject>::from_pem_slice(
        certificate.pem().as_bytes(),
    )
    .unwrap();
    roots.add(der).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.with_root_certificates(roots).with_no_client_auth())
        .no_proxy();
    let client = client.build().unwrap();
    let status = async |path: &str| client.get(format!("{url}{path}")).send().await.unwrap().status().as_u16();
    assert_eq!(
        (status("/").await, status("/v1/").await, status("/v1/status").await, status("/v1/else").await),
        (200, 200, 200, 404)
    );
    assert_eq!((status("/v1/commands/").await, status("/commands/?agent_token=x").await), (401, 401));
    assert_eq!(status(&format!("/v1/commands/?agent_token={TOKEN}")).await, 200);
    assert_eq!(status(&format!("/v1/commands/none?wait=true&agent_token={TOKEN}")).await, 404);
    let post = async |query: &str, body: &'static str| {
        let answer = client.post(format!("{url}/v1/commands/?{query}")).body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let order = r#"{"name": "standby.get_partition_uuids", "params": {}}"#;
    assert_eq!(post("wait=true", order).await.0, 401);
    let token = format!("wait=true&agent_token={TOKEN}");
    let (code, body) = post(&token, order).await;
    assert!(code == 200 && body.contains("\"command_status\":\"SUCCEEDED\""), "{code} {body}");
    assert_eq!(post(&token, "{").await.0, 400);
    assert_eq!(post(&token, r#"{"name": "standby.sync"}"#).await.0, 400);
    assert_eq!(post(&token, r#"{"name": "standby.sync", "params": []}"#).await.0, 400);
    assert_eq!(
        client.delete(format!("{url}/v1/commands/?agent_token={TOKEN}")).send().await.unwrap().status().as_u16(),
        405
    );
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn ironics_api_is_called_as_ironic_wants_it() {
    type Seen = Arc<Mutex<Vec<String>>>;
    let seen = Seen::default();
    let note = |seen: &Seen, what: &str, headers: &HeaderMap| {
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        let line = format!("{what} {} {}", header("x-openstack-ironic-api-version"), header("x-openstack-request-id"));
        seen.lock().unwrap().push(line);
    };
    let (a, b, c) = (Arc::clone(&seen), Arc::clone(&seen), Arc::clone(&seen));
    let router = Router::new()
        .route(
            "/v1/lookup",
            get(async move |uri: axum::http::Uri, headers: HeaderMap| {
                note(&a, uri.query().unwrap(), &headers);
                let Ok(answer) = found(TOKEN) else { panic!() };
                axum::Json(answer)
            }),
        )
        .route(
            "/v1/heartbeat/{node}",
            post(async move |headers: HeaderMap, body: String| {
                note(&b, if body.contains(TOKEN) { "heartbeat" } else { "no token" }, &headers);
                (StatusCode::CONFLICT, r#"{"error_message": "{\"faultstring\": \"Node is locked\"}"}"#)
            }),
        )
        .route(
            "/v1/continue_inspection",
            post(async move |headers: HeaderMap| {
                note(&c, "inspection", &headers);
                (StatusCode::ACCEPTED, format!("{{\"uuid\": \"{NODE}\"}}"))
            }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!("ipa-api-url=http://{closed},http://{address} ipa-global-request-id=req-1");
    let api = HttpApi::new(&Parameters::parse(&line).unwrap(), "").unwrap();
    assert_eq!(api.own_address().await.unwrap(), std::net::IpAddr::from([127, 0, 0, 1]));
    assert_eq!(api.inspected(&InspectionData::default()).await.unwrap().as_deref(), Some(NODE));
    let answer = api.lookup(&["a".into(), "b".into()], Some(NODE)).await.unwrap();
    assert!(answer.node.uuid == NODE && answer.config.token().is_some());
    let beat = Heartbeat { agent_token: Some(Secret::new(TOKEN)), ..Heartbeat::default() };
    assert_eq!(api.heartbeat(NODE, &beat).await, Err(ApiError::Locked("Node is locked".into())));
    let seen = seen.lock().unwrap().clone();
    assert_eq!(
        seen,
        [
            "inspection  req-1".to_owned(),
            format!("addresses=a%2Cb&node_uuid={NODE} 1.62 req-1"),
            "heartbeat 1.68 req-1".into()
        ]
    );
    let since = api.now().duration_since(SystemTime::now() - Duration::from_secs(5));
    assert!(since.is_ok(), "the time is Ironic's");
}
