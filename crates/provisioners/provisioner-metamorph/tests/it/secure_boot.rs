//! Secure Boot follows the boot mode: before the medium, both ways, and proved by the agent.

use agent_protocol::{Action, FirmwareState};
use api::metal3::BootMode;
use axum::http::StatusCode;
use bmc::{Capability, SecureBootSeen};
use provisioner::{Cause, CleaningRequest, Failure, Verdict};

use crate::common::{Agent, WIPED, World, image, pass};
use crate::fake::unconfirmed;

fn seen(on: bool) -> Option<SecureBootSeen> {
    Some(SecureBootSeen { enable: Some(on), current: Some(on), setup_mode: false })
}

fn firmware(secure_boot: bool, setup_mode: bool) -> Option<FirmwareState> {
    Some(FirmwareState { uefi: true, secure_boot, setup_mode })
}

fn mode(on: bool) -> BootMode {
    if on { BootMode::UefiSecureBoot } else { BootMode::Uefi }
}

/// A machine with Secure Boot as told, which takes changes.
fn machine(on: bool) -> World {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.secure_boot, bmc.takes_secure_boot) = (seen(on), true);
    }
    world
}

async fn provision(world: &World) -> Result<Verdict<()>, Failure> {
    world.host().provision(image()).await
}

/// The agent of the newest boot reports, with this in its firmware's variables.
async fn reports(world: &World, found: Option<FirmwareState>) -> Agent {
    let generation = world.journal.last().1.boot.unwrap().generation;
    let agent = Agent::new(generation, &format!("boot-{generation}"));
    *agent.firmware.lock().unwrap() = found;
    assert_eq!(agent.say(world).await.0, StatusCode::OK);
    agent
}

#[tokio::test(start_paused = true)]
async fn it_is_switched_both_ways_and_finished_before_the_medium_goes_in() {
    for wanted in [true, false] {
        let mut world = machine(!wanted);
        world.boot_mode = mode(wanted);
        // The firmware takes its time.
        world.bmc.lock().unwrap().takes_secure_boot = false;
        for _ in 0..20 {
            assert!(matches!(provision(&world).await.unwrap(), Verdict::Working(_)));
            pass(30).await;
        }
        assert_eq!(world.calls(), [format!("secure boot {wanted}"), "Restart".to_owned()]);
        world.bmc.lock().unwrap().secure_boot = seen(wanted);
        provision(&world).await.unwrap();
        assert_eq!(world.calls(), ["insert", "boot once", "Restart"]);
        let agent = reports(&world, firmware(wanted, false)).await;
        provision(&world).await.unwrap();
        assert!(matches!(agent.given(&world).await.action, Action::WriteImage(_)));
        // It is as wished already: nothing but the boot.
        let mut world = machine(wanted);
        world.boot_mode = mode(wanted);
        provision(&world).await.unwrap();
        assert_eq!(world.calls(), ["insert", "boot once", "Restart"]);
    }
}

/// The firmware takes minutes to switch Secure Boot, and the machine is restarted for it: not where the agent cannot be booted afterwards.
#[tokio::test(start_paused = true)]
async fn what_the_boot_needs_is_looked_for_before_the_machine_is_restarted() {
    for lacks in [Some(Capability::VirtualMedia), Some(Capability::BootDevice), None] {
        let mut world = machine(false);
        world.boot_mode = BootMode::UefiSecureBoot;
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.lacks, bmc.has_no_drive) = (lacks, lacks.is_none());
        }
        let failure = provision(&world).await.unwrap_err();
        assert_eq!(failure.cause, Cause::BmcRefused, "{failure}");
        let word = lacks.unwrap_or(Capability::VirtualMedia).as_str();
        assert!(failure.message.contains(word) && failure.message.contains("looked for in vain"), "{failure}");
        assert_eq!(world.calls(), [""; 0], "{lacks:?}");
        // What is there from the next look on is used.
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.lacks, bmc.has_no_drive) = (None, false);
        }
        provision(&world).await.unwrap();
        assert_eq!(world.calls(), ["secure boot true", "Restart"]);
    }
}

/// A BMC takes minutes for the setting, and an address may have become another machine's meanwhile.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_taken_the_place_of_the_hosts_is_not_restarted_for_it() {
    let mut world = machine(false);
    world.boot_mode = BootMode::UefiSecureBoot;
    world.host().power_state().await.unwrap();
    world.bmc.lock().unwrap().another_after = Some("secure boot true");
    let failure = provision(&world).await.unwrap_err();
    assert_eq!(failure.cause, Cause::AnotherMachine, "{failure}");
    assert_eq!(world.calls(), ["secure boot true"]);
}

/// Whether it could reach the medium is not the question.
#[tokio::test(start_paused = true)]
async fn a_bmc_without_a_drive_is_not_told_to_reach_the_medium() {
    let world = machine(false);
    world.bmc.lock().unwrap().has_no_drive = true;
    let failure = provision(&world).await.unwrap_err();
    assert!(failure.text().contains("licensed"), "{failure}");
    assert!(!failure.text().contains("check that the BMC reaches"), "{}", failure.text());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_does_not_come_is_an_error() {
    let mut world = machine(false);
    world.boot_mode = BootMode::UefiSecureBoot;
    world.bmc.lock().unwrap().takes_secure_boot = false;
    provision(&world).await.unwrap();
    pass(901).await;
    let failure = provision(&world).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert!(failure.message.contains("900 s"), "{}", failure.message);
    assert!(!world.calls().contains(&"insert".to_owned()));
}

/// The machine may not have restarted for it: what came of that is told, and not that it has.
#[tokio::test(start_paused = true)]
async fn a_change_whose_restart_was_not_confirmed_says_what_came_of_it() {
    let mut world = machine(false);
    world.boot_mode = BootMode::UefiSecureBoot;
    world.bmc.lock().unwrap().fails_restart = Some(unconfirmed);
    assert!(matches!(provision(&world).await.unwrap(), Verdict::Working(_)));
    pass(901).await;
    let failure = provision(&world).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert_eq!(world.calls(), ["secure boot true", "Restart"]);
    assert!(failure.message.contains("900 s") && failure.message.contains("licence missing"), "{failure}");
    assert!(!failure.message.contains("after the machine's restart"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_over_it_neither_disturbs_the_firmware_nor_forgets_it() {
    // Killed after the restart: the firmware is at work.
    let mut world = machine(false);
    world.boot_mode = BootMode::UefiSecureBoot;
    world.bmc.lock().unwrap().takes_secure_boot = false;
    provision(&world).await.unwrap();
    world.calls();
    world.restart();
    for _ in 0..7 {
        provision(&world).await.unwrap();
        pass(30).await;
    }
    assert_eq!(world.calls(), Vec::<String>::new(), "it is left at its work");
    world.bmc.lock().unwrap().secure_boot = seen(true);
    provision(&world).await.unwrap();
    assert_eq!(world.calls(), ["insert", "boot once", "Restart"]);

    // Killed before anything was asked of the BMC.
    let mut world = machine(false);
    world.boot_mode = BootMode::UefiSecureBoot;
    world.bmc.lock().unwrap().takes_secure_boot = false;
    provision(&world).await.unwrap();
    world.calls();
    world.bmc.lock().unwrap().takes_secure_boot = true;
    world.bmc.lock().unwrap().asked_secure_boot = None;
    world.restart();
    for _ in 0..11 {
        provision(&world).await.unwrap();
        pass(30).await;
    }
    assert_eq!(world.calls(), ["secure boot true", "Restart", "insert", "boot once", "Restart"]);
}

#[tokio::test(start_paused = true)]
async fn setup_mode_is_refused_whoever_finds_it() {
    let mut world = machine(true);
    world.boot_mode = BootMode::UefiSecureBoot;
    world.bmc.lock().unwrap().secure_boot = Some(SecureBootSeen { setup_mode: true, ..seen(true).unwrap() });
    let failure = provision(&world).await.unwrap_err();
    assert!(failure.message.contains("Setup Mode"), "{}", failure.message);
    assert_eq!(world.calls(), Vec::<String>::new());

    let mut world = machine(true);
    world.boot_mode = BootMode::UefiSecureBoot;
    provision(&world).await.unwrap();
    let agent = reports(&world, firmware(true, true)).await;
    let failure = provision(&world).await.unwrap_err();
    assert!(failure.message.contains("agent finds") && failure.message.contains("Setup Mode"), "{}", failure.message);
    assert_eq!(agent.say(&world).await.1.command, None, "it gets nothing to write");
}

#[tokio::test(start_paused = true)]
async fn what_the_bmc_says_is_held_against_what_the_agent_finds() {
    for wanted in [true, false] {
        let mut world = machine(wanted);
        world.boot_mode = mode(wanted);
        provision(&world).await.unwrap();
        let agent = reports(&world, firmware(!wanted, false)).await;
        let failure = provision(&world).await.unwrap_err();
        assert_eq!(failure.cause, Cause::HardwareFailed);
        assert!(failure.message.contains("the agent finds it"), "{}", failure.message);
        assert_eq!(agent.say(&world).await.1.command, None);
    }
    // Started by BIOS: nothing was verified.
    let mut world = machine(true);
    world.boot_mode = BootMode::UefiSecureBoot;
    provision(&world).await.unwrap();
    reports(&world, Some(FirmwareState::default())).await;
    assert!(provision(&world).await.unwrap_err().message.contains("not started by UEFI"));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_does_not_show_it_cannot_switch_it_on_and_does_not_keep_it_from_being_off() {
    let mut world = World::new();
    world.boot_mode = BootMode::UefiSecureBoot;
    let failure = provision(&world).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert_eq!(world.calls(), Vec::<String>::new());
    world.boot_mode = BootMode::Uefi;
    provision(&world).await.unwrap();
    let agent = reports(&world, firmware(true, false)).await;
    provision(&world).await.unwrap();
    assert!(agent.say(&world).await.1.command.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_there_before_is_booted_anew_when_it_does_not_fit_but_wipes_as_it_is() {
    // A host that was cleaned, with its agent waiting.
    let mut world = machine(false);
    let clean = CleaningRequest { clean: true, ..CleaningRequest::default() };
    world.host().deprovision(clean.clone()).await.unwrap();
    let agent = reports(&world, firmware(false, false)).await;
    world.boot_mode = BootMode::UefiSecureBoot;
    world.host().deprovision(clean.clone()).await.unwrap();
    let command = agent.given(&world).await;
    agent.finished(&command, agent_protocol::Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] });
    agent.say(&world).await;
    assert_eq!(world.host().deprovision(clean).await.unwrap(), WIPED);
    world.calls();
    provision(&world).await.unwrap();
    provision(&world).await.unwrap();
    assert_eq!(world.calls(), ["secure boot true", "Restart", "insert", "boot once", "Restart"]);
    reports(&world, firmware(true, false)).await;
    provision(&world).await.unwrap();
}
