//! The wire format of protobuf: numbers, lengths, fields. Lengths are checked against the available bytes; errors are those of
//! upstream's generated code.

use gojson::JsonError;

/// Why bytes are no message, in the words of upstream's generated code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WireError {
    /// They end too early.
    #[error("unexpected EOF")]
    Eof,
    /// A variable number of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length below zero.
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    /// A group ends in this message that has not begun.
    #[error("proto: {0}: wiretype end group for non-group")]
    EndGroup(String),
    /// A field number that none can have.
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    IllegalTag {
        /// The message's Go type.
        message: String,
        /// The field number.
        number: i32,
        /// The tag as a whole.
        tag: u64,
    },
    /// A wire type that there is not.
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    /// A field with the wrong wire type.
    #[error("proto: wrong wireType = {found} for field {field}")]
    WrongWireType {
        /// The wire type.
        found: u8,
        /// The field's name in Go.
        field: String,
    },
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotUtf8,
    /// Messages are nested more deeply than JSON may be.
    #[error("messages are nested too deeply")]
    TooDeep,
    /// A text that should be JSON is none.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A time beyond our calendar: the calendar's message.
    #[error("{0}")]
    Time(String),
}

/// Value of a field.
pub enum Wire<'a> {
    /// A variable number of up to 64 bits.
    Number(u64),
    /// Bytes: a text, a message or plain bytes.
    Bytes(&'a [u8]),
    /// Eight bytes, little-endian.
    Fixed(u64),
    /// A wire type that our fields do not use: four bytes, a group, or an invalid type. Reading the next field skips it, if possible.
    Other(u8),
}

impl Wire<'_> {
    /// The number of its type on the wire.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Number(_) => 0,
            Self::Fixed(_) => 1,
            Self::Bytes(_) => 2,
            Self::Other(kind) => *kind,
        }
    }
}

/// Reads the fields of a message, each with its number. Ends after the first error.
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Name of the message, for errors.
    name: &'a str,
    /// Type of a value that was announced but not read.
    unread: Option<u8>,
}

impl<'a> Reader<'a> {
    /// Reads a message's bytes; `name` is its type in Go.
    pub fn new(rest: &'a [u8], name: &'a str) -> Self {
        Self { rest, name, unread: None }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(WireError::Eof)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Overflow)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], WireError> {
        if count.cast_signed() < 0 {
            return Err(WireError::NegativeLength);
        }
        let count = usize::try_from(count).map_err(|_| WireError::Eof)?;
        if count > self.rest.len() {
            return Err(WireError::Eof);
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    fn entry(&mut self) -> Result<(u64, Wire<'a>), WireError> {
        let tag = self.varint()?;
        let kind = (tag & 7).to_le_bytes()[0];
        // Field numbers are signed 32-bit integers in Go.
        let number = u32::try_from(tag >> 3 & u64::from(u32::MAX)).unwrap_or_default();
        if kind == 4 {
            return Err(WireError::EndGroup(self.name.to_owned()));
        }
        if number.cast_signed() <= 0 {
            let number = number.cast_signed();
            return Err(WireError::IllegalTag { message: self.name.to_owned(), number, tag });
        }
        let wire = match kind {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Fixed(self.take(8)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            kind => {
                self.unread = Some(kind);
                Wire::Other(kind)
            }
        };
        Ok((u64::from(number), wire))
    }

    /// Passes over a value of this type; of a group, over all that is in it.
    fn skip(&mut self, kind: u8) -> Result<(), WireError> {
        let (mut kind, mut depth) = (kind, 0usize);
        loop {
            match kind {
                0 => {
                    self.varint()?;
                }
                1 => {
                    self.take(8)?;
                }
                2 => {
                    let length = self.varint()?;
                    self.take(length)?;
                }
                3 => depth += 1,
                4 => depth = depth.saturating_sub(1),
                5 => {
                    self.take(4)?;
                }
                kind => return Err(WireError::IllegalWireType(kind)),
            }
            if depth == 0 {
                return Ok(());
            }
            kind = (self.varint()? & 7).to_le_bytes()[0];
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let skipped = self.unread.take().map_or(Ok(()), |kind| self.skip(kind));
        let entry = match skipped {
            Ok(()) if self.rest.is_empty() => return None,
            Ok(()) => self.entry(),
            Err(error) => Err(error),
        };
        if entry.is_err() {
            (self.rest, self.unread) = (&[], None);
        }
        Some(entry)
    }
}

/// A text, if the bytes are one.
pub fn utf8(bytes: &[u8]) -> Result<String, WireError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| WireError::NotUtf8)
}

/// Appends a variable number.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Appends a field that is a number.
pub fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

/// Appends a field that is bytes.
pub fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field of eight bytes.
pub fn put_fixed(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// The error of a field with the wrong wire type; `field` is its name in Go.
pub(super) fn wrong_wire(wire: &Wire<'_>, field: &str) -> WireError {
    WireError::WrongWireType { found: wire.kind(), field: field.to_owned() }
}
