//! Hosts in error say why: once an error, only where that is wished, and no word of it is left when they have recovered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState, annotation, label};
use api::metamorph::{DiagnosisPhase, HostDiagnosis, OperationPhase as Phase};
use bmc::HealthLevel;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use operator::Detect;
use provisioner::Registry;
use scenarios::plant::Plant;
use scenarios::{Machines, Site, Trouble, address, fixture};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::requests::{ask, ended};

fn diagnoses(site: &Site) -> Api<HostDiagnosis> {
    Api::default_namespaced(site.observer())
}

async fn label_host(site: &Site, value: Value) {
    let change = Patch::Merge(json!({ "metadata": { "labels": { (label::ERROR_DETECT): value } } }));
    site.hosts().patch("a", &PatchParams::default(), &change).await.unwrap();
}

fn is_in_error(host: &BareMetalHost) -> bool {
    host.status.as_ref().is_some_and(|status| status.error_type.is_some())
}

#[test]
fn an_error_is_diagnosed_once_and_its_marks_go_with_it() {
    let machines = Machines::default();
    scenarios::run(81, async |site| {
        machines.trouble(&address("a"), Trouble::Silent, true);
        let _controller = site.diagnosing(fixture(&machines), Detect::All);
        site.create_host("a").await;
        let host = site.wait("a", 3600, |host| host.annotation(annotation::DIAGNOSIS).is_some()).await;
        assert!(is_in_error(&host));
        assert_eq!(host.labels().get(label::ERROR_TYPE).map(String::as_str), Some("RegistrationError"));
        let summary: Value = serde_json::from_str(host.annotation(annotation::DIAGNOSIS).unwrap()).unwrap();
        assert_eq!(
            (summary["code"].as_str(), summary["fixer"].as_str()),
            (Some("BmcTimeout"), Some("Network")),
            "{summary}"
        );
        let found = diagnoses(&site).get("a").await.unwrap();
        assert_eq!(found.metadata.owner_references.as_ref().unwrap()[0].uid, host.uid().unwrap());
        let status = found.status.unwrap();
        assert_eq!((status.phase, status.trigger.as_str()), (DiagnosisPhase::Found, "Error"));
        assert_eq!(status.error_type.as_deref(), Some("registration error"));
        let first = &status.causes[0];
        assert_eq!((first.code.as_str(), first.certainty.as_str()), ("BmcTimeout", "Certain"), "{first:?}");
        assert!(!first.advice.is_empty() && !first.evidence.is_empty() && status.read.contains(&"access".to_owned()));
        assert!(status.not_read.iter().any(|unread| unread.what == "logs"));
        // The cause stands behind the error's words, and is no other error.
        let host = site.wait("a", 60, |host| told(host).is_some()).await;
        assert_eq!(told(&host), summary["message"].as_str());
        let status = host.status.as_ref().unwrap();
        let said = status.error_message.split(MARK).next().unwrap();
        assert!(status.error_count <= 2 && !said.is_empty(), "{status:?}");
        assert!(status.conditions.iter().all(|condition| !condition.message.contains(MARK)), "{status:?}");
        // The same error is read once, however long it lasts and however often the host is tried again.
        let version = diagnoses(&site).get("a").await.unwrap().resource_version();
        sleep(Duration::from_secs(120)).await;
        let before = own_writes(&site);
        sleep(Duration::from_secs(3 * 3600)).await;
        assert_eq!(diagnoses(&site).get("a").await.unwrap().resource_version(), version);
        assert_eq!(own_writes(&site), before);
        let host = site.hosts().get("a").await.unwrap();
        assert_eq!(told(&host), summary["message"].as_str(), "it stays with each attempt");
        assert!(host.status.as_ref().unwrap().error_count > 2, "{:?}", host.status);
        machines.trouble(&address("a"), Trouble::Silent, false);
        let marked = |host: &BareMetalHost| {
            host.annotation(annotation::DIAGNOSIS).is_some() || host.labels().contains_key(label::ERROR_TYPE)
        };
        let host = site.wait("a", 7200, |host| !is_in_error(host) && !marked(host)).await;
        assert!(!host.status.unwrap().error_message.contains(MARK));
    });
}

/// Between an error's words and its cause.
const MARK: &str = " — Cause: ";

/// The cause in the host's message.
fn told(host: &BareMetalHost) -> Option<&str> {
    host.status.as_ref()?.error_message.split_once(MARK).map(|(_, cause)| cause)
}

/// Whoever may write the host's annotation forges neither words of an error nor a cause of another one.
#[test]
fn a_summary_of_another_error_or_of_nobody_is_no_cause() {
    let machines = Machines::default();
    scenarios::run(88, async |site| {
        machines.trouble(&address("a"), Trouble::Silent, true);
        let _controller = site.diagnosing(fixture(&machines), Detect::All);
        site.create_host("a").await;
        let host = site.wait("a", 3600, |host| told(host).is_some()).await;
        let words = host.status.as_ref().unwrap().error_message.split(MARK).next().unwrap().to_owned();
        let real = host.annotation(annotation::DIAGNOSIS).unwrap().to_owned();
        let mut other: Value = serde_json::from_str(&real).unwrap();
        other["error"] = json!("0011223344556677");
        let mut forged: Value = serde_json::from_str(&real).unwrap();
        forged["message"] = json!(format!("x{MARK}y\n{MARK}{}", "z".repeat(5000)));
        for text in [other.to_string(), "{".to_owned(), "[]".to_owned(), String::new()] {
            let change = Patch::Merge(json!({ "metadata": { "annotations": { (annotation::DIAGNOSIS): text } } }));
            site.hosts().patch("a", &PatchParams::default(), &change).await.unwrap();
            let host = site.wait("a", 600, |host| told(host).is_none()).await;
            assert_eq!(host.status.unwrap().error_message, words);
        }
        let change = json!({ "metadata": { "annotations": { (annotation::DIAGNOSIS): forged.to_string() } } });
        site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        let host = site.wait("a", 600, |host| told(host).is_some()).await;
        let status = host.status.unwrap();
        assert!(status.error_message.starts_with(&words) && status.error_message.len() < words.len() + 400);
        assert!(!status.error_message.contains('\n') && status.error_message.matches(MARK).count() == 1, "{status:?}");
        let count = status.error_count;
        sleep(Duration::from_secs(30)).await;
        assert!(site.hosts().get("a").await.unwrap().status.unwrap().error_count <= count + 1);
    });
}

/// Writes of diagnoses, and to the host itself beside its status.
fn own_writes(site: &Site) -> Vec<String> {
    let is_own = |call: &String| {
        let (method, path) = call.split_once(' ').unwrap_or_default();
        method != "GET" && (path.contains("/hostdiagnoses") || path.ends_with("/baremetalhosts/a"))
    };
    site.weather.calls().into_iter().filter(is_own).collect()
}

#[test]
fn a_diagnosis_that_cannot_be_written_is_tried_ever_more_rarely() {
    let machines = Machines::default();
    scenarios::run(85, async |site| {
        machines.trouble(&address("a"), Trouble::Silent, true);
        // As where the definitions of an older version are applied.
        let counted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&counted);
        site.weather.refuses(move |_, path| {
            let is_lacking = path.contains("/hostdiagnoses");
            count.fetch_add(usize::from(is_lacking), Ordering::SeqCst);
            is_lacking.then(|| (404, "the server could not find the requested resource".to_owned()))
        });
        let _controller = site.diagnosing(fixture(&machines), Detect::All);
        site.create_host("a").await;
        site.wait("a", 3600, is_in_error).await;
        sleep(Duration::from_secs(3 * 3600)).await;
        let tries = counted.load(Ordering::SeqCst);
        assert!((3..=24).contains(&tries), "{tries}: a minute, two, four, up to an hour");
        site.weather.mend();
        site.wait("a", 7200, |host| host.annotation(annotation::DIAGNOSIS).is_some()).await;
    });
    let machines = Machines::default();
    scenarios::run(86, async |site| {
        machines.trouble(&address("a"), Trouble::Silent, true);
        let mut other = HostDiagnosis::new("a", api::metamorph::HostDiagnosisSpec::default());
        other.spec.host = api::metamorph::HostReference { name: "a".into(), uid: Some("of-long-ago".into()) };
        diagnoses(&site).create(&PostParams::default(), &other).await.unwrap();
        let _controller = site.diagnosing(fixture(&machines), Detect::All);
        site.create_host("a").await;
        site.wait("a", 3600, is_in_error).await;
        ask(&site, "why", json!({ "type": "Diagnose", "host": { "name": "a" } })).await;
        let error = ended(&site, "why").await.error.unwrap();
        assert!(error.message.contains("another host"), "{error:?}");
        sleep(Duration::from_secs(1800)).await;
        assert!(diagnoses(&site).get("a").await.unwrap().status.is_none());
        diagnoses(&site).delete("a", &DeleteParams::default()).await.unwrap();
        site.wait("a", 7200, |host| host.annotation(annotation::DIAGNOSIS).is_some()).await;
    });
}

#[test]
fn where_detection_is_switched_off_what_it_has_written_to_the_host_goes() {
    let machines = Machines::default();
    scenarios::run(87, async |site| {
        machines.trouble(&address("a"), Trouble::Silent, true);
        let _controller = site.diagnosing(fixture(&machines), Detect::All);
        site.create_host("a").await;
        site.wait("a", 3600, |host| host.annotation(annotation::DIAGNOSIS).is_some()).await;
        label_host(&site, json!("false")).await;
        let marked = |host: &BareMetalHost| {
            host.annotation(annotation::DIAGNOSIS).is_some() || host.labels().contains_key(label::ERROR_TYPE)
        };
        site.wait("a", 600, |host| is_in_error(host) && !marked(host) && told(host).is_none()).await;
    });
}

#[test]
fn where_detection_is_off_nothing_is_read_and_nothing_written() {
    let machines = Machines::default();
    scenarios::run(82, async |site| {
        machines.trouble(&address("a"), Trouble::Silent, true);
        let _controller = site.diagnosing(fixture(&machines), Detect::Native);
        site.create_host("a").await;
        site.wait("a", 3600, is_in_error).await;
        sleep(Duration::from_secs(600)).await;
        assert!(diagnoses(&site).list(&ListParams::default()).await.unwrap().items.is_empty());
        let host = site.hosts().get("a").await.unwrap();
        assert!(!host.labels().contains_key(label::ERROR_TYPE) && host.annotation(annotation::DIAGNOSIS).is_none());
        assert_eq!(told(&host), None);
        label_host(&site, json!("true")).await;
        site.wait("a", 3600, |host| host.annotation(annotation::DIAGNOSIS).is_some()).await;
    });
    let machines = Machines::default();
    scenarios::run(83, async |site| {
        machines.trouble(&address("a"), Trouble::Silent, true);
        let namespaces: Api<Namespace> = Api::all(site.observer());
        let off = Patch::Merge(json!({ "metadata": { "labels": { (label::ERROR_DETECT): "false" } } }));
        namespaces.patch("default", &PatchParams::default(), &off).await.unwrap();
        let _controller = site.diagnosing(fixture(&machines), Detect::All);
        site.create_host("a").await;
        site.wait("a", 3600, is_in_error).await;
        sleep(Duration::from_secs(600)).await;
        assert!(diagnoses(&site).list(&ListParams::default()).await.unwrap().items.is_empty());
        // The host's own word goes before its namespace's.
        label_host(&site, json!("true")).await;
        site.wait("a", 3600, |host| host.annotation(annotation::DIAGNOSIS).is_some()).await;
    });
}

/// Status, reason and message of the condition Healthy.
fn healthy(host: &BareMetalHost) -> (String, String, String) {
    let found = host.status.as_ref().and_then(|s| s.conditions.iter().find(|condition| condition.type_ == "Healthy"));
    found.map(|found| (found.status.clone(), found.reason.clone(), found.message.clone())).unwrap_or_default()
}

/// Versions of the host's HostDiagnosis and how it was triggered.
async fn diagnosed(site: &Site) -> Option<(String, String)> {
    let found = diagnoses(site).get_opt("a").await.unwrap()?;
    Some((found.resource_version().unwrap(), found.status.unwrap_or_default().trigger))
}

#[test]
fn a_fault_of_a_machine_at_rest_is_heard_and_diagnosed_once_and_where_detection_is_off_nobody_listens() {
    scenarios::run(88, async |mut site| {
        let plant = Plant::new(site.weather.clone());
        plant.fares(Some(HealthLevel::OK));
        let controller = site.diagnosing(Registry::new(plant.provisioner()), Detect::Native);
        site.create_host("a").await;
        label_host(&site, json!("false")).await;
        site.wait("a", 7200, |host| host.state() == ProvisioningState::Available && healthy(host).0 == "True").await;
        plant.fares(Some(HealthLevel::Warning));
        site.wait("a", 1200, |host| healthy(host).1 == "Warning").await;
        sleep(Duration::from_secs(1200)).await;
        assert_eq!((plant.subscriptions().len(), diagnosed(&site).await), (0, None), "detection is off");
        label_host(&site, json!(null)).await;
        // The machine is listened to, and its fault is diagnosed.
        site.wait("a", 1200, |host| host.annotation(annotation::DIAGNOSIS).is_some()).await;
        let (version, trigger) = diagnosed(&site).await.unwrap();
        assert_eq!(trigger, "Fault");
        sleep(Duration::from_secs(600)).await;
        let subscribed = plant.subscriptions();
        assert_eq!(subscribed.len(), 1, "{subscribed:?}");
        sleep(Duration::from_secs(3 * 3600)).await;
        assert_eq!(diagnosed(&site).await.unwrap().0, version, "once for a fault");
        assert_eq!(plant.subscriptions(), subscribed);
        // Told by the BMC, it is known at once; a flood of it makes few looks.
        plant.fares(Some(HealthLevel::Critical));
        plant.tells("Critical").await;
        let begun = tokio::time::Instant::now();
        site.wait("a", 60, |host| healthy(host).1 == "CriticalError").await;
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let mut waited = 0;
        while diagnosed(&site).await.unwrap().0 == version {
            waited += 1;
            assert!(waited < 60, "another fault is diagnosed");
            sleep(Duration::from_secs(10)).await;
        }
        // Another server finds the subscription, and what was diagnosed.
        let (version, _) = diagnosed(&site).await.unwrap();
        controller.abort();
        site.restart().await;
        let _controller = site.diagnosing(Registry::new(plant.provisioner()), Detect::Native);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!((plant.subscriptions(), diagnosed(&site).await.unwrap().0), (subscribed, version));
        // Well again, the host carries no word of it.
        plant.fares(Some(HealthLevel::OK));
        plant.tells("OK").await;
        site.wait("a", 60, |host| healthy(host).0 == "True" && host.annotation(annotation::DIAGNOSIS).is_none()).await;
        label_host(&site, json!("false")).await;
        sleep(Duration::from_secs(600)).await;
        assert!(plant.subscriptions().is_empty(), "{:?}", plant.subscriptions());
    });
}

#[test]
fn a_request_diagnoses_a_host_that_is_well_and_says_that_there_is_no_cause() {
    let machines = Machines::default();
    scenarios::run(84, async |site| {
        let _controller = site.diagnosing(fixture(&machines), Detect::Off);
        site.create_host("a").await;
        site.wait("a", 7200, |host| host.state() == api::metal3::ProvisioningState::Available).await;
        ask(&site, "why", json!({ "type": "Diagnose", "host": { "name": "a" } })).await;
        let status = ended(&site, "why").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        assert!(status.message.unwrap().starts_with("No cause was found in access, power, parts"));
        let found = diagnoses(&site).get("a").await.unwrap().status.unwrap();
        assert_eq!((found.phase, found.trigger.as_str()), (DiagnosisPhase::NoCauseFound, "Request"));
        machines.trouble(&address("a"), Trouble::Failing, true);
        ask(&site, "now", json!({ "type": "Diagnose", "host": { "name": "a" } })).await;
        assert_eq!(ended(&site, "now").await.phase, Phase::Succeeded);
        let found = diagnoses(&site).get("a").await.unwrap().status.unwrap();
        let first = &found.causes[0];
        assert_eq!((first.code.as_str(), first.component.as_ref().unwrap().slot.as_str()), ("MemoryFailed", "DIMM 1"));
        // A host without an error carries no word of it.
        assert_eq!(site.hosts().get("a").await.unwrap().annotation(annotation::DIAGNOSIS), None);
        ask(&site, "nobody", json!({ "type": "Diagnose", "host": { "name": "b" } })).await;
        assert_eq!(ended(&site, "nobody").await.error.unwrap().cause, "HostNotFound");
    });
}
