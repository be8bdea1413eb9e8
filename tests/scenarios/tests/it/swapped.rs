//! Two hosts whose machines have changed places: cables, blades, the addresses of their BMCs.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use api::metamorph::MachineRecord;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use scenarios::Site;
use scenarios::plant::Plant;
use serde_json::{Value, json};

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;

async fn patch(site: &Site, name: &str, change: &Value) {
    site.hosts().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

#[test]
fn machines_that_have_changed_places_are_let_alone_by_name() {
    scenarios::run(31, async |site| {
        let plant = Plant::new(site.weather.clone());
        let plants = [plant.clone(), plant.beside("b")];
        let _server = plant.serve(&site);
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"});
        for name in ["a", "b"] {
            site.create_host(name).await;
            site.wait(name, LONGEST, |host| host.state() == State::Available).await;
            patch(&site, name, &json!({"spec": {"image": image}})).await;
            site.wait(name, LONGEST, |host| host.state() == State::Provisioned).await;
        }
        tokio::time::sleep(Duration::from_secs(300)).await;
        let before = [plants[0].effects(), plants[1].effects()];
        plants[0].changes_places_with(&plants[1]);
        for name in ["a", "b"] {
            patch(&site, name, &json!({"spec": {"image": null, "online": false}})).await;
        }
        for name in ["a", "b"] {
            let failed = |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_type.is_some());
            let host = site.wait(name, LONGEST, failed).await;
            let reported = host.status.unwrap().error_message;
            assert!(
                reported.contains("the BMC shows another machine") && reported.contains("serial number"),
                "{reported}"
            );
            assert!(
                reported.contains(if name == "a" { "S-200, recorded S-100" } else { "S-100, recorded S-200" }),
                "{reported}"
            );
            // Whose it is, and so what has happened.
            let other = if name == "a" { "default/b" } else { "default/a" };
            assert!(reported.contains(&format!("it is the machine of the host {other}")), "{reported}");
        }
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!([plants[1].effects(), plants[0].effects()], before, "a tenant was touched");
    });
}

/// The look at the machine that a consent is for takes its time, and what watches bring comes late.
#[test]
fn a_consent_that_has_been_taken_back_accepts_no_machine() {
    for seed in 40..52 {
        scenarios::run(seed, async |site| {
            let plant = Plant::new(site.weather.clone());
            let other = plant.beside("b");
            let _server = plant.serve(&site);
            site.create_host("a").await;
            site.wait("a", LONGEST, |host| host.state() == State::Available).await;
            plant.changes_places_with(&other);
            let reported =
                |host: &BareMetalHost| host.status.as_ref().map(|s| s.error_message.clone()).unwrap_or_default();
            patch(&site, "a", &json!({"spec": {"online": false}})).await;
            let host = site.wait("a", LONGEST, |host| reported(host).contains("accept-machine")).await;
            let reported = reported(&host);
            let fingerprint = reported.rsplit(' ').next().unwrap().to_owned();
            site.weather.lags(Duration::from_secs(60));
            let consent = |value: Option<&str>| json!({"metadata": {"annotations": {"metamorph.metal3.io/accept-machine": value}}});
            patch(&site, "a", &consent(Some(&fingerprint))).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            patch(&site, "a", &consent(None)).await;
            tokio::time::sleep(Duration::from_secs(600)).await;
            let record = Api::<MachineRecord>::default_namespaced(site.observer()).get("a").await.unwrap();
            assert!(record.spec.accepted.is_none(), "seed {seed}: {:?}", record.spec.accepted);
            // Given again, and left, it counts.
            patch(&site, "a", &consent(Some(&fingerprint))).await;
            site.wait("a", LONGEST, |host| {
                let consents =
                    host.metadata.annotations.iter().flatten().any(|(key, _)| key.ends_with("accept-machine"));
                !consents && host.status.as_ref().is_some_and(|status| status.error_type.is_none())
            })
            .await;
            let record = Api::<MachineRecord>::default_namespaced(site.observer()).get("a").await.unwrap();
            assert_eq!(record.spec.accepted.unwrap().fingerprint, fingerprint);
        });
    }
}

/// A tenant who may write MachineRecords in his own namespace makes one up, of another tenant's machine, and writes into it that it has been his since 1970.
#[test]
fn a_record_that_is_made_up_takes_nobodys_machine() {
    scenarios::run(32, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve(&site);
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"});
        site.create_host("a").await;
        site.wait("a", LONGEST, |host| host.state() == State::Available).await;
        patch(&site, "a", &json!({"spec": {"image": image}})).await;
        site.wait("a", LONGEST, |host| host.state() == State::Provisioned).await;

        let namespace = serde_json::from_value(json!({"metadata": {"name": "tenant"}})).unwrap();
        Api::<Namespace>::all(site.observer()).create(&PostParams::default(), &namespace).await.unwrap();
        let hosts: Api<BareMetalHost> = Api::namespaced(site.observer(), "tenant");
        let host = serde_json::from_value(json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "squat"}, "spec": {"online": false}}));
        let uid = hosts.create(&PostParams::default(), &host.unwrap()).await.unwrap().metadata.uid;
        let known = Api::<MachineRecord>::default_namespaced(site.observer()).get("a").await.unwrap().spec;
        let made_up = serde_json::from_value(
            json!({"apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "MachineRecord",
            "metadata": {"name": "squat"}, "spec": {"host": {"name": "squat", "uid": uid}, "bmc": known.bmc, "agent": known.agent,
                "accepted": {"fingerprint": "x", "time": "1970-01-01T00:00:00Z", "requiresMark": false}}}),
        );
        let records: Api<MachineRecord> = Api::namespaced(site.observer(), "tenant");
        records.create(&PostParams::default(), &made_up.unwrap()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;

        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        for _ in 0..LONGEST {
            if site.hosts().get_opt("a").await.unwrap().is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(plant.image(), None, "the host went, and its disk was left: {:#?}", plant.effects());
    });
}

/// The same by one who has had a host, and so a record, for longer: he edits that one.
#[test]
fn a_record_of_old_that_is_edited_takes_nobodys_machine() {
    scenarios::run(33, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _beside = plant.beside("b");
        let _server = plant.serve(&site);
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"});
        site.create_host("b").await;
        site.wait("b", LONGEST, |host| host.state() == State::Available).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        site.create_host("a").await;
        site.wait("a", LONGEST, |host| host.state() == State::Available).await;
        patch(&site, "a", &json!({"spec": {"image": image}})).await;
        site.wait("a", LONGEST, |host| host.state() == State::Provisioned).await;

        let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
        let known = records.get("a").await.unwrap().spec;
        let edit = json!({"spec": {"bmc": known.bmc, "agent": known.agent}});
        records.patch("b", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;

        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        for _ in 0..LONGEST {
            if site.hosts().get_opt("a").await.unwrap().is_none() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(plant.image(), None, "the host went, and its disk was left: {:#?}", plant.effects());
    });
}

/// Somebody, or another version, has written what this server's types do not hold. The machine stays that host's: no other host gets it.
#[test]
fn the_machine_of_a_host_that_cannot_be_read_stays_its_own() {
    for (seed, of_record) in [(61, false), (62, true)] {
        scenarios::run(seed, async |site| {
            let plant = Plant::new(site.weather.clone());
            let other = plant.beside("b");
            let server = plant.serve(&site);
            let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"});
            site.create_host("a").await;
            site.wait("a", LONGEST, |host| host.state() == State::Available).await;
            patch(&site, "a", &json!({"spec": {"image": image}})).await;
            site.wait("a", LONGEST, |host| host.state() == State::Provisioned).await;
            server.kill();
            if of_record {
                let kind = ApiResource::erase::<MachineRecord>(&());
                let odd = json!({"spec": {"provisioner": {"version": 4_294_967_296_u64}}});
                let records: Api<DynamicObject> = Api::default_namespaced_with(site.observer(), &kind);
                records.patch("a", &PatchParams::default(), &Patch::Merge(odd)).await.unwrap();
            } else {
                let kind = ApiResource::erase::<BareMetalHost>(&());
                let odd = json!({"status": {"provisioning": {"state": "nonsense"}}});
                let hosts: Api<DynamicObject> = Api::default_namespaced_with(site.observer(), &kind);
                hosts.patch_status("a", &PatchParams::default(), &Patch::Merge(odd)).await.unwrap();
            }
            let before = plant.effects();
            plant.changes_places_with(&other);
            let _server = plant.serve(&site);
            site.create_host("b").await;
            let failed = |host: &BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_type.is_some());
            let reported = site.wait("b", LONGEST, failed).await.status.unwrap().error_message;
            assert!(reported.contains("it is the machine of the host default/a"), "{reported}");
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert_eq!(other.effects(), before, "a tenant was touched");
        });
    }
}

/// What is written beside the consent while that is used up is another wish.
#[test]
fn a_wish_that_is_written_while_a_consent_is_used_up_stays() {
    for seed in 70..82 {
        scenarios::run(seed, async |site| {
            let plant = Plant::new(site.weather.clone());
            let other = plant.beside("b");
            let _server = plant.serve(&site);
            site.create_host("a").await;
            site.wait("a", LONGEST, |host| host.state() == State::Available).await;
            plant.changes_places_with(&other);
            let reported =
                |host: &BareMetalHost| host.status.as_ref().map(|s| s.error_message.clone()).unwrap_or_default();
            patch(&site, "a", &json!({"spec": {"online": false}})).await;
            let host = site.wait("a", LONGEST, |host| reported(host).contains("accept-machine")).await;
            let reported = reported(&host);
            let fingerprint = reported.rsplit(' ').next().unwrap().to_owned();
            let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
            site.weather.rough(0, Duration::from_secs(20));
            patch(&site, "a", &annotated("metamorph.metal3.io/accept-machine", &fingerprint)).await;
            let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
            while records.get("a").await.unwrap().spec.accepted.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let (key, value) = if seed % 2 == 0 {
                ("inspect.metal3.io", "disabled")
            } else {
                ("metamorph.metal3.io/accept-machine", "another")
            };
            patch(&site, "a", &annotated(key, value)).await;
            tokio::time::sleep(Duration::from_secs(900)).await;
            let host = site.hosts().get("a").await.unwrap();
            let found = host.metadata.annotations.unwrap_or_default().get(key).cloned();
            assert_eq!(found.as_deref(), Some(value), "seed {seed}");
        });
    }
}
