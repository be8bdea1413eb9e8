//! Secure Boot: every combination of what is wanted, shown, recorded and waited for.

use std::time::Duration;

use provisioning_plan::secure_boot::{Decision, End, Facts, Fault, Found, Observed, Proof, Waiting, decide, proof};

const LIMIT: Duration = Duration::from_secs(900);
const TELLS: [Option<bool>; 3] = [None, Some(false), Some(true)];

fn sights() -> Vec<Option<Observed>> {
    let mut all = vec![None];
    for enable in TELLS {
        for current in TELLS {
            all.extend([false, true].map(|setup_mode| Some(Observed { enable, current, setup_mode })));
        }
    }
    all
}

fn waits() -> Vec<Option<Waiting>> {
    let mut all = vec![None];
    for millis in [0, 224_999, 225_000, 899_999, 900_000] {
        all.extend([false, true].map(|asked| Some(Waiting { age: Duration::from_millis(millis), asked })));
    }
    all
}

/// Rule by rule.
fn expected(f: &Facts) -> Decision {
    let Some(wanted) = f.wanted else { return Decision::Go };
    let over = f.waiting.is_some_and(|w| w.age >= Duration::from_secs(900));
    let long = f.waiting.is_some_and(|w| w.age >= Duration::from_secs(225));
    let asked = f.waiting.is_some_and(|w| w.asked);
    let Some(observed) = f.observed.filter(|s| s.enable.is_some() || s.current.is_some()) else {
        return match (f.begun && !over, wanted, f.begun) {
            (true, ..) => Decision::AwaitSight,
            (_, true, _) => Decision::Fail(Fault::NotObserved),
            (_, false, true) => Decision::Ended(End::Vanished),
            (_, false, false) => Decision::Go,
        };
    };
    let set = match (observed.enable, observed.current) {
        (Some(enable), _) => enable == wanted,
        (None, current) => current == Some(wanted),
    };
    let in_force = set && observed.current != Some(!wanted);
    let rules = [
        (wanted && observed.setup_mode, Decision::Fail(Fault::SetupMode)),
        (in_force && f.begun, Decision::Ended(End::InForce)),
        (in_force, Decision::Go),
        (!f.begun, Decision::Switch { set: !set }),
        (asked && over && set && !wanted, Decision::Ended(End::NeverObserved)),
        (asked && over, Decision::Fail(Fault::NotInForce)),
        (!asked && long, Decision::Switch { set: !set }),
        (true, Decision::AwaitFirmware),
    ];
    rules.into_iter().find(|(holds, _)| *holds).unwrap().1
}

#[test]
fn every_combination_of_what_is_wanted_shown_and_recorded_has_its_decision() {
    for wanted in TELLS {
        for observed in sights() {
            for begun in [false, true] {
                for waiting in waits() {
                    let facts = Facts { wanted, observed, begun, waiting, limit: LIMIT };
                    let decision = decide(&facts);
                    assert_eq!(decision, expected(&facts), "{facts:?}");
                    // No boot goes on under a switch that the BMC shows not to be in force, but one that is to be off and cannot be.
                    if let (Decision::Go | Decision::Ended(End::InForce), Some(true)) = (decision, wanted) {
                        let observed = observed.unwrap();
                        assert!(!observed.setup_mode && observed.current != Some(false), "{facts:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_tells_nothing_is_nothing() {
    let observed = |enable, current| Observed { enable, current, setup_mode: true };
    assert!(!observed(None, None).tells());
    assert!(observed(Some(false), None).tells() && observed(None, Some(true)).tells());
    assert!(observed(Some(true), Some(false)).is_set(true) && observed(None, Some(true)).is_set(true));
    assert!(!observed(None, None).is_set(false));
}

#[test]
fn the_agent_s_finding_is_the_proof_of_a_boot_that_was_made_for_it() {
    for wanted in TELLS {
        for found in [None, Some((false, false)), Some((false, true)), Some((true, false)), Some((true, true))] {
            for (fresh, shows) in [(false, false), (false, true), (true, false), (true, true)] {
                let finds = found.map(|(on, setup_mode)| Found { on, setup_mode });
                let on = found == Some((true, false));
                let expected = match (wanted, found, fresh, shows) {
                    (None, ..) | (_, None, ..) => Proof::Fits,
                    (Some(wanted), ..) if wanted == on => Proof::Fits,
                    (_, _, false, _) => Proof::Differs,
                    (Some(true), ..) => Proof::NotOn,
                    (Some(false), _, true, true) => Proof::StillOn,
                    (Some(false), _, true, false) => Proof::Tolerated,
                };
                assert_eq!(proof(wanted, finds, fresh, shows), expected, "{wanted:?} {found:?} {fresh} {shows}");
            }
        }
    }
}
