//! HostClaims: which host each gets, what is done with it, and how it is given back, whatever happens meanwhile.

use std::time::Duration;

use api::metal3::{BareMetalHost, HostClaim, HostDeployPolicy, ProvisioningState as State, label};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use scenarios::{Machines, Site, Trouble, address, fixture, is};
use serde_json::{Value, json};

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 2 * 3600;

fn claims(site: &Site) -> Api<HostClaim> {
    Api::namespaced(site.observer(), "tenant")
}

fn secrets(site: &Site, namespace: &str) -> Api<Secret> {
    Api::namespaced(site.observer(), namespace)
}

/// A tenant's namespace, admitted to the hosts of `default` or not yet.
pub async fn tenant(site: &Site, admitted: bool) {
    let namespaces: Api<Namespace> = Api::all(site.observer());
    let tenant = json!({"metadata": {"name": "tenant", "labels": {"team": "a"}}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(tenant).unwrap()).await.unwrap();
    if admitted {
        admit(site).await;
    }
}

async fn admit(site: &Site) {
    let policies: Api<HostDeployPolicy> = Api::default_namespaced(site.observer());
    let spec = json!({"hostClaimNamespaces": {"hasLabels": [{"name": "team", "value": "a"}]}});
    let policy = json!({"metadata": {"name": "tenants"}, "spec": spec});
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
}

fn image(url: &str) -> Value {
    json!({"url": url, "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"})
}

pub async fn claim(site: &Site, name: &str, spec: Value) {
    let claim = json!({"metadata": {"name": name}, "spec": spec});
    claims(site).create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
}

async fn change(site: &Site, name: &str, change: Value) {
    claims(site).patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn secret(site: &Site, name: &str, data: &str) {
    let secret = json!({"metadata": {"name": name}, "stringData": {"userData": data}});
    let patch = Patch::Apply(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": secret["stringData"]}),
    );
    secrets(site, "tenant").patch(name, &PatchParams::apply("test").force(), &patch).await.unwrap();
}

/// The claim as soon as it is as wanted, looked at every second.
pub async fn wait(site: &Site, name: &str, wanted: impl Fn(&HostClaim) -> bool) -> HostClaim {
    let mut last = None;
    for _ in 0..LONGEST {
        match claims(site).get_opt(name).await {
            Ok(Some(claim)) if wanted(&claim) => return claim,
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} is not as wanted: {last:?}");
}

async fn gone(site: &Site, name: &str) {
    for _ in 0..LONGEST {
        if claims(site).get_opt(name).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("it never went: {:?}", claims(site).get(name).await);
}

pub fn holds(kind: &'static str) -> impl Fn(&HostClaim) -> bool {
    move |claim| claim.condition(kind).is_some_and(|found| found.status == "True")
}

fn says(kind: &'static str, reason: &'static str, words: &'static str) -> impl Fn(&HostClaim) -> bool {
    move |claim| claim.condition(kind).is_some_and(|found| found.reason == reason && found.message.contains(words))
}

pub fn host_of(claim: &HostClaim) -> String {
    claim.status.as_ref().unwrap().bare_metal_host.as_ref().unwrap().name.clone()
}

/// Reasons of the Events about claims.
async fn reasons(site: &Site) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(site.observer(), "tenant");
    let all = events.list(&ListParams::default()).await.unwrap();
    all.items.into_iter().filter_map(|event| event.reason).collect()
}

#[test]
fn a_claim_is_given_a_host_its_work_and_its_secrets_and_gives_all_back() {
    scenarios::run(31, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        secret(&site, "cloud", "one").await;
        claim(
            &site,
            "c",
            json!({"poweredOn": true, "image": image("http://192.0.2.8/i"), "userData": {"name": "cloud"}}),
        )
        .await;
        let ready = wait(&site, "c", holds("Ready")).await;
        assert_eq!(host_of(&ready), "a");
        let status = ready.status.as_ref().unwrap();
        assert_eq!(
            (status.powered_on, status.hardware_data.as_ref().unwrap().to_string()),
            (Some(true), "default/a".into())
        );
        let host = site.hosts().get("a").await.unwrap();
        assert_eq!(host.state(), State::Provisioned);
        let consumer = host.spec.consumer_ref.as_ref().unwrap();
        assert_eq!((consumer.name.as_deref(), consumer.namespace.as_deref()), (Some("c"), Some("tenant")));
        assert_eq!(consumer.uid, ready.uid());
        // The tenant's Secret is copied, labelled and owned.
        let named = host.spec.user_data.as_ref().unwrap().name.clone().unwrap();
        let copy = secrets(&site, "default").get(&named).await.unwrap();
        assert_eq!(copy.labels().get(label::CLAIM), ready.uid().as_ref());
        assert_eq!(copy.owner_references()[0].uid, host.uid().unwrap());
        assert_eq!(copy.data.as_ref().unwrap()["userData"].0, b"one");
        secret(&site, "cloud", "two").await;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(secrets(&site, "default").get(&named).await.unwrap().data.unwrap()["userData"].0, b"two");
        // Power and image follow the claim.
        change(&site, "c", json!({"spec": {"poweredOn": false}})).await;
        wait(&site, "c", |claim| claim.status.as_ref().is_some_and(|status| status.powered_on == Some(false))).await;
        change(
            &site,
            "c",
            json!({"spec": {"poweredOn": true, "image": {"url": "http://192.0.2.8/j"}, "userData": null}}),
        )
        .await;
        site.wait("a", LONGEST, |host| {
            host.state() == State::Provisioned && host.status.as_ref().unwrap().provisioning.image.url.ends_with('j')
        })
        .await;
        wait(&site, "c", holds("Ready")).await;
        assert!(secrets(&site, "default").get_opt(&named).await.unwrap().is_none(), "nobody asks for the copy");
        change(&site, "c", json!({"spec": {"userData": {"name": "cloud"}}})).await;
        site.wait("a", LONGEST, |host| host.spec.user_data.is_some()).await;
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        let leaving =
            wait(&site, "c", says("Associated", "HostClaimDeleting", "default/a is to be deprovisioned")).await;
        assert!(leaving.is_deleting());
        gone(&site, "c").await;
        let host = site.wait("a", LONGEST, is(State::Available)).await;
        let spec = &host.spec;
        assert!(spec.consumer_ref.is_none() && spec.image.is_none() && spec.user_data.is_none() && !spec.online);
        let copies = ListParams::default().labels(label::CLAIM);
        assert!(secrets(&site, "default").list(&copies).await.unwrap().items.is_empty());
        let reasons = reasons(&site).await;
        for reason in ["BareMetalHostAssociated", "ConfigurationSynced", "Provisioned"] {
            assert!(reasons.iter().any(|found| found == reason), "{reason}: {reasons:?}");
        }
    });
}

#[test]
fn of_claims_that_race_for_one_host_one_has_it_and_the_next_gets_it_afterwards() {
    scenarios::run(32, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        let names = ["c", "d", "e"];
        for name in names {
            claim(&site, name, json!({"poweredOn": false})).await;
        }
        site.create_host("a").await;
        site.wait("a", LONGEST, |host| host.spec.consumer_ref.is_some()).await;
        let mut left: Vec<&str> = names.into();
        while !left.is_empty() {
            let host = site.wait("a", LONGEST, |host| host.spec.consumer_ref.is_some()).await;
            let holder = host.spec.consumer_ref.unwrap().name.unwrap();
            wait(&site, &holder, holds("Associated")).await;
            left.retain(|name| *name != holder);
            for other in &left {
                wait(&site, other, says("Associated", "NoBareMetalHost", "in use")).await;
            }
            claims(&site).delete(&holder, &DeleteParams::default()).await.unwrap();
            gone(&site, &holder).await;
        }
        assert!(site.hosts().get("a").await.unwrap().spec.consumer_ref.is_none());
    });
}

#[test]
fn a_claim_whose_namespace_nobody_admits_gets_no_host_until_somebody_does() {
    scenarios::run(33, async |site| {
        tenant(&site, false).await;
        // One that admits others only.
        let policies: Api<HostDeployPolicy> = Api::default_namespaced(site.observer());
        let spec = json!({"hostClaimNamespaces": {"hasLabels": [{"name": "team", "value": "a"}, {"name": "vip"}]}});
        let others = json!({"metadata": {"name": "others"}, "spec": spec});
        policies.create(&PostParams::default(), &serde_json::from_value(others).unwrap()).await.unwrap();
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        claim(&site, "c", json!({"poweredOn": false})).await;
        wait(
            &site,
            "c",
            says("Associated", "NoBareMetalHost", "No HostDeployPolicy admits the HostClaims of namespace tenant"),
        )
        .await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(site.hosts().get("a").await.unwrap().spec.consumer_ref.is_none());
        admit(&site).await;
        // It is told at once, not at its next look.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(holds("Ready")(&claims(&site).get("c").await.unwrap()));
    });
}

#[test]
fn a_missing_secret_is_told_of_and_no_work_begins_before_it_is_there() {
    scenarios::run(34, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        let theirs = json!({"poweredOn": true, "image": image("http://192.0.2.8/i"), "userData": {"name": "a-bmc", "namespace": "default"}});
        claim(&site, "c", theirs).await;
        wait(&site, "c", says("Synchronized", "UserDataSecretSyncFailure", "must be the claim's own (tenant)")).await;
        change(&site, "c", json!({"spec": {"userData": {"name": "cloud", "namespace": null}}})).await;
        wait(&site, "c", says("Synchronized", "UserDataSecretSyncFailure", "tenant/cloud, which does not exist")).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(site.hosts().get("a").await.unwrap().spec.image.is_none(), "work began without its data");
        secret(&site, "cloud", "one").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(site.hosts().get("a").await.unwrap().spec.image.is_some(), "the Secret wakes the claim");
        wait(&site, "c", holds("Ready")).await;
        // What was copied once is kept.
        secrets(&site, "tenant").delete("cloud", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(holds("Ready")(&claims(&site).get("c").await.unwrap()));
        assert!(site.hosts().get("a").await.unwrap().spec.user_data.is_some());
    });
}

#[test]
fn a_host_that_is_deleted_and_made_anew_is_not_the_claims_and_no_other_is_given_to_it() {
    scenarios::run(35, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
        wait(&site, "c", holds("Ready")).await;
        site.create_host("b").await;
        site.wait("b", LONGEST, is(State::Available)).await;
        let host = site.hosts().get("a").await.unwrap();
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        wait(&site, "c", says("Associated", "MissingBareMetalHost", "default/a was this claim's and is gone")).await;
        // The Secret goes with its host.
        let secrets = secrets(&site, "default");
        while site.hosts().get_opt("a").await.unwrap().is_some() || secrets.get_opt("a-bmc").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        site.create_host("a").await;
        let anew = site.wait("a", LONGEST, is(State::Available)).await;
        assert_ne!(anew.uid(), host.uid());
        tokio::time::sleep(Duration::from_secs(120)).await;
        for name in ["a", "b"] {
            assert!(site.hosts().get(name).await.unwrap().spec.consumer_ref.is_none(), "{name}");
        }
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        gone(&site, "c").await;
    });
}

/// A claim goes without giving its host back, and nobody admits the namespace any more: another claim of the name gets nothing, and takes nothing with it.
#[test]
fn a_claim_that_nobody_admits_empties_no_host_of_an_earlier_one() {
    scenarios::run(39, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        let spec = json!({"poweredOn": true, "image": image("http://192.0.2.8/i")});
        claim(&site, "c", spec.clone()).await;
        wait(&site, "c", holds("Ready")).await;
        let policies: Api<HostDeployPolicy> = Api::default_namespaced(site.observer());
        policies.delete("tenants", &DeleteParams::default()).await.unwrap();
        for patch in [
            json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}}),
            json!({"metadata": {"finalizers": null}}),
        ] {
            change(&site, "c", patch).await;
        }
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        gone(&site, "c").await;
        claim(&site, "c", spec).await;
        let waits = wait(&site, "c", says("Associated", "NoBareMetalHost", "No HostDeployPolicy admits")).await;
        assert!(!serde_json::to_string(&waits.status).unwrap().contains("default/a"), "whose it is, is not told");
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        gone(&site, "c").await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let host = site.hosts().get("a").await.unwrap();
        assert_eq!(host.state(), State::Provisioned);
        assert!(host.spec.image.is_some() && host.spec.consumer_ref.is_some());
    });
}

#[test]
fn a_reboot_of_the_claim_is_handed_on_once_and_its_pause_as_long_as_it_lasts() {
    scenarios::run(36, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
        wait(&site, "c", holds("Ready")).await;
        let annotate = async |key: &str, value: Value| {
            change(&site, "c", json!({"metadata": {"annotations": {key: value}}})).await
        };
        annotate("reboot.metal3.io", json!("{\"mode\":\"hard\"}")).await;
        wait(&site, "c", |claim| claim.annotation("reboot.metal3.io").is_none()).await;
        site.wait("a", LONGEST, |host| {
            host.annotation("reboot.metal3.io").is_none()
                && host.annotation("metamorph.metal3.io/claim-reboot").is_none()
        })
        .await;
        site.wait("a", LONGEST, |host| host.status.as_ref().is_some_and(|status| status.powered_on)).await;
        // With a key it is off for as long as the claim says so.
        annotate("reboot.metal3.io/repair", json!("")).await;
        site.wait("a", LONGEST, |host| host.status.as_ref().is_some_and(|status| !status.powered_on)).await;
        assert!(site.hosts().get("a").await.unwrap().annotation("reboot.metal3.io/hostclaim.repair").is_some());
        annotate("reboot.metal3.io/repair", Value::Null).await;
        site.wait("a", LONGEST, |host| host.status.as_ref().is_some_and(|status| status.powered_on)).await;
        // A key may be as long as an annotation's name may be, and becomes no longer on the host.
        let long = format!("reboot.metal3.io/metal3-remediation-{}", "0".repeat(63 - 19));
        annotate(&long, json!("")).await;
        site.wait("a", LONGEST, |host| host.status.as_ref().is_some_and(|status| !status.powered_on)).await;
        annotate(&long, Value::Null).await;
        site.wait("a", LONGEST, |host| host.status.as_ref().is_some_and(|status| status.powered_on)).await;
        annotate("baremetalhost.metal3.io/paused", json!("")).await;
        let paused = site.wait("a", LONGEST, |host| host.annotation("baremetalhost.metal3.io/paused").is_some()).await;
        assert_eq!(paused.annotation("baremetalhost.metal3.io/paused"), Some("metal3.io/hostclaim"));
        change(&site, "c", json!({"spec": {"poweredOn": false}})).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(site.hosts().get("a").await.unwrap().spec.online, "a paused claim is left alone");
        annotate("baremetalhost.metal3.io/paused", Value::Null).await;
        site.wait("a", LONGEST, |host| {
            !host.spec.online && host.annotation("baremetalhost.metal3.io/paused").is_none()
        })
        .await;
    });
}

/// The host waits for the claim, which alone lifts its pause.
#[test]
fn a_host_that_was_paused_with_its_claim_goes_on_with_it_whatever_became_of_either() {
    for way in ["claim deleted", "host deleted", "Secret missing"] {
        scenarios::run(65, async |site| {
            tenant(&site, true).await;
            let _controller = site.claiming(fixture(&Machines::default()));
            site.create_host("a").await;
            claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
            wait(&site, "c", holds("Ready")).await;
            let pause = async |value: Value| {
                change(&site, "c", json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": value}}}))
                    .await
            };
            if way == "claim deleted" {
                claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
                site.wait("a", LONGEST, is(State::Deprovisioning)).await;
            }
            pause(json!("")).await;
            site.wait("a", LONGEST, |host| host.annotation("baremetalhost.metal3.io/paused").is_some()).await;
            match way {
                "host deleted" => drop(site.hosts().delete("a", &DeleteParams::default()).await.unwrap()),
                "Secret missing" => change(&site, "c", json!({"spec": {"userData": {"name": "nowhere"}}})).await,
                _ => {}
            }
            tokio::time::sleep(Duration::from_secs(120)).await;
            pause(Value::Null).await;
            match way {
                "claim deleted" => {
                    gone(&site, "c").await;
                    site.wait("a", LONGEST, is(State::Available)).await;
                }
                "host deleted" => site.gone("a", LONGEST).await,
                _ => {
                    let goes_on = |host: &BareMetalHost| host.annotation("baremetalhost.metal3.io/paused").is_none();
                    site.wait("a", LONGEST, goes_on).await;
                }
            }
        });
    }
}

/// What runs there is not the claim's, nor is the machine's power.
#[test]
fn a_host_that_others_look_after_is_not_switched_off_when_its_claim_goes() {
    scenarios::run(66, async |site| {
        tenant(&site, true).await;
        let machines = Machines::default();
        let _controller = site.claiming(fixture(&machines));
        site.create_host("a").await;
        claim(&site, "c", json!({"poweredOn": true})).await;
        site.wait("a", LONGEST, |host| host.status.as_ref().is_some_and(|status| status.powered_on)).await;
        let left = Patch::Merge(json!({"spec": {"externallyProvisioned": true}}));
        site.hosts().patch("a", &PatchParams::default(), &left).await.unwrap();
        site.wait("a", LONGEST, is(State::ExternallyProvisioned)).await;
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        gone(&site, "c").await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let host = site.hosts().get("a").await.unwrap();
        assert!(host.spec.consumer_ref.is_none() && host.spec.online && host.status.unwrap().powered_on);
    });
}

/// Calls and answers are lost, watches lag, servers are killed and run beside each other, claims come and go: when all is quiet, each claim has one
/// host, no host names who is gone, and nothing of a claim is left on a host that it gave back.
#[test]
fn whatever_gets_lost_claims_and_hosts_agree_in_the_end() {
    for seed in 0..6 {
        scenarios::run(3_600 + seed, async |mut site| {
            tenant(&site, true).await;
            let machines = Machines::default();
            for name in ["a", "b", "z"] {
                machines.trouble(&address(name), Trouble::Slow, true);
                site.create_host(name).await;
            }
            secret(&site, "cloud", "one").await;
            site.weather.lags(Duration::from_secs(4));
            site.weather.rough(120, Duration::from_secs(2));
            let mut servers = vec![site.claiming(fixture(&machines))];
            let spec = |number: u64| json!({"poweredOn": true, "image": image(&format!("http://192.0.2.8/{number}")), "userData": {"name": "cloud"}});
            for (number, name) in (0..).zip(["c", "d", "e", "f"]) {
                claim(&site, name, spec(number)).await;
            }
            for round in 0..14_u64 {
                tokio::time::sleep(Duration::from_secs(site.weather.below(240))).await;
                let name = ["c", "d", "e", "f"][usize::try_from(site.weather.below(4)).unwrap()];
                match site.weather.below(5) {
                    0 => drop(claims(&site).delete(name, &DeleteParams::default()).await),
                    1 => {
                        let anew = json!({"metadata": {"name": name}, "spec": spec(round)});
                        drop(
                            claims(&site).create(&PostParams::default(), &serde_json::from_value(anew).unwrap()).await,
                        );
                    }
                    2 => {
                        // A moment in which two act, as when a leader does not know yet that it leads no more.
                        servers.push(site.claiming(fixture(&machines)));
                        tokio::time::sleep(Duration::from_secs(site.weather.below(20))).await;
                        servers.remove(0).abort();
                    }
                    3 => site.restart().await,
                    _ => {}
                }
                one_claim_works_on_one_host(&site).await;
            }
            site.weather.rough(0, Duration::ZERO);
            site.weather.lags(Duration::ZERO);
            tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
            one_claim_works_on_one_host(&site).await;
            let all = claims(&site).list(&ListParams::default()).await.unwrap().items;
            let hosts = site.hosts().list(&ListParams::default()).await.unwrap().items;
            assert!(all.iter().all(|claim| !claim.is_deleting()), "a deletion hangs: {all:?}");
            let bound = all.iter().filter(|claim| holds("Ready")(claim)).count();
            assert_eq!(bound, all.len().min(3), "{all:?}\n{hosts:?}");
            for host in &hosts {
                let consumer = host.spec.consumer_ref.as_ref().and_then(|consumer| consumer.uid.clone());
                assert!(consumer.is_none() || all.iter().any(|claim| claim.uid() == consumer), "{host:?}");
                assert!(
                    consumer.is_some() || (host.spec.image.is_none() && host.state() == State::Available),
                    "{host:?}"
                );
            }
            let copies =
                secrets(&site, "default").list(&ListParams::default().labels(label::CLAIM)).await.unwrap().items;
            assert_eq!(copies.len(), bound, "a copy for each that has a host");
        });
    }
}

async fn one_claim_works_on_one_host(site: &Site) {
    let Ok(hosts) = site.hosts().list(&ListParams::default()).await else { return };
    let mut names: Vec<String> = hosts
        .items
        .into_iter()
        .filter(|host| host.spec.image.is_some())
        .map(|host| {
            host.spec
                .consumer_ref
                .and_then(|consumer| consumer.name)
                .unwrap_or_else(|| panic!("work on a host of nobody"))
        })
        .collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "a claim works on two hosts: {names:?}");
}

/// A BMC's address and user, as a refusal of the API server may name them.
const INNER: &str =
    "BareMetalHost.metal3.io \"a\" is invalid: spec.bmc.address: redfish://10.9.8.7/Systems/1 of user root-of-bmc";

/// From now on nobody may change the host, other than its status.
fn host_is_shut(site: &Site, name: &'static str) {
    site.weather.refuses(move |method, path| {
        (method == "PATCH" && path.ends_with(&format!("/baremetalhosts/{name}"))).then(|| (422, INNER.to_owned()))
    });
}

/// All that a tenant can read of the claim.
async fn readable(site: &Site) -> String {
    let events: Api<Event> = Api::namespaced(site.observer(), "tenant");
    let (all, events) = (claims(site).list(&ListParams::default()).await, events.list(&ListParams::default()).await);
    format!("{} {}", serde_json::to_string(&all.unwrap()).unwrap(), serde_json::to_string(&events.unwrap()).unwrap())
}

#[test]
fn what_the_api_says_of_a_host_is_not_told_to_the_claims_owner() {
    scenarios::run(41, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        host_is_shut(&site, "a");
        claim(&site, "c", json!({"poweredOn": false})).await;
        wait(&site, "c", says("Associated", "NoBareMetalHost", "cannot be claimed")).await;
        site.weather.mend();
        wait(&site, "c", holds("Ready")).await;
        host_is_shut(&site, "a");
        change(&site, "c", json!({"spec": {"poweredOn": true}})).await;
        wait(&site, "c", says("Synchronized", "BareMetalHostNotSynchronized", "422")).await;
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        wait(&site, "c", says("Associated", "HostClaimDeleting", "422")).await;
        let message = readable(&site).await;
        assert!(!message.contains("10.9.8.7") && !message.contains("root-of-bmc"), "{message}");
    });
}

/// Whoever serves the claim dies after each of its writes, and somebody gives the host away by hand where work has begun: the work may still run there.
#[test]
fn a_claim_whose_work_has_begun_gets_no_other_host_whenever_its_server_died() {
    for writes in 1..12 {
        scenarios::run(4_200 + writes, async |site| {
            tenant(&site, true).await;
            let machines = Machines::default();
            let controller = site.claiming(fixture(&machines));
            for name in ["a", "b"] {
                site.create_host(name).await;
                site.wait(name, LONGEST, is(State::Available)).await;
            }
            tokio::time::sleep(Duration::from_secs(300)).await;
            site.weather.cut_after(writes);
            claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
            for _ in 0..300 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if site.weather.is_cut() {
                    break;
                }
            }
            controller.abort();
            let begun = site.hosts().get("a").await.unwrap().spec.image.is_some();
            if begun {
                let given =
                    json!({"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "m", "namespace": "default"}}});
                site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(given)).await.unwrap();
            }
            site.weather.mend();
            let _controller = site.claiming(fixture(&machines));
            tokio::time::sleep(Duration::from_secs(600)).await;
            let hosts = site.hosts().list(&ListParams::default()).await.unwrap().items;
            let working = hosts.iter().filter(|host| host.spec.image.is_some()).count();
            assert_eq!(working, 1, "after {writes} writes, begun: {begun}: {hosts:?}");
        });
    }
}

#[test]
fn a_claim_that_gets_another_host_leaves_no_secret_at_the_one_before() {
    scenarios::run(43, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        secret(&site, "cloud", "one").await;
        for name in ["a", "b"] {
            site.create_host(name).await;
            site.wait(name, LONGEST, is(State::Available)).await;
        }
        claim(&site, "c", json!({"poweredOn": false, "userData": {"name": "cloud"}})).await;
        assert_eq!(host_of(&wait(&site, "c", holds("Ready")).await), "a");
        let given = json!({"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "m", "namespace": null, "uid": null, "apiVersion": null}}});
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(given)).await.unwrap();
        site.wait("b", LONGEST, |host| host.spec.user_data.is_some()).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let of_claims = ListParams::default().labels(label::CLAIM);
        let copies = secrets(&site, "default").list(&of_claims).await.unwrap().items;
        let owners: Vec<String> = copies.iter().map(|copy| copy.owner_references()[0].name.clone()).collect();
        assert_eq!(owners, ["b"]);
    });
}

/// Who may write a claim's status names any host with it.
#[test]
fn a_host_that_a_claim_merely_names_is_not_touched_when_the_claim_goes() {
    scenarios::run(44, async |site| {
        tenant(&site, false).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        let before = site.hosts().get("a").await.unwrap();
        claim(&site, "c", json!({"poweredOn": false})).await;
        wait(&site, "c", says("Associated", "NoBareMetalHost", "No HostDeployPolicy")).await;
        for deleted in [false, true] {
            let status = json!({"status": {"bareMetalHost": {"namespace": "default", "name": "a"}}});
            claims(&site).patch_status("c", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
            if deleted {
                claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
                gone(&site, "c").await;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        let after = site.hosts().get("a").await.unwrap();
        assert_eq!(before.metadata.annotations, after.metadata.annotations);
        assert_eq!(before.metadata.generation, after.metadata.generation);
    });
}

#[test]
fn a_copy_that_is_held_is_waited_for_without_haste() {
    scenarios::run(45, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        secret(&site, "cloud", "one").await;
        claim(&site, "c", json!({"poweredOn": false, "userData": {"name": "cloud"}})).await;
        wait(&site, "c", holds("Ready")).await;
        let named =
            site.wait("a", LONGEST, |host| host.spec.user_data.is_some()).await.spec.user_data.unwrap().name.unwrap();
        let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
        secrets(&site, "default").patch(&named, &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
        // A Secret's type cannot be changed: its copy has to be made anew.
        secrets(&site, "tenant").delete("cloud", &DeleteParams::default()).await.unwrap();
        let anew =
            json!({"metadata": {"name": "cloud"}, "type": "example.com/other", "stringData": {"userData": "two"}});
        secrets(&site, "tenant").create(&PostParams::default(), &serde_json::from_value(anew).unwrap()).await.unwrap();
        wait(&site, "c", says("Synchronized", "UserDataSecretSyncFailure", "is being removed")).await;
        let before = site.weather.calls().len();
        tokio::time::sleep(Duration::from_secs(120)).await;
        let calls =
            site.weather.calls().split_off(before).into_iter().filter(|call| call.contains("/secrets/hostclaim-"));
        let count = calls.count();
        assert!(count < 20, "{count} calls in two minutes");
        let free = json!({"metadata": {"finalizers": null}});
        secrets(&site, "default").patch(&named, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
        wait(&site, "c", holds("Ready")).await;
        assert_eq!(secrets(&site, "default").get(&named).await.unwrap().type_.as_deref(), Some("example.com/other"));
    });
}

#[test]
fn a_reboot_that_is_asked_for_again_at_once_is_another() {
    scenarios::run(46, async |site| {
        tenant(&site, true).await;
        let machines = Machines::default();
        let controller = site.claiming(fixture(&machines));
        site.create_host("a").await;
        claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
        wait(&site, "c", holds("Ready")).await;
        site.wait("a", LONGEST, |host| host.status.as_ref().is_some_and(|status| status.powered_on)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = || json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}});
        let offs =
            || machines.effects(&address("a")).iter().filter(|effect| **effect == scenarios::Effect::Off).count();
        let before = offs();
        site.weather.rough(0, Duration::from_secs(2));
        change(&site, "c", asked()).await;
        while claims(&site).get("c").await.unwrap().annotation("reboot.metal3.io").is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Here it is known of the first one only that it was handed on.
        controller.abort();
        site.weather.rough(0, Duration::ZERO);
        let hosts = site.controller(fixture(&machines));
        let rebooted = |host: &BareMetalHost| {
            host.annotation("reboot.metal3.io").is_none()
                && host.status.as_ref().is_some_and(|status| status.powered_on)
        };
        site.wait("a", 600, rebooted).await;
        assert_eq!(offs(), before + 1);
        hosts.abort();
        change(&site, "c", asked()).await;
        let _controller = site.claiming(fixture(&machines));
        wait(&site, "c", |claim| claim.annotation("reboot.metal3.io").is_none()).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(offs(), before + 2, "the second reboot is lost");
        assert!(site.hosts().get("a").await.unwrap().status.unwrap().powered_on);
    });
}

#[test]
fn a_paused_claim_without_a_host_says_that_it_is_paused() {
    scenarios::run(47, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let paused = json!({"metadata": {"name": "c", "annotations": {"baremetalhost.metal3.io/paused": ""}}, "spec": {"poweredOn": false}});
        claims(&site).create(&PostParams::default(), &serde_json::from_value(paused).unwrap()).await.unwrap();
        let said = wait(&site, "c", says("Associated", "HostClaimPaused", "baremetalhost.metal3.io/paused")).await;
        assert!(said.status.unwrap().bare_metal_host.is_none());
        change(&site, "c", json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": null}}})).await;
        wait(&site, "c", holds("Ready")).await;
    });
}

#[test]
fn a_switch_keeps_what_others_say_of_it() {
    scenarios::run(48, async |site| {
        let switches: Api<api::metal3::BareMetalSwitch> = Api::default_namespaced(site.observer());
        let switch = json!({"metadata": {"name": "s"}, "spec": {"address": "192.0.2.5", "macAddress": "00:00:00:00:00:05", "driver": "generic-switch",
            "deviceType": "x", "credentials": {"type": "password", "secretName": "s"}}});
        switches.create(&PostParams::default(), &serde_json::from_value(switch).unwrap()).await.unwrap();
        let other = json!({"status": {"conditions": [{"type": "Cabled", "status": "True", "reason": "Seen", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        switches.patch_status("s", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
        let _controller = site.controller(fixture(&Machines::default()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let conditions = switches.get("s").await.unwrap().status.unwrap().conditions;
        let mut kinds: Vec<&str> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["Cabled", "Valid"]);
    });
}

/// What the controller knows of the host is old when the claim chooses it.
#[test]
fn a_host_that_somebody_has_taken_meanwhile_stays_his() {
    for seed in 4_900..4_912 {
        scenarios::run(seed, async |site| {
            tenant(&site, true).await;
            let _controller = site.claiming(fixture(&Machines::default()));
            site.create_host("a").await;
            site.wait("a", LONGEST, is(State::Available)).await;
            tokio::time::sleep(Duration::from_secs(120)).await;
            site.weather.lags(Duration::from_secs(60));
            let taken =
                json!({"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "m", "namespace": "default"}}});
            claim(&site, "c", json!({"poweredOn": false})).await;
            site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(300)).await;
            let consumer = site.hosts().get("a").await.unwrap().spec.consumer_ref.unwrap();
            assert_eq!(consumer.kind.as_deref(), Some("Metal3Machine"));
        });
    }
}

/// Writes a state into the host's status that no version of this server knows, or one that it does.
async fn spoil(site: &Site, host: &str, state: &str) {
    let kind = ApiResource::erase::<BareMetalHost>(&());
    let hosts: Api<DynamicObject> = Api::default_namespaced_with(site.observer(), &kind);
    let odd = json!({"status": {"provisioning": {"state": state}}});
    hosts.patch_status(host, &PatchParams::default(), &Patch::Merge(odd)).await.unwrap();
}

#[test]
fn a_claim_says_that_its_host_cannot_be_read_and_keeps_it() {
    scenarios::run(57, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
        wait(&site, "c", holds("Ready")).await;
        site.create_host("b").await;
        site.wait("b", LONGEST, is(State::Available)).await;
        spoil(&site, "a", "nonsense").await;
        change(&site, "c", json!({"spec": {"poweredOn": false}})).await;
        let found = wait(&site, "c", says("Synchronized", "BareMetalHostUnreadable", "cannot be read")).await;
        assert_eq!((host_of(&found).as_str(), holds("Ready")(&found)), ("a", false));
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(site.hosts().get("b").await.unwrap().spec.consumer_ref.is_none(), "it gets no second one");
        assert!(claims(&site).get_opt("c").await.unwrap().is_some(), "its work runs there");
        spoil(&site, "a", "provisioned").await;
        gone(&site, "c").await;
        assert!(site.hosts().get("a").await.unwrap().spec.consumer_ref.is_none());
    });
}

/// Whoever may write the status of one host must not have the claims of others wait for it.
#[test]
fn a_host_that_cannot_be_read_is_no_claims_choice() {
    scenarios::run(58, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        for name in ["a", "b"] {
            site.create_host(name).await;
            site.wait(name, LONGEST, is(State::Available)).await;
        }
        spoil(&site, "a", "nonsense").await;
        claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
        assert_eq!(host_of(&wait(&site, "c", holds("Ready")).await), "b");
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        gone(&site, "c").await;
    });
}

/// A host that names the claim of the tenant, with work of its own.
async fn trap(site: &Site, namespace: &str, name: &str, uid: Option<String>) {
    let consumer = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim", "namespace": "tenant", "name": "c", "uid": uid});
    let spec = json!({"online": false, "consumerRef": consumer, "image": image("http://192.0.2.66/theirs"),
        "bmc": {"address": address(name), "credentialsName": format!("{name}-bmc")}});
    let host = json!({"metadata": {"name": name, "labels": {"size": "small"}}, "spec": spec});
    let hosts: Api<BareMetalHost> = Api::namespaced(site.observer(), namespace);
    hosts.create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
}

/// Whoever may write hosts and policies in one namespace has them name and admit the claims of another.
#[test]
fn hosts_that_merely_name_a_claim_get_nothing_of_it_and_are_in_nobodys_way() {
    for (seed, policy, wanted) in [
        (59, true, json!({"hostSelector": {"inNamespace": "default"}})),
        (
            60,
            true,
            json!({"hostSelector": {"matchExpressions": [{"key": "size", "operator": "!=", "values": ["small"]}]}}),
        ),
        (61, false, json!({})),
    ] {
        scenarios::run(seed, async |site| {
            tenant(&site, true).await;
            let namespaces: Api<Namespace> = Api::all(site.observer());
            let evil = serde_json::from_value(json!({"metadata": {"name": "evil"}})).unwrap();
            namespaces.create(&PostParams::default(), &evil).await.unwrap();
            if policy {
                let policies: Api<HostDeployPolicy> = Api::namespaced(site.observer(), "evil");
                let all = json!({"metadata": {"name": "all"}, "spec": {"hostClaimNamespaces": {}}});
                policies.create(&PostParams::default(), &serde_json::from_value(all).unwrap()).await.unwrap();
            }
            trap(&site, "evil", "first", None).await;
            let _controller = site.claiming(fixture(&Machines::default()));
            secret(&site, "cloud", "one").await;
            let mut spec =
                json!({"poweredOn": true, "image": image("http://192.0.2.8/i"), "userData": {"name": "cloud"}});
            spec["hostSelector"] = wanted["hostSelector"].clone();
            if spec["hostSelector"].is_null() {
                spec["hostSelector"] = json!({});
            }
            claim(&site, "c", spec).await;
            let waits = wait(&site, "c", says("Associated", "NoBareMetalHost", "")).await;
            trap(&site, "evil", "second", waits.uid()).await;
            tokio::time::sleep(Duration::from_secs(120)).await;
            assert!(!readable(&site).await.contains("evil"), "{}", readable(&site).await);
            site.create_host("a").await;
            assert_eq!(host_of(&wait(&site, "c", holds("Ready")).await), "a");
            claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
            gone(&site, "c").await;
            assert!(site.hosts().get("a").await.unwrap().spec.consumer_ref.is_none());
            let hosts: Api<BareMetalHost> = Api::namespaced(site.observer(), "evil");
            for name in ["first", "second"] {
                let spec = hosts.get(name).await.unwrap().spec;
                assert!(spec.consumer_ref.is_some() && spec.user_data.is_none(), "{name}: {spec:?}");
                assert_eq!(spec.image.unwrap().url, "http://192.0.2.66/theirs");
            }
            let copies = secrets(&site, "evil").list(&ListParams::default()).await.unwrap().items;
            assert!(copies.is_empty(), "{copies:?}");
        });
    }
}

/// Where hosts are, policies say who may have them, in the claim's own namespace too.
#[test]
fn a_host_beside_a_claim_that_no_policy_admits_is_not_the_claims() {
    scenarios::run(63, async |site| {
        tenant(&site, true).await;
        trap(&site, "tenant", "trapped", None).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        claim(&site, "c", json!({"poweredOn": true, "image": image("http://192.0.2.8/i")})).await;
        wait(&site, "c", says("Associated", "NoBareMetalHost", "")).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let status = claims(&site).get("c").await.unwrap().status;
        assert!(!serde_json::to_string(&status).unwrap().contains("trapped"), "{status:?}");
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        gone(&site, "c").await;
        let hosts: Api<BareMetalHost> = Api::namespaced(site.observer(), "tenant");
        let spec = hosts.get("trapped").await.unwrap().spec;
        assert!(spec.consumer_ref.is_some(), "{spec:?}");
        assert_eq!(spec.image.unwrap().url, "http://192.0.2.66/theirs");
    });
}

#[test]
fn a_claim_that_is_made_anew_without_its_status_has_its_host_again_where_it_points() {
    scenarios::run(62, async |site| {
        tenant(&site, true).await;
        let _controller = site.claiming(fixture(&Machines::default()));
        site.create_host("a").await;
        let spec = json!({"poweredOn": true, "image": image("http://192.0.2.8/i"), "hostSelector": {"inNamespace": "default"}});
        claim(&site, "c", spec.clone()).await;
        let before = wait(&site, "c", holds("Ready")).await;
        for patch in [
            json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}}),
            json!({"metadata": {"finalizers": null}}),
        ] {
            change(&site, "c", patch).await;
        }
        claims(&site).delete("c", &DeleteParams::default()).await.unwrap();
        gone(&site, "c").await;
        site.create_host("b").await;
        site.wait("b", LONGEST, is(State::Available)).await;
        claim(&site, "c", spec).await;
        let after = wait(&site, "c", holds("Ready")).await;
        assert_ne!(before.uid(), after.uid());
        assert_eq!(host_of(&after), "a");
        let host = site.hosts().get("a").await.unwrap();
        assert_eq!((host.state(), host.spec.consumer_ref.unwrap().uid), (State::Provisioned, after.uid()));
    });
}
