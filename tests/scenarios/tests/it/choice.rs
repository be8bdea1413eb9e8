//! Several provisioners in one server: which one a host gets, that registration fixes it, and how a host is moved from one to another.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, OperationalStatus, ProvisioningState as State, annotation};
use api::metamorph::MachineRecord;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::api::{Api, Patch, PatchParams};
use provisioner::{Provisioner, Registry};
use provisioner_external::serve::{About, Worker, serve_stream, worker};
use provisioner_external::{ExternalProvisioner, InMemory, Reached};
use provisioner_fixture::FixtureProvisioner;
use provisioner_ironic::{Ironic, IronicProvisioner};
use provisioner_kit::Trail;
use scenarios::plant::Plant;
use scenarios::{Machines, Site, address, is};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};

use crate::disasters::events;
use crate::scripted::Scripted;

const ANNOTATION: &str = "metamorph.metal3.io/provisioner";
/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

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

/// A machine for the native provisioner, one Ironic, machines in memory, and those of a program behind gRPC.
struct Four {
    plant: Plant,
    ironic: Scripted,
    fixtures: Machines,
    others: Machines,
    /// The program that has the others has ended.
    gone: watch::Sender<bool>,
}

/// A program that is a provisioner, served in memory until it is told to be gone.
fn program(machines: Machines, is_gone: &watch::Sender<bool>) -> ExternalProvisioner {
    let about = About {
        name: "acme".into(),
        program: "1".into(),
        id_prefix: "acme-".into(),
        capabilities: provisioner_fixture::capabilities(),
        schemes: Vec::new(),
        check_address: None,
    };
    let provisioner: Arc<dyn Provisioner> = Arc::new(FixtureProvisioner::named("acme", machines));
    let worker: Worker = worker(provisioner, about, None);
    let (sender, mut connections) = mpsc::channel::<DuplexStream>(4);
    let is_gone = is_gone.subscribe();
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            let (worker, mut is_gone) = (worker.clone(), is_gone.clone());
            tokio::spawn(async move {
                tokio::select! {
                    _ = is_gone.wait_for(|is_gone| *is_gone) => {}
                    _ = serve_stream(stream, worker) => {}
                }
            });
        }
    });
    let site = provisioner_external::Site::new("acme", Reached::Socket("/nowhere".into(), None));
    ExternalProvisioner::new(site, Arc::new(InMemory(sender)))
}

impl Four {
    fn new(site: &Site) -> Self {
        let plant = Plant::new(site.weather.clone());
        Self {
            plant,
            ironic: Scripted::new(Trail::default()),
            fixtures: Machines::default(),
            others: Machines::default(),
            gone: watch::Sender::new(false),
        }
    }

    /// A server's, as the program has them: the native one, the default, knows which machines the Ironic has.
    fn registry(&self) -> Registry {
        let ironic = Ironic { site: provisioner_ironic::Site::new("hall"), transport: Arc::new(self.ironic.clone()) };
        let ironic = IronicProvisioner::new(vec![ironic]);
        let plant = self.plant.among(vec![ironic.nodes()]);
        Registry::new(plant.provisioner())
            .with(Arc::new(ironic))
            .with(Arc::new(FixtureProvisioner::new(self.fixtures.clone())))
            .with(Arc::new(program(self.others.clone(), &self.gone)))
    }
}

async fn patch(site: &Site, host: &str, change: Value) {
    site.hosts().patch(host, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn image(url: &str) -> Value {
    json!({"spec": {"image": {"url": url, "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"}}})
}

fn no_image() -> Value {
    json!({"spec": {"image": null}})
}

#[test]
fn one_server_has_four_hosts_in_one_namespace_provisioned_by_four_provisioners() {
    scenarios::run(13, async |site| {
        let four = Four::new(&site);
        let server = four.plant.serve_with(&site, four.registry());
        let names =
            [("native", None), ("baremetal", Some("ironic")), ("rehearsed", Some("fixture")), ("theirs", Some("acme"))];
        for (number, (host, provisioner)) in names.into_iter().enumerate() {
            let annotations = provisioner.map_or_else(|| json!({}), |name| json!({ANNOTATION: name}));
            // The Ironic's inspection finds the one of its machine.
            let mac = match provisioner {
                Some("ironic") => "52:54:00:00:00:01".to_owned(),
                _ => format!("02:00:00:00:00:{:02x}", number + 1),
            };
            site.create_with(host, annotations, json!({"bootMACAddress": mac})).await;
        }
        for (host, _) in names {
            site.wait(host, LONGEST, is(State::Available)).await;
            patch(&site, host, image(&format!("http://192.0.2.8/{host}"))).await;
        }
        for (host, provisioner) in names {
            site.wait(host, LONGEST, is(State::Provisioned)).await;
            assert_eq!(recorded(&site, host).await.as_deref(), Some(provisioner.unwrap_or("metamorph")), "{host}");
        }
        let system = |machines: &Machines, host: &str| machines.system(&address(host)).map(|(image, _)| image);
        assert_eq!(four.plant.image().as_deref(), Some("http://192.0.2.8/native"));
        assert_eq!(four.ironic.state(), "active");
        assert_eq!(four.ironic.field("instance_info")["image_source"], "http://192.0.2.8/baremetal");
        assert_eq!(system(&four.fixtures, "rehearsed").as_deref(), Some("http://192.0.2.8/rehearsed"));
        assert_eq!(system(&four.others, "theirs").as_deref(), Some("http://192.0.2.8/theirs"));
        // Each did its own, and nothing of another's.
        for (machines, own) in [(&four.fixtures, "rehearsed"), (&four.others, "theirs")] {
            for (host, _) in names {
                assert_eq!(machines.effects(&address(host)).is_empty(), host != own, "{host}");
            }
        }
        assert_eq!(four.ironic.field("name"), "default~baremetal");
        // Given back, each by its own.
        for (host, _) in names {
            patch(&site, host, no_image()).await;
        }
        for (host, _) in names {
            site.wait(host, LONGEST, is(State::Available)).await;
        }
        assert_eq!((four.plant.image(), four.ironic.state().as_str()), (None, "available"));
        assert_eq!((system(&four.fixtures, "rehearsed"), system(&four.others, "theirs")), (None, None));
        server.kill();
    });
}

#[test]
fn a_host_is_moved_from_ironic_to_the_native_provisioner_and_back_while_it_is_free_of_work() {
    scenarios::run(14, async |site| {
        let four = Four::new(&site);
        let server = four.plant.serve_with(&site, four.registry());
        let to_ironic = || json!({ANNOTATION: "ironic"});
        let machine = || json!({"bootMACAddress": null});
        site.create_with("a", to_ironic(), machine()).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert!(four.ironic.field("name") == "default~a" && four.plant.effects().is_empty());
        // While there is work, it goes on with whom it began, and the wish to move is refused.
        patch(&site, "a", image("http://192.0.2.8/i")).await;
        site.wait("a", LONGEST, is(State::Provisioning)).await;
        annotate(&site, "a", json!("metamorph")).await;
        let refusal = "the host is registered with \"ironic\", and its annotation asks for \"metamorph\"";
        let refused = site.wait("a", LONGEST, says(refusal)).await;
        assert_eq!((refused.state(), four.ironic.state().as_str()), (State::Provisioned, "active"));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(four.plant.effects().is_empty() && four.ironic.state() == "active");
        annotate(&site, "a", json!("ironic")).await;
        patch(&site, "a", no_image()).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        // Free of work, it is let go, and declared anew for the other.
        let remove = async || {
            site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
            site.gone_but_for_its_secret("a", LONGEST).await;
        };
        remove().await;
        assert_eq!(four.ironic.field("uuid"), Value::Null, "the Ironic has let it go");
        let requests = four.ironic.world.lock().unwrap().bodies.len();
        site.create_again("a", json!({}), machine()).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        patch(&site, "a", image("http://192.0.2.8/native")).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        assert_eq!(four.plant.image().as_deref(), Some("http://192.0.2.8/native"));
        assert_eq!(recorded(&site, "a").await.as_deref(), Some("metamorph"));
        patch(&site, "a", no_image()).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(four.ironic.world.lock().unwrap().bodies.len(), requests, "the Ironic has done nothing meanwhile");
        // And back.
        remove().await;
        let before = four.plant.effects();
        site.create_again("a", to_ironic(), machine()).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        patch(&site, "a", image("http://192.0.2.8/i")).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        assert_eq!((four.ironic.state().as_str(), four.plant.effects()), ("active", before));
        assert_eq!(recorded(&site, "a").await.as_deref(), Some("ironic"));
        server.kill();
    });
}

/// After a deletion that lets a machine run on, its host is applied again: what one provisioner has put on the machine, the record of another does not tell.
#[test]
fn a_machine_that_another_provisioner_has_put_to_use_is_not_taken_for_a_new_one() {
    scenarios::run(15, async |site| {
        let four = Four::new(&site);
        let server = four.plant.serve_with(&site, four.registry());
        site.create_annotated("a", json!({ANNOTATION: "acme"})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        patch(&site, "a", image("http://192.0.2.8/i")).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        let detached = json!({"metadata": {"annotations": {annotation::DETACHED: "true"}}});
        patch(&site, "a", detached).await;
        site.wait("a", LONGEST, |host| {
            host.status.as_ref().is_some_and(|s| s.operational_status == OperationalStatus::Detached)
        })
        .await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone_but_for_its_secret("a", LONGEST).await;
        let system = || four.others.system(&address("a")).map(|(image, _)| image);
        assert_eq!(system().as_deref(), Some("http://192.0.2.8/i"), "it runs on");

        let held = "was last the provisioner \"acme\"'s, and may be in use";
        site.create_again("a", json!({ANNOTATION: "metamorph"}), json!({})).await;
        site.wait("a", LONGEST, says(held)).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!((four.plant.effects(), recorded(&site, "a").await.as_deref()), (vec![], Some("acme")));
        // Its deletion leaves the record as it is, for whoever declares it next.
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone_but_for_its_secret("a", LONGEST).await;
        assert_eq!(recorded(&site, "a").await.as_deref(), Some("acme"));
        site.create_again("a", json!({ANNOTATION: "metamorph"}), json!({})).await;
        site.wait("a", LONGEST, says(held)).await;
        // Nobody's word for another one: it goes on with the one that knows.
        annotate(&site, "a", Value::Null).await;
        site.wait("a", LONGEST, |host| {
            host.status.as_ref().is_some_and(|s| {
                s.provisioning.id.starts_with("acme-") || s.error_message.contains("in use by what was provisioned")
            })
        })
        .await;
        assert_eq!((four.plant.effects(), recorded(&site, "a").await.as_deref()), (vec![], Some("acme")));
        assert_eq!(system().as_deref(), Some("http://192.0.2.8/i"));
        let told = events(&site, "EarlierProvisioner").await;
        assert!(told.len() == 1 && told[0].contains("goes on with that one"), "{told:?}");
        server.kill();
    });
    scenarios::run(16, async |site| {
        let four = Four::new(&site);
        let server = four.plant.serve_with(&site, four.registry());
        site.create_annotated("a", json!({ANNOTATION: "acme"})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone_but_for_its_secret("a", LONGEST).await;
        site.create_again("a", json!({ANNOTATION: "metamorph"}), json!({})).await;
        site.wait("a", LONGEST, says("may be in use: what it runs, that one alone knows")).await;
        let consent = json!({"metadata": {"annotations": {annotation::OVERWRITE_OWNER: "unknown"}}});
        patch(&site, "a", consent).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(recorded(&site, "a").await.as_deref(), Some("metamorph"));
        server.kill();
    });
}

/// The way out of waiting for a program that is away, and a word for whoever looks after its machine.
#[test]
fn a_host_whose_program_is_away_is_let_go_by_force_with_an_event() {
    scenarios::run(17, async |site| {
        let four = Four::new(&site);
        let server = four.plant.serve_with(&site, four.registry());
        for host in ["kept", "deleted"] {
            site.create_annotated(host, json!({ANNOTATION: "acme"})).await;
            site.wait(host, LONGEST, is(State::Available)).await;
            patch(&site, host, image("http://192.0.2.8/i")).await;
            site.wait(host, LONGEST, is(State::Provisioned)).await;
        }
        four.gone.send_replace(true);
        let effects = || ["kept", "deleted"].map(|host| four.others.effects(&address(host)));
        let before = effects();
        site.hosts().delete("deleted", &DeleteParams::default()).await.unwrap();
        site.wait("deleted", LONGEST, says("the deletion waits for that")).await;
        let force = json!({"metadata": {"annotations": {annotation::DETACHED: "{\"force\":true}"}}});
        patch(&site, "kept", force.clone()).await;
        site.wait("kept", 600, |host| {
            host.status.as_ref().is_some_and(|s| s.operational_status == OperationalStatus::Detached)
        })
        .await;
        patch(&site, "deleted", force).await;
        site.gone_but_for_its_secret("deleted", 600).await;
        for reason in ["DetachedByForce", "DeletionGaveUp"] {
            let told = events(&site, reason).await;
            assert!(told.len() == 1 && told[0].contains("\"acme\""), "{reason}: {told:?}");
        }
        assert_eq!(effects(), before, "the machines run on");
        server.kill();
    });
}

/// What others have put on a machine, no record tells: another provisioner does not begin there by itself, whichever had the host.
#[test]
fn a_machine_that_was_left_to_others_is_not_given_to_another_provisioner_unasked() {
    for (earlier, later) in [("ironic", "metamorph"), ("metamorph", "ironic")] {
        scenarios::run(18, async |site| {
            let four = Four::new(&site);
            let server = four.plant.serve_with(&site, four.registry());
            let machine = || json!({"bootMACAddress": null});
            site.create_with("a", json!({ANNOTATION: earlier}), machine()).await;
            site.wait("a", LONGEST, is(State::Available)).await;
            patch(&site, "a", json!({"spec": {"externallyProvisioned": true}})).await;
            site.wait("a", LONGEST, is(State::ExternallyProvisioned)).await;
            tokio::time::sleep(Duration::from_secs(300)).await;
            site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
            site.gone_but_for_its_secret("a", LONGEST).await;
            let before = (four.plant.effects(), four.ironic.world.lock().unwrap().bodies.len());
            site.create_again("a", json!({ANNOTATION: later}), machine()).await;
            site.wait("a", LONGEST, says("or the machine was left to others")).await;
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert_eq!((four.plant.effects(), four.ironic.world.lock().unwrap().bodies.len()), before, "{earlier}");
            let consent = json!({"metadata": {"annotations": {annotation::OVERWRITE_OWNER: "unknown"}}});
            patch(&site, "a", consent).await;
            site.wait("a", LONGEST, is(State::Available)).await;
            assert_eq!(recorded(&site, "a").await.as_deref(), Some(later));
            server.kill();
        });
    }
}
