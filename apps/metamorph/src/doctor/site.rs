//! Checks of the Kubernetes API's side: definitions, rights, the Lease, the webhook.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use operator::leader;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::endpoints::certificate;
use super::report::{Report, View};
use crate::api_reader::{Reader, Unread};
use crate::{probe, rights};

/// Our API group: what its definitions drop is lost.
const OWN: &str = "metamorph.metal3.io";
/// Between two looks at a Lease that seems old: servers renew theirs every few seconds.
const RENEWED: Duration = Duration::from_secs(5);
/// Missing rights that are named.
const MOST_RIGHTS: usize = 10;
/// One resource that several checks ask for.
const CONFIG_MAPS: &str = "configmaps";
/// Paths of fields that are named.
const MOST_PATHS: usize = 3;
/// Deepest field that is compared.
const DEEPEST: usize = 40;
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// The definitions: there, established, and with all fields that this program's own have.
pub async fn definitions(report: &mut Report, reader: &Reader) -> anyhow::Result<()> {
    let mut good = 0;
    for text in api::crds::all()? {
        let ours: Value = serde_saphyr::from_str(&text)?;
        let name = ours["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("definition {name}");
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let apply = "apply that of the server's version: metamorph crds | kubectl apply --server-side -f -";
        match reader.object(&path).await {
            Ok(found) => match fault(&ours, &found) {
                None => good += 1,
                Some(fault) if name.ends_with(OWN) => report.fail(View::Api, &what, &fault, apply),
                Some(fault) => report.warn(View::Api, &what, &fault, apply),
            },
            Err(Unread::Absent) => report.fail(View::Api, &what, "it is not there", apply),
            Err(why) => {
                report.skip(View::Api, "definitions", &why.to_string());
                return Ok(());
            }
        }
    }
    if good == 0 {
        return Ok(());
    }
    report.ok(View::Api, "definitions", &format!("{good} have all that this program's own have"));
    Ok(())
}

/// What is wrong with a definition, beside ours.
fn fault(ours: &Value, found: &Value) -> Option<String> {
    let established = found["status"]["conditions"].as_array().into_iter().flatten();
    let is = |condition: &&Value| condition["type"] == "Established" && condition["status"] == "True";
    if !established.into_iter().any(|condition| is(&condition)) {
        return Some("it is not established".to_owned());
    }
    for version in ours["spec"]["versions"].as_array().into_iter().flatten() {
        let there = found["spec"]["versions"].as_array().into_iter().flatten();
        let there = there.into_iter().find(|there| there["name"] == version["name"] && there["served"] == true);
        let name = version["name"].as_str().unwrap_or_default();
        let Some(there) = there else { return Some(format!("it does not serve {name}")) };
        let (mut wanted, mut has) = (BTreeSet::new(), BTreeSet::new());
        fields(&version["schema"]["openAPIV3Schema"], "", 0, &mut wanted);
        fields(&there["schema"]["openAPIV3Schema"], "", 0, &mut has);
        let missing: Vec<&str> = wanted.difference(&has).map(String::as_str).collect();
        if let Some(first) = missing.get(..missing.len().min(MOST_PATHS)).filter(|first| !first.is_empty()) {
            let number = missing.len();
            return Some(format!(
                "it is of another version: {number} fields are not in it, such as {}",
                first.join(", ")
            ));
        }
    }
    None
}

/// Paths of all fields of a schema.
fn fields(schema: &Value, path: &str, depth: usize, found: &mut BTreeSet<String>) {
    if depth > DEEPEST {
        return;
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        fields(field, &path, depth + 1, found);
        found.insert(path);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            fields(&schema[inner], &format!("{path}[]"), depth + 1, found);
        }
    }
}

/// What the person needs: verb, API group, resource, and where ("" is everywhere, or a kind without namespaces).
fn read_here<'a>(
    namespace: &'a str,
    own_namespace: &'a str,
) -> BTreeMap<(&'static str, &'static str, &'a str), BTreeSet<&'static str>> {
    let of_hosts = [
        ("metal3.io", "baremetalhosts", "list"),
        ("metal3.io", "baremetalhosts", "get"),
        ("metal3.io", "hostfirmwarecomponents", "get"),
        (OWN, "hostdiagnoses", "get"),
        (OWN, "hostdiagnoses", "list"),
        ("", "secrets", "get"),
        ("", CONFIG_MAPS, "get"),
    ];
    // What the server lists, `metamorph host explain` and `metamorph support-bundle` read, but the Secrets: of these the metadata are read one by one.
    let listed = rights::of_hosts().filter(|(_, resource, verb)| *verb == "list" && *resource != "secrets");
    // What a Role in a namespace gives counts for the namespace itself, too.
    let of_namespace = [("", "namespaces", "get")];
    let of_cluster = [
        ("apiextensions.k8s.io", "customresourcedefinitions", "get"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "list"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    ];
    let of_server = [
        ("coordination.k8s.io", "leases", "get"),
        ("", "pods", "list"),
        ("", "serviceaccounts", "get"),
        ("", CONFIG_MAPS, "get"),
    ];
    let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let places = of_hosts.into_iter().chain(of_namespace).chain(listed).map(|right| (right, namespace));
    let places = places.chain(of_cluster.map(|right| (right, ""))).chain(of_server.map(|right| (right, own_namespace)));
    for ((group, resource, verb), place) in places {
        all.entry((group, resource, place)).or_default().insert(verb);
    }
    all
}

/// The only object of the resource that is read there: a right may name it.
fn read_by_name<'a>(resource: &str, place: &'a str) -> &'a str {
    match resource {
        CONFIG_MAPS => image_sources::CONFIG_MAP,
        "namespaces" => place,
        _ => "",
    }
}

/// What the person may read, so that a check that was skipped surprises nobody.
pub async fn own_rights(report: &mut Report, reader: &Reader, namespace: Option<&str>, own_namespace: &str) {
    let needed = read_here(namespace.unwrap_or_default(), own_namespace);
    let needed = needed.iter().flat_map(|(kind, verbs)| verbs.iter().map(move |verb| (*kind, *verb)));
    let mut missing = Vec::new();
    for ((group, resource, place), verb) in needed {
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "verb": verb, "group": group, "resource": resource, "namespace": place,
                "name": read_by_name(resource, place) } },
        });
        match reader.ask("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &question).await {
            Ok(answer) if answer["status"]["allowed"] == true => {}
            Ok(_) if place.is_empty() => missing.push(format!("{verb} {resource}")),
            Ok(_) => missing.push(format!("{verb} {resource} of {place}")),
            Err(why) => return report.skip(View::Api, "your rights", &why.to_string()),
        }
    }
    if missing.is_empty() {
        report.ok(View::Api, "your rights", "you may read what is looked at here");
    } else {
        // Hosts first: without them nothing else matters.
        missing.sort_by_key(|right| !right.contains(" baremetalhosts"));
        let number = missing.len();
        let more = number.saturating_sub(MOST_RIGHTS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let said =
            format!("you may not {}{more}", missing.into_iter().take(MOST_RIGHTS).collect::<Vec<_>>().join(", "));
        let next = "what needs it is skipped below, and left out of `metamorph host explain` and of a support bundle";
        report.warn(View::Api, "your rights", &said, next);
    }
}

/// What the server's service account may do, beside what it needs.
pub async fn server_rights(report: &mut Report, reader: &Reader, own_namespace: &str) {
    let what = "rights of the server's account";
    let account = format!("/api/v1/namespaces/{own_namespace}/serviceaccounts/{}", rights::NAME);
    match reader.object(&account).await {
        Ok(_) => {}
        Err(Unread::Absent) => {
            return report.skip(View::Api, what, "there is no service account of it, as with `metamorph up`");
        }
        Err(why) => return report.skip(View::Api, what, &why.to_string()),
    }
    let user = format!("system:serviceaccount:{own_namespace}:{}", rights::NAME);
    let groups = ["system:authenticated", "system:serviceaccounts", &format!("system:serviceaccounts:{own_namespace}")];
    let (mut missing, mut number) = (Vec::new(), 0);
    let own = rights::of_own().map(|(group, resource, verb)| (own_namespace, group, resource, verb));
    let of_hosts = rights::of_hosts().map(|(group, resource, verb)| ("", group, resource, verb));
    for (namespace, group, right, verb) in of_hosts.chain(own) {
        let (resource, subresource) = right.split_once('/').unwrap_or((right, ""));
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": { "user": user, "groups": groups, "resourceAttributes": { "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace } },
        });
        match reader.ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", &question).await {
            Ok(answer) if answer["status"]["allowed"] == true => number += 1,
            Ok(_) if namespace.is_empty() => missing.push(format!("{verb} {right}")),
            Ok(_) => missing.push(format!("{verb} {right} of {namespace}")),
            Err(why) => return report.skip(View::Api, what, &why.to_string()),
        }
    }
    if missing.is_empty() {
        report.ok(
            View::Api,
            what,
            &format!("it has all {number}, for hosts of all namespaces and for its own objects"),
        );
    } else {
        let shown = missing.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        let said = format!(
            "{} of {} are missing, for hosts of all namespaces or for its own objects: {shown}",
            missing.len(),
            missing.len() + number
        );
        let next = "apply them: metamorph rbac | kubectl apply -f - (fine for an operator of one namespace, whose rights are a Role)";
        report.warn(View::Api, what, &said, next);
    }
}

/// What a Lease says: its holder, when it was renewed, and for how long it counts.
fn lease_of(lease: &Value) -> (String, Option<Timestamp>, i64) {
    let spec = &lease["spec"];
    let renewed = spec["renewTime"].as_str().and_then(|time| time.parse().ok());
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    (terms::clean(holder, 120), renewed, spec["leaseDurationSeconds"].as_i64().unwrap_or(0))
}

/// Who leads, and whether that is kept up.
pub async fn lease(report: &mut Report, reader: &Reader, own_namespace: &str) {
    let base = format!("/apis/coordination.k8s.io/v1/namespaces/{own_namespace}/leases");
    let what = format!("Lease {own_namespace}/{}", leader::NAME);
    let path = format!("{base}/{}", leader::NAME);
    let found = match reader.object(&path).await {
        Ok(found) => found,
        Err(Unread::Absent) => {
            let next =
                "start the server, or name its namespace by --own-namespace; with --lease-duration 0 there is none";
            return report.warn(View::Api, &what, "no server has led here", next);
        }
        Err(why) => return report.skip(View::Api, &what, &why.to_string()),
    };
    let (holder, renewed, duration) = lease_of(&found);
    let age = renewed.map(|renewed| Timestamp::now().duration_since(renewed));
    let fresh = age.is_some_and(|age| age.abs() <= SignedDuration::from_secs(duration.clamp(0, 3600)));
    if holder.is_empty() {
        report.fail(View::Api, &what, "nobody holds it: no server is at work", "start the server");
    } else if fresh {
        report.ok(View::Api, &what, &format!("{holder} holds it and has renewed it"));
    } else {
        // By clocks alone that is not known: it is seen whether it changes.
        tokio::time::sleep(RENEWED).await;
        let again = reader.object(&path).await.map(|again| lease_of(&again));
        let age = age.map_or(0, |age| age.as_secs().abs());
        match again {
            Ok(again) if (&again.0, again.1) != (&holder, renewed) => {
                let said = format!("{} renews it, and its clock is {age} s from this machine's", again.0);
                report.warn(View::Api, &what, &said, "set the clocks of both");
            }
            Ok(_) => {
                let said = format!("{holder} holds it and has not renewed it for {age} s");
                report.fail(View::Api, &what, &said, "look whether that server runs and reaches the Kubernetes API (one with --lease-duration 0 renews none: delete it)");
            }
            Err(why) => report.skip(View::Api, &what, &why.to_string()),
        }
    }
    if let Ok(upstreams) = reader.object(&format!("{base}/{}", leader::UPSTREAMS)).await {
        let (holder, renewed, duration) = lease_of(&upstreams);
        let age = renewed.map_or(i64::MAX, |renewed| Timestamp::now().duration_since(renewed).as_secs());
        if !holder.is_empty() && age <= duration.clamp(0, 3600) {
            let said = format!("baremetal-operator ({holder}) is at work on the same hosts");
            report.warn(View::Api, "other operators", &said, "Metamorph waits while it runs: stop one of them");
        }
    }
}

/// The webhook: that there is one, that its authority is valid, and whether it answers where an address is given.
pub async fn webhook(report: &mut Report, reader: &Reader) {
    let mut ours = Vec::new();
    let read = reader
        .each(WEBHOOKS, "application/json", "items", |object| {
            if object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("metamorph-webhook")) {
                ours.push(object);
            }
            ours.len() < 16
        })
        .await;
    if let Err(why) = read {
        return report.skip(View::Api, "webhook", &why.to_string());
    }
    if ours.is_empty() {
        let why = "there is none: `metamorph up` reviews hosts itself, and an operator without --webhook-service or --webhook-url does not";
        return report.skip(View::Api, "webhook", why);
    }
    for object in ours {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = format!("webhook {name}");
        let config = &object["webhooks"][0]["clientConfig"];
        let pem = config["caBundle"].as_str().and_then(|bundle| STANDARD.decode(bundle).ok()).unwrap_or_default();
        let first = CertificateDer::pem_slice_iter(&pem).find_map(Result::ok);
        match first.and_then(|der| probe::described(&der, None)) {
            Some(described) => {
                certificate(report, View::Api, &what, &described, "restart the server: it makes another one")
            }
            None => report.fail(
                View::Api,
                &what,
                "its caBundle holds no certificate",
                "restart the server: it writes it anew",
            ),
        }
        match config["url"].as_str().map(url::Url::parse) {
            Some(Ok(url)) => {
                let pem = String::from_utf8_lossy(&pem).into_owned();
                let question = probe::Question { authorities: &pem, by_itself: true, ..probe::Question::get(&url) };
                match probe::ask(&question).await {
                    Ok(answer) => match answer.certificate.as_ref().and_then(|found| found.fault.as_ref()) {
                        Some(fault) => {
                            let said = format!("its certificate is not one that caBundle trusts: {fault}");
                            report.fail(View::Here, &what, &said, "restart the server: it writes it anew");
                        }
                        None => report.ok(View::Here, &what, &format!("it answers {} at {}", answer.status, answer.at)),
                    },
                    Err(trouble) => {
                        let next = "the Kubernetes API must reach it, which this machine need not";
                        report.warn(View::Here, &what, &trouble.to_string(), next);
                    }
                }
            }
            Some(Err(_)) => {
                report.fail(View::Api, &what, "its address is no URL", "restart the server with another --webhook-url")
            }
            None => report.skip(View::Here, &what, "it is a Service, which is reached inside of the cluster alone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(fields: &Value, established: &str) -> Value {
        json!({
            "spec": { "versions": [{ "name": "v1alpha1", "served": true, "schema": { "openAPIV3Schema": { "properties": { "spec": { "properties": fields } } } } }] },
            "status": { "conditions": [{ "type": "Established", "status": established }] },
        })
    }

    #[test]
    fn a_definition_without_our_fields_is_of_another_version() {
        let ours = definition(&json!({ "a": {}, "b": { "items": { "properties": { "c": {} } } } }), "True");
        let more =
            definition(&json!({ "a": {}, "b": { "items": { "properties": { "c": {}, "d": {} } } }, "e": {} }), "True");
        assert_eq!(fault(&ours, &ours), None);
        assert_eq!(fault(&ours, &more), None, "a later one has more");
        let less = definition(&json!({ "a": {} }), "True");
        assert!(
            fault(&ours, &less).unwrap().contains("2 fields are not in it, such as spec.b, spec.b[].c"),
            "{:?}",
            fault(&ours, &less)
        );
        let not = definition(&json!({ "a": {} }), "False");
        assert_eq!(fault(&not, &not).as_deref(), Some("it is not established"));
        assert_eq!(fault(&ours, &json!({ "status": ours["status"] })).as_deref(), Some("it does not serve v1alpha1"));
    }
}
