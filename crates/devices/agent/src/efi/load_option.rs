//! Load options: the contents of `Boot####` variables (UEFI specification 2.10, 3.1.3).

/// The option takes part in booting.
pub const ACTIVE: u32 = 1;

/// Longest option that is read, in bytes.
pub const MAX_OPTION: usize = 64 << 10;

/// A boot entry's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOption {
    /// Attribute bits.
    pub attributes: u32,
    /// The entry's text in the boot menu.
    pub description: String,
    /// Device path, encoded.
    pub path: Vec<u8>,
    /// Options for the loader.
    pub data: Vec<u8>,
}

impl LoadOption {
    /// The variable's value; `None` when the path is too long, or the description has a zero character.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        if self.description.contains('\0') {
            return None;
        }
        let mut bytes = self.attributes.to_le_bytes().to_vec();
        bytes.extend(u16::try_from(self.path.len()).ok()?.to_le_bytes());
        bytes.extend(self.description.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        bytes.extend(&self.path);
        bytes.extend(&self.data);
        (bytes.len() <= MAX_OPTION).then_some(bytes)
    }

    /// Reads a variable's value; `None` when it is damaged. Hostile input.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..bytes.len().min(MAX_OPTION))?;
        let (attributes, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let units: Vec<u16> = rest.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
        let end = units.iter().position(|unit| *unit == 0)?;
        let rest = &rest[2 * (end + 1)..];
        let (path, data) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        Some(Self {
            attributes: u32::from_le_bytes(*attributes),
            description: String::from_utf16_lossy(&units[..end]),
            path: path.to_vec(),
            data: data.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            attributes: u32, description in "[^\\x00]{0,60}",
            path in prop::collection::vec(any::<u8>(), 0..300), data in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let option = LoadOption { attributes, description, path, data };
            prop_assert_eq!(LoadOption::decode(&option.encode().unwrap()), Some(option));
        }

        #[test]
        fn no_value_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = LoadOption::decode(&bytes);
        }
    }

    #[test]
    fn a_zero_character_is_not_written() {
        let option = LoadOption { attributes: 1, description: "a\0b".into(), path: vec![], data: vec![] };
        assert_eq!(option.encode(), None);
    }
}
