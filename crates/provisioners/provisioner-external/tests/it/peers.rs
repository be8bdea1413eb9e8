//! Who serves a worker: a user of this machine by its socket, the owner of a certificate over TLS.

use std::path::Path;
use std::sync::Arc;

use provisioner::{Answer, Call, Cause, Verdict};
use provisioner_external::serve::{Bound, listen_tls, listen_unix};
use provisioner_external::{Connect, ExternalProvisioner, Identity, Pin, Tls, Trusted, tls_server, unix_socket};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::fixture::{fixture, machines, site};
use crate::scripted::Declared;

/// Asks the fixture behind this connection for the power.
async fn asked(connect: impl Connect + 'static) -> Result<(), String> {
    let provisioner = ExternalProvisioner::new(site("fixture"), Arc::new(connect));
    match Declared::new("h").ask(&provisioner, Call::PowerState).await {
        Ok(Verdict::Done(Answer::Power(Some(false)))) => Ok(()),
        Err(failure) if failure.cause == Cause::ProvisionerUnavailable => Err(failure.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_socket_is_used_if_it_is_the_users_who_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("acme.sock");
    let bound = listen_unix(&path, fixture(machines())).await.unwrap();
    asked(unix_socket(path.clone(), None)).await.unwrap();
    let another = rustix::process::geteuid().as_raw() + 1;
    let refused = asked(unix_socket(path.clone(), Some(another))).await.unwrap_err();
    assert!(refused.contains(&format!("only that of uid {another} is trusted")), "{refused}");
    let taken = listen_unix(&path, fixture(machines())).await;
    assert!(
        taken.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse),
        "one that is served is not taken away"
    );
    drop(bound);
    let gone = asked(unix_socket(path.clone(), None)).await.unwrap_err();
    assert!(gone.contains("acme.sock"), "{gone}");
    std::fs::write(&path, "a file").unwrap();
    assert!(asked(unix_socket(path.clone(), None)).await.unwrap_err().contains("no socket"));
    assert!(listen_unix(&path, fixture(machines())).await.is_err(), "and a file is not removed");
}

struct Certified {
    authority: String,
    certificate: String,
    key: String,
}

/// An authority, and a certificate of it for this machine.
fn certified() -> Certified {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Certified { authority: issuer.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
}

async fn served(ours: &Certified, clients: &Certified) -> Bound {
    let identity = Identity { certificate: ours.certificate.as_bytes(), key: ours.key.as_bytes() };
    let config = tls_server(clients.authority.as_bytes(), &identity).unwrap();
    listen_tls("127.0.0.1:0".parse().unwrap(), config, fixture(machines())).await.unwrap()
}

fn tls(folder: &Path, bound: &Bound, trusted: Trusted, ours: &Certified) -> Tls {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let port = bound.address.unwrap().port();
    let (certificate, key) = (write("client.pem", &ours.certificate), write("client.key", &ours.key));
    Tls { host: "127.0.0.1".into(), port, trusted, certificate, key }
}

#[tokio::test]
async fn over_tls_both_sides_prove_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (worker, server, stranger) = (certified(), certified(), certified());
    let bound = served(&worker, &server).await;
    let authority = |of: &Certified, name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, &of.authority).unwrap();
        Trusted::Authority(path)
    };
    let pin = |of: &Certified| {
        Trusted::Key(Pin::of(&CertificateDer::from_pem_slice(of.certificate.as_bytes()).unwrap()).unwrap())
    };
    asked(tls(folder.path(), &bound, authority(&worker, "ca"), &server)).await.unwrap();
    asked(tls(folder.path(), &bound, pin(&worker), &server)).await.unwrap();
    let refused = asked(tls(folder.path(), &bound, authority(&stranger, "other"), &server)).await.unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    let refused = asked(tls(folder.path(), &bound, pin(&stranger), &server)).await.unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    let refused = asked(tls(folder.path(), &bound, pin(&worker), &stranger)).await.unwrap_err();
    assert!(
        refused.contains("does not greet") || refused.contains("HTTP/2") || refused.contains("certificate"),
        "{refused}"
    );
    let mut missing = tls(folder.path(), &bound, pin(&worker), &server);
    missing.key = folder.path().join("nowhere");
    assert!(asked(missing).await.unwrap_err().contains("nowhere"));
}
