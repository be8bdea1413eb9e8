//! The in-memory system's program.
//!
//! As process 1 it prepares the system and starts itself once more as the agent proper, so that nothing the agent does can take
//! process 1 (and with it the kernel) down. `metamorph-agent fake` is the same agent over a simulator's machine.

mod init;
mod work;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};

/// Metamorph's agent: inspects, writes and wipes the machine it runs on, as its server says.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Work on this machine; its configuration is /metamorph/host.json. Process 1 starts this by itself.
    Run,
    /// Work on a simulator's machine: ends with status 0 when it is switched off, 10 when it is reset.
    Fake {
        /// Folder with the machine's sys, proc and dev.
        #[arg(long)]
        root: PathBuf,
        /// Address of the boot medium, read by ranges.
        #[arg(long)]
        medium: String,
    },
}

fn main() -> anyhow::Result<()> {
    if std::process::id() == 1 {
        init::process_one()
    }
    match Arguments::parse().command {
        Command::Run => work::on_this_machine(),
        Command::Fake { root, medium } => {
            anyhow::ensure!(root.is_dir(), "the machine's folder {} is not there", root.display());
            work::on_a_fake_machine(&root, &medium).context("the fake machine's agent failed")
        }
    }
}
