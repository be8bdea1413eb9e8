//! The annotation that freezes a namespace.

use api::metal3::annotation::FREEZE;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};

/// Why the namespace is frozen, if it is. The annotation is read before each effect, so that it applies at once.
pub async fn frozen(client: &Client, name: &str) -> Result<Option<String>, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let found = match api.get_metadata_opt(name).await {
        // A freeze that cannot be read must not be missed.
        Err(kube::Error::Api(error)) if error.code == 403 => {
            return Ok(Some(format!(
                "whether the namespace {name} is frozen (annotation {FREEZE}) cannot be read — let the server get namespaces: {}",
                error.message
            )));
        }
        found => found?,
    };
    let Some(value) = found.and_then(|found| found.annotations().get(FREEZE).cloned()) else { return Ok(None) };
    let said: String = value.chars().filter(|c| !c.is_control()).take(200).collect();
    let said = if said.trim().is_empty() { String::new() } else { format!(" ({})", said.trim()) };
    Ok(Some(format!(
        "the namespace {name} is frozen by its annotation {FREEZE}{said}; nothing is done to its machines until it is removed"
    )))
}
