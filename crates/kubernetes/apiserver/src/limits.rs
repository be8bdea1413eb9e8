//! What the server bears at once: requests in flight by kind, and the time a request may take.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::User;
use crate::reply::{self, Response};
use crate::route::Query;
use crate::status::{ApiError, ApiResult, StatusReason};

/// Reading requests at once, as kube-apiserver's `--max-requests-inflight`.
const READ_ONLY: usize = 400;
/// Changing requests at once, as kube-apiserver's `--max-mutating-requests-inflight`.
const MUTATING: usize = 200;
/// How many times as much administrators get: upstream never refuses them, but memory has an end.
const ADMINISTRATORS: usize = 10;
/// Time for a whole request, up to the beginning of a watch's stream.
pub const REQUEST_TIME: Duration = Duration::from_secs(60);

/// A place among the requests in flight: held by the answer, and by a change that goes on without its client.
pub type Place = Arc<OwnedSemaphorePermit>;

/// Requests in flight of one kind.
struct Kind {
    all: Arc<Semaphore>,
    administrators: Arc<Semaphore>,
    size: usize,
}

impl Kind {
    fn new(size: usize) -> Self {
        let reserve = size * ADMINISTRATORS;
        Self { all: Arc::new(Semaphore::new(size)), administrators: Arc::new(Semaphore::new(reserve)), size }
    }

    fn enter(&self, user: &User) -> Option<Place> {
        let ordinary = Arc::clone(&self.all).try_acquire_owned().ok();
        if ordinary.is_some() || !user.groups.iter().any(|group| group == "system:masters") {
            return ordinary.map(Arc::new);
        }
        Arc::clone(&self.administrators).try_acquire_owned().ok().map(Arc::new)
    }

    fn in_flight(&self) -> usize {
        let left = self.all.available_permits() + self.administrators.available_permits();
        (self.size * (1 + ADMINISTRATORS)).saturating_sub(left)
    }
}

/// All requests in flight but watches.
pub struct Limits {
    read_only: Kind,
    mutating: Kind,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(READ_ONLY, MUTATING)
    }
}

impl Limits {
    fn new(read_only: usize, mutating: usize) -> Self {
        Self { read_only: Kind::new(read_only), mutating: Kind::new(mutating) }
    }

    /// Takes a place for as long as the result is held; none is left under pressure.
    pub fn enter(&self, user: &User, mutating: bool) -> Option<Place> {
        if mutating { self.mutating.enter(user) } else { self.read_only.enter(user) }
    }

    /// Reading and changing requests in flight.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.read_only.in_flight(), self.mutating.in_flight())
    }
}

/// 429, in upstream's form: plain text.
pub fn too_many_requests() -> Response {
    let text = "Too many requests, please try again later.\n";
    let mut response = reply::plain(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The time that a request may take: the `timeout` parameter, within the server's own limit.
pub fn time_allowed(query: &Query) -> ApiResult<Duration> {
    let text = query.get("timeout");
    if text.is_empty() {
        return Ok(REQUEST_TIME);
    }
    let asked = duration(text)
        .map_err(|why| ApiError::bad_request(format!("invalid timeout specified in the request URL - time: {why}")))?;
    Ok(if asked.is_zero() { REQUEST_TIME } else { asked.min(REQUEST_TIME) })
}

/// A duration as Go writes it, such as `1m30.5s`; negative ones count as none.
fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("invalid duration {text:?}");
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() || seconds == 0.0 {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("missing unit in duration {text:?}")),
            other => return Err(format!("unknown unit {other:?} in duration {text:?}")),
        };
        seconds += number * scale;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    if !(0.0..9.3e9).contains(&seconds) {
        return Err(invalid());
    }
    Ok(if negative { Duration::ZERO } else { Duration::from_secs_f64(seconds) })
}

/// 504 for a request that took too long.
pub fn timed_out() -> ApiError {
    ApiError::new(
        StatusCode::GATEWAY_TIMEOUT,
        StatusReason::Timeout,
        "Timeout: request did not complete within the allotted timeout",
    )
    .with_details()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_users_are_refused_before_administrators() {
        let limits = Limits::new(2, 1);
        let ordinary = User::anonymous();
        let mut administrator = User::anonymous();
        administrator.groups.push("system:masters".to_owned());
        let held: Vec<_> = (0..2).map(|_| limits.enter(&ordinary, false).unwrap()).collect();
        assert!(limits.enter(&ordinary, false).is_none());
        let changing = limits.enter(&ordinary, true).unwrap();
        assert!(limits.enter(&ordinary, true).is_none());
        let reserved: Vec<_> = (0..20).map(|_| limits.enter(&administrator, false).unwrap()).collect();
        assert!(limits.enter(&administrator, false).is_none());
        assert_eq!(limits.in_flight(), (22, 1));
        drop((held, changing, reserved));
        assert_eq!(limits.in_flight(), (0, 0));
        assert!(limits.enter(&ordinary, false).is_some());
    }

    #[test]
    fn durations_are_gos() {
        assert_eq!(duration("1m30.5s"), Ok(Duration::from_millis(90_500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(duration("-5s"), Ok(Duration::ZERO));
        assert_eq!(duration("10").unwrap_err(), "missing unit in duration \"10\"");
        assert_eq!(duration("10x").unwrap_err(), "unknown unit \"x\" in duration \"10x\"");
        assert_eq!(duration("abc").unwrap_err(), "invalid duration \"abc\"");
        assert_eq!(time_allowed(&Query::parse("timeout=99h")), Ok(REQUEST_TIME));
        assert_eq!(time_allowed(&Query::parse("timeout=5s")), Ok(Duration::from_secs(5)));
        let refused = time_allowed(&Query::parse("timeout=abc")).unwrap_err();
        assert_eq!(refused.message, "invalid timeout specified in the request URL - time: invalid duration \"abc\"");
    }

    proptest! {
        #[test]
        fn no_duration_panics(text in "[-+0-9.a-zµ]{0,24}") {
            let _ = duration(&text);
        }
    }
}
