//! Versions of one kind: an object of one in the form of another.

use serde_json::{Value, json};

use crate::object::Object;
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult};
use crate::verbs::Backend;

impl Backend {
    /// An object of `from` in the form of `to`, which holds the same objects.
    pub async fn in_version(&self, object: Object, from: &Resource, to: &Resource) -> ApiResult<Object> {
        if from.version == to.version && from.group == to.group {
            return Ok(object);
        }
        let mut object = object;
        if let Flavor::Builtin(_) = to.flavor {
            let version = object.get("metadata").and_then(|m| m.get("resourceVersion")).cloned();
            object = to.load(0, &from.tail(object)).map_err(ApiError::internal)?;
            let meta = crate::object::metadata_mut(&mut object);
            meta.shift_remove("resourceVersion");
            if let Some(version) = version {
                meta.insert("resourceVersion".into(), version);
            }
        }
        object.insert("apiVersion".into(), json!(to.api_version()));
        object.insert("kind".into(), Value::String(to.kind.clone()));
        Ok(object)
    }
}
