//! A webhook server for tests: TLS on loopback, answers by a function, and it remembers what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// What a webhook does with a path and a review: its answer's code and body; `None` is no answer at all.
pub type Answers = dyn Fn(&str, &Value) -> Option<(u16, String)> + Send + Sync;

/// A running webhook server; ends with the test's runtime.
pub struct Hooks {
    pub port: u16,
    pub ca: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<Mutex<usize>>,
}

/// The usual answer to a review: allowed, with more members of the response.
pub fn allow(review: &Value, more: Value) -> Option<(u16, String)> {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    for (key, value) in more.as_object().unwrap() {
        response[key] = value.clone();
    }
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Some((200, answer.to_string()))
}

/// Allowed, with a JSON patch.
pub fn patch(review: &Value, patch: &Value) -> Option<(u16, String)> {
    let patch = STANDARD.encode(patch.to_string());
    allow(review, json!({"patchType": "JSONPatch", "patch": patch}))
}

/// Authorities made so far: each has a name of its own.
static SERIAL: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

fn certificates() -> (String, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let named = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut ca = named(&format!("hooks-ca-{:?}", std::thread::current().id()));
    let serial = SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ca.distinguished_name.push(DnType::OrganizationName, serial.to_string());
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca_pem = ca.clone().self_signed(&ca_key).unwrap().pem();
    let mut leaf = named("hooks");
    leaf.subject_alt_names = vec![
        SanType::IpAddress("127.0.0.1".parse().unwrap()),
        SanType::DnsName("hook.default.svc".try_into().unwrap()),
    ];
    let key = KeyPair::generate().unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    (ca_pem, leaf.der().clone(), key)
}

impl Hooks {
    pub async fn start(answers: impl Fn(&str, &Value) -> Option<(u16, String)> + Send + Sync + 'static) -> Self {
        let (ca, leaf, key) = certificates();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf], key)
            .unwrap();
        let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let connections: Arc<Mutex<usize>> = Arc::default();
        let answers: Arc<Answers> = Arc::new(answers);
        let (seen, count) = (Arc::clone(&asked), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answers, seen) = (tls.clone(), Arc::clone(&answers), Arc::clone(&seen));
                *count.lock().unwrap() += 1;
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (answers, seen) = (Arc::clone(&answers), Arc::clone(&seen));
                        async move {
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let review: Value = serde_json::from_slice(&body).unwrap();
                            seen.lock().unwrap().push((path.clone(), review.clone()));
                            let Some((code, body)) = answers(&path, &review) else {
                                return std::future::pending().await;
                            };
                            let answer =
                                http::Response::builder().status(code).header("content-type", "application/json");
                            Ok::<_, Infallible>(answer.body(Full::new(bytes::Bytes::from(body))).unwrap())
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, ca, asked, connections }
    }

    /// Reviews so far at a path.
    pub fn asked(&self, path: &str) -> Vec<Value> {
        self.asked.lock().unwrap().iter().filter(|(p, _)| p == path).map(|(_, r)| r.clone()).collect()
    }

    /// Paths asked so far, in order.
    pub fn paths(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(p, _)| p.clone()).collect()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// A client configuration for a path.
    pub fn client(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": STANDARD.encode(&self.ca)})
    }

    /// A webhook for all of `group`'s `resources`, with more members.
    pub fn hook(&self, path: &str, group: &str, resources: &[&str], more: Value) -> Value {
        let mut hook = json!({"name": format!("{}.hooks.example.com", path.trim_start_matches('/')),
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": self.client(path),
            "rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": resources}]});
        for (key, value) in more.as_object().unwrap() {
            hook[key] = value.clone();
        }
        hook
    }
}

/// A configuration of webhooks; `kind` is `Mutating` or `Validating`.
pub fn configuration(kind: &str, name: &str, hooks: &[Value]) -> (String, Value) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations", kind.to_lowercase());
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": hooks});
    (path, object)
}
