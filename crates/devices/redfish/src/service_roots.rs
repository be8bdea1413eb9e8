//! Service roots of BMCs that nobody has declared: what they show without a password.
//!
//! One request a place, on a connection of its own, within seconds and 64 KiB; redirects are not followed, and nobody is sent a secret. A certificate is not
//! judged: the key that it proves is what is reported.

use std::sync::Arc;
use std::time::Duration;

use addresses::Allowed;
use bmc::Address;
use discovery::{Answer, Place, Shown};
use http::Method;
use serde_json::Value;
use tokio::time::timeout;

use crate::http_transport::{HttpTransport, Limits};
use crate::resources::Root;
use crate::tls::{self, Tls, TlsError};
use crate::transport::{Over, Request, Transport as _, TransportError};

/// The service root (DSP0266, 6.2).
const ROOT: &str = "/redfish/v1/";
/// Time for a connection: on a network of BMCs a packet takes milliseconds, and one that was lost is sent again after a second (RFC 6298, 2.1).
const CONNECT: Duration = Duration::from_millis(2500);
/// Time for everything: small processors take seconds for a handshake.
const OVERALL: Duration = Duration::from_secs(10);
/// Largest service root, bytes. Those of the field are below 4 KiB.
const MAX_ROOT: usize = 64 << 10;
/// Most values in one.
const MAX_VALUES: usize = 4096;

/// Asks for service roots.
pub struct ServiceRoots {
    allowed: Allowed,
    tls: Tls,
    /// Made once for all: a configuration lives as long as somebody holds it.
    _held: Arc<rustls::ClientConfig>,
}

impl ServiceRoots {
    /// One that calls local addresses only if these allow it.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(allowed: Allowed) -> Result<Self, TlsError> {
        let tls = Tls { accept_any_certificate: true, extra_ca_pem: None };
        let held = tls::config(&tls)?;
        Ok(Self { allowed, tls, _held: held })
    }

    /// Asks one place, within ten seconds.
    pub async fn ask(&self, place: Place) -> Answer {
        timeout(OVERALL, self.asked(place)).await.unwrap_or(Answer::Nothing)
    }

    async fn asked(&self, place: Place) -> Answer {
        let Ok(address) = Address::parse(&place.address()) else { return Answer::Nothing };
        let limits = Limits { connect: CONNECT, handshake: OVERALL, body: MAX_ROOT };
        let Ok(transport) = HttpTransport::new(&address, &self.tls, &self.allowed) else { return Answer::Nothing };
        let transport = transport.within(limits);
        let mut request = Request::new(Method::GET, ROOT, None);
        request.over = Over::Own;
        match transport.send(&request).await {
            Ok(answer) => match answer.status {
                200 => shown(&answer.body, transport.key_sha256()).map_or(Answer::Nothing, Answer::Shown),
                401 | 403 => Answer::Hidden,
                _ => Answer::Nothing,
            },
            Err(TransportError::NotAllowed { .. }) => Answer::NotAllowed,
            Err(_) => Answer::Nothing,
        }
    }
}

/// What a body shows, if it is a service root's.
fn shown(body: &[u8], key_sha256: Option<String>) -> Option<Shown> {
    if terms::json_values_at_most(body) > MAX_VALUES {
        return None;
    }
    let value: Value = serde_json::from_slice(body).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let version = text("RedfishVersion");
    let is_root = version.is_some() || text("@odata.type").is_some_and(|kind| kind.starts_with("#ServiceRoot."));
    if !value.is_object() || !is_root {
        return None;
    }
    let root = Root::read(&value);
    let redfish_version = version.unwrap_or_default().to_owned();
    let shown = Shown { vendor: root.vendor, product: root.product, uuid: root.uuid, redfish_version, key_sha256 };
    Some(shown.bounded())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_service_root_shows_nothing_and_what_is_one_is_bounded() {
        let many = format!("{{\"RedfishVersion\":\"1.6.0\",\"a\":[{}0]}}", "0,".repeat(MAX_VALUES));
        for body in ["", "[]", "null", "{}", "{\"Vendor\":\"x\"}", "<html>", &"[".repeat(40_000), &many] {
            assert_eq!(shown(body.as_bytes(), None), None, "{body:.40}");
        }
        let hostile = serde_json::json!({ "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "RedfishVersion": 7,
            "Vendor": format!("\u{1b}[2J{}", "v".repeat(10_000)), "Product": ["x"], "UUID": "u".repeat(10_000) });
        let found = shown(hostile.to_string().as_bytes(), None).unwrap();
        assert!(found.vendor.starts_with("[2Jv") && found.vendor.chars().count() == discovery::MAX_TEXT, "{found:?}");
        assert_eq!((found.product.as_str(), found.uuid, found.redfish_version.as_str()), ("", None, ""));
    }
}
