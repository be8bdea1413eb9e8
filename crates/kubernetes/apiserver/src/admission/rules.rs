//! Which changes match: rules of operations and resources, label selectors, and other versions of the same objects.

use std::sync::Arc;

use serde_json::Value;

use super::Attributes;
use crate::object::{Object, metadata, strings};
use crate::objects::{Objects, store_failed};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};

/// A parsed `LabelSelector`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelSelector {
    equal: Vec<(String, String)>,
    /// Key, operator, values.
    expressions: Vec<(String, String, Vec<String>)>,
}

impl LabelSelector {
    /// Parses a selector; an absent one matches all.
    pub fn parse(selector: Option<&Value>) -> Self {
        let Some(selector) = selector else { return Self::default() };
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        Self {
            equal: labels.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect(),
            expressions: expressions.map(|e| (text(e, "key"), text(e, "operator"), strings(e.get("values")))).collect(),
        }
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.equal.is_empty() && self.expressions.is_empty()
    }

    /// Whether these labels match.
    pub fn matches(&self, labels: Option<&Object>) -> bool {
        let get = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        self.equal.iter().all(|(key, value)| get(key) == Some(value.as_str()))
            && self.expressions.iter().all(|(key, operator, values)| {
                let found = get(key);
                let among = found.is_some_and(|f| values.iter().any(|v| v == f));
                match operator.as_str() {
                    "In" => among,
                    "NotIn" => !among,
                    "Exists" => found.is_some(),
                    "DoesNotExist" => found.is_none(),
                    _ => false,
                }
            })
    }
}

/// A rule with operations, of a webhook or of a policy.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    names: Vec<String>,
}

impl Rule {
    /// Parses a rule.
    pub fn parse(rule: &Value) -> Self {
        Self {
            operations: strings(rule.get("operations")),
            groups: strings(rule.get("apiGroups")),
            versions: strings(rule.get("apiVersions")),
            resources: strings(rule.get("resources")),
            scope: rule.get("scope").and_then(Value::as_str).unwrap_or("*").to_owned(),
            names: strings(rule.get("resourceNames")),
        }
    }

    /// Whether a change matches, seen as a change of `resource` (the request's, or an equivalent one).
    fn matches(&self, about: &Attributes<'_>, resource: &Resource) -> bool {
        let among = |list: &[String], wanted: &str| list.iter().any(|i| i == "*" || i == wanted);
        self.in_scope(about, resource)
            && among(&self.operations, about.operation.word())
            && among(&self.groups, &resource.group)
            && among(&self.versions, &resource.version)
            && self.resources.iter().any(|wanted| {
                let (plural, sub) = wanted.split_once('/').unwrap_or((wanted, ""));
                (plural == "*" || plural == resource.plural) && (sub == "*" || sub == about.change.sub)
            })
            && (self.names.is_empty() || self.names.iter().any(|n| n == about.name))
    }

    fn in_scope(&self, about: &Attributes<'_>, resource: &Resource) -> bool {
        let cluster = resource.is("", "namespaces") || about.ns.is_empty();
        match self.scope.as_str() {
            "*" => true,
            "Namespaced" => !cluster,
            "Cluster" => cluster,
            _ => false,
        }
    }
}

/// The resource of the request.
pub fn requested_resource(objects: &Objects, about: &Attributes<'_>) -> Option<Arc<Resource>> {
    let requested = about.resource;
    objects.registry.catalog().find(&requested.group, &requested.version, &requested.plural).cloned()
}

/// The first resource that matches a rule: the request's own, or another version of the same objects.
pub fn matched(objects: &Objects, rules: &[Rule], equivalent: bool, about: &Attributes<'_>) -> Option<Arc<Resource>> {
    let catalog = objects.registry.catalog();
    let requested = about.resource;
    if rules.iter().any(|r| r.matches(about, requested)) {
        return requested_resource(objects, about);
    }
    if !equivalent {
        return None;
    }
    let others: Vec<&Arc<Resource>> = catalog
        .all()
        .filter(|r| r.storage == requested.storage && (r.group != requested.group || r.version != requested.version))
        .collect();
    rules.iter().find_map(|rule| others.iter().find(|other| rule.matches(about, other)).map(|r| Arc::clone(r)))
}

/// Whether the namespace of the change matches. Cluster-scoped objects other than Namespaces always match.
pub async fn namespace_selected(
    objects: &Objects,
    selector: &LabelSelector,
    about: &Attributes<'_>,
    object: Option<&Object>,
) -> ApiResult<bool> {
    let namespaces = about.resource.is("", "namespaces");
    if selector.is_empty() || (about.ns.is_empty() && !namespaces) {
        return Ok(true);
    }
    if namespaces
        && about.change.sub.is_empty()
        && let Some(object) = object
    {
        return Ok(selector.matches(labels(object)));
    }
    match namespace_labels(objects, about.ns).await {
        Ok(found) => Ok(selector.matches(found.as_ref())),
        Err(error) if error.code == 404 => Err(error),
        Err(error) => Err(ApiError::internal(error.message)),
    }
}

/// Whether the new or the old object matches.
pub fn object_selected(selector: &LabelSelector, about: &Attributes<'_>, object: Option<&Object>) -> bool {
    let one = |object: Option<&Object>| object.is_some_and(|o| selector.matches(labels(o)));
    selector.is_empty() || one(object) || one(about.old)
}

fn labels(object: &Object) -> Option<&Object> {
    metadata(object).get("labels").and_then(Value::as_object)
}

/// Labels of a namespace, for selectors.
pub async fn namespace_labels(objects: &Objects, ns: &str) -> ApiResult<Option<Object>> {
    let object = namespace(objects, ns).await?;
    Ok(crate::object::metadata(&object).get("labels").and_then(Value::as_object).cloned())
}

/// A namespace, as it is stored.
pub async fn namespace(objects: &Objects, ns: &str) -> ApiResult<Object> {
    let catalog = objects.registry.catalog();
    let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
    let row = objects.store.get(&namespaces.key("", ns)).await.map_err(store_failed)?;
    let Some(row) = row else { return Err(ApiError::not_found("", "namespaces", ns)) };
    namespaces.load(row.rev, &row.body).map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn label_selectors_match_as_upstream() {
        let labels = json!({"a": "1", "b": "2"});
        let labels = labels.as_object();
        let yes = |s: Value| LabelSelector::parse(Some(&s)).matches(labels);
        assert!(yes(json!({})) && yes(json!({"matchLabels": {"a": "1"}})));
        assert!(!yes(json!({"matchLabels": {"a": "1", "c": "1"}})));
        let expression = |key: &str, op: &str, values: Value| {
            yes(json!({"matchExpressions": [{"key": key, "operator": op, "values": values}]}))
        };
        assert!(expression("a", "In", json!(["1", "3"])) && !expression("c", "In", json!(["1"])));
        assert!(expression("c", "NotIn", json!(["1"])) && !expression("a", "NotIn", json!(["1"])));
        assert!(expression("a", "Exists", json!([])) && expression("c", "DoesNotExist", json!([])));
        assert!(!expression("a", "Gt", json!(["0"])));
        assert!(!LabelSelector::parse(Some(&json!({"matchLabels": {"a": "1"}}))).matches(None));
    }
}
