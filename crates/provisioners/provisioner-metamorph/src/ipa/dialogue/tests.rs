//! Dialogues with a scripted agent, on paused time.

mod stepping;

use std::sync::atomic::AtomicBool;

use agent_protocol::{ConfigDrive, DiskMark, ImageSource, WriteImage};
use api::metamorph::AgentBoot;
use async_trait::async_trait;
use inventory::RootDeviceHints;
use ipa_protocol::{CommandList, CommandResult};
use provisioner::{HostKey, Record, Waker};
use serde_json::{Value, json};
use terms::{ChecksumType, DiskFormat};

use super::*;
use crate::hub::CommandState;
use crate::keys::Key;

/// An agent that plays by `A:extensions/base.py`: one command at a time, and each that it was given in its list.
#[derive(Default)]
struct Script {
    list: Mutex<Vec<CommandResult>>,
    /// The next answer to a post is lost, though the command is taken.
    loses: AtomicBool,
    /// It does not tell its list of commands.
    hides: AtomicBool,
    /// What its disk is called.
    disk: Mutex<&'static str>,
    /// What it answers that is to list its steps.
    steps: Mutex<Value>,
    /// Parameters of the steps that it was given.
    params: Mutex<Vec<Map<String, Value>>>,
    /// What happens elsewhere while it looks at its hardware.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Script {
    fn new() -> Arc<Self> {
        Arc::new(Self { disk: Mutex::new("/dev/sda"), ..Self::default() })
    }
}

impl Script {
    fn lock(&self) -> MutexGuard<'_, Vec<CommandResult>> {
        self.list.lock().unwrap()
    }

    fn posted(&self, name: &str) -> usize {
        self.lock().iter().filter(|command| command.command_name == name).count()
    }

    /// The command that runs ends so.
    fn end(&self, status: CommandStatus) -> bool {
        let mut list = self.lock();
        let running = list.iter_mut().find(|command| command.command_status == CommandStatus::Running);
        running.map(|command| command.command_status = status).is_some()
    }

    async fn finishes(&self, name: &str) {
        self.ends(name, CommandStatus::Succeeded).await;
    }

    async fn ends(&self, name: &str, status: CommandStatus) {
        for _ in 0..1000 {
            if self.posted(name) > 0 && self.end(status) {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{name} was never posted");
    }
}

#[async_trait]
impl Commands for Script {
    async fn list(&self) -> Result<CommandList, CallError> {
        if self.hides.load(Ordering::Relaxed) {
            return Err(CallError::Lost("timed out".into()));
        }
        Ok(CommandList { commands: self.lock().clone() })
    }

    async fn post(&self, request: &CommandRequest, wait: bool) -> Result<CommandResult, CallError> {
        let mut list = self.lock();
        if list.iter().any(|command| command.command_status == CommandStatus::Running) {
            return Err(CallError::Busy);
        }
        if request.name == GET_HARDWARE
            && let Some(happens) = self.meanwhile.lock().unwrap().take()
        {
            happens();
        }
        let result = match request.name.as_str() {
            GET_HARDWARE => json!({
                "interfaces": [{"name": "eno1", "mac_address": "52:54:00:00:00:01", "pci_address": "0000:01:00.0", "has_carrier": true}],
                "disks": [{"name": *self.disk.lock().unwrap(), "size": 10_u64 << 30, "rotational": true, "serial": "S1"}],
                "system_vendor": {"manufacturer": "M", "product_name": "P", "serial_number": "SN"},
                "boot": {"current_boot_mode": "uefi"}
            }),
            names::COLLECT_SYSTEM_LOGS => {
                let log = "2026-01-02 03:04:06.006 77 ERROR root [-] sda: write error\n";
                json!({ "system_logs": logs::tests::packed(&[("var/log/ironic-python-agent.log", log)]) })
            }
            "clean.get_clean_steps" => self.steps.lock().unwrap().clone(),
            "clean.execute_clean_step" => {
                self.params.lock().unwrap().push(request.params.clone());
                json!({ "clean_result": "flashed", "clean_step": request.params.get("step") })
            }
            _ => json!({ "deploy_result": "ok", "deploy_step": request.params.get("step") }),
        };
        let command: CommandResult = serde_json::from_value(json!({
            "id": format!("{}", list.len()),
            "command_name": request.name.rsplit('.').next(),
            "command_status": if wait { "SUCCEEDED" } else { "RUNNING" },
            "command_result": result,
            "command_error": Value::Null,
        }))
        .unwrap();
        list.push(command.clone());
        if self.loses.swap(false, Ordering::Relaxed) {
            return Err(CallError::Lost("connection reset".into()));
        }
        Ok(command)
    }
}

/// The way of one process to the agent, which ends with the process.
struct Line {
    script: Arc<Script>,
    cut: Arc<AtomicBool>,
}

impl Line {
    fn holds(&self) -> Result<(), CallError> {
        if self.cut.load(Ordering::Relaxed) { Err(CallError::Lost("cut".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Commands for Line {
    async fn list(&self) -> Result<CommandList, CallError> {
        self.holds()?;
        self.script.list().await
    }

    async fn post(&self, request: &CommandRequest, wait: bool) -> Result<CommandResult, CallError> {
        self.holds()?;
        self.script.post(request, wait).await
    }
}

fn peer(certificate: &str) -> Peer {
    Peer {
        url: "https://192.0.2.7:9999".parse().unwrap(),
        certificate: certificate.as_bytes().to_vec(),
        digest: certificate.to_owned(),
    }
}

struct Server {
    hub: Arc<Hub>,
    ipa: Arc<Ipa>,
}

/// A process, which knows of nothing but the recorded boot.
fn server() -> Server {
    let hub = Hub::new(Arc::new(Waker::default()), Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    let boot = AgentBoot { generation: 1, ..AgentBoot::default() };
    hub.expect(&HostKey { namespace: "n".into(), name: "h".into(), uid: "u".into() }, Some(&boot));
    let root = Key { number: 1, secret: [7; 32], certificate_sha256: String::new(), certificate_pem: String::new() };
    Server { ipa: Ipa::new(Arc::clone(&hub), KeyRing::new(root, vec![])), hub }
}

impl Server {
    fn hears(&self, script: &Arc<Script>) {
        let commands = Arc::clone(script) as Arc<dyn Commands>;
        self.ipa.heard_by("u", 1, peer("c"), || Ok(commands)).unwrap();
    }

    async fn until<T>(&self, script: &Arc<Script>, look: impl Fn(&Hub) -> Option<T>) -> T {
        for _ in 0..400 {
            self.hears(script);
            if let Some(found) = look(&self.hub) {
                return found;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        panic!("it never came to that");
    }

    async fn idle(&self, script: &Arc<Script>) {
        self.until(script, |hub| hub.agent("u", 1).filter(|agent| agent.state == AgentState::Idle)).await;
    }

    async fn outcome(&self, script: &Arc<Script>, command: &Command) -> Outcome {
        let record: Arc<dyn Record> = wished();
        self.until(script, |hub| match hub.command("u", command.clone(), &record) {
            CommandState::Finished(outcome) => Some(outcome),
            _ => None,
        })
        .await
    }
}

fn wished() -> Arc<dyn Record> {
    Arc::new(provisioner_kit::MemoryRecord::default())
}

fn order(step: &str, action: Action) -> Command {
    let id = CommandId { operation: "o/1".into(), step: step.into(), attempt: 1, boot_id: "c".into() };
    Command { id, action }
}

fn write() -> Command {
    let image = ImageSource {
        url: "http://192.0.2.9/disk.img".into(),
        format: DiskFormat::Raw,
        checksum: "ab".repeat(32),
        checksum_type: ChecksumType::Auto,
        compression: None,
        authorization: None,
        allowed_addresses: vec![],
        sources: vec![],
        checksum_sources: vec![],
        proxy: None,
    };
    let config_drive = Some(ConfigDrive { meta_data: "e30=".into(), network_data: None, user_data: None });
    let (root_device_hints, mark) = (RootDeviceHints::default(), DiskMark::default());
    let write = WriteImage { image, root_device_hints, mark, config_drive, known: Vec::new() };
    order("write", Action::WriteImage(Box::new(write)))
}

#[tokio::test(start_paused = true)]
async fn it_reports_its_machine_is_inspected_written_and_leaves() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    let agent = server.hub.any_agent("u").unwrap();
    let machine = agent.machine.unwrap();
    assert_eq!(
        (machine.serial_number.as_deref(), &machine.macs[..]),
        (Some("SN"), &["52:54:00:00:00:01".to_owned()][..])
    );
    assert_eq!((agent.boot_id.as_str(), agent.key_digest.as_deref()), ("c", Some("c")));

    let inspect = order("inspect", Action::Inspect);
    let Outcome::Inspected { hardware, uefi: true, .. } = server.outcome(&script, &inspect).await else { panic!() };
    assert_eq!(hardware.storage[0].name.as_deref(), Some("/dev/sda"));
    server.hub.acknowledge("u", &inspect.id);
    server.idle(&script).await;

    let write = write();
    let (outcome, ()) = tokio::join!(server.outcome(&script, &write), async {
        script.finishes("execute_deploy_step").await;
        script.finishes("install_bootloader").await;
    });
    assert!(matches!(outcome, Outcome::Written(summary) if summary.disk == "/dev/sda"));
    assert_eq!((script.posted("execute_deploy_step"), script.posted("sync")), (1, 1));
    server.hub.acknowledge("u", &write.id);
    server.idle(&script).await;

    let leave = order("boot", Action::Leave { how: Leave::Reboot });
    assert_eq!(server.outcome(&script, &leave).await, Outcome::Leaving);
    assert_eq!(script.posted("run_image"), 1, "it has been told to, before that is recorded");
}

#[tokio::test(start_paused = true)]
async fn an_order_to_leave_is_given_once_and_one_that_fails_is_told() {
    for fails in [false, true] {
        let script = Script::new();
        let leave = order("boot", Action::Leave { how: Leave::Reboot });
        for _ in 0..2 {
            // Another process each time.
            let server = server();
            server.idle(&script).await;
            let (outcome, ()) = tokio::join!(server.outcome(&script, &leave), async {
                while fails && script.posted("run_image") == 0 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                if fails && let Some(command) = script.lock().iter_mut().find(|one| one.command_name == "run_image") {
                    command.command_status = CommandStatus::Failed;
                }
            });
            assert_eq!(outcome == Outcome::Leaving, !fails, "{outcome:?}");
            assert_eq!(script.posted("run_image"), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disks_are_those_that_the_agent_finds_when_it_is_to_write() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    *script.disk.lock().unwrap() = "/dev/sdb";
    let mut write = write();
    let Outcome::Failed(refusal) = server.outcome(&script, &write).await else { panic!() };
    assert!(refusal.untouched && script.posted("execute_deploy_step") == 0, "{refusal:?}");
    server.hub.acknowledge("u", &write.id);
    server.idle(&script).await;
    // With what was told by that, the machine is proved anew.
    write.id.attempt = 2;
    let (outcome, ()) = tokio::join!(server.outcome(&script, &write), async {
        script.finishes("execute_deploy_step").await;
        script.finishes("install_bootloader").await;
    });
    assert!(matches!(&outcome, Outcome::Written(summary) if summary.disk == "/dev/sdb"), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_agent_had_written_down_is_there_after_a_failure() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    for attempt in 1..=LOGS + 1 {
        let mut write = write();
        write.id.attempt = attempt as u32;
        let (outcome, ()) = tokio::join!(server.outcome(&script, &write), async {
            while script.posted("execute_deploy_step") < attempt {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            script.ends("execute_deploy_step", CommandStatus::Failed).await;
        });
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        server.hub.acknowledge("u", &write.id);
        server.idle(&script).await;
    }
    let said = server.hub.said("u");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "boot 1 error: 2026-01-02 03:04:06.006 77 ERROR root [-] sda: write error");
    assert_eq!((script.posted("collect_system_logs"), lines.len()), (LOGS, LOGS));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_process_has_begun_is_not_begun_again() {
    let script = Script::new();
    let write = write();
    {
        let (before, cut) = (server(), Arc::new(AtomicBool::new(false)));
        let line = Line { script: Arc::clone(&script), cut: Arc::clone(&cut) };
        before.ipa.heard_by("u", 1, peer("c"), || Ok(Arc::new(line) as Arc<dyn Commands>)).unwrap();
        before.idle(&script).await;
        let record: Arc<dyn Record> = wished();
        before
            .until(&script, |hub| {
                matches!(hub.command("u", write.clone(), &record), CommandState::Running(_)).then_some(())
            })
            .await;
        assert_eq!(script.posted("execute_deploy_step"), 1);
        // The process ends: nobody speaks for the agent any more.
        cut.store(true, Ordering::Relaxed);
        tokio::time::sleep(SILENCE * 3).await;
        assert!(before.ipa.lock().is_empty());
    }
    let after = server();
    after.idle(&script).await;
    let (outcome, ()) = tokio::join!(after.outcome(&script, &write), async {
        tokio::time::sleep(Duration::from_secs(120)).await;
        script.finishes("execute_deploy_step").await;
        script.finishes("install_bootloader").await;
    });
    assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    assert_eq!(script.posted("execute_deploy_step"), 1, "the disk is written once");
}

/// What another process had begun for an earlier order runs to its end; the next order is for the disks that there are then.
#[tokio::test(start_paused = true)]
async fn an_order_that_has_waited_is_given_anew() {
    let script = Script::new();
    let mut write = write();
    {
        let (before, cut) = (server(), Arc::new(AtomicBool::new(false)));
        let line = Line { script: Arc::clone(&script), cut: Arc::clone(&cut) };
        before.ipa.heard_by("u", 1, peer("c"), || Ok(Arc::new(line) as Arc<dyn Commands>)).unwrap();
        before.idle(&script).await;
        let record: Arc<dyn Record> = wished();
        let begun =
            |hub: &Hub| matches!(hub.command("u", write.clone(), &record), CommandState::Running(_)).then_some(());
        before.until(&script, begun).await;
        cut.store(true, Ordering::Relaxed);
        tokio::time::sleep(SILENCE * 3).await;
    }
    write.id.attempt = 2;
    let after = server();
    after.idle(&script).await;
    let (outcome, ()) = tokio::join!(after.outcome(&script, &write), async {
        tokio::time::sleep(Duration::from_secs(120)).await;
        *script.disk.lock().unwrap() = "/dev/sdb";
        script.finishes("execute_deploy_step").await;
    });
    let Outcome::Failed(refusal) = outcome else { panic!("{outcome:?}") };
    assert!(refusal.untouched && refusal.message.contains("other disks"), "{refusal:?}");
    assert_eq!(script.posted("execute_deploy_step"), 1, "nothing is written to a disk that it is not planned for");
}

/// It cannot be stopped once it has begun.
#[tokio::test(start_paused = true)]
async fn an_order_that_is_taken_back_while_the_hardware_is_looked_at_is_not_begun() {
    type Undone = fn(&Hub, &CommandId);
    let ends: Undone = |hub, id| hub.ends("u", &id.operation);
    for undone in [(|hub, _| hub.let_go("u")) as Undone, |hub, id| hub.take_back("u", id), ends] {
        let (server, script) = (server(), Script::new());
        server.idle(&script).await;
        let (write, record) = (write(), wished());
        let (hub, id) = (Arc::clone(&server.hub), write.id.clone());
        *script.meanwhile.lock().unwrap() = Some(Box::new(move || undone(&hub, &id)));
        server.hub.command("u", write, &record);
        for _ in 0..60 {
            server.hears(&script);
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        assert!(script.meanwhile.lock().unwrap().is_none(), "its hardware was looked at");
        assert_eq!(script.posted("execute_deploy_step"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_whose_answer_is_lost_is_looked_for_before_it_is_made_again() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    script.loses.store(true, Ordering::Relaxed);
    let write = write();
    let (outcome, ()) = tokio::join!(server.outcome(&script, &write), async {
        script.finishes("execute_deploy_step").await;
        script.finishes("install_bootloader").await;
    });
    assert!(matches!(outcome, Outcome::Written(_)), "{outcome:?}");
    assert_eq!(script.posted("execute_deploy_step"), 1);
}

#[tokio::test(start_paused = true)]
async fn another_address_or_certificate_is_not_taken_for_the_agent() {
    let (server, script) = (server(), Script::new());
    server.hears(&script);
    let never = || Err::<Arc<dyn Commands>, _>("it is not called".to_owned());
    assert_eq!(server.ipa.heard_by("u", 1, peer("other"), never), Err(Moved));
    let moved = Peer { url: "https://192.0.2.8:9999".parse().unwrap(), ..peer("c") };
    assert_eq!(server.ipa.heard_by("u", 1, moved, never), Err(Moved));
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_heartbeats_is_spoken_for_no_more() {
    let (server, script) = (server(), Script::new());
    server.idle(&script).await;
    tokio::time::sleep(SILENCE + Duration::from_secs(60)).await;
    assert!(server.ipa.lock().is_empty());
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(server.hub.agent("u", 1).is_none());
    // It is heard again, as the same boot.
    server.idle(&script).await;
    assert!(server.hub.agent("u", 1).is_some());
}
