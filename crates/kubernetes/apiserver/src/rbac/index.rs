//! Roles, bindings and service accounts in memory, and the rights that follow from them. Every committed write of
//! these kinds is noted before its client is answered, so authorization never reads the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use serde_json::Value;

use super::attributes::Attributes;
use super::rules::{self, Rule, quoted};
use crate::object::{self, Object};
use crate::status::ApiError;
use crate::user::{MASTERS, User, account_name};

/// Group of the RBAC kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// Number of deletions after which old marks are dropped.
const MARKS: usize = 4096;
/// How many revisions a mark is kept at least: no overtaken write is noted later.
const MARK_AGE: u64 = 100_000;

/// Storage names of the kinds kept here.
pub const KEPT: [&str; 5] = [
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "serviceaccounts",
];

/// Namespace and name; the namespace of cluster-scoped objects is empty.
type Place = (String, String);

/// The outcome of an authorization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The binding that allows it, or errors during the evaluation; may be empty.
    pub reason: String,
}

/// A binding as seen from one of its subjects.
#[derive(Debug, Clone)]
struct Grant {
    cluster_role: bool,
    role: String,
    subject: String,
}

/// A subject in a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    User(String),
    Group(String),
}

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its UID.
    pub uid: String,
    /// Time of its deletion, as in its metadata.
    pub deleting: Option<String>,
}

#[derive(Default)]
struct Inner {
    roles: HashMap<Place, Arc<Vec<Rule>>>,
    /// By namespace of the binding, then by subject, then by name of the binding.
    grants: HashMap<String, HashMap<Who, BTreeMap<String, Grant>>>,
    /// Subjects of each binding.
    subjects: HashMap<Place, Vec<Who>>,
    accounts: HashMap<Place, Account>,
    /// Revision of each known object; deleted ones are kept for a while.
    seen: HashMap<(usize, Place), u64>,
    /// Number of deletions since old marks were dropped.
    marks: usize,
}

/// The index, see the module.
#[derive(Default)]
pub struct Index {
    inner: RwLock<Inner>,
}

impl Index {
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a committed write: the object's tail, or `None` if it was deleted. Other kinds and outdated writes are
    /// ignored.
    pub fn see(&self, storage: &str, ns: &str, name: &str, rev: u64, tail: Option<&[u8]>) {
        let Some(kind) = KEPT.iter().position(|k| *k == storage) else { return };
        let object = tail.map(|tail| object::from_tail("", "", rev, tail).unwrap_or_default());
        self.note(kind, ns, name, rev, object.as_ref());
    }

    /// Notes an object that is stored and decoded.
    pub fn see_loaded(&self, storage: &str, ns: &str, name: &str, rev: u64, object: &Object) {
        if let Some(kind) = KEPT.iter().position(|k| *k == storage) {
            self.note(kind, ns, name, rev, Some(object));
        }
    }

    fn note(&self, kind: usize, ns: &str, name: &str, rev: u64, object: Option<&Object>) {
        let place = (ns.to_owned(), name.to_owned());
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let known = inner.seen.insert((kind, place.clone()), rev);
        if let Some(known) = known
            && known > rev
        {
            inner.seen.insert((kind, place), known);
            return;
        }
        match kind {
            0 | 2 => {
                inner.roles.remove(&place);
                if let Some(role) = object {
                    inner.roles.insert(place, Arc::new(rules::rules_of(role)));
                }
            }
            1 | 3 => inner.bind(place, object),
            _ => {
                inner.accounts.remove(&place);
                if let Some(account) = object {
                    inner.accounts.insert(place, account_of(account));
                }
            }
        }
        if object.is_none() {
            inner.forget_marks(rev);
        }
    }

    /// Authorizes a request of the user.
    pub fn decide(&self, user: &User, asked: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let inner = self.read();
        let mut errors = Vec::new();
        for ns in scopes(&asked.ns) {
            for (binding, grant) in inner.granted(user, ns) {
                match inner.rules(ns, grant) {
                    Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                        return Decision { allowed: true, reason: allowed_by(ns, binding, grant) };
                    }
                    Ok(_) => {}
                    Err(error) => errors.push(error),
                }
            }
        }
        let reason = if errors.is_empty() { String::new() } else { format!("RBAC: {}", aggregate(&errors)) };
        Decision { allowed: false, reason }
    }

    /// All rules of the user in a namespace (empty: cluster-wide ones only), and errors during their evaluation.
    pub fn rules_for(&self, user: &User, ns: &str) -> (Vec<Rule>, String) {
        let inner = self.read();
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        for ns in scopes(ns) {
            for (_, grant) in inner.granted(user, ns) {
                match inner.rules(ns, grant) {
                    Ok(rules) => out.extend(rules.iter().cloned()),
                    Err(error) => errors.push(error),
                }
            }
        }
        (out, if errors.is_empty() { String::new() } else { aggregate(&errors) })
    }

    /// The rules of the role of a binding in `ns` (empty for a cluster-wide binding).
    pub fn rules_of_role(&self, ns: &str, kind: &str, name: &str) -> Result<Vec<Rule>, ApiError> {
        let (ns, plural) = if kind == "Role" { (ns, "roles") } else { ("", "clusterroles") };
        let found = self.read().roles.get(&(ns.to_owned(), name.to_owned())).cloned();
        found.map(|rules| rules.to_vec()).ok_or_else(|| ApiError::not_found(GROUP, plural, name))
    }

    /// A service account.
    pub fn account(&self, ns: &str, name: &str) -> Option<Account> {
        self.read().accounts.get(&(ns.to_owned(), name.to_owned())).cloned()
    }
}

impl Inner {
    fn bind(&mut self, place: Place, binding: Option<&Object>) {
        let (ns, name) = &place;
        for who in self.subjects.remove(&place).unwrap_or_default() {
            if let Some(grants) = self.grants.get_mut(ns) {
                if let Some(bindings) = grants.get_mut(&who) {
                    bindings.remove(name);
                    if bindings.is_empty() {
                        grants.remove(&who);
                    }
                }
                if grants.is_empty() {
                    self.grants.remove(ns);
                }
            }
        }
        let Some(binding) = binding else { return };
        let role = binding.get("roleRef").cloned().unwrap_or_default();
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut subjects = Vec::new();
        for subject in binding.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            let (kind, called) = (text(subject, "kind"), text(subject, "name"));
            let (who, printed) = match kind.as_str() {
                "User" => (Who::User(called.clone()), called),
                "Group" => (Who::Group(called.clone()), called),
                "ServiceAccount" => {
                    let namespace = text(subject, "namespace");
                    let namespace = if namespace.is_empty() { ns.clone() } else { namespace };
                    if namespace.is_empty() {
                        continue;
                    }
                    (Who::User(account_name(&namespace, &called)), format!("{called}/{namespace}"))
                }
                _ => continue,
            };
            let grant = Grant {
                cluster_role: text(&role, "kind") == "ClusterRole",
                role: text(&role, "name"),
                subject: format!("{kind} {}", quoted(&printed)),
            };
            let bindings = self.grants.entry(ns.clone()).or_default().entry(who.clone()).or_default();
            bindings.entry(name.clone()).or_insert(grant);
            subjects.push(who);
        }
        self.subjects.insert(place, subjects);
    }

    /// The bindings of one scope for the user, by name.
    fn granted<'a>(&'a self, user: &User, ns: &str) -> BTreeMap<&'a str, &'a Grant> {
        let Some(grants) = self.grants.get(ns) else { return BTreeMap::new() };
        let mut out: BTreeMap<&str, &Grant> = BTreeMap::new();
        let whos = [Who::User(user.name.clone())].into_iter().chain(user.groups.iter().cloned().map(Who::Group));
        for who in whos {
            for (name, grant) in grants.get(&who).into_iter().flatten() {
                out.entry(name).or_insert(grant);
            }
        }
        out
    }

    fn rules(&self, ns: &str, grant: &Grant) -> Result<&[Rule], String> {
        let ns = if grant.cluster_role { "" } else { ns };
        let what = if grant.cluster_role { "clusterrole" } else { "role" };
        let found = self.roles.get(&(ns.to_owned(), grant.role.clone()));
        found.map(|r| r.as_slice()).ok_or_else(|| format!("{what}.{GROUP} {} not found", quoted(&grant.role)))
    }

    fn forget_marks(&mut self, rev: u64) {
        self.marks += 1;
        if self.marks < MARKS {
            return;
        }
        let (roles, subjects, accounts) = (&self.roles, &self.subjects, &self.accounts);
        self.seen.retain(|(kind, place), at| {
            let lives = match kind {
                0 | 2 => roles.contains_key(place),
                1 | 3 => subjects.contains_key(place),
                _ => accounts.contains_key(place),
            };
            lives || *at + MARK_AGE > rev
        });
        self.marks = 0;
    }
}

/// The scopes of bindings that apply in a namespace.
fn scopes(ns: &str) -> impl Iterator<Item = &str> {
    [""].into_iter().chain((!ns.is_empty()).then_some(ns))
}

fn account_of(object: &Object) -> Account {
    let deleting = object::meta_str(object, "deletionTimestamp");
    Account {
        uid: object::meta_str(object, "uid").to_owned(),
        deleting: (!deleting.is_empty()).then(|| deleting.to_owned()),
    }
}

fn allowed_by(ns: &str, binding: &str, grant: &Grant) -> String {
    let kind = if grant.cluster_role { "ClusterRole" } else { "Role" };
    let (what, binding) = match ns {
        "" => ("ClusterRoleBinding", quoted(binding)),
        ns => ("RoleBinding", quoted(&format!("{binding}/{ns}"))),
    };
    format!("RBAC: allowed by {what} {binding} of {kind} {} to {}", quoted(&grant.role), grant.subject)
}

/// Several errors as Go's aggregate prints them, without duplicates.
fn aggregate(errors: &[String]) -> String {
    let mut once: Vec<&str> = Vec::new();
    for error in errors {
        if !once.contains(&error.as_str()) {
            once.push(error);
        }
    }
    if let [one] = once.as_slice() { (*one).to_owned() } else { format!("[{}]", once.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(index: &Index, kind: usize, ns: &str, name: &str, rev: u64, value: Value) {
        let Value::Object(object) = value else { panic!("not an object") };
        index.see(KEPT[kind], ns, name, rev, Some(&object::to_tail(object)));
    }

    fn filled() -> Index {
        let index = Index::default();
        let rules = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        put(&index, 2, "", "reader", 1, rules);
        let to = |kind: &str, name: &str| {
            json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "reader"},
                "subjects": [{"kind": kind, "name": name}]})
        };
        put(&index, 3, "", "all", 2, to("Group", "staff"));
        put(&index, 1, "n", "one", 3, to("ServiceAccount", "robot"));
        index
    }

    fn may(index: &Index, user: &User, ns: &str) -> Decision {
        index.decide(user, &Attributes { ns: ns.into(), ..Attributes::of("get", "", "pods", "") })
    }

    #[test]
    fn bindings_hold_where_they_stand() {
        let index = filled();
        let staff = User { name: "a".into(), groups: vec!["staff".into()], ..User::default() };
        let decision = may(&index, &staff, "n");
        assert!(decision.allowed && may(&index, &staff, "").allowed);
        assert_eq!(
            decision.reason,
            "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to Group \"staff\""
        );
        let robot = User::account("n", "robot", "u");
        assert_eq!(
            may(&index, &robot, "n").reason,
            "RBAC: allowed by RoleBinding \"one/n\" of ClusterRole \"reader\" to ServiceAccount \"robot/n\""
        );
        assert!(!may(&index, &robot, "").allowed && !may(&index, &robot, "m").allowed);
        assert!(!may(&index, &User::account("m", "robot", "u"), "n").allowed);
        assert!(may(&index, &User::server(), "x").allowed);
        assert_eq!(index.rules_for(&robot, "n").0.len(), 1);
    }

    #[test]
    fn changes_count_in_order_of_revision() {
        let index = filled();
        let staff = User { name: "a".into(), groups: vec!["staff".into()], ..User::default() };
        index.see(KEPT[2], "", "reader", 9, None);
        let decision = may(&index, &staff, "n");
        assert!(!decision.allowed);
        assert_eq!(decision.reason, "RBAC: clusterrole.rbac.authorization.k8s.io \"reader\" not found");
        // A write that the deletion has overtaken.
        put(&index, 2, "", "reader", 8, json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}));
        assert!(!may(&index, &staff, "n").allowed);
        index.see(KEPT[3], "", "all", 10, None);
        assert_eq!(may(&index, &staff, "n").reason, "");
    }

    #[test]
    fn marks_of_deleted_objects_do_not_pile_up() {
        let index = Index::default();
        for i in 0..20_000u64 {
            let rev = 2 + i * 20;
            put(&index, 4, "n", &format!("a{i}"), rev, json!({"metadata": {"uid": "u"}}));
            index.see(KEPT[4], "n", &format!("a{i}"), rev + 1, None);
        }
        assert!(index.read().seen.len() < 10_000, "{}", index.read().seen.len());
    }
}
