//! The agent of a medium that no host has.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::Machine;
use agent::discovery::{run, sighting};
use agent::fake::FakeMachine;
use agent::report::Client;
use agent_protocol::{Afterwards, DiscoveryConfig, Heard, Leave};
use tokio::runtime::Handle;

use crate::common::{Server, TOKEN, add_disk, machine_root, plant};

/// What a BMC with one channel says: 127.0.0.1, set by hand.
const ANSWERS: &str = "064201 0001040180f21b000000\n0c0201030000 00117f000001\n0c0201040000 001101\nno line\n";

fn machine(root: &Path) -> Arc<dyn Machine> {
    Arc::new(FakeMachine::new(root, "http://127.0.0.1:1/none.iso", Handle::current()))
}

fn config(server: &Server, token: &str, afterwards: Afterwards, stay_minutes: u32) -> DiscoveryConfig {
    DiscoveryConfig {
        protocol: agent_protocol::DISCOVERY_PROTOCOL,
        discovery: "default/rack".into(),
        token: token.into(),
        endpoints: vec![format!("https://{}", server.address)],
        server_certificate_sha256: server.sha256.clone(),
        afterwards,
        stay_minutes,
    }
}

async fn leaves(config: DiscoveryConfig, machine: Arc<dyn Machine>) -> Leave {
    let client = Client::to(&config.endpoints, &config.server_certificate_sha256, &config.token).unwrap();
    tokio::time::timeout(Duration::from_secs(60), run(&config, &client, &machine)).await.expect("the agent leaves")
}

fn heard(settled: bool) -> Heard {
    Heard { settled, message: "said".into(), again_seconds: 0 }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_reports_itself_and_its_bmc_and_is_switched_off_when_that_was_decided() {
    let folder = machine_root();
    plant(folder.path(), "sys/class/dmi/id/product_uuid", "00112233-4455-6677-8899-aabbccddeeff\n");
    add_disk(folder.path(), "vda", 4, 8 << 30);
    let disk = || std::fs::metadata(folder.path().join("dev/vda")).unwrap().modified().unwrap();
    let before = disk();
    std::fs::write(folder.path().join("ipmi"), ANSWERS).unwrap();
    let server = Server::start().await;
    server.record.lock().unwrap().heard.extend([heard(false), heard(true)]);
    let how = leaves(config(&server, TOKEN, Afterwards::PowerOff, 60), machine(folder.path())).await;
    assert_eq!(how, Leave::PowerOff);
    let record = server.record.lock().unwrap();
    assert_eq!((record.sightings.len(), record.reports.len()), (2, 0));
    let found = &record.sightings[0];
    assert_eq!(found.bmc.addresses(), [std::net::IpAddr::from([127, 0, 0, 1])]);
    assert_eq!(found.hardware.storage.len(), 1);
    assert_eq!(found.machine.system_uuid.as_deref(), Some("00112233-4455-6677-8899-aabbccddeeff"));
    assert_eq!(disk(), before, "no disk is touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_an_interface_to_a_bmc_says_so() {
    let folder = machine_root();
    let found = sighting(machine(folder.path()).as_ref());
    assert!(found.bmc.channels.is_empty() && found.bmc.said[0].contains("no local interface"), "{:?}", found.bmc);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_medium_says_so_does_not_stay() {
    let folder = machine_root();
    let server = Server::start().await;
    let none = config(&server, TOKEN, Afterwards::Wait, 0);
    assert_eq!(leaves(none, machine(folder.path())).await, Leave::PowerOff);
    assert!(server.record.lock().unwrap().sightings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_waits_or_is_refused_stays_no_longer_than_its_medium_says() {
    let folder = machine_root();
    for (afterwards, endpoint) in
        [(Afterwards::Wait, "https://127.0.0.1:1"), (Afterwards::PowerOff, "https://127.0.0.1:1")]
    {
        let config = DiscoveryConfig {
            protocol: agent_protocol::DISCOVERY_PROTOCOL,
            discovery: "default/rack".into(),
            token: TOKEN.into(),
            endpoints: vec![endpoint.into()],
            server_certificate_sha256: "00".repeat(32),
            afterwards,
            stay_minutes: 30,
        };
        let client = Client::to(&config.endpoints, &config.server_certificate_sha256, &config.token).unwrap();
        let begun = tokio::time::Instant::now();
        assert_eq!(run(&config, &client, &machine(folder.path())).await, Leave::PowerOff);
        let stayed = begun.elapsed();
        assert!((1800..1860).contains(&stayed.as_secs()), "{stayed:?}");
    }
}
