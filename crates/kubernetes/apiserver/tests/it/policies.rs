//! Policies on the embedded API where the conformance cases cannot look: the audit log, and what is stored before a
//! restart. That policies judge as kube-apiserver does is in `tests/conformance/cases/policies`.

use crate::common::{Api, CONFIGMAPS, configmap};
use crate::hooks::{Hooks, allow, configuration};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn policy(name: &str, more: Value) -> Value {
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let mut spec = json!({"matchConstraints": {"resourceRules": rules}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn bind(api: &Api, name: &str, more: Value, actions: &[&str]) {
    api.post(POLICIES, &policy(name, more)).await.expect(201);
    let spec = json!({"policyName": name, "validationActions": actions});
    api.post(BINDINGS, &json!({"metadata": {"name": format!("{name}-b")}, "spec": spec})).await.expect(201);
}

fn last_entry(api: &Api) -> Value {
    let audit = std::fs::read_to_string(api.dir.path().join("audit.log")).unwrap();
    serde_json::from_str(audit.lines().last().unwrap()).unwrap()
}

#[tokio::test]
async fn the_audit_log_has_what_policies_and_webhooks_noted() {
    let api = Api::start().await;
    let annotations = json!([{"key": "k", "valueExpression": "'of ' + object.metadata.name"}]);
    let failing = json!([{"expression": "true"}, {"expression": "object.data.k == 'x'", "message": "a < b"}]);
    bind(&api, "noted", json!({"validations": failing, "auditAnnotations": annotations}), &["Audit"]).await;
    let hooks = Hooks::start(|_, review| allow(review, json!({"auditAnnotations": {"own": "yes"}}))).await;
    let (path, object) = configuration("Validating", "v", &[hooks.hook("/v", "", &["configmaps"], json!({}))]);
    api.post(&path, &object).await.expect(201);
    let made = api.post(CONFIGMAPS, &configmap("a")).await.expect(201);
    assert!(made.warnings.is_empty());
    let entry = last_entry(&api);
    let noted = &entry["annotations"];
    assert_eq!(noted["noted/k"], "of a");
    assert_eq!(noted["v.hooks.example.com/own"], "yes");
    assert_eq!(noted["authorization.k8s.io/decision"], "allow");
    let failure = noted["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap();
    assert_eq!(
        failure,
        "[{\"message\":\"a \\u003c b\",\"policy\":\"noted\",\"binding\":\"noted-b\",\"expressionIndex\":1,\
         \"validationActions\":[\"Audit\"]}]"
    );
}

#[tokio::test]
async fn policies_hold_after_a_restart_and_before_webhooks_are_asked() {
    let api = Api::start().await;
    bind(
        &api,
        "no",
        json!({"validations": [{"expression": "object.metadata.name != 'b'", "message": "not b"}]}),
        &["Deny"],
    )
    .await;
    let hooks = Hooks::start(|_, review| allow(review, json!({}))).await;
    let (path, object) = configuration("Validating", "v", &[hooks.hook("/v", "", &["configmaps"], json!({}))]);
    api.post(&path, &object).await.expect(201);
    let refused = api.post(CONFIGMAPS, &configmap("b")).await.expect(422);
    assert!(refused.message().ends_with("denied request: not b"), "{}", refused.message());
    let status = last_entry(&api)["responseStatus"].clone();
    assert_eq!((&status["message"], &status["reason"]), (&json!(refused.message()), &json!("Invalid")));
    assert!(hooks.asked("/v").is_empty(), "a refusal of a policy is the end");
    let Api { server, dir, .. } = api;
    server.shutdown().await;
    let api = Api::start_in(dir).await;
    api.post(CONFIGMAPS, &configmap("b")).await.expect(422);
    api.post(CONFIGMAPS, &configmap("c")).await.expect(201);
    assert_eq!(hooks.asked("/v").len(), 1);
}

#[tokio::test]
async fn a_policy_that_costs_much_ends() {
    let api = Api::start().await;
    let validations: Vec<Value> =
        (0..20).map(|_| json!({"expression": "object.data.k.contains(object.data.k)"})).collect();
    bind(&api, "costly", json!({ "validations": validations }), &["Deny"]).await;
    let mut large = configmap("large");
    large["data"]["k"] = json!("y".repeat(9000));
    let refused = api.post(CONFIGMAPS, &large).await.expect(422);
    assert!(refused.message().contains("running out of cost budget"), "{}", refused.message());
}
