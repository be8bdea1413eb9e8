//! Paths and their operations, independent of the OpenAPI version: [`super::v2`] and [`super::v3`] encode them.

use serde_json::{Value, json};

use super::parameters::{self, Parameter};
use super::schemas;
use crate::discovery;
use crate::resource::{Flavor, Resource};

/// A status code and its description.
type Answer = (u16, &'static str);

const OK: Answer = (200, "OK");
const CREATED: Answer = (201, "Created");
const ACCEPTED: Answer = (202, "Accepted");
/// Possible for every operation.
pub const UNAUTHORIZED: Answer = (401, "Unauthorized");

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

const ANY: &[&str] = &["*/*"];
const JSON: &[&str] = &["application/json"];
const TEXTS: &[&str] = &["application/json", "application/yaml"];
const ALL: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAMS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
const ALL_PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A request body.
pub struct Input {
    /// Name of its definition.
    pub definition: String,
    /// Whether it is required.
    pub required: bool,
}

/// One method of a path.
pub struct Operation {
    /// In lower case.
    pub method: &'static str,
    /// Unique name.
    pub id: String,
    /// Group and version, joined.
    pub tag: String,
    /// Description.
    pub text: String,
    /// The action, and group, version and kind that it applies to.
    pub about: Option<(&'static str, [String; 3])>,
    /// Parameters that are not shared by all operations of the path.
    pub parameters: Vec<Parameter>,
    /// The request body.
    pub input: Option<Input>,
    /// Media types of the body.
    pub consumes: &'static [&'static str],
    /// Media types of the response.
    pub produces: &'static [&'static str],
    /// Successful responses.
    pub answers: &'static [Answer],
    /// Name of the response's definition; `None` for plain text.
    pub output: Option<String>,
}

/// A path with its operations.
pub struct Item {
    /// The path, with parameters in braces.
    pub path: String,
    /// Parameters of all operations.
    pub parameters: Vec<Parameter>,
    /// One for each method.
    pub operations: Vec<Operation>,
}

impl Item {
    /// Moves parameters shared by all operations to the path, and sorts all of them.
    fn new(path: String, mut operations: Vec<Operation>) -> Self {
        let first: Vec<Parameter> = operations.first().map(|o| o.parameters.clone()).unwrap_or_default();
        let everywhere = |p: &Parameter| operations.iter().all(|o| o.parameters.iter().any(|q| q.same(p)));
        let mut parameters: Vec<Parameter> = first.into_iter().filter(everywhere).collect();
        parameters.sort_by_key(|p| p.name);
        for operation in &mut operations {
            operation.parameters.retain(|p| !parameters.iter().any(|q| q.same(p)));
            operation.parameters.sort_by_key(|p| p.name);
        }
        Self { path, parameters, operations }
    }
}

/// A discovery request: path, suffix of its id after `get`, description, definition of the response.
fn plain(path: &str, id: &str, text: &str, output: Option<&str>, media: &'static [&'static str]) -> Item {
    let (prefix, tag) = id_and_tag(path);
    let operation = Operation {
        method: "get",
        id: format!("get{prefix}{id}"),
        tag,
        text: text.to_owned(),
        about: None,
        parameters: Vec::new(),
        input: None,
        consumes: if output.is_some() { media } else { &[] },
        produces: media,
        answers: &[OK],
        output: output.map(str::to_owned),
    };
    Item::new(path.to_owned(), vec![operation])
}

fn meta(kind: &str) -> String {
    format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")
}

/// The discovery endpoints outside of groups and versions, with the names of their documents.
pub fn roots(groups: &[&str]) -> Vec<(String, Item)> {
    let text = "Says which versions and groups there are.";
    let mut out = vec![
        plain("/api/", "APIVersions", text, Some(&meta("APIVersions")), ALL),
        plain("/apis/", "APIVersions", text, Some(&meta("APIGroupList")), ALL),
        plain(
            "/version/",
            "CodeVersion",
            "Says which version the server is.",
            Some("io.k8s.apimachinery.pkg.version.Info"),
            JSON,
        ),
        plain(
            "/.well-known/openid-configuration/",
            "ServiceAccountIssuerOpenIDConfiguration",
            "Where tokens of service accounts come from, in the form of OpenID discovery.",
            None,
            JSON,
        ),
        plain(
            "/openid/v1/jwks/",
            "ServiceAccountIssuerOpenIDKeyset",
            "The public keys that tokens of service accounts are signed with.",
            None,
            &["application/jwk-set+json"],
        ),
    ];
    let text = "Says which versions the group has.";
    let named = |group: &&&str| !group.is_empty();
    out.extend(
        groups
            .iter()
            .filter(named)
            .map(|g| plain(&format!("/apis/{g}/"), "APIGroup", text, Some(&meta("APIGroup")), ALL)),
    );
    out.into_iter().map(|item| (item.path.trim_matches('/').to_owned(), item)).collect()
}

/// The discovery endpoint for the resources of a group and version of built-in kinds.
pub fn version_root(path: &str) -> Item {
    plain(path, "APIResources", "Says which resources there are.", Some(&meta("APIResourceList")), ALL)
}

/// Group and version of a path for an operation's id, and the same for its tag.
fn id_and_tag(path: &str) -> (String, String) {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if parts.first() == Some(&"api") {
        parts.splice(0..1, ["apis", "core"]);
    }
    match parts.as_slice() {
        ["apis", group, rest @ ..] => {
            let group = group.strip_suffix(".k8s.io").unwrap_or(group);
            let version = rest.first();
            let id = word(group, true) + &version.map(|v| word(v, true)).unwrap_or_default();
            let tag = word(group, false) + &version.map(|v| format!("_{}", word(v, false))).unwrap_or_default();
            (id, tag)
        }
        [first, ..] => (String::new(), word(first, false)),
        [] => (String::new(), String::new()),
    }
}

/// Removes everything but letters, digits and underscores; the next letter is capitalized.
fn word(text: &str, capital: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut capital = capital;
    for (at, letter) in text.char_indices() {
        if letter.is_alphabetic() || letter == '_' || at > 0 && letter.is_numeric() {
            if std::mem::take(&mut capital) {
                out.extend(letter.to_uppercase());
            } else {
                out.push(letter);
            }
        } else {
            capital = true;
        }
    }
    out
}

/// The operations of a resource, or of one of its subresources.
struct Maker<'a> {
    resource: &'a Resource,
    custom: bool,
    /// Empty, or a subresource.
    sub: &'static str,
    /// Definition of the object that is read and written.
    definition: String,
    /// Path of the group and version.
    base: &'a str,
}

/// The paths of a resource.
pub fn of(resource: &Resource, base: &str) -> Vec<Item> {
    let maker = |sub: &'static str| Maker {
        resource,
        custom: matches!(resource.flavor, Flavor::Custom { .. }),
        sub,
        definition: match sub {
            "scale" => SCALE.to_owned(),
            "token" => "io.k8s.api.authentication.v1.TokenRequest".to_owned(),
            _ => schemas::name_of(resource),
        },
        base,
    };
    let main = maker("");
    if resource.is_review() {
        return vec![Item::new(main.collection(), vec![main.operation("create", false)])];
    }
    let mut out = Vec::new();
    if resource.namespaced {
        out.push(Item::new(format!("{base}/{}", resource.plural), vec![main.operation("list", true)]));
    }
    let whole = |verbs: &[&'static str]| verbs.iter().map(|v| main.operation(v, false)).collect();
    let collection: &[&'static str] = if !resource.strategy.deletes_collections() {
        &["list", "create"]
    } else {
        &["list", "create", "deletecollection"]
    };
    out.push(Item::new(main.collection(), whole(collection)));
    out.push(Item::new(main.item(), whole(&["get", "update", "patch", "delete"])));
    for sub in discovery::subresources(resource) {
        let maker = maker(sub);
        let verbs: &[&'static str] = match sub {
            "token" => &["create"],
            "finalize" => &["update"],
            _ => &["get", "update", "patch"],
        };
        out.push(Item::new(maker.item(), verbs.iter().map(|v| maker.operation(v, false)).collect()));
    }
    if !main.custom {
        out.extend(main.watches());
    }
    out
}

impl Maker<'_> {
    fn scoped(&self) -> &'static str {
        if self.resource.namespaced { "/namespaces/{namespace}" } else { "" }
    }

    fn collection(&self) -> String {
        format!("{}{}/{}", self.base, self.scoped(), self.resource.plural)
    }

    fn item(&self) -> String {
        let sub = if self.sub.is_empty() { String::new() } else { format!("/{}", self.sub) };
        format!("{}/{{name}}{sub}", self.collection())
    }

    /// The deprecated watch paths, which predate the `watch` parameter.
    fn watches(&self) -> Vec<Item> {
        let (scoped, plural) = (self.scoped(), &self.resource.plural);
        let at = |path: String, operation| Item::new(format!("{}/watch{path}", self.base), vec![operation]);
        let mut out = vec![
            at(format!("{scoped}/{plural}"), self.operation("watchlist", false)),
            at(format!("{scoped}/{plural}/{{name}}"), self.operation("watch", false)),
        ];
        if self.resource.namespaced {
            out.push(at(format!("/{plural}"), self.operation("watchlist", true)));
        }
        out
    }

    /// One operation; `everywhere` in all namespaces.
    fn operation(&self, verb: &'static str, everywhere: bool) -> Operation {
        let facts = self.facts(verb);
        let (prefix, tag) = id_and_tag(&format!("{}/", self.base));
        let scope = if self.resource.namespaced && !everywhere { "Namespaced" } else { "" };
        let kind = &self.resource.kind;
        let (sub, all) = (word(self.sub, true), if everywhere { "ForAllNamespaces" } else { "" });
        let rest = format!("{}{scope}{kind}{sub}{}{all}", facts.before, facts.after);
        let about = match self.sub {
            "token" => ["authentication.k8s.io", "v1", "TokenRequest"].map(str::to_owned),
            // The scale of a custom resource is described as its own kind.
            _ => [self.resource.group.clone(), self.resource.version.clone(), kind.clone()],
        };
        let of = if self.sub.is_empty() { String::new() } else { format!("the {} of ", self.sub) };
        Operation {
            method: facts.method,
            id: format!("{}{prefix}{}", facts.verb, word(&rest, true)),
            tag,
            text: format!("{} {of}{kind}.", facts.text),
            about: Some((facts.action, about)),
            parameters: self.parameters(verb, &facts, everywhere),
            input: facts.input,
            consumes: self.consumes(verb),
            produces: match verb {
                _ if self.custom => TEXTS,
                "list" | "watch" | "watchlist" => STREAMS,
                _ => ALL,
            },
            answers: facts.answers,
            output: Some(facts.output),
        }
    }

    fn consumes(&self, verb: &str) -> &'static [&'static str] {
        match (verb, self.custom) {
            ("patch", true) => PATCHES,
            ("patch", false) => ALL_PATCHES,
            (_, true) => TEXTS,
            (_, false) => ANY,
        }
    }

    fn parameters(&self, verb: &str, facts: &Facts, everywhere: bool) -> Vec<Parameter> {
        let mut out = [parameters::EVERYWHERE, facts.parameters].concat();
        if verb == "deletecollection" && !self.custom {
            out.extend_from_slice(parameters::DELETE);
        }
        if self.resource.namespaced && !everywhere {
            out.extend_from_slice(parameters::NAMESPACED);
        }
        let named = !matches!(verb, "list" | "create" | "deletecollection" | "watchlist") || !self.sub.is_empty();
        if named {
            out.push(parameters::name_of(&self.resource.kind));
        }
        out
    }

    fn facts(&self, verb: &'static str) -> Facts {
        let definition = || self.definition.clone();
        let body = |definition: &str, required| Some(Input { definition: definition.to_owned(), required });
        let base = Facts {
            method: "get",
            verb,
            before: "",
            after: "",
            action: verb,
            text: "",
            parameters: &[],
            input: None,
            answers: &[OK],
            output: definition(),
        };
        let list = || schemas::list_name_of(self.resource);
        match verb {
            "get" => {
                let parameters = if self.custom { parameters::GET } else { &[] };
                Facts { verb: "read", text: "Reads", parameters, ..base }
            }
            "list" if self.custom => Facts { text: "Lists", parameters: parameters::LIST, output: list(), ..base },
            "list" => Facts { text: "Lists or watches", parameters: parameters::LIST, output: list(), ..base },
            "watchlist" => {
                let (verb, text) = ("watch", "Deprecated, use the parameter of a list. Watches");
                let output = WATCH_EVENT.to_owned();
                Facts { verb, after: "List", text, parameters: parameters::LIST, output, ..base }
            }
            "watch" => {
                let text = "Deprecated, use a list with its parameter and a field selector. Watches one";
                Facts { text, parameters: parameters::LIST, output: WATCH_EVENT.to_owned(), ..base }
            }
            "create" => Facts {
                method: "post",
                action: "post",
                text: "Creates",
                parameters: parameters::WRITE,
                input: body(&self.definition, true),
                answers: &[OK, CREATED, ACCEPTED],
                ..base
            },
            "update" => Facts {
                method: "put",
                verb: "replace",
                action: "put",
                text: "Replaces",
                parameters: parameters::WRITE,
                input: body(&self.definition, true),
                answers: &[OK, CREATED],
                ..base
            },
            "patch" => Facts {
                method: "patch",
                text: "Changes a part of",
                parameters: parameters::PATCH,
                input: body(PATCH, true),
                answers: if self.custom { &[OK] } else { &[OK, CREATED] },
                ..base
            },
            "deletecollection" => Facts {
                method: "delete",
                verb: "delete",
                before: "Collection",
                text: "Deletes all that are selected of",
                parameters: if self.custom { parameters::LIST } else { parameters::SELECT },
                input: if self.custom { None } else { body(DELETE_OPTIONS, false) },
                output: STATUS.to_owned(),
                ..base
            },
            _ => Facts {
                method: "delete",
                text: "Deletes",
                parameters: parameters::DELETE,
                input: body(DELETE_OPTIONS, false),
                answers: &[OK, ACCEPTED],
                output: if self.returns_deleted() { definition() } else { STATUS.to_owned() },
                ..base
            },
        }
    }

    /// Whether a deletion returns the object instead of a Status.
    fn returns_deleted(&self) -> bool {
        self.resource.is("", "services") || self.resource.is("", "serviceaccounts")
    }
}

/// The properties of operations of one verb.
struct Facts {
    method: &'static str,
    /// Prefix of the id.
    verb: &'static str,
    /// Part of the id before the kind.
    before: &'static str,
    /// Part of the id after the kind.
    after: &'static str,
    action: &'static str,
    text: &'static str,
    parameters: &'static [Parameter],
    input: Option<Input>,
    answers: &'static [Answer],
    output: String,
}

/// Adds an operation's action and kind.
pub(super) fn add_kind(out: &mut Value, of: &Operation) {
    if let Some((action, [group, version, kind])) = &of.about {
        out["x-kubernetes-action"] = json!(action);
        out["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_made_of_paths() {
        let made = |path: &str| id_and_tag(path);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(made("/api/v1/"), pair("CoreV1", "core_v1"));
        assert_eq!(made("/apis/"), pair("", "apis"));
        assert_eq!(made("/apis/rbac.authorization.k8s.io/v1"), pair("RbacAuthorizationV1", "rbacAuthorization_v1"));
        assert_eq!(made("/apis/metal3.io/v1alpha1"), pair("Metal3IoV1alpha1", "metal3Io_v1alpha1"));
        assert_eq!(made("/.well-known/openid-configuration/"), pair("", "WellKnown"));
    }

    #[test]
    fn parameters_of_all_operations_are_at_the_path() {
        let catalog = crate::registry::Registry::new(crate::strategies::kinds()).catalog();
        let leases = catalog.find("coordination.k8s.io", "v1", "leases").unwrap();
        let items = of(leases, "/apis/coordination.k8s.io/v1");
        let names = |list: &[Parameter]| list.iter().map(|p| p.name).collect::<Vec<_>>();
        let one = items.iter().find(|i| i.path.ends_with("v1/namespaces/{namespace}/leases/{name}")).unwrap();
        assert_eq!(names(&one.parameters), ["name", "namespace", "pretty"]);
        let patch = one.operations.iter().find(|o| o.method == "patch").unwrap();
        assert_eq!(names(&patch.parameters), ["dryRun", "fieldManager", "fieldValidation", "force"]);
        assert_eq!(patch.id, "patchCoordinationV1NamespacedLease");
        let ids: Vec<&str> = items.iter().flat_map(|i| &i.operations).map(|o| o.id.as_str()).collect();
        assert!(ids.contains(&"deleteCoordinationV1CollectionNamespacedLease"), "{ids:?}");
        assert!(ids.contains(&"watchCoordinationV1LeaseListForAllNamespaces"), "{ids:?}");
        assert!(ids.contains(&"listCoordinationV1LeaseForAllNamespaces"), "{ids:?}");
    }
}
