//! How the program comes to Redfish connections.

use std::sync::Arc;

use addresses::Allowed;
use bmc::{Bmc, BmcError, BmcRegistry, Connector, ErrorKind, Lead, Target, Totals};
use sha2::{Digest, Sha256};

use crate::capabilities::RedfishBmc;
use crate::client::{Client, ClientOptions};
use crate::tls::{Tls, TlsError};

/// The id of the server whose first key this is. It stays what it is when keys are rotated: sessions that an earlier life left on BMCs are known by it.
#[must_use]
pub fn server_id(secret: &[u8; 32]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"metamorph/server-id/v1");
    hash.update(secret);
    hex::encode(&hash.finalize()[..8])
}

/// Makes Redfish connections.
pub struct RedfishConnector {
    registry: BmcRegistry,
    server_id: String,
    extra_ca_pem: Option<String>,
    allowed: Allowed,
}

impl RedfishConnector {
    /// Connections of the server with this id, which marks its sessions on BMCs; `ca_pem` is trusted beside the system's certificates, if it
    /// is not empty.
    #[must_use]
    pub fn new(server_id: String, ca_pem: &str) -> Self {
        let extra_ca_pem = (!ca_pem.trim().is_empty()).then(|| ca_pem.to_owned());
        Self { registry: BmcRegistry::new(), server_id, extra_ca_pem, allowed: Allowed::default() }
    }

    /// Local addresses at which BMCs may be.
    #[must_use]
    pub fn allowing(self, allowed: Allowed) -> Self {
        Self { allowed, ..self }
    }

    /// Each call asks whether this process leads, and for how long.
    #[must_use]
    pub fn led_by(self, lead: Lead) -> Self {
        Self { registry: self.registry.led_by(lead), ..self }
    }

    /// What is counted of the calls to all BMCs.
    #[must_use]
    pub fn totals(&self) -> Arc<Totals> {
        self.registry.totals()
    }
}

impl Connector for RedfishConnector {
    fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        let Target { address, credentials, accept_any_certificate, pin } = target;
        let tls = Tls { accept_any_certificate, extra_ca_pem: self.extra_ca_pem.clone() };
        let options = ClientOptions { pin, allowed: self.allowed.clone(), ..ClientOptions::new(&self.server_id) };
        let client = Client::connect(address, credentials, &tls, &self.registry, options).map_err(unusable)?;
        Ok(Arc::new(RedfishBmc::new(client)))
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
