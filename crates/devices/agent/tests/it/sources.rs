//! Images from mirrors that serve and that do not, and by way of a real proxy (tinyproxy).

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_protocol::{Authorization, ErrorCode, ImageProxy, Outcome, SourceAddress, WriteImage};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use disk_image::read_partitions;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::common::{outcomes, outcomes_trusting};
use crate::disks::{Images, MIB, device, failed, image, machine, open, write, written};

/// A server of images with mirrors that are of no use below `/gone`, `/wrong`, `/half` and `/lists`.
async fn mirrors() -> Images {
    let bytes = image();
    let sha256 = hex::encode(Sha256::digest(&bytes));
    let mut other = bytes.clone();
    other[30 << 20] ^= 1;
    let half = bytes[..bytes.len() / 2].to_vec();
    let (list, false_list) = (format!("{sha256}  image.raw\n"), format!("{sha256}  other.raw\n"));
    let router = Router::new()
        .route("/image.raw", get(async move || bytes.clone()))
        .route("/wrong/image.raw", get(async move || other.clone()))
        .route("/half/image.raw", get(async move || half.clone()))
        .route("/lists/SUMS", get(async move || false_list.clone()))
        .route("/SUMS", get(async move || list.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Images { address, sha256 }
}

fn from(images: &Images, paths: &[&str]) -> WriteImage {
    let mut order = images.order("image.raw", "owner-1");
    let source = |path: &&str| SourceAddress { url: format!("http://{}{path}", images.address), authorization: None };
    order.image.sources = paths.iter().map(source).collect();
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_without_the_image_is_passed_over_and_so_is_one_with_other_bytes() {
    let images = mirrors().await;
    let folder = machine();
    let paths = ["/gone/image.raw", "/wrong/image.raw", "/half/image.raw", "/image.raw"];
    let found = outcomes(folder.path(), vec![write(from(&images, &paths))]).await;
    let summary = written(&found[0]);
    assert_eq!(summary.digest, format!("sha256:{}", images.sha256));
    assert_eq!(summary.source, format!("http://{}/image.raw", images.address));
    assert_eq!((summary.image_bytes, summary.boot_entry.is_some()), (40 * MIB, true));
    let told: Vec<_> = summary.warnings.iter().map(String::as_str).collect();
    assert!(told.len() == 3 && told[0].contains("/gone/image.raw") && told[0].contains("404"), "{told:?}");
    assert!(told[1].contains("/wrong/image.raw") && told[1].contains("checksum mismatch"), "{told:?}");
    assert!(told[2].contains("/half/image.raw") && told[2].contains("checksum mismatch"), "{told:?}");
    let on_disk = std::fs::read(device(folder.path(), "vdb")).unwrap();
    assert!(on_disk[30 << 20..31 << 20] == image()[30 << 20..31 << 20], "the right bytes are on the disk");
    assert_eq!(
        read_partitions(&open(folder.path(), "vdb")).unwrap().unwrap().partitions.len(),
        4,
        "with mark and config drive"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_address_serves_the_image_each_is_told_and_nothing_is_bootable() {
    let images = mirrors().await;
    let folder = machine();
    let found = outcomes(folder.path(), vec![write(from(&images, &["/gone/image.raw", "/wrong/image.raw"]))]).await;
    let (code, message) = failed(&found[0]);
    assert_eq!(code, ErrorCode::ChecksumMismatch, "{message}");
    assert!(
        message.contains("/wrong/image.raw") && message.contains("before that") && message.contains("404"),
        "{message}"
    );
    assert!(matches!(&found[0], Outcome::Failed(error) if !error.untouched));
    assert!(read_partitions(&open(folder.path(), "vdb")).unwrap().is_none());
    // The address that the host names is not asked where it is not among them.
    let found = outcomes(machine().path(), vec![write(from(&images, &["/gone/image.raw", "/gone/2.raw"]))]).await;
    let (code, message) = failed(&found[0]);
    assert!(code == ErrorCode::ImageNotFound && message.contains("/gone/2.raw"), "{message}");
    assert!(matches!(&found[0], Outcome::Failed(error) if error.untouched));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_file_is_read_from_the_first_mirror_that_lists_the_image() {
    let images = mirrors().await;
    let folder = machine();
    let at = |path: &str| format!("http://{}{path}", images.address);
    let mut order = images.order("image.raw", "owner-1");
    order.image.checksum = at("/gone/SUMS");
    order.image.checksum_sources = ["/gone/SUMS", "/lists/SUMS", "/SUMS"].map(at).to_vec();
    let mut none = order.clone();
    none.image.checksum_sources.truncate(2);
    let found = outcomes(folder.path(), vec![write(none), write(order)]).await;
    let (code, message) = failed(&found[0]);
    assert!(
        code == ErrorCode::ChecksumUnavailable && message.contains("404") && message.contains("other entries"),
        "{message}"
    );
    let summary = written(&found[1]);
    assert_eq!(summary.digest, format!("sha256:{}", images.sha256));
    assert_eq!(summary.warnings.len(), 2, "{:?}", summary.warnings);
}

/// tinyproxy with a user; ended on drop.
struct Tinyproxy {
    address: SocketAddr,
    program: Child,
    _folder: TempDir,
}

impl Drop for Tinyproxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Tinyproxy {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Another program may take the port in between.
        for _ in 0..10 {
            let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let file = folder.path().join("tinyproxy.conf");
            let mut settings = std::fs::File::create(&file).unwrap();
            let port = address.port();
            write!(
                settings,
                "Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 20\nBasicAuth u hunter2\nLogLevel Error\n"
            )
            .unwrap();
            let mut command = Command::new("tinyproxy");
            command.arg("-d").arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
            let mut program = command.spawn().expect("tinyproxy (Debian: tinyproxy-bin) is needed");
            for _ in 0..200 {
                if tokio::net::TcpStream::connect(address).await.is_ok() {
                    return Self { address, program, _folder: folder };
                }
                if program.try_wait().unwrap().is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let _ = program.kill();
        }
        panic!("tinyproxy does not start");
    }

    fn by(&self, login: Option<&str>, no_proxy: &[&str]) -> Option<ImageProxy> {
        Some(ImageProxy {
            url: format!("http://{}", self.address),
            authorization: login.map(|login| Authorization(login.to_owned())),
            no_proxy: no_proxy.iter().map(|entry| (*entry).to_owned()).collect(),
        })
    }
}

/// `u:hunter2`.
const LOGIN: &str = "Basic dTpodW50ZXIy";

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_read_by_way_of_a_proxy_and_without_it_where_that_is_said() {
    let bytes = image();
    let sha256 = hex::encode(Sha256::digest(&bytes));
    // A proxy names itself to servers without TLS.
    let by_proxy = async move |headers: HeaderMap| -> Response {
        let is_clean = !headers.contains_key("proxy-authorization") && !headers.contains_key("authorization");
        if headers.contains_key("via") && is_clean {
            bytes.clone().into_response()
        } else {
            StatusCode::FORBIDDEN.into_response()
        }
    };
    let router = Router::new().route("/image.raw", get(by_proxy));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let images = Images { address: listener.local_addr().unwrap(), sha256 };
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let proxy = Tinyproxy::start().await;
    let order = |by: Option<ImageProxy>| {
        let mut order = images.order("image.raw", "owner-1");
        order.image.proxy = by;
        write(order)
    };
    let port = images.address.port();
    let orders = vec![
        order(None),
        order(proxy.by(Some(LOGIN), &[&format!("127.0.0.1:{port}")])),
        order(proxy.by(None, &[])),
        order(proxy.by(Some("Basic dTp4"), &[])),
        order(proxy.by(Some(LOGIN), &["10.0.0.0/8", "127.0.0.1:1"])),
    ];
    assert!(!format!("{orders:?}").contains("dTpo"));
    let folder = machine();
    let found = outcomes(folder.path(), orders).await;
    for (number, outcome) in found[..2].iter().enumerate() {
        let (code, message) = failed(outcome);
        assert!(
            code == ErrorCode::ImageNotFound && message.contains("403") && !message.contains("proxy"),
            "{number}: {message}"
        );
    }
    let (code, message) = failed(&found[2]);
    assert!(code == ErrorCode::ImageUnreachable && message.contains("(407), and none are set"), "{message}");
    // tinyproxy answers a wrong password as a server does.
    let (_, wrong) = failed(&found[3]);
    assert!(wrong.contains("401") && !wrong.contains("dTp"), "{wrong}");
    for message in [message, wrong] {
        assert!(message.contains(&format!("the proxy http://{}", proxy.address)), "{message}");
    }
    let summary = written(&found[4]);
    assert_eq!(
        summary.source,
        format!("http://{}/image.raw by way of the proxy http://{}", images.address, proxy.address)
    );
    assert!(summary.digest.ends_with(&images.sha256), "{summary:?}");
}

/// Serves this by HTTPS for `localhost`; the address, and whom to trust.
async fn over_tls(router: Router) -> (SocketAddr, String) {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (pem, secret) = (key.cert.pem(), key.signing_key.serialize_pem());
    let of_server = axum_server::tls_rustls::RustlsConfig::from_pem(pem.clone().into(), secret.into()).await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let server = axum_server::from_tcp_rustls(listener, of_server).unwrap();
    tokio::spawn(server.serve(router.into_make_service()));
    (address, pem)
}

/// Nothing but the way to it vouches for a checksum file.
#[tokio::test(flavor = "multi_thread")]
async fn a_checksum_file_over_tls_is_not_read_where_a_redirect_leads_without() {
    let images = mirrors().await;
    let list = format!("http://{}/SUMS", images.address);
    let elsewhere = get(async move || (StatusCode::FOUND, [("location", list.clone())]));
    let (address, pem) = over_tls(Router::new().route("/SUMS", elsewhere)).await;
    let mut order = images.order("image.raw", "owner-1");
    order.image.checksum = format!("https://localhost:{}/SUMS", address.port());
    let folder = machine();
    let found = outcomes_trusting(folder.path(), &pem, vec![write(order)]).await;
    let (_, message) = failed(&found[0]);
    assert!(message.contains("redirected to an address without TLS"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_over_tls_is_read_by_way_of_a_proxy_that_sees_nothing_of_it() {
    let bytes = image();
    let sha256 = hex::encode(Sha256::digest(&bytes));
    let seen = async move |headers: HeaderMap| -> Response {
        let is_clean = !headers.contains_key("via") && !headers.contains_key("proxy-authorization");
        if is_clean { bytes.clone().into_response() } else { StatusCode::FORBIDDEN.into_response() }
    };
    let (address, pem) = over_tls(Router::new().route("/image.raw", get(seen))).await;
    let images = Images { address, sha256 };
    let proxy = Tinyproxy::start().await;
    let order = |host: &str, login| {
        let mut order = images.order("image.raw", "owner-1");
        order.image.url = format!("https://{host}/image.raw");
        order.image.proxy = proxy.by(login, &[]);
        write(order)
    };
    let at = format!("localhost:{}", images.address.port());
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let orders = vec![order(&at, None), order(&nobody, Some(LOGIN)), order(&at, Some(LOGIN))];
    let folder = machine();
    let found = outcomes_trusting(folder.path(), &pem, orders).await;
    for (outcome, says) in found[..2].iter().zip(["none are set", "refuses to connect"]) {
        let (code, message) = failed(outcome);
        assert!(code == ErrorCode::ImageUnreachable && message.contains(says), "{message}");
        assert!(message.contains(&format!("the proxy http://{}", proxy.address)), "{message}");
    }
    let summary = written(&found[2]);
    assert!(summary.digest.ends_with(&images.sha256) && summary.source.contains("by way of the proxy"), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_with_a_proxy_that_cannot_be_used_reads_nothing_without_it() {
    let images = mirrors().await;
    let folder = machine();
    let with = |url: &str, no_proxy: &str| {
        let mut order = images.order("image.raw", "owner-1");
        order.image.proxy =
            Some(ImageProxy { url: url.into(), authorization: None, no_proxy: vec![no_proxy.to_owned()] });
        write(order)
    };
    let orders =
        vec![with("socks5://127.0.0.1:1", "*"), with("http://p.example", "a b"), with("http://169.254.169.254", "a")];
    let found = outcomes(folder.path(), orders).await;
    for (outcome, code) in
        found.iter().zip([ErrorCode::ImageUnreachable, ErrorCode::ImageUnreachable, ErrorCode::ImageNotAllowed])
    {
        assert_eq!(failed(outcome).0, code, "{outcome:?}");
    }
}
