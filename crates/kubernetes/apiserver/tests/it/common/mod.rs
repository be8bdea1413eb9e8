//! A server in a temporary folder, and clients for it.

use std::path::PathBuf;

use apiserver::{Config, Server};
use serde_json::{Value, json};

/// A running server with a raw client.
pub struct Api {
    /// The server; taken out to stop it.
    pub server: Server,
    /// Its folder.
    pub dir: tempfile::TempDir,
    client: reqwest::Client,
    base: String,
    token: String,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub text: String,
    pub warnings: Vec<String>,
    pub headers: reqwest::header::HeaderMap,
}

impl Answer {
    /// The Status message.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The resourceVersion of the object or list.
    pub fn version(&self) -> u64 {
        self.body["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }

    /// Panics unless the code is this.
    pub fn expect(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }
}

pub fn config(dir: &std::path::Path) -> Config {
    Config {
        data_dir: dir.to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        extra_sans: vec![],
        audit_log: Some(dir.join("audit.log")),
        reviewers: vec![],
    }
}

pub fn client(ca: &str) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = reqwest::Certificate::from_pem(ca.as_bytes()).unwrap();
    reqwest::Client::builder().tls_certs_only([ca]).build().unwrap()
}

impl Api {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir).await
    }

    pub async fn start_in(dir: tempfile::TempDir) -> Self {
        let server = Server::start(config(dir.path())).await.unwrap();
        let client = client(server.ca_pem());
        let base = format!("https://{}", server.local_addr());
        let token = server.admin_token().to_owned();
        Self { server, dir, client, base, token }
    }

    /// With Metal³'s definitions and one of the tests' own.
    pub async fn with_kinds() -> Self {
        let api = Self::start().await;
        let all: Vec<String> = upstream().iter().map(|f| std::fs::read_to_string(f).unwrap()).collect();
        api.server.apply_crd_yaml(&all.join("\n---\n")).await.unwrap();
        api.server.install(widgets()).await.unwrap();
        api
    }

    pub fn raw(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.raw(method, path).bearer_auth(&self.token)
    }

    pub async fn get(&self, path: &str) -> Answer {
        answer(self.request("GET", path)).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        answer(self.request("GET", path).header("accept", accept)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.request("POST", path).json(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        answer(self.request("PUT", path).json(body)).await
    }

    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        let kind = format!("application/{kind}+json");
        answer(self.request("PATCH", path).header("content-type", kind).body(body.to_string())).await
    }

    pub async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.patch(path, "merge-patch", body).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        answer(self.request("DELETE", path)).await
    }

    pub async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        answer(self.request("DELETE", path).json(options)).await
    }

    /// Waits until the path answers with this code.
    pub async fn until(&self, path: &str, code: u16) -> Answer {
        for _ in 0..200 {
            let answer = self.get(path).await;
            if answer.code == code {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("{path} never answered {code}: {}", self.get(path).await.text);
    }
}

pub async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let headers = response.headers().clone();
    let warnings = headers.get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let code = response.status().as_u16();
    let text = String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Answer { code, body, text, warnings, headers }
}

/// Metal³'s definitions.
pub fn upstream() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../model/api/crds/upstream");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 13, "definitions are missing in {folder}");
    files
}

/// A definition with two versions, a status, columns, defaults and a selectable field.
pub fn widgets() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 1, "default": 3},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}}, "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1}]})
    };
    let mut old = version("v1beta1", false);
    old["deprecated"] = json!(true);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wi"], "categories": ["all"]},
            "versions": [version("v1", true), old]}})
}

pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

pub fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A Secret. No controller puts one into a namespace by itself, as it does with ConfigMaps.
pub fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"k": "dg=="}})
}

pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";
