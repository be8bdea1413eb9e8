//! Lifetimes and renewal of certificates, as pure functions of their dates.
//!
//! Certificates signed by the CA are valid for a year and renewed after two thirds of it. The CA is valid for ten
//! years. Three years before its end the next CA is created and published together with it; a year later the next one
//! signs, and the former stays trusted to its end.

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const YEAR: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Lifetime of certificates signed by the CA.
pub const LEAF: SignedDuration = YEAR;
/// Lifetime of a CA.
pub const CA: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Start of all validity periods: 2000-01-01.
const LONG_AGO: Timestamp = Timestamp::constant(946_684_800, 0);
/// How long before a CA's end the next one is created.
const AHEAD: SignedDuration = SignedDuration::from_hours(3 * 365 * 24);
/// How long the next CA is published before it signs: longer than any kubeconfig of the server is valid.
const LEAD: SignedDuration = SignedDuration::from_hours(366 * 24);
/// How long before its end a client certificate causes warnings.
const WARNED: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub from: Timestamp,
    /// Last moment.
    pub to: Timestamp,
}

impl Validity {
    /// The period of a new certificate with this lifetime. It begins long ago, so that clients whose clock is behind
    /// by days or years are served; the key is new, so an early start does no harm.
    pub fn of_new(now: Timestamp, life: SignedDuration) -> Self {
        Self { from: LONG_AGO.min(now), to: now + life }
    }

    /// The period of a certificate; `None` if it cannot be parsed.
    pub fn of_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let at = |seconds| Timestamp::from_second(seconds).ok();
        let validity = certificate.validity();
        Some(Self { from: at(validity.not_before.timestamp())?, to: at(validity.not_after.timestamp())? })
    }

    /// The period of a certificate in PEM.
    pub fn of_pem(pem: &str) -> Option<Self> {
        Self::of_der(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)
    }

    /// Whether a certificate signed by the CA must be renewed: two thirds of its lifetime have passed.
    pub fn due(self, now: Timestamp) -> bool {
        now >= self.to - LEAF / 3
    }

    /// Whether it has expired.
    pub fn over(self, now: Timestamp) -> bool {
        now > self.to
    }

    /// A warning for its holder if it expires soon.
    pub fn warning(self, now: Timestamp) -> Option<String> {
        (now >= self.to - WARNED).then(|| {
            let day = self.to.strftime("%Y-%m-%d");
            format!(
                "the client certificate that you use ends on {day}; the server writes a kubeconfig with another one into its data folder: take that one"
            )
        })
    }
}

/// The next step in the life of the CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// Create and publish the next CA.
    Announce,
    /// Switch to the next CA for signing.
    Switch,
}

/// The step for a CA and the next one, if any.
pub fn step(current: Validity, next: Option<Validity>, now: Timestamp) -> Step {
    let last = current.to - DAY;
    let ready = next.map_or(last, |next| last.min(next.to - CA + LEAD));
    if now >= ready {
        Step::Switch
    } else if now >= current.to - AHEAD {
        Step::Announce
    } else {
        Step::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * day)
    }

    fn made(day: i64, life: SignedDuration) -> Validity {
        Validity::of_new(at(day), life)
    }

    #[test]
    fn what_the_ca_signs_is_made_anew_after_two_thirds_of_a_year() {
        let leaf = made(100, LEAF);
        for (day, due, over, warned) in [
            (0, false, false, false),
            (100, false, false, false),
            (342, false, false, false),
            (344, true, false, false),
            (434, true, false, false),
            (435, true, false, true),
            (465, true, false, true),
            (466, true, true, true),
        ] {
            let found = (leaf.due(at(day)), leaf.over(at(day)), leaf.warning(at(day)).is_some());
            assert_eq!(found, (due, over, warned), "day {day}");
        }
    }

    #[test]
    fn each_step_of_a_ca() {
        let current = made(0, CA);
        let end = 3650;
        for (next, day, wanted) in [
            (None, 0, Step::Keep),
            (None, end - 3 * 365 - 1, Step::Keep),
            (None, end - 3 * 365, Step::Announce),
            (Some(end - 1095), end - 1095, Step::Announce),
            (Some(end - 1095), end - 1095 + 365, Step::Announce),
            (Some(end - 1095), end - 1095 + 366, Step::Switch),
            // The server was down for years.
            (None, end - 2, Step::Announce),
            (Some(end - 2), end - 2, Step::Announce),
            (Some(end - 2), end - 1, Step::Switch),
            (None, end + 900, Step::Switch),
        ] {
            assert_eq!(step(current, next.map(|day| made(day, CA)), at(day)), wanted, "{next:?} on day {day}");
        }
    }
}
