//! Machines that boot a HostDiscovery's medium and report themselves: hosts come of what their BMC shows, once, and of nothing else.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_protocol::{BmcClaim, Heard, LanChannel, RedfishInterface, Sighting};
use api::metal3::{HardwareData, ProvisioningState as State, REPORTED_BY, annotation};
use api::metamorph::{DiscoveryMediumAt, HostDiscoveryStatus, ReportOutcome as Outcome};
use inventory::{HardwareDetails, MachineEvidence, Nic};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use operator::{MediumOffice, MediumWish, NotTaken, Reception};
use scenarios::{Machines, Site, fixture};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::discoveries::{Network, all, annotate, declare, hosts, next_scan, said, secret, wait};

/// Offers media, and remembers what it was asked for.
#[derive(Default)]
struct Office(Mutex<Vec<String>>);

impl MediumOffice for Office {
    fn offer(&self, wish: &MediumWish) -> Result<Vec<DiscoveryMediumAt>, String> {
        self.0.lock().unwrap().push(format!("{} {}", wish.name, wish.revision));
        let url = format!("http://192.0.2.254/{}/{}.iso", wish.uid, wish.revision);
        Ok(vec![DiscoveryMediumAt { architecture: "x86_64".into(), revision: wish.revision, urls: vec![url] }])
    }

    fn withdraw(&self, _: &str) {
        self.0.lock().unwrap().push("withdrawn".into());
    }
}

/// The server's side, and how machines reach it.
struct Desk {
    network: Arc<Network>,
    office: Arc<Office>,
    reception: Arc<Reception>,
}

impl Desk {
    fn new() -> Self {
        Self { network: Network::new(), office: Arc::default(), reception: Arc::default() }
    }

    fn starts(&self, site: &Site) -> tokio::task::JoinHandle<()> {
        let parts = (Arc::clone(&self.office) as Arc<dyn MediumOffice>, Arc::clone(&self.reception));
        site.reporting(fixture(&Machines::default()), self.network.clone(), parts)
    }

    async fn uid(site: &Site) -> String {
        all(site).get("rack").await.unwrap().uid().unwrap()
    }

    /// What the server says at last, to a machine that asks until it has decided.
    async fn report(&self, site: &Site, sighting: &Sighting) -> Heard {
        let uid = Self::uid(site).await;
        for _ in 0..600 {
            let heard = self.reception.hear(&uid, 1, PEER, sighting).unwrap();
            if heard.settled {
                return heard;
            }
            sleep(Duration::from_secs(heard.again_seconds.into())).await;
        }
        panic!("nothing was decided");
    }

    fn asked(&self) -> Vec<IpAddr> {
        let mut asked = self.network.asked.lock().unwrap().clone();
        asked.dedup();
        asked
    }
}

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 9));

fn mac(n: u32) -> String {
    format!("00:1b:21:00:00:{n:02x}")
}

/// The `n`th machine, which says that its BMC is there.
fn machine(n: u32, bmc: [u8; 4]) -> Sighting {
    let channel = LanChannel { channel: 1, ipv4: Some(bmc.into()), ..LanChannel::default() };
    let nic = Nic { mac: Some(mac(n)), name: Some("eno1".into()), ..Nic::default() };
    Sighting {
        protocol: agent_protocol::DISCOVERY_PROTOCOL,
        machine: MachineEvidence {
            system_uuid: Some(format!("00112233-4455-6677-8899-{n:012x}")),
            macs: vec![mac(n)],
            ..MachineEvidence::default()
        },
        hardware: HardwareDetails { nics: vec![nic], ram_mebibytes: Some(1024), ..HardwareDetails::default() },
        bmc: BmcClaim { channels: vec![channel], ..BmcClaim::default() },
        ..Sighting::default()
    }
}

async fn offered(site: &Site, revision: u32) -> HostDiscoveryStatus {
    wait(site, "rack", |status| status.media.iter().any(|medium| medium.revision == revision)).await
}

fn outcomes(status: &HostDiscoveryStatus) -> Vec<Outcome> {
    status.reports.iter().map(|row| row.outcome).collect()
}

async fn facts(site: &Site, name: &str) -> Option<HardwareData> {
    let all: Api<HardwareData> = Api::default_namespaced(site.observer());
    all.get_opt(name).await.unwrap()
}

async fn change(site: &Site, spec: Value) {
    let change = Patch::Merge(json!({ "spec": spec }));
    all(site).patch("rack", &PatchParams::default(), &change).await.unwrap();
}

async fn status(site: &Site) -> HostDiscoveryStatus {
    all(site).get("rack").await.unwrap().status.unwrap()
}

/// What has come of the last report.
async fn last(site: &Site) -> String {
    status(site).await.reports.last().unwrap().message.clone()
}

#[test]
fn a_machine_that_reports_itself_becomes_one_host_with_its_hardware() {
    scenarios::run(321, async |site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        let _controller = desk.starts(&site);
        secret(&site).await;
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        let seen = offered(&site, 1).await;
        assert_eq!((seen.conditions[0].status.as_str(), seen.conditions[0].reason.as_str()), ("True", "Listening"));
        sleep(Duration::from_secs(2 * 3600)).await;
        assert_eq!(desk.asked(), Vec::<IpAddr>::new(), "nothing is scanned");
        // An address that this HostDiscovery does not ask is not asked, whoever names it.
        let heard = desk.report(&site, &machine(2, [198, 51, 100, 7])).await;
        assert!(heard.message.contains("spec.ranges does not ask"), "{heard:?}");
        assert_eq!((desk.asked().len(), hosts(&site).await.len()), (0, 0));

        let heard = desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        let [host] = hosts(&site).await.try_into().unwrap();
        let name = host.name_any();
        assert!(last(&site).await.contains(&name) && !heard.message.contains(&name), "{heard:?}");
        assert_eq!(desk.asked(), [IpAddr::from([192, 0, 2, 7])]);
        assert_eq!(outcomes(&status(&site).await), [Outcome::OutOfRange, Outcome::Host]);
        let told = facts(&site, &name).await.unwrap();
        assert_eq!(told.annotations().get(REPORTED_BY).map(String::as_str), Some("rack"));
        assert_eq!(told.spec.hardware.unwrap().ram_mebibytes, Some(1024));
        site.wait(&name, 60, |host| host.state() == State::Unmanaged).await;

        // It boots again, and again while its host is approved: it stays one.
        sleep(Duration::from_secs(3600)).await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        assert_eq!(hosts(&site).await.len(), 1);
        annotate(&site, &name, annotation::APPROVE, "true").await;
        let host = site.wait(&name, 7200, |host| host.state() == State::Available).await;
        assert_eq!(host.spec.bmc.unwrap().address, "redfish-virtualmedia://192.0.2.7");
        let inspected = facts(&site, &name).await.unwrap();
        assert!(!inspected.annotations().contains_key(REPORTED_BY), "the inspection's facts count");
        assert_ne!(inspected.spec.hardware.unwrap().ram_mebibytes, Some(1024));
        sleep(Duration::from_secs(3600)).await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        assert_eq!(hosts(&site).await.len(), 1);
    });
}

#[test]
fn a_declared_machine_and_a_machine_that_a_scan_has_found_make_no_second_host() {
    scenarios::run(322, async |site| {
        let desk = Desk::new();
        desk.network.puts(5, 1, 'a');
        desk.network.puts(7, 2, 'b');
        let _controller = desk.starts(&site);
        site.create_with("declared", json!({}), json!({ "bmc": null, "bootMACAddress": mac(5) })).await;
        declare(&site, "rack", json!({ "medium": {} })).await;
        wait(&site, "rack", |status| status.pending == 2).await;
        let before = hosts(&site).await.len();
        let known = desk.report(&site, &machine(5, [192, 0, 2, 5])).await;
        assert!(last(&site).await.contains("the host declared"), "{known:?}");
        // The scan's host is the report's.
        let heard = desk.report(&site, &machine(7, [192, 0, 2, 7])).await;
        assert!(last(&site).await.contains("waits for approval"), "{heard:?}");
        // Whoever has the medium is not told which machines are known.
        assert_eq!(heard, known);
        assert_eq!(hosts(&site).await.len(), before);
        assert_eq!(outcomes(&status(&site).await), [Outcome::Known, Outcome::Host]);
        // And the next scan's host is still the report's.
        let seen = next_scan(&site, "rack").await;
        assert_eq!((seen.pending, outcomes(&seen)), (2, vec![Outcome::Known, Outcome::Host]));
    });
}

#[test]
fn a_hostile_machine_takes_no_ones_bmc_and_has_no_ones_facts_kept() {
    scenarios::run(323, async |site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        let _controller = desk.starts(&site);
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        offered(&site, 1).await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        let [host] = hosts(&site).await.try_into().unwrap();
        let name = host.name_any();
        // Another machine says that it is the same, and has the same BMC; and one says that it is another.
        let mut repeats = machine(1, [192, 0, 2, 7]);
        repeats.hardware.ram_mebibytes = Some(65_536);
        for other in [repeats, machine(66, [192, 0, 2, 7]), machine(1, [192, 0, 2, 7])] {
            desk.report(&site, &other).await;
            assert_eq!(facts(&site, &name).await.unwrap().spec.hardware, None);
            assert_eq!(hosts(&site).await.len(), 1);
            sleep(Duration::from_secs(600)).await;
        }
        assert!(last(&site).await.contains("another machine says"));
        let seen = status(&site).await;
        assert_eq!((seen.reports.len(), seen.machines[0].claimants.len()), (3, 2));
        // Its firmware names another service than answers there.
        let mut liar = machine(67, [192, 0, 2, 7]);
        let service_uuid = Some("4c4c4544-0035-5910-8052-00000000beef".to_owned());
        liar.bmc.redfish = Some(RedfishInterface { service_uuid, ..RedfishInterface::default() });
        desk.report(&site, &liar).await;
        assert!(last(&site).await.contains("another Redfish service"));
        // A host that was deleted stays so, until it is asked for.
        site.hosts().delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(600)).await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        assert_eq!(hosts(&site).await.len(), 0);
        let wish = Patch::Merge(json!({ "metadata": { "annotations": { (annotation::REDISCOVER): "all" } } }));
        all(&site).patch("rack", &PatchParams::default(), &wish).await.unwrap();
        wait(&site, "rack", |status| status.machines.is_empty()).await;
        sleep(Duration::from_secs(600)).await;
        assert_eq!(desk.asked(), [IpAddr::from([192, 0, 2, 7])], "nothing was scanned for that");
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        assert_eq!(hosts(&site).await.len(), 1);
    });
}

#[test]
fn a_medium_of_an_earlier_revision_is_refused_and_so_is_one_that_was_taken_back() {
    scenarios::run(324, async |site| {
        let desk = Desk::new();
        let _controller = desk.starts(&site);
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        offered(&site, 1).await;
        let uid = Desk::uid(&site).await;
        let hear = |revision| desk.reception.hear(&uid, revision, PEER, &machine(1, [192, 0, 2, 7]));
        assert!(hear(1).is_ok());
        change(&site, json!({ "medium": { "revision": 2 } })).await;
        let seen = offered(&site, 2).await;
        assert!(seen.media[0].urls[0].ends_with("/2.iso") && seen.media.len() == 1, "{:?}", seen.media);
        assert_eq!((hear(1), hear(2).is_ok()), (Err(NotTaken::Revoked), true));
        let down = Patch::Merge(json!({ "spec": { "medium": { "revision": 1 } } }));
        let refused = all(&site).patch("rack", &PatchParams::default(), &down).await.unwrap_err().to_string();
        assert!(refused.contains("revision is counted up alone"), "{refused}");
        change(&site, json!({ "suspended": true })).await;
        wait(&site, "rack", |status| status.media.is_empty()).await;
        assert_eq!(hear(2), Err(NotTaken::Revoked));
        change(&site, json!({ "suspended": false })).await;
        offered(&site, 2).await;
        assert!(hear(2).is_ok());
        change(&site, json!({ "medium": null })).await;
        wait(&site, "rack", |status| status.media.is_empty()).await;
        assert_eq!(hear(2), Err(NotTaken::Revoked));
        assert!(desk.office.0.lock().unwrap().iter().any(|word| word == "withdrawn"));
        // What was taken back is not valid again by the same number, nor by one before it.
        for revision in [2, 1] {
            change(&site, json!({ "medium": { "revision": revision } })).await;
            let seen = wait(&site, "rack", |status| status.conditions[0].reason == "NoMedium").await;
            assert!(seen.conditions[0].message.contains("write 3") && seen.media.is_empty(), "{seen:?}");
            assert_eq!((hear(2), hear(1)), (Err(NotTaken::Revoked), Err(NotTaken::Revoked)));
            change(&site, json!({ "medium": null })).await;
            wait(&site, "rack", |status| status.conditions[0].reason != "NoMedium").await;
        }
        change(&site, json!({ "medium": { "revision": 3 } })).await;
        offered(&site, 3).await;
        assert_eq!((hear(2), hear(3).is_ok()), (Err(NotTaken::Revoked), true));
    });
}

#[test]
fn a_server_that_starts_again_offers_the_same_medium_and_makes_no_second_host() {
    scenarios::run(325, async |mut site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        let controller = desk.starts(&site);
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        let before = offered(&site, 1).await.media;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        controller.abort();
        site.restart().await;
        let desk = Desk { network: Arc::clone(&desk.network), ..Desk::new() };
        let _controller = desk.starts(&site);
        let uid = Desk::uid(&site).await;
        assert_eq!(desk.reception.takes(&uid, 1), Err(NotTaken::Unknown));
        for _ in 0..600 {
            if desk.reception.takes(&uid, 1).is_ok() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        assert_eq!(hosts(&site).await.len(), 1);
        assert_eq!(status(&site).await.media, before);
    });
}

/// Nothing else looks for a machine that has switched itself off.
#[test]
fn a_machine_that_is_no_host_yet_is_told_to_report_again_until_it_is() {
    scenarios::run(326, async |site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        desk.network.puts(8, 2, 'b');
        let _controller = desk.starts(&site);
        secret(&site).await;
        declare(&site, "rack", json!({ "medium": { "onlyReported": true }, "maxPendingHosts": 1 })).await;
        offered(&site, 1).await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        let [first] = hosts(&site).await.try_into().unwrap();
        let uid = Desk::uid(&site).await;
        let hear = |n, bmc| desk.reception.hear(&uid, 1, PEER, &machine(n, bmc)).unwrap();
        // One waits already, and the third's BMC is silent.
        for (n, bmc, outcome) in [(2, [192, 0, 2, 8], Outcome::NotYet), (3, [192, 0, 2, 9], Outcome::NoAnswer)] {
            hear(n, bmc);
            let told = wait(&site, "rack", |status| status.reports.iter().any(|row| row.outcome == outcome)).await;
            assert_eq!((hosts(&site).await.len(), told.pending), (1, 1));
            sleep(Duration::from_secs(1)).await;
            let heard = hear(n, bmc);
            assert!(!heard.settled && heard.again_seconds == 300, "{heard:?}");
        }
        annotate(&site, &first.name_any(), annotation::APPROVE, "true").await;
        site.wait(&first.name_any(), 7200, |host| host.state() == State::Available).await;
        desk.network.puts(9, 3, 'c');
        desk.report(&site, &machine(2, [192, 0, 2, 8])).await;
        assert!(last(&site).await.starts_with("its host is "));
        assert_eq!(hosts(&site).await.len(), 2);
    });
}

/// Who says that it has the same BMC has it told to nobody that all is done.
#[test]
fn who_contests_a_bmc_silences_no_machine_that_is_no_host_yet() {
    scenarios::run(331, async |site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        desk.network.puts(8, 2, 'b');
        let _controller = desk.starts(&site);
        declare(&site, "rack", json!({ "medium": { "onlyReported": true }, "maxPendingHosts": 1 })).await;
        offered(&site, 1).await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        let uid = Desk::uid(&site).await;
        for n in [2, 66, 2] {
            let machine = machine(n, [192, 0, 2, 8]);
            let before = status(&site).await.reports.len();
            desk.reception.hear(&uid, 1, PEER, &machine).unwrap();
            sleep(Duration::from_secs(60)).await;
            let heard = desk.reception.hear(&uid, 1, PEER, &machine).unwrap();
            assert!(!heard.settled && heard.again_seconds == 300, "{n}: {heard:?}");
            assert!(status(&site).await.reports.len() >= before);
            sleep(Duration::from_secs(600)).await;
        }
        assert_eq!(status(&site).await.reports.last().unwrap().outcome, Outcome::Contradiction);
        assert_eq!(hosts(&site).await.len(), 1);
    });
}

/// The API drops what its definition does not name.
#[test]
fn with_an_earlier_definition_the_status_is_written_once_and_that_is_told() {
    scenarios::run(332, async |site| {
        let desk = Desk::new();
        let _controller = desk.starts(&site);
        let definitions: Api<CustomResourceDefinition> = Api::all(site.observer());
        let name = "hostdiscoveries.metamorph.metal3.io";
        let mut earlier = serde_json::to_value(definitions.get(name).await.unwrap()).unwrap();
        let status = &mut earlier["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        for field in ["offeredRevision", "revokedRevision"] {
            assert!(status["properties"].as_object_mut().unwrap().remove(field).is_some());
        }
        let earlier = serde_json::from_value(earlier).unwrap();
        definitions.replace(name, &PostParams::default(), &earlier).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        offered(&site, 1).await;
        sleep(Duration::from_secs(5)).await;
        let version = async || all(&site).get("rack").await.unwrap().resource_version();
        let before = version().await;
        sleep(Duration::from_secs(400)).await;
        assert_eq!(version().await, before);
        let told = said(&site, "HostDiscovery").await;
        assert!(
            told.iter().any(|(reason, note)| reason == "RevisionsNotKept" && note.contains("metamorph crds")),
            "{told:?}"
        );
    });
}

#[test]
fn after_a_freeze_reports_are_listened_to_again_and_that_is_shown() {
    scenarios::run(327, async |site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        let _controller = desk.starts(&site);
        secret(&site).await;
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        offered(&site, 1).await;
        let uid = Desk::uid(&site).await;
        site.freeze(Some("the rack is moved")).await;
        desk.reception.hear(&uid, 1, PEER, &machine(1, [192, 0, 2, 7])).unwrap();
        wait(&site, "rack", |status| status.conditions[0].reason == "Frozen").await;
        assert_eq!(hosts(&site).await.len(), 0);
        site.freeze(None).await;
        // Also where no machine reports any more.
        wait(&site, "rack", |status| status.conditions[0].reason == "Listening").await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        assert_eq!(hosts(&site).await.len(), 1);
    });
}

#[test]
fn many_reports_are_written_together_and_names_are_resolved_once() {
    scenarios::run(328, async |site| {
        let desk = Desk::new();
        let _controller = desk.starts(&site);
        let bmc = json!({ "address": "redfish-virtualmedia://bmc.example", "credentialsName": "named-bmc" });
        site.create_with("named", json!({}), json!({ "bmc": bmc, "bootMACAddress": null })).await;
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        offered(&site, 1).await;
        let uid = Desk::uid(&site).await;
        let hear = |n: u8| {
            let peer = IpAddr::from([198, 51, 100, n % 4]);
            desk.reception.hear(&uid, 1, peer, &machine(n.into(), [192, 0, 2, n % 14 + 1])).unwrap()
        };
        (0..20).for_each(|n| assert!(!hear(n).settled));
        let mut versions = Vec::new();
        for _ in 0..60 {
            versions.push(all(&site).get("rack").await.unwrap().resource_version());
            sleep(Duration::from_millis(500)).await;
        }
        versions.dedup();
        assert_eq!(status(&site).await.reports.len(), 20);
        assert!((2..=6).contains(&versions.len()), "{} writes", versions.len());
        assert_eq!(*desk.network.resolved.lock().unwrap(), 1);
        // The same again is no reason to write.
        sleep(Duration::from_secs(300)).await;
        let before = all(&site).get("rack").await.unwrap().resource_version();
        (0..20).for_each(|n| assert!(!hear(n).settled));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(all(&site).get("rack").await.unwrap().resource_version(), before);
    });
}

/// Its machine is switched off: nothing but what is stored tells of it.
#[test]
fn a_rules_approval_that_waits_is_found_again_by_whoever_leads_next() {
    scenarios::run(329, async |mut site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        let controller = desk.starts(&site);
        let rules =
            json!({ "medium": { "onlyReported": true }, "approval": "Automatic", "allow": ["product == 'Server'"] });
        declare(&site, "rack", rules).await;
        offered(&site, 1).await;
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        let [host] = hosts(&site).await.try_into().unwrap();
        assert!(host.spec.bmc.is_none(), "its Secret is missing");
        controller.abort();
        site.restart().await;
        let desk = Desk { network: Arc::clone(&desk.network), ..Desk::new() };
        let _controller = desk.starts(&site);
        secret(&site).await;
        let host = site.wait(&host.name_any(), 7200, |host| host.spec.bmc.is_some()).await;
        assert_eq!(host.spec.bmc.unwrap().address, "redfish-virtualmedia://192.0.2.7");
    });
}

/// The next scan is a week away.
#[test]
fn so_is_one_that_waits_for_a_host_which_a_scan_has_made() {
    scenarios::run(333, async |mut site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        let controller = desk.starts(&site);
        let rules = json!({ "intervalMinutes": 10_080, "approval": "Automatic", "allow": ["product == 'Server'"] });
        declare(&site, "rack", rules).await;
        wait(&site, "rack", |status| status.machines.iter().any(|machine| machine.host.is_some())).await;
        let [host] = hosts(&site).await.try_into().unwrap();
        controller.abort();
        site.restart().await;
        let desk = Desk { network: Arc::clone(&desk.network), ..Desk::new() };
        let _controller = desk.starts(&site);
        secret(&site).await;
        site.wait(&host.name_any(), 7200, |host| host.spec.bmc.is_some()).await;
    });
}

#[test]
fn a_row_that_the_api_refuses_is_left_out_and_the_others_are_written() {
    scenarios::run(330, async |site| {
        let desk = Desk::new();
        desk.network.puts(7, 1, 'a');
        let _controller = desk.starts(&site);
        let definitions: Api<CustomResourceDefinition> = Api::all(site.observer());
        let name = "hostdiscoveries.metamorph.metal3.io";
        let mut strict = serde_json::to_value(definitions.get(name).await.unwrap()).unwrap();
        let status = &mut strict["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        status["properties"]["reports"]["items"]["properties"]["serialNumber"]["maxLength"] = json!(4);
        let strict = serde_json::from_value(strict).unwrap();
        definitions.replace(name, &PostParams::default(), &strict).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        declare(&site, "rack", json!({ "medium": { "onlyReported": true } })).await;
        offered(&site, 1).await;
        let uid = Desk::uid(&site).await;
        let mut refused = machine(2, [198, 51, 100, 7]);
        refused.machine.serial_number = Some("SN-2".repeat(4));
        // Both are gathered, and the host of the third is made nevertheless.
        for one in [&refused, &machine(3, [198, 51, 100, 8])] {
            desk.reception.hear(&uid, 1, PEER, one).unwrap();
        }
        desk.report(&site, &machine(1, [192, 0, 2, 7])).await;
        assert_eq!(outcomes(&self::status(&site).await), [Outcome::OutOfRange, Outcome::Host]);
        assert_eq!(hosts(&site).await.len(), 1);
        let heard = desk.reception.hear(&uid, 1, PEER, &refused).unwrap();
        assert!(!heard.settled && heard.message.contains("cannot be kept"), "{heard:?}");
        let told = said(&site, "HostDiscovery").await;
        let refusals: Vec<&str> = told.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(refusals, ["RowsNotWritten"], "{told:?}");
        assert!(told[0].1.contains("1 rows") && told[0].1.contains("serialNumber"), "{told:?}");
    });
}
