//! Logs: to standard error, or to a file while a progress view has the terminal.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Where logs go.
pub enum Target {
    /// Standard error.
    Stderr,
    /// A file, made anew.
    File(PathBuf),
}

/// Starts logging.
pub fn start(filter: &str, target: Target) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("read the log filter «{filter}»"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(true);
    match target {
        Target::Stderr => builder.with_writer(std::io::stderr).init(),
        Target::File(path) => {
            let file = File::create(&path).with_context(|| format!("make the log file {}", path.display()))?;
            builder.with_ansi(false).with_writer(Mutex::new(file)).init();
        }
    }
    Ok(())
}
