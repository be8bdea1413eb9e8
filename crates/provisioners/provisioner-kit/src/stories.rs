//! From what a resource can be asked to the scenarios that this has to pass, whatever its kind is.

use provisioner::{Cause, HostResource};

use crate::condition::Condition;
use crate::scenario::{Class, Edit, Expected, Interruption, Scenario, Step};
use crate::tested::Tested;
use crate::trail::Effect;

/// A call with what comes before it.
#[derive(Clone)]
pub struct Story<R: Tested = HostResource> {
    /// What is done, for names of scenarios.
    pub name: &'static str,
    /// What is asked before.
    pub before: Vec<Step<R>>,
    /// The call.
    pub step: Step<R>,
    /// It is work that takes its time and is recorded.
    pub works: bool,
}

impl<R: Tested> Story<R> {
    /// The story with this change of its last step.
    pub fn scenario(&self, class: Class, name: &str, change: impl FnOnce(&mut Step<R>)) -> Scenario<R> {
        let mut step = self.step.clone();
        change(&mut step);
        let mut steps = self.before.clone();
        steps.push(step);
        Scenario { name: format!("{}: {name}", self.name), class, steps }
    }

    /// Adds all that may happen to it whatever it is about.
    pub fn everywhere(&self, all: &mut Vec<Scenario<R>>) {
        any_call(self, all);
        if self.works {
            at_work(self, all);
        }
    }

    /// Something else is wanted in the middle, and has to be done with this effect.
    pub fn cancelled(&self, why: &str, instead: R::Call, effect: Option<Effect>) -> Scenario<R> {
        self.scenario(Class::Cancelled, why, |step| {
            step.interruption = Interruption::CancelledBy(Box::new(instead), effect);
        })
    }

    /// What stands behind it is not its own: the call is refused for this cause.
    pub fn refused(&self, why: &str, condition: Condition, cause: Cause) -> Scenario<R> {
        self.scenario(Class::Identity, why, |step| {
            (step.expected, step.machine) = (Expected::Refused(cause), vec![condition]);
        })
    }
}

/// What may happen to any call.
fn any_call<R: Tested>(story: &Story<R>, all: &mut Vec<Scenario<R>>) {
    use Interruption as I;
    all.push(story.scenario(Class::Plain, "nothing happens", |step| {
        // A BMC lists the hardware within one call, or in several.
        if story.works && step.expected == Expected::Done && !R::only_looks(&step.call) {
            step.expected = Expected::Working;
        }
    }));
    let interruptions = [
        (Class::Repeated, "asked again and again", I::Repeated),
        (Class::Killed, "killed", I::Killed),
        (Class::Concurrent, "two processes", I::Concurrent),
        (Class::Frozen, "a process that awakes late", I::Frozen),
        (Class::Record, "another writer", I::Overtaken),
        (Class::Leading, "another process leads", I::NotLeading),
    ];
    for (class, name, interruption) in interruptions {
        all.push(story.scenario(class, name, |step| step.interruption = interruption));
    }
    all.push(story.scenario(Class::Slow, "the machine is slow", |step| step.machine = vec![Condition::Slow]));
    all.push(story.scenario(Class::Failing, "the machine does not answer", |step| {
        (step.expected, step.interruption) = (Expected::Arrives, I::Machine(Condition::Silent));
    }));
    all.push(story.scenario(Class::Failing, "an order is refused", |step| {
        (step.expected, step.machine) = (Expected::Arrives, vec![Condition::Refusing]);
    }));
}

/// What may happen to work.
fn at_work<R: Tested>(story: &Story<R>, all: &mut Vec<Scenario<R>>) {
    use Interruption as I;
    all.push(story.scenario(Class::Failing, "its work fails", |step| {
        (step.expected, step.machine) = (Expected::Arrives, vec![Condition::Failing]);
        if step.effect.is_some() {
            step.expected = Expected::FailsFirst;
        }
    }));
    all.push(story.scenario(Class::Busy, "there is no room", |step| {
        (step.expected, step.machine) = (Expected::Busy, vec![Condition::Busy]);
    }));
    all.push(story.scenario(Class::Busy, "there is no room any more", |step| {
        (step.expected, step.interruption) = (Expected::Arrives, I::Machine(Condition::Busy));
    }));
    all.push(story.scenario(Class::Forgotten, "the machine is forgotten", |step| {
        (step.expected, step.machine) = (Expected::Registration, vec![Condition::Forgotten]);
    }));
    all.push(story.scenario(Class::Forgotten, "the machine is forgotten on the way", |step| {
        (step.expected, step.interruption) = (Expected::Arrives, I::Machine(Condition::Forgotten));
    }));
    let edits = [
        ("a record of a newer version", Edit::Newer),
        ("a record that is none", Edit::Nonsense),
        ("another provisioner's record", Edit::Foreign),
        ("a record with more in it", Edit::Unknown),
    ];
    for (name, edit) in edits {
        all.push(story.scenario(Class::Record, name, |step| step.interruption = I::Record(edit)));
    }
    all.push(story.scenario(Class::Record, "the record is deleted", |step| step.interruption = I::RecordDeleted));
    all.push(story.scenario(Class::Record, "the history is deleted", |step| step.interruption = I::HistoryDeleted));
}
