//! Sense data (SPC-4, 4.5), in both formats.

/// What a drive says of a command or of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sense {
    /// Sense key: 0 nothing, 2 not ready, 5 illegal request.
    pub key: u8,
    /// Additional sense code and its qualifier.
    pub code: (u8, u8),
    /// Progress in 65536ths, where the drive tells it (SPC-4, 4.5.2.4.3).
    pub progress: Option<u16>,
}

impl Sense {
    /// Reads it; `None` if it is none.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let progress = |at: usize| (byte(at) & 0x80 != 0).then(|| u16::from_be_bytes([byte(at + 1), byte(at + 2)]));
        match byte(0) & 0x7F {
            // fixed format, 4.5.3: the key in byte 2, the codes in bytes 12 and 13, the key's own from byte 15
            0x70 | 0x71 => Some(Self { key: byte(2) & 0xF, code: (byte(12), byte(13)), progress: progress(15) }),
            // descriptor format, 4.5.2: descriptors from byte 8; the key's own is that of type 02h, from its byte 4
            0x72 | 0x73 => {
                let own = descriptor(bytes, 0x02).and_then(|place| progress(place + 4));
                Some(Self { key: byte(1) & 0xF, code: (byte(2), byte(3)), progress: own })
            }
            _ => None,
        }
    }

    /// A percentage of the progress.
    #[must_use]
    pub fn percent(&self) -> Option<u8> {
        self.progress.map(percent)
    }
}

/// Percent of 65536ths, at most 99: what is done is not under way.
#[must_use]
pub fn percent(progress: u16) -> u8 {
    u8::try_from(u32::from(progress) * 100 / 65536).unwrap_or(99)
}

impl std::fmt::Display for Sense {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sense {:X}/{:02X}/{:02X}", self.key, self.code.0, self.code.1)
    }
}

/// Where the descriptor of this type begins in sense data of the descriptor format.
#[must_use]
pub fn descriptor(bytes: &[u8], kind: u8) -> Option<usize> {
    let end = 8 + usize::from(*bytes.get(7)?);
    let mut at = 8;
    while at + 2 <= end.min(bytes.len()) {
        if bytes[at] == kind {
            return Some(at);
        }
        at += 2 + usize::from(bytes[at + 1]);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_formats_say_the_same() {
        let fixed = [0x70, 0, 0x02, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x04, 0x1B, 0, 0x80, 0x40, 0x00];
        let described = [0x72, 0x02, 0x04, 0x1B, 0, 0, 0, 8, 0x02, 6, 0, 0, 0x80, 0x40, 0x00, 0];
        let sense = Sense { key: 2, code: (4, 0x1B), progress: Some(0x4000) };
        assert_eq!((Sense::read(&fixed), Sense::read(&described)), (Some(sense), Some(sense)));
        assert_eq!((sense.percent(), sense.to_string()), (Some(25), "sense 2/04/1B".to_owned()));
        assert_eq!((Sense::read(&[]), Sense::read(&[0; 32])), (None, None));
        assert_eq!(percent(u16::MAX), 99);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..64), kind: u8) {
            let _ = (Sense::read(&bytes), descriptor(&bytes, kind));
        }
    }
}
