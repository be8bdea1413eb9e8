//! Behaviour of a BMC, as settings that can be changed while it runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ailments::Ailments;

/// Where virtual media resources are found in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MediaPlace {
    /// Under the system and under the manager: two views of one drive.
    #[default]
    Both,
    /// Under the system only, as Redfish requires since 2020.4.
    System,
    /// Under the manager only, as older BMCs have it.
    Manager,
}

/// How a BMC tells of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Telling {
    /// By streams and to subscriptions.
    #[default]
    Both,
    /// By streams (server-sent events) alone.
    Streams,
    /// To subscriptions alone.
    Subscriptions,
    /// Not at all: there is no EventService.
    None,
}

impl Telling {
    /// Whether there are streams.
    #[must_use]
    pub const fn streams(self) -> bool {
        matches!(self, Self::Both | Self::Streams)
    }

    /// Whether there are subscriptions.
    #[must_use]
    pub const fn subscriptions(self) -> bool {
        matches!(self, Self::Both | Self::Subscriptions)
    }
}

/// The light by which a person finds the machine, and where its BMC takes orders for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Light {
    /// `IndicatorLED`, at the system and at its chassis: two views of one light.
    #[default]
    Led,
    /// `LocationIndicatorActive` at both, which `IndicatorLED` follows: newer BMCs.
    Active,
    /// `IndicatorLED` at both, and orders for it at the chassis alone: `Lit` when nobody looks for the machine, else `Blinking`, as an iDRAC has it.
    Chassis,
    /// There is none.
    None,
}

/// Faults while the BMC reads its virtual medium.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MediaFaults {
    /// Delay before each fetch, in milliseconds.
    pub delay_ms: u64,
    /// Throughput limit in bytes per second; 0 for none.
    pub bytes_per_second: u64,
    /// Every fetch fails without a request to the medium's server.
    pub fail: bool,
    /// A medium is taken as it is, and its server is never asked for anything of it, then or later: the machine finds nothing in the drive. One that was put in so stays empty.
    pub unread: bool,
    /// Fetches fail once so many bytes of the medium were fetched.
    pub fail_after_bytes: Option<u64>,
}

/// The switches of one BMC.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Refuses connections: nothing listens on the port, and open connections are cut.
    pub refuse: bool,
    /// Most sessions at a time; one more is answered with 503.
    pub session_limit: usize,
    /// A session expires after this many seconds without use.
    pub session_idle_seconds: u64,
    /// Whether the session service exists.
    pub sessions: bool,
    /// Whether HTTP basic authentication is accepted.
    pub basic_auth: bool,
    /// Resets and media actions are answered with 202 and a task.
    pub async_actions: bool,
    /// Such tasks never end, and have no effect.
    pub stuck_tasks: bool,
    /// How long such a task lasts before it acts, in milliseconds.
    pub task_delay_ms: u64,
    /// Whether a reset to the current power state is answered with 409; otherwise with 204.
    pub reset_conflict: bool,
    /// Resets are accepted but change nothing.
    pub power_stuck: bool,
    /// A boot override for each boot (`Continuous`) is neither listed nor taken.
    pub boots_once: bool,
    /// One is taken, and kept for the next boot only.
    pub forgets_continuous: bool,
    /// A PATCH without If-Match is refused with 428.
    pub require_if_match: bool,
    /// Whether the firmware's settings (`Bios`) are shown.
    pub bios: bool,
    /// Changes of the firmware's settings are taken, and dropped at the restart.
    pub bios_stuck: bool,
    /// Where virtual media are found.
    pub media_at: MediaPlace,
    /// Faults while the medium is read.
    pub media: MediaFaults,
    /// How it tells of events.
    pub events: Telling,
    /// The light by which a person finds the machine.
    pub light: Light,
    /// What is wrong with the machine: a list of names, as `["psu-lost"]`.
    pub ailments: Ailments,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            refuse: false,
            session_limit: 16,
            session_idle_seconds: 1800,
            sessions: true,
            basic_auth: true,
            async_actions: false,
            stuck_tasks: false,
            task_delay_ms: 0,
            reset_conflict: true,
            power_stuck: false,
            boots_once: false,
            forgets_continuous: false,
            require_if_match: false,
            bios: true,
            bios_stuck: false,
            media_at: MediaPlace::Both,
            media: MediaFaults::default(),
            events: Telling::default(),
            light: Light::default(),
            ailments: Ailments::default(),
        }
    }
}

impl Settings {
    /// How long a session lives without use.
    #[must_use]
    pub const fn session_idle(&self) -> Duration {
        Duration::from_secs(self.session_idle_seconds)
    }

    /// These settings with the fields of `patch` (a JSON object, as in a merge patch) changed.
    ///
    /// # Errors
    /// The patch is no object, or names a field that does not exist or with a value of the wrong type.
    pub fn patched(&self, patch: &Value) -> Result<Self, serde_json::Error> {
        let mut whole = serde_json::to_value(self)?;
        merge(&mut whole, patch, 0);
        serde_json::from_value(whole)
    }
}

/// Merges the patch's fields into the target, to a depth that nothing here exceeds. Unlike in a merge patch (RFC 7396), null is a value.
pub(crate) fn merge(target: &mut Value, patch: &Value, depth: usize) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) if depth < 8 => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value, depth + 1);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_change_what_they_name() {
        let settings = Settings::default();
        let changed = settings.patched(&json!({"sessionLimit": 2, "media": {"delayMs": 5}})).unwrap();
        assert_eq!((changed.session_limit, changed.media.delay_ms, changed.sessions), (2, 5, true));
        let back = changed.patched(&json!({"media": {"failAfterBytes": null}})).unwrap();
        assert_eq!(back.media.delay_ms, 5);
        assert!(settings.patched(&json!({"sesionLimit": 2})).is_err());
        assert!(settings.patched(&json!({"refuse": "yes"})).is_err());
        assert!(settings.patched(&json!(3)).is_err());
    }
}
