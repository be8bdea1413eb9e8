//! Sessions (DSP0266, 13.3.4): signed in when first needed, renewed, ended, and those of an earlier life swept up.

use bmc::{BmcError, ErrorKind};
use http::Method;
use inventory::BmcPin;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::client::Client;
use crate::exchange::{Core, Fault, NEW_PASSWORD, PASSWORD_DUE, Reply, transport_error};
use crate::json::{link, path_only, same_path, word};
use crate::message::ErrorBody;
use crate::resources::Root;
use crate::state::Auth;
use crate::transport::{Request, TransportError};

/// The service root (DSP0266, 6.2).
const ROOT: &str = "/redfish/v1/";
/// Most sessions of a BMC that are looked at one by one.
const MAX_LOOKS: usize = 32;
/// Most recorded addresses that are accepted.
const MAX_STALE: usize = 64;

/// Result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Sessions that were ended.
    pub ended: u32,
    /// Why not all could be looked at, if so; they end when the BMC's idle time is over.
    pub incomplete: Option<String>,
}

impl Client {
    /// Signs in if necessary and ends the sessions that an earlier process of this server left at the BMC: those recorded by address (`stale`, from
    /// [`Client::session_address`]) and those whose `Context` is ours. Sessions of this process's clients and of other users stay. One request, and
    /// one
    /// per session that must be read or ended.
    ///
    /// # Errors
    /// [`BmcError`] when the BMC cannot be reached or used; a BMC that does not show its sessions is no error.
    pub async fn sweep(&self, stale: &[String]) -> Result<Swept, BmcError> {
        let (access, what) = ("check access", "end sessions left behind");
        match self.core.authorize(access).await {
            Ok(Auth::Basic) => {
                self.core.state().uncertain = false;
                Ok(Swept::default())
            }
            Ok(Auth::Session { .. }) => Ok(self.core.sweep(what, stale, None).await?),
            Err(error) if error.kind == ErrorKind::SessionLimit => {
                // Our own sessions may fill the BMC: many accept basic authentication even then.
                let swept = self.core.sweep(what, stale, Some(&Auth::Basic)).await;
                if !matches!(&swept, Ok(swept) if swept.ended > 0) {
                    return Err(error);
                }
                self.core.authorize(access).await?;
                Ok(swept?)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the session. The next operation signs in again. After a sign-in without a definite answer, also looks for the session that it may have
    /// left, and ends it.
    ///
    /// # Errors
    /// [`BmcError`] when the BMC did not end it; the session is kept, so that the caller can retry.
    pub async fn close(&self) -> Result<(), BmcError> {
        let what = "end the session";
        let uncertain = self.core.state().uncertain;
        if uncertain {
            // A sign-in had no definite answer: the sweep finds its session by the context.
            self.sweep(&[]).await?;
        }
        let _gate = self.core.sign_in_gate.lock().await;
        let auth = self.core.state().auth.clone();
        let Some(auth) = auth else { return Ok(()) };
        if let Auth::Session { path: Some(path), .. } = &auth {
            let request = Request::new(Method::DELETE, path, None);
            match self.core.call_as(what, &request, Some(&auth)).await {
                Ok(_) => {}
                // It has ended already.
                Err(fault) if matches!(fault.status(), Some(401 | 403 | 404 | 410)) => {}
                Err(fault) => return Err(fault.into()),
            }
            self.core.channel.remove_session(path);
        }
        self.core.state().auth = None;
        Ok(())
    }
}

impl Core {
    /// The service root, read once.
    pub async fn root(&self, what: &str) -> Result<Root, BmcError> {
        let known = self.state().root.clone();
        if let Some(root) = known {
            return Ok(root);
        }
        let root = match self.call_as(what, &Request::new(Method::GET, ROOT, None), None).await {
            Ok(reply) if reply.value.is_object() => Root::read(&reply.value),
            Ok(_) => return Err(self.error(ErrorKind::Protocol, what, "the service root is not a JSON object")),
            // By the standard the root needs no authentication; some BMCs require it.
            Err(fault) if matches!(fault.status(), Some(401 | 403)) => Root::hidden(),
            Err(fault) if fault.status() == Some(404) => {
                let advice = "check that the address is a BMC's and that its Redfish service is switched on";
                let error = self.error(ErrorKind::NotFound, what, "nothing at /redfish/v1/: no Redfish service");
                return Err(error.advise(advice).caused_by(BmcError::from(fault)));
            }
            Err(fault) => return Err(fault.into()),
        };
        self.state().root = Some(root.clone());
        Ok(root)
    }

    /// The credentials in use; signs in if there are none.
    pub async fn authorize(&self, what: &str) -> Result<Auth, BmcError> {
        let known = self.state().auth.clone();
        if let Some(auth) = known {
            return Ok(auth);
        }
        let _gate = self.sign_in_gate.lock().await;
        let known = self.state().auth.clone();
        match known {
            Some(auth) => Ok(auth),
            None => self.sign_in(what).await,
        }
    }

    /// Signs in again after the BMC has refused `used`, unless another task has done so already.
    pub async fn renew(&self, what: &str, used: &Auth) -> Result<Auth, BmcError> {
        let _gate = self.sign_in_gate.lock().await;
        // Another BMC may have taken this address: its identity is checked again before it is sent a password.
        self.state().root = None;
        let Auth::Session { token: refused, path: old } = used else { return self.sign_in(what).await };
        let known = self.state().auth.clone();
        match known {
            Some(Auth::Session { token, .. }) if token == *refused => {}
            Some(auth) => return Ok(auth),
            None => return self.sign_in(what).await,
        }
        let auth = self.sign_in(what).await?;
        if let Some(old) = old {
            self.channel.remove_session(old);
            let current = matches!(&auth, Auth::Session { path: Some(new), .. } if same_path(new, old));
            if !current {
                // The BMC may have lost only the token. Usually the session is gone, and this answers 404.
                let ended = self.call_as(what, &Request::new(Method::DELETE, old, None), Some(&auth)).await;
                tracing::debug!(session = %old, gone = ended.is_err(), "the refused session was ended");
            }
        }
        Ok(auth)
    }

    async fn sign_in(&self, what: &str) -> Result<Auth, BmcError> {
        self.channel.sign_ins().when_there_is_room(self.sign_in_now(what)).await
    }

    async fn sign_in_now(&self, what: &str) -> Result<Auth, BmcError> {
        let root = self.root(what).await?;
        self.is_the_one_meant(what)?;
        self.state().token_served = false;
        self.state().refused_sign_in = None;
        let collections = if self.channel.is_tokenless() { &[] } else { root.sessions.as_slice() };
        for collection in collections {
            match self.make_session(what, collection).await {
                Ok(auth) => {
                    self.keep_pin();
                    self.state().auth = Some(auth.clone());
                    return Ok(auth);
                }
                // No session collection there.
                Err(fault) if matches!(fault.status(), Some(404 | 405 | 501)) => {}
                Err(Fault::Refused(refusal)) => {
                    self.state().refused_sign_in = Some((refusal.status, refusal.body.clone()));
                    return Err(self.sign_in_error(what, *refusal));
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        self.keep_pin();
        self.state().auth = Some(Auth::Basic);
        Ok(Auth::Basic)
    }

    /// The identity that the BMC shows without authentication.
    pub fn pin(&self) -> BmcPin {
        let service_uuid = self.state().root.as_ref().and_then(|root| root.uuid.clone());
        BmcPin { service_uuid, key_sha256: self.transport.key_sha256() }
    }

    /// The expected BMC: the one signed in to, else the pin that this client was created with.
    fn meant(&self) -> BmcPin {
        self.state().pin.clone().unwrap_or_else(|| self.options.pin.clone())
    }

    fn keep_pin(&self) {
        let pin = machine_identity::merged(&self.meant(), &self.pin());
        self.state().pin = Some(pin);
    }

    /// With basic authentication, each request carries the password: checks the BMC's identity before the first one of an operation, with one more
    /// request.
    ///
    /// # Errors
    /// [`BmcError`], of kind `AnotherBmc` if it is another one.
    pub async fn prove_bmc_before_a_password(&self, what: &str) -> Result<(), BmcError> {
        let basic = matches!(self.state().auth, Some(Auth::Basic));
        if !basic || !machine_identity::is_pinned(&self.meant()) {
            return Ok(());
        }
        self.state().root = None;
        self.root(what).await?;
        self.is_the_one_meant(what)
    }

    /// Ensures that the password goes only to the recorded BMC.
    ///
    /// # Errors
    /// [`BmcError`] of kind `AnotherBmc` if another one answers.
    pub fn is_the_one_meant(&self, what: &str) -> Result<(), BmcError> {
        let (recorded, seen) = (&self.meant(), self.pin());
        if machine_identity::holds(recorded, &seen) {
            return Ok(());
        }
        let printable = |part: &Option<String>| part.clone().unwrap_or_else(|| "none".to_owned());
        let found = format!(
            "another BMC answers there: its service UUID is {} (recorded: {}), the SHA-256 of its certificate's key {} (recorded: {}); it \
             has been sent no credentials",
            printable(&seen.service_uuid),
            printable(&recorded.service_uuid),
            printable(&seen.key_sha256),
            printable(&recorded.key_sha256),
        );
        Err(self.error(ErrorKind::AnotherBmc, what, found).showing(seen))
    }

    async fn make_session(&self, what: &str, collection: &str) -> Result<Auth, Fault> {
        let mut body = json!({
            "UserName": self.credentials.username(),
            "Password": self.credentials.password().expose_secret(),
        });
        let refused = self.state().context_refused;
        if !refused {
            body["Context"] = Value::String(self.options.context.clone());
            match self.post_session(what, collection, &body).await {
                Err(Fault::Refused(refusal)) if refuses_context(refusal.status, &refusal.body) => {}
                other => return self.accept_session(what, other?).await,
            }
            if let Some(object) = body.as_object_mut() {
                object.remove("Context");
            }
        }
        let reply = self.post_session(what, collection, &body).await?;
        if !refused {
            self.state().context_refused = true;
        }
        self.accept_session(what, reply).await
    }

    /// The BMC refused the first use of a token that it had just issued. If it accepts basic authentication, all further requests use that; if not,
    /// the account lacks the right, or the BMC is broken: then at least no more sessions are left behind.
    pub async fn without_token(
        &self,
        what: &str,
        request: &Request,
        useless: &Auth,
        refused: Result<Reply, Fault>,
    ) -> Result<Reply, Fault> {
        let answer = self.call_as(what, request, Some(&Auth::Basic)).await;
        let helps = !matches!(&answer, Err(fault) if matches!(fault.status(), Some(401 | 403)));
        if !helps && self.state().tokens_served {
            return refused;
        }
        self.channel.refuses_tokens();
        if let Auth::Session { path: Some(path), .. } = useless {
            self.channel.remove_session(path);
            let ended = self.call_as(what, &Request::new(Method::DELETE, path, None), Some(&Auth::Basic)).await;
            tracing::debug!(session = %path, left = ended.is_err(), "a session whose token is refused was ended");
        }
        self.state().auth = helps.then_some(Auth::Basic);
        if helps { answer } else { refused }
    }

    async fn post_session(&self, what: &str, collection: &str, body: &Value) -> Result<Reply, Fault> {
        let request = Request::new(Method::POST, collection, Some(body.to_string().into_bytes()));
        // In doubt until there is a definite answer, even if the caller is dropped meanwhile.
        let before = std::mem::replace(&mut self.state().uncertain, true);
        let mut answer = self.call_as(what, &request, None).await;
        // The BMC was just closing the connection. It may have opened a session all the same: the doubt remains, and a sweep looks for it.
        let ended =
            |error: &BmcError| matches!(transport_error(error), Some(TransportError::Dropped { reused: true, .. }));
        let again = matches!(&answer, Err(Fault::Other(error)) if ended(error));
        if again {
            answer = self.call_as(what, &request, None).await;
        }
        let definite = !again
            && match &answer {
                Ok(_) | Err(Fault::Refused(_)) => true,
                Err(Fault::Other(error)) => transport_error(error).is_some_and(TransportError::never_sent),
            };
        if definite {
            self.state().uncertain = before;
        }
        answer
    }

    async fn accept_session(&self, what: &str, reply: Reply) -> Result<Auth, Fault> {
        // Some BMCs leave out the Location; the body names the session too.
        let path = reply.response.header("location").and_then(path_only).or_else(|| link(&reply.value));
        let path = path.map(|path| path.trim_end_matches('/').to_owned());
        let token = reply.response.headers.get("x-auth-token").filter(|token| !token.is_empty() && token.len() <= 4096);
        let Some(token) = token else {
            // A session that cannot be used is not left behind.
            match &path {
                Some(path) => {
                    let ended = self.call_as(what, &Request::new(Method::DELETE, path, None), Some(&Auth::Basic)).await;
                    tracing::debug!(session = %path, left = ended.is_err(), "a session without token was ended");
                }
                None => self.state().uncertain = true,
            }
            let found = "the BMC accepted user and password, but its answer has no session token";
            return Err(self.error(ErrorKind::Protocol, &format!("sign in to {what}"), found).into());
        };
        let mut token = token.clone();
        token.set_sensitive(true);
        self.state().note_token(&token);
        let said = ErrorBody::read(&reply.value);
        if said.has(PASSWORD_DUE) {
            // Such a session can only set another password, which is not up to this program.
            let auth = Auth::Session { token, path };
            if let Auth::Session { path: Some(path), .. } = &auth {
                let ended = self.call_as(what, &Request::new(Method::DELETE, path, None), Some(&auth)).await;
                tracing::debug!(session = %path, left = ended.is_err(), "a session for a password change was ended");
            }
            self.state().refused_sign_in = Some((reply.response.status, said.clone()));
            let found = said.sentence().unwrap_or_else(|| "the account's password must be changed".to_owned());
            let error = self.error(ErrorKind::Unauthorized, &format!("sign in to {what}"), found);
            return Err(error.advise(NEW_PASSWORD).into());
        }
        if let Some(path) = &path {
            self.channel.add_session(path);
        }
        Ok(Auth::Session { token, path })
    }

    fn sign_in_error(&self, what: &str, refusal: crate::exchange::Refusal) -> BmcError {
        let limit = refusal.body.is_session_limit();
        let credentials = refusal.body.key_contains("Unauthorized") || refusal.body.has("AuthenticationFailed");
        let kind = match refusal.error.kind {
            _ if limit => ErrorKind::SessionLimit,
            _ if credentials => ErrorKind::Unauthorized,
            ErrorKind::Rejected { status: 403 } => ErrorKind::Unauthorized,
            kind => kind,
        };
        let mut error = self.error(kind, &format!("sign in to {what}"), &refusal.error.found);
        if refusal.body.has(PASSWORD_DUE) {
            error = error.advise(NEW_PASSWORD);
        }
        error
    }

    async fn sweep(&self, what: &str, stale: &[String], auth: Option<&Auth>) -> Result<Swept, Fault> {
        let origin = self.address.origin();
        // Only addresses at this BMC count: the host may have moved to another one since.
        let recorded: Vec<String> = stale
            .iter()
            .take(MAX_STALE)
            .filter_map(|address| path_only(address.strip_prefix(origin.as_str())?))
            .collect();
        let mut swept = Swept::default();
        let sessions = match self.list_sessions(what, auth).await {
            Ok(sessions) => sessions,
            Err(fault) if matches!(fault.status(), Some(400 | 403 | 404 | 405 | 501)) => {
                swept.incomplete = Some(BmcError::from(fault).to_string());
                recorded.iter().map(|path| (path.clone(), Value::Null)).collect()
            }
            Err(fault) => return Err(fault),
        };
        let mut looks = 0;
        for (path, value) in sessions {
            if self.channel.holds_session(path.trim_end_matches('/')) {
                continue;
            }
            let known = recorded.iter().any(|old| same_path(old, &path));
            let value = if word(&value, "UserName").is_some() || value.get("Context").is_some() {
                value
            } else {
                looks += 1;
                if looks > MAX_LOOKS {
                    swept.incomplete = Some(format!("the BMC has more than {MAX_LOOKS} sessions"));
                    break;
                }
                match self.send(what, Method::GET, &path, auth).await {
                    Ok(reply) => reply.value,
                    Err(fault) if fault.status().is_some() => continue,
                    Err(fault) => return Err(fault),
                }
            };
            if self.is_ours(&value, known) {
                swept.ended += u32::from(self.end_session(what, &path, auth).await?);
            }
        }
        self.state().uncertain = false;
        Ok(swept)
    }

    /// Whether this server made the session. A recorded address alone proves nothing: BMCs reuse the numbers.
    fn is_ours(&self, session: &Value, recorded: bool) -> bool {
        let context = word(session, "Context").filter(|context| !context.is_empty());
        match context {
            Some(context) => context == self.options.context,
            None => recorded && word(session, "UserName") == Some(self.credentials.username()),
        }
    }

    async fn end_session(&self, what: &str, path: &str, auth: Option<&Auth>) -> Result<bool, Fault> {
        match self.send(what, Method::DELETE, path, auth).await {
            Ok(_) => Ok(true),
            Err(fault) if fault.status().is_some() => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    pub async fn send(&self, what: &str, method: Method, path: &str, auth: Option<&Auth>) -> Result<Reply, Fault> {
        let request = Request::new(method, path, None);
        match auth {
            Some(auth) => self.call_as(what, &request, Some(auth)).await,
            None => self.call(what, &request).await,
        }
    }

    /// The BMC's sessions: path, and the session itself where the BMC inlines it.
    async fn list_sessions(&self, what: &str, auth: Option<&Auth>) -> Result<Vec<(String, Value)>, Fault> {
        let root = self.root(what).await?;
        let Some(collection) = root.sessions.first() else { return Ok(Vec::new()) };
        self.expanded(what, collection, auth).await
    }
}

/// Whether the BMC refuses `Context`, which came with Session 1.5.0. Wrong credentials never count.
fn refuses_context(status: u16, body: &ErrorBody) -> bool {
    let credentials =
        body.key_contains("Unauthorized") || body.has("AuthenticationFailed") || body.key_contains("Limit");
    match status {
        400 | 422 | 501 => !credentials,
        500 => body.mentions("Context"),
        _ => false,
    }
}
