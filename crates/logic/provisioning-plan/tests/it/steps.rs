//! The order of steps, by what is recorded.

use std::time::Duration;

use api::metamorph::{HostOperationStatus, OperationStep, OperationType, StepPhase};
use provisioning_plan::steps::{
    Command, Leave, Next, Step, Way, Work, command, given, leave, ordered_into_disk, way_into_disk,
};

const PHASES: [StepPhase; 4] = [StepPhase::Pending, StepPhase::Running, StepPhase::Done, StepPhase::Failed];
const TELLS: [Option<bool>; 3] = [None, Some(false), Some(true)];

fn status(steps: &[(Step, StepPhase)]) -> HostOperationStatus {
    let step = |(step, phase): &(Step, StepPhase)| OperationStep {
        name: step.name().into(),
        phase: *phase,
        ..OperationStep::default()
    };
    HostOperationStatus { steps: steps.iter().map(step).collect(), ..HostOperationStatus::default() }
}

#[test]
fn steps_keep_the_names_that_records_have() {
    let names = Step::ALL.map(Step::name);
    let recorded = [
        "boot-agent",
        "collect-inventory",
        "read-inventory",
        "write-image",
        "boot-disk",
        "wipe-disks",
        "erase-disks",
        "list-steps",
        "run-steps",
        "power-off",
        "switch-secure-boot",
        "set-firmware",
        "switch-off-for-disk",
        "switch-on-to-disk",
        "reset-to-disk",
        "insert-live-iso",
        "boot-live-iso",
        "switch-off-for-live-iso",
        "switch-on-to-live-iso",
        "reset-to-live-iso",
    ];
    assert_eq!(names, recorded);
}

#[test]
fn each_work_has_its_plan_and_its_type() {
    for (work, plan, kind) in [
        (Work::Inspect, vec!["boot-agent", "collect-inventory"], OperationType::Inspect),
        (Work::FastInspect, vec!["read-inventory"], OperationType::Inspect),
        (Work::Provision, vec!["boot-agent", "write-image", "boot-disk"], OperationType::Provision),
        (Work::BootLive, vec!["insert-live-iso", "boot-live-iso"], OperationType::Provision),
        (Work::Clean, vec!["boot-agent", "wipe-disks"], OperationType::Deprovision),
        (Work::Erase, vec!["boot-agent", "erase-disks"], OperationType::Erase),
        (Work::ListSteps, vec!["boot-agent", "list-steps"], OperationType::Steps),
        (Work::RunSteps, vec!["boot-agent", "list-steps", "run-steps"], OperationType::Steps),
        (Work::SwitchOff, vec!["power-off"], OperationType::Deprovision),
        (Work::Prepare, vec!["set-firmware"], OperationType::Prepare),
        (Work::Service, vec!["set-firmware"], OperationType::Service),
    ] {
        assert_eq!((work.plan(), work.operation()), (plan, kind));
    }
    assert_eq!((Work::deprovisioning(true), Work::deprovisioning(false)), (Work::Clean, Work::SwitchOff));
    assert_eq!((Work::inspection(true), Work::inspection(false)), (Work::FastInspect, Work::Inspect));
}

#[test]
fn what_is_next_stands_in_the_record() {
    for boot in PHASES {
        for work in PHASES {
            let inspect = status(&[(Step::BootAgent, boot), (Step::CollectInventory, work)]);
            assert_eq!(Work::Inspect.next(&inspect), Next::WithAgent(Step::CollectInventory));
            let clean = status(&[(Step::BootAgent, boot), (Step::WipeDisks, work)]);
            assert_eq!(Work::Clean.next(&clean), Next::WithAgent(Step::WipeDisks));
            let erase = status(&[(Step::BootAgent, boot), (Step::EraseDisks, work)]);
            assert_eq!(Work::Erase.next(&erase), Next::WithAgent(Step::EraseDisks));
            for leave in PHASES {
                let provision = status(&[(Step::BootAgent, boot), (Step::WriteImage, work), (Step::BootDisk, leave)]);
                // From the recorded leave on the image is on the disk: it is not written again.
                let expected = match leave {
                    StepPhase::Running | StepPhase::Done => Next::Alone(Step::BootDisk),
                    StepPhase::Pending | StepPhase::Failed => Next::WithAgent(Step::WriteImage),
                };
                assert_eq!(Work::Provision.next(&provision), expected, "{provision:?}");
            }
        }
        assert_eq!(Work::SwitchOff.next(&status(&[(Step::PowerOff, boot)])), Next::Alone(Step::PowerOff));
        for start in PHASES {
            // No agent has a part in a live ISO.
            let holds = matches!(start, StepPhase::Running | StepPhase::Done);
            let expected = if holds { Step::BootLive } else { Step::InsertLive };
            let live = status(&[(Step::InsertLive, boot), (Step::BootLive, start)]);
            assert_eq!(Work::BootLive.next(&live), Next::Alone(expected), "{live:?}");
        }
        assert_eq!(Work::FastInspect.next(&status(&[(Step::ReadInventory, boot)])), Next::Alone(Step::ReadInventory));
        for work in [Work::Prepare, Work::Service] {
            assert_eq!(work.next(&status(&[(Step::SetFirmware, boot)])), Next::Alone(Step::SetFirmware));
        }
    }
}

#[test]
fn cleaning_that_has_begun_is_brought_to_its_end() {
    let clean = status(&[(Step::BootAgent, StepPhase::Pending), (Step::WipeDisks, StepPhase::Pending)]);
    let off = status(&[(Step::PowerOff, StepPhase::Pending)]);
    for wished in [Work::Clean, Work::SwitchOff] {
        assert_eq!(wished.recorded(&clean), Work::Clean);
        assert_eq!(wished.recorded(&off), Work::SwitchOff);
        assert_eq!((wished.turned(&clean), wished.turned(&off)), (wished != Work::Clean, wished != Work::SwitchOff));
    }
    for work in [Work::Inspect, Work::Provision] {
        assert_eq!((work.recorded(&clean), work.recorded(&off)), (work, work));
    }
}

#[test]
fn a_live_iso_and_an_image_for_a_disk_are_other_work() {
    let live = status(&[(Step::InsertLive, StepPhase::Pending), (Step::BootLive, StepPhase::Pending)]);
    let disk = status(&[(Step::BootAgent, StepPhase::Pending), (Step::WriteImage, StepPhase::Pending)]);
    let none = HostOperationStatus::default();
    for wished in [Work::Provision, Work::BootLive] {
        assert_eq!((wished.recorded(&live), wished.recorded(&disk)), (Work::BootLive, Work::Provision));
        assert_eq!((wished.turned(&live), wished.turned(&disk)), (wished != Work::BootLive, wished != Work::Provision));
        assert!(!wished.turned(&none), "nothing is recorded yet");
    }
}

#[test]
fn an_inspection_goes_the_way_that_is_wished_now() {
    for phase in PHASES {
        let by_agent = status(&[(Step::BootAgent, phase), (Step::CollectInventory, StepPhase::Pending)]);
        let by_bmc = status(&[(Step::ReadInventory, phase)]);
        for wished in [Work::Inspect, Work::FastInspect] {
            assert_eq!((wished.recorded(&by_agent), wished.recorded(&by_bmc)), (Work::Inspect, Work::FastInspect));
            let turned = (wished != Work::Inspect, wished != Work::FastInspect);
            assert_eq!((wished.turned(&by_agent), wished.turned(&by_bmc)), turned, "{wished:?} {phase:?}");
        }
    }
}

#[test]
fn a_step_is_begun_when_anything_is_recorded_of_it() {
    for phase in PHASES {
        let begun = phase != StepPhase::Pending;
        let recorded = status(&[(Step::WriteImage, phase)]);
        assert_eq!(Step::WriteImage.begun(&recorded), begun);
        assert_eq!(Step::WriteImage.recorded(&recorded).phase, phase);
        assert!(!Step::BootDisk.begun(&recorded));
        assert_eq!(ordered_into_disk(&status(&[(Step::SwitchOn, phase)])), begun);
        assert_eq!(ordered_into_disk(&status(&[(Step::Reset, phase)])), begun);
        assert!(!ordered_into_disk(&status(&[(Step::SwitchOff, phase)])));
    }
}

#[test]
fn an_attempt_goes_to_one_boot_alone() {
    for phase in PHASES {
        for attempt in [None, Some(1), Some(2), Some(u32::MAX)] {
            for boot in [None, Some("a"), Some("b")] {
                let recorded =
                    OperationStep { phase, attempt, boot_id: boot.map(Into::into), ..OperationStep::default() };
                let before = attempt.unwrap_or(0);
                let same = boot == Some("a") && matches!(phase, StepPhase::Running | StepPhase::Done);
                let expected =
                    if same { Command::Look(before.max(1)) } else { Command::Give(before.saturating_add(1)) };
                assert_eq!(command(&recorded, "a"), expected, "{recorded:?}");
                assert_eq!(given(&recorded, "a"), boot == Some("a") && phase != StepPhase::Pending, "{recorded:?}");
            }
        }
    }
}

#[test]
fn the_agent_leaves_unless_it_is_gone_for_long() {
    let reconnect = Duration::from_secs(60);
    for (waited, without) in [(59_999, Leave::Wait), (60_000, Leave::Bmc)] {
        let waited = Duration::from_millis(waited);
        assert_eq!(leave(true, waited, reconnect), Leave::Agent);
        assert_eq!(leave(false, waited, reconnect), without);
    }
}

#[test]
fn the_way_into_the_disk_is_the_one_that_was_begun() {
    for (off, on, reset) in
        PHASES.into_iter().flat_map(|a| PHASES.into_iter().flat_map(move |b| PHASES.map(|c| (a, b, c))))
    {
        let mut recorded = status(&[(Step::SwitchOff, off), (Step::SwitchOn, on), (Step::Reset, reset)]);
        let begun = |phase| phase != StepPhase::Pending;
        recorded.steps[2].attempt = begun(reset).then_some(4);
        for sight in TELLS {
            for (may_cut, refused) in [(false, false), (false, true), (true, false), (true, true)] {
                let way = way_into_disk(&recorded, sight, may_cut, refused);
                let rules = [
                    (begun(on), Way::SwitchOn),
                    (begun(reset) && !refused, Way::LeaveAlone),
                    (begun(reset), Way::Reset { attempt: 5 }),
                    (begun(off) && sight.is_none(), Way::Unreported),
                    (begun(off), Way::SwitchOff { begun: true }),
                    (!may_cut || sight.is_none(), Way::Reset { attempt: 1 }),
                    (true, Way::SwitchOff { begun: false }),
                ];
                let expected = rules.into_iter().find(|(holds, _)| *holds).unwrap().1;
                assert_eq!(way, expected, "{recorded:?} {sight:?} {may_cut} {refused}");
                // Once a reset may have happened, a tenant may run.
                assert!(!begun(reset) || refused || matches!(way, Way::LeaveAlone | Way::SwitchOn));
                assert!(may_cut || begun(off) || !matches!(way, Way::SwitchOff { .. }), "cut where it must not be");
            }
        }
    }
}

#[test]
fn attempts_end_where_numbers_end() {
    let mut recorded = status(&[(Step::Reset, StepPhase::Running)]);
    recorded.steps[0].attempt = Some(u32::MAX);
    assert_eq!(way_into_disk(&recorded, None, true, true), Way::Reset { attempt: u32::MAX });
}

#[test]
fn a_machine_that_was_let_go_unwiped_has_not_been_cleaned() {
    let wiped = status(&[(Step::BootAgent, StepPhase::Done), (Step::WipeDisks, StepPhase::Done)]);
    let off = status(&[(Step::PowerOff, StepPhase::Done)]);
    assert!(Work::Clean.is_done_by(&wiped) && !Work::Clean.is_done_by(&off));
    for other in [Work::Inspect, Work::FastInspect, Work::Provision, Work::SwitchOff] {
        assert!(other.is_done_by(&wiped) && other.is_done_by(&off), "{other:?}");
    }
}
