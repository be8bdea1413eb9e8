//! Two provisioners in one server: which one a host gets, and that registration fixes it.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use api::metamorph::MachineRecord;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use provisioner::{Provisioner, Registry};
use provisioner_fixture::FixtureProvisioner;
use scenarios::plant::Plant;
use scenarios::{Machines, Site, address};
use serde_json::{Value, json};

const ANNOTATION: &str = "metamorph.metal3.io/provisioner";
/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

fn is(state: State) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.state() == state
}

fn says(words: &'static str) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.status.as_ref().is_some_and(|status| status.error_message.contains(words))
}

async fn annotate(site: &Site, host: &str, name: Value) {
    let change = json!({"metadata": {"annotations": {ANNOTATION: name}}});
    site.hosts().patch(host, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

async fn annotate_namespace(site: &Site, name: Value) {
    let change = json!({"metadata": {"annotations": {ANNOTATION: name}}});
    let namespaces: Api<Namespace> = Api::all(site.observer());
    namespaces.patch("default", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Who remembers the host.
async fn recorded(site: &Site, host: &str) -> Option<String> {
    let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
    records.get(host).await.unwrap().spec.provisioner.map(|part| part.name)
}

/// The native provisioner with the machine of the plant, as the default, and the fixture.
fn both(plant: &Plant, machines: &Machines) -> Registry {
    let default: Arc<dyn Provisioner> = plant.provisioner();
    Registry::new(default).with(Arc::new(FixtureProvisioner::new(machines.clone())))
}

#[test]
fn a_host_gets_the_provisioner_that_it_or_its_namespace_names_else_the_default() {
    scenarios::run(11, async |site| {
        let (plant, machines) = (Plant::new(site.weather.clone()), Machines::default());
        let server = plant.serve_with(&site, both(&plant, &machines));
        site.create_host("default-one").await;
        site.create_annotated("own", json!({ANNOTATION: "fixture"})).await;
        site.create_annotated("nobodys", json!({ANNOTATION: "ironic"})).await;
        site.wait("default-one", LONGEST, is(State::Available)).await;
        site.wait("own", LONGEST, is(State::Available)).await;
        site.wait("nobodys", LONGEST, says("there is no \"ironic\"; this server has fixture, metamorph")).await;
        annotate_namespace(&site, json!("fixture")).await;
        site.create_host("namespaces").await;
        site.wait("namespaces", LONGEST, is(State::Available)).await;
        assert_eq!(recorded(&site, "default-one").await.as_deref(), Some("metamorph"));
        assert_eq!(recorded(&site, "own").await.as_deref(), Some("fixture"));
        assert_eq!(recorded(&site, "namespaces").await.as_deref(), Some("fixture"));
        assert!(!plant.effects().is_empty() && machines.effects(&address("default-one")).is_empty());
        assert!(!machines.effects(&address("own")).is_empty() && !machines.effects(&address("namespaces")).is_empty());
        assert!(machines.effects(&address("nobodys")).is_empty());
        // Whoever corrects it need do no more.
        annotate(&site, "nobodys", Value::Null).await;
        site.wait("nobodys", LONGEST, is(State::Available)).await;
        assert_eq!(recorded(&site, "nobodys").await.as_deref(), Some("fixture"), "its namespace names that now");
        server.kill();
    });
}

#[test]
fn registration_fixes_the_provisioner() {
    scenarios::run(12, async |site| {
        let (plant, machines) = (Plant::new(site.weather.clone()), Machines::default());
        let server = plant.serve_with(&site, both(&plant, &machines));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        // The namespace's word is for hosts to come, whoever serves then.
        annotate_namespace(&site, json!("fixture")).await;
        server.kill();
        let server = plant.serve_with(&site, both(&plant, &machines));
        let image = json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"}}});
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(image)).await.unwrap();
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(plant.image().as_deref(), Some("http://192.0.2.8/i"));
        // Its own annotation cannot change it either, and says so.
        let before = plant.effects();
        annotate(&site, "a", json!("fixture")).await;
        site.wait(
            "a",
            LONGEST,
            says("the host is registered with \"metamorph\", and its annotation asks for \"fixture\""),
        )
        .await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!((plant.effects(), machines.effects(&address("a"))), (before, vec![]));
        annotate(&site, "a", json!("metamorph")).await;
        let change = json!({"spec": {"image": null}});
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(plant.image(), None);
        assert!(machines.effects(&address("a")).is_empty());
        server.kill();
    });
}
