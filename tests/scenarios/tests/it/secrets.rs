//! Secrets of BMCs: held while a host names them, and let go when none does.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State, finalizer};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
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
        "spec": {"online": true, "bootMACAddress": "00:00:00:00:00:01",
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
