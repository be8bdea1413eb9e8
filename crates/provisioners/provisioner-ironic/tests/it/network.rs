//! The network's way to an Ironic: TLS both ways, user and password, limits. The server is a few lines of HTTP over TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use provisioner_ironic::{Access, HttpTransport, Method, Request, Transport, TransportError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An authority with its files.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
    folder: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("ca.crt"), own.pem()).unwrap();
        Self { params, key, folder }
    }

    /// Certificate and key of this name, as files.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap();
        let (at, key_at) = (self.folder.join(format!("{name}.crt")), self.folder.join(format!("{name}.key")));
        std::fs::write(&at, certificate.pem()).unwrap();
        std::fs::write(&key_at, key.serialize_pem()).unwrap();
        (at, key_at)
    }

    fn file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }
}

/// Serves as an Ironic would behind Apache: it wants a certificate of this authority, and user and password. Returns its port.
async fn serve(authority: &Authority) -> u16 {
    let (certificate, key) = authority.issue("localhost");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![CertificateDer::from_pem_file(certificate).unwrap()],
            PrivateKeyDer::from_pem_file(key).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let (mut read, mut chunk) = (Vec::new(), [0; 4096]);
                while !read.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut chunk).await {
                        Ok(0) | Err(_) => return,
                        Ok(count) => read.extend_from_slice(&chunk[..count]),
                    }
                }
                let answer = answer(&String::from_utf8_lossy(&read));
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    port
}

fn answer(request: &str) -> String {
    let lower = request.to_ascii_lowercase();
    // user:secret
    let status = if lower.contains("authorization: basic dxnlcjpzzwnyzxq=") { "200 OK" } else { "401 Unauthorized" };
    let body = lower.lines().filter(|line| line.starts_with("x-openstack")).collect::<String>();
    let head = "X-OpenStack-Ironic-API-Maximum-Version: 1.115\r\nConnection: close\r\n";
    if lower.contains("/redirected") {
        return format!("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n{head}Content-Length: 0\r\n\r\n");
    }
    if lower.contains("/endless") {
        return format!("HTTP/1.1 200 OK\r\n{head}\r\n{}", "x".repeat(17 << 20));
    }
    format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn login(folder: &Path, password: &str) -> Option<(PathBuf, PathBuf)> {
    let (user_at, password_at) = (folder.join("username"), folder.join("password"));
    std::fs::write(&user_at, "user\n").unwrap();
    std::fs::write(&password_at, format!("{password}\n")).unwrap();
    Some((user_at, password_at))
}

fn get(path: &str) -> Request {
    Request { method: Method::Get, path: path.into(), version: Some(110), body: None }
}

#[tokio::test]
async fn an_ironic_behind_tls_is_reached_with_certificate_user_and_password() {
    let folder = std::env::temp_dir().join(format!("metamorph-ironic-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (ours, others) = (Authority::new(&folder, "ours"), Authority::new(&folder, "others"));
    let port = serve(&ours).await;
    let right = Access {
        endpoint: format!("https://localhost:{port}/").parse().unwrap(),
        authority: Some(ours.file()),
        certificate: Some(ours.issue("metamorph")),
        login: login(&folder, "secret"),
    };
    let transport = HttpTransport::new(right.clone());
    assert_eq!(transport.endpoint(), format!("https://localhost:{port}"));
    let answer = transport.send(&get("/v1/nodes")).await.unwrap();
    assert_eq!((answer.status, answer.maximum.as_deref()), (200, Some("1.115")));
    assert_eq!(String::from_utf8(answer.body).unwrap(), "x-openstack-ironic-api-version: 1.110");
    // A redirect is not followed: the password goes to nobody else.
    assert_eq!(transport.send(&get("/redirected")).await.unwrap().status, 302);
    let endless = transport.send(&get("/endless")).await.unwrap_err();
    assert!(matches!(endless, TransportError::Unreadable(_)), "{endless:?}");
    // A password that has changed is read again after it was refused.
    login(&folder, "wrong");
    let transport = HttpTransport::new(right.clone());
    assert_eq!(transport.send(&get("/v1/nodes")).await.unwrap().status, 401);
    login(&folder, "secret");
    assert_eq!(transport.send(&get("/v1/nodes")).await.unwrap().status, 200);
    let of = async |access: Access| HttpTransport::new(access).send(&get("/v1/nodes")).await.unwrap_err();
    let untrusted = of(Access { authority: Some(others.file()), ..right.clone() }).await;
    assert!(matches!(untrusted, TransportError::Untrusted(_)), "{untrusted:?}");
    for certificate in [None, Some(others.issue("metamorph"))] {
        let refused = of(Access { certificate, ..right.clone() }).await;
        assert!(!matches!(refused, TransportError::Unreadable(_)), "{refused:?}");
    }
    let missing = of(Access { authority: Some(folder.join("nowhere.crt")), ..right.clone() }).await;
    assert!(missing.to_string().contains("nowhere.crt"), "{missing:?}");
    let silent = of(Access { endpoint: "https://127.0.0.1:1/".parse().unwrap(), ..right }).await;
    assert!(matches!(silent, TransportError::Unreachable(_)), "{silent:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
