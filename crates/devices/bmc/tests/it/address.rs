//! Addresses: what is accepted, what is refused, and in which words.

use bmc::{Address, AddressError, HostName, Protocol, Security};
use proptest::prelude::*;

#[test]
fn the_forms_that_metal3_documents() {
    let plain = Address::parse("redfish-virtualmedia://192.0.2.10/redfish/v1/Systems/1").unwrap();
    assert_eq!(plain.security(), Security::Https);
    assert_eq!(plain.port(), 443);
    assert_eq!(plain.system_path(), Some("/redfish/v1/Systems/1"));
    assert_eq!(plain.origin(), "https://192.0.2.10");
    assert_eq!(plain.key(), "192.0.2.10:443");

    let http =
        Address::parse("redfish-virtualmedia+http://BMC-7.example.org:8000/redfish/v1/Systems/437XR1138R2/").unwrap();
    assert_eq!(http.host(), &HostName::Dns("bmc-7.example.org".into()));
    assert_eq!(http.origin(), "http://bmc-7.example.org:8000");
    assert_eq!(http.system_path(), Some("/redfish/v1/Systems/437XR1138R2"));

    let v6 = Address::parse("redfish-virtualmedia+https://[2001:DB8::1]:8443").unwrap();
    assert_eq!(v6.origin(), "https://[2001:db8::1]:8443");
    assert_eq!(v6.system_path(), None);
    assert_eq!(Address::parse("redfish-virtualmedia://[::1]").unwrap().key(), "[::1]:443");
    assert_eq!(Address::parse("redfish-virtualmedia://h/redfish/v1/").unwrap().system_path(), None);
    assert!(Address::parse("ilo5-virtualmedia://h/redfish/v1/Systems/1").is_ok());
    assert!(Address::parse("REDFISH-VirtualMedia://h").is_ok());
}

#[test]
fn every_scheme_of_redfish_is_served_by_virtual_media() {
    let schemes =
        ["redfish", "redfish-virtualmedia", "ilo5-redfish", "ilo5-virtualmedia", "idrac-redfish", "idrac-virtualmedia"];
    for scheme in schemes {
        for (suffix, security) in [("", Security::Https), ("+https", Security::Https), ("+http", Security::Http)] {
            let address = Address::parse(&format!("{scheme}{suffix}://h/redfish/v1/Systems/1")).unwrap();
            assert_eq!((address.protocol(), address.security()), (Protocol::Redfish, security), "{scheme}");
            // Whatever the scheme, it is the same machine.
            assert_eq!(
                (address.host().to_string(), address.system_path()),
                ("h".into(), Some("/redfish/v1/Systems/1"))
            );
        }
    }
}

/// Addresses of the 22 hosts in the examples of baremetal-operator 02aa5059 (`examples/`) and cluster-api-provider-metal3 2f6d76b8
/// (`examples/metal3plane`); one of them has no BMC.
const EXAMPLES: [(&str, usize); 3] = [
    ("ipmi://192.168.122.1:6233", 18),
    ("libvirt://192.168.122.1:6233/", 1),
    ("redfish+http://192.168.111.1:8000/redfish/v1/Systems/0a2e3d8c-e230-4511-845a-ccb12e0b71f4", 2),
];

/// The book's table says of each scheme whether it is served, and the README how far that goes.
#[test]
fn the_book_tells_the_truth_about_schemes() {
    let read = |page| std::fs::read_to_string(format!("{}/../../../{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (page, readme) = (read("docs/bmc.md"), read("README.md"));
    let (mut served_examples, mut schemes) = (0, std::collections::BTreeSet::new());
    for line in page.lines().skip_while(|line| !line.starts_with("| `spec.bmc.address`")).skip(2) {
        let Some(row) = line.strip_prefix("| ") else { break };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for scheme in cells[0].split(',').map(|scheme| scheme.trim().trim_matches('`')) {
            let parsed = Address::parse(&format!("{scheme}://192.0.2.1/redfish/v1/Systems/1"));
            match cells[1] {
                "yes" => assert!(parsed.is_ok(), "{scheme}"),
                "no" => assert!(matches!(parsed, Err(AddressError::NotServed { .. })), "{scheme}: {parsed:?}"),
                "gone" => assert!(matches!(parsed, Err(AddressError::Removed(_))), "{scheme}: {parsed:?}"),
                other => panic!("{scheme}: {other}"),
            }
            schemes.insert(scheme.to_owned());
        }
    }
    assert!(schemes.len() >= 14, "{schemes:?}");
    for (address, hosts) in EXAMPLES {
        assert!(schemes.contains(address.split(['+', ':']).next().unwrap()), "{address}");
        served_examples += if Address::parse(address).is_ok() { hosts } else { 0 };
    }
    let count = format!("Of the 22 hosts in upstream's examples, {served_examples} ");
    assert!(readme.contains(&count), "the README lacks: {count}");
}

#[test]
fn systems_of_one_bmc_share_a_key() {
    let a = Address::parse("redfish-virtualmedia://bmc/redfish/v1/Systems/1").unwrap();
    let b = Address::parse("redfish-virtualmedia://BMC:443/redfish/v1/Systems/2").unwrap();
    assert_eq!(a.key(), b.key());
}

#[test]
fn unknown_known_and_removed_schemes_differ() {
    let served = |text: &str| Address::parse(text).unwrap_err();
    assert!(matches!(served("redfish-virtualmeda://h"), AddressError::UnknownScheme(s) if s == "redfish-virtualmeda"));
    assert!(matches!(served("redfish-virtualmedia+ftp://h"), AddressError::UnknownScheme(_)));
    assert!(matches!(served("ipmi+http://h"), AddressError::UnknownScheme(_)));
    for known in ["ipmi", "libvirt", "redfish-uefihttp", "redfish-uefihttp+http"] {
        let error = served(&format!("{known}://h/redfish/v1/Systems/1"));
        assert!(matches!(&error, AddressError::NotServed { scheme, .. } if scheme == known), "{known}: {error}");
        assert!(error.to_string().contains("redfish-virtualmedia"), "{error}");
    }
    for removed in ["ilo4", "ilo4-virtualmedia", "ilo5", "irmc"] {
        assert!(matches!(served(&format!("{removed}://h")), AddressError::Removed(_)));
    }
    for bare in ["192.0.2.1", "192.0.2.1:623", "[2001:db8::1]:623", "bmc.example.org"] {
        assert!(matches!(served(bare), AddressError::NotServed { scheme, .. } if scheme == "ipmi"), "{bare}");
    }
}

#[test]
fn malformed_parts_are_named() {
    let e = |rest: &str| Address::parse(&format!("redfish-virtualmedia://{rest}")).unwrap_err();
    assert_eq!(Address::parse("  ").unwrap_err(), AddressError::Empty);
    assert_eq!(e(""), AddressError::NoHost);
    assert_eq!(e("/redfish/v1/Systems/1"), AddressError::NoHost);
    assert_eq!(e("root:secret@h"), AddressError::UserInfo);
    assert_eq!(e("h?x=1"), AddressError::Query);
    assert_eq!(e("h/redfish/v1/Systems/1#a"), AddressError::Query);
    for host in ["256.1.1.1", "1.2.3", "a_b", "-a", "a..b", "2001:db8::1", "[2001:db8::1", "[::1]x", "fe80::1%eth0"] {
        assert!(matches!(e(host), AddressError::Host(_)), "{host}: {:?}", e(host));
    }
    for port in ["0", "65536", "+80", "", "x"] {
        assert!(matches!(e(&format!("h:{port}")), AddressError::Port(_)), "{port}");
    }
    for path in ["/redfish/v1/../etc", "//x", "/a//b", "/a|b"] {
        assert!(matches!(e(&format!("h{path}")), AddressError::Path(_)), "{path}");
    }
    for zone in ["[fe80::1%eth0]", "[fe80::1%25eth0]:8443/redfish/v1"] {
        let message = e(zone).to_string();
        assert!(message.contains("zone") && message.contains("fe80::1"), "{message}");
    }
    assert!(matches!(e("h/a b"), AddressError::Character(' ')));
    assert!(matches!(e("h/\u{e4}"), AddressError::Character('\u{e4}')));
    assert!(matches!(e(&"a".repeat(3000)), AddressError::TooLong(_)));
}

proptest! {
    #[test]
    fn never_panics(text in "((redfish-virtualmedia|ipmi|[a-z+]{0,9})(\\+http)?://)?[\\PC]{0,80}") {
        let _ = Address::parse(&text);
    }

    /// What is accepted is written again in one way, which means the same.
    #[test]
    fn accepted_addresses_parse_again(
        host in "([a-zA-Z0-9]([a-zA-Z0-9-]{0,8}[a-z])?\\.){0,3}[a-z][a-zA-Z0-9]{0,5}|[1-9][0-9]?(\\.[1-9][0-9]?){3}|\\[[0-9a-f]{1,4}::[0-9a-f]{0,4}\\]",
        port in prop::option::of(1u16..),
        path in "(/[a-zA-Z0-9._~-]{3,8}){0,4}/?",
        plain in any::<bool>(),
    ) {
        let scheme = if plain { "redfish-virtualmedia+http" } else { "redfish-virtualmedia" };
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let address = Address::parse(&format!("{scheme}://{host}{port}{path}")).unwrap();
        let again = address.origin().replacen("http", "redfish-virtualmedia+http", 1);
        let again = format!("{again}{}", address.system_path().unwrap_or(""));
        prop_assert_eq!(Address::parse(&again).unwrap(), address);
    }
}
