//! `doctor`: what must be there and reachable, a line each, from the Kubernetes API's side and from this machine.
//!
//! It signs in to no machine, and writes no object but the questions about rights, which are kept nowhere, and with `--test-medium` one HostOperation: of what the BMC
//! itself can read the server's media endpoint knows alone, and the request's end is waited for ([`test_medium`]). Each call takes ten seconds at most. What is looked at
//! from this machine is called so, as the server may be in another network.

mod endpoints;
mod host;
mod report;
mod site;
mod test_medium;

use std::process::ExitCode;

use addresses::Allowed;
use anyhow::Context;
use axum::http::header::DATE;
use jiff::Timestamp;

use crate::api_reader::Reader;
use crate::cli::Output;
use crate::report_args::Doctor;
use crate::{client, flags, probe, say};
use report::{Report, View};

/// Clocks that are further apart than this are told of, seconds.
const FAR: i64 = 5;

/// Looks, and prints what was found; the exit code is 1 where a check failed.
pub async fn run(options: Doctor) -> anyhow::Result<ExitCode> {
    let bmc_authorities = flags::certificates(options.bmc_ca.as_deref(), "--bmc-ca")?;
    let image_authorities = flags::certificates(options.image_ca.as_deref(), "--image-ca")?;
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let reader = Reader::new(client.clone());
    let mut report = match options.output {
        Output::Text => Report::live(),
        Output::Json => Report::default(),
    };
    if api(&mut report, &client, &reader).await {
        let of_host = options.host.as_ref().map(|_| namespace.as_str());
        site::own_rights(&mut report, &reader, of_host, &options.own_namespace).await;
        site::definitions(&mut report, &reader).await?;
        site::lease(&mut report, &reader, &options.own_namespace).await;
        site::server_rights(&mut report, &reader, &options.own_namespace).await;
        site::webhook(&mut report, &reader).await;
    }
    let mut told = endpoints::of_pods(&reader, &options.own_namespace).await.unwrap_or_default();
    if !options.media_url.is_empty() {
        told.media.clone_from(&options.media_url);
    }
    if !options.agent_url.is_empty() {
        told.agents.clone_from(&options.agent_url);
    }
    told.health.clone_from(&options.health_url);
    endpoints::all(&mut report, &told).await;
    endpoints::agent_images(&mut report, &options.agent_image);
    if let Some(name) = &options.host {
        let allowed = Allowed::new(options.allow_address.iter().copied());
        let ways = host::Ways {
            allowed: &allowed,
            bmc_authorities: &bmc_authorities,
            image_authorities: &image_authorities,
            own_namespace: &options.own_namespace,
        };
        host::all(&mut report, &reader, &namespace, name, &ways).await;
        if options.test_medium {
            test_medium::of_host(&mut report, &client, &namespace, name, options.allow_in_use).await;
        }
    }
    match options.output {
        Output::Text => say::out(&report.summary())?,
        Output::Json => say::out(&format!("{}\n", serde_json::to_string_pretty(&report).context("write JSON")?))?,
    }
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether the Kubernetes API answers, and its clock.
async fn api(report: &mut Report, client: &kube::Client, reader: &Reader) -> bool {
    let what = "Kubernetes API";
    let version = match reader.object("/version").await {
        Ok(version) => version["gitVersion"].as_str().unwrap_or("of an unknown version").to_owned(),
        Err(why) => {
            report.fail(View::Api, what, &why.to_string(), "correct --kubeconfig, or look whether the API runs");
            return false;
        }
    };
    report.ok(View::Api, what, &format!("it answers, {version}"));
    let Ok(request) = axum::http::Request::get("/version").body(kube::client::Body::empty()) else { return true };
    let Ok(Ok(answer)) = tokio::time::timeout(probe::LONGEST, client.send(request)).await else { return true };
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let date = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
    let date = date.and_then(|passed| i64::try_from(passed.as_secs()).ok());
    let clock = "clock of the Kubernetes API";
    match date.map(|date| date.saturating_sub(Timestamp::now().as_second())) {
        Some(skew) if skew.abs() > FAR => {
            let side = if skew > 0 { "ahead of" } else { "behind" };
            report.warn(View::Api, clock, &format!("it is {} s {side} this machine's", skew.abs()), "set the clocks");
        }
        Some(_) => report.ok(View::Api, clock, "it agrees with this machine's"),
        None => report.skip(View::Api, clock, "it does not tell it"),
    }
    true
}

#[cfg(test)]
mod tests {
    use apiserver::Identity;
    use serde_json::json;

    use super::*;
    use crate::server;

    /// What is said of the API's side.
    async fn looked(client: &kube::Client) -> Report {
        let reader = Reader::new(client.clone());
        let mut report = Report::default();
        assert!(api(&mut report, client, &reader).await);
        site::own_rights(&mut report, &reader, Some("default"), "metamorph-system").await;
        site::definitions(&mut report, &reader).await.unwrap();
        site::lease(&mut report, &reader, "metamorph-system").await;
        site::server_rights(&mut report, &reader, "metamorph-system").await;
        site::webhook(&mut report, &reader).await;
        report
    }

    #[tokio::test]
    async fn a_site_is_looked_at_by_the_rights_of_whoever_asks() {
        let folder = tempfile::tempdir().unwrap();
        let server = server::open_api(folder.path()).await.unwrap();
        let definitions = ::api::crds::all().unwrap();
        for definition in definitions.iter().filter(|definition| !definition.contains("hostdiagnoses.metamorph")) {
            server.apply_crd_yaml(definition).await.unwrap();
        }
        let client = client::of_served(&server);
        let report = looked(&client).await;
        let text = report.text();
        for words in [
            "ok       Kubernetes API: it answers",
            "ok       your rights",
            "failed   definition hostdiagnoses.metamorph.metal3.io: it is not there — apply that of the server's version: metamorph crds",
            "ok       definitions: ",
            "warning  Lease metamorph-system/metamorph: no server has led here",
            "skipped  rights of the server's account: there is no service account",
            "skipped  webhook: there is none",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(text.matches("failed   ").count(), 1, "{text}");
        let nobody = kube::Client::new(server.caller(Identity::user("nobody", &[])), "default");
        let text = looked(&nobody).await.text();
        for words in [
            "warning  your rights: you may not get baremetalhosts of default, list baremetalhosts of default, ",
            "skipped  definitions: you have no right",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        // Who may read all that is of hosts lacks what is beside them, which is said.
        let post = async |path: &str, body: serde_json::Value| {
            let request = axum::http::Request::post(path).header("content-type", "application/json");
            let request = request.body(body.to_string().into_bytes()).unwrap();
            client.request::<serde_json::Value>(request).await.unwrap();
        };
        let groups = ["metal3.io", "metamorph.metal3.io"];
        let role = json!({ "metadata": { "name": "r" }, "rules": [{ "apiGroups": groups, "resources": ["*"], "verbs": ["*"] }] });
        post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
        let binding = json!({ "metadata": { "name": "r" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody" }] });
        post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
        let somebody = kube::Client::new(server.caller(Identity::user("somebody", &[])), "default");
        let mut report = Report::default();
        site::own_rights(&mut report, &Reader::new(somebody), Some("default"), "metamorph-system").await;
        let text = report.text();
        for right in [
            "get secrets of default",
            "get configmaps of default",
            "get configmaps of metamorph-system",
            "list pods of metamorph-system",
            "get serviceaccounts of metamorph-system",
            "get leases of metamorph-system",
            "get customresourcedefinitions",
            "list validatingwebhookconfigurations",
            "create subjectaccessreviews",
            "get namespaces",
        ] {
            assert!(text.contains(right), "{right}: {text}");
        }
        assert!(!text.contains("baremetalhosts") && !text.contains("hostclaims"), "{text}");
        server.shutdown().await;
    }

    #[tokio::test]
    async fn a_host_is_looked_at_by_its_objects() {
        let folder = tempfile::tempdir().unwrap();
        let server = server::open_api(folder.path()).await.unwrap();
        for definition in ::api::crds::all().unwrap() {
            server.apply_crd_yaml(&definition).await.unwrap();
        }
        let client = client::of_served(&server);
        let secret = |name: &str, keys: &serde_json::Value| -> k8s_openapi::api::core::v1::Secret {
            serde_json::from_value(json!({ "metadata": { "name": name }, "stringData": keys })).unwrap()
        };
        let secrets = kube::Api::default_namespaced(client.clone());
        for (name, keys) in
            [("good", json!({ "username": "u", "password": "hunter2" })), ("half", json!({ "username": "u" }))]
        {
            secrets.create(&kube::api::PostParams::default(), &secret(name, &keys)).await.unwrap();
        }
        let hosts = kube::Api::<::api::metal3::BareMetalHost>::default_namespaced(client.clone());
        for name in ["good", "half", "absent"] {
            let host = serde_json::from_value(json!({
                "metadata": { "name": name },
                "spec": { "online": true, "bmc": { "address": "redfish-virtualmedia://127.0.0.1:1/redfish/v1/Systems/1", "credentialsName": name } },
            }));
            hosts.create(&kube::api::PostParams::default(), &host.unwrap()).await.unwrap();
        }
        let allowed = Allowed::loopback();
        let ways = host::Ways {
            allowed: &allowed,
            bmc_authorities: "",
            image_authorities: "",
            own_namespace: "metamorph-system",
        };
        for (name, failed, words) in [
            ("good", false, "ok       Secret default/good: it is there, with username and password"),
            ("half", false, "warning  Secret default/half: it is there, and its writers tell of no password"),
            ("absent", true, "failed   Secret default/absent: it is not there"),
            ("nobody", true, "failed   host default/nobody: it is not there"),
        ] {
            let mut report = Report::default();
            host::all(&mut report, &Reader::new(client.clone()), "default", name, &ways).await;
            let text = report.text();
            assert!(text.contains(words) && report.failed() == failed, "{words}: {text}");
            // The BMC is not there, which from here is no verdict.
            assert!(
                name == "nobody"
                    || text.contains("warning  BMC https://127.0.0.1:1 (from this machine): no connection"),
                "{text}"
            );
            assert!(!text.contains("hunter2"), "{text}");
        }
        server.shutdown().await;
    }
}
