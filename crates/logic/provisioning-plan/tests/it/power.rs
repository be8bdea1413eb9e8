//! Power: the orders one by one, and machines, wishes and BMCs by chance.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use provisioning_plan::power::{Answer, Decision, Look, Patience, Power, Unseen};
use terms::{PowerAction, PowerWish};

const PATIENCE: Patience = Patience { soft: Duration::from_secs(180), hard: Duration::from_secs(120) };
const SOFT: u64 = 180_000;
const HARD: u64 = 120_000;
const WISHES: [PowerWish; 3] = [PowerWish::On, PowerWish::SoftOff, PowerWish::HardOff];
const ANSWERS: [Answer; 5] = [Answer::Taken, Answer::Lost, Answer::Unclear, Answer::Refused, Answer::NotGiven];

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A look of steady work at a machine that shows whether it is on, and may be cut.
const fn look(wish: PowerWish, on: bool, at: u64) -> Look<'static> {
    Look { wish, of: "", sight: Some(on), unseen: Unseen::Remembered, agent: false, may_cut: true, now: ms(at) }
}

fn decided(power: &mut Power, look: &Look<'_>) -> Decision {
    power.decide(look, &PATIENCE)
}

/// A machine of which the order has been given, with this answer, at 0.
fn after(order: PowerAction, answer: Answer) -> Power {
    let mut power = Power::default();
    power.answered(order, answer, "", true, Duration::ZERO);
    power
}

#[test]
fn the_first_order_is_the_wish_s() {
    for (wish, agent, may_cut, order) in [
        (PowerWish::On, false, true, PowerAction::On),
        (PowerWish::On, true, false, PowerAction::On),
        (PowerWish::SoftOff, false, true, PowerAction::SoftOff),
        // A resident agent has nobody to ask.
        (PowerWish::SoftOff, true, true, PowerAction::HardOff),
        (PowerWish::HardOff, false, true, PowerAction::HardOff),
        (PowerWish::HardOff, true, true, PowerAction::HardOff),
        (PowerWish::SoftOff, false, false, PowerAction::SoftRestart),
        (PowerWish::HardOff, false, false, PowerAction::SoftRestart),
        (PowerWish::SoftOff, true, false, PowerAction::Restart),
        (PowerWish::HardOff, true, false, PowerAction::Restart),
    ] {
        let mut power = Power::default();
        let there = Look { agent, may_cut, ..look(wish, wish.on(), 0) };
        assert_eq!(decided(&mut power, &there), Decision::Done);
        let look = Look { agent, may_cut, ..look(wish, !wish.on(), 0) };
        assert_eq!(decided(&mut power, &look), Decision::Ask(order), "{look:?}");
    }
}

#[test]
fn a_taken_order_is_waited_for_in_its_time() {
    for (wish, order) in [(PowerWish::On, PowerAction::On), (PowerWish::HardOff, PowerAction::HardOff)] {
        for (answer, answered) in [(Answer::Taken, true), (Answer::Lost, false)] {
            let mut power = after(order, answer);
            let at = |at| look(wish, !wish.on(), at);
            assert_eq!(decided(&mut power, &at(1)), Decision::Wait { order, left: ms(HARD - 1) });
            assert_eq!(decided(&mut power, &at(HARD - 1)), Decision::Wait { order, left: ms(1) });
            assert_eq!(decided(&mut power, &at(HARD)), Decision::Failed { answered, after: ms(HARD) });
            // The failure ends it: it is begun anew.
            assert_eq!(decided(&mut power, &at(HARD)), Decision::Ask(order));
        }
    }
}

#[test]
fn a_machine_that_is_asked_in_vain_is_cut_off() {
    for answer in [Answer::Taken, Answer::Lost] {
        let mut power = after(PowerAction::SoftOff, answer);
        let waits = Decision::Wait { order: PowerAction::SoftOff, left: ms(1) };
        assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, SOFT - 1)), waits);
        assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, SOFT)), Decision::Ask(PowerAction::HardOff));
        power.answered(PowerAction::HardOff, Answer::Taken, "", true, ms(SOFT));
        let waits = Decision::Wait { order: PowerAction::HardOff, left: ms(HARD - 1) };
        assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, SOFT + 1)), waits);
        let failed = Decision::Failed { answered: true, after: ms(HARD) };
        assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, SOFT + HARD)), failed);
        assert_eq!(
            decided(&mut power, &look(PowerWish::SoftOff, true, SOFT + HARD)),
            Decision::Ask(PowerAction::SoftOff)
        );
    }
    // At once when the wish insists, or an agent has come, or the BMC cannot ask.
    let mut power = after(PowerAction::SoftOff, Answer::Taken);
    assert_eq!(decided(&mut power, &look(PowerWish::HardOff, true, 1)), Decision::Ask(PowerAction::HardOff));
    let agent = Look { agent: true, ..look(PowerWish::SoftOff, true, 1) };
    assert_eq!(decided(&mut power, &agent), Decision::Ask(PowerAction::HardOff));
    let mut power = after(PowerAction::SoftOff, Answer::Refused);
    assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, 1)), Decision::Ask(PowerAction::HardOff));
    // A polite wish after a hard order is no reason to ask.
    let mut power = after(PowerAction::HardOff, Answer::Taken);
    let waits = Decision::Wait { order: PowerAction::HardOff, left: ms(HARD - 1) };
    assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, 1)), waits);
}

#[test]
fn what_became_of_an_order_decides_on_the_next() {
    for (wish, order) in [
        (PowerWish::On, PowerAction::On),
        (PowerWish::HardOff, PowerAction::HardOff),
        (PowerWish::SoftOff, PowerAction::SoftOff),
    ] {
        let waits = Decision::Wait { order, left: ms(if order == PowerAction::SoftOff { SOFT } else { HARD } - 1) };
        let refused = if order == PowerAction::SoftOff { PowerAction::HardOff } else { order };
        for (answer, next) in [
            (Answer::Taken, waits),
            (Answer::Lost, waits),
            (Answer::Unclear, Decision::Ask(order)),
            (Answer::Refused, Decision::Ask(refused)),
            (Answer::NotGiven, Decision::Ask(order)),
        ] {
            let mut power = after(order, answer);
            assert_eq!(decided(&mut power, &look(wish, !wish.on(), 1)), next, "{order:?} {answer:?}");
        }
    }
    // What did not come to pass leaves what did.
    for answer in [Answer::Refused, Answer::NotGiven] {
        let mut power = after(PowerAction::SoftOff, Answer::Taken);
        power.answered(PowerAction::HardOff, answer, "", true, ms(5));
        let waits = Decision::Wait { order: PowerAction::SoftOff, left: ms(SOFT - 6) };
        assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, 6)), waits);
    }
    // A cut that was lost on its way is made again, not asked for politely anew; a request is, unless it is not wished any more.
    let mut power = after(PowerAction::SoftOff, Answer::Taken);
    power.answered(PowerAction::HardOff, Answer::Unclear, "", true, ms(SOFT));
    assert_eq!(decided(&mut power, &look(PowerWish::SoftOff, true, SOFT + 1)), Decision::Ask(PowerAction::HardOff));
    let mut power = after(PowerAction::SoftOff, Answer::Unclear);
    assert_eq!(decided(&mut power, &look(PowerWish::HardOff, true, 1)), Decision::Ask(PowerAction::HardOff));
}

#[test]
fn an_order_that_nobody_looked_after_is_nobodys() {
    for (wish, order, patience) in [
        (PowerWish::On, PowerAction::On, HARD),
        (PowerWish::HardOff, PowerAction::HardOff, HARD),
        (PowerWish::SoftOff, PowerAction::SoftOff, SOFT),
    ] {
        let mut late = after(order, Answer::Taken);
        assert_eq!(decided(&mut late, &look(wish, !wish.on(), patience + 1)), Decision::Ask(order));
        let mut in_time = after(order, Answer::Taken);
        let decision = decided(&mut in_time, &look(wish, !wish.on(), patience));
        let cut = order == PowerAction::SoftOff && decision == Decision::Ask(PowerAction::HardOff);
        assert!(cut || matches!(decision, Decision::Failed { .. }), "{decision:?}");
        // It is looked after once in between.
        let mut attended = after(order, Answer::Taken);
        decided(&mut attended, &look(wish, !wish.on(), patience - 1));
        let decision = decided(&mut attended, &look(wish, !wish.on(), patience + 1));
        let cut = order == PowerAction::SoftOff && decision == Decision::Ask(PowerAction::HardOff);
        assert!(cut || decision == Decision::Failed { answered: true, after: ms(patience + 1) }, "{decision:?}");
    }
}

#[test]
fn an_order_belongs_to_its_work_and_has_its_direction() {
    for (wish, order) in [(PowerWish::On, PowerAction::On), (PowerWish::HardOff, PowerAction::HardOff)] {
        let mut power = after(order, Answer::Taken);
        let other = Look { of: "op-1", ..look(wish, !wish.on(), 1) };
        assert_eq!(decided(&mut power, &other), Decision::Ask(order));
        power.answered(order, Answer::Taken, "op-1", true, ms(1));
        assert_eq!(decided(&mut power, &other), Decision::Wait { order, left: ms(HARD) });
        assert_eq!(decided(&mut power, &look(wish, !wish.on(), 2)), Decision::Ask(order));
    }
    // The machine has come on, as it was told; now it is to go off, and the other way round.
    let mut power = after(PowerAction::On, Answer::Taken);
    assert_eq!(decided(&mut power, &look(PowerWish::HardOff, true, 1)), Decision::Ask(PowerAction::HardOff));
    let mut power = after(PowerAction::HardOff, Answer::Taken);
    assert_eq!(decided(&mut power, &look(PowerWish::On, false, 1)), Decision::Ask(PowerAction::On));
}

#[test]
fn what_may_still_be_carried_out_outweighs_what_is_seen() {
    for (order, wish, on, patience) in [
        (PowerAction::On, PowerWish::SoftOff, false, HARD),
        (PowerAction::On, PowerWish::HardOff, false, HARD),
        (PowerAction::SoftOff, PowerWish::On, true, SOFT),
        (PowerAction::HardOff, PowerWish::On, true, HARD),
    ] {
        for answer in [Answer::Taken, Answer::Lost, Answer::Unclear] {
            let mut power = after(order, answer);
            let at = |at| Look { of: "op-1", ..look(wish, on, at) };
            assert_eq!(decided(&mut power, &at(0)), Decision::Wait { order, left: ms(patience) });
            assert_eq!(decided(&mut power, &at(patience - 1)), Decision::Wait { order, left: ms(1) });
            assert_eq!(decided(&mut power, &at(patience)), Decision::Done, "{order:?} {answer:?}");
            // It is over for good.
            assert_eq!(decided(&mut power, &at(0)), Decision::Done, "{order:?} {answer:?}");
        }
        for answer in [Answer::Refused, Answer::NotGiven] {
            assert_eq!(decided(&mut after(order, answer), &look(wish, on, 1)), Decision::Done, "{order:?} {answer:?}");
        }
    }
    // For the same direction there is nothing to wait for.
    assert_eq!(decided(&mut after(PowerAction::On, Answer::Taken), &look(PowerWish::On, true, 1)), Decision::Done);
}

#[test]
fn a_machine_that_is_not_seen_is_remembered_ordered_or_left() {
    let unseen = |unseen, wish, at| Look { sight: None, unseen, ..look(wish, false, at) };
    for wish in WISHES {
        let first = match wish {
            PowerWish::On => PowerAction::On,
            PowerWish::SoftOff => PowerAction::SoftOff,
            PowerWish::HardOff => PowerAction::HardOff,
        };
        for last in [None, Some(false), Some(true)] {
            let mut power = Power::default();
            power.saw(last);
            for (mode, expected) in [
                (Unseen::Remembered, if last == Some(wish.on()) { Decision::Done } else { Decision::Ask(first) }),
                (Unseen::Ordered, Decision::Ask(first)),
                (Unseen::Left, Decision::Unreported),
            ] {
                assert_eq!(decided(&mut power.clone(), &unseen(mode, wish, 0)), expected, "{mode:?} {wish:?} {last:?}");
            }
        }
    }
    // One that was seen when it was ordered is waited for, and then left.
    let mut power = after(PowerAction::On, Answer::Taken);
    let waits = Decision::Wait { order: PowerAction::On, left: ms(HARD - 1) };
    assert_eq!(decided(&mut power, &unseen(Unseen::Left, PowerWish::On, 1)), waits);
    let failed = Decision::Failed { answered: true, after: ms(HARD) };
    assert_eq!(decided(&mut power, &unseen(Unseen::Left, PowerWish::On, HARD)), failed);
    assert_eq!(decided(&mut power, &unseen(Unseen::Left, PowerWish::On, HARD)), Decision::Unreported);
    // Seen, it is ordered in any mode.
    let seen = Look { unseen: Unseen::Left, ..look(PowerWish::On, false, 0) };
    assert_eq!(decided(&mut Power::default(), &seen), Decision::Ask(PowerAction::On));
}

#[test]
fn an_order_whose_effect_is_not_shown_counts_as_carried_out_when_it_is_taken() {
    for (order, on) in [(PowerAction::On, true), (PowerAction::HardOff, false)] {
        let mut power = Power::default();
        power.answered(order, Answer::Taken, "", false, Duration::ZERO);
        assert_eq!(power.last(), Some(on));
        let wish = if on { PowerWish::On } else { PowerWish::HardOff };
        let unseen = Look { sight: None, ..look(wish, false, 1) };
        assert_eq!(decided(&mut power, &unseen), Decision::Done);
        for answer in [Answer::Lost, Answer::Unclear, Answer::Refused, Answer::NotGiven] {
            let mut power = Power::default();
            power.answered(order, answer, "", false, Duration::ZERO);
            assert_eq!(power.last(), None);
        }
    }
    // But a request is one, shown or not.
    let mut power = Power::default();
    power.answered(PowerAction::SoftOff, Answer::Taken, "", false, Duration::ZERO);
    assert_eq!(power.last(), None);
    let unseen = Look { sight: None, ..look(PowerWish::SoftOff, false, 1) };
    assert_eq!(decided(&mut power, &unseen), Decision::Wait { order: PowerAction::SoftOff, left: ms(SOFT - 1) });
}

#[test]
fn a_restart_leaves_the_machine_on_and_nothing_outstanding() {
    for order in [PowerAction::Restart, PowerAction::SoftRestart] {
        assert!(order.on());
        let mut power = after(PowerAction::SoftOff, Answer::Taken);
        power.answered(order, Answer::Taken, "", true, ms(1));
        let mut same = after(PowerAction::SoftOff, Answer::Taken);
        same.restarted();
        assert_eq!(power, same);
        assert_eq!((power.last(), decided(&mut power, &look(PowerWish::On, true, 2))), (Some(true), Decision::Done));
        for answer in ANSWERS.into_iter().filter(|answer| *answer != Answer::Taken) {
            let mut power = after(PowerAction::SoftOff, Answer::Taken);
            power.answered(order, answer, "", true, ms(1));
            assert_eq!(power, after(PowerAction::SoftOff, Answer::Taken), "{answer:?}");
        }
    }
}

#[test]
fn what_is_seen_is_remembered_and_ends_the_order_that_brought_it_about() {
    let mut power = after(PowerAction::HardOff, Answer::Taken);
    power.saw(None);
    power.saw(Some(true));
    assert_eq!(power.last(), Some(true));
    let waits = Decision::Wait { order: PowerAction::HardOff, left: ms(HARD - 1) };
    assert_eq!(decided(&mut power, &look(PowerWish::HardOff, true, 1)), waits);
    assert_eq!(power.remembered(), {
        let mut seen = Power::default();
        seen.saw(Some(true));
        seen
    });
    power.saw(Some(false));
    assert_eq!(power, power.remembered());
    assert_eq!(power.last(), Some(false));
    // A look is enough for it, for whatever wish: the order to come on is over when the machine has been seen on.
    let mut power = after(PowerAction::On, Answer::Taken);
    assert_eq!(decided(&mut power, &look(PowerWish::HardOff, true, 1)), Decision::Ask(PowerAction::HardOff));
    assert_eq!((power.last(), power == power.remembered()), (Some(true), true));
    assert_eq!(decided(&mut power, &look(PowerWish::HardOff, false, 2)), Decision::Done);
    // Whoever finds the machine as wished remembers it, though it was not told.
    let mut power = Power::default();
    decided(&mut power, &look(PowerWish::On, true, 0));
    assert_eq!(power.last(), Some(true));
}

/// One look, and what the BMC does if it is told something.
#[derive(Clone, Debug)]
struct Event {
    gap: u64,
    wish: PowerWish,
    of: &'static str,
    agent: bool,
    may_cut: bool,
    hidden: bool,
    answer: Answer,
    /// The machine follows after so long, or not at all.
    follows: Option<u64>,
}

fn event(hides: bool) -> impl Strategy<Value = Event> {
    let gap = prop_oneof![6 => 0_u64..3_000, 2 => 0_u64..130_000, 1 => 0_u64..8_000_000];
    let who = (select(WISHES.to_vec()), select(vec!["", "op-1"]), prop::bool::weighted(0.2), prop::bool::weighted(0.9));
    let what = (select(ANSWERS.to_vec()), prop::option::weighted(0.7, 0_u64..100_000), prop::bool::weighted(0.3));
    (gap, who, what).prop_map(move |(gap, (wish, of, agent, may_cut), (answer, follows, hidden))| Event {
        gap,
        wish,
        of,
        agent,
        may_cut,
        hidden: hidden && hides,
        answer,
        follows,
    })
}

struct Given {
    order: PowerAction,
    answer: Answer,
    of: &'static str,
    at: u64,
}

/// A machine, its BMC, and whatever was told it.
struct World {
    power: Power,
    now: u64,
    on: bool,
    turning: Option<(bool, u64)>,
    given: Vec<Given>,
    /// Since when each work has looked after each direction without a gap, and when last.
    attended: Vec<(&'static str, bool, u64, u64)>,
}

impl World {
    fn new(on: bool) -> Self {
        Self { power: Power::default(), now: 0, on, turning: None, given: vec![], attended: vec![] }
    }

    fn pass(&mut self, gap: u64) {
        self.now += gap;
        let now = self.now;
        if let Some((on, _)) = self.turning.take_if(|(_, at)| *at <= now) {
            self.on = on;
        }
    }

    fn tell(&mut self, order: PowerAction, of: &'static str, observed: bool, event: &Event) {
        let reaches = matches!(event.answer, Answer::Taken | Answer::Lost | Answer::Unclear);
        if event.answer == Answer::Taken {
            self.turning = None;
        }
        if let Some(delay) = event.follows.filter(|_| reaches) {
            self.turning = Some((order.on(), self.now + delay));
        }
        self.given.push(Given { order, answer: event.answer, of, at: self.now });
        self.power.answered(order, event.answer, of, observed, ms(self.now));
    }

    /// When this work began to look after this direction without a gap of more than `patience`.
    fn attends(&mut self, of: &'static str, on: bool, patience: u64) -> u64 {
        let now = self.now;
        let known = self.attended.iter_mut().find(|(o, d, ..)| (*o, *d) == (of, on));
        let Some((_, _, since, last)) = known else {
            self.attended.push((of, on, now, now));
            return now;
        };
        if now - *last > patience {
            *since = now;
        }
        *last = now;
        *since
    }

    fn look(&mut self, event: &Event) -> Decision {
        self.pass(event.gap);
        let sight = (!event.hidden).then_some(self.on);
        let look = Look {
            wish: event.wish,
            of: event.of,
            sight,
            unseen: Unseen::Remembered,
            agent: event.agent,
            may_cut: event.may_cut,
            now: ms(self.now),
        };
        let decision = self.power.decide(&look, &PATIENCE);
        let since = self.attends(event.of, event.wish.on(), SOFT);
        self.check(&look, decision, since);
        if let Decision::Ask(order) = decision {
            self.tell(order, event.of, sight.is_some(), event);
        }
        decision
    }

    fn check(&self, look: &Look<'_>, decision: Decision, since: u64) {
        let (on, now) = (look.wish.on(), self.now);
        match decision {
            Decision::Done => {
                assert!(look.sight.is_none_or(|sight| sight == on), "done, and not so: {look:?}");
                assert_eq!(self.power.last(), Some(on));
            }
            Decision::Wait { order, left } => {
                let patience = if order == PowerAction::SoftOff { SOFT } else { HARD };
                let given = self.given.iter().rev().find(|given| given.order == order).unwrap();
                assert!(
                    left > Duration::ZERO
                        && now - given.at + left.as_millis() as u64 <= patience.max(now - given.at + 1)
                );
                assert!(now - given.at < patience, "an old order is waited for: {look:?}");
            }
            Decision::Failed { answered, after } => {
                // Never without an order that this work gave for this direction, and that was looked after all the time.
                let given = self.given.iter().rev().find(|g| g.of == look.of && g.order.on() == on).unwrap();
                assert_eq!((after, answered), (ms(now - given.at), given.answer == Answer::Taken));
                assert!(matches!(given.answer, Answer::Taken | Answer::Lost) && given.order != PowerAction::SoftOff);
                assert!(now - given.at >= HARD && given.at >= since, "{look:?}");
            }
            Decision::Ask(order) => self.check_order(look, order, since),
            Decision::Unreported => panic!("it may be ordered: {look:?}"),
        }
    }

    fn check_order(&self, look: &Look<'_>, order: PowerAction, since: u64) {
        assert_ne!(look.sight, Some(look.wish.on()), "it is there");
        let expected = match look.wish {
            PowerWish::On => vec![PowerAction::On],
            _ if !look.may_cut => vec![PowerAction::Restart, PowerAction::SoftRestart],
            PowerWish::SoftOff if !look.agent => vec![PowerAction::SoftOff, PowerAction::HardOff],
            _ => vec![PowerAction::HardOff],
        };
        assert!(expected.contains(&order), "{order:?} for {look:?}");
        if order == PowerAction::HardOff && look.wish == PowerWish::SoftOff && !look.agent {
            // It was asked politely, by this work and not long ago, or the cut had been decided on.
            let leave = |g: &Given| match (g.order, g.answer) {
                (PowerAction::SoftOff, Answer::Refused) | (PowerAction::HardOff, Answer::Unclear) => true,
                (PowerAction::SoftOff, Answer::Taken | Answer::Lost) => self.now - g.at >= SOFT,
                _ => false,
            };
            let asked = self.given.iter().any(|g| g.of == look.of && g.at >= since && leave(g));
            assert!(asked, "cut without a word: {look:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_bmcs_do_no_order_is_given_waited_for_or_failed_without_its_reason(
        on: bool, events in prop::collection::vec(event(true), 1..40)
    ) {
        let mut world = World::new(on);
        for event in &events {
            world.look(event);
        }
    }

    /// Nothing that this process has ordered changes the power of a machine that is settled.
    #[test]
    fn a_machine_that_is_settled_stays_so(on: bool, events in prop::collection::vec(event(false), 1..40)) {
        let mut world = World::new(on);
        for event in &events {
            if world.look(event) == Decision::Done {
                let turns = world.turning.map(|(on, _)| on);
                prop_assert!(turns.is_none_or(|on| on == event.wish.on()), "{event:?}: it turns {turns:?}");
            }
        }
    }

    /// Whatever went before: a BMC that does as it is told brings the machine where it is wished, with one failure on the way at most.
    #[test]
    fn an_obedient_bmc_brings_the_machine_where_it_is_wished(
        on: bool, events in prop::collection::vec(event(true), 0..20), wish in select(WISHES.to_vec())
    ) {
        let mut world = World::new(on);
        for event in &events {
            world.look(event);
        }
        let obeys = Event {
            gap: 1000, wish, of: "", agent: false, may_cut: true, hidden: false, answer: Answer::Taken, follows: Some(3_000),
        };
        let mut failures = 0;
        for _ in 0..500 {
            match world.look(&obeys) {
                Decision::Done => {
                    prop_assert_eq!(world.on, wish.on());
                    return Ok(());
                }
                Decision::Failed { .. } => failures += 1,
                _ => {}
            }
            prop_assert!(failures <= 1);
        }
        prop_assert!(false, "it does not come to its end");
    }
}
