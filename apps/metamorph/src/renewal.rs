//! When to replace a certificate, and which one to serve meanwhile: a pure function of the times at which they were made.
//!
//! The next certificate is made after two thirds of a life. Clients receive it before it is served, and keep the one before for the same time again
//! afterwards: a client that trusts either one can connect.

use jiff::{SignedDuration, Timestamp};

/// How long a certificate lives, and how long clients know it before it is served.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From creation to expiry.
    pub life: SignedDuration,
    /// From creation to first use.
    pub lead: SignedDuration,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether to make the next certificate.
    pub make: bool,
    /// Index of the certificate to serve.
    pub served: usize,
    /// Index of the first certificate that clients must trust, with all after it; those before it are obsolete.
    pub given: usize,
}

/// Whether a certificate or key made at this time must be replaced.
pub fn due(made: Timestamp, now: Timestamp, life: SignedDuration) -> bool {
    now.duration_since(made) >= life / 3 * 2
}

/// The plan for certificates made at these times, the oldest first; `None` without any.
pub fn plan(made: &[Timestamp], now: Timestamp, times: Times) -> Option<Plan> {
    let newest = made.len().checked_sub(1)?;
    let age = |index: usize| made.get(index).map_or(SignedDuration::ZERO, |made| now.duration_since(*made));
    let known = (0..=newest).rev().find(|index| age(*index) >= times.lead).unwrap_or(0);
    // An expired certificate is never served, even if the next one is not yet known.
    let served = if age(known) < times.life { known } else { newest };
    let overlap = served > 0 && age(served) < times.lead * 2;
    Some(Plan { make: age(newest) >= times.life / 3 * 2, served, given: served - usize::from(overlap) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);
    const TIMES: Times = Times { life: SignedDuration::from_hours(300), lead: SignedDuration::from_hours(10) };

    fn at(hour: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hour)
    }

    #[test]
    fn each_hour_of_a_replacement() {
        let one = |make, served, given| Some(Plan { make, served, given });
        for (made, now, wanted) in [
            (&[][..], 0, None),
            (&[0], 0, one(false, 0, 0)),
            (&[0], 199, one(false, 0, 0)),
            (&[0], 200, one(true, 0, 0)),
            (&[0, 200], 200, one(false, 0, 0)),
            (&[0, 200], 209, one(false, 0, 0)),
            (&[0, 200], 210, one(false, 1, 0)),
            (&[0, 200], 219, one(false, 1, 0)),
            (&[0, 200], 220, one(false, 1, 1)),
            (&[200], 399, one(false, 0, 0)),
            (&[200], 400, one(true, 0, 0)),
            // The server was down: an expired certificate is not served, however new the next one is.
            (&[0, 305], 306, one(false, 1, 0)),
            (&[0], 900, one(true, 0, 0)),
            // A clock that was fast.
            (&[50], 0, one(false, 0, 0)),
        ] {
            let made: Vec<_> = made.iter().map(|hour| at(*hour)).collect();
            assert_eq!(plan(&made, at(now), TIMES), wanted, "{made:?} at {now} h");
        }
    }

    /// Years of a server that checks its certificates at its own pace, and of clients that fetch the trusted ones at theirs.
    #[test]
    fn whoever_has_learned_what_to_trust_within_the_lead_is_served() {
        for pause in [1, 3, 7] {
            let (mut made, mut now, mut learned) = (vec![at(0)], at(0), Vec::new());
            for _ in 0..3000 / pause {
                now += HOUR * pause;
                let mut plan_now = plan(&made, now, TIMES).unwrap();
                if plan_now.make {
                    made.push(now);
                    plan_now = plan(&made, now, TIMES).unwrap();
                }
                let served = made[plan_now.served];
                assert!(now.duration_since(served) < TIMES.life, "an ended one is served");
                // Clients that asked within the last lead, less one check, knew of it.
                learned.retain(|(when, _): &(Timestamp, Vec<Timestamp>)| {
                    now.duration_since(*when) <= TIMES.lead - HOUR * pause
                });
                for (when, known) in &learned {
                    assert!(known.contains(&served), "at {now} {served} is served, and {when} was told of {known:?}");
                }
                made.drain(..plan_now.given);
                assert!(made.len() <= 2);
                learned.push((now, made.clone()));
            }
        }
    }
}
