//! Tests of what a host's BMC can read: asked for, waited for, ended, and nothing of them is left behind.

use std::time::Duration;

use api::metal3::ProvisioningState as State;
use api::metamorph::{HostDiagnosis, OperationPhase as Phase, TestMediumResult};
use kube::api::{Api, DeleteParams};
use scenarios::plant::Plant;
use scenarios::{Machines, Site, fixture, is};
use serde_json::json;
use tokio::time::sleep;

use crate::requests::{all, an_image, ask, ended, image};

async fn test(site: &Site, name: &str, allow_in_use: bool) {
    let options = json!({ "testMedium": true, "allowInUse": allow_in_use });
    ask(site, name, json!({ "type": "Diagnose", "host": { "name": "a" }, "diagnose": options })).await;
}

/// Waits until another medium than this is in the drive.
async fn comes_in(plant: &Plant, before: Option<&str>) -> String {
    for _ in 0..120 {
        match plant.boot_medium() {
            Some(url) if Some(url.as_str()) != before => return url,
            _ => sleep(Duration::from_secs(1)).await,
        }
    }
    panic!("no medium comes in: {:?}", plant.boot_medium());
}

#[test]
fn a_bmc_is_seen_to_read_before_a_boot_depends_on_it() {
    scenarios::run(91, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve_requests(&site);
        site.create_host("a").await;
        site.wait("a", 7200, is(State::Available)).await;
        let agents = plant.boot_medium();
        let before = plant.effects().len();
        test(&site, "reads", false).await;
        let url = comes_in(&plant, agents.as_deref()).await;
        plant.bmc_reads().await;
        let status = ended(&site, "reads").await;
        let told = status.test_medium.clone().expect("it is told");
        assert_eq!(
            (status.phase, told.result, told.from.as_deref()),
            (Phase::Succeeded, TestMediumResult::Read, Some("192.0.2.7")),
            "{status:?}"
        );
        assert!(status.message.as_ref().is_some_and(|message| message.contains("the BMC reaches http")), "{status:?}");
        assert!(!serde_json::to_string(&status).unwrap().contains(&url), "who may read it may not fetch a medium");
        assert_eq!(plant.boot_medium(), None);
        let found: HostDiagnosis = Api::default_namespaced(site.observer()).get("a").await.unwrap();
        assert!(found.status.unwrap().read.contains(&"test medium".to_owned()));
        test(&site, "silent", false).await;
        let status = ended(&site, "silent").await;
        assert_eq!(status.test_medium.map(|told| told.result), Some(TestMediumResult::NotRead));
        let found: HostDiagnosis = Api::default_namespaced(site.observer()).get("a").await.unwrap();
        let first = found.status.unwrap().causes[0].clone();
        assert_eq!((first.code.as_str(), first.certainty.as_str()), ("MediumNeverRead", "Possible"), "{first:?}");
        // The machine was not switched, and booted nothing.
        let effects = plant.effects().split_off(before);
        assert!(
            effects.iter().all(|effect| effect.contains("medium in") || effect.contains("medium out")),
            "{effects:?}"
        );
        assert!(!plant.is_overridden());
        plant.refuses_media(true);
        test(&site, "refused", false).await;
        let status = ended(&site, "refused").await;
        assert_eq!(status.test_medium.map(|told| told.result), Some(TestMediumResult::Refused));
        assert!(status.message.is_some_and(|message| message.contains("400 Bad Request")));
    });
}

#[test]
fn what_a_killed_server_or_a_deleted_request_leaves_in_the_drive_goes() {
    scenarios::run(92, async |site| {
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve_requests(&site);
        site.create_host("a").await;
        site.wait("a", 7200, is(State::Available)).await;
        test(&site, "killed", false).await;
        let first = comes_in(&plant, plant.boot_medium().as_deref()).await;
        server.kill();
        let _server = plant.serve_requests(&site);
        let second = comes_in(&plant, Some(&first)).await;
        assert_ne!(first, second);
        assert_eq!(ended(&site, "killed").await.phase, Phase::Succeeded);
        assert_eq!(plant.boot_medium(), None);
        test(&site, "withdrawn", false).await;
        comes_in(&plant, None).await;
        all(&site).delete("withdrawn", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(1200)).await;
        assert_eq!(plant.boot_medium(), None);
    });
}

#[test]
fn a_machine_in_use_and_a_drive_in_use_are_left_alone() {
    scenarios::run(93, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve_requests(&site);
        site.create_host("a").await;
        site.wait("a", 7200, is(State::Available)).await;
        image(&site, an_image()).await;
        site.wait("a", 7200, is(State::Provisioned)).await;
        let before = plant.effects();
        test(&site, "refused", false).await;
        let error = ended(&site, "refused").await.error.unwrap();
        assert!(error.cause == "NotNow" && error.message.contains("allowInUse"), "{error:?}");
        plant.somebody_puts_in(Some("http://elsewhere/rescue.iso"));
        test(&site, "taken", true).await;
        let error = ended(&site, "taken").await.error.unwrap();
        assert!(error.cause == "NotNow" && error.message.contains("has not put there"), "{error:?}");
        assert_eq!((plant.boot_medium().as_deref(), plant.effects()), (Some("http://elsewhere/rescue.iso"), before));
        plant.somebody_puts_in(None);
        test(&site, "consented", true).await;
        assert_eq!(
            ended(&site, "consented").await.test_medium.map(|told| told.result),
            Some(TestMediumResult::NotRead)
        );
        assert!(plant.runs_its_disk() && plant.boot_medium().is_none());
    });
}

#[test]
fn a_provisioner_without_it_says_so() {
    scenarios::run(94, async |site| {
        let _controller = site.requested(fixture(&Machines::default()));
        site.create_host("a").await;
        site.wait("a", 7200, is(State::Available)).await;
        test(&site, "unserved", false).await;
        let error = ended(&site, "unserved").await.error.unwrap();
        assert!(error.cause == "NotServed" && error.message.contains("has no test medium"), "{error:?}");
    });
}
