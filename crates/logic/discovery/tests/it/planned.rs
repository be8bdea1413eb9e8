//! Which addresses are asked, and what is refused.

use api::metamorph::{DiscoveryApproval, DiscoveryScheme, NamedFrom};
use discovery::{Place, Review, Ruling, Spot, SpotHost, check, host_name, identity};
use proptest::prelude::*;

use crate::kit::{at, shown, spec};

fn asked(ranges: &[&str], exclude: &[&str]) -> Vec<String> {
    let mut spec = spec(ranges);
    spec.exclude = exclude.iter().map(|text| (*text).to_owned()).collect();
    check(&spec).unwrap().places.iter().map(|place| place.ip.to_string()).collect()
}

#[test]
fn ranges_leave_out_what_is_no_hosts_address_and_what_is_excluded() {
    for (ranges, exclude, expected) in [
        (&["192.0.2.0/30"][..], &[][..], &["192.0.2.1", "192.0.2.2"][..]),
        (&["192.0.2.0/31"], &[], &["192.0.2.0", "192.0.2.1"]),
        (&["192.0.2.7/32", "192.0.2.7"], &[], &["192.0.2.7"]),
        (&["192.0.2.9-192.0.2.12"], &["192.0.2.10/31"], &["192.0.2.9", "192.0.2.12"]),
        (&["2001:db8::/126"], &["2001:db8::2"], &["2001:db8::1", "2001:db8::3"]),
        (&["2001:db8::/127"], &[], &["2001:db8::", "2001:db8::1"]),
        // The same address in another form is the same.
        (&["::ffff:192.0.2.1", "192.0.2.1"], &[], &["192.0.2.1"]),
        (&["192.0.2.1-192.0.2.2"], &["::ffff:192.0.2.2"], &["192.0.2.1"]),
        (&["223.255.255.255-224.0.0.3"], &[], &["223.255.255.255"]),
        (&["255.255.255.250-255.255.255.255", "192.0.2.1"], &[], &["192.0.2.1"]),
    ] {
        assert_eq!(asked(ranges, exclude), expected, "{ranges:?}");
    }
    assert_eq!(asked(&["10.0.0.0/22"], &[]).len(), 1022);
    // What would be a smaller network's own addresses are hosts' here, and are excluded with it.
    let left = asked(&["10.0.0.0/22"], &["10.0.1.0/24"]);
    assert!(left.len() == 766 && !left.iter().any(|ip| ip.starts_with("10.0.1.")), "{}", left.len());
    assert_eq!(asked(&["2001:db8::/125"], &["2001:db8::4/126"]), ["2001:db8::1", "2001:db8::2", "2001:db8::3"]);
}

#[test]
fn what_cannot_be_used_is_refused_as_a_whole_and_said() {
    let refused = |change: &dyn Fn(&mut api::metamorph::HostDiscoverySpec)| {
        let mut spec = spec(&["192.0.2.0/24"]);
        change(&mut spec);
        check(&spec).unwrap_err().join("; ")
    };
    let ranges = |text: &'static str| refused(&|spec| spec.ranges = vec![text.to_owned(), "192.0.2.1".to_owned()]);
    for (text, said) in [
        ("", "is no range"),
        ("bmc.example", "is no range"),
        ("192.0.2.1-", "is no range"),
        ("192.0.2.1/24", "bits beyond its prefix"),
        ("192.0.2.0/33", "no number of bits"),
        ("192.0.2.0/+24", "no number of bits"),
        ("192.0.2.9-192.0.2.1", "ends before it begins"),
        ("192.0.2.1-2001:db8::1", "one family"),
        ("10.0.0.0/8", "more than 4096"),
        ("2001:db8::/64", "more than 4096"),
        ("::/0", "more than 4096"),
        ("0.0.0.0/0", "more than 4096"),
    ] {
        assert!(ranges(text).contains(said), "{text}: {}", ranges(text));
    }
    assert!(ranges("\u{1b}[2Jx").chars().all(|c| !c.is_control()));
    assert!(refused(&|spec| spec.ranges.clear()).contains("spec.ranges is empty"));
    assert!(refused(&|spec| spec.exclude = vec!["192.0.2.0/24".into()]).contains("no address"));
    assert!(refused(&|spec| spec.ports = vec![0]).contains("spec.ports"));
    assert!(refused(&|spec| spec.interval_minutes = 4).contains("intervalMinutes"));
    assert!(refused(&|spec| spec.naming.prefix = "-x".into()).contains("prefix"));
    assert!(refused(&|spec| spec.naming.prefix = "A".into()).contains("prefix"));
    // 1022 addresses by five ports, and by four; 64 ranges of the most.
    let ports = |count: u16| (8000..8000 + count).collect::<Vec<_>>();
    assert!(
        refused(&|spec| (spec.ranges, spec.ports) = (vec!["10.0.0.0/22".into(), "10.1.0.0/29".into()], ports(4)))
            .contains("4096")
    );
    let many: Vec<String> = (0..65).map(|n| format!("10.0.{n}.0/24")).collect();
    assert!(refused(&|spec| spec.ranges.clone_from(&many)).contains("65 ranges"));
    let automatic = refused(&|spec| {
        spec.approval = DiscoveryApproval::Automatic;
        spec.credentials_name.clear();
    });
    assert!(automatic.contains("spec.allow has no rule") && automatic.contains("names no Secret"), "{automatic}");
}

#[test]
fn rules_are_typed_and_costed_before_they_are_run() {
    let refused = |rule: &str| {
        let mut spec = spec(&["192.0.2.0/24"]);
        spec.deny = vec![rule.to_owned()];
        check(&spec).err().map(|faults| faults.join("; "))
    };
    for (rule, said) in [
        ("vendor ==", "is no expression"),
        ("serial == 'x'", "is no expression"),
        ("vendor", "neither true nor false"),
        ("vendor == 1", "is no expression"),
        ("vendor.matches('[')", "spec.deny[0]"),
        (
            "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, vendor.contains(product)))))",
            "may cost",
        ),
    ] {
        let found = refused(rule).unwrap_or_default();
        assert!(found.contains(said), "{rule}: {found}");
    }
    assert_eq!(refused("vendor == 'Contoso' && cidr('192.0.2.0/28').containsIP(address)"), None);
    let mut spec = spec(&["192.0.2.0/24"]);
    spec.allow = vec!["vendor.startsWith('Cont')".into(), "product == 'Other'".into()];
    spec.deny = vec!["address == '192.0.2.9'".into(), "int(product) > 1 && vendor == 'Odd'".into()];
    let rules = check(&spec).unwrap().rules;
    let mut machine = shown(1, None);
    // An error decides nothing where the rest of the expression decides.
    assert_eq!(rules.judge(&at(1), &machine), Ruling::Allowed { by_rule: true });
    assert!(matches!(rules.judge(&at(9), &machine), Ruling::Denied(why) if why.contains("spec.deny[0]")));
    machine.vendor = "Odd".into();
    assert!(matches!(rules.judge(&at(1), &machine), Ruling::Denied(why) if why.contains("cannot be evaluated")));
    machine.vendor = "Else".into();
    assert!(matches!(rules.judge(&at(1), &machine), Ruling::Denied(why) if why.contains("no rule of spec.allow")));
}

#[test]
fn what_sends_passwords_in_the_open_or_to_anybody_is_warned_of() {
    let mut spec = spec(&["192.0.2.0/24"]);
    assert_eq!(Review::of(&spec), Review::default());
    spec.approval = DiscoveryApproval::Automatic;
    spec.allow = vec!["true".into()];
    assert_eq!(Review::of(&spec).warnings.len(), 0);
    spec.disable_certificate_verification = true;
    assert!(Review::of(&spec).warnings[0].contains("whoever answers"));
    spec.scheme = DiscoveryScheme::Http;
    for verified in [false, true] {
        spec.disable_certificate_verification = !verified;
        let [clear, anybody] = Review::of(&spec).warnings.try_into().unwrap();
        assert!(clear.contains("in the clear") && anybody.contains("whoever answers"), "{clear} {anybody}");
    }
    spec.approval = DiscoveryApproval::Manual;
    assert_eq!(Review::of(&spec).warnings.len(), 1);
}

#[test]
fn names_are_the_same_for_the_same_machine_and_are_names() {
    let mut naming = spec(&[]).naming;
    let [one, swapped] = ["4c4c4544-0035-5910-8052-b4c04f4e4d31", "44454C4C-3500-1059-8052-B4C04F4E4D31"];
    assert_eq!(identity(one), identity(swapped));
    let name = |text: &str, place| host_name(&naming, &identity(text).unwrap(), &place);
    assert_eq!((name(one, at(1)), name(one, at(1)).len()), (name(swapped, at(2)), 16));
    naming.from = NamedFrom::Address;
    let place = |ip: &str, port| Place { ip: ip.parse().unwrap(), port, tls: true };
    assert_eq!(host_name(&naming, "x", &at(7)), "bmc-192-0-2-7");
    assert_eq!(host_name(&naming, "x", &place("192.0.2.7", 8443)), "bmc-192-0-2-7-8443");
    assert!(host_name(&naming, "x", &place("2001:db8::", 443)).starts_with("bmc-v6-"));
    for none in
        ["", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", "n/a", "default string"]
    {
        assert_eq!(identity(none), None, "{none}");
    }
}

#[test]
fn a_hosts_bmc_is_found_by_each_form_of_its_address() {
    for (address, is_at) in [
        ("redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1", true),
        ("redfish://192.0.2.1:443", true),
        ("idrac-virtualmedia+https://[::ffff:192.0.2.1]/x", true),
        ("ipmi://192.0.2.1:623", true),
        ("192.0.2.1", true),
        ("libvirt://user@192.0.2.1:16509/", true),
        ("redfish+http://192.0.2.1/redfish/v1", false),
        ("redfish+http://192.0.2.1:443/redfish/v1", true),
        ("redfish://192.0.2.1:8443", false),
        ("redfish://192.0.2.10", false),
        ("redfish://bmc.example/", false),
        ("redfish://", false),
        ("redfish://[::1", false),
    ] {
        assert_eq!(Spot::of(address).is_some_and(|spot| spot.is_at(&at(1))), is_at, "{address}");
    }
    assert_eq!(Spot::of("redfish://BMC.example.:443/x").unwrap().host, SpotHost::Name("bmc.example".into()));
}

proptest! {
    #[test]
    fn a_place_is_read_as_it_was_written(bits: u128, v4: bool, port in 1_u16.., tls: bool) {
        let ip: std::net::IpAddr = if v4 { (bits as u32).to_be_bytes().into() } else { bits.to_be_bytes().into() };
        let place = Place { ip: ip.to_canonical(), port, tls };
        prop_assert_eq!(Place::parse(&place.address()), Some(place));
        prop_assert!(Spot::of(&place.address()).unwrap().is_at(&place));
    }

    #[test]
    fn whatever_is_written_as_a_range_ends_and_asks_no_more_than_the_most(text in "[0-9a-f:./-]{0,24}", other in "\\PC{0,40}") {
        for range in [text, other] {
            if let Ok(plan) = check(&spec(&[&range])) {
                prop_assert!(!plan.places.is_empty() && plan.places.len() <= 4096);
            }
        }
    }

    #[test]
    fn of_a_prefix_all_addresses_but_its_ends_are_asked_once(bits in 0_u32..=0x00df_ffff, prefix in 20_u32..=30) {
        let base = std::net::Ipv4Addr::from_bits((0x0a00_0000 | (bits & 0x00ff_ffff)) & (u32::MAX << (32 - prefix)));
        let plan = check(&spec(&[&format!("{base}/{prefix}")])).unwrap();
        prop_assert_eq!(plan.places.len(), (1 << (32 - prefix)) - 2);
        prop_assert!(plan.places.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
