//! Keys and certificates at run time: checked periodically, and replaced without a restart.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::clients::Clients;
use super::{Pki, PkiError, Validity};

/// How often certificates are checked.
const LOOK: Duration = Duration::from_secs(6 * 3600);

/// The folder of the keys, and the names in the server's certificate.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
    /// DNS names and addresses, as text.
    pub names: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
}

/// The present certificates, shared by listener and API.
pub struct Live {
    place: Place,
    address: SocketAddr,
    provider: Arc<CryptoProvider>,
    now: RwLock<Now>,
    kubeconfig: watch::Sender<String>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Now {
    ca: String,
    clients: Arc<Clients>,
    serving: Arc<CertifiedKey>,
    /// Validity of the served certificate.
    validity: Option<Validity>,
}

impl Live {
    /// Starts with the content of the folder.
    pub fn new(pki: &Pki, place: Place, address: SocketAddr, now: Timestamp) -> Result<Self, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let kubeconfig = watch::Sender::new(kubeconfig(pki, address));
        let now = RwLock::new(Now::of(pki, &place, &provider, now)?);
        Ok(Self { place, address, provider, now, kubeconfig })
    }

    /// TLS configuration for the listener: requests a client certificate, but does not require one.
    pub fn server_config(self: &Arc<Self>) -> Result<rustls::ServerConfig, PkiError> {
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| PkiError::Tls(e.to_string()))?
            .with_client_cert_verifier(self.clients() as _)
            .with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn read<T>(&self, of: impl FnOnce(&Now) -> T) -> T {
        of(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The trusted CAs, PEM, the signing one first.
    pub fn ca(&self) -> String {
        self.read(|now| now.ca.clone())
    }

    /// The verifier of client certificates.
    pub fn clients(&self) -> Arc<Clients> {
        self.read(|now| Arc::clone(&now.clients))
    }

    /// The administrator's kubeconfig, updated whenever it changes.
    pub fn kubeconfig(&self) -> watch::Receiver<String> {
        self.kubeconfig.subscribe()
    }

    /// Checks the certificates. Renewed ones apply to new connections.
    pub fn look(&self, at: Timestamp) -> Result<(), PkiError> {
        let pki = Pki::open(&self.place.folder, at)?;
        let due = self.read(|now| now.ca != pki.ca || now.validity.is_none_or(|validity| validity.due(at)));
        if due {
            let new = Now::of(&pki, &self.place, &self.provider, at)?;
            *self.now.write().unwrap_or_else(PoisonError::into_inner) = new;
            tracing::info!("the API is served with another certificate from now on");
        }
        let text = kubeconfig(&pki, self.address);
        self.kubeconfig.send_if_modified(|known| {
            let other = *known != text;
            *known = text;
            other
        });
        Ok(())
    }

    /// Checks periodically until `stop`.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            if let Err(error) = self.look(Timestamp::now()) {
                tracing::warn!(%error, "the API's certificates could not be looked at: it is tried again");
            }
        }
    }
}

impl Now {
    fn of(pki: &Pki, place: &Place, provider: &Arc<CryptoProvider>, at: Timestamp) -> Result<Self, PkiError> {
        let tls = |e: &dyn std::fmt::Display| PkiError::Tls(e.to_string());
        let server = pki.server(&place.names, &place.addresses, at)?;
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pki.ca.as_bytes()).collect();
        let clients = Arc::new(Clients::of(authorities.map_err(|e| tls(&e))?, provider).map_err(PkiError::Tls)?);
        let certificate = CertificateDer::from_pem_slice(server.certificate.as_bytes()).map_err(|e| tls(&e))?;
        let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).map_err(|e| tls(&e))?;
        let validity = Validity::of_der(&certificate);
        let serving = CertifiedKey::from_der(vec![certificate], key, provider).map_err(|e| tls(&e))?;
        Ok(Self { ca: pki.ca.clone(), clients, serving: Arc::new(serving), validity })
    }
}

impl ResolvesServerCert for Live {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.read(|now| Arc::clone(&now.serving)))
    }
}

/// A kubeconfig (YAML) of the administrator, with the CAs and a client certificate embedded.
fn kubeconfig(pki: &Pki, mut address: SocketAddr) -> String {
    let data = |pem: &str| STANDARD.encode(pem);
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: embedded\n  cluster:\n    server: https://{address}\n    \
         certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    client-certificate-data: {}\n    \
         client-key-data: {}\ncontexts:\n- name: embedded\n  context:\n    cluster: embedded\n    user: admin\n    \
         namespace: default\ncurrent-context: embedded\n",
        data(&pki.ca),
        data(&pki.admin.certificate),
        data(&pki.admin.key),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::ClientCertificate;
    use jiff::SignedDuration;
    use rustls_pki_types::UnixTime;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    struct Folder {
        _dir: tempfile::TempDir,
        place: Place,
    }

    impl Folder {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let place = Place { folder: dir.path().join("pki"), names: vec!["localhost".into()], addresses: vec![] };
            Self { _dir: dir, place }
        }

        fn start(&self, at: Timestamp) -> Arc<Live> {
            let pki = Pki::open(&self.place.folder, at).unwrap();
            Arc::new(Live::new(&pki, self.place.clone(), "127.0.0.1:1".parse().unwrap(), at).unwrap())
        }
    }

    fn field(kubeconfig: &str, name: &str) -> Vec<CertificateDer<'static>> {
        let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": ")).unwrap();
        CertificateDer::pem_slice_iter(&STANDARD.decode(line).unwrap()).map(Result::unwrap).collect()
    }

    fn unix(at: Timestamp) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap()))
    }

    /// Whether a holder of the kubeconfig trusts the server, and the server trusts the holder.
    fn meet(live: &Live, kubeconfig: &str, at: Timestamp) -> (bool, bool) {
        use rustls::client::WebPkiServerVerifier;
        use rustls::client::danger::ServerCertVerifier as _;
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(field(kubeconfig, "certificate-authority-data"));
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&live.provider)).build().unwrap();
        let serving = live.read(|now| Arc::clone(&now.serving));
        let name = "localhost".try_into().unwrap();
        let trusts = verifier.verify_server_cert(&serving.cert[0], &[], &name, &[], unix(at)).is_ok();
        let chain = field(kubeconfig, "client-certificate-data");
        (trusts, matches!(live.clients().judge(&chain, unix(at)), ClientCertificate::User(_)))
    }

    /// Forty years of a running server, and of users who replace their kubeconfig every four months.
    #[test]
    fn who_takes_the_kubeconfig_three_times_a_year_is_served_for_ever() {
        let folder = Folder::new();
        let begin = Timestamp::from_second(1_800_000_000).unwrap();
        let live = folder.start(begin);
        let published = live.kubeconfig();
        let (mut kubeconfigs, mut authorities) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        let mut taken = published.borrow().clone();
        for day in 0..40 * 365 / 30 {
            let at = begin + DAY * 30 * day;
            live.look(at).unwrap();
            let now = published.borrow().clone();
            assert_eq!(meet(&live, &taken, at), (true, true), "{at}");
            assert_eq!(meet(&live, &now, at), (true, true), "{at}");
            if day % 4 == 0 {
                taken.clone_from(&now);
            }
            authorities.insert(field(&now, "certificate-authority-data")[0].to_vec());
            kubeconfigs.insert(now);
        }
        assert!(kubeconfigs.len() > 40, "{}", kubeconfigs.len());
        assert!((5..8).contains(&authorities.len()), "{}", authorities.len());
        // A process that starts then finds the same.
        let at = begin + DAY * 30 * (40 * 365 / 30);
        assert_eq!(meet(&folder.start(at), &published.borrow(), at), (true, true));
    }

    #[test]
    fn what_is_in_its_time_is_left_as_it_is() {
        let folder = Folder::new();
        let begin = Timestamp::from_second(1_800_000_000).unwrap();
        let live = folder.start(begin);
        let (before, published) = (live.read(|now| Arc::clone(&now.serving)), live.kubeconfig());
        live.look(begin + DAY * 200).unwrap();
        assert!(Arc::ptr_eq(&before, &live.read(|now| Arc::clone(&now.serving))) && !published.has_changed().unwrap());
        live.look(begin + DAY * 244).unwrap();
        assert!(!Arc::ptr_eq(&before, &live.read(|now| Arc::clone(&now.serving))) && published.has_changed().unwrap());
    }

    #[test]
    fn a_switch_that_was_cut_off_is_finished() {
        let folder = Folder::new();
        let begin = Timestamp::from_second(1_800_000_000).unwrap();
        folder.start(begin);
        let announced = begin + DAY * (7 * 365 + 10);
        let taken = folder.start(announced).kubeconfig().borrow().clone();
        assert_eq!(field(&taken, "certificate-authority-data").len(), 2);
        // The state after a crash between its two renames.
        let path = |name: &str| folder.place.folder.join(name);
        std::fs::copy(path("ca.crt"), path("ca-previous.crt")).unwrap();
        std::fs::rename(path("ca-next.key"), path("ca.key")).unwrap();
        assert_eq!(meet(&folder.start(announced), &taken, announced), (true, true));
        assert!(!path("ca-next.crt").exists());
    }

    #[test]
    fn a_new_ca_after_a_deletion_signs_the_administrator_anew() {
        let folder = Folder::new();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let before = folder.start(now).kubeconfig().borrow().clone();
        for file in ["ca.crt", "ca.key"] {
            std::fs::remove_file(folder.place.folder.join(file)).unwrap();
        }
        let live = folder.start(now);
        let after = live.kubeconfig().borrow().clone();
        assert_eq!((meet(&live, &before, now), meet(&live, &after, now)), ((false, false), (true, true)));
    }
}
