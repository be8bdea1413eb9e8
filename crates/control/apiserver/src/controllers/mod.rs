//! What happens without a request: definitions are served at the start, history is compacted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::object::Object;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::verbs::{Backend, Stored};

/// Namespaces that are always there.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// How long history is kept.
const HISTORY: Duration = Duration::from_secs(300);
/// How often it is compacted.
const COMPACT_EVERY: Duration = Duration::from_secs(30);

/// Serves all stored definitions.
pub async fn load_definitions(backend: &Backend) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let crds =
        catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").ok_or_else(ApiError::unknown_path)?;
    // Rows may be older than the newest schema: all that was written before now is checked when it is read.
    let fresh_since = backend.store.revision() + 1;
    for row in backend.select(crds, "", &Selector::default()).await?.1 {
        let stored = Stored { rev: fresh_since, tail: row.body };
        backend.definition_changed(&row.name, &stored, false);
    }
    Ok(())
}

/// Makes the namespaces that are always there.
pub async fn ensure_namespaces(backend: &Backend) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
    for name in NAMESPACES {
        let labels = json!({"kubernetes.io/metadata.name": name});
        let mut object = Object::new();
        object.insert("metadata".into(), json!({"name": name, "labels": labels}));
        match backend.insert(namespaces, object, "", false).await {
            Err(error) if error.reason != "AlreadyExists" => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Starts all controllers.
pub fn spawn(backend: &Arc<Backend>, tasks: &TaskTracker) {
    tasks.spawn(compact(Arc::clone(backend)));
}

async fn compact(backend: Arc<Backend>) {
    let mut marks: VecDeque<(Instant, u64)> = VecDeque::new();
    loop {
        tokio::select! {
            () = backend.stop.cancelled() => return,
            () = tokio::time::sleep(COMPACT_EVERY) => {}
        }
        marks.push_back((Instant::now(), backend.store.revision()));
        let mut upto = None;
        while let Some((at, rev)) = marks.front().copied().filter(|(at, _)| at.elapsed() >= HISTORY) {
            let _ = at;
            upto = Some(rev);
            marks.pop_front();
        }
        if let Some(rev) = upto
            && let Err(error) = backend.store.compact(rev).await
        {
            tracing::warn!(%error, "history could not be compacted");
        }
    }
}
