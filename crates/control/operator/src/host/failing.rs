//! What a host says of its failure, by its status.

use api::metal3::{BareMetalHost, ErrorType};
use diagnosis::{FailureFacts, FailureType};
use jiff::Timestamp;
use kube::ResourceExt as _;

use crate::error_cause::without_cause;

/// All of it; the contract's cause does not stand there.
pub(crate) fn failure_of(host: &BareMetalHost) -> FailureFacts {
    let status = host.status.clone().unwrap_or_default();
    let kind = error_type(host).map_or(FailureType::None, |kind| FailureType::named(kind.as_str()));
    let history = &status.operation_history;
    let ends = [&history.register.end, &history.inspect.end, &history.provision.end, &history.deprovision.end];
    let begun = since(host).filter(|_| kind != FailureType::None);
    let before = |time: &Timestamp| begun.is_none_or(|begun| *time <= begun);
    let ended = ends.into_iter().flatten().map(|time| time.0).filter(before).max();
    let made = host.creation_timestamp().map(|time| time.0);
    FailureFacts {
        kind,
        state: host.state().as_str().to_owned(),
        cause: None,
        message: without_cause(&status.error_message).to_owned(),
        since: begun,
        last_good: ended.or(made),
    }
}

/// `status.errorType`.
pub(crate) fn error_type(host: &BareMetalHost) -> Option<ErrorType> {
    host.status.as_ref().and_then(|status| status.error_type)
}

/// When the host's condition Ready has changed last: since when it shows its error.
pub(crate) fn since(host: &BareMetalHost) -> Option<Timestamp> {
    let status = host.status.as_ref()?;
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .map(|condition| condition.last_transition_time.0)
}
