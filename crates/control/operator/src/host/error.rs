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
