//! The Redfish service of one BMC: authentication, the tree, and its actions.

pub mod actions;
pub mod answer;
pub mod bios;
mod collection;
pub mod events;
pub mod ill;
pub mod part_types;
pub mod paths;
pub mod push;
pub mod recorded;
pub mod request;
pub mod services;
pub mod sessions;
pub mod tasks;
pub mod tree;

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    bmc::{Bmc, lock},
    settings::Settings,
};
use answer::Answer;
use request::{Identity, Request};

/// Identifies the sender of a request.
#[must_use]
pub fn identify(bmc: &Bmc, headers: &HeaderMap) -> Identity {
    let settings = bmc.settings.borrow().clone();
    if let Some(token) = headers.get("x-auth-token") {
        let token = token.to_str().unwrap_or_default();
        let touched = lock(&bmc.sessions).touch(token, Instant::now(), settings.session_idle());
        return touched.filter(|_| settings.sessions).map_or(Identity::Refused, Identity::Session);
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Identity::Nobody };
    let credentials = value.to_str().ok().and_then(|value| {
        let (scheme, data) = value.split_once(' ')?;
        let data = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(data.trim()).ok())??;
        String::from_utf8(data).ok()
    });
    let valid = credentials.as_deref().and_then(|text| text.split_once(':')).is_some_and(|(user, password)| {
        let account = lock(&bmc.account);
        settings.basic_auth && account.0 == user && account.1 == password
    });
    if valid { Identity::Basic } else { Identity::Refused }
}

/// Answers a request.
pub async fn answer(bmc: &Arc<Bmc>, request: &Request, identity: Identity) -> Answer {
    let path = request.path.as_str();
    let method = request.method.as_str();
    let reading = matches!(method, "GET" | "HEAD");
    if reading && path == "/redfish" {
        return Answer::resource(json!({ "v1": "/redfish/v1/" }));
    }
    let settings = bmc.settings.borrow().clone();
    let signed_in = matches!(identity, Identity::Session(_) | Identity::Basic);
    if let Some(answer) = ill::access::refusal(&settings.ailments, request, signed_in) {
        return answer;
    }
    let sessions = "/redfish/v1/SessionService/Sessions";
    if settings.sessions && method == "POST" && matches!(path.strip_prefix(sessions), Some("" | "/Members")) {
        return open_session(bmc, request, &settings);
    }
    let open = reading && matches!(path, "/redfish/v1" | "/redfish/v1/odata" | "/redfish/v1/$metadata");
    if !open && !signed_in {
        let message = "The request needs a valid session token or user name and password.";
        let challenge = "Basic realm=\"Redfish\"";
        return Answer::error(401, "NoValidSession", message, &[]).with(header::WWW_AUTHENTICATE, challenge);
    }
    if reading && path == "/redfish/v1/$metadata" {
        return Answer::document("application/xml", services::metadata());
    }
    if let Some(answer) = task_answer(bmc, path, reading) {
        return answer;
    }
    if method == "GET" && path == push::STREAM && settings.events.streams() {
        return Answer::stream();
    }
    if reading {
        let page = ill::logs::page(bmc, path, &request.query, &settings.ailments);
        return page.or_else(|| tree::resource(bmc, path)).map_or_else(
            || Answer::not_found(path),
            |body| {
                let tag = tree::etag(&body);
                Answer::resource(body).with(header::ETAG, tag).with(header::ALLOW, allowed(bmc, path))
            },
        );
    }
    if method == "DELETE"
        && let Some(id) = path.strip_prefix("/redfish/v1/SessionService/Sessions/")
    {
        let closed = lock(&bmc.sessions).close(id);
        if !closed {
            return Answer::not_found(path);
        }
        bmc.event("session", json!({ "closed": id }));
        return Answer::empty(204);
    }
    if let Some(below) = path.strip_prefix(events::SUBSCRIPTIONS).filter(|_| settings.events.subscriptions()) {
        return match (below, method) {
            ("" | "/Members", "POST") => match request.object() {
                Some(body) => {
                    let made = lock(&bmc.subscriptions).make(body);
                    bmc.event("subscription", json!({ "status": made.status }));
                    made
                }
                None => Answer::malformed(),
            },
            ("", _) => Answer::not_allowed(method, "GET, HEAD, POST"),
            (_, "DELETE") if lock(&bmc.subscriptions).end(path) => {
                bmc.event("subscription", json!({ "ended": path }));
                Answer::empty(204)
            }
            (_, "DELETE") => Answer::not_found(path),
            _ => Answer::not_allowed(method, "GET, HEAD, DELETE"),
        };
    }
    actions::answer(bmc, request, &settings).await
}

/// The methods that a resource supports, for `Allow`.
fn allowed(bmc: &Bmc, path: &str) -> &'static str {
    let made = path.strip_prefix("/redfish/v1/SessionService/Sessions");
    match made.or_else(|| path.strip_prefix(events::SUBSCRIPTIONS)) {
        Some("") => "GET, HEAD, POST",
        Some(_) => "GET, HEAD, DELETE",
        None if actions::changeable(bmc, path) => "GET, HEAD, PATCH",
        None => "GET, HEAD",
    }
}

/// Whether a query requests subordinate resources in place of links (`$expand` with `.` or `*`, DSP0266).
fn expands(query: &str) -> bool {
    query.split('&').any(|part| {
        let value = part.strip_prefix("$expand=").or_else(|| part.strip_prefix("%24expand="));
        value.is_some_and(|value| value.starts_with('.') || value.starts_with('*'))
    })
}

/// Puts subordinate resources in place of the links to them, one level deep, if the query requests it. `shown` is what a BMC shows of a path; a
/// link without it stays a link.
pub fn expand(query: &str, body: &mut Value, mut shown: impl FnMut(&str) -> Option<Value>) {
    if !expands(query) {
        return;
    }
    let mut replace = |link: &mut Value| {
        let target = link.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("@odata.id"));
        let target = target.and_then(Value::as_str).map(|path| path.trim_end_matches('/').to_owned());
        if let Some(resource) = target.and_then(|path| shown(&path)) {
            *link = resource;
        }
    };
    for (name, value) in body.as_object_mut().into_iter().flatten() {
        match value {
            Value::Array(links) if name == "Members" => links.iter_mut().for_each(&mut replace),
            Value::Object(_) if name != "Links" => replace(value),
            _ => {}
        }
    }
}

fn open_session(bmc: &Bmc, request: &Request, settings: &Settings) -> Answer {
    let Some(body) = request.object() else { return Answer::malformed() };
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let (Some(user), Some(password)) = (text("UserName"), text("Password")) else {
        let message = "A session is opened with UserName and Password.";
        return Answer::error(400, "PropertyMissing", message, &["UserName"]);
    };
    let valid = {
        let account = lock(&bmc.account);
        account.0 == user && account.1 == password
    };
    if !valid {
        let message = "There is no account with this user name and password.";
        return Answer::error(401, "ResourceAtUriUnauthorized", message, &["/redfish/v1/SessionService/Sessions"]);
    }
    if let Some(answer) = ill::access::sign_in(&settings.ailments) {
        return answer;
    }
    let (limit, idle) = (settings.session_limit, settings.session_idle());
    let opened = lock(&bmc.sessions).open(user, text("Context"), limit, (Instant::now(), (bmc.shared.now)()), idle);
    let Some(session) = opened else {
        let message = format!("All {limit} sessions that the service can hold are open.");
        return Answer::error(503, "SessionLimitExceeded", message, &[]);
    };
    bmc.event("session", json!({ "opened": session.id, "context": session.context }));
    let location = format!("/redfish/v1/SessionService/Sessions/{}", session.id);
    let mut resource = session.resource();
    if settings.ailments.has(crate::ailments::Ailment::PasswordChangeRequired) {
        // DSP0266, "Password change required handling": the session is made, and says so.
        let text = "The password of this account must be changed before anything else is done.";
        let account = "/redfish/v1/AccountService/Accounts/1";
        let told = Answer::error(403, "PasswordChangeRequired", text, &[account]);
        let messages = told.body.map(|body| body["error"]["@Message.ExtendedInfo"].clone());
        resource["@Message.ExtendedInfo"] = messages.unwrap_or_default();
    }
    let mut answer = Answer::resource(resource).with(header::LOCATION, location);
    answer.status = 201;
    answer.with(header::HeaderName::from_static("x-auth-token"), session.token)
}

/// Tasks and their monitors.
fn task_answer(bmc: &Bmc, path: &str, reading: bool) -> Option<Answer> {
    let rest = path.strip_prefix("/redfish/v1/TaskService/")?;
    let (kind, id) = rest.split_once('/')?;
    let tasks = lock(&bmc.tasks);
    let found = match kind {
        "Tasks" => tasks.task(id).or_else(|| ill::tasks::task(bmc, id)),
        "TaskMonitors" => tasks.monitor(id),
        _ => None,
    };
    Some(match found {
        Some(answer) if reading => answer,
        Some(_) => Answer::not_allowed("this method", "GET, HEAD"),
        None => Answer::not_found(path),
    })
}
