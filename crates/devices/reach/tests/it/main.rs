//! Requests by way of proxies that do what they should, and of proxies that do not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::sync::{Arc, Mutex};

use addresses::{Allowed, Kind};
use image_sources::{Login, Proxy, Route};
use reach::{Lost, Reach, Refused, not_allowed, refused_by_proxy};
use reqwest::header::{HeaderMap, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use url::Url;

/// A server that answers each request with the same bytes and ends; it notes what it was asked.
struct Peer {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    async fn start(answer: impl Into<Vec<u8>>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (noted, answer) = (Arc::clone(&asked), answer.into());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (noted, answer) = (Arc::clone(&noted), answer.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else { return };
                        head.push(byte);
                    }
                    noted.lock().unwrap().push(String::from_utf8(head).unwrap());
                    // Fails where the client has had enough.
                    let _ = stream.write_all(&answer).await;
                });
            }
        });
        Self { address, asked }
    }

    async fn serving(body: &str) -> Self {
        Self::start(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()))
            .await
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn route(&self, login: Option<Login>, no_proxy: &[&str]) -> Route {
        route(&format!("http://{}", self.address), login, no_proxy)
    }
}

fn route(url: &str, login: Option<Login>, no_proxy: &[&str]) -> Route {
    let no_proxy = no_proxy.iter().map(|entry| (*entry).to_owned()).collect();
    Proxy { url: url.to_owned(), login, no_proxy }.route().unwrap()
}

fn login() -> Option<Login> {
    Some(Login::basic("u", "hunter2").unwrap())
}

fn reach(allowed: &Allowed, proxy: Option<&Route>) -> Reach {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Reach::new(reqwest::Client::builder().tls_certs_only([]), allowed, proxy).unwrap()
}

fn by(proxy: &Route) -> Reach {
    reach(&Allowed::loopback(), Some(proxy))
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

async fn text(reach: &Reach, at: &str) -> String {
    reach.check(&url(at)).unwrap();
    reach.get(url(at)).send().await.unwrap().text().await.unwrap()
}

/// What the proxy did, by the error of a request.
async fn refusal(proxy: &Route, at: &str) -> Option<Refused> {
    let error = by(proxy).get(url(at)).send().await.unwrap_err();
    assert!(!format!("{error:?}").contains("dTpo"), "{error:?}");
    refused_by_proxy(&error, proxy)
}

#[tokio::test]
async fn a_proxy_is_asked_for_names_that_it_alone_knows_and_it_alone_sees_its_login() {
    let proxy = Peer::serving("by proxy").await;
    let route = proxy.route(login(), &["direct.example", "127.0.0.1"]);
    assert_eq!(text(&by(&route), "http://images.nowhere.invalid:81/a?b").await, "by proxy");
    let asked = proxy.asked().remove(0);
    assert!(asked.starts_with("GET http://images.nowhere.invalid:81/a?b HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("proxy-authorization: Basic dTpodW50ZXIy\r\n"), "{asked}");
    // What is read without it is asked itself, and shown nothing.
    let images = Peer::serving("direct").await;
    assert_eq!(text(&by(&route), &format!("http://{}/a", images.address)).await, "direct");
    assert_eq!(proxy.asked().len(), 0);
    let asked = images.asked().remove(0);
    assert!(asked.starts_with("GET /a HTTP/1.1\r\n") && !asked.contains("authorization"), "{asked}");
}

#[tokio::test]
async fn what_a_proxy_does_in_place_of_connecting_is_told_with_its_name() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    for (answer, says, for_good) in [
        ("HTTP/1.1 407 No\r\nproxy-authenticate: Basic\r\n\r\n", "wants user and password (407)", true),
        ("HTTP/1.1 403 No\r\n\r\n", "refuses to connect", false),
        ("HTTP/1.1 302 Elsewhere\r\nlocation: https://127.0.0.1/\r\n\r\n", "refuses to connect", false),
        ("HTTP/1.1 503 Later\r\n\r\n", "refuses to connect", false),
        ("nonsense\r\n\r\n", "refuses to connect", false),
        ("", "ended the connection", false),
        (long.as_str(), "no answer", false),
    ] {
        let proxy = Peer::start(answer).await;
        let route = proxy.route(None, &[]);
        let refused = refusal(&route, "https://images.nowhere.invalid/a").await.expect(answer);
        let told = refused.to_string();
        assert!(
            told.contains(says) && told.contains(&format!("the proxy http://{}", proxy.address)),
            "{answer}: {told}"
        );
        assert_eq!(refused.for_good, for_good, "{told}");
        let asked = proxy.asked().remove(0);
        assert!(asked.starts_with("CONNECT images.nowhere.invalid:443 HTTP/1.1\r\n"), "{asked}");
        assert!(!asked.contains("authorization"), "{asked}");
    }
    let proxy = Peer::start("HTTP/1.1 407 No\r\n\r\n").await;
    let told = refusal(&proxy.route(login(), &[]), "https://i.invalid/").await.unwrap();
    assert!(told.to_string().contains("does not take the user and password") && told.for_good, "{told}");
    assert!(proxy.asked()[0].contains("Proxy-Authorization: Basic dTpodW50ZXIy\r\n"), "{:?}", proxy.asked());
    // The tunnel is there, and behind it nobody speaks TLS: that is no fault of the proxy's.
    let proxy = Peer::start("HTTP/1.1 200 OK\r\n\r\nno TLS, but a line of text that is no record").await;
    assert_eq!(refusal(&proxy.route(None, &[]), "https://i.invalid/").await, None);
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_told_with_its_name() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for scheme in ["http", "https"] {
        let at = format!("{scheme}://images.nowhere.invalid/a");
        let refused = refusal(&route(&nobody, None, &[]), &at).await.unwrap();
        assert_eq!(refused.to_string(), format!("the proxy {nobody} cannot be reached: connection refused"));
        let refused = refusal(&route("http://proxy.nowhere.invalid:3128", None, &[]), &at).await.unwrap();
        let told = refused.to_string();
        assert!(told.contains("proxy.nowhere.invalid:3128 cannot be reached: its name is not resolved"), "{told}");
    }
}

#[tokio::test]
async fn what_may_not_be_called_is_not_called_by_way_of_a_proxy_either() {
    let proxy = Peer::serving("secret").await;
    let none = Allowed::default();
    // The proxy itself, by address and by name.
    let at_loopback = reach(&none, Some(&proxy.route(None, &[])));
    assert_eq!(at_loopback.check(&url("http://images.example/")).unwrap_err().kind, Kind::Loopback);
    let named = proxy.address.replace("127.0.0.1", "localhost");
    let named = reach(&none, Some(&route(&format!("http://{named}"), None, &[])));
    assert_eq!(named.check(&url("http://images.example/")).unwrap_err().kind, Kind::Loopback);
    let error = named.get(url("http://images.example/")).send().await.unwrap_err();
    assert_eq!(not_allowed(&error).map(|refused| refused.kind), Some(Kind::Loopback));
    // What it would be asked for.
    let by = by(&proxy.route(None, &[]));
    for target in ["http://169.254.169.254/latest", "https://[fd00:ec2::254]/", "http://[::ffff:169.254.169.254]/"] {
        assert_eq!(by.check(&url(target)).unwrap_err().kind, Kind::Metadata, "{target}");
    }
    assert_eq!(proxy.asked().len(), 0);
}

/// Redirects to this address, always.
fn to(location: &str) -> String {
    format!("HTTP/1.1 302 Elsewhere\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

#[tokio::test]
async fn a_proxy_that_redirects_leads_nowhere_that_may_not_be_called() {
    for (location, times) in [
        ("http://169.254.169.254/latest", 1),
        ("http://[::ffff:169.254.169.254]/", 1),
        ("ftp://b.nowhere.invalid/", 1),
        ("http://b.nowhere.invalid/", 11),
    ] {
        let proxy = Peer::start(to(location)).await;
        let reach = by(&proxy.route(None, &[]));
        let lost = reach.follow(&url("http://a.nowhere.invalid/"), &HeaderMap::new(), None).await.unwrap_err();
        assert_eq!(matches!(lost, Lost::NotAllowed(_)), location.contains("169.254"), "{lost:?}");
        assert_eq!(proxy.asked().len(), times, "{lost:?}");
        assert_eq!(reach.get(url("http://a.nowhere.invalid/")).send().await.unwrap().status(), 302);
    }
}

/// One that redirects to itself is not shown it with the second request either, nor is the first one when it is led back to.
#[tokio::test]
async fn an_authorization_is_shown_to_no_server_that_the_first_one_redirects_to() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = Peer::start(to("/again")).await;
    let first = Peer::start(to(&format!("http://{}/", store.address))).await;
    let reach = reach(&Allowed::loopback(), None);
    let mut token = HeaderValue::from_static("Bearer t0ken");
    token.set_sensitive(true);
    let headers = HeaderMap::from_iter([("range".parse().unwrap(), HeaderValue::from_static("bytes=5-"))]);
    let lost = reach.follow(&url(&format!("http://{}/", first.address)), &headers, Some(&token)).await.unwrap_err();
    assert!(matches!(lost, Lost::Redirected(why) if why.contains("too often")), "{lost:?}");
    let (first, store) = (first.asked(), store.asked());
    assert!(first.len() == 1 && first[0].contains("Bearer t0ken"), "{first:?}");
    assert!(store.len() == 10 && store.iter().all(|asked| !asked.contains("t0ken")), "{store:?}");
    assert!(store.iter().all(|asked| asked.contains("range: bytes=5-")), "{store:?}");
}

/// The test runs itself with variables that other programs take a proxy from.
#[tokio::test]
async fn no_variable_of_the_environment_names_a_proxy() {
    const INNER: &str = "REACH_TEST_TARGET";
    if let Ok(target) = std::env::var(INNER) {
        let direct = reach(&Allowed::loopback(), None);
        assert_eq!(text(&direct, &target).await, "direct");
        return;
    }
    let (images, proxy) = (Peer::serving("direct").await, Peer::serving("by proxy").await);
    let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "no_variable_of_the_environment_names_a_proxy"]);
    again.env(INNER, format!("http://{}/", images.address)).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        again.env(name, format!("http://{}", proxy.address));
    }
    assert!(again.output().await.unwrap().status.success());
    assert_eq!((images.asked().len(), proxy.asked().len()), (1, 0));
}
