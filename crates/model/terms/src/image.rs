//! Images as `spec.image` describes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Image formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFormat {
    /// The disk byte for byte, perhaps compressed.
    Raw,
    /// QEMU copy on write, version 2 or 3.
    Qcow2,
    /// VDI.
    Vdi,
    /// VMDK.
    Vmdk,
    /// Boot this ISO instead of writing it.
    LiveIso,
}

impl DiskFormat {
    /// As `spec.image.format` names it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vdi => "vdi",
            Self::Vmdk => "vmdk",
            Self::LiveIso => "live-iso",
        }
    }
}

/// How an image is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
    /// xz.
    Xz,
    /// bzip2.
    Bzip2,
}

/// Which digest an image is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumType {
    /// MD5: 32 hex digits.
    Md5,
    /// SHA-256: 64 hex digits.
    Sha256,
    /// SHA-512: 128 hex digits.
    Sha512,
    /// By its length.
    Auto,
}
