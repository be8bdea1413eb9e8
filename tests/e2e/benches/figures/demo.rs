//! `make demo` after the build: the same program, with nobody at the terminal.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use e2e::{agent_image, demo_os, program};
use tokio::process::Command;

use crate::table::{Limit, Row, Unit};

/// Limit, in seconds.
const LIMIT: f64 = 180.0;
/// When the demo gives up by itself, in seconds: far beyond the limit, so that a failure still has a figure.
const TIMEOUT: &str = "600";
/// When it is given up from outside: it had time to clean up before.
const PATIENCE: Duration = Duration::from_secs(660);

/// Measures.
///
/// # Errors
/// When the demo fails.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let mut command = Command::new(program("metamorph")?);
    command.args(["demo", "--once", "--timeout", TIMEOUT, "--data"]).arg(folder.path().join("demo"));
    command.arg("--agent-image").arg(agent_image()?).arg("--image").arg(demo_os()?);
    command.stdin(std::process::Stdio::null()).kill_on_drop(true);
    let start = Instant::now();
    let output = tokio::time::timeout(PATIENCE, command.output()).await.context("wait for the demo")?;
    let output = output.context("start the demo")?;
    let wall = start.elapsed();
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("the demo failed: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(vec![Row {
        figure: "make demo after the build",
        measured: Some(wall.as_secs_f64()),
        unit: Unit::Seconds,
        limit: Limit::AtMost(LIMIT),
        rival: None,
        note: "one emulated server, both boots included, until it calls home".to_owned(),
    }])
}
