//! The few commands of QEMU's machine protocol (QMP) that a virtual BMC needs, over QEMU's standard input and output.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdin, ChildStdout},
};

/// Why a word with QEMU failed.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The pipe broke.
    #[error("the monitor's pipe broke")]
    Io(#[from] std::io::Error),
    /// QEMU closed it.
    #[error("QEMU closed its monitor")]
    Closed,
    /// Not a QMP message.
    #[error("QEMU's monitor said {0:?}")]
    Unexpected(String),
}

/// A monitor connection.
pub struct Qmp {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Qmp {
    /// Negotiates with QEMU and enters command mode.
    ///
    /// # Errors
    /// QEMU ended, or answered something else.
    pub async fn connect(input: ChildStdin, output: ChildStdout) -> Result<Self, QmpError> {
        let mut qmp = Self { input, output: BufReader::new(output).lines() };
        let greeting = qmp.message().await?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::Unexpected(greeting.to_string()));
        }
        qmp.send("qmp_capabilities").await?;
        loop {
            let answer = qmp.message().await?;
            if answer.get("return").is_some() {
                return Ok(qmp);
            }
            if answer.get("error").is_some() {
                return Err(QmpError::Unexpected(answer.to_string()));
            }
        }
    }

    /// Sends a command without arguments; its answer arrives as a message.
    ///
    /// # Errors
    /// The pipe broke.
    pub async fn send(&mut self, command: &str) -> Result<(), QmpError> {
        let mut line = json!({ "execute": command }).to_string();
        line.push('\n');
        self.input.write_all(line.as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// The next answer or event. May be dropped and called again without losing one.
    ///
    /// # Errors
    /// QEMU closed the monitor.
    pub async fn message(&mut self) -> Result<Value, QmpError> {
        let line = self.output.next_line().await?.ok_or(QmpError::Closed)?;
        serde_json::from_str(&line).map_err(|_| QmpError::Unexpected(line.chars().take(200).collect()))
    }
}

/// The reason in a SHUTDOWN event, if the message is one.
#[must_use]
pub fn shutdown_reason(message: &Value) -> Option<&str> {
    (message.get("event")? == "SHUTDOWN").then(|| message["data"]["reason"].as_str()).flatten()
}
