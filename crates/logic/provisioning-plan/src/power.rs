//! Power: what is wished, what is seen, and the order that is outstanding.
//!
//! An order counts from when the BMC has taken it (or may have: its answer was lost), has a direction, and belongs to the work that it was given
//! for. What is seen of the machine ends it; so does nobody's looking after it for longer than it may take. While an order for the other direction may
//! still be carried out, what is seen does not count: a machine that is about to come on is not off.

use std::time::Duration;

use terms::{PowerAction, PowerWish};

/// What became of an order that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The BMC has taken it.
    Taken,
    /// The answer was lost: it may be carried out.
    Lost,
    /// The BMC was not reached, or went away: it may be carried out, and is to be given again.
    Unclear,
    /// The BMC has said no, or cannot do this: nothing happens.
    Refused,
    /// It did not come to the order (the BMC is busy, the password is wrong): nothing happens, and nothing is known.
    NotGiven,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From a polite request to cutting the power.
    pub soft: Duration,
    /// A change of power that the BMC has taken.
    pub hard: Duration,
}

impl Patience {
    const fn of(&self, order: PowerAction) -> Duration {
        match order {
            PowerAction::SoftOff => self.soft,
            PowerAction::On | PowerAction::HardOff | PowerAction::SoftRestart | PowerAction::Restart => self.hard,
        }
    }
}

/// What counts where the BMC does not tell whether the machine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// What was last seen or ordered; if nothing was, an order is given.
    Remembered,
    /// Nothing: an order is given.
    Ordered,
    /// Nothing, and no order is given: a tenant may be running.
    Left,
}

/// One look at the machine for a wish. Times are since any moment that stays the same.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// What is wished.
    pub wish: PowerWish,
    /// The work that wishes it.
    pub of: &'a str,
    /// Whether the machine is on; `None` where the BMC does not tell.
    pub sight: Option<bool>,
    /// What counts where it does not tell.
    pub unseen: Unseen,
    /// An agent runs on the machine: nothing is mounted, and there is nobody to ask politely.
    pub agent: bool,
    /// The power may be cut.
    pub may_cut: bool,
    /// Now.
    pub now: Duration,
}

impl Look<'_> {
    const fn polite(&self) -> bool {
        matches!(self.wish, PowerWish::SoftOff) && !self.agent
    }

    /// What the BMC is told first.
    const fn first(&self) -> PowerAction {
        match self.wish {
            PowerWish::On => PowerAction::On,
            _ if self.polite() => PowerAction::SoftOff,
            _ => PowerAction::HardOff,
        }
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The machine is as wished.
    Done,
    /// Give this order, and say what became of it ([`Power::answered`]).
    Ask(PowerAction),
    /// Look again: an order is outstanding, for this wish or against it.
    Wait {
        /// It is.
        order: PowerAction,
        /// How long it may take yet.
        left: Duration,
    },
    /// The BMC does not tell the machine's power, and no order is outstanding.
    Untold,
    /// The BMC took the order, or may have, and the machine did not follow in time.
    Failed {
        /// Whether the BMC has said that it took it.
        answered: bool,
        /// How long ago.
        after: Duration,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Outstanding {
    order: PowerAction,
    of: String,
    answer: Answer,
    at: Duration,
    /// When it was last looked after.
    looked: Duration,
}

/// What is known of a machine's power between looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Power {
    /// The order that is looked after.
    outstanding: Option<Outstanding>,
    /// The last order that may be carried out, whoever gave it, and when that was.
    acting: Option<(PowerAction, Duration)>,
    last: Option<bool>,
}

impl Power {
    /// What is left when all else is forgotten: what was last seen or ordered.
    #[must_use]
    pub fn remembered(&self) -> Self {
        Self { last: self.last, ..Self::default() }
    }

    /// What was last seen, or ordered where nothing is seen.
    #[must_use]
    pub const fn last(&self) -> Option<bool> {
        self.last
    }

    /// Notes what the BMC tells: the order that has brought it about is no longer outstanding.
    pub fn saw(&mut self, sight: Option<bool>) {
        let Some(on) = sight else { return };
        self.last = Some(on);
        self.outstanding.take_if(|outstanding| outstanding.order.on() == on);
        self.acting.take_if(|(order, _)| order.on() == on);
    }

    /// The machine has been restarted by other means: it is on, and what was ordered before is void.
    pub fn restarted(&mut self) {
        *self = Self { last: Some(true), ..Self::default() };
    }

    /// What to do for the wish now.
    pub fn decide(&mut self, look: &Look<'_>, patience: &Patience) -> Decision {
        self.saw(look.sight);
        let on = look.wish.on();
        let remembered = if look.unseen == Unseen::Remembered { self.last } else { None };
        if look.sight.or(remembered) == Some(on) {
            if let Some((order, left)) = self.against(on, look.now, patience) {
                return Decision::Wait { order, left };
            }
            *self = Self { last: Some(on), ..Self::default() };
            return Decision::Done;
        }
        if !on && !look.may_cut {
            return Decision::Ask(if look.agent { PowerAction::Restart } else { PowerAction::SoftRestart });
        }
        match self.pursue(look, patience) {
            Decision::Ask(_) if look.sight.is_none() && look.unseen == Unseen::Left => Decision::Untold,
            decision => decision,
        }
    }

    /// An order for the other direction that may still be carried out, and for how long.
    fn against(&self, on: bool, now: Duration, patience: &Patience) -> Option<(PowerAction, Duration)> {
        let (order, at) = self.acting.filter(|(order, _)| order.on() != on)?;
        let left = (at + patience.of(order)).saturating_sub(now);
        (!left.is_zero()).then_some((order, left))
    }

    /// The machine is not as wished: looks after this work's order, or has one given.
    fn pursue(&mut self, look: &Look<'_>, patience: &Patience) -> Decision {
        let own = self.outstanding.as_mut().filter(|outstanding| {
            let looked_after = look.now.saturating_sub(outstanding.looked) <= patience.of(outstanding.order);
            outstanding.of == look.of && outstanding.order.on() == look.wish.on() && looked_after
        });
        let Some(own) = own else { return Decision::Ask(look.first()) };
        own.looked = look.now;
        let (order, after) = (own.order, look.now.saturating_sub(own.at));
        let left = patience.of(order).saturating_sub(after);
        match (order, own.answer) {
            (PowerAction::SoftOff, Answer::Unclear) => Decision::Ask(look.first()),
            (_, Answer::Unclear) => Decision::Ask(order),
            (PowerAction::SoftOff, Answer::Taken | Answer::Lost) if look.polite() && !left.is_zero() => {
                Decision::Wait { order, left }
            }
            // Asked politely in vain, or not so politely any more.
            (PowerAction::SoftOff, _) => Decision::Ask(PowerAction::HardOff),
            _ if !left.is_zero() => Decision::Wait { order, left },
            (_, answer) => {
                self.outstanding = None;
                Decision::Failed { answered: answer == Answer::Taken, after }
            }
        }
    }

    /// Notes what became of an order. `shown`: the BMC tells the machine's power, so that it can be waited for.
    pub fn answered(&mut self, order: PowerAction, answer: Answer, of: &str, shown: bool, now: Duration) {
        if matches!(order, PowerAction::Restart | PowerAction::SoftRestart) {
            if answer == Answer::Taken {
                self.restarted();
            }
            return;
        }
        if matches!(answer, Answer::Taken | Answer::Lost | Answer::Unclear) {
            self.acting = Some((order, now));
        }
        let outstanding = Outstanding { order, of: of.to_owned(), answer, at: now, looked: now };
        match (order, answer) {
            (_, Answer::NotGiven) => {}
            // That it cannot be asked politely is worth keeping.
            (PowerAction::SoftOff, _) | (_, Answer::Lost | Answer::Unclear) => self.outstanding = Some(outstanding),
            (_, Answer::Taken) if shown => self.outstanding = Some(outstanding),
            // What a BMC does not show cannot be waited for.
            (_, Answer::Taken) => *self = Self { last: Some(order.on()), ..Self::default() },
            (_, Answer::Refused) => {}
        }
    }
}
