//! Admission of BareMetalHosts at the door of the Kubernetes API: in the process for the embedded one, by HTTPS for any other.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use axum_server::Handle;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use operator::{HostAdmission, admission};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use crate::cli::Webhook;
use crate::connections;

/// Name of the configuration, and beginning of that of the Secret with certificate and key.
const NAME: &str = "metamorph-webhook";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Largest review, bytes: two objects of the largest size that Kubernetes stores, and what is around them.
const MAX_REVIEW: usize = 8 << 20;
/// Bytes of all reviews that are read and answered at once.
const ROOM: usize = 128 << 20;
/// Time for a review's body. Kubernetes waits 30 s at most for the answer.
const BODY_TIME: Duration = Duration::from_secs(10);

fn hosts() -> HostAdmission {
    HostAdmission::new(
        provisioner_metamorph::capabilities(),
        vec![provisioner_metamorph::NAME.to_owned()],
        provisioner_metamorph::address_fault,
    )
}

/// The reviewer for the embedded API.
pub fn in_process() -> apiserver::Reviewer {
    let hosts = hosts();
    apiserver::Reviewer {
        name: admission::NAME.to_owned(),
        group: "metal3.io".to_owned(),
        version: "v1alpha1".to_owned(),
        resource: "baremetalhosts".to_owned(),
        review: Arc::new(move |question| hosts.answer(question)),
    }
}

/// Where the API server finds the webhook.
enum Place {
    Url(Url),
    Service { namespace: String, name: String, port: u16 },
}

impl Place {
    fn of(options: &Webhook) -> anyhow::Result<Option<Self>> {
        if let Some(url) = &options.webhook_url {
            let attempt = || format!("use --webhook-url {url}");
            let url = Url::parse(url).with_context(attempt)?;
            if url.scheme() != "https" || url.host_str().is_none() || url.query().is_some() || url.fragment().is_some()
            {
                return Err(anyhow!("it is no https://HOST[:PORT][/PATH]")).with_context(attempt);
            }
            return Ok(Some(Self::Url(url)));
        }
        let Some(text) = &options.webhook_service else { return Ok(None) };
        let attempt = || format!("use --webhook-service {text}");
        let (namespace, rest) =
            text.split_once('/').ok_or_else(|| anyhow!("it is no NAMESPACE/NAME[:PORT]")).with_context(attempt)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => {
                (name, port.parse().context("the port is no number from 1 to 65535").with_context(attempt)?)
            }
            None => (rest, 443),
        };
        if namespace.is_empty() || name.is_empty() || port == 0 {
            return Err(anyhow!("it is no NAMESPACE/NAME[:PORT]")).with_context(attempt);
        }
        Ok(Some(Self::Service { namespace: namespace.to_owned(), name: name.to_owned(), port }))
    }

    /// The name that the certificate must have.
    fn host(&self) -> String {
        match self {
            Self::Url(url) => url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    fn client_config(&self, certificate: &str) -> Value {
        let bundle = STANDARD.encode(certificate);
        match self {
            Self::Url(url) => {
                let url = format!("{}{}", url.as_str().trim_end_matches('/'), admission::PATH);
                json!({ "url": url, "caBundle": bundle })
            }
            Self::Service { namespace, name, port } => json!({
                "service": { "namespace": namespace, "name": name, "port": port, "path": admission::PATH },
                "caBundle": bundle,
            }),
        }
    }
}

/// Serves the webhook and tells the API server of it, if that is asked for. Resolves when it no longer serves.
pub async fn serve(
    client: &Client,
    namespace: &str,
    scope: Option<&str>,
    options: &Webhook,
    handle: Handle<SocketAddr>,
) -> anyhow::Result<Option<impl Future<Output = std::io::Result<()>> + Send + use<>>> {
    let Some(place) = Place::of(options)? else {
        tracing::warn!(
            "BareMetalHosts are not checked before they are stored, but by the admission policies of `metamorph crds`: give --webhook-service or \
             --webhook-url for that"
        );
        warn_of_stale(client, scope).await;
        return Ok(None);
    };
    let keys = Keys::load(client, namespace, &place.host()).await?;
    let attempt = || format!("listen for the API server on {}", options.webhook_listen);
    let listener = TcpListener::bind(options.webhook_listen).with_context(attempt)?;
    listener.set_nonblocking(true).with_context(attempt)?;
    let tls = connections::tls_of("webhook", &keys.certificate, &keys.key).await?;
    let asked = Asked { hosts: hosts(), room: Arc::new(Semaphore::new(ROOM)) };
    let router = Router::new().route(admission::PATH, post(answer)).with_state(asked);
    let server = axum_server::from_tcp_rustls(listener, tls).context("serve the webhook")?;
    let server = connections::limited(server, "the webhook", handle);
    // It answers before the API server is told to ask it.
    let serving = tokio::spawn(server.serve(router.into_make_service()));
    configure(client, scope, &place, &keys.certificate).await?;
    Ok(Some(async move { serving.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) }))
}

#[derive(Clone)]
struct Asked {
    hosts: HostAdmission,
    /// Bytes of reviews that are read and answered at once.
    room: Arc<Semaphore>,
}

async fn answer(State(asked): State<Asked>, body: Body) -> Response {
    let refuse = |code, what: &str| (code, format!("read the AdmissionReview: {what}")).into_response();
    match tokio::time::timeout(BODY_TIME, read(body, &asked.room)).await {
        Ok(Ok((bytes, _room))) => match serde_json::from_slice(&bytes) {
            Ok(question) => Json(asked.hosts.answer(&question)).into_response(),
            Err(error) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        Ok(Err(what)) => refuse(StatusCode::PAYLOAD_TOO_LARGE, what),
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "it does not come"),
    }
}

/// A review's bytes, with room for each as it comes: who sends nothing takes none from others.
async fn read(body: Body, room: &Arc<Semaphore>) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), &'static str> {
    let mut bytes = Vec::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|_| "it broke off")?;
        if bytes.len() + part.len() > MAX_REVIEW {
            return Err("it is too large");
        }
        let wanted = u32::try_from(part.len()).map_err(|_| "it is too large")?;
        let more = Arc::clone(room).acquire_many_owned(wanted).await.map_err(|_| "the server ends")?;
        match held.as_mut() {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        bytes.extend_from_slice(&part);
    }
    Ok((bytes, held))
}

/// Name of the configuration: one for all hosts, or one for those of a namespace.
fn configuration_name(scope: Option<&str>) -> String {
    scope.map_or_else(|| NAME.to_owned(), |namespace| format!("{NAME}.{namespace}"))
}

/// A configuration of an earlier start refuses all changes of hosts when nobody answers any more.
async fn warn_of_stale(client: &Client, scope: Option<&str>) {
    let mut names = vec![configuration_name(scope), configuration_name(None)];
    names.dedup();
    for name in names {
        match earlier(client, &name).await {
            Ok(None) => {}
            Ok(Some(_)) => tracing::error!(
                "the API server asks a webhook that this process does not serve about each BareMetalHost, and refuses all changes if nobody answers: give \
                 --webhook-service or --webhook-url again, or: kubectl delete validatingwebhookconfiguration {name}"
            ),
            Err(error) => {
                tracing::warn!(%error, "look for the ValidatingWebhookConfiguration {name} of an earlier start")
            }
        }
    }
}

/// The configuration of this name, of an earlier start.
async fn earlier(client: &Client, name: &str) -> Result<Option<ValidatingWebhookConfiguration>, kube::Error> {
    Api::<ValidatingWebhookConfiguration>::all(client.clone()).get_opt(name).await
}

async fn configure(client: &Client, scope: Option<&str>, place: &Place, certificate: &str) -> anyhow::Result<()> {
    let name = configuration_name(scope);
    if scope.is_some() && matches!(earlier(client, NAME).await, Ok(Some(_))) {
        tracing::warn!(
            "the ValidatingWebhookConfiguration {NAME} of another start is about the hosts of all namespaces: delete it, if nobody serves it any more"
        );
    }
    let selector = scope
        .map_or_else(|| json!({}), |namespace| json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } }));
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": [{
            "name": admission::NAME,
            "clientConfig": place.client_config(certificate),
            "rules": [{
                "apiGroups": ["metal3.io"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["baremetalhosts"],
            }],
            "namespaceSelector": selector,
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    });
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(&name, &PatchParams::apply("metamorph").force(), &Patch::Apply(&configuration))
        .await
        .map(|_| ())
        .with_context(|| format!("tell the API server of the webhook (ValidatingWebhookConfiguration {name})"))
}

/// The webhook's certificate, which signs itself, and its key.
struct Keys {
    certificate: String,
    key: String,
}

impl Keys {
    /// Those in the Secret for this host, or new ones.
    async fn load(client: &Client, namespace: &str, host: &str) -> anyhow::Result<Self> {
        let digest = hex::encode(Sha256::digest(host));
        let name = format!("{NAME}-{}", digest.get(..16).unwrap_or_default());
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let attempt = || format!("keep the webhook's key in Secret {name} of namespace {namespace}");
        if let Some(found) = api.get_opt(&name).await.with_context(attempt)? {
            return Self::of(&found).with_context(attempt);
        }
        let made = Self::make(host)?;
        let data = [(CERTIFICATE, &made.certificate), (KEY, &made.key)];
        let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let secret = Secret { metadata, data: Some(BTreeMap::from(data)), ..Secret::default() };
        match api.create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(made),
            // Another process was faster: its key is used.
            Err(kube::Error::Api(error)) if error.code == 409 => {
                Self::of(&api.get(&name).await.with_context(attempt)?).with_context(attempt)
            }
            Err(error) => Err(error).with_context(attempt),
        }
    }

    fn of(secret: &Secret) -> anyhow::Result<Self> {
        let field = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
            bytes
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| anyhow!("it has no {key}; delete it, and it is made anew"))
        };
        Ok(Self { certificate: field(CERTIFICATE)?, key: field(KEY)? })
    }

    fn make(host: &str) -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("make a key")?;
        let mut params = CertificateParams::new(vec![host.to_owned()]).context("make a certificate")?;
        params.distinguished_name.push(DnType::CommonName, "Metamorph webhook");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2120, 1, 1);
        let certificate = params.self_signed(&key).context("make a certificate")?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
