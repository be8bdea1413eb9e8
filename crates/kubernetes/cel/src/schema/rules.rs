//! The rules in schemas (`x-kubernetes-validations`), compiled once and run on objects
//! (`k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::decl::DeclType;
use super::escape::escape;
use super::ratchet::{Elements, Keyed, Pair};
use super::{additional, embedded, field_path, flag, items, map_keys, properties, text, value, with_metadata};
use crate::env::Env;
use crate::program::Program;
use crate::types::Type;
use crate::value::{Key, Value};
use crate::{OBJECT_BUDGET, PER_CALL_LIMIT};

/// Bytes that a computed message may have.
const MAX_MESSAGE: usize = 5 * 1024;
const SPENT: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub source: Json,
    pub program: Option<Program>,
    pub error: Option<String>,
    pub uses_old: bool,
    pub max_cost: u64,
    pub message: Option<Program>,
    pub message_error: Option<String>,
    pub message_cost: u64,
    path: Option<String>,
}

impl Rule {
    /// The rule's name in errors: its message, else its text.
    fn display_name(&self) -> &str {
        let message = text(&self.source, "message");
        if message.is_empty() { text(&self.source, "rule").trim() } else { message.trim() }
    }

    fn default_message(&self) -> String {
        let message = text(&self.source, "message");
        if message.is_empty() { format!("failed rule: {}", self.display_name()) } else { message.trim().to_owned() }
    }
}

/// The kind of a field error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// `FieldValueInvalid`.
    Invalid,
    /// `FieldValueForbidden`.
    Forbidden,
    /// `FieldValueRequired`.
    Required,
    /// `FieldValueDuplicate`.
    Duplicate,
    /// `InternalError`.
    Internal,
}

/// A field error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// The field; empty for the object itself.
    pub path: String,
    /// What kind of error.
    pub reason: Reason,
    /// The value to show, for the kinds that show one.
    pub value: Json,
    /// The text.
    pub detail: String,
}

impl RuleError {
    pub(crate) fn new(path: &str, reason: Reason, value: impl Into<Json>, detail: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason, value: value.into(), detail: detail.into() }
    }
}

/// Result of the rules for an object.
#[derive(Debug, Default)]
pub struct Report {
    /// Why the object is refused.
    pub errors: Vec<RuleError>,
    /// Rules that fail on parts that an update did not change.
    pub warnings: Vec<RuleError>,
    /// The cost of the rules.
    pub cost: u64,
}

/// Compiles the rules of one schema.
pub(crate) fn compile(rules: &[Json], schema: &Json, decl: &DeclType) -> Vec<Rule> {
    let ty = decl.cel_type();
    let plain = Env::new().declared("self", decl).variable("oldSelf", ty.clone());
    let optional = Env::new().declared("self", decl).variable("oldSelf", Type::optional(ty));
    rules
        .iter()
        .map(|source| {
            let env = if flag(source, "optionalOldSelf") { &optional } else { &plain };
            compile_rule(source, schema, env, decl)
        })
        .collect()
}

fn compile_rule(source: &Json, schema: &Json, env: &Env, decl: &DeclType) -> Rule {
    let mut rule = Rule {
        source: source.clone(),
        program: None,
        error: None,
        uses_old: false,
        max_cost: 0,
        message: None,
        message_error: None,
        message_cost: 0,
        path: field_path::normal(text(source, "fieldPath"), schema),
    };
    let expression = text(source, "rule");
    if expression.trim().is_empty() {
        return rule;
    }
    match checked(env, expression, &Type::Bool) {
        Err(Failure::Compile(why)) => rule.error = Some(format!("compilation failed: {why}")),
        Err(Failure::Type) => rule.error = Some("cel expression must evaluate to a bool".into()),
        Err(Failure::Instantiate(why)) => rule.error = Some(format!("program instantiation failed: {why}")),
        Ok(program) => {
            rule.uses_old = program.uses("oldSelf");
            rule.max_cost = program.estimate(decl).max;
            rule.program = Some(program);
        }
    }
    let expression = text(source, "messageExpression");
    if rule.error.is_some() || expression.is_empty() {
        return rule;
    }
    match checked(env, expression, &Type::String) {
        Err(Failure::Compile(why)) => rule.message_error = Some(format!("messageExpression compilation failed: {why}")),
        Err(Failure::Type) => rule.message_error = Some("messageExpression must evaluate to a string".into()),
        Err(Failure::Instantiate(why)) => {
            rule.message_error = Some(format!("messageExpression instantiation failed: {why}"));
        }
        Ok(program) => {
            rule.message_cost = program.estimate(decl).max;
            rule.message = Some(program);
        }
    }
    rule
}

enum Failure {
    Compile(String),
    Type,
    Instantiate(String),
}

fn checked(env: &Env, expression: &str, wanted: &Type) -> Result<Program, Failure> {
    let program = env.compile(expression).map_err(|e| Failure::Compile(e.to_string()))?;
    if program.output_type() != wanted {
        return Err(Failure::Type);
    }
    match program.instantiation_error() {
        Some(why) => Err(Failure::Instantiate(why.to_owned())),
        None => Ok(program),
    }
}

/// Whether the schema contains any rules.
pub fn has_rules(schema: &Json) -> bool {
    schema.get("x-kubernetes-validations").and_then(Json::as_array).is_some_and(|r| !r.is_empty())
        || items(schema).is_some_and(has_rules)
        || additional(schema).is_some_and(has_rules)
        || properties(schema).into_iter().flatten().any(|(_, p)| has_rules(p))
        || all_of(schema).any(has_rules)
}

fn all_of(schema: &Json) -> impl Iterator<Item = &Json> {
    schema.get("allOf").and_then(Json::as_array).into_iter().flatten()
}

/// The compiled rules of a whole schema.
#[derive(Debug)]
pub struct Validator {
    root: Node,
    schema: Arc<Json>,
}

#[derive(Debug)]
struct Node {
    rules: Vec<Rule>,
    root: bool,
    schema: Json,
    items: Option<Box<Node>>,
    additional: Option<Box<Node>>,
    fields: BTreeMap<String, Node>,
    all_of: Vec<Node>,
}

impl Validator {
    /// Compiles the rules of a custom resource's schema; none if it has none.
    pub fn new(schema: &Json) -> Option<Self> {
        Self::of(schema, true)
    }

    /// As [`Validator::new`], for a schema that describes a whole object only if `root`.
    pub fn of(schema: &Json, root: bool) -> Option<Self> {
        if !has_rules(schema) {
            return None;
        }
        let decl = DeclType::from_schema(schema, root, "selfType0");
        Some(Self { root: Node::new(schema, schema, root, decl.as_ref())?, schema: Arc::new(schema.clone()) })
    }

    /// Runs the rules on an object; `old` is the object that an update replaces.
    pub fn validate(&self, object: &Json, old: Option<&Json>) -> Report {
        let pair = old.map(|old| Pair { new: object, old, schema: &self.schema });
        self.run("", object, old, pair)
    }

    /// Runs the rules on a default value at `path`: as an unchanged value, and as a new one. Ratcheting does not apply.
    pub fn validate_default(&self, value: &Json, path: &str) -> Vec<RuleError> {
        let mut errors = self.run(path, value, Some(value), None).errors;
        if errors.is_empty() {
            errors = self.run(path, value, None, None).errors;
        }
        errors
    }

    fn run(&self, path: &str, object: &Json, old: Option<&Json>, pair: Option<Pair<'_>>) -> Report {
        let mut run = Run { report: Report::default(), left: OBJECT_BUDGET as i64, ended: false };
        let ratchet = Ratchet { now: pair, above: None, top: true };
        self.root.validate(&mut run, path, Part { json: object, value: None }, old, ratchet);
        run.report.cost = (OBJECT_BUDGET as i64).saturating_sub(run.left).unsigned_abs();
        run.report
    }
}

/// A part of the object, with its CEL value if already computed.
#[derive(Clone)]
struct Part<'a> {
    json: &'a Json,
    value: Option<Value>,
}

impl Part<'_> {
    fn child(&self, step: &str) -> Option<Value> {
        match self.value.as_ref()? {
            Value::Map(map) => {
                let escaped = Key::String(escape(step)?.into());
                map.entries.get(&escaped).or_else(|| map.entries.get(&Key::String(step.into()))).cloned()
            }
            _ => None,
        }
    }

    fn element(&self, at: usize) -> Option<Value> {
        match self.value.as_ref()? {
            Value::List(list) => list.items.get(at).cloned(),
            _ => None,
        }
    }
}

#[derive(Clone, Copy)]
struct Ratchet<'a> {
    now: Option<Pair<'a>>,
    above: Option<Pair<'a>>,
    top: bool,
}

impl<'a> Ratchet<'a> {
    fn forgives(&self) -> bool {
        self.now.or(self.above).is_some_and(Pair::same)
    }

    fn key(self, name: &str) -> Self {
        let Some(now) = self.now else { return Self { top: false, ..self } };
        if self.top && matches!(name, "apiVersion" | "kind") {
            return Self { now: None, above: None, top: false };
        }
        Self { now: now.key(name), above: Some(now), top: false }
    }

    fn index(self, elements: Option<&Elements<'a>>, at: usize) -> Self {
        let Some(now) = self.now else { return Self { top: false, ..self } };
        Self { now: elements.and_then(|e| e.at(at)), above: Some(now), top: false }
    }
}

struct Run {
    report: Report,
    left: i64,
    ended: bool,
}

impl Run {
    fn error(&mut self, path: &str, value: &str, detail: impl Into<String>) {
        self.report.errors.push(RuleError::new(path, Reason::Invalid, value, detail));
    }

    /// Deducts the cost from the budget; false if the budget is exceeded.
    fn pay(&mut self, cost: u64) -> bool {
        match i64::try_from(cost) {
            Ok(cost) if cost <= self.left => {
                self.left -= cost;
                true
            }
            _ => {
                self.left = -1;
                self.ended = true;
                false
            }
        }
    }
}

impl Node {
    fn new(rules: &Json, schema: &Json, root: bool, decl: Option<&DeclType>) -> Option<Self> {
        let sources = rules.get("x-kubernetes-validations").and_then(Json::as_array);
        let compiled = match (sources, decl) {
            (Some(sources), Some(decl)) => compile(sources, schema, decl),
            _ => Vec::new(),
        };
        let child = |rules: &Json, schema: &Json, decl: Option<&DeclType>| {
            Self::new(rules, schema, embedded(schema), decl).map(Box::new)
        };
        let element = decl.and_then(|d| d.children().next());
        let items = items(rules).zip(items(schema)).and_then(|(r, s)| child(r, s, element));
        let additional = additional(rules).zip(additional(schema)).and_then(|(r, s)| child(r, s, element));
        let mut fields = BTreeMap::new();
        for (name, property) in properties(rules).into_iter().flatten() {
            let Some(schema) = properties(schema).and_then(|p| p.get(name)) else { continue };
            let known = escape(name).and_then(|n| decl.and_then(|d| d.object_parts()).and_then(|(_, f)| f.get(&n)));
            let declared = match escape(name) {
                Some(_) => None,
                None => DeclType::from_schema(schema, embedded(schema), "selfType0"),
            };
            let Some(decl) = known.or(declared.as_ref()) else { continue };
            if let Some(node) = Self::new(property, schema, embedded(schema), Some(decl)) {
                fields.insert(name.clone(), node);
            }
        }
        let all_of: Vec<Self> = all_of(rules).filter_map(|r| Self::new(r, schema, root, decl)).collect();
        let any = !compiled.is_empty() || items.is_some() || additional.is_some();
        (any || !fields.is_empty() || !all_of.is_empty()).then(|| Self {
            rules: compiled,
            root,
            schema: schema.clone(),
            items,
            additional,
            fields,
            all_of,
        })
    }

    fn validate(&self, run: &mut Run, path: &str, mut part: Part<'_>, old: Option<&Json>, ratchet: Ratchet<'_>) {
        if part.json.is_null() || run.ended {
            return;
        }
        let old = old.filter(|o| !o.is_null());
        self.validate_rules(run, path, &mut part, old, ratchet);
        for node in &self.all_of {
            if run.ended {
                return;
            }
            let above = Ratchet { now: None, above: ratchet.above, top: ratchet.top };
            node.validate(run, path, part.clone(), old, above);
        }
        match part.json {
            Json::Array(list) => {
                let Some(node) = &self.items else { return };
                let old_list = old.and_then(Json::as_array).zip(map_keys(&self.schema));
                let keyed = old_list.map(|(list, keys)| (list, Keyed::new(list, keys)));
                let elements = ratchet.now.and_then(Pair::elements);
                for (at, json) in list.iter().enumerate() {
                    let old = keyed.as_ref().and_then(|(list, keyed)| list.get(keyed.place(json)?));
                    let (value, ratchet) = (part.element(at), ratchet.index(elements.as_ref(), at));
                    node.validate(run, &format!("{path}[{at}]"), Part { json, value }, old, ratchet);
                    if run.ended {
                        return;
                    }
                }
            }
            Json::Object(fields) => {
                let old_fields = old.and_then(Json::as_object);
                for (name, json) in fields {
                    let (node, path) = match (self.fields.get(name), &self.additional) {
                        (Some(node), _) => (node, join(path, name)),
                        (None, Some(node)) => (&**node, format!("{path}[{name}]")),
                        (None, None) => continue,
                    };
                    let old = old_fields.and_then(|o| o.get(name));
                    let value = part.child(name);
                    node.validate(run, &path, Part { json, value }, old, ratchet.key(name));
                    if run.ended {
                        return;
                    }
                }
            }
            _ => {}
        }
    }

    fn validate_rules(&self, run: &mut Run, path: &str, part: &mut Part<'_>, old: Option<&Json>, ratchet: Ratchet<'_>) {
        if self.rules.is_empty() {
            return;
        }
        let ty = text(&self.schema, "type");
        if run.left <= 0 {
            run.error(path, ty, SPENT);
            run.ended = true;
            return;
        }
        let schema = if self.root { with_metadata(&self.schema) } else { std::borrow::Cow::Borrowed(&self.schema) };
        let this = part.value.get_or_insert_with(|| value::to_value(part.json, &schema, self.root)).clone();
        let uses_old = self.rules.iter().any(|r| r.uses_old);
        let old_value = old.filter(|_| uses_old).map(|o| value::to_value(o, &schema, self.root));
        for rule in &self.rules {
            if let Some(error) = &rule.error {
                run.error(path, ty, format!("rule compile error: {error}"));
                continue;
            }
            let Some(program) = &rule.program else { continue };
            let optional = flag(&rule.source, "optionalOldSelf");
            if rule.uses_old && old.is_none() && !optional {
                continue;
            }
            let vars = variables(&this, old_value.as_ref(), optional);
            let done = program.eval(&vars.as_slice(), PER_CALL_LIMIT);
            if !run.pay(done.cost) {
                run.error(path, ty, SPENT);
                return;
            }
            match done.result {
                Ok(Value::Bool(true)) => {}
                Ok(_) => {
                    let plain = variables(&this, old_value.as_ref(), false);
                    let forgiven = !rule.uses_old && ratchet.forgives();
                    self.failed(run, path, rule, &plain, forgiven);
                }
                Err(fault) if fault.is_limit() => {
                    let name = rule.display_name();
                    let detail = format!(
                        "'{fault}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                    );
                    run.error(path, ty, detail);
                    run.ended = true;
                }
                Err(fault) => {
                    let name = rule.display_name();
                    let detail = if fault.is_overload() {
                        format!(
                            "'{fault}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                        )
                    } else {
                        format!("{fault} evaluating rule: {name}")
                    };
                    run.error(path, ty, detail);
                }
            }
            if run.ended {
                return;
            }
        }
    }

    fn failed(&self, run: &mut Run, path: &str, rule: &Rule, vars: &[(&str, Value)], forgiven: bool) {
        let path = rule.path.as_ref().map_or_else(|| path.to_owned(), |p| join(path, p));
        let ty = text(&self.schema, "type");
        let mut reason = match text(&rule.source, "reason") {
            "FieldValueForbidden" => Reason::Forbidden,
            "FieldValueRequired" => Reason::Required,
            "FieldValueDuplicate" => Reason::Duplicate,
            _ => Reason::Invalid,
        };
        let detail = match &rule.message {
            None => rule.default_message(),
            Some(program) => match message(run, rule, program, vars) {
                Ok(message) => message,
                Err(None) => rule.default_message(),
                Err(Some(fatal)) => {
                    reason = Reason::Invalid;
                    fatal
                }
            },
        };
        let error = RuleError::new(&path, reason, ty, detail);
        if forgiven { run.report.warnings.push(error) } else { run.report.errors.push(error) }
    }
}

fn variables(this: &Value, old: Option<&Value>, optional: bool) -> Vec<(&'static str, Value)> {
    let mut vars = vec![("self", this.clone())];
    match (old, optional) {
        (old, true) => vars.push(("oldSelf", Value::Optional(old.cloned().map(Arc::new)))),
        (Some(old), false) => vars.push(("oldSelf", old.clone())),
        (None, false) => {}
    }
    vars
}

/// The computed message; `Err(None)` to use the static one, `Err(Some(…))` with the error that ends the validation.
fn message(run: &mut Run, rule: &Rule, program: &Program, vars: &[(&str, Value)]) -> Result<String, Option<String>> {
    let done = program.eval(&vars, PER_CALL_LIMIT);
    if !run.pay(done.cost) {
        let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
        return Err(Some(why.to_owned()));
    }
    match done.result {
        Err(fault) if fault.is_limit() => {
            run.ended = true;
            let source = text(&rule.source, "messageExpression");
            Err(Some(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source:?}"
            )))
        }
        Ok(Value::String(message)) => {
            let message = message.trim();
            let unusable = message.is_empty() || message.len() > MAX_MESSAGE || message.contains('\n');
            if unusable { Err(None) } else { Ok(message.to_owned()) }
        }
        _ => Err(None),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() || name.starts_with('[') { format!("{path}{name}") } else { format!("{path}.{name}") }
}
