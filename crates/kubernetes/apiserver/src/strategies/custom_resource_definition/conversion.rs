//! What must hold for `spec.conversion` of a definition.

use serde_json::{Value, json};

use crate::checks::client_config;
use crate::object::strings;
use crate::status::FieldError;

/// Checks what a definition says about conversion.
pub fn validate(spec: &Value, errors: &mut Vec<FieldError>) {
    let at = |key: &str| format!("spec.conversion.{key}");
    let client = spec.pointer("/conversion/webhook/clientConfig");
    match spec.pointer("/conversion/strategy").and_then(Value::as_str).unwrap_or_default() {
        "None" => {}
        "Webhook" => {
            match client {
                Some(client) => client_config::check(client, &at("webhookClientConfig"), errors),
                None => {
                    let detail = "required when strategy is set to Webhook";
                    errors.push(FieldError::required(at("webhookClientConfig"), detail));
                }
            }
            let reviews = strings(spec.pointer("/conversion/webhook/conversionReviewVersions"));
            if reviews.is_empty() {
                errors.push(FieldError::required(at("conversionReviewVersions"), ""));
            } else if !reviews.iter().any(|v| v == "v1" || v == "v1beta1") {
                let detail = "must include at least one of v1, v1beta1";
                errors.push(FieldError::invalid(at("conversionReviewVersions"), &json!(reviews), detail));
            }
        }
        "" => errors.push(FieldError::required(at("strategy"), "")),
        other => errors.push(FieldError::not_supported(at("strategy"), &json!(other), &["None", "Webhook"])),
    }
}
