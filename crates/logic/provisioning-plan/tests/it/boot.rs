//! Every combination of what is known of a machine and its agent.

use std::collections::BTreeMap;
use std::time::Duration;

use api::metamorph::{AgentBoot, HostOperationStatus, OperationStep, StepPhase};
use provisioning_plan::boot::{
    Agent, Boot, Decision, Fact, Facts, Judged, MAX_BOOTS, Patience, Protocol, Refusal, Work, decide, in_work,
};
use provisioning_plan::secure_boot::Proof;

const PATIENCE: Patience = Patience { reconnect: Duration::from_secs(60), in_work: Duration::from_secs(540) };
const BOOLS: [bool; 2] = [false, true];
const PHASES: [StepPhase; 4] = [StepPhase::Pending, StepPhase::Running, StepPhase::Done, StepPhase::Failed];
/// Just before, and at, each end of patience.
const WAITED: [Duration; 4] =
    [Duration::from_millis(59_999), Duration::from_secs(60), Duration::from_millis(539_999), Duration::from_secs(540)];
const POWER: [Fact<Option<bool>>; 4] =
    [Fact::Unasked, Fact::Known(None), Fact::Known(Some(true)), Fact::Known(Some(false))];
const MEDIUM: [Fact<bool>; 3] = [Fact::Unasked, Fact::Known(false), Fact::Known(true)];

/// Nothing recorded, and no agent.
const FACTS: Facts = Facts {
    current: None,
    latest: None,
    agent: None,
    phase: StepPhase::Running,
    attempts: 1,
    inserting: None,
    booted: None,
    seen: true,
    provisioned: false,
    known_generation: 5,
    waited: Duration::ZERO,
    in_work: false,
    power: Fact::Unasked,
    medium: Fact::Known(true),
    forced: false,
};

const fn boot(generation: u64, bound: bool, retired: bool) -> Boot {
    Boot { generation, bound, retired }
}

fn boots(generation: u64) -> impl Iterator<Item = Boot> {
    BOOLS.into_iter().flat_map(move |bound| BOOLS.map(|retired| boot(generation, bound, retired)))
}

/// What is recorded: by this operation, and by any.
fn records() -> Vec<(Option<Boot>, Option<Boot>)> {
    let mut all = vec![(None, None)];
    for of_all in boots(5) {
        all.push((None, Some(of_all)));
    }
    for current in boots(5) {
        for latest in [None, Some(current), Some(boot(3, true, true)), Some(boot(7, true, false))] {
            all.push((Some(current), latest));
        }
    }
    all
}

/// Every combination of facts, but for the agent's.
fn each(agent: Option<Agent>, mut check: impl FnMut(&Facts)) {
    for (current, latest) in records() {
        for (inserting, booted) in
            [None, Some(5), Some(6)].into_iter().flat_map(|i| [None, Some(5), Some(6)].map(|b| (i, b)))
        {
            for (seen, provisioned, in_work) in
                BOOLS.into_iter().flat_map(|a| BOOLS.into_iter().flat_map(move |b| BOOLS.map(|c| (a, b, c))))
            {
                for (phase, attempts) in PHASES.into_iter().flat_map(|p| [0, 2, 3].map(|a| (p, a))) {
                    for (known_generation, waited) in [5, 9].into_iter().flat_map(|k| WAITED.map(|w| (k, w))) {
                        for (power, medium) in POWER.into_iter().flat_map(|p| MEDIUM.map(|m| (p, m))) {
                            check(&Facts {
                                current,
                                latest,
                                agent,
                                phase,
                                attempts,
                                inserting,
                                booted,
                                seen,
                                provisioned,
                                known_generation,
                                waited,
                                in_work,
                                power,
                                medium,
                                forced: false,
                            });
                        }
                    }
                }
            }
        }
    }
}

/// What is to be done with an agent that is not used, rule by rule.
fn expected(f: &Facts) -> Decision {
    let newest =
        [f.current, f.latest].iter().flatten().map(|b| b.generation).chain([f.known_generation]).max().unwrap();
    let recorded = f.current.or(f.latest);
    let live = recorded.filter(|b| !b.retired);
    let is = |generation: Option<u64>| live.is_some_and(|b| generation == Some(b.generation));
    let unreported = f.current.is_some_and(|b| !b.bound && !b.retired && b.generation == newest);
    let begun = unreported && f.phase == StepPhase::Running;
    let gone = f.seen || f.current.is_none() && f.provisioned;
    let returns = !gone && live.is_some_and(|b| b.bound || begun);
    let worker = f.in_work && f.waited < PATIENCE.in_work;
    let rules = [
        (begun && is(f.inserting), Decision::GoOnInserting),
        (is(f.booted), Decision::AwaitBoot),
        (returns && f.waited < PATIENCE.reconnect, Decision::AwaitReport),
        (returns && worker && f.power == Fact::Unasked, Decision::AskPower),
        (returns && worker && f.power != Fact::Known(Some(false)), Decision::AwaitWorker),
        (begun && !f.seen && f.medium == Fact::Unasked, Decision::AskMedium),
        (begun && !f.seen && f.medium == Fact::Known(true), Decision::BootRecorded),
        (f.attempts == MAX_BOOTS, Decision::GiveUp),
        (true, Decision::BootAnew { attempt: f.attempts + 1, generation: newest + 1 }),
    ];
    rules.into_iter().find(|(holds, _)| *holds).unwrap().1
}

/// What must hold whatever the rules are.
fn invariants(f: &Facts, decision: Decision) {
    let generations = [f.current, f.latest].into_iter().flatten().map(|b| b.generation).chain([f.known_generation]);
    let newest = generations.max().unwrap();
    let resets = matches!(decision, Decision::BootRecorded | Decision::BootAnew { .. } | Decision::GoOnInserting);
    if resets {
        // An agent in the middle of this operation's work that may return.
        let works = f.current.is_some_and(|b| b.bound && !b.retired) && f.in_work && !f.seen;
        let waited_for = f.waited < PATIENCE.in_work && f.power != Fact::Known(Some(false));
        assert!(!(works && waited_for), "a reset under an agent that may return: {f:?}");
        let at_work = f.agent.is_some_and(|a| a.work == Work::Own);
        assert!(!at_work, "a reset under an agent that works for this: {f:?}");
    }
    match decision {
        Decision::BootAnew { attempt, generation } => {
            assert!(generation > newest, "a generation for two boots: {f:?}");
            assert!((1..=MAX_BOOTS).contains(&attempt) && attempt == f.attempts + 1, "{f:?}");
            let intent = f.current.is_some_and(|b| !b.bound && !b.retired && b.generation == newest)
                && f.phase == StepPhase::Running;
            let lost = f.seen || f.medium == Fact::Known(false);
            assert!(!intent || lost || f.agent.is_some(), "what is recorded is begun anew: {f:?}");
        }
        Decision::BootRecorded | Decision::GoOnInserting => {
            let current = f.current.unwrap();
            assert!(!current.bound && !current.retired && current.generation == newest, "booted again: {f:?}");
            assert!(decision == Decision::GoOnInserting || !f.seen, "one that was seen is booted again: {f:?}");
            assert_eq!(f.phase, StepPhase::Running, "{f:?}");
        }
        Decision::AwaitBoot | Decision::AwaitReport | Decision::AwaitWorker => {
            assert!(!f.recorded().unwrap().retired, "a retired boot is waited for: {f:?}");
        }
        Decision::AskPower => assert_eq!(f.power, Fact::Unasked),
        Decision::AskMedium => assert_eq!(f.medium, Fact::Unasked),
        Decision::Use | Decision::Refuse(_) => assert!(f.agent.is_some()),
        Decision::GiveUp => assert_eq!(f.attempts, MAX_BOOTS),
    }
}

#[test]
fn without_an_agent_every_combination_of_facts_has_its_decision() {
    let mut seen = BTreeMap::new();
    each(None, |facts| {
        let decision = decide(facts, &PATIENCE);
        assert_eq!(decision, expected(facts), "{facts:?}");
        invariants(facts, decision);
        *seen.entry(name(decision)).or_insert(0_u32) += 1;
    });
    assert_eq!(seen.len(), 9, "every decision comes about: {seen:?}");
}

fn name(decision: Decision) -> &'static str {
    match decision {
        Decision::Use => "use",
        Decision::Refuse(_) => "refuse",
        Decision::GoOnInserting => "go on inserting",
        Decision::AwaitBoot => "await boot",
        Decision::AwaitReport => "await report",
        Decision::AskPower => "ask power",
        Decision::AwaitWorker => "await worker",
        Decision::AskMedium => "ask medium",
        Decision::BootRecorded => "boot recorded",
        Decision::BootAnew { .. } => "boot anew",
        Decision::GiveUp => "give up",
    }
}

fn agents() -> Vec<Agent> {
    let mut all = Vec::new();
    for work in [Work::Idle, Work::Ended, Work::Own, Work::Other] {
        for protocol in [Protocol::Older, Protocol::Same, Protocol::Newer] {
            for (names_machine, disproved) in BOOLS.into_iter().flat_map(|a| BOOLS.map(|b| (a, b))) {
                for secure_boot in [Proof::Fits, Proof::Differs, Proof::NotOn, Proof::StillOn, Proof::Tolerated] {
                    all.push(Agent { work, protocol, names_machine, disproved, secure_boot });
                }
            }
        }
    }
    all
}

/// What an agent is good for, rule by rule.
fn judged(agent: &Agent, fresh: bool) -> Judged {
    let trusted = agent.names_machine && agent.protocol == Protocol::Same && !agent.disproved;
    let asked = agent.work != Work::Other && (agent.work != Work::Idle || trusted);
    let unproved = matches!(agent.secure_boot, Proof::NotOn | Proof::StillOn);
    let left = agent.secure_boot == Proof::Differs && agent.work != Work::Own;
    if asked && unproved {
        return Judged::Refused(Refusal::SecureBoot(agent.secure_boot));
    }
    match (asked && !left, fresh && agent.protocol == Protocol::Older) {
        (true, _) => Judged::Usable,
        (false, true) => Judged::Refused(Refusal::OldImage),
        (false, false) => Judged::Unusable,
    }
}

#[test]
fn every_agent_is_judged() {
    assert_eq!(agents().len(), 240);
    for agent in agents() {
        for fresh in BOOLS {
            assert_eq!(agent.judge(fresh), judged(&agent, fresh), "{agent:?} {fresh}");
        }
    }
}

/// The machine of one whose work is wanted is not reset, that of one who has other work is.
#[test]
fn an_agent_is_used_refused_or_left_as_it_is_judged() {
    let base = FACTS;
    for agent in agents() {
        for (current, latest) in records().into_iter().skip(1) {
            for (seen, booted) in BOOLS.into_iter().flat_map(|s| [None, Some(5)].map(|b| (s, b))) {
                let facts = Facts { current, latest, agent: Some(agent), seen, booted, ..base };
                let decision = decide(&facts, &PATIENCE);
                match judged(&agent, current.is_some_and(|b| !b.bound)) {
                    Judged::Usable => assert_eq!(decision, Decision::Use, "{facts:?}"),
                    Judged::Refused(why) => assert_eq!(decision, Decision::Refuse(why), "{facts:?}"),
                    Judged::Unusable => assert_eq!(decision, expected(&facts), "{facts:?}"),
                }
                let at_own_work = agent.work == Work::Own && !matches!(decision, Decision::Use | Decision::Refuse(_));
                assert!(!at_own_work, "{} {facts:?}", name(decision));
            }
        }
    }
}

/// Whoever answers what is asked comes to something to do.
#[test]
fn after_at_most_two_questions_there_is_something_to_do() {
    each(None, |facts| {
        if (facts.power, facts.medium) != (Fact::Unasked, Fact::Unasked) {
            return;
        }
        let mut facts = *facts;
        for _ in 0..3 {
            match decide(&facts, &PATIENCE) {
                Decision::AskPower => facts.power = Fact::Known(Some(false)),
                Decision::AskMedium => facts.medium = Fact::Known(true),
                _ => return,
            }
        }
        panic!("it asks on: {facts:?}");
    });
}

#[test]
fn a_record_that_names_the_last_generation_is_refused() {
    let facts = |current: u64, latest: u64, known: u64| Facts {
        current: Some(boot(current, true, false)),
        latest: Some(boot(latest, true, false)),
        agent: None,
        phase: StepPhase::Done,
        attempts: 0,
        inserting: None,
        booted: None,
        seen: true,
        provisioned: false,
        known_generation: known,
        waited: Duration::from_secs(9999),
        in_work: false,
        power: Fact::Unasked,
        medium: Fact::Unasked,
        forced: false,
    };
    for (current, latest, known) in [(u64::MAX, 1, 1), (1, u64::MAX, 1), (1, 1, u64::MAX)] {
        let decision = decide(&facts(current, latest, known), &PATIENCE);
        assert_eq!(decision, Decision::Refuse(Refusal::NoGeneration));
    }
    let last = decide(&facts(u64::MAX - 1, 1, 1), &PATIENCE);
    assert_eq!(last, Decision::BootAnew { attempt: 1, generation: u64::MAX });
}

/// This operation has recorded a boot of which no agent has reported.
fn begun(facts: &Facts) -> bool {
    let newest =
        [facts.current, facts.latest].into_iter().flatten().map(|b| b.generation).chain([facts.known_generation]).max();
    let open = facts.current.is_some_and(|b| !b.bound && !b.retired && Some(b.generation) == newest);
    open && facts.phase == StepPhase::Running
}

/// Whatever else is known: a boot that somebody asks for is made, at a generation of its own, however many there were. Only what this operation
/// has booted is given up for it, no result that an agent tells of, and no agent that may report yet to a process that has just begun.
#[test]
fn a_boot_that_is_asked_for_by_force_is_made() {
    let check = |facts: &Facts| {
        let calm = decide(facts, &PATIENCE);
        let decision = decide(&Facts { forced: true, ..*facts }, &PATIENCE);
        let ended = facts.agent.is_some_and(|agent| agent.work == Work::Ended);
        let current = facts.current.map(|current| current.generation);
        let gone = facts.seen || facts.current.is_some_and(|current| current.retired);
        let open = facts.current.is_some_and(|current| current.bound || begun(facts));
        let unreported = facts.agent.is_none() && facts.booted != current && open && !gone;
        if facts.current.is_none() || ended || unreported && facts.waited < PATIENCE.reconnect {
            assert_eq!(decision, calm, "{facts:?}");
            return;
        }
        let generations = [facts.current, facts.latest].into_iter().flatten().map(|b| b.generation);
        let generation = generations.chain([facts.known_generation]).max().unwrap() + 1;
        let attempt = match (facts.phase, facts.attempts) {
            (StepPhase::Running | StepPhase::Done, attempts @ 1..) => attempts,
            (_, attempts) => attempts + 1,
        };
        assert_eq!(decision, Decision::BootAnew { attempt, generation }, "{facts:?}");
    };
    each(None, check);
    for agent in agents() {
        for (current, latest) in records() {
            for attempts in [0, 2, 3] {
                let base = Facts { current, latest, agent: Some(agent), attempts, ..FACTS };
                check(&base);
            }
        }
    }
    let last = Facts { current: Some(boot(u64::MAX, true, false)), forced: true, ..FACTS };
    assert_eq!(decide(&last, &PATIENCE), Decision::Refuse(Refusal::NoGeneration));
}

#[test]
fn a_recorded_boot_is_read() {
    let recorded = AgentBoot { generation: 7, ..AgentBoot::default() };
    assert_eq!(Boot::from(&recorded), boot(7, false, false));
    let bound = AgentBoot { boot_id: Some("b".into()), ..recorded.clone() };
    assert_eq!(Boot::from(&bound), boot(7, true, false));
    assert_eq!(Boot::from(&AgentBoot { retired: true, ..recorded }), boot(7, false, true));
}

#[test]
fn a_boot_is_in_work_while_a_step_that_it_was_given_has_not_ended() {
    let of = |boot_id: Option<&str>| AgentBoot { boot_id: boot_id.map(Into::into), ..AgentBoot::default() };
    for phase in PHASES {
        for given in [None, Some("a"), Some("b")] {
            let step = OperationStep {
                name: "write-image".into(),
                phase,
                boot_id: given.map(Into::into),
                ..OperationStep::default()
            };
            let status = HostOperationStatus { steps: vec![OperationStep::default(), step], ..Default::default() };
            let works = phase == StepPhase::Running && given == Some("a");
            assert_eq!(in_work(&status, &of(Some("a"))), works, "{phase:?} {given:?}");
            assert!(!in_work(&status, &of(None)), "{phase:?} {given:?}");
        }
    }
}
