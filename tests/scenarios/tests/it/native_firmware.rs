//! The native provisioner makes settings of the firmware: once for a wish, whatever is killed, and it leaves a tenant alone.

use std::time::Duration;

use api::metal3::{BareMetalHost, HostFirmwareSettings, HostUpdatePolicy, ProvisioningState as State};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use scenarios::plant::Plant;
use scenarios::{Site, is};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

async fn wish(site: &Site, delay: &str) {
    let change = json!([{"op": "replace", "path": "/spec/settings", "value": {"BootDelay": delay}}]);
    let change = Patch::<()>::Json(serde_json::from_value(change).unwrap());
    let api: Api<HostFirmwareSettings> = Api::default_namespaced(site.observer());
    api.patch("a", &PatchParams::default(), &change).await.unwrap();
}

/// The wish of this generation is in force, and the host is told so.
async fn in_force(site: &Site, delay: &str) -> bool {
    let api: Api<HostFirmwareSettings> = Api::default_namespaced(site.observer());
    let object = api.get("a").await.unwrap();
    let Some(status) = object.status else { return false };
    let is_applied = status.conditions.iter().any(|condition| {
        condition.type_ == "ChangeDetected"
            && condition.status == "False"
            && condition.observed_generation == object.metadata.generation
    });
    is_applied && status.settings.get("BootDelay").is_some_and(|now| now == delay)
}

async fn wait_in_force(site: &Site, delay: &str) {
    for _ in 0..LONGEST {
        if in_force(site, delay).await {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("BootDelay is not {delay}");
}

fn count(effects: &[String], what: &str) -> usize {
    effects.iter().filter(|effect| effect.starts_with(what)).count()
}

#[test]
fn a_setting_is_made_once_for_a_wish_whatever_is_killed() {
    for seed in 700..712 {
        scenarios::run(seed, async |site| {
            let plant = Plant::new(site.weather.clone());
            let mut server = plant.serve(&site);
            site.create_host("a").await;
            site.wait("a", LONGEST, is(State::Available)).await;
            for (round, delay) in [(1, "30"), (2, "5")] {
                wish(&site, delay).await;
                // Some moments within the looks at the wish, some within the restart; none in the first run.
                for _ in 0..(seed - 700).min(4) {
                    sleep(Duration::from_millis(site.weather.below(40_000))).await;
                    server.kill();
                    server = plant.serve(&site);
                }
                wait_in_force(&site, delay).await;
                site.wait("a", LONGEST, is(State::Available)).await;
                let effects = plant.effects();
                assert_eq!(count(&effects, "set BootDelay="), round, "seed {seed}: {effects:#?}");
            }
            let effects = plant.effects();
            assert!(!effects.iter().any(|effect| effect.ends_with("an agent in work")), "seed {seed}: {effects:#?}");
        });
    }
}

#[test]
fn a_tenant_keeps_its_settings_without_a_policy() {
    scenarios::run(720, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let digest = "00".repeat(32);
        let image: Value = json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": digest, "checksumType": "sha256", "format": "raw"}}});
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(image)).await.unwrap();
        site.wait("a", LONGEST, |host| {
            host.state() == State::Provisioned && host.status.as_ref().is_some_and(|status| status.powered_on)
        })
        .await;
        wish(&site, "30").await;
        sleep(Duration::from_secs(3600)).await;
        assert!(plant.runs_its_disk() && !in_force(&site, "30").await);
        assert_eq!(count(&plant.effects(), "set "), 0, "{:#?}", plant.effects());
    });
}

/// A machine that was switched off for a service comes on again, whatever the Kubernetes API does not take.
#[test]
fn a_machine_in_use_comes_on_without_a_service_that_cannot_be_recorded() {
    for refused in ["/machinerecords/", "/hostfirmwaresettings/a/status"] {
        for code in [403, 500] {
            scenarios::run(721, async |site| {
                let plant = Plant::new(site.weather.clone());
                let _server = plant.serve(&site);
                site.create_host("a").await;
                site.wait("a", LONGEST, is(State::Available)).await;
                let policy = json!({"metadata": {"name": "a"}, "spec": {"firmwareSettings": "onReboot"}});
                let policies: Api<HostUpdatePolicy> = Api::default_namespaced(site.observer());
                policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
                let digest = "00".repeat(32);
                let image: Value = json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": digest, "checksumType": "sha256", "format": "raw"}}});
                let hosts = site.hosts();
                hosts.patch("a", &PatchParams::default(), &Patch::Merge(image)).await.unwrap();
                let runs = |host: &BareMetalHost| {
                    let status = host.status.as_ref().unwrap();
                    host.state() == State::Provisioned && status.powered_on
                };
                site.wait("a", LONGEST, runs).await;
                sleep(Duration::from_secs(600)).await;
                site.weather.refuses(move |method, path| {
                    (method != "GET" && path.contains(refused)).then(|| (code, "a webhook does not answer".to_owned()))
                });
                wish(&site, "30").await;
                let reboot = json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}});
                hosts.patch("a", &PatchParams::default(), &Patch::Merge(reboot)).await.unwrap();
                sleep(Duration::from_secs(900)).await;
                let host = hosts.get("a").await.unwrap();
                let asked = host.annotations().contains_key("reboot.metal3.io");
                assert!(!asked && runs(&host) && plant.runs_its_disk(), "{refused} {code}: {:#?}", host.status);
                assert_eq!(count(&plant.effects(), "set "), 0, "{refused} {code}: {:#?}", plant.effects());
                site.weather.mend();
            });
        }
    }
}
