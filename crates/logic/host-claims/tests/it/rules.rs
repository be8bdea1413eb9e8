//! Each rule by its cases.

use std::collections::{BTreeMap, BTreeSet};

use api::metal3::BareMetalHost;
use host_claims::{Association, Choice, Data, Expressions, Fact, Release, Report, Role, Search, Selector, Title};
use serde_json::{Value, json};

use crate::kit::{claim, held, host, names, policy, with};

fn labels(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Policy, labels of the claim's namespace `tenant`, whether it is admitted; as upstream's `acceptableNamespaces` decides.
#[test]
fn policies_admit_as_upstreams_do() {
    let cases = [
        (json!(null), json!({}), false),
        (json!({}), json!({}), true),
        (json!({"names": []}), json!({}), false),
        (json!({"names": ["tenant"]}), json!({}), true),
        (json!({"names": ["other", "tenant"]}), json!({}), true),
        (json!({"names": ["other"]}), json!({}), false),
        (json!({"nameMatches": "ena"}), json!({}), true),
        (json!({"nameMatches": "^ena"}), json!({}), false),
        (json!({"nameMatches": ""}), json!({}), true),
        (json!({"names": ["tenant"], "nameMatches": "^x"}), json!({}), false),
        (json!({"hasLabels": [{"name": "a"}]}), json!({"a": "1"}), true),
        (json!({"hasLabels": [{"name": "a"}]}), json!({"b": "1"}), false),
        (json!({"hasLabels": [{"name": "a", "value": "1"}]}), json!({"a": "1"}), true),
        (json!({"hasLabels": [{"name": "a", "value": "1"}]}), json!({"a": "2"}), false),
        (json!({"hasLabels": [{"name": "a"}, {"name": "b"}]}), json!({"a": "1"}), false),
        (json!({"names": ["tenant"], "hasLabels": [{"name": "a"}]}), json!({}), false),
    ];
    for (namespaces, found, wanted) in cases {
        let policy = policy(namespaces.clone());
        assert_eq!(
            Expressions::default().admits(&policy, "tenant", &labels(&found)),
            Ok(wanted),
            "{namespaces} {found}"
        );
        let admitted = Expressions::default().admitted([&policy], "tenant", &labels(&found));
        assert_eq!(admitted.contains("infra"), wanted);
    }
}

#[test]
fn a_policy_that_cannot_be_read_admits_nobody_and_stops_no_other() {
    let bad = policy(json!({"nameMatches": "("}));
    assert!(Expressions::default().admits(&bad, "tenant", &BTreeMap::new()).unwrap_err().contains("nameMatches"));
    let huge = policy(json!({"nameMatches": "(a{1000}){1000}"}));
    assert!(Expressions::default().admits(&huge, "tenant", &BTreeMap::new()).is_err());
    let good = policy(json!({"names": ["tenant"]}));
    assert_eq!(Expressions::default().admitted([&bad, &good], "tenant", &BTreeMap::new()).len(), 1);
}

#[test]
fn selectors_match_as_upstreams_do() {
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
    let cases = [
        (json!({}), json!({}), true),
        (json!({"matchLabels": {"k": "v"}}), json!({"k": "v", "l": "w"}), true),
        (json!({"matchLabels": {"k": "v"}}), json!({"k": "w"}), false),
        (json!({"matchLabels": {"k": "v"}}), json!({}), false),
        (expression("=", json!(["v"])), json!({"k": "v"}), true),
        (expression("==", json!(["v"])), json!({"k": "w"}), false),
        (expression("!=", json!(["v"])), json!({"k": "w"}), true),
        (expression("!=", json!(["v"])), json!({}), true),
        (expression("in", json!(["v", "w"])), json!({"k": "w"}), true),
        (expression("In", json!(["v"])), json!({"k": "v"}), true),
        (expression("notin", json!(["v"])), json!({}), true),
        (expression("notin", json!(["v"])), json!({"k": "v"}), false),
        (expression("exists", json!([])), json!({"k": ""}), true),
        (expression("exists", json!([])), json!({}), false),
        (expression("!", json!([])), json!({}), true),
        (expression("!", json!([])), json!({"k": ""}), false),
        (expression("gt", json!(["3"])), json!({"k": "4"}), true),
        (expression("lt", json!(["3"])), json!({"k": "x"}), false),
    ];
    for (selector, found, wanted) in cases {
        let read = Selector::of(&serde_json::from_value(selector.clone()).unwrap()).unwrap();
        assert_eq!(read.matches(Some(&labels(&found))), wanted, "{selector} {found}");
    }
    for (operator, values) in
        [("=", json!([])), ("exists", json!(["v"])), ("in", json!([])), ("near", json!([])), ("gt", json!(["x"]))]
    {
        let wrong = Selector::of(&serde_json::from_value(expression(operator, values)).unwrap()).unwrap_err();
        assert!(wrong.contains("matchExpressions[0]") && wrong.contains(operator), "{wrong}");
    }
}

fn choose(spec: Value, hosts: &[BareMetalHost]) -> Choice {
    let claim = claim("c", spec);
    let selector = Selector::of(&claim.spec.host_selector).unwrap();
    let namespaces: BTreeSet<String> = ["infra".to_owned()].into();
    let search = Search { claim: &claim, namespaces: &namespaces, selector: &selector };
    host_claims::choose(&search, hosts, |_| false)
}

fn chosen(choice: Choice) -> String {
    match choice {
        Choice::Host(place) => place.name,
        Choice::None(why) => panic!("{why}"),
    }
}

#[test]
fn the_first_host_that_will_do_is_chosen_and_one_of_the_failure_domain_before_it() {
    let far =
        with(&host("c"), &json!({"metadata": {"labels": {"infrastructure.cluster.x-k8s.io/failure-domain": "far"}}}));
    let hosts = [host("b"), far, host("a")];
    assert_eq!(chosen(choose(json!({}), &hosts)), "a");
    assert_eq!(chosen(choose(json!({"failureDomain": "far"}), &hosts)), "c");
    assert_eq!(chosen(choose(json!({"failureDomain": "nowhere"}), &hosts)), "a");
}

/// What keeps a host from being given to a claim; the claim is told so.
#[test]
fn a_host_that_cannot_be_had_is_not_chosen_and_the_claim_is_told_why() {
    let cases = [
        (json!({"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "x"}}}), "in use"),
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "being deleted"),
        (json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}}), "paused"),
        (json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}}), "detached"),
        (json!({"spec": {"image": {"url": "http://x/y"}}}), "no claim"),
        (json!({"spec": {"customDeploy": {"method": "x"}}}), "no claim"),
        (json!({"spec": {"externallyProvisioned": true}}), "somebody else"),
        (json!({"status": {"provisioning": {"state": "inspecting"}}}), "not available yet"),
        (json!({"status": {"provisioning": {"state": "provisioned"}}}), "not available yet"),
        (json!({"status": null}), "not available yet"),
        (json!({"status": {"errorMessage": "no", "errorType": "power management error"}}), "in error"),
    ];
    for (patch, word) in cases {
        let one = with(&host("a"), &patch);
        assert!(host_claims::obstacle(&one).is_some_and(|why| why.contains(word)), "{patch}");
        match choose(json!({}), &[one]) {
            Choice::None(why) => assert!(why.contains(word), "{patch}: {why}"),
            found @ Choice::Host(_) => panic!("{patch}: {found:?}"),
        }
    }
    let nobody = choose(json!({"hostSelector": {"matchLabels": {"a": "b"}}}), &[host("a")]);
    assert!(matches!(&nobody, Choice::None(why) if why.contains("spec.hostSelector")), "{nobody:?}");
    let elsewhere = choose(json!({"hostSelector": {"inNamespace": "other"}}), &[host("a")]);
    assert!(matches!(&elsewhere, Choice::None(why) if why.contains("inNamespace")), "{elsewhere:?}");
}

#[test]
fn a_host_is_the_claims_when_it_says_so() {
    let (one, another) = (claim("c", json!({"image": {"url": "http://x/y"}})), claim("d", json!({})));
    let (free, mine, theirs) = (host("a"), held(&host("a"), &one), held(&host("a"), &another));
    let stray = held(&host("b"), &one);
    let judged = |claim, named: Option<&BareMetalHost>, holding: &[&BareMetalHost]| match host_claims::association(
        claim, named, holding,
    ) {
        Association::Bound(host) => format!("bound {}", host.metadata.name.as_deref().unwrap()),
        Association::TakeUp(host) => format!("take up {}", host.metadata.name.as_deref().unwrap()),
        Association::Chosen(host) => format!("chosen {}", host.metadata.name.as_deref().unwrap()),
        Association::Search => "search".to_owned(),
        Association::Lost => "lost".to_owned(),
    };
    let intent = names(&one, "a", false, false);
    let bound = names(&one, "a", true, false);
    let at_work = names(&one, "a", true, true);
    assert_eq!(judged(&one, None, &[]), "search");
    assert_eq!(judged(&one, None, &[&mine]), "take up a");
    assert_eq!(judged(&one, None, &[&stray, &mine]), "take up a");
    assert_eq!(judged(&intent, Some(&free), &[]), "chosen a");
    assert_eq!(judged(&intent, Some(&theirs), &[]), "search");
    assert_eq!(judged(&intent, None, &[]), "search");
    assert_eq!(judged(&intent, Some(&mine), &[&mine]), "bound a");
    assert_eq!(judged(&intent, Some(&free), &[&stray]), "take up b");
    assert_eq!(judged(&at_work, Some(&mine), &[&mine, &stray]), "bound a");
    // The host was deleted and made anew, or given to somebody else.
    for gone in [None, Some(&free), Some(&theirs)] {
        assert_eq!(judged(&bound, gone, &[]), "search", "nothing runs there");
        assert_eq!(judged(&at_work, gone, &[]), "lost", "the work may still run there");
    }
    // Its image was taken out meanwhile: what was last seen of the host is that the system runs, or is being removed.
    let seen = [("Provisioned", "lost"), ("Deprovisioning", "lost"), ("NotProvisioned", "search")];
    let seen = seen.map(|(reason, expected)| {
        let status = if reason == "Provisioned" { "True" } else { "False" };
        let found = json!({"type": "Provisioned", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-02T00:00:00Z"});
        let mut without = at_work.clone();
        without.spec.image = None;
        without.status.as_mut().unwrap().conditions.push(serde_json::from_value(found).unwrap());
        (without, expected)
    });
    for (without, expected) in &seen {
        assert_eq!(judged(without, None, &[]), *expected, "{:?}", without.status);
    }
    let status =
        host_claims::status(&at_work, &Report::lost(&at_work), "2026-01-02T00:00:00Z".parse().unwrap()).unwrap();
    let mut lost = at_work.clone();
    lost.status = Some(status);
    assert_eq!(judged(&lost, Some(&free), &[]), "lost", "it stays so");
    assert_eq!(judged(&lost, Some(&mine), &[&mine]), "bound a", "until the host is given back");
    assert_eq!(judged(&at_work, Some(&free), &[&stray]), "lost", "a late write gives it no second one");
    assert_eq!(judged(&at_work, Some(&mine), &[]), "lost", "what it has no title to is not its own");
    assert_eq!(judged(&intent, Some(&mine), &[]), "search");
    let strays: Vec<_> = [&mine, &stray].to_vec();
    assert_eq!(host_claims::strays(&mine, &strays).count(), 1);
    let busy = with(&stray, &json!({"spec": {"image": {"url": "http://x"}}}));
    assert_eq!(host_claims::strays(&mine, &[&mine, &busy]).count(), 0, "what has work is not let go");
}

#[test]
fn who_is_named_is_told_by_group_kind_namespace_and_name() {
    let one = claim("c", json!({}));
    let mine = held(&host("a"), &one);
    assert!(host_claims::holds(&mine, &one) && !host_claims::is_of_another_life(&mine, &one));
    for patch in [
        json!({"kind": "Metal3Machine"}),
        json!({"namespace": "other"}),
        json!({"name": "d"}),
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1"}),
    ] {
        assert!(!host_claims::holds(&with(&mine, &json!({"spec": {"consumerRef": patch}})), &one), "{patch}");
    }
    let moved = with(&mine, &json!({"spec": {"consumerRef": {"uid": "old"}}}));
    assert!(host_claims::holds(&moved, &one) && host_claims::is_of_another_life(&moved, &one));
    let upstreams = with(&mine, &json!({"spec": {"consumerRef": {"uid": null}}}));
    assert!(host_claims::holds(&upstreams, &one) && host_claims::is_of_another_life(&upstreams, &one));
}

#[test]
fn the_hosts_spec_becomes_what_the_claim_asks_for_and_nothing_else_of_it_changes() {
    let image = json!({"url": "http://x/y", "checksum": "http://x/z", "ociAuthSecretName": "theirs"});
    let one = claim("c", json!({"poweredOn": true, "image": image, "userData": {"name": "u"}}));
    let before = held(
        &with(
            &host("a"),
            &json!({"spec": {"networkData": {"name": "n"}, "image": {"url": "http://o", "format": "raw"}}}),
        ),
        &one,
    );
    let data = Data { user_data: Some("copy".to_owned()), ..Data::default() };
    let patch = host_claims::change(&one, &before, &data).unwrap();
    let after = with(&before, &json!({"spec": patch}));
    assert!(after.spec.online && after.spec.network_data.is_none());
    let set = after.spec.image.as_ref().unwrap();
    assert_eq!((set.url.as_str(), set.format, set.oci_auth_secret_name.as_deref()), ("http://x/y", None, None));
    let user_data = after.spec.user_data.as_ref().unwrap();
    assert_eq!((user_data.name.as_deref(), user_data.namespace.as_deref()), (Some("copy"), Some("infra")));
    assert_eq!((&after.spec.bmc, &after.spec.consumer_ref), (&before.spec.bmc, &before.spec.consumer_ref));
    assert_eq!(host_claims::change(&one, &after, &data), None, "once");
    let never_off = with(&after, &json!({"spec": {"disablePowerOff": true}}));
    let off = claim("c", json!({"poweredOn": false}));
    assert!(
        with(&never_off, &json!({"spec": host_claims::change(&off, &never_off, &Data::default()).unwrap()}))
            .spec
            .online
    );
}

#[test]
fn a_claim_names_secrets_of_its_own_namespace_only() {
    let one = claim(
        "c",
        json!({"userData": {"name": "u"}, "metaData": {"name": "m", "namespace": "tenant"},
        "networkData": {"name": "n", "namespace": "infra"}, "image": {"url": "oci://x", "ociAuthSecretName": "r"}}),
    );
    assert_eq!(Role::UserData.named(&one), Ok(Some("u")));
    assert_eq!(Role::MetaData.named(&one), Ok(Some("m")));
    assert!(Role::NetworkData.named(&one).unwrap_err().contains("spec.networkData.namespace is infra"));
    assert_eq!(Role::Registry.named(&one), Ok(Some("r")));
    assert_eq!(Role::UserData.named(&claim("c", json!({}))), Ok(None));
}

#[test]
fn a_host_is_emptied_before_it_is_let_go() {
    let one = claim("c", json!({}));
    let state = |state: &str, url: &str| json!({"status": {"provisioning": {"state": state, "image": {"url": url}}}});
    let full = with(
        &held(&host("a"), &one),
        &json!({"spec": {"online": true, "image": {"url": "http://x"}, "userData": {"name": "u"},
        "customDeploy": {"method": "m"}}}),
    );
    let Release::Clear(patch) = host_claims::release(&full) else { panic!("not cleared") };
    let cleared = with(&full, &json!({"spec": patch}));
    assert!(!cleared.spec.online && cleared.spec.image.is_none() && cleared.spec.user_data.is_none());
    assert_eq!(host_claims::release(&with(&cleared, &state("available", ""))), Release::LetGo);
    let waits = [
        (state("provisioned", "http://x"), "provisioned"),
        (state("deprovisioning", "http://x"), "deprovisioning"),
        (state("provisioning", ""), "provisioning"),
        (state("registering", "http://x"), "registering"),
    ];
    for (patch, word) in waits {
        let host = with(&cleared, &patch);
        assert!(matches!(host_claims::release(&host), Release::Wait(why) if why.contains(word)), "{patch}");
        let paused = with(&host, &json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}}));
        assert!(matches!(host_claims::release(&paused), Release::Wait(why) if why.contains("is paused")));
        let detached = with(&host, &json!({"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}}));
        assert!(matches!(host_claims::release(&detached), Release::Wait(why) if why.contains("is detached")));
        let failed =
            with(&host, &json!({"status": {"errorType": "power management error", "errorMessage": "BMC 192.0.2.1"}}));
        let Release::Wait(why) = host_claims::release(&failed) else { panic!("let go") };
        assert!(why.contains("power management error") && !why.contains("192.0.2.1"), "{why}");
    }
    let external = with(&cleared, &json!({"spec": {"externallyProvisioned": true}}));
    assert_eq!(host_claims::release(&with(&external, &state("externally provisioned", ""))), Release::LetGo);
    // The claim's work is taken out of its spec, and the machine, which is somebody else's, is not switched off.
    let works = with(&external, &json!({"spec": {"online": true, "image": {"url": "http://x"}}}));
    let Release::Clear(patch) = host_claims::release(&works) else { panic!("let go") };
    assert_eq!(patch, json!({ "image": null }));
    let own = with(&works, &json!({"spec": {"externallyProvisioned": null}}));
    let Release::Clear(patch) = host_claims::release(&own) else { panic!("let go") };
    assert_eq!(patch, json!({"image": null, "online": false}));
}

#[test]
fn the_status_says_where_it_stands_and_changes_only_when_that_does() {
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let one = claim("c", json!({"poweredOn": true, "image": {"url": "http://x"}}));
    let mine = held(&host("a"), &one);
    let synced = || Fact::yes("ConfigurationSynced", "");
    let value = |claim: &api::metal3::HostClaim, kind: &str| {
        claim.condition(kind).map(|c| (c.status.clone(), c.reason.clone())).unwrap()
    };
    let synchronized = |claim: &api::metal3::HostClaim, host: &BareMetalHost| {
        let mut claim = claim.clone();
        claim.status = Some(host_claims::status(&claim, &Report::with(host, synced(), true), now).unwrap());
        claim
    };
    let begun = synchronized(&one, &mine);
    assert_eq!(value(&begun, "Associated").0, "True");
    assert_eq!(value(&begun, "Provisioned"), ("False".into(), "NotProvisioned".into()));
    assert_eq!(value(&begun, "Ready").0, "False");
    assert_eq!(host_claims::status(&begun, &Report::with(&mine, synced(), true), now), None, "nothing is new");
    let done = with(
        &mine,
        &json!({"status": {"poweredOn": true, "provisioning": {"state": "provisioned", "image": {"url": "http://x"}}}}),
    );
    let ready = synchronized(&begun, &done);
    assert_eq!(value(&ready, "Ready"), ("True".into(), "Ready".into()));
    assert_eq!(ready.status.as_ref().unwrap().powered_on, Some(true));
    assert_eq!(ready.status.as_ref().unwrap().hardware_data.as_ref().unwrap().to_string(), "infra/a");
    let other = with(&done, &json!({"status": {"provisioning": {"image": {"url": "http://old"}}}}));
    assert_eq!(value(&synchronized(&begun, &other), "Provisioned"), ("False".into(), "Deprovisioning".into()));
    // Without an image a claim is ready with its host.
    let empty = claim("c", json!({"poweredOn": false}));
    assert_eq!(value(&synchronized(&empty, &held(&host("a"), &empty)), "Ready").0, "True");
    assert_eq!(
        value(&synchronized(&empty, &held(&other, &empty)), "Ready").0,
        "False",
        "the machine of somebody else still runs"
    );
    // The BMC is not the claim's to know.
    let failed = with(&mine, &json!({"status": {"errorType": "provisioning error", "errorMessage": "BMC 192.0.2.1"}}));
    let failed = synchronized(&begun, &failed);
    assert!(
        !json!(failed.status).to_string().contains("192.0.2.1")
            && json!(failed.status).to_string().contains("provisioning error")
    );
}

#[test]
fn a_merge_patch_makes_one_of_the_other() {
    let cases = [
        (json!({"a": 1, "b": {"c": 2, "d": [1]}}), json!({"a": 1, "b": {"d": [2], "e": {}}})),
        (json!({}), json!({"a": {"b": 1}})),
        (json!({"a": {"b": 1}}), json!({})),
    ];
    for (from, to) in cases {
        let mut made = from.clone();
        crate::kit::merge(&mut made, &host_claims::merge_patch(&from, &to).unwrap());
        assert_eq!(made, to);
        assert_eq!(host_claims::merge_patch(&to, &to), None);
    }
}

#[test]
fn an_expression_is_compiled_once_and_the_one_unused_for_longest_makes_room() {
    let mut expressions = Expressions::default();
    let one = policy(json!({"nameMatches": "^ten"}));
    let other = |number: usize| policy(json!({"nameMatches": format!("^x{number}")}));
    for number in 0..1022 {
        assert_eq!(expressions.admits(&one, "tenant", &BTreeMap::new()), Ok(true));
        assert_eq!(expressions.admits(&other(number), "tenant", &BTreeMap::new()), Ok(false));
    }
    // What cannot be used is not tried again and again.
    let bad = policy(json!({"nameMatches": "("}));
    for _ in 0..100 {
        assert!(expressions.admits(&bad, "tenant", &BTreeMap::new()).is_err());
    }
    assert_eq!(expressions.compiled(), 1024);
    assert_eq!(expressions.admits(&other(2000), "tenant", &BTreeMap::new()), Ok(false));
    for number in 1..1022 {
        assert_eq!(expressions.admits(&other(number), "tenant", &BTreeMap::new()), Ok(false));
    }
    assert_eq!(expressions.admits(&one, "tenant", &BTreeMap::new()), Ok(true));
    assert_eq!(expressions.compiled(), 1025, "one alone had to go");
    assert_eq!(expressions.admits(&other(0), "tenant", &BTreeMap::new()), Ok(false));
    assert_eq!(expressions.compiled(), 1026);
    let long = policy(json!({"nameMatches": "a".repeat(1025)}));
    assert!(expressions.admits(&long, "tenant", &BTreeMap::new()).is_err());
}

#[test]
fn an_expression_that_takes_much_memory_is_refused_with_a_sentence() {
    let large = policy(json!({"nameMatches": "(a|bc){2000}"}));
    let why = Expressions::default().admits(&large, "tenant", &BTreeMap::new()).unwrap_err();
    assert!(why.contains("too large"), "{why}");
    let usual = policy(json!({"nameMatches": "^(team|tenant)(-[a-z0-9]+)*$"}));
    assert_eq!(Expressions::default().admits(&usual, "tenant", &BTreeMap::new()), Ok(true));
}

/// Whoever may write hosts in one namespace has them name claims of others.
#[test]
fn a_host_that_merely_names_a_claim_is_not_the_claims() {
    let at = |host: &BareMetalHost, namespace: &str| with(host, &json!({"metadata": {"namespace": namespace}}));
    let uid = |host: &BareMetalHost, uid: Value| with(host, &json!({"spec": {"consumerRef": {"uid": uid}}}));
    let one = claim("c", json!({}));
    let mine = held(&host("a"), &one);
    let (old, nobodys) = (uid(&mine, json!("old")), uid(&mine, json!(null)));
    let recorded = names(&one, "a", true, true);
    assert_eq!(host_claims::title(&mine, &recorded), Title::Own);
    assert_eq!(host_claims::title(&old, &recorded), Title::IfAdmitted, "moved with its status");
    assert_eq!(host_claims::title(&host("a"), &recorded), Title::Foreign);
    // The claim names none: whoever knows no uid must be where the claim points.
    assert_eq!(host_claims::title(&mine, &one), Title::IfAdmitted);
    for unknown in [&old, &nobodys] {
        assert_eq!(host_claims::title(unknown, &one), Title::Foreign);
        assert_eq!(host_claims::title(&at(unknown, "tenant"), &one), Title::IfAdmitted);
        let pointing = claim("c", json!({"hostSelector": {"inNamespace": "infra"}}));
        assert_eq!(host_claims::title(unknown, &pointing), Title::IfAdmitted);
        for elsewhere in ["evil", "tenant"] {
            assert_eq!(host_claims::title(&at(unknown, elsewhere), &pointing), Title::Foreign, "{elsewhere}");
            assert_eq!(host_claims::title(&at(&mine, elsewhere), &pointing), Title::Foreign, "{elsewhere}");
        }
    }
    // It names another: it does not take one up that does not know it.
    let other = names(&one, "b", false, false);
    assert_eq!(host_claims::title(&at(&old, "tenant"), &other), Title::Foreign);
    assert_eq!(host_claims::title(&mine, &other), Title::IfAdmitted);
    // The labels must be those that are asked for; a selector that cannot be read asks for none.
    for selector in [
        json!({"matchLabels": {"size": "large"}}),
        json!({"matchExpressions": [{"key": "k", "operator": "near", "values": []}]}),
    ] {
        let choosy = claim("c", json!({"hostSelector": selector}));
        assert_eq!(host_claims::title(&mine, &choosy), Title::Foreign);
        assert_eq!(host_claims::title(&at(&old, "tenant"), &choosy), Title::Foreign);
        assert_eq!(host_claims::title(&mine, &names(&choosy, "a", true, true)), Title::Own, "labels change later");
    }
    let large = with(&mine, &json!({"metadata": {"labels": {"size": "large"}}}));
    let choosy = claim("c", json!({"hostSelector": {"matchLabels": {"size": "large"}}}));
    assert_eq!(host_claims::title(&large, &choosy), Title::IfAdmitted);
}

#[test]
fn a_message_that_no_condition_takes_is_cut_with_a_sentence() {
    let one = claim("c", json!({}));
    let report = Report::without("NoBareMetalHost", "ü".repeat(40_000));
    let status = host_claims::status(&one, &report, "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
    for condition in &status.conditions {
        assert!(condition.message.len() < 8192);
    }
    assert!(status.conditions[0].message.ends_with("too long for a condition"));
}
