//! HostClasses: which hosts bear their labels, what somebody else has set, and that nothing is written twice.

use std::time::Duration;

use api::metal3::{BareMetalHost, annotation, label};
use api::metamorph::{HostClass, HostClassStatus};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use operator::Detect;
use scenarios::{Machines, Site, Trouble, address, fixture};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::claims;
use crate::classes::{cores, found, host};

fn classes(site: &Site) -> Api<HostClass> {
    Api::default_namespaced(site.observer())
}

fn object(name: &str, rule: &str, result: Value) -> HostClass {
    let rules = json!([{ "name": "only", "expression": rule }]);
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "rules": rules, "result": result } }))
        .unwrap()
}

async fn make(site: &Site, name: &str, rule: &str, result: Value) {
    classes(site).create(&PostParams::default(), &object(name, rule, result)).await.unwrap();
}

/// The class as soon as it is as wanted, looked at every second.
async fn wait(site: &Site, name: &str, wanted: impl Fn(&HostClassStatus) -> bool) -> HostClassStatus {
    let mut last = None;
    for _ in 0..3600 {
        match classes(site).get_opt(name).await {
            Ok(Some(class)) if class.status.as_ref().is_some_and(&wanted) => return class.status.unwrap(),
            other => last = Some(other),
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} is not as wanted: {last:?}");
}

fn counted(matched: i64, unmatched: i64) -> impl Fn(&HostClassStatus) -> bool {
    move |status| (status.matched_count, status.unmatched_count) == (matched, unmatched)
}

fn condition(status: &HostClassStatus, kind: &str) -> (String, String, String) {
    let found = status.conditions.iter().find(|condition| condition.kind == kind).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

fn bears<'a>(host: &'a BareMetalHost, key: &str) -> Option<&'a str> {
    host.labels().get(key).map(String::as_str)
}

/// Writes of classes, and to hosts beside their status.
fn writes(site: &Site) -> Vec<String> {
    let is_own = |call: &String| {
        let (method, path) = call.split_once(' ').unwrap_or_default();
        let is_host = path.contains("/baremetalhosts/") && !path.ends_with("/status");
        method != "GET" && (path.contains("/hostclasses") || is_host)
    };
    site.weather.calls().into_iter().filter(is_own).collect()
}

async fn relabel(site: &Site, name: &str, labels: Value) {
    let change = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    site.hosts().patch(name, &PatchParams::default(), &change).await.unwrap();
}

#[test]
fn a_class_labels_its_hosts_and_a_claim_gets_one_by_the_flavor() {
    scenarios::run(221, async |site| {
        claims::tenant(&site, true).await;
        let controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        let result = json!({ "flavor": "large", "role": "database", "labels": { "example.com/cores": "many" } });
        make(&site, "large", "hardware.cpu.count >= 32 && host.bootMode == 'UEFI'", result).await;
        host(&site, "a", cores(4)).await;
        let selector = json!({ "matchLabels": { (label::FLAVOR): "large" } });
        claims::claim(&site, "c", json!({ "poweredOn": false, "hostSelector": selector })).await;
        let status =
            wait(&site, "large", |status| counted(0, 1)(status) && status.unmatched[0].reason.contains('4')).await;
        assert_eq!(status.unmatched[0].reason, "hardware.cpu.count is 4; host.bootMode is «UEFI»");
        host(&site, "b", cores(64)).await;
        let claim = claims::wait(&site, "c", claims::holds("Associated")).await;
        assert_eq!(claims::host_of(&claim), "b");
        let status = wait(&site, "large", counted(1, 1)).await;
        assert_eq!((status.hosts, status.observed_generation), (vec!["b".to_owned()], Some(1)));
        let b = site.hosts().get("b").await.unwrap();
        assert_eq!((bears(&b, label::ROLE), bears(&b, "example.com/cores")), (Some("database"), Some("many")));
        // Somebody who removes a label of ours, and writes beside it.
        relabel(&site, "b", json!({ (label::FLAVOR): null, "rack": "7" })).await;
        let b = site.wait("b", 10, |host| bears(host, label::FLAVOR) == Some("large")).await;
        assert_eq!(bears(&b, "rack"), Some("7"));
        // Nothing is written while nothing changes, nor by a process that is begun anew.
        sleep(Duration::from_secs(600)).await;
        let before = writes(&site);
        sleep(Duration::from_secs(2 * 3600)).await;
        assert_eq!(writes(&site), before);
        controller.abort();
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(writes(&site), before);
        // The hardware changes, and the labels with it.
        found(&site, "b", cores(8)).await;
        let b = site.wait("b", 10, |host| bears(host, label::FLAVOR).is_none()).await;
        assert_eq!((bears(&b, "example.com/cores"), b.annotation(annotation::HOST_CLASSES)), (None, None));
    });
}

#[test]
fn what_somebody_else_has_set_stays_and_is_told() {
    scenarios::run(222, async |site| {
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        relabel(&site, "a", json!({ "size": "mine" })).await;
        make(&site, "elder", "hardware.cpu.count > 1", json!({ "labels": { "size": "small", "kind": "x" } })).await;
        let status = wait(&site, "elder", |status| status.conflict_count == 1).await;
        let conflict = &status.conflicts[0];
        assert_eq!((conflict.host.as_str(), conflict.found.as_str(), &conflict.class), ("a", "mine", &None));
        assert_eq!(condition(&status, "Applied").1, "LabelConflict");
        site.wait("a", 60, |host| bears(host, "kind") == Some("x")).await;
        sleep(Duration::from_secs(2)).await;
        make(&site, "younger", "hardware.cpu.count > 1", json!({ "labels": { "kind": "y" } })).await;
        let status = wait(&site, "younger", |status| status.conflict_count == 1).await;
        assert_eq!((status.conflicts[0].class.as_deref(), status.conflicts[0].found.as_str()), (Some("elder"), "x"));
        // Theirs from now on, as they have given it another value.
        relabel(&site, "a", json!({ "kind": "theirs" })).await;
        wait(&site, "elder", |status| status.conflicts.len() == 2).await;
        classes(&site).delete("elder", &DeleteParams::default()).await.unwrap();
        classes(&site).delete("younger", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(600)).await;
        let a = site.hosts().get("a").await.unwrap();
        assert_eq!((bears(&a, "size"), bears(&a, "kind")), (Some("mine"), Some("theirs")));
        assert_eq!(a.annotation(annotation::HOST_CLASSES), None);
    });
}

#[test]
fn a_class_that_is_deleted_while_nobody_is_there_takes_its_labels_along() {
    scenarios::run(223, async |site| {
        let controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        make(&site, "c", "hardware.cpu.count > 1", json!({ "flavor": "small" })).await;
        site.wait("a", 60, |host| bears(host, label::FLAVOR) == Some("small")).await;
        controller.abort();
        classes(&site).delete("c", &DeleteParams::default()).await.unwrap();
        assert!(classes(&site).get_opt("c").await.unwrap().is_none(), "no finalizer holds it");
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        site.wait("a", 60, |host| bears(host, label::FLAVOR).is_none()).await;
    });
}

/// This API asks no webhook.
#[test]
fn a_class_that_slipped_in_says_what_is_wrong_and_stops_nobody() {
    scenarios::run(224, async |site| {
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        let bomb = "hardware.nics.all(a, hardware.nics.all(b, hardware.nics.all(c, a.mac == c.mac)))";
        for (name, rule, result) in [
            ("bomb", bomb, json!({ "flavor": "x" })),
            ("pattern", "host.name.matches('((a{100}){100}){9}')", json!({ "flavor": "x" })),
            ("typo", "hardware.cpu.cuont > 1", json!({ "flavor": "x" })),
            ("theirs", "true", json!({ "labels": { "kubernetes.io/arch": "x" } })),
            ("good", "hardware.cpu.count > 1", json!({ "flavor": "good" })),
        ] {
            make(&site, name, rule, result).await;
        }
        let a = site.wait("a", 60, |host| bears(host, label::FLAVOR) == Some("good")).await;
        assert_eq!(bears(&a, "kubernetes.io/arch"), None);
        for (name, reason, words) in [
            ("bomb", "TooCostly", "250000 at most"),
            ("pattern", "InvalidRule", "rule only"),
            ("typo", "InvalidRule", "column 13: undefined field 'cuont'"),
            ("theirs", "LabelRefused", "those of Kubernetes"),
        ] {
            let status = wait(&site, name, |status| !status.conditions.is_empty()).await;
            let (is, why, message) = condition(&status, "Accepted");
            assert!(is == "False" && why == reason && message.contains(words), "{name}: {why}: {message}");
            assert_eq!(condition(&status, "Applied").1, "NotAccepted");
        }
        let events: Api<Event> = Api::default_namespaced(site.observer());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let told = all.iter().filter(|event| event.reason.as_deref() == Some("HostClassNotAccepted")).count();
        assert_eq!(told, 4);
    });
}

#[test]
fn a_preview_writes_nothing_to_hosts() {
    scenarios::run(225, async |site| {
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        let mut preview = object("c", "hardware.cpu.count > 1", json!({ "flavor": "small" }));
        preview.spec.mode = api::metamorph::HostClassMode::Preview;
        classes(&site).create(&PostParams::default(), &preview).await.unwrap();
        let status = wait(&site, "c", |status| status.preview_count == 1).await;
        assert_eq!(status.preview[0].gains[label::FLAVOR], "small");
        assert_eq!(condition(&status, "Applied").1, "Preview");
        sleep(Duration::from_secs(600)).await;
        let a = site.hosts().get("a").await.unwrap();
        assert_eq!((bears(&a, label::FLAVOR), a.annotation(annotation::HOST_CLASSES)), (None, None));
        let apply = Patch::Merge(json!({ "spec": { "mode": "Apply" } }));
        classes(&site).patch("c", &PatchParams::default(), &apply).await.unwrap();
        site.wait("a", 60, |host| bears(host, label::FLAVOR) == Some("small")).await;
        let status =
            wait(&site, "c", |status| status.observed_generation == Some(2) && status.preview_count == 0).await;
        assert_eq!(condition(&status, "Applied").0, "True");
    });
}

#[test]
fn versions_of_firmware_are_known_when_they_have_been_read_and_after_a_start() {
    scenarios::run(227, async |site| {
        let controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        make(&site, "read", "firmware.components.exists(c, c.version != '')", json!({ "role": "x" })).await;
        site.create_host("a").await;
        site.wait("a", 7200, |host| bears(host, label::ROLE) == Some("x")).await;
        wait(&site, "read", counted(1, 0)).await;
        sleep(Duration::from_secs(600)).await;
        let before = writes(&site);
        controller.abort();
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        sleep(Duration::from_secs(600)).await;
        let since = writes(&site).split_off(before.len());
        assert!(since.is_empty(), "nothing is judged before the versions are listed: {since:?}");
    });
}

#[test]
fn a_host_that_cannot_be_read_keeps_its_labels_and_is_not_counted() {
    scenarios::run(228, async |site| {
        let given = json!({ "gone": { (label::ROLE): "x" } }).to_string();
        site.put_as_left(json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "odd",
            "namespace": "default", "uid": "odd", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {(label::ROLE): "x"},
            "annotations": {(annotation::HOST_CLASSES): given}},
            "spec": {"online": true}, "status": {"provisioning": {"state": "a later one", "ID": ""}}})).await;
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        make(&site, "any", "host.online", json!({ "labels": { "any": "x" } })).await;
        let status = wait(&site, "any", |status| !status.hosts.is_empty()).await;
        assert_eq!((status.hosts, status.unmatched_count), (vec!["a".to_owned()], 0));
        sleep(Duration::from_secs(600)).await;
        let labels = site.hosts().get_metadata("odd").await.unwrap().metadata.labels.unwrap_or_default();
        assert_eq!((labels.get(label::ROLE).map(String::as_str), labels.get("any")), (Some("x"), None));
    });
}

/// As a webhook of hosts that does not answer makes it (500), and one that refuses (403).
#[test]
fn labels_that_cannot_be_written_are_not_said_to_be_there_nor_those_of_a_class_that_is_gone_to_be_removed() {
    scenarios::run(229, async |site| {
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        let refuses = |code: u16, words: &'static str| {
            site.weather.refuses(move |method, path| {
                (method == "PATCH" && path.contains("/baremetalhosts/a") && !path.contains("/status"))
                    .then(|| (code, words.to_owned()))
            });
        };
        refuses(500, "failed calling webhook");
        make(&site, "c", "hardware.cpu.count > 1", json!({ "flavor": "small" })).await;
        let status = wait(&site, "c", |status| status.matched_count == 1).await;
        let (is, reason, message) = condition(&status, "Applied");
        assert!(is == "False" && reason == "WriteRefused" && message.contains("failed calling webhook"), "{message}");
        site.weather.refuses(|_, _| None);
        site.wait("a", 600, |host| bears(host, label::FLAVOR) == Some("small")).await;
        wait(&site, "c", |status| condition(status, "Applied").0 == "True").await;
        refuses(403, "no, by a policy");
        classes(&site).delete("c", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(600)).await;
        let events: Api<Event> = Api::default_namespaced(site.observer());
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let told: Vec<&Event> =
            all.iter().filter(|event| event.reason.as_deref() == Some("HostClassLabelsNotRemoved")).collect();
        assert_eq!(told.len(), 1, "once, however often it is tried");
        assert!(told[0].note.as_deref().is_some_and(|note| note.contains("no, by a policy")), "{told:?}");
        site.weather.refuses(|_, _| None);
        site.wait("a", 600, |host| bears(host, label::FLAVOR).is_none()).await;
    });
}

#[test]
fn hosts_are_diagnosed_where_no_class_switches_that_and_versions_of_firmware_cannot_be_listed() {
    let machines = Machines::default();
    scenarios::run(230, async |site| {
        site.weather.refuses(|method, path| {
            let is_list = method == "GET" && path.contains("/hostfirmwarecomponents") && !path.contains("components/");
            is_list.then(|| (403, "forbidden".to_owned()))
        });
        let _controller = site.classifying(fixture(&machines), Detect::All);
        make(&site, "c", "host.online", json!({ "role": "x" })).await;
        machines.trouble(&address("a"), Trouble::Silent, true);
        site.create_host("a").await;
        site.wait("a", 7200, |host| bears(host, label::ERROR_TYPE).is_some()).await;
    });
}

#[test]
fn a_class_switches_the_diagnosis_of_its_hosts_and_lists_those_in_error() {
    let machines = Machines::default();
    scenarios::run(226, async |site| {
        let _controller = site.classifying(fixture(&machines), Detect::Off);
        let mut class = object("racked", "host.labels.rack == '7'", json!({ "role": "x" }));
        class.metadata.labels = Some([(label::ERROR_DETECT.to_owned(), "true".to_owned())].into());
        classes(&site).create(&PostParams::default(), &class).await.unwrap();
        for name in ["a", "b"] {
            machines.trouble(&address(name), Trouble::Silent, true);
            site.create_host(name).await;
        }
        relabel(&site, "a", json!({ "rack": "7" })).await;
        let a = site.wait("a", 7200, |host| bears(host, label::ERROR_TYPE).is_some()).await;
        assert_eq!(bears(&a, label::ROLE), Some("x"));
        let status = wait(&site, "racked", |status| status.errored_count == 1).await;
        assert_eq!((status.errored[0].name.as_str(), status.errored[0].error_type.is_some()), ("a", true));
        site.wait("b", 7200, |host| host.status.as_ref().is_some_and(|status| status.error_type.is_some())).await;
        sleep(Duration::from_secs(600)).await;
        assert_eq!(bears(&site.hosts().get("b").await.unwrap(), label::ERROR_TYPE), None);
        relabel(&site, "a", json!({ "rack": null })).await;
        site.wait("a", 7200, |host| bears(host, label::ERROR_TYPE).is_none()).await;
    });
}
