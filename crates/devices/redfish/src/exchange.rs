//! One request and its answer: turn, credentials, repetition, redirects, and errors as sentences.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use bmc::{Address, BmcError, CallOutcome, Channel, Credentials, ErrorKind, NotLeading, Reuse};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, IF_MATCH, LOCATION};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::Value;
use terms::json_values_at_most;
use tokio::time::Instant;

use crate::hide::{basic, redact};
use crate::json::{MAX_VALUES, absolute, make_absolute, path_only, plain, unzipped};
use crate::message::ErrorBody;
use crate::options::ClientOptions;
use crate::quirks::Quirks;
use crate::state::{Auth, State};
use crate::transport::{MAX_BODY, Opened, Over, Request, Response, Transport, TransportError};
use terms::clean;

/// Most entity tags that are kept.
const MAX_ETAGS: usize = 16;
/// Time over which the waits that a BMC asks for are added up.
const WINDOW: Duration = Duration::from_secs(600);
/// Most times that one request is deferred.
const MAX_PUT_OFF: u32 = 12;
/// Most redirects that are followed.
const MAX_REDIRECTS: u32 = 2;

/// Key of the message that the account's password must be changed first (DSP0266, "Password change required"), and the advice for it.
pub(crate) const PASSWORD_DUE: &str = "PasswordChangeRequired";
pub(crate) const NEW_PASSWORD: &str =
    "set a new password for the account at the BMC, then write it into the Secret that spec.bmc.credentialsName names";

/// The client's inside.
pub(crate) struct Core {
    pub address: Address,
    pub credentials: Credentials,
    pub transport: Arc<dyn Transport>,
    pub channel: Arc<Channel>,
    pub options: ClientOptions,
    pub calls: AtomicU32,
    pub sign_in_gate: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

fn is_refused(answer: &Result<Reply, Fault>) -> bool {
    matches!(answer, Err(Fault::Refused(refusal)) if refusal.status == 401)
}

/// An answer without error status.
#[derive(Debug)]
pub(crate) struct Reply {
    pub response: Response,
    /// The body, `Null` when empty.
    pub value: Value,
}

/// An answer with an error status, with its parsed body.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub status: u16,
    pub body: ErrorBody,
    pub error: BmcError,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The BMC answered with an error status.
    Refused(Box<Refusal>),
    /// Anything else.
    Other(BmcError),
}

impl From<Fault> for BmcError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(refusal) => refusal.error,
            Fault::Other(error) => error,
        }
    }
}

impl From<BmcError> for Fault {
    fn from(error: BmcError) -> Self {
        Self::Other(error)
    }
}

impl Fault {
    /// Status of the error answer, if it was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            Self::Other(_) => None,
        }
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(refusal) => refusal.error.kind,
            Self::Other(error) => error.kind,
        }
    }

    /// Whether the answer was unreadable: not JSON, or too large.
    pub fn is_nonsense(&self) -> bool {
        matches!(self, Self::Other(error) if error.kind == ErrorKind::Protocol)
    }

    /// The body of the error answer, if there was one.
    pub fn body(&self) -> Option<&ErrorBody> {
        match self {
            Self::Refused(refusal) => Some(&refusal.body),
            Self::Other(_) => None,
        }
    }
}

impl Core {
    pub fn new(
        address: Address,
        credentials: Credentials,
        transport: Arc<dyn Transport>,
        channel: Arc<Channel>,
        options: ClientOptions,
    ) -> Self {
        Self {
            address,
            credentials,
            transport,
            channel,
            options,
            calls: AtomicU32::new(0),
            sign_in_gate: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error of this BMC, without password and tokens in any part of it.
    pub fn error(&self, kind: ErrorKind, what: &str, found: impl AsRef<str>) -> BmcError {
        BmcError::new(kind, format!("{what} on BMC {}", self.address.origin()), self.without_secrets(found.as_ref()))
    }

    /// A text from the BMC, without the password and its tokens in any encoding.
    pub fn without_secrets(&self, text: &str) -> String {
        let password = self.credentials.password().expose_secret();
        let pair = basic(self.credentials.username(), password);
        let tokens = self.state().tokens.clone();
        let tokens = tokens.iter().filter_map(|token| token.to_str().ok());
        redact(text, &[password, &pair].into_iter().chain(tokens).collect::<Vec<_>>())
    }

    /// Password and tokens as they are, for what is compared in its decoded form.
    pub fn plain_secrets(&self) -> Vec<String> {
        let password = self.credentials.password().expose_secret().to_owned();
        let tokens = self.state().tokens.clone();
        let tokens = tokens.iter().filter_map(|token| token.to_str().ok().map(str::to_owned));
        [password].into_iter().chain(tokens).collect()
    }

    /// Reads a resource and remembers its entity tag.
    pub async fn get(&self, what: &str, path: &str) -> Result<Reply, Fault> {
        let reply = self.call(what, &Request::new(Method::GET, path, None)).await?;
        if reply.response.status != 200 {
            let found = format!("{path} was answered with status {} and no content", reply.response.status);
            return Err(self.error(ErrorKind::Protocol, what, found).into());
        }
        self.note_etag(path, &reply);
        Ok(reply)
    }

    pub async fn post(&self, what: &str, path: &str, body: &Value) -> Result<Reply, Fault> {
        self.call(what, &Request::new(Method::POST, path, Some(bytes_of(body)))).await
    }

    /// Changes a resource. Sends the entity tag if one is known; a stale tag is read again once, a weak one is tried in its strong form, and the last
    /// attempt has none (BMCs disagree on tags, and none of our changes depends on the previous value).
    pub async fn patch(&self, what: &str, path: &str, body: &Value) -> Result<Reply, Fault> {
        let known = self.state().etags.get(path).cloned();
        let had_none = known.is_none();
        let mut fault = match self.patch_once(what, path, body, known.as_deref()).await {
            Err(fault) if fault.status() == Some(412) || (had_none && fault.status() == Some(428)) => fault,
            other => return other,
        };
        self.state().etags.remove(path);
        self.get(what, path).await?;
        let fresh = self.state().etags.get(path).cloned();
        let strong = fresh.as_deref().and_then(|tag| tag.strip_prefix("W/")).map(ToOwned::to_owned);
        for tag in [fresh, strong].into_iter().flatten() {
            match self.patch_once(what, path, body, Some(&tag)).await {
                Err(again) if again.status() == Some(412) => fault = again,
                other => return other,
            }
        }
        if fault.status() == Some(428) {
            return Err(fault);
        }
        self.patch_once(what, path, body, None).await
    }

    /// Changes a resource; waits, within limits, while the machine's self-test runs. The answer may name a task.
    pub async fn patch_when_ready(&self, what: &str, path: &str, body: &Value) -> Result<Reply, Fault> {
        let mut attempt = 0;
        loop {
            match self.patch(what, path, body).await {
                Err(Fault::Refused(refusal)) if Quirks::busy_with_self_test(&refusal.body) => {
                    let wait = self.options.ready.wait(attempt);
                    let Some(wait) = wait else { return Err(Fault::Refused(refusal)) };
                    self.options.pacer.wait(wait).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn patch_once(&self, what: &str, path: &str, body: &Value, tag: Option<&str>) -> Result<Reply, Fault> {
        let mut request = Request::new(Method::PATCH, path, Some(bytes_of(body)));
        if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(tag).ok()) {
            request.headers.insert(IF_MATCH, tag);
        }
        let reply = self.call(what, &request).await?;
        // The known entity tag is stale now.
        self.state().etags.remove(path);
        Ok(reply)
    }

    fn note_etag(&self, path: &str, reply: &Reply) {
        let header = reply.response.header("etag");
        let tag = header.or_else(|| reply.value.get("@odata.etag").and_then(Value::as_str)).unwrap_or_default();
        let usable = (1..=256).contains(&tag.len()) && tag != "\"\"" && HeaderValue::from_str(tag).is_ok();
        let mut state = self.state();
        if !usable {
            state.etags.remove(path);
            return;
        }
        if state.etags.len() >= MAX_ETAGS {
            state.etags.clear();
        }
        state.etags.insert(path.to_owned(), tag.to_owned());
    }

    /// Sends with credentials; signs in first if necessary, and once more if the session has expired.
    pub async fn call(&self, what: &str, request: &Request) -> Result<Reply, Fault> {
        // What becomes of a sign-in says nothing of the request, which was not sent, or was refused: an order has not been carried out then. A read is no order,
        // and may be of one that has been.
        let unmade = |error: BmcError| BmcError { unmade: request.method == Method::POST, ..error };
        let mut auth = self.authorize(what).await.map_err(unmade)?;
        let mut answer = self.call_as(what, request, Some(&auth)).await;
        if is_refused(&answer) && matches!(auth, Auth::Session { .. }) && self.state().token_served {
            auth = self.renew(what, &auth).await.map_err(unmade)?;
            answer = self.call_as(what, request, Some(&auth)).await;
        }
        if matches!(auth, Auth::Basic) {
            let refused = match &answer {
                Err(Fault::Refused(refusal)) if refusal.status == 401 => Some((401, refusal.body.clone())),
                _ => None,
            };
            self.state().refused_sign_in = refused;
        }
        if matches!(auth, Auth::Session { .. }) {
            if is_refused(&answer) && !self.state().token_served {
                // Another session would be refused as well, and left behind.
                return self.without_token(what, request, &auth, answer).await;
            }
            let mut state = self.state();
            (state.token_served, state.tokens_served) = (true, true);
        }
        answer
    }

    /// Sends with these credentials, or none; repeats requests that the BMC defers. A deferred request has not been carried out, whatever its method.
    /// The BMC's channel is free during the waits.
    pub async fn call_as(&self, what: &str, request: &Request, auth: Option<&Auth>) -> Result<Reply, Fault> {
        let mut request = request.clone();
        self.sign(&mut request, auth);
        let repeatable = request.method != Method::POST;
        let (mut retry, mut waits, mut waited) = (0, 0, Duration::ZERO);
        let mut dropped = false;
        loop {
            let answer = self.followed(what, &request, retry).await;
            let wait = match &answer {
                // A connection that the BMC closed while it was idle, or a hiccup: at once, once.
                Err((error, TransportError::Dropped { .. })) if repeatable && !dropped => {
                    tracing::debug!(%error, "repeated after a lost connection");
                    dropped = true;
                    Some(std::time::Duration::ZERO)
                }
                Ok(response) => self.put_off(response, waits, waited),
                Err(_) => None,
            };
            let Some(wait) = wait else {
                let response = answer.map_err(|(error, source)| error.caused_by(source))?;
                return self.judge(what, &request, response, waited);
            };
            if let Ok(response) = &answer {
                let (origin, status, seconds) = (self.address.origin(), response.status, wait.as_secs());
                tracing::info!(bmc = %origin, status, seconds, "the BMC puts off a request: {what}");
                self.options.pacer.wait(wait).await;
                (waits, waited) = (waits + 1, waited + wait);
            }
            retry += 1;
        }
    }

    /// How long to wait before a deferred request is repeated; `None` if it was not deferred, or should not be repeated.
    fn put_off(&self, response: &Response, waits: u32, waited: Duration) -> Option<Duration> {
        if response.status < 400 {
            return None;
        }
        let body = ErrorBody::parse(&response.body);
        let series = match response.status {
            _ if body.is_session_limit() => return None,
            _ if Quirks::is_not_ready(&body) => &self.options.ready,
            429 | 503 => &self.options.busy,
            _ => return None,
        };
        let asked = response.retry_after().or_else(|| body.asked_again_after()).filter(|asked| !asked.is_zero());
        let wait = match asked {
            Some(asked) if waits < MAX_PUT_OFF => asked.max(series.wait(waits).unwrap_or(asked)),
            Some(_) => return None,
            None => series.wait(waits)?,
        };
        let mut state = self.state();
        let (since, in_all) =
            state.put_off.filter(|(since, _)| since.elapsed() < WINDOW).unwrap_or((Instant::now(), Duration::ZERO));
        let in_all = in_all.saturating_add(wait);
        if waited.saturating_add(wait) > self.options.patience || in_all > self.options.patience_in_all {
            return None;
        }
        state.put_off = Some((since, in_all));
        Some(wait)
    }

    /// Reads once as things are: whatever the answer, it is not repeated, nor is a sign-in made for it.
    pub async fn glance(
        &self,
        what: &str,
        path: &str,
        auth: Option<&Auth>,
    ) -> Result<Response, (BmcError, TransportError)> {
        let mut request = Request::new(Method::GET, path, None);
        self.sign(&mut request, auth);
        self.followed(what, &request, 0).await
    }

    fn sign(&self, request: &mut Request, auth: Option<&Auth>) {
        match auth {
            None => {}
            Some(Auth::Session { token, .. }) => {
                request.headers.insert(HeaderName::from_static("x-auth-token"), token.clone());
            }
            Some(Auth::Basic) => {
                let pair = format!("{}:{}", self.credentials.username(), self.credentials.password().expose_secret());
                let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
                // Base64 is always a valid header value.
                if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {encoded}")) {
                    value.set_sensitive(true);
                    request.headers.insert(AUTHORIZATION, value);
                }
            }
        }
    }

    /// Follows redirects within the BMC, with the same method and body: a redirected request has not been carried out. Makes links in the answer
    /// absolute.
    async fn followed(
        &self,
        what: &str,
        request: &Request,
        retry: u32,
    ) -> Result<Response, (BmcError, TransportError)> {
        let mut next = request.clone();
        let mut redirects = 0;
        loop {
            let mut response = self.once(what, &next, retry).await?;
            let location = response.header("location").and_then(|location| absolute(&next.path, location));
            if let Some(location) = location.and_then(|location| HeaderValue::from_str(&location).ok()) {
                response.headers.insert(LOCATION, location);
            }
            match self.redirect(&response).filter(|_| redirects < MAX_REDIRECTS) {
                Some(path) => next.path = path,
                None => {
                    response.path = next.path;
                    return Ok(response);
                }
            }
            redirects += 1;
        }
    }

    /// The target of a redirect, if it stays at the BMC.
    fn redirect(&self, response: &Response) -> Option<String> {
        let redirects = matches!(response.status, 301 | 302 | 307 | 308);
        response.header("location").filter(|_| redirects).and_then(|location| self.stays(location))
    }

    /// The path of a redirect that does not leave the BMC.
    pub fn stays(&self, location: &str) -> Option<String> {
        let path = path_only(location)?;
        if location.starts_with('/') {
            return Some(path);
        }
        let (target, origin) = (url::Url::parse(location).ok()?, url::Url::parse(&self.address.origin()).ok()?);
        (target.origin() == origin.origin()).then_some(path)
    }

    /// Sends with credentials over a connection of its own, beside the calls that wait for their turn; the beginning of an answer of status 200.
    pub async fn open(&self, what: &str, mut request: Request) -> Result<Opened, BmcError> {
        let auth = self.authorize(what).await?;
        self.sign(&mut request, Some(&auth));
        let call = self.channel.beside(request.method.as_str(), &request.path, 0);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let answer = self.channel.lead().during(self.transport.open(&request)).await;
        match answer.unwrap_or_else(|NotLeading { begun }| Err(TransportError::NotLeading { begun })) {
            Ok(opened) => {
                call.end(CallOutcome::Status(opened.status));
                if opened.status == 200 {
                    return Ok(opened);
                }
                // What it says beside that is not read: it may have no end.
                let response = Response { status: opened.status, headers: opened.headers, ..Response::default() };
                let kind = match response.status {
                    // Other reads may be allowed to the same account.
                    status @ 403 => ErrorKind::Rejected { status },
                    _ => self.kind_of(&request, &response, &ErrorBody::parse(&[])),
                };
                Err(self.error(kind, what, format!("the BMC answered with status {}", response.status)))
            }
            Err(source) => {
                let error = self.no_answer(what, &source);
                call.end(CallOutcome::Failed(error.kind));
                Err(error.caused_by(source))
            }
        }
    }

    /// One request in its turn.
    async fn once(&self, what: &str, request: &Request, retry: u32) -> Result<Response, (BmcError, TransportError)> {
        let turn = self.channel.begin(request.method.as_str(), &request.path, retry).await;
        self.calls.fetch_add(1, Ordering::Relaxed);
        // The fate of a request is unknown if the BMC loses it with the connection: a request that must not be sent twice avoids a connection that
        // the BMC may just be closing.
        let over = match self.channel.reuse() {
            Reuse::Untried if request.method == Method::POST => Over::New,
            Reuse::Untried | Reuse::Works => Over::Any,
            Reuse::Loses => Over::Own,
        };
        let request = Request { over, ..request.clone() };
        // A dialogue is many requests: the Lease may end between two of them, or during one.
        let answer = self.channel.lead().during(self.transport.send(&request)).await;
        let answer = match answer.unwrap_or_else(|NotLeading { begun }| Err(TransportError::NotLeading { begun })) {
            Ok(response) if response.body.len() > MAX_BODY => Err(TransportError::TooLarge),
            Ok(response) => Ok(Response { body: plain(unzipped(response.body)), ..response }),
            other => other,
        };
        match &answer {
            Ok(response) if response.reused => self.channel.note_reuse(true),
            Err(TransportError::Dropped { reused: true, .. }) => self.channel.note_reuse(false),
            _ => {}
        }
        match answer {
            Ok(response) => {
                turn.received(response.body.len());
                turn.end(CallOutcome::Status(response.status));
                Ok(response)
            }
            Err(source) => {
                let error = self.no_answer(what, &source);
                turn.end(CallOutcome::Failed(error.kind));
                Err((error, source))
            }
        }
    }

    fn no_answer(&self, what: &str, source: &TransportError) -> BmcError {
        let kind = match source {
            TransportError::Connect { .. } | TransportError::Dropped { .. } | TransportError::Tls { .. } => {
                ErrorKind::Unreachable
            }
            // A name may have another address later.
            TransportError::NotAllowed { by_name: true, .. } => ErrorKind::Unreachable,
            TransportError::NotAllowed { .. } => ErrorKind::NotAllowed,
            TransportError::NotLeading { .. } => ErrorKind::NotLeading,
            TransportError::Certificate { .. } => ErrorKind::TlsNotTrusted,
            TransportError::NoCommonTls { .. } => ErrorKind::NoCommonTls,
            TransportError::Unconnected { .. } | TransportError::Timeout { .. } => ErrorKind::Timeout,
            TransportError::TooLarge | TransportError::Protocol { .. } => ErrorKind::Protocol,
        };
        let error = self.error(kind, what, clean(&source.to_string(), 700));
        match source {
            TransportError::Tls { .. } => {
                error.advise("check the port; a BMC without TLS is addressed with redfish-virtualmedia+http")
            }
            TransportError::NotAllowed { refused, by_name } => {
                let field =
                    if *by_name { "spec.bmc.address, or what its name resolves to" } else { "spec.bmc.address" };
                error.advise(refused.advice(field))
            }
            TransportError::Certificate { .. } => {
                let origin = self.address.origin();
                let authority = origin.trim_start_matches("https://");
                let port = if self.address.port() == 443 { ":443" } else { "" };
                error.advise(format!(
                    "give the server the certificate of the CA that signed the BMC's, or a self-signed one itself (--bmc-ca; \"openssl \
                     s_client -connect {authority}{port} -showcerts\" shows it), or set spec.bmc.disableCertificateVerification"
                ))
            }
            _ => error,
        }
    }

    /// Converts an answer to a result or an error.
    fn judge(&self, what: &str, request: &Request, response: Response, waited: Duration) -> Result<Reply, Fault> {
        if (200..300).contains(&response.status) {
            return self.understood(what, request, response);
        }
        let body = ErrorBody::parse(&response.body);
        let kind = self.kind_of(request, &response, &body);
        let reason = StatusCode::from_u16(response.status)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or("unknown status");
        let mut found = format!("the BMC answered {} {reason}", response.status);
        let circle = self.redirect(&response).is_some();
        if (300..400).contains(&response.status) {
            let target = clean(response.header("location").unwrap_or("nowhere"), 200);
            let why = if circle { "which leads in a circle" } else { "which is not followed" };
            found = format!("{found}, a redirect to {target}, {why}");
        }
        if let Some(sentence) = body.sentence() {
            found = format!("{found}: {sentence}");
        }
        if !waited.is_zero() {
            found = format!("{found} (still so after {} s)", waited.as_secs());
        }
        if let (ErrorKind::Busy { .. }, Some(asked)) =
            (kind, response.retry_after().or_else(|| body.asked_again_after()))
        {
            found = format!("{found}; it asks to be left alone for {} s", asked.as_secs());
        }
        let mut error = self.error(kind, what, found);
        if (300..400).contains(&response.status) {
            error = error.advise(if circle {
                "check the BMC's firmware for updates, and restart the BMC"
            } else {
                "write the address that it redirects to into spec.bmc.address, with +http or +https to match"
            });
        }
        if body.has(PASSWORD_DUE) {
            error = error.advise(NEW_PASSWORD);
        }
        Err(Fault::Refused(Box::new(Refusal { status: response.status, body, error })))
    }

    fn kind_of(&self, request: &Request, response: &Response, body: &ErrorBody) -> ErrorKind {
        let password_due = body.has(PASSWORD_DUE);
        match response.status {
            _ if body.has("SessionLimitExceeded") => ErrorKind::SessionLimit,
            status @ (429 | 503) => ErrorKind::Busy { status },
            status if Quirks::is_not_ready(body) || Quirks::busy_with_self_test(body) => ErrorKind::Busy { status },
            401 => ErrorKind::Unauthorized,
            403 if password_due || request.method == Method::GET || body.has("InsufficientPrivilege") => {
                ErrorKind::Unauthorized
            }
            404 | 410 => ErrorKind::NotFound,
            status => ErrorKind::Rejected { status },
        }
    }

    fn understood(&self, what: &str, request: &Request, response: Response) -> Result<Reply, Fault> {
        let blank = response.body.iter().all(u8::is_ascii_whitespace);
        // The body of an answer to a change is not needed. Where a task or session is created, callers read the headers first.
        let needed = request.method == Method::GET && response.status == 200;
        if json_values_at_most(&response.body) > MAX_VALUES {
            let (method, path) = (&request.method, clean(&request.path, 200));
            let found = format!("the answer to {method} {path} holds more than {MAX_VALUES} values");
            return Err(self.error(ErrorKind::Protocol, what, found).into());
        }
        let value = if blank && !needed { Ok(Value::Null) } else { serde_json::from_slice(&response.body) };
        match value {
            Ok(mut value) => {
                make_absolute(&response.path, &mut value);
                Ok(Reply { response, value })
            }
            Err(_) if !needed => Ok(Reply { response, value: Value::Null }),
            Err(source) => {
                let start = clean(&String::from_utf8_lossy(&response.body[..response.body.len().min(80)]), 60);
                let path = clean(&request.path, 200);
                let found = match response.header("content-encoding").filter(|coding| *coding != "identity") {
                    Some(coding) => format!(
                        "the answer to GET {path} is compressed ({}), which was not asked for",
                        clean(coding, 40)
                    ),
                    None => format!("the answer to GET {path} is not JSON; it begins with {start:?}"),
                };
                Err(self.error(ErrorKind::Protocol, what, found).caused_by(source).into())
            }
        }
    }
}

/// Whether the answer was lost, so that the BMC may have carried out the request.
pub(crate) fn answer_lost(fault: &Fault) -> bool {
    let Fault::Other(error) = fault else { return false };
    !error.unmade && transport_error(error).is_some_and(|error| !error.never_sent())
}

/// Whether the request has certainly not reached the BMC, or was refused for its session and not sent again.
pub(crate) fn never_sent(fault: &Fault) -> bool {
    let Fault::Other(error) = fault else { return false };
    error.unmade || transport_error(error).is_some_and(TransportError::never_sent)
}

/// Why there was no answer, where there was none.
pub(crate) fn transport_error(error: &BmcError) -> Option<&TransportError> {
    error.source.as_deref()?.downcast_ref()
}

/// A body as bytes. A `Value` has text keys only: it always serialises.
fn bytes_of(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}
