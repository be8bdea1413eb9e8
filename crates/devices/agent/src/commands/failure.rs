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
    untouched: bool,
}

impl Failure {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), untouched: false }
    }

    /// The same, where the command had changed nothing on the machine.
    pub(super) fn untouched(self) -> Self {
        Self { untouched: true, ..self }
    }

    /// The same, after others that are told with it.
    pub(super) fn after(mut self, others: &[String]) -> Self {
        self.message = format!("{}; before that, {}", self.message, others.join("; "));
        self
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// A failure of disk-image in the course of `attempt` (`writing the image to /dev/sda`).
    pub(super) fn of_image(attempt: &str, error: &Error) -> Self {
        Self::new(code(error), format!("{attempt}: {}", chain(error)))
    }

    /// A failure to get the digest from a checksum file. A definite error is a problem with the checksum; if the file cannot be reached (or may not
    /// be), the error stays what it is for an image.
    pub(super) fn of_checksum_file(error: &Error) -> Self {
        let code = match code(error) {
            passing @ (ErrorCode::ImageUnreachable | ErrorCode::ImageNotAllowed) => passing,
            _ => ErrorCode::ChecksumUnavailable,
        };
        Self::new(code, format!("reading the image's checksum file: {}", chain(error)))
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
        let message = cut(&failure.message, MAX_MESSAGE).to_owned();
        Self { code: failure.code, message, untouched: failure.untouched }
    }
}

/// The class of an error of disk-image.
fn code(error: &Error) -> ErrorCode {
    match error.cause() {
        Cause::SourceStatus => match error {
            // Too early, too many, timed out: the same request may succeed later.
            Error::SourceStatus { status: 408 | 421 | 425 | 429, .. } => ErrorCode::ImageUnreachable,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_for_good_is_told_from_what_may_pass() {
        let status = |status| Error::SourceStatus { url: "http://i/x".to_owned(), status };
        let lost = || Error::SourceUnreachable {
            url: "http://i/x".to_owned(),
            attempts: 3,
            offset: 0,
            source: "connection refused".into(),
        };
        for (error, of_image, of_list) in [
            (status(404), ErrorCode::ImageNotFound, ErrorCode::ChecksumUnavailable),
            (status(410), ErrorCode::ImageNotFound, ErrorCode::ChecksumUnavailable),
            (status(403), ErrorCode::ImageNotFound, ErrorCode::ChecksumUnavailable),
            (status(408), ErrorCode::ImageUnreachable, ErrorCode::ImageUnreachable),
            (status(429), ErrorCode::ImageUnreachable, ErrorCode::ImageUnreachable),
            (status(503), ErrorCode::ImageUnreachable, ErrorCode::ImageUnreachable),
            (lost(), ErrorCode::ImageUnreachable, ErrorCode::ImageUnreachable),
            (
                Error::ChecksumUnusable { reason: "no digest of \"x\"".to_owned() },
                ErrorCode::ChecksumUnavailable,
                ErrorCode::ChecksumUnavailable,
            ),
            (
                Error::LimitExceeded { what: "it".to_owned(), limit: 1 },
                ErrorCode::ImageInvalid,
                ErrorCode::ChecksumUnavailable,
            ),
        ] {
            assert_eq!(Failure::of_image("reading", &error).code, of_image, "{error}");
            let list = Failure::of_checksum_file(&error);
            assert_eq!(list.code, of_list, "{error}");
            assert!(list.message.contains("checksum file"), "{}", list.message);
        }
    }
}
