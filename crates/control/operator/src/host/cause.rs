//! What a diagnosis has found goes behind the words of the host's error: here, between the state machine, which never sees it, and the API.

use std::sync::Arc;

use api::Time;
use api::metal3::{BareMetalHost, BareMetalHostStatus, annotation};
use host_lifecycle::Change;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::failing::error_type;
use crate::error_cause::{with_cause, without_cause};

/// The host with its error's own words, and `status.errorMessage` as it was where that is more.
pub(super) fn taken(mut host: Arc<BareMetalHost>) -> (Arc<BareMetalHost>, Option<String>) {
    let message = host.status.as_ref().map(|status| status.error_message.as_str()).unwrap_or_default();
    let words = without_cause(message);
    if words.len() == message.len() {
        return (host, None);
    }
    let (words, message) = (words.to_owned(), message.to_owned());
    if let Some(status) = &mut Arc::make_mut(&mut host).status {
        status.error_message = words;
    }
    (host, Some(message))
}

/// Identity of an error's words, by which the summary of a diagnosis says which error it is about.
fn digest(kind: &str, words: &str) -> String {
    hex::encode(Sha256::digest(format!("{kind}\n{words}")).get(..8).unwrap_or_default())
}

/// The cause that the host's annotation tells of this error.
fn of(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<String> {
    let kind = status.error_type?.as_str();
    let summary: Value = serde_json::from_str(host.annotation(annotation::DIAGNOSIS)?).ok()?;
    let text = |field: &str| summary.get(field).and_then(Value::as_str);
    let is_it = text("error")? == digest(kind, &status.error_message);
    // That there is no cause is no cause.
    text("code").filter(|_| is_it)?;
    text("message").map(ToOwned::to_owned)
}

/// Puts the cause behind the words of the status that is about to be written over `stored`. Returns whether there is anything to write.
pub(super) fn put(
    host: &BareMetalHost,
    change: &mut Change,
    stored: Option<&BareMetalHostStatus>,
    now: Timestamp,
) -> bool {
    let status = &mut change.status;
    status.error_message = with_cause(&status.error_message, of(host, status).as_deref());
    // Where nothing else is new, this is.
    if let Some(stored) = stored
        && stored.error_message != status.error_message
        && stored.last_updated == status.last_updated
    {
        status.last_updated = Some(Time(now));
    }
    change.status_differs(stored)
}

/// Identity of the host's error, for the summary of its diagnosis.
pub(crate) fn of_error(host: &BareMetalHost) -> String {
    let kind = error_type(host).map(|kind| kind.as_str()).unwrap_or_default();
    let message = host.status.as_ref().map(|status| status.error_message.as_str()).unwrap_or_default();
    digest(kind, without_cause(message))
}
