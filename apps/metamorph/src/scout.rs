//! Asks BMCs that nobody has declared, by Redfish: the scout of the controller of HostDiscoveries.

use std::net::IpAddr;

use addresses::Allowed;
use anyhow::Context as _;
use async_trait::async_trait;
use discovery::{Answer, Place};
use operator::Scout;
use redfish::ServiceRoots;

/// By the network.
pub struct NetworkScout(ServiceRoots);

impl NetworkScout {
    /// One that calls local addresses only if these allow it.
    pub fn new(allowed: Allowed) -> anyhow::Result<Self> {
        Ok(Self(ServiceRoots::new(allowed).context("set up the search for BMCs")?))
    }
}

#[async_trait]
impl Scout for NetworkScout {
    async fn ask(&self, place: Place) -> Answer {
        self.0.ask(place).await
    }

    async fn resolve(&self, name: &str) -> Vec<IpAddr> {
        match tokio::net::lookup_host((name, 443)).await {
            Ok(found) => found.map(|address| address.ip()).collect(),
            Err(error) => {
                tracing::debug!(name, %error, "resolve the name of a BMC");
                Vec::new()
            }
        }
    }
}
