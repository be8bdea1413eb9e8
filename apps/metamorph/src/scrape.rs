//! `/metrics` over HTTPS (`--metrics-listen`), for clients that the Kubernetes API knows and lets read it.
//!
//! As in controller-runtime's metrics server (`pkg/metrics/filters`), which baremetal-operator has: the bearer token goes into a TokenReview, the user
//! it belongs to into a SubjectAccessReview of the verb `get` on the non-resource URL `/metrics`. What the API says is kept for a while, by the token's
//! digest.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::Handle;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use provisioner::MayAct;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::Metrics;
use crate::endpoint_tls::{Endpoint, EndpointTls};
use crate::observe::{self, Seen};
use crate::{connections, rotated};

/// How long a granted read is granted again without asking.
const GRANTED: Duration = Duration::from_secs(60);
/// How long a refusal holds.
const REFUSED: Duration = Duration::from_secs(10);
/// Answers that are kept: scrapers are few.
const KEPT: usize = 64;
/// Questions to the Kubernetes API at once: everybody on the network can cause some.
const AT_ONCE: usize = 4;
/// Time for an answer, with the time until it is asked for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once, and of one peer: scrapers are few, and agents and BMCs have the other places.
const MOST: (usize, usize) = (128, 16);
/// A failure to ask the Kubernetes API is logged at most this often: everybody on the network can cause some.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Longest token, bytes. Those of service accounts have a thousand.
const MAX_TOKEN: usize = 16 << 10;
/// How often the certificate is looked at.
const LOOK: Duration = Duration::from_secs(300);

/// Binds the endpoint, if there is to be one.
///
/// # Errors
/// The address cannot be listened on.
pub fn bind(options: &Metrics) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = options.metrics_listen else { return Ok(None) };
    let attempt = || format!("listen for metrics on {address}; choose another place with --metrics-listen");
    let listener = TcpListener::bind(address).with_context(attempt)?;
    listener.set_nonblocking(true).with_context(attempt)?;
    Ok(Some(listener))
}

async fn tls(options: &Metrics, client: &Client, namespace: &str) -> anyhow::Result<EndpointTls> {
    match (&options.metrics_certificate, &options.metrics_key) {
        (Some(certificate), Some(key)) => EndpointTls::given(Endpoint::Metrics, certificate, key).await,
        _ if options.metrics_host.is_empty() => {
            let hosts = [format!("metamorph-metrics.{namespace}.svc"), "localhost".to_owned()];
            EndpointTls::generated(Endpoint::Metrics, client, namespace, &hosts).await
        }
        _ => EndpointTls::generated(Endpoint::Metrics, client, namespace, &options.metrics_host).await,
    }
}

/// Serves metrics as part of `parts`, with a certificate that is kept in this namespace.
///
/// # Errors
/// The certificate cannot be had.
pub async fn serve(
    (options, listener): (&Metrics, TcpListener),
    seen: &Arc<Seen>,
    namespace: &str,
    (handle, may_act): (Handle<SocketAddr>, MayAct),
    parts: &mut JoinSet<anyhow::Error>,
) -> anyhow::Result<()> {
    let tls = tls(options, &seen.client, namespace).await?;
    let gate = Gate::new(seen.client.clone());
    let router = Router::new().route("/metrics", get(metrics)).with_state((Arc::new(gate), Arc::clone(seen)));
    let server = axum_server::from_tcp_rustls(listener, tls.config.clone()).context("serve metrics")?;
    let server = connections::limited_to(MOST, server, "metrics", handle);
    parts.spawn(async move {
        match server.serve(router.into_make_service()).await {
            Ok(()) => anyhow!("the metrics endpoint ended"),
            Err(error) => anyhow!(error).context("the metrics endpoint ended"),
        }
    });
    parts.spawn(async move {
        rotated::keep(LOOK, "the metrics endpoint's certificate", may_act, |now| tls.look(now)).await;
        anyhow!("nobody looks after the metrics endpoint's certificate any more")
    });
    Ok(())
}

async fn metrics(State((gate, seen)): State<(Arc<Gate>, Arc<Seen>)>, headers: HeaderMap) -> Response {
    match gate.answer(&headers).await {
        Answer::Granted => observe::metrics(State(seen)).await,
        Answer::Unknown => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, "the Kubernetes API knows nobody by this bearer token\n")
                .into_response()
        }
        Answer::Denied(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
        Answer::NotKnown(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// Whether a client may read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Granted,
    /// There is no token, or it is nobody's.
    Unknown,
    /// Somebody's who may not.
    Denied(String),
    /// The Kubernetes API was not to be asked.
    NotKnown(String),
}

impl Answer {
    /// How long it holds.
    fn holds(&self) -> Duration {
        match self {
            Self::Granted => GRANTED,
            Self::Unknown | Self::Denied(_) => REFUSED,
            Self::NotKnown(_) => Duration::ZERO,
        }
    }
}

/// SHA-256 of a token.
type Key = [u8; 32];

/// Asks the Kubernetes API who may read.
struct Gate {
    client: Client,
    known: Mutex<BTreeMap<Key, (Answer, Instant)>>,
    turns: Semaphore,
    told: Mutex<Option<Instant>>,
}

impl Gate {
    fn new(client: Client) -> Self {
        Self { client, known: Mutex::default(), turns: Semaphore::new(AT_ONCE), told: Mutex::default() }
    }

    async fn answer(&self, headers: &HeaderMap) -> Answer {
        let Some(token) = bearer(headers) else { return Answer::Unknown };
        let key: Key = Sha256::digest(token).into();
        if let Some(answer) = self.recall(&key) {
            return answer;
        }
        let asked = async {
            let _turn = self.turns.acquire().await;
            // Another request with this token may have asked meanwhile.
            match self.recall(&key) {
                Some(answer) => answer,
                None => {
                    let answer = self.ask(token).await.unwrap_or_else(|error| {
                        if self.is_to_be_told() {
                            tracing::warn!(error = %format!("{error:#}"), "nobody can be given metrics");
                        }
                        Answer::NotKnown("the Kubernetes API does not say who may read metrics; try again".to_owned())
                    });
                    self.keep(key, &answer);
                    answer
                }
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
            let seconds = PATIENCE.as_secs();
            Answer::NotKnown(format!("the Kubernetes API has not said within {seconds} s who this is; try again"))
        })
    }

    /// Whether a failure is to be logged now.
    fn is_to_be_told(&self) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = told.is_none_or(|at| at.elapsed() >= LOGGED_EVERY);
        if is_due {
            *told = Some(Instant::now());
        }
        is_due
    }

    fn recall(&self, key: &Key) -> Option<Answer> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, until) = known.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    fn keep(&self, key: Key, answer: &Answer) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, until)| now < *until);
        // Tokens that nobody has must not push out those of scrapers.
        if *answer == Answer::Granted || known.len() < KEPT {
            known.insert(key, (answer.clone(), now + answer.holds()));
        }
    }

    async fn ask(&self, token: &str) -> anyhow::Result<Answer> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let question = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &question).await;
        let answer = answer.map_err(|error| unreviewed("review a token", error))?;
        let status = answer.status.unwrap_or_default();
        match status.user {
            Some(user) if status.authenticated == Some(true) => self.may_read(user).await,
            _ => Ok(Answer::Unknown),
        }
    }

    async fn may_read(&self, user: UserInfo) -> anyhow::Result<Answer> {
        let name = user.username.clone().unwrap_or_default();
        let spec = SubjectAccessReviewSpec {
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some("/metrics".to_owned()),
                verb: Some("get".to_owned()),
            }),
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            resource_attributes: None,
        };
        let question = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &question).await;
        let answer = answer.map_err(|error| unreviewed("review the right to read", error))?;
        let SubjectAccessReviewStatus { allowed, .. } = answer.status.unwrap_or_default();
        Ok(if allowed {
            Answer::Granted
        } else {
            let role = "the ClusterRole metamorph-metrics-reader (`metamorph rbac --metrics`) is for that";
            Answer::Denied(format!("{name:?} may not get the non-resource URL /metrics; {role}"))
        })
    }
}

/// Why the Kubernetes API was not to be asked.
fn unreviewed(what: &str, error: kube::Error) -> anyhow::Error {
    match &error {
        kube::Error::Api(refused) if refused.code == 403 => anyhow!(error).context(format!(
            "{what}: this server may not ask for it; apply what `metamorph rbac --metrics` prints, which has the right"
        )),
        _ => anyhow!(error).context(what.to_owned()),
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::Request;
    use kube::client::Body;
    use serde_json::{Value, json};

    /// An API that knows two tokens, one of which may read, and counts its questions.
    fn api(asked: &Arc<AtomicUsize>) -> Client {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            asked.fetch_add(1, Ordering::Relaxed);
            async move {
                let path = request.uri().path().to_owned();
                let body: Value = serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
                let status = if path.ends_with("/tokenreviews") {
                    match body["spec"]["token"].as_str().unwrap() {
                        "broken" => return Ok::<_, std::convert::Infallible>(failed()),
                        // Named, and yet not authenticated.
                        "expired" => json!({"authenticated": false, "user": {"username": "prometheus"}}),
                        name @ ("prometheus" | "guest") => {
                            json!({"authenticated": true, "user": {"username": name, "groups": ["g"]}})
                        }
                        _ => json!({"error": "it is nobody's"}),
                    }
                } else {
                    let spec = &body["spec"];
                    let asked = (&spec["nonResourceAttributes"], &spec["groups"]);
                    assert_eq!(asked, (&json!({"path": "/metrics", "verb": "get"}), &json!(["g"])), "{path}");
                    json!({"allowed": spec["user"] == "prometheus"})
                };
                let mut answer = body;
                answer["status"] = status;
                Ok(axum::http::Response::new(Body::from(serde_json::to_vec(&answer).unwrap())))
            }
        });
        Client::new(service, "default")
    }

    fn failed() -> axum::http::Response<Body> {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500, "message": "no"});
        let mut answer = axum::http::Response::new(Body::from(serde_json::to_vec(&status).unwrap()));
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        answer
    }

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_read_reads_and_nobody_else() {
        let asked = Arc::new(AtomicUsize::new(0));
        let gate = Gate::new(api(&asked));
        let denied = |answer: Answer| matches!(answer, Answer::Denied(why) if why.contains("\"guest\""));
        assert_eq!(gate.answer(&HeaderMap::new()).await, Answer::Unknown);
        for nothing in
            ["prometheus", "Basic prometheus", "Bearer", "Bearer  ", &format!("Bearer {}", "t".repeat(MAX_TOKEN + 1))]
        {
            assert_eq!(gate.answer(&with(nothing)).await, Answer::Unknown, "{nothing:.20}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 0, "nobody is asked about what is no token");
        assert_eq!(gate.answer(&with("Bearer somebody's")).await, Answer::Unknown);
        assert_eq!(gate.answer(&with("Bearer expired")).await, Answer::Unknown);
        assert_eq!(gate.answer(&with("bearer prometheus")).await, Answer::Granted);
        assert!(denied(gate.answer(&with("Bearer guest")).await));
        assert_eq!(asked.load(Ordering::Relaxed), 6);
        assert_eq!(gate.answer(&with("Bearer prometheus")).await, Answer::Granted);
        assert!(denied(gate.answer(&with("Bearer guest")).await));
        assert_eq!(asked.load(Ordering::Relaxed), 6, "both are known");
        tokio::time::advance(REFUSED).await;
        assert!(denied(gate.answer(&with("Bearer guest")).await));
        assert_eq!(gate.answer(&with("Bearer prometheus")).await, Answer::Granted);
        assert_eq!(asked.load(Ordering::Relaxed), 8, "a refusal is asked about again sooner");
        tokio::time::advance(GRANTED).await;
        assert_eq!(gate.answer(&with("Bearer prometheus")).await, Answer::Granted);
        assert_eq!(asked.load(Ordering::Relaxed), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_that_does_not_answer_lets_nobody_in_and_is_asked_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let gate = Gate::new(api(&asked));
        for times in 1..3 {
            assert!(matches!(gate.answer(&with("Bearer broken")).await, Answer::NotKnown(_)));
            assert_eq!(asked.load(Ordering::Relaxed), times);
            assert!(!gate.is_to_be_told(), "once a minute is often enough");
        }
        tokio::time::advance(LOGGED_EVERY).await;
        assert!(gate.is_to_be_told() && !gate.is_to_be_told());
        let refused = kube::core::Status { code: 403, ..kube::core::Status::default() };
        let text = format!("{:#}", unreviewed("review a token", kube::Error::Api(Box::new(refused))));
        assert!(text.contains("metamorph rbac --metrics"), "{text}");
        let never = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<axum::http::Response<Body>, std::convert::Infallible>>()
        });
        let gate = Gate::new(Client::new(never, "default"));
        assert!(matches!(gate.answer(&with("Bearer prometheus")).await, Answer::NotKnown(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn many_false_tokens_are_bounded_and_push_nobody_out() {
        let asked = Arc::new(AtomicUsize::new(0));
        let gate = Gate::new(api(&asked));
        for number in 0..2 * KEPT {
            gate.answer(&with(&format!("Bearer false-{number}"))).await;
        }
        assert_eq!(gate.known.lock().unwrap().len(), KEPT);
        assert_eq!(gate.answer(&with("Bearer prometheus")).await, Answer::Granted);
        let before = asked.load(Ordering::Relaxed);
        assert_eq!(gate.answer(&with("Bearer prometheus")).await, Answer::Granted);
        assert_eq!(asked.load(Ordering::Relaxed), before);
    }
}
