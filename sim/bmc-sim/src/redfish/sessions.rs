//! The session service: logins with a token, a limit on their number, and an end by idleness.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// Longest context that a session keeps, in bytes.
const MAX_CONTEXT: usize = 256;

/// Type of a session's resource.
pub const SESSION_TYPE: &str = "#Session.v1_7_1.Session";

/// One login.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its id in the collection.
    pub id: u64,
    /// The secret that clients send with each request.
    pub token: String,
    /// The user who logged in.
    pub user: String,
    /// The client's `Context` for the session.
    pub context: Option<String>,
    created: Timestamp,
    used: Instant,
}

impl Session {
    /// The session's resource.
    #[must_use]
    pub fn resource(&self) -> Value {
        let mut body = json!({
            "@odata.type": SESSION_TYPE,
            "@odata.id": format!("/redfish/v1/SessionService/Sessions/{}", self.id),
            "Id": self.id.to_string(),
            "Name": "User Session",
            "Description": "Redfish user session",
            "UserName": self.user,
            "SessionType": "Redfish",
            "CreatedTime": self.created.to_string(),
        });
        if let Some(context) = &self.context {
            body["Context"] = json!(context);
        }
        body
    }
}

/// The sessions of one BMC.
#[derive(Default)]
pub struct Sessions {
    last: u64,
    open: Vec<Session>,
}

impl Sessions {
    fn expire(&mut self, now: Instant, idle: Duration) {
        self.open.retain(|session| now.saturating_duration_since(session.used) < idle);
    }

    /// Opens a session, unless `limit` are open.
    pub fn open(
        &mut self,
        user: &str,
        context: Option<&str>,
        limit: usize,
        (now, created): (Instant, Timestamp),
        idle: Duration,
    ) -> Option<Session> {
        self.expire(now, idle);
        if self.open.len() >= limit {
            return None;
        }
        self.last += 1;
        let context = context.map(|context| context.chars().take(MAX_CONTEXT).collect());
        let session = Session {
            id: self.last,
            token: Uuid::new_v4().simple().to_string(),
            user: user.to_owned(),
            context,
            created,
            used: now,
        };
        self.open.push(session.clone());
        Some(session)
    }

    /// Whether the token is a session's; if so, the session was used now.
    pub fn touch(&mut self, token: &str, now: Instant, idle: Duration) -> Option<u64> {
        self.expire(now, idle);
        let session = self.open.iter_mut().find(|session| session.token == token)?;
        session.used = now;
        Some(session.id)
    }

    /// The open sessions.
    pub fn list(&mut self, now: Instant, idle: Duration) -> &[Session] {
        self.expire(now, idle);
        &self.open
    }

    /// Closes a session; false if the id is unknown.
    pub fn close(&mut self, id: &str) -> bool {
        let before = self.open.len();
        self.open.retain(|session| session.id.to_string() != id);
        self.open.len() != before
    }

    /// Closes all.
    pub fn clear(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    #[test]
    fn sessions_are_limited_and_grow_old() {
        let mut sessions = Sessions::default();
        let start = Instant::now();
        let first = sessions.open("u", Some("context"), 2, (start, Timestamp::UNIX_EPOCH), IDLE).unwrap();
        let second = sessions.open("u", None, 2, (start, Timestamp::UNIX_EPOCH), IDLE).unwrap();
        assert_ne!(first.token, second.token);
        assert!(sessions.open("u", None, 2, (start, Timestamp::UNIX_EPOCH), IDLE).is_none());
        assert_eq!(first.resource()["Context"], "context");

        let later = start + Duration::from_secs(20);
        assert_eq!(sessions.touch(&second.token, later, IDLE), Some(2));
        let end = start + Duration::from_secs(40);
        assert_eq!(sessions.touch(&first.token, end, IDLE), None);
        assert_eq!(sessions.list(end, IDLE).len(), 1);
        assert!(sessions.open("u", None, 2, (end, Timestamp::UNIX_EPOCH), IDLE).is_some());
        assert!(sessions.close("2") && !sessions.close("2") && !sessions.close("two"));
    }
}
