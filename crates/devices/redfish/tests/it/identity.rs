//! Which machine, and which BMC: what recorded trees show, and that no password goes to another one.

use bmc::ErrorKind;
use inventory::BmcPin;
use machine_identity::{Common, Finding, compare};
use redfish::System;
use serde_json::json;

use crate::kit::{Bmc, Rig, SYSTEM, dropped, odd, rig, rig_with_pin};

const TREES: [(&str, &str); 4] = [
    ("dell-r750", "/redfish/v1/Systems/System.Embedded.1"),
    ("hpe", "/redfish/v1/Systems/1"),
    ("supermicro-x10", "/redfish/v1/Systems/1"),
    ("dmtf-generic", SYSTEM),
];

async fn evidence_of(rig: &Rig) -> (System, inventory::MachineEvidence) {
    let system = rig.client.system().await.unwrap();
    let mut evidence = system.evidence();
    evidence.macs = rig.client.macs().await.unwrap();
    (system, evidence)
}

/// Blanks (Supermicro's serial number is ten spaces), placeholders and makers' habits lock nobody out, and nobody passes for another.
#[tokio::test]
async fn each_recorded_machine_is_itself_and_no_other() {
    let mut all = Vec::new();
    for (set, system) in TREES {
        let bmc = Bmc::new(set);
        all.push((set, evidence_of(&rig(&bmc, system)).await.1));
    }
    for (one, a) in &all {
        for (other, b) in &all {
            let mut without = b.clone();
            without.macs.clear();
            for b in [b, &without] {
                let finding = compare(a, b, &Common::default());
                assert_eq!(matches!(finding, Finding::Match { .. }), one == other, "{one} and {other}: {finding:?}");
                assert_eq!(matches!(finding, Finding::Mismatch { .. }), one != other, "{one} and {other}: {finding:?}");
            }
        }
    }
}

#[tokio::test]
async fn of_a_dell_the_service_tag_counts_which_is_its_sku() {
    let (system, evidence) = evidence_of(&rig(&Bmc::new("dell-r750"), TREES[0].1)).await;
    assert_eq!(system.serial_number.as_deref(), Some("CNIVC0014M0388"));
    assert_eq!(evidence.serial_number.as_deref(), Some("F54P1G3"));
    let (_, evidence) = evidence_of(&rig(&Bmc::new("hpe"), TREES[1].1)).await;
    assert_eq!(evidence.serial_number.as_deref(), Some("2M2D2J00L4"), "HPE's SKU is the model's");
}

#[tokio::test]
async fn the_interface_towards_the_bmc_is_none_of_the_machines() {
    let (_, evidence) = evidence_of(&rig(&Bmc::generic(), SYSTEM)).await;
    let macs = ["12:44:6A:3B:04:11", "12:44:6A:3B:88:90"];
    assert!(macs.iter().all(|mac| evidence.macs.iter().any(|seen| seen == mac)), "{:?}", evidence.macs);
    assert!(evidence.macs.len() <= 3, "{:?}", evidence.macs);
}

fn signs_in(log: &[String]) -> bool {
    log.iter().any(|line| line.contains("POST") || line.contains("session") || line.contains("basic"))
}

#[tokio::test]
async fn another_bmc_is_sent_no_password() {
    let bmc = Bmc::generic();
    let first = rig(&bmc, SYSTEM);
    first.client.system().await.unwrap();
    let pin = first.client.pin();
    assert!(pin.service_uuid.is_some() && pin.key_sha256.is_none());
    bmc.take_seen();
    // The same BMC by its pin, however the UUID is written.
    let upper = BmcPin { service_uuid: pin.service_uuid.clone().map(|uuid| uuid.to_uppercase()), ..pin.clone() };
    rig_with_pin(&bmc, SYSTEM, upper).client.system().await.unwrap();
    bmc.take_seen();

    let other = BmcPin { service_uuid: Some("39343550-3330-4d32-3244-324a30304c34".into()), key_sha256: None };
    let wrong = rig_with_pin(&bmc, SYSTEM, other);
    let error = wrong.client.system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::AnotherBmc);
    assert!(error.to_string().contains("it has been sent no credentials"), "{error}");
    assert!(bmc.take_seen().iter().all(|seen| seen.method == "GET" && seen.auth == "none"));
    assert_eq!(wrong.client.pin(), pin, "what it shows can be told");
    let error = wrong.client.sweep(&[]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::AnotherBmc);
    assert!(bmc.take_seen().iter().all(|seen| seen.method == "GET" && seen.auth == "none"));
}

#[tokio::test]
async fn one_that_hides_its_root_from_strangers_is_none_that_was_recorded_by_it() {
    let bmc = Bmc::generic();
    let pin = BmcPin { service_uuid: Some("39343550-3330-4d32-3244-324a30304c34".into()), key_sha256: None };
    bmc.script("GET", "/redfish/v1/", odd(401, json!({})));
    let error = rig_with_pin(&bmc, SYSTEM, pin).client.system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::AnotherBmc);
    assert!(!signs_in(&bmc.take_log()));
}

/// Whoever made the client need not have known the BMC: what was signed in to is meant from then on.
#[tokio::test]
async fn a_session_that_is_lost_is_renewed_with_the_same_bmc_only() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.system().await.unwrap();
    // Another BMC takes the address: it knows no session of ours.
    bmc.edit("/redfish/v1", |root| root["UUID"] = "39343550-3330-4d32-3244-324a30304c34".into());
    bmc.set(|inner| inner.sessions.clear());
    bmc.take_seen();
    let error = rig.client.system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::AnotherBmc);
    assert!(bmc.take_seen().iter().all(|seen| seen.method == "GET"), "no password was sent");
}

/// With basic authentication each request carries the password: the BMC shows itself before.
#[tokio::test]
async fn without_sessions_the_bmc_shows_itself_before_each_look() {
    let bmc = Bmc::generic();
    bmc.set(|inner| inner.no_sessions = true);
    let rig = rig(&bmc, SYSTEM);
    rig.client.system().await.unwrap();
    rig.client.system().await.unwrap();
    bmc.edit("/redfish/v1", |root| root["UUID"] = "39343550-3330-4d32-3244-324a30304c34".into());
    bmc.take_seen();
    let error = rig.client.system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::AnotherBmc);
    assert!(bmc.take_seen().iter().all(|seen| seen.auth == "none"), "no password was sent");
}

/// An iDRAC's service root has no UUID, but the machine's service tag.
#[tokio::test]
async fn an_idrac_is_known_by_its_service_tag() {
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, TREES[0].1);
    rig.client.system().await.unwrap();
    let pin = rig.client.pin();
    assert!(machine_identity::is_pinned(&pin), "{pin:?}");
}

#[tokio::test]
async fn macs_that_cannot_be_read_are_an_error_and_those_that_are_not_shown_are_none() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.system().await.unwrap();
    // Neither with its members inlined nor plain.
    for _ in 0..2 {
        bmc.script("GET", "/EthernetInterfaces", odd(404, json!({})));
    }
    assert_eq!(rig.client.macs().await.unwrap(), Vec::<String>::new());
    for _ in 0..4 {
        bmc.script("GET", "/EthernetInterfaces", dropped());
    }
    assert!(rig.client.macs().await.is_err());
}
