//! Which provisioners a server has, and which one a resource gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Named, Provisioner};

/// A provisioner was asked for that the server does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("choose a provisioner: there is no \"{wanted}\"; this server has {known}")]
pub struct RegistryError {
    /// What was asked for.
    pub wanted: String,
    /// What there is.
    pub known: String,
}

/// The provisioners of a server, for one kind of resource.
pub struct Registry<P: ?Sized = dyn Provisioner> {
    all: BTreeMap<String, Arc<P>>,
    default: Arc<P>,
}

impl<P: ?Sized> Clone for Registry<P> {
    fn clone(&self) -> Self {
        Self { all: self.all.clone(), default: Arc::clone(&self.default) }
    }
}

impl<P: Named + ?Sized> Registry<P> {
    /// A registry with its default.
    #[must_use]
    pub fn new(default: Arc<P>) -> Self {
        let all = BTreeMap::from([(default.name().to_owned(), Arc::clone(&default))]);
        Self { all, default }
    }

    /// Adds one.
    #[must_use]
    pub fn with(mut self, other: Arc<P>) -> Self {
        self.all.insert(other.name().to_owned(), other);
        self
    }

    /// The one of that name, the default without a name.
    ///
    /// # Errors
    /// [`RegistryError`] when there is none of that name.
    pub fn choose(&self, name: Option<&str>) -> Result<&Arc<P>, RegistryError> {
        match name {
            None => Ok(&self.default),
            Some(name) => self.all.get(name).ok_or_else(|| RegistryError {
                wanted: name.chars().take(64).collect(),
                known: self.names().join(", "),
            }),
        }
    }

    /// The one that resources get which name none.
    #[must_use]
    pub fn default(&self) -> &Arc<P> {
        &self.default
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.all.keys().cloned().collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<P>> {
        self.all.values()
    }
}
