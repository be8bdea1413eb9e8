//! Users and rights from outside: enforcement, escalation, impersonation, reviews, tokens, what namespaces are given.

use std::process::{Command, Stdio};

use crate::common::{Answer, Api, answer};
use base64::Engine as _;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CORE: &str = "/api/v1/namespaces/default";

/// A request as somebody else.
async fn act(api: &Api, user: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let mut request = api.request(method, path).header("impersonate-user", user);
    if let Some(body) = body {
        request = request.json(body);
    }
    answer(request).await
}

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]})
}

/// Gives a user rules in the namespace `default`.
async fn grant(api: &Api, user: &str, rules: &[Value]) {
    api.post(&format!("{RBAC}/namespaces/default/roles"), &role(user, rules)).await.expect(201);
    let to = format!("{RBAC}/namespaces/default/rolebindings");
    api.post(&to, &binding(user, "Role", user, user)).await.expect(201);
}

#[tokio::test]
async fn rights_hold_where_they_were_given_from_the_moment_they_were() {
    let api = Api::start().await;
    let refused = act(&api, "jane", "GET", &format!("{CORE}/secrets"), None).await.expect(403);
    assert_eq!(
        refused.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "secrets is forbidden: User \"jane\" cannot list resource \"secrets\" in API group \"\" in the \
                namespace \"default\"", "details": {"kind": "secrets"}})
    );
    grant(&api, "jane", &[rule(&["list", "create", "delete"], "", &["secrets"])]).await;
    act(&api, "jane", "GET", &format!("{CORE}/secrets"), None).await.expect(200);
    act(&api, "jane", "GET", "/api/v1/namespaces/kube-system/secrets", None).await.expect(403);
    act(&api, "jane", "GET", "/api/v1/secrets", None).await.expect(403);
    let watched = act(&api, "jane", "GET", &format!("{CORE}/secrets?watch=1"), None).await.expect(403);
    assert!(watched.message().contains("cannot watch resource"), "{}", watched.text);
    act(&api, "jane", "DELETE", &format!("{CORE}/secrets"), None).await.expect(403);
    act(&api, "jane", "POST", &format!("{CORE}/secrets"), Some(&json!({"metadata": {"name": "s"}}))).await.expect(201);
    act(&api, "jane", "GET", &format!("{CORE}/secrets/s"), None).await.expect(403);
    act(&api, "jane", "DELETE", &format!("{CORE}/secrets/s"), None).await.expect(200);
    // Nothing is told of what is not there; discovery is everybody's.
    act(&api, "jane", "GET", "/apis/none.example.com/v1/things", None).await.expect(403);
    act(&api, "jane", "GET", "/apis", None).await.expect(200);
    let metrics = act(&api, "jane", "GET", "/metrics", None).await.expect(403);
    assert_eq!(metrics.message(), "forbidden: User \"jane\" cannot get path \"/metrics\"");
    api.delete(&format!("{RBAC}/namespaces/default/rolebindings/jane")).await.expect(200);
    act(&api, "jane", "GET", &format!("{CORE}/secrets"), None).await.expect(403);
}

#[tokio::test]
async fn nobody_gives_more_than_they_have() {
    let api = Api::start().await;
    let all = ["create", "update", "patch", "get"];
    grant(&api, "jane", &[rule(&all, "rbac.authorization.k8s.io", &["roles", "rolebindings"])]).await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let more = role("more", &[rule(&["get", "list"], "", &["pods"]), rule(&["get"], "", &["secrets"])]);
    let refused = act(&api, "jane", "POST", &roles, Some(&more)).await.expect(403);
    assert_eq!(
        refused.message(),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], \
         Verbs:[\"get\" \"list\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"
    );
    let same = role("own", &[rule(&["get"], "rbac.authorization.k8s.io", &["roles"])]);
    act(&api, "jane", "POST", &roles, Some(&same)).await.expect(201);
    let wider = role("own", &[rule(&["*"], "*", &["*"])]);
    act(&api, "jane", "PUT", &format!("{roles}/own"), Some(&wider)).await.expect(403);
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let edit = binding("edit", "ClusterRole", "edit", "jane");
    let refused = act(&api, "jane", "POST", &bindings, Some(&edit)).await.expect(403);
    assert!(
        refused.message().starts_with("rolebindings.rbac.authorization.k8s.io \"edit\" is forbidden: user \"jane\"")
    );
    let none = binding("none", "ClusterRole", "none", "jane");
    let missing = act(&api, "jane", "POST", &bindings, Some(&none)).await.expect(404);
    assert_eq!(missing.message(), "clusterroles.rbac.authorization.k8s.io \"none\" not found");
    // With the verbs for it, more may be given.
    let bind = json!({"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
        "resourceNames": ["edit"]});
    api.post(&roles, &role("bind", &[bind, rule(&["escalate"], "rbac.authorization.k8s.io", &["roles"])]))
        .await
        .expect(201);
    api.post(&bindings, &binding("bind", "Role", "bind", "jane")).await.expect(201);
    act(&api, "jane", "POST", &bindings, Some(&edit)).await.expect(201);
    act(&api, "jane", "POST", &roles, Some(&more)).await.expect(201);
    // A role that collects others can grow to anything.
    api.post(
        &format!("{RBAC}/clusterroles"),
        &role("rc", &[rule(&["create"], "rbac.authorization.k8s.io", &["clusterroles"])]),
    )
    .await
    .expect(201);
    api.post(&format!("{RBAC}/clusterrolebindings"), &binding("rc", "ClusterRole", "rc", "jane")).await.expect(201);
    let collects =
        json!({"metadata": {"name": "c"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let refused = act(&api, "jane", "POST", &format!("{RBAC}/clusterroles"), Some(&collects)).await.expect(403);
    assert!(refused.message().ends_with("must have cluster-admin privileges to use the aggregationRule"));
}

#[tokio::test]
async fn impersonation_needs_rights_of_its_own() {
    let api = Api::start().await;
    grant(&api, "jane", &[rule(&["impersonate"], "", &["serviceaccounts"])]).await;
    let token = token_of(&api, "jane").await;
    let as_robot = |user: &str| api.raw("GET", "/apis").bearer_auth(&token).header("impersonate-user", user);
    answer(as_robot("system:serviceaccount:default:default")).await.expect(403);
    let to = format!("{RBAC}/namespaces/default/rolebindings/jane");
    let subjects = json!([{"kind": "ServiceAccount", "name": "jane", "namespace": "default"}]);
    api.merge(&to, &json!({"subjects": subjects})).await.expect(200);
    answer(as_robot("system:serviceaccount:default:default")).await.expect(200);
    let refused = answer(as_robot("bob")).await.expect(403);
    assert_eq!(
        refused.message(),
        "users \"bob\" is forbidden: User \"system:serviceaccount:default:jane\" cannot impersonate resource \"users\" in \
         API group \"\" at the cluster scope"
    );
    let alone = answer(api.request("GET", "/apis").header("impersonate-group", "g")).await.expect(500);
    assert!(alone.text.contains("without impersonating a user"), "{}", alone.text);
    let audit = std::fs::read_to_string(api.dir.path().join("audit.log")).unwrap();
    let events: Vec<Value> = audit.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let event = events.iter().rev().find(|e| e.get("impersonatedUser").is_some()).unwrap();
    assert_eq!(event["user"]["username"], "system:serviceaccount:default:jane");
    assert_eq!(event["impersonatedUser"]["username"], "system:serviceaccount:default:default");
    assert_eq!((&event["kind"], &event["level"], &event["verb"]), (&json!("Event"), &json!("Metadata"), &json!("get")));
}

/// A service account of this name and a token for it.
async fn token_of(api: &Api, name: &str) -> String {
    let accounts = format!("{CORE}/serviceaccounts");
    api.post(&accounts, &json!({"metadata": {"name": name}})).await.expect(201);
    let asked =
        api.post(&format!("{accounts}/{name}/token"), &json!({"spec": {"expirationSeconds": 600}})).await.expect(201);
    asked.body["status"]["token"].as_str().unwrap().to_owned()
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test]
async fn tokens_live_as_long_as_their_account_and_what_they_are_bound_to() {
    let api = Api::start().await;
    let token = token_of(&api, "robot").await;
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let ask = async |token: &str| answer(api.raw("POST", whoami).bearer_auth(token).json(&json!({}))).await;
    let me = ask(&token).await.expect(201).body["status"]["userInfo"].clone();
    assert_eq!(me["username"], "system:serviceaccount:default:robot");
    assert_eq!(
        me["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    let content = claims(&token);
    let id = format!("JTI={}", content["jti"].as_str().unwrap());
    assert_eq!(me["extra"], json!({"authentication.kubernetes.io/credential-id": [id]}));
    assert_eq!(content["kubernetes.io"]["serviceaccount"]["uid"], me["uid"]);
    assert_eq!(content["exp"].as_i64().unwrap() - content["iat"].as_i64().unwrap(), 600);
    // For others than this server.
    let to = format!("{CORE}/serviceaccounts/robot/token");
    let foreign = api.post(&to, &json!({"spec": {"audiences": ["vault"]}})).await.expect(201);
    let foreign = foreign.body["status"]["token"].as_str().unwrap().to_owned();
    ask(&foreign).await.expect(401);
    let review = "/apis/authentication.k8s.io/v1/tokenreviews";
    let asked = api.post(review, &json!({"spec": {"token": foreign, "audiences": ["vault", "x"]}})).await.expect(201);
    assert_eq!(asked.body["status"]["authenticated"], true);
    assert_eq!(asked.body["status"]["audiences"], json!(["vault"]));
    let asked = api.post(review, &json!({"spec": {"token": foreign}})).await.expect(201);
    assert_eq!(
        asked.body["status"],
        json!({"user": {}, "error": "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences \
            [\"https://kubernetes.default.svc\"]]"})
    );
    // Bound to a Secret.
    api.post(&format!("{CORE}/secrets"), &json!({"metadata": {"name": "s"}})).await.expect(201);
    let reference = json!({"kind": "Secret", "apiVersion": "v1", "name": "s"});
    let bound = api.post(&to, &json!({"spec": {"boundObjectRef": reference}})).await.expect(201);
    let bound = bound.body["status"]["token"].as_str().unwrap().to_owned();
    ask(&bound).await.expect(201);
    api.delete(&format!("{CORE}/secrets/s")).await.expect(200);
    ask(&bound).await.expect(401);
    for (spec, code) in [
        (json!({"expirationSeconds": 60}), 422),
        (json!({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "gone"}}), 404),
        (json!({"boundObjectRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "x"}}), 400),
    ] {
        api.post(&to, &json!({"spec": spec})).await.expect(code);
    }
    // An account made anew is another one.
    let account = format!("{CORE}/serviceaccounts/robot");
    ask(&token).await.expect(201);
    api.delete(&account).await.expect(200);
    ask(&token).await.expect(401);
    api.post(&format!("{CORE}/serviceaccounts"), &json!({"metadata": {"name": "robot"}})).await.expect(201);
    ask(&token).await.expect(401);
    api.post(&format!("{CORE}/serviceaccounts/none/token"), &json!({})).await.expect(404);
}

#[tokio::test]
async fn the_issuer_can_be_checked_by_others() {
    let api = Api::start().await;
    let token = token_of(&api, "robot").await;
    let get = async |path: &str| answer(api.raw("GET", path).bearer_auth(&token)).await.expect(200);
    let configuration = get("/.well-known/openid-configuration").await.body;
    assert_eq!(configuration["issuer"], claims(&token)["iss"]);
    assert!(configuration["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"));
    let set = get("/openid/v1/jwks").await;
    assert_eq!(set.headers["content-type"], "application/jwk-set+json");
    let head = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let head: Value = serde_json::from_slice(&head).unwrap();
    assert_eq!((&set.body["keys"][0]["kid"], &set.body["keys"][0]["alg"]), (&head["kid"], &head["alg"]));
    answer(api.raw("GET", "/openid/v1/jwks")).await.expect(403);
}

#[tokio::test]
async fn reviews_answer_and_leave_nothing() {
    let api = Api::start().await;
    grant(&api, "jane", &[rule(&["get"], "", &["secrets"])]).await;
    let review = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let asked = json!({"verb": "get", "resource": "secrets", "namespace": "default"});
    let answer = api.post(review, &json!({"spec": {"user": "jane", "resourceAttributes": asked}})).await.expect(201);
    assert_eq!(
        answer.body["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"jane/default\" of Role \"jane\" to User \"jane\""})
    );
    let answer = api.post(review, &json!({"spec": {"user": "bob", "resourceAttributes": asked}})).await.expect(201);
    assert_eq!(answer.body["status"], json!({"allowed": false}));
    let answer = api.post(review, &json!({"spec": {}})).await.expect(422);
    assert_eq!(
        answer.message(),
        ".authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one \
         of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of \
         user or group must be specified]"
    );
    let local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let answer = api.post(local, &json!({"spec": {"user": "jane", "resourceAttributes": asked}})).await.expect(201);
    assert_eq!(
        (&answer.body["status"]["allowed"], &answer.body["metadata"]["namespace"]),
        (&json!(true), &json!("default"))
    );
    let self_review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let path = json!({"spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}});
    assert_eq!(act(&api, "jane", "POST", self_review, Some(&path)).await.expect(201).body["status"]["allowed"], true);
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = act(&api, "jane", "POST", rules, Some(&json!({"spec": {"namespace": "default"}}))).await.expect(201);
    let found = answer.body["status"]["resourceRules"].as_array().unwrap();
    assert!(found.contains(&rule(&["get"], "", &["secrets"])), "{}", answer.text);
    api.get(review).await.expect(405);
    let groups = api.get("/apis/authorization.k8s.io/v1").await.expect(200).body;
    assert!(groups["resources"].as_array().unwrap().iter().all(|r| r["verbs"] == json!(["create"])));
}

#[tokio::test]
async fn namespaces_get_their_defaults_and_keep_them() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "new"}})).await.expect(201);
    let account = "/api/v1/namespaces/new/serviceaccounts/default";
    let map = "/api/v1/namespaces/new/configmaps/kube-root-ca.crt";
    let first = api.until(account, 200).await.body["metadata"]["uid"].clone();
    assert_eq!(api.until(map, 200).await.body["data"]["ca.crt"], api.server.ca_pem());
    api.delete(map).await.expect(200);
    api.until(map, 200).await;
    api.delete(account).await.expect(200);
    assert_ne!(api.until(account, 200).await.body["metadata"]["uid"], first);
    // A Secret for a token is filled, works, and goes with its account.
    let token = json!({"metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"});
    api.post("/api/v1/namespaces/new/secrets", &token).await.expect(201);
    let secret = "/api/v1/namespaces/new/secrets/t";
    let mut token = None;
    for _ in 0..200 {
        token = api.get(secret).await.expect(200).body["data"]["token"].as_str().map(str::to_owned);
        if token.is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let token = base64::engine::general_purpose::STANDARD.decode(token.unwrap()).unwrap();
    let token = String::from_utf8(token).unwrap();
    answer(api.raw("GET", "/apis").bearer_auth(&token)).await.expect(200);
    api.delete(account).await.expect(200);
    answer(api.raw("GET", "/apis").bearer_auth(&token)).await.expect(401);
    api.until(secret, 404).await;
    let refused = json!({"metadata": {"name": "u"}, "type": "kubernetes.io/service-account-token"});
    api.post("/api/v1/namespaces/new/secrets", &refused).await.expect(422);
    api.delete("/api/v1/namespaces/new").await.expect(200);
    api.until("/api/v1/namespaces/new", 404).await;
}

#[tokio::test]
async fn cluster_roles_collect_others() {
    let api = Api::start().await;
    let part = json!({"metadata": {"name": "part", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [rule(&["get"], "example.com", &["widgets"])]});
    api.post(&format!("{RBAC}/clusterroles"), &part).await.expect(201);
    let has = |answer: &Answer| {
        answer.body["rules"].as_array().is_some_and(|r| r.contains(&rule(&["get"], "example.com", &["widgets"])))
    };
    // view goes into edit, and edit into admin.
    for wanted in [true, false] {
        for name in ["view", "edit", "admin"] {
            let mut found = None;
            for _ in 0..200 {
                let role = api.get(&format!("{RBAC}/clusterroles/{name}")).await.expect(200);
                found = Some(has(&role));
                if found == Some(wanted) {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            assert_eq!(found, Some(wanted), "{name}");
        }
        if wanted {
            api.delete(&format!("{RBAC}/clusterroles/part")).await.expect(200);
        }
    }
}

#[tokio::test]
async fn kube_rs_works_with_a_service_accounts_token() {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{ListParams, PostParams};
    let api = Api::start().await;
    let token = token_of(&api, "robot").await;
    let uri: http::Uri = format!("https://{}", api.server.local_addr()).parse().unwrap();
    let mut config = kube::Config::new(uri);
    let ca = rustls_pki_types::CertificateDer::from_pem_slice(api.server.ca_pem().as_bytes()).unwrap();
    config.root_cert = Some(vec![ca.to_vec()]);
    config.auth_info.token = Some(token.into());
    let client = kube::Client::try_from(config).unwrap();
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client, "default");
    let error = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(ref e) if e.code == 403), "{error}");
    let edit = json!({"metadata": {"name": "robot"}, "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}});
    api.post(&format!("{RBAC}/namespaces/default/rolebindings"), &edit).await.expect(201);
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("m".into()), ..Default::default() },
        ..Default::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_asks_about_rights_and_tokens() {
    let api = Api::start().await;
    let kubeconfig = api.dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, api.server.admin_kubeconfig()).unwrap();
    let run = async |arguments: &str, input: &str| {
        let mut command = Command::new("kubectl");
        command.args(arguments.split_whitespace()).env("KUBECONFIG", &kubeconfig).env("HOME", api.dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let input = input.to_owned();
        let done = tokio::task::spawn_blocking(move || {
            use std::io::Write as _;
            let mut child = command.spawn().expect("kubectl must be installed");
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        let output = done.await.unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), text)
    };
    let good = async |arguments: &str| {
        let (good, text) = run(arguments, "").await;
        assert!(good, "kubectl {arguments}: {text}");
        text
    };
    assert!(good("auth whoami").await.contains("admin"));
    assert!(good("auth can-i create secrets").await.starts_with("yes"));
    let (allowed, text) = run("auth can-i list secrets --as jane", "").await;
    assert!(!allowed && text.starts_with("no"), "{text}");
    let roles = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: default}\nrules:\n\
        - {apiGroups: [''], resources: [secrets], verbs: [list]}\n---\napiVersion: rbac.authorization.k8s.io/v1\n\
        kind: RoleBinding\nmetadata: {name: r, namespace: default}\n\
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}\n\
        subjects: [{kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}]\n";
    let (reconciled, text) = run("auth reconcile -f -", roles).await;
    assert!(reconciled && text.contains("role.rbac.authorization.k8s.io/r reconciled"), "{text}");
    assert!(good("auth can-i list secrets --as jane").await.starts_with("yes"));
    assert!(good("auth can-i --list --as jane").await.contains("secrets"));
    good("get secrets --as jane").await;
    assert!(!run("get secrets -A --as jane", "").await.0);
    good("create serviceaccount robot").await;
    let token = good("create token robot --duration 1h").await;
    let token = token.trim();
    assert_eq!(claims(token)["sub"], "system:serviceaccount:default:robot");
    std::fs::write(
        &kubeconfig,
        api.server.admin_kubeconfig().replace("client-certificate-data", "x-data").replace("client-key-data", "y-data"),
    )
    .unwrap();
    let whoami = run(&format!("auth whoami --token {token}"), "").await;
    assert!(whoami.1.contains("system:serviceaccount:default:robot"), "{}", whoami.1);
}
