//! A HostOperation that a command of this program creates for a host, by the caller's rights.

use api::metal3::BareMetalHost;
use api::metamorph::{HostOperation, HostOperationSpec, HostReference, OperationType};
use kube::Api;
use kube::ResourceExt as _;

/// Longest part of the host's name in that of the request, bytes: the API adds to it.
const MAX_PREFIX: usize = 200;

/// uid of the host, so that one of the same name that is made later is not meant; none if there is no such host.
///
/// # Errors
/// When the Kubernetes API fails.
pub async fn uid_of(hosts: &Api<BareMetalHost>, name: &str) -> kube::Result<Option<String>> {
    Ok(hosts.get_metadata_opt(name).await?.and_then(|host| host.uid()))
}

/// A request of this type; `word` stands in its name. What the type needs beside is for the caller to add.
pub fn new(name: &str, uid: Option<String>, operation: OperationType, word: &str) -> HostOperation {
    let host = HostReference { name: name.to_owned(), uid };
    let spec = HostOperationSpec {
        operation,
        host,
        wish: None,
        reboot: None,
        erase: None,
        steps: Vec::new(),
        locate: None,
        diagnose: None,
    };
    let mut request = HostOperation::new("", spec);
    request.metadata.name = None;
    let prefix = name.get(..name.floor_char_boundary(MAX_PREFIX)).unwrap_or_default();
    request.metadata.generate_name = Some(format!("{prefix}-{word}-"));
    request
}
