//! A host from its creation to its deletion, whatever happens to the controller, the API and what is between them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::metal3::{BareMetalHost, OperationalStatus, ProvisioningState as State};
use api::metamorph::MachineRecord;
use async_trait::async_trait;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use provisioner_fixture::Watch;
use scenarios::{Effect, Machines, Site, Trouble, address, fixture, is};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Seeds of a run.
const SEEDS: u64 = 20;

/// Creates, provisions, deprovisions and deletes a host; what was done to its machine.
async fn life(site: &mut Site, machines: &Machines, mut between: impl AsyncFnMut(&mut Site)) -> Vec<Effect> {
    site.create_host("a").await;
    between(site).await;
    site.wait("a", 7200, is(State::Available)).await;
    let digest = "0".repeat(64);
    let image = json!({"spec": {"image": {"url": "http://192.0.2.8/i", "checksum": digest, "checksumType": "sha256", "format": "raw"}}});
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(image)).await.unwrap();
    between(site).await;
    site.wait("a", 7200, is(State::Provisioned)).await;
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"image": null}}))).await.unwrap();
    between(site).await;
    site.wait("a", 7200, is(State::Available)).await;
    site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
    between(site).await;
    for _ in 0..7200 {
        if site.hosts().get_opt("a").await.unwrap().is_none() {
            return machines.effects(&address("a"));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("the host never went: {:?}", site.hosts().get("a").await);
}

fn count(effects: &[Effect], what: Effect) -> usize {
    effects.iter().filter(|effect| **effect == what).count()
}

/// Machines whose work takes its time: what happens in between hits it.
fn machines() -> Machines {
    let machines = Machines::default();
    machines.trouble(&address("a"), Trouble::Slow, true);
    machines
}

#[test]
fn a_life_takes_milliseconds() {
    let began = std::time::Instant::now();
    let machines = machines();
    let effects = scenarios::run(1, async |mut site| {
        let _controller = site.controller(fixture(&machines));
        life(&mut site, &machines, async |_| {}).await
    });
    println!("a life: {:.0} ms, {effects:?}", began.elapsed().as_secs_f64() * 1e3);
    assert_eq!([Effect::Inspect, Effect::Provision, Effect::Deprovision].map(|what| count(&effects, what)), [1, 1, 1]);
}

#[test]
fn whoever_is_killed_whatever_is_lost_nothing_is_done_twice() {
    let began = std::time::Instant::now();
    for seed in 0..SEEDS {
        let machines = machines();
        let effects = scenarios::run(seed, async |mut site| {
            site.weather.rough(30, Duration::from_millis(500));
            site.weather.lags(Duration::from_secs(if seed % 2 == 0 { 0 } else { 10 }));
            let mut controller = site.controller(fixture(&machines));
            life(&mut site, &machines, async |site| {
                tokio::time::sleep(Duration::from_millis(site.weather.below(200_000))).await;
                match site.weather.below(3) {
                    0 => site.restart().await,
                    1 => {
                        controller.abort();
                        controller = site.controller(fixture(&machines));
                    }
                    _ => {
                        controller.abort();
                        site.restart().await;
                        controller = site.controller(fixture(&machines));
                    }
                }
            })
            .await
        });
        // An inspection is made again when its end was not recorded; what destroys is not.
        let destroyed = [Effect::Provision, Effect::Deprovision].map(|what| count(&effects, what));
        assert!(destroyed == [1, 1] && count(&effects, Effect::Inspect) >= 1, "seed {seed}: {effects:?}");
    }
    println!("{SEEDS} lives: {:.0} ms each", began.elapsed().as_secs_f64() * 1e3 / SEEDS as f64);
}

#[test]
fn the_record_of_an_earlier_host_of_that_name_is_not_this_ones() {
    let machines = Machines::default();
    scenarios::run(20, async |site| {
        let _controller = site.controller(fixture(&machines));
        site.create_host("b").await;
        site.wait("b", 300, is(State::Available)).await;
        let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
        let earlier = records.get("b").await.unwrap();
        // Of another host, with another machine, under this name: as in a restored backup.
        records.create(&PostParams::default(), &MachineRecord::new("a", earlier.spec.clone())).await.unwrap();
        site.create_host("a").await;
        let host = site.wait("a", 300, is(State::Available)).await;
        assert_eq!(host.status.unwrap().error_message, "");
        let now = records.get("a").await.unwrap();
        assert_eq!(now.spec.host.uid, host.metadata.uid);
        assert_ne!(now.spec.provisioner.unwrap().data, earlier.spec.provisioner.unwrap().data);
    });
}

#[test]
fn a_host_for_which_there_is_no_room_says_so_once_and_goes_on() {
    let machines = Machines::default();
    scenarios::run(21, async |site| {
        machines.trouble(&address("a"), Trouble::Busy, true);
        let _controller = site.controller(fixture(&machines));
        site.create_host("a").await;
        let delayed = |host: &BareMetalHost| {
            let status = host.status.as_ref();
            status.is_some_and(|s| s.operational_status == OperationalStatus::Delayed && !s.error_message.is_empty())
        };
        site.wait("a", 300, delayed).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = site.weather.calls().len();
        tokio::time::sleep(Duration::from_secs(900)).await;
        let calls = site.weather.calls().split_off(before);
        let writes: Vec<_> = calls.iter().filter(|call| !call.starts_with("GET ")).collect();
        assert!(writes.is_empty(), "it has been said: {writes:?}");
        machines.trouble(&address("a"), Trouble::Busy, false);
        site.wait("a", 300, is(State::Available)).await;
        let status = site.hosts().get("a").await.unwrap().status.unwrap();
        assert_eq!((status.operational_status, status.error_message.as_str()), (OperationalStatus::Ok, ""));
    });
}

/// When machines were booted for an inspection, and when they were switched on.
#[derive(Default)]
struct Switched(Mutex<Vec<(Effect, Instant)>>);

#[async_trait]
impl Watch for Switched {
    async fn before(&self, _: &str, _: Effect) {}

    async fn after(&self, _: &str, effect: Effect, happened: bool) {
        if happened {
            self.0.lock().unwrap().push((effect, Instant::now()));
        }
    }
}

impl Switched {
    fn times(&self, what: Effect) -> Vec<Instant> {
        self.0.lock().unwrap().iter().filter(|(effect, _)| *effect == what).map(|(_, time)| *time).collect()
    }

    /// Most of one kind within ten seconds.
    fn most_at_once(&self, what: Effect) -> usize {
        let times = self.times(what);
        let within = |first: &Instant| {
            times.iter().filter(|time| **time >= *first && time.duration_since(*first) < Duration::from_secs(9)).count()
        };
        times.iter().map(within).max().unwrap_or(0)
    }
}

/// It cannot be registered, and waits for nothing when it goes.
#[test]
fn a_host_that_names_no_secret_can_be_deleted() {
    scenarios::run(97, async |site| {
        let _controller = site.controller(fixture(&Machines::default()));
        let host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "a"},
            "spec": {"online": true, "bmc": {"address": address("a"), "credentialsName": ""}}});
        site.hosts().create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
        site.wait("a", 600, |host| host.status.as_ref().is_some_and(|status| status.error_type.is_some())).await;
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", 600).await;
    });
}

fn is_on(host: &BareMetalHost) -> bool {
    host.state() == State::Available && host.status.as_ref().is_some_and(|status| status.powered_on)
}

/// Declares so many hosts, and waits until their machines are on.
async fn come_on(site: &Site, hosts: u32) {
    let names: Vec<String> = (0..hosts).map(|index| format!("h{index}")).collect();
    for name in &names {
        site.create_host(name).await;
    }
    for name in &names {
        site.wait(name, 3600, is_on).await;
    }
}

#[test]
fn machines_come_on_in_steps_the_first_inspection_included() {
    for (limit, most) in [(4, 4), (0, 12)] {
        let switched = Arc::new(Switched::default());
        let machines = Machines::watched(Arc::clone(&switched) as Arc<dyn Watch>);
        scenarios::run(22, async |mut site| {
            site.power_on_limit = limit;
            let _controller = site.controller(fixture(&machines));
            come_on(&site, 12).await;
        });
        for what in [Effect::Inspect, Effect::On] {
            assert_eq!((switched.times(what).len(), switched.most_at_once(what)), (12, most), "{what}, limit {limit}");
        }
    }
}

/// They are off, and all are to be provisioned at once, for which there is no room. When there is, they come on in steps.
#[test]
fn machines_that_waited_for_room_to_be_provisioned_come_on_in_steps() {
    let switched = Arc::new(Switched::default());
    let machines = Machines::watched(Arc::clone(&switched) as Arc<dyn Watch>);
    scenarios::run(24, async |mut site| {
        site.power_on_limit = 2;
        let _controller = site.controller(fixture(&machines));
        let names: Vec<String> = (0..6).map(|index| format!("h{index}")).collect();
        let patch = async |name: &str, change: Value| {
            site.hosts().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        };
        for name in &names {
            site.create_host(name).await;
            patch(name, json!({"spec": {"online": false}})).await;
        }
        let is_off = |host: &BareMetalHost| {
            host.state() == State::Available && host.status.as_ref().is_some_and(|status| !status.powered_on)
        };
        for name in &names {
            site.wait(name, 3600, is_off).await;
            machines.trouble(&address(name), Trouble::Busy, true);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let image = json!({"url": "http://192.0.2.8/i", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"});
        for name in &names {
            patch(name, json!({"spec": {"online": true, "image": image}})).await;
        }
        let waits = |host: &BareMetalHost| {
            host.state() == State::Provisioning
                && host.status.as_ref().is_some_and(|s| s.operational_status == OperationalStatus::Delayed)
        };
        for name in &names {
            site.wait(name, 3600, waits).await;
        }
        names.iter().for_each(|name| machines.trouble(&address(name), Trouble::Busy, false));
        for name in &names {
            site.wait(name, 3600, is(State::Provisioned)).await;
        }
    });
    assert_eq!((switched.times(Effect::Provision).len(), switched.most_at_once(Effect::Provision)), (6, 2));
}

#[test]
fn machines_come_on_in_steps_of_which_those_who_wait_for_room_take_none() {
    let switched = Arc::new(Switched::default());
    let machines = Machines::watched(Arc::clone(&switched) as Arc<dyn Watch>);
    scenarios::run(23, async |mut site| {
        site.power_on_limit = 2;
        let waiting: Vec<String> = (0..6).map(|index| format!("busy{index}")).collect();
        waiting.iter().for_each(|name| machines.trouble(&address(name), Trouble::Busy, true));
        let _controller = site.controller(fixture(&machines));
        for name in &waiting {
            site.create_host(name).await;
        }
        let delayed = |host: &BareMetalHost| {
            host.status.as_ref().is_some_and(|s| s.operational_status == OperationalStatus::Delayed)
        };
        for name in &waiting {
            site.wait(name, 300, delayed).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (calls, begun) = (site.weather.calls().len(), Instant::now());
        come_on(&site, 6).await;
        assert!(begun.elapsed() < Duration::from_secs(90), "{:?} for 6 machines, 2 at a time", begun.elapsed());
        tokio::time::sleep(Duration::from_secs(120)).await;
        let calls = site.weather.calls().split_off(calls);
        let flaps: Vec<_> = calls.iter().filter(|call| !call.starts_with("GET ") && call.contains("busy")).collect();
        assert!(flaps.is_empty(), "it has been said: {flaps:?}");
        // When there is room, they come on in steps as well.
        waiting.iter().for_each(|name| machines.trouble(&address(name), Trouble::Busy, false));
        for name in &waiting {
            site.wait(name, 3600, is_on).await;
        }
    });
    assert_eq!((switched.times(Effect::Inspect).len(), switched.most_at_once(Effect::Inspect)), (12, 2));
}
