//! Causes of many hosts, put together.

use std::collections::BTreeSet;

use diagnosis::{Bond, Code, Fixer, Group, MAX_GROUPS, Overview, Site, Told};

fn told(code: Code) -> Told {
    Told {
        code: code.as_str().to_owned(),
        meaning: code.meaning().to_owned(),
        fixer: code.fixer().as_str().to_owned(),
        advice: code.advice().replace("{part}", "Memory DIMM A1"),
        certainty: "Certain".to_owned(),
        ..Told::default()
    }
}

fn site(number: usize) -> Site {
    Site {
        image_server: Some("192.0.2.9".to_owned()),
        image: Some(format!("http://192.0.2.9/{number}.img")),
        bmc_network: Some("198.51.100.0/24".to_owned()),
        model: Some("Maker M1".to_owned()),
        credentials: Some(format!("metal3/node-{number}")),
        switch: None,
    }
}

#[test]
fn many_hosts_with_one_image_server_are_one_cause() {
    let mut overview = Overview::default();
    let at = |minute: i64| jiff::Timestamp::from_second(1_772_362_800 + 60 * minute).ok();
    for number in 0..38 {
        let causes = [told(Code::ImageUnavailable), told(Code::BmcLogFull)];
        assert!(overview.add(&format!("metal3/node-{number:02}"), &site(number), &causes, at(38 - number as i64)));
    }
    assert!(overview.add("metal3/other", &site(99), &[told(Code::CredentialsWrong)], at(0)));
    let groups = overview.groups();
    let first = &groups[0];
    let common = first.common.as_ref().unwrap();
    assert_eq!((first.code.as_str(), first.hosts.len(), first.first), ("ImageUnavailable", 38, 38));
    assert_eq!((common.by, common.name.as_str()), (Bond::ImageServer, "192.0.2.9"));
    assert_eq!((first.since, first.until), (at(1), at(38)));
    assert_eq!(first.hosts.first().unwrap(), "metal3/node-00");
    // As many hosts, and no explanation of any.
    assert_eq!((groups[1].code.as_str(), groups[1].hosts.len(), groups[1].first), ("BmcLogFull", 38, 0));
    assert_eq!(groups[2].common.as_ref().unwrap().name, "metal3/node-99");
}

#[test]
fn what_hosts_do_not_share_parts_them_and_what_is_not_known_does_not() {
    let mut overview = Overview::default();
    for (host, number) in [("a", 1), ("b", 1), ("c", 2)] {
        overview.add(host, &site(number), &[told(Code::ImageDigestMismatch)], None);
    }
    // No switch is known of them.
    for host in ["a", "b"] {
        overview.add(host, &site(1), &[told(Code::AgentSilent)], None);
    }
    let groups: Vec<_> = overview.groups().into_iter().map(|group| (group.code, group.hosts.len())).collect();
    let wanted = [("AgentSilent", 2), ("ImageDigestMismatch", 2), ("ImageDigestMismatch", 1)];
    assert_eq!(groups, wanted.map(|(code, hosts)| (code.to_owned(), hosts)));
}

#[test]
fn a_host_counts_once_and_its_parts_are_not_named_for_others() {
    let part = |number: &str| Told { part_number: Some(number.to_owned()), ..told(Code::MemoryFailed) };
    let mut overview = Overview::default();
    overview.add("a", &Site::default(), &[part("PN-7"), part("PN-7")], None);
    let only_background = Told { background: true, ..told(Code::FanFailed) };
    assert!(!overview.add("b", &Site::default(), &[only_background], None), "nothing explains its error");
    let groups = overview.groups();
    assert_eq!((groups.len(), groups[0].hosts.len(), groups[0].first, groups[0].certain), (1, 1, 1, 1));
    assert_eq!(groups[0].common.as_ref().unwrap().name, "PN-7");
    assert_eq!(groups[0].advice, "replace the part");
}

#[test]
fn hostile_objects_are_bounded_and_printable() {
    let mut overview = Overview::default();
    let unknown = |number: usize| Told {
        code: format!("Co\u{1b}[2Jde{number}"),
        meaning: "\u{202e}".repeat(10) + &"x".repeat(100_000),
        ..Told::default()
    };
    for number in 0..MAX_GROUPS + 5 {
        overview.add("h\u{1b}", &Site::default(), &[unknown(number)], None);
    }
    assert_eq!(overview.beyond(), 5);
    let groups = overview.groups();
    assert_eq!(groups.len(), MAX_GROUPS);
    let texts = groups.iter().flat_map(|group| [&group.code, &group.meaning, group.hosts.first().unwrap()]);
    assert!(texts.into_iter().all(|text| text.chars().all(terms::is_printable) && text.len() < 2000));
}

#[test]
fn each_code_is_compared_by_what_fits_who_fixes_it() {
    let bonds: BTreeSet<Option<Bond>> = Code::ALL.iter().map(|code| code.bond()).collect();
    assert_eq!(bonds.len(), 8, "each bond is some code's: {bonds:?}");
    for code in Code::ALL {
        let expected: &[Option<Bond>] = match (code.group(), code.fixer()) {
            (Group::Image, _) => &[Some(Bond::Image), Some(Bond::ImageServer)],
            (_, Fixer::Image) => &[Some(Bond::Image)],
            (Group::Configuration, _) => &[None, Some(Bond::Credentials)],
            (Group::Own, _) => &[None],
            (Group::Access | Group::Media, Fixer::Network) => &[Some(Bond::BmcNetwork)],
            (Group::Agent, Fixer::Network) => &[Some(Bond::Switch)],
            (Group::Power | Group::Thermal, Fixer::Hardware) => &[None],
            (_, Fixer::Hardware) => &[Some(Bond::PartNumber), Some(Bond::Model)],
            _ => &[Some(Bond::Model), Some(Bond::Credentials)],
        };
        assert!(expected.contains(&code.bond()), "{code:?}: {:?}", code.bond());
    }
}
