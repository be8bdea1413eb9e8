//! Registries of the firmware's settings (schemas MessageRegistryFile and AttributeRegistry): what each setting may be.
//!
//! `Bios` names its registry; the service's `Registries` have a file of that name, with a location per language inside the BMC. What lies outside
//! of the BMC is not fetched.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use bmc::{AttributeKind, AttributeSchema, BiosSchema};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::exchange::Fault;
use crate::hide::is_public;
use crate::json::{absolute, flag, path_only, same_path, text, word};
use terms::clean;

/// Most attributes of a registry that are read.
const MAX_ENTRIES: usize = 4096;
/// Most values of an enumeration.
const MAX_VALUES: usize = 128;
/// Longest name or value, bytes.
const MAX_NAME: usize = 1024;
/// Names and values of a registry, bytes; more is no machine's.
const MAX_REGISTRY: usize = 512 << 10;
/// Registry files that are read in search of the one that `Bios` names, where no path tells.
const MAX_READ: usize = 4;
/// Locations of a registry that are looked at.
const MAX_LOCATIONS: usize = 32;

type Schemas = HashMap<[u8; 32], Weak<BTreeMap<String, AttributeSchema>>>;

/// Registries in use, by their content: a thousand machines of one model share one. Each BMC has shown what its machine has.
static SHARED: LazyLock<Mutex<Schemas>> = LazyLock::new(Mutex::default);

impl Client {
    /// The registry of this name; `None` where the BMC does not have it.
    pub(crate) async fn attribute_registry(&self, what: &str, name: &str) -> Result<Option<BiosSchema>, Fault> {
        let known = self.core.state().bios_schema.clone();
        if let Some((_, schema)) = known.filter(|(of, _)| of == name) {
            return Ok(schema);
        }
        let found = match self.find_registry(what, name).await {
            Ok(found) => found,
            // Refused, not JSON, or too large: the settings are shown without.
            Err(fault) if fault.is_nonsense() || fault.status().is_some_and(|status| status < 500 && status != 401) => {
                let registry = clean(&self.core.without_secrets(name), MAX_NAME);
                tracing::info!(registry, "the BMC's registry of BIOS settings cannot be read");
                None
            }
            Err(fault) => return Err(fault),
        };
        let schema = found.as_ref().and_then(|found| shared(found, &self.core.plain_secrets()));
        self.core.state().bios_schema = Some((name.to_owned(), schema.clone()));
        Ok(schema)
    }

    async fn find_registry(&self, what: &str, name: &str) -> Result<Option<Value>, Fault> {
        let registries = self.core.root(what).await?.registries;
        let Some(registries) = registries.filter(|_| !name.is_empty()) else { return Ok(None) };
        // Mostly the file has the very name, and the list is not needed.
        let named = format!("{}/{name}", registries.trim_end_matches('/'));
        if let Some(path) = path_only(&named)
            && let Some(found) = self.registry_at(what, &path, name).await?
        {
            return Ok(Some(found));
        }
        let members = self.core.members(what, &registries).await?;
        let mut candidates: Vec<&String> = members.iter().filter(|path| rank(path, name).is_some()).collect();
        candidates.sort_by_key(|path| rank(path, name));
        for path in candidates.into_iter().take(MAX_READ) {
            if let Some(found) = self.registry_at(what, path, name).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The registry of this name, if the file at `path` is of it.
    async fn registry_at(&self, what: &str, path: &str, name: &str) -> Result<Option<Value>, Fault> {
        let file = match self.core.get(what, path).await {
            Ok(reply) => reply.value,
            Err(fault) if matches!(fault.status(), Some(400 | 404)) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        if !is_named(&file, path, name) {
            return Ok(None);
        }
        if file.get("RegistryEntries").is_some() {
            return Ok(Some(file));
        }
        match location(&file, path).filter(|location| !same_path(location, path)) {
            Some(location) => Ok(Some(self.core.get(what, &location).await?.value)),
            None => Ok(None),
        }
    }
}

/// The name without its version: `BiosAttributeRegistryU58` of `BiosAttributeRegistryU58.v1_2_44`, `BiosAttributeRegistry` of
/// `BiosAttributeRegistry.1.0.0`.
fn stem(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let lower = lower.strip_suffix(".json").unwrap_or(&lower);
    let digit = |part: &str| part.trim_start_matches('v').starts_with(|first: char| first.is_ascii_digit());
    lower.split('.').take_while(|part| !digit(part)).collect::<Vec<_>>().join(".")
}

/// How likely the registry file at `path` is the one of this name, the likeliest first; `None` if it is not.
fn rank(path: &str, name: &str) -> Option<u8> {
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if last.eq_ignore_ascii_case(name) {
        Some(0)
    } else if stem(last) == stem(name) {
        Some(1)
    } else {
        let last = last.to_ascii_lowercase();
        (last.contains("bios") || last.contains("attribute")).then_some(2)
    }
}

/// Whether the file is the registry's: by its path, its id, or the registry that it says it is of.
fn is_named(file: &Value, path: &str, name: &str) -> bool {
    let same = |field: &str| word(file, field).is_some_and(|found| stem(found) == stem(name));
    rank(path, name).is_some_and(|rank| rank < 2) || same("Registry") || same("Id")
}

/// Where the registry lies inside the BMC, in English if there is a choice.
fn location(file: &Value, path: &str) -> Option<String> {
    let Some(Value::Array(locations)) = file.get("Location") else { return None };
    let inside = |location: &Value| {
        let uri = location.get("Uri")?;
        // HPE iLO 4: an object around the link.
        let uri = uri.as_str().or_else(|| uri.get("extref")?.as_str())?;
        path_only(uri).or_else(|| absolute(path, uri))
    };
    let english = |location: &&Value| {
        word(location, "Language").is_none_or(|language| {
            let language = language.to_ascii_lowercase();
            language == "en" || language.starts_with("en-") || language == "default"
        })
    };
    let locations = locations.iter().take(MAX_LOCATIONS);
    locations.clone().filter(english).find_map(inside).or_else(|| locations.clone().find_map(inside))
}

/// The schema in a registry; `None` if it has no entries, or more than a machine's.
fn shared(registry: &Value, secrets: &[String]) -> Option<BiosSchema> {
    let Some(Value::Array(entries)) = registry.get("RegistryEntries")?.get("Attributes") else { return None };
    let mut bytes = 0;
    let mut schema = BTreeMap::new();
    for entry in entries.iter().take(MAX_ENTRIES) {
        let Some((name, read)) = attribute(entry) else { continue };
        // Others can read the schema than the BMC's password.
        if ![&name].into_iter().chain(&read.allowed).all(|text| is_public(text, secrets)) {
            continue;
        }
        bytes += name.len() + read.allowed.iter().map(String::len).sum::<usize>();
        schema.insert(name, read);
    }
    if schema.is_empty() || bytes > MAX_REGISTRY {
        return None;
    }
    let digest: [u8; 32] = Sha256::digest(format!("{schema:?}")).into();
    let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.get(&digest).and_then(Weak::upgrade) {
        return Some(known);
    }
    all.retain(|_, schema| schema.strong_count() > 0);
    let schema = Arc::new(schema);
    all.insert(digest, Arc::downgrade(&schema));
    Some(schema)
}

/// One entry, by its attribute's name.
fn attribute(entry: &Value) -> Option<(String, AttributeSchema)> {
    let name = word(entry, "AttributeName").filter(|name| !name.is_empty() && name.len() <= MAX_NAME)?;
    let number = |field: &str| entry.get(field).and_then(Value::as_i64);
    let length = |field: &str| entry.get(field).and_then(Value::as_u64).and_then(|length| length.try_into().ok());
    // What cannot be changed is said in two ways, and by some in both.
    let fixed = [flag(entry, "ReadOnly"), flag(entry, "Immutable")];
    let schema = AttributeSchema {
        kind: kind_of(entry),
        allowed: allowed(entry),
        lower_bound: number("LowerBound"),
        upper_bound: number("UpperBound"),
        min_length: length("MinLength"),
        max_length: length("MaxLength"),
        read_only: fixed.iter().flatten().copied().reduce(|one, other| one || other),
        unique: flag(entry, "IsSystemUniqueProperty"),
    };
    Some((name.to_owned(), schema))
}

fn allowed(entry: &Value) -> Vec<String> {
    let Some(Value::Array(values)) = entry.get("Value") else { return Vec::new() };
    let names = values.iter().filter_map(|value| word(value, "ValueName"));
    names.filter(|name| name.len() <= MAX_NAME).take(MAX_VALUES).map(ToOwned::to_owned).collect()
}

/// The type of an attribute.
fn kind_of(entry: &Value) -> Option<AttributeKind> {
    Some(match text(entry, "Type")?.to_ascii_lowercase().as_str() {
        "enumeration" => AttributeKind::Enumeration,
        "string" => AttributeKind::String,
        "integer" => AttributeKind::Integer,
        "boolean" => AttributeKind::Boolean,
        "password" => AttributeKind::Password,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn registries_are_found_whatever_their_version_is_written_like() {
        let name = "BiosAttributeRegistryU58.v1_2_44";
        assert_eq!(rank("/redfish/v1/Registries/BiosAttributeRegistryU58.v1_2_44/", name), Some(0));
        assert_eq!(rank("/redfish/v1/Registries/BiosAttributeRegistryU58", name), Some(1));
        assert_eq!(rank("/redfish/v1/Registries/BiosAttributeRegistryA41.v1_0_0", name), Some(2));
        assert_eq!(rank("/redfish/v1/Registries/Base.1.8.0", name), None);
        assert_eq!(stem("BiosAttributeRegistryProt0.208.208.0"), "biosattributeregistryprot0");
        assert!(is_named(&json!({"Registry": name}), "/redfish/v1/Registries/Bios", name));
        assert!(!is_named(&json!({"Registry": "Other.v1_0"}), "/redfish/v1/Registries/Bios", name));
    }

    #[test]
    fn a_location_is_inside_the_bmc_and_english_where_there_is_a_choice() {
        let file = json!({"Location": [{"Language": "ja", "Uri": "/r/ja"}, {"Language": "en-US", "Uri": "/r/en"}]});
        assert_eq!(location(&file, "/redfish/v1/Registries/B").as_deref(), Some("/r/en"));
        let only = json!({"Location": [{"Language": "ja", "Uri": {"extref": "/r/ja"}}]});
        assert_eq!(location(&only, "/x").as_deref(), Some("/r/ja"));
        let outside = json!({"Location": [{"Language": "en", "PublicationUri": "https://192.0.2.9/r.json"}]});
        assert_eq!(location(&outside, "/x"), None);
    }

    #[test]
    fn equal_registries_are_one() {
        let registry = json!({"RegistryEntries": {"Attributes": [
            {"AttributeName": "A", "Type": "Integer", "LowerBound": -1, "UpperBound": 9, "ReadOnly": false, "Immutable": true},
            {"AttributeName": "B", "Type": "Enumeration", "Value": [{"ValueName": "On"}, {"ValueName": "Off"}]},
            {"AttributeName": ""}, 5]}});
        let (one, other) = (shared(&registry, &[]).unwrap(), shared(&registry, &[]).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!((one["A"].lower_bound, one["A"].upper_bound, one["A"].read_only), (Some(-1), Some(9), Some(true)));
        assert_eq!((one["B"].kind, one["B"].allowed.join(" ")), (Some(AttributeKind::Enumeration), "On Off".into()));
        assert_eq!(one.len(), 2);
        assert!(shared(&json!({"RegistryEntries": {"Attributes": []}}), &[]).is_none());
    }

    #[test]
    fn what_tells_a_secret_is_no_part_of_a_schema() {
        let secret = "correct horse";
        let registry = json!({"RegistryEntries": {"Attributes": [
            {"AttributeName": "A", "Type": "Boolean"},
            {"AttributeName": format!("is {secret}"), "Type": "Boolean"},
            {"AttributeName": "B", "Type": "Enumeration", "Value": [{"ValueName": "On"}, {"ValueName": secret}]}]}});
        let schema = shared(&registry, &[secret.to_owned()]).unwrap();
        assert_eq!(schema.keys().collect::<Vec<_>>(), ["A"]);
        assert_eq!(shared(&registry, &[]).unwrap().len(), 3);
    }
}
