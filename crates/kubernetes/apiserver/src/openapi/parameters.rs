//! Parameters of operations: what a path or a query may hold.

use std::borrow::Cow;

/// One parameter.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `query` or `path`.
    pub place: &'static str,
    /// `string`, `integer` or `boolean`.
    pub ty: &'static str,
    /// What the name of the shared parameter ends with in 2.0; empty for one that stands in its place. kube-apiserver
    /// makes it from its text; as nothing but a name it is the same here.
    pub shared: &'static str,
    /// Text for people.
    pub text: Cow<'static, str>,
}

const fn query(name: &'static str, ty: &'static str, shared: &'static str, text: &'static str) -> Parameter {
    Parameter { name, place: "query", ty, shared, text: Cow::Borrowed(text) }
}

const PRETTY: Parameter = query(
    "pretty",
    "string",
    "tJGM1-ng",
    "true: JSON comes with lines and indents, for people; curl, wget and browsers get it so unless this says false.",
);
const NAMESPACE: Parameter = Parameter {
    name: "namespace",
    place: "path",
    ty: "string",
    shared: "vgWSWtn3",
    text: Cow::Borrowed("Namespace of the objects."),
};
const DRY_RUN: Parameter =
    query("dryRun", "string", "", "All: the request goes through every stage, but nothing is stored.");
const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "Qy4HdaTW",
    "Who makes the change, for managedFields: at most 128 printable characters. Without it, the start of the user agent.",
);
const APPLY_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "7c6nTn1T",
    "Who makes the change, for managedFields: at most 128 printable characters. An apply patch needs it; for other patches \
     the start of the user agent stands in.",
);
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "",
    "What becomes of a body with unknown or repeated fields: Ignore drops them in silence, Warn (the default) drops them \
     with a warning for each, Strict refuses the request.",
);
const FORCE: Parameter = query(
    "force",
    "boolean",
    "tOGGb0Yi",
    "For an apply patch: takes over fields that other managers have set, where it would be a conflict. Not allowed with \
     other patches.",
);
const RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "string",
    "5WAnf1kx",
    "What the answer must be at least as new as, or exactly from, as resourceVersionMatch says. Without it the newest \
     state is read.",
);
const CONTINUE: Parameter = query(
    "continue",
    "string",
    "QfD61s0i",
    "Token of the answer before, for the next part of the list. All else in the query must be as it was. When a token has \
     expired, the answer is 410 with a token to go on from the newest state.",
);
const FIELD_SELECTOR: Parameter =
    query("fieldSelector", "string", "xIcQKXFG", "Only objects whose fields have these values.");
const LABEL_SELECTOR: Parameter = query("labelSelector", "string", "5Zw57w4C", "Only objects with such labels.");
const LIMIT: Parameter = query(
    "limit",
    "integer",
    "1NfNmdNH",
    "How many objects one answer has at most. If there are more, the list's metadata has a token for `continue`; all parts \
     show one and the same state.",
);
const VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "string",
    "t8XhRHeC",
    "How resourceVersion is meant for a list: NotOlderThan or Exact.",
);
const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "rLXlEK_k",
    "For a watch: begins with an event for each object that is there, then a bookmark with the annotation \
     k8s.io/initial-events-end. Needs resourceVersionMatch=NotOlderThan.",
);
const TIMEOUT: Parameter = query("timeoutSeconds", "integer", "yvYezaOC", "Ends a list or a watch after this time.");
const BOOKMARKS: Parameter = query(
    "allowWatchBookmarks",
    "boolean",
    "HC2hJt-J",
    "For a watch: also sends events of the type BOOKMARK, which hold nothing but a resourceVersion to go on from.",
);
const WATCH: Parameter =
    query("watch", "boolean", "XNNPZGbK", "Follows changes from resourceVersion on, as a stream of events.");
const GRACE: Parameter = query(
    "gracePeriodSeconds",
    "integer",
    "-K5HaBOS",
    "Seconds until the object goes away; 0 is at once. None of the kinds served here waits.",
);
const UNSAFE: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "QbNkfIqj",
    "Deletes an object that can no longer be read, whatever hangs on it. Not supported here.",
);
const ORPHAN: Parameter = query(
    "orphanDependents",
    "boolean",
    "uRB25kX5",
    "Deprecated form of propagationPolicy: true is Orphan. Only one of both may be given.",
);
const PROPAGATION: Parameter = query(
    "propagationPolicy",
    "string",
    "6jk3prlO",
    "What becomes of objects that this one owns: Orphan leaves them, Background deletes them afterwards, Foreground deletes \
     them first.",
);

/// What every request understands.
pub const EVERYWHERE: &[Parameter] = &[PRETTY];
/// Of requests within a namespace.
pub const NAMESPACED: &[Parameter] = &[NAMESPACE];
/// Of a read of one custom object.
pub const GET: &[Parameter] = &[RESOURCE_VERSION];
/// Of a list or watch.
pub const LIST: &[Parameter] = &[
    BOOKMARKS,
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT,
    WATCH,
];
/// Of what selects objects, but does not watch them.
pub const SELECT: &[Parameter] =
    &[CONTINUE, FIELD_SELECTOR, LABEL_SELECTOR, LIMIT, RESOURCE_VERSION, VERSION_MATCH, SEND_INITIAL_EVENTS, TIMEOUT];
/// Of a create or update.
pub const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
/// Of a patch.
pub const PATCH: &[Parameter] = &[DRY_RUN, APPLY_MANAGER, FIELD_VALIDATION, FORCE];
/// Of a deletion.
pub const DELETE: &[Parameter] = &[DRY_RUN, GRACE, UNSAFE, ORPHAN, PROPAGATION];

/// The object's name in a path.
pub fn name_of(kind: &str) -> Parameter {
    let text = Cow::Owned(format!("Name of the {kind}."));
    Parameter { name: "name", place: "path", ty: "string", shared: "", text }
}

impl Parameter {
    /// Whether both are for the same thing.
    pub fn same(&self, other: &Self) -> bool {
        self.name == other.name && self.place == other.place
    }
}
