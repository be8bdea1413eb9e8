//! Boot media composed while they are read, and the agent image they are composed from.
//!
//! A medium is a pure function of shared files (kernel, initramfs, boot loader) and a few kilobytes per host: nothing
//! per host is ever stored. [`Assets`] opens the shared files once, [`Medium::compose`] lays an ISO 9660 image over
//! them, [`serve::respond`] answers HTTP range requests from it, and [`agent_image::build`] makes the shared files from
//! Debian's packages. The readers in [`iso`] and [`cpio`] take hostile input; so does [`read_host_files`], which finds
//! the per-host files on a medium by ranges.

pub mod agent_image;
pub mod assets;
pub mod cpio;
pub mod derive;
mod esp;
pub mod host_files;
pub mod iso;
pub mod medium;
pub mod read_at;
pub mod serve;

pub use assets::{AgentKind, Assets, AssetsError, Manifest};
pub use host_files::{HostFile, HostFiles, HostFilesError, read_host_files};
pub use medium::{Medium, MediumError};
pub use read_at::ReadAt;
pub use terms::Architecture;
