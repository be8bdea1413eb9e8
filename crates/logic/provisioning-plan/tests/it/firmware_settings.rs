//! Settings of the firmware: every combination of what is shown, recorded and waited for.

use std::time::Duration;

use provisioning_plan::firmware_settings::{Decision, Facts, Fault, Shown, Waiting, decide};

const LIMIT: Duration = Duration::from_secs(1800);

fn all() -> Vec<Facts> {
    let mut all = Vec::new();
    let mut sights = vec![None];
    for open in [0, 1, 5] {
        sights.extend([false, true].map(|pending| Some(Shown { open, pending })));
    }
    let mut waits = vec![None];
    for millis in [0, 59_999, 60_000, 449_999, 450_000, 1_799_999, 1_800_000] {
        waits.extend([false, true].map(|asked| Some(Waiting { age: Duration::from_millis(millis), asked })));
    }
    for shown in sights {
        for powered_on in [None, Some(false), Some(true)] {
            for waiting in &waits {
                for bits in 0..16 {
                    let is = |bit: u32| bits & bit != 0;
                    let (begun, refused, agent, in_use) = (is(1), is(2), is(4), is(8));
                    let (waiting, limit) = (*waiting, LIMIT);
                    all.push(Facts { shown, powered_on, begun, refused, agent, in_use, waiting, limit });
                }
            }
        }
    }
    all
}

/// Rule by rule.
fn expected(f: &Facts) -> Decision {
    let age = f.waiting.map(|waiting| waiting.age);
    let over = age.is_some_and(|age| age >= LIMIT);
    let asked = f.waiting.is_some_and(|waiting| waiting.asked);
    let soon = age.is_some_and(|age| age >= LIMIT / 30);
    let long = age.is_some_and(|age| age >= LIMIT / 4);
    let Some(shown) = f.shown else {
        // A machine in use does not stay off for that.
        let over = over || f.in_use && !f.begun && f.powered_on == Some(false);
        return if over { Decision::Fail(Fault::NotShown) } else { Decision::AwaitSight };
    };
    // Nor is one that runs restarted.
    let runs = f.in_use && f.powered_on == Some(true);
    let set = Decision::Set { write: !shown.pending };
    let rules = [
        (shown.open == 0 && f.begun, Decision::InForce),
        (shown.open == 0, Decision::Nothing),
        (!f.begun && runs, Decision::Fail(Fault::Runs)),
        (!f.begun, set),
        (f.refused, Decision::Fail(Fault::NotApplied)),
        (over, Decision::Fail(Fault::NotInForce)),
        (asked, Decision::AwaitFirmware),
        (!f.in_use && (f.agent || f.powered_on == Some(false)), set),
        (f.in_use && f.powered_on == Some(false) && soon, set),
        (long && !runs, set),
        (true, Decision::AwaitFirmware),
    ];
    rules.into_iter().find(|(holds, _)| *holds).unwrap().1
}

#[test]
fn every_combination() {
    let mut seen = std::collections::BTreeMap::new();
    for facts in all() {
        let decision = decide(&facts);
        assert_eq!(decision, expected(&facts), "{facts:?}");
        *seen.entry(format!("{decision:?}")).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 10, "{seen:?}");
}

#[test]
fn what_must_never_be() {
    for facts in all() {
        let decision = decide(&facts);
        let sets = matches!(decision, Decision::Set { .. });
        let asked = facts.waiting.is_some_and(|waiting| waiting.asked);
        assert!(!(sets && facts.begun && asked), "restarted twice by one process: {facts:?}");
        let early = facts.waiting.is_none_or(|waiting| waiting.age < LIMIT / 4);
        let may_apply = facts.powered_on != Some(false) && !facts.agent;
        assert!(!(sets && facts.begun && early && may_apply), "a self-test is disturbed: {facts:?}");
        assert!(!(sets && facts.in_use && facts.powered_on == Some(true)), "a machine in use is restarted: {facts:?}");
        let pending = facts.shown.is_some_and(|shown| shown.pending);
        assert!(!(decision == Decision::Set { write: true } && pending), "written though it is pending: {facts:?}");
        let open = facts.shown.is_none_or(|shown| shown.open > 0);
        assert!(!(open && matches!(decision, Decision::InForce | Decision::Nothing)), "not read again: {facts:?}");
    }
}
