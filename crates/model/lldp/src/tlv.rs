//! A frame, taken apart.

use std::fmt;

use terms::clean;

use crate::ids::{self, Kind};

/// EtherType of LLDP.
pub const ETHERTYPE: u16 = 0x88CC;

/// Group addresses that LLDP is sent to (IEEE 802.1AB-2016, table 7-1): nearest bridge, nearest bridge that is no two-port MAC relay, nearest customer bridge.
pub const GROUPS: [[u8; 6]; 3] =
    [[1, 0x80, 0xC2, 0, 0, 0x0E], [1, 0x80, 0xC2, 0, 0, 0x03], [1, 0x80, 0xC2, 0, 0, 0x00]];

/// Longest frame that is looked at, bytes: the largest that switches send at all.
pub const MAX_FRAME: usize = 9216;

/// Most VLANs of a port that are kept.
pub const MAX_VLANS: usize = 256;

/// Longest name or description that is kept, in characters: the standard has 255 bytes.
const MAX_TEXT: usize = 255;
/// Longest name of a VLAN in bytes (802.1Q-2018, D.2.3).
const MAX_VLAN_NAME: usize = 32;

/// Destination, source, EtherType.
const HEADER: usize = 14;

/// IEEE 802.1, and IEEE 802.3, as the owners of TLVs.
const OUI_8021: [u8; 3] = [0x00, 0x80, 0xC2];
const OUI_8023: [u8; 3] = [0x00, 0x12, 0x0F];

/// A neighbour, by its own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Which device.
    pub chassis_id: String,
    /// Which port of it.
    pub port_id: String,
    /// Seconds for which what it says holds.
    pub ttl: u16,
    /// What the port is called.
    pub port_description: Option<String>,
    /// What the device is called.
    pub system_name: Option<String>,
    /// Its maker, model and system.
    pub system_description: Option<String>,
    /// VLAN of untagged frames, 1 to 4094 (802.1Q, D.2.1).
    pub untagged_vlan: Option<u16>,
    /// VLANs of the port by number, with their names (802.1Q, D.2.3).
    pub vlans: Vec<(u16, Option<String>)>,
    /// Whether the port is part of an aggregation now (802.1AX, or 802.3 before).
    pub aggregated: Option<bool>,
    /// Largest frame in bytes (802.3, 79.3.4).
    pub max_frame: Option<u16>,
}

/// Why a frame tells of no neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// No LLDP: another EtherType, or a VLAN tag before it.
    NotLldp,
    /// To an address that is none of LLDP's groups.
    OtherAddress,
    /// Sent by this port itself.
    Own,
    /// The neighbour says that it is going.
    Leaving,
    /// What the standard has a receiver discard, and why.
    Malformed(&'static str),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLldp => "no LLDP",
            Self::OtherAddress => "sent to an address that is none of LLDP's",
            Self::Own => "this port's own",
            Self::Leaving => "the neighbour says that it is going",
            Self::Malformed(why) => why,
        })
    }
}

/// Reads an Ethernet frame (without its check sequence) that a port with one of these hardware addresses has received.
///
/// # Errors
/// [`Ignored`].
pub fn neighbour(frame: &[u8], own: &[[u8; 6]]) -> Result<Neighbour, Ignored> {
    if frame.len() > MAX_FRAME {
        return Err(Ignored::Malformed("longer than any frame"));
    }
    let (header, unit) = frame.split_at_checked(HEADER).ok_or(Ignored::Malformed("shorter than a frame's header"))?;
    if u16::from_be_bytes([header[12], header[13]]) != ETHERTYPE {
        return Err(Ignored::NotLldp);
    }
    if !GROUPS.iter().any(|group| header.starts_with(group)) {
        return Err(Ignored::OtherAddress);
    }
    // A group's address sends nothing: bit 0 of the first byte.
    if header[6] & 1 == 1 {
        return Err(Ignored::Malformed("its sender is a group"));
    }
    if own.iter().any(|own| own[..] == header[6..12]) {
        return Err(Ignored::Own);
    }
    unit_of(unit)
}

/// The next TLV and what follows it: 7 bits of type, 9 of length (8.4).
fn next(rest: &[u8]) -> Result<(u8, &[u8], &[u8]), Ignored> {
    let (head, rest) = rest.split_at_checked(2).ok_or(Ignored::Malformed("ends within a TLV's header"))?;
    let length = usize::from(u16::from_be_bytes([head[0] & 1, head[1]]));
    let (value, rest) = rest.split_at_checked(length).ok_or(Ignored::Malformed("ends within a TLV"))?;
    Ok((head[0] >> 1, value, rest))
}

fn id(value: &[u8], kind: fn(u8) -> Option<Kind>) -> Option<String> {
    let (subtype, id) = value.split_first()?;
    (1..=255).contains(&id.len()).then_some(())?;
    Some(ids::text(kind(*subtype)?, id))
}

/// What follows a frame's header: chassis id, port id and time to live, in this order and each once; then others, as there are (8.2).
fn unit_of(unit: &[u8]) -> Result<Neighbour, Ignored> {
    let (chassis, rest) = mandatory(unit, 1, "its first TLV is no chassis id")?;
    let chassis_id = id(chassis, ids::chassis).ok_or(Ignored::Malformed("its chassis id is none"))?;
    let (port, rest) = mandatory(rest, 2, "its second TLV is no port id")?;
    let port_id = id(port, ids::port).ok_or(Ignored::Malformed("its port id is none"))?;
    let (ttl, mut rest) = mandatory(rest, 3, "its third TLV is no time to live")?;
    let seconds = ttl.first_chunk::<2>().ok_or(Ignored::Malformed("its time to live is too short"))?;
    let ttl = u16::from_be_bytes(*seconds);
    if ttl == 0 {
        return Err(Ignored::Leaving);
    }
    let mut found = Neighbour { chassis_id, port_id, ttl, ..Neighbour::default() };
    while !rest.is_empty() {
        let (kind, value, after) = next(rest)?;
        rest = after;
        match kind {
            // The end; what is behind it fills a short frame up.
            0 => break,
            1..=3 => return Err(Ignored::Malformed("has a chassis id, port id or time to live twice")),
            4 => set(&mut found.port_description, text(value)),
            5 => set(&mut found.system_name, text(value)),
            6 => set(&mut found.system_description, text(value)),
            127 => organization(value, &mut found),
            _ => {}
        }
    }
    found.vlans.sort();
    found.vlans.dedup_by_key(|vlan| vlan.0);
    Ok(found)
}

fn mandatory<'a>(rest: &'a [u8], wanted: u8, why: &'static str) -> Result<(&'a [u8], &'a [u8]), Ignored> {
    let (kind, value, rest) = next(rest)?;
    if kind == wanted { Ok((value, rest)) } else { Err(Ignored::Malformed(why)) }
}

/// The first counts.
fn set<T>(place: &mut Option<T>, value: Option<T>) {
    if place.is_none() {
        *place = value;
    }
}

fn text(value: &[u8]) -> Option<String> {
    let text = clean(&String::from_utf8_lossy(value), MAX_TEXT);
    (!text.is_empty()).then_some(text)
}

fn vlan(number: [u8; 2]) -> Option<u16> {
    // 0 says that there is none, 4095 is reserved.
    Some(u16::from_be_bytes(number)).filter(|vlan| (1..=4094).contains(vlan))
}

/// TLVs of organizations (8.6). What is not whole is left out alone, as the standard has it (9.2.7.7.2).
fn organization(value: &[u8], found: &mut Neighbour) {
    let Some(([a, b, c, subtype], value)) = value.split_first_chunk::<4>() else { return };
    match ([*a, *b, *c], *subtype, value) {
        (OUI_8021, 1, [high, low, ..]) => set(&mut found.untagged_vlan, vlan([*high, *low])),
        (OUI_8021, 3, [high, low, length, name @ ..]) => {
            let length = usize::from(*length);
            if let Some(number) = vlan([*high, *low])
                && length <= MAX_VLAN_NAME
                && let Some(name) = name.get(..length)
                && found.vlans.len() < MAX_VLANS
            {
                found.vlans.push((number, text(name)));
            }
        }
        // Link aggregation: bit 1 of the status says that it is in use.
        (OUI_8021, 7, [status, _, _, _, _, ..]) | (OUI_8023, 3, [status, _, _, _, _, ..]) => {
            set(&mut found.aggregated, Some(status & 2 != 0));
        }
        (OUI_8023, 4, [high, low, ..]) => set(&mut found.max_frame, Some(u16::from_be_bytes([*high, *low]))),
        _ => {}
    }
}
