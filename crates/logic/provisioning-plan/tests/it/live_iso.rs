//! The way to a live ISO: every combination of facts, and machines whose server dies anywhere on it.

use api::metamorph::{HostOperationStatus, OperationStep, StepPhase};
use proptest::prelude::*;
use provisioning_plan::live_iso::{Facts, Way, ordered, way};
use provisioning_plan::record::{Change, check};
use provisioning_plan::steps::Step;

const PHASES: [StepPhase; 4] = [StepPhase::Pending, StepPhase::Running, StepPhase::Done, StepPhase::Failed];

fn status(steps: &[(Step, StepPhase)]) -> HostOperationStatus {
    let step = |(step, phase): &(Step, StepPhase)| OperationStep {
        name: step.name().into(),
        phase: *phase,
        ..OperationStep::default()
    };
    HostOperationStatus { steps: steps.iter().map(step).collect(), ..HostOperationStatus::default() }
}

#[test]
fn the_way_is_the_one_that_was_begun() {
    let all = PHASES.into_iter().flat_map(|a| PHASES.into_iter().flat_map(move |b| PHASES.map(|c| (a, b, c))));
    for (off, on, reset) in all {
        let begun = |phase| phase != StepPhase::Pending;
        let mut recorded = status(&[(Step::SwitchOffForLive, off), (Step::SwitchOnLive, on), (Step::ResetLive, reset)]);
        recorded.steps[2].attempt = begun(reset).then_some(4);
        let attempt = if begun(reset) { 5 } else { 1 };
        for powered_on in [None, Some(false), Some(true)] {
            for flags in 0..8 {
                let (may_cut, refused, ready) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
                let found = way(&recorded, &Facts { powered_on, may_cut, refused, ready });
                let is_off = powered_on == Some(false);
                let resets = begun(reset) || powered_on == Some(true) && !may_cut || powered_on.is_none();
                let rules = [
                    (begun(on) && powered_on == Some(true), Way::Arrived),
                    (begun(on) && powered_on.is_none(), Way::Unreported),
                    (begun(on) && !ready, Way::MakeReady),
                    (begun(on), Way::SwitchOn),
                    (begun(reset) && !refused, Way::LeaveAlone),
                    (!begun(reset) && begun(off) && powered_on.is_none(), Way::Unreported),
                    (!(resets || is_off && off == StepPhase::Done), Way::SwitchOff { begun: begun(off) }),
                    (!ready, Way::MakeReady),
                    (resets, Way::Reset { attempt }),
                    (true, Way::SwitchOn),
                ];
                let expected = rules.into_iter().find(|(holds, _)| *holds).unwrap().1;
                assert_eq!(found, expected, "{recorded:?} {powered_on:?} {may_cut} {refused} {ready}");
                let cuts = matches!(found, Way::SwitchOff { .. }) && powered_on == Some(true);
                assert!(may_cut || !cuts, "cut where it must not be");
                assert!(ready || !matches!(found, Way::SwitchOn | Way::Reset { .. }), "started without its ISO");
            }
        }
    }
}

#[test]
fn a_live_system_may_run_from_its_recorded_start_on() {
    for phase in PHASES {
        assert_eq!(ordered(&status(&[(Step::BootLive, phase)])), phase != StepPhase::Pending);
        assert!(!ordered(&status(&[(Step::InsertLive, phase), (Step::SwitchOffForLive, phase)])));
    }
}

/// What runs on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Nothing,
    Before,
    Live,
}

/// A machine, and what is recorded of the work on it.
struct World {
    recorded: HostOperationStatus,
    runs: Runs,
    iso: bool,
    may_cut: bool,
    starts: u32,
    cuts: u32,
}

impl World {
    fn intend(&mut self, step: Step, attempt: u32) {
        let change = Change::Intend { attempt, boot_id: None };
        assert_eq!(check(&self.recorded, step, change), Ok(()), "{step:?}");
        self.recorded.steps.retain(|known| known.name != step.name());
        let step = OperationStep { name: step.name().into(), attempt: Some(attempt), ..OperationStep::default() };
        self.recorded.steps.push(OperationStep { phase: StepPhase::Running, ..step });
    }

    fn done(&mut self, step: Step) {
        assert_eq!(check(&self.recorded, step, Change::Done), Ok(()), "{step:?}");
        for known in self.recorded.steps.iter_mut().filter(|known| known.name == step.name()) {
            known.phase = StepPhase::Done;
        }
    }

    fn start(&mut self) {
        self.starts += 1;
        self.runs = if self.iso { Runs::Live } else { Runs::Before };
    }

    /// A process goes the way until it dies, which is before its order of this number; true if it has arrived.
    fn goes(&mut self, mut orders: u32, hides_power: bool) -> bool {
        let mut ready = false;
        let mut dies = || {
            orders = orders.saturating_sub(1);
            orders == 0
        };
        for _ in 0..50 {
            let powered_on = (!hides_power).then_some(self.runs != Runs::Nothing);
            let facts = Facts { powered_on, may_cut: self.may_cut, refused: false, ready };
            match way(&self.recorded, &facts) {
                Way::Arrived | Way::LeaveAlone => return true,
                Way::Unreported => return false,
                Way::SwitchOff { begun } => {
                    if !begun {
                        self.intend(Step::SwitchOffForLive, 1);
                    }
                    if dies() {
                        return false;
                    }
                    if self.runs != Runs::Nothing {
                        assert!(self.may_cut, "cut where it must not be");
                        self.cuts += 1;
                        self.runs = Runs::Nothing;
                    }
                    self.done(Step::SwitchOffForLive);
                }
                Way::MakeReady => {
                    if dies() {
                        return false;
                    }
                    (self.iso, ready) = (true, true);
                }
                Way::SwitchOn => {
                    if !ordered(&self.recorded) {
                        self.intend(Step::BootLive, 1);
                    }
                    if !Step::SwitchOnLive.begun(&self.recorded) {
                        self.intend(Step::SwitchOnLive, 1);
                    }
                    if dies() {
                        return false;
                    }
                    assert_eq!(self.runs, Runs::Nothing, "switched on twice");
                    self.start();
                }
                Way::Reset { attempt } => {
                    self.intend(Step::BootLive, 1);
                    self.intend(Step::ResetLive, attempt);
                    if dies() {
                        return false;
                    }
                    self.start();
                }
            }
        }
        panic!("it goes in a circle: {:?}", self.recorded);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_dies_the_machine_is_cut_and_started_once_and_runs_its_iso(
        deaths in prop::collection::vec(1u32..5, 0..6),
        was_on in any::<bool>(),
        may_cut in any::<bool>(),
        hides_power in any::<bool>(),
    ) {
        let runs = if was_on { Runs::Before } else { Runs::Nothing };
        let recorded = HostOperationStatus::default();
        let mut world = World { recorded, runs, iso: false, may_cut, starts: 0, cuts: 0 };
        let mut arrived = false;
        for orders in deaths {
            arrived = arrived || world.goes(orders, hides_power);
        }
        arrived = arrived || world.goes(u32::MAX, hides_power);
        prop_assert!(arrived, "{:?}", world.recorded);
        prop_assert!(world.starts <= 1 && world.cuts <= 1, "{} starts, {} cuts", world.starts, world.cuts);
        // A reset of which nobody knows whether it was made is not made again.
        let resets = Step::ResetLive.begun(&world.recorded);
        prop_assert!(world.runs == Runs::Live || resets && world.starts == 0, "{:?}", world.runs);
    }
}
