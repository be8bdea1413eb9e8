//! Columns of the kinds that are stored for others to act on: quotas, network, scheduling, certificates.

use serde_json::{Value, json};

use super::age;
use super::kinds::{AGE, CREATED, Column, NAME, at, list, of, or, text};
use crate::object::{Object, meta_str};

/// The columns of a kind, in order; `None` for kinds that are not among these.
pub fn columns(group: &str, plural: &str) -> Option<&'static [Column]> {
    Some(match (group, plural) {
        ("", "resourcequotas") => QUOTA,
        ("", "limitranges") => &[NAME, CREATED],
        ("certificates.k8s.io", _) => REQUEST,
        ("networking.k8s.io", "ingresses") => INGRESS,
        ("networking.k8s.io", "ingressclasses") => &[
            NAME,
            ("Controller", "string", 0, |o| json!(text(o, "/spec/controller"))),
            ("Parameters", "string", 0, parameters),
            AGE,
        ],
        ("networking.k8s.io", "networkpolicies") => &[NAME, ("Pod-Selector", "string", 0, pods), AGE],
        ("node.k8s.io", _) => &[NAME, ("Handler", "string", 0, |o| json!(text(o, "/handler"))), AGE],
        ("policy", _) => BUDGET,
        ("scheduling.k8s.io", _) => PRIORITY,
        _ => return None,
    })
}

const QUOTA: &[Column] = &[
    NAME,
    ("Request", "string", 0, |o| json!(quota(o, false))),
    ("Limit", "string", 0, |o| json!(quota(o, true))),
    AGE,
];

const REQUEST: &[Column] = &[
    NAME,
    ("Age", "string", 0, |o| json!(age(meta_str(o, "creationTimestamp")))),
    ("SignerName", "string", 0, |o| json!(or(&text(o, "/spec/signerName"), "<none>"))),
    ("Requestor", "string", 0, |o| json!(text(o, "/spec/username"))),
    ("RequestedDuration", "string", 0, duration),
    ("Condition", "string", 0, condition),
];

const INGRESS: &[Column] = &[
    NAME,
    ("Class", "string", 0, |o| json!(or(&text(o, "/spec/ingressClassName"), "<none>"))),
    ("Hosts", "string", 0, hosts),
    ("Address", "string", 0, addresses),
    ("Ports", "string", 0, |o| json!(if list(o, "/spec/tls").is_empty() { "80" } else { "80, 443" })),
    AGE,
];

const BUDGET: &[Column] = &[
    NAME,
    ("Min Available", "string", 0, |o| json!(or(&text(o, "/spec/minAvailable"), "N/A"))),
    ("Max Unavailable", "string", 0, |o| json!(or(&text(o, "/spec/maxUnavailable"), "N/A"))),
    ("Allowed Disruptions", "integer", 0, |o| {
        json!(at(o, "/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or_default())
    }),
    AGE,
];

const PRIORITY: &[Column] = &[
    NAME,
    ("Value", "integer", 0, |o| json!(at(o, "/value").and_then(Value::as_i64).unwrap_or_default())),
    ("Global-Default", "boolean", 0, |o| json!(at(o, "/globalDefault") == Some(&json!(true)))),
    AGE,
    ("PreemptionPolicy", "string", 0, |o| json!(text(o, "/preemptionPolicy"))),
];

fn quota(object: &Object, limits: bool) -> String {
    let hard = at(object, "/status/hard").and_then(Value::as_object);
    let mut all: Vec<(&String, &Value)> = hard.into_iter().flatten().collect();
    all.sort_by_key(|(name, _)| *name);
    let used = at(object, "/status/used");
    let one = |(name, amount): (&String, &Value)| {
        let taken = used.map(|u| of(u, name)).unwrap_or_default();
        format!("{name}: {}/{}", or(&taken, "0"), amount.as_str().unwrap_or_default())
    };
    let of_kind = all.into_iter().filter(|(name, _)| name.starts_with("limits") == limits);
    of_kind.map(one).collect::<Vec<_>>().join(", ")
}

fn duration(object: &Object) -> Value {
    let Some(seconds) = at(object, "/spec/expirationSeconds").and_then(Value::as_i64) else { return json!("<none>") };
    json!(super::human(seconds))
}

fn condition(object: &Object) -> Value {
    let has = |kind: &str| list(object, "/status/conditions").iter().any(|c| of(c, "type") == kind);
    let mut state = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        state.push_str(",Issued");
    }
    json!(state)
}

fn hosts(object: &Object) -> Value {
    let all: Vec<String> =
        list(object, "/spec/rules").iter().map(|r| of(r, "host")).filter(|host| !host.is_empty()).collect();
    let printed = all.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(",");
    json!(match all.len() {
        0 => "*".to_owned(),
        count if count > 3 => format!("{printed} + {} more...", count - 3),
        _ => printed,
    })
}

fn addresses(object: &Object) -> Value {
    let all = list(object, "/status/loadBalancer/ingress").iter();
    let all: Vec<String> = all.map(|i| or(&of(i, "ip"), &of(i, "hostname")).to_owned()).collect();
    json!(all.join(","))
}

fn parameters(object: &Object) -> Value {
    let Some(given) = at(object, "/spec/parameters").filter(|p| p.is_object()) else { return json!("<none>") };
    let mut kind = of(given, "kind");
    let group = of(given, "apiGroup");
    if !group.is_empty() {
        kind = format!("{kind}.{group}");
    }
    json!(format!("{kind}/{}", of(given, "name")))
}

fn pods(object: &Object) -> Value {
    let labels = at(object, "/spec/podSelector/matchLabels").and_then(Value::as_object);
    let mut all: Vec<String> =
        labels.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    all.sort();
    for one in list(object, "/spec/podSelector/matchExpressions") {
        let values: Vec<&str> =
            one.get("values").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let (key, values) = (of(one, "key"), values.join(","));
        all.push(match of(one, "operator").as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key,
            _ => format!("!{key}"),
        });
    }
    json!(or(&all.join(","), "<none>"))
}
