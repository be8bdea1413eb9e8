//! `rbac`: the least rights that `operator` needs on somebody else's cluster, as manifests.
//!
//! Each rule is used: a test runs a host's whole life under them and compares them with what the API was asked.

use serde_json::{Value, json};

use anyhow::Context;

use crate::cli::Rbac;
use crate::say;

/// Name of the service account and of all that belongs to it.
const NAME: &str = "metamorph";

/// API group, resource, verbs: wherever hosts are.
const HOSTS: &[(&str, &str, &[&str])] = &[
    ("metal3.io", "baremetalhosts", &["get", "list", "watch", "patch"]),
    ("metal3.io", "baremetalhosts/status", &["update"]),
    ("metal3.io", "hardwaredata", &["get", "list", "watch", "create", "update", "patch"]),
    ("metamorph.metal3.io", "hostoperations", &["list", "create", "delete"]),
    ("metamorph.metal3.io", "hostoperations/status", &["update"]),
    ("metamorph.metal3.io", "machinerecords", &["get", "list", "watch", "create", "update"]),
    ("events.k8s.io", "events", &["create", "patch"]),
    // Which Secrets are meant stands in the hosts; the watch is of their metadata alone.
    ("", "secrets", &["get", "list", "watch", "patch"]),
];

/// Of the namespaces themselves: whether one is frozen.
const NAMESPACES: &[(&str, &str, &[&str])] = &[("", "namespaces", &["get"])];

/// Kinds of upstream that nobody serves, whose objects are told so.
const UNSERVED: &[&str] = &["list", "watch"];

/// In the server's own namespace: its keys, and who leads.
const OWN: &[(&str, &str, &[&str])] = &[
    ("", "secrets", &["get", "create", "list", "watch", "delete"]),
    ("coordination.k8s.io", "leases", &["get", "create", "update"]),
];

/// Whether the API server still asks a webhook of an earlier start.
const STALE: &[(&str, &str, &[&str])] =
    &[("admissionregistration.k8s.io", "validatingwebhookconfigurations", &["get"])];

/// Of the cluster, for a webhook.
const WEBHOOK: &[(&str, &str, &[&str])] =
    &[("admissionregistration.k8s.io", "validatingwebhookconfigurations", &["create", "patch"])];

/// Prints the manifests.
pub fn print(options: &Rbac) -> anyhow::Result<()> {
    let mut text = String::new();
    for object in objects(options.namespace.as_deref(), &options.own_namespace, options.webhook) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object).context("write YAML")?);
    }
    say::out(&text)
}

/// The objects: namespace, account, roles and bindings. Hosts are looked after in one namespace, or in all.
fn objects(namespace: Option<&str>, own: &str, webhook: bool) -> Vec<Value> {
    let unserved: Vec<_> = operator::UNSERVED.iter().map(|(_, plural)| ("metal3.io", *plural, UNSERVED)).collect();
    let mut cluster = vec![NAMESPACES];
    if webhook {
        cluster.push(WEBHOOK);
    }
    // With a webhook for all hosts nothing of an earlier start is in the way: it is written over.
    if !webhook || namespace.is_some() {
        cluster.push(STALE);
    }
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": own } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": NAME, "namespace": own } }),
    ];
    match namespace {
        Some(namespace) => {
            objects.extend(role(Some(namespace), NAME, &[HOSTS, &unserved], own));
            objects.extend(role(None, NAME, &cluster, own));
        }
        None => objects.extend(role(None, NAME, &[&[HOSTS, &unserved], cluster.as_slice()].concat(), own)),
    }
    objects.extend(role(Some(own), "metamorph-keys", &[OWN], own));
    objects
}

/// A role with these rules, of one namespace or of the cluster, and its binding to the account.
fn role(namespace: Option<&str>, name: &str, rules: &[&[(&str, &str, &[&str])]], own: &str) -> [Value; 2] {
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = Value::from(namespace);
    }
    let rules: Vec<Value> = rules
        .iter()
        .copied()
        .flatten()
        .map(|(group, resource, verbs)| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs }))
        .collect();
    let api = "rbac.authorization.k8s.io";
    [
        json!({ "apiVersion": format!("{api}/v1"), "kind": format!("{prefix}Role"), "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{prefix}RoleBinding"), "metadata": metadata,
            "roleRef": { "apiGroup": api, "kind": format!("{prefix}Role"), "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": own }],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_of_one_namespace_has_no_rights_on_hosts_elsewhere() {
        let roles = |namespace| {
            let all = objects(namespace, "own", false);
            let of_cluster = all.into_iter().filter(|object| object["kind"] == "ClusterRole");
            of_cluster.map(|role| role["rules"].to_string()).collect::<String>()
        };
        assert!(roles(None).contains("baremetalhosts"));
        // Who runs without a webhook is told of one that is left.
        assert!(roles(None).contains("validatingwebhookconfigurations"));
        let some = roles(Some("metal3"));
        assert!(some.contains("namespaces") && !some.contains("baremetalhosts") && !some.contains("secrets"), "{some}");
    }
}
