//! Steps of an agent's hardware managers: what a request asks for, what the agent lists, and what has become of each.
//!
//! Names and arguments are the hardware managers' own (`A:hardware.py`, `get_clean_steps`). Arguments are JSON in a text: they may be of any shape, and a
//! text is bounded, compared and kept as it is by every API server. What an agent tells is hostile, and cut to a size that a record has room for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most steps of one request.
pub const MAX_ASKED_STEPS: usize = 16;
/// Longest arguments of a step, in bytes of JSON.
pub const MAX_STEP_ARGUMENTS: usize = 8192;
/// Most steps that a report lists.
const MAX_OFFERED: usize = 64;
/// Most hardware managers that a report lists.
const MAX_MANAGERS: usize = 32;
/// Most arguments that are listed of a step.
const MAX_LISTED_ARGUMENTS: usize = 16;
/// Longest name, in bytes.
const MAX_NAME: usize = 128;
/// Longest description of an argument, in bytes.
const MAX_DESCRIPTION: usize = 160;
/// Longest text of what has become of a step, in bytes.
const MAX_MESSAGE: usize = 500;
/// Largest report, in bytes of JSON: the host's record and the request's status have it.
const MAX_REPORT: usize = 32 << 10;

/// The interface of most steps.
fn deploy() -> String {
    "deploy".to_owned()
}

/// A step of a hardware manager that is asked for.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStep {
    /// Its name, as the agent lists it.
    #[schemars(length(min = 1, max = 128))]
    pub step: String,
    /// Its interface, as the agent lists it.
    #[serde(default = "deploy")]
    #[schemars(length(min = 1, max = 64))]
    pub interface: String,
    /// Its arguments: a JSON object, as text. Whoever may read the request reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub args: Option<String>,
}

impl std::fmt::Debug for AgentStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments may be secret, and are nobody's business in a log.
        f.debug_struct("AgentStep")
            .field("step", &self.step)
            .field("interface", &self.interface)
            .finish_non_exhaustive()
    }
}

impl AgentStep {
    /// The arguments.
    ///
    /// # Errors
    /// They are too long, or no JSON object: a clause that says so.
    pub fn arguments(&self) -> Result<Map<String, Value>, String> {
        let Some(text) = self.args.as_deref().filter(|text| !text.trim().is_empty()) else { return Ok(Map::new()) };
        if text.len() > MAX_STEP_ARGUMENTS {
            return Err(format!("its arguments have {} bytes, at most {MAX_STEP_ARGUMENTS} are given", text.len()));
        }
        // The parser's own words would repeat them.
        serde_json::from_str(text).map_err(|error| {
            format!("its arguments are no JSON object (line {}, column {})", error.line(), error.column())
        })
    }

    /// Its name and interface, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} ({})", cut(&self.step, MAX_NAME), cut(&self.interface, MAX_NAME))
    }
}

/// A hardware manager of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct HardwareManager {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
}

/// An argument that a step takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepArgument {
    /// Name.
    pub name: String,
    /// What it is, in the hardware manager's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The step is not run without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// A step that the agent lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferedStep {
    /// Name.
    pub step: String,
    /// Interface of Ironic's driver: `deploy`, `raid`, `management`.
    pub interface: String,
    /// Whose it is.
    pub manager: String,
    /// Where Ironic's automated cleaning has it: higher ones come first, 0 not at all. Nothing is run by it here.
    #[serde(default)]
    pub priority: i64,
    /// The machine is restarted after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reboot_requested: bool,
    /// Whether Ironic may stop it. Nothing stops it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abortable: Option<bool>,
    /// What it takes; `None` if the hardware manager does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<StepArgument>>,
}

impl OfferedStep {
    /// Whether it is the one that is asked for.
    #[must_use]
    pub fn is(&self, asked: &AgentStep) -> bool {
        self.step == asked.step && self.interface == asked.interface
    }
}

/// Where a step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepResult {
    /// It was not given to the agent.
    #[default]
    NotBegun,
    /// It was given to the agent. In a report that has ended: what has become of it is not known, and it is not given again.
    Begun,
    /// The agent says that it is done.
    Done,
    /// The agent says that it has failed.
    Failed,
}

/// What has become of a step that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RanStep {
    /// Name.
    pub step: String,
    /// Interface.
    pub interface: String,
    /// Where it is.
    #[serde(default)]
    pub result: StepResult,
    /// The machine is restarted after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reboot_requested: bool,
    /// The agent's words, or why it was not begun.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What the agent lists, and what has become of what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepsReport {
    /// The agent's hardware managers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub managers: Vec<HardwareManager>,
    /// The steps that they have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub offered: Vec<OfferedStep>,
    /// How many more steps there are, for which the report has no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u32>,
    /// The steps that were asked for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub ran: Vec<RanStep>,
    /// Why it was given up, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

fn cut(text: &str, most: usize) -> String {
    let mut text: String = text.chars().filter(|c| terms::is_printable(*c)).take(most).collect();
    text.truncate(text.floor_char_boundary(most));
    text
}

impl StepsReport {
    /// The same with every text printable and cut, and with no more of it than a record has room for. What has become of steps is kept in any case; of
    /// what the agent lists, descriptions go first, then arguments, then the last steps.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.managers.truncate(MAX_MANAGERS);
        for manager in &mut self.managers {
            (manager.name, manager.version) = (cut(&manager.name, MAX_NAME), cut(&manager.version, MAX_NAME));
        }
        self.ran.truncate(MAX_ASKED_STEPS);
        for ran in &mut self.ran {
            (ran.step, ran.interface) = (cut(&ran.step, MAX_NAME), cut(&ran.interface, MAX_NAME));
            ran.message = cut(&ran.message, MAX_MESSAGE);
        }
        self.given_up = self.given_up.map(|why| cut(&why, MAX_MESSAGE));
        self.leave_out(MAX_OFFERED);
        for offered in &mut self.offered {
            for text in [&mut offered.step, &mut offered.interface, &mut offered.manager] {
                *text = cut(text, MAX_NAME);
            }
            if let Some(args) = &mut offered.args {
                args.truncate(MAX_LISTED_ARGUMENTS);
                for arg in args {
                    (arg.name, arg.description) = (cut(&arg.name, MAX_NAME), cut(&arg.description, MAX_DESCRIPTION));
                }
            }
        }
        self.fitting()
    }

    fn fitting(mut self) -> Self {
        let is_large = |report: &Self| serde_json::to_vec(report).map_or(usize::MAX, |json| json.len()) > MAX_REPORT;
        if is_large(&self) {
            let args = self.offered.iter_mut().flat_map(|offered| offered.args.iter_mut().flatten());
            args.for_each(|arg| arg.description = String::new());
        }
        if is_large(&self) {
            self.offered.iter_mut().for_each(|offered| offered.args = None);
        }
        while is_large(&self) && !self.offered.is_empty() {
            self.leave_out(self.offered.len() - 1);
        }
        if is_large(&self) {
            self.managers.clear();
        }
        self
    }

    /// Leaves out all offered steps but so many.
    fn leave_out(&mut self, most: usize) {
        let more = self.offered.len().saturating_sub(most);
        self.offered.truncate(most);
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.omitted = Some(self.omitted.unwrap_or(0).saturating_add(more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_json_object_of_a_sane_length() {
        let step = |args: &str| AgentStep { step: "s".into(), interface: "deploy".into(), args: Some(args.into()) };
        assert_eq!(step(r#"{"a": [1, true]}"#).arguments().unwrap()["a"], serde_json::json!([1, true]));
        assert!(step(" ").arguments().unwrap().is_empty());
        for (args, why) in [("[1]", "no JSON object"), ("{", "no JSON object"), ("1", "no JSON object")] {
            assert!(step(args).arguments().unwrap_err().contains(why), "{args}");
        }
        let why = step("\"hunter2\"").arguments().unwrap_err();
        assert!(!why.contains("hunter2"), "arguments are told to nobody: {why}");
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_STEP_ARGUMENTS));
        assert!(step(&long).arguments().unwrap_err().contains("8192"));
        let deep = format!("{{\"a\": {}1{}}}", "[".repeat(4000), "]".repeat(4000));
        assert!(step(&deep).arguments().is_err(), "it is not read to its depth");
        assert!(!format!("{:?}", step(r#"{"password": "hidden"}"#)).contains("hidden"));
        let read: AgentStep = serde_json::from_str(r#"{"step": "s"}"#).unwrap();
        assert_eq!(read.interface, "deploy");
    }

    #[test]
    fn whatever_an_agent_tells_has_room_in_a_record() {
        let text = |n: usize| format!("{n}\u{1b}[2J{}", "ü🖥".repeat(200));
        let arg = |n: usize| StepArgument { name: text(n), description: text(n), required: true };
        let offered = |n: usize| OfferedStep {
            step: text(n),
            interface: text(n),
            manager: text(n),
            args: Some((0..if n < 100 { 100 } else { 1 }).map(arg).collect()),
            ..OfferedStep::default()
        };
        let ran = |n: usize| RanStep { step: text(n), interface: text(n), message: text(n), ..RanStep::default() };
        let manager = |n: usize| HardwareManager { name: text(n), version: text(n) };
        let hostile = StepsReport {
            managers: (0..1000).map(manager).collect(),
            offered: (0..10_000).map(offered).collect(),
            omitted: Some(5),
            ran: (0..50).map(ran).collect(),
            given_up: Some(text(0)),
        };
        let bounded = hostile.bounded();
        let json = serde_json::to_string(&bounded).unwrap();
        assert!(json.len() <= MAX_REPORT, "{}", json.len());
        assert!(!json.contains("\\u001b"));
        assert_eq!(bounded.ran.len(), MAX_ASKED_STEPS, "what has become of steps is kept");
        assert_eq!(bounded.omitted.unwrap() as usize + bounded.offered.len(), 10_005);
        // What has room stays as it is, and a second look changes nothing.
        let small = StepsReport {
            offered: vec![OfferedStep { step: "a".into(), args: Some(vec![]), ..OfferedStep::default() }],
            ..StepsReport::default()
        };
        assert_eq!(small.clone().bounded(), small);
        assert_eq!(bounded.clone().bounded(), bounded);
    }
}
