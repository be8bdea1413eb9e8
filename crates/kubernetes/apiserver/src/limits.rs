//! Limits of concurrent requests by kind, and of the time of a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::reply::{self, Response};
use crate::route::Query;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::user::User;

/// Concurrent reading requests, as kube-apiserver's `--max-requests-inflight`.
const READ_ONLY: usize = 400;
/// Concurrent mutating requests, as kube-apiserver's `--max-mutating-requests-inflight`.
const MUTATING: usize = 200;
/// One user gets at most 1/`SHARE` of these, so that slow or busy clients leave places to others. (kube-apiserver
/// shares by its API Priority and Fairness.)
const SHARE: usize = 4;
/// Extra places for administrators, as a multiple of the normal ones. Upstream never refuses them, but memory is
/// limited.
const ADMINISTRATORS: usize = 10;
/// Time limit of a request, up to the start of a watch's stream.
pub const REQUEST_TIME: Duration = Duration::from_secs(60);

/// A place among the requests in flight, held by the response, and by a change that outlives its client's connection.
pub type Place = Arc<Held>;

/// See [`Place`].
#[derive(Debug)]
pub struct Held {
    _permit: OwnedSemaphorePermit,
    /// The sharer and the shares to return this place to; `None` for an administrator's.
    share: Option<(String, Arc<Shares>)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((user, shares)) = &self.share {
            shares.leave(user);
        }
    }
}

/// The number of places by sharer, for those that hold any.
#[derive(Debug, Default)]
struct Shares(Mutex<HashMap<String, usize>>);

impl Shares {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, user: &str, most: usize) -> bool {
        let mut held = self.lock();
        match held.get_mut(user) {
            Some(count) if *count >= most => false,
            Some(count) => {
                *count += 1;
                true
            }
            None => {
                held.insert(user.to_owned(), 1);
                true
            }
        }
    }

    fn leave(&self, user: &str) {
        let mut held = self.lock();
        if let Some(count) = held.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                held.remove(user);
            }
        }
    }
}

/// Requests in flight of one kind.
struct Kind {
    all: Arc<Semaphore>,
    administrators: Arc<Semaphore>,
    shares: Arc<Shares>,
    size: usize,
}

impl Kind {
    fn new(size: usize) -> Self {
        let reserve = size * ADMINISTRATORS;
        let (all, administrators) = (Arc::new(Semaphore::new(size)), Arc::new(Semaphore::new(reserve)));
        Self { all, administrators, shares: Arc::default(), size }
    }

    fn enter(&self, user: &User) -> Option<Place> {
        let permit = Arc::clone(&self.all).try_acquire_owned().ok();
        if user.groups.iter().any(|group| group == "system:masters") {
            let permit = permit.or_else(|| Arc::clone(&self.administrators).try_acquire_owned().ok());
            return permit.map(|permit| Arc::new(Held { _permit: permit, share: None }));
        }
        let permit = permit?;
        let most = self.size.div_ceil(SHARE);
        let whose = sharer(&user.name);
        let share = self.shares.enter(whose, most).then(|| (whose.to_owned(), Arc::clone(&self.shares)))?;
        Some(Arc::new(Held { _permit: permit, share: Some(share) }))
    }

    fn in_flight(&self) -> usize {
        let left = self.all.available_permits() + self.administrators.available_permits();
        (self.size * (1 + ADMINISTRATORS)).saturating_sub(left)
    }
}

/// The key for sharing: a user, or the namespace of a service account, because its owner can create many accounts.
fn sharer(user: &str) -> &str {
    let accounts = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    accounts.map_or(user, |(_, name)| &user[..user.len() - name.len()])
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

    /// Takes a place until the result is dropped; `None` if there is no free place.
    pub fn enter(&self, user: &User, mutating: bool) -> Option<Place> {
        if mutating { self.mutating.enter(user) } else { self.read_only.enter(user) }
    }

    /// Number of reading and mutating requests in flight.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.read_only.in_flight(), self.mutating.in_flight())
    }
}

/// 429 as plain text, as upstream.
pub fn too_many_requests() -> Response {
    let text = "Too many requests, please try again later.\n";
    let mut response = reply::plain(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The time limit of a request: the `timeout` parameter, within the server's own limit.
pub fn time_allowed(query: &Query) -> ApiResult<Duration> {
    let text = query.get("timeout");
    if text.is_empty() {
        return Ok(REQUEST_TIME);
    }
    let asked = duration(text)
        .map_err(|why| ApiError::bad_request(format!("invalid timeout specified in the request URL - time: {why}")))?;
    Ok(if asked.is_zero() { REQUEST_TIME } else { asked.min(REQUEST_TIME) })
}

/// Parses a Go duration such as `1m30.5s`; a negative one is zero.
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

/// 504 for a request that exceeded its time limit.
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
        let user = |name: &str| User { name: name.to_owned(), ..User::anonymous() };
        let ordinary = user("a");
        let mut administrator = User::anonymous();
        administrator.groups.push("system:masters".to_owned());
        let held: Vec<_> = ["a", "b"].map(|name| limits.enter(&user(name), false).unwrap()).into();
        assert!(limits.enter(&user("c"), false).is_none());
        let changing = limits.enter(&ordinary, true).unwrap();
        assert!(limits.enter(&ordinary, true).is_none());
        let reserved: Vec<_> = (0..20).map(|_| limits.enter(&administrator, false).unwrap()).collect();
        assert!(limits.enter(&administrator, false).is_none());
        assert_eq!(limits.in_flight(), (22, 1));
        drop((held, changing, reserved));
        assert_eq!(limits.in_flight(), (0, 0));
        assert!(limits.enter(&ordinary, false).is_some());
    }

    /// A user at its limit leaves three quarters to others, and gets another place after releasing one.
    #[test]
    fn one_user_leaves_places_to_others() {
        let limits = Limits::new(8, 8);
        let user = |name: &str| User { name: name.to_owned(), ..User::anonymous() };
        let mut held: Vec<_> = (0..2).map(|_| limits.enter(&user("greedy"), true).unwrap()).collect();
        assert!(limits.enter(&user("greedy"), true).is_none());
        assert!(limits.enter(&user("greedy"), false).is_some(), "reads are counted apart");
        let others: Vec<_> = (0..6).map(|n| limits.enter(&user(&format!("u{n}")), true).unwrap()).collect();
        assert!(limits.enter(&user("late"), true).is_none(), "all are taken");
        let account = |name: &str| limits.enter(&user(&format!("system:serviceaccount:team:{name}")), false);
        let accounts = [account("a").unwrap(), account("b").unwrap()];
        assert!(account("c").is_none(), "the accounts of a namespace share one part");
        drop(accounts);
        held.pop();
        assert!(limits.enter(&user("greedy"), true).is_some());
        drop((held, others));
        assert_eq!(limits.in_flight(), (0, 0));
        assert!(limits.mutating.shares.lock().is_empty() && limits.read_only.shares.lock().is_empty());
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
