//! Two hosts whose machines have changed places: cables, blades, the addresses of their BMCs.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use kube::api::{Patch, PatchParams};
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
            let told = host.status.unwrap().error_message;
            assert!(told.contains("the BMC shows another machine") && told.contains("serial number"), "{told}");
            assert!(
                told.contains(if name == "a" { "S-200, recorded S-100" } else { "S-100, recorded S-200" }),
                "{told}"
            );
            // Whose it is, and so what has happened.
            let other = if name == "a" { "default/b" } else { "default/a" };
            assert!(told.contains(&format!("it is the machine of the host {other}")), "{told}");
        }
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!([plants[1].effects(), plants[0].effects()], before, "a tenant was touched");
    });
}
