//! Digests of images: given as hex, or found in the text of a checksum file.

use md5::Md5;
use sha2::{Digest as _, Sha256, Sha512};
use terms::ChecksumType;

use crate::error::Error;

/// Longest checksum file that is read, in bytes: those of large distributions have a few hundred kilobytes.
pub const MAX_CHECKSUM_FILE: usize = 4 << 20;

/// Longest line of a checksum file that is looked at, in bytes.
const MAX_LINE: usize = 4096;

/// Lower-case name; without a choice, all that there are.
const fn name(kind: ChecksumType) -> &'static str {
    match kind {
        ChecksumType::Md5 => "md5",
        ChecksumType::Sha256 => "sha256",
        ChecksumType::Sha512 => "sha512",
        ChecksumType::Auto => "md5, sha256 or sha512",
    }
}

/// Reads BSD style names: `MD5`, `SHA256`, `SHA-512`, …
fn of_name(name: &str) -> Option<ChecksumType> {
    match name.to_ascii_lowercase().replace('-', "").as_str() {
        "md5" => Some(ChecksumType::Md5),
        "sha256" => Some(ChecksumType::Sha256),
        "sha512" => Some(ChecksumType::Sha512),
        _ => None,
    }
}

/// A digest that an image must have.
#[derive(Clone, PartialEq, Eq)]
pub struct Checksum(Digest);

/// A digest, by its algorithm.
#[derive(Clone, PartialEq, Eq)]
enum Digest {
    Md5([u8; 16]),
    Sha256([u8; 32]),
    Sha512([u8; 64]),
}

impl Digest {
    /// The number of bytes names the algorithm.
    fn of(bytes: &[u8]) -> Option<Self> {
        match bytes.len() {
            16 => bytes.try_into().ok().map(Self::Md5),
            32 => bytes.try_into().ok().map(Self::Sha256),
            64 => bytes.try_into().ok().map(Self::Sha512),
            _ => None,
        }
    }

    const fn bytes(&self) -> &[u8] {
        match self {
            Self::Md5(bytes) => bytes,
            Self::Sha256(bytes) => bytes,
            Self::Sha512(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", name(self.kind()), hex::encode(self.0.bytes()))
    }
}

impl Checksum {
    /// Parses hex digits, upper or lower case. With [`ChecksumType::Auto`] the length decides.
    ///
    /// # Errors
    /// [`Error::ChecksumUnusable`] if they are not hex or their number is wrong.
    pub fn from_hex(text: &str, kind: ChecksumType) -> Result<Self, Error> {
        let text = text.trim();
        let unusable = |reason: String| Error::ChecksumUnusable { reason };
        let printable: String = text.chars().take(140).collect();
        if !matches!(text.len(), 32 | 64 | 128) {
            return Err(unusable(format!(
                "\"{printable}\" has {} digits; md5 has 32, sha256 64, sha512 128",
                text.chars().count()
            )));
        }
        let digest = hex::decode(text).ok().and_then(|bytes| Digest::of(&bytes));
        let found = Self(digest.ok_or_else(|| unusable(format!("\"{printable}\" is not hexadecimal")))?);
        if kind != ChecksumType::Auto && kind != found.kind() {
            let reason = format!("\"{printable}\" has the length of {}, not of {}", name(found.kind()), name(kind));
            return Err(unusable(reason));
        }
        Ok(found)
    }

    /// From the text of a checksum file: `SHA256SUMS` style lines (`<hex>  name`, `<hex> *name`), BSD style lines
    /// (`SHA256 (name) = <hex>`), or one digest alone. `image_name` is the image's file name; paths in the file are
    /// compared by their last part. With [`ChecksumType::Auto`] the strongest digest given for the image is taken.
    ///
    /// # Errors
    /// [`Error::ChecksumUnusable`] if the file is too long, or has no digest for the image, or several that differ.
    pub fn from_file_text(text: &str, image_name: &str, kind: ChecksumType) -> Result<Self, Error> {
        if text.len() > MAX_CHECKSUM_FILE {
            let reason = format!("the checksum file has {} bytes; at most {MAX_CHECKSUM_FILE} are read", text.len());
            return Err(Error::ChecksumUnusable { reason });
        }
        let mut named = Candidates::default();
        let mut alone = Candidates::default();
        let mut entries = 0_usize;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && line.len() <= MAX_LINE) {
            let Some((checksum, name)) = parse_line(line) else { continue };
            if kind != ChecksumType::Auto && kind != checksum.kind() {
                continue;
            }
            entries += 1;
            match name {
                Some(name) if base_name(name) == image_name => named.add(checksum),
                Some(_) => {}
                None => alone.add(checksum),
            }
        }
        let wanted = name(kind);
        named.strongest(image_name)?.map_or_else(
            || {
                alone.strongest(image_name)?.ok_or_else(|| Error::ChecksumUnusable {
                    reason: format!(
                        "the checksum file names no {wanted} of \"{image_name}\" ({entries} other entries)"
                    ),
                })
            },
            Ok,
        )
    }

    /// The algorithm; never [`ChecksumType::Auto`].
    pub const fn kind(&self) -> ChecksumType {
        match self.0 {
            Digest::Md5(_) => ChecksumType::Md5,
            Digest::Sha256(_) => ChecksumType::Sha256,
            Digest::Sha512(_) => ChecksumType::Sha512,
        }
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Parses one line: its digest and, if present, its file name.
fn parse_line(line: &str) -> Option<(Checksum, Option<&str>)> {
    let first = line.split_whitespace().next()?;
    if let Ok(checksum) = Checksum::from_hex(first, ChecksumType::Auto) {
        let rest = line[first.len()..].trim_start();
        let name = rest.strip_prefix('*').unwrap_or(rest);
        return Some((checksum, (!name.is_empty()).then_some(name)));
    }
    let (kind, rest) = line.split_once('(')?;
    let (name, digest) = rest.rsplit_once(')')?;
    let digest = digest.trim_start().strip_prefix('=')?;
    let checksum = Checksum::from_hex(digest, of_name(kind.trim())?).ok()?;
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
        match self.found.iter().find(|other| other.kind() == checksum.kind()) {
            Some(other) => self.conflict |= *other != checksum,
            None => self.found.push(checksum),
        }
    }

    fn strongest(self, image_name: &str) -> Result<Option<Checksum>, Error> {
        if self.conflict {
            let reason = format!("the checksum file gives different digests for \"{image_name}\"");
            return Err(Error::ChecksumUnusable { reason });
        }
        Ok(self.found.into_iter().max_by_key(|checksum| checksum.0.bytes().len()))
    }
}

/// A digest being computed.
pub(crate) enum Hasher {
    Md5(Md5),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// A hasher for the same kind of digest.
    pub(crate) fn like(expected: &Checksum) -> Self {
        match expected.0 {
            Digest::Md5(_) => Self::Md5(Md5::new()),
            Digest::Sha256(_) => Self::Sha256(Sha256::new()),
            Digest::Sha512(_) => Self::Sha512(Sha512::new()),
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
        Checksum(match self {
            Self::Md5(hasher) => Digest::Md5(hasher.finalize().into()),
            Self::Sha256(hasher) => Digest::Sha256(hasher.finalize().into()),
            Self::Sha512(hasher) => Digest::Sha512(hasher.finalize().into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(kind: ChecksumType, data: &[u8]) -> Checksum {
        let digits = [(ChecksumType::Md5, 32), (ChecksumType::Sha256, 64), (ChecksumType::Sha512, 128)];
        let length = digits.iter().find(|(of, _)| *of == kind).unwrap().1;
        let mut hasher = Hasher::like(&Checksum::from_hex(&"0".repeat(length), kind).unwrap());
        hasher.update(data);
        hasher.finish()
    }

    #[test]
    fn digests_are_the_published_ones() {
        // RFC 1321 A.5 and FIPS 180 examples for "abc".
        assert_eq!(digest(ChecksumType::Md5, b"abc").to_string(), "md5:900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(
            digest(ChecksumType::Sha256, b"abc").to_string(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(
            digest(ChecksumType::Sha512, b"abc").to_string().starts_with("sha512:ddaf35a193617abacc417349ae204131")
        );
    }

    #[test]
    fn hex_is_checked_against_its_kind() {
        let md5 = "900150983CD24FB0D6963F7D28E17F72";
        assert_eq!(Checksum::from_hex(md5, ChecksumType::Auto).unwrap(), digest(ChecksumType::Md5, b"abc"));
        assert!(Checksum::from_hex(md5, ChecksumType::Sha256).unwrap_err().to_string().contains("not of sha256"));
        assert!(Checksum::from_hex("xyz", ChecksumType::Auto).is_err());
        assert!(
            Checksum::from_hex(&"z".repeat(64), ChecksumType::Auto)
                .unwrap_err()
                .to_string()
                .contains("not hexadecimal")
        );
        assert!(Checksum::from_hex(&"é".repeat(32), ChecksumType::Auto).is_err());
    }

    #[test]
    fn checksum_files_of_all_styles() {
        let one = hex::encode(Sha256::digest(b"one"));
        let two = hex::encode(Sha256::digest(b"two"));
        let md5 = hex::encode(Md5::digest(b"two"));
        let expect = digest(ChecksumType::Sha256, b"two");
        for text in [
            format!("# header\n{one}  a.img\n{two}  b.img\n"),
            format!("{one} *a.img\r\n{two} *./dir/b.img\r\n"),
            format!("SHA256 (a.img) = {one}\nSHA256 (b.img) = {two}\n"),
            format!("MD5 (b.img) = {md5}\nSHA256 (b.img) = {two}\n"),
            format!("{two}\n"),
            format!("{one}  a.img\n{two}  b.img\n{two}  b.img\n"),
        ] {
            assert_eq!(Checksum::from_file_text(&text, "b.img", ChecksumType::Auto).unwrap(), expect, "{text}");
        }
        let text = format!("MD5 (b.img) = {md5}\nSHA256 (b.img) = {two}\n");
        let kind = ChecksumType::Md5;
        assert_eq!(Checksum::from_file_text(&text, "b.img", kind).unwrap().kind(), ChecksumType::Md5);
    }

    #[test]
    fn a_file_without_the_image_or_with_a_conflict_is_refused() {
        let one = hex::encode(Sha256::digest(b"one"));
        let two = hex::encode(Sha256::digest(b"two"));
        let error = Checksum::from_file_text(&format!("{one}  a.img\n"), "b.img", ChecksumType::Auto).unwrap_err();
        assert!(error.to_string().contains("\"b.img\" (1 other"), "{error}");
        let error = Checksum::from_file_text(&format!("{one}  b.img\n{two}  b.img\n"), "b.img", ChecksumType::Auto)
            .unwrap_err();
        assert!(error.to_string().contains("different"), "{error}");
        assert!(Checksum::from_file_text(&"x".repeat(MAX_CHECKSUM_FILE + 1), "b.img", ChecksumType::Auto).is_err());
        assert!(Checksum::from_file_text("<html>404</html>", "b.img", ChecksumType::Auto).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,300}", name in ".{0,20}") {
            let _ = Checksum::from_file_text(&text, &name, ChecksumType::Auto);
            let _ = Checksum::from_hex(&text, ChecksumType::Auto);
        }
    }
}
