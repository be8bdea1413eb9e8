//! What the failure says by itself: the contract's cause, and words of the host's message.
//!
//! A cause that the server has seen at the very place is certain; one that only names where it happened is a hint, which readings confirm.

use Certainty::{Certain, Likely, Possible};
use Code as C;

use super::words::has;
use crate::codes::Code;
use crate::hit::{Case, Certainty, Hit};

const CAUSES: [(&str, &str, Code, Certainty); 24] = [
    ("BmcAddressInvalid", "failure.address-invalid", C::BmcAddressInvalid, Certain),
    ("AnotherMachine", "failure.another-machine", C::AnotherMachine, Certain),
    ("MachineUnknown", "failure.machine-unknown", C::MachineNotRecognized, Certain),
    ("BmcUnreachable", "failure.bmc-unreachable", C::BmcUnreachable, Possible),
    ("BmcCertificateUntrusted", "failure.certificate", C::BmcAuthorityUnknown, Possible),
    ("BmcCredentialsRefused", "failure.credentials", C::CredentialsWrong, Possible),
    ("BmcBusy", "failure.bmc-busy", C::BmcStarting, Possible),
    ("BmcRefused", "failure.bmc-refused", C::BmcRefusedCall, Possible),
    ("AgentSilent", "failure.agent-silent", C::AgentSilent, Possible),
    ("KeyRemoved", "failure.key-removed", C::BootKeyRemoved, Certain),
    ("ImageUnavailable", "failure.image-unavailable", C::ImageUnavailable, Likely),
    ("ImageNotFound", "failure.image-not-found", C::ImageNotFound, Likely),
    ("ImageDenied", "failure.image-denied", C::ImageDenied, Likely),
    ("ImageInvalid", "failure.image-invalid", C::ImageInvalid, Likely),
    ("NoSuitableDisk", "failure.no-disk", C::HintsFitNone, Certain),
    ("ForeignOwner", "failure.foreign-owner", C::DiskOfAnotherOwner, Certain),
    ("NotErased", "failure.not-erased", C::DriveNotErased, Certain),
    ("MachineInUse", "failure.in-use", C::MachineInUse, Certain),
    ("HardwareFailed", "failure.hardware", C::HardwareFailed, Possible),
    ("RecordUnavailable", "failure.record", C::RecordUnavailable, Certain),
    ("RecordUnreadable", "failure.record-unreadable", C::RecordUnavailable, Certain),
    ("ProvisionerUnavailable", "failure.provisioner", C::ProvisionerUnavailable, Certain),
    ("NotServed", "failure.not-served", C::NotServed, Certain),
    ("Internal", "failure.internal", C::OwnFault, Certain),
];

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Some(failure) = &case.evidence.failure else { return };
    let said = format!("The host says: {}", failure.message);
    let mut found = |rule, code, certainty| hits.push(Hit::new(rule, code, certainty, said.clone()).at(failure.since));
    let cause = failure.cause.as_deref().unwrap_or_default();
    let message = failure.message.as_str();
    let too_large = cause == "NoSuitableDisk"
        && has(message, &["image"])
        && has(message, &["does not fit", "too small", "larger than"]);
    if too_large {
        found("failure.too-large", C::ImageTooLarge, Certain);
    } else if let Some((_, rule, code, certainty)) = CAUSES.iter().find(|(name, ..)| *name == cause) {
        found(rule, *code, *certainty);
    }
    let absent =
        has(message, &["missing", "not found", "does not exist", "no username", "no password", "has no", "empty"]);
    if has(message, &["secret"]) && absent {
        found("failure.secret", C::SecretInvalid, Certain);
    } else if cause == "InvalidRequest" {
        found("failure.invalid-request", C::RequestInvalid, Certain);
    }
    if cause == "ProvisionerFailed" {
        found("failure.provisioner-failed", C::ProvisionerUnavailable, Likely);
    }
    if cause == "ImageInvalid" && has(message, &["checksum", "digest"]) {
        found("failure.digest", C::ImageDigestMismatch, Certain);
    }
}
