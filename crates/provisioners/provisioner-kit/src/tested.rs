//! What the kit has to know of a kind of resource in order to judge its provisioners. Scenarios and laws know no more of it than this.

use provisioner::{Context, ObjectKey, Resource};

use crate::scenario::Step;
use crate::trail::Entry;
use crate::verdict::Found;

/// A kind whose provisioners the kit judges.
pub trait Tested: Resource {
    /// What outlives the processes of a run beside the record.
    type World: Default + Send + Sync;
    /// How what stands behind a resource is reached, where that is no part of the facts.
    type Access: Send;

    /// A resource as it is declared: its facts, for what is found at this address, and the access to that.
    fn declared(key: ObjectKey, address: String) -> (Self::Facts, Self::Access);

    /// What a provisioner is given with a call.
    fn context(world: &Self::World, access: Self::Access, common: Context<Self>) -> Self::Context;

    /// Whether this is an answer to the call.
    fn fits(call: &Self::Call, answer: &Self::Answer) -> bool;

    /// The call as it is made after a failure.
    fn restart(call: &mut Self::Call);

    /// What its controller learns of it by an answer.
    fn learn(_facts: &mut Self::Facts, _answer: &Self::Answer) {}

    /// The call lets it go: nothing is done to it after that.
    fn lets_go(_call: &Self::Call) -> bool {
        false
    }

    /// The call only looks, and must leave it as it is.
    fn only_looks(_call: &Self::Call) -> bool {
        false
    }

    /// What it has found out is kept in no record: another process makes it anew.
    fn is_made_anew(_call: &Self::Call) -> bool {
        false
    }

    /// What is wrong with what was done for a step that is done, and with what is said of it, beside the laws of all kinds. `undisturbed`: nothing came between.
    fn judged(_step: &Step<Self>, _answer: &Self::Answer, _entries: &[Entry], _undisturbed: bool) -> Vec<Found> {
        Vec::new()
    }

    /// Doing it once more does no harm.
    fn may_do_again(_call: &Self::Call) -> bool {
        false
    }

    /// The call with or without the wish that what stands behind it is begun anew by force.
    fn force(_call: &mut Self::Call, _force: bool) {}

    /// What makes it known again to a provisioner that has forgotten it.
    fn registers() -> Option<Self::Call> {
        None
    }

    /// What is asked before this call is tried again.
    fn before_retry(_call: &Self::Call) -> Option<Self::Call> {
        None
    }

    /// What is wrong with what people see of a call that is done.
    fn shown(_world: &Self::World, _call: &Self::Call) -> Vec<Found> {
        Vec::new()
    }

    /// What people see is deleted.
    fn lose_history(_world: &Self::World) {}

    /// What is wrong with what a provisioner says that can be asked.
    fn compare(_provisioner: &Self::Provisioner, _context: Self::Context) -> Vec<Found> {
        Vec::new()
    }
}
