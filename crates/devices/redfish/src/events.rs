//! Subscriptions to the BMC's events (schemas EventService, EventDestination), and the stream of them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bmc::{BmcError, Capability, ErrorKind, EventDestination, Lacking, MAX_STREAMS};
use http::Method;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use url::Url;

use crate::client::Client;
use crate::event_stream::{LISTEN, Stream};
use crate::exchange::{Fault, Refusal};
use crate::hide::{is_public, redact};
use crate::json::{flag, link, link_at, path_only, word};
use crate::transport::Request;

const SUBSCRIBE: &str = "subscribe to the BMC's events";
const LOOK: &str = "look for the subscription to the BMC's events";
const UNSUBSCRIBE: &str = "end the subscription to the BMC's events";
/// Most subscriptions that are looked at; BMCs keep a dozen or two.
const MAX_SUBSCRIPTIONS: usize = 64;
/// Shortest word of a header's value that is hidden by itself, in bytes: schemes (`Bearer`) are words, too, and no secrets.
const SHORTEST_PART: usize = 7;
/// Longest id, in bytes.
const MAX_ID: usize = 256;

/// What is left out of a subscription after the BMC has refused it.
#[derive(Clone, Copy, Default)]
struct Form {
    /// Without `EventTypes`, which is deprecated since EventDestination 1.5 and refused by some.
    bare: bool,
    /// With `SubscriptionType`, which some insist on since EventDestination 1.6.
    kind: bool,
}

impl Form {
    fn body(self, wanted: &EventDestination<'_>) -> Value {
        let mut body = json!({ "Destination": wanted.url, "Context": wanted.context, "Protocol": "Redfish" });
        if !self.bare {
            body["EventTypes"] = json!(["Alert"]);
        }
        if self.kind {
            body["SubscriptionType"] = "RedfishEvent".into();
        }
        if !wanted.headers.is_empty() {
            body["HttpHeaders"] = wanted.headers.iter().map(|(name, value)| json!({ *name: *value })).collect();
        }
        body
    }

    /// The form to try next, after this refusal.
    fn after(self, refusal: &Refusal) -> Option<Self> {
        if refusal.status != 400 {
            return None;
        }
        if !self.kind && refusal.body.mentions("SubscriptionType") {
            Some(Self { kind: true, ..self })
        } else if !self.bare && refusal.body.mentions("EventTypes") {
            Some(Self { bare: true, ..self })
        } else {
            None
        }
    }
}

/// Whether its events go to this URL. Some BMCs (OpenBMC's bmcweb) show a URL with the default port and the path `/` that it was given without.
fn goes_to(subscription: &Value, url: &str) -> bool {
    let Some(shown) = word(subscription, "Destination") else { return false };
    shown == url || Url::parse(shown).is_ok_and(|shown| Url::parse(url).is_ok_and(|url| shown == url))
}

fn is_for(subscription: &Value, wanted: &EventDestination<'_>) -> bool {
    goes_to(subscription, wanted.url) && word(subscription, "Context").unwrap_or_default() == wanted.context
}

impl Client {
    /// Ids of the subscriptions with this destination and context.
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when the BMC has no EventService, or it is switched off.
    pub async fn subscriptions_like(&self, wanted: &EventDestination<'_>) -> Result<Vec<String>, BmcError> {
        let list = self.subscriptions(LOOK).await?;
        let members = self.core.expanded(LOOK, &list, None).await.map_err(unquoted)?;
        let mut found = Vec::new();
        for (path, shown) in members.into_iter().take(MAX_SUBSCRIPTIONS) {
            let shown = if word(&shown, "Destination").is_some() {
                shown
            } else {
                match self.core.get(LOOK, &path).await {
                    Ok(reply) => reply.value,
                    // It has ended meanwhile, or is nobody's to read.
                    Err(fault) if matches!(fault.status(), Some(403 | 404)) => continue,
                    Err(fault) => return Err(unquoted(fault)),
                }
            };
            if is_for(&shown, wanted) {
                found.extend(self.id_of(&path, wanted));
            }
        }
        Ok(found)
    }

    /// Subscribes. The result is the subscription's id; `None` if the BMC has taken it and does not say which it is.
    ///
    /// # Errors
    /// [`BmcError`], without the headers.
    pub async fn subscribe_to_events(&self, wanted: &EventDestination<'_>) -> Result<Option<String>, BmcError> {
        let secrets = unsaid(wanted);
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let hidden = |fault: Fault| {
            let mut error = BmcError::from(fault);
            error.found = redact(&error.found, &secrets);
            error.source = None;
            error
        };
        let list = self.subscriptions(SUBSCRIBE).await?;
        let mut form = Form::default();
        loop {
            match self.core.post(SUBSCRIBE, &list, &form.body(wanted)).await {
                Ok(reply) => {
                    let path = reply.response.header("location").and_then(path_only).or_else(|| link(&reply.value));
                    return Ok(path.as_deref().and_then(|path| self.id_of(path, wanted)));
                }
                Err(Fault::Refused(refusal)) => match form.after(&refusal) {
                    Some(next) => form = next,
                    None => return Err(hidden(Fault::Refused(refusal))),
                },
                Err(fault) => return Err(hidden(fault)),
            }
        }
    }

    /// Whether the BMC has this subscription, to this destination: ids are given again.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn has_subscription(&self, id: &str, url: &str) -> Result<bool, BmcError> {
        let Some(path) = self.subscription(LOOK, id).await? else { return Ok(false) };
        match self.core.get(LOOK, &path).await {
            Ok(reply) => Ok(goes_to(&reply.value, url)),
            Err(fault) if fault.status() == Some(404) => Ok(false),
            Err(fault) => Err(unquoted(fault)),
        }
    }

    /// Ends this subscription; one that is gone, or is to another destination, is left.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn end_subscription(&self, id: &str, url: &str) -> Result<(), BmcError> {
        if !self.has_subscription(id, url).await? {
            return Ok(());
        }
        let Some(path) = self.subscription(UNSUBSCRIBE, id).await? else { return Ok(()) };
        match self.core.call(UNSUBSCRIBE, &Request::new(Method::DELETE, &path, None)).await {
            Ok(reply) => Ok(self.core.finish(UNSUBSCRIBE, reply).await.map_err(unquoted)?),
            Err(fault) if fault.status() == Some(404) => Ok(()),
            Err(fault) => Err(unquoted(fault)),
        }
    }

    /// Opens the stream of events (`ServerSentEventUri`).
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when the BMC has none, or this process has as many as it may.
    pub async fn event_stream(&self) -> Result<Stream, BmcError> {
        self.core.prove_bmc_before_a_password(LISTEN).await?;
        // It is also seen by this whether the session is still there.
        let (service, shown) = self.event_service(LISTEN).await?;
        let Some(path) = word(&shown, "ServerSentEventUri").and_then(|uri| self.core.stays(uri)) else {
            let found = format!("there is no ServerSentEventUri at {service}");
            return Err(Lacking::new(Capability::Events, self.core.without_secrets(&found)).keeps_from(LISTEN));
        };
        let Some(place) = self.core.channel.streams().place() else {
            let found = format!("{MAX_STREAMS} streams of events are open, and no more are opened");
            return Err(self.core.error(ErrorKind::Unsupported, LISTEN, found));
        };
        let mut request = Request::new(Method::GET, &path, None);
        request.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let opened = match self.core.open(LISTEN, request).await {
            Ok(opened) => opened,
            // The same account has just read the EventService: it is the stream that it may not read, and subscriptions may do.
            Err(fault) if fault.status() == Some(403) => {
                let found = format!("the account may not read the stream of events at {path}");
                return Err(self.core.error(ErrorKind::Unsupported, LISTEN, self.core.without_secrets(&found)));
            }
            Err(fault) => return Err(fault),
        };
        let kind = opened.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") || opened.headers.contains_key(CONTENT_ENCODING) {
            let found = format!("what is at {path} is no stream of events ({})", terms::clean(kind, 80));
            return Err(self.core.error(ErrorKind::NotFound, LISTEN, found));
        }
        let core = &self.core;
        let (channel, pacer) = (Arc::clone(&core.channel), Arc::clone(&core.options.pacer));
        Ok(Stream::new(opened, channel, pacer, core.address.origin(), place))
    }

    /// The id in the path; none if it tells a secret: more may read the id.
    fn id_of(&self, path: &str, wanted: &EventDestination<'_>) -> Option<String> {
        let secrets: Vec<String> = self.core.plain_secrets().into_iter().chain(secrets_of(wanted)).collect();
        id_of(path).filter(|id| is_public(id, &secrets))
    }

    /// The EventService's path, and itself; fails if there is none, or it is switched off.
    async fn event_service(&self, what: &str) -> Result<(String, Value), BmcError> {
        let root = self.core.root(what).await?;
        let Some(service) = root.events else {
            return Err(Lacking::new(Capability::Events, "there is no EventService at /redfish/v1").keeps_from(what));
        };
        let shown = self.core.get(what, &service).await.map_err(unquoted)?.value;
        if flag(&shown, "ServiceEnabled") == Some(false) {
            let found = format!("the EventService at {service} is switched off");
            let error = self.core.error(ErrorKind::Unsupported, what, found);
            return Err(error.advise("switch it on at the BMC (ServiceEnabled)"));
        }
        Ok((service, shown))
    }

    /// The collection of subscriptions.
    async fn subscriptions(&self, what: &str) -> Result<String, BmcError> {
        let (service, shown) = self.event_service(what).await?;
        let list = link_at(&shown, "Subscriptions");
        list.ok_or_else(|| {
            let found = format!("there is no Subscriptions at {service}");
            Lacking::new(Capability::Events, self.core.without_secrets(&found)).keeps_from(what)
        })
    }

    /// Path of the subscription with this id, which comes from objects that others may have edited.
    async fn subscription(&self, what: &str, id: &str) -> Result<Option<String>, BmcError> {
        if !is_id(id) {
            return Ok(None);
        }
        let list = self.subscriptions(what).await?;
        Ok(Some(format!("{}/{id}", list.trim_end_matches('/'))))
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~@:".contains(&byte);
    !id.is_empty() && id.len() <= MAX_ID && !id.starts_with('.') && id.bytes().all(allowed)
}

/// The last part of the path, as it is written.
fn id_of(path: &str) -> Option<String> {
    let id = path.trim_end_matches('/').rsplit('/').next()?;
    is_id(id).then(|| id.to_owned())
}

/// The error without the BMC's own words: it knows the headers of its subscriptions, and those who read the error may not.
fn unquoted(fault: Fault) -> BmcError {
    let status = fault.status();
    let mut error = BmcError::from(fault);
    if let Some(status) = status {
        error.found = format!("it was answered with status {status}");
        error.source = None;
    }
    error
}

/// What is secret of the headers.
fn secrets_of(wanted: &EventDestination<'_>) -> Vec<String> {
    wanted.headers.iter().flat_map(|(_, value)| parts(value)).collect()
}

/// What an error does not repeat: the secrets, and the context and the end of the destination, by which this server knows the events of a subscription of its own.
fn unsaid(wanted: &EventDestination<'_>) -> Vec<String> {
    let end = wanted.url.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let own = [wanted.context, end].map(ToOwned::to_owned).into_iter().filter(|words| words.len() >= SHORTEST_PART);
    secrets_of(wanted).into_iter().chain(own).collect()
}

/// A header's value and what of it is secret by itself: the token behind its scheme, and user and password in Basic's.
fn parts(value: &str) -> Vec<String> {
    let mut parts = vec![value.to_owned()];
    let mut words = value.split_whitespace().filter(|word| *word != value);
    parts.extend(words.clone().filter(|word| word.len() >= SHORTEST_PART).map(ToOwned::to_owned));
    let pair =
        words.next_back().and_then(|word| STANDARD.decode(word).ok()).and_then(|pair| String::from_utf8(pair).ok());
    if let Some((_, password)) = pair.as_deref().and_then(|pair| pair.split_once(':')) {
        parts.push(password.to_owned());
    }
    parts.retain(|part| !part.is_empty());
    parts
}
