//! An object that is being deleted and stays says on what it waits, in its status or in an Event, whatever that is; and goes when that is over.

use std::time::Duration;

use api::metal3::{ProvisioningState as State, annotation};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use operator::{ClaimController, SubscriptionController};
use scenarios::{Machines, Site, Trouble, address, fixture};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Longest way to anything, in seconds.
const LONGEST: u32 = 4 * 3600;
/// Somebody else's finalizer.
const FOREIGN: &str = "example.com/keep";

/// A site with machines of the fixture, and what is deleted in it.
struct Place {
    site: Site,
    machines: Machines,
    controller: JoinHandle<()>,
}

impl Place {
    async fn new(site: Site) -> Self {
        let machines = Machines::default();
        let controller = serve(&site, &machines);
        Self { site, machines, controller }
    }

    async fn with_host(site: Site, provisioned: bool) -> Self {
        let place = Self::new(site).await;
        place.host("a", provisioned).await;
        place
    }

    async fn host(&self, name: &str, provisioned: bool) {
        self.site.create_host(name).await;
        self.site.wait(name, LONGEST, |host| host.state() == State::Available).await;
        if provisioned {
            self.patch("BareMetalHost", name, json!({"spec": {"image": image()}})).await;
            self.site.wait(name, LONGEST, |host| host.state() == State::Provisioned).await;
        }
    }

    fn all(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("metal3.io", "v1alpha1", kind);
        Api::default_namespaced_with(self.site.observer(), &ApiResource::from_gvk(&kind))
    }

    async fn create(&self, kind: &str, mut object: Value) {
        object["apiVersion"] = json!("metal3.io/v1alpha1");
        object["kind"] = json!(kind);
        self.all(kind).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    async fn patch(&self, kind: &str, name: &str, change: Value) {
        self.all(kind).patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    async fn annotate(&self, key: &str, value: Value) {
        self.patch("BareMetalHost", "a", json!({"metadata": {"annotations": {key: value}}})).await;
    }

    fn trouble(&self, trouble: Trouble, there: bool) {
        self.machines.trouble(&address("a"), trouble, there);
    }

    async fn delete(&self, kind: &str, name: &str) {
        self.all(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// All that the object says now, and all Events about it.
    async fn says(&self, kind: &str, name: &str) -> String {
        let object = self.all(kind).get_opt(name).await.unwrap();
        let status = object.map(|object| object.data["status"].to_string()).unwrap_or_default();
        let events = Api::<Event>::default_namespaced(self.site.observer()).list(&ListParams::default()).await.unwrap();
        let about = |event: &Event| {
            let about = event.regarding.clone().unwrap_or_default();
            about.kind.as_deref() == Some(kind) && about.name.as_deref() == Some(name)
        };
        let notes = events.items.into_iter().filter(about).filter_map(|event| event.note);
        notes.fold(status, |all, note| format!("{all}\n{note}"))
    }

    /// It says these words while it stays, which it does for so long.
    async fn waits(&self, kind: &str, name: &str, words: &[&str]) {
        sleep(Duration::from_secs(45)).await;
        let said = self.says(kind, name).await;
        assert!(self.all(kind).get_opt(name).await.unwrap().is_some(), "it is gone, and said {said}");
        for word in words {
            assert!(said.contains(word), "\"{word}\" is not in {said}");
        }
    }

    async fn gone(&self, kind: &str, name: &str) {
        for _ in 0..LONGEST {
            if self.all(kind).get_opt(name).await.unwrap().is_none() {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
        panic!("{kind} {name} stays: {}", self.says(kind, name).await);
    }
}

/// Hosts, claims and subscriptions, as one server serves them.
fn serve(site: &Site, machines: &Machines) -> JoinHandle<()> {
    let hosts = site.controller_of(fixture(machines));
    let claims = ClaimController::beside(&hosts).run(scenarios::never());
    let subscriptions = SubscriptionController::beside(&hosts).run(scenarios::never());
    let hosts = hosts.run(scenarios::never());
    tokio::spawn(async move {
        tokio::join!(hosts, claims, subscriptions);
    })
}

fn image() -> Value {
    json!({"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"})
}

/// What a host's deletion waits for; brought about before it, and ended.
const HOSTS: &[(&str, &[&str])] = &[
    ("paused", &["deletion waits until the annotation baremetalhost.metal3.io/paused is removed"]),
    (
        "detached, its deletion delayed",
        &["its deletion waits until the annotation baremetalhost.metal3.io/detached says"],
    ),
    (
        "a detached annotation that nobody understands",
        &["baremetalhost.metal3.io/detached", "a deletion of the host waits until it is corrected"],
    ),
    ("a frozen namespace", &["is frozen by its annotation metamorph.metal3.io/freeze (the rack is moved)"]),
    ("the limit of hosts that are emptied", &["--deprovisioning-limit", "the next may begin at"]),
    ("a BMC that is silent", &["nothing answers", "goes on without after"]),
    ("a provisioner that has no room", &["as much to do as it can", "made busy"]),
    ("a Secret that is gone", &["Secret", "a-bmc"]),
    ("work under way", &["What was provisioned is being removed"]),
    ("somebody else's finalizer", &["until others take their finalizers away", FOREIGN]),
];

#[test]
fn a_host_that_is_being_deleted_says_on_what_it_waits() {
    for (cause, words) in HOSTS {
        scenarios::run(81, async |mut site| {
            if cause.contains("limit") {
                site.deprovisioning_limit = 1;
            }
            let place = Place::with_host(site, true).await;
            match *cause {
                "paused" => place.annotate(annotation::PAUSED, json!("")).await,
                "detached, its deletion delayed" => {
                    place.annotate(annotation::DETACHED, json!(r#"{"deleteAction":"delay"}"#)).await;
                    sleep(Duration::from_secs(60)).await;
                }
                "a detached annotation that nobody understands" => {
                    place.annotate(annotation::DETACHED, json!(r#"{"deleteAction":"never"}"#)).await;
                }
                "a frozen namespace" => place.site.freeze(Some("the rack is moved")).await,
                "the limit of hosts that are emptied" => {
                    place.host("b", true).await;
                    place.patch("BareMetalHost", "b", json!({"spec": {"image": null}})).await;
                    place.site.wait("b", LONGEST, |host| host.state() == State::Available).await;
                }
                "a BMC that is silent" => place.trouble(Trouble::Silent, true),
                "a provisioner that has no room" => place.trouble(Trouble::Busy, true),
                "a Secret that is gone" => {
                    place.trouble(Trouble::Slow, true);
                    let secrets: Api<Secret> = Api::default_namespaced(place.site.observer());
                    let free = json!({"metadata": {"finalizers": null}});
                    secrets.delete("a-bmc", &DeleteParams::default()).await.unwrap();
                    secrets.patch("a-bmc", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
                }
                "work under way" => place.trouble(Trouble::Slow, true),
                _ => {
                    let host = place.site.hosts().get("a").await.unwrap();
                    let mut finalizers = host.metadata.finalizers.unwrap_or_default();
                    finalizers.push(FOREIGN.to_owned());
                    place.patch("BareMetalHost", "a", json!({"metadata": {"finalizers": finalizers}})).await;
                }
            }
            place.delete("BareMetalHost", "a").await;
            if cause.contains("finalizer") {
                sleep(Duration::from_secs(900)).await;
            }
            place.waits("BareMetalHost", "a", words).await;
            match *cause {
                "paused" => place.annotate(annotation::PAUSED, Value::Null).await,
                "a frozen namespace" => place.site.freeze(None).await,
                "detached, its deletion delayed" | "a detached annotation that nobody understands" => {
                    place.annotate(annotation::DETACHED, Value::Null).await;
                }
                "somebody else's finalizer" => {
                    place.patch("BareMetalHost", "a", json!({"metadata": {"finalizers": null}})).await;
                }
                "a provisioner that has no room" => place.trouble(Trouble::Busy, false),
                // The rest ends by itself, or is given up.
                _ => {}
            }
            place.gone("BareMetalHost", "a").await;
            place.controller.abort();
        });
    }
}

/// What a claim waits for when it is deleted.
#[test]
fn a_claim_that_is_being_deleted_says_on_what_it_waits() {
    for (cause, words) in [
        ("paused", &["The claim is paused (annotation baremetalhost.metal3.io/paused)"][..]),
        ("work under way", &["default/a"][..]),
        ("its host is paused", &["default/a", "paused"][..]),
        // What the BMC says is not the claim's owner's to know.
        (
            "its host's BMC is silent",
            &["default/a", "it is in error (provisioning error), of which its own status tells more"][..],
        ),
    ] {
        scenarios::run(82, async |site| {
            let place = Place::with_host(site, false).await;
            let admits = json!({"metadata": {"name": "all"}, "spec": {"hostClaimNamespaces": {"names": ["default"]}}});
            place.create("HostDeployPolicy", admits).await;
            let claim = json!({"metadata": {"name": "c"}, "spec": {"poweredOn": true, "image": image()}});
            place.create("HostClaim", claim).await;
            place.site.wait("a", LONGEST, |host| host.state() == State::Provisioned).await;
            sleep(Duration::from_secs(60)).await;
            let pause = |value: Value| json!({"metadata": {"annotations": {annotation::PAUSED: value}}});
            match cause {
                "paused" => place.patch("HostClaim", "c", pause(json!(""))).await,
                "its host is paused" => place.annotate(annotation::PAUSED, json!("me")).await,
                "its host's BMC is silent" => place.trouble(Trouble::Silent, true),
                _ => place.trouble(Trouble::Slow, true),
            }
            place.delete("HostClaim", "c").await;
            if cause != "work under way" {
                sleep(Duration::from_secs(120)).await;
            }
            place.waits("HostClaim", "c", words).await;
            match cause {
                "paused" => place.patch("HostClaim", "c", pause(Value::Null)).await,
                "its host is paused" => place.annotate(annotation::PAUSED, Value::Null).await,
                "its host's BMC is silent" => place.trouble(Trouble::Silent, false),
                _ => {}
            }
            place.gone("HostClaim", "c").await;
            place.controller.abort();
        });
    }
}

#[test]
fn a_data_image_that_is_being_deleted_says_on_what_it_waits() {
    for (cause, words) in [
        ("the next reboot", &["detached then, and goes"][..]),
        (
            "its host is paused",
            &["a lets it go, which is paused: remove its annotation baremetalhost.metal3.io/paused"][..],
        ),
        ("its host works", &["a lets it go", "deprovisioning"][..]),
    ] {
        scenarios::run(83, async |site| {
            let place = Place::with_host(site, true).await;
            let object = json!({"metadata": {"name": "a"}, "spec": {"url": "https://media.example/tools.iso"}});
            place.create("DataImage", object).await;
            place.annotate("reboot.metal3.io", json!("")).await;
            let reads = async || place.says("DataImage", "a").await.contains("attachedImage\":{\"url\":\"https");
            for _ in 0..LONGEST {
                if reads().await {
                    break;
                }
                sleep(Duration::from_secs(1)).await;
            }
            assert!(reads().await);
            sleep(Duration::from_secs(300)).await;
            match cause {
                "its host is paused" => place.annotate(annotation::PAUSED, json!("")).await,
                "its host works" => {
                    place.trouble(Trouble::Slow, true);
                    place.patch("BareMetalHost", "a", json!({"spec": {"image": null}})).await;
                    place.site.wait("a", LONGEST, |host| host.state() == State::Deprovisioning).await;
                }
                _ => {}
            }
            place.delete("DataImage", "a").await;
            if cause == "the next reboot" {
                sleep(Duration::from_secs(600)).await;
            }
            place.waits("DataImage", "a", words).await;
            match cause {
                "its host is paused" => {
                    place.annotate(annotation::PAUSED, Value::Null).await;
                    place.annotate("reboot.metal3.io", json!("")).await;
                }
                "the next reboot" => place.annotate("reboot.metal3.io", json!("")).await,
                _ => {}
            }
            place.gone("DataImage", "a").await;
            place.controller.abort();
        });
    }
}

#[test]
fn a_subscription_that_is_being_deleted_says_on_what_it_waits() {
    for (cause, words) in [
        ("its host is paused", &["cannot be ended yet", "paused (annotation baremetalhost.metal3.io/paused)"][..]),
        ("its host's BMC is silent", &["nothing answers"][..]),
        ("its host is to be detached", &["cannot be ended yet", "about to be detached"][..]),
    ] {
        scenarios::run(84, async |site| {
            let place = Place::with_host(site, true).await;
            let spec = json!({"hostName": "a", "destination": "https://events.example/hook", "context": "c"});
            place.create("BMCEventSubscription", json!({"metadata": {"name": "s"}, "spec": spec})).await;
            sleep(Duration::from_secs(120)).await;
            assert!(place.says("BMCEventSubscription", "s").await.contains("subscriptionID"));
            match cause {
                "its host is paused" => place.annotate(annotation::PAUSED, json!("")).await,
                "its host's BMC is silent" => place.trouble(Trouble::Silent, true),
                _ => {
                    // Its BMC does not let it go.
                    place.trouble(Trouble::Silent, true);
                    place.annotate(annotation::DETACHED, json!("")).await;
                }
            }
            place.delete("BMCEventSubscription", "s").await;
            place.waits("BMCEventSubscription", "s", words).await;
            place.annotate(annotation::PAUSED, Value::Null).await;
            place.trouble(Trouble::Silent, false);
            place.gone("BMCEventSubscription", "s").await;
            place.controller.abort();
        });
    }
}
