//! `agent-image build`.

use anyhow::Context;
use boot_media::agent_image::{BuildOptions, build as build_image};

use crate::cli::AgentImageBuild;
use crate::say;

/// Builds the agent's system and reports the result.
pub async fn build(options: AgentImageBuild) -> anyhow::Result<()> {
    let out = options.out.clone();
    let build_options = BuildOptions {
        agent_binary: options.agent,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        out_dir: options.out,
        cache_dir: options.cache,
        packages: None,
    };
    let manifest = tokio::task::spawn_blocking(move || build_image(&build_options))
        .await
        .context("the build was stopped")?
        .context("build the agent image")?;
    say::out(&format!(
        "{}: for {}, kernel {}, {} modules, {:.1} MB in all\n",
        out.display(),
        manifest.architecture,
        manifest.kernel_version,
        manifest.modules,
        bytes_as_mb(manifest.total_bytes)
    ))
}

/// Bytes as megabytes, for people.
#[allow(clippy::cast_precision_loss)] // One decimal is shown.
fn bytes_as_mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
