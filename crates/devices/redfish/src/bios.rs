//! The firmware's settings (schema Bios): attributes in force, the settings resource with what the next restart brings (DSP0266, "Settings resource"),
//! and the job or task that applies it.
//!
//! Vendors differ in what the settings resource shows: HPE and Lenovo all attributes, Dell and AMI the changed ones only. Dell applies a change only by a
//! job, which it makes itself where the change names a time to apply it at.

use std::collections::BTreeMap;

use bmc::{Applied, AttributeKind, BiosSchema, BiosSeen, BmcError, ErrorKind, JobState};
use http::Method;
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::exchange::{Fault, answer_lost};
use crate::hide::is_public;
use crate::json::{link_at, text, words};
use crate::message::ErrorBody;
use crate::task::{Look, look, monitor_of};
use crate::transport::Request;
use terms::clean;

/// Most attributes that are read.
pub const MAX_ATTRIBUTES: usize = 4096;
/// Longest name or value of an attribute that is read, bytes.
pub const MAX_ATTRIBUTE: usize = 1024;
/// Most refused attributes that a message names.
const MAX_NAMED: usize = 5;

/// `Bios` with the parts of it that are used.
struct Resource {
    path: String,
    value: Value,
    /// `@Redfish.Settings.SettingsObject`.
    settings: Option<String>,
}

impl Client {
    /// The firmware's settings; `None` when the BMC does not show them: one request, and another for what is pending.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn bios(&self, with_pending: bool) -> Result<Option<BiosSeen>, BmcError> {
        let what = "read the BIOS settings";
        let Some(bios) = self.read_bios(what).await? else { return Ok(None) };
        let pending = match bios.settings.as_ref().filter(|_| with_pending) {
            Some(path) => self.pending(what, path).await?.map(|settings| self.attributes(&settings)),
            None => None,
        };
        Ok(Some(BiosSeen {
            current: self.attributes(&bios.value),
            pending: pending.unwrap_or_default(),
            applied: self.applied(&bios.value),
        }))
    }

    /// What the settings may be; `None` where the BMC has no registry of them that can be read. Two to four requests, once.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn bios_schema(&self) -> Result<Option<BiosSchema>, BmcError> {
        let what = "read the registry of the BIOS settings";
        let known = self.core.state().bios_registry.clone();
        let name = match known {
            Some(name) => name,
            None => {
                let Some(bios) = self.read_bios(what).await? else { return Ok(None) };
                registry_name(&bios.value)
            }
        };
        Ok(self.attribute_registry(what, &name).await?)
    }

    /// Has the next restart bring these attributes, and gives the address of the job or task that does, if the BMC names one.
    ///
    /// # Errors
    /// [`BmcError`], which names the attributes that the BMC refuses.
    pub async fn set_bios(&self, wished: &BTreeMap<String, String>) -> Result<Option<String>, BmcError> {
        let what = "change the BIOS settings";
        let Some(bios) = self.read_bios(what).await? else {
            return Err(self.core.error(ErrorKind::Unsupported, what, "the BMC does not show them"));
        };
        let settings = match &bios.settings {
            Some(path) => self.pending(what, path).await?,
            None => None,
        };
        let schema = self.bios_schema().await?;
        let mut values = Map::new();
        for (name, wish) in wished {
            let kind = schema.as_ref().and_then(|schema| schema.get(name)?.kind);
            values.insert(name.clone(), typed(wish, kind, bios.value.get("Attributes").and_then(|all| all.get(name))));
        }
        let mut body = json!({ "Attributes": values });
        if takes_on_reset(&bios.value, settings.as_ref()) {
            body["@Redfish.SettingsApplyTime"] =
                json!({ "@odata.type": "#Settings.v1_3_0.PreferredApplyTime", "ApplyTime": "OnReset" });
        }
        let path = bios.settings.as_deref().unwrap_or(&bios.path);
        match self.core.patch_when_ready(what, path, &body).await {
            Ok(reply) => {
                self.refuse_untaken(what, bios.settings.as_deref(), wished).await?;
                Ok(monitor_of(&reply))
            }
            // The change may have been taken: what is pending tells.
            Err(fault) if answer_lost(&fault) => {
                let seen = self.bios(true).await?;
                let taken = seen.is_some_and(|seen| seen.brings(wished));
                if taken { Ok(None) } else { Err(fault.into()) }
            }
            Err(fault) => Err(named(fault, wished)),
        }
    }

    /// How far a job or task is: one request.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn bios_job(&self, job: &str) -> Result<JobState, BmcError> {
        let what = "look at the job that changes the BIOS settings";
        let Some(path) = crate::json::path_only(job) else { return Ok(JobState::Over) };
        match self.core.call(what, &Request::new(Method::GET, &path, None)).await {
            Ok(reply) => Ok(match look(&reply.response, &reply.value) {
                Look::Done => JobState::Over,
                Look::Running(state) => JobState::Open(self.core.without_secrets(&state)),
                Look::Failed(found) | Look::Stopped(found) => JobState::Failed(self.core.without_secrets(&found)),
            }),
            Err(fault) if matches!(fault.status(), Some(404 | 410)) => Ok(JobState::Over),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn read_bios(&self, what: &str) -> Result<Option<Resource>, BmcError> {
        let system = self.known_system(what).await?;
        let Some(path) = system.bios else { return Ok(None) };
        let value = match self.core.get(what, &path).await {
            Ok(reply) => reply.value,
            // Linked, and not to be had: by this account, this licence, or while the machine is off.
            Err(fault) if matches!(fault.status(), Some(403 | 404 | 405 | 410 | 501)) => return Ok(None),
            Err(fault) => return Err(fault.into()),
        };
        if value.get("Attributes").is_none_or(|attributes| !attributes.is_object()) {
            return Ok(None);
        }
        self.core.state().bios_registry = Some(registry_name(&value));
        let settings = value.get("@Redfish.Settings").and_then(|settings| link_at(settings, "SettingsObject"));
        Ok(Some(Resource { path, value, settings }))
    }

    /// The settings resource; `None` if the BMC refuses to show it.
    async fn pending(&self, what: &str, path: &str) -> Result<Option<Value>, BmcError> {
        match self.core.get(what, path).await {
            Ok(reply) => Ok(Some(reply.value)),
            Err(fault) if fault.status().is_some_and(|status| status < 500 && status != 401) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// What is said of the last application (schema Settings, `Time`, `ETag` and `Messages`).
    fn applied(&self, bios: &Value) -> Applied {
        let Some(settings) = bios.get("@Redfish.Settings") else { return Applied::default() };
        let marks: Vec<String> = ["Time", "ETag"].iter().filter_map(|field| text(settings, field)).collect();
        let body = ErrorBody::read(settings);
        let refusals = body.messages.iter().filter(|message| message.is_bad());
        let refusals = refusals.filter_map(|message| {
            let said = ErrorBody { messages: vec![message.clone()] }.sentence()?;
            let related = message.related.join(", ");
            let said = if related.is_empty() { said } else { format!("{related}: {said}") };
            Some(clean(&self.core.without_secrets(&said), crate::json::MAX_FIELD))
        });
        Applied { mark: (!marks.is_empty()).then(|| marks.join(" ")), refusals: refusals.collect() }
    }

    /// Fails if the BMC took the change and shows, for some attributes, another value for the next restart.
    async fn refuse_untaken(
        &self,
        what: &str,
        settings: Option<&str>,
        wished: &BTreeMap<String, String>,
    ) -> Result<(), BmcError> {
        let Some(path) = settings else { return Ok(()) };
        let Some(pending) = self.pending(what, path).await?.map(|settings| self.attributes(&settings)) else {
            return Ok(());
        };
        // A resource that shows only changes leaves out what is in force; one that shows nothing has handed the change on.
        let left: Vec<&str> = wished
            .iter()
            .filter(|(name, wish)| pending.get(*name).is_some_and(|shown| shown != *wish))
            .map(|(name, _)| name.as_str())
            .take(MAX_NAMED)
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let found = format!("the BMC took the change and left out {}", left.join(", "));
        Err(self
            .core
            .error(ErrorKind::Rejected { status: 200 }, what, found)
            .advise("look which settings exclude each other in the firmware's menu, and at the BMC's log"))
    }
}

/// `AttributeRegistry` of a `Bios`; empty if it names none.
fn registry_name(bios: &Value) -> String {
    text(bios, "AttributeRegistry").unwrap_or_default()
}

impl Client {
    /// The attributes with a plain value that anybody may read: others can read the settings than the BMC's password.
    fn attributes(&self, resource: &Value) -> BTreeMap<String, String> {
        let mut all = attributes(resource);
        let secrets = self.core.plain_secrets();
        all.retain(|name, value| [name.as_str(), value].iter().all(|text| is_public(text, &secrets)));
        all
    }
}

/// The attributes with a plain value.
fn attributes(resource: &Value) -> BTreeMap<String, String> {
    let Some(Value::Object(all)) = resource.get("Attributes") else { return BTreeMap::new() };
    let fits = |text: &str| text.len() <= MAX_ATTRIBUTE;
    all.iter()
        .filter(|(name, _)| !name.is_empty() && fits(name) && !name.contains('@'))
        .filter_map(|(name, value)| Some((name.clone(), plain(value).filter(|value| fits(value))?)))
        .take(MAX_ATTRIBUTES)
        .collect()
}

/// A value as text; `None` for what is neither text, number nor Boolean. An attribute without a value (null) is empty.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null => Some(String::new()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// The wish in the type that the registry names, or else that of the present value.
fn typed(wish: &str, kind: Option<AttributeKind>, present: Option<&Value>) -> Value {
    let number = || wish.parse::<i64>().ok().map(Value::from);
    let flag = || wish.parse::<bool>().ok().map(Value::from);
    let typed = match (kind, present) {
        // Some registries call numbers and Booleans enumerations, or have texts for them: the present value tells.
        (_, Some(Value::Number(_))) => number(),
        (_, Some(Value::Bool(_))) => flag(),
        (_, Some(Value::String(_))) => None,
        (Some(AttributeKind::Integer), _) => number(),
        (Some(AttributeKind::Boolean), _) => flag(),
        _ => None,
    };
    typed.unwrap_or_else(|| wish.into())
}

/// Whether the time to apply a change at can be named, and may be the next restart: said beside the settings' link, or in the settings resource.
fn takes_on_reset(bios: &Value, settings: Option<&Value>) -> bool {
    let beside = bios.get("@Redfish.Settings").map(|settings| words(settings.get("SupportedApplyTimes")));
    let within = settings.and_then(|settings| settings.get("@Redfish.SettingsApplyTime"));
    let within = within.map(|times| words(times.get("ApplyTime@Redfish.AllowableValues")));
    [beside, within].into_iter().flatten().flatten().any(|time| time == "OnReset")
}

/// The error, with the attributes that the BMC names in its refusal.
fn named(fault: Fault, wished: &BTreeMap<String, String>) -> BmcError {
    let named: Vec<&str> = match fault.body() {
        Some(body) => {
            let names = wished.keys().map(String::as_str).filter(|name| body.mentions(name));
            names.take(MAX_NAMED).collect()
        }
        None => Vec::new(),
    };
    let names = named.join(", ");
    match fault {
        Fault::Refused(mut refusal) if !names.is_empty() => {
            refusal.error.found = format!("it refuses {names}: {}", refusal.error.found);
            refusal.error.advise(
                "correct these settings; some depend on others, and some can be set in the firmware's menu only",
            )
        }
        fault => fault.into(),
    }
}
