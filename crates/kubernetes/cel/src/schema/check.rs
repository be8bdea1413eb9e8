//! The checks of the rules in a new definition's schema
//! (`k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation`).

use serde_json::{Value as Json, json};

use super::decl::DeclType;
use super::escape::escape;
use super::rules::{Reason, RuleError, compile, has_rules};
use super::{additional, count, embedded, items, properties, text};

/// Limit on one rule's estimated cost.
const RULE_LIMIT: u64 = 10_000_000;
/// Limit on the estimated cost of all rules of one version.
const SCHEMA_LIMIT: u64 = 100_000_000;

/// Compiles all rules of a structural schema at `path`, such as `spec.validation.openAPIV3Schema`, and checks their costs. Skips the rules of schemas
/// for which `sound` returns false: those with other errors at their path or below.
pub fn check(schema: &Json, path: &str, sound: &dyn Fn(&str) -> bool) -> Vec<RuleError> {
    if !has_rules(schema) {
        return Vec::new();
    }
    let mut checker = Checker { sound, found: Vec::new(), total: 0, expensive: Vec::new() };
    let place = Place { decl: None, cardinality: Some(1), root: true, within: false, untyped: false };
    checker.walk(schema, path, place, None);
    let mut errors = checker.found;
    if checker.total > SCHEMA_LIMIT {
        for (_, path) in &checker.expensive {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(RuleError::new(path, Reason::Forbidden, Json::Null, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(RuleError::new(path, Reason::Forbidden, Json::Null, too_much(what, checker.total, SCHEMA_LIMIT)));
    }
    errors
}

fn too_much(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[derive(Clone)]
struct Place {
    decl: Option<DeclType>,
    /// Most values of this kind in one object; `None` if unbounded.
    cardinality: Option<u64>,
    root: bool,
    within: bool,
    /// A value around it has rules but no type.
    untyped: bool,
}

struct Checker<'a> {
    sound: &'a dyn Fn(&str) -> bool,
    found: Vec<RuleError>,
    total: u64,
    expensive: Vec<(u64, String)>,
}

/// How many values of the schema's children one value of it may have.
fn multiplicity(schema: &Json) -> Option<u64> {
    match text(schema, "type") {
        "object" if schema.get("additionalProperties").is_some() => {
            count(schema, "maxProperties").map(i64::unsigned_abs)
        }
        "array" => count(schema, "maxItems").map(i64::unsigned_abs),
        _ => Some(1),
    }
}

impl Checker<'_> {
    fn walk(&mut self, schema: &Json, path: &str, mut place: Place, uncorrelatable: Option<&str>) {
        let rules = schema.get("x-kubernetes-validations").and_then(Json::as_array).filter(|r| !r.is_empty());
        place.within |= rules.is_some();
        if place.within && place.decl.is_none() && !place.untyped {
            place.decl = DeclType::from_schema(schema, place.root || embedded(schema), "selfType0");
            place.untyped = place.decl.is_none();
        }
        let below = place.cardinality.zip(multiplicity(schema)).map(|(a, b)| a.saturating_mul(b));
        let child = |decl: Option<&DeclType>| Place {
            decl: decl.cloned(),
            cardinality: below,
            root: false,
            within: place.within,
            untyped: place.untyped,
        };
        let element = place.decl.as_ref().and_then(|d| d.children().next());
        if let Some(values) = additional(schema) {
            let forbid = uncorrelatable.or_else(|| granular(schema, path));
            self.walk(values, &format!("{path}.additionalProperties"), child(element), forbid);
        }
        for (name, property) in properties(schema).into_iter().flatten() {
            let fields = place.decl.as_ref().and_then(DeclType::object_parts).map(|(_, f)| f);
            let decl = escape(name).and_then(|n| fields.and_then(|f| f.get(&n)));
            let forbid = uncorrelatable.or_else(|| granular(schema, path));
            self.walk(property, &format!("{path}.properties[{name}]"), child(decl), forbid);
        }
        if let Some(of) = items(schema) {
            let map = text(schema, "x-kubernetes-list-type") == "map";
            let forbid = uncorrelatable.or((!map).then_some(path));
            self.walk(of, &format!("{path}.items"), child(element), forbid);
        }
        if let Some(rules) = rules.filter(|_| (self.sound)(path)) {
            self.compiled(rules, schema, path, &place, uncorrelatable);
        }
    }

    fn compiled(&mut self, rules: &[Json], schema: &Json, path: &str, place: &Place, uncorrelatable: Option<&str>) {
        let Some(decl) = &place.decl else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to \
                          convert structural schema to CEL declarations";
            let path = format!("{path}.x-kubernetes-validations");
            return self.found.push(RuleError::new(&path, Reason::Internal, Json::Null, detail));
        };
        let times = place.cardinality.unwrap_or_else(|| decl.max_cardinality());
        for (at, rule) in compile(rules, schema, decl).into_iter().enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{at}]");
            let rule_path = format!("{path}.rule");
            self.observe(&rule_path, "estimated rule cost", rule.max_cost.saturating_mul(times));
            if let Some(error) = &rule.error {
                self.found.push(RuleError::new(&rule_path, Reason::Invalid, printable(&rule.source), error.as_str()));
            }
            let message_path = format!("{path}.messageExpression");
            match &rule.message_error {
                Some(error) => {
                    self.found.push(RuleError::new(
                        &message_path,
                        Reason::Invalid,
                        printable(&rule.source),
                        error.as_str(),
                    ));
                }
                None if rule.message.is_some() => {
                    self.observe(&message_path, "estimated messageExpression cost", rule.message_cost);
                }
                None => {}
            }
            if rule.uses_old {
                if let Some(within) = uncorrelatable {
                    let source = text(&rule.source, "rule");
                    let detail =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                    self.found.push(RuleError::new(&rule_path, Reason::Invalid, source, detail));
                }
            } else if let Some(set) = rule.source.get("optionalOldSelf").filter(|v| !v.is_null()) {
                let path = format!("{path}.optionalOldSelf");
                let detail = "may not be set if oldSelf is not used in rule";
                self.found.push(RuleError::new(&path, Reason::Invalid, set.clone(), detail));
            }
        }
    }

    fn observe(&mut self, path: &str, what: &str, cost: u64) {
        if cost > RULE_LIMIT {
            self.found.push(RuleError::new(path, Reason::Forbidden, Json::Null, too_much(what, cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((cost, path.to_owned()));
            self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(4);
        }
    }
}

/// The path, if the parts of such a map cannot be distinguished: never, for the map types there are.
fn granular<'a>(schema: &Json, path: &'a str) -> Option<&'a str> {
    let ty = text(schema, "x-kubernetes-map-type");
    (!matches!(ty, "" | "granular" | "atomic")).then_some(path)
}

/// A rule as errors show it: by the names of upstream's internal type.
fn printable(rule: &Json) -> Json {
    let optional = |key: &str| rule.get(key).cloned().unwrap_or_default();
    json!({
        "Rule": text(rule, "rule"),
        "Message": text(rule, "message"),
        "MessageExpression": text(rule, "messageExpression"),
        "Reason": optional("reason"),
        "FieldPath": text(rule, "fieldPath"),
        "OptionalOldSelf": optional("optionalOldSelf"),
    })
}
