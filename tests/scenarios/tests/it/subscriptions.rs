//! BMCEventSubscriptions: made, made anew, ended; and what keeps them from that.

use std::collections::BTreeMap;
use std::time::Duration;

use api::metal3::BMCEventSubscription;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use provisioner::Registry;
use scenarios::Site;
use scenarios::plant::Plant;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const TO: &str = "https://events.example/hook";

fn all(site: &Site) -> Api<BMCEventSubscription> {
    Api::default_namespaced(site.observer())
}

fn serve(site: &Site, plant: &Plant) -> JoinHandle<()> {
    site.subscribing(Registry::new(plant.provisioner()))
}

async fn create(site: &Site, name: &str, secret: Option<&str>) {
    let mut object = json!({"metadata": {"name": name}, "spec": {"hostName": "a", "destination": TO, "context": name}});
    if let Some(secret) = secret {
        object["spec"]["httpHeadersRef"] = json!({"name": secret, "namespace": "default"});
    }
    all(site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn wait(site: &Site, name: &str, wanted: impl Fn(&str, &str) -> bool) -> BMCEventSubscription {
    for _ in 0..7200 {
        let object = all(site).get(name).await.unwrap();
        let status = object.status.clone().unwrap_or_default();
        if wanted(&status.subscription_id, &status.error) {
            return object;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} is not as wanted: {:?}", all(site).get(name).await.unwrap());
}

async fn gone(site: &Site, name: &str) {
    for _ in 0..7200 {
        if all(site).get_opt(name).await.unwrap().is_none() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} stays: {:?}", all(site).get(name).await.unwrap());
}

/// The text of an Event with this reason.
async fn said(site: &Site, reason: &str) -> Option<String> {
    let events: Api<Event> = Api::default_namespaced(site.observer());
    let events = events.list(&ListParams::default()).await.unwrap();
    events.items.into_iter().find(|event| event.reason.as_deref() == Some(reason))?.note
}

fn there(id: &str, error: &str) -> bool {
    !id.is_empty() && error.is_empty()
}

#[test]
fn a_subscription_is_made_for_its_host_made_anew_and_ended() {
    scenarios::run(91, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        create(&site, "s", None).await;
        wait(&site, "s", |id, error| id.is_empty() && error.contains("BareMetalHost a does not exist")).await;
        site.create_host("a").await;
        let made = wait(&site, "s", there).await;
        assert_eq!(made.finalizers(), ["bmceventsubscription.metal3.io"]);
        assert_eq!(plant.subscriptions(), [("1".to_owned(), TO.to_owned())]);
        // At rest nothing is written, and no second one is made.
        sleep(Duration::from_secs(7200)).await;
        assert_eq!(all(&site).get("s").await.unwrap().resource_version(), made.resource_version());
        assert_eq!(plant.subscriptions().len(), 1);
        plant.bmc_restarts();
        wait(&site, "s", |id, error| id == "2" && error.is_empty()).await;
        assert!(said(&site, "SubscriptionRenewed").await.is_some());
        all(&site).delete("s", &DeleteParams::default()).await.unwrap();
        gone(&site, "s").await;
        assert_eq!(plant.subscriptions(), []);
    });
}

#[test]
fn whatever_is_killed_or_lost_each_subscription_is_made_once_and_ended() {
    for seed in 0..8 {
        scenarios::run(seed, async |mut site| {
            let plant = Plant::new(site.weather.clone());
            let mut server = serve(&site, &plant);
            site.create_host("a").await;
            create(&site, "first", None).await;
            wait(&site, "first", there).await;
            site.weather.rough(20, Duration::from_millis(500));
            for name in ["s", "t"] {
                create(&site, name, None).await;
            }
            for _ in 0..6 {
                sleep(Duration::from_millis(site.weather.below(15_000))).await;
                server.abort();
                if site.weather.below(3) == 0 {
                    site.restart().await;
                }
                server = serve(&site, &plant);
            }
            let mut ids = BTreeMap::new();
            for name in ["first", "s", "t"] {
                ids.insert(name, wait(&site, name, there).await.status.unwrap().subscription_id);
            }
            let mut on_bmc: Vec<String> = plant.subscriptions().into_iter().map(|(id, _)| id).collect();
            let mut expected: Vec<String> = ids.values().cloned().collect();
            on_bmc.sort();
            expected.sort();
            assert_eq!(on_bmc, expected, "seed {seed}");
            for name in ["s", "t"] {
                all(&site).delete(name, &DeleteParams::default()).await.unwrap();
            }
            for _ in 0..3 {
                sleep(Duration::from_millis(site.weather.below(10_000))).await;
                server.abort();
                server = serve(&site, &plant);
            }
            for name in ["s", "t"] {
                gone(&site, name).await;
            }
            assert_eq!(plant.subscriptions(), [(ids["first"].clone(), TO.to_owned())], "seed {seed}");
        });
    }
}

#[test]
fn headers_come_from_a_secret_and_show_nowhere() {
    scenarios::run(93, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        site.create_host("a").await;
        create(&site, "s", Some("headers")).await;
        wait(&site, "s", |id, error| {
            id.is_empty() && error.contains("Secret headers with the HTTP headers does not exist")
        })
        .await;
        let secrets: Api<Secret> = Api::default_namespaced(site.observer());
        let secret = |value: &str| json!({"metadata": {"name": "headers"}, "stringData": {"Authorization": value}});
        let object = serde_json::from_value(secret("s3cret\r\nX: s3cret")).unwrap();
        secrets.create(&PostParams::default(), &object).await.unwrap();
        wait(&site, "s", |id, error| id.is_empty() && error.contains("no value of an HTTP header")).await;
        secrets.patch("headers", &PatchParams::default(), &Patch::Merge(secret("s3cret"))).await.unwrap();
        wait(&site, "s", there).await;
        let events: Api<Event> = Api::default_namespaced(site.observer());
        let events = events.list(&ListParams::default()).await.unwrap();
        let record: Api<api::metamorph::MachineRecord> = Api::default_namespaced(site.observer());
        let texts = [
            serde_json::to_string(&events.items).unwrap(),
            serde_json::to_string(&all(&site).get("s").await.unwrap()).unwrap(),
            serde_json::to_string(&record.get("a").await.unwrap()).unwrap(),
        ];
        assert!(texts.iter().all(|text| !text.contains("s3cret")), "{texts:?}");
    });
}

#[test]
fn a_subscription_goes_without_its_host() {
    scenarios::run(94, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        site.create_host("a").await;
        create(&site, "s", None).await;
        wait(&site, "s", there).await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 7200).await;
        assert_eq!(plant.subscriptions(), [], "it has ended with its host");
        wait(&site, "s", |_, error| error.contains("does not exist")).await;
        all(&site).delete("s", &DeleteParams::default()).await.unwrap();
        gone(&site, "s").await;
        assert!(said(&site, "SubscriptionLeft").await.is_some_and(|note| note.contains("host a, which is gone")));
    });
}

/// Nothing of it can be on a BMC.
#[test]
fn a_subscription_of_a_host_that_was_never_registered_goes() {
    scenarios::run(98, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "a"},
            "spec": {"online": true, "bmc": {"address": scenarios::address("a"), "credentialsName": ""}}});
        site.hosts().create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
        create(&site, "s", None).await;
        wait(&site, "s", |id, error| id.is_empty() && error.contains("is not registered yet")).await;
        all(&site).delete("s", &DeleteParams::default()).await.unwrap();
        gone(&site, "s").await;
    });
}

#[test]
fn no_secret_that_is_for_something_else_goes_to_a_bmc() {
    scenarios::run(95, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        site.create_host("a").await;
        // The user and password of the BMC are no HTTP headers.
        create(&site, "s", Some("a-bmc")).await;
        wait(&site, "s", |_, error| error.contains("the host a names it in spec.bmc.credentialsName")).await;
        let secrets: Api<Secret> = Api::default_namespaced(site.observer());
        let token = json!({"metadata": {"name": "login"}, "type": "kubernetes.io/basic-auth",
            "stringData": {"username": "u", "password": "p"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(token).unwrap()).await.unwrap();
        create(&site, "t", Some("login")).await;
        wait(&site, "t", |_, error| error.contains("of type kubernetes.io/basic-auth")).await;
        // That of a BMC whose host is declared later, or names it later.
        let early = json!({"metadata": {"name": "early"}, "stringData": {"username": "u", "password": "p"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(early).unwrap()).await.unwrap();
        create(&site, "u", Some("early")).await;
        wait(&site, "u", |_, error| error.contains("a key password")).await;
        sleep(Duration::from_secs(1200)).await;
        assert_eq!(plant.subscriptions(), []);
    });
}

#[test]
fn what_a_host_gives_its_machine_goes_to_no_bmc() {
    scenarios::run(99, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        site.create_host("a").await;
        let secrets: Api<Secret> = Api::default_namespaced(site.observer());
        let data = json!({"metadata": {"name": "data"}, "stringData": {"userData": "s3cret"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(data).unwrap()).await.unwrap();
        let names = json!({"spec": {"userData": {"name": "data", "namespace": "default"}}});
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(names)).await.unwrap();
        create(&site, "s", Some("data")).await;
        wait(&site, "s", |_, error| error.contains("has data of the host a")).await;
        assert_eq!(plant.subscriptions(), []);
    });
}

#[test]
fn a_slow_bmc_keeps_no_other_host_waiting() {
    scenarios::run(96, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        site.create_host("a").await;
        create(&site, "s", None).await;
        let made = wait(&site, "s", there).await;
        site.weather.rough(0, Duration::from_secs(40));
        let id = |name: &'static str| {
            let site = &site;
            async move { all(site).get(name).await.unwrap().status.unwrap_or_default() }
        };
        create(&site, "t", None).await;
        wait(&site, "t", |_, error| error.contains("busy with another call")).await;
        // It says nothing of one that is there.
        for _ in 0..60 {
            sleep(Duration::from_secs(30)).await;
            assert_eq!(id("s").await.error, "", "{made:?}");
        }
        site.weather.rough(0, Duration::ZERO);
        wait(&site, "t", there).await;
    });
}

/// A placeholder that somebody forgot to fill in. Such a name can stand in no address that the API is asked at.
#[test]
fn a_subscription_of_a_host_that_can_be_called_nothing_says_so_and_goes() {
    scenarios::run(97, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = serve(&site, &plant);
        for (name, host, headers) in [("s", "<host name>", None), ("t", "a", Some("{{ secret }}"))] {
            let mut object = json!({"metadata": {"name": name}, "spec": {"hostName": host, "destination": TO}});
            if let Some(headers) = headers {
                object["spec"]["httpHeadersRef"] = json!({"name": headers, "namespace": "default"});
            }
            all(&site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        }
        wait(&site, "s", |_, error| error.contains("BareMetalHost <host name> does not exist")).await;
        wait(&site, "t", |_, error| error.contains("none that a Secret can have")).await;
        for name in ["s", "t"] {
            all(&site).delete(name, &DeleteParams::default()).await.unwrap();
            gone(&site, name).await;
        }
    });
}
