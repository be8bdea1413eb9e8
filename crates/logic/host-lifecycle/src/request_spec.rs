//! What a request has to say that its definition cannot ask for: definitions are applied apart from servers, and may be of another version.

use api::metamorph::{EraseOptions, HostOperationSpec, OperationType};

/// What a request does not say that it has to; a sentence.
pub(crate) fn unsaid(spec: &HostOperationSpec) -> Option<String> {
    let names_no_disk = |erase: &EraseOptions| erase.disks.as_ref().is_some_and(Vec::is_empty);
    let what = match spec.operation {
        OperationType::Erase if spec.erase.is_none() => {
            "it does not say how thoroughly is to be erased (spec.erase.method)"
        }
        OperationType::Erase if spec.erase.as_ref().is_some_and(names_no_disk) => {
            "spec.erase.disks names no disk; without the field all disks of the machine are erased"
        }
        OperationType::Locate if spec.locate.is_none() => {
            "it does not say whether the light is to be lit (spec.locate.lit)"
        }
        _ => return None,
    };
    Some(what.to_owned())
}
