//! Events, firmware, health.

use std::collections::BTreeMap;

use async_trait::async_trait;
use provisioner::{
    Events, Firmware, FirmwareFacts, Health, HealthLevel, HealthState, InstalledFirmware, Outcome, Purpose,
    SettingFact, Subscription, Unsubscription,
};
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::host::IronicHost;
use crate::journal::Subscribed;
use crate::stop::{Step, answer};
use crate::transport::Method;

/// Most subscriptions of a BMC that are looked at.
const MOST: usize = 64;
/// Most settings, and components, that are taken.
const MOST_FACTS: usize = 4096;
/// Longest text of a fact, characters.
const LONGEST: usize = 1024;

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// The last part of a subscription's path.
fn id_of(member: &Value) -> Option<String> {
    let path = member["@odata.id"].as_str()?;
    text(&path.trim_end_matches('/').rsplit('/').next()?.into()).filter(|id| !id.is_empty())
}

impl IronicHost {
    async fn subscriptions(&self, node: &str) -> Step<Vec<String>> {
        let found = self.client()?.passthru(node, Method::Get, "get_all_subscriptions", None).await;
        let found = found.map_err(|fault| self.heed("list the BMC's subscriptions", fault))?;
        let members = found["Members"].as_array().or_else(|| found.as_array());
        Ok(members.into_iter().flatten().filter_map(id_of).take(MOST).collect())
    }

    /// Where the subscription of this id sends events; nothing if it is not there.
    async fn destination(&self, node: &str, id: &str) -> Step<Option<String>> {
        let asked = self.client()?.passthru(node, Method::Get, "get_subscription", Some(json!({ "id": id }))).await;
        match asked {
            Ok(found) => Ok(Some(text(&found["Destination"]).unwrap_or_default())),
            Err(Fault::NotFound(_)) => Ok(None),
            // A BMC without it is an error to Ironic, as any other of the BMC's is.
            Err(fault @ Fault::Refused { .. }) => {
                let all = self.subscriptions(node).await?;
                let is_there = all.iter().any(|known| known == id);
                if is_there { Err(self.heed("look at the subscription", fault)) } else { Ok(None) }
            }
            Err(fault) => Err(self.heed("look at the subscription", fault)),
        }
    }

    /// One that was made for us, the answer to which was lost: it was not there before, and goes where ours does.
    async fn lost_subscription(&self, node: &str, known: &Subscribed) -> Step<Option<String>> {
        let mut unseen = None;
        for id in self.subscriptions(node).await?.into_iter().filter(|id| !known.before.contains(id)) {
            match self.destination(node, &id).await {
                Ok(at) if at.as_ref() == Some(&known.destination) => return Ok(Some(id)),
                Ok(_) => {}
                // It may be another's: one that can be seen to be ours counts.
                Err(stop) => unseen = Some(stop),
            }
        }
        unseen.map_or(Ok(None), Err)
    }

    async fn subscribed(&mut self, wished: Subscription) -> Step<String> {
        self.leads()?;
        let node = self.fresh().await?.uuid;
        let known = self.journal.data.subscriptions.get(&wished.identity).cloned();
        let known = known.filter(|known| known.destination == wished.destination);
        if let Some(known) = &known {
            let found = match &known.id {
                Some(id) => {
                    self.destination(&node, id).await?.filter(|at| *at == known.destination).map(|_| id.clone())
                }
                None => self.lost_subscription(&node, known).await?,
            };
            if let Some(id) = found {
                self.keep_subscription(&wished, Some(id.clone()), known.before.clone(), Purpose::Note).await?;
                return Ok(id);
            }
        }
        let before = self.subscriptions(&node).await?;
        self.keep_subscription(&wished, None, before.clone(), Purpose::Intent).await?;
        self.still().await?;
        let mut body = json!({ "Destination": wished.destination, "Context": wished.context });
        if !wished.headers.is_empty() {
            body["HttpHeaders"] = wished.headers.iter().map(|(name, value)| json!({ name: value.0 })).collect();
        }
        let made = self.client()?.passthru(&node, Method::Post, "create_subscription", Some(body)).await;
        let made = made.map_err(|fault| self.heed("have the BMC send its events", fault))?;
        let id = text(&made["Id"]).or_else(|| id_of(&made)).filter(|id| !id.is_empty());
        let known = Subscribed { destination: wished.destination.clone(), id: None, before: before.clone() };
        let id = match id {
            Some(id) => Some(id),
            None => self.lost_subscription(&node, &known).await?,
        };
        let Some(id) = id else {
            return Err(self.heed(
                "have the BMC send its events",
                Fault::Refused { status: 200, text: "the subscription has no id".to_owned() },
            ));
        };
        self.keep_subscription(&wished, Some(id.clone()), before, Purpose::Note).await?;
        Ok(id)
    }

    async fn keep_subscription(
        &mut self,
        wished: &Subscription,
        id: Option<String>,
        before: Vec<String>,
        purpose: Purpose,
    ) -> Step<()> {
        let known = Subscribed { destination: wished.destination.clone(), id, before };
        if self.journal.data.subscriptions.get(&wished.identity) == Some(&known) {
            return Ok(());
        }
        self.journal.data.subscriptions.insert(wished.identity.clone(), known);
        Ok(self.record(purpose).await?)
    }

    async fn unsubscribed(&mut self, ends: Unsubscription) -> Step<()> {
        self.leads()?;
        let node = self.fresh().await?.uuid;
        let known = self.journal.data.subscriptions.get(&ends.identity).cloned();
        let mut id = Some(ends.id.clone()).filter(|id| !id.is_empty());
        if let Some(known) = known.as_ref().filter(|_| id.is_none()) {
            id = match &known.id {
                Some(id) => Some(id.clone()),
                None => self.lost_subscription(&node, known).await?,
            };
        }
        if let Some(id) = id {
            let at = self.destination(&node, &id).await?;
            // Another destination is somebody else's.
            let is_ours = at.is_some_and(|at| ends.destination.is_empty() || at == ends.destination);
            if is_ours {
                self.still().await?;
                match self
                    .client()?
                    .passthru(&node, Method::Delete, "delete_subscription", Some(json!({ "id": id })))
                    .await
                {
                    Ok(_) | Err(Fault::NotFound(_)) => {}
                    Err(fault) => return Err(self.heed("end the subscription", fault)),
                }
            }
        }
        if known.is_some() {
            self.journal.data.subscriptions.remove(&ends.identity);
            self.record(Purpose::Note).await?;
        }
        Ok(())
    }

    async fn firmware_facts(&self, bounds: bool) -> Step<FirmwareFacts> {
        self.leads()?;
        let node = self.own().await?;
        let client = self.client()?;
        let mut facts = FirmwareFacts::default();
        if self.capabilities.firmware_settings {
            let found =
                client.bios(&node, bounds).await.map_err(|fault| self.heed("read the firmware's settings", fault))?;
            facts.settings = Some(found.iter().take(MOST_FACTS).filter_map(setting).collect::<BTreeMap<_, _>>());
        }
        if self.capabilities.firmware_components {
            let found =
                client.firmware(&node).await.map_err(|fault| self.heed("read the firmware's versions", fault))?;
            facts.components = Some(found.iter().take(MOST_FACTS).filter_map(component).collect());
        }
        Ok(facts)
    }

    async fn health_state(&self) -> Step<HealthState> {
        self.leads()?;
        let node = self.look().await?;
        let level = match node.health.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("ok") => Some(HealthLevel::OK),
            Some("warning") => Some(HealthLevel::Warning),
            Some("critical") => Some(HealthLevel::Critical),
            _ => None,
        };
        Ok(HealthState { level, power_failure: node.lasting_fault().is_some() })
    }
}

fn setting(found: &Value) -> Option<(String, SettingFact)> {
    let number = |name: &str| found[name].as_i64().or_else(|| found[name].as_str()?.parse().ok());
    let length = |name: &str| number(name).and_then(|length| u32::try_from(length).ok());
    let allowed = found["allowable_values"].as_array().into_iter().flatten().take(MOST_FACTS).filter_map(text);
    let fact = SettingFact {
        value: text(&found["value"]).unwrap_or_default(),
        kind: text(&found["attribute_type"]),
        allowed: allowed.collect(),
        lower_bound: number("lower_bound"),
        upper_bound: number("upper_bound"),
        min_length: length("min_length"),
        max_length: length("max_length"),
        read_only: found["read_only"].as_bool(),
        unique: found["unique"].as_bool(),
    };
    Some((text(&found["name"]).filter(|name| !name.is_empty())?, fact))
}

fn component(found: &Value) -> Option<InstalledFirmware> {
    let name = text(&found["component"])?;
    let is_known = name == "bios" || name == "bmc" || name.starts_with("nic:");
    is_known.then(|| InstalledFirmware {
        component: name,
        initial_version: text(&found["initial_version"]).unwrap_or_default(),
        version: text(&found["current_version"]).unwrap_or_default(),
        flashed_version: text(&found["last_version_flashed"]),
        updated: found["updated_at"].as_str().and_then(|at| at.parse().ok()),
    })
}

#[async_trait]
impl Events for IronicHost {
    async fn subscribe(&mut self, subscription: Subscription) -> Outcome<String> {
        answer(self.subscribed(subscription).await)
    }

    async fn unsubscribe(&mut self, subscription: Unsubscription) -> Outcome<()> {
        answer(self.unsubscribed(subscription).await)
    }
}

#[async_trait]
impl Firmware for IronicHost {
    async fn facts(&mut self, with_bounds: bool) -> Outcome<FirmwareFacts> {
        answer(self.firmware_facts(with_bounds).await)
    }
}

#[async_trait]
impl Health for IronicHost {
    async fn state(&mut self) -> Outcome<HealthState> {
        answer(self.health_state().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_components_are_read_as_far_as_they_are_told() {
        let found = json!({"name": "BootDelay", "value": "5", "attribute_type": "Integer", "lower_bound": 0, "upper_bound": 600,
            "read_only": false, "unique": null, "allowable_values": null, "min_length": null});
        let (name, fact) = setting(&found).unwrap();
        assert_eq!((name.as_str(), fact.value.as_str(), fact.upper_bound), ("BootDelay", "5", Some(600)));
        assert_eq!((fact.read_only, fact.unique, fact.min_length), (Some(false), None, None));
        assert!(setting(&json!({"value": "5"})).is_none());
        let found = json!({"component": "bmc", "initial_version": "1", "current_version": "2", "last_version_flashed": null,
            "updated_at": "2026-01-02T03:04:05+00:00"});
        let read = component(&found).unwrap();
        assert!(read.version == "2" && read.flashed_version.is_none() && read.updated.is_some());
        assert!(component(&json!({"component": "psu"})).is_none());
        assert_eq!(id_of(&json!({"@odata.id": "/redfish/v1/EventService/Subscriptions/7/"})).as_deref(), Some("7"));
    }
}
