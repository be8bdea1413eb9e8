//! `agent-image build`.

use anyhow::{Context, bail};
use boot_media::agent_image::ipa::{IpaOptions, build as build_ramdisk};
use boot_media::agent_image::{BuildError, BuildOptions, build as build_image};
use boot_media::{Architecture, Manifest};

use crate::image_args::{AgentFlavor, AgentImageBuild};
use crate::say;

/// Builds the agent's system and reports the result.
pub async fn build(options: AgentImageBuild) -> anyhow::Result<()> {
    let out = options.out.clone();
    let work = work(options)?;
    let manifest =
        tokio::task::spawn_blocking(work).await.context("the build was stopped")?.context("build the agent image")?;
    say::out(&format!(
        "{}: for {}, kernel {}, {} modules, {:.1} MB in all\n",
        out.display(),
        manifest.architecture,
        manifest.kernel_version,
        manifest.modules,
        bytes_as_mb(manifest.total_bytes)
    ))
}

type Work = Box<dyn FnOnce() -> Result<Manifest, BuildError> + Send>;

fn work(options: AgentImageBuild) -> anyhow::Result<Work> {
    let AgentImageBuild { flavor, agent, ramdisk, out, cache } = options;
    match (flavor, agent) {
        (AgentFlavor::Metamorph, Some(agent_binary)) => {
            let parts = [!ramdisk.files.is_empty(), !ramdisk.hook.is_empty(), !ramdisk.package.is_empty()];
            if parts.contains(&true) || !ramdisk.python_package.is_empty() {
                bail!(
                    "--files, --hook, --package and --python-package belong to --flavor ipa: this program's own agent has no ramdisk to put them into"
                );
            }
            let build = BuildOptions {
                agent_binary,
                agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                out_dir: out,
                cache_dir: cache,
                packages: None,
            };
            Ok(Box::new(move || build_image(&build)))
        }
        (AgentFlavor::Metamorph, None) => bail!("--agent names the agent program"),
        (AgentFlavor::Ipa, Some(_)) => {
            bail!("--agent is this program's own agent: --flavor ipa takes ironic-python-agent from PyPI")
        }
        (AgentFlavor::Ipa, None) => {
            let build = IpaOptions {
                architecture: Architecture::X86_64,
                out_dir: out,
                cache_dir: cache,
                packages: ramdisk.package,
                python: ramdisk.python_package,
                files: ramdisk.files,
                hooks: ramdisk.hook,
            };
            Ok(Box::new(move || build_ramdisk(&build, &|step| tracing::info!("{step}"))))
        }
    }
}

/// Bytes as megabytes, for people.
#[allow(clippy::cast_precision_loss)] // One decimal is shown.
fn bytes_as_mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
