//! What is said of a HostClass before it is stored.

use std::collections::BTreeMap;

use api::metal3::{detection_fault, label};
use api::metamorph::HostClass;
use serde_json::Value;

use super::class::compile;
use super::vars::detection;

/// What is refused, and what is warned of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// Each a sentence.
    pub denials: Vec<String>,
    /// Each a sentence.
    pub warnings: Vec<String>,
}

/// Reviews a new HostClass, or the new state of one. One whose rules and result stay as they are is let be, whatever they are, as one that is being deleted.
#[must_use]
pub fn review(new: &Value, old: Option<&Value>) -> Review {
    let mut review = Review::default();
    if !new["metadata"]["deletionTimestamp"].is_null() {
        return review;
    }
    let labels = |object: &Value| -> Option<BTreeMap<String, String>> {
        serde_json::from_value(object["metadata"]["labels"].clone()).ok()
    };
    let word = |object: &Value| object["metadata"]["labels"][label::ERROR_DETECT].clone();
    if old.is_none_or(|old| word(old) != word(new)) {
        review.warnings.extend(detection_fault(labels(new).as_ref()));
    }
    let detects = |object: &Value| detection(labels(object).as_ref());
    if old.is_some_and(|old| old["spec"] == new["spec"] && detects(old) == detects(new)) {
        return review;
    }
    let class: HostClass = match serde_json::from_value(new.clone()) {
        Ok(class) => class,
        Err(error) => {
            review.denials.push(format!("read the HostClass: {error}"));
            return review;
        }
    };
    if let Err(faults) = compile(&class.spec, detects(new)) {
        review.denials.extend(faults.into_iter().map(|fault| fault.message));
        return review;
    }
    let result = &class.spec.result;
    if result.labels.is_empty() && result.flavor.is_none() && result.role.is_none() {
        review
            .warnings
            .push("spec.result gives hosts no label: only the status tells which hosts are meant".to_owned());
    }
    review
}
