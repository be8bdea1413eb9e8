//! Annotations of a host that nobody reads, because their keys are mistyped.

use api::metal3::annotation;
use strsim::osa_distance;

/// What is read of a host, or written by this program to be read by others; each may be meant where another key is written.
const READ: [&str; 23] = [
    annotation::PAUSED,
    annotation::DETACHED,
    annotation::STATUS,
    annotation::REBOOT,
    annotation::INSPECT,
    annotation::HARDWARE_DETAILS,
    annotation::PROVISIONER,
    annotation::ACCEPT_MACHINE,
    annotation::DIAGNOSE,
    annotation::DIAGNOSIS,
    annotation::OVERWRITE_OWNER,
    annotation::CLAIM_REBOOT,
    annotation::NOT_CLAIMED,
    annotation::REQUEST,
    annotation::REBUILD,
    annotation::ERASE,
    annotation::STEPS,
    annotation::HOST_CLASSES,
    annotation::DISCOVERED_BY,
    annotation::DISCOVERED_ADDRESS,
    annotation::DISCOVERED_UUID,
    annotation::DISCOVERED_KEY,
    annotation::APPROVE,
];
/// Prefixes under which nobody else has keys.
const OWN: [&str; 3] = ["baremetalhost.metal3.io", "inspect.metal3.io", "metamorph.metal3.io"];
/// Most letters that a key of another prefix may differ in from one that is read. Prefixes of others are farther away.
const NEAR: usize = 2;
/// The same for the prefix of a reboot annotation, of which the name is free.
const NEAR_REBOOT: usize = 1;
/// Longest key that is compared, bytes.
const MAX_KEY: usize = 128;

/// What is wrong with an annotation's key, a sentence; `None` if it is read, or may be somebody else's.
pub(crate) fn fault(key: &str) -> Option<String> {
    let (prefix, name) = key.split_once('/').map_or((key, None), |(prefix, name)| (prefix, Some(name)));
    if READ.contains(&key) || prefix == annotation::REBOOT {
        return None;
    }
    if key == annotation::FREEZE {
        return Some(format!(
            "annotation \"{key}\": it is read of namespaces, and freezes nothing on a host — set it on the namespace"
        ));
    }
    let short = key.get(..key.floor_char_boundary(MAX_KEY)).unwrap_or_default();
    let reboot = (osa_distance(prefix, annotation::REBOOT) <= NEAR_REBOOT).then(|| {
        let name = name.filter(|name| !name.is_empty()).map_or_else(String::new, |name| format!("/{name}"));
        format!("{}{name}", annotation::REBOOT)
    });
    let nearest = READ.iter().map(|read| (osa_distance(short, read), *read)).min();
    let meant = match (reboot, nearest) {
        (Some(meant), _) => meant,
        (None, Some((away, read))) if OWN.contains(&prefix) || away <= NEAR => read.to_owned(),
        _ => return None,
    };
    Some(format!(
        "annotation \"{short}\": it has no effect, nobody reads it; the nearest that is read is \"{meant}\" — correct the key, or remove it"
    ))
}
