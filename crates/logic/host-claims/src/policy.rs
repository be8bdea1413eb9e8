//! HostDeployPolicies: whose claims the hosts of a namespace may be given to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::metal3::HostDeployPolicy;
use regex_automata::meta::{Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;

/// Largest compiled expression, bytes; and the largest cache of a search with it.
const MAX_EXPRESSION: usize = 64 << 10;
/// Longest expression, bytes.
const MAX_TEXT: usize = 1024;
/// Most expressions that are kept compiled.
const MAX_KEPT: usize = 1024;

/// Expressions of policies, compiled once and kept by their text, so that an edited policy never uses an old one. Those that cannot be used are
/// kept as such. The one that was not used for longest makes room for a new one.
#[derive(Debug, Default)]
pub struct Expressions {
    kept: HashMap<String, Kept>,
    compiled: u64,
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    built: Option<Regex>,
    /// Its last use, counted over all.
    used: u64,
}

/// Compiles it without what takes most memory and only groups need; `None` if it is unusable.
fn compile(expression: &str) -> Option<Regex> {
    let config = Config::new()
        .nfa_size_limit(Some(MAX_EXPRESSION))
        .hybrid_cache_capacity(MAX_EXPRESSION)
        .which_captures(WhichCaptures::Implicit)
        .onepass(false)
        .dfa(false);
    Regex::builder().configure(config).build(expression).ok()
}

impl Expressions {
    /// How many were compiled.
    #[must_use]
    pub const fn compiled(&self) -> u64 {
        self.compiled
    }

    /// Whether it matches; `None` if the expression is unusable.
    fn matches(&mut self, expression: &str, text: &str) -> Option<bool> {
        if expression.len() > MAX_TEXT {
            return None;
        }
        self.uses = self.uses.saturating_add(1);
        if let Some(kept) = self.kept.get_mut(expression) {
            kept.used = self.uses;
            return kept.built.as_ref().map(|built| built.is_match(text));
        }
        if self.kept.len() >= MAX_KEPT
            && let Some(oldest) = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(text, _)| text.clone())
        {
            self.kept.remove(&oldest);
        }
        self.compiled = self.compiled.saturating_add(1);
        let built = compile(expression);
        let matches = built.as_ref().map(|built| built.is_match(text));
        self.kept.insert(expression.to_owned(), Kept { built, used: self.uses });
        matches
    }

    /// Whether a policy admits the claims of a namespace with these labels (upstream's `acceptableNamespaces`).
    ///
    /// # Errors
    /// A sentence, when its expression is unusable. Such a policy admits no claims; upstream stops all claims because of it.
    pub fn admits(
        &mut self,
        policy: &HostDeployPolicy,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<bool, String> {
        let Some(wanted) = &policy.spec.host_claim_namespaces else { return Ok(false) };
        if wanted.names.as_ref().is_some_and(|names| !names.iter().any(|name| name == namespace)) {
            return Ok(false);
        }
        if let Some(expression) = wanted.name_matches.as_deref().filter(|expression| !expression.is_empty()) {
            let matches = self.matches(expression, namespace).ok_or_else(|| {
                "spec.hostClaimNamespaces.nameMatches is no regular expression that can be used (it is invalid, or too large): the policy admits nobody until it is corrected"
                    .to_owned()
            })?;
            if !matches {
                return Ok(false);
            }
        }
        Ok(wanted.has_labels.iter().all(|label| {
            let wanted = label.value.as_deref().filter(|value| !value.is_empty());
            labels.get(&label.name).is_some_and(|found| wanted.is_none_or(|wanted| wanted == found))
        }))
    }

    /// Namespaces whose hosts the claims of a namespace may have.
    #[must_use]
    pub fn admitted<'a>(
        &mut self,
        policies: impl IntoIterator<Item = &'a HostDeployPolicy>,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> BTreeSet<String> {
        let policies = policies.into_iter();
        let admitting = policies.filter(|policy| self.admits(policy, namespace, labels) == Ok(true));
        admitting.filter_map(|policy| policy.metadata.namespace.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand of them are kept.
    #[test]
    fn an_expression_that_is_compiled_takes_little_memory() {
        for expression in ["^(abcdefghijklmnopqrstuvwxyz0123456789){20}$", "^(a|bc){200}$", "^[a-z]{250}$"] {
            let bytes = compile(expression).unwrap().memory_usage();
            assert!(bytes <= MAX_EXPRESSION, "{expression}: {bytes}");
        }
    }
}
