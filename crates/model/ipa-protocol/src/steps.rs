//! Steps of cleaning, deploying and servicing (`A:extensions/clean.py`, `deploy.py`, `service.py`), which differ in names alone.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Versions of the agent's hardware managers, by name. Ironic gives back with each step what the list of steps said.
pub type Versions = BTreeMap<String, String>;

/// Which steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Of cleaning.
    Clean,
    /// Of deploying.
    Deploy,
    /// Of servicing.
    Service,
}

impl StepKind {
    /// Name of the extension: `clean`.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Deploy => "deploy",
            Self::Service => "service",
        }
    }

    /// The kind of an extension.
    #[must_use]
    pub fn of_extension(name: &str) -> Option<Self> {
        [Self::Clean, Self::Deploy, Self::Service].into_iter().find(|kind| kind.extension() == name)
    }

    /// The command that lists steps: `clean.get_clean_steps`.
    #[must_use]
    pub fn list_command(self) -> String {
        format!("{0}.get_{0}_steps", self.extension())
    }

    /// The command that runs one: `clean.execute_clean_step`.
    #[must_use]
    pub fn execute_command(self) -> String {
        format!("{0}.execute_{0}_step", self.extension())
    }

    fn key(self, what: &str) -> String {
        format!("{}_{what}", self.extension())
    }
}

/// A step that the agent can do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name: `erase_devices_metadata`.
    pub step: String,
    /// Higher ones come first; 0 is run when it is asked for alone.
    pub priority: i64,
    /// Interface of Ironic's driver: `deploy`, `raid`.
    pub interface: String,
    /// Whether Ironic restarts the machine after it.
    #[serde(default)]
    pub reboot_requested: bool,
    /// Whether it may be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abortable: Option<bool>,
    /// Its arguments: by name, `description` and `required`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argsinfo: Option<Value>,
}

/// Parameters of the commands that list steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GetSteps {
    /// The node.
    pub node: Value,
    /// Its ports.
    #[serde(default)]
    pub ports: Vec<Value>,
}

/// The result of a command that lists steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepsAnswer {
    /// Steps by hardware manager.
    pub steps: BTreeMap<String, Vec<Step>>,
    /// The hardware managers.
    pub versions: Versions,
}

impl StepsAnswer {
    /// As it is sent.
    #[must_use]
    pub fn to_value(&self, kind: StepKind) -> Value {
        json!({ kind.key("steps"): self.steps, "hardware_manager_version": self.versions })
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is of another shape, or of other steps.
    pub fn from_value(kind: StepKind, value: &Value) -> Result<Self, serde_json::Error> {
        let field =
            |key: &str| value.get(key).ok_or_else(|| serde_json::Error::custom(format!("a list of steps lacks {key}")));
        let steps = BTreeMap::deserialize(field(&kind.key("steps"))?)?;
        Ok(Self { steps, versions: Versions::deserialize(field("hardware_manager_version")?)? })
    }
}

/// Parameters of the commands that run a step.
#[derive(Clone, Default, PartialEq)]
pub struct ExecuteStep {
    /// The step as Ironic has it: `step`, `interface`, `args` and more. The result repeats it.
    pub step: Map<String, Value>,
    /// The node.
    pub node: Value,
    /// Its ports.
    pub ports: Vec<Value>,
    /// What the list of steps said; `None` before there is one.
    pub versions: Option<Versions>,
}

impl std::fmt::Debug for ExecuteStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments carry passwords and config drives.
        f.debug_struct("ExecuteStep").field("step", &self.name()).finish_non_exhaustive()
    }
}

impl ExecuteStep {
    /// A step with arguments.
    #[must_use]
    pub fn new(interface: &str, step: &str, args: Map<String, Value>) -> Self {
        let mut wanted = Map::new();
        wanted.insert("interface".to_owned(), json!(interface));
        wanted.insert("step".to_owned(), json!(step));
        wanted.insert("args".to_owned(), Value::Object(args));
        Self { step: wanted, ..Self::default() }
    }

    /// The step's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.step.get("step")?.as_str()
    }

    /// An argument.
    #[must_use]
    pub fn arg(&self, name: &str) -> Option<&Value> {
        self.step.get("args")?.get(name).filter(|value| !value.is_null())
    }

    /// As it is sent.
    #[must_use]
    pub fn to_params(&self, kind: StepKind) -> Map<String, Value> {
        let mut params = Map::new();
        params.insert("step".to_owned(), Value::Object(self.step.clone()));
        params.insert("node".to_owned(), self.node.clone());
        params.insert("ports".to_owned(), json!(self.ports));
        params.insert(kind.key("version"), json!(self.versions));
        params
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is of another shape.
    pub fn from_params(kind: StepKind, mut params: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut take = |key: &str| params.remove(key).unwrap_or(Value::Null);
        let Value::Object(step) = take("step") else {
            return Err(serde_json::Error::custom("the step is no object"));
        };
        Ok(Self {
            step,
            node: take("node"),
            ports: Option::deserialize(take("ports"))?.unwrap_or_default(),
            versions: Option::deserialize(take(&kind.key("version")))?,
        })
    }
}

/// The result of a command that runs a step.
#[derive(Clone, PartialEq)]
pub struct StepDone {
    /// What the step gave.
    pub result: Value,
    /// The step, as it was ordered.
    pub step: Map<String, Value>,
}

impl std::fmt::Debug for StepDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepDone").field("step", &self.step.get("step")).finish_non_exhaustive()
    }
}

impl StepDone {
    /// As it is sent.
    #[must_use]
    pub fn to_value(&self, kind: StepKind) -> Value {
        json!({ kind.key("result"): self.result, kind.key("step"): self.step })
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is of another shape, or of other steps.
    pub fn from_value(kind: StepKind, value: &Value) -> Result<Self, serde_json::Error> {
        let step = value.get(kind.key("step")).and_then(Value::as_object).cloned();
        let step = step.ok_or_else(|| serde_json::Error::custom("the result names no step"))?;
        Ok(Self { result: value.get(kind.key("result")).cloned().unwrap_or_default(), step })
    }
}
