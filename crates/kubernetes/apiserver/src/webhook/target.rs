//! The address of a webhook, and the requests to it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls::ClientConfig;
use serde_json::Value;

use super::{connect, trust};

/// The response of a webhook.
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
pub struct Service {
    /// Its namespace.
    pub ns: String,
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
}

/// A `WebhookClientConfig` with its idle connections.
pub struct Target {
    /// The service, if it is one of the API.
    pub service: Option<Service>,
    /// Name or address to dial; the name in the certificate.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Path of the URL, at least `/`.
    path: String,
    bundle: Vec<u8>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    /// Connections that are idle.
    pub idle: connect::Idle,
}

/// One call.
pub struct Call {
    /// The JSON to send.
    pub body: Bytes,
    /// Timeout of the whole call.
    pub patience: Duration,
    /// Whether the query contains the timeout, in seconds.
    pub send_timeout: bool,
    /// Largest response, in bytes.
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
    pub fn url(&self, call: &Call) -> String {
        let port = if self.service.is_some() || self.port != 443 { format!(":{}", self.port) } else { String::new() };
        format!("https://{}{port}{}", self.host, self.query(call))
    }

    /// The path of a call, with its timeout if requested.
    pub fn query(&self, call: &Call) -> String {
        if call.send_timeout {
            format!("{}?timeout={}s", self.path, call.patience.as_secs().max(1))
        } else {
            self.path.clone()
        }
    }

    /// What of its certificate is trusted. The error is upstream's text.
    pub fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls.get_or_init(|| trust::client_config(&self.bundle)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(send_timeout: bool) -> Call {
        Call { body: Bytes::new(), patience: Duration::from_secs(3), send_timeout, most: 10 }
    }

    #[test]
    fn urls_are_printed_as_upstream_does() {
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
