//! HardwareClassifications: which hosts bear their labels, how they are counted, and that nothing is written twice.

use std::time::Duration;

use api::metal3::{
    BareMetalHost, HardwareClassification, HardwareClassificationStatus, HardwareData, annotation, label,
};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use operator::Detect;
use scenarios::{Machines, Site, Trouble, address, fixture};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::claims;

fn classes(site: &Site) -> Api<HardwareClassification> {
    Api::default_namespaced(site.observer())
}

async fn make(site: &Site, name: &str, labels: Value, wanted: Value) {
    let object =
        json!({ "metadata": { "name": name, "labels": labels }, "spec": { "hardwareCharacteristics": wanted } });
    classes(site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// The class as soon as it is as wanted, looked at every second.
async fn wait(
    site: &Site,
    name: &str,
    wanted: impl Fn(&HardwareClassificationStatus) -> bool,
) -> HardwareClassification {
    let mut last = None;
    for _ in 0..3600 {
        match classes(site).get_opt(name).await {
            Ok(Some(class)) if class.status.as_ref().is_some_and(&wanted) => return class,
            other => last = Some(other),
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("{name} is not as wanted: {last:?}");
}

fn counted(matched: i64, unmatched: i64, errors: i64) -> impl Fn(&HardwareClassificationStatus) -> bool {
    let wanted = (Some(matched), Some(unmatched), Some(errors));
    move |status| (status.matched_count, status.unmatched_count, status.error_hosts) == wanted
}

/// An inspected host with this hardware.
pub async fn host(site: &Site, name: &str, hardware: Value) {
    site.create_host(name).await;
    site.wait(name, 7200, |host| host.state() == api::metal3::ProvisioningState::Available).await;
    found(site, name, hardware).await;
}

/// Another inspection has found this.
pub async fn found(site: &Site, name: &str, hardware: Value) {
    let data: Api<HardwareData> = Api::default_namespaced(site.observer());
    let mut change = json!({ "spec": { "hardware": hardware } });
    change["metadata"] = json!({ "name": name });
    data.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn class_label<'a>(host: &'a BareMetalHost, class: &str) -> Option<&'a str> {
    host.labels().get(&format!("{}{class}", label::CLASS_PREFIX)).map(String::as_str)
}

fn error_label(host: &BareMetalHost) -> Option<&str> {
    host.labels().get(label::CLASS_ERROR).map(String::as_str)
}

/// Writes of classes, and to hosts beside their status.
fn writes(site: &Site) -> Vec<String> {
    let is_own = |call: &String| {
        let (method, path) = call.split_once(' ').unwrap_or_default();
        let is_host = path.contains("/baremetalhosts/") && !path.ends_with("/status");
        method != "GET" && (path.contains("/hardwareclassifications") || is_host)
    };
    site.weather.calls().into_iter().filter(is_own).collect()
}

/// Reasons and notes of the Events about classes.
async fn said(site: &Site) -> Vec<(String, String)> {
    let events: Api<Event> = Api::default_namespaced(site.observer());
    let all = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let of_class =
        |event: &Event| event.regarding.as_ref().and_then(|o| o.kind.as_deref()) == Some("HardwareClassification");
    all.filter(of_class).map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
}

/// What hardware-classification-controller's sample asks for.
fn sample() -> Value {
    json!({
        "cpu": { "architecture": "x86_64", "minimumCount": 48, "maximumCount": 72, "minimumSpeedMHz": 1000, "maximumSpeedMHz": 3600 },
        "disk": { "minimumCount": 1, "maximumCount": 8, "minimumIndividualSizeGB": 20, "maximumIndividualSizeGB": 3000,
            "diskSelector": [{ "hctl": "0:0:0:0", "rotational": true }] },
        "ram": { "minimumSizeGB": 2, "maximumSizeGB": 180 },
        "nic": { "minimumCount": 1, "maximumCount": 7, "nicSelector": { "vendor": ["0x8086", "0x1af5"] } },
        "systemVendor": { "manufacturer": "QEMU", "productName": "Standard PC" },
        "firmware": { "bios": { "vendor": "SeaBIOS", "minorVersion": "1.5.6", "majorVersion": "2.5.6" } },
    })
}

/// Hardware that it takes.
fn fitting() -> Value {
    json!({
        "cpu": { "arch": "x86_64", "count": 48, "clockMegahertz": 2400.0 }, "ramMebibytes": 8192,
        "storage": [{ "name": "/dev/sda", "hctl": "0:0:0:0", "rotational": true, "sizeBytes": 53_687_091_200_i64 }],
        "nics": [{ "name": "eth0", "model": "0x8086 0x100e" }, { "name": "eth1", "model": "0x1af5 0x1000" }],
        "systemVendor": { "manufacturer": "QEMU", "productName": "Standard PC (Q35 + ICH9, 2009)" },
        "firmware": { "bios": { "vendor": "SeaBIOS", "version": "1.15.0-1" } },
    })
}

/// Hardware with so many processors.
pub fn cores(count: i64) -> Value {
    json!({ "cpu": { "count": count } })
}

#[test]
fn upstreams_sample_labels_the_hosts_that_it_takes_and_says_of_others_why_not() {
    scenarios::run(201, async |site| {
        let controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        make(&site, "sample", json!({ "sample": "matches", "hardwareclassification-error": "All" }), sample()).await;
        let class =
            wait(&site, "sample", |status| status.profile_match_status.as_deref() == Some("No BareMetalHosts Found"))
                .await;
        assert!(class.is_held());
        host(&site, "a", fitting()).await;
        host(&site, "b", cores(4)).await;
        // What was found last is written a moment later.
        sleep(Duration::from_secs(2)).await;
        let class = wait(&site, "sample", counted(1, 1, 0)).await;
        assert_eq!(class.status.as_ref().unwrap().profile_match_status.as_deref(), Some("matched"));
        let (a, b) = (site.hosts().get("a").await.unwrap(), site.hosts().get("b").await.unwrap());
        assert_eq!((class_label(&a, "sample"), class_label(&b, "sample")), (Some("matches"), None));
        let why: Value = serde_json::from_str(class.annotations().get(annotation::UNMATCHED).unwrap()).unwrap();
        let why = why["b"].as_str().unwrap().to_owned();
        assert!(why.starts_with("systemVendor.manufacturer: «QEMU» wanted, «Metamorph» found"), "{why}");
        // The hardware changes: label, counters, reason and Event change with it.
        let mut less = fitting();
        less["cpu"]["count"] = json!(12);
        found(&site, "a", less).await;
        site.wait("a", 10, |host| class_label(host, "sample").is_none()).await;
        sleep(Duration::from_secs(2)).await;
        let class = wait(&site, "sample", counted(0, 2, 0)).await;
        assert_eq!(class.status.as_ref().unwrap().profile_match_status.as_deref(), Some("unmatched"));
        let why: Value = serde_json::from_str(class.annotations().get(annotation::UNMATCHED).unwrap()).unwrap();
        assert_eq!(why["a"], "cpu.minimumCount: at least 48 wanted, 12 found");
        found(&site, "a", fitting()).await;
        wait(&site, "sample", counted(1, 1, 0)).await;
        let said = said(&site).await;
        let is_said = |reason: &str, words: &str| said.iter().any(|(r, note)| r == reason && note.contains(words));
        assert!(is_said("HostsMatch", "a is now labelled"), "{said:?}");
        assert!(is_said("HostsDoNotMatch", "a: cpu.minimumCount: at least 48 wanted, 12 found"), "{said:?}");
        // Another value of the label; somebody who removes it; somebody who writes beside it.
        let other = Patch::Merge(json!({ "metadata": { "labels": { "sample": "large" } } }));
        classes(&site).patch("sample", &PatchParams::default(), &other).await.unwrap();
        site.wait("a", 10, |host| class_label(host, "sample") == Some("large")).await;
        let theirs = Patch::Merge(
            json!({ "metadata": { "labels": { "hardwareclassification.metal3.io/sample": null, "rack": "7" } } }),
        );
        site.hosts().patch("a", &PatchParams::default(), &theirs).await.unwrap();
        let host = site.wait("a", 10, |host| class_label(host, "sample") == Some("large")).await;
        assert_eq!(host.labels().get("rack").map(String::as_str), Some("7"));
        // Nothing is written while nothing changes, nor by a process that is begun anew.
        sleep(Duration::from_secs(600)).await;
        let before = writes(&site);
        sleep(Duration::from_secs(2 * 3600)).await;
        assert_eq!(writes(&site), before);
        controller.abort();
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        sleep(Duration::from_secs(600)).await;
        let since: Vec<String> = writes(&site).split_off(before.len());
        assert!(since.iter().all(|call| !call.contains("/hardwareclassifications")), "{since:?}");
        assert_eq!(class_label(&site.hosts().get("a").await.unwrap(), "sample"), Some("large"));
        assert!(since.is_empty(), "{since:?}");
    });
}

#[test]
fn a_claim_gets_a_host_by_the_label_of_a_class() {
    scenarios::run(202, async |site| {
        claims::tenant(&site, true).await;
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        make(&site, "large", json!({}), json!({ "cpu": { "minimumCount": 32 } })).await;
        host(&site, "a", cores(4)).await;
        let selector = json!({ "matchLabels": { "hardwareclassification.metal3.io/large": "matches" } });
        claims::claim(&site, "c", json!({ "poweredOn": false, "hostSelector": selector })).await;
        sleep(Duration::from_secs(600)).await;
        assert!(site.hosts().get("a").await.unwrap().spec.consumer_ref.is_none());
        host(&site, "b", cores(64)).await;
        let claim = claims::wait(&site, "c", claims::holds("Associated")).await;
        assert_eq!(claims::host_of(&claim), "b");
        let listed =
            site.hosts().list(&ListParams::default().labels("hardwareclassification.metal3.io/large=matches")).await;
        assert_eq!(listed.unwrap().items.iter().map(|host| host.name_any()).collect::<Vec<_>>(), ["b"]);
    });
}

#[test]
fn a_class_that_is_deleted_takes_its_labels_along_and_leaves_those_of_others() {
    let machines = Machines::default();
    scenarios::run(203, async |site| {
        let controller = site.classifying(fixture(&machines), Detect::Off);
        make(&site, "small", json!({}), json!({ "cpu": { "maximumCount": 8 } })).await;
        make(&site, "any", json!({}), json!({ "cpu": { "minimumCount": 1 } })).await;
        host(&site, "a", cores(4)).await;
        machines.trouble(&address("ill"), Trouble::Silent, true);
        site.create_host("ill").await;
        site.wait("ill", 3600, |host| error_label(host).is_some()).await;
        let both = |host: &BareMetalHost| class_label(host, "small").is_some() && class_label(host, "any").is_some();
        site.wait("a", 60, both).await;
        classes(&site).delete("small", &DeleteParams::default()).await.unwrap();
        site.wait("a", 60, |host| class_label(host, "small").is_none() && class_label(host, "any").is_some()).await;
        gone(&site, "small").await;
        assert!(error_label(&site.hosts().get("ill").await.unwrap()).is_some());
        // While nobody is there, the finalizer keeps it.
        controller.abort();
        classes(&site).delete("any", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(classes(&site).get("any").await.unwrap().is_deleting());
        let _controller = site.classifying(fixture(&machines), Detect::Off);
        gone(&site, "any").await;
        let (a, ill) = (site.hosts().get("a").await.unwrap(), site.hosts().get("ill").await.unwrap());
        assert_eq!((class_label(&a, "any"), error_label(&ill)), (None, None));
        // Where nobody classifies, labels are nobody's.
        let theirs = Patch::Merge(
            json!({ "metadata": { "labels": { "hardwareclassification.metal3.io/mine": "x", (label::CLASS_ERROR): "y" } } }),
        );
        site.hosts().patch("a", &PatchParams::default(), &theirs).await.unwrap();
        sleep(Duration::from_secs(600)).await;
        let a = site.hosts().get("a").await.unwrap();
        assert_eq!((class_label(&a, "mine"), error_label(&a)), (Some("x"), Some("y")));
    });
}

async fn gone(site: &Site, name: &str) {
    for _ in 0..600 {
        if classes(site).get_opt(name).await.unwrap().is_none() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("it never went: {:?}", classes(site).get(name).await);
}

#[test]
fn hosts_in_error_are_counted_and_labelled_before_and_after_their_inspection() {
    let machines = Machines::default();
    scenarios::run(204, async |site| {
        let _controller = site.classifying(fixture(&machines), Detect::Off);
        make(&site, "any", json!({}), json!({ "cpu": { "minimumCount": 1 } })).await;
        machines.trouble(&address("a"), Trouble::Silent, true);
        site.create_host("a").await;
        site.wait("a", 3600, |host| error_label(host) == Some("registration-error")).await;
        let class = wait(&site, "any", counted(0, 0, 1)).await;
        assert_eq!(class.status.unwrap().registration_error_hosts, Some(1));
        machines.trouble(&address("a"), Trouble::Silent, false);
        site.wait("a", 7200, |host| host.state() == api::metal3::ProvisioningState::Available).await;
        let host = site.wait("a", 60, |host| class_label(host, "any").is_some()).await;
        assert_eq!(error_label(&host), None, "it has recovered");
        wait(&site, "any", counted(1, 0, 0)).await;
        machines.trouble(&address("a"), Trouble::Silent, true);
        let host = site.wait("a", 24 * 3600, |host| error_label(host).is_some()).await;
        let kind = host.status.as_ref().unwrap().error_type.unwrap();
        assert_eq!(error_label(&host).unwrap(), kind.as_str().replace(' ', "-"));
        assert!(class_label(&host, "any").is_some(), "what it is has not changed");
        wait(&site, "any", counted(1, 0, 1)).await;
    });
}

#[test]
fn a_label_that_is_refused_is_told_in_the_status_and_written_when_it_may_be() {
    scenarios::run(205, async |site| {
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        site.weather.refuses(|method, path| {
            let is_host = method == "PATCH" && path.ends_with("/baremetalhosts/a");
            is_host.then(|| (403, "nobody\u{1b}[2J may".to_owned()))
        });
        make(&site, "any", json!({}), json!({ "cpu": { "minimumCount": 1 } })).await;
        let class = wait(&site, "any", |status| status.error_type.is_some()).await;
        let status = class.status.unwrap();
        assert_eq!(status.error_type.as_deref(), Some("label update error"));
        let message = status.error_message.unwrap();
        assert!(
            message.starts_with("Failed to update labels of BareMetalHost a: nobody") && !message.contains('\u{1b}')
        );
        let before = writes(&site).len();
        sleep(Duration::from_secs(3600)).await;
        assert!(writes(&site).len() - before < 30, "it is tried ever more rarely");
        site.weather.mend();
        site.wait("a", 600, |host| class_label(host, "any").is_some()).await;
        wait(&site, "any", |status| status.error_type.is_none() && status.error_message.is_none()).await;
    });
}

#[test]
fn a_class_that_cannot_be_let_go_says_why() {
    scenarios::run(208, async |site| {
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        make(&site, "any", json!({}), json!({ "cpu": { "minimumCount": 1 } })).await;
        site.wait("a", 600, |host| class_label(host, "any").is_some()).await;
        site.weather.refuses(|method, path| {
            let is_host = method == "PATCH" && path.ends_with("/baremetalhosts/a");
            is_host.then(|| (403, "nobody may".to_owned()))
        });
        classes(&site).delete("any", &DeleteParams::default()).await.unwrap();
        let class = wait(&site, "any", |status| status.error_type.is_some()).await;
        let status = class.status.unwrap();
        assert_eq!(status.error_type.as_deref(), Some("label delete error"));
        assert_eq!(status.error_message.as_deref(), Some("Failed to remove the label of BareMetalHost a: nobody may"));
        site.weather.mend();
        gone(&site, "any").await;
        assert_eq!(class_label(&site.hosts().get("a").await.unwrap(), "any"), None);
    });
}

#[test]
fn a_host_that_cannot_be_read_keeps_no_class() {
    scenarios::run(209, async |site| {
        let own = format!("{}any", label::CLASS_PREFIX);
        site.put_as_left(json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "odd",
            "namespace": "default", "uid": "odd", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {(own.as_str()): "matches", "hardwareclassification-error": "provisioning-error"}},
            "spec": {"online": true}, "status": {"provisioning": {"state": "a later one", "ID": ""}}})).await;
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        make(&site, "any", json!({}), json!({ "cpu": { "minimumCount": 1 } })).await;
        site.wait("a", 600, |host| class_label(host, "any").is_some()).await;
        classes(&site).delete("any", &DeleteParams::default()).await.unwrap();
        gone(&site, "any").await;
        let left = site.hosts().get_metadata("odd").await.unwrap().metadata.labels.unwrap_or_default();
        assert_eq!((left.get(&own), left.get(label::CLASS_ERROR)), (None, None));
    });
}

#[test]
fn a_namespace_has_no_more_classes_than_its_hosts_can_bear() {
    scenarios::run(210, async |site| {
        let controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        for number in 0..classification::MAX_CLASSES {
            make(&site, &format!("c{number}"), json!({}), json!({ "cpu": { "minimumCount": 1 } })).await;
        }
        sleep(Duration::from_secs(60)).await;
        make(&site, "a-younger-one", json!({}), json!({ "cpu": { "minimumCount": 1 } })).await;
        let class = wait(&site, "a-younger-one", |status| status.error_type.is_some()).await;
        assert!(class.status.unwrap().error_message.unwrap().contains("128 other classifications"));
        let labels = |host: &BareMetalHost| {
            let all = host.metadata.labels.iter().flatten();
            all.filter(|(key, _)| key.starts_with(label::CLASS_PREFIX)).count()
        };
        site.wait("a", 600, |host| labels(host) == classification::MAX_CLASSES).await;
        // Another server hears of them in another order: the eldest have their places all the same.
        controller.abort();
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(labels(&site.hosts().get("a").await.unwrap()), classification::MAX_CLASSES);
        assert_eq!(class_label(&site.hosts().get("a").await.unwrap(), "a-younger-one"), None);
        classes(&site).delete("c7", &DeleteParams::default()).await.unwrap();
        site.wait("a", 600, |host| class_label(host, "a-younger-one").is_some()).await;
        wait(&site, "a-younger-one", |status| status.error_type.is_none()).await;
    });
}

#[test]
fn a_class_that_asks_for_nothing_labels_nobody_and_says_so() {
    scenarios::run(206, async |site| {
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        host(&site, "a", cores(4)).await;
        make(&site, "empty", json!({}), json!({})).await;
        let class = wait(&site, "empty", |status| status.error_type.as_deref() == Some("Empty Profile Error")).await;
        assert!(class.status.unwrap().error_message.unwrap().contains("asks for nothing"));
        assert_eq!(class_label(&site.hosts().get("a").await.unwrap(), "empty"), None);
        let change = Patch::Merge(json!({ "spec": { "hardwareCharacteristics": { "cpu": { "minimumCount": 1 } } } }));
        classes(&site).patch("empty", &PatchParams::default(), &change).await.unwrap();
        site.wait("a", 10, |host| class_label(host, "empty").is_some()).await;
        wait(&site, "empty", |status| status.error_type.is_none() && status.matched_count == Some(1)).await;
    });
}

#[test]
fn many_hosts_and_classes_are_labelled_by_one_write_a_host_and_a_change_by_its_own() {
    scenarios::run(207, async |site| {
        let data: Api<HardwareData> = Api::default_namespaced(site.observer());
        // Hosts without BMC, whose hardware somebody else has found.
        for number in 0..60 {
            let name = format!("h{number:02}");
            let host = json!({ "metadata": { "name": name } });
            site.hosts().create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
            let found = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": { "name": name },
                "spec": { "hardware": cores(number) } });
            data.create(&PostParams::default(), &serde_json::from_value(found).unwrap()).await.unwrap();
        }
        for number in 1..=10 {
            make(&site, &format!("c{number}"), json!({}), json!({ "cpu": { "minimumCount": number * 5 } })).await;
        }
        let _controller = site.classifying(fixture(&Machines::default()), Detect::Off);
        wait(&site, "c10", counted(10, 50, 0)).await;
        wait(&site, "c1", counted(55, 5, 0)).await;
        sleep(Duration::from_secs(60)).await;
        let all = writes(&site);
        let of_hosts = |calls: &[String]| calls.iter().filter(|call| call.contains("/baremetalhosts/h")).count();
        let labelled =
            all.iter().filter(|call| call.starts_with("PATCH") && call.contains("/baremetalhosts/h")).count();
        assert!(labelled <= 2 * 60, "{labelled} writes of labels and of finalizers to 60 hosts");
        assert!(said(&site).await.len() <= 20, "Events are bounded: {:?}", said(&site).await);
        found(&site, "h07", cores(50)).await;
        wait(&site, "c10", counted(11, 49, 0)).await;
        sleep(Duration::from_secs(60)).await;
        let since: Vec<String> = writes(&site).split_off(all.len());
        assert_eq!(of_hosts(&since), 1, "{since:?}");
        // Nine classes change, and those whose first hosts are shown with a reason.
        assert!(since.iter().all(|call| !call.ends_with("/c1") && !call.contains("/c1/")), "{since:?}");
    });
}

#[test]
fn a_class_switches_the_diagnosis_of_its_hosts_on_and_off() {
    let machines = Machines::default();
    scenarios::run(208, async |site| {
        let _controller = site.classifying(fixture(&machines), Detect::Off);
        make(&site, "watched", json!({ (label::ERROR_DETECT): "true" }), json!({ "cpu": { "minimumCount": 8 } })).await;
        host(&site, "a", cores(16)).await;
        host(&site, "b", cores(4)).await;
        site.wait("a", 60, |host| class_label(host, "watched").is_some()).await;
        machines.trouble(&address("a"), Trouble::Silent, true);
        machines.trouble(&address("b"), Trouble::Silent, true);
        site.wait("b", 24 * 3600, |host| error_label(host).is_some()).await;
        let diagnosed = |host: &BareMetalHost| host.annotation(annotation::DIAGNOSIS).is_some();
        site.wait("a", 24 * 3600, diagnosed).await;
        sleep(Duration::from_secs(3600)).await;
        assert!(!diagnosed(&site.hosts().get("b").await.unwrap()), "it is of no class that has it on");
        // Where classes contradict each other, no BMC is called.
        make(&site, "left", json!({ (label::ERROR_DETECT): "false" }), json!({ "cpu": { "minimumCount": 1 } })).await;
        site.wait("a", 600, |host| !diagnosed(host)).await;
    });
}
