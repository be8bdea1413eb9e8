//! Allow and deny rules: expressions in CEL over what a BMC shows to anybody.

use cel::{Env, Program, Sizes, Type, Value};

use api::metamorph::{MAX_RULE, MAX_RULES};
use terms::clean;

use crate::place::Place;
use crate::shown::{MAX_TEXT, Shown};

/// What a rule may cost at most, by the estimate that is made before it is ever run; and what an evaluation may.
const MAX_COST: u64 = 100_000;
/// Longest complaint that is passed on, characters.
const MAX_COMPLAINT: usize = 300;
/// What rules may use, all of them strings.
const VARIABLES: [&str; 5] = ["address", "vendor", "product", "uuid", "redfishVersion"];

/// Compiled rules.
#[derive(Debug, Default)]
pub struct Rules {
    allow: Vec<Program>,
    deny: Vec<Program>,
}

/// What the rules say of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It may become a host; whether an allow rule says so.
    Allowed {
        /// One is true; where there are none, nobody has said so.
        by_rule: bool,
    },
    /// It may not: why, a clause.
    Denied(String),
}

struct Bounds;

impl Sizes for Bounds {
    fn max_size(&self, path: &[String]) -> Option<u64> {
        matches!(path, [name] if VARIABLES.contains(&name.as_str())).then_some(MAX_TEXT as u64 * 2)
    }
}

fn compile(field: &str, rules: &[String], faults: &mut Vec<String>) -> Vec<Program> {
    if rules.len() > MAX_RULES {
        faults.push(format!("{field} has {} rules; at most {MAX_RULES} are accepted", rules.len()));
        return Vec::new();
    }
    let env = VARIABLES.iter().fold(Env::new(), |env, name| env.variable(name, Type::String));
    let mut programs = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        if rule.chars().count() > MAX_RULE {
            faults.push(format!("{field}[{index}] is longer than {MAX_RULE} characters"));
            continue;
        }
        let program = match env.compile(rule) {
            Ok(program) => program,
            Err(error) => {
                faults.push(format!("{field}[{index}] is no expression: {}", clean(&error.to_string(), MAX_COMPLAINT)));
                continue;
            }
        };
        let cost = program.estimate(&Bounds).max;
        if program.output_type() != &Type::Bool {
            faults.push(format!("{field}[{index}] is neither true nor false"));
        } else if let Some(error) = program.instantiation_error() {
            faults.push(format!("{field}[{index}] cannot be run: {}", clean(error, MAX_COMPLAINT)));
        } else if cost > MAX_COST {
            faults.push(format!(
                "{field}[{index}] may cost {cost} steps; at most {MAX_COST} are accepted: make it simpler"
            ));
        } else {
            programs.push(program);
        }
    }
    programs
}

impl Rules {
    /// Compiles the rules. What is wrong with them is added to `faults`, a sentence each.
    #[must_use]
    pub fn compile(allow: &[String], deny: &[String], faults: &mut Vec<String>) -> Self {
        Self { allow: compile("spec.allow", allow, faults), deny: compile("spec.deny", deny, faults) }
    }

    /// What they say of a machine. A deny rule that cannot be evaluated denies, an allow rule that cannot be does not allow.
    #[must_use]
    pub fn judge(&self, place: &Place, shown: &Shown) -> Ruling {
        let variables = [
            ("address", Value::string(&place.ip.to_string())),
            ("vendor", Value::string(&shown.vendor)),
            ("product", Value::string(&shown.product)),
            ("uuid", Value::string(shown.uuid.as_deref().unwrap_or_default())),
            ("redfishVersion", Value::string(&shown.redfish_version)),
        ];
        let run = |program: &Program| match program.eval(&variables, MAX_COST).result {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err("it is neither true nor false".to_owned()),
            Err(fault) => Err(clean(&fault.to_string(), MAX_COMPLAINT)),
        };
        for (index, rule) in self.deny.iter().enumerate() {
            match run(rule) {
                Ok(false) => {}
                Ok(true) => return Ruling::Denied(format!("spec.deny[{index}] is true of it")),
                Err(why) => return Ruling::Denied(format!("spec.deny[{index}] cannot be evaluated: {why}")),
            }
        }
        let mut complaint = None;
        for (index, rule) in self.allow.iter().enumerate() {
            match run(rule) {
                Ok(true) => return Ruling::Allowed { by_rule: true },
                Ok(false) => {}
                Err(why) => complaint = complaint.or(Some(format!("spec.allow[{index}] cannot be evaluated: {why}"))),
            }
        }
        if self.allow.is_empty() {
            return Ruling::Allowed { by_rule: false };
        }
        Ruling::Denied(complaint.unwrap_or_else(|| "no rule of spec.allow is true of it".to_owned()))
    }
}
