//! The laws that can be checked by what has happened.

use provisioner::{Asked, Cause, Failure, Resource};

use crate::condition::Condition;
use crate::scenario::{Expected, Step};
use crate::tested::Tested;
use crate::trail::{Effect, Entry, What};
use crate::verdict::{Found, Law};

/// What a step has shown.
#[derive(Default)]
pub struct Seen {
    /// How often it was looked at.
    pub looks: usize,
    /// It was under way.
    pub working: bool,
    /// The targets were accepted.
    pub accepted: bool,
    /// How often the machine was booted again on request.
    pub forced: usize,
    /// How often there was no capacity.
    pub busy: usize,
    /// The machine was to be registered again.
    pub registration: bool,
    /// Failures on the way.
    pub failures: Vec<Failure>,
}

impl Seen {
    /// How often what was begun may have been begun again.
    pub fn begun_again(&self) -> usize {
        self.failures.len() + self.forced
    }
}

fn effects(entries: &[Entry]) -> impl Iterator<Item = Effect> {
    entries.iter().filter_map(|entry| match entry.what {
        What::Effect(effect) => Some(effect),
        _ => None,
    })
}

fn count(entries: &[Entry], effect: Effect) -> usize {
    effects(entries).filter(|found| *found == effect).count()
}

/// Checks what a part of a scenario has done, whether it has ended or not.
pub fn order<R: Resource>(entries: &[Entry], step: &Step<R>, again: usize) -> Vec<Found> {
    let mut found = Vec::new();
    let (mut intended, mut ever) = (false, false);
    for entry in entries {
        match entry.what {
            What::Write(provisioner::Purpose::Intent) => (intended, ever) = (true, true),
            What::Write(provisioner::Purpose::Note) => {}
            What::Leak => found.push((Law::Secrets, entry.text.clone())),
            What::Effect(effect) if effect.once() => {
                if !intended {
                    found.push((Law::IntentFirst, format!("{effect:?} ({}) without an intent of its own", entry.text)));
                }
                intended = false;
            }
            What::Effect(effect) if effect.recorded() && !ever => {
                found.push((Law::IntentFirst, format!("{effect:?} ({}) without an intent", entry.text)));
            }
            What::Effect(_) => {}
        }
    }
    for effect in [Effect::Write, Effect::Wipe, Effect::Configure] {
        let times = count(entries, effect);
        if step.effect == Some(effect) {
            if times > 1 + again {
                found.push((Law::OnceAWish, format!("{effect:?} {times} times, begun again {again} times")));
            }
        } else if times > 0 {
            found.push((Law::OnlyThisWish, format!("{effect:?}, which was not asked for")));
        }
    }
    found
}

/// Checks that a finished step did what it had to, and was answered as expected.
pub fn end<R: Tested>(entries: &[Entry], step: &Step<R>, seen: &Seen, answer: &R::Answer) -> Vec<Found> {
    let mut found = order(entries, step, seen.begun_again());
    if let Some(effect) = step.effect
        && count(entries, effect) == 0
    {
        found.push((Law::OnlyThisWish, format!("done without {effect:?}")));
    }
    let touched = [Effect::Boot, Effect::Power, Effect::Media].into_iter().find(|effect| count(entries, *effect) > 0);
    if let Some(effect) = touched.filter(|_| R::only_looks(&step.call)) {
        found.push((Law::OnlyThisWish, format!("{effect:?}, and it was only to be looked at")));
    }
    if !R::fits(&step.call, answer) {
        found.push((Law::Answer, format!("{} is answered with {answer:?}", step.call.name())));
    }
    let as_expected = match &step.expected {
        Expected::Done | Expected::Arrives => true,
        Expected::Working => seen.working,
        Expected::Accepted => seen.accepted,
        Expected::Busy => seen.busy > 0,
        Expected::Registration => seen.registration,
        Expected::FailsFirst => !seen.failures.is_empty(),
        Expected::Refused(_) => false,
    };
    if !as_expected {
        found.push((Law::Answer, format!("done, and {:?} was expected", step.expected)));
    }
    found
}

/// Checks that nothing was recorded or done, except inspection and the ending of work.
pub fn nothing(entries: &[Entry], law: Law, why: &str) -> Option<Found> {
    let found = entries.iter().find(|entry| !matches!(entry.what, What::Effect(Effect::End | Effect::Inspect)))?;
    Some((law, format!("{:?} ({}) {why}", found.what, found.text)))
}

/// The same for the machine alone: the record may be written.
pub fn no_effect(entries: &[Entry], law: Law, why: &str) -> Option<Found> {
    let effects: Vec<Entry> = entries.iter().filter(|entry| matches!(entry.what, What::Effect(_))).cloned().collect();
    nothing(&effects, law, why)
}

/// Checks that a refusal has the expected cause, and that nothing was done that may happen only once, puts a medium in or leads somebody to the machine; nothing at
/// all where somebody's medium is in its drive.
pub fn refused(entries: &[Entry], failure: &Failure, cause: Cause, machine: &[Condition]) -> Vec<Found> {
    let mut found = Vec::new();
    if failure.cause != cause {
        found.push((Law::Proves, format!("refused for {:?} and not for {cause:?}: {failure}", failure.cause)));
    }
    if machine.contains(&Condition::Occupied)
        && let Some(effect) = effects(entries).next()
    {
        found.push((Law::Proves, format!("{effect:?}, though somebody's medium is in the drive")));
    }
    let leads_there = |effect: &Effect| effect.once() || matches!(effect, Effect::Locate | Effect::Media);
    if let Some(effect) = effects(entries).find(leads_there) {
        found.push((Law::Proves, format!("{effect:?}, though the machine is not the host's")));
    }
    found
}

/// Checks that a failure has a known cause and a message.
pub fn typed(failure: &Failure) -> Option<Found> {
    let known = !matches!(failure.cause, Cause::Internal | Cause::Other);
    (!known || failure.message.is_empty())
        .then(|| (Law::Typed, format!("a failure without a cause or words: {failure:?}")))
}
