//! Admission of BareMetalHosts and related objects: in process for the embedded Kubernetes API, over HTTPS for any other.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use api::metal3::{BareMetalHost, annotation};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use host_lifecycle::Beside;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use operator::{HostAdmission, Readable, admission_review};
use provisioner::MayAct;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use crate::cli::Webhook;
use crate::connections;
use crate::kept::{self, Data, Series};
use crate::renewal::Times;
use crate::rotated::{self, Pair, Rotated};

/// Group, version and plural of the hosts.
const GROUP: &str = "metal3.io";
const VERSION: &str = "v1alpha1";
const HOSTS: &str = "baremetalhosts";
/// Group of the own kinds.
const OWN_GROUP: &str = "metamorph.metal3.io";

/// An own kind whose objects are reviewed when they are created or changed, by what they say alone.
struct OwnKind {
    resource: &'static str,
    /// Name of the webhook.
    name: &'static str,
    path: &'static str,
    answer: fn(&Value) -> Value,
}

/// All of them.
static OWN: [OwnKind; 2] = [
    OwnKind {
        resource: "hostdiscoveries",
        name: admission_review::DISCOVERY_NAME,
        path: admission_review::DISCOVERY_PATH,
        answer: admission_review::answer_discovery,
    },
    OwnKind {
        resource: "hostclasses",
        name: admission_review::CLASS_NAME,
        path: admission_review::CLASS_PATH,
        answer: admission_review::answer_class,
    },
];
/// Name of the configuration, and beginning of that of the Secret with certificate and key.
const NAME: &str = "metamorph-webhook";
/// API servers learn of a certificate within seconds; an hour covers one that is unreachable for a while.
const TIMES: Times = Times { life: SignedDuration::from_hours(365 * 24), lead: SignedDuration::from_hours(1) };
/// How often its certificate is looked at.
const LOOK: Duration = Duration::from_secs(300);
/// Largest review, bytes: two objects of the largest size that Kubernetes stores, and the envelope.
const MAX_REVIEW: usize = 8 << 20;
/// Bytes of all reviews that are read and answered at once.
const ROOM: usize = 128 << 20;
/// Time for a review's body. Kubernetes waits 30 s at most for the answer.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Time for the look at a host's namespace.
const NAMESPACE_TIME: Duration = Duration::from_secs(3);

/// The reviewers for the embedded API; of hosts, this one.
pub fn in_process(hosts: HostAdmission) -> Vec<apiserver::Reviewer> {
    let mut all = vec![apiserver::Reviewer {
        name: admission_review::NAME.to_owned(),
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: HOSTS.to_owned(),
        deletes: false,
        beside: None,
        namespace: true,
        review: Arc::new(move |question, beside| {
            hosts.answer(question, beside.first().and_then(admission_review::named_by_namespace))
        }),
    }];
    all.extend(OWN.iter().map(|kind| apiserver::Reviewer {
        name: kind.name.to_owned(),
        group: OWN_GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: kind.resource.to_owned(),
        deletes: false,
        beside: None,
        namespace: false,
        review: Arc::new(|question, _| (kind.answer)(question)),
    }));
    all.extend(Beside::ALL.map(|kind| apiserver::Reviewer {
        name: admission_review::name_of(kind),
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: kind.resource().to_owned(),
        deletes: kind.is_held_by_hosts(),
        beside: kind.is_held_by_hosts().then(|| (GROUP.to_owned(), HOSTS.to_owned())),
        namespace: false,
        review: Arc::new(move |question, hosts| {
            // One host that cannot be read must not hold the objects of others: what can be read of it names what it names.
            let hosts: Vec<_> = hosts
                .iter()
                .filter_map(|host| Readable::<BareMetalHost>::deserialize(host).ok().and_then(Readable::rest))
                .collect();
            admission_review::answer_beside(kind, question, Ok(&hosts))
        }),
    }));
    all
}

/// How the API server reaches the webhook.
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

    /// The name that the certificate must cover.
    fn host(&self) -> String {
        match self {
            Self::Url(url) => url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    fn client_config(&self, certificate: &str, path: &str) -> Value {
        let bundle = STANDARD.encode(certificate);
        match self {
            Self::Url(url) => {
                let url = format!("{}{path}", url.as_str().trim_end_matches('/'));
                json!({ "url": url, "caBundle": bundle })
            }
            Self::Service { namespace, name, port } => json!({
                "service": { "namespace": namespace, "name": name, "port": port, "path": path },
                "caBundle": bundle,
            }),
        }
    }
}

/// If configured, serves the webhook and registers it with the API server. The returned future resolves when it no longer serves.
pub async fn serve(
    client: &Client,
    namespace: &str,
    scope: Option<&str>,
    (options, hosts): (&Webhook, HostAdmission),
    (handle, may_act): (Handle<SocketAddr>, MayAct),
) -> anyhow::Result<Option<impl Future<Output = std::io::Result<()>> + Send + use<>>> {
    let Some(place) = Place::of(options)? else {
        tracing::warn!(
            "BareMetalHosts are not checked before they are stored, but by the admission policies of `metamorph crds`: give --webhook-service or \
             --webhook-url for that"
        );
        warn_of_stale(client, scope).await;
        return Ok(None);
    };
    let rotated = certificates(client, namespace, place.host());
    let tls = WebhookTls::start(client, scope, place, rotated, Timestamp::now()).await?;
    let attempt = || format!("listen for the API server on {}", options.webhook_listen);
    let listener = TcpListener::bind(options.webhook_listen).with_context(attempt)?;
    listener.set_nonblocking(true).with_context(attempt)?;
    let of = match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let namespaces = Api::all(client.clone());
    let asked =
        Asked { hosts, of, namespaces, room: Arc::new(Semaphore::new(ROOM)), lists: Arc::new(Semaphore::new(1)) };
    let mut router = Router::new().route(admission_review::PATH, post(answer));
    for kind in Beside::ALL {
        let review = async move |State(asked): State<Asked>, body: Body| answer_beside(kind, &asked, body).await;
        router = router.route(&admission_review::path_of(kind), post(review));
    }
    for kind in &OWN {
        let review = async |State(asked): State<Asked>, body: Body| match question(body, &asked.room).await {
            Ok((question, _room)) => Json((kind.answer)(&question)).into_response(),
            Err(refusal) => *refusal,
        };
        router = router.route(kind.path, post(review));
    }
    let router = router.with_state(asked);
    let server = axum_server::from_tcp_rustls(listener, tls.config.clone()).context("serve the webhook")?;
    let server = connections::limited(server, "the webhook", handle);
    // It must answer before the API server starts to call it.
    let serving = tokio::spawn(server.serve(router.into_make_service()));
    tls.look(Timestamp::now()).await?;
    Ok(Some(async move {
        let looking = rotated::keep(LOOK, "the webhook's certificate", may_act, |now| tls.look(now));
        tokio::select! {
            served = serving => served.unwrap_or_else(|error| Err(std::io::Error::other(error))),
            () = looking => Err(std::io::Error::other("nobody looks after its certificate any more")),
        }
    }))
}

#[derive(Clone)]
struct Asked {
    hosts: HostAdmission,
    /// Lists the hosts that objects may be named after.
    of: Api<Readable<BareMetalHost>>,
    /// Reads the namespaces of hosts that name no provisioner.
    namespaces: Api<Namespace>,
    /// Bytes of reviews that are read and answered at once.
    room: Arc<Semaphore>,
    /// Lists of all hosts in memory at once: any client that reaches this port may cause one.
    lists: Arc<Semaphore>,
}

async fn answer(State(asked): State<Asked>, body: Body) -> Response {
    match question(body, &asked.room).await {
        Ok((question, _room)) => {
            let of_namespace = named_by_namespace(&asked.namespaces, &question).await;
            Json(asked.hosts.answer(&question, of_namespace.as_deref())).into_response()
        }
        Err(refusal) => *refusal,
    }
}

/// The provisioner that the annotation of the host's namespace names. One that cannot be read in time costs a warning at most.
async fn named_by_namespace(namespaces: &Api<Namespace>, question: &Value) -> Option<String> {
    let name = admission_review::namespace_asked_for(question)?;
    match tokio::time::timeout(NAMESPACE_TIME, namespaces.get_metadata_opt(name)).await {
        Ok(Ok(found)) => found?.metadata.annotations?.remove(annotation::PROVISIONER),
        Ok(Err(error)) => {
            tracing::debug!(namespace = name, %error, "read the namespace of a host");
            None
        }
        Err(_) => None,
    }
}

async fn answer_beside(kind: Beside, asked: &Asked, body: Body) -> Response {
    let (question, _room) = match question(body, &asked.room).await {
        Ok(read) => read,
        Err(refusal) => return *refusal,
    };
    // Reads the current hosts, not a watch's cache.
    let _turn = asked.lists.acquire().await;
    let hosts = if admission_review::asks_for_hosts(kind, &question) {
        let listed = asked.of.list(&ListParams::default()).await;
        listed.map(|all| all.items.into_iter().filter_map(Readable::rest).collect()).map_err(|error| error.to_string())
    } else {
        Ok(Vec::new())
    };
    Json(admission_review::answer_beside(kind, &question, hosts.as_deref().map_err(Clone::clone))).into_response()
}

/// The review in a body, with its share of the room; else the error response.
async fn question(body: Body, room: &Arc<Semaphore>) -> Result<(Value, Option<OwnedSemaphorePermit>), Box<Response>> {
    let refuse = |code, what: &str| Err(Box::new((code, format!("read the AdmissionReview: {what}")).into_response()));
    match tokio::time::timeout(BODY_TIME, read(body, room)).await {
        Ok(Ok((bytes, room))) => match serde_json::from_slice(&bytes) {
            Ok(question) => Ok((question, room)),
            Err(error) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        Ok(Err(what)) => refuse(StatusCode::PAYLOAD_TOO_LARGE, what),
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "it does not come"),
    }
}

/// A review's bytes. Takes room only for bytes that have arrived, so that an idle client blocks no others.
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

/// Logs an error if an earlier start's configuration exists: it rejects all changes of hosts when its webhook no longer answers.
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

/// The configuration of this name, left by an earlier start.
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
    let webhook = |name: &str, path: &str, (group, resource): (&str, &str), operations: &[&str]| {
        json!({
            "name": name,
            "clientConfig": place.client_config(certificate, path),
            "rules": [{
                "apiGroups": [group],
                "apiVersions": [VERSION],
                "operations": operations,
                "resources": [resource],
            }],
            "namespaceSelector": selector,
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    };
    let changes = ["CREATE", "UPDATE"];
    let mut webhooks = vec![webhook(admission_review::NAME, admission_review::PATH, (GROUP, HOSTS), &changes)];
    webhooks.extend(OWN.iter().map(|kind| webhook(kind.name, kind.path, (OWN_GROUP, kind.resource), &changes)));
    webhooks.extend(Beside::ALL.map(|kind| {
        let operations: &[&str] = if kind.is_held_by_hosts() { &["CREATE", "UPDATE", "DELETE"] } else { &changes };
        webhook(
            &admission_review::name_of(kind),
            &admission_review::path_of(kind),
            (GROUP, kind.resource()),
            operations,
        )
    }));
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": name },
        "webhooks": webhooks,
    });
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.patch(&name, &PatchParams::apply("metamorph").force(), &Patch::Apply(&configuration))
        .await
        .map(|_| ())
        .with_context(|| format!("tell the API server of the webhook (ValidatingWebhookConfiguration {name})"))
}

/// The webhook's certificate with its successors: the one to serve, and those that the API server must trust.
struct WebhookTls {
    client: Client,
    scope: Option<String>,
    place: Place,
    rotated: Rotated,
    config: RustlsConfig,
    now: tokio::sync::Mutex<(Pair, Vec<String>)>,
}

impl WebhookTls {
    /// Loads the certificate; the API server does not know it yet.
    async fn start(
        client: &Client,
        scope: Option<&str>,
        place: Place,
        rotated: Rotated,
        now: Timestamp,
    ) -> anyhow::Result<Self> {
        let (pair, _) = rotated.look(now).await?;
        let config = connections::tls_of("webhook", &pair.certificate, &pair.key).await?;
        let now = tokio::sync::Mutex::new((pair, Vec::new()));
        Ok(Self { client: client.clone(), scope: scope.map(ToOwned::to_owned), place, rotated, config, now })
    }

    /// Checks the certificate: registers a new one with the API server before serving it.
    async fn look(&self, now: Timestamp) -> anyhow::Result<()> {
        let (pair, given) = self.rotated.look(now).await?;
        let mut known = self.now.lock().await;
        if known.1 != given {
            configure(&self.client, self.scope.as_deref(), &self.place, &given.concat()).await?;
            known.1 = given;
        }
        if known.0 != pair {
            let config = connections::tls_of("webhook", &pair.certificate, &pair.key).await?;
            self.config.reload_from_config(config.get_inner());
            known.0 = pair;
            tracing::info!("the webhook is served with another certificate from now on");
        }
        Ok(())
    }
}

/// The certificates for this host.
fn certificates(client: &Client, namespace: &str, host: String) -> Rotated {
    let digest = hex::encode(Sha256::digest(&host));
    let name = format!("{NAME}-{}", digest.get(..16).unwrap_or_default());
    let series = Series::new(client, namespace, name, "the webhook's certificate");
    Rotated::new(series, TIMES, move |now| make(&host, now))
}

/// A self-signed certificate and its key.
fn make(host: &str, now: Timestamp) -> anyhow::Result<Data> {
    let key = KeyPair::generate().context("make a key")?;
    let mut params = CertificateParams::new(vec![host.to_owned()]).context("make a certificate")?;
    params.distinguished_name.push(DnType::CommonName, "Metamorph webhook");
    // Tolerates clock differences.
    kept::valid(&mut params, now - SignedDuration::from_hours(24), now + TIMES.life + SignedDuration::from_hours(24));
    let certificate = params.self_signed(&key).context("make a certificate")?;
    Ok(kept::fields(certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use clap::Parser;

    use crate::kept::tests::Secrets;

    #[test]
    fn the_deployment_of_the_examples_runs_this_program_and_its_service_finds_the_webhook() {
        let text = include_str!("../../../examples/operator.yaml");
        let objects = gojson::from_yaml_stream(text).unwrap();
        let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
        let (pod, service) = (&of("Deployment")["spec"]["template"], of("Service"));
        let container = &pod["spec"]["containers"][0];
        let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
        let arguments = arguments.iter().map(|text| text.replace("$(NODE_ADDRESS)", "192.0.2.1"));
        let line = std::iter::once("metamorph".to_owned()).chain(arguments);
        let crate::cli::Command::Operator(options) = crate::cli::Cli::try_parse_from(line).unwrap().command else {
            panic!("no operator")
        };
        assert_eq!(options.endpoints.media_host[0].to_string(), "192.0.2.1");
        let listens = [
            ("media", options.endpoints.media_listen),
            ("agents", options.endpoints.agent_listen),
            ("webhook", options.webhook.webhook_listen),
            ("health", options.endpoints.health_listen),
            ("metrics", options.endpoints.metrics.metrics_listen.unwrap()),
        ];
        let ports: Vec<_> =
            listens.iter().map(|(name, at)| json!({ "name": name, "containerPort": at.port() })).collect();
        assert_eq!(container["ports"], json!(ports));
        assert!(options.endpoints.health_listen.ip().is_unspecified(), "the kubelet asks from elsewhere");
        let Some(Place::Service { namespace, name, port }) = Place::of(&options.webhook).unwrap() else {
            panic!("no Service")
        };
        assert_eq!(
            (&service["metadata"]["namespace"], &service["metadata"]["name"]),
            (&json!(namespace), &json!(name))
        );
        assert_eq!(service["spec"]["ports"], json!([{ "name": "webhook", "port": port, "targetPort": "webhook" }]));
        assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
        let metrics = objects.iter().find(|object| object["metadata"]["name"] == "metamorph-metrics").unwrap();
        assert_eq!(
            metrics["spec"],
            json!({ "selector": pod["metadata"]["labels"], "ports": [{ "name": "metrics", "port": 8443, "targetPort": "metrics" }] })
        );
        let account = gojson::from_yaml_stream(include_str!("../../../docs/generated/rbac.yaml")).unwrap();
        assert!(account.iter().any(|o| o["kind"] == "ServiceAccount"
            && o["metadata"]["name"] == pod["spec"]["serviceAccountName"]
            && o["metadata"]["namespace"] == of("Deployment")["metadata"]["namespace"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_read_for_hosts_that_name_no_provisioner_and_keeps_nobody_waiting() {
        let service = tower::service_fn(async |request: axum::http::Request<kube::client::Body>| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            if name == "silent" {
                std::future::pending::<()>().await;
            }
            assert_ne!(name, "unasked");
            let (status, answer) = match name.as_str() {
                "rehearsal" => {
                    let metadata = json!({ "name": name, "annotations": { annotation::PROVISIONER: "fixture" } });
                    (
                        200,
                        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata }),
                    )
                }
                _ => (
                    403,
                    json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403 }),
                ),
            };
            let answer = Response::builder().status(status).body(Body::from(answer.to_string())).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        let namespaces: Api<Namespace> = Api::all(Client::new(service, "default"));
        let question = |namespace: &str, annotations: Value| json!({ "request": { "namespace": namespace, "object": { "metadata": { "annotations": annotations } } } });
        let named = async |namespace: &str, annotations| {
            named_by_namespace(&namespaces, &question(namespace, annotations)).await
        };
        assert_eq!(named("rehearsal", json!({ "other": "x" })).await.as_deref(), Some("fixture"));
        assert_eq!(named("rehearsal", Value::Null).await.as_deref(), Some("fixture"));
        assert_eq!(named("unasked", json!({ annotation::PROVISIONER: "ironic" })).await, None);
        assert_eq!(named("forbidden", Value::Null).await, None);
        let begun = tokio::time::Instant::now();
        assert_eq!((named("silent", Value::Null).await, begun.elapsed()), (None, NAMESPACE_TIME));
    }

    /// Nobody's attachment is held because another host cannot be read: by what that one names alone.
    #[test]
    fn a_host_that_cannot_be_read_holds_what_it_names_and_nothing_else() {
        let hosts = HostAdmission::new(operator::ForeseenAll::default());
        let reviewer = in_process(hosts).into_iter().find(|one| one.resource == "hostnetworkattachments").unwrap();
        let old = json!({ "metadata": { "namespace": "n", "name": "net" }, "spec": {} });
        let question = json!({ "request": { "uid": "u", "operation": "DELETE", "oldObject": old } });
        let allowed = |attachment: &str| {
            let interfaces = json!([{ "name": "eth0", "hostNetworkAttachment": { "name": attachment } }]);
            let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "namespace": "n", "name": "a" },
                "spec": { "online": true, "networkInterfaces": interfaces }, "status": { "provisioning": { "state": "nonsense" } } });
            (reviewer.review)(&question, &[host])["response"]["allowed"] == json!(true)
        };
        assert!(allowed("other") && !allowed("net"));
    }

    #[test]
    fn a_host_class_is_refused_with_the_rule_the_place_and_the_cost() {
        let reviewer = in_process(HostAdmission::new(operator::ForeseenAll::default()))
            .into_iter()
            .find(|one| one.resource == "hostclasses")
            .unwrap();
        assert_eq!((reviewer.group.as_str(), reviewer.deletes), ("metamorph.metal3.io", false));
        let answer = |expression: &str| {
            let spec = json!({ "rules": [{ "name": "only", "expression": expression }], "result": { "flavor": "x" } });
            let class = json!({ "metadata": { "namespace": "n", "name": "c" }, "spec": spec });
            let question = json!({ "request": { "uid": "u", "operation": "CREATE", "object": class } });
            (reviewer.review)(&question, &[])["response"].clone()
        };
        assert_eq!(answer("hardware.cpu.count > 4"), json!({ "uid": "u", "allowed": true }));
        let refused = answer("hardware.cpus > 4");
        assert_eq!(refused["status"]["message"], "rule only: line 1, column 9: undefined field 'cpus'");
        let bomb = "hardware.nics.all(a, hardware.nics.all(b, hardware.nics.all(c, a.mac == c.mac)))";
        let refused = answer(bomb)["status"]["message"].as_str().unwrap().to_owned();
        assert!(refused.starts_with("rule only may cost ") && refused.contains("250000 at most"), "{refused}");
        let nothing = (reviewer.review)(&json!({ "request": { "uid": "u" } }), &[]);
        assert_eq!(nothing["response"]["allowed"], json!(false));
    }

    /// What the API server is told to trust, and with what the webhook is served, in the order in which it happens.
    #[tokio::test]
    async fn the_api_server_is_told_of_a_certificate_before_it_is_served_and_trusts_both_meanwhile() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secrets = Secrets::default();
        let bundles: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = Arc::clone(&bundles);
        secrets.on_applied(move |body| {
            let bundle = body["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
            sink.lock().unwrap().push(String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap());
        });
        let client = secrets.client();
        let place = Place::Url("https://127.0.0.1:9443".parse().unwrap());
        let rotated = certificates(&client, "own", place.host());
        let now = Timestamp::now();
        let tls = WebhookTls::start(&client, None, place, rotated, now).await.unwrap();
        tls.look(now).await.unwrap();
        let served = async || tls.now.lock().await.0.certificate.clone();
        let first = served().await;
        let bundles = || bundles.lock().unwrap().clone();
        assert_eq!(bundles(), std::slice::from_ref(&first));
        let due = now + TIMES.life / 3 * 2 + SignedDuration::from_secs(5);
        let minutes = |minutes: i64| due + SignedDuration::from_mins(minutes);
        *secrets.clock.lock().unwrap() = Some(due);
        tls.look(minutes(0)).await.unwrap();
        tls.look(minutes(1)).await.unwrap();
        let both = bundles().pop().unwrap();
        assert!(both.starts_with(&first) && both.matches("BEGIN CERTIFICATE").count() == 2, "{both}");
        assert_eq!(served().await, first);
        tls.look(minutes(59)).await.unwrap();
        assert_eq!(served().await, first);
        tls.look(minutes(60)).await.unwrap();
        let second = served().await;
        assert!(second != first && both.ends_with(&second) && bundles().len() == 2, "nothing new is to be told");
        tls.look(minutes(120)).await.unwrap();
        assert_eq!((bundles().pop().unwrap(), secrets.names().len()), (second, 1));
        assert_eq!(bundles().len(), 3);
    }
}
