//! Kinds that kube-apiserver knows but this server does not serve: upstream's error for a body of such a kind differs
//! from that for an unknown kind.

use std::collections::HashMap;
use std::sync::OnceLock;

type Table = HashMap<(&'static str, &'static str), Vec<&'static str>>;

/// One line per group and version, and one of the kinds that every group has.
fn table() -> &'static (Vec<&'static str>, Table) {
    static TABLE: OnceLock<(Vec<&'static str>, Table)> = OnceLock::new();
    TABLE.get_or_init(|| {
        let (mut common, mut table) = (Vec::new(), Table::new());
        for line in include_str!("registered.txt").lines().filter(|l| !l.starts_with('#')) {
            let Some((at, kinds)) = line.split_once(": ") else { continue };
            let kinds: Vec<&str> = kinds.split(' ').collect();
            match at.rsplit_once('/') {
                _ if at == "*" => common = kinds,
                Some(key) => {
                    table.insert(key, kinds);
                }
                None => {
                    table.insert(("", at), kinds);
                }
            }
        }
        (common, table)
    })
}

/// Whether a kind is registered where kinds of the group `at` are decoded. Upstream decodes definitions in a separate
/// server, which knows no other groups.
pub fn known(at: &str, group: &str, version: &str, kind: &str) -> bool {
    let (common, table) = table();
    let definitions = "apiextensions.k8s.io";
    let apart = (at == definitions) != (group == definitions) && !(at == definitions && group.is_empty());
    let Some(kinds) = table.get(&(group, version)).filter(|_| !apart) else { return false };
    let declared = kinds.contains(&kind) && !(at == definitions && group.is_empty());
    declared || common.contains(&kind)
}

/// Whether kube-apiserver itself serves this group.
pub fn is_group(group: &str) -> bool {
    let (_, table) = table();
    let served = |(at, version): &(&str, &str)| *at == group && !version.contains("alpha");
    group == "apiregistration.k8s.io" || table.keys().any(served)
}

/// Whether a kind is another version of the wanted one, by group and name.
pub fn same(wanted: (&str, &str), (group, kind): (&str, &str)) -> bool {
    let events = |group: &str| matches!(group, "" | "events.k8s.io") && kind == "Event";
    wanted.1 == kind && (wanted.0 == group || events(group) && events(wanted.0))
}

/// The package of a kind's type within kube-apiserver.
pub fn package<'a>(group: &'a str, kind: &str) -> &'a str {
    match group.split('.').next().unwrap_or_default() {
        "events" if kind == "Event" => "core",
        "" => "core",
        first => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_kinds_are_distinguished_from_unknown_ones() {
        for (at, group, version, kind, is) in [
            ("", "apps", "v1", "Deployment", true),
            ("", "apps", "v1", "DeleteOptions", true),
            ("", "apps", "v9", "Deployment", false),
            ("", "", "v1", "Deployment", false),
            ("", "example.com", "v1", "Thing", false),
            ("", "rbac.authorization.k8s.io", "v1beta1", "Role", true),
            ("apiextensions.k8s.io", "", "v1", "ConfigMap", false),
            ("apiextensions.k8s.io", "apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition", true),
            ("", "apiextensions.k8s.io", "v1", "CustomResourceDefinition", false),
        ] {
            assert_eq!(known(at, group, version, kind), is, "{at} {group}/{version} {kind}");
        }
    }
}
