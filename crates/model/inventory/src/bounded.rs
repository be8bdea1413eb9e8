//! What an inspection finds, such that it can be shown and written.
//!
//! A BMC, an agent or a provisioner of somebody else says what it likes; the definitions of BareMetalHost and HardwareData refuse some of it, and an object
//! that is refused whole keeps its host in `inspecting`. What they refuse is left out, texts are printable, and everything has an end.

use serde_json::Value;
use terms::is_printable;

use crate::HardwareDetails;

/// Longest text, in characters.
const MAX_TEXT: usize = 512;
/// Most entries of a list. The largest machines have 448 processors' flags, 200 disks, and a few hundred interfaces and VLANs.
const MAX_ITEMS: usize = 512;
/// No number is as large: bytes of a disk are the largest.
const MAX_NUMBER: f64 = 1e18;
/// Most bytes of all of it as JSON. It is in the status of the host and in its HardwareData, and etcd takes objects of 1.5 MB.
pub const MAX_HARDWARE_BYTES: usize = 256 << 10;
/// VLANs that the definitions have (`maximum` of `vlanId` and `vlans[].id`).
const VLANS: std::ops::RangeInclusive<i32> = 0..=4094;

impl HardwareDetails {
    /// The facts with texts that are printable and at most 512 characters long, lists of at most 512 entries, numbers such as a machine can have, no MAC
    /// address and no VLAN that the definitions refuse.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut known = self.clone();
        for nic in &mut known.nics {
            nic.vlan_id = nic.vlan_id.filter(|id| VLANS.contains(id));
            nic.vlans.retain(|vlan| vlan.id.is_none_or(|id| VLANS.contains(&id)));
        }
        let mut value = serde_json::to_value(known).unwrap_or_default();
        bound(&mut value);
        let mut fitting: Self = serde_json::from_value(value).unwrap_or_default();
        for nic in &mut fitting.nics {
            nic.mac = nic.mac.take().filter(|mac| has_mac(mac));
        }
        fitting
    }

    /// Whether they can be written: at most [`MAX_HARDWARE_BYTES`] of JSON.
    ///
    /// # Errors
    /// A sentence that says so of what `who`, such as `the agent reports`, has said.
    pub fn fits(&self, who: &str) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |json| json.len());
        if bytes <= MAX_HARDWARE_BYTES {
            return Ok(());
        }
        Err(format!("take the hardware details: {who} {bytes} bytes, {MAX_HARDWARE_BYTES} are accepted"))
    }
}

/// Whether six pairs of hexadecimal digits with colons are in it (`pattern` of `nics[].mac`, which has no ends: an InfiniBand address of 20 pairs fits).
fn has_mac(text: &str) -> bool {
    let is_at = |place: usize, byte: u8| if place % 3 == 2 { byte == b':' } else { byte.is_ascii_hexdigit() };
    text.as_bytes().windows(17).any(|window| window.iter().enumerate().all(|(place, byte)| is_at(place, *byte)))
}

fn bound(value: &mut Value) {
    match value {
        Value::String(text) => {
            if text.len() > MAX_TEXT || !text.chars().all(is_printable) {
                *text = text.chars().filter(|c| is_printable(*c)).take(MAX_TEXT).collect();
            }
        }
        Value::Array(items) => {
            items.truncate(MAX_ITEMS);
            items.iter_mut().for_each(bound);
        }
        Value::Object(fields) => fields.values_mut().for_each(bound),
        Value::Number(number) => {
            if !number.as_f64().is_some_and(|number| (0.0..MAX_NUMBER).contains(&number)) {
                *value = 0.into();
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nic, Storage, Vlan};

    #[test]
    fn what_is_found_is_printable_and_such_as_a_machine_has() {
        let hardware = serde_json::json!({
            "hostname": "\u{202e}H\u{1b}[31m\n".to_owned() + &"h".repeat(3000),
            "cpu": {"arch": "x86_64\u{1b}", "count": -5, "clockMegahertz": 1e300},
            "nics": (0..2000).map(|n| serde_json::json!({"name": format!("n{n}\u{200b}"), "speedGbps": -1})).collect::<Vec<_>>(),
        });
        let hardware = serde_json::from_value::<HardwareDetails>(hardware).unwrap().bounded();
        assert!(hardware.hostname.as_ref().is_some_and(|name| name.starts_with("H[31mhh") && name.len() == MAX_TEXT));
        assert_eq!(hardware.nics.len(), MAX_ITEMS);
        let text = serde_json::to_string(&hardware).unwrap();
        assert!(text.chars().all(is_printable) && !text.contains("\\u") && !text.contains(":-"), "{}", &text[..400]);
        assert!(text.contains("\"arch\":\"x86_64\"") && !text.contains("e300"), "{}", &text[..400]);
    }

    #[test]
    fn a_real_inventory_is_left_as_it_is() {
        let hardware = serde_json::json!({
            "hostname": "node-0",
            "cpu": {"arch": "x86_64", "model": "Intel(R) Xeon(R)", "clockMegahertz": 3500.5, "count": 64, "flags": ["aes", "vmx"]},
            "ramMebibytes": 1_048_576,
            "nics": [{"name": "eno1", "mac": "00:1B:21:aa:bb:cc", "vlanId": 0, "vlans": [{"id": 4094, "name": "out"}, {"name": "in"}]}],
            "storage": [{"name": "/dev/sda", "sizeBytes": 15_360_950_534_144_u64, "rotational": false, "serialNumber": "S"}],
        });
        let hardware: HardwareDetails = serde_json::from_value(hardware).unwrap();
        assert_eq!(hardware.bounded(), hardware);
    }

    #[test]
    fn what_the_definitions_refuse_is_left_out_alone() {
        let vlan = |id| Vlan { id: Some(id), name: None };
        let nic = |mac: &str| Nic {
            name: Some("eno1".to_owned()),
            mac: Some(mac.to_owned()),
            vlan_id: Some(5000),
            vlans: vec![vlan(5), vlan(4095), vlan(-1)],
            ..Nic::default()
        };
        // None at all, one with dashes, one that is none.
        let late = format!("{}00:1b:21:00:00:01", "x".repeat(600));
        for mac in ["", "00-1b-21-00-00-01", "00:1b:21:00:00:0g", &late] {
            let found = HardwareDetails { nics: vec![nic(mac)], ..HardwareDetails::default() }.bounded();
            let kept = Nic { name: Some("eno1".to_owned()), vlans: vec![vlan(5)], ..Nic::default() };
            assert_eq!(found.nics, [kept], "{mac:?}");
        }
        let infiniband = "80:00:00:4a:fe:80:00:00:00:00:00:00:f4:52:14:03:00:7b:cb:a1";
        let found = HardwareDetails { nics: vec![nic(infiniband)], ..HardwareDetails::default() }.bounded();
        assert_eq!(found.nics[0].mac.as_deref(), Some(infiniband), "the definitions take it");
    }

    #[test]
    fn what_is_too_large_to_be_written_is_told() {
        let storage = vec![Storage { alternate_names: vec!["x".repeat(600); 600], ..Storage::default() }; 600];
        let hardware = HardwareDetails { storage, ..HardwareDetails::default() };
        assert!(hardware.bounded().fits("the agent reports").unwrap_err().contains("the agent reports 13"));
        let storage = vec![Storage { name: Some("x".repeat(400)), ..Storage::default() }; 600];
        HardwareDetails { storage, ..HardwareDetails::default() }.bounded().fits("the agent reports").unwrap();
    }
}
