//! Arguments of the commands that look and tell: `host explain`, `host causes`, `host locate`, `doctor`, `support-bundle`, `topology`, `discovery`.

use std::path::PathBuf;

use addresses::Range;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use url::Url;

use crate::cli::Output;
use crate::flags;

/// `host explain`.
#[derive(Debug, Args)]
pub struct HostExplain {
    /// The host.
    #[arg(value_parser = flags::object_name)]
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

/// `host locate`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("light").required(true).args(["on", "off"])))]
pub struct HostLocate {
    /// The host.
    #[arg(value_parser = flags::object_name)]
    pub name: String,
    /// Have the light lit, or blink where the BMC has that.
    #[arg(long)]
    pub on: bool,
    /// Have it as it is when nobody looks for the server.
    #[arg(long)]
    pub off: bool,
    /// Wait so long for it to be done.
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = flags::seconds)]
    pub timeout: u64,
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace; the kubeconfig's if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
}

/// `support-bundle`.
#[derive(Debug, Args)]
pub struct SupportBundle {
    /// The file, a compressed tar archive. It is made anew, for its owner alone to read; one that is there is not overwritten.
    #[arg(long, value_name = "FILE.tar.gz", value_parser = flags::path)]
    pub out: PathBuf,
    /// Of this host alone, and what names it.
    #[arg(long, value_name = "NAME", value_parser = flags::object_name)]
    pub host: Option<String>,
    /// Namespace; all if neither this nor --host is given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// Namespace of the server's own objects.
    #[arg(long, default_value = "metamorph-system", value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub own_namespace: String,
    /// Address of the server's metrics, where this machine can reach them: `http://127.0.0.1:9440/metrics`.
    #[arg(long, value_name = "URL", value_parser = flags::http_url)]
    pub metrics_url: Option<Url>,
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`. What it may not read is left out, and named.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Look at this host, too: its objects, and from this machine its BMC, without a password, and its image.
    #[arg(long, value_name = "NAME", value_parser = flags::object_name)]
    pub host: Option<String>,
    /// Have the server put a tiny medium, which nothing starts from, into the host's empty virtual drive, and see whether its BMC reads it. This creates a HostOperation, and
    /// is the only thing that writes; boot source and power stay as they are. It takes a minute and more.
    #[arg(long, requires = "host")]
    pub test_medium: bool,
    /// Consent to that on a host whose machine runs a system.
    #[arg(long, requires = "test_medium")]
    pub allow_in_use: bool,
    /// Namespace of the host; the kubeconfig's if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// Namespace of the server's own objects.
    #[arg(long, default_value = "metamorph-system", value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub own_namespace: String,
    /// Where BMCs read media. May be given several times; without it, what the arguments of the server's pod say.
    #[arg(long, value_name = "URL", value_parser = flags::http_url)]
    pub media_url: Vec<Url>,
    /// Where agents report. May be given several times; without it, what the arguments of the server's pod say.
    #[arg(long, value_name = "URL", value_parser = flags::http_url)]
    pub agent_url: Vec<Url>,
    /// Where the server's health is told (--health-listen), for instance `http://127.0.0.1:9440`.
    #[arg(long, value_name = "URL", value_parser = flags::http_url)]
    pub health_url: Option<Url>,
    /// Folder made by `metamorph agent-image build`, where it is on this machine. May be given several times.
    #[arg(long, value_name = "FOLDER", value_parser = flags::path)]
    pub agent_image: Vec<PathBuf>,
    /// Let the host's BMC and image be at local addresses of this range, as the server's flag of that name does. May be given several times.
    #[arg(long, value_name = "RANGE", value_parser = flags::range)]
    pub allow_address: Vec<Range>,
    /// PEM file with certificates that BMCs are trusted by, as the server's.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub bmc_ca: Option<PathBuf>,
    /// PEM file with certificates that servers of images are trusted by, as the server's.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub image_ca: Option<PathBuf>,
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A line a check for people, or JSON.
    #[arg(long, short, default_value = "text", value_name = "FORMAT", value_enum)]
    pub output: Output,
}

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
    pub output: TopologyForm,
    /// Call facts old that were found longer ago than this.
    #[arg(long, default_value_t = 90, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36500))]
    pub stale_after: u32,
    /// Read no Secrets with network data: it is not known then what is bonded.
    #[arg(long)]
    pub no_network_data: bool,
}

/// Forms in which a topology is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopologyForm {
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

/// `discovery`.
#[derive(Debug, Subcommand)]
pub enum DiscoveryCommand {
    /// Tell where a HostDiscovery's medium is, or fetch it: an ISO image by which any machine reports itself.
    ///
    /// Who has the medium, or knows an address of it, can have machines reported.
    ///
    /// `metamorph discovery medium rack-8 --out rack-8.iso`
    Medium(DiscoveryMediumOptions),
}

/// `discovery medium`.
#[derive(Debug, Args)]
pub struct DiscoveryMediumOptions {
    /// The HostDiscovery.
    #[arg(value_parser = flags::object_name)]
    pub name: String,
    /// Of machines of this architecture alone.
    #[arg(long, value_name = "ARCHITECTURE", value_parser = ["x86_64", "aarch64"])]
    pub architecture: Option<String>,
    /// Write the image into this file, for its owner alone to read; one that is there is not overwritten. Without it the addresses are printed, a line each.
    #[arg(long, value_name = "FILE.iso", value_parser = flags::path)]
    pub out: Option<PathBuf>,
    /// PEM file with certificates that the media endpoint is trusted by, beside the system's, where it is read over HTTPS.
    #[arg(long, value_name = "FILE", requires = "out", value_parser = flags::path)]
    pub media_ca: Option<PathBuf>,
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace; the kubeconfig's if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
}
