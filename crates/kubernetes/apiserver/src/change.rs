//! A change on its way from the request to the store.

use std::sync::{Mutex, PoisonError};

use crate::audit::Annotations;
use crate::auth::User;
use crate::object::Object;
use crate::route::Verb;

/// Who changes something and how: goes with an object from its decoding to the store, for all that has a say on the way.
#[derive(Debug)]
pub struct Change {
    /// Who asks.
    pub user: User,
    /// Name under which the changed fields are owned (`metadata.managedFields`).
    pub manager: String,
    /// What is done.
    pub verb: Verb,
    /// Subresource, empty for the object itself.
    pub sub: String,
    /// Whether nothing shall be stored.
    pub dry: bool,
    /// Whether the object says already who owns its fields: server-side apply does that while it merges.
    pub applied: bool,
    /// The options of the request (`CreateOptions` and so on) as admission shows them, without kind.
    pub options: Object,
    /// Whether admission has spoken already, on another form of the object.
    pub admitted: bool,
    /// What the audit log shall say besides.
    pub audit: Annotations,
    /// What the client is told, in order.
    pub warnings: Mutex<Vec<String>>,
}

impl Change {
    /// A change of an object by this user, who owns the changed fields under this name.
    pub fn by(user: User, manager: String, verb: Verb) -> Self {
        Self {
            user,
            manager,
            verb,
            sub: String::new(),
            dry: false,
            applied: false,
            options: Object::new(),
            admitted: false,
            audit: Annotations::default(),
            warnings: Mutex::default(),
        }
    }

    /// A change that one of the server's own controllers makes, under the name that the controller has upstream.
    pub fn own(verb: Verb, controller: &str) -> Self {
        Self::by(User::controller(controller), "kube-controller-manager".to_owned(), verb)
    }

    /// Tells the client something that does not stop the change.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// Tells the audit log something. What was told first under a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.audit.add(key.into(), value.into());
    }

    /// What was told, once.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
