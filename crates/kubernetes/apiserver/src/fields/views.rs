//! Objects in other versions of their kind.
//!
//! Who owns what is settled without waiting for anybody. Where that takes an object in a version that only a webhook can
//! bring it to, it fails and leaves a note of what it needs: whoever settles has the webhook asked
//! ([`crate::verbs::Backend::learn`]), and begins anew.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::object::Object;
use crate::resource::Resource;
use crate::versions;

/// Conversions for one change: a few for each version that owners have written in.
const MAX_KNOWN: usize = 128;

/// A conversion.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// What is to be converted.
    pub object: Object,
    /// The version that it is wanted in, with its group.
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
    /// Whether a webhook converts.
    asks: bool,
}

impl Views {
    /// For kinds whose objects no webhook converts.
    pub fn none() -> &'static Self {
        static NONE: Views = Views { known: Mutex::new(Known { converted: Vec::new(), need: None }), asks: false };
        &NONE
    }

    /// For an object of a resource.
    pub fn of(resource: &Resource) -> Self {
        Self { known: Mutex::default(), asks: versions::asks(resource) }
    }

    /// Whether a webhook converts: then an outcome is void as long as there is something that it [needs](Self::need).
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// An object in another version. The error is the webhook's, or void.
    pub fn convert(&self, object: &Object, to: &str) -> Result<Object, String> {
        // Nobody is asked about an object that says nothing but its kind.
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

    /// What is not known yet, if anything was asked for that is not.
    pub fn need(&self) -> Option<Need> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).need.take()
    }

    /// Makes an outcome known; false if there are too many.
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
