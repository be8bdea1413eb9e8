//! Service roots that nobody has asked a password for, over real sockets.

use std::net::SocketAddr;

use addresses::Allowed;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use discovery::{Answer, Place};
use redfish::ServiceRoots;

use crate::kit::Bmc;
use crate::network::{router, serve_with};

fn place(at: SocketAddr, tls: bool) -> Place {
    Place { ip: at.ip(), port: at.port(), tls }
}

async fn ask(at: SocketAddr, tls: bool) -> Answer {
    ServiceRoots::new(Allowed::loopback()).unwrap().ask(place(at, tls)).await
}

#[tokio::test]
async fn a_bmc_shows_itself_and_the_key_that_it_proves_and_is_sent_no_secret() {
    let (mut keys, mut roots) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let pair = rcgen::generate_simple_self_signed(vec!["elsewhere.example".to_owned()]).unwrap();
        let strict = |request: axum::extract::Request, next: axum::middleware::Next| {
            let has = |name: &str| request.headers().contains_key(name);
            let is_secret = has("authorization") || has("x-auth-token");
            assert!(!is_secret && request.uri().path() == "/redfish/v1/", "{request:?}");
            next.run(request)
        };
        let bmc = router(Bmc::generic()).layer(axum::middleware::from_fn(strict));
        let at = serve_with(bmc, &pair.cert.pem(), &pair.signing_key).await;
        let Answer::Shown(shown) = ask(at, true).await else { panic!("no service root") };
        keys.push(shown.key_sha256.clone().unwrap());
        roots.push(shown);
    }
    assert_ne!(keys[0], keys[1], "each has a key of its own");
    assert!(
        roots[0].uuid.is_some() && roots[0].uuid == roots[1].uuid && !roots[0].redfish_version.is_empty(),
        "{roots:?}"
    );
}

async fn plain(router: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    at
}

#[tokio::test]
async fn what_is_no_bmc_is_nothing_and_a_redirect_leads_nowhere() {
    let bmc = plain(router(Bmc::generic())).await;
    assert!(matches!(ask(bmc, false).await, Answer::Shown(shown) if shown.key_sha256.is_none()));
    let to_bmc = format!("http://{bmc}/redfish/v1/");
    for (what, expected) in [
        ((StatusCode::FOUND, [(header::LOCATION, to_bmc.as_str())], String::new()).into_response(), Answer::Nothing),
        ((StatusCode::OK, [(header::LOCATION, "")], "<html>".to_owned()).into_response(), Answer::Nothing),
        ((StatusCode::UNAUTHORIZED, HeaderMap::new(), String::new()).into_response(), Answer::Hidden),
        ((StatusCode::NOT_FOUND, HeaderMap::new(), String::new()).into_response(), Answer::Nothing),
        // A service root, and behind it more than anybody's is long.
        (
            (StatusCode::OK, HeaderMap::new(), format!("{{\"RedfishVersion\":\"1.0.0\"}}{}", " ".repeat(64 << 10)))
                .into_response(),
            Answer::Nothing,
        ),
    ] {
        let what = std::sync::Mutex::new(Some(what));
        let what = std::sync::Arc::new(what);
        let at = plain(Router::new().fallback(move || {
            let answer = what.lock().unwrap().take().unwrap();
            async move { answer }
        }))
        .await;
        assert_eq!(ask(at, false).await, expected);
    }
    // TLS where there is none, and nobody at all.
    assert_eq!(ask(bmc, true).await, Answer::Nothing);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(ask(free, false).await, Answer::Nothing);
}

#[tokio::test]
async fn a_local_address_is_not_called_unless_it_is_allowed() {
    let at = plain(router(Bmc::generic())).await;
    let strict = ServiceRoots::new(Allowed::default()).unwrap();
    assert_eq!(strict.ask(place(at, false)).await, Answer::NotAllowed);
}
