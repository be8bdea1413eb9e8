//! A QEMU machine with 512 MiB of memory: its agent boots, inspects, and writes a real system larger than that.

use std::path::Path;

use anyhow::Context;
use api::metal3::ProvisioningState;
use e2e::{Options, World, demo_os};
use serde_json::json;

use crate::table::{Limit, Row, Unit};

/// Memory of the machine, in MiB.
const MEMORY: u32 = 512;
/// Longest time from the application to `provisioned`, in seconds.
const PATIENCE: u64 = 600;
/// The host as QEMU's user-mode network shows it to guests.
const HOST_FROM_GUEST: &str = "10.0.2.2";
/// The image's name.
const IMAGE: &str = "debian-12.raw.zst";

/// Measures.
///
/// # Errors
/// When the machine is not provisioned.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let folder = demo_os()?;
    let path = folder.join(IMAGE);
    let bytes =
        tokio::fs::read(&path).await.with_context(|| format!("read {}; make demo-os builds it", path.display()))?;
    let size = bytes.len();
    let machine = json!({ "id": "node-0", "kind": "qemu", "memoryMib": MEMORY,
        "disks": [{ "sizeBytes": 8_u64 << 30, "bus": "virtio" }] });
    let arguments = ["--agent-host", HOST_FROM_GUEST].map(str::to_owned).to_vec();
    let world = World::start(Options { machines: vec![machine], tls: false, arguments }).await?;
    let url = world.images.put(IMAGE, bytes).replace("127.0.0.1", HOST_FROM_GUEST);
    let checksum = checksum(&folder)?;
    let start = std::time::Instant::now();
    world
        .apply_host(
            "node-0",
            json!({ "image": { "url": url, "checksum": checksum, "checksumType": "sha256", "format": "raw" } }),
        )
        .await?;
    world.wait_state("node-0", PATIENCE, ProvisioningState::Provisioned).await?;
    let wall = start.elapsed().as_secs();
    let console = world.sim.machine("node-0")["serialConsole"].as_str().map(std::fs::read_to_string);
    let console = console.context("find the machine's console")?.context("read the machine's console")?;
    let mut left =
        console.lines().filter_map(|l| l.split_once("memory available: ")).map(|(_, rest)| rest.trim().to_owned());
    let left = left.next_back().context("the agent does not say how much memory it leaves")?;
    Ok(vec![Row {
        figure: "Agent boots, inspects and writes in",
        measured: Some(f64::from(MEMORY) * 1_048_576.0),
        unit: Unit::Bytes,
        limit: Limit::AtMost(512.0 * 1_048_576.0),
        rival: None,
        note: format!(
            "QEMU, emulated: Debian ({} MB zstd) provisioned in {wall} s; {left} free when the agent starts",
            size / 1_000_000
        ),
    }])
}

/// The image's line of SHA256SUMS.
fn checksum(folder: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(folder.join("SHA256SUMS")).context("read SHA256SUMS")?;
    let line = text.lines().find_map(|line| line.strip_suffix(IMAGE)).context("find the image in SHA256SUMS")?;
    Ok(line.trim_end_matches([' ', '*']).to_owned())
}
