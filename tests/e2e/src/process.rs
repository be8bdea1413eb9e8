//! Programs as processes: started with their output in a file, ended by their id when the test ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// A running program.
pub struct Running {
    child: Child,
    /// File with its standard error.
    pub log: PathBuf,
}

impl Running {
    /// Starts `command` with its standard error appended to `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log).context("open the log")?;
        let child = command
            .stdin(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its standard output, once.
    pub fn stdout(&mut self) -> Option<tokio::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// What it has logged.
    #[must_use]
    pub fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has logged a line with this text.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_logged(&self, text: &str, seconds: u64) -> anyhow::Result<()> {
        let logged = async {
            while !self.logged().contains(text) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(seconds), logged).await;
        waited.with_context(|| format!("nothing about {text:?} was logged within {seconds} s; {}", self.tail()))
    }

    /// Its id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// SIGKILL: no warning, nothing is cleaned up.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.pid() {
            kill_process(pid, Signal::KILL).context("kill")?;
        }
        self.child.wait().await.context("wait for the killed process")?;
        Ok(())
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When it does not end in 30 s, or not with success.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.pid() {
            hears_sigterm(pid).await;
            kill_process(pid, Signal::TERM).context("terminate")?;
        }
        let status = tokio::time::timeout(Duration::from_secs(30), self.child.wait())
            .await
            .with_context(|| format!("wait for the end; {}", self.tail()))?
            .context("wait for the end")?;
        if !status.success() {
            bail!("it ended with {status}; {}", self.tail());
        }
        Ok(())
    }

    /// Waits for its end, however it ends.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn ended(&mut self, time: Duration) -> anyhow::Result<std::process::ExitStatus> {
        let waited = tokio::time::timeout(time, self.child.wait()).await;
        waited.with_context(|| format!("it has not ended; {}", self.tail()))?.context("wait for the end")
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of its log.
    #[must_use]
    pub fn tail(&self) -> String {
        let text = self.logged();
        let lines: Vec<&str> = text.lines().collect();
        let start = lines.len().saturating_sub(40);
        format!("the end of {}:\n{}", self.log.display(), lines[start..].join("\n"))
    }
}

/// Waits until the process has a handler for SIGTERM (`SigCgt` of proc_pid_status(5)): one that has only just been started is ended by the
/// signal as by a crash.
async fn hears_sigterm(pid: Pid) {
    let status = format!("/proc/{}/status", pid.as_raw_nonzero());
    for _ in 0..500 {
        let Ok(text) = std::fs::read_to_string(&status) else { return };
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if mask.is_none_or(|mask| mask & (1 << (Signal::TERM.as_raw() - 1)) != 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
