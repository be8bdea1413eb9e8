//! Frames as switches send them, as nobody should, and as nobody can tell beforehand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use lldp::{ETHERTYPE, GROUPS, Ignored, MAX_VLANS, Neighbour, neighbour};
use proptest::prelude::*;
use terms::is_printable;

const SENDER: [u8; 6] = [0x00, 0x1C, 0x73, 1, 2, 3];
const OWN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    let mut bytes = ((u16::from(kind) << 9) | length).to_be_bytes().to_vec();
    bytes.extend(value);
    bytes
}

fn header(to: [u8; 6], from: [u8; 6], kind: u16) -> Vec<u8> {
    [&to[..], &from[..], &kind.to_be_bytes()[..]].concat()
}

fn frame(tlvs: &[Vec<u8>]) -> Vec<u8> {
    [header(GROUPS[0], SENDER, ETHERTYPE), tlvs.concat()].concat()
}

/// Chassis id, port id, time to live.
fn basics() -> Vec<Vec<u8>> {
    let chassis = [&[4][..], &[0x00, 0x1C, 0x73, 0xAA, 0xBB, 0xCC]].concat();
    vec![tlv(1, &chassis), tlv(2, b"\x05Ethernet1/1"), tlv(3, &[0, 120])]
}

fn with(more: &[Vec<u8>]) -> Vec<u8> {
    frame(&[basics(), more.to_vec()].concat())
}

fn read(frame: &[u8]) -> Result<Neighbour, Ignored> {
    neighbour(frame, &[OWN])
}

#[test]
fn a_switch_says_who_it_is_and_what_the_port_carries() {
    let mut bytes = with(&[
        tlv(4, b"to rack 7"),
        tlv(5, b"leaf-1.example"),
        tlv(6, b"Maker OS 4.2\nmodel X"),
        tlv(7, &[0, 4, 0, 4]),
        tlv(8, &[5, 1, 10, 0, 0, 1, 2, 0, 0, 0, 1, 0]),
        tlv(127, &[0x00, 0x80, 0xC2, 1, 0, 10]),
        tlv(127, b"\x00\x80\xc2\x03\x00\x14\x07storage"),
        tlv(127, b"\x00\x80\xc2\x03\x00\x0a\x00"),
        tlv(127, &[0x00, 0x80, 0xC2, 7, 3, 0, 0, 0, 9]),
        tlv(127, &[0x00, 0x12, 0x0F, 1, 3, 0, 0, 0, 0x1E]),
        tlv(127, &[0x00, 0x12, 0x0F, 4, 0x23, 0xE8]),
        tlv(127, &[0x00, 0x26, 0xE1, 9, 1]),
        tlv(0, &[]),
    ]);
    bytes.extend([0xFF; 20]);
    let want = Neighbour {
        chassis_id: "00:1c:73:aa:bb:cc".into(),
        port_id: "Ethernet1/1".into(),
        ttl: 120,
        port_description: Some("to rack 7".into()),
        system_name: Some("leaf-1.example".into()),
        system_description: Some("Maker OS 4.2 model X".into()),
        untagged_vlan: Some(10),
        vlans: vec![(10, None), (20, Some("storage".into()))],
        aggregated: Some(true),
        max_frame: Some(9192),
    };
    assert_eq!(read(&bytes), Ok(want.clone()));
    // The other groups, and an end that is no TLV (802.1AB-2016, 8.5.1).
    for group in GROUPS {
        bytes[..6].copy_from_slice(&group);
        assert_eq!(read(&bytes), Ok(want.clone()));
    }
    let plain = read(&with(&[])).unwrap();
    assert_eq!((plain.system_name, plain.untagged_vlan, plain.vlans.len()), (None, None, 0));
}

#[test]
fn what_is_no_neighbours_is_ignored() {
    let unit = basics().concat();
    let other = |to, from, kind: u16| read(&[header(to, from, kind), unit.clone()].concat());
    assert_eq!(other(GROUPS[0], SENDER, 0x0800), Err(Ignored::NotLldp));
    assert_eq!(other(GROUPS[0], SENDER, 0x8100), Err(Ignored::NotLldp), "a VLAN tag");
    assert_eq!(other(GROUPS[0], OWN, ETHERTYPE), Err(Ignored::Own), "looped back");
    assert_eq!(other(OWN, SENDER, ETHERTYPE), Err(Ignored::OtherAddress));
    assert_eq!(other([0xFF; 6], SENDER, ETHERTYPE), Err(Ignored::OtherAddress));
    assert!(matches!(other(GROUPS[0], GROUPS[0], ETHERTYPE), Err(Ignored::Malformed(_))));
    let mut leaving = basics();
    leaving[2] = tlv(3, &[0, 0]);
    assert_eq!(read(&frame(&leaving)), Err(Ignored::Leaving));
}

#[test]
fn what_the_standard_discards_is_discarded_whole() {
    let [chassis, port, ttl] = <[Vec<u8>; 3]>::try_from(basics()).unwrap();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("a header alone", frame(&[])),
        ("a wrong order", frame(&[port.clone(), chassis.clone(), ttl.clone()])),
        ("no time to live", frame(&[chassis.clone(), port.clone(), tlv(0, &[])])),
        ("a short time to live", frame(&[chassis.clone(), port.clone(), tlv(3, &[1])])),
        ("an empty chassis id", frame(&[tlv(1, &[4]), port.clone(), ttl.clone()])),
        ("a chassis id without a subtype", frame(&[tlv(1, &[]), port.clone(), ttl.clone()])),
        ("a reserved subtype", frame(&[tlv(1, &[9, 1]), port.clone(), ttl.clone()])),
        ("a port id that is too long", frame(&[chassis.clone(), tlv(2, &[7; 300]), ttl.clone()])),
        ("a chassis id twice", with(&[chassis])),
        ("a time to live twice", with(&[ttl])),
        ("half a TLV's header", with(&[vec![4 << 1]])),
        ("a TLV beyond the end", with(&[vec![4 << 1, 200, b'x']])),
        ("more than a frame", [with(&[]), vec![0; 10_000]].concat()),
    ];
    for (what, bytes) in cases {
        assert!(matches!(read(&bytes), Err(Ignored::Malformed(_))), "{what}: {:?}", read(&bytes));
    }
}

#[test]
fn what_is_wrong_in_one_tlv_is_left_out_alone() {
    let found = read(&with(&[
        tlv(5, b"\x1b]0;evil\x07name\xff\xe2\x80\xae"),
        tlv(5, b"second"),
        tlv(127, &[0x00, 0x80]),
        tlv(127, &[0x00, 0x80, 0xC2, 1, 0]),
        tlv(127, &[0x00, 0x80, 0xC2, 1, 0x0F, 0xFF]),
        tlv(127, b"\x00\x80\xc2\x03\x00\x05\x20short"),
        tlv(127, b"\x00\x80\xc2\x03\x00\x00\x01x"),
        tlv(127, &[&[0x00, 0x80, 0xC2, 3, 0, 7, 200][..], &[b'x'; 200]].concat()),
        tlv(127, &[0x00, 0x12, 0x0F, 4, 9]),
    ]))
    .unwrap();
    let name = found.system_name.unwrap();
    assert!(name.contains("evil") && name.chars().all(is_printable), "{name:?}");
    assert_eq!((found.untagged_vlan, found.vlans.len(), found.max_frame, found.aggregated), (None, 0, None, None));
}

#[test]
fn vlans_are_bounded_and_each_is_told_once() {
    let named = |id: u16| tlv(127, &[&[0x00, 0x80, 0xC2, 3][..], &id.to_be_bytes(), &[1, b'v']].concat());
    let many: Vec<Vec<u8>> = (1..=600).map(named).collect();
    assert_eq!(read(&with(&many)).unwrap().vlans.len(), MAX_VLANS);
    assert_eq!(read(&with(&[named(3), named(2), named(3)])).unwrap().vlans.len(), 2);
}

/// What may be told of anybody.
fn bounded(found: &Neighbour) {
    let texts = [&found.port_description, &found.system_name, &found.system_description].into_iter().flatten();
    let names = found.vlans.iter().filter_map(|vlan| vlan.1.as_ref());
    for text in texts.chain(names).chain([&found.chassis_id, &found.port_id]) {
        assert!(text.chars().all(is_printable) && text.chars().count() <= 255 && !text.is_empty(), "{text:?}");
    }
    assert!(found.vlans.len() <= MAX_VLANS && found.vlans.iter().all(|vlan| (1..=4094).contains(&vlan.0)));
    assert!(found.ttl > 0);
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        if let Ok(found) = read(&bytes) { bounded(&found); }
        // The same behind a header that leads to the parser.
        if let Ok(found) = read(&[header(GROUPS[0], SENDER, ETHERTYPE), bytes].concat()) { bounded(&found); }
    }

    #[test]
    fn no_tlvs_are_too_strange(tlvs in prop::collection::vec((0_u8..128, prop::collection::vec(any::<u8>(), 0..511)), 0..12)) {
        let tlvs: Vec<Vec<u8>> = tlvs.iter().map(|(kind, value)| tlv(*kind, value)).collect();
        if let Ok(found) = read(&with(&tlvs)) { bounded(&found); }
        let owned: Vec<Vec<u8>> = tlvs.iter().map(|tlv| {
            [&[127 << 1, u8::try_from(tlv.len().min(200) + 4).unwrap(), 0x00, 0x80, 0xC2][..], &tlv[..1], &tlv[..tlv.len().min(200)]].concat()
        }).collect();
        if let Ok(found) = read(&with(&owned)) { bounded(&found); }
    }

    #[test]
    fn a_good_frame_that_is_cut_or_bent_tells_nothing_unbounded(cut in 0_usize..200, at in 0_usize..200, bit in 0_u8..8) {
        let mut bytes = with(&[tlv(5, b"leaf-1"), tlv(127, &[0x00, 0x80, 0xC2, 1, 0, 10]), tlv(127, b"\x00\x80\xc2\x03\x00\x14\x07storage"), tlv(0, &[])]);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        bytes.truncate(bytes.len() - cut % bytes.len());
        if let Ok(found) = read(&bytes) { bounded(&found); }
    }
}
