//! Definitions that the program that embeds the server brings with it.

use serde_json::{Value, json};

use crate::change::Change;
use crate::crd;
use crate::decode;
use crate::object::{self, Object};
use crate::route::Verb;
use crate::status::{ApiError, StatusReason};
use crate::verbs::{Backend, prepare};

/// An object could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The text is no YAML or JSON.
    #[error("the manifest cannot be read: {0}")]
    Parse(String),
    /// The manifest holds something else than definitions.
    #[error("{kind} {name} is no CustomResourceDefinition")]
    Kind {
        /// Kind found.
        kind: String,
        /// Name found.
        name: String,
    },
    /// The server refused it.
    #[error("{name} was refused: {message}")]
    Refused {
        /// Name of the definition.
        name: String,
        /// The server's text.
        message: String,
    },
    /// The names are taken by another definition.
    #[error("{name} is not established: its names are in use")]
    NotEstablished {
        /// Name of the definition.
        name: String,
    },
}

impl Backend {
    /// Creates or updates the CustomResourceDefinitions of a YAML stream. When this returns they are served.
    pub async fn install_all(&self, yaml: &str) -> Result<(), ApplyError> {
        for value in gojson::from_yaml_stream(yaml).map_err(|why| ApplyError::Parse(why.to_string()))? {
            self.install(value).await?;
        }
        Ok(())
    }

    /// Creates or updates one CustomResourceDefinition. When this returns it is served.
    pub async fn install(&self, definition: Value) -> Result<(), ApplyError> {
        let Value::Object(mut crd) = definition else {
            return Err(ApplyError::Parse("a definition is an object".to_owned()));
        };
        let name = object::name(&crd).to_owned();
        let kind = crd.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind != "CustomResourceDefinition" {
            return Err(ApplyError::Kind { kind, name });
        }
        let refused = |e: ApiError| ApplyError::Refused { name: name.clone(), message: e.message };
        let catalog = self.registry.catalog();
        let resource = catalog
            .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .ok_or_else(|| refused(ApiError::unknown_path()))?;
        decode::decode(resource, &mut crd, &mut Vec::new()).map_err(|unfit| refused(unfit.into()))?;
        prepare::fit_namespace(resource, &mut crd, "").map_err(refused)?;
        object::metadata_mut(&mut crd).shift_remove("resourceVersion");
        match self.insert(&Change::by_controller(Verb::Create, "definitions"), resource, crd.clone(), "").await {
            Err(error) if error.reason == StatusReason::AlreadyExists => {
                let make = |before: &Object| Ok(with_spec(before, &crd));
                let change = Change::by_controller(Verb::Update, "definitions");
                self.change(&change, resource, "", &name, make).await.map_err(refused)?
            }
            other => other.map_err(refused)?,
        };
        let found = self.stored(&resource.key("", &name)).await.map_err(refused)?;
        let stored = found.ok_or_else(|| ApplyError::NotEstablished { name: name.clone() })?;
        let now = self.load(resource, &stored).map_err(refused)?;
        if crd::established(&now) { Ok(()) } else { Err(ApplyError::NotEstablished { name }) }
    }
}

/// The present object with the wanted one's spec, labels and annotations.
fn with_spec(before: &Object, wanted: &Object) -> Object {
    let mut next = before.clone();
    if let Some(spec) = wanted.get("spec") {
        next.insert("spec".into(), spec.clone());
    }
    for key in ["labels", "annotations"] {
        if let Some(Value::Object(added)) = object::metadata(wanted).get(key) {
            let target = object::child(object::metadata_mut(&mut next), key);
            for (key, value) in added {
                target.insert(key.clone(), json!(value));
            }
        }
    }
    next
}
