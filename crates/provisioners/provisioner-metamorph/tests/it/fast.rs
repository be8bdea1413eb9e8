//! Fast inspection: the BMC lists the hardware, and nothing is done to the machine.

use agent_protocol::{Action, CommandError, ErrorCode, Outcome};
use api::metal3::{DiskFormat, Image, InspectionMode};
use api::metamorph::{MachineRecordSpec, OperationPhase, OperationType, StepPhase};
use bmc::{Capability, ErrorKind};
use inventory::{HardwareDetails, Inspected, Nic, Part, Storage};
use provisioner::{
    Cause, CleaningRequest, Deployed, InspectRequest, MAX_RECORD_BYTES, Machine, Method, ProvisionRequest,
    RegisterRequest, Verdict,
};

use crate::common::{Agent, WIPED, World, image};
use crate::fake::evidence;

fn fast(wish: &str) -> InspectRequest {
    InspectRequest { wish: Some(wish.into()), mode: Some(InspectionMode::Fast), ..InspectRequest::default() }
}

fn by_agent(wish: &str) -> InspectRequest {
    InspectRequest { mode: Some(InspectionMode::Agent), ..fast(wish) }
}

/// What the BMC lists: a drive, and no interface.
fn listed() -> Inspected {
    let drive = Storage { serial_number: Some("DRIVE-1".into()), size_bytes: Some(1 << 40), ..Storage::default() };
    let hardware = HardwareDetails { storage: vec![drive], ram_mebibytes: Some(1024), ..HardwareDetails::default() };
    Inspected { hardware, not_listed: vec![Part::Interfaces], ..Inspected::default() }
}

fn lists(on: bool) -> World {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.on, bmc.hardware) = (on, Some(Ok(listed())));
    }
    world
}

async fn found(world: &World, request: InspectRequest) -> Inspected {
    match world.host().inspect(request).await.unwrap() {
        Verdict::Done(found) => *found,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_one_look_at_a_machine_that_is_on_or_off_and_changes_nothing() {
    for on in [true, false] {
        let world = lists(on);
        assert_eq!(found(&world, fast("one")).await, listed());
        assert_eq!(world.calls(), [""; 0], "the machine was touched");
        assert_eq!((world.bmc.lock().unwrap().on, world.journal.latest_boot()), (on, None));
        let (kind, status) = world.journal.last();
        assert_eq!((kind, status.phase), (OperationType::Inspect, OperationPhase::Succeeded));
        let [step] = &status.steps[..] else { panic!("{status:?}") };
        assert_eq!((step.name.as_str(), step.phase), ("read-inventory", StepPhase::Done));
        let text = status.message.unwrap();
        assert!(text.contains("1 disks") && text.contains("not completely: network interfaces"), "{text}");
    }
}

/// A process that dies before the host's status says so is asked again for the same wish; another wish is another operation.
#[tokio::test(start_paused = true)]
async fn asked_again_for_the_same_wish_it_looks_again_and_records_nothing() {
    let mut world = lists(false);
    found(&world, fast("one")).await;
    let recorded = world.journal.newest();
    world.restart();
    assert_eq!(found(&world, fast("one")).await, listed());
    assert_eq!(world.journal.newest(), recorded);
    assert_eq!(found(&world, fast("two")).await, listed());
    assert_eq!((world.journal.newest().number, world.journal.all().len()), (recorded.number + 1, 2));
    assert_eq!((world.calls(), world.bmc.lock().unwrap().asked_hardware), (Vec::new(), 3));
}

#[tokio::test(start_paused = true)]
async fn killed_before_any_write_it_comes_to_its_end_all_the_same() {
    for place in ["read-inventory", "finish"] {
        let mut world = lists(true);
        world.host().register(RegisterRequest::default()).await.unwrap();
        world.journal.die_before(place);
        assert_eq!(world.host().inspect(fast("one")).await.unwrap_err().cause, Cause::RecordUnavailable, "{place}");
        world.restart();
        assert_eq!(found(&world, fast("one")).await, listed(), "{place}");
        assert_eq!((world.journal.newest().number, world.journal.last().1.phase), (1, OperationPhase::Succeeded));
        assert_eq!(world.calls(), [""; 0], "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_lists_nothing_fails_it_and_a_machine_that_is_another_is_not_listed() {
    let world = lists(true);
    world.bmc.lock().unwrap().lacks = Some(Capability::Hardware);
    let failure = world.host().inspect(fast("one")).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert!(failure.advice.unwrap().contains("spec.inspectionMode"), "{}", failure.message);
    assert_eq!(world.journal.last().1.phase, OperationPhase::Failed);

    let world = lists(true);
    world.bmc.lock().unwrap().hardware = Some(Err(ErrorKind::Unreachable));
    let failure = world.host().inspect(fast("one")).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcUnreachable);
    // The host knows, and tries again.
    world.bmc.lock().unwrap().hardware = Some(Ok(listed()));
    let again = InspectRequest { restart: true, ..fast("one") };
    assert_eq!(found(&world, again).await, listed());

    let world = lists(true);
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.bmc.lock().unwrap().shows_another = true;
    let failure = world.host().inspect(fast("one")).await.unwrap_err();
    assert_eq!((failure.cause, world.bmc.lock().unwrap().asked_hardware), (Cause::AnotherMachine, 0));
    assert_eq!(world.calls(), [""; 0]);
}

/// A wipe without one of the disks that an agent has found fails, also where the BMC's list has taken their place since.
#[tokio::test(start_paused = true)]
async fn the_next_wipe_expects_the_disks_that_an_agent_had_found() {
    let disk = |number: u32| Storage {
        name: Some(format!("/dev/disk/by-path/pci-0000:00:1f.2-ata-{number}")),
        serial_number: Some(format!("DISK-{number}")),
        ..Storage::default()
    };
    for (count, is_accepted) in [(2, false), (2, true), (400, false)] {
        let mut world = lists(true);
        let storage: Vec<Storage> = (1..=count).map(disk).collect();
        world.hardware = Some(HardwareDetails { storage: storage.clone(), ..HardwareDetails::default() });
        world.host().register(RegisterRequest::default()).await.unwrap();
        if is_accepted {
            world.accepts_machine().await;
        }
        found(&world, fast("one")).await;
        let text = world.journal.last().1.message.unwrap();
        assert_eq!(text.contains("no room for more"), count == 400, "{text}");
        // Twice is the same: the BMC's own list is not taken for an agent's.
        world.hardware = Some(listed().hardware);
        world.restart();
        found(&world, fast("two")).await;
        let clean = CleaningRequest { clean: true, ..CleaningRequest::default() };
        world.host().deprovision(clean.clone()).await.unwrap();
        let agent = Agent::new(1, "boot-1");
        agent.say(&world).await;
        world.host().deprovision(clean.clone()).await.unwrap();
        let command = agent.given(&world).await;
        let Action::WipeDisks(wipe) = &command.action else { panic!("{command:?}") };
        match (is_accepted, count) {
            (true, _) => assert_eq!(wipe.expected, None, "they are those of another machine"),
            (_, 2) => assert_eq!(wipe.expected.as_ref(), Some(&storage)),
            _ => {
                let kept = wipe.expected.as_ref().unwrap();
                assert!(kept.len() > 60 && *kept == storage[..kept.len()], "{}", kept.len());
                let size = serde_json::to_vec(&world.journal.content().unwrap()).unwrap().len();
                assert!(size < MAX_RECORD_BYTES, "{size}");
            }
        }
        let error = CommandError { code: ErrorCode::NoDisk, message: "one is absent".into(), untouched: true };
        agent.finished(&command, Outcome::Failed(error));
        agent.say(&world).await;
        let failure = world.host().deprovision(clean).await.unwrap_err();
        assert_eq!(failure.cause, Cause::HardwareFailed);
        let advice = failure.advice.unwrap();
        assert!(advice.contains("spec.inspectionMode: agent") && advice.contains("automatedCleaningMode"), "{advice}");
    }
}

/// A machine without disks that has run a live ISO comes to an end, by the agent's and the BMC's word; one that may have lost its disks does not.
#[tokio::test(start_paused = true)]
async fn a_machine_without_disks_is_given_back_after_a_live_iso() {
    let iso = Image { url: "http://192.0.2.9/a.iso".into(), format: Some(DiskFormat::LiveIso), ..Image::default() };
    let live = || Deployed { image: Some(iso.clone()), method: Method::LiveIso, ..Deployed::default() };
    let disk = || Deployed { image: Some(image().image), ..Deployed::default() };
    let none = || Inspected::default();
    let gaps = || Inspected { not_listed: vec![Part::Disks], ..none() };
    for (deployed, lists, has_shown_one, is_over) in [
        (live(), none(), false, true),
        // One that was put in, and never booted.
        (Deployed::default(), none(), false, true),
        (live(), none(), true, false),
        (live(), gaps(), false, false),
        (live(), listed(), false, false),
        (disk(), none(), false, false),
    ] {
        let mut world = World::new();
        world.provisioning_id = String::new();
        world.bmc.lock().unwrap().hardware = Some(Ok(lists.clone()));
        world.host().register(RegisterRequest::default()).await.unwrap();
        world.provisioning_id = "owner-1".into();
        found(&world, fast("one")).await;
        world.hardware = Some(none().hardware);
        if deployed.image.is_none() {
            world.bmc.lock().unwrap().never_reads_data = true;
        }
        let request = ProvisionRequest { method: Method::LiveIso, image: iso.clone(), ..ProvisionRequest::default() };
        for _ in 0..3 {
            world.host().live_media().unwrap().boot_live(request.clone()).await.unwrap();
        }
        let clean = CleaningRequest { clean: true, deployed, ..CleaningRequest::default() };
        while world.journal.latest_boot().is_none_or(|boot| boot.generation == 0) {
            world.host().deprovision(clean.clone()).await.unwrap();
            tokio::time::advance(std::time::Duration::from_secs(10)).await;
        }
        let mut agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
        agent.machine.disks = Vec::new();
        agent.say(&world).await;
        world.host().deprovision(clean.clone()).await.unwrap();
        let command = agent.given(&world).await;
        let error = CommandError { code: ErrorCode::NoDisk, message: "no disk was found".into(), untouched: true };
        agent.finished(&command, Outcome::Failed(error));
        agent.say(&world).await;
        if has_shown_one {
            let known = world.machine.recorded().await.unwrap().unwrap();
            world.machine.record(MachineRecordSpec { agent: Some(evidence()), ..known }).await.unwrap();
        }
        match world.host().deprovision(clean).await {
            Ok(verdict) => {
                assert!(is_over && verdict == WIPED, "{lists:?} {has_shown_one}: {verdict:?}");
                let text = world.journal.last().1.message.unwrap();
                assert!(text.contains("neither the agent nor the BMC finds one"), "{text}");
            }
            Err(failure) => {
                assert!(!is_over && failure.cause == Cause::HardwareFailed, "{lists:?} {has_shown_one}: {failure:?}");
                let advice = failure.advice.unwrap();
                assert!(advice.contains("spec.inspectionMode: agent"), "{advice}");
            }
        }
    }
}

/// The mode is changed in the middle: what was begun is ended, and the other way is gone.
#[tokio::test(start_paused = true)]
async fn the_way_that_is_wished_now_is_gone() {
    let world = lists(false);
    assert!(matches!(world.host().inspect(by_agent("one")).await.unwrap(), Verdict::Working(_)));
    world.calls();
    assert_eq!(found(&world, fast("one")).await, listed());
    assert_eq!(world.calls(), [""; 0]);
    let phases: Vec<OperationPhase> = world.journal.all().into_iter().map(|(_, status)| status.phase).collect();
    assert_eq!(phases, [OperationPhase::Cancelled, OperationPhase::Succeeded]);
    // Another inspection, by the agent: the BMC's word is no answer to that.
    assert!(matches!(world.host().inspect(by_agent("two")).await.unwrap(), Verdict::Working(_)));
}

/// What a BMC lists is nothing that an agent has seen: none is held against it, not even where the record of the machine is lost.
#[tokio::test(start_paused = true)]
async fn facts_of_a_bmc_are_no_evidence_of_the_agents() {
    let mac = |mac: &str| Nic { mac: Some(mac.into()), ..Nic::default() };
    let by_bmc = HardwareDetails { nics: vec![mac("00:1b:21:aa:bb:01")], ..listed().hardware };
    let mut by_agent = by_bmc.clone();
    by_agent.storage[0].name = Some("/dev/sda".into());
    for (known, is_held_against_it) in [(by_bmc, false), (by_agent, true)] {
        let mut world = World::new();
        world.hardware = Some(known);
        world.host().register(RegisterRequest::default()).await.unwrap();
        let record = world.machine.recorded().await.unwrap().unwrap();
        assert_eq!(record.agent.is_some(), is_held_against_it);
        // The drives behind a RAID controller are not the disks that the agent finds.
        world.host().provision(image()).await.unwrap();
        let agent = Agent::new(1, "boot-1");
        agent.say(&world).await;
        assert_eq!(world.host().provision(image()).await.is_err(), is_held_against_it);
    }
    // A machine of other MACs is refused, whoever has told them.
    let mut world = World::new();
    world.hardware = Some(HardwareDetails { nics: vec![mac("00:1b:21:ff:ff:01")], ..HardwareDetails::default() });
    let failure = world.host().register(RegisterRequest::default()).await.unwrap_err();
    assert_eq!(failure.cause, Cause::AnotherMachine, "{failure:?}");
}
