//! Match conditions: expressions that must all hold for a webhook or policy to see a change
//! (`k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions`).

use std::sync::OnceLock;

use cel::{MATCH_CONDITIONS_BUDGET, Type, Value};
use serde_json::{Map, Value as Json};

use super::expressions::{self, Compiler, Expression, Facts, NoValue, SPENT, Scope, value_of};
use super::{Attributes, review};
use crate::object::Object;
use crate::objects::Objects;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};

/// The conditions of one webhook or policy, compiled on first use.
#[derive(Debug, Default)]
pub struct Conditions {
    sources: Vec<String>,
    params: bool,
    /// Whether an evaluation error counts as a condition that does not hold.
    lenient: bool,
    compiled: OnceLock<Vec<Expression>>,
}

impl Conditions {
    /// Parses `matchConditions` of a webhook or policy with its failure policy.
    pub fn parse(owner: &Json, params: bool) -> Self {
        let text = |value: &Json, key: &str| value.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
        let list = owner.get("matchConditions").and_then(Json::as_array).into_iter().flatten();
        Self {
            sources: list.map(|c| text(c, "expression")).collect(),
            params,
            lenient: text(owner, "failurePolicy") == "Ignore",
            compiled: OnceLock::new(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether all conditions hold. A single false one decides, even if others fail.
    ///
    /// # Errors
    /// The evaluation errors, in upstream's wording.
    pub fn hold(&self, facts: Facts) -> Result<bool, String> {
        let compiled = self.compiled.get_or_init(|| {
            let compiler = Compiler::new(self.params, false);
            let compile = |source: &String| Expression::new(source, compiler.compile(source, &[Type::Bool], true));
            self.sources.iter().map(compile).collect()
        });
        let scope = Scope::new(facts, None);
        let mut left = MATCH_CONDITIONS_BUDGET;
        let mut results = Vec::with_capacity(compiled.len());
        for condition in compiled {
            match condition.run(&scope, &mut left) {
                Ok(value) => results.push(Ok(value)),
                Err(NoValue::Failed(why)) => results.push(Err(why)),
                Err(NoValue::Spent) if self.lenient => return Ok(false),
                Err(NoValue::Spent) => return Err(SPENT.to_owned()),
            }
        }
        if results.iter().any(|r| matches!(r, Ok(Value::Bool(false)))) {
            return Ok(false);
        }
        let mut errors: Vec<String> = Vec::new();
        for error in results.into_iter().filter_map(Result::err) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if self.lenient => Ok(false),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

/// The facts of a change for match conditions. `object` and `old` are in the version of `seen_as`.
pub fn facts(
    objects: &Objects,
    about: &Attributes<'_>,
    seen_as: &Resource,
    (object, old): (Option<&Object>, Option<&Object>),
) -> Facts {
    let mut request: Map<String, Json> = review::request(about, seen_as, "");
    // Upstream exposes the request's resource here, even if another version matched.
    if let Some(resource) = request.get("requestResource").cloned() {
        request.insert("resource".into(), resource);
    }
    Facts {
        object: value_of(object),
        old: value_of(old),
        request: value_of(Some(&request)),
        namespace: Value::Null,
        params: Value::Null,
        authorizer: Some(expressions::authorizer(&objects.rights, about)),
    }
}

/// Whether a webhook's conditions hold for a change.
pub fn let_through(
    objects: &Objects,
    conditions: &Conditions,
    about: &Attributes<'_>,
    seen_as: &Resource,
    both: (Option<&Object>, Option<&Object>),
) -> ApiResult<bool> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let refused = |why: String| ApiError::forbidden(&about.resource.group, &about.resource.plural, about.name, &why);
    conditions.hold(facts(objects, about, seen_as, both)).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hold(policy: &str, sources: &[&str]) -> Result<bool, String> {
        let list: Vec<Json> = sources.iter().map(|s| json!({"name": "c", "expression": s})).collect();
        let object = Value::from_json(&json!({"a": [1, 2, 3]}));
        let null = || Value::Null;
        let facts = Facts { object, old: null(), request: null(), namespace: null(), params: null(), authorizer: None };
        Conditions::parse(&json!({"failurePolicy": policy, "matchConditions": list}), false).hold(facts)
    }

    #[test]
    fn one_that_does_not_hold_decides() {
        assert_eq!(hold("Fail", &["object.a[0] == 1", "true"]), Ok(true));
        assert_eq!(hold("Fail", &["object.b == 1", "false"]), Ok(false));
        let message = "expression 'object.b == 1' resulted in error: no such key: b";
        assert_eq!(hold("Fail", &["object.b == 1", "true"]), Err(message.to_owned()));
        assert_eq!(hold("Fail", &["object.b == 1", "object.b == 1"]), Err(message.to_owned()));
        assert!(hold("Fail", &["object.b == 1", "object.c == 1"]).unwrap_err().starts_with("[expression"));
        assert_eq!(hold("Ignore", &["object.b == 1", "true"]), Ok(false));
    }
}
