//! From what BMCs and agents report to the contract's typed failures, with advice.

use agent_protocol::{CommandError, ErrorCode};
use bmc::{BmcError, ErrorKind};
use provisioner::{Cause, Failure, Retry};

/// A failed exchange with a BMC, or something that it lacks.
pub fn of_bmc(error: impl Into<BmcError>) -> Failure {
    let error = error.into();
    let cause = match error.kind {
        ErrorKind::Address | ErrorKind::NotAllowed => Cause::BmcAddressInvalid,
        ErrorKind::Unreachable | ErrorKind::NoCommonTls | ErrorKind::Timeout | ErrorKind::Unanswered => {
            Cause::BmcUnreachable
        }
        ErrorKind::Busy { .. } => Cause::BmcBusy,
        ErrorKind::TlsNotTrusted => Cause::BmcCertificateUntrusted,
        ErrorKind::Unauthorized => Cause::BmcCredentialsRefused,
        ErrorKind::NotLeading => Cause::NotLeading,
        ErrorKind::AnotherBmc => Cause::AnotherMachine,
        ErrorKind::NotFound
        | ErrorKind::SessionLimit
        | ErrorKind::Rejected { .. }
        | ErrorKind::Protocol
        | ErrorKind::Unsupported => Cause::BmcRefused,
    };
    let mut failure = Failure::new(cause, error.to_string()).advise(error.advice);
    if matches!(cause, Cause::BmcAddressInvalid) {
        failure.retry = Retry::AfterChange;
    }
    failure
}

/// A failure that an agent's command ended with.
pub fn of_command(error: &CommandError) -> Failure {
    let (cause, advice) = match error.code {
        ErrorCode::ImageUnreachable => (
            Cause::ImageUnavailable,
            "check that the image's server runs and that the machine's network (preprovisioningNetworkDataName) reaches it; it is tried again",
        ),
        ErrorCode::ImageNotAllowed => (
            Cause::InvalidRequest,
            "correct spec.image, or what its name resolves to; if the address is meant so, the server is to be started with --allow-address for it",
        ),
        ErrorCode::ImageNotFound => (Cause::ImageNotFound, "correct spec.image.url, or put the image there"),
        ErrorCode::ChecksumMismatch => (
            Cause::ImageInvalid,
            "correct spec.image.checksum, or replace the image; the disk has been left without a partition table",
        ),
        ErrorCode::ChecksumUnavailable => (
            Cause::ImageNotFound,
            "correct spec.image.checksum: a digest, or the URL of a file with the image's digest",
        ),
        ErrorCode::ImageTooLarge => {
            (Cause::NoSuitableDisk, "choose a larger disk with spec.rootDeviceHints, or a smaller image")
        }
        ErrorCode::ImageTruncated => {
            (Cause::ImageInvalid, "the image's server ended the download early; upload the image again")
        }
        ErrorCode::ImageInvalid => {
            (Cause::ImageInvalid, "correct spec.image.format, or convert the image to raw or qcow2")
        }
        ErrorCode::NoDisk => (
            Cause::NoSuitableDisk,
            "correct spec.rootDeviceHints; the disks found are in the HardwareData of this host",
        ),
        ErrorCode::ForeignOwner => (
            Cause::ForeignOwner,
            "if that owner's data may be destroyed, set the annotation metamorph.metal3.io/overwrite-owner to the owner that the message names (several with commas); it is used once",
        ),
        ErrorCode::NoOwnMark => (
            Cause::AnotherMachine,
            "the machine was accepted in the host's place, which is no consent to wipe it; to let it go unwiped, set spec.automatedCleaningMode to disabled",
        ),
        ErrorCode::DiskError => (Cause::HardwareFailed, "see the disk's health; it is tried again"),
        ErrorCode::NoRoomForConfigDrive => (Cause::NoSuitableDisk, "the image fills the disk: choose a larger disk"),
        ErrorCode::FirmwareError => {
            (Cause::HardwareFailed, "the firmware refused a boot entry; clear its boot entries")
        }
        ErrorCode::Refused | ErrorCode::Internal => {
            (Cause::Internal, "see the agent's log in the server's log; it is tried again")
        }
    };
    Failure::new(cause, error.message.clone()).advise(advice)
}

/// A machine that was accepted in another's place may hold what nobody has looked at: it is not changed by this work.
pub fn not_yet_its_own(work: &str) -> Failure {
    let text = format!("{work}: the machine was accepted in the host's place, which is no consent to change it");
    Failure { retry: Retry::AfterChange, ..Failure::new(Cause::AnotherMachine, text) }
        .advise("provision the host and deprovision it first, or declare the machine as a host of its own")
}
