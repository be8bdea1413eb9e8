//! Evaluates a policy for one change with one set of parameters
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/validating`, validator).

use std::sync::Arc;

use cel::{OBJECT_BUDGET, Value};

use super::definition::{Compiled, Policy, Validation};
use crate::admission::expressions::{Expression, Facts, NoValue, SPENT, Scope};

/// Longest message computed by an expression, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// The outcome of one validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It holds, or the failure policy ignores its evaluation error.
    Admit,
    /// It does not hold, or could not be evaluated.
    Deny {
        /// Why.
        message: String,
        /// The reason for the client; empty if evaluation failed.
        reason: String,
    },
}

/// The outcome of one audit annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Annotation {
    /// Key and value for the audit log.
    Publish(String, String),
    /// It could not be evaluated, which refuses the change.
    Failed(String),
}

/// The outcome of a policy.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// One for each validation.
    pub decisions: Vec<Decision>,
    /// Annotations for the audit log.
    pub annotations: Vec<Annotation>,
}

impl Verdict {
    fn failed(policy: &Policy, why: &str) -> Self {
        Self { decisions: vec![unable(policy, why)], annotations: Vec::new() }
    }
}

fn unable(policy: &Policy, why: &str) -> Decision {
    if policy.lenient {
        return Decision::Admit;
    }
    Decision::Deny { message: why.to_owned(), reason: String::new() }
}

/// Evaluates a policy. Match conditions see `condition_facts`, all other expressions `facts`.
pub fn evaluate(policy: &Policy, condition_facts: Facts, facts: &Facts) -> Verdict {
    let compiled = policy.compiled();
    if !compiled.conditions.is_empty() {
        match compiled.conditions.hold(condition_facts) {
            Err(why) => return Verdict::failed(policy, &why),
            Ok(false) => return Verdict::default(),
            Ok(true) => {}
        }
    }
    let mut left = OBJECT_BUDGET;
    let Some(results) = all(compiled, facts, compiled.validations.iter().map(|v| Some(&v.expression)), &mut left)
    else {
        return Verdict::failed(policy, SPENT);
    };
    // Messages and annotations have no access to the authorizer.
    let plain = Facts { authorizer: None, ..facts.clone() };
    let words = all(compiled, &plain, compiled.validations.iter().map(|v| v.words.as_ref()), &mut left);
    let mut decisions = Vec::with_capacity(results.len());
    for (at, (validation, result)) in compiled.validations.iter().zip(results).enumerate() {
        decisions.push(match (result, &words) {
            (Some(Err(why)), _) => unable(policy, &why),
            (_, None) => unable(policy, &format!("failed messageExpression: {SPENT}")),
            (Some(Ok(Value::Bool(true))), _) => Decision::Admit,
            (_, Some(words)) => Decision::Deny {
                message: message(validation, words.get(at).and_then(Option::as_ref)),
                reason: validation.reason.clone(),
            },
        });
    }
    let mut left = OBJECT_BUDGET;
    let values = all(compiled, &plain, compiled.annotations.iter().map(|(_, e)| Some(e)), &mut left);
    let Some(values) = values else { return Verdict::failed(policy, SPENT) };
    let annotations = compiled.annotations.iter().zip(values).filter_map(|((key, _), value)| match value? {
        Ok(Value::String(text)) if !text.trim().is_empty() => {
            Some(Annotation::Publish(key.clone(), text.trim().to_owned()))
        }
        Ok(_) => None,
        Err(_) if policy.lenient => None,
        Err(why) => Some(Annotation::Failed(why)),
    });
    Verdict { decisions, annotations: annotations.collect() }
}

/// The outcome of one expression, if there is one.
type Outcome = Option<Result<Value, String>>;

/// Runs expressions in one activation; `None` if the budget is exhausted.
fn all<'a>(
    compiled: &Compiled,
    facts: &Facts,
    expressions: impl Iterator<Item = Option<&'a Expression>>,
    left: &mut u64,
) -> Option<Vec<Outcome>> {
    let scope = Scope::new(facts.clone(), Some(Arc::clone(&compiled.variables)));
    let run = |expression: &Expression, left: &mut u64| match expression.run(&scope, left) {
        Ok(value) => Some(Ok(value)),
        Err(NoValue::Failed(why)) => Some(Err(why)),
        Err(NoValue::Spent) => None,
    };
    let mut outcomes = Vec::new();
    for expression in expressions {
        outcomes.push(match expression {
            Some(expression) => Some(run(expression, left)?),
            None => None,
        });
    }
    Some(outcomes)
}

/// The message of a refusal: the computed one if it is usable, else the fixed one, else the expression itself.
fn message(validation: &Validation, words: Option<&Result<Value, String>>) -> String {
    let computed = match words {
        Some(Ok(Value::String(text))) => text.trim(),
        _ => "",
    };
    let fit = !computed.is_empty() && computed.len() <= MAX_MESSAGE && !computed.contains('\n');
    match (fit, validation.message.as_str()) {
        (true, _) => computed.to_owned(),
        (false, "") => format!("failed expression: {}", validation.expression.source().trim()),
        (false, given) => given.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    fn facts(object: &Json) -> Facts {
        let null = || Value::Null;
        Facts {
            object: Value::from_json(object),
            old: null(),
            request: null(),
            namespace: null(),
            params: null(),
            authorizer: None,
        }
    }

    fn verdict(spec: Json) -> Verdict {
        let Json::Object(object) = json!({"spec": spec}) else { return Verdict::default() };
        let facts = facts(&json!({"n": 1, "s": "x", "long": "y".repeat(9000)}));
        evaluate(&Policy::parse("p", &object), facts.clone(), &facts)
    }

    fn deny(message: &str, reason: &str) -> Decision {
        Decision::Deny { message: message.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn words_of_refusals_fall_back() {
        let verdict = verdict(json!({"validations": [
            {"expression": "object.n == 1"},
            {"expression": " object.n == 2 "},
            {"expression": "object.n == 2", "message": " plain ", "reason": "Forbidden"},
            {"expression": "object.n == 2", "message": "plain", "messageExpression": "' n is ' + string(object.n)"},
            {"expression": "object.n == 2", "message": "plain", "messageExpression": "'a\\nb'"},
            {"expression": "object.n == 2", "message": "plain", "messageExpression": "object.none + ''"},
            {"expression": "object.none == 2"},
        ]}));
        let wanted = [
            Decision::Admit,
            deny("failed expression: object.n == 2", "Invalid"),
            deny("plain", "Forbidden"),
            deny("n is 1", "Invalid"),
            deny("plain", "Invalid"),
            deny("plain", "Invalid"),
            deny("expression 'object.none == 2' resulted in error: no such key: none", ""),
        ];
        assert_eq!(verdict.decisions, wanted);
    }

    #[test]
    fn conditions_come_first_and_failures_follow_the_policy() {
        let with = |policy: &str, condition: &str| {
            verdict(json!({"failurePolicy": policy, "validations": [{"expression": "object.none == 1"}],
                "matchConditions": [{"name": "c", "expression": condition}]}))
        };
        assert_eq!(with("Fail", "false"), Verdict::default());
        assert_eq!(with("Ignore", "true").decisions, [Decision::Admit]);
        let denial = deny("expression 'object.a == 1' resulted in error: no such key: a", "");
        assert_eq!(with("Fail", "object.a == 1").decisions, [denial]);
        assert_eq!(with("Ignore", "object.a == 1"), Verdict::default());
    }

    #[test]
    fn annotations_are_texts_or_nothing() {
        let verdict = verdict(json!({"auditAnnotations": [
            {"key": "a", "valueExpression": "' ' + object.s"},
            {"key": "b", "valueExpression": "null"},
            {"key": "c", "valueExpression": "''"},
            {"key": "d", "valueExpression": "object.none + ''"},
        ]}));
        let failed = "expression 'object.none + ''' resulted in error: no such key: none";
        let wanted = [Annotation::Publish("a".into(), "x".into()), Annotation::Failed(failed.into())];
        assert_eq!(verdict.annotations, wanted);
    }

    #[test]
    fn a_budget_that_is_used_up_is_a_refusal() {
        let validations: Vec<Json> =
            (0..20).map(|_| json!({"expression": "object.long.contains(object.long)"})).collect();
        let verdict = verdict(json!({ "validations": validations }));
        assert_eq!(verdict.decisions, [deny(SPENT, "")]);
    }
}
