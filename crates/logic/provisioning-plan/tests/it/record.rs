//! What an operation's record may become.

use api::metamorph::{HostOperationStatus, OperationPhase, OperationStep, StepPhase};
use provisioning_plan::record::{Change, Refused, check, may_become};
use provisioning_plan::steps::Step;

const OPERATIONS: [OperationPhase; 5] = [
    OperationPhase::Pending,
    OperationPhase::Running,
    OperationPhase::Succeeded,
    OperationPhase::Failed,
    OperationPhase::Cancelled,
];
const PHASES: [StepPhase; 4] = [StepPhase::Pending, StepPhase::Running, StepPhase::Done, StepPhase::Failed];

fn status(
    phase: OperationPhase,
    step: Step,
    recorded: StepPhase,
    attempt: Option<u32>,
    boot: Option<&str>,
) -> HostOperationStatus {
    let step = OperationStep {
        name: step.name().into(),
        phase: recorded,
        attempt,
        boot_id: boot.map(Into::into),
        ..OperationStep::default()
    };
    HostOperationStatus { phase, steps: vec![step], ..HostOperationStatus::default() }
}

#[test]
fn every_change_of_every_record_is_taken_or_refused() {
    let boots = [None, Some("a"), Some("b")];
    let mut taken = 0;
    for operation in OPERATIONS {
        for step in [Step::BootAgent, Step::WriteImage] {
            for recorded in PHASES {
                for (before, boot) in
                    [None, Some(1), Some(2), Some(u32::MAX)].into_iter().flat_map(|b| boots.map(|i| (b, i)))
                {
                    let status = status(operation, step, recorded, before, boot);
                    let known = before.unwrap_or(0);
                    let is_final = !matches!(operation, OperationPhase::Pending | OperationPhase::Running);
                    for (attempt, boot_id) in [0, 1, 2, 3, u32::MAX].into_iter().flat_map(|a| boots.map(|i| (a, i))) {
                        // An agent that hangs may be given up by force.
                        let brought_up = recorded == StepPhase::Done && step == Step::BootAgent;
                        let open = recorded == StepPhase::Running || brought_up;
                        let once_more = open && attempt == known && attempt > 0;
                        let expected = if is_final {
                            Err(Refused::Ended(operation))
                        } else if u64::from(attempt) == u64::from(known) + 1 {
                            Ok(())
                        } else if once_more && boot != boot_id {
                            Err(Refused::AnotherBoot)
                        } else if once_more {
                            Ok(())
                        } else {
                            Err(Refused::Attempt { recorded: known, asked: attempt })
                        };
                        taken += u32::from(expected.is_ok());
                        let found = check(&status, step, Change::Intend { attempt, boot_id });
                        assert_eq!(found, expected, "{status:?} {attempt} {boot_id:?}");
                    }
                    let expected = match (is_final, recorded, step) {
                        (true, ..) => Err(Refused::Ended(operation)),
                        (_, StepPhase::Running | StepPhase::Done, _) | (_, _, Step::BootAgent) => Ok(()),
                        (_, StepPhase::Pending, _) => Err(Refused::NotBegun),
                        (_, StepPhase::Failed, _) => Err(Refused::Failed),
                    };
                    assert_eq!(check(&status, step, Change::Done), expected, "{status:?}");
                }
            }
        }
    }
    assert!(taken > 0);
}

#[test]
fn a_step_that_is_not_recorded_yet_is_begun_with_its_first_attempt() {
    let empty = HostOperationStatus::default();
    let intend = |attempt| Change::Intend { attempt, boot_id: None };
    assert_eq!(check(&empty, Step::SwitchSecureBoot, intend(1)), Ok(()));
    assert_eq!(check(&empty, Step::SwitchSecureBoot, intend(2)), Err(Refused::Attempt { recorded: 0, asked: 2 }));
    assert_eq!(check(&empty, Step::SwitchSecureBoot, Change::Done), Err(Refused::NotBegun));
}

#[test]
fn an_operation_begins_once_and_ends_once() {
    use OperationPhase::{Cancelled, Failed, Pending, Running, Succeeded};
    let allowed = [
        (Pending, Running),
        (Pending, Failed),
        (Pending, Cancelled),
        (Running, Running),
        (Running, Succeeded),
        (Running, Failed),
        (Running, Cancelled),
    ];
    for from in OPERATIONS {
        for to in OPERATIONS {
            assert_eq!(may_become(from, to), allowed.contains(&(from, to)), "{from:?} {to:?}");
        }
    }
}

#[test]
fn a_refusal_is_told() {
    for (refused, text) in [
        (Refused::Ended(OperationPhase::Cancelled), "the operation has ended (Cancelled)"),
        (Refused::Attempt { recorded: 2, asked: 5 }, "attempt 5 cannot follow attempt 2"),
        (Refused::AnotherBoot, "the attempt was given to another boot of the agent"),
        (Refused::Failed, "the step has failed"),
        (Refused::NotBegun, "the step was never begun"),
    ] {
        assert_eq!(refused.to_string(), text);
    }
}
