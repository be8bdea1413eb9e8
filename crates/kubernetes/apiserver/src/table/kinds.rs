//! Columns of the built-in kinds in tables, as kube-apiserver has them (`pkg/printers/internalversion`).

use serde_json::{Value, json};

use super::{age, event_age};
use crate::object::{Object, meta_str, metadata, strings};
use crate::resource::Resource;

/// Heading, type, priority, and how the cell is made.
pub type Column = (&'static str, &'static str, i64, fn(&Object) -> Value);

pub(super) const NAME: Column = ("Name", "string", 0, |o| json!(meta_str(o, "name")));
pub(super) const AGE: Column = ("Age", "string", 0, |o| json!(age(meta_str(o, "creationTimestamp"))));
pub(super) const CREATED: Column = ("Created At", "date", 0, |o| json!(meta_str(o, "creationTimestamp")));
/// Most endpoints that a cell names.
const FEW: usize = 3;

/// The columns of a kind, in order.
pub fn columns(resource: &Resource) -> &'static [Column] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => &[NAME, ("Status", "string", 0, |o| json!(text(o, "/status/phase"))), AGE],
        ("", "secrets") => &[
            NAME,
            ("Type", "string", 0, |o| json!(text(o, "/type"))),
            ("Data", "string", 0, |o| count(o, &["data"])),
            AGE,
        ],
        ("", "configmaps") => &[NAME, ("Data", "string", 0, |o| count(o, &["data", "binaryData"])), AGE],
        ("", "serviceaccounts") => &[NAME, ("Secrets", "string", 0, |o| count(o, &["secrets"])), AGE],
        ("", "nodes") => NODE,
        ("", "services") => SERVICE,
        ("", "endpoints") => &[NAME, ("Endpoints", "string", 0, endpoints), AGE],
        ("discovery.k8s.io", "endpointslices") => &[
            NAME,
            ("AddressType", "string", 0, |o| json!(text(o, "/addressType"))),
            ("Ports", "string", 0, slice_ports),
            ("Endpoints", "string", 0, slice_endpoints),
            AGE,
        ],
        ("coordination.k8s.io", "leases") => {
            &[NAME, ("Holder", "string", 0, |o| json!(text(o, "/spec/holderIdentity"))), AGE]
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => BINDING,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => &[
            NAME,
            ("Validations", "integer", 0, |o| json!(list(o, "/spec/validations").len())),
            ("ParamKind", "string", 0, param_kind),
            AGE,
        ],
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => &[
            NAME,
            ("PolicyName", "string", 0, |o| json!(text(o, "/spec/policyName"))),
            ("ParamRef", "string", 0, param_ref),
            AGE,
        ],
        ("admissionregistration.k8s.io", _) => &[NAME, ("Webhooks", "integer", 0, |o| count(o, &["webhooks"])), AGE],
        (_, "events") => EVENT,
        (group, plural) => super::stored::columns(group, plural).unwrap_or(&[NAME, CREATED]),
    }
}

const NODE: &[Column] = &[
    NAME,
    ("Status", "string", 0, node_status),
    ("Roles", "string", 0, node_roles),
    AGE,
    ("Version", "string", 0, |o| json!(text(o, "/status/nodeInfo/kubeletVersion"))),
    ("Internal-IP", "string", 1, |o| address(o, "InternalIP")),
    ("External-IP", "string", 1, |o| address(o, "ExternalIP")),
    ("OS-Image", "string", 1, |o| known(o, "/status/nodeInfo/osImage")),
    ("Kernel-Version", "string", 1, |o| known(o, "/status/nodeInfo/kernelVersion")),
    ("Container-Runtime", "string", 1, |o| known(o, "/status/nodeInfo/containerRuntimeVersion")),
];

const SERVICE: &[Column] = &[
    NAME,
    ("Type", "string", 0, |o| json!(text(o, "/spec/type"))),
    ("Cluster-IP", "string", 0, cluster_ip),
    ("External-IP", "string", 0, external_ip),
    ("Port(s)", "string", 0, service_ports),
    AGE,
    ("Selector", "string", 1, selector),
];

const BINDING: &[Column] = &[
    NAME,
    ("Role", "string", 0, |o| json!(format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")))),
    AGE,
    ("Users", "string", 1, |o| subjects(o, "User")),
    ("Groups", "string", 1, |o| subjects(o, "Group")),
    ("ServiceAccounts", "string", 1, |o| subjects(o, "ServiceAccount")),
];

const EVENT: &[Column] = &[
    ("Last Seen", "string", 0, last_seen),
    ("Type", "string", 0, |o| json!(text(o, "/type"))),
    ("Reason", "string", 0, |o| json!(text(o, "/reason"))),
    ("Object", "string", 0, event_object),
    ("Subobject", "string", 1, |o| json!(either(o, "/involvedObject/fieldPath", "/regarding/fieldPath"))),
    ("Source", "string", 1, event_source),
    ("Message", "string", 0, |o| json!(either(o, "/message", "/note").trim())),
    ("First Seen", "string", 1, |o| json!(event_age(&either(o, "/firstTimestamp", "/deprecatedFirstTimestamp"), o))),
    ("Count", "string", 1, |o| json!(event_count(o))),
    ("Name", "string", 1, |o| json!(meta_str(o, "name"))),
];

pub(super) fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('/').skip(1);
    parts.by_ref().next().and_then(|first| object.get(first)).and_then(|v| {
        let mut here = v;
        for part in parts {
            here = here.get(part)?;
        }
        Some(here)
    })
}

pub(super) fn text(object: &Object, path: &str) -> String {
    match at(object, path) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

pub(super) fn list<'a>(object: &'a Object, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn of(value: &Value, key: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

pub(super) fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

fn either(object: &Object, core: &str, events: &str) -> String {
    let first = text(object, core);
    if first.is_empty() { text(object, events) } else { first }
}

fn known(object: &Object, path: &str) -> Value {
    json!(or(&text(object, path), "<unknown>"))
}

fn count(object: &Object, keys: &[&str]) -> Value {
    let of = |v: &Value| v.as_object().map(|m| m.len()).or_else(|| v.as_array().map(Vec::len)).unwrap_or(0);
    json!(keys.iter().filter_map(|k| object.get(*k)).map(of).sum::<usize>())
}

fn node_status(object: &Object) -> Value {
    let ready = list(object, "/status/conditions").iter().find(|c| of(c, "type") == "Ready");
    let mut status = match ready {
        None => "Unknown".to_owned(),
        Some(c) if of(c, "status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if at(object, "/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

fn node_roles(object: &Object) -> Value {
    let labels = metadata(object).get("labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|r| !r.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    json!(or(&roles.join(","), "<none>"))
}

fn address(object: &Object, ty: &str) -> Value {
    let found = list(object, "/status/addresses").iter().find(|a| of(a, "type") == ty);
    json!(found.map_or("<none>".to_owned(), |a| of(a, "address")))
}

fn cluster_ip(object: &Object) -> Value {
    json!(strings(at(object, "/spec/clusterIPs")).first().map_or("<none>", String::as_str))
}

fn external_ip(object: &Object) -> Value {
    let external = strings(at(object, "/spec/externalIPs"));
    json!(match text(object, "/spec/type").as_str() {
        "ClusterIP" | "NodePort" => or(&external.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let all = list(object, "/status/loadBalancer/ingress");
            let mut all: Vec<String> = all.iter().map(|i| or(&of(i, "ip"), &of(i, "hostname")).to_owned()).collect();
            all.extend(external);
            or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => text(object, "/spec/externalName"),
        _ => "<unknown>".to_owned(),
    })
}

fn service_ports(object: &Object) -> Value {
    let one = |p: &Value| match p.get("nodePort").and_then(Value::as_i64).filter(|n| *n > 0) {
        Some(node) => format!("{}:{node}/{}", of(p, "port"), of(p, "protocol")),
        None => format!("{}/{}", of(p, "port"), of(p, "protocol")),
    };
    let all: Vec<String> = list(object, "/spec/ports").iter().map(one).collect();
    json!(or(&all.join(","), "<none>"))
}

fn selector(object: &Object) -> Value {
    let labels = at(object, "/spec/selector").and_then(Value::as_object);
    let mut all: Vec<String> =
        labels.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    all.sort();
    json!(or(&all.join(","), "<none>"))
}

/// The first few of a list, and how many more there are.
fn few(all: &[String], unset: &str) -> Value {
    let printed = all.iter().take(FEW).map(String::as_str).collect::<Vec<_>>().join(",");
    json!(match all.len() {
        0 => unset.to_owned(),
        n if n > FEW => format!("{printed} + {} more...", n - FEW),
        _ => printed,
    })
}

fn endpoints(object: &Object) -> Value {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        let empty = Vec::new();
        let addresses = subset.get("addresses").and_then(Value::as_array).unwrap_or(&empty);
        let ports = subset.get("ports").and_then(Value::as_array).unwrap_or(&empty);
        if ports.is_empty() {
            all.extend(addresses.iter().map(|a| of(a, "ip")));
        }
        for port in ports {
            all.extend(addresses.iter().map(|a| {
                let ip = of(a, "ip");
                let ip = if ip.contains(':') { format!("[{ip}]") } else { ip };
                format!("{ip}:{}", of(port, "port"))
            }));
        }
    }
    few(&all, "<none>")
}

fn slice_ports(object: &Object) -> Value {
    let one = |p: &Value| {
        let (port, name) = (of(p, "port"), of(p, "name"));
        or(or(&port, &name), "*").to_owned()
    };
    few(&list(object, "/ports").iter().map(one).collect::<Vec<_>>(), "<unset>")
}

fn slice_endpoints(object: &Object) -> Value {
    let all: Vec<String> = list(object, "/endpoints").iter().flat_map(|e| strings(e.get("addresses"))).collect();
    few(&all, "<unset>")
}

fn subjects(object: &Object, kind: &str) -> Value {
    let one = |s: &Value| {
        if kind == "ServiceAccount" { format!("{}/{}", of(s, "namespace"), of(s, "name")) } else { of(s, "name") }
    };
    let all: Vec<String> = list(object, "/subjects").iter().filter(|s| of(s, "kind") == kind).map(one).collect();
    json!(all.join(", "))
}

fn param_kind(object: &Object) -> Value {
    json!(match at(object, "/spec/paramKind") {
        Some(kind @ Value::Object(_)) => format!("{}/{}", of(kind, "apiVersion"), of(kind, "kind")),
        _ => "<unset>".to_owned(),
    })
}

fn param_ref(object: &Object) -> Value {
    json!(match at(object, "/spec/paramRef") {
        Some(given @ Value::Object(_)) if !of(given, "name").is_empty() => {
            format!("{}/{}", or(&of(given, "namespace"), "*"), of(given, "name"))
        }
        _ => "<unset>".to_owned(),
    })
}

fn last_seen(object: &Object) -> Value {
    let series = text(object, "/series/lastObservedTime");
    if !series.is_empty() {
        return json!(age(&series));
    }
    let last = either(object, "/lastTimestamp", "/deprecatedLastTimestamp");
    let first = either(object, "/firstTimestamp", "/deprecatedFirstTimestamp");
    json!(event_age(or(&last, &first), object))
}

fn event_count(object: &Object) -> i64 {
    let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or(0);
    [number("/series/count"), number("/count"), number("/deprecatedCount")].into_iter().find(|n| *n > 0).unwrap_or(1)
}

fn event_object(object: &Object) -> Value {
    let kind = either(object, "/involvedObject/kind", "/regarding/kind").to_lowercase();
    let name = either(object, "/involvedObject/name", "/regarding/name");
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

fn event_source(object: &Object) -> Value {
    let mut component = either(object, "/source/component", "/deprecatedSource/component");
    if component.is_empty() {
        component = either(object, "/reportingComponent", "/reportingController");
    }
    let mut host = either(object, "/source/host", "/deprecatedSource/host");
    if host.is_empty() {
        host = text(object, "/reportingInstance");
    }
    json!(if host.is_empty() { component } else { format!("{component}, {host}") })
}
