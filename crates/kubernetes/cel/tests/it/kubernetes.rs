//! Rules as Kubernetes 1.34's own code answers them: messages of the compiler, estimated and actual costs, errors.
//! The answers are recorded by `oracle/main.go` from the cases of `oracle/cases.py`.

use cel::schema::{
    decl::DeclType,
    rules::{Reason, RuleError, Validator},
};
use serde_json::{Value as Json, json};

/// Object types have a number of their own in each process.
fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("selfType") {
        let (before, after) = rest.split_at(at + "selfType".len());
        out.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}

fn describe(error: &RuleError) -> String {
    let path = if error.path.is_empty() { "<nil>" } else { &error.path };
    assert_eq!(error.reason, Reason::Invalid);
    masked(&format!("{path}: Invalid value: {}: {}", error.value, error.detail))
}

struct Answer {
    compile: String,
    max_cost: u64,
    cost: u64,
    errors: Vec<String>,
}

fn answer(schema: &Json, rule: &str, object: &Json, old: &Json) -> Answer {
    let mut schema = schema.clone();
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    let decl = DeclType::from_schema(&schema, false, "selfType0").unwrap();
    let env = cel::Env::new().declared("self", &decl).variable("oldSelf", decl.cel_type());
    let (compile, max_cost) = match env.compile(rule) {
        Err(error) => (format!("compilation failed: {error}"), 0),
        Ok(program) if program.output_type() != &cel::Type::Bool => {
            ("cel expression must evaluate to a bool".into(), 0)
        }
        Ok(program) => match program.instantiation_error() {
            Some(why) => (format!("program instantiation failed: {why}"), 0),
            None => (String::new(), program.estimate(&decl).max),
        },
    };
    if !compile.is_empty() {
        return Answer { compile: masked(&compile), max_cost, cost: 0, errors: Vec::new() };
    }
    let report = Validator::of(&schema, false).unwrap().validate(object, Some(old));
    // Errors on unchanged parts become warnings; there are none here, as the object changed.
    assert!(report.warnings.is_empty());
    Answer { compile, max_cost, cost: report.cost, errors: report.errors.iter().map(describe).collect() }
}

#[test]
fn rules_are_answered_as_kubernetes_answers_them() {
    let data: Json = serde_json::from_str(include_str!("../data/kubernetes-1.34.json")).unwrap();
    let mut wrong = Vec::new();
    for case in data["cases"].as_array().unwrap() {
        let rule = case["rule"].as_str().unwrap();
        let mine = answer(&data["schema"], rule, &data["self"], &data["oldSelf"]);
        let compile = masked(case["compile"].as_str().unwrap_or_default());
        let errors: Vec<String> =
            case["errors"].as_array().into_iter().flatten().map(|e| masked(e.as_str().unwrap())).collect();
        let cost = case["cost"].as_u64().unwrap();
        let same = (&mine.compile, mine.max_cost, mine.cost, &mine.errors)
            == (&compile, case["maxCost"].as_u64().unwrap(), cost, &errors);
        if !same {
            wrong.push(format!(
                "{rule}\n  theirs: {compile:?} {} {cost} {errors:?}\n  ours:   {:?} {} {} {:?}",
                case["maxCost"], mine.compile, mine.max_cost, mine.cost, mine.errors
            ));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_reserved_word_names_a_field_as_it_is_too() {
    let schema = json!({"type": "object", "properties": {"namespace": {"type": "string"}}, "x-kubernetes-validations": [
        {"rule": "self.namespace == 'a'"}, {"rule": "has(self.namespace)"}, {"rule": "self.?namespace.orValue('') == 'a'"},
        {"rule": "self.__namespace__ == 'a'"}]});
    let rules = Validator::of(&schema, false).unwrap();
    assert_eq!(rules.validate(&json!({"namespace": "a"}), None).errors, []);
    let failed = |object: &Json| rules.validate(object, None).errors.len();
    assert_eq!((failed(&json!({"namespace": "b"})), failed(&json!({}))), (3, 4));
}

#[test]
fn a_default_is_forgiven_nothing() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": [
        {"rule": "self > 0"}, {"rule": "oldSelf.hasValue()", "optionalOldSelf": true}]}}});
    let rules = Validator::of(&schema, false).unwrap();
    let paths = |value: &Json| -> Vec<String> {
        rules.validate_default(value, "x.default").into_iter().map(|e| e.path + ": " + &e.detail).collect()
    };
    assert_eq!(paths(&json!({"n": 0})), ["x.default.n: failed rule: self > 0"]);
    assert_eq!(paths(&json!({"n": 1})), ["x.default.n: failed rule: oldSelf.hasValue()"]);
    assert!(paths(&json!({})).is_empty());
}
