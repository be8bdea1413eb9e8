//! Which provisioners a server has, and which one a host gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Provisioner;

/// A provisioner was asked for that the server does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("choose a provisioner: there is no «{wanted}»; this server has {known}")]
pub struct RegistryError {
    /// What was asked for.
    pub wanted: String,
    /// What there is.
    pub known: String,
}

/// The provisioners of a server.
#[derive(Clone)]
pub struct Registry {
    all: BTreeMap<String, Arc<dyn Provisioner>>,
    default: Arc<dyn Provisioner>,
}

impl Registry {
    /// A registry with its default.
    #[must_use]
    pub fn new(default: Arc<dyn Provisioner>) -> Self {
        let all = BTreeMap::from([(default.name().to_owned(), Arc::clone(&default))]);
        Self { all, default }
    }

    /// Adds one.
    #[must_use]
    pub fn with(mut self, other: Arc<dyn Provisioner>) -> Self {
        self.all.insert(other.name().to_owned(), other);
        self
    }

    /// The one of that name, the default without a name.
    ///
    /// # Errors
    /// [`RegistryError`] when there is none of that name.
    pub fn choose(&self, name: Option<&str>) -> Result<&Arc<dyn Provisioner>, RegistryError> {
        match name {
            None => Ok(&self.default),
            Some(name) => self.all.get(name).ok_or_else(|| RegistryError {
                wanted: name.chars().take(64).collect(),
                known: self.all.keys().cloned().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provisioner>> {
        self.all.values()
    }
}
