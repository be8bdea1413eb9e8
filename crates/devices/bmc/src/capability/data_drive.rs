//! A virtual drive for a medium of the machine's user: one that is shown beside the running system, or one that the machine boots from.

use async_trait::async_trait;

use crate::capability::virtual_media::{Drive, Insertion};
use crate::error::BmcError;

/// Puts a user's medium in a drive.
///
/// A drive is named by what [`DataDrive::choose`] or [`DataDrive::boot_drive`] has returned, which callers record: an unknown name is refused, never
/// called.
#[async_trait]
pub trait DataDrive: Send + Sync {
    /// The drive for the medium at this address: one that the boot medium never goes into, else that one while it is empty. A drive with a medium in
    /// it is not chosen, whoever put it there, but for one beside the boot medium's that may show what is gone. Fails when there is none, or when none of them reads addresses of this kind. Changes nothing.
    async fn choose(&self, url: &str) -> Result<String, BmcError>;
    /// The drive that the machine boots from, which is the boot medium's, for the medium at this address. Fails when another medium is in it, or when it
    /// reads no addresses of this kind. Changes nothing.
    async fn boot_drive(&self, url: &str) -> Result<String, BmcError>;
    /// Gives the BMC the certificates (PEM) by which the server at this address is to be trusted, where it keeps those of media servers for the drive and reads by
    /// HTTPS. What has become of that shows when it reads.
    async fn trust(&self, _drive: &str, _url: &str, _certificate: &str) {}
    /// Inserts the medium. Fails when another one is in the drive. Errors omit the address.
    async fn put_in(&self, drive: &str, url: &str) -> Result<Insertion, BmcError>;
    /// The same for a drive that is to be empty, into which nothing goes at somebody's cost: nothing is ejected for it, whatever the BMC answers. Where [`Self::put_in`] would
    /// have to eject first, this fails.
    async fn put_into_empty(&self, drive: &str, url: &str) -> Result<Insertion, BmcError>;
    /// Content of the drive, compared with the medium at this address. Fails with [`ErrorKind::NotFound`] while the BMC does not show the drive: it may hide it for
    /// a moment, with what is in it. [`Drive::Empty`] if it has not shown it for minutes, as after an update that shows the drives elsewhere.
    ///
    /// [`ErrorKind::NotFound`]: crate::error::ErrorKind::NotFound
    async fn content(&self, drive: &str, url: &str) -> Result<Drive, BmcError>;
    /// Ejects the medium at this address, or what is in a drive that does not show what it has. Succeeds if it is not there: another medium is left. Fails as
    /// [`Self::content`] does while the drive is not shown.
    async fn take_out(&self, drive: &str, url: &str) -> Result<(), BmcError>;
    /// The same where the BMC may still be putting it in: a drive that is shown to be empty is sent the eject, too, which has BMCs end their reading. That they refuse it then
    /// is no failure.
    async fn call_off(&self, drive: &str, url: &str) -> Result<(), BmcError>;
}
