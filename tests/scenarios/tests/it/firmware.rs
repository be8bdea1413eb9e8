//! A host's firmware by its objects: what it is, what it may be, what is wished of it, and when that is made.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use api::metal3::{
    BareMetalHost, FirmwareSchema, HostFirmwareComponents, HostFirmwareSettings, HostUpdatePolicy, OperationalStatus,
    ProvisioningState as State,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt as _};
use scenarios::{Effect, Machines, Site, Trouble, address, fixture, is};
use serde_json::{Value, json};
use tokio::time::sleep;

fn all<K>(site: &Site) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::default_namespaced(site.observer())
}

async fn settings(site: &Site, name: &str) -> HostFirmwareSettings {
    all::<HostFirmwareSettings>(site).get(name).await.unwrap()
}

fn condition(object: &HostFirmwareSettings, kind: &str) -> Condition {
    let status = object.status.as_ref().unwrap();
    status.conditions.iter().find(|condition| condition.type_ == kind).unwrap().clone()
}

async fn wish(site: &Site, name: &str, wished: Value) {
    let change = json!([{"op": "replace", "path": "/spec/settings", "value": wished}]);
    let change = Patch::<()>::Json(serde_json::from_value(change).unwrap());
    let api = all::<HostFirmwareSettings>(site);
    api.patch(name, &PatchParams::default(), &change).await.unwrap();
}

async fn change(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// The settings as soon as they are as wanted.
async fn wait(site: &Site, name: &str, wanted: impl Fn(&HostFirmwareSettings) -> bool) -> HostFirmwareSettings {
    for _ in 0..3600 {
        let object = settings(site, name).await;
        if object.status.is_some() && wanted(&object) {
            return object;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("the settings of {name} are not as wanted: {:?}", settings(site, name).await);
}

/// The wish of this generation was judged.
fn judged(object: &HostFirmwareSettings) -> bool {
    condition(object, "Valid").observed_generation == object.metadata.generation
}

fn owners<K: Resource>(object: &K) -> Vec<String> {
    object.meta().owner_references.iter().flatten().map(|owner| format!("{}/{}", owner.kind, owner.name)).collect()
}

/// How often this was done to the machine of a host.
fn count(machines: &Machines, name: &str, effect: Effect) -> usize {
    machines.effects(&address(name)).iter().filter(|done| **done == effect).count()
}

fn image() -> Value {
    json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"}}})
}

async fn available(site: &Site, name: &str) {
    site.create_host(name).await;
    site.wait(name, 7200, is(State::Available)).await;
}

async fn provisioned(site: &Site) {
    available(site, "a").await;
    change(site, image()).await;
    site.wait("a", 7200, |host| host.state() == State::Provisioned && host.status.as_ref().unwrap().powered_on).await;
}

async fn policy(site: &Site, settings: &str) {
    let policy = json!({"metadata": {"name": "a"}, "spec": {"firmwareSettings": settings}});
    let policies = all::<HostUpdatePolicy>(site);
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
}

async fn reboot(site: &Site) {
    change(site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
}

fn at_rest(host: &BareMetalHost) -> bool {
    let status = host.status.as_ref().unwrap();
    let asked = host.annotations().contains_key("reboot.metal3.io");
    status.operational_status == OperationalStatus::Ok && status.powered_on && !asked
}

#[test]
fn a_host_has_objects_of_its_firmware_and_alike_hosts_share_a_schema() {
    scenarios::run(61, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        available(&site, "a").await;
        available(&site, "b").await;
        let (one, other) = (settings(&site, "a").await, settings(&site, "b").await);
        assert_eq!((owners(&one), owners(&other)), (vec!["BareMetalHost/a".into()], vec!["BareMetalHost/b".into()]));
        assert!(one.metadata.owner_references.as_ref().unwrap()[0].controller.is_none(), "as upstream");
        let status = one.status.clone().unwrap();
        assert_eq!((status.settings["BootDelay"].as_str(), status.settings.len()), ("5", 3));
        for (kind, value) in [("ChangeDetected", "False"), ("Valid", "True")] {
            let found = condition(&one, kind);
            assert_eq!((found.status.as_str(), found.reason.as_str()), (value, "Success"), "{kind}");
        }
        let schemas = all::<FirmwareSchema>(&site).list(&ListParams::default()).await.unwrap().items;
        let [schema] = schemas.as_slice() else { panic!("{schemas:?}") };
        let named = status.schema.unwrap();
        assert_eq!((named.name, named.namespace), (schema.name_any(), "default".into()));
        let mut sharing = owners(schema);
        sharing.sort();
        assert_eq!(sharing, ["HostFirmwareSettings/a", "HostFirmwareSettings/b"]);
        assert_eq!(schema.spec.schema["BootDelay"].upper_bound, Some(600));
        let components = all::<HostFirmwareComponents>(&site).get("a").await.unwrap();
        let status = components.status.as_ref().unwrap();
        assert_eq!((owners(&components).len(), status.components.len()), (1, 2));
        assert_eq!(status.components[0].current_version.as_deref(), Some("1.0.0"));
        // They go with the host.
        site.hosts().delete("a", &Default::default()).await.unwrap();
        for _ in 0..7200 {
            if all::<HostFirmwareSettings>(&site).get_opt("a").await.unwrap().is_none() {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
        panic!("they stay");
    });
}

#[test]
fn a_wished_setting_is_made_while_the_host_is_prepared() {
    scenarios::run(62, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        available(&site, "a").await;
        // The same wish twice, as somebody has undone it between: it is made twice.
        for (round, delay) in [(1, json!(30)), (2, json!("5")), (3, json!(30))] {
            wish(&site, "a", json!({"BootDelay": delay.clone()})).await;
            let wanted = delay.as_str().map_or_else(|| delay.to_string(), ToOwned::to_owned);
            let made = |object: &HostFirmwareSettings| {
                let status = object.status.as_ref().unwrap();
                judged(object)
                    && status.settings["BootDelay"] == wanted
                    && condition(object, "ChangeDetected").status == "False"
            };
            wait(&site, "a", made).await;
            site.wait("a", 600, is(State::Available)).await;
            assert_eq!(count(&machines, "a", Effect::Prepare), round);
        }
    });
}

#[test]
fn a_wish_that_cannot_be_fulfilled_is_refused_with_a_sentence_and_touches_nothing() {
    scenarios::run(63, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        available(&site, "a").await;
        let wrong = [
            (json!({"SerialNumber": "X"}), "SerialNumber cannot be set: the firmware says that it is read-only"),
            (json!({"BootDelay": 601}), "BootDelay cannot be \"601\": the most is 600"),
            (json!({"BootDelay": "soon"}), "BootDelay cannot be \"soon\": it is a whole number"),
            (
                json!({"ProcVirtualization": "On"}),
                "ProcVirtualization cannot be \"On\": it is one of Enabled, Disabled",
            ),
            (json!({"Turbo": "On"}), "the machine has no setting Turbo"),
            (json!({"AdminPassword": "s3cret"}), "AdminPassword is a password, which is not set here"),
        ];
        for (wished, words) in wrong {
            wish(&site, "a", json!({})).await;
            wish(&site, "a", wished).await;
            let object = wait(&site, "a", judged).await;
            let valid = condition(&object, "Valid");
            assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "ConfigurationError"));
            assert!(valid.message.contains(words) && !valid.message.contains("s3cret"), "{}", valid.message);
        }
        sleep(Duration::from_secs(600)).await;
        assert_eq!(count(&machines, "a", Effect::Prepare), 0);
        assert!(is(State::Available)(&site.hosts().get("a").await.unwrap()));
        let events = all::<Event>(&site).list(&ListParams::default()).await.unwrap();
        let reported = events.items.iter().filter(|event| event.reason.as_deref() == Some("ValidationFailed"));
        assert_eq!(reported.count(), 6);
    });
}

#[test]
fn a_provisioned_host_is_serviced_at_a_reboot_where_its_policy_allows_it() {
    scenarios::run(64, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        provisioned(&site).await;
        wish(&site, "a", json!({"BootDelay": 30})).await;
        // That it differs is seen without a reboot, and nothing else comes of it.
        let differs =
            |object: &HostFirmwareSettings| judged(object) && condition(object, "ChangeDetected").status == "True";
        let object = wait(&site, "a", differs).await;
        let said = condition(&object, "ChangeDetected").message;
        assert!(said.contains("BootDelay is \"5\", not \"30\""), "{said}");
        reboot(&site).await;
        site.wait("a", 600, at_rest).await;
        policy(&site, "onPreparing").await;
        reboot(&site).await;
        site.wait("a", 600, at_rest).await;
        assert_eq!(count(&machines, "a", Effect::Service), 0, "no policy allows it");
        let policies = all::<HostUpdatePolicy>(&site);
        assert_eq!(owners(&policies.get("a").await.unwrap()), ["BareMetalHost/a"]);
        let change = json!({"spec": {"firmwareSettings": "onReboot"}});
        policies.patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        sleep(Duration::from_secs(900)).await;
        assert_eq!(count(&machines, "a", Effect::Service), 0, "it waits for a reboot");
        reboot(&site).await;
        let servicing =
            |host: &BareMetalHost| host.status.as_ref().unwrap().operational_status == OperationalStatus::Servicing;
        let host = site.wait("a", 600, servicing).await;
        assert!(!host.status.unwrap().powered_on);
        site.wait("a", 600, at_rest).await;
        let as_wished = |object: &HostFirmwareSettings| object.status.as_ref().unwrap().settings["BootDelay"] == "30";
        wait(&site, "a", as_wished).await;
        reboot(&site).await;
        site.wait("a", 600, at_rest).await;
        assert_eq!((count(&machines, "a", Effect::Service), count(&machines, "a", Effect::Prepare)), (1, 0));
    });
}

#[test]
fn a_wish_that_has_been_taken_back_is_not_made() {
    for seed in 70..76 {
        scenarios::run(seed, async |site| {
            let machines = Machines::default();
            let _controller = site.controller(fixture(&machines));
            available(&site, "a").await;
            sleep(Duration::from_secs(120)).await;
            // What is told a minute late is true no more.
            site.weather.lags(Duration::from_secs(60));
            for wished in [json!({"BootDelay": 30}), json!({})] {
                wish(&site, "a", wished).await;
            }
            sleep(Duration::from_secs(1200)).await;
            assert_eq!(count(&machines, "a", Effect::Prepare), 0);
            let object = settings(&site, "a").await;
            assert!(judged(&object) && condition(&object, "ChangeDetected").status == "False", "{object:?}");
        });
    }
}

#[test]
fn a_host_made_anew_does_not_take_what_was_wished_of_the_one_before() {
    scenarios::run(65, async |site| {
        let machines = Machines::default();
        let controller = site.controller(fixture(&machines));
        available(&site, "a").await;
        controller.abort();
        // What the earlier host of this name leaves behind is not gone yet, and wishes something.
        let name = json!({"metadata": {"name": "b", "finalizers": ["example.com/slow"], "ownerReferences": [{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "name": "b", "uid": "00000000-0000-4000-8000-000000000000"}]}, "spec": {"settings": {"BootDelay": 30}}});
        let api = all::<HostFirmwareSettings>(&site);
        api.create(&PostParams::default(), &serde_json::from_value(name).unwrap()).await.unwrap();
        let _controller = site.controller(fixture(&machines));
        site.create_host("b").await;
        let reported = |host: &BareMetalHost| {
            let conditions = host.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|c| c.message.contains("create the HostFirmwareSettings"))
        };
        site.wait("b", 600, reported).await;
        assert_eq!(count(&machines, "b", Effect::Prepare), 0);
        let gone = json!({"metadata": {"finalizers": null}});
        api.patch("b", &PatchParams::default(), &Patch::Merge(gone)).await.unwrap();
        let _ = api.delete("b", &Default::default()).await;
        site.wait("b", 7200, is(State::Available)).await;
        assert_eq!(count(&machines, "b", Effect::Prepare), 0);
        assert!(settings(&site, "b").await.spec.settings.is_empty());
    });
}

/// Each alone would write the schema that they share, and all but one at a time in vain.
#[test]
fn hosts_that_are_alike_and_begin_at_once_write_their_schema_together() {
    const HOSTS: usize = 150;
    scenarios::run(72, async |site| {
        site.weather.rough(0, Duration::from_millis(50));
        let names: Vec<String> = (0..HOSTS).map(|number| format!("n{number}")).collect();
        for name in &names {
            site.create_host(name).await;
        }
        let _controller = site.controller(fixture(&Machines::default()));
        for name in &names {
            site.wait(name, 7200, is(State::Available)).await;
        }
        sleep(Duration::from_secs(600)).await;
        let found = all::<FirmwareSchema>(&site).list(&ListParams::default()).await.unwrap().items;
        let [schema] = &found[..] else { panic!("{} schemas", found.len()) };
        assert_eq!(owners(schema).len(), HOSTS);
        let calls = site.weather.calls();
        let writes = calls.iter().filter(|call| !call.starts_with("GET ") && call.contains("/firmwareschemas"));
        assert!(writes.clone().count() < HOSTS / 5, "{:#?}", writes.collect::<Vec<_>>());
    });
}

#[test]
fn firmware_of_which_nothing_is_new_costs_no_call_and_no_write() {
    scenarios::run(66, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        provisioned(&site).await;
        available(&site, "b").await;
        sleep(Duration::from_secs(900)).await;
        let before = site.weather.calls().len();
        sleep(Duration::from_secs(3600)).await;
        let calls = site.weather.calls().split_off(before);
        // Watches that have lasted their time begin anew.
        let others: Vec<_> =
            calls.iter().filter(|call| !call.starts_with("GET ") || call.contains("/namespaces/")).collect();
        assert!(others.is_empty(), "{others:?}");
    });
}

#[test]
fn work_that_fails_or_is_killed_is_made_again() {
    for seed in 80..88 {
        scenarios::run(seed, async |mut site| {
            let machines = Machines::default();
            let mut controller = site.controller(fixture(&machines));
            available(&site, "a").await;
            if seed % 2 == 0 {
                machines.trouble(&address("a"), Trouble::Failing, true);
            }
            wish(&site, "a", json!({"BootDelay": 30})).await;
            for _ in 0..4 {
                sleep(Duration::from_millis(700 + seed % 5 * 400)).await;
                controller.abort();
                site.restart().await;
                controller = site.controller(fixture(&machines));
            }
            let made = |object: &HostFirmwareSettings| {
                object.status.as_ref().unwrap().settings["BootDelay"] == "30"
                    && condition(object, "ChangeDetected").status == "False"
            };
            wait(&site, "a", made).await;
            site.wait("a", 7200, is(State::Available)).await;
            controller.abort();
        });
    }
}

#[test]
fn a_wish_that_is_put_back_while_it_is_made_ends_it() {
    let wishes = [json!({}), json!({"BootDelay": 5})];
    for (wished, raid) in wishes.iter().flat_map(|wished| [(wished.clone(), false), (wished.clone(), true)]) {
        scenarios::run(67, async move |site| {
            let machines = Machines::default();
            let _controller = site.controller(fixture(&machines));
            available(&site, "a").await;
            if raid {
                change(&site, volumes("1")).await;
                site.wait("a", 600, |host| host.state() == State::Available && raid_made(host) == Some("1")).await;
            }
            machines.trouble(&address("a"), Trouble::Slow, true);
            wish(&site, "a", json!({"BootDelay": 30})).await;
            wait(&site, "a", |object| condition(object, "ChangeDetected").reason == "Accepted").await;
            wish(&site, "a", wished).await;
            sleep(Duration::from_secs(600)).await;
            site.wait("a", 600, is(State::Available)).await;
            let object = settings(&site, "a").await;
            assert_eq!(object.status.unwrap().settings["BootDelay"], "5");
            let before = usize::from(raid);
            assert_eq!((count(&machines, "a", Effect::Prepare), count(&machines, "a", Effect::Stop)), (before + 1, 1));
        });
    }
}

/// A host that asks for one volume by its controller, of this level.
fn volumes(level: &str) -> Value {
    json!({"spec": {"raid": {"hardwareRAIDVolumes": [{"level": level}]}}})
}

/// Level of the volume that counts as made.
fn raid_made(host: &BareMetalHost) -> Option<&str> {
    let made = host.status.as_ref()?.provisioning.raid.as_ref()?.hardware_raid_volumes.as_ref()?;
    made.first().map(|volume| volume.level.as_str())
}

#[test]
fn volumes_whose_making_another_wish_ends_are_made() {
    let edits = [json!({"BootDelay": 30}), json!({"BootDelay": 30, "ProcVirtualization": "Disabled"})];
    for (seed, edit) in (90..).zip(edits) {
        scenarios::run(seed, async move |site| {
            let machines = Machines::default();
            let _controller = site.controller(fixture(&machines));
            available(&site, "a").await;
            machines.trouble(&address("a"), Trouble::Slow, true);
            change(&site, volumes("5")).await;
            let begun = |host: &BareMetalHost| host.status.as_ref().unwrap().provisioning.raid.is_some();
            let host = site.wait("a", 600, begun).await;
            assert_eq!((host.state(), raid_made(&host)), (State::Preparing, None), "they are being made");
            wish(&site, "a", edit).await;
            let made = |object: &HostFirmwareSettings| {
                judged(object)
                    && object.status.as_ref().unwrap().settings["BootDelay"] == "30"
                    && condition(object, "ChangeDetected").status == "False"
            };
            wait(&site, "a", made).await;
            let host = site.wait("a", 600, is(State::Available)).await;
            let there = machines.volumes(&address("a"));
            assert!(there.as_ref().is_some_and(|there| there.contains("\"level\":\"5\"")), "{there:?}");
            assert_eq!((raid_made(&host), count(&machines, "a", Effect::Prepare)), (Some("5"), 2));
        });
    }
}

/// Which disk the image will go to is nothing to a setting that is being made.
#[test]
fn other_hints_do_not_end_what_is_made_of_the_firmware() {
    scenarios::run(93, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        available(&site, "a").await;
        machines.trouble(&address("a"), Trouble::Slow, true);
        wish(&site, "a", json!({"BootDelay": 30})).await;
        wait(&site, "a", |object| condition(object, "ChangeDetected").reason == "Accepted").await;
        change(&site, json!({"spec": {"rootDeviceHints": {"deviceName": "/dev/sda"}}})).await;
        wait(&site, "a", |object| object.status.as_ref().unwrap().settings["BootDelay"] == "30").await;
        site.wait("a", 600, is(State::Available)).await;
        assert_eq!((count(&machines, "a", Effect::Prepare), count(&machines, "a", Effect::Stop)), (1, 0));
    });
}

#[test]
fn volumes_that_are_no_longer_wished_are_not_gone_on_with() {
    scenarios::run(92, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        available(&site, "a").await;
        machines.trouble(&address("a"), Trouble::Slow, true);
        change(&site, volumes("5")).await;
        site.wait("a", 600, |host| host.status.as_ref().unwrap().provisioning.raid.is_some()).await;
        change(&site, json!({"spec": {"raid": null}})).await;
        let host = site.wait("a", 600, is(State::Available)).await;
        assert_eq!((raid_made(&host), count(&machines, "a", Effect::Stop)), (None, 1));
        assert_eq!(machines.volumes(&address("a")), None);
        machines.trouble(&address("a"), Trouble::Slow, false);
        change(&site, volumes("5")).await;
        site.wait("a", 600, |host| host.state() == State::Available && raid_made(host) == Some("5")).await;
        assert!(machines.volumes(&address("a")).is_some());
    });
}

#[test]
fn a_host_goes_on_without_an_object_that_the_api_does_not_take() {
    for code in [403, 500] {
        scenarios::run(68, async move |site| {
            site.weather.refuses(move |method, path| {
                let refused = method == "POST" && path.ends_with("/hostfirmwaresettings");
                refused.then(|| (code, "exceeded quota: objects".to_owned()))
            });
            let _controller = site.controller(fixture(&Machines::default()));
            available(&site, "a").await;
            let events = all::<Event>(&site).list(&ListParams::default()).await.unwrap();
            let reported = events.items.iter().find(|event| event.reason.as_deref() == Some("FirmwareObjectRefused"));
            let note = reported.and_then(|event| event.note.clone()).unwrap();
            assert!(note.contains("create the HostFirmwareSettings") && note.contains("exceeded quota"), "{note}");
            let before = site.weather.calls().len();
            sleep(Duration::from_secs(600)).await;
            let tried = site.weather.calls().split_off(before);
            let tried = tried.iter().filter(|call| call.starts_with("POST") && call.ends_with("/hostfirmwaresettings"));
            let most = if code == 500 { 21 } else { 3 };
            assert!(tried.count() <= most, "it is tried again without haste");
            site.weather.mend();
            sleep(Duration::from_secs(1200)).await;
            wait(&site, "a", judged).await;
        });
    }
}

/// A moment's fault of the API, or a refusal, of our own object does not have an image written without what is wished.
#[test]
fn no_image_is_written_without_settings_that_the_api_only_does_not_let_us_note() {
    for code in [500, 403] {
        scenarios::run(71, async move |site| {
            let machines = Machines::default();
            let _controller = site.controller(fixture(&machines));
            available(&site, "a").await;
            let left = AtomicU32::new(if code == 500 { 1 } else { u32::MAX });
            site.weather.refuses(move |method, path| {
                let is_ours = method == "PUT" && path.ends_with("/hostfirmwaresettings/a/status");
                let refused = is_ours && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
                refused.then(|| (code, "no space is left".to_owned()))
            });
            wish(&site, "a", json!({"BootDelay": 30})).await;
            change(&site, image()).await;
            if code == 403 {
                sleep(Duration::from_secs(1200)).await;
                let host = site.hosts().get("a").await.unwrap();
                assert_ne!(host.state(), State::Provisioned);
                let says = |condition: &Condition| condition.message.contains("no space is left");
                assert!(host.status.unwrap().conditions.iter().any(says));
                site.weather.mend();
            }
            let patience = if code == 403 { 600 } else { 240 };
            site.wait("a", patience, |host| host.state() == State::Provisioned).await;
            let effects = machines.effects(&address("a"));
            let at = |effect: Effect| effects.iter().position(|done| *done == effect);
            assert!(at(Effect::Prepare).is_some() && at(Effect::Prepare) < at(Effect::Provision), "{effects:?}");
            assert_eq!(settings(&site, "a").await.status.unwrap().settings["BootDelay"], "30");
        });
    }
}

#[test]
fn an_update_counts_as_made_when_the_machine_has_it() {
    scenarios::run(69, async |site| {
        let machines = Machines::default();
        let _controller = site.controller(fixture(&machines));
        available(&site, "a").await;
        machines.trouble(&address("a"), Trouble::Slow, true);
        let api = all::<HostFirmwareComponents>(&site);
        let update = json!({"spec": {"updates": [{"component": "bios", "url": "http://192.0.2.8/bios-2"}]}});
        api.patch("a", &PatchParams::default(), &Patch::Merge(update)).await.unwrap();
        let mut accepted = false;
        for _ in 0..3600 {
            let status = api.get("a").await.unwrap().status.unwrap();
            let changed = status.conditions.iter().find(|condition| condition.type_ == "ChangeDetected").unwrap();
            match changed.reason.as_str() {
                "Accepted" => {
                    accepted = true;
                    assert!(status.updates.is_empty(), "it is taken, and not made");
                }
                _ if accepted && !status.updates.is_empty() => return,
                _ => {}
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("accepted: {accepted}; {:?}", api.get("a").await);
    });
}
