//! The fake machine: power, boot override, media reads, ends of the agent.

use crate::kit::{self, Images, Lab, SYSTEM, path};
use bmc_sim::{Config, MachineConfig, MachineKind};
use reqwest::Method;
use serde_json::{Value, json};

/// Says how it was started, reads from its medium, then waits.
const READER: &str = r#"
echo "started $1 $2 $4"
[ -e "$3/dev/sda" ] && cat "$3/proc/sys/kernel/random/boot_id"
curl -s -f -r 2500000-2500099 "$5" | od -An -tx1 -v | tr -d ' \n'
echo; curl -s -f -I "$5" | tr 'A-Z' 'a-z' | grep content-length
echo "medium $5"
exec sleep 1000
"#;

async fn boot(lab: &Lab, images: &Images) -> Value {
    assert_eq!(lab.insert(&images.url("a.iso")).await.status, 204);
    lab.boot_cd_once().await;
    let after = lab.now();
    assert_eq!(lab.reset("On").await.status, 204);
    lab.event(after, "boot", |_| true).await
}

/// Waits until the console shows a text.
async fn console(lab: &Lab, text: &str) -> String {
    for _ in 0..600 {
        let console = lab.console();
        if console.contains(text) {
            return console;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("no {text:?} on the console:\n{}", lab.console());
}

#[tokio::test]
async fn the_agent_boots_once_from_the_medium_and_reads_by_range() {
    let lab = Lab::fake(READER).await;
    let content = kit::pattern(5 << 20);
    let images = Images::serve(content.clone()).await;
    let boot = boot(&lab, &images).await;
    assert_eq!(boot["running"], "medium");
    let text = console(&lab, "medium http").await;
    assert!(text.contains("started fake --root --medium"), "{text}");
    let expected: String = content[2_500_000..2_500_100].iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(text.contains(&expected), "the agent read something else:\n{text}");

    assert!(text.contains("content-length: 5242880"), "{text}");

    // A look of 2 KiB, then the one block around what was read.
    assert_eq!(*images.ranges.lock().unwrap(), ["bytes=0-2047", "bytes=2490368-2555903"]);
    let media = lab.control(Method::GET, "/machines/m/media", Value::Null).await;
    assert_eq!((&media["requests"], &media["bytesFetched"]), (&json!(2), &json!(2048 + (64 << 10))));
    assert_eq!((&media["reads"], &media["bytesRead"]), (&json!(1), &json!(100)));

    // The override was used up, so that a restart finds an empty disk.
    let system = lab.get(SYSTEM).await.body;
    assert_eq!(system["Boot"]["BootSourceOverrideEnabled"], "Disabled");
    assert_eq!(system["PowerState"], "On");
    let pid = lab.machine().await["pid"].as_u64().unwrap();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert_eq!(lab.reset("ForceRestart").await.status, 204);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "ForceRestart left the old process");
    let machine = lab.machine().await;
    assert_eq!((&machine["running"], &machine["boots"]), (&json!("none"), &json!(2)));

    // With a continuous override each boot takes the medium, and each has a boot id of its own.
    let always = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Continuous" } });
    assert_eq!(lab.patch(SYSTEM, always).await.status, 200);
    for _ in 0..2 {
        assert_eq!(lab.reset("ForceRestart").await.status, 204);
        assert_eq!(lab.machine().await["running"], "medium");
    }
    assert_eq!(lab.reset("ForceOff").await.status, 204);
    let machine = lab.machine().await;
    assert_eq!((&machine["power"], &machine["running"], &machine["pid"]), (&json!("Off"), &json!("off"), &Value::Null));
}

#[tokio::test]
async fn the_agent_decides_how_it_ends() {
    for (script, event, running) in [
        ("exit 0", ("power", json!({ "state": "Off", "why": "guest" })), "off"),
        ("exit 10", ("reset", json!({ "by": "guest" })), "none"),
        ("exit 3", ("crash", json!({ "why": "the agent ended: exit status: 3" })), "hung"),
        ("kill -9 $$", ("crash", json!({ "why": "the agent ended: signal: 9 (SIGKILL)" })), "hung"),
    ] {
        let lab = Lab::fake(script).await;
        let images = Images::serve(kit::pattern(4096)).await;
        let after = lab.now();
        boot(&lab, &images).await;
        lab.event(after, event.0, |data| *data == event.1).await;
        if running == "none" {
            lab.event(after, "boot", |data| data["number"] == 2).await;
        }
        assert_eq!(lab.machine().await["running"], running, "{script}");
        let off = lab.reset("ForceOff").await.status;
        assert_eq!(off, if running == "off" { 409 } else { 204 }, "{script}");
    }
}

#[tokio::test]
async fn the_power_button_asks_the_agent() {
    let lab = Lab::fake("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 1 & wait $!; done").await;
    let images = Images::serve(kit::pattern(4096)).await;
    boot(&lab, &images).await;
    console(&lab, "ready").await;
    let after = lab.now();
    assert_eq!(lab.reset("GracefulShutdown").await.status, 204);
    lab.event(after, "power", |data| data["state"] == "Off").await;
    assert!(lab.console().contains("asked"));

    // A restart by the button comes back, from the disk.
    lab.boot_cd_once().await;
    assert_eq!(lab.reset("On").await.status, 204);
    for _ in 0..600 {
        if lab.console().matches("ready").count() == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let after = lab.now();
    assert_eq!(lab.reset("GracefulRestart").await.status, 204);
    assert_eq!(lab.event(after, "boot", |_| true).await["running"], "none");
}

#[tokio::test]
async fn ejection_cuts_reads_at_once() {
    let script = r#"
echo ready
while curl -s -f -r 0-9 -o /dev/null "$5"; do :; done
echo "read failed"
exec sleep 1000"#;
    let lab = Lab::fake(script).await;
    let images = Images::serve(kit::pattern(4096)).await;
    boot(&lab, &images).await;
    console(&lab, "ready").await;
    assert!(!lab.console().contains("read failed"));
    lab.control(Method::POST, "/machines/m/eject", json!({})).await;
    console(&lab, "read failed").await;
    assert_eq!(lab.get(&path("/VirtualMedia/CD1")).await.body["Inserted"], false);
    assert_eq!(lab.machine().await["running"], "medium", "the machine does not notice by itself");
}

#[tokio::test]
async fn a_slow_read_ends_when_the_medium_is_ejected() {
    let script = r#"
echo ready
curl -s -f -o /dev/null "$5" || echo "read failed"
exec sleep 1000"#;
    let lab = Lab::fake(script).await;
    let images = Images::serve(kit::pattern(4096)).await;
    assert_eq!(lab.insert(&images.url("a.iso")).await.status, 204);
    lab.boot_cd_once().await;
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "media": { "delayMs": 600_000 } })).await;
    assert_eq!(lab.reset("On").await.status, 204);
    console(&lab, "ready").await;
    assert!(!lab.console().contains("read failed"));
    lab.control(Method::POST, "/machines/m/eject", json!({})).await;
    console(&lab, "read failed").await;
}

#[tokio::test]
async fn a_written_disk_boots_and_outlives_the_simulator() {
    let lab = Lab::fake("exit 10").await;
    // Partition tables are made by an outside tool.
    let disk = lab.file("state/m/root/dev/sda");
    let made = std::process::Command::new("sgdisk").args(["-n1:2048:+64M", "-t1:EF00"]).arg(&disk).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    assert_eq!(lab.reset("On").await.status, 204);
    assert_eq!(lab.machine().await["running"], "disk");
    lab.patch(&path("/SecureBoot"), json!({ "SecureBootEnable": true })).await;

    let (folder, state) = (lab.folder, lab.simulator);
    state.shutdown().await;
    let config = Config {
        machines: vec![MachineConfig::new("m", MachineKind::Fake)],
        agent: Some(folder.path().join("agent")),
        state_dir: Some(folder.path().join("state")),
        ..Config::default()
    };
    let lab = Lab::of(folder, config).await;
    let machine = lab.machine().await;
    assert_eq!((&machine["power"], &machine["secureBoot"]), (&json!("Off"), &json!(true)));
    assert_eq!(lab.reset("On").await.status, 204);
    let machine = lab.machine().await;
    assert_eq!((&machine["running"], &machine["boots"]), (&json!("disk"), &json!(2)));
    let variable = lab.file("state/m/root/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
    assert_eq!(std::fs::read(variable).unwrap(), [6, 0, 0, 0, 1]);
}

#[tokio::test]
async fn an_agent_that_cannot_be_started_is_said_so() {
    let lab = Lab::fake("exit 0").await;
    let images = Images::serve(kit::pattern(4096)).await;
    std::fs::remove_file(lab.file("agent")).unwrap();
    lab.insert(&images.url("a.iso")).await;
    lab.boot_cd_once().await;
    let got = lab.reset("On").await;
    assert_eq!(got.status, 500);
    let message = got.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("agent") && message.contains("No such file"), "{message}");
    assert_eq!(lab.machine().await["power"], "Off");
}
