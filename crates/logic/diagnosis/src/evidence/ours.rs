//! What this server knows by itself: calls that failed, bytes of its medium that were read, its agent, the image.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Reading;

/// Our side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ours {
    /// The last calls to the BMC that failed, oldest first.
    pub calls: Reading<Vec<CallError>>,
    /// Reads of the boot medium.
    pub medium: Reading<MediumReads>,
    /// The agent.
    pub agent: Reading<AgentFacts>,
    /// SMART and NVMe health of the disks, as the agent has read it.
    pub smart: Reading<Vec<DiskSmart>>,
    /// Whether the image can be had.
    pub image: Reading<ImageProbe>,
    /// What has become of a medium that the BMC was given to read for a test: only where somebody has asked for that.
    pub test: Reading<TestMedium>,
}

/// Longest address of who has asked for a test medium, characters: an IPv6 address has 45.
const MAX_ADDRESS: usize = 64;

/// How a test of what the BMC can read has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TestEnd {
    /// The medium was asked for.
    Read,
    /// It was in its drive, and nobody has asked for it.
    NotRead,
    /// The BMC has not put it in.
    Refused,
    /// Something came between; the text says what.
    #[default]
    #[serde(other)]
    Other,
}

/// A tiny medium of this server, at an address that nobody but the BMC was told, which was put into an empty virtual drive and taken out again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TestMedium {
    /// How it ended.
    pub end: TestEnd,
    /// When the BMC was asked to put it in.
    pub asked: Option<Timestamp>,
    /// Seconds from then to the first request for it, or to the end.
    pub seconds: u64,
    /// Scheme, host and port where it was served, by the address that the BMC was given.
    pub server: String,
    /// Address from which it was asked for first.
    pub from: Option<String>,
    /// Requests for it.
    pub requests: u64,
    /// Bytes that were given out.
    pub bytes: u64,
    /// What the BMC has said, or what came between.
    pub text: String,
}

impl TestMedium {
    /// The same within the bounds of all evidence ([`super::MAX_TEXT`]): what comes from outside is hostile.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut = |text: &str| terms::clean(text, super::MAX_TEXT);
        (self.server, self.text) = (cut(&self.server), cut(&self.text));
        self.from = self.from.map(|from| terms::clean(&from, MAX_ADDRESS));
        self
    }

    /// What was found, a sentence. Only a request for the medium proves anything: that nobody has asked for it is told as what it may be.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { seconds, server, bytes, requests, text, .. } = self;
        let from = self.from.as_deref().unwrap_or("an unknown address");
        match self.end {
            TestEnd::Read => format!(
                "the BMC reaches {server}: the test medium was asked for from {from} after {seconds} s ({requests} requests, {bytes} bytes)"
            ),
            TestEnd::Refused if *requests > 0 => format!(
                "the BMC reaches {server}, from where it has asked for the test medium as {from} ({bytes} bytes), and has refused to put it in: {text}"
            ),
            TestEnd::Refused => {
                format!("the BMC has refused the test medium of {server}, and has not asked for it: {text}")
            }
            TestEnd::NotRead => format!(
                "nobody has asked {server} for the test medium within {seconds} s: the BMC may not reach it, or reads a medium only when its machine does"
            ),
            TestEnd::Other => format!("the test medium came to no end: {text}"),
        }
    }
}

/// A call to the BMC that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallError {
    /// Method and path without query.
    pub call: String,
    /// When.
    pub at: Option<Timestamp>,
    /// HTTP status, if an answer came.
    pub status: Option<u16>,
    /// What was found, a sentence without secrets.
    pub text: String,
}

/// Reads of the medium that the machine is to boot from: ranges that this server has given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MediumReads {
    /// When the medium was put in.
    pub inserted: Option<Timestamp>,
    /// First read; `None` if there was none.
    pub first: Option<Timestamp>,
    /// Last read.
    pub last: Option<Timestamp>,
    /// Bytes that were read, those read twice counted twice.
    pub bytes: u64,
    /// Bytes of the medium.
    pub size: Option<u64>,
    /// Requests that were answered.
    pub requests: u64,
    /// TLS handshakes that the reader broke off.
    pub tls_refused: u64,
}

/// Whether a link has a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LinkState {
    /// It has.
    Up,
    /// It has not.
    Down,
    /// Nobody knows.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What the agent has said, or what its machine has left behind where it could not say it (a screen, a log that came late).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentFacts {
    /// When it was asked to start: the machine was switched on for it.
    pub started: Option<Timestamp>,
    /// When it was last heard; `None` if it never was since then.
    pub heard: Option<Timestamp>,
    /// The step that it was at.
    pub step: Option<String>,
    /// Its last lines, oldest first, without secrets.
    pub lines: Vec<String>,
    /// Signal of its network ports, by MAC address.
    pub links: Vec<(String, LinkState)>,
    /// Addresses that its ports have; empty if they have none and that is known.
    pub addresses: Option<Vec<String>>,
    /// What became of what it tried to reach.
    pub probes: Vec<Probe>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProbeOutcome {
    /// Well.
    Reached,
    /// The name has no address.
    NoName,
    /// There is no way.
    NoRoute,
    /// The port is closed.
    Refused,
    /// Nothing came back in time.
    TimedOut,
    /// The certificate was not trusted.
    Tls,
    /// An HTTP answer that is no success.
    Status,
    /// Something else, or nobody knows.
    #[default]
    #[serde(other)]
    Other,
}

/// What the agent tried to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// `server` or `image`.
    pub target: String,
    /// Host and port.
    pub address: String,
    /// How it ended.
    pub outcome: ProbeOutcome,
    /// When.
    pub at: Option<Timestamp>,
    /// What was found, a sentence.
    pub text: String,
}

/// Health of a disk (`smartctl`; NVMe's SMART / Health log).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskSmart {
    /// Its name on the machine: `/dev/sda`.
    pub name: String,
    /// Serial number.
    pub serial: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Whether it says of itself that it is well.
    pub passed: Option<bool>,
    /// Sectors that could not be read, and are pending.
    pub pending_sectors: Option<u64>,
    /// Errors of its medium that could not be corrected.
    pub media_errors: Option<u64>,
    /// Part of its life that is used, percent; it may be beyond 100.
    pub used_percent: Option<u8>,
}

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ImageFault {
    /// It can be had.
    None,
    /// The server does not have it (404, 410).
    NotFound,
    /// The server does not give it (401, 403).
    Denied,
    /// The server has a fault, or does not answer.
    Unavailable,
    /// Its server's name has no address.
    NoName,
    /// Its server's certificate is not trusted.
    Tls,
    /// Its digest is another than the host names.
    Digest,
    /// Its format is none that is known, or another than the host names.
    Format,
    /// It does not fit on the disk.
    TooLarge,
    /// Something else; the text says what.
    #[default]
    #[serde(other)]
    Other,
}

/// Whether the image can be had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageProbe {
    /// Host and port.
    pub host: String,
    /// What is wrong.
    pub fault: ImageFault,
    /// HTTP status, if an answer came.
    pub status: Option<u16>,
    /// Bytes, if it says so.
    pub size: Option<u64>,
    /// What was found, a sentence.
    pub text: String,
}
