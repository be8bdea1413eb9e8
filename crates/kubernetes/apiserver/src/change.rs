//! A change on its way from the request to the store.

use std::sync::{Mutex, PoisonError};

use crate::audit::Annotations;
use crate::object::Object;
use crate::route::Verb;
use crate::user::User;

/// The user and options of a change, which accompany an object from decoding to the store.
#[derive(Debug)]
pub struct Change {
    /// The requesting user.
    pub user: User,
    /// Field manager (`metadata.managedFields`).
    pub manager: String,
    /// The verb of the request.
    pub verb: Verb,
    /// Subresource, empty for the object itself.
    pub sub: String,
    /// Whether this is a dry run.
    pub dry: bool,
    /// Whether the object already has its field owners: server-side apply sets them while merging.
    pub applied: bool,
    /// The options of the request (`CreateOptions` and so on) for admission, without kind.
    pub options: Object,
    /// Whether admission has already reviewed another form of the object.
    pub admitted: bool,
    /// Annotations for the audit log.
    pub audit: Annotations,
    /// Warnings for the client, in order.
    pub warnings: Mutex<Vec<String>>,
}

impl Change {
    /// A change by this user with this field manager.
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

    /// A change by one of the server's own controllers, named as upstream's.
    pub fn by_controller(verb: Verb, controller: &str) -> Self {
        Self::by(User::controller(controller), "kube-controller-manager".to_owned(), verb)
    }

    /// Adds a warning for the client.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// Adds an audit annotation. The first value of a key is kept.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.audit.add(key.into(), value.into());
    }

    /// Takes the warnings collected so far.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
