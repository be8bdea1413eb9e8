//! A BMC in memory, as small as the tests need: recorded resources, sessions, media, power, and a script of odd answers.
//!
//! It shares no type with the client but the transport's own.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bmc::{Address, BmcRegistry, Credentials, Pacer};
use http::{HeaderMap, HeaderName, HeaderValue};
use redfish::{Client, ClientOptions, Opened, Pieces, Request, Response, Transport, TransportError};
use serde_json::{Value, json};

pub const PASSWORD: &str = "correct-horse";
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// One request as the BMC saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub body: Value,
    pub if_match: Option<String>,
    pub auth: &'static str,
}

/// An odd answer, given once, to the first request that fits.
pub struct Step {
    pub method: &'static str,
    pub path: &'static str,
    pub answer: Odd,
}

pub enum Odd {
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    Fail(TransportError),
    /// Does what it should and then loses the connection.
    DropAfter,
}

#[derive(Default)]
pub struct Inner {
    pub resources: BTreeMap<String, Value>,
    pub sessions: BTreeMap<u32, (String, Value)>,
    pub next: u32,
    pub log: Vec<Seen>,
    pub script: VecDeque<Step>,
    pub session_limit: usize,
    pub refuse_context: bool,
    /// What Supermicro's IsoConfig mounts is in the drive afterwards.
    pub iso_config_mounts: bool,
    pub no_sessions: bool,
    /// No token is accepted.
    pub refuse_tokens: bool,
    /// Nor are user and password with a request.
    pub refuse_basic: bool,
    pub no_location: bool,
    /// Tokens that are refused although their sessions exist.
    pub revoked: Vec<String>,
    /// Entity tags, by path; checked when If-Match is there.
    pub etags: BTreeMap<String, String>,
}

/// The BMC.
pub struct Bmc {
    pub inner: Mutex<Inner>,
    pub latency: Duration,
    pub in_flight: std::sync::atomic::AtomicU32,
    pub most_in_flight: std::sync::atomic::AtomicU32,
}

pub fn fixture(set: &str, name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(set).join(name);
    serde_json::from_slice(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// All resources of a recorded set, by path.
pub fn tree(set: &str) -> BTreeMap<String, Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(set);
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let id = value["@odata.id"].as_str().unwrap().trim_end_matches('/').to_owned();
            out.insert(id, value);
        }
    }
    assert!(out.len() > 3);
    out
}

impl Bmc {
    pub fn new(set: &str) -> Arc<Self> {
        let inner = Inner { resources: tree(set), session_limit: 8, next: 1, ..Inner::default() };
        Arc::new(Self {
            inner: Mutex::new(inner),
            latency: Duration::ZERO,
            in_flight: 0.into(),
            most_in_flight: 0.into(),
        })
    }

    /// The usual BMC: the generic tree, its drive given actions and emptied.
    pub fn generic() -> Arc<Self> {
        let bmc = Self::new("dmtf-generic");
        bmc.edit(CD, |cd| {
            cd["Actions"] = json!({
                "#VirtualMedia.InsertMedia": {"target": format!("{CD}/Actions/VirtualMedia.InsertMedia")},
                "#VirtualMedia.EjectMedia": {"target": format!("{CD}/Actions/VirtualMedia.EjectMedia")},
            });
            cd["Inserted"] = false.into();
            cd["Image"] = Value::Null;
        });
        bmc
    }

    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        change(self.inner.lock().unwrap().resources.get_mut(path).unwrap());
    }

    pub fn set(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner.lock().unwrap());
    }

    pub fn script(&self, method: &'static str, path: &'static str, answer: Odd) {
        self.inner.lock().unwrap().script.push_back(Step { method, path, answer });
    }

    /// What was requested, as `METHOD path`, and forgets it.
    pub fn take_log(&self) -> Vec<String> {
        self.take_seen().into_iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect()
    }

    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.inner.lock().unwrap().log)
    }

    pub fn script_is_used_up(&self) -> bool {
        self.inner.lock().unwrap().script.is_empty()
    }

    pub fn resource(&self, path: &str) -> Value {
        self.inner.lock().unwrap().resources[path].clone()
    }

    pub fn session_count(&self) -> usize {
        self.inner.lock().unwrap().sessions.len()
    }

    /// A session that somebody else made.
    pub fn foreign_session(&self, user: &str, context: Option<&str>) -> String {
        let mut inner = self.inner.lock().unwrap();
        let id = inner.next;
        inner.next += 1;
        let path = format!("{SESSIONS}/{id}");
        let mut session = json!({"@odata.id": path, "Id": id.to_string(), "UserName": user});
        if let Some(context) = context {
            session["Context"] = context.into();
        }
        inner.sessions.insert(id, (format!("foreign-{id}"), session));
        path
    }
}

pub const SYSTEM: &str = "/redfish/v1/Systems/437XR1138R2";
pub const EVENTS: &str = "/redfish/v1/EventService";
pub const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";
pub const CD: &str = "/redfish/v1/Systems/437XR1138R2/VirtualMedia/CD1";

fn answer(status: u16, body: Value) -> Response {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Response { status, headers: HeaderMap::new(), body, reused: false, path: String::new() }
}

pub fn error_body(key: &str, text: &str) -> Value {
    json!({"error": {"code": "Base.1.8.GeneralError", "message": "See ExtendedInfo.",
        "@Message.ExtendedInfo": [{"MessageId": format!("Base.1.8.{key}"), "Message": text}]}})
}

impl Inner {
    fn serve(&mut self, request: &Request) -> Response {
        let method = request.method.as_str();
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let path = path.trim_end_matches('/').to_owned();
        let body: Value = request.body.as_deref().map_or(Value::Null, |body| serde_json::from_slice(body).unwrap());
        if method == "POST" && path == SESSIONS {
            return if self.no_sessions { answer(404, Value::Null) } else { self.sign_in(&body) };
        }
        let open = method == "GET" && path == "/redfish/v1";
        if !open && !self.allowed(request) {
            return answer(401, error_body("NoValidSession", "There is no valid session."));
        }
        if let Some(id) = path.strip_prefix(&format!("{SESSIONS}/")) {
            return self.session(method, id.parse().unwrap());
        }
        if path == SESSIONS && !self.no_sessions {
            let expand = query.contains("expand");
            let members: Vec<Value> = self
                .sessions
                .values()
                .map(|(_, s)| if expand { s.clone() } else { json!({"@odata.id": s["@odata.id"]}) })
                .collect();
            return answer(200, json!({"Members": members}));
        }
        if let Some((owner, action)) = path.split_once("/Actions/") {
            return self.act(owner, action, &body);
        }
        if method == "POST" && path.ends_with("/Certificates") && self.resources.contains_key(&path) {
            let member = format!("{path}/{}", self.resources.len());
            self.resources.insert(member.clone(), body);
            let list = self.resources.get_mut(&path).unwrap()["Members"].as_array_mut().unwrap();
            list.push(json!({"@odata.id": member}));
            return answer(201, Value::Null);
        }
        if path.starts_with(SUBSCRIPTIONS) && (method == "POST" || method == "DELETE") {
            return self.subscription(method, &path, body);
        }
        if method == "GET" && query.contains("expand") && self.resources.contains_key(&path) {
            return answer(200, self.expanded(&path));
        }
        let Some(resource) = self.resources.get_mut(&path) else {
            return answer(404, error_body("ResourceMissingAtURI", "The resource was not found."));
        };
        let tag = self.etags.get(&path).cloned();
        match method {
            "GET" => {
                let mut response = answer(200, resource.clone());
                if let Some(tag) = tag {
                    response.headers.insert("etag", tag.parse().unwrap());
                }
                response
            }
            "PATCH" => {
                let given = request.headers.get("if-match").map(|value| value.to_str().unwrap().to_owned());
                if let (Some(tag), Some(given)) = (&tag, given)
                    && *tag != given
                {
                    return answer(412, error_body("PreconditionFailed", "The entity tag does not match."));
                }
                merge(resource, &body);
                if let Some(tag) = tag {
                    self.etags.insert(path, format!("\"{}x\"", tag.trim_matches('"')));
                }
                answer(204, Value::Null)
            }
            _ => answer(405, error_body("OperationNotAllowed", "Not allowed.")),
        }
    }

    /// A collection with its members in place of the links to them.
    pub fn expanded(&self, path: &str) -> Value {
        let mut collection = self.resources[path].clone();
        for member in collection["Members"].as_array_mut().into_iter().flatten() {
            let whole = member["@odata.id"].as_str().and_then(|id| self.resources.get(id));
            *member = whole.unwrap_or(member).clone();
        }
        collection
    }

    fn allowed(&self, request: &Request) -> bool {
        if let Some(token) = request.headers.get("x-auth-token") {
            let token = token.to_str().unwrap();
            return !self.refuse_tokens
                && self.sessions.values().any(|(known, _)| known == token)
                && !self.revoked.iter().any(|r| r == token);
        }
        // base64 of root:correct-horse
        !self.refuse_basic
            && request.headers.get("authorization").is_some_and(|value| value == "Basic cm9vdDpjb3JyZWN0LWhvcnNl")
    }

    fn sign_in(&mut self, body: &Value) -> Response {
        if body["UserName"] != "root" || body["Password"] != PASSWORD {
            return answer(401, error_body("ResourceAtUriUnauthorized", "Wrong user or password."));
        }
        if self.refuse_context && body.get("Context").is_some() {
            let text = "The property Context is unknown.";
            return answer(400, error_body("PropertyUnknown", text));
        }
        if self.sessions.len() >= self.session_limit {
            return answer(503, error_body("SessionLimitExceeded", "Too many sessions."));
        }
        let id = self.next;
        self.next += 1;
        let path = format!("{SESSIONS}/{id}");
        let mut session = json!({"@odata.id": path, "Id": id.to_string(), "UserName": "root"});
        if let Some(context) = body.get("Context") {
            session["Context"] = context.clone();
        }
        let token = format!("token-{id}");
        self.sessions.insert(id, (token.clone(), session.clone()));
        let mut response = answer(201, session);
        response.headers.insert("x-auth-token", token.parse().unwrap());
        if !self.no_location {
            // Whole URLs with another name occur: behind address translation, for instance.
            response.headers.insert("location", format!("https://bmc.internal{path}").parse().unwrap());
        }
        response
    }

    fn session(&mut self, method: &str, id: u32) -> Response {
        match method {
            "GET" => self.sessions.get(&id).map_or_else(|| answer(404, Value::Null), |(_, s)| answer(200, s.clone())),
            "DELETE" if self.sessions.remove(&id).is_some() => answer(204, Value::Null),
            "DELETE" => answer(404, Value::Null),
            _ => answer(405, Value::Null),
        }
    }

    /// Subscriptions are made in their collection, and ended one by one.
    fn subscription(&mut self, method: &str, path: &str, body: Value) -> Response {
        let Some(list) = self.resources.get_mut(SUBSCRIPTIONS) else { return answer(404, Value::Null) };
        let members = list["Members"].as_array_mut().unwrap();
        if method == "DELETE" {
            members.retain(|member| member["@odata.id"] != path);
            return answer(if self.resources.remove(path).is_some() { 204 } else { 404 }, Value::Null);
        }
        let member = format!("{SUBSCRIPTIONS}/{}", self.next);
        members.push(json!({"@odata.id": member}));
        let mut made = body;
        // A service never shows the headers again (EventDestination, HttpHeaders).
        (made["@odata.id"], made["HttpHeaders"]) = (member.clone().into(), json!([]));
        self.resources.insert(member.clone(), made.clone());
        self.next += 1;
        let mut response = answer(201, made);
        response.headers.insert("location", member.parse().unwrap());
        response
    }

    /// Supermicro: the drive is there while something is in it.
    fn iso_config(&mut self, list: &str, action: &str) -> Response {
        let drive = format!("{list}/CD1");
        if action == "IsoConfig.UnMount" {
            self.resources.remove(&drive);
        } else if self.iso_config_mounts {
            let value =
                json!({"@odata.id": drive, "MediaTypes": ["CD", "DVD"], "Inserted": true, "ConnectedVia": "URI"});
            self.resources.insert(drive, value);
        }
        answer(200, json!({"Success": {"code": "Base.1.0.0.Success"}}))
    }

    fn act(&mut self, owner: &str, action: &str, body: &Value) -> Response {
        if let Some(list) = owner.strip_suffix("/CfgCD") {
            return self.iso_config(list, action);
        }
        let Some(resource) = self.resources.get_mut(owner) else { return answer(404, Value::Null) };
        if action.starts_with("Oem/") && body.as_object().unwrap().keys().any(|name| name != "Image") {
            return answer(400, error_body("ActionParameterUnknown", "Unknown parameter."));
        }
        match action {
            "VirtualMedia.InsertMedia" | "Oem/Hp/HpiLOVirtualMedia.InsertVirtualMedia" => {
                if resource["Inserted"] == true {
                    return answer(409, error_body("ResourceInUse", "A medium is in."));
                }
                resource["Inserted"] = true.into();
                resource["Image"] = body["Image"].clone();
            }
            "VirtualMedia.EjectMedia" | "Oem/Hp/HpiLOVirtualMedia.EjectVirtualMedia" => {
                if resource["Inserted"] != true {
                    return answer(400, error_body("NoMedia", "No medium."));
                }
                resource["Inserted"] = false.into();
                resource["Image"] = Value::Null;
            }
            "ComputerSystem.Reset" => {
                let state = match state_only(body) {
                    "ForceOff" | "GracefulShutdown" => "Off",
                    _ => "On",
                };
                if resource["PowerState"] == state && matches!(state_only(body), "On" | "ForceOff" | "GracefulShutdown")
                {
                    return answer(409, error_body("ActionParameterValueConflict", "Already so."));
                }
                resource["PowerState"] = state.into();
            }
            _ => return answer(404, Value::Null),
        }
        answer(204, Value::Null)
    }
}

fn state_only(body: &Value) -> &str {
    body["ResetType"].as_str().unwrap()
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[async_trait]
impl Transport for Bmc {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        use std::sync::atomic::Ordering::SeqCst;
        self.most_in_flight.fetch_max(self.in_flight.fetch_add(1, SeqCst) + 1, SeqCst);
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        self.in_flight.fetch_sub(1, SeqCst);
        let mut inner = self.inner.lock().unwrap();
        let auth = match (request.headers.contains_key("x-auth-token"), request.headers.contains_key("authorization")) {
            (true, false) => "session",
            (false, true) => "basic",
            (false, false) => "none",
            (true, true) => panic!("both kinds of credentials"),
        };
        inner.log.push(Seen {
            method: request.method.to_string(),
            path: request.path.clone(),
            body: request.body.as_deref().map_or(Value::Null, |body| serde_json::from_slice(body).unwrap()),
            if_match: request.headers.get("if-match").map(|value| value.to_str().unwrap().to_owned()),
            auth,
        });
        let odd = inner.script.iter().position(|step| {
            step.method == request.method.as_str() && request.path.split('?').next().unwrap().ends_with(step.path)
        });
        match odd.and_then(|at| inner.script.remove(at)).map(|step| step.answer) {
            None => Ok(inner.serve(request)),
            Some(Odd::Fail(error)) => Err(error),
            Some(Odd::DropAfter) => {
                inner.serve(request);
                Err(TransportError::Dropped { detail: "connection reset by peer".into(), reused: false })
            }
            Some(Odd::Answer(status, headers, body)) => {
                let mut map = HeaderMap::new();
                for (name, value) in headers {
                    map.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap());
                }
                Ok(Response { status, headers: map, body, reused: false, path: String::new() })
            }
        }
    }

    /// The answer is the same, and comes in one piece.
    async fn open(&self, request: &Request) -> Result<Opened, TransportError> {
        let Response { status, headers, body, .. } = self.send(request).await?;
        Ok(Opened { status, headers, pieces: Box::new(OnePiece(Some(body))) })
    }
}

struct OnePiece(Option<Vec<u8>>);

#[async_trait]
impl Pieces for OnePiece {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, TransportError> {
        Ok(self.0.take())
    }
}

/// Notes the waits and does not wait.
#[derive(Default)]
pub struct Waits(pub Mutex<Vec<Duration>>);

#[async_trait]
impl Pacer for Waits {
    async fn wait(&self, time: Duration) {
        self.0.lock().unwrap().push(time);
    }
}

pub fn odd(status: u16, body: Value) -> Odd {
    Odd::Answer(status, Vec::new(), if body.is_null() { Vec::new() } else { body.to_string().into_bytes() })
}

pub fn dropped() -> Odd {
    Odd::Fail(TransportError::Dropped { detail: "connection closed".into(), reused: false })
}

/// A client of the BMC, with the waits that it made.
pub struct Rig {
    pub client: Client,
    pub waits: Arc<Waits>,
    pub registry: BmcRegistry,
}

pub fn rig(bmc: &Arc<Bmc>, system: &str) -> Rig {
    rig_with(bmc, system, PASSWORD)
}

/// A client that means this BMC and no other.
pub fn rig_with_pin(bmc: &Arc<Bmc>, system: &str, pin: inventory::BmcPin) -> Rig {
    let registry = BmcRegistry::new();
    let waits = Arc::new(Waits::default());
    let mut options = ClientOptions::new("server-a");
    options.pacer = Arc::<Waits>::clone(&waits);
    options.pin = pin;
    let address = Address::parse(&format!("redfish-virtualmedia://192.0.2.7{system}")).unwrap();
    let credentials = Credentials::new("root", PASSWORD.to_owned().into()).unwrap();
    let client = Client::new(address, credentials, Arc::<Bmc>::clone(bmc), &registry, options);
    Rig { client, waits, registry }
}

pub fn rig_with(bmc: &Arc<Bmc>, system: &str, password: &str) -> Rig {
    let registry = BmcRegistry::new();
    let waits = Arc::new(Waits::default());
    let client = client_in(&registry, bmc, system, password, &waits);
    Rig { client, waits, registry }
}

pub fn client_in(registry: &BmcRegistry, bmc: &Arc<Bmc>, system: &str, password: &str, waits: &Arc<Waits>) -> Client {
    let address = Address::parse(&format!("redfish-virtualmedia://192.0.2.7{system}")).unwrap();
    let credentials = Credentials::new("root", password.to_owned().into()).unwrap();
    let mut options = ClientOptions::new("server-a");
    options.pacer = Arc::<Waits>::clone(waits);
    Client::new(address, credentials, Arc::<Bmc>::clone(bmc), registry, options)
}

/// Options of a client whose BMC is on this machine.
pub fn local() -> ClientOptions {
    ClientOptions { allowed: addresses::Allowed::loopback(), ..ClientOptions::new("server-a") }
}
