//! Registries over loopback: a good one with its token service, and hostile ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use addresses::Allowed;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode};
use image_sources::{Login, Proxy};
use oci_registry::{
    Class, Compression, Digest, DiskLayer, Error, HttpTransport, MAX_MANIFEST_BYTES, MAX_TOKEN_BYTES, PullSecret,
    Reference, Registries, Resolved,
};
use secrecy::ExposeSecret as _;
use serde_json::json;

/// A scripted answer.
#[derive(Clone, Default)]
struct Said {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

fn said(status: u16, headers: &[(&'static str, &str)], body: impl Into<Vec<u8>>) -> Said {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Said { status, headers, body: body.into() }
}

type Script = dyn Fn(&str, &HeaderMap) -> Said + Send + Sync;

/// A server that answers by a script and notes what it was asked: path with query, and `Authorization`.
struct Server {
    base: String,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Server {
    async fn start(script: impl Fn(&str, &HeaderMap) -> Said + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = listener.local_addr().unwrap().to_string();
        let asked = Arc::<Mutex<Vec<(String, String)>>>::default();
        let state = (Arc::new(script) as Arc<Script>, Arc::clone(&asked));
        let answer = async |State((script, asked)): State<(Arc<Script>, Arc<Mutex<Vec<_>>>)>, request: Request| {
            let path = request.uri().to_string();
            let authorization = request.headers().get("authorization").map(|v| v.to_str().unwrap().to_owned());
            asked.lock().unwrap().push((path.clone(), authorization.unwrap_or_default()));
            let said = script(&path, request.headers());
            let mut response = Response::builder().status(StatusCode::from_u16(said.status).unwrap());
            for (name, value) in said.headers {
                response = response.header(name, value);
            }
            response.body(Body::from(said.body)).unwrap()
        };
        let router = Router::new().fallback(answer).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, asked }
    }

    fn reference(&self, rest: &str) -> Reference {
        Reference::parse(&format!("oci://{}/{rest}", self.base)).unwrap()
    }

    fn asked(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// This program's registries, of which this one speaks plain HTTP.
    fn registries(&self) -> Registries {
        let transport = HttpTransport::new(Allowed::loopback(), String::new);
        Registries::new(transport, Allowed::loopback(), [self.base.clone()])
    }

    fn secret(&self) -> PullSecret {
        let config = json!({"auths": {&self.base: {"username": "puller", "password": "hunter2"}}});
        PullSecret::read(&config.to_string(), &self.reference("os")).unwrap()
    }
}

fn artifact(content: &[u8]) -> Vec<u8> {
    let layer = json!({"mediaType": "application/zstd", "digest": Digest::of(content), "size": content.len(),
        "annotations": {"org.opencontainers.image.title": "disk.raw.zst"}});
    let config = json!({"mediaType": "application/vnd.oci.empty.v1+json", "digest": Digest::of(b"{}"), "size": 2});
    json!({"schemaVersion": 2, "config": config, "layers": [layer]}).to_string().into_bytes()
}

async fn resolve(server: &Server, rest: &str, secret: Option<&PullSecret>) -> Result<Resolved, Error> {
    server.registries().resolve(&server.reference(rest), secret, "x86_64").await
}

#[tokio::test]
async fn an_open_registry_needs_no_secret_and_an_index_leads_to_the_layer() {
    let manifest = artifact(b"disk");
    let of_manifest = Digest::of(&manifest);
    let entry = |digest: &Digest, architecture: &str| json!({"digest": digest, "size": 1, "platform": {"architecture": architecture}});
    let index =
        json!({"schemaVersion": 2, "manifests": [entry(&Digest::of(b"x"), "arm64"), entry(&of_manifest, "amd64")]})
            .to_string();
    let of_index = Digest::of(index.as_bytes());
    let pages: BTreeMap<String, Vec<u8>> = BTreeMap::from([
        ("/v2/team/os/manifests/1.0".to_owned(), index.clone().into_bytes()),
        (format!("/v2/team/os/manifests/{of_manifest}"), manifest),
    ]);
    let server = Server::start(move |path, headers| {
        assert!(headers["accept"].to_str().unwrap().contains("application/vnd.oci.image.index.v1+json"));
        pages.get(path).map_or_else(|| said(404, &[], "no"), |page| said(200, &[], page.clone()))
    })
    .await;
    let found = resolve(&server, "team/os:1.0", None).await.unwrap();
    let layer = DiskLayer {
        manifest: of_manifest.clone(),
        blob: Digest::of(b"disk"),
        size: 4,
        compression: Compression::Zstd,
        format: Some(terms::DiskFormat::Raw),
    };
    assert_eq!(found, Resolved { digest: of_index, layer: layer.clone() });
    server.asked();
    let access = server.registries().access(&server.reference("team/os:1.0"), &layer, None).await.unwrap();
    assert_eq!(access.url.as_str(), format!("http://{}/v2/team/os/blobs/{}", server.base, layer.blob));
    assert!(access.authorization.is_none());
    assert_eq!(
        server.asked(),
        [(format!("/v2/team/os/manifests/{of_manifest}"), String::new())],
        "the tag is not asked again"
    );
    assert_eq!(resolve(&server, "team/os:2", None).await.unwrap_err(), Error::NotFound { what: "image" });
}

/// A registry whose token service is at the same server, which gives this token to this user (`""` for anybody).
async fn with_tokens(user: &'static str, token: &'static str) -> Server {
    let manifest = artifact(b"disk");
    let listener_base = Arc::new(Mutex::new(String::new()));
    let base = Arc::clone(&listener_base);
    let server = Server::start(move |path, headers| {
        let given = headers.get("authorization").map_or("", |value| value.to_str().unwrap());
        if path.starts_with("/token") {
            let body = json!({"token": token, "expires_in": 60}).to_string();
            return if given == user { said(200, &[], body) } else { said(401, &[], "no") };
        }
        if given == format!("Bearer {token}") {
            return said(200, &[], manifest.clone());
        }
        let realm = format!("Bearer realm=\"http://{}/token?x=1\",service=\"the registry\"", base.lock().unwrap());
        said(401, &[("www-authenticate", &realm)], "no")
    })
    .await;
    server.base.clone_into(&mut listener_base.lock().unwrap());
    server
}

#[tokio::test]
async fn a_token_for_pulling_is_got_with_the_secret_and_the_registry_never_sees_the_secret() {
    let basic = "Basic cHVsbGVyOmh1bnRlcjI=";
    let server = with_tokens(basic, "t0ken").await;
    let secret = server.secret();
    let found = resolve(&server, "team/os:1", Some(&secret)).await.unwrap();
    let access = server.registries().access(&server.reference("team/os:1"), &found.layer, Some(&secret)).await.unwrap();
    assert_eq!(access.authorization.as_ref().unwrap().expose_secret(), "Bearer t0ken");
    assert!(!format!("{access:?} {secret:?} {:?}", server.registries()).contains("t0ken"));
    for (path, authorization) in server.asked() {
        if path.starts_with("/token") {
            assert_eq!(path, "/token?x=1&service=the+registry&scope=repository%3Ateam%2Fos%3Apull");
            assert_eq!(authorization, basic);
        } else {
            assert!(matches!(authorization.as_str(), "" | "Bearer t0ken"), "{authorization}");
        }
    }
    let error = resolve(&server, "team/os:1", None).await.unwrap_err();
    assert_eq!((error.class(), error.to_string().contains("without credentials")), (Class::Denied, true));
    // Public images of registries with token services: a token for nobody.
    let server = with_tokens("", "t0ken").await;
    assert!(resolve(&server, "team/os:1", None).await.is_ok());
}

/// A proxy that carries what it is asked for to this server, for those who show the login; with the addresses that it was asked for.
async fn proxy_to(server: String, login: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&asked);
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let carry = async move |request: Request| {
        let answer = |status: u16| Response::builder().status(StatusCode::from_u16(status).unwrap());
        noted.lock().unwrap().push(request.uri().to_string());
        if request.headers().get("proxy-authorization").is_none_or(|given| given != login) {
            return answer(407).header("proxy-authenticate", "Basic").body(Body::empty()).unwrap();
        }
        let mut on = client.get(format!("http://{server}{}", request.uri().path_and_query().unwrap()));
        for name in ["accept", "authorization"] {
            if let Some(value) = request.headers().get(name) {
                on = on.header(name, value.clone());
            }
        }
        let found = on.send().await.unwrap();
        let mut response = answer(found.status().as_u16());
        for (name, value) in found.headers().iter().filter(|(name, _)| *name == "www-authenticate") {
            response = response.header(name, value.clone());
        }
        response.body(Body::from(found.bytes().await.unwrap())).unwrap()
    };
    let router = Router::new().fallback(carry);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (base, asked)
}

/// A registry that only the proxy finds, and whose name nothing but the proxy resolves.
#[tokio::test]
async fn a_registry_and_its_token_service_are_asked_by_way_of_a_proxy() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let manifest = artifact(b"disk");
    let server = Server::start(move |path, headers| {
        assert!(!headers.contains_key("proxy-authorization"));
        let given = headers.get("authorization").map_or("", |value| value.to_str().unwrap());
        match given {
            _ if path.starts_with("/token") => said(200, &[], r#"{"token":"t0ken"}"#),
            "Bearer t0ken" => said(200, &[], manifest.clone()),
            _ => said(401, &[("www-authenticate", "Bearer realm=\"http://r.nowhere.invalid/token\"")], ""),
        }
    })
    .await;
    let login = "Basic dTpodW50ZXIy";
    let (base, asked) = proxy_to(server.base.clone(), login).await;
    let reference = Reference::parse("oci://r.nowhere.invalid/os:1").unwrap();
    let registries = |login: Option<&str>, no_proxy: &[&str]| {
        let no_proxy = no_proxy.iter().map(|entry| (*entry).to_owned()).collect();
        let proxy = Proxy { url: base.clone(), login: login.map(|login| Login(login.to_owned())), no_proxy };
        let transport = HttpTransport::new(Allowed::loopback(), String::new);
        Registries::new(transport, Allowed::loopback(), ["r.nowhere.invalid".to_owned()])
            .through(Some(proxy.route().unwrap()))
    };
    let found = registries(Some(login), &[]).resolve(&reference, None, "x86_64").await.unwrap();
    assert_eq!(found.layer.blob, Digest::of(b"disk"));
    let all = std::mem::take(&mut *asked.lock().unwrap());
    assert!(all.len() == 3 && all.iter().all(|url| url.starts_with("http://r.nowhere.invalid/")), "{all:?}");
    for (login, says) in [(None, "none are set for it"), (Some("Basic eA=="), "does not take the user")] {
        let error = registries(login, &[]).resolve(&reference, None, "x86_64").await.unwrap_err();
        let text = error.to_string();
        assert!(error.class() == Class::Unavailable && text.contains(says) && text.contains(&base), "{text}");
        assert!(!format!("{error:?}").contains("eA=="), "{error:?}");
    }
    asked.lock().unwrap().clear();
    let direct = registries(Some(login), &[".nowhere.invalid"]).resolve(&reference, None, "x86_64").await.unwrap_err();
    assert!(direct.class() == Class::Unavailable && !direct.to_string().contains("proxy"), "{direct}");
    // Neither is an address asked that may not be called, nor a proxy at one.
    let local = Reference::parse("oci://169.254.169.254/os:1").unwrap();
    let error = registries(Some(login), &[]).resolve(&local, None, "x86_64").await.unwrap_err();
    assert!(matches!(error, Error::NotAllowed(_)), "{error}");
    let proxy = Proxy { url: base.clone(), login: None, no_proxy: vec![] }.route().unwrap();
    let transport = HttpTransport::new(Allowed::default(), String::new);
    let none = Registries::new(transport, Allowed::default(), []).through(Some(proxy));
    let error = none.resolve(&reference, None, "x86_64").await.unwrap_err();
    assert!(matches!(error, Error::NotAllowed(_)), "{error}");
    assert_eq!(*asked.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn refusals_are_told_apart() {
    for (answer, class, says) in [
        (said(403, &[], "SENTINEL"), Class::Denied, "HTTP 403"),
        (said(404, &[], "SENTINEL"), Class::NotFound, "no such image"),
        (said(429, &[("retry-after", "17")], "SENTINEL"), Class::Unavailable, "asks to wait 17 s"),
        (said(429, &[("retry-after", "SENTINEL")], ""), Class::Unavailable, "no more requests"),
        (said(503, &[], "SENTINEL"), Class::Unavailable, "HTTP status 503"),
        (said(200, &[], "SENTINEL"), Class::Invalid, "none of OCI's"),
        (said(401, &[], "SENTINEL"), Class::Invalid, "not known"),
        (said(401, &[("www-authenticate", "Basic realm=\"SENTINEL\"")], ""), Class::Request, "no token service"),
        (said(401, &[("www-authenticate", "Digest realm=\"SENTINEL\"")], ""), Class::Invalid, "not known"),
    ] {
        let server = Server::start(move |_, _| answer.clone()).await;
        let error = resolve(&server, "os:1", Some(&server.secret())).await.unwrap_err();
        let text = format!("{error} {error:?} {}", error.advice());
        assert!(error.class() == class && text.contains(says), "{text}");
        assert!(!text.contains("SENTINEL") && !text.contains("hunter2"), "{text}");
        // A registry that takes a password alone is not given it.
        assert!(server.asked().iter().all(|(_, authorization)| authorization.is_empty()));
    }
}

#[tokio::test]
async fn bytes_that_have_another_digest_are_refused() {
    let manifest = artifact(b"disk");
    let (other, right) = (Digest::of(b"other").to_string(), Digest::of(&manifest).to_string());
    for (rest, header) in [(format!("os@{other}"), right), ("os:1".to_owned(), other.clone())] {
        let manifest = manifest.clone();
        let server =
            Server::start(move |_, _| said(200, &[("docker-content-digest", &header)], manifest.clone())).await;
        let error = resolve(&server, &rest, None).await.unwrap_err();
        assert!(matches!(&error, Error::DigestMismatch { expected, .. } if *expected == other), "{error}");
    }
}

#[tokio::test]
async fn what_is_sent_is_bounded() {
    let long = "x".repeat(9000);
    let tokens = |token: String| {
        move |path: &str, headers: &HeaderMap| {
            let host = headers["host"].to_str().unwrap();
            if path.starts_with("/token") {
                return said(200, &[], json!({"token": token}).to_string());
            }
            said(401, &[("www-authenticate", &format!("Bearer realm=\"http://{host}/token\""))], "")
        }
    };
    let nested = json!({"schemaVersion": 2, "manifests": [{"digest": Digest::of(b"x"), "size": 1}]}).to_string();
    let in_itself =
        json!({"schemaVersion": 2, "manifests": [{"digest": Digest::of(nested.as_bytes()), "size": 1}]}).to_string();
    let indexes = move |path: &str, _: &HeaderMap| {
        let body = if path.ends_with("/1") { in_itself.clone() } else { nested.clone() };
        said(200, &[], body)
    };
    let scripts: Vec<(Box<Script>, &str)> = vec![
        (Box::new(|_, _| said(200, &[], vec![b' '; MAX_MANIFEST_BYTES + 1])), "more than 4194304 bytes"),
        (Box::new(|_, _| said(307, &[("location", "/v2/again")], "")), "more than 3 times"),
        (Box::new(|_, _| said(307, &[], "")), "redirects to no address"),
        (Box::new(|_, _| said(307, &[("location", "file:///etc/passwd")], "")), "redirects to no address"),
        (Box::new(move |_, _| said(307, &[("location", &long)], "")), "redirects to no address"),
        (Box::new(|_, _| said(401, &[("www-authenticate", &"Bearer x=".repeat(700))], "")), "too long"),
        (Box::new(|_, _| said(401, &[("www-authenticate", "Bearer realm=\"nowhere\"")], "")), "at no address"),
        (
            Box::new(|_, _| said(401, &[("www-authenticate", "Bearer realm=\"http://u:p@127.0.0.1/\"")], "")),
            "with a user",
        ),
        (Box::new(tokens("x".repeat(MAX_TOKEN_BYTES + 1))), "a token that is no text"),
        (Box::new(tokens("two\r\nlines".to_owned())), "a token that is no text"),
        (Box::new(tokens(String::new())), "no token"),
        (Box::new(tokens("x".repeat(70_000))), "more than 65536 bytes"),
        (Box::new(indexes), "an index within an index"),
    ];
    for (script, says) in scripts {
        let server = Server::start(script).await;
        let error = resolve(&server, "os:1", None).await.unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
    }
}

#[tokio::test]
async fn a_token_goes_to_no_other_host_and_comes_back_to_none() {
    let manifest = artifact(b"disk");
    let store = Server::start(move |_, _| said(200, &[], manifest.clone())).await;
    let elsewhere = format!("http://{}/signed", store.base);
    let server = Server::start(move |path, headers| {
        let host = headers["host"].to_str().unwrap();
        match (path, headers.get("authorization").is_some()) {
            ("/token?scope=repository%3Aos%3Apull", _) => said(200, &[], json!({"access_token": "t0ken"}).to_string()),
            (_, false) => said(401, &[("www-authenticate", &format!("Bearer realm=\"http://{host}/token\""))], ""),
            ("/v2/os/manifests/1", true) => said(307, &[("location", "/v2/os/moved")], ""),
            (_, true) => said(307, &[("location", &elsewhere)], ""),
        }
    })
    .await;
    resolve(&server, "os:1", Some(&server.secret())).await.unwrap();
    assert_eq!(store.asked(), [("/signed".to_owned(), String::new())]);
    assert!(server.asked().contains(&("/v2/os/moved".to_owned(), "Bearer t0ken".to_owned())));
}

#[tokio::test]
async fn whoever_a_registry_sends_to_is_not_signed_in_to() {
    let third = Server::start(|path, headers| {
        let host = headers["host"].to_str().unwrap();
        if path.starts_with("/token") {
            return said(200, &[], json!({"token": "t0ken"}).to_string());
        }
        said(401, &[("www-authenticate", &format!("Bearer realm=\"http://{host}/token\""))], "")
    })
    .await;
    let elsewhere = format!("http://{}/v2/os/manifests/1", third.base);
    let server = Server::start(move |_, _| said(307, &[("location", &elsewhere)], "")).await;
    let error = resolve(&server, "os:1", Some(&server.secret())).await.unwrap_err();
    assert!(error.to_string().contains("another host, which wants to be signed in to"), "{error}");
    assert_eq!(third.asked(), [("/v2/os/manifests/1".to_owned(), String::new())]);
}

#[tokio::test]
async fn a_token_that_shows_the_password_goes_to_no_agent() {
    for token in ["hunter2", "cHVsbGVyOmh1bnRlcjI="] {
        let server = with_tokens("Basic cHVsbGVyOmh1bnRlcjI=", token).await;
        let error = resolve(&server, "team/os:1", Some(&server.secret())).await.unwrap_err();
        assert!(error.to_string().contains("answers with the password"), "{error}");
        assert!(!format!("{error} {error:?}").contains(token), "{error}");
    }
}

#[tokio::test]
async fn local_addresses_are_asked_only_if_they_are_allowed_wherever_they_stand() {
    let deaf = Server::start(|_, _| said(200, &[], "")).await;
    let nothing_local = |plain: &Server| {
        Registries::new(HttpTransport::new(Allowed::default(), String::new), Allowed::default(), [plain.base.clone()])
    };
    let ask = async |registries: Registries, reference: Reference| registries.resolve(&reference, None, "x86_64").await;
    let error = ask(nothing_local(&deaf), deaf.reference("os")).await.unwrap_err();
    assert!(matches!(error, Error::NotAllowed(_)) && error.advice().contains("--allow-address 127.0.0.1"), "{error}");
    let port = deaf.base.split(':').next_back().unwrap();
    for host in [format!("localhost:{port}"), format!("x.localhost:{port}")] {
        let reference = Reference::parse(&format!("oci://{host}/os")).unwrap();
        assert!(matches!(ask(nothing_local(&deaf), reference).await.unwrap_err(), Error::NotAllowed(_)), "{host}");
    }
    assert_eq!(deaf.asked(), []);
    // The registry is allowed; where it sends to is not.
    for answer in [
        said(307, &[("location", "http://169.254.169.254/latest")], ""),
        said(401, &[("www-authenticate", "Bearer realm=\"http://169.254.169.254/token\"")], ""),
    ] {
        let server = Server::start(move |_, _| answer.clone()).await;
        let error = resolve(&server, "os", None).await.unwrap_err();
        assert!(matches!(error, Error::NotAllowed(_)) && error.class() == Class::Request, "{error}");
    }
}

#[tokio::test]
async fn without_leave_for_plain_http_nothing_goes_out_without_tls() {
    let server = Server::start(|_, _| said(200, &[], "")).await;
    let registries = Registries::new(HttpTransport::new(Allowed::loopback(), String::new), Allowed::loopback(), []);
    let error = registries.resolve(&server.reference("os"), None, "x86_64").await.unwrap_err();
    assert!(error.class() == Class::Unavailable && error.advice().contains("--http-registry"), "{error}");
    assert_eq!(server.asked(), []);
    let nobody = Reference::parse("oci://127.0.0.1:1/os").unwrap();
    let error = registries.resolve(&nobody, None, "x86_64").await.unwrap_err();
    assert!(error.to_string().contains("connection refused"), "{error}");
}

/// Answers by their order, over a transport without a network.
struct Scripted(Mutex<Vec<oci_registry::Answer>>);

#[async_trait::async_trait]
impl oci_registry::Transport for Scripted {
    async fn get(&self, _: oci_registry::Request<'_>) -> Result<oci_registry::Answer, oci_registry::TransportError> {
        Ok(self.0.lock().unwrap().remove(0))
    }
}

#[tokio::test]
async fn a_registry_with_tls_sends_nobody_to_one_without() {
    let answer = |status, challenge: Option<&str>, location: Option<&str>| oci_registry::Answer {
        status,
        challenges: challenge.map(ToOwned::to_owned).into_iter().collect(),
        location: location.map(ToOwned::to_owned),
        ..oci_registry::Answer::default()
    };
    for (answer, says) in [
        (answer(401, Some("Bearer realm=\"http://192.0.2.1/token\""), None), "a token service without TLS"),
        (answer(302, None, Some("http://192.0.2.1/x")), "an address without TLS"),
    ] {
        let registries = Registries::new(Scripted(Mutex::new(vec![answer])), Allowed::default(), []);
        let reference = Reference::parse("oci://192.0.2.1/os").unwrap();
        let error = registries.resolve(&reference, None, "x86_64").await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}
