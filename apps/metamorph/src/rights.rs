//! `rbac`: the least rights that `operator` needs on an existing cluster, as manifests.
//!
//! No rule is superfluous: a test runs a host's whole life with these rights and compares them with the API's requests.

use serde_json::{Value, json};

use anyhow::Context;

use crate::cli::Rbac;
use crate::say;

/// Name of the service account and of all that belongs to it.
pub const NAME: &str = "metamorph";

/// Of these, the one of this program's own name may be read.
const CONFIG_MAPS: &str = "configmaps";

/// API group, resource and verbs, in every namespace with hosts.
const HOSTS: &[(&str, &str, &[&str])] = &[
    ("metal3.io", "baremetalhosts", &["get", "list", "watch", "create", "patch"]),
    ("metal3.io", "baremetalhosts/status", &["update"]),
    ("metal3.io", "hostfirmwaresettings", &["get", "list", "watch", "create", "patch"]),
    ("metal3.io", "hostfirmwaresettings/status", &["update"]),
    ("metal3.io", "firmwareschemas", &["get", "list", "watch", "create", "patch"]),
    ("metal3.io", "hostfirmwarecomponents", &["get", "list", "watch", "create", "patch"]),
    ("metal3.io", "hostfirmwarecomponents/status", &["update"]),
    ("metal3.io", "hostupdatepolicies", &["get", "list", "watch", "patch"]),
    ("metal3.io", "dataimages", &["get", "list", "watch", "patch"]),
    ("metal3.io", "dataimages/status", &["update"]),
    ("metal3.io", "bmceventsubscriptions", &["get", "list", "watch", "patch"]),
    ("metal3.io", "bmceventsubscriptions/status", &["update"]),
    ("metal3.io", "hardwaredata", &["get", "list", "watch", "create", "update", "patch"]),
    ("metamorph.metal3.io", "hostoperations", &["get", "list", "watch", "create", "patch", "delete"]),
    ("metamorph.metal3.io", "hostoperations/status", &["update"]),
    ("metamorph.metal3.io", "hostdiagnoses", &["get", "create"]),
    ("metamorph.metal3.io", "hostdiagnoses/status", &["update"]),
    ("metamorph.metal3.io", "hostclasses", &["list", "watch"]),
    ("metamorph.metal3.io", "hostclasses/status", &["update"]),
    ("metamorph.metal3.io", "hostdiscoveries", &["list", "watch", "patch"]),
    ("metamorph.metal3.io", "hostdiscoveries/status", &["patch"]),
    ("metamorph.metal3.io", "machinerecords", &["get", "list", "watch", "create", "update"]),
    ("metal3.io", "hostclaims", &["get", "list", "watch", "patch"]),
    ("metal3.io", "hostclaims/status", &["update"]),
    ("metal3.io", "hostdeploypolicies", &["list", "watch"]),
    // Those of baremetal-operator's hosts go with them.
    ("metal3.io", "preprovisioningimages", &["patch"]),
    ("metal3.io", "baremetalswitches", &["get"]),
    ("metal3.io", "baremetalswitches/status", &["patch"]),
    ("metal3.io", "hardwareclassifications", &["list", "watch", "patch"]),
    ("metal3.io", "hardwareclassifications/status", &["update"]),
    ("events.k8s.io", "events", &["create", "patch"]),
    // How images are read.
    ("", CONFIG_MAPS, &["get"]),
    // Hosts and claims name the Secrets; the watch covers metadata only.
    ("", "secrets", &["get", "list", "watch", "patch"]),
];

/// To copy the Secrets that claims of other namespaces name, and to update and remove the copies. Needed only to manage all namespaces.
const COPIES: &[(&str, &str, &[&str])] = &[("", "secrets", &["create", "update", "delete"])];

/// To read whether a namespace is frozen.
const NAMESPACES: &[(&str, &str, &[&str])] = &[("", "namespaces", &["get"])];

/// Upstream kinds that this program does not serve; it marks their objects as such.
const UNSERVED: &[&str] = &["list", "watch"];

/// In the server's own namespace: its keys, the leader election's Lease, and how images are read.
const OWN: &[(&str, &str, &[&str])] = &[
    ("", "secrets", &["get", "create", "list", "watch", "delete"]),
    ("", CONFIG_MAPS, &["get"]),
    ("coordination.k8s.io", "leases", &["get", "create", "update"]),
];

/// To find a webhook configuration left by an earlier start.
const STALE: &[(&str, &str, &[&str])] =
    &[("admissionregistration.k8s.io", "validatingwebhookconfigurations", &["get"])];

/// Cluster-wide rights for a webhook.
const WEBHOOK: &[(&str, &str, &[&str])] =
    &[("admissionregistration.k8s.io", "validatingwebhookconfigurations", &["create", "patch"])];

/// To ask whose a bearer token is, and whether its owner may read metrics.
const METRICS: &[(&str, &str, &[&str])] = &[
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
];

/// What the operator needs for the hosts of all namespaces: API group, resource and verb. Without the ConfigMap, which it has a right to by name.
pub fn of_hosts() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    each(HOSTS.iter().chain(NAMESPACES).chain(COPIES))
}

/// The same of its own namespace.
pub fn of_own() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    each(OWN.iter())
}

fn each(
    rules: impl Iterator<Item = &'static (&'static str, &'static str, &'static [&'static str])>,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let rules = rules.filter(|(_, resource, _)| *resource != CONFIG_MAPS);
    rules.flat_map(|(group, resource, verbs)| verbs.iter().map(move |verb| (*group, *resource, *verb)))
}

/// Prints the manifests.
pub fn print(options: &Rbac) -> anyhow::Result<()> {
    let mut text = String::new();
    for object in objects(options) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object).context("write YAML")?);
    }
    say::out(&text)
}

/// The objects: namespace, account, roles and bindings, for one namespace or for all.
fn objects(options: &Rbac) -> Vec<Value> {
    let Rbac { namespace, own_namespace, webhook, metrics } = options;
    let (namespace, own_namespace, webhook) = (namespace.as_deref(), own_namespace.as_str(), *webhook);
    let unserved: Vec<_> = operator::UNSERVED
        .iter()
        .chain(&operator::OF_SWITCHES)
        .map(|(_, plural)| ("metal3.io", *plural, UNSERVED))
        .collect();
    let mut cluster = vec![NAMESPACES];
    if webhook {
        cluster.push(WEBHOOK);
    }
    if *metrics {
        cluster.push(METRICS);
    }
    // A webhook for all hosts overwrites any configuration of an earlier start.
    if !webhook || namespace.is_some() {
        cluster.push(STALE);
    }
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": own_namespace } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": NAME, "namespace": own_namespace } }),
    ];
    match namespace {
        Some(namespace) => {
            objects.extend(role(Some(namespace), NAME, &[HOSTS, &unserved], own_namespace));
            objects.extend(role(None, NAME, &cluster, own_namespace));
        }
        None => {
            objects.extend(role(None, NAME, &[&[HOSTS, COPIES, &unserved], cluster.as_slice()].concat(), own_namespace))
        }
    }
    objects.extend(role(Some(own_namespace), "metamorph-keys", &[OWN], own_namespace));
    if *metrics {
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "metamorph-metrics-reader" },
            "rules": [{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }],
        }));
    }
    objects
}

/// A role with these rules, of one namespace or of the cluster, and its binding to the account.
fn role(namespace: Option<&str>, name: &str, rules: &[&[(&str, &str, &[&str])]], own_namespace: &str) -> [Value; 2] {
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = Value::from(namespace);
    }
    let rules: Vec<Value> = rules
        .iter()
        .copied()
        .flatten()
        .map(|(group, resource, verbs)| {
            let mut rule = json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
            if *resource == CONFIG_MAPS {
                rule["resourceNames"] = json!([image_sources::CONFIG_MAP]);
            }
            rule
        })
        .collect();
    let api = "rbac.authorization.k8s.io";
    [
        json!({ "apiVersion": format!("{api}/v1"), "kind": format!("{prefix}Role"), "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{prefix}RoleBinding"), "metadata": metadata,
            "roleRef": { "apiGroup": api, "kind": format!("{prefix}Role"), "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": own_namespace }],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_of_one_namespace_has_no_rights_on_hosts_elsewhere() {
        let options = |namespace: Option<&str>| Rbac {
            namespace: namespace.map(ToOwned::to_owned),
            own_namespace: "own".to_owned(),
            webhook: false,
            metrics: false,
        };
        let roles = |namespace| {
            let all = objects(&options(namespace));
            let of_cluster = all.into_iter().filter(|object| object["kind"] == "ClusterRole");
            of_cluster.map(|role| role["rules"].to_string()).collect::<String>()
        };
        assert!(roles(None).contains("baremetalhosts"));
        let one = objects(&options(Some("metal3")));
        let role = one.iter().find(|object| object["kind"] == "Role" && object["metadata"]["name"] == NAME).unwrap();
        let rules = role["rules"].as_array().unwrap().iter().filter(|rule| rule["resources"][0] == "secrets");
        assert!(rules.clone().count() == 1 && rules.clone().all(|rule| !rule["verbs"].to_string().contains("create")));
        // A server without a webhook warns of a left-over configuration.
        assert!(roles(None).contains("validatingwebhookconfigurations"));
        let some = roles(Some("metal3"));
        assert!(some.contains("namespaces") && !some.contains("baremetalhosts") && !some.contains("secrets"), "{some}");
    }
}
