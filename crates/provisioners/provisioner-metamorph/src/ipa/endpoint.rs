//! What ironic-python-agent asks of an Ironic, below the host's and boot's own address: the API's version, its node, and heartbeats. Hostile input.
//!
//! Lookup tells nothing that the caller does not know: the node's name is in the address, the token is on the medium. A heartbeat counts with the boot's
//! token, from the address that it names, with a certificate; the first one binds the boot. There is no inspection callback: it has no token, and the
//! inventory is read over the connection to the certificate instead ([`super::dialogue`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ipa_protocol::{
    HEARTBEAT_PATH, HEARTBEAT_VERSION, Heartbeat, LOOKUP_PATH, LookupAnswer, LookupConfig, LookupNode, MASKED_TOKEN,
    MAX_HEARTBEAT_BYTES, Secret, VERSION_HEADER,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sha2::{Digest, Sha256};
use url::{Host, Url};

use super::client::Peer;
use super::config::PREFIX;
use super::dialogue::{HEARTBEAT, Ipa};
use crate::hub::Refusal;

/// Time for a heartbeat to come in.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest name of a host in an address.
const MAX_HOST: usize = 128;
/// Largest certificate, bytes of DER.
const MAX_CERTIFICATE: usize = 16 << 10;

/// The routes.
pub fn router(ipa: Arc<Ipa>) -> Router {
    let base = format!("/shard/{{number}}{PREFIX}/{{host}}/{{generation}}");
    Router::new()
        .route(&base, get(version))
        .route(&format!("{base}/"), get(version))
        .route(&format!("{base}{LOOKUP_PATH}"), get(lookup))
        .route(&format!("{base}{HEARTBEAT_PATH}{{node}}"), post(heartbeat))
        .with_state(ipa)
}

/// The part of Ironic's root document that an agent reads.
async fn version() -> Response {
    let version = json!({ "id": "v1", "status": "CURRENT", "min_version": "1.1", "version": HEARTBEAT_VERSION });
    let body = json!({ "name": "Metamorph", "default_version": version, "versions": [version] });
    ([(VERSION_HEADER, HEARTBEAT_VERSION)], axum::Json(body)).into_response()
}

async fn lookup(Path((_, host, _)): Path<(String, String, u64)>) -> Response {
    if host.len() > MAX_HOST {
        return fault(StatusCode::NOT_FOUND, "no such host");
    }
    let answer = LookupAnswer {
        node: LookupNode {
            uuid: host,
            properties: serde_json::Map::new(),
            instance_info: serde_json::Map::new(),
            driver_internal_info: serde_json::Map::new(),
        },
        config: LookupConfig {
            heartbeat_timeout: HEARTBEAT,
            agent_token: Some(Secret::new(MASKED_TOKEN)),
            agent_token_required: true,
            permitted_image_formats: Some(["raw", "gpt", "qcow2"].map(ToOwned::to_owned).to_vec()),
            disable_deep_image_inspection: Some(false),
            agent_skip_bmc_detect: true,
            tls_min_version: Some("1.3".to_owned()),
            ..LookupConfig::default()
        },
    };
    axum::Json(answer).into_response()
}

async fn heartbeat(
    State(ipa): State<Arc<Ipa>>,
    Path((_, host, generation, node)): Path<(String, String, u64, String)>,
    request: Request,
) -> Response {
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(from)| from.ip());
    if host.len() > MAX_HOST || node != host {
        return fault(StatusCode::NOT_FOUND, "no such host");
    }
    let heartbeat = match read(request.into_body()).await {
        Ok(heartbeat) => heartbeat,
        Err(response) => return response,
    };
    let token = heartbeat.agent_token.as_ref().map(Secret::reveal).unwrap_or_default();
    let Some(holder) = ipa.keys.holder(token).filter(|it| it.host == host && it.generation == generation) else {
        return fault(StatusCode::UNAUTHORIZED, "the token is not this host's and generation's");
    };
    let peer = match peer(&heartbeat, from) {
        Ok(peer) => peer,
        Err(why) => return fault(StatusCode::BAD_REQUEST, why),
    };
    if let Err(refusal) = ipa.hub.derived_from(&holder).await {
        return refused(&refusal);
    }
    if let Err(refusal) = ipa.hub.admit(&host, generation, Some(&peer.digest)) {
        return refused(&refusal);
    }
    match ipa.heard(&host, generation, peer, token) {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(_) => fault(StatusCode::FORBIDDEN, "address and certificate of an agent do not change during its boot"),
    }
}

async fn read(body: Body) -> Result<Heartbeat, Response> {
    let body = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_HEARTBEAT_BYTES)).await;
    let body = match body {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return Err(fault(StatusCode::PAYLOAD_TOO_LARGE, "the heartbeat is too long, or broke off")),
        Err(_) => return Err(fault(StatusCode::REQUEST_TIMEOUT, "the heartbeat did not come in time")),
    };
    ipa_protocol::read("the heartbeat", &body, MAX_HEARTBEAT_BYTES)
        .map_err(|error| fault(StatusCode::BAD_REQUEST, &error.to_string()))
}

/// Where the agent wants to be called, and by which certificate it is known there.
fn peer(heartbeat: &Heartbeat, from: Option<IpAddr>) -> Result<Peer, &'static str> {
    let Some(pem) = &heartbeat.agent_verify_ca else {
        return Err("the heartbeat has no certificate (agent_verify_ca)");
    };
    let certificate =
        CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| "agent_verify_ca is no certificate")?;
    if certificate.len() > MAX_CERTIFICATE {
        return Err("the certificate is too large");
    }
    let url = Url::parse(&heartbeat.callback_url).map_err(|_| "callback_url is no address")?;
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::from(address),
        Some(Host::Ipv6(address)) => IpAddr::from(address),
        _ => return Err("callback_url has no IP address"),
    };
    let plain =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    if url.scheme() != "https" || !plain || !matches!(url.path(), "" | "/") || url.port().is_none() {
        return Err("callback_url is no plain https address with a port");
    }
    // Whoever has read a medium has no other machine called.
    if from.map(|from| from.to_canonical()) != Some(address.to_canonical()) {
        return Err("callback_url is not where the heartbeat comes from");
    }
    let digest = hex::encode(Sha256::digest(&certificate));
    Ok(Peer { url, certificate: certificate.to_vec(), digest })
}

fn refused(refusal: &Refusal) -> Response {
    let (status, text) = match refusal {
        Refusal::Superseded => {
            (StatusCode::FORBIDDEN, "the host has been booted again since, or this boot's work has ended")
        }
        Refusal::Contested => (StatusCode::FORBIDDEN, "another boot has reported first for this generation"),
        Refusal::AnotherKey => (StatusCode::UNAUTHORIZED, "the token is derived from another key"),
        // What makes an agent try again soon.
        Refusal::Stale | Refusal::Unknown => (StatusCode::CONFLICT, "this host has not been looked at yet"),
        Refusal::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too many heartbeats"),
    };
    fault(status, text)
}

/// An error as Ironic's API has it.
fn fault(status: StatusCode, text: &str) -> Response {
    let inner = json!({ "faultcode": "Client", "faultstring": text, "debuginfo": null }).to_string();
    let body = json!({ "error_message": inner }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(url: &str, certificate: Option<String>) -> Heartbeat {
        serde_json::from_value(json!({ "callback_url": url, "agent_token": "t", "agent_verify_ca": certificate }))
            .unwrap()
    }

    #[test]
    fn an_agent_is_called_where_it_is_and_nowhere_else() {
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem();
        let from: IpAddr = "192.0.2.7".parse().unwrap();
        let judge = |url: &str| peer(&beat(url, Some(pem.clone())), Some(from)).map(|peer| peer.url.to_string());
        assert_eq!(judge("https://192.0.2.7:9999").as_deref(), Ok("https://192.0.2.7:9999/"));
        for url in [
            "http://192.0.2.7:9999",
            "https://192.0.2.8:9999",
            "https://169.254.169.254:80",
            "https://name:9999",
            "https://192.0.2.7",
            "https://u:p@192.0.2.7:9999",
            "https://192.0.2.7:9999/path",
            "https://192.0.2.7:9999/?q",
            "nonsense",
        ] {
            assert!(judge(url).is_err(), "{url}");
        }
        assert!(peer(&beat("https://192.0.2.7:9999", None), Some(from)).is_err());
        assert!(peer(&beat("https://192.0.2.7:9999", Some("x".into())), Some(from)).is_err());
        assert!(peer(&beat("https://192.0.2.7:9999", Some(pem.clone())), None).is_err());
        let mapped = "::ffff:192.0.2.7".parse().unwrap();
        assert!(peer(&beat("https://192.0.2.7:9999", Some(pem.clone())), Some(mapped)).is_ok());
    }

    mod calls {
        use super::*;
        use agent_protocol::AgentState;
        use api::metamorph::AgentBoot;
        use axum::http::Method;
        use http_body_util::BodyExt;
        use provisioner::{HostKey, Waker};
        use tower::ServiceExt;

        use crate::hub::Hub;
        use crate::keys::{Key, KeyRing};

        const SECRET: [u8; 32] = [7; 32];

        fn ipa() -> Arc<Ipa> {
            let (silence, grace) = (Duration::from_secs(90), Duration::from_secs(60));
            let hub = Hub::new(Arc::new(Waker::default()), silence, grace, Arc::new(|| true));
            let key = HostKey { namespace: "n".into(), name: "h".into(), uid: "u".into() };
            hub.expect(&key, Some(&AgentBoot { generation: 2, ..AgentBoot::default() }));
            let root =
                Key { number: 1, secret: SECRET, certificate_sha256: String::new(), certificate_pem: String::new() };
            Ipa::new(hub, KeyRing::new(root, vec![]))
        }

        async fn call(ipa: &Arc<Ipa>, method: Method, path: &str, body: String) -> (StatusCode, String) {
            let mut request = axum::http::Request::new(Body::from(body));
            *request.method_mut() = method;
            *request.uri_mut() = format!("/shard/0/ipa/{path}").parse().unwrap();
            request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 4711))));
            let answer = router(Arc::clone(ipa)).oneshot(request).await.unwrap();
            let status = answer.status();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        }

        fn certificate() -> String {
            let key = rcgen::KeyPair::generate().unwrap();
            rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap().pem()
        }

        #[tokio::test(start_paused = true)]
        async fn version_and_node_are_told_without_secrets() {
            let ipa = ipa();
            for path in ["u/2", "u/2/"] {
                let (status, body) = call(&ipa, Method::GET, path, String::new()).await;
                assert!(status == StatusCode::OK && body.contains("\"version\":\"1.68\""), "{body}");
            }
            let (status, body) =
                call(&ipa, Method::GET, "u/2/v1/lookup?addresses=52:54:00:00:00:01", String::new()).await;
            let answer: LookupAnswer = serde_json::from_str(&body).unwrap();
            assert_eq!((status, answer.node.uuid.as_str()), (StatusCode::OK, "u"));
            assert!(answer.config.is_masked() && answer.config.heartbeat_timeout == HEARTBEAT);
        }

        #[tokio::test(start_paused = true)]
        async fn a_heartbeat_counts_for_its_own_host_and_boot_and_the_first_one_binds() {
            let ipa = ipa();
            let token = |generation| boot_media::derive::credential(&SECRET, "u", generation);
            // Nobody listens there: the agent is heard, and its inventory cannot be read.
            let beat = |token: &str, pem: &str| {
                json!({ "callback_url": "https://127.0.0.1:9", "agent_token": token, "agent_verify_ca": pem })
                    .to_string()
            };
            let (one, other) = (certificate(), certificate());
            let post = |path: &'static str, body: String| call(&ipa, Method::POST, path, body);
            assert_eq!(post("u/2/v1/heartbeat/u", beat("no", &one)).await.0, StatusCode::UNAUTHORIZED);
            assert_eq!(post("u/2/v1/heartbeat/u", beat(&token(1), &one)).await.0, StatusCode::UNAUTHORIZED);
            assert_eq!(post("v/2/v1/heartbeat/v", beat(&token(2), &one)).await.0, StatusCode::UNAUTHORIZED);
            assert_eq!(post("u/2/v1/heartbeat/v", beat(&token(2), &one)).await.0, StatusCode::NOT_FOUND);
            assert_eq!(post("u/2/v1/heartbeat/u", "{".into()).await.0, StatusCode::BAD_REQUEST);
            let long = "x".repeat(MAX_HEARTBEAT_BYTES + 1);
            assert_eq!(post("u/2/v1/heartbeat/u", long).await.0, StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(
                post("u/1/v1/heartbeat/u", beat(&token(1), &one)).await.0,
                StatusCode::FORBIDDEN,
                "an older boot"
            );
            assert_eq!(post("u/2/v1/heartbeat/u", beat(&token(2), &one)).await.0, StatusCode::ACCEPTED);
            assert_eq!(post("u/2/v1/heartbeat/u", beat(&token(2), &one)).await.0, StatusCode::ACCEPTED);
            let (status, body) = post("u/2/v1/heartbeat/u", beat(&token(2), &other)).await;
            assert_eq!(status, StatusCode::FORBIDDEN);
            assert!(ipa_protocol::api_error(body.as_bytes()).contains("do not change"), "{body}");
            assert!(ipa.hub.any_agent("u").is_none_or(|agent| agent.state == AgentState::Idle));
        }
    }
}
