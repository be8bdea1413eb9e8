//! Ironic's API, as far as agents use it: lookup, heartbeat, the answer to inspection data, errors.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Secret;

/// What Ironic shows instead of a token that it has given out before (`I:api/controllers/v1/ramdisk.py`).
pub const MASKED_TOKEN: &str = "******";

/// Shortest token, in characters: `A:agent.py` takes none that is shorter.
pub const MIN_TOKEN: usize = 32;

/// The answer to `GET /v1/lookup?addresses=…&node_uuid=…` (`I:api/controllers/v1/ramdisk.py`, `convert_with_links`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookupAnswer {
    /// The node.
    pub node: LookupNode,
    /// What the agent is to do as.
    pub config: LookupConfig,
}

/// The node, as a lookup shows it (`_LOOKUP_RETURN_FIELDS` there).
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LookupNode {
    /// UUID.
    pub uuid: String,
    /// `properties`: root device hints among them (`root_device`).
    #[serde(default, deserialize_with = "or_default")]
    pub properties: Map<String, Value>,
    /// `instance_info`: root device hints may be here, too. Config drive and secrets are masked or not, as Ironic likes.
    #[serde(default, deserialize_with = "or_default")]
    pub instance_info: Map<String, Value>,
    /// `driver_internal_info`.
    #[serde(default, deserialize_with = "or_default")]
    pub driver_internal_info: Map<String, Value>,
}

impl std::fmt::Debug for LookupNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LookupNode").field("uuid", &self.uuid).finish_non_exhaustive()
    }
}

/// What a lookup says an agent is to do as (`config()` there).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LookupConfig {
    /// Seconds until Ironic thinks that the agent is gone; the agent heartbeats after 0.3 to 0.6 of it.
    pub heartbeat_timeout: u64,
    /// The token, once; later [`MASKED_TOKEN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_token: Option<Secret>,
    /// Heartbeats need the token.
    #[serde(default)]
    pub agent_token_required: bool,
    /// Whether MD5 counts as a checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_md5_checksum_enable: Option<bool>,
    /// Whether an image's content is not looked at before it is converted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_deep_image_inspection: Option<bool>,
    /// Formats of images that may be written: `raw`, `gpt`, `qcow2`, `iso`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permitted_image_formats: Option<Vec<String>>,
    /// The BMC's address is not looked for.
    #[serde(default, deserialize_with = "or_default")]
    pub agent_skip_bmc_detect: bool,
    /// `grub-install` may be run from the image.
    #[serde(default, deserialize_with = "or_default")]
    pub enable_bios_bootloader_install: bool,
    /// Oldest TLS, `1.2` or `1.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_min_version: Option<String>,
    /// OpenSSL's names of cipher suites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_cipher_suites: Option<String>,
    /// Which containers may be run as steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_containers: Option<Value>,
    /// Where numbers about the agent go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Value>,
    /// As `metrics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_statsd: Option<Value>,
}

impl LookupConfig {
    /// The token, if the answer has one: neither a masked nor a short one counts.
    #[must_use]
    pub fn token(&self) -> Option<&Secret> {
        self.agent_token.as_ref().filter(|token| token.reveal().len() >= MIN_TOKEN)
    }

    /// Whether the token has been given out before.
    #[must_use]
    pub fn is_masked(&self) -> bool {
        self.agent_token.as_ref().is_some_and(|token| token.reveal() == MASKED_TOKEN)
    }
}

/// Null and nothing are the same.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Body of `POST /v1/heartbeat/<uuid>` (`A:ironic_api_client.py`, `heartbeat`; `I:api/controllers/v1/ramdisk.py`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Address of the agent's API: `https://192.0.2.7:9999`. It may not change while Ironic knows one.
    pub callback_url: String,
    /// The token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_token: Option<Secret>,
    /// The agent's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The agent's certificate, PEM. It may not change, either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_verify_ca: Option<String>,
    /// How the installer is that has no API of its own (API version 1.72).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_status: Option<HeartbeatStatus>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_status_message: Option<String>,
}

/// `AGENT_VALID_STATES` (`I:api/controllers/v1/ramdisk.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeartbeatStatus {
    /// It has begun.
    Start,
    /// It has ended.
    End,
    /// It has failed.
    Error,
}

/// The answer to `POST /v1/continue_inspection`: the UUID alone without a version, node and config from 1.84 on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContinueAnswer {
    /// The node's UUID, where only that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<LookupNode>,
    /// As of a lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<LookupConfig>,
}

impl ContinueAnswer {
    /// The node's UUID.
    #[must_use]
    pub fn node_uuid(&self) -> Option<&str> {
        self.uuid.as_deref().or(self.node.as_ref().map(|node| node.uuid.as_str()))
    }
}

/// Longest text of an error, in characters.
const MAX_ERROR: usize = 500;

/// What an error of Ironic's API says: `error_message` with `faultstring`, which is JSON in JSON, or a `title` (`A:ironic_api_client.py`,
/// `_error_from_response`); else the body's beginning.
#[must_use]
pub fn api_error(body: &[u8]) -> String {
    let body = &body[..body.len().min(16 << 10)];
    let told = serde_json::from_slice::<Value>(body).ok().and_then(|value| {
        let inner = match value.get("error_message") {
            Some(Value::String(text)) => {
                serde_json::from_str(text).unwrap_or_else(|_| serde_json::json!({ "faultstring": text }))
            }
            Some(other) => other.clone(),
            None => value,
        };
        let text = inner.get("faultstring").or_else(|| inner.get("title"))?.as_str()?.to_owned();
        (!text.is_empty()).then_some(text)
    });
    let text = told.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_ERROR).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_its_words() {
        let double = br#"{"error_message": "{\"faultcode\": \"Client\", \"faultstring\": \"Node x is locked\", \"debuginfo\": null}"}"#;
        assert_eq!(api_error(double), "Node x is locked");
        assert_eq!(api_error(br#"{"error_message": {"faultstring": "no"}}"#), "no");
        assert_eq!(api_error(br#"{"code": 406, "title": "Not Acceptable"}"#), "Not Acceptable");
        assert_eq!(api_error(b"<html>\n502</html>"), "<html> 502</html>");
        assert_eq!(api_error(&[b'x'; 100_000]).len(), MAX_ERROR);
    }

    #[test]
    fn only_a_long_token_is_one() {
        let config = |token: &str| LookupConfig { agent_token: Some(Secret::new(token)), ..LookupConfig::default() };
        assert!(config("******").token().is_none() && config("******").is_masked());
        assert!(config(&"t".repeat(31)).token().is_none());
        assert!(config(&"t".repeat(43)).token().is_some_and(|token| token.is(&"t".repeat(43))));
    }
}
