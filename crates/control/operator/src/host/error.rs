//! Why a reconcile failed.

use super::owned;

/// A reconcile failed and is retried with back-off. Failures of machines are not among these errors: they are in the host's status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// The Kubernetes API failed.
    #[error("{attempt} (Kubernetes API): {source}")]
    Api {
        /// What was attempted.
        attempt: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// Another process acts.
    #[error("another process leads: nothing is done")]
    NotLeading,
    /// An object beside the host could not be read or written.
    #[error("{} (Kubernetes API): {}", .0.attempt, .0.source)]
    Beside(#[from] owned::Failed),
    /// The host's record could not be written.
    #[error(transparent)]
    Record(#[from] provisioner::RecordError),
}

impl ReconcileError {
    /// Wraps an error of the Kubernetes API.
    pub(crate) fn api(attempt: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { attempt, source: Box::new(source) }
    }
}

/// A look of another controller at an object of its own, and perhaps a host, could not be completed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    /// Another client has changed or deleted an object that it was decided on.
    #[error("an object has changed since it was read")]
    Moved,
    /// The Kubernetes API failed.
    #[error("{attempt} (Kubernetes API): {source}")]
    Api {
        /// What was attempted.
        attempt: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The host could not be read or asked, or another process acts.
    #[error(transparent)]
    Host(#[from] ReconcileError),
}

impl LookError {
    /// Wraps an error of the Kubernetes API.
    pub(crate) fn of(attempt: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| match &source {
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Self::Moved,
            _ => Self::Api { attempt, source: Box::new(source) },
        }
    }
}
