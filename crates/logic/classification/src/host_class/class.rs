//! A HostClass as it counts: its rules compiled, within limits, and its labels.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Time;
use api::metal3::label;
use api::metamorph::{HostClass, HostClassMode, HostClassSpec, RuleVerdict};
use cel::{Program, Sizes, Type, Value};
use regex::RegexBuilder;
use terms::clean;

use super::labels::{Labels, refused};
use super::vars::{Values, detection, variables};

/// Most HostClasses of a namespace by which hosts are judged.
pub const MAX_CLASSES: usize = 128;
/// What all rules of a class may cost together for one host, in the units of Kubernetes' own rules: estimated at admission, and counted when they run.
pub const COST_LIMIT: u64 = 250_000;
/// Most rules of a class.
const MAX_RULES: usize = 16;
/// Longest expression, bytes.
const MAX_EXPRESSION: usize = 1024;
/// Most labels of a class beside flavor and role.
const MAX_LABELS: usize = 16;
/// Most bytes of all labels of a class with their keys: those of all classes of a namespace stand in one annotation of each host, and Kubernetes gives all
/// annotations of an object 256 KiB.
const MAX_LABEL_BYTES: usize = 512;
/// Most regular expressions of a class.
const MAX_PATTERNS: usize = 8;
/// Longest of them, bytes.
const MAX_PATTERN: usize = 256;
/// Largest when compiled, bytes.
const MAX_COMPILED: usize = 64 << 10;
/// Most faults of a class that are told.
const MAX_FAULTS: usize = 16;
/// Longest sentence about one, characters.
const MAX_TOLD: usize = 400;
/// Most fields that a reason tells.
const MAX_READ: usize = 4;
/// Longest reason, characters.
const MAX_REASON: usize = 240;
/// Longest text of a host that a reason repeats, characters.
const MAX_SHOWN: usize = 48;

/// Why hosts are not judged by a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// In CamelCase, for programs.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Fault {
    fn new(reason: &'static str, message: &str) -> Self {
        Self { reason, message: clean(message, MAX_TOLD) }
    }

    /// There are [`MAX_CLASSES`] elder ones.
    #[must_use]
    pub fn too_many() -> Self {
        Self::new(
            "TooManyClasses",
            &format!(
                "the namespace has {MAX_CLASSES} elder HostClasses: by this one nobody is judged until one of those is deleted"
            ),
        )
    }

    /// The object cannot be read.
    #[must_use]
    pub fn unreadable() -> Self {
        Self::new("Unreadable", "the HostClass cannot be read: labels that it has given stay as they are")
    }
}

struct Rule {
    name: String,
    program: Program,
    reads: Vec<Vec<String>>,
}

/// The compiled rules, and what they cost at most for a host of the size that is estimated.
pub struct Rules {
    all: Vec<Rule>,
    cost: u64,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("count", &self.all.len()).field("cost", &self.cost).finish()
    }
}

/// A class as it counts.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The version of its rules and result.
    pub generation: Option<i64>,
    /// Since when there is it; none counts as eldest.
    pub made: Option<Time>,
    /// Its rules and result, as they are written.
    pub spec: HostClassSpec,
    /// The labels that hosts of it get.
    pub labels: Labels,
    /// What it says of the diagnosis of its hosts.
    pub detect: Option<bool>,
    /// Why hosts are not judged by it, if so.
    pub fault: Option<Fault>,
    compiled: Result<Arc<Rules>, Fault>,
}

impl PartialEq for Class {
    fn eq(&self, other: &Self) -> bool {
        let parts = |class: &Self| (class.name.clone(), class.uid.clone(), class.generation, class.made.clone());
        parts(self) == parts(other) && self.judges_as(other) && self.labels == other.labels && self.spec == other.spec
    }
}

/// How a host has come out of a class's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of them hold.
    Is,
    /// One does not.
    IsNot,
    /// None is false, and one has no result.
    Unknown,
}

impl Class {
    /// The class that the object stands for. `before` is what it was: the same rules are not compiled again.
    #[must_use]
    pub fn of(object: &HostClass, before: Option<&Self>) -> Self {
        let detect = detection(object.metadata.labels.as_ref());
        let spec = object.spec.clone();
        let compiled = match before.filter(|before| before.spec == spec && before.detect == detect) {
            Some(before) => before.compiled.clone(),
            None => compile(&spec, detect).map(Arc::new).map_err(|faults| {
                faults.into_iter().next().unwrap_or_else(|| Fault::new("InvalidRule", "its rules cannot be compiled"))
            }),
        };
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            generation: object.metadata.generation,
            made: object.metadata.creation_timestamp.clone(),
            labels: labels_of(&spec),
            spec,
            detect,
            fault: compiled.as_ref().err().cloned(),
            compiled,
        }
    }

    /// One that cannot be read: of what is left of it, nothing counts.
    #[must_use]
    pub fn unreadable(object: &HostClass) -> Self {
        let mut class = Self::of(&HostClass { spec: HostClassSpec::default(), ..object.clone() }, None);
        class.compiled = Err(Fault::unreadable());
        class.take_place(true);
        class
    }

    /// Whether hosts can be judged by it, if it has a place.
    pub(crate) fn is_sound(&self) -> bool {
        self.compiled.is_ok()
    }

    /// It has one of the places of its namespace, or none is left; whether that is another thing than before.
    pub(crate) fn take_place(&mut self, is_left: bool) -> bool {
        let fault = match &self.compiled {
            Err(fault) => Some(fault.clone()),
            Ok(_) => (!is_left).then(Fault::too_many),
        };
        let is_new = self.fault != fault;
        self.fault = fault;
        is_new
    }

    /// Whether hosts get and lose its labels.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.fault.is_none() && self.spec.mode == HostClassMode::Apply
    }

    /// Whether it only shows what would change.
    #[must_use]
    pub fn is_preview(&self) -> bool {
        self.fault.is_none() && self.spec.mode == HostClassMode::Preview
    }

    /// What its rules cost at most for a host of the size that is estimated.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.compiled.as_ref().map_or(0, |rules| rules.cost)
    }

    /// Whether verdicts by the one are verdicts by the other.
    pub(crate) fn judges_as(&self, other: &Self) -> bool {
        (&self.fault, &self.spec.rules) == (&other.fault, &other.spec.rules) && self.uid == other.uid
    }

    fn rules(&self) -> &[Rule] {
        match &self.compiled {
            Ok(rules) if self.fault.is_none() => &rules.all,
            _ => &[],
        }
    }

    /// How a host with these values comes out, and what that has cost.
    pub(crate) fn judge(&self, values: &Values) -> (Verdict, u64) {
        let mut left = COST_LIMIT;
        let mut verdict = if self.rules().is_empty() { Verdict::Unknown } else { Verdict::Is };
        for rule in self.rules() {
            let done = rule.program.eval(values, left);
            left = left.saturating_sub(done.cost);
            match done.result {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => {
                    verdict = Verdict::IsNot;
                    break;
                }
                _ => verdict = Verdict::Unknown,
            }
        }
        (verdict, COST_LIMIT - left)
    }

    /// Why a host with these values is not of the class: the first rule that is false, or, where none is, the first without a result; and what that has cost.
    /// `None` if it is of it, or nobody is judged.
    pub(crate) fn why(&self, values: &Values) -> (Option<(String, RuleVerdict, String)>, u64) {
        let mut left = COST_LIMIT;
        let mut first = None;
        for rule in self.rules() {
            let done = rule.program.eval(values, left);
            left = left.saturating_sub(done.cost);
            let found = match done.result {
                Ok(Value::Bool(true)) => continue,
                Ok(Value::Bool(false)) => {
                    let why = clean(&read(rule, values), MAX_REASON);
                    return (Some((rule.name.clone(), RuleVerdict::False, why)), COST_LIMIT - left);
                }
                Ok(_) => (RuleVerdict::Failed, "it is neither true nor false".to_owned()),
                Err(fault) if fault.is_limit() => {
                    (RuleVerdict::Failed, format!("the rules cost more than {COST_LIMIT} for this host"))
                }
                Err(fault) => match fault.to_string().strip_prefix("no such key: ") {
                    Some(key) => (RuleVerdict::NotKnown, not_known(rule, values, key)),
                    None => (RuleVerdict::Failed, fault.to_string()),
                },
            };
            first.get_or_insert_with(|| (rule.name.clone(), found.0, clean(&found.1, MAX_REASON)));
        }
        (first, COST_LIMIT - left)
    }
}

/// That the field is absent at which the rule has ended, in words. What else of it is absent is not told: the rule may have asked for that with `has()`.
fn not_known(rule: &Rule, values: &Values, key: &str) -> String {
    let is_first = |path: &[String]| {
        let place = (1..=path.len()).find(|end| path.get(..*end).is_some_and(|part| values.at(part).is_none()));
        place.and_then(|end| path.get(end - 1)).is_some_and(|step| step == key)
    };
    let absent = rule.reads.iter().filter(|path| is_first(path)).take(MAX_READ);
    let names: Vec<String> = absent
        .map(|path| {
            let is_label = path.starts_with(&["host".to_owned(), "labels".to_owned()]);
            let what = if is_label { "is not there" } else { "is not known" };
            format!("{} {what}", clean(&path.join("."), 2 * MAX_SHOWN))
        })
        .collect();
    if names.is_empty() { format!("{} is not known of an entry", clean(key, MAX_SHOWN)) } else { names.join("; ") }
}

/// What the rule reads of a host, in words.
fn read(rule: &Rule, values: &Values) -> String {
    let mut all = Vec::new();
    for path in &rule.reads {
        let name = path.join(".");
        let found = match values.at(path) {
            None => "is not known".to_owned(),
            Some(Value::Bool(is)) => format!("is {is}"),
            Some(Value::Int(number)) => format!("is {number}"),
            Some(Value::Double(number)) => format!("is {number}"),
            Some(Value::String(text)) => format!("is «{}»", clean(text, MAX_SHOWN)),
            Some(Value::List(list)) => format!("has {} entries", list.items.len()),
            Some(Value::Map(map)) => format!("has {} fields", map.entries.len()),
            Some(_) => "cannot be shown".to_owned(),
        };
        all.push(format!("{} {found}", clean(&name, 2 * MAX_SHOWN)));
        if all.len() == MAX_READ {
            break;
        }
    }
    all.join("; ")
}

/// The labels that a class gives.
fn labels_of(spec: &HostClassSpec) -> Labels {
    let mut all = spec.result.labels.clone();
    let own = [(label::FLAVOR, &spec.result.flavor), (label::ROLE, &spec.result.role)];
    all.extend(own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))));
    all
}

/// The line and the column, both from 1, of a place in an expression, which is counted in characters.
fn position(expression: &str, place: Option<u32>) -> (usize, usize) {
    let place = place.and_then(|place| usize::try_from(place).ok()).unwrap_or(0);
    let before: Vec<char> = expression.chars().take(place).collect();
    let lines = before.iter().filter(|c| **c == '\n').count();
    let column = before.iter().rev().take_while(|c| **c != '\n').count();
    (lines + 1, column + 1)
}

fn number(cost: u64) -> String {
    if cost > 1_000_000_000_000 { "more than 1000000000000".to_owned() } else { cost.to_string() }
}

/// How many calls there may be in an expression that match a regular expression: at least as many as there are.
fn matchings(expression: &str) -> usize {
    let mut count = 0;
    for name in ["matches", "find", "findAll"] {
        let after = expression.split(name).skip(1).map(str::trim_start);
        // A comment may stand before the bracket.
        count += after.filter(|rest| rest.starts_with(['(', '/'])).count();
    }
    count
}

/// Why a rule that is compiled is not taken.
fn fault_of(program: &Program, name: &str) -> Option<Fault> {
    let invalid = |what: String| Some(Fault::new("InvalidRule", &format!("rule {name}: {what}")));
    if program.output_type() != &Type::Bool {
        return invalid(format!("it yields {}: a rule is true or false", program.output_type()));
    }
    if let Some(why) = program.instantiation_error() {
        return invalid(why.to_owned());
    }
    let Some(patterns) = program.patterns() else {
        return invalid("it computes a regular expression: write it as a text in the rule".to_owned());
    };
    for pattern in patterns {
        if pattern.len() > MAX_PATTERN {
            return invalid(format!("a regular expression has more than {MAX_PATTERN} bytes"));
        }
        if RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build().is_err() {
            return invalid(format!(
                "the regular expression «{}» takes more than {} KiB, or is none: ask for fewer repetitions",
                clean(pattern, MAX_SHOWN),
                MAX_COMPILED >> 10
            ));
        }
    }
    None
}

/// The compiled rules, or all that is wrong with the class, each fault a sentence.
///
/// # Errors
/// When there is a fault: those that are found, 16 at most.
pub(crate) fn compile(spec: &HostClassSpec, detect: Option<bool>) -> Result<Rules, Vec<Fault>> {
    let mut faults = shape(spec);
    let mut all = Vec::new();
    let patterns: usize = spec.rules.iter().take(MAX_RULES).map(|rule| matchings(&rule.expression)).sum();
    if patterns > MAX_PATTERNS {
        let message = format!("its rules have {patterns} regular expressions, {MAX_PATTERNS} are accepted");
        faults.push(Fault::new("TooCostly", &message));
        // Each is compiled when its rule is.
        return Err(faults);
    }
    let mut total = 0_u64;
    let mut names = BTreeSet::new();
    for rule in spec.rules.iter().take(MAX_RULES) {
        let name = clean(&rule.name, 63);
        let invalid = |what: &str| Fault::new("InvalidRule", &format!("rule {name}: {what}"));
        if !names.insert(&rule.name) {
            faults.push(invalid("there is another one of that name"));
        }
        if rule.expression.len() > MAX_EXPRESSION {
            faults.push(invalid(&format!("its expression has more than {MAX_EXPRESSION} bytes")));
            continue;
        }
        let program = match variables().env.compile(&rule.expression) {
            Ok(program) => program,
            Err(error) => {
                let issue = error.issues().first();
                let (line, column) = position(&rule.expression, issue.and_then(|issue| issue.place));
                let what = issue.map_or("it cannot be compiled", |issue| issue.message.as_str());
                faults.push(invalid(&format!("line {line}, column {column}: {what}")));
                continue;
            }
        };
        if let Some(fault) = fault_of(&program, &name) {
            faults.push(fault);
            continue;
        }
        if detect.is_some() && program.uses("diagnosis") {
            faults.push(invalid(
                "it asks for the diagnosis, and the label error-detect of the class switches that: each would undo the other",
            ));
        }
        let cost = program.estimate(variables() as &dyn Sizes).max;
        if cost > COST_LIMIT {
            let message = format!(
                "rule {name} may cost {} for one host, and all rules of a class {COST_LIMIT} at most: go through fewer lists within lists, or match shorter patterns",
                number(cost)
            );
            faults.push(Fault::new("TooCostly", &message));
        }
        total = total.saturating_add(cost);
        all.push(Rule { name: rule.name.clone(), reads: program.reads(), program });
    }
    if total > COST_LIMIT && faults.is_empty() {
        let message = format!("its rules may cost {} for one host together, {COST_LIMIT} at most", number(total));
        faults.push(Fault::new("TooCostly", &message));
    }
    faults.truncate(MAX_FAULTS);
    if faults.is_empty() { Ok(Rules { all, cost: total }) } else { Err(faults) }
}

/// What is wrong with a class beside its expressions.
fn shape(spec: &HostClassSpec) -> Vec<Fault> {
    let mut faults = Vec::new();
    let rules = spec.rules.len();
    if rules == 0 || rules > MAX_RULES {
        faults.push(Fault::new("InvalidRule", &format!("it has {rules} rules: there are 1 to {MAX_RULES}")));
    }
    if spec.result.labels.len() > MAX_LABELS {
        let message = format!("it gives {} labels, {MAX_LABELS} are accepted", spec.result.labels.len());
        faults.push(Fault::new("LabelRefused", &message));
    }
    let bytes: usize = labels_of(spec).iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_LABEL_BYTES {
        let message = format!(
            "its labels have {bytes} bytes with their keys, flavor and role included: {MAX_LABEL_BYTES} are accepted"
        );
        faults.push(Fault::new("LabelRefused", &message));
    }
    for (key, value) in spec.result.labels.iter().take(MAX_LABELS) {
        let wrong = refused(key).or_else(|| names::label_value(value).into_iter().next());
        if let Some(wrong) = wrong {
            faults.push(Fault::new("LabelRefused", &format!("spec.result.labels[{}]: {wrong}", clean(key, 128))));
        }
    }
    for (field, value) in [("flavor", &spec.result.flavor), ("role", &spec.result.role)] {
        let Some(value) = value else { continue };
        let empty = value.is_empty().then(|| "it is empty".to_owned());
        if let Some(wrong) = empty.or_else(|| names::label_value(value).into_iter().next()) {
            faults.push(Fault::new("LabelRefused", &format!("spec.result.{field}: {wrong}")));
        }
    }
    faults
}
