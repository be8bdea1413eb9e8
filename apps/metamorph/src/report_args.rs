//! Arguments of the commands that look and tell: `host explain`, `host causes`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Output;
use crate::flags;

/// `host explain`.
#[derive(Debug, Args)]
pub struct HostExplain {
    /// The host.
    pub name: String,
    /// Print the text for a ticket: the broken part, its numbers and the evidence.
    #[arg(long)]
    pub rma: bool,
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace; the kubeconfig's if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
}

/// `host causes`.
#[derive(Debug, Args)]
pub struct HostCauses {
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace; all if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// For people, or JSON with the names of all hosts.
    #[arg(long, short, default_value = "text", value_name = "FORMAT", value_enum)]
    pub output: Output,
}
