//! The wire format of protobuf: numbers, lengths, fields. Lengths are checked against what is there.

/// Value of a field.
pub enum Wire<'a> {
    /// A variable number of up to 64 bits.
    Number(u64),
    /// Bytes: a text, a message or plain bytes.
    Bytes(&'a [u8]),
    /// Eight bytes, little-endian; of fields with four the upper half is zero.
    Fixed(u64),
}

/// Reads the fields of a message, each with its number. Ends after the first error.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or("unexpected EOF")?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        if count.cast_signed() < 0 {
            return Err("proto: negative length found during unmarshaling".to_owned());
        }
        let count = usize::try_from(count).map_err(|_| "unexpected EOF")?;
        if count > self.0.len() {
            return Err("unexpected EOF".to_owned());
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    fn entry(&mut self) -> Result<(u64, Wire<'a>), String> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Fixed(fixed(self.take(8)?)),
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed(fixed(self.take(4)?)),
            _ => return Err("proto: illegal wireType".to_owned()),
        };
        Ok((tag >> 3, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

fn fixed(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// A text, if the bytes are one.
pub fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text is not UTF-8".to_owned())
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
