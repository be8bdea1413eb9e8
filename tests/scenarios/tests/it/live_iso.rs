//! Live ISOs by the native provisioner: booted at each start that is ordered, lost and put in again, beside others' media, and wiped after.

use std::collections::BTreeSet;
use std::time::Duration;

use api::metal3::{BareMetalHost, DataImage, ErrorType, OperationalStatus, ProvisioningState as State};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::plant::{Plant, Running};
use scenarios::{Site, is};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
const ISO: &str = "http://192.0.2.8/rescue.iso";

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn iso(url: &str) -> Value {
    json!({"spec": {"image": {"url": url, "format": "live-iso", "checksum": null, "checksumType": null}}})
}

fn disk() -> Value {
    json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"}}})
}

fn count(effects: &[String], what: &str) -> usize {
    effects.iter().filter(|effect| effect.starts_with(what)).count()
}

/// What the status says of an error that holds these words.
fn says(words: &'static str) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.status.as_ref().is_some_and(|status| status.error_message.contains(words))
}

/// The host is on and its status without an error.
fn rests(host: &BareMetalHost) -> bool {
    let status = host.status.as_ref().unwrap();
    status.powered_on && status.error_message.is_empty() && !host.annotations().contains_key("reboot.metal3.io")
}

async fn events(site: &Site, reason: &str) -> Vec<String> {
    let all = Api::<Event>::default_namespaced(site.observer()).list(&ListParams::default()).await.unwrap().items;
    let named = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    named.filter_map(|event| event.note).collect()
}

/// A site with its server and machine.
struct Life {
    site: Site,
    plant: Plant,
    server: Option<Running>,
}

impl Life {
    fn new(site: Site) -> Self {
        let plant = Plant::new(site.weather.clone());
        let server = Some(plant.serve(&site));
        Self { site, plant, server }
    }

    /// The server is killed; another begins from what is recorded.
    fn replace(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
        self.server = Some(self.plant.serve(&self.site));
    }

    /// A host that is available, whose agent is on the machine.
    async fn available(site: Site) -> Self {
        let life = Self::new(site);
        life.site.create_host("a").await;
        life.site.wait("a", LONGEST, is(State::Available)).await;
        life
    }

    /// A host whose live system runs.
    async fn live(site: Site) -> Self {
        let life = Self::available(site).await;
        patch(&life.site, iso(ISO)).await;
        life.runs_live().await;
        life
    }

    async fn runs_live(&self) {
        self.site.wait("a", LONGEST, is(State::Provisioned)).await;
        sleep(Duration::from_secs(120)).await;
        assert!(self.plant.runs_live(), "{:#?}", self.plant.effects());
    }

    /// Reboots the host, and waits until it is on again.
    async fn reboots(&self) {
        patch(&self.site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
        self.site.wait("a", LONGEST, rests).await;
        sleep(Duration::from_secs(120)).await;
    }

    /// The image is taken back, and nothing of it is left.
    async fn ends(&self, wipes: usize) {
        patch(&self.site, json!({"spec": {"image": null}})).await;
        self.site.wait("a", LONGEST, is(State::Available)).await;
        let effects = self.plant.effects();
        assert_eq!((count(&effects, "wipe "), self.plant.image()), (wipes, None), "{effects:#?}");
        assert_ne!(self.plant.boot_medium().as_deref(), Some(ISO), "{effects:#?}");
        // The firmware chooses again.
        sleep(Duration::from_secs(120)).await;
        assert!(!self.plant.is_overridden(), "{effects:#?}");
    }
}

#[test]
fn a_live_iso_is_booted_and_what_it_may_have_written_is_wiped() {
    scenarios::run(61, async |site| {
        let life = Life::live(site).await;
        let effects = life.plant.effects();
        let way: Vec<&str> =
            effects.iter().map(String::as_str).skip_while(|effect| *effect != "HardOff under an agent").collect();
        let expected = ["HardOff under an agent", "boot medium in under nothing", "On under nothing"];
        assert_eq!(way[..3], expected, "{effects:#?}");
        assert_eq!(way[3], format!("live system from {ISO}"));
        assert_eq!((life.plant.boot_medium().as_deref(), count(&effects, "write ")), (Some(ISO), 0));
        sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(life.plant.effects(), effects, "a tenant was touched");
        assert_eq!(events(&life.site, "UnusedFields").await, [""; 0]);
        life.ends(1).await;
        life.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        life.site.gone("a", LONGEST).await;
    });
}

#[test]
fn whatever_is_killed_lost_or_late_it_is_booted_once_and_wiped_once() {
    for seed in 0..20 {
        scenarios::run(seed, async |site| {
            let mut life = Life::available(site).await;
            life.site.weather.rough(20, Duration::from_millis(500));
            life.site.weather.lags(Duration::from_secs(if seed % 2 == 0 { 0 } else { 10 }));
            let dies = async |life: &mut Life| {
                for _ in 0..life.site.weather.below(4) {
                    sleep(Duration::from_millis(life.site.weather.below(40_000))).await;
                    if life.site.weather.below(3) == 0 {
                        life.site.restart().await;
                    }
                    life.replace();
                }
            };
            patch(&life.site, iso(ISO)).await;
            dies(&mut life).await;
            life.runs_live().await;
            let before = life.plant.effects();
            assert_eq!(count(&before, "live system "), 1, "seed {seed}: {before:#?}");
            dies(&mut life).await;
            sleep(Duration::from_secs(3600)).await;
            assert_eq!(life.plant.effects(), before, "seed {seed}: a tenant was touched");
            patch(&life.site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
            dies(&mut life).await;
            life.site.wait("a", LONGEST, rests).await;
            sleep(Duration::from_secs(120)).await;
            assert!(life.plant.runs_live(), "seed {seed}: {:#?}", life.plant.effects());
            patch(&life.site, json!({"spec": {"image": null}})).await;
            dies(&mut life).await;
            life.site.wait("a", LONGEST, is(State::Available)).await;
            let effects = life.plant.effects();
            let wipes: Vec<&String> = effects.iter().filter(|effect| effect.starts_with("wipe ")).collect();
            let different: BTreeSet<&&String> = wipes.iter().collect();
            assert!(!wipes.is_empty() && wipes.len() == different.len(), "seed {seed}: {effects:#?}");
            assert_ne!(life.plant.boot_medium().as_deref(), Some(ISO), "seed {seed}: {effects:#?}");
            assert_eq!(count(&effects, "write "), 0, "seed {seed}: {effects:#?}");
        });
    }
}

#[test]
fn an_iso_that_the_bmc_has_lost_is_told_and_put_in_before_the_next_start() {
    for dies in [false, true] {
        scenarios::run(62, async |site| {
            let mut life = Life::live(site).await;
            life.plant.bmc_restarts();
            let told = life.site.wait("a", LONGEST, says("the live ISO is not in the machine any more")).await;
            let status = told.status.unwrap();
            assert_eq!((status.error_type, status.error_count), (Some(ErrorType::PowerManagement), 0));
            assert!(status.error_message.contains("restart of the BMC"), "{}", status.error_message);
            assert!(status.powered_on && life.plant.runs_live());
            // It is told once, and nothing is done to a system that runs.
            sleep(Duration::from_secs(60)).await;
            let before = (life.plant.effects(), events(&life.site, "PowerManagementError").await.len());
            sleep(Duration::from_secs(2400)).await;
            assert_eq!((life.plant.effects(), events(&life.site, "PowerManagementError").await.len()), before);
            if dies {
                life.replace();
            }
            life.reboots().await;
            assert!(life.plant.runs_live(), "{:#?}", life.plant.effects());
            let since = life.plant.effects().split_off(before.0.len());
            // As politely as any other reboot.
            assert_eq!(since[0], "SoftOff under the live system", "{since:#?}");
            assert_eq!(since[1..3], ["boot medium in under nothing", "On under nothing"], "{since:#?}");
            life.ends(1).await;
        });
    }
}

/// Neither hides the other.
#[test]
fn a_machine_that_is_to_be_off_is_switched_off_also_where_its_iso_is_lost() {
    scenarios::run(77, async |site| {
        let life = Life::live(site).await;
        patch(&life.site, json!({"spec": {"online": false}})).await;
        life.site.wait("a", LONGEST, |host| !host.status.as_ref().unwrap().powered_on).await;
        life.plant.bmc_restarts();
        // Somebody switches it on.
        life.plant.restarts_by_itself();
        sleep(Duration::from_secs(3600)).await;
        assert!(!life.plant.is_on(), "{:#?}", life.plant.effects());
    });
}

#[test]
fn a_machine_that_goes_off_by_itself_comes_on_with_the_iso_that_was_lost() {
    scenarios::run(63, async |site| {
        let life = Life::live(site).await;
        patch(&life.site, json!({"spec": {"online": false}})).await;
        life.site.wait("a", LONGEST, |host| !host.status.as_ref().unwrap().powered_on).await;
        life.plant.bmc_restarts();
        sleep(Duration::from_secs(3600)).await;
        patch(&life.site, json!({"spec": {"online": true}})).await;
        life.site.wait("a", LONGEST, rests).await;
        sleep(Duration::from_secs(120)).await;
        assert!(life.plant.runs_live(), "{:#?}", life.plant.effects());
    });
}

#[test]
fn a_bmc_that_keeps_the_boot_source_for_one_start_is_told_it_before_each() {
    scenarios::run(64, async |site| {
        let life = Life::available(site).await;
        life.plant.overrides_once_only();
        patch(&life.site, iso(ISO)).await;
        life.runs_live().await;
        assert!(!life.plant.is_overridden());
        for _ in 0..2 {
            life.reboots().await;
            assert!(life.plant.runs_live(), "{:#?}", life.plant.effects());
        }
        let told = events(&life.site, "LiveISOBootsOnce").await;
        assert!(told.len() == 1 && told[0].contains("a system that restarts by itself"), "{told:?}");
        // What was said of it comes true.
        life.plant.restarts_by_itself();
        sleep(Duration::from_secs(120)).await;
        assert!(!life.plant.runs_live());
        life.reboots().await;
        assert!(life.plant.runs_live());
    });
}

#[test]
fn each_start_is_from_the_iso_where_the_bmc_keeps_the_boot_source() {
    scenarios::run(65, async |site| {
        let life = Life::live(site).await;
        life.plant.restarts_by_itself();
        sleep(Duration::from_secs(120)).await;
        assert!(life.plant.runs_live());
        assert_eq!(events(&life.site, "LiveISOBootsOnce").await, [""; 0]);
    });
}

#[test]
fn what_somebody_else_has_put_in_is_left_there_and_told() {
    scenarios::run(66, async |site| {
        let life = Life::live(site).await;
        let theirs = "http://elsewhere.example/theirs.iso";
        life.plant.somebody_puts_in(Some(theirs));
        life.site.wait("a", LONGEST, says("another medium is in its drive")).await;
        patch(&life.site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
        life.site.wait("a", LONGEST, says("another medium is in the drive that it belongs in")).await;
        sleep(Duration::from_secs(3600)).await;
        assert!(!life.plant.is_on() && life.plant.boot_medium().as_deref() == Some(theirs));
        life.plant.somebody_puts_in(None);
        life.site.wait("a", LONGEST, rests).await;
        sleep(Duration::from_secs(120)).await;
        assert!(life.plant.runs_live(), "{:#?}", life.plant.effects());
    });
    // Before it has been booted at all.
    scenarios::run(67, async |site| {
        let life = Life::available(site).await;
        let theirs = "http://elsewhere.example/theirs.iso";
        life.plant.somebody_puts_in(Some(theirs));
        patch(&life.site, iso(ISO)).await;
        life.site.wait("a", LONGEST, says("another medium is in the virtual drive")).await;
        assert_eq!(life.plant.boot_medium().as_deref(), Some(theirs));
        life.plant.somebody_puts_in(None);
        life.runs_live().await;
        assert_eq!(count(&life.plant.effects(), "wipe "), 0, "{:#?}", life.plant.effects());
    });
}

#[test]
fn a_slow_bmc_is_waited_for_and_one_that_refuses_wipes_nothing() {
    scenarios::run(68, async |site| {
        let life = Life::available(site).await;
        life.plant.reads_media_in(Duration::from_secs(300));
        patch(&life.site, iso(ISO)).await;
        life.runs_live().await;
        assert_eq!(count(&life.plant.effects(), "boot medium in"), 1, "{:#?}", life.plant.effects());
    });
    scenarios::run(69, async |site| {
        let life = Life::available(site).await;
        life.plant.refuses_media(true);
        patch(&life.site, iso(ISO)).await;
        life.site.wait("a", LONGEST, says("check that spec.image.url is right")).await;
        life.plant.refuses_media(false);
        life.ends(0).await;
        patch(&life.site, iso(ISO)).await;
        life.runs_live().await;
    });
}

/// It does not come in when nobody knows of it any more. The machine might have been switched on meanwhile: its disks are wiped.
#[test]
fn one_that_is_taken_back_while_the_bmc_reads_it_is_taken_out_when_it_comes() {
    for (dies, is_wiped) in [(false, true), (true, true), (false, false)] {
        scenarios::run(70, async |site| {
            let mut life = Life::available(site).await;
            life.plant.reads_media_in(Duration::from_secs(300));
            if !is_wiped {
                patch(&life.site, json!({"spec": {"automatedCleaningMode": "disabled"}})).await;
            }
            patch(&life.site, iso(ISO)).await;
            while count(&life.plant.effects(), "boot medium in") == 0 {
                sleep(Duration::from_secs(1)).await;
            }
            patch(&life.site, json!({"spec": {"online": false}})).await;
            if dies {
                sleep(Duration::from_secs(10)).await;
                life.replace();
            }
            life.ends(usize::from(is_wiped)).await;
            sleep(Duration::from_secs(900)).await;
            let effects = life.plant.effects();
            assert_eq!(count(&effects, "boot medium out"), 1, "{effects:#?}");
            assert_ne!(life.plant.boot_medium().as_deref(), Some(ISO), "{effects:#?}");
        });
    }
}

#[test]
fn a_data_image_is_put_beside_it_or_is_told_that_there_is_no_room() {
    let images = |site: &Site| Api::<DataImage>::default_namespaced(site.observer());
    for one_drive in [false, true] {
        scenarios::run(71, async |site| {
            let life = Life::available(site).await;
            if one_drive {
                life.plant.has_one_drive();
            }
            patch(&life.site, iso(ISO)).await;
            life.runs_live().await;
            let tools = "http://192.0.2.8/tools.iso";
            let object = json!({"metadata": {"name": "a"}, "spec": {"url": tools}});
            images(&life.site).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
            if one_drive {
                // Also where the BMC has lost the ISO, and its drive is empty.
                for lost in [false, true] {
                    if lost {
                        life.plant.bmc_restarts();
                    }
                    sleep(Duration::from_secs(1200)).await;
                    let image = images(&life.site).get("a").await.unwrap();
                    let message = image.status.unwrap().error.unwrap().message;
                    assert!(message.contains("live ISO"), "{message}");
                }
                images(&life.site).delete("a", &DeleteParams::default()).await.unwrap();
            }
            life.reboots().await;
            assert!(life.plant.runs_live(), "{:#?}", life.plant.effects());
            assert_eq!(life.plant.boot_medium().as_deref(), Some(ISO));
            assert_eq!(life.plant.data_medium().as_deref(), (!one_drive).then_some(tools));
            life.ends(1).await;
            assert_eq!(life.plant.data_medium(), None);
        });
    }
}

#[test]
fn an_image_on_the_disk_makes_room_for_a_live_iso_and_the_other_way_round() {
    scenarios::run(72, async |site| {
        let life = Life::available(site).await;
        patch(&life.site, disk()).await;
        life.site.wait("a", LONGEST, is(State::Provisioned)).await;
        sleep(Duration::from_secs(300)).await;
        assert!(life.plant.runs_its_disk());
        patch(&life.site, iso(ISO)).await;
        life.site.wait("a", LONGEST, is(State::Deprovisioning)).await;
        life.runs_live().await;
        assert_eq!((life.plant.image(), count(&life.plant.effects(), "wipe ")), (None, 1));
        let other = "http://192.0.2.8/other.iso";
        patch(&life.site, iso(other)).await;
        life.site.wait("a", LONGEST, is(State::Deprovisioning)).await;
        life.runs_live().await;
        assert_eq!((life.plant.boot_medium().as_deref(), count(&life.plant.effects(), "wipe ")), (Some(other), 2));
        patch(&life.site, disk()).await;
        life.site.wait("a", LONGEST, is(State::Deprovisioning)).await;
        life.site.wait("a", LONGEST, is(State::Provisioned)).await;
        sleep(Duration::from_secs(300)).await;
        let effects = life.plant.effects();
        assert!(life.plant.runs_its_disk() && count(&effects, "wipe ") == 3, "{effects:#?}");
        assert!(!life.plant.is_overridden() && life.plant.boot_medium().is_none());
        // Its reboots are nobody's business but the disk's.
        life.reboots().await;
        assert!(life.plant.runs_its_disk() && life.plant.boot_medium().is_none());
    });
}

#[test]
fn one_that_is_given_back_unwiped_is_off_and_without_its_medium() {
    scenarios::run(73, async |site| {
        let life = Life::live(site).await;
        patch(&life.site, json!({"spec": {"automatedCleaningMode": "disabled"}})).await;
        patch(&life.site, json!({"spec": {"online": false}})).await;
        life.ends(0).await;
        assert!(!life.plant.is_on() && life.plant.boot_medium().is_none(), "{:#?}", life.plant.effects());
        let out = life.plant.effects().into_iter().find(|effect| effect.starts_with("boot medium out"));
        assert_eq!(out.as_deref(), Some("boot medium out under nothing"));
    });
}

#[test]
fn a_host_that_is_detached_deleted_and_declared_again_keeps_its_live_system() {
    scenarios::run(74, async |site| {
        let life = Life::live(site).await;
        let before = life.plant.effects();
        patch(&life.site, json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}})).await;
        let detached = |host: &BareMetalHost| {
            host.status.as_ref().is_some_and(|status| status.operational_status == OperationalStatus::Detached)
        };
        let host = life.site.wait("a", LONGEST, detached).await;
        life.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        life.site.gone_but_for_its_secret("a", LONGEST).await;
        let status = serde_json::to_string(host.status.as_ref().unwrap()).unwrap();
        let metadata = json!({"name": "a", "annotations": {"baremetalhost.metal3.io/status": status}});
        let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata, "spec": host.spec});
        life.site.hosts().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let ok = |host: &BareMetalHost| host.state() == State::Provisioned && rests(host);
        life.site.wait("a", LONGEST, ok).await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(life.plant.effects(), before, "a tenant was touched");
        life.plant.bmc_restarts();
        life.reboots().await;
        assert!(life.plant.runs_live(), "{:#?}", life.plant.effects());
        life.ends(1).await;
    });
}

/// Its deletion waits: its system runs on, and what that is started from stays in its drive.
#[test]
fn a_host_that_is_let_go_before_its_deletion_waits_keeps_its_live_system() {
    scenarios::run(78, async |site| {
        let life = Life::live(site).await;
        let before = life.plant.effects();
        let annotate = async |paused: Value, detached: &str| {
            let annotations =
                json!({"baremetalhost.metal3.io/paused": paused, "baremetalhost.metal3.io/detached": detached});
            patch(&life.site, json!({"metadata": {"annotations": annotations}})).await;
        };
        let delay = r#"{"deleteAction":"delay"}"#;
        annotate(json!(""), delay).await;
        life.site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        annotate(Value::Null, delay).await;
        let detached = |host: &BareMetalHost| {
            host.status.as_ref().is_some_and(|status| status.operational_status == OperationalStatus::Detached)
        };
        life.site.wait("a", LONGEST, detached).await;
        sleep(Duration::from_secs(3600)).await;
        life.plant.bmc_restarts();
        assert_eq!(life.plant.effects(), before, "a tenant was touched");
        annotate(Value::Null, r#"{"deleteAction":"delete"}"#).await;
        life.site.gone_but_for_its_secret("a", LONGEST).await;
        assert_eq!(life.plant.effects(), before, "a tenant was touched");
    });
}

#[test]
fn where_the_power_is_never_cut_it_is_reset_into_the_iso() {
    scenarios::run(75, async |site| {
        let life = Life::available(site).await;
        patch(&life.site, json!({"spec": {"disablePowerOff": true}})).await;
        patch(&life.site, iso(ISO)).await;
        life.runs_live().await;
        life.plant.bmc_restarts();
        patch(&life.site, json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}})).await;
        life.site.wait("a", LONGEST, |host| !host.annotations().contains_key("reboot.metal3.io")).await;
        sleep(Duration::from_secs(120)).await;
        let effects = life.plant.effects();
        assert!(life.plant.runs_live() && count(&effects, "live system ") == 2, "{effects:#?}");
        assert!(
            !effects.iter().any(|effect| effect.starts_with("HardOff") || effect.starts_with("SoftOff")),
            "{effects:#?}"
        );
        life.ends(1).await;
    });
}

#[test]
fn fields_that_a_live_iso_has_no_use_for_are_told() {
    scenarios::run(76, async |site| {
        let life = Life::available(site).await;
        let spec = json!({"spec": {"userData": {"name": "user-data"}}});
        let secret = json!({"metadata": {"name": "user-data"}, "stringData": {"userData": "x"}});
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(life.site.observer());
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        patch(&life.site, spec).await;
        patch(&life.site, iso(ISO)).await;
        life.runs_live().await;
        let told = events(&life.site, "UnusedFields").await;
        assert!(told.len() == 1 && told[0].contains("spec.userData has no effect"), "{told:?}");
    });
}
