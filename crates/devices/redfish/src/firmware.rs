//! Versions of the firmware (schemas UpdateService and SoftwareInventory).
//!
//! An inventory names all that carries firmware, in the vendor's words, with earlier and staged versions among it. What of it is the BIOS, the BMC or a
//! network card is told by links (`RelatedItem`), by the id (Dell, Supermicro, OpenBMC) or by the description (HPE).

use std::collections::BTreeMap;

use bmc::{BmcError, FirmwareVersion};
use serde_json::Value;

use crate::client::Client;
use crate::exchange::Fault;
use crate::hide::is_public;
use crate::json::{link_at, links, text, word};
use terms::clean;

const WHAT: &str = "read the firmware's versions";
/// Most items of an inventory that are read.
const MAX_ITEMS: usize = 64;
/// Most network cards.
const MAX_CARDS: usize = 32;

impl Client {
    /// The installed firmware of BIOS, BMC and network cards, sorted.
    ///
    /// # Errors
    /// [`BmcError`] when a request fails; what the BMC refuses to show is left out.
    pub async fn firmware_versions(&self) -> Result<Vec<FirmwareVersion>, BmcError> {
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        let secrets = self.core.plain_secrets();
        for (component, version) in self.inventory().await? {
            if !is_public(&component, &secrets) {
                continue;
            }
            let cards = found.keys().filter(|known| known.starts_with("nic:")).count();
            if !component.starts_with("nic:") || cards < MAX_CARDS {
                found.entry(component).or_insert_with(|| self.core.without_secrets(&version));
            }
        }
        let system = self.known_system(WHAT).await?;
        if let Some(version) = system.bios_version.as_ref().filter(|_| !found.contains_key("bios")) {
            found.insert("bios".to_owned(), self.core.without_secrets(version));
        }
        if !found.contains_key("bmc")
            && let Some(version) = self.manager_version().await?
        {
            found.insert("bmc".to_owned(), self.core.without_secrets(&version));
        }
        Ok(found.into_iter().map(|(component, version)| FirmwareVersion { component, version }).collect())
    }

    /// Components and versions of the inventory; items that were of no use before are not read again.
    async fn inventory(&self) -> Result<Vec<(String, String)>, BmcError> {
        let Some(service) = self.core.root(WHAT).await?.update_service else { return Ok(Vec::new()) };
        let known = self.core.state().firmware_items.clone();
        if let Some(paths) = known {
            let mut kept = Kept::default();
            for path in paths {
                if let Some(item) = self.item(&path).await? {
                    kept.take(path, &item);
                }
            }
            return Ok(kept.items);
        }
        let Some(list) = self.item(&service).await?.and_then(|service| link_at(&service, "FirmwareInventory")) else {
            return Ok(Vec::new());
        };
        let members = match self.core.expanded(WHAT, &list, None).await {
            Ok(members) => members,
            Err(fault) if is_refusal(&fault) => return Ok(Vec::new()),
            Err(fault) => return Err(fault.into()),
        };
        let mut kept = Kept::default();
        for (path, inlined) in members.into_iter().filter(|(path, _)| !is_earlier(last(path))).take(MAX_ITEMS) {
            let item = if inlined.get("Version").is_some() { Some(inlined) } else { self.item(&path).await? };
            if let Some(item) = item {
                kept.take(path, &item);
            }
        }
        self.core.state().firmware_items = Some(kept.paths);
        Ok(kept.items)
    }

    /// `FirmwareVersion` of the system's first manager.
    async fn manager_version(&self) -> Result<Option<String>, BmcError> {
        let system = self.known_system(WHAT).await?;
        let manager = match self.managers(WHAT, &system).await {
            Ok(managers) => managers.into_iter().next(),
            Err(fault) if is_refusal(&fault) => None,
            Err(fault) => return Err(fault.into()),
        };
        let Some(manager) = manager else { return Ok(None) };
        Ok(self.item(&manager).await?.and_then(|manager| text(&manager, "FirmwareVersion")))
    }

    async fn item(&self, path: &str) -> Result<Option<Value>, BmcError> {
        match self.core.get(WHAT, path).await {
            Ok(reply) => Ok(Some(reply.value)),
            Err(fault) if is_refusal(&fault) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }
}

/// What is kept of an inventory's items, of which sixty-four may be large: nothing but this.
#[derive(Default)]
struct Kept {
    /// Paths of those that are of use.
    paths: Vec<String>,
    /// Components and versions.
    items: Vec<(String, String)>,
}

impl Kept {
    fn take(&mut self, path: String, item: &Value) {
        if let Some((component, version)) = installed(item) {
            self.paths.push(path);
            self.items.push((component, version));
        }
    }
}

fn is_refusal(fault: &Fault) -> bool {
    fault.is_nonsense() || fault.status().is_some_and(|status| status < 500 && status != 401)
}

fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// Whether the id is that of a version that does not run: Dell keeps earlier and available ones in the same list, and says the one that runs twice.
fn is_earlier(id: &str) -> bool {
    let id = id.to_ascii_lowercase();
    ["previous-", "available-", "current-"].iter().any(|prefix| id.starts_with(prefix))
        || ["backup", "golden", "staging", "redundant"].iter().any(|word| id.contains(word))
}

/// What the item is of, and its version; `None` for everything but BIOS, BMC and network cards, and for what is not in use.
fn installed(item: &Value) -> Option<(String, String)> {
    let version = text(item, "Version").filter(|version| !version.eq_ignore_ascii_case("n/a"))?;
    let id = text(item, "Id").unwrap_or_default();
    let described = [text(item, "Name"), text(item, "Description")].map(|text| text.unwrap_or_default().to_lowercase());
    let unused = ["backup", "redundant", "golden", "recovery"];
    if is_earlier(&id) || unused.iter().any(|word| described.iter().any(|text| text.contains(word))) {
        return None;
    }
    Some((component(item, &id, &described)?, version))
}

fn component(item: &Value, id: &str, described: &[String; 2]) -> Option<String> {
    // Dell: "Installed-<number>-<version>__<device>".
    if let Some((_, device)) = id.split_once("__") {
        return match device.split('.').next().unwrap_or_default() {
            "BIOS" => Some("bios".to_owned()),
            "iDRAC" => Some("bmc".to_owned()),
            "NIC" => Some(format!("nic:{}", clean(device, 60))),
            _ => None,
        };
    }
    for path in links(item.get("RelatedItem")) {
        let path = path.trim_end_matches('/').to_owned();
        if let Some(card) = after(&path, "NetworkAdapters") {
            return Some(format!("nic:{}", clean(card, 60)));
        }
        let end = last(&path).to_ascii_lowercase();
        if end == "bios" {
            return Some("bios".to_owned());
        }
        if after(&path, "Managers").is_some_and(|rest| !rest.contains('/')) {
            return Some("bmc".to_owned());
        }
    }
    let lower = id.to_ascii_lowercase();
    let whole =
        |name: &str| lower == name || lower == format!("{name}_image") || lower.starts_with(&format!("{name}_active"));
    let is = |words: &[&str]| described.iter().any(|text| words.contains(&text.as_str()));
    if whole("bios") || is(&["systemromactive", "system rom", "system bios", "bios"]) {
        return Some("bios".to_owned());
    }
    let ilo = word(item, "Description") == Some("SystemBMC");
    (whole("bmc") || ilo || is(&["bmc", "bmc firmware"])).then(|| "bmc".to_owned())
}

/// The rest of a path after this segment.
fn after<'a>(path: &'a str, segment: &str) -> Option<&'a str> {
    path.split_once(&format!("/{segment}/")).map(|(_, rest)| rest).filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_large_items_no_more_is_kept_than_of_small_ones() {
        let large = "x".repeat(256 << 10);
        let mut kept = Kept::default();
        for number in 0..MAX_ITEMS {
            let item =
                json!({"Id": format!("Installed-{number}__NIC.{large}"), "Version": large, "Oem": {"Notes": [large]}});
            kept.take(format!("/redfish/v1/UpdateService/FirmwareInventory/{number}"), &item);
        }
        assert_eq!(kept.items.len(), MAX_ITEMS);
        let texts = kept.items.iter().flat_map(|(component, version)| [component, version]).chain(&kept.paths);
        let bytes: usize = texts.map(String::capacity).sum();
        assert!(bytes < MAX_ITEMS * 2048, "{bytes}");
    }
}
