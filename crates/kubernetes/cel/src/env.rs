//! The environment: the names that an expression may use.

use std::collections::{BTreeMap, HashMap};

use crate::schema::decl::DeclType;
use crate::types::Type;

/// The variables and object types that expressions may use. The functions are always Kubernetes' own.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: HashMap<String, Type>,
    objects: HashMap<String, BTreeMap<String, Type>>,
}

impl Env {
    /// An environment with functions only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable. Its name may be dotted, as `authorizer.requestResource` is.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.insert(name.to_owned(), ty);
        self
    }

    /// Declares an object type by its fields; refer to it by [`Type::object`].
    #[must_use]
    pub fn object(mut self, name: &str, fields: BTreeMap<String, Type>) -> Self {
        self.objects.insert(name.to_owned(), fields);
        self
    }

    /// Adds a field to an object type, and declares the type if necessary.
    pub fn add_field(&mut self, object: &str, field: &str, ty: Type) {
        self.objects.entry(object.to_owned()).or_default().insert(field.to_owned(), ty);
    }

    /// Declares a variable of a type made from a schema, and the object types within it.
    #[must_use]
    pub fn declared(mut self, name: &str, ty: &DeclType) -> Self {
        self.add_objects(ty);
        self.variable(name, ty.cel_type())
    }

    /// Adds the object types within `ty`.
    pub(crate) fn add_objects(&mut self, ty: &DeclType) {
        if let Some((name, fields)) = ty.object_parts() {
            if self.objects.contains_key(name) {
                return;
            }
            let types = fields.iter().map(|(k, f)| (k.clone(), f.cel_type())).collect();
            self.objects.insert(name.to_owned(), types);
        }
        ty.children().for_each(|child| self.add_objects(child));
    }

    pub(crate) fn variable_type(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    pub(crate) fn fields(&self, object: &str) -> Option<&BTreeMap<String, Type>> {
        self.objects.get(object)
    }
}
