//! Requests as a decision about them sees them: what they are made from, what they call each other, and what may come out.

use std::collections::BTreeMap;

use api::metal3::{BareMetalHost, annotation, label};
use api::metamorph::{HostOperation, HostOperationStatus, OperationType};
use jiff::Timestamp;

/// What a decision about a request is made from.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The request, as last read.
    pub request: &'a HostOperation,
    /// The host that it names, as last read.
    pub host: Option<&'a BareMetalHost>,
    /// Name of another request that is alive: the one that the host's annotation names; where the host is not asked, another that has been taken for the like.
    pub other: Option<&'a str>,
    /// What the host's provisioning needs and is not there, a clause; looked for before a rebuild.
    pub lacking: Option<&'a str>,
    /// Why the host's provisioner does not do it at all, a sentence; looked for before an erasure, steps and a test medium.
    pub unserved: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// What a host answers to the request that its annotation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It may have been done.
    Unknown,
}

impl Answer {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unknown => "unknown",
        }
    }
}

/// What is to be done about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestStep {
    /// Nothing, until the request or the host changes.
    Nothing,
    /// Write the annotation [`annotation::TAKEN`] to the request, and decide again.
    Take,
    /// Write this status, and decide again.
    Status(Box<HostOperationStatus>),
    /// Read the host's logs, or whatever else the host is not asked for, and go on with [`crate::conclude_collection`].
    Collect,
    /// Write these annotations to the host, to the very version that was decided on, and decide again. `None` is removed.
    Annotate(BTreeMap<&'static str, Option<String>>),
}

/// Whether a HostOperation is a request: those that a host's controller has written are controlled by a BareMetalHost.
#[must_use]
pub fn is_request(operation: &HostOperation) -> bool {
    let owners = operation.metadata.owner_references.iter().flatten();
    !owners.into_iter().any(|owner| {
        owner.controller == Some(true) && owner.kind == "BareMetalHost" && owner.api_version.starts_with("metal3.io/")
    })
}

/// Whether it is a request that is still followed: not one that has ended, is being deleted, or has the label of history.
#[must_use]
pub fn is_live(operation: &HostOperation) -> bool {
    is_request(operation)
        && operation.metadata.deletion_timestamp.is_none()
        && !operation.metadata.labels.iter().flatten().any(|(key, _)| key == label::HOST)
        && !status(operation).phase.is_final()
}

/// Whether nothing is asked of the host for it: the controller of requests calls the host's provisioner itself.
#[must_use]
pub const fn is_unasked(operation: OperationType) -> bool {
    matches!(operation, OperationType::CollectLogs | OperationType::Diagnose | OperationType::Locate)
}

/// Whether it has been taken: a copy that has lost its status is known by that.
pub(crate) fn is_taken(request: &HostOperation) -> bool {
    request.metadata.annotations.iter().flatten().any(|(key, _)| key == annotation::TAKEN)
}

/// What annotations call the request: `name/uid`.
#[must_use]
pub fn mark(request: &HostOperation) -> String {
    let (name, uid) = (request.metadata.name.as_deref(), request.metadata.uid.as_deref());
    format!("{}/{}", name.unwrap_or_default(), uid.unwrap_or_default())
}

/// Whether the host's annotation names the request.
pub(crate) fn is_marked(host: &BareMetalHost, request: &HostOperation) -> bool {
    answer(host, request).is_some()
}

/// What the host has answered to the request, empty if nothing; `None` if its annotation names another one, or none.
pub(crate) fn answer<'a>(host: &'a BareMetalHost, request: &HostOperation) -> Option<&'a str> {
    let rest = host.annotation(annotation::REQUEST)?.strip_prefix(&mark(request))?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// The annotation's value with the host's answer.
#[must_use]
pub fn answered(value: &str, answer: Answer) -> String {
    let mark: Vec<&str> = value.splitn(3, '/').take(2).collect();
    format!("{}/{}", mark.join("/"), answer.as_str())
}

/// Name of the request that an annotation's value names, and its mark; `None` if it can be nobody's.
#[must_use]
pub fn named(value: &str) -> Option<(&str, String)> {
    let mut parts = value.split('/');
    let (name, uid) = (parts.next()?, parts.next()?);
    (is_name(name) && !uid.is_empty()).then(|| (name, format!("{name}/{uid}")))
}

/// Whether an object can have the name. What cannot is not asked for: a client may not even put it into an address.
#[must_use]
pub fn is_name(name: &str) -> bool {
    names::dns_1123_subdomain(name).is_empty()
}

/// The request's status.
pub(crate) fn status(request: &HostOperation) -> HostOperationStatus {
    request.status.clone().unwrap_or_default()
}
