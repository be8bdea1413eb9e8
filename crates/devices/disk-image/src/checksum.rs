//! Digests of images: given as hex, or found in the text of a checksum file.

use md5::Md5;
use sha2::{Digest as _, Sha256, Sha512};

use crate::error::Error;

/// Longest checksum file that is read, in bytes: those of large distributions have a few hundred kilobytes.
pub const MAX_CHECKSUM_FILE: usize = 4 << 20;

/// Longest line of a checksum file that is looked at, in bytes.
const MAX_LINE: usize = 4096;

/// Digest algorithms of `spec.image.checksumType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// MD5: 32 hex digits.
    Md5,
    /// SHA-256: 64 hex digits.
    Sha256,
    /// SHA-512: 128 hex digits.
    Sha512,
}

impl ChecksumKind {
    /// Lower-case name: `md5`, `sha256`, `sha512`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// The algorithm whose digests have this many hex digits.
    pub fn of_length(digits: usize) -> Option<Self> {
        match digits {
            32 => Some(Self::Md5),
            64 => Some(Self::Sha256),
            128 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Reads BSD style names: `MD5`, `SHA256`, `SHA-512`, …
    fn of_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().replace('-', "").as_str() {
            "md5" => Some(Self::Md5),
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }
}

/// A digest that an image must have.
#[derive(Clone, PartialEq, Eq)]
pub struct Checksum {
    kind: ChecksumKind,
    digest: Vec<u8>,
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind.name(), hex::encode(&self.digest))
    }
}

impl Checksum {
    /// From hex digits, upper or lower case. Without `kind` (checksum type `auto`) the length decides.
    ///
    /// # Errors
    /// [`Error::ChecksumUnusable`] if they are not hex or their number does not fit.
    pub fn from_hex(text: &str, kind: Option<ChecksumKind>) -> Result<Self, Error> {
        let text = text.trim();
        let unusable = |reason: String| Error::ChecksumUnusable { reason };
        let shown: String = text.chars().take(140).collect();
        let Some(found) = ChecksumKind::of_length(text.len()) else {
            return Err(unusable(format!(
                "«{shown}» has {} digits; md5 has 32, sha256 64, sha512 128",
                text.chars().count()
            )));
        };
        if let Some(kind) = kind.filter(|kind| *kind != found) {
            return Err(unusable(format!("«{shown}» has the length of {}, not of {}", found.name(), kind.name())));
        }
        let digest = hex::decode(text).map_err(|_| unusable(format!("«{shown}» is not hexadecimal")))?;
        Ok(Self { kind: found, digest })
    }

    /// From the text of a checksum file: `SHA256SUMS` style lines (`<hex>  name`, `<hex> *name`), BSD style lines
    /// (`SHA256 (name) = <hex>`), or one digest alone. `image_name` is the image's file name; paths in the file are
    /// compared by their last part. Without `kind` the strongest digest given for the image is taken.
    ///
    /// # Errors
    /// [`Error::ChecksumUnusable`] if the file is too long, or has no digest for the image, or several that differ.
    pub fn from_file_text(text: &str, image_name: &str, kind: Option<ChecksumKind>) -> Result<Self, Error> {
        if text.len() > MAX_CHECKSUM_FILE {
            let reason = format!("the checksum file has {} bytes; at most {MAX_CHECKSUM_FILE} are read", text.len());
            return Err(Error::ChecksumUnusable { reason });
        }
        let mut named = Candidates::default();
        let mut alone = Candidates::default();
        let mut entries = 0_usize;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && line.len() <= MAX_LINE) {
            let Some((checksum, name)) = parse_line(line) else { continue };
            if kind.is_some_and(|kind| kind != checksum.kind) {
                continue;
            }
            entries += 1;
            match name {
                Some(name) if base_name(name) == image_name => named.add(checksum),
                Some(_) => {}
                None => alone.add(checksum),
            }
        }
        let wanted = kind.map_or("md5, sha256 or sha512", ChecksumKind::name);
        named.strongest(image_name)?.map_or_else(
            || {
                alone.strongest(image_name)?.ok_or_else(|| Error::ChecksumUnusable {
                    reason: format!("the checksum file names no {wanted} of «{image_name}» ({entries} other entries)"),
                })
            },
            Ok,
        )
    }

    /// The algorithm.
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// One line: its digest and the file it is of, if it says so.
fn parse_line(line: &str) -> Option<(Checksum, Option<&str>)> {
    let first = line.split_whitespace().next()?;
    if let Ok(checksum) = Checksum::from_hex(first, None) {
        let rest = line[first.len()..].trim_start();
        let name = rest.strip_prefix('*').unwrap_or(rest);
        return Some((checksum, (!name.is_empty()).then_some(name)));
    }
    let (kind, rest) = line.split_once('(')?;
    let (name, digest) = rest.rsplit_once(')')?;
    let digest = digest.trim_start().strip_prefix('=')?;
    let checksum = Checksum::from_hex(digest, ChecksumKind::of_name(kind.trim())).ok()?;
    ChecksumKind::of_name(kind.trim())?;
    Some((checksum, Some(name)))
}

/// At most one digest of each kind.
#[derive(Default)]
struct Candidates {
    found: Vec<Checksum>,
    conflict: bool,
}

impl Candidates {
    fn add(&mut self, checksum: Checksum) {
        match self.found.iter().find(|other| other.kind == checksum.kind) {
            Some(other) => self.conflict |= *other != checksum,
            None => self.found.push(checksum),
        }
    }

    fn strongest(self, image_name: &str) -> Result<Option<Checksum>, Error> {
        if self.conflict {
            let reason = format!("the checksum file gives different digests for «{image_name}»");
            return Err(Error::ChecksumUnusable { reason });
        }
        Ok(self.found.into_iter().max_by_key(|checksum| checksum.digest.len()))
    }
}

/// A digest being computed.
pub(crate) enum Hasher {
    Md5(Md5),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn new(kind: ChecksumKind) -> Self {
        match kind {
            ChecksumKind::Md5 => Self::Md5(Md5::new()),
            ChecksumKind::Sha256 => Self::Sha256(Sha256::new()),
            ChecksumKind::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Md5(hasher) => hasher.update(data),
            Self::Sha256(hasher) => hasher.update(data),
            Self::Sha512(hasher) => hasher.update(data),
        }
    }

    pub(crate) fn finish(self) -> Checksum {
        match self {
            Self::Md5(hasher) => Checksum { kind: ChecksumKind::Md5, digest: hasher.finalize().to_vec() },
            Self::Sha256(hasher) => Checksum { kind: ChecksumKind::Sha256, digest: hasher.finalize().to_vec() },
            Self::Sha512(hasher) => Checksum { kind: ChecksumKind::Sha512, digest: hasher.finalize().to_vec() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(kind: ChecksumKind, data: &[u8]) -> Checksum {
        let mut hasher = Hasher::new(kind);
        hasher.update(data);
        hasher.finish()
    }

    #[test]
    fn digests_are_the_published_ones() {
        // RFC 1321 A.5 and FIPS 180 examples for "abc".
        assert_eq!(digest(ChecksumKind::Md5, b"abc").to_string(), "md5:900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(
            digest(ChecksumKind::Sha256, b"abc").to_string(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(
            digest(ChecksumKind::Sha512, b"abc").to_string().starts_with("sha512:ddaf35a193617abacc417349ae204131")
        );
    }

    #[test]
    fn hex_is_checked_against_its_kind() {
        let md5 = "900150983CD24FB0D6963F7D28E17F72";
        assert_eq!(Checksum::from_hex(md5, None).unwrap(), digest(ChecksumKind::Md5, b"abc"));
        assert!(Checksum::from_hex(md5, Some(ChecksumKind::Sha256)).unwrap_err().to_string().contains("not of sha256"));
        assert!(Checksum::from_hex("xyz", None).is_err());
        assert!(Checksum::from_hex(&"z".repeat(64), None).unwrap_err().to_string().contains("not hexadecimal"));
        assert!(Checksum::from_hex(&"é".repeat(32), None).is_err());
    }

    #[test]
    fn checksum_files_of_all_styles() {
        let one = hex::encode(Sha256::digest(b"one"));
        let two = hex::encode(Sha256::digest(b"two"));
        let md5 = hex::encode(Md5::digest(b"two"));
        let expect = digest(ChecksumKind::Sha256, b"two");
        for text in [
            format!("# header\n{one}  a.img\n{two}  b.img\n"),
            format!("{one} *a.img\r\n{two} *./dir/b.img\r\n"),
            format!("SHA256 (a.img) = {one}\nSHA256 (b.img) = {two}\n"),
            format!("MD5 (b.img) = {md5}\nSHA256 (b.img) = {two}\n"),
            format!("{two}\n"),
            format!("{one}  a.img\n{two}  b.img\n{two}  b.img\n"),
        ] {
            assert_eq!(Checksum::from_file_text(&text, "b.img", None).unwrap(), expect, "{text}");
        }
        let text = format!("MD5 (b.img) = {md5}\nSHA256 (b.img) = {two}\n");
        let kind = Some(ChecksumKind::Md5);
        assert_eq!(Checksum::from_file_text(&text, "b.img", kind).unwrap().kind(), ChecksumKind::Md5);
    }

    #[test]
    fn a_file_without_the_image_or_with_a_conflict_is_refused() {
        let one = hex::encode(Sha256::digest(b"one"));
        let two = hex::encode(Sha256::digest(b"two"));
        let error = Checksum::from_file_text(&format!("{one}  a.img\n"), "b.img", None).unwrap_err();
        assert!(error.to_string().contains("«b.img» (1 other"), "{error}");
        let error = Checksum::from_file_text(&format!("{one}  b.img\n{two}  b.img\n"), "b.img", None).unwrap_err();
        assert!(error.to_string().contains("different"), "{error}");
        assert!(Checksum::from_file_text(&"x".repeat(MAX_CHECKSUM_FILE + 1), "b.img", None).is_err());
        assert!(Checksum::from_file_text("<html>404</html>", "b.img", None).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,300}", name in ".{0,20}") {
            let _ = Checksum::from_file_text(&text, &name, None);
            let _ = Checksum::from_hex(&text, None);
        }
    }
}
