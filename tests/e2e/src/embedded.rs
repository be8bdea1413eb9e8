//! The embedded Kubernetes API in the test's own process, for servers that come to one that is there already.

use std::path::Path;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The API, with all definitions and a client that may do everything.
pub struct EmbeddedApi {
    /// The server.
    pub server: apiserver::Server,
    /// The client.
    pub client: Client,
}

impl EmbeddedApi {
    /// Starts it on loopback, with its data in `folder`.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = apiserver::Server::start(apiserver::Config {
            data_dir: folder.join("api"),
            listen: "127.0.0.1:0".parse()?,
            extra_sans: Vec::new(),
            audit_log: None,
            reviewers: vec![],
        })
        .await
        .context("start the embedded API")?;
        for crd in api::crds::all()? {
            server.apply_crd_yaml(&crd).await?;
        }
        let config = Kubeconfig::from_yaml(&server.admin_kubeconfig())?;
        let client = Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)?;
        Ok(Self { server, client })
    }
}
