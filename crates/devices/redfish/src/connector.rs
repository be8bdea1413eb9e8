//! The connector for Redfish.

use std::sync::{Arc, PoisonError, RwLock};

use addresses::Allowed;
use bmc::{Bmc, BmcError, BmcRegistry, Connector, ErrorKind, Lead, Target, Totals};
use sha2::{Digest, Sha256};

use crate::capabilities::RedfishBmc;
use crate::client::Client;
use crate::options::ClientOptions;
use crate::tls::{Tls, TlsError};

/// The server's id, derived from its first key. It survives key rotation: the server recognises its old sessions on BMCs by it.
#[must_use]
pub fn server_id(secret: &[u8; 32]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"metamorph/server-id/v1");
    hash.update(secret);
    hex::encode(&hash.finalize()[..8])
}

/// Certificates (PEM) by which BMCs are trusted beside the system's. Clones share them, so that they can be replaced while the server works.
#[derive(Clone, Default)]
pub struct Trust(Arc<RwLock<(u64, Option<String>)>>);

impl Trust {
    /// These certificates; none if the text is empty.
    #[must_use]
    pub fn new(pem: &str) -> Self {
        Self(Arc::new(RwLock::new((0, given(pem)))))
    }

    /// Connections that are made from now on trust these.
    pub fn replace(&self, pem: &str) {
        let mut trusted = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *trusted = (trusted.0.wrapping_add(1), given(pem));
    }

    /// The certificates trusted now.
    #[must_use]
    pub fn pem(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// How often they were replaced.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0
    }
}

fn given(pem: &str) -> Option<String> {
    (!pem.trim().is_empty()).then(|| pem.to_owned())
}

/// Makes Redfish connections.
pub struct RedfishConnector {
    registry: BmcRegistry,
    server_id: String,
    trust: Trust,
    allowed: Allowed,
}

impl RedfishConnector {
    /// Connections of the server with this id, which marks its sessions on BMCs; and trusts them by these certificates.
    #[must_use]
    pub fn new(server_id: String, trust: Trust) -> Self {
        Self { registry: BmcRegistry::new(), server_id, trust, allowed: Allowed::default() }
    }

    /// Local addresses at which BMCs may be.
    #[must_use]
    pub fn allowing(self, allowed: Allowed) -> Self {
        Self { allowed, ..self }
    }

    /// Restricts calls to the time in which this process leads.
    #[must_use]
    pub fn led_by(self, lead: Lead) -> Self {
        Self { registry: self.registry.led_by(lead), ..self }
    }

    /// Counters of the calls to all BMCs.
    #[must_use]
    pub fn totals(&self) -> Arc<Totals> {
        self.registry.totals()
    }
}

impl Connector for RedfishConnector {
    fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        let Target { address, credentials, accept_any_certificate, pin } = target;
        let tls = Tls { accept_any_certificate, extra_ca_pem: self.trust.pem() };
        let options = ClientOptions { pin, allowed: self.allowed.clone(), ..ClientOptions::new(&self.server_id) };
        let client = Client::connect(address, credentials, &tls, &self.registry, options).map_err(unusable)?;
        Ok(Arc::new(RedfishBmc::new(client)))
    }

    fn trust(&self) -> u64 {
        self.trust.changes()
    }
}

fn unusable(error: TlsError) -> BmcError {
    let attempted = "connect to the BMC";
    match error {
        TlsError::Name(_) => BmcError::new(ErrorKind::Address, attempted, error.to_string()),
        TlsError::CaPem(_) | TlsError::Setup(_) => {
            BmcError::new(ErrorKind::TlsNotTrusted, attempted, error.to_string())
                .advise("correct the file given as --bmc-ca")
        }
    }
}
