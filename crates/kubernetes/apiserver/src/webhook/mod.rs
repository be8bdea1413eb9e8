//! Calls to webhooks: where one is ([`Target`]), how it is reached ([`connect`]), and what of its answer is trusted.
//!
//! HTTPS only, no proxies, no redirects; time, bytes and idle connections are bounded. The texts of failures are those
//! of upstream's client, because they reach users (`failed calling webhook ...`).

mod answer;
mod connect;
mod resolve;
mod trust;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use rustls::ClientConfig;
use serde_json::Value;

use crate::verbs::Backend;

pub use answer::{decoded, refusal};

/// Answer of a webhook.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// Media type, as given.
    pub media: String,
    /// The body.
    pub body: Bytes,
}

/// A service within the API.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Service {
    ns: String,
    name: String,
    port: u16,
}

/// Where a webhook is: a `WebhookClientConfig`, with the connections to it that are idle.
pub struct Target {
    service: Option<Service>,
    /// Name or address to dial; the name in the certificate.
    host: String,
    port: u16,
    /// Path of the URL, at least `/`.
    path: String,
    bundle: Vec<u8>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    idle: connect::Idle,
}

/// One call.
pub struct Call {
    /// The JSON to send.
    pub body: Bytes,
    /// For the whole call.
    pub patience: Duration,
    /// Whether the webhook is told the time it has, in seconds.
    pub tell: bool,
    /// Bytes that the answer may have.
    pub most: usize,
}

impl Target {
    /// Reads a `clientConfig`. What a stored one cannot be (validation refuses it) is an error text.
    pub fn parse(config: &Value) -> Result<Self, String> {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let bundle = STANDARD.decode(text(config, "caBundle")).map_err(|e| e.to_string())?;
        let bundle = if bundle.iter().all(u8::is_ascii_whitespace) { Vec::new() } else { bundle };
        let (service, host, port, path) = match config.get("service") {
            Some(service @ Value::Object(_)) => {
                let (ns, name) = (text(service, "namespace"), text(service, "name"));
                let port = service.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok());
                let port = port.filter(|p| *p > 0).unwrap_or(443);
                let host = format!("{name}.{ns}.svc");
                (Some(Service { ns, name, port }), host, port, text(service, "path"))
            }
            _ => {
                let url = text(config, "url");
                if url.is_empty() {
                    return Err("webhook configuration must have either service or URL".to_owned());
                }
                let uri: http::Uri = url.parse().map_err(|e| format!("Unparsable URL: {e}"))?;
                if uri.scheme_str() != Some("https") {
                    return Err("Unparsable URL: the scheme is not https".to_owned());
                }
                let host = uri.host().unwrap_or_default().to_owned();
                (None, host, uri.port_u16().unwrap_or(443), uri.path().to_owned())
            }
        };
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        Ok(Self { service, host, port, path, bundle, tls: OnceLock::new(), idle: connect::Idle::default() })
    }

    /// The URL as upstream prints it.
    fn url(&self, call: &Call) -> String {
        let port = if self.service.is_some() || self.port != 443 { format!(":{}", self.port) } else { String::new() };
        format!("https://{}{port}{}", self.host, self.query(call))
    }

    fn query(&self, call: &Call) -> String {
        if call.tell { format!("{}?timeout={}s", self.path, call.patience.as_secs().max(1)) } else { self.path.clone() }
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls.get_or_init(|| trust::client_config(&self.bundle)).clone()
    }

    /// Sends a call and reads the whole answer. The error is upstream's text.
    pub async fn post(&self, backend: &Backend, call: &Call) -> Result<Answer, String> {
        let outcome = tokio::time::timeout(call.patience, self.exchange(backend, call)).await;
        outcome
            .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
            .map_err(|why| format!("Post \"{}\": {why}", self.url(call)))
    }

    async fn exchange(&self, backend: &Backend, call: &Call) -> Result<Answer, String> {
        let request = || {
            http::Request::post(self.query(call))
                .header(http::header::HOST, format!("{}:{}", self.host, self.port))
                .header(http::header::CONTENT_TYPE, "application/json")
                .header(http::header::ACCEPT, "application/json, */*")
                .header(http::header::USER_AGENT, "kube-apiserver-admission")
                .body(Full::new(call.body.clone()))
                .map_err(|e| e.to_string())
        };
        // A kept connection may have been closed by the other side meanwhile, which shows in many ways: when anything fails
        // on one, the call is made again, so that a webhook may see it twice.
        let mut sent = None;
        while let Some(mut kept) = self.idle.take() {
            if let Ok(response) = kept.send_request(request()?).await {
                sent = Some((kept, response));
                break;
            }
        }
        let (sender, response) = match sent {
            Some(sent) => sent,
            None => {
                let mut fresh = self.connect(backend).await?;
                let response = fresh.send_request(request()?).await.map_err(|e| connect::broken(&e))?;
                (fresh, response)
            }
        };
        let code = response.status().as_u16();
        let media = response.headers().get(http::header::CONTENT_TYPE);
        let media = media.and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let body = Limited::new(response.into_body(), call.most).collect().await;
        let body = body.map_err(|_| "http: request body too large".to_owned())?.to_bytes();
        self.idle.keep(sender);
        Ok(Answer { code, media, body })
    }

    async fn connect(&self, backend: &Backend) -> Result<connect::Sender, String> {
        let tls = self.tls()?;
        match &self.service {
            None => connect::dial(&self.host, self.port, &self.host, tls).await,
            Some(Service { ns, name, port }) => {
                let (host, port) = resolve::endpoint(backend, ns, name, *port).await?;
                connect::dial(&host, port, &self.host, tls).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(tell: bool) -> Call {
        Call { body: Bytes::new(), patience: Duration::from_secs(3), tell, most: 10 }
    }

    #[test]
    fn urls_are_shown_as_upstream_does() {
        let of = |config: Value| Target::parse(&config).map(|t| t.url(&call(true)));
        assert_eq!(of(json!({"url": "https://127.0.0.1:9/a"})).unwrap(), "https://127.0.0.1:9/a?timeout=3s");
        let service = json!({"service": {"name": "s", "namespace": "n", "path": "/p"}});
        assert_eq!(of(service).unwrap(), "https://s.n.svc:443/p?timeout=3s");
        assert!(of(json!({"url": "http://127.0.0.1/"})).is_err());
        assert!(of(json!({})).is_err());
        let bare = Target::parse(&json!({"url": "https://[::1]"})).unwrap();
        assert_eq!(bare.url(&call(false)), "https://[::1]/");
    }
}
