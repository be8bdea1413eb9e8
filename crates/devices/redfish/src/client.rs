//! The client of one system: its cached knowledge, and how it finds the system.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bmc::{Address, BmcError, BmcRegistry, Channel, Credentials, ErrorKind};
use inventory::BmcPin;
use tokio::time::Instant;

use crate::exchange::{Core, Fault};
use crate::http_transport::{HttpTransport, Tls, TlsError};
use crate::options::ClientOptions;
use crate::quirks::Quirks;
use crate::resources::{PowerState, System, permanent_mac, tells_of_macs};
use crate::transport::Transport;

/// Most interfaces of a system that are looked at.
const MAX_INTERFACES: usize = 32;

/// A Redfish client for one system. Cheap to make: no request is sent before the first operation.
///
/// All methods take `&self`; calls of several tasks wait for each other at the BMC's [`Channel`].
pub struct Client {
    pub(crate) core: Core,
}

impl Client {
    /// A client over the network.
    ///
    /// # Errors
    /// When the TLS settings cannot be used.
    pub fn connect(
        address: Address,
        credentials: Credentials,
        tls: &Tls,
        registry: &BmcRegistry,
        options: ClientOptions,
    ) -> Result<Self, TlsError> {
        let transport = Arc::new(HttpTransport::new(&address, tls, &options.allowed)?);
        Ok(Self::new(address, credentials, transport, registry, options))
    }

    /// A client over any transport.
    #[must_use]
    pub fn new(
        address: Address,
        credentials: Credentials,
        transport: Arc<dyn Transport>,
        registry: &BmcRegistry,
        options: ClientOptions,
    ) -> Self {
        let channel = registry.channel(&address);
        Self { core: Core::new(address, credentials, transport, channel, options) }
    }

    /// The BMC's address.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.core.address
    }

    /// The channel to the BMC, with its ledger; shared by all clients of that BMC.
    #[must_use]
    pub const fn channel(&self) -> &Arc<Channel> {
        &self.core.channel
    }

    /// Requests that this client has sent.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.core.calls.load(Ordering::Relaxed)
    }

    /// Address of the open session, to be recorded; never the token. `None` before the first operation, after [`Client::close`] and
    /// with basic authentication.
    #[must_use]
    pub fn session_address(&self) -> Option<String> {
        let path = self.core.state().session_path()?;
        Some(format!("{}{path}", self.core.address.origin()))
    }

    /// Reads the system: one request, once signed in.
    ///
    /// # Errors
    /// [`BmcError`]; `NotFound` names the systems that the BMC has.
    pub async fn system(&self) -> Result<System, BmcError> {
        self.read_system("read the system").await
    }

    /// The identity that the BMC shows without authentication; empty before the first operation.
    #[must_use]
    pub fn pin(&self) -> BmcPin {
        self.core.pin()
    }

    /// Permanent MACs of the system, as far as the BMC shows them: one request, and one for each interface that the BMC does not inline.
    ///
    /// # Errors
    /// [`BmcError`] when the request fails; a BMC that refuses to show them has none.
    pub async fn macs(&self) -> Result<Vec<String>, BmcError> {
        let what = "read the MAC addresses";
        let system = self.known_system(what).await?;
        let Some(path) = system.interfaces else { return Ok(Vec::new()) };
        let list = match self.core.expanded(what, &path, None).await {
            Ok(list) => list,
            Err(Fault::Refused(_)) => return Ok(Vec::new()),
            Err(fault) => return Err(fault.into()),
        };
        let mut macs = Vec::new();
        for (path, inlined) in list.iter().take(MAX_INTERFACES) {
            if tells_of_macs(inlined) {
                macs.extend(permanent_mac(inlined));
                continue;
            }
            match self.core.get(what, path).await {
                Ok(reply) => macs.extend(permanent_mac(&reply.value)),
                // An interface of another system, or one just removed.
                Err(Fault::Refused(_)) => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(macs)
    }

    /// Power of the machine: one request.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn power_state(&self) -> Result<PowerState, BmcError> {
        Ok(self.read_system("read the power state").await?.power_state)
    }

    /// The system as last read; reads it if it has not been yet.
    pub(crate) async fn known_system(&self, what: &str) -> Result<System, BmcError> {
        let known = self.core.state().system.clone();
        match known {
            Some(system) => Ok(system),
            None => self.read_system(what).await,
        }
    }

    pub(crate) async fn read_system(&self, what: &str) -> Result<System, BmcError> {
        self.core.prove_bmc_before_a_password(what).await?;
        let path = self.system_path(what).await?;
        let reply = match self.core.get(what, &path).await {
            Ok(reply) => reply,
            Err(Fault::Refused(refusal)) if refusal.error.kind == ErrorKind::NotFound => {
                return Err(self.no_such_system(what, &path, refusal.error).await);
            }
            Err(fault) => return Err(fault.into()),
        };
        if !reply.value.is_object() {
            return Err(self.core.error(ErrorKind::Protocol, what, format!("{path} is not a JSON object")));
        }
        let system = System::read(&path, &reply.value, &reply.response.body);
        let mut state = self.core.state();
        let (vendor, product) =
            state.root.as_ref().map(|root| (root.vendor.clone(), root.product.clone())).unwrap_or_default();
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        state.quirks = Quirks::of(&vendor, &product, &text(&system.manufacturer), &text(&system.model));
        state.power_seen = Some((system.power_state, Instant::now()));
        state.system = Some(system.clone());
        Ok(system)
    }

    async fn system_path(&self, what: &str) -> Result<String, BmcError> {
        if let Some(path) = self.core.address.system_path() {
            return Ok(path.to_owned());
        }
        if let Some(path) = self.core.state().system_path.clone() {
            return Ok(path);
        }
        let systems = self.systems(what).await?;
        let [path] = systems.as_slice() else {
            let (found, advice) = if systems.is_empty() {
                (
                    "the BMC lists no system".to_owned(),
                    "check the BMC's firmware and that the server's node is installed",
                )
            } else {
                let found =
                    format!("the BMC has {} systems ({}), and the address names none", systems.len(), listed(&systems));
                (found, "add the path of one of them to spec.bmc.address")
            };
            return Err(self.core.error(ErrorKind::NotFound, what, found).advise(advice));
        };
        self.core.state().system_path = Some(path.clone());
        Ok(path.clone())
    }

    async fn systems(&self, what: &str) -> Result<Vec<String>, BmcError> {
        let root = self.core.root(what).await?;
        let path = root.systems.unwrap_or_else(|| "/redfish/v1/Systems".into());
        Ok(self.core.members(what, &path).await?)
    }

    async fn no_such_system(&self, what: &str, path: &str, error: BmcError) -> BmcError {
        let advice = match self.systems(what).await {
            Ok(systems) if !systems.is_empty() => {
                format!("the BMC has {}: correct the path in spec.bmc.address", listed(&systems))
            }
            _ => "correct the path in spec.bmc.address".to_owned(),
        };
        self.core.error(ErrorKind::NotFound, what, format!("there is no system {path}")).advise(advice).caused_by(error)
    }

    /// Paths of the managers of the system.
    pub(crate) async fn managers(&self, what: &str, system: &System) -> Result<Vec<String>, Fault> {
        if !system.managers.is_empty() {
            return Ok(system.managers.clone());
        }
        // Huawei 1288H names no manager at the system: all managers of the BMC, then.
        let root = self.core.root(what).await?;
        let Some(path) = root.managers else { return Ok(Vec::new()) };
        self.core.members(what, &path).await
    }
}

/// A few paths for a message.
fn listed(paths: &[String]) -> String {
    let listed: Vec<&str> = paths.iter().map(String::as_str).take(8).collect();
    let more = if paths.len() > listed.len() { ", …" } else { "" };
    format!("{}{more}", terms::clean(&listed.join(", "), 400))
}

impl Drop for Client {
    fn drop(&mut self) {
        // A client dropped without `close` leaves its session to the next sweep.
        let path = self.core.state().session_path();
        if let Some(path) = path {
            self.core.channel.remove_session(&path);
        }
    }
}
