//! What others' users have lost machines by: a move or a restore takes the status away, and hosts in use look like new ones. By the reports
//! metal3-io/baremetal-operator#431 (the state of hosts stands in their status alone: after `clusterctl move` all are inspected again),
//! airshipit/airshipctl#466 (the same; a node is provisioned again as soon as its host is not paused any more), ironcore-dev/metal-operator#626 (claims
//! have to be bound to their servers again, and what was found of the hardware is lost) and openshift/assisted-service#6703 (hosts that are restored
//! from a backup are provisioned again).
//!
//! No machine in use is booted, written or wiped by any of it: it is recognized, or held until somebody says what is to become of it.

use std::time::Duration;

use api::metal3::{
    BareMetalHost, HardwareData, HostClaim, HostDeployPolicy, OperationalStatus, ProvisioningState as State, annotation,
};
use api::metamorph::MachineRecord;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use provisioner::Registry;
use scenarios::plant::{Plant, Running};
use scenarios::{Site, is};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Longest way from one state to the next, in seconds.
pub const LONGEST: u32 = 4 * 3600;
/// Nothing more happens after this.
pub const REST: Duration = Duration::from_secs(2 * 3600);
pub const IMAGE: &str = "http://192.0.2.8/i";
/// The annotation that gives somebody's data away.
pub const CONSENT: &str = annotation::OVERWRITE_OWNER;

pub fn says(words: &str) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.status.as_ref().is_some_and(|status| status.error_message.contains(words))
}

pub fn image(url: &str) -> Value {
    json!({"url": url, "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"})
}

pub fn count(plant: &Plant, what: &str) -> usize {
    plant.effects().iter().filter(|effect| effect.starts_with(what)).count()
}

pub async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

pub async fn annotate(site: &Site, key: &str, value: Value) {
    patch(site, json!({"metadata": {"annotations": {key: value}}})).await;
}

pub async fn events(site: &Site, reason: &str) -> Vec<String> {
    let all = Api::<Event>::default_namespaced(site.observer()).list(&ListParams::default()).await.unwrap().items;
    all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|event| event.note).collect()
}

/// What of a site reaches another one. A status does not: the API takes none with a creation.
#[derive(Clone, Copy)]
pub struct Reaches {
    pub record: bool,
    pub hardware: bool,
}

pub const ALL: Reaches = Reaches { record: true, hardware: true };

/// A machine in use, and the objects of its host.
pub struct Place {
    pub site: Site,
    pub plant: Plant,
    pub server: Option<Running>,
    pub secret: Secret,
    pub host: BareMetalHost,
    pub record: MachineRecord,
    pub hardware: HardwareData,
    /// The record of another host, which is gone.
    pub beside: Option<MachineRecord>,
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

impl Place {
    /// The host is provisioned with this image, its system runs, and the server is gone.
    pub async fn in_use(site: Site, image: Value) -> Self {
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve(&site);
        site.create_host("a").await;
        Self::provisioned(site, plant, server, image).await
    }

    /// The same of a host that is there, or comes.
    pub async fn provisioned(site: Site, plant: Plant, server: Running, image: Value) -> Self {
        site.wait("a", LONGEST, is(State::Available)).await;
        patch(&site, json!({"spec": {"image": image, "rootDeviceHints": {"deviceName": "/dev/vda"}}})).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        sleep(Duration::from_secs(600)).await;
        server.kill();
        Self::of(site, plant).await
    }

    /// What there is of it now, without a server.
    pub async fn of(site: Site, plant: Plant) -> Self {
        let client = site.observer();
        let secret = Api::<Secret>::default_namespaced(client.clone()).get("a-bmc").await.unwrap();
        let host = site.hosts().get("a").await.unwrap();
        let record = Api::default_namespaced(client.clone()).get("a").await.unwrap();
        let hardware = Api::default_namespaced(client).get("a").await.unwrap();
        Self { site, plant, server: None, secret, host, record, hardware, beside: None }
    }

    /// The objects are made anew in an API that has none, where a server begins to work.
    pub async fn moves(&mut self, reaches: Reaches, annotations: Value, edit: impl FnOnce(&mut Value)) {
        self.site.empty().await;
        let (client, post) = (self.site.observer(), PostParams::default());
        let secret = Secret { metadata: named("a-bmc"), data: self.secret.data.clone(), ..Secret::default() };
        Api::<Secret>::default_namespaced(client.clone()).create(&post, &secret).await.unwrap();
        if reaches.record {
            let record = MachineRecord { metadata: named("a"), spec: self.record.spec.clone() };
            Api::<MachineRecord>::default_namespaced(client.clone()).create(&post, &record).await.unwrap();
        }
        if let Some(other) = &self.beside {
            Api::<MachineRecord>::default_namespaced(client.clone()).create(&post, other).await.unwrap();
        }
        if reaches.hardware {
            let hardware = HardwareData { metadata: named("a"), spec: self.hardware.spec.clone() };
            Api::<HardwareData>::default_namespaced(client.clone()).create(&post, &hardware).await.unwrap();
        }
        let mut host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "spec": self.host.spec,
            "metadata": {"name": "a", "annotations": annotations}});
        edit(&mut host);
        self.site.hosts().create(&post, &serde_json::from_value(host).unwrap()).await.unwrap();
        self.server = Some(self.plant.serve(&self.site));
    }

    /// The host says these words for hours, in which nothing is done to its machine.
    pub async fn is_held(&self, words: &str) {
        let before = self.plant.effects();
        self.site.wait("a", LONGEST, says(words)).await;
        sleep(REST).await;
        let host = self.site.hosts().get("a").await.unwrap();
        assert!(says(words)(&host) && host.state() == State::Registering, "{:?}", host.status);
        assert_eq!(self.plant.effects(), before, "{words}");
    }

    /// The host is what it was, its machine was not touched, and the image can be taken away from it.
    pub async fn goes_on(&self, before: &[String]) {
        self.site.wait("a", LONGEST, is(State::Provisioned)).await;
        sleep(REST).await;
        assert_eq!(self.plant.effects(), before, "a tenant was touched");
        let host = self.site.hosts().get("a").await.unwrap();
        let status = host.status.clone().unwrap();
        assert_eq!(status.provisioning.image, host.spec.image.clone().unwrap());
        assert!(status.error_type.is_none() && status.operational_status == OperationalStatus::Ok, "{status:?}");
        assert_eq!(status.provisioning.id, self.host.status.as_ref().unwrap().provisioning.id, "whose mark it is");
        patch(&self.site, json!({"spec": {"image": null}})).await;
        self.site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!((self.plant.image(), count(&self.plant, "wipe")), (None, 1), "{:#?}", self.plant.effects());
    }
}

/// metal3-io/baremetal-operator#431.
#[test]
fn a_host_that_is_moved_without_its_status_is_recognized_and_not_inspected_again() {
    scenarios::run(61, async |site| {
        let mut place = Place::in_use(site, image(IMAGE)).await;
        let before = place.plant.effects();
        place.moves(ALL, json!({}), |_| {}).await;
        let host = place.site.wait("a", LONGEST, is(State::Provisioned)).await;
        assert_eq!(host.status.unwrap().hardware, place.hardware.spec.hardware);
        assert_eq!(events(&place.site, "Recognized").await.len(), 1);
        place.goes_on(&before).await;
    });
}

/// The move after that has the status that was made then.
#[test]
fn a_host_that_was_recognized_once_moves_with_its_status_the_next_time() {
    scenarios::run(65, async |site| {
        let mut place = Place::in_use(site, image(IMAGE)).await;
        let before = place.plant.effects();
        place.moves(ALL, json!({}), |_| {}).await;
        place.site.wait("a", LONGEST, is(State::Provisioned)).await;
        sleep(REST).await;
        place.server.take().unwrap().kill();
        let Place { site, plant, .. } = place;
        let mut place = Place::of(site, plant).await;
        let status = serde_json::to_string(place.host.status.as_ref().unwrap()).unwrap();
        place.moves(ALL, json!({annotation::STATUS: status}), |_| {}).await;
        place.goes_on(&before).await;
    });
}

/// airshipit/airshipctl#466.
#[test]
fn a_host_that_is_not_paused_any_more_after_a_move_is_not_provisioned_again() {
    scenarios::run(62, async |site| {
        let mut place = Place::in_use(site, image(IMAGE)).await;
        let before = place.plant.effects();
        place.moves(ALL, json!({annotation::PAUSED: "move"}), |_| {}).await;
        sleep(REST).await;
        assert_eq!(place.site.hosts().get("a").await.unwrap().status, None);
        annotate(&place.site, annotation::PAUSED, Value::Null).await;
        place.goes_on(&before).await;
    });
}

/// ironcore-dev/metal-operator#626.
#[test]
fn a_claim_and_its_host_that_are_moved_without_status_belong_together_again() {
    scenarios::run(63, async |site| {
        let admit = async |site: &Site| {
            let policy = json!({"metadata": {"name": "all"}, "spec": {"hostClaimNamespaces": {"names": ["default"]}}});
            let policies: Api<HostDeployPolicy> = Api::default_namespaced(site.observer());
            policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
        };
        let claims = |site: &Site| Api::<HostClaim>::default_namespaced(site.observer());
        let bound = async |site: &Site| {
            for _ in 0..LONGEST {
                let claim = claims(site).get("c").await.unwrap();
                if claim.condition("Ready").is_some_and(|ready| ready.status == "True") {
                    return claim;
                }
                sleep(Duration::from_secs(1)).await;
            }
            panic!("it is never ready: {:?}", claims(site).get("c").await);
        };
        admit(&site).await;
        let plant = Plant::new(site.weather.clone());
        let server = site.claiming(Registry::new(plant.provisioner()));
        site.create_host("a").await;
        let spec = json!({"poweredOn": true, "image": image(IMAGE)});
        let claim: HostClaim = serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).unwrap();
        claims(&site).create(&PostParams::default(), &claim).await.unwrap();
        bound(&site).await;
        sleep(Duration::from_secs(600)).await;
        server.abort();
        let client = site.observer();
        let secret = Api::<Secret>::default_namespaced(client.clone()).get("a-bmc").await.unwrap();
        let host = site.hosts().get("a").await.unwrap();
        let record = Api::default_namespaced(client.clone()).get("a").await.unwrap();
        let hardware = Api::default_namespaced(client).get("a").await.unwrap();
        let before = plant.effects();
        let mut place = Place { site, plant, server: None, secret, host, record, hardware, beside: None };
        place.moves(ALL, json!({}), |_| {}).await;
        place.server.take().unwrap().kill();
        admit(&place.site).await;
        // Another host, free and of the same kind, comes up beside it.
        let _other = place.plant.beside("b");
        let _server = place.site.claiming(Registry::new(place.plant.provisioner()));
        place.site.create_host("b").await;
        place.site.wait("b", LONGEST, is(State::Available)).await;
        claims(&place.site).create(&PostParams::default(), &claim).await.unwrap();
        let claim = bound(&place.site).await;
        assert_eq!(claim.status.as_ref().unwrap().bare_metal_host.as_ref().unwrap().name, "a");
        sleep(REST).await;
        assert_eq!(place.plant.effects(), before, "a tenant was touched");
        let host = place.site.hosts().get("a").await.unwrap();
        assert_eq!(
            (host.state(), host.spec.consumer_ref.clone().unwrap().uid),
            (State::Provisioned, claim.metadata.uid)
        );
        assert_eq!(host.status.unwrap().hardware, place.hardware.spec.hardware, "what was found is known again");
    });
}

/// openshift/assisted-service#6703, whose hosts boot an ISO and are detached when their cluster is installed.
#[test]
fn hosts_that_are_restored_without_their_status_are_not_installed_again() {
    let iso = json!({"url": "http://192.0.2.8/discovery.iso", "format": "live-iso"});
    for (image, detached) in [(image(IMAGE), false), (iso.clone(), false), (iso, true)] {
        scenarios::run(64, async |site| {
            let is_live = image["format"] == "live-iso";
            let mut place = Place::in_use(site, image.clone()).await;
            let before = place.plant.effects();
            let annotations = if detached { json!({annotation::DETACHED: "assisted-service"}) } else { json!({}) };
            place.moves(ALL, annotations, |_| {}).await;
            if !is_live {
                return place.goes_on(&before).await;
            }
            let wanted = if detached { OperationalStatus::Detached } else { OperationalStatus::Ok };
            let rests = |host: &BareMetalHost| {
                is(State::Provisioned)(host) && host.status.as_ref().unwrap().operational_status == wanted
            };
            place.site.wait("a", LONGEST, rests).await;
            sleep(REST).await;
            assert_eq!(place.plant.effects(), before, "a tenant was touched, detached: {detached}");
            assert!(place.plant.runs_live());
        });
    }
}

/// The same where the MachineRecord was not in the backup either: what the machine runs is not known, and is asked for.
#[test]
fn a_host_of_which_nothing_but_its_past_is_known_is_held_until_somebody_says_what_it_is() {
    const WORDS: &str = "may be in use";
    for way in ["status", "external", "off", "consumer"] {
        scenarios::run(65, async |site| {
            let mut place = Place::in_use(site, image(IMAGE)).await;
            let before = place.plant.effects();
            let consumer = json!({"kind": "Metal3Machine", "name": "m", "namespace": "default"});
            // CAPM3's consumer tells as well as what was found of the hardware.
            let reaches = Reaches { record: false, hardware: way != "consumer" };
            place.moves(reaches, json!({}), |host| host["spec"]["consumerRef"] = consumer).await;
            place.is_held(WORDS).await;
            match way {
                "status" | "consumer" => {
                    let status = serde_json::to_string(place.host.status.as_ref().unwrap()).unwrap();
                    annotate(&place.site, annotation::STATUS, json!(status)).await;
                    place.goes_on(&before).await;
                }
                "external" => {
                    patch(&place.site, json!({"spec": {"externallyProvisioned": true}})).await;
                    place.site.wait("a", LONGEST, is(State::ExternallyProvisioned)).await;
                    sleep(REST).await;
                    assert_eq!(place.plant.effects(), before);
                }
                _ => {
                    let mut standing = serde_json::to_value(place.plant.standing()).unwrap();
                    standing["runs"] = json!("Nothing");
                    place.plant.stands(serde_json::from_value(standing).unwrap());
                    // That nobody uses it now is no consent.
                    place.is_held(WORDS).await;
                    annotate(&place.site, CONSENT, json!("unknown")).await;
                    place.site.wait("a", LONGEST, is(State::Inspecting)).await;
                    // What is on the disk is another owner's by now.
                    place.site.wait("a", LONGEST, says("another owner")).await;
                    assert_eq!((place.plant.image().as_deref(), count(&place.plant, "wipe")), (Some(IMAGE), 0));
                }
            }
        });
    }
}

/// A machine that nothing tells to be in use is what it is to everybody who declares a new one: inspected, on or off.
#[test]
fn a_new_host_is_inspected_though_its_machine_is_on() {
    scenarios::run(66, async |site| {
        let mut place = Place::in_use(site, image(IMAGE)).await;
        place.moves(Reaches { record: false, hardware: false }, json!({}), |_| {}).await;
        place.site.wait("a", LONGEST, says("another owner")).await;
        assert_eq!((place.plant.image().as_deref(), count(&place.plant, "wipe")), (Some(IMAGE), 0));
    });
}

/// An inventory that is declared anew over machines in use takes none of them, whatever it asks for.
#[test]
fn a_machine_in_use_is_given_to_another_wish_by_consent_alone() {
    for wish in [json!(null), image("http://192.0.2.8/another")] {
        scenarios::run(67, async |site| {
            let mut place = Place::in_use(site, image(IMAGE)).await;
            let owner = place.host.status.as_ref().unwrap().provisioning.id.clone();
            place.moves(ALL, json!({}), |host| host["spec"]["image"] = wish.clone()).await;
            place.is_held("is in use by what was provisioned on it").await;
            let host = place.site.hosts().get("a").await.unwrap();
            let said = host.status.unwrap().error_message;
            assert!(said.contains(&format!("{CONSENT} to {owner}")) && said.contains(annotation::STATUS), "{said}");
            annotate(&place.site, CONSENT, json!("somebody-else")).await;
            place.is_held("is in use by what was provisioned on it").await;
            annotate(&place.site, CONSENT, json!(owner)).await;
            let wanted = if wish.is_null() { State::Available } else { State::Provisioned };
            place.site.wait("a", LONGEST, is(wanted)).await;
            if !wish.is_null() {
                assert_eq!(place.plant.image().as_deref(), Some("http://192.0.2.8/another"));
                let left = place.site.hosts().get("a").await.unwrap();
                assert_eq!(left.annotation(CONSENT), None, "it is used up");
            }
        });
    }
}

/// Deleting such a host, which this server has never touched, leaves its machine as it runs.
#[test]
fn a_host_that_is_held_for_its_past_goes_and_its_machine_stays() {
    scenarios::run(68, async |site| {
        let mut place = Place::in_use(site, image(IMAGE)).await;
        let before = place.plant.effects();
        place.moves(ALL, json!({}), |host| host["spec"]["image"] = json!(null)).await;
        place.is_held("is in use by what was provisioned on it").await;
        place.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        place.site.gone("a", LONGEST).await;
        sleep(REST).await;
        assert_eq!(place.plant.effects(), before);
    });
}
