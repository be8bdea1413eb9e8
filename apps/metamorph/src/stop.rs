//! The signals that stop this program in order.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Catches SIGTERM and Ctrl-C from its creation on, so that a signal during startup stops the server in order.
pub struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    /// Begins to listen.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listen for Ctrl-C")?,
        })
    }

    /// Resolves on a stop signal.
    pub async fn stopped(&mut self) {
        self.which().await;
    }

    /// Like [`Self::stopped`], but returns the signal.
    pub async fn which(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}

/// Waits for a stop signal, listening from this call on.
pub async fn stop_signal() -> anyhow::Result<()> {
    StopSignal::listen()?.stopped().await;
    Ok(())
}
