//! Connects to the BMC that a host's spec names: the address's scheme selects the protocol, and a registered connector speaks it.

use std::collections::HashMap;
use std::sync::Arc;

use inventory::BmcPin;
use secrecy::SecretString;

use crate::address::{Address, AddressError, Protocol};
use crate::capability::Bmc;
use crate::credentials::{Credentials, CredentialsError};
use crate::error::{BmcError, ErrorKind};

/// A BMC, and what is needed to reach it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where.
    pub address: Address,
    /// User and password.
    pub credentials: Credentials,
    /// Whether any certificate is good enough (`spec.bmc.disableCertificateVerification`).
    pub accept_any_certificate: bool,
    /// The expected BMC, as far as it is known: no other BMC is sent the password.
    pub pin: BmcPin,
}

impl Target {
    /// Parses the values of a host's spec and Secret. Without a pin, any BMC that answers is accepted.
    ///
    /// # Errors
    /// [`BmcError`] when address or credentials cannot be used.
    pub fn parse(address: &str, username: &str, password: SecretString) -> Result<Self, BmcError> {
        let address = Address::parse(address)?;
        let credentials = Credentials::new(username, password)?;
        Ok(Self { address, credentials, accept_any_certificate: false, pin: BmcPin::default() })
    }
}

const REACH: &str = "reach the BMC";

impl From<AddressError> for BmcError {
    fn from(error: AddressError) -> Self {
        Self::new(ErrorKind::Address, REACH, error.to_string())
    }
}

impl From<CredentialsError> for BmcError {
    fn from(error: CredentialsError) -> Self {
        Self::new(ErrorKind::Unauthorized, REACH, error.to_string())
            .advise("correct the Secret that spec.bmc.credentialsName names")
    }
}

/// A protocol's client. One for all BMCs that speak it.
pub trait Connector: Send + Sync + 'static {
    /// A connection to this BMC, which signs in only if the BMC matches the pin. Makes no call yet.
    ///
    /// # Errors
    /// When the target cannot be reached with this client's configuration.
    fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError>;

    /// A version of the trusted certificates: when it changes, existing connections must be recreated.
    fn trust(&self) -> u64 {
        0
    }
}

/// The connectors by protocol. The program registers them when it starts: a new protocol is one line there.
#[derive(Default)]
pub struct Connectors {
    by_protocol: HashMap<Protocol, Box<dyn Connector>>,
}

impl Connectors {
    /// No connectors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one for this protocol.
    #[must_use]
    pub fn with(mut self, protocol: Protocol, connector: impl Connector) -> Self {
        self.by_protocol.insert(protocol, Box::new(connector));
        self
    }

    /// See [`Connector::trust`]: of all of them together.
    #[must_use]
    pub fn trust(&self) -> u64 {
        self.by_protocol.values().fold(0, |all, connector| all.wrapping_add(connector.trust()))
    }

    /// A connection by the connector for the address's scheme. Makes no call to the BMC yet.
    ///
    /// # Errors
    /// When no connector speaks it, or as [`Connector::connect`].
    pub fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        let protocol = target.address.protocol();
        match self.by_protocol.get(&protocol) {
            Some(connector) => connector.connect(target),
            None => {
                let found = format!("its address asks for {protocol}, which this program does not speak");
                Err(BmcError::new(ErrorKind::Address, REACH, found))
            }
        }
    }
}
