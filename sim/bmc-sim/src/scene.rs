//! Conditions of fault rules beyond method and path: the machine's state, the connection, and the request's content.

use std::{collections::BTreeMap, time::Duration};

use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request and the machine that it meets.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Method.
    pub method: &'a str,
    /// Path without a slash at its end.
    pub path: &'a str,
    /// Headers.
    pub headers: &'a HeaderMap,
    /// JSON body, if there is one.
    pub body: Option<&'a Value>,
    /// Whether the connection has carried a request before.
    pub reused: bool,
    /// Whether the machine is on.
    pub power: bool,
    /// Since the machine was last switched on or off, or restarted.
    pub since_power: Duration,
    /// Whether a medium is in the drive.
    pub medium: bool,
}

impl<'a> Scene<'a> {
    /// A GET of a path on a new connection; the machine has been off for long.
    #[must_use]
    pub const fn of(path: &'a str, headers: &'a HeaderMap) -> Self {
        let since_power = Duration::MAX;
        Self { method: "GET", path, headers, body: None, reused: false, power: false, since_power, medium: false }
    }
}

/// The conditions of a rule; absent ones always hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Condition {
    /// The machine is on, or off.
    pub power: Option<bool>,
    /// The machine was switched on or off, or restarted, at most this many milliseconds ago: it is in its self-test.
    pub within_ms: Option<u64>,
    /// A medium is in the drive, or not.
    pub medium: Option<bool>,
    /// The connection has carried a request before, or not.
    pub reused: Option<bool>,
    /// The request has this header.
    pub header: Option<String>,
    /// The request does not have this header.
    pub no_header: Option<String>,
    /// The body has all these fields (JSON pointers, RFC 6901).
    pub has: Vec<String>,
    /// The body lacks at least one of these fields.
    pub lacks: Vec<String>,
    /// The body has these values at these pointers.
    pub is: BTreeMap<String, Value>,
}

impl Condition {
    /// Whether all of it holds.
    #[must_use]
    pub fn holds(&self, scene: &Scene<'_>) -> bool {
        let field = |pointer: &String| scene.body.and_then(|body| body.pointer(pointer));
        let header = |name: &String| scene.headers.contains_key(name.as_str());
        self.power.is_none_or(|power| power == scene.power)
            && self.within_ms.is_none_or(|ms| scene.since_power <= Duration::from_millis(ms))
            && self.medium.is_none_or(|medium| medium == scene.medium)
            && self.reused.is_none_or(|reused| reused == scene.reused)
            && self.header.as_ref().is_none_or(header)
            && !self.no_header.as_ref().is_some_and(header)
            && self.has.iter().all(|pointer| field(pointer).is_some())
            && (self.lacks.is_empty() || self.lacks.iter().any(|pointer| field(pointer).is_none()))
            && self.is.iter().all(|(pointer, value)| field(pointer) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_is_asked_for_must_hold() {
        let headers = HeaderMap::from_iter([("if-match".parse().unwrap(), "x".parse().unwrap())]);
        let body = json!({ "Boot": { "Target": "Cd" } });
        let scene = Scene { body: Some(&body), power: true, ..Scene::of("/a", &headers) };
        for (condition, holds) in [
            (json!({}), true),
            (json!({ "power": true, "medium": false, "reused": false }), true),
            (json!({ "power": false }), false),
            (json!({ "withinMs": 5000 }), false),
            (json!({ "header": "if-match" }), true),
            (json!({ "noHeader": "if-match" }), false),
            (json!({ "has": ["/Boot/Target"] }), true),
            (json!({ "has": ["/Boot/Target", "/Boot/Mode"] }), false),
            (json!({ "lacks": ["/Boot/Target", "/Boot/Mode"] }), true),
            (json!({ "lacks": ["/Boot/Target"] }), false),
            (json!({ "is": { "/Boot/Target": "Cd" } }), true),
            (json!({ "is": { "/Boot/Target": "Hdd" } }), false),
        ] {
            let read: Condition = serde_json::from_value(condition.clone()).unwrap();
            assert_eq!(read.holds(&scene), holds, "{condition}");
        }
    }
}
