//! Failures of commands: a class for the server, a sentence for people.

use agent_protocol::{CommandError, ErrorCode};
use disk_image::{Cause, Error};

use crate::text::{chain, cut};

/// Longest message, in bytes.
const MAX_MESSAGE: usize = 2000;

/// Why a command failed.
#[derive(Debug)]
pub(super) struct Failure {
    code: ErrorCode,
    message: String,
}

impl Failure {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// A failure of disk-image in the course of `attempt` (`writing the image to /dev/sda`).
    pub(super) fn of_image(attempt: &str, error: &Error) -> Self {
        Self::new(code(error), format!("{attempt}: {}", chain(error)))
    }

    /// A failure of firmware variables.
    pub(super) fn of_firmware(error: &dyn std::error::Error) -> Self {
        Self::new(ErrorCode::FirmwareError, chain(error))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        Self { code: failure.code, message: cut(&failure.message, MAX_MESSAGE).to_owned() }
    }
}

/// The class of an error of disk-image.
fn code(error: &Error) -> ErrorCode {
    match error.cause() {
        Cause::SourceStatus => match error {
            Error::SourceStatus { status: 400..=499, .. } => ErrorCode::ImageNotFound,
            _ => ErrorCode::ImageUnreachable,
        },
        Cause::SourceNotAllowed => ErrorCode::ImageNotAllowed,
        Cause::SourceUnreachable | Cause::SourceChanged => ErrorCode::ImageUnreachable,
        Cause::Truncated => ErrorCode::ImageTruncated,
        Cause::ChecksumMismatch => ErrorCode::ChecksumMismatch,
        Cause::ChecksumUnusable => ErrorCode::ChecksumUnavailable,
        Cause::ImageTooLarge => ErrorCode::ImageTooLarge,
        Cause::UnsupportedFormat | Cause::CorruptImage => ErrorCode::ImageInvalid,
        Cause::DiskIo => ErrorCode::DiskError,
        Cause::NoSpace => ErrorCode::NoRoomForConfigDrive,
        Cause::Cancelled | Cause::Internal => ErrorCode::Internal,
    }
}
