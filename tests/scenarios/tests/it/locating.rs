//! The light by which a server is found at its rack, from the HostOperation to the machine: switched once, of the host's own machine alone, and beside whatever else is done.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{ProvisioningState as State, annotation};
use api::metamorph::{HostOperation, HostOperationStatus, OperationPhase as Phase};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use operator::Detect;
use provisioner_ironic::{Ironic, IronicProvisioner};
use provisioner_kit::Trail;
use scenarios::plant::lab::Lab;
use scenarios::{Effect, Machines, Site, Trouble, address, fixture, is};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::requests::{an_image, ask, ended, image};
use crate::scripted::Scripted;

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

/// Asks for the light of this host, and waits for the end.
async fn switched(site: &Site, name: &str, host: &str, lit: bool) -> HostOperationStatus {
    ask(site, name, json!({"type": "Locate", "host": {"name": host}, "locate": {"lit": lit}})).await;
    ended(site, name).await
}

fn lights(machines: &Machines) -> Vec<Effect> {
    let is_light = |effect: &Effect| matches!(effect, Effect::Light | Effect::Darken);
    machines.effects(&address("a")).into_iter().filter(is_light).collect()
}

#[test]
fn a_light_is_switched_on_and_off_while_the_host_is_provisioned_and_nothing_else_is_done() {
    let machines = Machines::default();
    scenarios::run(61, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        image(&site, an_image()).await;
        site.wait("a", LONGEST, is(State::Provisioning)).await;
        let status = switched(&site, "on", "a", true).await;
        assert_eq!((status.phase, machines.is_lit(&address("a"))), (Phase::Succeeded, true), "{status:?}");
        assert!(status.message.is_some_and(|message| message.contains("is on: the light of fixture:")));
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        // It stays until somebody says otherwise.
        assert!(machines.is_lit(&address("a")));
        let before: Vec<Effect> = machines.effects(&address("a"));
        let status = switched(&site, "off", "a", false).await;
        assert_eq!((status.phase, machines.is_lit(&address("a"))), (Phase::Succeeded, false), "{status:?}");
        assert_eq!(machines.effects(&address("a")), [before, vec![Effect::Darken]].concat());
        assert_eq!(lights(&machines), [Effect::Light, Effect::Darken]);
        let pause = Patch::Merge(json!({"metadata": {"annotations": {annotation::PAUSED: ""}}}));
        site.hosts().patch("a", &PatchParams::default(), &pause).await.unwrap();
        let error = switched(&site, "paused", "a", true).await.error.unwrap();
        assert!(error.cause == "NotNow" && error.message.contains("is paused"), "{error:?}");
        assert_eq!(switched(&site, "nobody", "b", true).await.error.unwrap().cause, "HostNotFound");
        let go_on = Patch::Merge(json!({"metadata": {"annotations": {annotation::PAUSED: null}}}));
        site.hosts().patch("a", &PatchParams::default(), &go_on).await.unwrap();
        site.freeze(Some("the network is rebuilt")).await;
        let error = switched(&site, "frozen", "a", true).await.error.unwrap();
        assert!(error.cause == "NotNow" && error.message.contains("is frozen"), "{error:?}");
        assert_eq!(lights(&machines).len(), 2);
    });
}

/// By the native provisioner's own client, to whole simulated BMCs: in the forms that lights have, refused, not followed, or absent.
#[test]
fn a_bmcs_light_is_lit_in_the_form_that_it_has_and_what_it_does_not_do_is_told() {
    scenarios::run(65, async |site| {
        let lab = Lab::new(&site);
        let _server = lab.serve(&site, Detect::Off);
        let stuck = json!({"method": "PATCH", "path": "*", "action": {"type": "answer", "status": 204}});
        let rows = [
            ("led", None, "led", None, "IndicatorLED of /redfish/v1/Systems/led is Blinking"),
            ("active", None, "active", None, "LocationIndicatorActive of /redfish/v1/Systems/active is true"),
            ("dell", Some("Dell Inc."), "chassis", None, "IndicatorLED of /redfish/v1/Chassis/1U is Blinking"),
            ("stuck", None, "led", Some(stuck), "it takes the order and does not follow"),
            ("none", None, "none", None, "there is neither LocationIndicatorActive nor IndicatorLED"),
        ];
        for (name, maker, light, rule, words) in rows {
            let bench = lab.bench(name, maker);
            bench.bmc.change_settings(&json!({"light": light})).await.unwrap();
            site.create_with(name, json!({}), bench.spec(name)).await;
            site.wait(name, LONGEST, is(State::Available)).await;
            let is_well = rule.is_none() && light != "none";
            if let Some(rule) = rule {
                bench.bmc.faults.add(serde_json::from_value(rule).unwrap()).unwrap();
            }
            let powered = bench.bmc.power().on;
            let status = switched(&site, &format!("{name}-on"), name, true).await;
            assert!(status.message.as_ref().is_some_and(|message| message.contains(words)), "{name}: {status:?}");
            let lit = || bench.bmc.system().indicator;
            if is_well {
                assert_eq!((status.phase, lit().as_str()), (Phase::Succeeded, "Blinking"), "{name}");
                let status = switched(&site, &format!("{name}-off"), name, false).await;
                assert_eq!((status.phase, lit().as_str()), (Phase::Succeeded, "Off"), "{name}: {status:?}");
            } else {
                let error = status.error.unwrap();
                assert_eq!((error.cause.as_str(), lit().as_str()), ("BmcRefused", "Off"), "{name}: {error:?}");
                assert!(error.advice.is_some());
            }
            assert_eq!(bench.bmc.power().on, powered, "{name}");
            assert_eq!(site.hosts().get(name).await.unwrap().state(), State::Available);
        }
    });
}

#[test]
fn the_light_of_another_machine_and_of_a_host_declared_anew_stays_as_it_is() {
    let machines = Machines::default();
    scenarios::run(62, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        machines.trouble(&address("a"), Trouble::Another, true);
        let error = switched(&site, "another", "a", true).await.error.unwrap();
        assert_eq!(error.cause, "AnotherMachine", "{error:?}");
        machines.trouble(&address("a"), Trouble::Another, false);
        let host = json!({"name": "a", "uid": "00000000-0000-4000-8000-000000000000"});
        ask(&site, "before", json!({"type": "Locate", "host": host, "locate": {"lit": true}})).await;
        assert_eq!(ended(&site, "before").await.error.unwrap().cause, "HostNotFound");
        machines.trouble(&address("a"), Trouble::Silent, true);
        assert_eq!(switched(&site, "silent", "a", true).await.error.unwrap().cause, "BmcUnreachable");
        assert_eq!(lights(&machines), []);
    });
}

#[test]
fn whoever_is_killed_whatever_is_lost_a_light_is_switched_once() {
    for seed in 0..8 {
        let machines = Machines::default();
        let lights = scenarios::run(seed, async |mut site| {
            site.weather.rough(30, Duration::from_millis(500));
            site.weather.lags(Duration::from_secs(if seed % 2 == 0 { 0 } else { 10 }));
            let mut controller = site.requested(fixture(&machines));
            site.create_host("a").await;
            site.wait("a", LONGEST, is(State::Available)).await;
            ask(&site, "on", json!({"type": "Locate", "host": {"name": "a"}, "locate": {"lit": true}})).await;
            for _ in 0..site.weather.below(4) {
                sleep(Duration::from_millis(site.weather.below(2_000))).await;
                controller.abort();
                if site.weather.below(2) == 0 {
                    site.restart().await;
                }
                controller = site.requested(fixture(&machines));
            }
            let status = ended(&site, "on").await;
            assert_eq!(status.phase, Phase::Succeeded, "seed {seed}: {status:?}");
            sleep(Duration::from_secs(3600)).await;
            lights(&machines)
        });
        assert_eq!(lights, [Effect::Light], "seed {seed}");
    }
}

#[test]
fn a_host_whose_provisioner_has_no_light_is_told_which_provisioner_that_is() {
    let machines = Machines::default();
    scenarios::run(63, async |site| {
        let scripted = Scripted::new(Trail::default());
        let ironic = Ironic { site: provisioner_ironic::Site::new("hall"), transport: Arc::new(scripted.clone()) };
        let registry = fixture(&machines).with(Arc::new(IronicProvisioner::new(vec![ironic])));
        let _controller = site.requested(registry);
        let annotations = json!({"metamorph.metal3.io/provisioner": "ironic"});
        site.create_with("a", annotations, json!({"bootMACAddress": "52:54:00:00:00:01"})).await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let error = switched(&site, "on", "a", true).await.error.unwrap();
        assert_eq!(error.cause, "NotServed", "{error:?}");
        assert!(error.message.contains("\"ironic\", switches no locating light"), "{error:?}");
        assert!(error.advice.is_some_and(|advice| advice.contains("at the BMC itself")));
    });
}

#[test]
fn a_request_that_does_not_say_whether_the_light_is_to_be_lit_is_not_admitted() {
    scenarios::run(64, async |site| {
        let kind = ApiResource::erase::<HostOperation>(&());
        let all: Api<DynamicObject> = Api::default_namespaced_with(site.observer(), &kind);
        let create = async |spec: Value| {
            let object = json!({
                "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": {"name": "x"}, "spec": spec
            });
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            all.create(&PostParams::default(), &object).await.err().map(|error| error.to_string())
        };
        for (spec, words) in [
            (json!({"type": "Locate"}), "the type Locate needs locate.lit"),
            (json!({"type": "Locate", "locate": {}}), "locate.lit"),
            (json!({"type": "Locate", "locate": {"lit": "On"}}), "boolean"),
            (json!({"type": "CollectLogs", "locate": {"lit": true}}), "locate is of the type Locate"),
        ] {
            let mut spec = spec;
            spec["host"] = json!({"name": "a"});
            let refused = create(spec.clone()).await.unwrap_or_else(|| panic!("{spec} is admitted"));
            assert!(refused.contains(words), "{spec}: {refused}");
        }
        let admitted = create(json!({"type": "Locate", "host": {"name": "a"}, "locate": {"lit": false}})).await;
        assert_eq!(admitted, None);
    });
}
