//! From what a host says of its BMC to a connection: the address's scheme names the protocol, and the program says who speaks it.

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
    /// Who.
    pub credentials: Credentials,
    /// Whether any certificate is good enough (`spec.bmc.disableCertificateVerification`).
    pub accept_any_certificate: bool,
    /// The BMC that is meant, as far as it is known: another one is sent no password.
    pub pin: BmcPin,
}

impl Target {
    /// From what stands in a host's spec and Secret; whichever BMC answers is meant.
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
    /// A connection to this BMC, which signs in only if it is the one that the pin says. No call happens here.
    ///
    /// # Errors
    /// When the target cannot be reached with what this client was given.
    fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError>;

    /// Changes when what this client trusts BMCs by has: a connection that was made before is to be made anew.
    fn trust(&self) -> u64 {
        0
    }
}

/// Who speaks which protocol. The program makes it when it starts: a new protocol is one line there.
#[derive(Default)]
pub struct Connectors {
    by_protocol: HashMap<Protocol, Box<dyn Connector>>,
}

impl Connectors {
    /// Nobody yet.
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

    /// A connection by whoever speaks what the address's scheme names. No call to the BMC happens here.
    ///
    /// # Errors
    /// When nobody does, or as [`Connector::connect`].
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
