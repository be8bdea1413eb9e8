//! Commands to drives that erase themselves: NVMe, ATA and SCSI, encoded here and carried by the kernel's pass-through.
//!
//! [`Drive`] carries bytes, nothing more: the real one hands them to the kernel (`linux::passthrough`), tests have tables of exchanges that were made by
//! hand from the specifications. What a drive answers is untrusted.
//!
//! Sources: NVM Express Base Specification 2.0 and NVM Command Set Specification 1.0; ATA Command Set 4 (ACS-4) and SCSI / ATA Translation 4 (SAT-4);
//! SCSI Primary Commands 4 (SPC-4) and SCSI Block Commands 4 (SBC-4).

pub mod ata;
pub mod nvme;
pub mod scsi;
pub mod sense;

use std::io;
use std::time::Duration;

use inventory::EraseResult;

/// What a command moves.
#[derive(Debug)]
pub enum Data<'a> {
    /// Nothing.
    None,
    /// Bytes from the drive.
    In(&'a mut [u8]),
    /// Bytes to the drive.
    Out(&'a [u8]),
}

/// How a drive has answered an NVMe command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Dword 0 of the completion.
    pub result: u32,
    /// Status field without the phase tag (NVMe 2.0, 3.3.3.2.1): 0 is success.
    pub status: u16,
}

/// How a drive has answered a SCSI command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// SAM status: 0 is GOOD, 2 is CHECK CONDITION.
    pub status: u8,
    /// Sense data.
    pub sense: Vec<u8>,
    /// Bytes of the data that were not moved.
    pub missing: usize,
}

/// A drive that takes commands. A call lasts until the drive has answered, for at most the time given.
pub trait Drive: Send + Sync {
    /// Sends an NVMe admin command: the submission queue entry of 64 bytes, of which the kernel fills in identifier and data pointers.
    ///
    /// # Errors
    /// The kernel could not send it, or no answer came in time.
    fn nvme(&self, entry: &[u8; 64], data: Data<'_>, time: Duration) -> io::Result<Completion>;

    /// Sends a SCSI command.
    ///
    /// # Errors
    /// As [`Self::nvme`].
    fn scsi(&self, cdb: &[u8], data: Data<'_>, time: Duration) -> io::Result<Reply>;
}

/// Pauses between two looks at a drive at work, of which so much is done; false when it is to be left to itself.
pub type Pause<'a> = &'a dyn Fn(Option<u8>) -> bool;

/// Most looks at a drive at work: a week, at ten seconds each.
pub const MAX_LOOKS: u32 = 7 * 24 * 360;
/// Longest answer to a command that only asks, or that only begins work.
pub const SHORT: Duration = Duration::from_secs(60);

/// How a drive's command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The drive says that it is done.
    Done {
        /// What that is worth.
        result: EraseResult,
        /// The command.
        method: String,
        /// What the drive has shown.
        evidence: String,
    },
    /// It has none, or has refused it: nothing was changed. The reason.
    Refused(String),
    /// It was begun, and has not come to a good end.
    Broken {
        /// The command.
        method: String,
        /// What was found, and what to do.
        why: String,
    },
}

impl Ended {
    fn broken(method: &str, why: impl Into<String>) -> Self {
        Self::Broken { method: method.to_owned(), why: why.into() }
    }
}

/// Tries these one after the other, until one is not refused; what was refused before is told.
pub fn first<'a>(ways: impl IntoIterator<Item = Box<dyn FnOnce() -> Ended + 'a>>, none: &str) -> Ended {
    let mut refused = Vec::new();
    for way in ways {
        match way() {
            Ended::Refused(why) => refused.push(why),
            Ended::Done { result, method, evidence } if !refused.is_empty() => {
                return Ended::Done { result, method, evidence: format!("{evidence}; before: {}", refused.join("; ")) };
            }
            ended => return ended,
        }
    }
    Ended::Refused(if refused.is_empty() { none.to_owned() } else { refused.join("; ") })
}

/// A number of a drive, little-endian, at this offset; 0 beyond the end.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |pair| u16::from_le_bytes([pair[0], pair[1]]))
}

/// The same of 32 bits.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from(le16(bytes, at)) | u32::from(le16(bytes, at + 2)) << 16
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    /// One exchange: the bytes that must be sent (an NVMe entry without trailing zeros, or a CDB), the data that must go with them, and the answer.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Exchange {
        pub(crate) sent: Vec<u8>,
        pub(crate) out: Vec<u8>,
        pub(crate) back: Vec<u8>,
        pub(crate) status: u16,
        pub(crate) sense: Vec<u8>,
        /// Bytes that are not moved.
        pub(crate) missing: usize,
        /// Longest time that is granted, if it matters.
        pub(crate) time: Option<Duration>,
        /// The kernel says that the drive did not answer.
        pub(crate) silent: bool,
    }

    /// A drive that has exactly these exchanges, in this order.
    pub(crate) struct Script(Mutex<VecDeque<Exchange>>);

    impl Script {
        pub(crate) fn new(exchanges: Vec<Exchange>) -> Self {
            Self(Mutex::new(exchanges.into()))
        }

        fn next(&self, sent: &[u8], data: Data<'_>, time: Duration) -> io::Result<Exchange> {
            let expected = self.0.lock().unwrap().pop_front();
            let expected = expected.unwrap_or_else(|| panic!("sent {sent:02x?}, and nothing more was expected"));
            let mut padded = expected.sent.clone();
            padded.resize(sent.len().max(padded.len()), 0);
            assert_eq!(padded, sent, "the command");
            let mut out = Vec::new();
            match data {
                Data::None => {}
                Data::In(room) => {
                    let count = room.len().min(expected.back.len());
                    room[..count].copy_from_slice(&expected.back[..count]);
                }
                Data::Out(bytes) => out = bytes.to_vec(),
            }
            let mut wanted = expected.out.clone();
            wanted.resize(out.len().max(wanted.len()), 0);
            assert_eq!(wanted, out, "the data of {sent:02x?}");
            if let Some(granted) = expected.time {
                assert_eq!(granted, time, "the time of {sent:02x?}");
            }
            if expected.silent { Err(io::ErrorKind::TimedOut.into()) } else { Ok(expected) }
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                let left = self.0.lock().unwrap();
                assert!(left.is_empty(), "{} exchanges did not come, the first {:02x?}", left.len(), left[0].sent);
            }
        }
    }

    impl Drive for Script {
        fn nvme(&self, entry: &[u8; 64], data: Data<'_>, time: Duration) -> io::Result<Completion> {
            self.next(entry, data, time).map(|answer| Completion { result: 0, status: answer.status })
        }

        fn scsi(&self, cdb: &[u8], data: Data<'_>, time: Duration) -> io::Result<Reply> {
            self.next(cdb, data, time).map(|answer| Reply {
                status: u8::try_from(answer.status).unwrap(),
                sense: answer.sense,
                missing: answer.missing,
            })
        }
    }

    #[test]
    fn what_was_refused_before_is_told() {
        let refused = || Box::new(|| Ended::Refused("a: no".to_owned())) as Box<dyn FnOnce() -> Ended>;
        let done = Ended::Done { result: EraseResult::Purged, method: "b".into(), evidence: "ok".into() };
        let then = done.clone();
        let ended = first([refused(), Box::new(move || then)], "none");
        assert!(matches!(&ended, Ended::Done { evidence, .. } if evidence == "ok; before: a: no"), "{ended:?}");
        assert_eq!(first([refused(), refused()], "none"), Ended::Refused("a: no; a: no".to_owned()));
        assert_eq!(first([], "none"), Ended::Refused("none".to_owned()));
        let broken = || Box::new(|| Ended::broken("b", "it broke")) as Box<dyn FnOnce() -> Ended>;
        assert_eq!(first([broken(), Box::new(|| panic!("nothing follows"))], "none"), Ended::broken("b", "it broke"));
    }
}
