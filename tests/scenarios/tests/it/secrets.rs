//! Secrets of BMCs: held while a host names them, and let go when none does.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State, finalizer, label};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::{Machines, Site, address, fixture};
use serde_json::{Value, json};

/// Somebody else's finalizer.
const FOREIGN: &str = "example.com/keep";

fn secrets(site: &Site) -> Api<Secret> {
    Api::default_namespaced(site.observer())
}

async fn create_secret(site: &Site, name: &str) {
    let secret = json!({
        "metadata": {"name": name, "finalizers": [FOREIGN]},
        "stringData": {"username": "u", "password": "p"},
    });
    secrets(site).create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

async fn create_host(site: &Site, name: &str, secret: &str) {
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name},
        "spec": {"online": true, "bootMACAddress": "02:00:00:00:00:01",
            "bmc": {"address": address(name), "credentialsName": secret}}});
    site.hosts().create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
}

async fn names(site: &Site, host: &str, secret: Value) {
    let patch = json!({"spec": {"bmc": {"credentialsName": secret}}});
    site.hosts().patch(host, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The hosts that own a Secret, and whether it is held for them.
async fn held(site: &Site, secret: &str) -> (Vec<String>, bool) {
    let metadata = secrets(site).get(secret).await.unwrap().metadata;
    let finalizers = metadata.finalizers.unwrap_or_default();
    assert!(finalizers.iter().any(|held| held == FOREIGN), "{secret}: {finalizers:?}");
    let owners = metadata.owner_references.unwrap_or_default().into_iter().map(|owner| owner.name).collect();
    (owners, finalizers.iter().any(|held| held == finalizer::SECRET))
}

fn is_available(host: &BareMetalHost) -> bool {
    host.state() == State::Available
}

async fn minutes(count: u64) {
    tokio::time::sleep(Duration::from_secs(60 * count)).await;
}

#[test]
fn a_secret_that_no_host_names_any_more_is_let_go() {
    scenarios::run(31, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        for name in ["old", "new"] {
            create_secret(&site, name).await;
        }
        for name in ["a", "b"] {
            create_host(&site, name, "old").await;
            site.wait(name, 3600, is_available).await;
        }
        assert_eq!(held(&site, "old").await, (vec!["a".to_owned(), "b".to_owned()], true));
        names(&site, "a", json!("new")).await;
        minutes(5).await;
        assert_eq!(held(&site, "old").await, (vec!["b".to_owned()], true), "another host names it");
        assert_eq!(held(&site, "new").await, (vec!["a".to_owned()], true));
        // One that is not there yet.
        names(&site, "b", json!("later")).await;
        minutes(5).await;
        assert_eq!(held(&site, "old").await, (Vec::new(), false));
        create_secret(&site, "later").await;
        site.wait("b", 3600, |host| is_available(host) && host.status.as_ref().unwrap().error_message.is_empty()).await;
        assert_eq!(held(&site, "later").await, (vec!["b".to_owned()], true));
    });
}

#[test]
fn a_server_that_is_killed_in_between_lets_go_of_it_later() {
    for seed in 0..6 {
        scenarios::run(seed, async |site| {
            let mut controller = site.controller(fixture(&Machines::default()));
            for name in ["one", "two", "three"] {
                create_secret(&site, name).await;
            }
            create_host(&site, "a", "one").await;
            site.wait("a", 3600, is_available).await;
            for secret in ["two", "three"] {
                names(&site, "a", json!(secret)).await;
                tokio::time::sleep(Duration::from_millis(site.weather.below(3000))).await;
                controller.abort();
                controller = site.controller(fixture(&Machines::default()));
            }
            minutes(10).await;
            for secret in ["one", "two"] {
                assert_eq!(held(&site, secret).await, (Vec::new(), false), "{secret}");
            }
            assert_eq!(held(&site, "three").await, (vec!["a".to_owned()], true));
        });
    }
}

/// As an earlier version has left it: held for a host that has named another since.
#[test]
fn one_that_was_left_held_is_let_go_with_its_deletion_or_its_hosts() {
    scenarios::run(32, async |site| {
        let controller = site.controller(fixture(&Machines::default()));
        for name in ["left", "kept", "named"] {
            create_secret(&site, name).await;
        }
        create_host(&site, "a", "named").await;
        let host = site.wait("a", 3600, is_available).await;
        let left_held = async |name| {
            let patch = json!({"metadata": {"finalizers": [FOREIGN, finalizer::SECRET], "ownerReferences": [
                {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "a", "uid": host.metadata.uid}]}});
            secrets(&site).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        };
        controller.abort();
        left_held("left").await;
        let _controller = site.controller(fixture(&Machines::default()));
        minutes(2).await;
        secrets(&site).delete("left", &DeleteParams::default()).await.unwrap();
        minutes(2).await;
        assert_eq!(held(&site, "left").await, (Vec::new(), false));
        left_held("kept").await;
        minutes(2).await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 3600).await;
        assert_eq!(held(&site, "kept").await, (Vec::new(), false));
        // That is collected with its host.
        assert_eq!(held(&site, "named").await, (vec!["a".to_owned()], false));
    });
}

/// Such as what its user wants to be collected with it, and copies for its claim.
#[test]
fn other_secrets_that_a_host_owns_stay_its_own() {
    scenarios::run(34, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        for name in ["old", "new", "users", "copy"] {
            create_secret(&site, name).await;
        }
        create_host(&site, "a", "old").await;
        let host = site.wait("a", 3600, is_available).await;
        for (name, more) in [("users", json!({})), ("copy", json!({label::CLAIM: "claims-uid"}))] {
            let patch = json!({"metadata": {"labels": more, "finalizers": [FOREIGN], "ownerReferences": [
                {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "a", "uid": host.metadata.uid}]}});
            secrets(&site).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
        names(&site, "a", json!("new")).await;
        minutes(5).await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 3600).await;
        for name in ["users", "copy"] {
            assert_eq!(held(&site, name).await, (vec!["a".to_owned()], false), "{name}");
        }
    });
}

#[test]
fn a_deleted_secret_that_a_host_signs_in_with_is_told_once_by_name() {
    scenarios::run(33, async |site| {
        let controller = site.controller(fixture(&Machines::default()));
        for name in ["old", "new", "gone"] {
            create_secret(&site, name).await;
        }
        for (host, secret) in [("a", "old"), ("b", "gone")] {
            create_host(&site, host, secret).await;
            site.wait(host, 3600, is_available).await;
        }
        secrets(&site).delete("gone", &DeleteParams::default()).await.unwrap();
        site.hosts().delete("b", &DeleteParams::default()).await.unwrap();
        secrets(&site).delete("old", &DeleteParams::default()).await.unwrap();
        minutes(30).await;
        controller.abort();
        let _controller = site.controller(fixture(&Machines::default()));
        minutes(30).await;
        let events: Api<Event> = Api::default_namespaced(site.observer());
        let said = events.list(&ListParams::default()).await.unwrap().items;
        let said: Vec<_> = said.iter().filter(|event| event.reason.as_deref() == Some("SecretInUse")).collect();
        let [said] = said[..] else { panic!("{said:?}") };
        let note = said.note.as_deref().unwrap();
        assert!(said.series.is_none() && said.type_.as_deref() == Some("Warning"), "{said:?}");
        assert_eq!(said.regarding.as_ref().unwrap().name.as_deref(), Some("a"));
        for part in ["\"old\"", "\"a\"", "name another Secret"] {
            assert!(note.contains(part), "{note}");
        }
        names(&site, "a", json!("new")).await;
        minutes(5).await;
        assert_eq!(held(&site, "old").await, (Vec::new(), false));
    });
}

/// A host whose finalizers somebody has removed, and a host whose Secret could not be let go, leave nothing behind that cannot be deleted.
#[test]
fn a_deleted_secret_whose_host_is_gone_goes_after_a_while_unless_a_host_is_declared_again() {
    scenarios::run(35, async |site| {
        let controller = site.controller(fixture(&Machines::default()));
        for name in ["a", "b"] {
            create_secret(&site, name).await;
            create_host(&site, name, name).await;
            site.wait(name, 3600, is_available).await;
        }
        controller.abort();
        for name in ["a", "b"] {
            let bare = json!({"metadata": {"finalizers": null}});
            site.hosts().delete(name, &DeleteParams::default()).await.unwrap();
            site.hosts().patch(name, &PatchParams::default(), &Patch::Merge(bare)).await.unwrap();
            site.gone(name, 60).await;
            secrets(&site).delete(name, &DeleteParams::default()).await.unwrap();
        }
        let _controller = site.controller(fixture(&Machines::default()));
        create_host(&site, "c", "b").await;
        minutes(2).await;
        assert!(held(&site, "a").await.1, "a host may be declared again");
        minutes(10).await;
        assert!(!held(&site, "a").await.1);
        assert!(held(&site, "b").await.1);
    });
}

/// What replaces a Secret whole, as some do that keep it in step with a store elsewhere, takes away that it is held.
#[test]
fn a_secret_that_has_lost_its_finalizer_is_held_again() {
    scenarios::run(36, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        create_secret(&site, "a").await;
        create_host(&site, "a", "a").await;
        site.wait("a", 3600, is_available).await;
        let bare = json!({"metadata": {"finalizers": [FOREIGN], "ownerReferences": null}});
        secrets(&site).patch("a", &PatchParams::default(), &Patch::Merge(bare)).await.unwrap();
        minutes(5).await;
        assert_eq!(held(&site, "a").await, (vec!["a".to_owned()], true));
    });
}

/// Names another Secret, and the first again while that one is tried.
#[test]
fn a_secret_that_is_named_again_at_once_is_held() {
    for pause in [0, 1, 2, 5, 10] {
        scenarios::run(37 + pause, async |site| {
            site.weather.rough(0, Duration::from_secs(1));
            let _controller = site.controller(fixture(&Machines::default()));
            for name in ["old", "new"] {
                create_secret(&site, name).await;
            }
            create_host(&site, "a", "old").await;
            site.wait("a", 3600, is_available).await;
            names(&site, "a", json!("new")).await;
            tokio::time::sleep(Duration::from_secs(pause)).await;
            names(&site, "a", json!("old")).await;
            minutes(10).await;
            assert_eq!(held(&site, "old").await, (vec!["a".to_owned()], true), "after {pause} s");
            assert_eq!(held(&site, "new").await, (Vec::new(), false), "after {pause} s");
        });
    }
}

async fn networked(site: &Site, name: &str, network: &str) {
    let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name},
        "spec": {"online": true, "bootMACAddress": "02:00:00:00:00:01", "preprovisioningNetworkDataName": network,
            "bmc": {"address": address(name), "credentialsName": "login"}}});
    site.hosts().create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
}

#[test]
fn the_secret_of_the_agents_network_stays_while_a_host_names_it() {
    scenarios::run(39, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        create_secret(&site, "login").await;
        for name in ["network", "other"] {
            let secret =
                json!({"metadata": {"name": name, "finalizers": [FOREIGN]}, "stringData": {"networkData": "{}"}});
            secrets(&site).create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        }
        for (host, network) in [("a", "network"), ("b", "network"), ("c", "other")] {
            networked(&site, host, network).await;
            site.wait(host, 3600, is_available).await;
        }
        let labels = secrets(&site).get("network").await.unwrap().metadata.labels.unwrap_or_default();
        assert_eq!(labels.get(label::ENVIRONMENT).map(String::as_str), Some(label::ENVIRONMENT_VALUE));
        assert_eq!(held(&site, "network").await, (Vec::new(), true), "it has no owner, as upstream");
        secrets(&site).delete("network", &DeleteParams::default()).await.unwrap();
        minutes(30).await;
        assert_eq!(held(&site, "network").await, (Vec::new(), true));
        let events: Api<Event> = Api::default_namespaced(site.observer());
        let said = events.list(&ListParams::default()).await.unwrap().items;
        let said = said.iter().filter(|event| event.reason.as_deref() == Some("SecretInUse"));
        let mut said: Vec<_> = said.map(|event| event.note.clone().unwrap()).collect();
        said.sort();
        assert!(said.len() == 2 && said.iter().all(|note| note.contains("preprovisioningNetworkDataName")), "{said:?}");
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 3600).await;
        assert_eq!(held(&site, "network").await, (Vec::new(), true), "another host names it");
        let patch = json!({"spec": {"preprovisioningNetworkDataName": "other"}});
        site.hosts().patch("b", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        minutes(30).await;
        assert_eq!(held(&site, "network").await, (Vec::new(), false));
        for host in ["b", "c"] {
            site.hosts().delete(host, &DeleteParams::default()).await.unwrap();
            site.gone(host, 3600).await;
        }
        assert_eq!(held(&site, "other").await, (Vec::new(), false));
    });
}

#[test]
fn a_secret_that_others_write_too_is_let_go() {
    scenarios::run(38, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        for name in ["old", "new"] {
            create_secret(&site, name).await;
        }
        create_host(&site, "a", "old").await;
        site.wait("a", 3600, is_available).await;
        // Somebody writes it every half second: who reads it, and writes it at once, is seldom in the way.
        let tried = std::sync::Mutex::new(None::<tokio::time::Instant>);
        site.weather.refuses(move |method, path| {
            if method != "PATCH" || !path.ends_with("/secrets/old") {
                return None;
            }
            let now = tokio::time::Instant::now();
            let before = tried.lock().unwrap().replace(now);
            let late = before.is_none_or(|before| now.duration_since(before) > Duration::from_millis(20));
            late.then(|| (409, "the object has been modified".to_owned()))
        });
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 3600).await;
        assert_eq!(held(&site, "old").await, (vec!["a".to_owned()], false));
    });
}

/// A Secret belongs to the hosts that name it, as upstream has it: it goes with the last of them, and with no other.
#[test]
fn a_secret_is_collected_with_the_last_host_that_names_it() {
    scenarios::run(39, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        create_secret(&site, "shared").await;
        let free = json!({"metadata": {"finalizers": null}});
        secrets(&site).patch("shared", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
        for name in ["a", "b"] {
            create_host(&site, name, "shared").await;
            site.wait(name, 3600, is_available).await;
        }
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 3600).await;
        minutes(5).await;
        let owners = secrets(&site).get("shared").await.unwrap().metadata.owner_references.unwrap_or_default();
        assert_eq!(owners.into_iter().map(|owner| owner.name).collect::<Vec<_>>(), ["b"]);
        site.hosts().delete("b", &DeleteParams::default()).await.unwrap();
        site.gone("b", 3600).await;
        minutes(5).await;
        assert!(secrets(&site).get_opt("shared").await.unwrap().is_none());
    });
}

/// One that is paused, and has not come to own it: neither its Secret nor the hold on it goes with another host.
#[test]
fn a_secret_that_another_host_names_without_owning_it_stays() {
    scenarios::run(40, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        create_secret(&site, "shared").await;
        create_host(&site, "a", "shared").await;
        site.wait("a", 3600, is_available).await;
        let paused = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "b", "annotations": {"baremetalhost.metal3.io/paused": ""}},
            "spec": {"online": true, "bmc": {"address": address("b"), "credentialsName": "shared"}}});
        site.hosts().create(&PostParams::default(), &serde_json::from_value(paused).unwrap()).await.unwrap();
        minutes(5).await;
        assert_eq!(held(&site, "shared").await, (vec!["a".to_owned()], true));
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 3600).await;
        assert_eq!(held(&site, "shared").await, (Vec::new(), true));
    });
}
