//! Certificates and versions of TLS as BMCs have them.

use std::net::SocketAddr;

use crate::kit::{Bmc, PASSWORD, SYSTEM, local};
use crate::network::{router, serve_with};
use bmc::{Address, BmcRegistry, Credentials, ErrorKind};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use redfish::{Client, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn client(at: SocketAddr, ca: Option<&str>) -> Client {
    let address = Address::parse(&format!("redfish-virtualmedia://{at}{SYSTEM}")).unwrap();
    let credentials = Credentials::new("root", PASSWORD.to_owned().into()).unwrap();
    let tls = Tls { extra_ca_pem: ca.map(ToOwned::to_owned), ..Tls::default() };
    Client::connect(address, credentials, &tls, &BmcRegistry::new(), local()).unwrap()
}

/// A certificate as `openssl req -x509` makes it: its own authority, and for these names.
fn self_signed(names: &[&str]) -> (String, KeyPair) {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "bmc");
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key)
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_trusted_where_it_is_given_itself() {
    // With its address in it, and as openssl's defaults leave it: without any name.
    for names in [&["127.0.0.1"][..], &[]] {
        let (pem, key) = self_signed(names);
        let (stranger, _) = self_signed(names);
        let at = serve_with(router(Bmc::generic()), &pem, &key).await;
        client(at, Some(&pem)).system().await.unwrap_or_else(|error| panic!("{names:?}: {error}"));
        client(at, Some(&format!("{stranger}{pem}"))).system().await.unwrap();
        let error = client(at, Some(&stranger)).system().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TlsNotTrusted, "{error}");
        assert!(error.to_string().contains("self-signed"), "{error}");
        assert!(error.advice.contains("--bmc-ca") && error.advice.contains("s_client"), "{}", error.advice);
    }
}

#[tokio::test]
async fn what_a_given_certificate_says_of_itself_still_counts() {
    let (pem, key) = self_signed(&["192.0.2.1"]);
    let at = serve_with(router(Bmc::generic()), &pem, &key).await;
    let error = client(at, Some(&pem)).system().await.unwrap_err();
    assert!(error.to_string().contains("not made out for this address"), "{error}");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let at = serve_with(router(Bmc::generic()), &pem, &key).await;
    let error = client(at, Some(&pem)).system().await.unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

/// Somebody else has the certificate, but not its key.
#[tokio::test]
async fn a_given_certificate_proves_nothing_without_its_key() {
    let (pem, _) = self_signed(&["127.0.0.1"]);
    let (_, other) = self_signed(&["127.0.0.1"]);
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    use rustls::pki_types::pem::PemObject;
    let chain = vec![rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
    let key = rustls::pki_types::PrivateKeyDer::try_from(other.serialize_der()).unwrap();
    let key = rustls::sign::CertifiedKey::new(chain, provider.key_provider.load_private_key(key).unwrap());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(key)));
    let config = axum_server::tls_rustls::RustlsConfig::from_config(std::sync::Arc::new(config));
    let bmc = Bmc::generic();
    let at = crate::network::serve_config(router(std::sync::Arc::clone(&bmc)), config).await;
    assert!(client(at, Some(&pem)).system().await.is_err());
    assert!(bmc.take_log().is_empty());
}

/// A BMC of the past: it takes handshakes of TLS 1.0 alone. To others it sends an alert, or ends the connection.
async fn of_the_past(alert: bool) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 5];
            stream.read_exact(&mut head).await.unwrap();
            let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            stream.read_exact(&mut hello).await.unwrap();
            let offers = offers(&hello);
            if offers.contains(&0x0035) {
                // ServerHello: TLS 1.0, 32 random bytes, no session, TLS_RSA_WITH_AES_256_CBC_SHA, no compression.
                let mut answer = vec![0x16, 3, 1, 0, 42, 2, 0, 0, 38, 3, 1];
                answer.extend([7; 32]);
                answer.extend([0, 0x00, 0x35, 0]);
                let _ = stream.write_all(&answer).await;
            } else if alert {
                let _ = stream.write_all(&[0x15, 3, 1, 0, 2, 2, 40]).await;
            }
            let _ = stream.shutdown().await;
        }
    });
    at
}

/// The cipher suites of a ClientHello (RFC 5246, 7.4.1.2).
fn offers(hello: &[u8]) -> Vec<u16> {
    assert_eq!(hello[0], 1, "a ClientHello");
    let session = usize::from(hello[38]);
    let start = 39 + session;
    let length = usize::from(u16::from_be_bytes([hello[start], hello[start + 1]]));
    hello[start + 2..start + 2 + length].chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
}

#[tokio::test]
async fn a_bmc_with_old_tls_is_told_by_what_both_sides_offer() {
    for alert in [true, false] {
        let at = of_the_past(alert).await;
        let error = client(at, None).system().await.unwrap_err();
        assert!(!error.is_transient(), "waiting does not help: {error}");
        let text = error.to_string();
        assert!(text.contains("the BMC offers TLS 1.0 with TLS_RSA_WITH_AES_256_CBC_SHA"), "{text}");
        assert!(text.contains("TLS 1.2 and 1.3") && text.contains("ECDHE"), "{text}");
        assert!(error.advice.contains("firmware") && error.advice.contains("TLS 1.2"), "{}", error.advice);
    }
}
