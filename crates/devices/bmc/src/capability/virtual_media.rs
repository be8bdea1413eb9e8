//! A virtual drive, into which the BMC puts a medium that it reads from a web server.

use async_trait::async_trait;

use crate::error::BmcError;

/// What is in the virtual drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The medium in question.
    Medium,
    /// Another one.
    Another,
    /// None.
    Empty,
    /// Something, or nothing: the BMC does not say.
    Unknown,
}

/// What came of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The medium is in.
    Done,
    /// The BMC was asked and has not answered in time; it may still be at it. Asked again, it would begin anew: look at the drive.
    Pending,
}

/// The virtual drive.
#[async_trait]
pub trait VirtualMedia: Send + Sync {
    /// Finds the drive, so that whoever needs one knows that it is there before anything else is done to the machine. No call, once it is known.
    async fn find(&self) -> Result<(), BmcError>;
    /// Puts the medium in that these addresses have, whatever is in now: by the first that the BMC takes. One that wants to know the media
    /// server's certificate (PEM) is given it. Errors do not show the addresses, which are secret.
    async fn insert(&self, urls: &[String], certificate: Option<&str>) -> Result<Insertion, BmcError>;
    /// What is in the drive, compared with the medium that these addresses have. One call, once the drive is known.
    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError>;
    /// Takes the medium out; fine if there is none.
    async fn eject(&self) -> Result<(), BmcError>;
}
