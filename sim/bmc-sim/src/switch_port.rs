//! What a fake machine's network cards hear: LLDP frames of the switches that the configuration has at the other ends of their cables, made here from the
//! standard (IEEE 802.1AB-2016, clause 8; 802.1Q-2018, annex D).

use serde::{Deserialize, Serialize};

/// `01-80-C2-00-00-0E`, nearest bridge; then EtherType 88CC behind the sender's address.
const TO: [u8; 6] = [0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E];
const ETHERTYPE: [u8; 2] = [0x88, 0xCC];
/// Seconds for which it holds: four times the interval of 30 s.
const TTL: u16 = 120;

/// A port of a switch at the other end of a card's cable.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NeighbourConfig {
    /// The switch's hardware address, which is its chassis id.
    pub chassis: String,
    /// The port's name.
    pub port: String,
    /// The switch's name.
    #[serde(default)]
    pub name: Option<String>,
    /// VLAN of untagged frames.
    #[serde(default)]
    pub untagged_vlan: Option<u16>,
    /// VLANs of the port.
    #[serde(default)]
    pub vlans: Vec<u16>,
}

/// Bytes of a hardware address.
#[must_use]
pub fn mac(text: &str) -> Option<[u8; 6]> {
    let pair = |part: &str| {
        let is_pair = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(part, 16).ok().filter(|_| is_pair)
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(pair).collect();
    bytes?.try_into().ok()
}

fn tlv(frame: &mut Vec<u8>, kind: u16, value: &[&[u8]]) {
    let value = value.concat();
    let head = kind << 9 | u16::try_from(value.len()).unwrap_or(0x1FF).min(0x1FF);
    frame.extend(head.to_be_bytes());
    frame.extend(value.iter().take(0x1FF));
}

/// One frame; `None` if the switch's address is none.
#[must_use]
pub fn frame(neighbour: &NeighbourConfig) -> Option<Vec<u8>> {
    let chassis = mac(&neighbour.chassis)?;
    let mut frame = [&TO[..], &chassis, &ETHERTYPE].concat();
    tlv(&mut frame, 1, &[&[4], &chassis]);
    tlv(&mut frame, 2, &[&[5], neighbour.port.as_bytes()]);
    tlv(&mut frame, 3, &[&TTL.to_be_bytes()]);
    if let Some(name) = &neighbour.name {
        tlv(&mut frame, 5, &[name.as_bytes()]);
    }
    if let Some(vlan) = neighbour.untagged_vlan {
        tlv(&mut frame, 127, &[&[0x00, 0x80, 0xC2, 1], &vlan.to_be_bytes()]);
    }
    for vlan in &neighbour.vlans {
        tlv(&mut frame, 127, &[&[0x00, 0x80, 0xC2, 3], &vlan.to_be_bytes(), &[0]]);
    }
    tlv(&mut frame, 0, &[]);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_the_standard_has_it() {
        let neighbour = NeighbourConfig {
            chassis: "00:1c:73:aa:bb:cc".into(),
            port: "e1".into(),
            name: Some("leaf-1".into()),
            untagged_vlan: Some(10),
            vlans: vec![20],
        };
        let found: String = frame(&neighbour).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        let want = [
            "0180c200000e001c73aabbcc88cc",
            "020704001c73aabbcc",
            "0403056531",
            "06020078",
            "0a066c6561662d31",
            "fe060080c201000a",
            "fe070080c203001400",
            "0000",
        ];
        assert_eq!(found, want.concat());
        assert!(
            mac("00:1c:73:aa:bb").is_none() && mac("0:1c:73:aa:bb:cc").is_none() && mac("+1:1c:73:aa:bb:cc").is_none()
        );
    }
}
