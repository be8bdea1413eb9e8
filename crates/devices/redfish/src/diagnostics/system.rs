//! Power and start (schema ComputerSystem), and the order in which the sources are read.

use bmc::Capability;
use diagnosis::{Boot, BootOverride, BootProgress, Evidence, Part, PartKind, PowerFacts, Reading};
use serde_json::Value;
use terms::HealthLevel;

use super::facts::{rollup, time_at};
use super::reader::{Miss, Reader, WHAT};
use crate::json::{flag, link_at, links, words};
use crate::quirks::Quirks;

/// Most options of the firmware's list.
const MAX_OPTIONS: usize = 16;

impl Reader<'_> {
    /// All that needs a session.
    pub async fn read_machine(&mut self, found: &mut Evidence, root: &Value) {
        let (path, system) = match self.system().await {
            Ok(read) => read,
            Err(miss) => {
                found.power = miss.clone().reading();
                found.boot = miss.clone().reading();
                found.parts = miss.reading();
                self.has_media = None;
                let manager = self.manager(&Value::Null, root, found).await;
                self.read_rest(found, root, &Value::Null, &manager).await;
                return;
            }
        };
        self.note_maker(&system);
        let mut power = self.power_of(&system);
        let mut parts = vec![self.part(PartKind::System, &path, &system)];
        // The rollup says more of the whole than its own health.
        parts[0].health = rollup(&system);
        self.read_chassis(&system, &mut power, &mut parts).await;
        found.power = Reading::Read(power);
        found.boot = Reading::Read(self.boot_of(&system).await);
        let manager = self.manager(&system, root, found).await;
        self.read_parts(&system, &mut parts).await;
        parts.extend(manager_part(self, &manager));
        found.parts = Reading::Read(parts);
        self.read_rest(found, root, &system, &manager).await;
    }

    /// Drives, tasks, logs, account.
    async fn read_rest(&mut self, found: &mut Evidence, root: &Value, system: &Value, manager: &Value) {
        found.media = self.media(system, manager).await;
        found.tasks = self.tasks(root).await;
        found.logs = self.logs(root, system, manager).await;
        // Last, and only of what is still affordable: what was read above tells more.
        let account = self.account(root).await;
        let licenses = if self.has_media == Some(false) {
            self.licenses(root).await
        } else {
            Reading::Skipped("the BMC has virtual media".to_owned())
        };
        self.late = Some((account, licenses));
    }

    /// The system that the host's address names, or the only one.
    async fn system(&mut self) -> Result<(String, Value), Miss> {
        let known = {
            let state = self.client.core.state();
            let named = self.client.core.address.system_path().map(ToOwned::to_owned);
            named.or_else(|| state.system_path.clone())
        };
        let path = match known {
            Some(path) => path,
            None => {
                let list = {
                    let state = self.client.core.state();
                    state.root.as_ref().and_then(|root| root.systems.clone())
                };
                let list = list.unwrap_or_else(|| "/redfish/v1/Systems".to_owned());
                let systems = links(self.get(&list).await?.get("Members"));
                self.systems = systems.iter().map(|path| self.clean(super::facts::last(path))).collect();
                let [path] = systems.as_slice() else {
                    self.system_known = Some(false);
                    return Err(Miss::Failed(format!(
                        "the BMC has {} systems, and the address names none",
                        systems.len()
                    )));
                };
                path.clone()
            }
        };
        self.needed = true;
        let system = self.get(&path).await;
        self.needed = false;
        if let Err(Miss::Absent(_)) = &system
            && self.systems.is_empty()
            && let Some((list, _)) = path.trim_end_matches('/').rsplit_once('/')
            && let Ok(list) = self.get(list).await
        {
            self.systems = links(list.get("Members")).iter().map(|path| self.clean(super::facts::last(path))).collect();
        }
        self.system_known = match &system {
            Ok(_) => Some(true),
            Err(Miss::Absent(_)) => Some(false),
            // It is not known whether there is one.
            Err(_) => None,
        };
        system.map(|system| (path, system))
    }

    /// Whose machine it is, as every read of the system notes it: this may be the first.
    fn note_maker(&self, system: &Value) {
        let text = |field: &str| self.text(system, field).unwrap_or_default();
        let (maker, model) = (text("Manufacturer"), text("Model"));
        let mut state = self.client.core.state();
        if state.system.is_some() {
            // What the work on the host knows is not overwritten by a look: a BMC that is half up leaves things out.
            return;
        }
        let (vendor, product) =
            state.root.as_ref().map(|root| (root.vendor.clone(), root.product.clone())).unwrap_or_default();
        state.quirks = Quirks::of(&vendor, &product, &maker, &model);
    }

    fn power_of(&self, system: &Value) -> PowerFacts {
        let reset = system.get("Actions").and_then(|actions| actions.get("#ComputerSystem.Reset"));
        PowerFacts {
            state: self.text(system, "PowerState"),
            allowable_resets: words(reset.and_then(|reset| reset.get("ResetType@Redfish.AllowableValues"))),
            restore_policy: self.text(system, "PowerRestorePolicy"),
            ..PowerFacts::default()
        }
    }

    async fn boot_of(&mut self, system: &Value) -> Boot {
        let null = Value::Null;
        let boot = system.get("Boot").unwrap_or(&null);
        let progress = system.get("BootProgress").and_then(|progress| {
            Some(BootProgress {
                last_state: self.text(progress, "LastState")?,
                oem_last_state: self.text(progress, "OemLastState"),
                at: time_at(progress, "LastStateTime"),
                unchanged_seconds: None,
            })
        });
        let boot_override = boot.is_object().then(|| BootOverride {
            target: self.text(boot, "BootSourceOverrideTarget"),
            enabled: self.text(boot, "BootSourceOverrideEnabled"),
            mode: self.text(boot, "BootSourceOverrideMode"),
        });
        let secure_boot = match link_at(system, "SecureBoot") {
            Some(path) => self.get(&path).await.ok(),
            None => None,
        };
        let options = match link_at(boot, "BootOptions") {
            Some(path) => match self.members("BootOptions", &path, 0).await {
                // Those that are not shown are not known to be none.
                Ok(options) => (self.whole || !options.is_empty()).then_some(options),
                Err(miss) => {
                    self.missed("BootOptions", &miss);
                    None
                }
            },
            None => None,
        };
        let option = |(_, option): &(String, Value)| {
            let named = self.text(option, "DisplayName").or_else(|| self.text(option, "BootOptionReference"));
            named.or_else(|| self.text(option, "Id")).unwrap_or_else(|| "unnamed".to_owned())
        };
        Boot {
            progress,
            post_state: post_state(system).map(|word| self.clean(word)),
            boot_override,
            wanted_target: None,
            last_reset: time_at(system, "LastResetTime"),
            options: options.map(|options| options.iter().take(MAX_OPTIONS).map(option).collect()),
            secure_boot: secure_boot.and_then(|value| {
                let now = crate::json::word(&value, "SecureBootCurrentBoot").map(|state| state == "Enabled");
                now.or_else(|| flag(&value, "SecureBootEnable"))
            }),
        }
    }
}

/// How far the self-test is, in the vendor's word (HPE: `Oem.Hpe.PostState`).
fn post_state(system: &Value) -> Option<&str> {
    let oem = system.get("Oem")?.as_object()?;
    oem.values().find_map(|vendor| vendor.get("PostState")?.as_str())
}

/// The BMC as a part of the machine.
fn manager_part(reader: &Reader<'_>, manager: &Value) -> Option<Part> {
    let path = crate::json::word(manager, "@odata.id")?;
    Some(Part { health: rollup(manager), ..reader.part(PartKind::Manager, path, manager) })
}

/// Whether all is well as far as a summary of the system says.
pub(super) fn summary(system: &Value, field: &str) -> Option<HealthLevel> {
    system.get(field).and_then(rollup).or_else(|| rollup(system))
}

/// What the capability is called where it is missing.
pub(super) fn no(capability: Capability) -> String {
    format!("the BMC shows no {capability} ({WHAT})")
}
