//! ValidatingAdmissionPolicy: evaluates the active policies for a change, before the validating webhooks.
//!
//! [`definition`] parses policies and bindings, [`params`] finds their parameters, [`evaluate`] runs their
//! expressions. Validation of the objects themselves is in [`crate::strategies`]
//! (`k8s.io/apiserver/pkg/admission/plugin/policy`).

pub mod definition;
pub mod evaluate;
pub mod params;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cel::Value;
use serde_json::json;

use self::definition::{Binding, InForce, Policy};
use self::evaluate::{Annotation, Decision};
use super::conditions;
use super::expressions::{Facts, value_of};
use super::{Attributes, review};
use crate::limits;
use crate::object::{self, Object};
use crate::objects::{Objects, store_failed};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult, StatusReason};

/// Time for all policies of a request together, as upstream.
const PATIENCE: Duration = Duration::from_secs(34);
/// Longest value of an audit annotation, in bytes.
const MAX_ANNOTATION: usize = 10 * 1024;
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The first refusal.
struct Denied {
    message: String,
    reason: String,
}

/// The evaluation of all policies for one change.
/// The facts for match conditions and those for all other expressions, or why there are none.
enum FactsMade {
    Made(Box<(Facts, Facts)>),
    /// The object could not be converted.
    NotConverted(String),
}

struct Run<'a> {
    objects: &'a Objects,
    about: &'a Attributes<'a>,
    object: Option<&'a Object>,
    denied: Option<Denied>,
    began: Instant,
}

/// Runs all policies. Returns the first refusal after all of them ran.
pub async fn run(
    objects: &Objects,
    policies: &[InForce],
    about: &Attributes<'_>,
    object: Option<&Object>,
) -> ApiResult<()> {
    // Policies skip reviews: they are never stored, and clients depend on them.
    if about.resource.is_review() {
        return Ok(());
    }
    let mut run = Run { objects, about, object, denied: None, began: Instant::now() };
    for (policy, bindings) in policies {
        run.policy(policy, bindings).await?;
    }
    match run.denied {
        None => Ok(()),
        Some(denied) => Err(refusal(about, object, &denied)),
    }
}

fn refusal(about: &Attributes<'_>, object: Option<&Object>, denied: &Denied) -> ApiError {
    let given = object.map(|o| [object::name(o), object::meta_str(o, "generateName")]);
    let name = [about.name].into_iter().chain(given.into_iter().flatten()).find(|n| !n.is_empty());
    let name = name.unwrap_or("Unknown");
    let mut error = ApiError::forbidden(&about.resource.group, &about.resource.plural, name, &denied.message)
        .with_cause("", "", &denied.message);
    let (code, reason) = match denied.reason.as_str() {
        "Forbidden" => (403, StatusReason::Forbidden),
        "Unauthorized" => (401, StatusReason::Unauthorized),
        "RequestEntityTooLarge" => (413, StatusReason::RequestEntityTooLarge),
        _ => (422, StatusReason::Invalid),
    };
    (error.code, error.reason) = (code, reason);
    error
}

impl Run<'_> {
    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, message: &str, reason: &str) {
        let bound = binding.map(|b| format!(" with binding '{}'", b.name)).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{}'{bound} denied request: {message}", policy.name);
        self.denied.get_or_insert_with(|| Denied { message, reason: reason.to_owned() });
    }

    /// Handles an error in a policy or binding itself.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if policy.lenient {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.deny(policy, binding, &format!("failed to configure {what}: {why}"), "");
    }

    async fn policy(&mut self, policy: &Policy, bindings: &[Arc<Binding>]) -> ApiResult<()> {
        let seen_as = match policy.matching.concerned(self.objects, self.about, self.object).await {
            Ok(Some(seen_as)) => seen_as,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.misconfigured(policy, None, &error.message);
                return Ok(());
            }
        };
        if let Some(kind) = &policy.params
            && let Err(why) = params::known(self.objects, kind)
        {
            self.misconfigured(policy, None, &why);
            return Ok(());
        }
        let mut facts: Option<Box<(Facts, Facts)>> = None;
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for binding in bindings {
            if let Some(matching) = &binding.matching {
                match matching.concerned(self.objects, self.about, self.object).await {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(error) => {
                        self.misconfigured(policy, Some(binding), &error.message);
                        continue;
                    }
                }
            }
            let found =
                params::collect(self.objects, policy.params.as_ref(), binding.params.as_ref(), self.about.ns).await;
            let found = match found {
                Ok(found) => found,
                Err(why) => {
                    self.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            if found.is_empty() {
                continue;
            }
            if facts.is_none() {
                match self.facts(&seen_as).await? {
                    FactsMade::Made(made) => facts = Some(made),
                    FactsMade::NotConverted(why) => {
                        let why = format!("failed to convert object version: {why}");
                        self.misconfigured(policy, Some(binding), &why);
                        continue;
                    }
                }
            }
            let Some((condition, plain)) = facts.as_deref() else { continue };
            for params in found {
                // An evaluation can take long: let other tasks run in between.
                tokio::task::yield_now().await;
                if self.began.elapsed() > PATIENCE {
                    return Err(limits::timed_out());
                }
                let params = value_of(params.as_ref());
                let with = |facts: &Facts| Facts { params: params.clone(), ..facts.clone() };
                let verdict = evaluate::evaluate(policy, with(condition), &with(plain));
                self.decisions(policy, binding, &verdict.decisions);
                self.annotations(policy, binding, verdict.annotations, &mut annotations);
            }
        }
        for (key, values) in annotations {
            self.about.change.annotate(format!("{}/{key}", policy.name), values.join(", "));
        }
        Ok(())
    }

    /// The facts for match conditions, and those for all other expressions.
    async fn facts(&self, seen_as: &Arc<Resource>) -> ApiResult<FactsMade> {
        let mut both = [Value::Null, Value::Null];
        for (value, object) in both.iter_mut().zip([self.object, self.about.old]) {
            *value = match object {
                Some(object) => match self.about.in_version(self.objects, object.clone(), seen_as).await {
                    Ok(object) => value_of(Some(&object)),
                    Err(error) => return Ok(FactsMade::NotConverted(error.message)),
                },
                None => Value::Null,
            };
        }
        let [object, old] = both;
        let blank = conditions::facts(self.objects, self.about, seen_as, (None, None));
        let condition = Facts { object, old, ..blank };
        let request = value_of(Some(&review::request(self.about, seen_as, "")));
        let plain = Facts { request, namespace: self.namespace().await?, ..condition.clone() };
        Ok(FactsMade::Made(Box::new((condition, plain))))
    }

    /// The namespace as expressions see it.
    async fn namespace(&self) -> ApiResult<Value> {
        if self.about.ns.is_empty() || self.about.resource.is("", "namespaces") {
            return Ok(Value::Null);
        }
        let catalog = self.objects.registry.catalog();
        let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
        let row = self.objects.store.get(&namespaces.key("", self.about.ns)).await.map_err(store_failed)?;
        let row = row.ok_or_else(|| ApiError::not_found("", "namespaces", self.about.ns))?;
        let mut namespace = namespaces.load(row.rev, &row.body).map_err(ApiError::internal)?;
        for key in ["apiVersion", "kind"] {
            namespace.shift_remove(key);
        }
        for key in ["managedFields", "ownerReferences", "selfLink"] {
            object::metadata_mut(&mut namespace).shift_remove(key);
        }
        Ok(value_of(Some(&namespace)))
    }

    fn decisions(&mut self, policy: &Policy, binding: &Binding, decisions: &[Decision]) {
        for (at, decision) in decisions.iter().enumerate() {
            let Decision::Deny { message, reason } = decision else { continue };
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => self.deny(policy, Some(binding), message, reason),
                    "Warn" => self.about.change.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    )),
                    "Audit" => self.about.change.annotate(FAILURE, failure(binding, at, message)),
                    _ => {}
                }
            }
        }
    }

    fn annotations(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        found: Vec<Annotation>,
        collected: &mut BTreeMap<String, Vec<String>>,
    ) {
        for annotation in found {
            match annotation {
                Annotation::Publish(key, mut value) => {
                    value.truncate(value.floor_char_boundary(MAX_ANNOTATION));
                    let values = collected.entry(key).or_default();
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                Annotation::Failed(why) => self.deny(policy, Some(binding), &why, ""),
            }
        }
    }
}

/// The value of the audit annotation for a failed validation.
fn failure(binding: &Binding, at: usize, message: &str) -> String {
    // Members are in the order of upstream's struct.
    let part = |value: serde_json::Value| gotext::json(&value);
    format!(
        "[{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{at},\"validationActions\":{}}}]",
        part(json!(message)),
        part(json!(binding.policy)),
        part(json!(binding.name)),
        part(json!(binding.actions))
    )
}
