//! What there is to say of one state; the files of [`crate::states`] say it.

use api::metal3::ProvisioningState as State;

use crate::draft::Draft;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// What is done in one state. Where it leads to stands in [`crate::transitions`].
pub(crate) struct StateHandler {
    /// Where a host goes first that is to be deleted; `None` if it is on its way out already.
    pub(crate) on_delete: Option<State>,
    /// What next?
    pub(crate) decide: fn(&View<'_>) -> Step,
    /// What does the answer to one of this state's own calls mean? (Answers about registration, power and release are read alike in all states.)
    pub(crate) conclude: fn(Draft<'_>, &Action, Outcome) -> Change,
}

/// The answer does not fit: nothing changes, and the host is looked at again.
pub(crate) fn ignore(draft: Draft<'_>, _action: &Action, _outcome: Outcome) -> Change {
    draft.seal(Next::Now)
}
