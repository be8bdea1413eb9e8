//! Rules of roles: what they allow, whether some cover others, and their description in errors.
//!
//! Semantics of `k8s.io/kubernetes/pkg/apis/rbac/v1` (evaluation helpers) and of component-helpers'
//! `auth/rbac/validation` (covering).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attributes::Attributes;
use crate::object::Object;

/// One rule (`rbac.authorization.k8s.io/v1` PolicyRule).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    /// Verbs; `*` is all.
    pub verbs: Vec<String>,
    /// API groups; `*` is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources, with subresources as `resource/subresource`; `*` is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Names; an empty list is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths; a trailing `*` matches any rest.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// The rules of a role or cluster role.
pub fn rules_of(role: &Object) -> Vec<Rule> {
    role.get("rules")
        .filter(|r| !r.is_null())
        .and_then(|rules| serde_json::from_value(rules.clone()).ok())
        .unwrap_or_default()
}

/// The JSON form of rules in a role.
pub fn to_json(rules: &[Rule]) -> Value {
    serde_json::to_value(rules).unwrap_or_default()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|x| x == wanted)
}

fn has_all(list: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|w| has(list, w))
}

impl Rule {
    /// The number of simple rules that it expands to, see [`missing`].
    pub fn count(&self) -> usize {
        let product = |lists: &[&Vec<String>]| lists.iter().fold(1usize, |n, list| n.saturating_mul(list.len()));
        let names = self.resource_names.len().max(1);
        let resources = product(&[&self.verbs, &self.api_groups, &self.resources]).saturating_mul(names);
        resources.saturating_add(product(&[&self.verbs, &self.non_resource_urls]))
    }

    /// Whether the rule allows a request.
    pub fn allows(&self, asked: &Attributes) -> bool {
        if !has(&self.verbs, "*") && !has(&self.verbs, &asked.verb) {
            return false;
        }
        if !asked.is_resource {
            return self.non_resource_urls.iter().any(|pattern| url_covers(pattern, &asked.path));
        }
        (has(&self.api_groups, "*") || has(&self.api_groups, &asked.group))
            && self.resources.iter().any(|pattern| resource_matches(pattern, &asked.resource, &asked.sub))
            && (self.resource_names.is_empty() || has(&self.resource_names, &asked.name))
    }

    /// Expands the rule to simple rules of one verb, group, resource and name each.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut out = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let base =
                        Self { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Self::default() };
                    if self.resource_names.is_empty() {
                        out.push(base);
                        continue;
                    }
                    out.extend(self.resource_names.iter().map(|n| Self { resource_names: one(n), ..base.clone() }));
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                out.push(Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() });
            }
        }
        out
    }

    fn covers(&self, part: &Self) -> bool {
        let named = if part.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            self.resource_names.is_empty() || has_all(&self.resource_names, &part.resource_names)
        };
        named
            && (has(&self.verbs, "*") || has_all(&self.verbs, &part.verbs))
            && (has(&self.api_groups, "*") || has_all(&self.api_groups, &part.api_groups))
            && part.resources.iter().all(|r| resource_covered(&self.resources, r))
            && part
                .non_resource_urls
                .iter()
                .all(|u| self.non_resource_urls.iter().any(|pattern| url_covers(pattern, u)))
    }

    /// The rule as printed in escalation errors.
    fn described(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(_, l)| !l.is_empty()).map(|(n, l)| format!("{n}:{}", quoted_list(l))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// Whether a rule's resource matches: `*`, `resource`, `resource/sub` or `*/sub`.
fn resource_matches(pattern: &str, resource: &str, sub: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    if sub.is_empty() {
        return pattern == resource;
    }
    match pattern.split_once('/') {
        Some((first, rest)) => rest == sub && (first == resource || first == "*"),
        None => false,
    }
}

fn resource_covered(patterns: &[String], wanted: &str) -> bool {
    if has(patterns, "*") || has(patterns, wanted) {
        return true;
    }
    wanted.split_once('/').is_some_and(|(_, sub)| patterns.iter().any(|o| o.strip_prefix("*/") == Some(sub)))
}

fn url_covers(pattern: &str, wanted: &str) -> bool {
    pattern == "*" || pattern == wanted || (pattern.ends_with('*') && wanted.starts_with(pattern.trim_end_matches('*')))
}

/// The simple rules of `wanted` that `owned` does not cover.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::parts);
    parts.filter(|part| !owned.iter().any(|rule| rule.covers(part))).collect()
}

/// The missing rules as lines of an error, merged by resource.
pub fn describe(missing: &[Rule]) -> String {
    let mut simple: BTreeMap<(&str, &str, Option<&String>), Rule> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for rule in missing {
        let ([group], [resource]) = (rule.api_groups.as_slice(), rule.resources.as_slice()) else {
            lines.insert(rule.described());
            continue;
        };
        let entry = simple.entry((group, resource, rule.resource_names.first()));
        entry.and_modify(|r| r.verbs.extend(rule.verbs.iter().cloned())).or_insert_with(|| rule.clone());
    }
    lines.extend(simple.values().map(Rule::described));
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

/// A text in double quotes as Go's `%q` writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list of quoted texts as Go's `%q` writes it.
pub fn quoted_list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|t| quoted(t)).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(value: Value) -> Rule {
        serde_json::from_value(value).unwrap()
    }

    fn asked(verb: &str, group: &str, resource: &str, sub: &str, name: &str) -> Attributes {
        Attributes { name: name.into(), ..Attributes::of(verb, group, resource, sub) }
    }

    #[test]
    fn a_rule_allows_what_it_says_and_no_more() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]}));
        assert!(pods.allows(&asked("get", "", "pods", "", "a")));
        assert!(pods.allows(&asked("get", "", "things", "scale", "a")));
        for (verb, group, resource, sub) in [
            ("list", "", "pods", ""),
            ("get", "apps", "pods", ""),
            ("get", "", "pods", "log"),
            ("get", "", "scale", ""),
        ] {
            assert!(!pods.allows(&asked(verb, group, resource, sub, "a")), "{verb} {group} {resource} {sub}");
        }
        let named = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]}));
        assert!(named.allows(&asked("x", "y", "z", "sub", "a")));
        assert!(!named.allows(&asked("list", "y", "z", "", "")));
        let paths = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]}));
        let path = |p: &str| Attributes { verb: "get".into(), path: p.into(), ..Attributes::default() };
        assert!(paths.allows(&path("/healthz")) && paths.allows(&path("/api/")) && paths.allows(&path("/api/v1")));
        assert!(!paths.allows(&path("/api")) && !paths.allows(&path("/healthz/a")));
        assert!(!paths.allows(&asked("get", "", "healthz", "", "")));
    }

    #[test]
    fn what_is_missing_is_reported_in_order() {
        let owned = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}))];
        let wanted = [
            rule(json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]})),
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]})),
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]})),
        ];
        assert_eq!(
            describe(&missing(&owned, &wanted)),
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}\n\
             {APIGroups:[\"\"], Resources:[\"pods/log\"], Verbs:[\"get\"]}\n\
             {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
        );
        let all = [
            rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})),
            rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]})),
        ];
        assert!(missing(&all, &wanted).is_empty() && missing(&all, &all).is_empty());
        assert!(!missing(&wanted, &all).is_empty());
    }

    #[test]
    fn parts_are_counted_before_they_are_made() {
        let many = |n: usize| -> Vec<String> { (0..n).map(|i| i.to_string()).collect() };
        let rule = Rule { verbs: many(3), api_groups: many(4), resources: many(5), ..Rule::default() };
        assert_eq!((rule.count(), rule.parts().len()), (60, 60));
        let named = Rule { resource_names: many(2), non_resource_urls: many(7), ..rule };
        assert_eq!((named.count(), named.parts().len()), (141, 141));
        let huge = Rule { verbs: many(1 << 16), api_groups: many(1 << 16), resources: many(1 << 16), ..named };
        assert!(huge.count() > 1 << 48);
    }

    #[test]
    fn names_limit_what_is_covered() {
        let named = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}))];
        let free = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}))];
        assert!(missing(&free, &named).is_empty());
        assert_eq!(missing(&named, &free), free);
    }
}
