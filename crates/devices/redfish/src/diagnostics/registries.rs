//! Message registries (DSP0266, "Message registries"): texts and advice of messages that entries only name. Only registries that entries name are asked for, each once a look.

use std::collections::{BTreeMap, BTreeSet};

use diagnosis::RegistryText;
use serde_json::Value;

use super::facts::last;
use super::reader::Reader;
use crate::json::{link, link_at, word};

/// Most registries of one look.
const MAX_REGISTRIES: usize = 2;
/// Most texts.
const MAX_TEXTS: usize = 64;

/// Registry and key of a message id: `Registry.Major.Minor.Key`, or with a fourth number.
fn split(id: &str) -> Option<(&str, &str)> {
    let mut parts = id.split('.');
    let registry =
        parts.next().filter(|name| name.len() > 1 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))?;
    let key = id.rsplit('.').next()?;
    let numbers = id.split('.').count();
    let plausible = (4..=5).contains(&numbers) && !registry.starts_with(|c: char| c.is_ascii_digit());
    (plausible && !key.is_empty()).then_some((registry, key))
}

impl Reader<'_> {
    /// What the registries say of these ids.
    pub async fn registry(&mut self, root: &Value, ids: Vec<String>) -> BTreeMap<String, RegistryText> {
        let ids: BTreeSet<String> = ids.into_iter().collect();
        let mut wanted: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for id in &ids {
            if let Some((registry, _)) = split(id) {
                wanted.entry(registry.to_owned()).or_default().push(id);
            }
        }
        let mut texts = BTreeMap::new();
        if wanted.is_empty() {
            return texts;
        }
        let Some(list) = link_at(root, "Registries") else {
            self.skip("message registries", "the BMC has none");
            return texts;
        };
        let list = match self.get(&list).await {
            Ok(list) => list,
            Err(miss) => {
                self.missed("message registries", &miss);
                return texts;
            }
        };
        let files = list.get("Members").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let files: Vec<String> = files.iter().take(256).filter_map(link).collect();
        for (registry, ids) in wanted.into_iter().take(MAX_REGISTRIES) {
            let Some(messages) = self.messages_of(&registry, &files).await else {
                self.skip(
                    format!("message registry {}", self.clean(&registry)),
                    "the BMC does not have it, or does not show it",
                );
                continue;
            };
            for id in ids {
                let Some((_, key)) = split(id) else { continue };
                let Some(message) = messages.get("Messages").and_then(|all| all.get(key)) else { continue };
                if texts.len() < MAX_TEXTS {
                    let text = |field: &str| self.text(message, field);
                    let found = RegistryText {
                        text: text("Message").unwrap_or_default(),
                        severity: text("MessageSeverity").or_else(|| text("Severity")),
                        resolution: text("Resolution").filter(|text| !text.eq_ignore_ascii_case("none")),
                    };
                    texts.insert(id.clone(), found);
                }
            }
        }
        texts
    }

    /// A registry: by way of the file resource whose name begins with its prefix, or that the maker calls otherwise.
    async fn messages_of(&mut self, registry: &str, files: &[String]) -> Option<Value> {
        let prefix = registry.to_ascii_lowercase();
        let other = self.client.core.state().quirks.registry_file(registry);
        let fits = |path: &&String| {
            let name = last(path).to_ascii_lowercase();
            name.split('.').next() == Some(prefix.as_str())
                || other.is_some_and(|other| name.eq_ignore_ascii_case(other))
        };
        let path = files.iter().find(fits)?;
        let file = self.get(path).await.ok()?;
        let places = file.get("Location").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let english =
            |place: &&Value| word(place, "Language").is_none_or(|word| word.to_ascii_lowercase().starts_with("en"));
        let place = places.iter().find(english).or_else(|| places.first())?;
        let uri = crate::json::path_only(word(place, "Uri")?)?;
        self.get(&uri).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn ids_name_their_registry_or_none() {
        for (id, found) in [
            ("IDRAC.2.8.PSU0003", Some(("IDRAC", "PSU0003"))),
            ("Base.1.18.1.NoValidSession", Some(("Base", "NoValidSession"))),
            ("17.10", None),
            ("0x592A28", None),
            ("MEM0001", None),
            ("../../x.1.2.y", None),
            ("a.b.c.", None),
            ("", None),
        ] {
            assert_eq!(split(id), found, "{id}");
        }
    }
}
