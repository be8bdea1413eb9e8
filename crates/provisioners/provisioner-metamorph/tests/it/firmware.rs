//! Settings of the firmware: on an empty machine and on one in use, and what happens to them when the server dies.

use std::collections::BTreeMap;
use std::sync::Arc;

use bmc::{Applied, AttributeKind, AttributeSchema, BiosSeen, Capability, ErrorKind, FirmwareVersion, JobState};
use provisioner::{
    Cause, Failure, FirmwareFacts, FirmwareTargets, FirmwareUpdate, PrepareRequest, ServiceRequest, Setting, Verdict,
};

use crate::common::{World, image, pass};
use crate::fake::unconfirmed;

fn values(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A machine that shows two settings, and applies others when it starts.
fn machine() -> World {
    let world = World::new();
    let seen = BiosSeen { current: values(&[("BootDelay", "5"), ("Turbo", "On")]), ..BiosSeen::default() };
    let mut bmc = world.bmc.lock().unwrap();
    (bmc.bios, bmc.applies_bios) = (Some(seen), true);
    drop(bmc);
    world
}

fn wished(all: &[(&str, &str)]) -> FirmwareTargets {
    let settings = all.iter().map(|(name, value)| ((*name).to_owned(), Setting::Text((*value).to_owned())));
    FirmwareTargets { settings: settings.collect(), ..FirmwareTargets::default() }
}

fn turbo() -> FirmwareTargets {
    wished(&[("Turbo", "Off"), ("BootDelay", "5")])
}

async fn prepare(world: &World, wish: Option<&str>, firmware: FirmwareTargets) -> Result<Verdict<()>, Failure> {
    let unprepared = firmware != FirmwareTargets::default();
    let request =
        PrepareRequest { wish: wish.map(ToOwned::to_owned), firmware, unprepared, ..PrepareRequest::default() };
    world.host().prepare().unwrap().prepare(request).await
}

/// The host goes on with what was accepted.
async fn go_on(world: &World) -> Result<Verdict<()>, Failure> {
    prepare(world, None, FirmwareTargets::default()).await
}

async fn service(world: &World, wish: Option<&str>, firmware: FirmwareTargets) -> Result<Verdict<()>, Failure> {
    let unprepared = firmware != FirmwareTargets::default();
    let request = ServiceRequest { wish: wish.map(ToOwned::to_owned), firmware, unprepared, restart: false };
    world.host().service().unwrap().service(request).await
}

async fn abort(world: &World) -> Result<Verdict<()>, Failure> {
    world.host().prepare().unwrap().abort().await
}

fn pending(world: &World) -> BTreeMap<String, String> {
    world.bmc.lock().unwrap().bios.as_ref().unwrap().pending.clone()
}

async fn facts(world: &World) -> FirmwareFacts {
    let Verdict::Done(facts) = world.host().firmware().unwrap().facts(true).await.unwrap() else {
        panic!("the firmware is read at once");
    };
    facts
}

fn is_accepted(verdict: &Verdict<()>) -> bool {
    matches!(verdict, Verdict::Working(working) if working.accepted)
}

#[tokio::test(start_paused = true)]
async fn only_what_differs_is_set_and_it_counts_when_it_is_seen_in_force() {
    let world = machine();
    world.bmc.lock().unwrap().applies_bios = false;
    assert!(is_accepted(&prepare(&world, Some("w"), turbo()).await.unwrap()));
    assert_eq!(world.calls(), ["set Turbo=Off", "Restart"]);
    for _ in 0..60 {
        let verdict = go_on(&world).await.unwrap();
        assert!(matches!(&verdict, Verdict::Working(working) if !working.accepted), "{verdict:?}");
        pass(20).await;
    }
    assert_eq!(world.calls(), [""; 0], "the firmware is left at its work");
    let seen = BiosSeen { current: values(&[("BootDelay", "5"), ("Turbo", "Off")]), ..BiosSeen::default() };
    world.bmc.lock().unwrap().bios = Some(seen);
    assert_eq!(go_on(&world).await.unwrap(), Verdict::Done(()));
    // It is as wished already.
    assert_eq!(prepare(&world, Some("again"), turbo()).await.unwrap(), Verdict::Done(()));
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_applied_is_an_error_that_says_what_the_bmc_says() {
    let world = machine();
    world.bmc.lock().unwrap().applies_bios = false;
    prepare(&world, Some("w"), turbo()).await.unwrap();
    pass(1801).await;
    let failure = go_on(&world).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert!(failure.message.contains("1800 s") && failure.message.contains("Turbo"), "{failure}");
    assert!(!failure.message.contains("BootDelay"), "{failure}");

    // Words of an earlier application are no news; those of this one are.
    let world = machine();
    {
        let mut bmc = world.bmc.lock().unwrap();
        bmc.applies_bios = false;
        bmc.bios.as_mut().unwrap().applied = Applied { mark: Some("1".into()), refusals: vec!["old".into()] };
    }
    prepare(&world, Some("w"), turbo()).await.unwrap();
    pass(60).await;
    assert!(matches!(go_on(&world).await.unwrap(), Verdict::Working(_)));
    world.bmc.lock().unwrap().bios.as_mut().unwrap().applied =
        Applied { mark: Some("2".into()), refusals: vec!["Turbo: not with this processor".into()] };
    let failure = go_on(&world).await.unwrap_err();
    assert!(failure.message.contains("not with this processor"), "{failure}");

    // The BMC's job tells, whoever reads of it.
    let mut world = machine();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.applies_bios, bmc.job) = (false, Some(("/jobs/1".into(), JobState::Open("Scheduled".into()))));
    }
    prepare(&world, Some("w"), turbo()).await.unwrap();
    assert!(matches!(go_on(&world).await.unwrap(), Verdict::Working(_)));
    world.restart();
    world.bmc.lock().unwrap().job = Some(("/jobs/1".into(), JobState::Failed("no".into())));
    let failure = go_on(&world).await.unwrap_err();
    assert!(failure.message.contains("job for it has failed: no") && !failure.message.contains("/jobs/1"), "{failure}");
}

/// The machine may not have restarted for it: what came of that is told, and not that it has.
#[tokio::test(start_paused = true)]
async fn a_change_whose_restart_was_not_confirmed_says_what_came_of_it() {
    let world = machine();
    world.bmc.lock().unwrap().fails_restart = Some(unconfirmed);
    assert!(is_accepted(&prepare(&world, Some("w"), turbo()).await.unwrap()));
    assert_eq!(world.calls(), ["set Turbo=Off", "Restart"]);
    pass(1801).await;
    let failure = go_on(&world).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert!(failure.message.contains("1800 s") && failure.message.contains("licence missing"), "{failure}");
    assert!(!failure.message.contains("after the machine's restart"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_setting_and_restarts_nothing() {
    let world = machine();
    world.bmc.lock().unwrap().refuses_bios = Some("Turbo".into());
    let failure = prepare(&world, Some("w"), turbo()).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert!(failure.message.contains("it refuses Turbo"), "{failure}");
    assert_eq!(world.calls(), ["set Turbo=Off"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_over_it_writes_nothing_twice() {
    // After the restart: what is wished stands in the record alone, and the firmware is at work.
    let mut world = machine();
    world.bmc.lock().unwrap().applies_bios = false;
    prepare(&world, Some("w"), turbo()).await.unwrap();
    world.calls();
    world.restart();
    for _ in 0..14 {
        assert!(matches!(go_on(&world).await.unwrap(), Verdict::Working(_)));
        pass(30).await;
    }
    assert_eq!(world.calls(), [""; 0], "it is left at its work");
    // The restart was never made: it is asked for, and the settings are not written again.
    world.bmc.lock().unwrap().applies_bios = true;
    for _ in 0..3 {
        go_on(&world).await.unwrap();
        pass(30).await;
    }
    assert_eq!(world.calls(), ["Restart"]);
    assert_eq!(go_on(&world).await.unwrap(), Verdict::Done(()));
}

#[tokio::test(start_paused = true)]
async fn a_machine_in_use_is_switched_on_once_and_left_to_its_self_test_by_a_later_process() {
    let mut world = machine();
    (world.bmc.lock().unwrap().on, world.bmc.lock().unwrap().applies_bios) = (false, false);
    assert!(is_accepted(&service(&world, Some("w"), turbo()).await.unwrap()));
    assert_eq!(world.calls(), ["set Turbo=Off", "On"]);
    world.restart();
    for _ in 0..14 {
        service(&world, None, FirmwareTargets::default()).await.unwrap();
        pass(30).await;
    }
    assert_eq!(world.calls(), [""; 0]);
    world.bmc.lock().unwrap().bios.as_mut().unwrap().current = values(&[("Turbo", "Off"), ("BootDelay", "5")]);
    assert_eq!(service(&world, None, FirmwareTargets::default()).await.unwrap(), Verdict::Done(()));
    // Killed before it was switched on.
    let mut world = machine();
    world.bmc.lock().unwrap().on = false;
    world.bmc.lock().unwrap().ignores = vec![bmc::PowerAction::On];
    service(&world, Some("w"), turbo()).await.unwrap();
    world.calls();
    world.bmc.lock().unwrap().ignores.clear();
    world.restart();
    service(&world, Some("w"), turbo()).await.unwrap();
    assert_eq!(world.calls(), [""; 0], "whoever has begun may be about to switch it on");
    pass(60).await;
    service(&world, Some("w"), turbo()).await.unwrap();
    assert_eq!(world.calls(), ["On"], "nothing is at work on a machine that is off");
    assert_eq!(service(&world, Some("w"), turbo()).await.unwrap(), Verdict::Done(()));
}

#[tokio::test(start_paused = true)]
async fn a_machine_in_use_that_runs_is_never_restarted_for_its_settings() {
    let world = machine();
    let failure = service(&world, Some("w"), turbo()).await.unwrap_err();
    assert!(failure.text().contains("reboot the host"), "{}", failure.text());
    assert_eq!(world.calls(), [""; 0]);
    // Nor when it is tried again, however often.
    for _ in 0..3 {
        pass(3600).await;
        let again = ServiceRequest { wish: Some("w".into()), firmware: turbo(), unprepared: true, restart: true };
        world.host().service().unwrap().service(again).await.unwrap_err();
    }
    assert_eq!(world.calls(), [""; 0]);
    // It was begun while the machine was off, and does not come into force: nobody restarts it, whichever process looks.
    let mut world = machine();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.on, bmc.applies_bios) = (false, false);
    }
    service(&world, Some("v"), turbo()).await.unwrap();
    assert_eq!(world.calls(), ["set Turbo=Off", "On"]);
    world.restart();
    for _ in 0..240 {
        pass(10).await;
        if service(&world, Some("v"), turbo()).await.is_err() {
            break;
        }
    }
    assert_eq!(world.calls(), [""; 0]);
}

/// A machine in use does not stay off for what its BMC does not show.
#[tokio::test(start_paused = true)]
async fn settings_that_are_hidden_while_the_machine_is_off_hold_up_no_boot() {
    let world = machine();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.on, bmc.bios) = (false, None);
    }
    let failure = service(&world, Some("w"), turbo()).await.unwrap_err();
    assert!(failure.text().contains("while the machine is off"), "{}", failure.text());
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn another_machine_gets_no_settings() {
    let world = machine();
    facts(&world).await;
    world.bmc.lock().unwrap().shows_another = true;
    let failure = prepare(&world, Some("w"), turbo()).await.unwrap_err();
    assert_eq!(failure.cause, Cause::AnotherMachine);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_wished_any_more_is_ended_and_the_next_boot_is_another() {
    let world = machine();
    world.bmc.lock().unwrap().applies_bios = false;
    world.booted().await;
    let before = world.journal.latest_boot().unwrap();
    prepare(&world, Some("w"), turbo()).await.unwrap();
    assert!(world.journal.latest_boot().unwrap().retired, "its agent is gone");
    world.calls();
    assert_eq!(abort(&world).await.unwrap(), Verdict::Done(()));
    assert_eq!(go_on(&world).await.unwrap(), Verdict::Done(()));
    world.host().provision(image()).await.unwrap();
    assert_eq!(world.calls(), ["set Turbo=On", "insert", "boot once", "Restart"]);
    assert!(world.journal.latest_boot().unwrap().generation > before.generation);
}

/// The BMC has taken the settings; the machine's restart is to bring them.
async fn handed_over(world: &World) {
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.applies_bios, bmc.bios.as_mut().unwrap().pending) = (false, values(&[("NumLock", "Off")]));
        bmc.bios.as_mut().unwrap().current.insert("NumLock".into(), "On".into());
    }
    prepare(world, Some("w"), wished(&[("Turbo", "Off"), ("BootDelay", "9")])).await.unwrap();
    assert_eq!(pending(world), values(&[("Turbo", "Off"), ("BootDelay", "9"), ("NumLock", "Off")]));
    world.calls();
}

#[tokio::test(start_paused = true)]
async fn what_was_withdrawn_before_the_restart_is_taken_back_at_the_bmc() {
    // All of it, by another process; what somebody else has left pending there is theirs.
    let mut world = machine();
    handed_over(&world).await;
    world.restart();
    assert_eq!(abort(&world).await.unwrap(), Verdict::Done(()));
    assert_eq!(world.calls(), ["set BootDelay=5 Turbo=On"], "and nothing is restarted for it");
    assert_eq!(pending(&world)["NumLock"], "Off");
    world.restart();
    world.bmc.lock().unwrap().bios_fails = Some(ErrorKind::Unreachable);
    for _ in 0..3 {
        assert_eq!(abort(&world).await.unwrap(), Verdict::Done(()), "the BMC is not asked again");
    }
    // A part of it, or what is in force, is wished now.
    let world = machine();
    handed_over(&world).await;
    prepare(&world, Some("v"), wished(&[("Turbo", "On"), ("BootDelay", "7")])).await.unwrap();
    assert_eq!(world.calls(), ["set BootDelay=7 Turbo=On", "Restart"]);
    let world = machine();
    handed_over(&world).await;
    let what_is = wished(&[("Turbo", "On"), ("BootDelay", "5")]);
    assert_eq!(prepare(&world, Some("v"), what_is).await.unwrap(), Verdict::Done(()));
    assert_eq!(world.calls(), ["set BootDelay=5 Turbo=On"]);
    let world = machine();
    handed_over(&world).await;
    prepare(&world, Some("v"), wished(&[("BootDelay", "9")])).await.unwrap();
    assert_eq!(world.calls(), ["set BootDelay=9 Turbo=On", "Restart"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_bmc_does_not_take_back_is_told_and_tried_again() {
    let world = machine();
    handed_over(&world).await;
    world.bmc.lock().unwrap().refuses_bios = Some("Turbo: a job is open".into());
    for _ in 0..2 {
        let failure = abort(&world).await.unwrap_err();
        assert!(failure.message.contains("not wished any more (BootDelay, Turbo)"), "{failure}");
        assert!(failure.message.contains("a job is open") && failure.text().contains("job queue"), "{failure}");
        assert_eq!(world.calls(), ["set BootDelay=5 Turbo=On"]);
    }
    // The machine is in its self-test: waited for.
    let seen = world.bmc.lock().unwrap().bios.take();
    assert!(matches!(abort(&world).await.unwrap(), Verdict::Working(_)));
    pass(1801).await;
    assert!(abort(&world).await.unwrap_err().message.contains("does not show them"));
    world.bmc.lock().unwrap().bios = seen;
    // Somebody has cleared them there.
    world.bmc.lock().unwrap().bios.as_mut().unwrap().pending.clear();
    assert_eq!(abort(&world).await.unwrap(), Verdict::Done(()));
    assert_eq!(world.calls(), [""; 0]);
}

/// A service has failed with settings pending, and they are not wished any more: no later start brings them.
#[tokio::test(start_paused = true)]
async fn what_a_failed_service_has_left_pending_does_not_come_with_the_next_start() {
    let failed = async || {
        let world = machine();
        (world.bmc.lock().unwrap().on, world.bmc.lock().unwrap().applies_bios) = (false, false);
        world.bmc.lock().unwrap().bios.as_mut().unwrap().pending = values(&[("NumLock", "Off")]);
        service(&world, Some("w"), turbo()).await.unwrap();
        pass(1801).await;
        service(&world, Some("w"), turbo()).await.unwrap_err();
        assert_eq!(pending(&world)["Turbo"], "Off");
        world.bmc.lock().unwrap().on = false;
        world.calls();
        world
    };
    let on = async |world: &World| world.host().set_power(provisioner::PowerWish::On.into()).await.unwrap();
    let mut world = failed().await;
    world.restart();
    on(&world).await;
    assert_eq!(world.calls(), ["set Turbo=On", "On"]);
    assert_eq!(pending(&world)["NumLock"], "Off", "that is somebody else's");
    world.restart();
    world.bmc.lock().unwrap().on = false;
    on(&world).await;
    assert_eq!(world.calls(), ["On"]);
    // A BMC that hides them, or does not take them back, keeps no machine off.
    for hides in [true, false] {
        let world = failed().await;
        if hides {
            world.bmc.lock().unwrap().bios = None;
        } else {
            world.bmc.lock().unwrap().refuses_bios = Some("a job is open".into());
        }
        on(&world).await;
        assert_eq!(world.calls().last().unwrap(), "On");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_firmware_is_comes_with_what_it_may_be() {
    let world = machine();
    let schema = AttributeSchema {
        kind: Some(AttributeKind::Enumeration),
        allowed: vec!["On".into(), "Off".into()],
        ..AttributeSchema::default()
    };
    let version = |version: &str| vec![FirmwareVersion { component: "bios".to_owned(), version: version.to_owned() }];
    {
        let mut bmc = world.bmc.lock().unwrap();
        bmc.bios_schema = Some(Arc::new(BTreeMap::from([("Turbo".to_owned(), schema)])));
        bmc.versions = version("1.0");
    }
    let read = facts(&world).await;
    let settings = read.settings.unwrap();
    assert_eq!((settings["Turbo"].value.as_str(), settings["Turbo"].allowed.join(" ")), ("On", "On Off".into()));
    assert_eq!((settings["Turbo"].kind.as_deref(), settings["BootDelay"].kind.as_deref()), (Some("Enumeration"), None));
    let components = read.components.unwrap();
    assert_eq!((components[0].component.as_str(), components[0].version.as_str()), ("bios", "1.0"));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_without_settings_says_so() {
    let world = machine();
    world.bmc.lock().unwrap().lacks = Some(Capability::Bios);
    assert_eq!(facts(&world).await.settings, None);
    let failure = prepare(&world, Some("w"), turbo()).await.unwrap_err();
    assert!(failure.message.contains("BIOS settings") && failure.message.contains("looked for in vain"), "{failure}");
    assert_eq!(world.calls(), [""; 0]);
    // Not at the moment: waited for, within limits.
    let world = machine();
    let seen = world.bmc.lock().unwrap().bios.take();
    assert!(
        matches!(prepare(&world, Some("w"), turbo()).await.unwrap(), Verdict::Working(working) if !working.accepted)
    );
    world.bmc.lock().unwrap().bios = seen;
    assert!(is_accepted(&prepare(&world, Some("w"), turbo()).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_refuses_to_show_its_settings_keeps_no_host_waiting() {
    let world = machine();
    for kind in [ErrorKind::Rejected { status: 500 }, ErrorKind::Protocol, ErrorKind::NotFound] {
        world.bmc.lock().unwrap().bios_fails = Some(kind);
        let read = facts(&world).await;
        assert_eq!((read.settings, read.components), (None, Some(vec![])), "{kind:?}");
    }
    world.bmc.lock().unwrap().bios_fails = Some(ErrorKind::Unreachable);
    let failure = world.host().firmware().unwrap().facts(true).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcUnreachable);
}

#[tokio::test(start_paused = true)]
async fn updates_are_refused_with_a_sentence() {
    let world = machine();
    let updates = vec![FirmwareUpdate { component: "bios".into(), url: "http://192.0.2.9/bios.bin".into() }];
    let targets = FirmwareTargets { updates, ..FirmwareTargets::default() };
    let failure = prepare(&world, Some("w"), targets).await.unwrap_err();
    assert_eq!(failure.cause, Cause::NotServed);
    assert!(failure.text().contains("spec.updates"), "{}", failure.text());
}
