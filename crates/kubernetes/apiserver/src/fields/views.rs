//! Objects in other versions of their kind.
//!
//! Ownership is computed without waiting. If it needs an object in a version that only a webhook can produce, it
//! fails and records the needed conversion; the caller then calls the webhook ([`crate::verbs::Backend::learn`]) and
//! starts again.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::object::Object;
use crate::resource::Resource;
use crate::versions;

/// Most conversions for one change: a few for each version that field owners refer to.
const MAX_KNOWN: usize = 128;

/// A conversion.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// The object to convert.
    pub object: Object,
    /// The wanted version, with its group.
    pub to: String,
}

#[derive(Debug, Default)]
struct Known {
    converted: Vec<(Need, Result<Object, String>)>,
    need: Option<Need>,
}

/// The conversions of one change.
#[derive(Debug)]
pub struct Views {
    known: Mutex<Known>,
    /// Whether a webhook converts the kind.
    asks: bool,
}

impl Views {
    /// For kinds without a conversion webhook.
    pub fn none() -> &'static Self {
        static NONE: Views = Views { known: Mutex::new(Known { converted: Vec::new(), need: None }), asks: false };
        &NONE
    }

    /// For an object of a resource.
    pub fn of(resource: &Resource) -> Self {
        Self { known: Mutex::default(), asks: versions::asks(resource) }
    }

    /// Whether a webhook converts the kind. Then an outcome is void while a conversion is [needed](Self::need).
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// Converts an object to another version. The error is the webhook's, or void while the conversion is needed.
    pub fn convert(&self, object: &Object, to: &str) -> Result<Object, String> {
        // An object with nothing but its kind needs no webhook.
        if !self.asks || object.len() == 2 && object.contains_key("kind") && object.contains_key("apiVersion") {
            let mut object = object.clone();
            object.insert("apiVersion".into(), Value::from(to));
            return Ok(object);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = known.converted.iter().find(|(n, _)| n.to == to && n.object == *object) {
            return outcome.clone();
        }
        known.need.get_or_insert_with(|| Need { object: object.clone(), to: to.to_owned() });
        Err(format!("not yet known in {to}"))
    }

    /// Takes the recorded conversion, if one is needed.
    pub fn need(&self) -> Option<Need> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).need.take()
    }

    /// Records the outcome of a conversion; false if there are too many.
    pub fn learn(&self, need: Need, outcome: Result<Object, String>) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.converted.push((need, outcome));
        known.converted.len() <= MAX_KNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Object {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn what_is_not_known_is_needed_once() {
        let views = Views { known: Mutex::default(), asks: true };
        let first = object(json!({"apiVersion": "g/v1", "kind": "K", "a": 1}));
        let second = object(json!({"apiVersion": "g/v2", "kind": "K", "b": 1}));
        assert!(views.convert(&first, "g/v2").is_err());
        assert!(views.convert(&second, "g/v1").is_err());
        let need = views.need().unwrap();
        assert_eq!((&need.object, need.to.as_str()), (&first, "g/v2"));
        assert!(views.learn(need, Ok(second.clone())));
        assert_eq!(views.convert(&first, "g/v2"), Ok(second.clone()));
        assert_eq!(views.need(), None);
        assert!(views.convert(&second, "g/v1").is_err());
        assert!(views.learn(views.need().unwrap(), Err("no".to_owned())));
        assert_eq!(views.convert(&second, "g/v1"), Err("no".to_owned()));
        let empty = object(json!({"apiVersion": "g/v1", "kind": "K"}));
        assert_eq!(views.convert(&empty, "g/v2"), Ok(object(json!({"apiVersion": "g/v2", "kind": "K"}))));
    }
}
