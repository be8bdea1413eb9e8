//! Errors in reading an image and writing a disk.

use std::io;

use addresses::NotAllowed;

/// Anything this crate fails with. [`Error::cause`] gives the class, for callers that map it to their own codes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or the connection broke more often than the policy allows.
    #[error("cannot read the image from {url}: gave up after {attempts} attempts without progress at byte {offset}")]
    SourceUnreachable {
        /// Address without credentials.
        url: String,
        /// Attempts made since the last byte arrived.
        attempts: u32,
        /// Bytes received before.
        offset: u64,
        /// The last attempt's error; [`NotAllowed`] if no attempt was made.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered with a status that is not the image.
    #[error(
        "reading the image from {url}: the server answered HTTP status {status}; check that the address is right and readable"
    )]
    SourceStatus {
        /// Address without credentials.
        url: String,
        /// HTTP status code.
        status: u16,
    },
    /// Two reads of the same image did not agree.
    #[error("the image at {url} changed while it was read: {reason}; write it again once it is stable")]
    SourceChanged {
        /// Address without credentials.
        url: String,
        /// What differed.
        reason: String,
    },
    /// The image ends early.
    #[error("the image is truncated: {what} needs {expected} bytes, found {found}")]
    Truncated {
        /// What was being read.
        what: String,
        /// Bytes it should have, at least.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The download's digest differs from the expected one.
    #[error(
        "checksum mismatch over {bytes} downloaded bytes: expected {expected}, found {found}; the disk has no partition table"
    )]
    ChecksumMismatch {
        /// The expected digest, `sha256:<hex>`.
        expected: String,
        /// `sha256:<hex>` as computed.
        found: String,
        /// Length of the download.
        bytes: u64,
    },
    /// A checksum or checksum file gives no digest for the image.
    #[error("no usable checksum: {reason}")]
    ChecksumUnusable {
        /// What was looked for and what was found.
        reason: String,
    },
    /// The image is larger than the disk.
    #[error("the image is larger than the disk: it has {image} bytes{}, the disk {disk}", if *.at_least { " or more" } else { "" })]
    ImageTooLarge {
        /// Size of the image, in bytes.
        image: u64,
        /// Size of the disk, in bytes.
        disk: u64,
        /// The image's size is a lower bound: it was found out while decompressing.
        at_least: bool,
    },
    /// A valid image of a kind that is not written.
    #[error("unsupported image: {what}")]
    Unsupported {
        /// The feature, and what to do.
        what: String,
    },
    /// The image contradicts itself.
    #[error("corrupt image: {reason}")]
    CorruptImage {
        /// Where and how.
        reason: String,
    },
    /// The image needs more memory than allowed.
    #[error("the image exceeds a limit: {what}; the limit is {limit}")]
    LimitExceeded {
        /// What is too large.
        what: String,
        /// The limit, in the unit that `what` names.
        limit: u64,
    },
    /// The disk failed.
    #[error("cannot {operation} {disk} at byte {offset} ({length} bytes)")]
    Disk {
        /// Disk's name.
        disk: String,
        /// `open`, `read`, `write`, `zero`, `flush`, `re-read the partition table of`.
        operation: &'static str,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The disk's partition table is unusable for the operation.
    #[error("unusable partition table: {reason}")]
    BadPartitionTable {
        /// What is wrong with it.
        reason: String,
    },
    /// No free space for a partition.
    #[error("no room on the disk for {what}: it needs {needed} bytes, the largest free place has {available}{hint}")]
    NoRoom {
        /// The object without room.
        what: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes in the largest free place.
        available: u64,
        /// More about the reason (starts with `; `), or empty.
        hint: String,
    },
    /// The caller cancelled.
    #[error("cancelled; the disk has no partition table")]
    Cancelled,
    /// A part of the pipeline ended without a result.
    #[error("the {stage} stage of the image pipeline ended unexpectedly")]
    Pipeline {
        /// Which part.
        stage: &'static str,
    },
}

/// Classes of [`Error`], stable for mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Server not reached, or reached and lost.
    SourceUnreachable,
    /// An address that is not called.
    SourceNotAllowed,
    /// HTTP status that is not the image: 404 and the like.
    SourceStatus,
    /// Image changed between two reads.
    SourceChanged,
    /// Image ended early.
    Truncated,
    /// Digest differs.
    ChecksumMismatch,
    /// No digest to compare with.
    ChecksumUnusable,
    /// Image larger than the disk.
    ImageTooLarge,
    /// Kind of image that is not written (encryption, backing file, a decoder window beyond the cap, …).
    UnsupportedFormat,
    /// Image malformed, its partition table included.
    CorruptImage,
    /// Reading or writing the disk failed.
    DiskIo,
    /// No free place for the config drive or mark.
    NoSpace,
    /// Stopped on request.
    Cancelled,
    /// A defect of this program.
    Internal,
}

impl Error {
    /// The class of this error.
    pub fn cause(&self) -> Cause {
        match self {
            Self::SourceUnreachable { source, .. } if source.is::<NotAllowed>() => Cause::SourceNotAllowed,
            Self::SourceUnreachable { .. } => Cause::SourceUnreachable,
            Self::SourceStatus { .. } => Cause::SourceStatus,
            Self::SourceChanged { .. } => Cause::SourceChanged,
            Self::Truncated { .. } => Cause::Truncated,
            Self::ChecksumMismatch { .. } => Cause::ChecksumMismatch,
            Self::ChecksumUnusable { .. } => Cause::ChecksumUnusable,
            Self::ImageTooLarge { .. } => Cause::ImageTooLarge,
            Self::Unsupported { .. } | Self::LimitExceeded { .. } => Cause::UnsupportedFormat,
            Self::CorruptImage { .. } | Self::BadPartitionTable { .. } => Cause::CorruptImage,
            Self::Disk { .. } => Cause::DiskIo,
            Self::NoRoom { .. } => Cause::NoSpace,
            Self::Cancelled => Cause::Cancelled,
            Self::Pipeline { .. } => Cause::Internal,
        }
    }

    /// Whether its text says where the image was read.
    pub fn names_source(&self) -> bool {
        matches!(self, Self::SourceUnreachable { .. } | Self::SourceStatus { .. } | Self::SourceChanged { .. })
    }

    /// A [`Error::CorruptImage`].
    pub(crate) fn corrupt(reason: impl Into<String>) -> Self {
        Self::CorruptImage { reason: reason.into() }
    }

    /// A [`Error::BadPartitionTable`].
    pub(crate) fn table(reason: impl Into<String>) -> Self {
        Self::BadPartitionTable { reason: reason.into() }
    }
}
