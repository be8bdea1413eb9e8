//! Writing images as an agent does, ours against ironic-python-agent's own code (`tests/ironic/write-image.py`): from the same web server onto the
//! same disk, a loop device over a file, with the same checksum verified.
//!
//! Loop devices take root. For anybody else there are no such figures, which is said, and no failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use e2e::ImageServer;
use serde_json::Value;

use crate::image::{Content, IMAGE, best, compare, digest, make_disk, make_image, ours, run};
use crate::table::{Limit, Rival, Row, Unit};

/// Runs of each program, by turns; the best counts.
const RUNS: usize = 3;
/// What ironic-python-agent does.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ironic/write-image.py");
/// Its temporary folder is memory, as in a ramdisk.
const MEMORY: &str = "/dev/shm";

/// A loop device. It goes with this.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> anyhow::Result<Self> {
        let name = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file))?;
        Ok(Self(PathBuf::from(name.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

/// Measures.
///
/// # Errors
/// When a tool or ironic-python-agent is missing or fails.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        crate::say("writer: ironic-python-agent writes block devices alone; loop devices take root: not measured");
        return Ok(Vec::new());
    }
    let programs = std::env::var_os("METAMORPH_IRONIC").context("METAMORPH_IRONIC is not set: run make bench")?;
    let python = Path::new(&programs).join("python");
    let folder = tempfile::tempdir().context("make a folder")?;
    let images = ImageServer::start().await?;
    let file = folder.path().join("disk");
    make_disk(&file)?;
    let disk = Loop::over(&file)?;
    let mut rows = Vec::new();
    for (figure, content, format, limit) in [
        ("Agent writes raw: speed over ironic-python-agent", Content::Noise, "raw", 0.9),
        ("Agent writes qcow2: speed over ironic-python-agent", Content::Mixed, "qcow2", 1.0),
        ("Agent writes zero-heavy raw: speed over ironic-python-agent", Content::Zeros, "raw", 1.2),
    ] {
        let plain = folder.path().join("plain.raw");
        make_image(&plain, content)?;
        let image = folder.path().join("image");
        if format == "qcow2" {
            run(Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "qcow2"]).arg(&plain).arg(&image))?;
        } else {
            std::fs::copy(&plain, &image).context("copy an image")?;
        }
        let sha256 = digest(&image)?;
        let url = images.put("image", std::fs::read(&image).context("read an image")?);
        let (plain, disk, python) = (plain.clone(), disk.0.clone(), python.clone());
        let raced = move || race(&url, format, &sha256, &disk, &python, &plain);
        let (own, their) = tokio::task::spawn_blocking(raced).await??;
        rows.push(row(figure, limit, own, their));
    }
    Ok(rows)
}

/// Best times of both in seconds.
fn race(url: &str, format: &str, sha256: &str, disk: &Path, python: &Path, plain: &Path) -> anyhow::Result<(f64, f64)> {
    let (mut own, mut their) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        their.push(theirs(python, url, format, sha256, disk)?);
        compare(plain, disk).context("ironic-python-agent")?;
        own.push(ours(Path::new(url), format, sha256, disk)?.0.as_secs_f64());
        compare(plain, disk)?;
    }
    Ok((best(&own), best(&their)))
}

fn theirs(python: &Path, url: &str, format: &str, sha256: &str, disk: &Path) -> anyhow::Result<f64> {
    let mut command = Command::new(python);
    command.arg(SCRIPT).args([url, format, sha256]).arg(disk).stdin(Stdio::null());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    if Path::new(MEMORY).is_dir() {
        command.env("TMPDIR", MEMORY);
    }
    let output = command.output().with_context(|| format!("run {}", python.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ironic-python-agent's code failed: {errors}");
    let answer: Value = serde_json::from_slice(&output.stdout).context("read what was measured")?;
    answer["seconds"].as_f64().context("read the time")
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn row(figure: &'static str, limit: f64, own: f64, their: f64) -> Row {
    let rate = |seconds: f64| IMAGE as f64 / 1e6 / seconds;
    Row {
        figure,
        measured: Some(their / own),
        unit: Unit::Ratio,
        limit: Limit::AtLeast(limit),
        rival: Rival::here("ironic-python-agent 13", 1.0),
        note: format!(
            "{own:.2} s ({:.0} MB/s) against {their:.2} s ({:.0} MB/s), SHA-256 verified by both; best of {RUNS}",
            rate(own),
            rate(their)
        ),
    }
}
