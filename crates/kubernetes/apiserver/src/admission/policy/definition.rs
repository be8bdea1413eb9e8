//! A policy and its bindings, parsed from their objects.

use std::sync::{Arc, OnceLock};

use cel::Type;
use serde_json::Value;

use crate::admission::Attributes;
use crate::admission::conditions::Conditions;
use crate::admission::expressions::{Compiler, Expression, Variables};
use crate::admission::rules::{self, LabelSelector, Rule};
use crate::object::{Object, strings};
use crate::objects::Objects;
use crate::resource::Resource;
use crate::status::ApiResult;

/// The changes that a policy or binding applies to (`MatchResources`).
#[derive(Debug, Default)]
pub struct Matching {
    rules: Vec<Rule>,
    exclude: Vec<Rule>,
    equivalent: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

/// The kind of a policy's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamKind {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

/// The parameters that a binding refers to.
#[derive(Debug)]
pub struct ParamRef {
    /// A single object by name, if not empty.
    pub name: String,
    /// The namespace of the parameters; empty for the request's.
    pub namespace: String,
    /// All objects that match.
    pub selector: Option<LabelSelector>,
    /// Whether absent parameters refuse the change.
    pub must_be: bool,
}

/// A policy.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Whether evaluation errors are ignored (`failurePolicy: Ignore`).
    pub lenient: bool,
    /// The changes it applies to.
    pub matching: Matching,
    /// The kind of its parameters.
    pub params: Option<ParamKind>,
    spec: Value,
    compiled: OnceLock<Compiled>,
}

/// A binding.
#[derive(Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// Restricts the policy further.
    pub matching: Option<Matching>,
    /// The parameters.
    pub params: Option<ParamRef>,
    /// The reactions to a failure.
    pub actions: Vec<String>,
}

/// The expressions of a policy.
#[derive(Debug)]
pub struct Compiled {
    /// Its variables.
    pub variables: Arc<Variables>,
    /// Match conditions, evaluated before everything else.
    pub conditions: Conditions,
    /// The validations.
    pub validations: Vec<Validation>,
    /// Audit annotations: key and value.
    pub annotations: Vec<(String, Expression)>,
}

/// One validation.
#[derive(Debug)]
pub struct Validation {
    /// The expression that must be true.
    pub expression: Expression,
    /// The fixed message; may be empty.
    pub message: String,
    /// The message expression, which takes precedence.
    pub words: Option<Expression>,
    /// Reason of the refusal.
    pub reason: String,
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

impl Matching {
    fn parse(given: &Value) -> Self {
        let rules = |key: &str| list(given, key).map(Rule::parse).collect();
        Self {
            rules: rules("resourceRules"),
            exclude: rules("excludeResourceRules"),
            equivalent: text(given, "matchPolicy") == "Equivalent",
            namespaces: LabelSelector::parse(given.get("namespaceSelector")),
            objects: LabelSelector::parse(given.get("objectSelector")),
        }
    }

    /// The resource version in which the policy sees a change; `None` if it does not apply.
    pub async fn concerned(
        &self,
        objects: &Objects,
        about: &Attributes<'_>,
        object: Option<&Object>,
    ) -> ApiResult<Option<Arc<Resource>>> {
        if !rules::object_selected(&self.objects, about, object)
            || rules::matched(objects, &self.exclude, self.equivalent, about).is_some()
        {
            return Ok(None);
        }
        let found = if self.rules.is_empty() {
            rules::requested_resource(objects, about)
        } else {
            rules::matched(objects, &self.rules, self.equivalent, about)
        };
        let Some(found) = found else { return Ok(None) };
        let selected = rules::namespace_selected(objects, &self.namespaces, about, object).await?;
        Ok(selected.then_some(found))
    }
}

impl Policy {
    /// Parses a policy.
    pub fn parse(name: &str, object: &Object) -> Self {
        let spec = object.get("spec").cloned().unwrap_or_default();
        let params = spec.get("paramKind").map(|kind| ParamKind {
            api_version: text(kind, "apiVersion").to_owned(),
            kind: text(kind, "kind").to_owned(),
        });
        Self {
            name: name.to_owned(),
            lenient: text(&spec, "failurePolicy") == "Ignore",
            matching: spec.get("matchConstraints").map(Matching::parse).unwrap_or_default(),
            params,
            spec,
            compiled: OnceLock::new(),
        }
    }

    /// Its expressions, compiled on first use.
    pub fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| {
            let spec = &self.spec;
            let mut compiler = Compiler::new(self.params.is_some(), true);
            let mut variables = Variables::new();
            for variable in list(spec, "variables") {
                let name = text(variable, "name");
                let program = compiler.variable(name, text(variable, "expression"));
                variables.insert(name.to_owned(), program);
            }
            let validation = |given: &Value| {
                let (source, words) = (text(given, "expression"), text(given, "messageExpression"));
                Validation {
                    expression: Expression::new(source, compiler.compile(source, &[Type::Bool], true)),
                    message: text(given, "message").trim().to_owned(),
                    words: (!words.is_empty())
                        .then(|| Expression::new(words, compiler.compile(words, &[Type::String], false))),
                    reason: Some(text(given, "reason")).filter(|r| !r.is_empty()).unwrap_or("Invalid").to_owned(),
                }
            };
            let annotation = |given: &Value| {
                let source = text(given, "valueExpression");
                let program = compiler.compile(source, &[Type::String, Type::Null], true);
                (text(given, "key").to_owned(), Expression::new(source, program))
            };
            Compiled {
                conditions: Conditions::parse(spec, self.params.is_some()),
                validations: list(spec, "validations").map(validation).collect(),
                annotations: list(spec, "auditAnnotations").map(annotation).collect(),
                variables: Arc::new(variables),
            }
        })
    }
}

impl Binding {
    /// Parses a binding.
    pub fn parse(name: &str, object: &Object) -> Self {
        let spec = object.get("spec").cloned().unwrap_or_default();
        Self {
            name: name.to_owned(),
            policy: text(&spec, "policyName").to_owned(),
            matching: spec.get("matchResources").map(Matching::parse),
            params: spec.get("paramRef").map(|given| ParamRef {
                name: text(given, "name").to_owned(),
                namespace: text(given, "namespace").to_owned(),
                selector: given.get("selector").map(|s| LabelSelector::parse(Some(s))),
                must_be: text(given, "parameterNotFoundAction") == "Deny",
            }),
            actions: strings(spec.get("validationActions")),
        }
    }
}

/// A policy with its bindings.
pub type InForce = (Arc<Policy>, Vec<Arc<Binding>>);
