//! A node as Ironic shows it: the part that is used.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Fields that a list of all nodes is asked for; `health` comes with its version. Ironic lists no `created_at`.
pub const LISTED: [&str; 17] = [
    "uuid",
    "name",
    "provision_state",
    "target_provision_state",
    "provision_updated_at",
    "power_state",
    "target_power_state",
    "maintenance",
    "fault",
    "last_error",
    "reservation",
    "boot_interface",
    "deploy_interface",
    "automated_clean",
    "instance_uuid",
    "clean_step",
    "deploy_step",
];

/// Provision states (`ironic/common/states.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Made, its BMC not yet looked at.
    Enroll,
    /// Its BMC is looked at.
    Verifying,
    /// Its BMC is known to work.
    Manageable,
    /// Ready to be deployed.
    Available,
    /// It is inspected.
    Inspecting,
    /// The agent is waited for, to inspect.
    InspectWait,
    /// Inspecting failed.
    InspectFailed,
    /// It is cleaned.
    Cleaning,
    /// The agent is waited for, to clean.
    CleanWait,
    /// Cleaning stands still at a step that says so.
    CleanHold,
    /// Cleaning failed.
    CleanFailed,
    /// It is deployed.
    Deploying,
    /// The agent is waited for, to deploy.
    DeployWait,
    /// The deployment stands still at a step that says so.
    DeployHold,
    /// The deployment failed.
    DeployFailed,
    /// Deployed.
    Active,
    /// What is deployed is removed.
    Deleting,
    /// Removing failed.
    Error,
    /// What is deployed is taken over.
    Adopting,
    /// That failed.
    AdoptFailed,
    /// It is serviced.
    Servicing,
    /// The agent is waited for, to service.
    ServiceWait,
    /// The service stands still at a step that says so.
    ServiceHold,
    /// The service failed.
    ServiceFailed,
    /// Somebody has it in rescue mode, or on the way there or back.
    Rescue,
    /// None that is known.
    Other,
}

impl State {
    const ALL: [(Self, &'static str); 25] = [
        (Self::Enroll, "enroll"),
        (Self::Verifying, "verifying"),
        (Self::Manageable, "manageable"),
        (Self::Available, "available"),
        (Self::Inspecting, "inspecting"),
        (Self::InspectWait, "inspect wait"),
        (Self::InspectFailed, "inspect failed"),
        (Self::Cleaning, "cleaning"),
        (Self::CleanWait, "clean wait"),
        (Self::CleanHold, "clean hold"),
        (Self::CleanFailed, "clean failed"),
        (Self::Deploying, "deploying"),
        (Self::DeployWait, "wait call-back"),
        (Self::DeployHold, "deploy hold"),
        (Self::DeployFailed, "deploy failed"),
        (Self::Active, "active"),
        (Self::Deleting, "deleting"),
        (Self::Error, "error"),
        (Self::Adopting, "adopting"),
        (Self::AdoptFailed, "adopt failed"),
        (Self::Servicing, "servicing"),
        (Self::ServiceWait, "service wait"),
        (Self::ServiceHold, "service hold"),
        (Self::ServiceFailed, "service failed"),
        (Self::Rescue, "rescue"),
    ];

    /// The state of that name.
    pub fn named(name: &str) -> Self {
        let rescues = matches!(name, "rescuing" | "rescue wait" | "rescue failed" | "unrescuing" | "unrescue failed");
        if rescues {
            return Self::Rescue;
        }
        Self::ALL.into_iter().find(|(_, known)| *known == name).map_or(Self::Other, |(state, _)| state)
    }

    /// All of them, for tests of tables.
    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(|(state, _)| state).chain([Self::Other])
    }

    /// Ironic works on the node, or waits for its agent.
    pub const fn is_at_work(self) -> bool {
        self.holds_lock() || self.waits()
    }

    /// Ironic works on the node, and nothing else can be ordered.
    pub const fn holds_lock(self) -> bool {
        matches!(
            self,
            Self::Verifying
                | Self::Inspecting
                | Self::Cleaning
                | Self::Deploying
                | Self::Deleting
                | Self::Adopting
                | Self::Servicing
        )
    }

    /// Its agent is waited for, or a step holds it.
    pub const fn waits(self) -> bool {
        matches!(
            self,
            Self::InspectWait
                | Self::CleanWait
                | Self::CleanHold
                | Self::DeployWait
                | Self::DeployHold
                | Self::ServiceWait
                | Self::ServiceHold
        )
    }

    /// A system is on it, or may be in part.
    pub const fn is_deployed(self) -> bool {
        matches!(
            self,
            Self::Deploying
                | Self::DeployWait
                | Self::DeployHold
                | Self::DeployFailed
                | Self::Active
                | Self::Error
                | Self::Rescue
                | Self::Servicing
                | Self::ServiceWait
                | Self::ServiceHold
                | Self::ServiceFailed
        )
    }
}

/// Verbs of the state machine that are used (`PUT …/states/provision`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Look at the BMC; or take it out of what deploys.
    Manage,
    /// Make it ready to be deployed; with automated cleaning, that comes first.
    Provide,
    /// Look at the hardware.
    Inspect,
    /// Carry out these clean steps.
    Clean,
    /// Deploy.
    Active,
    /// Remove what is deployed; with automated cleaning, that follows.
    Deleted,
    /// Take over what is deployed.
    Adopt,
    /// End what is waited for.
    Abort,
    /// Carry out these service steps.
    Service,
}

impl Verb {
    /// As the API writes it.
    pub const fn target(self) -> &'static str {
        match self {
            Self::Manage => "manage",
            Self::Provide => "provide",
            Self::Inspect => "inspect",
            Self::Clean => "clean",
            Self::Active => "active",
            Self::Deleted => "deleted",
            Self::Adopt => "adopt",
            Self::Abort => "abort",
            Self::Service => "service",
        }
    }
}

/// Anything that may be null: then it is the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A node. From a list it has the fields of [`LISTED`] alone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its id.
    pub uuid: String,
    /// Its name.
    pub name: Option<String>,
    /// When it was made; a node that was made anew under its old id has another. A list does not have it.
    pub created_at: Option<String>,
    /// Provision state, as written.
    pub provision_state: String,
    /// Where it is going.
    pub target_provision_state: Option<String>,
    /// Since when it has been in its provision state.
    pub provision_updated_at: Option<String>,
    /// `power on`, `power off`, or nothing.
    pub power_state: Option<String>,
    /// Where its power is going.
    pub target_power_state: Option<String>,
    /// Nothing is ordered of it.
    #[serde(deserialize_with = "or_default")]
    pub maintenance: bool,
    /// Why, in words.
    pub maintenance_reason: Option<String>,
    /// Which fault has put it into maintenance.
    pub fault: Option<String>,
    /// What failed last.
    pub last_error: Option<String>,
    /// Who works on it.
    pub reservation: Option<String>,
    /// How it boots.
    pub boot_interface: Option<String>,
    /// How it is deployed.
    pub deploy_interface: Option<String>,
    /// How it is inspected.
    pub inspect_interface: Option<String>,
    /// How volumes are made.
    pub raid_interface: Option<String>,
    /// Whether its disks are cleaned when it becomes available; nothing: as Ironic is configured.
    pub automated_clean: Option<bool>,
    /// For whom it is deployed.
    pub instance_uuid: Option<String>,
    /// What it is deployed with.
    #[serde(deserialize_with = "or_default")]
    pub instance_info: Map<String, Value>,
    /// Hardware type.
    pub driver: Option<String>,
    /// How its BMC is reached; secrets are masked.
    #[serde(deserialize_with = "or_default")]
    pub driver_info: Map<String, Value>,
    /// What it is made of.
    #[serde(deserialize_with = "or_default")]
    pub properties: Map<String, Value>,
    /// Network of the agent.
    #[serde(deserialize_with = "or_default")]
    pub network_data: Map<String, Value>,
    /// What its BMC says of its health.
    pub health: Option<String>,
    /// Its power is never cut.
    pub disable_power_off: Option<bool>,
    /// Whose it is, where Ironic has tenants.
    pub owner: Option<String>,
    /// Who uses it, where Ironic has tenants.
    pub lessee: Option<String>,
    /// The step of cleaning under way.
    #[serde(deserialize_with = "or_default")]
    pub clean_step: Map<String, Value>,
    /// The step of the deployment under way.
    #[serde(deserialize_with = "or_default")]
    pub deploy_step: Map<String, Value>,
}

impl Node {
    /// Its provision state.
    pub fn state(&self) -> State {
        State::named(&self.provision_state)
    }

    /// Whether it is on; nothing if Ironic does not know.
    pub fn is_on(&self) -> Option<bool> {
        match self.power_state.as_deref() {
            Some("power on") => Some(true),
            Some("power off") => Some(false),
            _ => None,
        }
    }

    /// A fault that Ironic itself has found, and removes itself when it is over.
    pub fn lasting_fault(&self) -> Option<&str> {
        self.fault.as_deref().filter(|fault| *fault == "power failure")
    }

    /// What it says of its last failure.
    pub fn error(&self) -> Option<&str> {
        self.last_error.as_deref().filter(|error| !error.is_empty())
    }

    /// Its name, if it has one, and its id.
    pub fn shown(&self) -> String {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        crate::fault::clean(&name.map_or_else(|| self.uuid.clone(), |name| format!("\"{name}\" ({})", self.uuid)))
    }

    /// What is being done, a clause.
    pub fn doing(&self) -> String {
        let step = |step: &Map<String, Value>| -> Option<String> {
            let (interface, step) = (step.get("interface")?.as_str()?, step.get("step")?.as_str()?);
            Some(crate::fault::clean(&format!("{interface}.{step}")))
        };
        let state = crate::fault::clean(&self.provision_state);
        let found = step(&self.deploy_step).or_else(|| step(&self.clean_step)).filter(|_| self.state().is_at_work());
        found.map_or(format!("the node is in the state \"{state}\""), |step| {
            format!("the node is in the state \"{state}\", at the step {step}")
        })
    }
}

/// A port of a node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Port {
    /// Its id.
    #[serde(default)]
    pub uuid: String,
    /// MAC address.
    pub address: String,
    /// Whose it is.
    #[serde(default)]
    pub node_uuid: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_one_name_each() {
        for state in State::all().filter(|state| *state != State::Other) {
            let names: Vec<_> = State::ALL.iter().filter(|(known, _)| *known == state).collect();
            assert_eq!(names.len(), 1, "{state:?}");
            assert_eq!(State::named(names[0].1), state);
            assert!(!(state.holds_lock() && state.waits()), "{state:?}");
        }
        assert_eq!(State::named("unrescue failed"), State::Rescue);
        assert_eq!(State::named("dancing"), State::Other);
    }

    #[test]
    fn what_is_null_is_as_if_it_were_not_there() {
        let text = r#"{"uuid": "u", "provision_state": "clean wait", "maintenance": null, "instance_info": null, "name": null,
            "deploy_step": {}, "clean_step": {"interface": "raid", "step": "create_configuration", "priority": 0}, "new": 7}"#;
        let node: Node = serde_json::from_str(text).unwrap();
        assert!(!node.maintenance && node.instance_info.is_empty() && node.automated_clean.is_none());
        assert_eq!(node.doing(), "the node is in the state \"clean wait\", at the step raid.create_configuration");
    }
}
