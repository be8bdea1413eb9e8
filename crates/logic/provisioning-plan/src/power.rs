//! Power: the wish, the observed state, and the outstanding order.
//!
//! An order counts from when the BMC accepted it (or may have: its answer was lost), has a direction, and belongs to the work that gave it. It
//! ends when its effect is seen, or when its work has not looked for longer than it may take. While an order for the other direction may still
//! take effect, the observed state does not count: a machine that is about to come on is not off.

use std::time::Duration;

use terms::{PowerAction, PowerWish};

/// Result of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The BMC has accepted it.
    Taken,
    /// The answer was lost: it may take effect.
    Lost,
    /// The BMC was not reached, or disconnected: it may take effect, and is to be given again.
    Unclear,
    /// The BMC refuses it, or cannot do it: nothing happens.
    Refused,
    /// The order was not given (the BMC is busy, the password is wrong): nothing happens, and nothing is learned.
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

/// What counts if the BMC does not report whether the machine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The state last seen or ordered; if there is none, an order is given.
    Remembered,
    /// Nothing: an order is given.
    Ordered,
    /// Nothing, and no order is given: a tenant may be running.
    Left,
}

/// One look at the machine for a wish. Times count from any fixed moment.
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
    /// An agent runs on the machine: nothing is mounted, and there is no system to shut down.
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

    /// The first order for the wish.
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
    /// Give this order, and report its result ([`Power::answered`]).
    Ask(PowerAction),
    /// Look again: an order is outstanding, for this wish or against it.
    Wait {
        /// It is.
        order: PowerAction,
        /// How long it may take yet.
        left: Duration,
    },
    /// The BMC does not report the machine's power, and no order is outstanding.
    Unreported,
    /// The BMC accepted the order, or may have, and the machine did not follow in time.
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

    /// Notes the power that the BMC reports: an order that has taken effect is no longer outstanding.
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
            Decision::Ask(_) if look.sight.is_none() && look.unseen == Unseen::Left => Decision::Unreported,
            decision => decision,
        }
    }

    /// An order for the other direction that may still take effect, and for how long.
    fn against(&self, on: bool, now: Duration, patience: &Patience) -> Option<(PowerAction, Duration)> {
        let (order, at) = self.acting.filter(|(order, _)| order.on() != on)?;
        let left = (at + patience.of(order)).saturating_sub(now);
        (!left.is_zero()).then_some((order, left))
    }

    /// The machine is not as wished: follows up this work's order, or gives one.
    fn pursue(&mut self, look: &Look<'_>, patience: &Patience) -> Decision {
        let outstanding = self.outstanding.as_mut().filter(|outstanding| {
            let looked_after = look.now.saturating_sub(outstanding.looked) <= patience.of(outstanding.order);
            outstanding.of == look.of && outstanding.order.on() == look.wish.on() && looked_after
        });
        let Some(outstanding) = outstanding else { return Decision::Ask(look.first()) };
        outstanding.looked = look.now;
        let (order, after) = (outstanding.order, look.now.saturating_sub(outstanding.at));
        let left = patience.of(order).saturating_sub(after);
        match (order, outstanding.answer) {
            (PowerAction::SoftOff, Answer::Unclear) => Decision::Ask(look.first()),
            (_, Answer::Unclear) => Decision::Ask(order),
            (PowerAction::SoftOff, Answer::Taken | Answer::Lost) if look.polite() && !left.is_zero() => {
                Decision::Wait { order, left }
            }
            // The soft power-off was in vain, or is no longer wanted.
            (PowerAction::SoftOff, _) => Decision::Ask(PowerAction::HardOff),
            _ if !left.is_zero() => Decision::Wait { order, left },
            (_, answer) => {
                self.outstanding = None;
                Decision::Failed { answered: answer == Answer::Taken, after }
            }
        }
    }

    /// Notes an order's result. `observed`: the BMC reports the machine's power, so that the effect can be awaited.
    pub fn answered(&mut self, order: PowerAction, answer: Answer, of: &str, observed: bool, now: Duration) {
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
            // A refused soft power-off is kept too: the power is cut next.
            (PowerAction::SoftOff, _) | (_, Answer::Lost | Answer::Unclear) => self.outstanding = Some(outstanding),
            (_, Answer::Taken) if observed => self.outstanding = Some(outstanding),
            // An effect that the BMC does not show cannot be awaited.
            (_, Answer::Taken) => *self = Self { last: Some(order.on()), ..Self::default() },
            (_, Answer::Refused) => {}
        }
    }
}
