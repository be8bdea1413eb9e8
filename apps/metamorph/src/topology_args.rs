//! Arguments of `topology`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::flags;

/// `topology`.
#[derive(Debug, Args)]
pub struct TopologyOptions {
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Folder given to `provision --state` or `up --data`, whether one of them runs on it or not.
    #[arg(long, value_name = "FOLDER", value_parser = flags::path, conflicts_with = "kubeconfig")]
    pub state: Option<PathBuf>,
    /// Namespace; the kubeconfig's if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// Hosts of all namespaces: a port with hosts of two of them is seen by this alone.
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// How it is told.
    #[arg(long, short, default_value = "tree", value_name = "FORMAT", value_enum)]
    pub output: Form,
    /// Call facts old that were found longer ago than this.
    #[arg(long, default_value_t = 90, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub stale_after: u32,
    /// Read no Secrets with network data: it is not known then what is bonded.
    #[arg(long)]
    pub no_network_data: bool,
}

/// Forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people, on a terminal.
    Tree,
    /// For Graphviz.
    Dot,
    /// For Markdown.
    Mermaid,
    /// For programs.
    Json,
    /// A picture.
    Svg,
}
