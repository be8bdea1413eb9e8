//! What an error of the Kubernetes API says.

/// The message of a Kubernetes API error.
pub fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// The API refuses what is written, and will again: an admission webhook, say. What is gone, changed or not taken just now may be taken next time.
pub fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 404 | 409 | 429))
}

/// The API refuses a new object because its namespace is being deleted, or is gone.
pub fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let namespace = status.details.as_ref().is_some_and(|details| details.kind == "namespaces");
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating") || status.code == 404 && namespace
}
