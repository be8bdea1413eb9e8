//! What a classification shows: its status, and why hosts do not match.

use api::metal3::{ErrorType, HardwareClassificationStatus, classification_error, match_status};
use serde_json::{Map, Value};
use terms::clean;

use crate::board::Counts;
use crate::class::Class;
use crate::judge::Mismatch;

/// Most hosts whose reason is shown.
const MAX_HOSTS: usize = 16;
/// Longest reason of one host, characters.
const MAX_REASON: usize = 200;
/// Longest message of a status, characters.
const MAX_MESSAGE: usize = 512;
/// Key under which it stands how many hosts are not shown: no host has such a name.
const MORE: &str = "…";

/// Labels of a class that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whether one was to be removed, and not put there.
    pub is_removal: bool,
    /// The host.
    pub host: String,
    /// Why, a sentence.
    pub why: String,
}

/// Value of the label that a host with this error bears.
#[must_use]
pub fn error_label(kind: ErrorType) -> String {
    kind.as_str().replace(' ', "-")
}

fn number(count: usize) -> Option<i64> {
    i64::try_from(count).ok()
}

/// The status of a class.
#[must_use]
pub fn status(class: &Class, counts: &Counts, trouble: Option<&Trouble>) -> HardwareClassificationStatus {
    let of = |kind: ErrorType| number(counts.by_type.get(&kind).copied().unwrap_or(0));
    let is = match (counts.hosts, counts.matched) {
        (0, _) => match_status::NO_HOSTS,
        (_, 0) => match_status::UNMATCHED,
        _ => match_status::MATCHED,
    };
    let (kind, message) = match (class.fault, trouble) {
        (Some(fault), _) => (Some(fault.error_type()), Some(fault.message())),
        (None, Some(trouble)) if trouble.is_removal => (
            Some(classification_error::LABEL_DELETE),
            Some(format!("Failed to remove the label of BareMetalHost {}: {}", trouble.host, trouble.why)),
        ),
        (None, Some(trouble)) => (
            Some(classification_error::LABEL_UPDATE),
            Some(format!("Failed to update labels of BareMetalHost {}: {}", trouble.host, trouble.why)),
        ),
        (None, None) => (None, class.remark()),
    };
    HardwareClassificationStatus {
        detach_error_hosts: Some(0),
        error_hosts: number(counts.errors),
        error_message: message.map(|message| clean(&message, MAX_MESSAGE)),
        error_type: kind.map(ToOwned::to_owned),
        introspection_error_hosts: of(ErrorType::Inspection),
        matched_count: number(counts.matched),
        power_mgmt_error_hosts: of(ErrorType::PowerManagement),
        preparation_error_hosts: of(ErrorType::Preparation),
        profile_match_status: Some(is.to_owned()),
        provisioned_registration_error_hosts: of(ErrorType::ProvisionedRegistration),
        provisioning_error_hosts: of(ErrorType::Provisioning),
        registration_error_hosts: of(ErrorType::Registration),
        unmatched_count: number(counts.unmatched),
    }
}

/// Why a host does not match, as a text of bounded size: of one of whose hardware nothing is known, `None`.
#[must_use]
pub fn reason(why: Option<&[Mismatch<'_>]>) -> String {
    match why {
        None => "nothing is known of its hardware: it has not been inspected".to_owned(),
        // The class itself has a fault, or is being deleted.
        Some([]) => "the classification matches no host".to_owned(),
        Some(all) => {
            let all: Vec<String> = all.iter().take(8).map(ToString::to_string).collect();
            clean(&all.join("; "), MAX_REASON)
        }
    }
}

/// Hosts that do not match, of the first of them why, as JSON of at most 4 KiB or so; `None` if there are none, or the class has a fault that is told
/// in its status.
#[must_use]
pub fn unmatched<'a>(
    class: &Class,
    hosts: impl Iterator<Item = (&'a str, Option<Vec<Mismatch<'a>>>)>,
    total: usize,
) -> Option<String> {
    if class.fault.is_some() || class.is_deleting || total == 0 {
        return None;
    }
    let mut all = Map::new();
    for (name, why) in hosts.take(MAX_HOSTS) {
        all.insert(name.to_owned(), Value::String(reason(why.as_deref())));
    }
    let shown = all.len();
    if total > shown {
        all.insert(MORE.to_owned(), Value::String(format!("and {} more", total - shown)));
    }
    (!all.is_empty()).then(|| Value::Object(all).to_string())
}
