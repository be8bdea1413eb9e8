//! The Redfish host interface that the firmware tells of.
//!
//! Source: DMTF DSP0134 7.43 (type 42, Management Controller Host Interface) and DSP0270 1.3 (protocol record of Redfish over IP).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_protocol::RedfishInterface;

use super::smbios::{Structure, structures, tables};
use crate::tree::Tree;

/// Type of the structure.
const HOST_INTERFACE: u8 = 42;
/// Type of the interface: a network.
const NETWORK: u8 = 0x40;
/// Type of the protocol: Redfish over IP.
const REDFISH: u8 = 4;
/// Most records of one interface that are looked at.
const MAX_RECORDS: u8 = 8;

/// Places in the record of Redfish over IP.
const SERVICE_FORMAT: usize = 51;
const SERVICE_ADDRESS: usize = 52;
const SERVICE_PORT: usize = 84;

/// The first Redfish host interface, if the firmware tells of one.
#[must_use]
pub fn redfish_interface(tree: &Tree) -> Option<RedfishInterface> {
    let tables = tables(tree)?;
    structures(&tables).filter(|one| one.kind == HOST_INTERFACE).find_map(|one| of(&one))
}

fn of(one: &Structure<'_>) -> Option<RedfishInterface> {
    if one.byte(4)? != NETWORK {
        return None;
    }
    let mut at = 6 + usize::from(one.byte(5)?);
    let count = one.byte(at)?.min(MAX_RECORDS);
    at += 1;
    for _ in 0..count {
        let (kind, length) = (one.byte(at)?, usize::from(one.byte(at + 1)?));
        let record = one.slice(at + 2, length)?;
        if kind == REDFISH {
            return read(record);
        }
        at += 2 + length;
    }
    None
}

fn read(record: &[u8]) -> Option<RedfishInterface> {
    let uuid = uuid::Uuid::from_bytes_le(*record.first_chunk::<16>()?);
    let address = record.get(SERVICE_ADDRESS..).unwrap_or_default();
    let address = match record.get(SERVICE_FORMAT) {
        Some(1) => address.first_chunk::<4>().map(|bytes| IpAddr::V4(Ipv4Addr::from(*bytes))),
        Some(2) => address.first_chunk::<16>().map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes))),
        _ => None,
    };
    let port = record.get(SERVICE_PORT..).and_then(|rest| rest.first_chunk::<2>()).map(|two| u16::from_le_bytes(*two));
    Some(RedfishInterface {
        service_uuid: (!uuid.is_nil()).then(|| uuid.to_string()),
        address: address.filter(|address| !address.is_unspecified()),
        port: port.filter(|port| *port != 0),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::smbios::tests::structure;
    use super::*;

    fn record(format: u8, address: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 91];
        record[..16].copy_from_slice(&uuid::Uuid::from_u128(0x4c4c_4544_0035_5910_8052_b7c0_4f4e_3432).to_bytes_le());
        record[SERVICE_FORMAT] = format;
        record[SERVICE_ADDRESS..SERVICE_ADDRESS + address.len()].copy_from_slice(address);
        record[SERVICE_PORT..SERVICE_PORT + 2].copy_from_slice(&443_u16.to_le_bytes());
        record
    }

    /// A network of two bytes of its own, with another protocol's record before.
    fn interface(record: &[u8]) -> Vec<u8> {
        let mut body = vec![NETWORK, 2, 0xaa, 0xbb, 2, 9, 3, 1, 2, 3, REDFISH, u8::try_from(record.len()).unwrap()];
        body.extend_from_slice(record);
        structure(HOST_INTERFACE, &body, b"\0\0")
    }

    fn first(tables: &[u8]) -> Option<RedfishInterface> {
        structures(tables).find_map(|one| of(&one))
    }

    #[test]
    fn the_record_of_redfish_tells_service_and_address() {
        let found = first(&interface(&record(1, &[169, 254, 0, 17]))).unwrap();
        assert_eq!(found.service_uuid.as_deref(), Some("4c4c4544-0035-5910-8052-b7c04f4e3432"));
        assert_eq!((found.address, found.port), (Some([169, 254, 0, 17].into()), Some(443)));
        let v6: Ipv6Addr = "fe80::1".parse().unwrap();
        assert_eq!(first(&interface(&record(2, &v6.octets()))).unwrap().address, Some(v6.into()));
        assert_eq!(first(&interface(&record(0, &[1, 2, 3, 4]))).unwrap().address, None);
        assert_eq!(first(&interface(&[0; 15])), None, "a record that is too short tells nothing");
    }

    proptest! {
        #[test]
        fn no_table_makes_it_fail(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut body = body;
            if let Some(first) = body.first_mut() { *first = NETWORK; }
            let _ = first(&structure(HOST_INTERFACE, &body, b"\0\0"));
        }
    }
}
