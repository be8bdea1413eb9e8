//! A virtual drive with a medium that the BMC reads from a web server.

use async_trait::async_trait;

use crate::error::BmcError;

/// Content of the virtual drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The medium in question.
    Medium,
    /// Another one.
    Another,
    /// None.
    Empty,
    /// Unknown: the BMC does not report it.
    Unknown,
}

/// Result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The medium is in.
    Done,
    /// The BMC has not answered in time and may still be inserting. A second request would start over: check the drive instead.
    Pending,
}

/// The virtual drive.
#[async_trait]
pub trait VirtualMedia: Send + Sync {
    /// Finds the drive, so that callers know that it exists before they change the machine. No call, once it is known.
    async fn find(&self) -> Result<(), BmcError>;
    /// Inserts the medium at these addresses and replaces any other: uses the first address that the BMC accepts. Installs the media server's
    /// certificate (PEM) on a BMC that wants it. Errors omit the addresses, which are secret.
    async fn insert(&self, urls: &[String], certificate: Option<&str>) -> Result<Insertion, BmcError>;
    /// Content of the drive, compared with the medium at these addresses. One call, once the drive is known.
    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError>;
    /// Content of the drive, where the caller tells by the address that the BMC shows whether it is the medium in question: one whose own address is not
    /// known any more. One call, once the drive is known.
    async fn drive_with(&self, is_it: &(dyn for<'a> Fn(&'a str) -> bool + Sync)) -> Result<Drive, BmcError>;
    /// Ejects the medium; succeeds if the drive is empty.
    async fn eject(&self) -> Result<(), BmcError>;
}
