//! HostDiscoveries: machines that nobody declared become hosts, once, and nobody works on them before they are approved.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation, label};
use api::metamorph::{DiscoveryPhase as Phase, HostDiscovery, HostDiscoveryStatus};
use async_trait::async_trait;
use discovery::{Answer, Place, Shown};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use operator::Scout;
use scenarios::{Machines, Site, fixture};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// A network of BMCs.
#[derive(Default)]
pub struct Network {
    answers: Mutex<BTreeMap<IpAddr, Shown>>,
    /// How much longer than usual an answer takes.
    pub slow: Mutex<Duration>,
    pub asked: Mutex<Vec<IpAddr>>,
    /// How often a name was resolved.
    pub resolved: Mutex<u32>,
}

impl Network {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The `n`th address answers with the `who`th UUID, and proves this key.
    pub fn puts(&self, n: u8, who: u32, key: char) {
        let uuid = Some(format!("4c4c4544-0035-5910-8052-{who:012x}"));
        let shown = Shown {
            vendor: "Contoso".into(),
            product: "Server".into(),
            uuid,
            redfish_version: "1.6.0".into(),
            key_sha256: Some(key.to_string().repeat(64)),
        };
        self.answers.lock().unwrap().insert([192, 0, 2, n].into(), shown);
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl Scout for Network {
    async fn ask(&self, place: Place) -> Answer {
        self.asked.lock().unwrap().push(place.ip);
        let slow = *self.slow.lock().unwrap();
        sleep(Duration::from_millis(50) + slow).await;
        self.answers.lock().unwrap().get(&place.ip).cloned().map_or(Answer::Nothing, Answer::Shown)
    }

    async fn resolve(&self, name: &str) -> Vec<IpAddr> {
        *self.resolved.lock().unwrap() += 1;
        if name == "bmc.example" { vec![[192, 0, 2, 5].into()] } else { Vec::new() }
    }
}

pub fn all(site: &Site) -> Api<HostDiscovery> {
    Api::default_namespaced(site.observer())
}

pub async fn declare(site: &Site, name: &str, change: Value) {
    let mut spec = json!({ "ranges": ["192.0.2.0/28"], "credentialsName": "login" });
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let object = json!({ "metadata": { "name": name }, "spec": spec });
    all(site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A rack whose only machine waits for approval; the network, the controllers and the host's name.
async fn one_waits(site: &Site, change: Value) -> (Arc<Network>, JoinHandle<()>, String) {
    let network = Network::new();
    network.puts(7, 1, 'a');
    let controller = site.discovering(fixture(&Machines::default()), network.clone());
    declare(site, "rack", change).await;
    wait(site, "rack", |status| status.pending == 1).await;
    let waits = hosts(site).await.into_iter().find(|host| host.spec.bmc.is_none()).unwrap();
    (network, controller, waits.name_any())
}

/// Asks for the hosts of these machines once more.
async fn rediscover(site: &Site, text: &str) {
    let change = Patch::Merge(json!({ "metadata": { "annotations": { (annotation::REDISCOVER): text } } }));
    all(site).patch("rack", &PatchParams::default(), &change).await.unwrap();
}

async fn remove(site: &Site, host: &str) {
    site.hosts().delete(host, &DeleteParams::default()).await.unwrap();
    site.gone(host, 600).await;
}

/// Somebody declares a host with a BMC at this address.
async fn has(site: &Site, name: &str, address: &str) {
    let bmc =
        json!({ "address": format!("redfish-virtualmedia://{address}"), "credentialsName": format!("{name}-bmc") });
    site.create_with(name, json!({}), json!({ "bmc": bmc, "bootMACAddress": null })).await;
}

/// Whether it was said of a host why it is not approved.
async fn refused(site: &Site, why: &str) -> bool {
    said(site, "BareMetalHost").await.iter().any(|(reason, note)| reason == "NotApproved" && note.contains(why))
}

pub async fn secret(site: &Site) {
    let secret = json!({ "metadata": { "name": "login" }, "stringData": { "username": "u", "password": "p" } });
    let secrets: Api<Secret> = Api::default_namespaced(site.observer());
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

/// The status as soon as it is as wanted.
pub async fn wait(site: &Site, name: &str, wanted: impl Fn(&HostDiscoveryStatus) -> bool) -> HostDiscoveryStatus {
    let mut last = None;
    for _ in 0..4 * 3600 {
        last = all(site).get_opt(name).await.unwrap().and_then(|one| one.status);
        if last.as_ref().is_some_and(&wanted) {
            return last.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} is not as wanted: {last:?}");
}

/// The status after a scan that begins from now on.
pub async fn next_scan(site: &Site, name: &str) -> HostDiscoveryStatus {
    let began =
        |status: Option<HostDiscoveryStatus>| status.and_then(|status| status.last_scan).and_then(|scan| scan.began);
    let before = began(all(site).get(name).await.unwrap().status);
    wait(site, name, |status| began(Some(status.clone())) != before).await
}

pub async fn hosts(site: &Site) -> Vec<BareMetalHost> {
    site.hosts().list(&ListParams::default()).await.unwrap().items
}

pub async fn annotate(site: &Site, host: &str, key: &str, value: &str) {
    let change = Patch::Merge(json!({ "metadata": { "annotations": { (key): value } } }));
    site.hosts().patch(host, &PatchParams::default(), &change).await.unwrap();
}

/// Reasons and notes of the Events about objects of this kind.
pub async fn said(site: &Site, kind: &str) -> Vec<(String, String)> {
    let events: Api<Event> = Api::default_namespaced(site.observer());
    let all = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let is = |event: &Event| event.regarding.as_ref().and_then(|o| o.kind.as_deref()) == Some(kind);
    all.filter(is).map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
}

fn phase(status: &HostDiscoveryStatus, n: u8) -> Phase {
    let address = format!("redfish-virtualmedia://192.0.2.{n}");
    status.machines.iter().find(|machine| machine.address == address).unwrap().phase
}

fn writes(site: &Site) -> Vec<String> {
    let calls = site.weather.calls().into_iter();
    calls.filter(|call| !call.starts_with("GET") && call.contains("/baremetalhosts")).collect()
}

#[test]
fn a_machine_that_nobody_declared_is_approved_inspected_and_stays_one_host() {
    scenarios::run(301, async |mut site| {
        let network = Network::new();
        network.puts(7, 1, 'a');
        let controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "rack", json!({})).await;
        let status = wait(&site, "rack", |status| status.pending == 1).await;
        let scan = status.last_scan.unwrap();
        assert_eq!((scan.asked, scan.answered, scan.left_out.len()), (14, 1, 0));
        assert_eq!(status.conditions[0].status, "True");
        let [host] = hosts(&site).await.try_into().unwrap();
        let name = host.name_any();
        assert_eq!(host.labels().get(label::DISCOVERED).map(String::as_str), Some("true"));
        assert!(host.spec.bmc.is_none() && !host.spec.online);
        // Unmanaged until it is approved: nothing is done to it, whatever the time.
        site.wait(&name, 60, |host| host.state() == State::Unmanaged).await;
        let before = writes(&site);
        sleep(Duration::from_secs(6 * 3600)).await;
        assert_eq!(writes(&site), before, "scans that find the same write nothing to hosts");
        // Approval waits for the Secret, and says so.
        annotate(&site, &name, annotation::APPROVE, "true").await;
        sleep(Duration::from_secs(10)).await;
        assert!(site.hosts().get(&name).await.unwrap().spec.bmc.is_none());
        assert!(refused(&site, "login").await);
        secret(&site).await;
        let host = site.wait(&name, 7200, |host| host.state() == State::Available).await;
        let bmc = host.spec.bmc.as_ref().unwrap();
        assert_eq!(
            (bmc.address.as_str(), bmc.credentials_name.as_str()),
            ("redfish-virtualmedia://192.0.2.7", "login")
        );
        assert_eq!((bmc.disable_certificate_verification, host.annotation(annotation::APPROVE)), (None, None));
        assert!(host.status.as_ref().unwrap().hardware.is_some());
        let status = next_scan(&site, "rack").await;
        assert_eq!((phase(&status, 7), status.pending, hosts(&site).await.len()), (Phase::Approved, 0, 1));
        // Neither another process nor another API server makes a second one.
        controller.abort();
        site.restart().await;
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        next_scan(&site, "rack").await;
        assert_eq!(hosts(&site).await.len(), 1);
    });
}

#[test]
fn who_takes_the_address_of_a_found_machine_is_not_approved() {
    scenarios::run(302, async |site| {
        secret(&site).await;
        let (network, _controller, name) = one_waits(&site, json!({})).await;
        // The same UUID with another key; another UUID with the same key.
        for (who, key) in [(1, 'b'), (2, 'a')] {
            network.puts(7, who, key);
            annotate(&site, &name, annotation::APPROVE, "true").await;
            sleep(Duration::from_secs(300)).await;
            assert!(site.hosts().get(&name).await.unwrap().spec.bmc.is_none(), "{who} {key}");
        }
        assert!(refused(&site, "another machine answers").await);
        let status = next_scan(&site, "rack").await;
        assert_eq!((phase(&status, 7), hosts(&site).await.len()), (Phase::Contradiction, 1));
        // An address that the discovery does not ask is not asked, whoever has written it.
        annotate(&site, &name, annotation::DISCOVERED_ADDRESS, "redfish-virtualmedia://198.51.100.1").await;
        sleep(Duration::from_secs(120)).await;
        assert!(!network.asked.lock().unwrap().contains(&[198, 51, 100, 1].into()));
        annotate(&site, &name, annotation::DISCOVERED_ADDRESS, "redfish-virtualmedia://192.0.2.7").await;
        network.puts(7, 1, 'a');
        site.wait(&name, 7200, |host| host.state() == State::Available).await;
    });
}

#[test]
fn declared_machines_are_known_by_number_and_by_name() {
    scenarios::run(303, async |site| {
        let network = Network::new();
        network.puts(5, 1, 'a');
        network.puts(7, 2, 'b');
        for (name, at) in [("one", "bmc.example"), ("two", "192.0.2.7")] {
            has(&site, name, &format!("{at}/redfish/v1/Systems/1")).await;
        }
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "rack", json!({})).await;
        let status = wait(&site, "rack", |status| status.machines.len() == 2).await;
        assert_eq!((phase(&status, 5), phase(&status, 7), hosts(&site).await.len()), (Phase::Known, Phase::Known, 2));
    });
}

#[test]
fn a_deleted_host_is_not_made_again_until_somebody_asks() {
    scenarios::run(304, async |site| {
        let (network, _controller, name) = one_waits(&site, json!({})).await;
        remove(&site, &name).await;
        for _ in 0..3 {
            let status = next_scan(&site, "rack").await;
            assert_eq!((phase(&status, 7), hosts(&site).await.len()), (Phase::Dismissed, 0));
        }
        rediscover(&site, "all").await;
        wait(&site, "rack", |status| status.pending == 1).await;
        assert_eq!(hosts(&site).await.len(), 1);
        sleep(Duration::from_secs(5)).await;
        assert!(!all(&site).get("rack").await.unwrap().annotations().contains_key(annotation::REDISCOVER), "one-shot");
        // Asked for once, it is scanned once.
        let asked = network.asked();
        sleep(Duration::from_secs(1800)).await;
        assert_eq!(network.asked(), asked);
    });
}

#[test]
fn an_allow_rule_approves_by_itself_what_it_means() {
    scenarios::run(305, async |site| {
        let network = Network::new();
        network.puts(7, 1, 'a');
        network.puts(8, 2, 'b');
        network.puts(9, 3, 'c');
        network.puts(10, 3, 'd');
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        secret(&site).await;
        let rules = json!({ "approval": "Automatic", "allow": ["vendor == 'Contoso'"], "deny": ["address == '192.0.2.8'"],
            "disableCertificateVerification": true, "naming": { "prefix": "r-", "from": "Address" } });
        declare(&site, "rack", rules).await;
        let host = site.wait("r-192-0-2-7", 7200, |host| host.state() == State::Available).await;
        assert_eq!(host.spec.bmc.unwrap().disable_certificate_verification, Some(true));
        let status = next_scan(&site, "rack").await;
        let phases = [7, 8, 9, 10].map(|n| phase(&status, n));
        assert_eq!(phases, [Phase::Approved, Phase::Denied, Phase::Contradiction, Phase::Contradiction]);
        assert_eq!(hosts(&site).await.len(), 1);
    });
}

#[test]
fn what_cannot_be_used_asks_nobody_and_says_why_until_it_is_corrected() {
    scenarios::run(306, async |site| {
        let network = Network::new();
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "rack", json!({ "deny": ["vendor =="] })).await;
        let status = wait(&site, "rack", |status| !status.conditions.is_empty()).await;
        let ready = &status.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "InvalidSpec"));
        assert!(ready.message.contains("spec.deny[0]"), "{}", ready.message);
        change(&site, json!({ "deny": null, "suspended": true })).await;
        wait(&site, "rack", |status| status.conditions[0].reason == "Suspended").await;
        sleep(Duration::from_secs(4 * 3600)).await;
        assert_eq!(network.asked(), 0);
        change(&site, json!({ "suspended": null })).await;
        let status = wait(&site, "rack", |status| status.last_scan.is_some()).await;
        assert_eq!((status.conditions[0].status.as_str(), network.asked()), ("True", 14));
        // A spec that changes all the time does not have it ask all the time.
        for n in 1..=60 {
            change(&site, json!({ "maxNewHosts": n })).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert!(network.asked() <= 14 * 5, "{}", network.asked());
    });
}

#[test]
fn a_flood_fills_what_it_may_and_is_told() {
    scenarios::run(307, async |site| {
        let network = Network::new();
        for n in 1..15 {
            network.puts(n, u32::from(n), 'a');
        }
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "rack", json!({ "maxNewHosts": 2, "maxPendingHosts": 5, "intervalMinutes": 5 })).await;
        wait(&site, "rack", |status| status.pending == 2).await;
        // All of them are others each time.
        for round in 1..20 {
            for n in 1..15 {
                network.puts(n, u32::from(n) + 1000 * round, 'a');
            }
            next_scan(&site, "rack").await;
        }
        let status = wait(&site, "rack", |status| status.pending == 5).await;
        assert_eq!(hosts(&site).await.len(), 5);
        assert!(status.last_scan.unwrap().left_out.iter().any(|said| said.contains("maxPendingHosts")));
        assert!(said(&site, "HostDiscovery").await.iter().any(|(reason, _)| reason == "HostsLeftOut"));
        assert!(status.machines.len() <= 14 + 5, "{}", status.machines.len());
        // What is left out no more is said no more.
        network.answers.lock().unwrap().clear();
        next_scan(&site, "rack").await;
        assert_eq!(next_scan(&site, "rack").await.last_scan.unwrap().left_out, Vec::<String>::new());
    });
}

#[test]
fn two_discoveries_of_one_network_make_one_host_of_each_machine() {
    scenarios::run(308, async |site| {
        let network = Network::new();
        for n in 1..4 {
            network.puts(n, u32::from(n), 'a');
        }
        // The same machine on a second network.
        network.puts(9, 1, 'a');
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "one", json!({ "naming": { "prefix": "one-" } })).await;
        declare(&site, "two", json!({ "naming": { "prefix": "two-" } })).await;
        wait(&site, "one", |status| status.last_scan.is_some()).await;
        wait(&site, "two", |status| status.last_scan.is_some()).await;
        next_scan(&site, "one").await;
        next_scan(&site, "two").await;
        assert_eq!(hosts(&site).await.len(), 3);
    });
}

/// Whatever the API loses and whenever the process is killed.
#[test]
fn kills_and_lost_answers_make_no_second_host() {
    for seed in 310..316 {
        scenarios::run(seed, async |mut site| {
            let network = Network::new();
            for n in 1..6 {
                network.puts(n, u32::from(n), 'a');
            }
            secret(&site).await;
            declare(&site, "rack", json!({ "approval": "Automatic", "allow": ["true"], "intervalMinutes": 5 })).await;
            for round in 0..8_u64 {
                let controller = site.discovering(fixture(&Machines::default()), network.clone());
                sleep(Duration::from_millis(250 + 137 * round * (seed % 5 + 1))).await;
                controller.abort();
                if round % 3 == 0 {
                    site.restart().await;
                }
            }
            let _controller = site.discovering(fixture(&Machines::default()), network.clone());
            wait(&site, "rack", |status| {
                status.machines.len() == 5 && status.machines.iter().all(|machine| machine.phase == Phase::Approved)
            })
            .await;
            assert_eq!(hosts(&site).await.len(), 5);
        });
    }
}

async fn change(site: &Site, spec: Value) {
    let change = Patch::Merge(json!({ "spec": spec }));
    all(site).patch("rack", &PatchParams::default(), &change).await.unwrap();
}

fn automatic() -> Value {
    json!({ "approval": "Automatic", "allow": ["true"] })
}

async fn is_untouched(site: &Site, name: &str) {
    sleep(Duration::from_secs(2 * 3600)).await;
    assert!(site.hosts().get(name).await.unwrap().spec.bmc.is_none());
}

#[test]
fn what_a_rule_would_have_approved_is_not_approved_once_the_rule_may_not() {
    scenarios::run(320, async |site| {
        let (_, _controller, name) = one_waits(&site, automatic()).await;
        sleep(Duration::from_secs(60)).await;
        assert!(refused(&site, "no Secret login").await);
        // Automatic is taken back before the Secret is there.
        change(&site, json!({ "approval": "Manual", "suspended": true })).await;
        secret(&site).await;
        is_untouched(&site, &name).await;
        change(&site, json!({ "approval": "Automatic", "suspended": false })).await;
        site.wait(&name, 7200, |host| host.state() == State::Available).await;
    });
}

/// Deletes the HostDiscovery, which somebody's finalizer holds.
async fn goes(site: &Site) {
    let held = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/held"] } }));
    all(site).patch("rack", &PatchParams::default(), &held).await.unwrap();
    all(site).delete("rack", &DeleteParams::default()).await.unwrap();
}

#[test]
fn what_a_rule_would_have_approved_is_not_approved_once_its_discovery_goes() {
    scenarios::run(334, async |site| {
        let (_, _controller, name) = one_waits(&site, automatic()).await;
        sleep(Duration::from_secs(60)).await;
        goes(&site).await;
        secret(&site).await;
        is_untouched(&site, &name).await;
        // A person's word is another matter: the HostDiscovery still says where the machine is.
        annotate(&site, &name, annotation::APPROVE, "true").await;
        site.wait(&name, 7200, |host| host.state() == State::Available).await;
    });
}

#[test]
fn a_discovery_that_goes_while_a_machine_is_asked_approves_nothing() {
    scenarios::run(335, async |site| {
        let (network, _controller, name) = one_waits(&site, automatic()).await;
        *network.slow.lock().unwrap() = Duration::from_secs(10);
        let before = network.asked();
        secret(&site).await;
        while network.asked() == before {
            sleep(Duration::from_millis(100)).await;
        }
        goes(&site).await;
        sleep(Duration::from_secs(60)).await;
        assert!(refused(&site, "is being deleted").await);
        is_untouched(&site, &name).await;
    });
}

#[test]
fn a_later_scan_takes_back_what_a_rule_would_have_approved() {
    scenarios::run(321, async |site| {
        let (network, _controller, name) = one_waits(&site, automatic()).await;
        // Another machine shows the same UUID.
        network.puts(9, 1, 'b');
        let status = next_scan(&site, "rack").await;
        assert_eq!((phase(&status, 7), phase(&status, 9)), (Phase::Found, Phase::Contradiction));
        secret(&site).await;
        is_untouched(&site, &name).await;
    });
}

#[test]
fn no_rule_approves_while_a_declared_machine_cannot_be_placed() {
    scenarios::run(322, async |site| {
        has(&site, "one", "unknown.example").await;
        secret(&site).await;
        let (_, _controller, name) = one_waits(&site, automatic()).await;
        let status = all(&site).get("rack").await.unwrap().status.unwrap();
        let left_out = status.last_scan.unwrap().left_out;
        let says = |said: &String| said.contains("these hosts: one; no rule approves");
        assert!(left_out.iter().any(says), "{left_out:?}");
        is_untouched(&site, &name).await;
        site.hosts().delete("one", &DeleteParams::default()).await.unwrap();
        site.wait(&name, 7200, |host| host.state() == State::Available).await;
    });
}

#[test]
fn a_scan_of_a_deleted_discovery_is_not_its_successors() {
    scenarios::run(323, async |site| {
        let network = Network::new();
        network.puts(7, 1, 'a');
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        // Long enough to be replaced meanwhile.
        declare(&site, "rack", json!({ "ranges": ["192.0.2.0/24", "198.51.100.0/23", "10.0.0.0/21"] })).await;
        while network.asked() < 300 {
            sleep(Duration::from_millis(10)).await;
        }
        all(&site).delete("rack", &DeleteParams::default()).await.unwrap();
        declare(&site, "rack", json!({ "ranges": ["203.0.113.0/28"] })).await;
        let status = wait(&site, "rack", |status| status.last_scan.is_some()).await;
        assert_eq!((status.last_scan.unwrap().asked, status.machines.len(), hosts(&site).await.len()), (14, 0, 0));
    });
}

#[test]
fn a_wish_that_means_no_machine_is_told() {
    scenarios::run(324, async |site| {
        let (_network, _controller, name) = one_waits(&site, json!({})).await;
        remove(&site, &name).await;
        for (text, made) in [("192.0.2.8", 0), ("192.0.2.7", 1)] {
            rediscover(&site, text).await;
            sleep(Duration::from_secs(120)).await;
            assert!(!all(&site).get("rack").await.unwrap().annotations().contains_key(annotation::REDISCOVER));
            assert_eq!(hosts(&site).await.len(), made, "{text}");
            assert!(said(&site, "HostDiscovery").await.iter().any(|(reason, _)| reason == "NothingRediscovered"));
        }
    });
}

/// Whoever says so, and whatever the BMC is called: it is theirs.
#[test]
fn what_somebody_has_declared_since_it_was_found_is_not_approved() {
    for (address, seed) in [("bmc.example", 325), ("192.0.2.7", 326)] {
        scenarios::run(seed, async |site| {
            let network = Network::new();
            network.puts(if seed == 325 { 5 } else { 7 }, 1, 'a');
            let _controller = site.discovering(fixture(&Machines::default()), network.clone());
            declare(&site, "rack", json!({})).await;
            wait(&site, "rack", |status| status.pending == 1).await;
            let name = hosts(&site).await[0].name_any();
            secret(&site).await;
            has(&site, "mine", address).await;
            annotate(&site, &name, annotation::APPROVE, "true").await;
            sleep(Duration::from_secs(600)).await;
            assert!(site.hosts().get(&name).await.unwrap().spec.bmc.is_none());
            assert!(refused(&site, "the host mine has been declared with this BMC").await);
        });
    }
}

#[test]
fn a_host_that_cannot_be_read_keeps_rules_from_approving_and_is_named() {
    scenarios::run(327, async |site| {
        has(&site, "odd", "192.0.2.200").await;
        let kind = ApiResource::erase::<BareMetalHost>(&());
        let objects: Api<DynamicObject> = Api::default_namespaced_with(site.observer(), &kind);
        let spoil = async |state: Value| {
            let provisioning = json!({ "ID": "", "state": state });
            let change =
                Patch::Merge(json!({ "status": { "provisioning": provisioning, "errorCount": 0, "errorMessage": "",
                "operationalStatus": "OK", "poweredOn": false } }));
            objects.patch_status("odd", &PatchParams::default(), &change).await.unwrap();
        };
        spoil(json!("nonsense")).await;
        secret(&site).await;
        let network = Network::new();
        network.puts(7, 1, 'a');
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "rack", automatic()).await;
        let status = wait(&site, "rack", |status| status.pending == 1).await;
        let left_out = status.last_scan.unwrap().left_out;
        let says = |said: &String| said.contains("cannot be read: odd; no rule approves");
        assert!(left_out.iter().any(says), "{left_out:?}");
        sleep(Duration::from_secs(2 * 3600)).await;
        assert!(
            objects
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .iter()
                .all(|host| { host.name_any() == "odd" || host.data["spec"]["bmc"].is_null() })
        );
        spoil(json!("")).await;
        wait(&site, "rack", |status| status.machines.iter().any(|machine| machine.phase == Phase::Approved)).await;
    });
}

#[test]
fn a_frozen_namespace_is_neither_scanned_nor_are_its_hosts_approved() {
    scenarios::run(328, async |site| {
        secret(&site).await;
        site.freeze(Some("the rack is moved")).await;
        let network = Network::new();
        network.puts(7, 1, 'a');
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "rack", json!({})).await;
        let status = wait(&site, "rack", |status| !status.conditions.is_empty()).await;
        let ready = &status.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Frozen"));
        assert!(ready.message.contains("the rack is moved"), "{}", ready.message);
        sleep(Duration::from_secs(3 * 3600)).await;
        assert_eq!(network.asked(), 0);
        site.freeze(None).await;
        let status = wait(&site, "rack", |status| status.pending == 1).await;
        assert_eq!(status.conditions[0].reason, "Scanning");
        let name = hosts(&site).await[0].name_any();
        site.freeze(Some("")).await;
        let asked = network.asked();
        annotate(&site, &name, annotation::APPROVE, "true").await;
        sleep(Duration::from_secs(3 * 3600)).await;
        assert!(site.hosts().get(&name).await.unwrap().spec.bmc.is_none() && refused(&site, "is frozen").await);
        assert_eq!(network.asked(), asked);
        site.freeze(None).await;
        site.wait(&name, 7200, |host| host.state() == State::Available).await;
    });
}

#[test]
fn a_freeze_that_comes_while_a_machine_is_asked_holds_its_approval() {
    scenarios::run(331, async |site| {
        secret(&site).await;
        let (network, _controller, name) = one_waits(&site, json!({})).await;
        *network.slow.lock().unwrap() = Duration::from_secs(10);
        let before = network.asked();
        annotate(&site, &name, annotation::APPROVE, "true").await;
        while network.asked() == before {
            sleep(Duration::from_millis(100)).await;
        }
        site.freeze(Some("the rack is moved")).await;
        sleep(Duration::from_secs(3600)).await;
        assert!(refused(&site, "is frozen").await);
        is_untouched(&site, &name).await;
        site.freeze(None).await;
        site.wait(&name, 7200, |host| host.state() == State::Available).await;
    });
}

#[test]
fn a_scan_that_is_under_way_ends_when_its_namespace_is_frozen() {
    scenarios::run(329, async |site| {
        let network = Network::new();
        network.puts(7, 1, 'a');
        let _controller = site.discovering(fixture(&Machines::default()), network.clone());
        declare(&site, "rack", json!({ "ranges": ["192.0.2.0/24", "198.51.100.0/23", "10.0.0.0/21"] })).await;
        while network.asked() < 300 {
            sleep(Duration::from_millis(10)).await;
        }
        site.freeze(Some("now")).await;
        wait(&site, "rack", |status| status.conditions.first().is_some_and(|ready| ready.reason == "Frozen")).await;
        let asked = network.asked();
        assert!(asked < 2500, "{asked} of 2812 were asked");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!((network.asked(), hosts(&site).await.len()), (asked, 0));
    });
}

#[test]
fn another_word_than_the_known_ones_approves_nothing_and_is_answered() {
    scenarios::run(330, async |site| {
        secret(&site).await;
        let (_, _controller, name) = one_waits(&site, json!({})).await;
        annotate(&site, &name, annotation::APPROVE, "Yes").await;
        sleep(Duration::from_secs(600)).await;
        assert!(refused(&site, "\"Yes\", which is neither").await);
        is_untouched(&site, &name).await;
        annotate(&site, &name, annotation::APPROVE, "true").await;
        site.wait(&name, 7200, |host| host.state() == State::Available).await;
    });
}
