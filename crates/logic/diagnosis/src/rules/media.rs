//! Why the machine does not get its medium.

use Certainty::{Certain, Likely, Possible};
use Code as C;
use jiff::Timestamp;

use super::words::has;
use crate::codes::Code;
use crate::evidence::{MediumReads, Reading, Slot, TestEnd, TestMedium};
use crate::hit::{Case, Certainty, Hit};

/// Seconds after which a medium that nobody reads is not read.
const QUIET: i64 = 300;

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let medium = case.evidence.ours.medium.read();
    if let Reading::Read(media) = &case.evidence.media {
        for slot in &media.slots {
            message(slot, medium, hits);
        }
        let wanted = medium.is_some_and(|medium| medium.inserted.is_some());
        let known: Vec<&Slot> = media.slots.iter().filter(|slot| slot.inserted.is_some()).collect();
        if wanted && !known.is_empty() && known.iter().all(|slot| slot.inserted == Some(false)) {
            hits.push(Hit::new("media.dropped", C::MediumNotInserted, Likely, "No virtual drive has a medium in it"));
        }
        let foreign = |slot: &&Slot| slot.inserted == Some(true) && slot.ours == Some(false);
        if !media.slots.is_empty() && media.slots.iter().all(|slot| foreign(&slot)) {
            let refused = cause(case) == Some("BmcRefused");
            let from = media.slots.iter().find_map(|slot| slot.image_host.as_deref()).unwrap_or("somewhere else");
            let text = format!("Every virtual drive holds a medium from {from}");
            hits.push(Hit::new("media.in-use", C::MediaSlotInUse, if refused { Certain } else { Likely }, text));
        }
    }
    if let (Some(medium), Some(taken)) = (medium, case.evidence.taken) {
        reads(case, medium, taken, hits);
    }
    if let Some(medium) = case.evidence.ours.test.read() {
        tested(medium, hits);
    }
}

/// What the words of a BMC that has no medium are about.
fn about(said: &str) -> Option<Code> {
    if has(said, &["certificate", "ssl", "tls", "x509"]) {
        Some(C::MediaCertificateRefused)
    } else if has(said, &["license", "licence"]) {
        Some(C::LicenseMissing)
    } else if has(said, &NO_WAY) {
        Some(C::MediaUnreachable)
    } else {
        None
    }
}

/// Words of BMCs that do not get at a medium.
const NO_WAY: [&str; 10] = [
    "cannot reach",
    "unable to reach",
    "unreachable",
    "timed out",
    "timeout",
    "connect",
    "locate",
    "unable to mount",
    "not accessible",
    "resolve",
];

/// What a test has shown. Whoever asks for it asks whether the BMC reaches this server, be the host in error or not.
fn tested(medium: &TestMedium, hits: &mut Vec<Hit>) {
    let hit = |rule, code, certainty| {
        let hit = Hit::new(rule, code, certainty, medium.sentence()).at(medium.asked);
        if medium.end == TestEnd::NotRead { hit.minor().asked() } else { hit.asked() }
    };
    match (medium.end, medium.requests) {
        (TestEnd::Read | TestEnd::Other, _) => {}
        (TestEnd::NotRead, _) => hits.push(hit("test.never-read", C::MediumNeverRead, Possible)),
        (TestEnd::Refused, 0) => match about(&medium.text) {
            Some(code) => hits.push(hit("test.refused", code, Certain)),
            // It may be for another reason.
            None => hits.push(hit("test.refused", C::MediaUnreachable, Possible)),
        },
        // The way is proved.
        (TestEnd::Refused, _) => {
            if about(&medium.text) == Some(C::LicenseMissing) {
                hits.push(hit("test.refused", C::LicenseMissing, Certain));
            }
        }
    }
}

fn cause<'a>(case: &Case<'a>) -> Option<&'a str> {
    case.evidence.failure.as_ref().and_then(|failure| failure.cause.as_deref())
}

fn message(slot: &Slot, medium: Option<&MediumReads>, hits: &mut Vec<Hit>) {
    let Some(said) = slot.message.as_deref() else { return };
    let unread = medium.is_some_and(|medium| medium.first.is_none());
    let certainty = if unread { Certain } else { Likely };
    let text = format!("VirtualMedia {}: {said}", slot.id);
    if let Some(code) = about(said) {
        let rule = match code {
            C::MediaCertificateRefused => "media.certificate",
            C::LicenseMissing => "media.license",
            _ => "media.unreachable",
        };
        hits.push(Hit::new(rule, code, certainty, text));
    } else if has(said, &["in use", "already attached", "already inserted", "already mounted"]) {
        hits.push(Hit::new("media.slot-busy", C::MediaSlotInUse, Likely, text));
    }
}

fn reads(case: &Case<'_>, medium: &MediumReads, taken: Timestamp, hits: &mut Vec<Hit>) {
    let quiet = |since: Timestamp| taken.as_second().saturating_sub(since.as_second()) >= QUIET;
    match (medium.first, medium.last, medium.inserted) {
        (None, _, Some(inserted)) if medium.tls_refused > 0 => {
            let text = format!("{} TLS handshakes for the medium were broken off", medium.tls_refused);
            hits.push(Hit::new("media.tls-refused", C::MediaCertificateRefused, Certain, text).at(Some(inserted)));
        }
        (None, _, Some(inserted)) if quiet(inserted) => {
            let text = format!("The medium was put in at {inserted}, and none of it was read");
            hits.push(Hit::new("media.never-read", C::MediumNeverRead, Likely, text).at(Some(inserted)));
        }
        (Some(_), Some(last), _) if quiet(last) && medium.size.is_some_and(|size| medium.bytes < size) => {
            let silent = case.evidence.ours.agent.read().is_some_and(|agent| agent.heard.is_none());
            let text = format!(
                "{} of {} bytes of the medium were read, the last at {last}",
                medium.bytes,
                medium.size.unwrap_or(0)
            );
            hits.push(
                Hit::new("media.stalled", C::MediumStalled, if silent { Likely } else { Possible }, text)
                    .at(Some(last)),
            );
        }
        _ => {}
    }
}
