//! Waiting to lead: of several operators on one cluster, one works. The others are alive, and not ready.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;
use axum_server::Handle;
use kube::Client;
use operator::{Candidate, Leader, leader};

use crate::cli::Operator;
use crate::{connections, kept, observe, say};

/// Waits until this process leads; `None` where there is no election. Meanwhile probes on `health` are answered.
pub async fn lead(client: &Client, options: &Operator, health: &TcpListener) -> anyhow::Result<Option<Leader>> {
    if options.lease_duration == 0 {
        return Ok(None);
    }
    let namespace = &options.own_namespace;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let candidate = Candidate {
        namespace: namespace.clone(),
        identity: format!("{}_{}", host.trim(), uuid::Uuid::new_v4()),
        duration: Duration::from_secs(options.lease_duration),
    };
    let handle = Handle::<SocketAddr>::new();
    let standby = axum_server::from_tcp(health.try_clone().context("serve probes")?).context("serve probes")?;
    let standby = connections::limited(standby, "probes", handle.clone());
    let standby = standby.serve(observe::standby_router().into_make_service());
    let standby = tokio::spawn(standby);
    let mut told = String::new();
    let waiting = |holder: &str| {
        if told != holder {
            say::note(&format!("standing by: {holder} leads (Lease {} in namespace {namespace})", leader::NAME));
            holder.clone_into(&mut told);
        }
    };
    let attempt =
        || format!("take the Lease {} in namespace {namespace}; --lease-duration 0 does without", leader::NAME);
    let mut leader = candidate.clone().lead(client, waiting).await;
    if matches!(&leader, Err(kube::Error::Api(error)) if error.code == 404) {
        kept::make_namespace(client, namespace).await?;
        leader = candidate.lead(client, |_| ()).await;
    }
    let leader = leader.with_context(attempt);
    // From now on the listener is the working server's.
    handle.shutdown();
    let _ = standby.await;
    let leader = leader?;
    say::note(&format!("this process leads (Lease {} in namespace {namespace})", leader::NAME));
    Ok(Some(leader))
}
