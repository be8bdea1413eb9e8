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

impl Compression {
    /// By the suffix of a URL's path, ignoring case, query and fragment.
    #[must_use]
    pub fn from_url(url: &str) -> Self {
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let file = path.rsplit('/').next().unwrap_or(path);
        let suffix = file.rsplit_once('.').map(|(_, suffix)| suffix.to_ascii_lowercase());
        match suffix.as_deref() {
            Some("gz") => Self::Gzip,
            Some("zst" | "zstd") => Self::Zstd,
            Some("xz") => Self::Xz,
            Some("bz2") => Self::Bzip2,
            _ => Self::None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_the_suffix_of_the_path() {
        for (url, expect) in [
            ("http://x/a.raw", Compression::None),
            ("http://x/a.raw.gz", Compression::Gzip),
            ("http://x/a.img.ZST?sig=1.xz", Compression::Zstd),
            ("http://x/a.xz#frag.gz", Compression::Xz),
            ("http://x/a.gz/b.bz2", Compression::Bzip2),
            ("http://x.gz/", Compression::None),
            ("http://x/gz", Compression::None),
        ] {
            assert_eq!(Compression::from_url(url), expect, "{url}");
        }
    }
}
