//! Reviews: questions about users and rights. The response is the review with its status; nothing is stored.
//!
//! Follows `k8s.io/kubernetes/pkg/registry/authorization`, `…/authentication` and their validation.

use core_kinds::canonical;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{Backend, body, prepare};
use crate::admission::Subject;
use crate::auth::tokens;
use crate::change::Change;
use crate::checks::list;
use crate::checks::selector::{self, Lenient};
use crate::fields::Scope;
use crate::fields::options::Options;
use crate::fields::views::Views;
use crate::object::{self, Object};
use crate::rbac::attributes::Attributes;
use crate::rbac::rules::{self, Rule};
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::Flavor;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::user::User;

/// Answers the review of the body.
pub async fn create(backend: &Backend, request: &mut Request) -> ApiResult<Response> {
    Options::Create.validate(&request.query)?;
    let change = request.change()?;
    let resource = request.resource().clone();
    let mut review = body::object(request, &resource)?;
    prepare::fit_namespace(&resource, &mut review, &request.target.ns)?;
    prepare::wipe(&mut review);
    object::metadata_mut(&mut review).shift_remove("generation");
    let catalog = backend.registry.catalog();
    let (manager, views, now) = (change.manager.as_str(), Views::none(), backend.given.now());
    let scope = Scope { resource: &resource, catalog: &catalog, sub: "", manager, views, now };
    scope.update(None, &mut review);
    let answered = answer(backend, request, &change, review).await;
    request.warnings.append(&mut change.take_warnings());
    let mut answered = answered?;
    if let Flavor::Builtin(def) = &resource.flavor {
        canonical::canonicalize(def, &mut answered);
    }
    reply::value(request, StatusCode::CREATED, Value::Object(answered))
}

/// Runs admission and answers the review.
async fn answer(backend: &Backend, request: &Request, change: &Change, mut review: Object) -> ApiResult<Object> {
    let (resource, ns) = (request.resource(), request.target.ns.as_str());
    let name = object::name(&review).to_owned();
    let subject = Subject::of(resource, ns, &name);
    backend.admission.admit(backend, change, subject, &mut review, None).await?;
    sound(&resource.kind, &review)?;
    backend.admission.admit_final(backend, change, subject, &review, None).await?;
    match resource.kind.as_str() {
        "SelfSubjectReview" => Ok(self_subject(&request.user, backend.given.stamp())),
        "TokenReview" => token(backend, review).await,
        "SelfSubjectRulesReview" => Ok(self_rules(backend, &request.user, &review)),
        kind => Ok(access(backend, request, kind, review)),
    }
}

/// Validates the spec of a review.
fn sound(kind: &str, review: &Object) -> ApiResult<()> {
    let spec = review.get("spec").cloned().unwrap_or_else(|| json!({}));
    match kind {
        "SelfSubjectReview" => Ok(()),
        "TokenReview" if text(&spec, "token").is_empty() => {
            Err(ApiError::bad_request("token is required for TokenReview in authentication"))
        }
        "TokenReview" => Ok(()),
        "SelfSubjectRulesReview" if text(&spec, "namespace").is_empty() => {
            Err(ApiError::bad_request("no namespace on request"))
        }
        "SelfSubjectRulesReview" => Ok(()),
        kind => match validate(kind, review, &spec).as_slice() {
            [] => Ok(()),
            // Upstream names no kind here: its internal objects have none.
            errors => Err(ApiError::invalid("authorization.k8s.io", "", "", errors)),
        },
    }
}

fn review_of(group: &str, kind: &str, metadata: Value, rest: [(&str, Value); 2]) -> Object {
    let mut out = Object::new();
    out.insert("kind".into(), json!(kind));
    out.insert("apiVersion".into(), json!(format!("{group}/v1")));
    out.insert("metadata".into(), metadata);
    out.extend(rest.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.to_owned(), v)));
    out
}

fn self_subject(user: &User, now: String) -> Object {
    let status = json!({"userInfo": user.to_json()});
    let metadata = json!({ "creationTimestamp": now });
    review_of("authentication.k8s.io", "SelfSubjectReview", metadata, [("status", status), ("spec", Value::Null)])
}

async fn token(backend: &Backend, mut review: Object) -> ApiResult<Object> {
    let spec = review.get("spec").cloned().unwrap_or_default();
    let token = spec.get("token").and_then(Value::as_str).unwrap_or_default();
    let audiences = object::strings(spec.get("audiences"));
    let asked = (!audiences.is_empty()).then_some(audiences.as_slice());
    // Upstream parses the token like a header, in which a blank ends it.
    let token = token.split(' ').next().unwrap_or_default();
    let status = match backend.auth.user_of_token(backend, token, asked).await {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user.to_json(), "audiences": audiences})
        }
        Err(why) if why == tokens::UNKNOWN => json!({"user": {}, "error": why}),
        Err(why) => json!({"user": {}, "error": format!("[{}, {why}]", tokens::UNKNOWN)}),
    };
    review.insert("spec".into(), spec);
    review.insert("status".into(), status);
    Ok(review)
}

fn self_rules(backend: &Backend, user: &User, review: &Object) -> Object {
    let ns = review.get("spec").and_then(|s| s.get("namespace")).and_then(Value::as_str).unwrap_or_default();
    let mut rules = Vec::new();
    if user.is_in(crate::user::MASTERS) {
        let star = || vec!["*".to_owned()];
        rules.push(Rule { verbs: star(), api_groups: star(), resources: star(), ..Rule::default() });
        rules.push(Rule { verbs: star(), non_resource_urls: star(), ..Rule::default() });
    }
    let (found, errors) = backend.auth.index.rules_for(user, ns);
    rules.extend(found);
    let resources: Vec<&Rule> = rules.iter().filter(|r| !r.resources.is_empty()).collect();
    let paths: Vec<Value> = rules
        .iter()
        .filter(|r| !r.non_resource_urls.is_empty())
        .map(|r| json!({"verbs": r.verbs, "nonResourceURLs": r.non_resource_urls}))
        .collect();
    let resources: Vec<Value> = resources
        .into_iter()
        .map(|r| rules::to_json(&[Rule { non_resource_urls: Vec::new(), ..r.clone() }])[0].take())
        .collect();
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if !errors.is_empty() {
        status["evaluationError"] = json!(errors);
    }
    let spec = ("spec", json!({}));
    review_of("authorization.k8s.io", "SelfSubjectRulesReview", json!({}), [spec, ("status", status)])
}

fn access(backend: &Backend, request: &Request, kind: &str, mut review: Object) -> Object {
    let spec = review.get("spec").cloned().unwrap_or_else(|| json!({}));
    let user = if kind == "SelfSubjectAccessReview" { request.user.clone() } else { user_of(&spec) };
    let asked = attributes(&spec);
    let decision = backend.auth.decide(&user, &asked);
    let mut status = Map::new();
    status.insert("allowed".into(), json!(decision.allowed));
    if !decision.reason.is_empty() {
        status.insert("reason".into(), json!(decision.reason));
    }
    if let Some(error) = selector_errors(&spec) {
        status.insert("evaluationError".into(), json!(error));
    }
    review.insert("spec".into(), spec);
    review.insert("status".into(), Value::Object(status));
    review
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn user_of(spec: &Value) -> User {
    let extra = spec.get("extra").and_then(Value::as_object).into_iter().flatten();
    User {
        name: text(spec, "user"),
        uid: text(spec, "uid"),
        groups: object::strings(spec.get("groups")),
        extra: extra.map(|(k, v)| (k.clone(), object::strings(Some(v)))).collect(),
    }
}

fn attributes(spec: &Value) -> Attributes {
    match (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")) {
        (Some(asked), _) => Attributes {
            ns: text(asked, "namespace"),
            name: text(asked, "name"),
            version: Some(text(asked, "version")).filter(|v| !v.is_empty()).unwrap_or_else(|| "*".to_owned()),
            ..Attributes::of(
                &text(asked, "verb"),
                &text(asked, "group"),
                &text(asked, "resource"),
                &text(asked, "subresource"),
            )
        },
        (None, asked) => {
            let asked = asked.cloned().unwrap_or_default();
            Attributes { verb: text(&asked, "verb"), path: text(&asked, "path"), ..Attributes::default() }
        }
    }
}

fn validate(kind: &str, review: &Object, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    // Values are printed like the internal types, which have no JSON names.
    let printed = |v: &Value| json!({"Path": text(v, "path"), "Verb": text(v, "verb")});
    if let (Some(_), Some(other)) = (resource, other) {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", &printed(other), detail));
    }
    if resource.is_none() && other.is_none() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, detail));
    }
    let self_review = kind == "SelfSubjectAccessReview";
    if !self_review && text(spec, "user").is_empty() && object::strings(spec.get("groups")).is_empty() {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid("spec.user", &json!(""), detail));
    }
    if let Some(resource) = resource {
        selectors(resource, &mut errors);
    }
    let local = kind == "LocalSubjectAccessReview";
    let mut meta = object::metadata(review).clone();
    meta.shift_remove("managedFields");
    if local {
        meta.shift_remove("namespace");
    }
    if !meta.is_empty() {
        let detail = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", &json!(object::metadata(review)), detail));
    }
    if local {
        let ns = resource.map(|r| text(r, "namespace"));
        if let Some(ns) = ns.filter(|ns| *ns != object::meta_str(review, "namespace")) {
            let field = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(field, &json!(ns), "must match metadata.namespace"));
        }
        if let Some(other) = other {
            let detail = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", &printed(other), detail));
        }
    }
    errors
}

/// A selector must have either text or requirements.
fn selectors(resource: &Value, errors: &mut Vec<FieldError>) {
    for key in ["fieldSelector", "labelSelector"] {
        let Some(given) = resource.get(key) else { continue };
        let path = format!("spec.resourceAttributes.{key}");
        let raw = text(given, "rawSelector");
        let requirements = list(given, "requirements");
        if !raw.is_empty() && !requirements.is_empty() {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), &json!(raw), detail));
        }
        if raw.is_empty() && requirements.is_empty() {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), detail));
        }
        for (at, requirement) in requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{at}]");
            // Newer clients may know more operators.
            let lenient = Lenient { operators: true, ..Lenient::default() };
            if key == "labelSelector" {
                selector::requirement(requirement, &path, lenient, errors);
                continue;
            }
            if text(requirement, "key").is_empty() {
                errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
            }
            selector::operator(requirement, &path, lenient, errors);
        }
    }
}

/// Rights here do not depend on selectors, but unreadable selectors are still reported.
fn selector_errors(spec: &Value) -> Option<String> {
    let resource = spec.get("resourceAttributes")?;
    let mut messages = Vec::new();
    for key in ["fieldSelector", "labelSelector"] {
        let Some(given) = resource.get(key) else { continue };
        let (raw, requirements) = (text(given, "rawSelector"), list(given, "requirements"));
        let (all, readable) = match key {
            _ if raw.is_empty() => (requirements.len(), requirements.iter().filter(|r| understood(key, r)).count()),
            "labelSelector" => (1, usize::from(Selector::labels_are_readable(&raw))),
            _ => (1, usize::from(raw.split(',').all(|term| term.is_empty() || term.contains('=')))),
        };
        if readable < all {
            let part = if readable > 0 { "partially " } else { "" };
            messages.push(format!("spec.resourceAttributes.{key} {part}ignored due to parse error"));
        }
    }
    (!messages.is_empty()).then(|| messages.join("; "))
}

/// Whether a requirement is usable: field requirements compare with a single value.
fn understood(key: &str, requirement: &Value) -> bool {
    match text(requirement, "operator").as_str() {
        "In" | "NotIn" => key == "labelSelector" || list(requirement, "values").len() == 1,
        "Exists" | "DoesNotExist" => key == "labelSelector",
        _ => false,
    }
}
