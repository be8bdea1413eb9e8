//! Where a webhook is: `clientConfig` of admission and conversion webhooks.

use serde_json::{Value, json};

use super::text;
use crate::status::FieldError;

/// Checks it: a URL or a Service.
pub fn check(config: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match (config.get("url").and_then(Value::as_str), config.get("service")) {
        (Some(url), None) => self::url(url, &format!("{path}.url"), errors),
        (None, Some(service)) => self::service(service, &format!("{path}.service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn url(url: &str, path: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut invalid = |value: &str, detail: String| errors.push(FieldError::invalid(path, &json!(value), detail));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
    if scheme != "https" {
        invalid(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        invalid(host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        invalid(user, "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        invalid(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        invalid(query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn service(service: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["name", "namespace"] {
        if text(service, key).is_empty() {
            errors.push(FieldError::required(format!("{path}.{key}"), ""));
        }
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64)
        && !(1..=65_535).contains(&port)
    {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{path}.port"), &json!(port), detail));
    }
    let given = text(service, "path");
    let path = format!("{path}.path");
    let mut invalid = |detail: String| errors.push(FieldError::invalid(&path, &json!(given), detail));
    if given.is_empty() || given == "/" {
        return;
    }
    if given == "//" {
        invalid("segment[0] may not be empty".to_owned());
        return;
    }
    if !given.starts_with('/') {
        invalid("must start with a '/'".to_owned());
    }
    let mut steps = given.chars();
    steps.next();
    let steps = steps.as_str();
    for (at, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            invalid(format!("segment[{at}] may not be empty"));
        } else {
            names::dns_1123_subdomain(step).into_iter().for_each(|why| invalid(format!("segment[{at}]: {why}")));
        }
    }
}
