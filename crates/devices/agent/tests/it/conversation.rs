//! The agent and its server: lost answers, repeated commands, restarts, refusals.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{BOOT, Server, add_disk, agent, id, leave, machine_root, outcomes, plant};
use agent::report::Client;
use agent_protocol::{
    Action, AgentState, ChecksumType, Command, CommandId, DiskFormat, DiskMark, ErrorCode, HostConfig, ImageSource,
    Leave, Outcome, Report, WriteImage,
};
use inventory::RootDeviceHints;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn ends(task: tokio::task::JoinHandle<Leave>) -> Leave {
    tokio::time::timeout(Duration::from_secs(60), task).await.expect("the agent leaves").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_arrives_and_the_agent_leaves_when_told() {
    let folder = machine_root();
    add_disk(folder.path(), "vda", 4, 8 << 30);
    for (name, value) in [("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x2330")] {
        plant(folder.path(), &format!("sys/bus/pci/devices/0000:3b:00.0/{name}"), value);
    }
    plant(folder.path(), "sys/devices/system/node/node0/cpulist", "0-3\n");
    let found = outcomes(folder.path(), vec![Action::Inspect]).await;
    let [Outcome::Inspected { hardware, marks, uefi, secure_boot, devices, .. }] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(devices.gpus().map(|gpus| gpus.len()), Some(1), "{devices:?}");
    assert_eq!(devices.numa.as_ref().map(|nodes| nodes[0].cpu_count()), Some(Some(4)));
    let started = devices.started.unwrap();
    assert_eq!((started.uefi, started.secure_boot), (true, Some(false)));
    assert!(marks.is_empty() && *uefi && !*secure_boot);
    assert_eq!(hardware.ram_mebibytes, Some(2048));
    assert_eq!(hardware.storage[0].serial_number.as_deref(), Some("SN-vda"));
    assert_eq!(hardware.storage[0].name.as_deref(), Some("/dev/disk/by-path/pci-0000:00:04.0"));
    assert_eq!(hardware.system_vendor.as_ref().unwrap().manufacturer.as_deref(), Some("Maker"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_and_a_restarted_server_lose_nothing() {
    let folder = machine_root();
    let server = Server::start().await;
    server.record.lock().unwrap().lose_answers = 3;
    server.order(vec![Action::Inspect]);
    let task = agent(folder.path(), server.config());
    server.wait(|record| record.outcomes.len() == 1).await;
    let server = server.restart().await;
    server.record.lock().unwrap().lose_answers = 2;
    server.order(vec![Action::Inspect, leave()]);
    assert_eq!(ends(task).await, Leave::Reboot);
    let outcomes = server.outcomes();
    assert_eq!(outcomes.len(), 3);
    assert!(matches!(outcomes[1], Outcome::Inspected { .. }));
    let record = server.record.lock().unwrap();
    let numbers: Vec<u64> = record.reports.iter().map(|report| report.sequence).collect();
    assert!(numbers.is_sorted() && numbers[0] == 1, "{numbers:?}");
    let key = record.keys[0].clone();
    assert!(key.len() == 43 && record.keys.iter().all(|other| *other == key), "one key a boot: {:?}", record.keys);
    assert!(!serde_json::to_string(&server.config()).unwrap().contains(&key), "which no medium names");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_command_is_answered_and_not_run_again() {
    let folder = machine_root();
    add_disk(folder.path(), "vda", 4, 8 << 30);
    let server = Server::start().await;
    server.record.lock().unwrap().repeat = true;
    server.order(vec![Action::Inspect]);
    let task = agent(folder.path(), server.config());
    server.wait(|record| record.outcomes.len() == 1).await;
    // what a second run would find
    std::fs::write(folder.path().join("proc/sys/kernel/hostname"), "changed\n").unwrap();
    let finished = |state: &AgentState| matches!(state, AgentState::Finished { .. });
    let count = server.record.lock().unwrap().reports.iter().filter(|report| finished(&report.state)).count();
    server.wait(|record| record.reports.iter().filter(|report| finished(&report.state)).count() >= count + 3).await;
    {
        let mut record = server.record.lock().unwrap();
        let again = record.reports.iter().rev().find(|report| finished(&report.state)).unwrap();
        let AgentState::Finished { outcome: Outcome::Inspected { hardware, .. }, .. } = &again.state else { panic!() };
        assert_eq!(hardware.hostname.as_deref(), Some("agent"));
        record.repeat = false;
        record.commands.clear();
    }
    server.order(vec![leave()]);
    ends(task).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_for_another_boot_is_refused() {
    let folder = machine_root();
    let server = Server::start().await;
    let old = CommandId { boot_id: "older".into(), ..id("old") };
    server.record.lock().unwrap().commands.push_back(Command { id: old, action: leave() });
    let task = agent(folder.path(), server.config());
    server.wait(|record| record.outcomes.len() == 1).await;
    let outcome = server.outcomes().remove(0);
    assert!(matches!(&outcome, Outcome::Failed(error) if error.code == ErrorCode::Refused), "{outcome:?}");
    assert!(!task.is_finished());
    server.order(vec![leave()]);
    ends(task).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_started_anew_on_the_same_boot_runs_nothing_twice() {
    let folder = machine_root();
    let server = Server::start().await;
    server.order(vec![Action::Inspect]);
    let first = agent(folder.path(), server.config());
    server.wait(|record| record.outcomes.len() == 1).await;
    first.abort();
    let _ = first.await;
    // the server lost what it knew
    {
        let mut record = server.record.lock().unwrap();
        record.outcomes.clear();
        record.commands.clear();
        record.reports.clear();
    }
    server.order(vec![Action::Inspect]);
    let second = agent(folder.path(), server.config());
    server.wait(|record| record.outcomes.len() == 1).await;
    let outcome = server.outcomes().remove(0);
    assert!(matches!(&outcome, Outcome::Failed(error) if error.code == ErrorCode::Internal), "{outcome:?}");
    assert!(server.record.lock().unwrap().reports[0].sequence > 1 << 31);
    server.order(vec![leave()]);
    ends(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_named_certificate_is_trusted_and_endpoints_are_tried_in_order() {
    let folder = machine_root();
    let (server, impostor) = (Server::start().await, Server::start().await);
    let mut config = server.config();
    config.endpoints = vec![
        "https://127.0.0.1:1".into(),
        format!("https://{}", impostor.address),
        format!("https://{}", server.address),
    ];
    server.order(vec![leave()]);
    ends(agent(folder.path(), config)).await;
    assert!(impostor.record.lock().unwrap().reports.is_empty());
}

/// Sends an image that takes minutes to come.
async fn send_slowly(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n").await?;
    loop {
        stream.write_all(&[7; 64 << 10]).await?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A server of such images.
async fn slow_images() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(send_slowly(stream));
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_ends_when_the_server_has_let_the_machine_go() {
    let folder = machine_root();
    add_disk(folder.path(), "vda", 4, 8 << 30);
    let server = Server::start().await;
    let write = WriteImage {
        image: ImageSource {
            url: format!("http://{}/image.raw", slow_images().await),
            format: DiskFormat::Raw,
            checksum: "00".repeat(32),
            checksum_type: ChecksumType::Sha256,
            compression: None,
            authorization: None,
            allowed_addresses: vec!["127.0.0.0/8".into()],
            sources: vec![],
            checksum_sources: vec![],
            proxy: None,
        },
        root_device_hints: RootDeviceHints::default(),
        mark: DiskMark { owner: "owner".into(), host: "ns/node-1".into(), operation: "op".into(), consent: None },
        config_drive: None,
        known: Vec::new(),
    };
    server.order(vec![Action::WriteImage(Box::new(write))]);
    let task = agent(folder.path(), server.config());
    let writes = |state: &AgentState| matches!(state, AgentState::Running { progress, .. } if progress.bytes > 0 && progress.disk.contains("pci-0000:00:04.0"));
    server.wait(|record| record.reports.iter().any(|report| writes(&report.state))).await;
    server.record.lock().unwrap().forbid = Some(Some(server.config().generation));
    let stopped = |state: &AgentState| matches!(state, AgentState::Finished { outcome: Outcome::Failed(error), .. } if error.message.contains("pci-0000:00:04.0"));
    server.wait(|record| record.reports.last().is_some_and(|report| stopped(&report.state))).await;
    assert!(!task.is_finished(), "it stays, for whoever takes the machine back");
    task.abort();
}

#[tokio::test]
async fn only_the_server_dismisses_an_agent_and_only_its_own_boot() {
    let server = Server::start().await;
    let config = server.config();
    let report = Report {
        protocol: agent_protocol::PROTOCOL_VERSION,
        version: "0.1.0".into(),
        host: config.host.clone(),
        generation: config.generation,
        boot_id: BOOT.into(),
        sequence: 1,
        state: AgentState::Idle,
        machine: None,
        firmware: None,
        wait_seconds: 0,
        logs: Vec::new(),
    };
    let client = Client::new(&config).unwrap();
    for (forbid, dismissed) in [(None, false), (Some(config.generation + 1), false), (Some(config.generation), true)] {
        server.record.lock().unwrap().forbid = Some(forbid);
        let error = client.exchange(&report, "key").await.unwrap_err();
        assert_eq!((error.is_refusal(), error.is_dismissal()), (true, dismissed), "{forbid:?}: {error}");
    }
    // A proxy that forbids everything at one address takes nothing from what the server says at another.
    let proxy = server.twin().await;
    proxy.record.lock().unwrap().forbid = Some(None);
    for endpoints in [[proxy.address, server.address], [server.address, proxy.address]] {
        let endpoints = endpoints.iter().map(|address| format!("https://{address}")).collect();
        let client = Client::new(&HostConfig { endpoints, ..config.clone() }).unwrap();
        assert!(client.exchange(&report, "key").await.unwrap_err().is_dismissal());
    }
}
