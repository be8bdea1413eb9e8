//! The server to which the provisioned systems report: only a system that ran cloud-init with its config drive can send such a report.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use tokio::sync::watch;

/// Address of the host in QEMU's user-mode network, as guests see it (QEMU documentation, "Using the user mode network stack").
pub const HOST_FROM_GUEST: &str = "10.0.2.2";

/// A system's report.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// Host name.
    pub hostname: String,
    /// Addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Label of the firmware's boot entry that booted it.
    pub boot_entry: String,
    /// Whether Secure Boot was on.
    pub secure_boot: bool,
}

type Reports = BTreeMap<String, Report>;

/// The listener.
pub struct CallHome {
    port: u16,
    reports: watch::Receiver<Reports>,
}

impl CallHome {
    /// Listens on loopback, which guests see at [`HOST_FROM_GUEST`].
    pub async fn start() -> anyhow::Result<Self> {
        let listener =
            tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.context("listen for the machines' reports")?;
        let port = listener.local_addr().context("listen for the machines' reports")?.port();
        let (sender, reports) = watch::channel(Reports::new());
        let router = Router::new()
            .route("/call-home/{name}", post(take))
            .layer(DefaultBodyLimit::max(64 << 10))
            .with_state(Arc::new(sender));
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the listener for reports ended");
            }
        });
        Ok(Self { port, reports })
    }

    /// The URL for one machine, as the guest sees it.
    pub fn url_for(&self, name: &str) -> String {
        format!("http://{HOST_FROM_GUEST}:{}/call-home/{name}", self.port)
    }

    /// Waits for the machine's report.
    pub async fn wait_for(&self, name: &str) -> Report {
        let mut reports = self.reports.clone();
        loop {
            if let Some(report) = reports.borrow_and_update().get(name) {
                return report.clone();
            }
            if reports.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn take(
    State(sender): State<Arc<watch::Sender<Reports>>>,
    Path(name): Path<String>,
    Json(report): Json<Report>,
) -> StatusCode {
    tracing::info!(%name, ?report, "a machine has reported in");
    sender.send_modify(|reports| {
        if reports.len() < 4096 {
            reports.insert(name, report);
        }
    });
    StatusCode::NO_CONTENT
}
