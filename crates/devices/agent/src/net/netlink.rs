//! Netlink messages: encoding of requests, reading of answers.
//!
//! Source: Linux `Documentation/userspace-api/netlink/intro.rst`, `include/uapi/linux/{netlink,rtnetlink,if_link,if_addr}.h`.
//! Numbers are in the machine's byte order.

/// This is a request.
pub const REQUEST: u16 = 1;
/// Answer with an acknowledgement.
pub const ACK: u16 = 4;
/// All objects.
pub const DUMP: u16 = 0x300;
/// Fail if it exists.
pub const EXCL: u16 = 0x200;
/// Take the place of an existing one.
pub const REPLACE: u16 = 0x100;
/// Create if it does not exist.
pub const CREATE: u16 = 0x400;

/// Message type: error, or acknowledgement when its code is 0.
pub const ERROR: u16 = 2;
/// Message type: end of a dump.
pub const DONE: u16 = 3;

const HEADER: usize = 16;
const NESTED: u16 = 1 << 15;
const TYPE_MASK: u16 = !(3 << 14);

/// A request being written.
#[derive(Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A request of this message type; `body` is the fixed part behind the header.
    #[must_use]
    pub fn new(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | REQUEST).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        let mut request = Self { bytes };
        request.pad();
        request
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds an attribute; one whose length does not fit the length field is left out.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        if let Ok(length) = u16::try_from(value.len() + 4) {
            self.bytes.extend(length.to_ne_bytes());
            self.bytes.extend(kind.to_ne_bytes());
            self.bytes.extend(value);
            self.pad();
        }
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds a text with its zero byte.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute that holds the attributes that `inside` adds.
    #[must_use]
    pub fn nest(mut self, kind: u16, inside: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend((kind | NESTED).to_ne_bytes());
        let mut request = inside(self);
        let length = u16::try_from(request.bytes.len() - start).unwrap_or(u16::MAX);
        request.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        request
    }

    /// The message.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// A message received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Type.
    pub kind: u16,
    /// Sequence number of the request.
    pub sequence: u32,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Of an [`ERROR`] message: the kernel's error number, 0 for an acknowledgement.
    #[must_use]
    pub fn error(&self) -> Option<i32> {
        let code = self.payload.first_chunk::<4>().filter(|_| self.kind == ERROR)?;
        Some(i32::from_ne_bytes(*code).saturating_neg())
    }
}

/// Splits a datagram into messages; ends at the first damaged one.
#[must_use]
pub fn messages(mut bytes: &[u8]) -> Vec<Message<'_>> {
    let mut found = Vec::new();
    while let Some(header) = bytes.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(payload) = bytes.get(HEADER..length) else { break };
        found.push(Message {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
            payload,
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Attributes behind a fixed part: type and value; ends at the first damaged one.
#[must_use]
pub fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(header) = bytes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let Some(value) = bytes.get(4..length) else { break };
        found.push((u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            kind: u16, sequence: u32,
            values in prop::collection::vec((0_u16..1000, prop::collection::vec(any::<u8>(), 0..40)), 0..10),
        ) {
            let mut request = Request::new(kind, ACK, sequence, &[1, 2, 3, 4]);
            for (kind, value) in &values {
                request = request.attribute(*kind, value);
            }
            let bytes = request.nest(7, |inside| inside.text(8, "x")).finish();
            prop_assert_eq!(bytes.len() % 4, 0);
            let found = messages(&bytes);
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!((found[0].kind, found[0].sequence), (kind, sequence));
            let read = attributes(&found[0].payload[4..]);
            let (nested, plain) = read.split_last().unwrap();
            prop_assert_eq!(nested.0, 7);
            prop_assert_eq!(attributes(nested.1), vec![(8, &b"x\0"[..])]);
            let plain: Vec<(u16, Vec<u8>)> = plain.iter().map(|(kind, value)| (*kind, value.to_vec())).collect();
            prop_assert_eq!(plain, values);
        }

        #[test]
        fn no_answer_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                let _ = message.error();
            }
            let _ = attributes(&bytes);
        }
    }
}
