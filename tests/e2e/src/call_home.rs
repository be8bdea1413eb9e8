//! Where provisioned systems report in: what they say only a system can say that has applied its config drive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;
use tokio::sync::watch;

/// The script that reports; the demo's own.
const SCRIPT: &str = include_str!("../../../apps/metamorph/src/demo/report-in.py");

type Reports = BTreeMap<String, Vec<Value>>;

/// A listener on loopback, which QEMU's guests see at 10.0.2.2.
pub struct CallHome {
    port: u16,
    reports: watch::Receiver<Reports>,
}

impl CallHome {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("listen for reports")?;
        let port = listener.local_addr()?.port();
        let (sender, reports) = watch::channel(Reports::new());
        let router = Router::new()
            .route("/call-home/{name}", post(take))
            .layer(DefaultBodyLimit::max(64 << 10))
            .with_state(Arc::new(sender));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { port, reports })
    }

    /// cloud-config that reports in under `name`, at each boot.
    #[must_use]
    pub fn user_data(&self, name: &str) -> String {
        let script = SCRIPT.replace("CALL_HOME", &format!("http://10.0.2.2:{}/call-home/{name}", self.port));
        let indented: String = script.lines().map(|line| format!("      {line}\n")).collect();
        format!(
            "#cloud-config\nwrite_files:\n  - path: /var/lib/cloud/scripts/per-boot/report-in\n    permissions: '0755'\n    content: |\n      #!/usr/bin/python3\n{indented}"
        )
    }

    /// The n-th report (from 1) of that name, waited for.
    ///
    /// # Errors
    /// When it does not come in time.
    pub async fn wait(&self, name: &str, count: usize, seconds: u64) -> anyhow::Result<Value> {
        let mut reports = self.reports.clone();
        let enough = |reports: &Reports| reports.get(name).is_some_and(|r| r.len() >= count);
        let waited = tokio::time::timeout(Duration::from_secs(seconds), reports.wait_for(enough)).await;
        let reports =
            waited.with_context(|| format!("{name} has not reported in {count} times within {seconds} s"))??;
        reports.get(name).and_then(|r| r.get(count - 1)).cloned().context("the report is there")
    }
}

async fn take(
    State(sender): State<Arc<watch::Sender<Reports>>>,
    Path(name): Path<String>,
    Json(report): Json<Value>,
) -> StatusCode {
    sender.send_modify(|reports| reports.entry(name).or_default().push(report));
    StatusCode::NO_CONTENT
}
