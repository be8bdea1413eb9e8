//! Digests of content (image-spec, `descriptor.md`, "Digests").

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Sha256, Sha512};

/// Algorithm and value, as `sha256:<64 hexadecimal digits>` or `sha512:<128>`: the two that the specification registers and that are still strong.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Digest(String);

impl Digest {
    /// SHA-256 of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("sha256:{}", hex::encode(<Sha256 as sha2::Digest>::digest(bytes))))
    }

    /// Whether these bytes have it.
    #[must_use]
    pub fn fits(&self, bytes: &[u8]) -> bool {
        match self.algorithm() {
            "sha512" => self.hex() == hex::encode(<Sha512 as sha2::Digest>::digest(bytes)),
            _ => *self == Self::of(bytes),
        }
    }

    /// `sha256` or `sha512`.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        self.0.split_once(':').map_or("", |(algorithm, _)| algorithm)
    }

    /// Its digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, hex)| hex)
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = ();

    /// Lower-case digits alone, as the specification has them.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (algorithm, hex) = text.split_once(':').ok_or(())?;
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err(()),
        };
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == length && hex.bytes().all(is_digit) { Ok(Self(text.to_owned())) } else { Err(()) }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|()| serde::de::Error::custom("no digest of SHA-256 or SHA-512"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_the_specification_says() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let digest: Digest = empty.parse().unwrap();
        assert!(digest.fits(b"") && !digest.fits(b"x"));
        assert_eq!((digest.algorithm(), digest.hex().len(), digest.to_string().as_str()), ("sha256", 64, empty));
        let long = format!("sha512:{}", hex::encode(<Sha512 as sha2::Digest>::digest(b"x")));
        assert!(long.parse::<Digest>().unwrap().fits(b"x") && !long.parse::<Digest>().unwrap().fits(b""));
        for bad in [
            "",
            "sha256",
            "sha256:",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &empty.to_uppercase(),
            &empty[..70],
            &format!("{empty}0"),
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(()), "{bad}");
        }
    }
}
