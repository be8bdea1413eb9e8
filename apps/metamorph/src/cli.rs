//! Arguments. `--help` is meant to teach: each command says what it does and shows a line that works.

use std::net::SocketAddr;
use std::path::PathBuf;

use addresses::Range;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use provisioner_metamorph::NetworkRule;

use crate::flags::{self, HostPort};
use crate::image_args::AgentImageBuild;
use crate::report_args::{
    DiscoveryCommand, Doctor, HostCauses, HostExplain, HostLocate, SupportBundle, TopologyOptions,
};
use crate::{logging, say};

/// Turns bare metal into Kubernetes nodes.
///
/// Declare a machine as a Metal³ BareMetalHost and get it inspected, provisioned and watched over. One program: with `up` it
/// brings its own Kubernetes API, with `operator` it uses yours.
#[derive(Debug, Parser)]
#[command(name = "metamorph", version, max_term_width = 110, arg_required_else_help = true)]
pub struct Cli {
    /// What to log: a level (error, warn, info, debug, trace), which is about this program and leaves libraries at info, and perhaps
    /// parts of it: `info,redfish=debug`.
    #[arg(long, global = true, env = "METAMORPH_LOG", default_value = "info", value_name = "FILTER", value_parser = logging::filter)]
    pub log: String,
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything in one process: Kubernetes API, host controller, media and agent endpoints.
    ///
    /// Afterwards: `kubectl --kubeconfig <data>/kubeconfig get bmh -A`
    Up(Up),
    /// Run the controllers on a Kubernetes cluster that is there already.
    Operator(Operator),
    /// Bring the hosts of manifests to what they declare, and end: no service and no cluster are needed.
    ///
    /// The same API and controllers as with `up` run in this process, until each host is as declared. It may be stopped at any time:
    /// `--state` names a folder from which the next run, or `up --data`, goes on.
    ///
    /// The exit code is the verdict: 0 all hosts are as declared, 1 a host cannot be without a change (the message says which), 2 the manifests
    /// or the command line are wrong and nothing was done, 3 the time-out was over, 4 the run itself failed, 130 and 143 it was
    /// stopped by Ctrl-C or SIGTERM.
    ///
    /// `metamorph provision -f host.yaml --state site --agent-image agent-image`
    Provision(Provision),
    /// See it work: virtual machines behind virtual BMCs are registered, inspected and provisioned, with live progress.
    Demo(Demo),
    /// Print the custom resource definitions: `metamorph crds | kubectl apply -f -`
    Crds,
    /// Print the rights that `operator` needs, with namespace and service account: `metamorph rbac | kubectl apply -f -`
    Rbac(Rbac),
    /// The embedded Kubernetes API alone, and its data.
    #[command(subcommand)]
    Api(ApiCommand),
    /// The server's keys, from which boot media's addresses and agents' tokens are derived.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// The system that servers boot to be inspected and written.
    #[command(subcommand)]
    AgentImage(AgentImageCommand),
    /// Hosts.
    #[command(subcommand)]
    Host(HostCommand),
    /// Look at what must be there and reachable: Kubernetes API, definitions, rights, Lease, endpoints, clocks, certificates; with --host also
    /// at the host's Secret, BMC and image.
    ///
    /// The exit code is the verdict: 0 nothing failed, 1 something did, or nothing could be looked at.
    ///
    /// `metamorph doctor --host node-0`
    Doctor(Doctor),
    /// Put what is known of a site, or of one host, into one file for whoever helps: redacted, without Secrets, with a list of what is not in it.
    ///
    /// `metamorph support-bundle --out site.tar.gz`
    SupportBundle(SupportBundle),
    /// Which host is at which port of which switch, by LLDP: `metamorph topology -A`; with `--output svg` as a picture.
    Topology(TopologyOptions),
    /// Machines that nobody has declared (docs/discovery.md).
    #[command(subcommand)]
    Discovery(DiscoveryCommand),
    /// Provisioners that are other programs (docs/external-provisioners.md).
    #[command(subcommand)]
    Provisioner(ProvisionerCommand),
    /// Print shell completions: `metamorph completions bash > /etc/bash_completion.d/metamorph`
    Completions {
        /// Shell.
        shell: Shell,
    },
    /// Print the reference of all commands as Markdown.
    #[command(hide = true)]
    Reference,
    /// Print what each provisioner can do with hosts, by their BMCs' address schemes, as Markdown tables.
    Capabilities,
    /// Print the codes of causes that a HostDiagnosis names, as a Markdown table.
    DiagnosisCodes,
    /// Print the states of a host and the ways between them, as a Mermaid diagram.
    #[command(hide = true)]
    StateDiagram,
}

/// `up`.
#[derive(Debug, Args)]
pub struct Up {
    #[command(flatten)]
    pub api: ApiServe,
    #[command(flatten)]
    pub endpoints: Endpoints,
    #[command(flatten)]
    pub behaviour: Behaviour,
}

/// `operator`.
#[derive(Debug, Args)]
pub struct Operator {
    /// Kubeconfig; without it `KUBECONFIG`, `~/.kube/config` or the cluster that this runs in.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Look after this namespace only.
    #[arg(long, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// Namespace of the Secret with this server's keys.
    #[arg(long, default_value = "metamorph-system", value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub own_namespace: String,
    /// Seconds after which another process takes over from one that is gone; 0 for no leader election, where there is one process only.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(..=3600), value_name = "SECONDS")]
    pub lease_duration: u64,
    #[command(flatten)]
    pub webhook: Webhook,
    #[command(flatten)]
    pub endpoints: Endpoints,
    #[command(flatten)]
    pub behaviour: Behaviour,
}

/// `provision`.
#[derive(Debug, Args)]
#[command(mut_arg("health_listen", |arg| arg.default_value("127.0.0.1:0")))]
pub struct Provision {
    /// Manifests of BareMetalHosts and what they refer to: a file of YAML or JSON with one document or several, a folder (its *.yaml, *.yml and
    /// *.json), or `-` for standard input. May be given several times. They are applied as by `kubectl apply --server-side`.
    #[arg(long = "filename", short = 'f', required = true, value_name = "FILE", value_parser = flags::path)]
    pub files: Vec<PathBuf>,
    /// Of a folder, take what is below its folders, too.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Namespace of objects that name none. Namespaces that are not there are made.
    #[arg(long, short, default_value = "default", value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: String,
    /// Folder of the state: objects, keys, kubeconfig, as `up --data` has them. Made if it is not there. Without it a temporary one, which is
    /// removed when all hosts are as declared and kept, and named, when not.
    #[arg(long, value_name = "FOLDER", value_parser = flags::path)]
    pub state: Option<PathBuf>,
    /// Stay until the hosts are as declared. `--wait=false` only writes the manifests into the state folder and ends: the next run, or `up`,
    /// works on them.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL")]
    pub wait: bool,
    /// End, with exit code 3, when the hosts are not as declared after this many seconds.
    #[arg(long, default_value_t = 7200, value_name = "SECONDS", value_parser = flags::seconds)]
    pub timeout: u64,
    /// Go on until the time-out even if a host is in error and somebody has to change something, who may do that meanwhile.
    #[arg(long)]
    pub keep_trying: bool,
    /// Take over fields that somebody else has set in the state (with kubectl, while `up` ran on it).
    #[arg(long)]
    pub force_conflicts: bool,
    /// How progress and verdict are told on standard output: for people, or as a line of JSON for each event.
    #[arg(long, short, default_value = "text", value_name = "FORMAT", value_enum)]
    pub output: Output,
    /// Address of the Kubernetes API, for the time of the run.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    pub api_listen: SocketAddr,
    #[command(flatten)]
    pub endpoints: Endpoints,
    #[command(flatten)]
    pub behaviour: Behaviour,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// People.
    Text,
    /// Programs.
    Json,
}

/// Where the API server has BareMetalHosts checked before it stores them.
#[derive(Clone, Debug, Args)]
pub struct Webhook {
    /// Where the API server asks whether a BareMetalHost may be stored (HTTPS).
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS:PORT")]
    pub webhook_listen: SocketAddr,
    /// Service by which the API server reaches it, in a cluster; without a port, 443 is meant. Without this and --webhook-url there is no
    /// webhook.
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]")]
    pub webhook_service: Option<String>,
    /// Address by which the API server reaches it, outside of a cluster.
    #[arg(long, conflicts_with = "webhook_service", value_name = "URL")]
    pub webhook_url: Option<String>,
}

/// Where metrics are served over HTTPS.
#[derive(Clone, Debug, Default, Args)]
pub struct Metrics {
    /// Serve /metrics here instead of at --health-listen: over HTTPS, and only to clients whose bearer token belongs to somebody who may `get` the
    /// non-resource URL /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Host name or address of the metrics endpoint, for its certificate. May be given several times. Without it
    /// metamorph-metrics.NAMESPACE.svc and localhost, where NAMESPACE is the one of this server's keys.
    #[arg(long, value_name = "HOST", requires = "metrics_listen", conflicts_with = "metrics_certificate")]
    pub metrics_host: Vec<String>,
    /// PEM file with the certificate of the metrics endpoint, and its chain. Without it the server makes one of its own and keeps it in a Secret.
    #[arg(long, value_name = "FILE", requires = "metrics_listen", requires = "metrics_key", value_parser = flags::path)]
    pub metrics_certificate: Option<PathBuf>,
    /// PEM file with the key of --metrics-certificate.
    #[arg(long, value_name = "FILE", requires = "metrics_certificate", value_parser = flags::path)]
    pub metrics_key: Option<PathBuf>,
}

/// `rbac`.
#[derive(Debug, Args)]
pub struct Rbac {
    /// The namespace given to `operator`; without it, hosts of all namespaces are looked after.
    #[arg(long, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// Namespace of the service account and of the Secret with the server's keys, as given to `operator`.
    #[arg(long, default_value = "metamorph-system", value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub own_namespace: String,
    /// With what --webhook-service and --webhook-url need.
    #[arg(long)]
    pub webhook: bool,
    /// With what --metrics-listen needs, and the ClusterRole metamorph-metrics-reader for those who are to read metrics.
    #[arg(long)]
    pub metrics: bool,
}

/// Where servers and BMCs reach this process.
#[derive(Clone, Debug, Args)]
pub struct Endpoints {
    /// Folder made by `metamorph agent-image build`. May be given once for each architecture of machines, or as a list with colons; the first is for
    /// machines of which neither host nor BMC tells the architecture.
    #[arg(long, env = "METAMORPH_AGENT_IMAGE", default_value = "agent-image", value_name = "FOLDER", value_delimiter = ':', value_parser = flags::path)]
    pub agent_image: Vec<PathBuf>,
    /// Folder with an agent image of before an upgrade: boots that began with it read it to their end. May be given several times; the
    /// image that `agent-image build` has replaced stands beside the new one, as FOLDER.earlier, and is found there.
    #[arg(long, value_name = "FOLDER")]
    pub earlier_agent_image: Vec<PathBuf>,
    /// Where BMCs read boot media (HTTP).
    #[arg(long, default_value = "0.0.0.0:6180", value_name = "ADDRESS:PORT")]
    pub media_listen: SocketAddr,
    /// Where agents report (HTTPS).
    #[arg(long, default_value = "0.0.0.0:6385", value_name = "ADDRESS:PORT")]
    pub agent_listen: SocketAddr,
    /// Where /livez, /readyz and, without --metrics-listen, /metrics are served (HTTP, without authentication; names of hosts are told, no
    /// secrets). A probe from elsewhere, such as the kubelet's, needs 0.0.0.0:9440.
    #[arg(long, default_value = "127.0.0.1:9440", value_name = "ADDRESS:PORT")]
    pub health_listen: SocketAddr,
    #[command(flatten)]
    pub metrics: Metrics,
    /// Where BMCs read boot media over HTTPS as well, for those that take no other. A BMC gets the address whose protocol its drive
    /// declares; if it declares none, HTTP and, when that is refused, HTTPS.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub media_tls_listen: Option<SocketAddr>,
    /// PEM file with the certificate of the media endpoint over HTTPS, and its chain. Without it the server makes one of its own for all
    /// --media-host, keeps it in a Secret, and gives it to BMCs that keep certificates of media servers.
    #[arg(long, value_name = "FILE", requires = "media_tls_listen", requires = "media_key", value_parser = flags::path)]
    pub media_certificate: Option<PathBuf>,
    /// PEM file with the key of --media-certificate.
    #[arg(long, value_name = "FILE", requires = "media_certificate", value_parser = flags::path)]
    pub media_key: Option<PathBuf>,
    /// Host name or address under which BMCs reach the media endpoint; without a port, the one of --media-listen is meant. May be given
    /// several times, for IPv4 and IPv6: a BMC gets the one of its own address's family.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub media_host: Vec<HostPort>,
    /// Host name or address under which servers reach the agent endpoint; without a port, the one of --agent-listen is meant. May be
    /// given several times, they are tried in order.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub agent_host: Vec<HostPort>,
    /// Other addresses for some hosts, chosen by namespace or BMC: `bmc=10.1.0.0/16,media=10.1.0.5,agent=10.1.0.5`. Keys: namespace, bmc (a
    /// range of addresses, or a domain), media and agent (as --media-host and --agent-host, or whole base addresses) and images (a base
    /// address in place of this server's own /images). May be given several times; the first rule that fits a host counts.
    #[arg(long = "network", value_name = "RULE")]
    pub networks: Vec<NetworkRule>,
    /// Let BMCs and images be at local addresses of this range: `127.0.0.0/8`, `fe80::/10`, one address. Without it loopback, link-local, multicast
    /// and reserved addresses are not called, whatever a host says and whatever names resolve to. A cloud's metadata service is called only if its
    /// own address stands here. May be given several times.
    #[arg(long, value_name = "RANGE", value_parser = flags::range)]
    pub allow_address: Vec<Range>,
    /// Serve the files of this folder at /images/ of the media endpoint, for operating system images.
    #[arg(long, value_name = "FOLDER", value_parser = flags::path)]
    pub images: Option<PathBuf>,
    /// PEM file with certificates that BMCs are trusted by, beside the public authorities: of CAs, or self-signed ones of BMCs themselves. It
    /// is read again within a minute after it changed.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub bmc_ca: Option<PathBuf>,
    /// PEM file with CA certificates that agents trust when they download images, and this server when it asks registries, beside the public ones. It is
    /// read again within a minute after it changed, for agents that are booted from then on.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub image_ca: Option<PathBuf>,
    /// Registry of images (`oci://`) that is asked by plain HTTP. Any other is asked by HTTPS alone. May be given several times.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = flags::registry)]
    pub http_registry: Vec<String>,
    /// Proxy by way of which agents read images and checksum files, and this server asks registries: `http://proxy.example:3128`. A ConfigMap
    /// metamorph-images, in the namespace of a host or of this server, comes before it. No environment variable names a proxy.
    #[arg(long, value_name = "URL")]
    pub image_proxy: Option<String>,
    /// File with `user:password` for --image-proxy.
    #[arg(long, value_name = "FILE", requires = "image_proxy", value_parser = flags::path)]
    pub image_proxy_login: Option<PathBuf>,
    /// Agents get --image-proxy-login with their orders, too: whoever may write hosts can read it there. Without this flag, only this server's own requests
    /// carry it, and hosts whose agents would need it wait.
    #[arg(long, requires = "image_proxy_login")]
    pub image_proxy_login_for_agents: bool,
    /// What is read without --image-proxy: names (`example.com` and all below it, `.example.com` what is below it), addresses, ranges of
    /// addresses, each but ranges perhaps with a port, or `*`; separated by commas.
    #[arg(long, value_name = "LIST", requires = "image_proxy", value_delimiter = ',')]
    pub image_no_proxy: Vec<String>,
    /// Words for the kernel command line of the agent's system.
    #[arg(long, default_value = "", value_name = "WORDS", value_parser = flags::kernel_arguments)]
    pub agent_kernel_arguments: String,
}

/// Patience and retries.
#[derive(Clone, Debug, Args)]
pub struct Behaviour {
    /// Failed attempts to provision the same image after which no more are made; 0 is unlimited.
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    pub max_provisioning_retries: u32,
    /// Unit of the back-off after failures, in seconds (it doubles with each failure in a row).
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = flags::fraction)]
    pub retry_after: f64,
    /// Of which hosts errors are diagnosed, by reading their BMCs once an error, where no label `error-detect` of host or namespace says it.
    #[arg(long, value_enum, default_value_t = ErrorDetect::Off, value_name = "WHICH")]
    pub error_detect: ErrorDetect,
    /// How often the power of a settled host is looked at, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = flags::seconds)]
    pub power_poll: u64,
    /// How many hosts may begin to be deprovisioned within ten minutes; the others wait. 0 lets any number.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub deprovisioning_limit: usize,
    /// How many machines may be switched on within ten seconds; the others follow in steps. 0 lets any number.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub power_on_limit: usize,
    /// How many hosts are inspected, provisioned or deprovisioned at once; the others wait, and namespaces share the places fairly.
    #[arg(long, default_value_t = provisioner_metamorph::PROVISIONING_LIMIT, value_name = "N", value_parser = flags::at_least_one)]
    pub provisioning_limit: usize,
    /// How long a machine may take from reset to the agent's first report, in seconds.
    #[arg(long, default_value_t = 1200, value_name = "SECONDS", value_parser = flags::seconds)]
    pub agent_boot_timeout: u64,
    /// How long an agent may be silent before it is taken for dead, in seconds.
    #[arg(long, default_value_t = 90, value_name = "SECONDS", value_parser = flags::seconds)]
    pub agent_silence: u64,
    /// How long an agent may take to report again after this server was restarted, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = flags::seconds)]
    pub agent_reconnect: u64,
    /// How long an agent's work may go without any progress before it is taken for stuck, in seconds.
    #[arg(long, default_value_t = 900, value_name = "SECONDS", value_parser = flags::seconds)]
    pub agent_stall_timeout: u64,
    /// How hosts are provisioned, the default first; a host or a namespace chooses another of them by the annotation
    /// `metamorph.metal3.io/provisioner`.
    #[arg(long = "provisioner", value_enum, value_delimiter = ',', default_values_t = [Backend::Metamorph], value_name = "NAMES")]
    pub provisioners: Vec<Backend>,
    /// YAML file that lists the Ironics of the provisioner `ironic` (docs/ironic.md).
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub ironics: Option<PathBuf>,
    /// YAML file that lists provisioners that are other programs (docs/external-provisioners.md): a host or a namespace chooses one by the same
    /// annotation.
    #[arg(long = "provisioners", value_name = "FILE", value_parser = flags::path)]
    pub external: Option<PathBuf>,
}

/// `provisioner`.
#[derive(Debug, Subcommand)]
pub enum ProvisionerCommand {
    /// Check a provisioner that is another program by the scenarios that each must pass, on machines of its own that nobody uses.
    ///
    /// The exit code is the verdict: 0 it passes, 1 it does not, or could not be asked.
    ///
    /// `metamorph provisioner check unix:/run/acme.sock`
    Check(ProvisionerCheck),
    /// Run one of this program's provisioners as a program of its own: to try the protocol with.
    ///
    /// `metamorph provisioner serve fixture --listen unix:/run/fixture.sock`
    Serve(ProvisionerServe),
}

/// `provisioner check`.
#[derive(Debug, Args)]
pub struct ProvisionerCheck {
    /// Where it listens, `unix:/path`; or its name in the list of `--provisioners`.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// The list that has it.
    #[arg(long = "provisioners", value_name = "FILE", value_parser = flags::path)]
    pub list: Option<PathBuf>,
    /// Address of its machines' BMCs, with `{n}` for a number: an address with another number is another machine, as it is delivered, and all that
    /// is on it is destroyed. Without it, what the provisioner names itself.
    #[arg(long, value_name = "TEMPLATE")]
    pub machines: Option<String>,
    /// Only scenarios whose name has this in it.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
}

/// `provisioner serve`.
#[derive(Debug, Args)]
pub struct ProvisionerServe {
    /// Which.
    #[arg(value_enum, value_name = "NAME")]
    pub name: ServedProvisioner,
    /// Where: `unix:/path`, or `address:port` with TLS.
    #[arg(long, env = "METAMORPH_PROVISIONER_LISTEN", value_name = "ADDRESS")]
    pub listen: String,
    /// PEM file with the certificate.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "client_ca"], value_parser = flags::path)]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with its key.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub tls_key: Option<PathBuf>,
    /// PEM file with the authority of servers that are heard.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub client_ca: Option<PathBuf>,
}

/// A provisioner that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServedProvisioner {
    /// Machines that exist in memory.
    Fixture,
}

/// Whose errors are diagnosed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ErrorDetect {
    /// Nobody's.
    Off,
    /// Those of hosts that the provisioner `metamorph` runs.
    Native,
    /// Those of all hosts; without evidence, by what the host itself says.
    All,
}

impl From<ErrorDetect> for operator::Detect {
    fn from(detect: ErrorDetect) -> Self {
        match detect {
            ErrorDetect::Off => Self::Off,
            ErrorDetect::Native => Self::Native,
            ErrorDetect::All => Self::All,
        }
    }
}

/// A way to provision machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Redfish virtual media and our own agent.
    Metamorph,
    /// Machines that exist in memory, to try the API with: nothing is done to any real one.
    Fixture,
    /// Standalone Ironics, which `--ironics` lists.
    Ironic,
}

/// `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// How many machines.
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub machines: u16,
    /// Folder for everything the demo makes; a new temporary one, removed at the end, if it is not given.
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Folder made by `metamorph agent-image build`.
    #[arg(long, env = "METAMORPH_AGENT_IMAGE", default_value = "agent-image", value_name = "FOLDER", value_delimiter = ':', value_parser = flags::path)]
    pub agent_image: Vec<PathBuf>,
    /// Operating system image (raw, perhaps compressed) with a SHA256SUMS beside it, or the folder that `make demo-os` fills.
    #[arg(long, env = "METAMORPH_DEMO_OS", default_value = ".cache/demo-os/current", value_name = "FILE")]
    pub image: PathBuf,
    /// The simulator's program.
    #[arg(long, value_name = "FILE")]
    pub bmc_sim: Option<PathBuf>,
    /// Boot with Secure Boot on.
    #[arg(long)]
    pub secure_boot: bool,
    /// Give up when the machines have not reported in after this many seconds.
    #[arg(long, default_value_t = 900, value_name = "SECONDS", value_parser = flags::seconds)]
    pub timeout: u64,
    /// End once the machines have reported in, even at a terminal.
    #[arg(long)]
    pub once: bool,
}

/// `api`.
#[derive(Debug, Subcommand)]
pub enum ApiCommand {
    /// Run the Kubernetes API alone, with Metal³'s definitions and without controllers: to try manifests and to test operators.
    ///
    /// Afterwards: `kubectl --kubeconfig <data>/kubeconfig api-resources`
    Serve(ApiServe),
    /// Write all objects, as they are at one moment, to a new file; also while `metamorph up` runs.
    ///
    /// Secrets in it are encrypted. Their keys, and the server's keys and certificates, stay in the data folder and are not in it.
    Backup(ApiFile),
    /// Make the objects of a data folder those of a backup, while no `metamorph up` runs on it.
    ///
    /// What was there is kept beside it as `store.db.old`. Resource versions go on beyond all that were ever handed out.
    Restore(ApiFile),
}

/// `api serve`.
#[derive(Debug, Args)]
pub struct ApiServe {
    /// Folder for objects, keys and the kubeconfig. Made if it is not there.
    #[arg(long, default_value = "metamorph-data", value_name = "FOLDER", value_parser = flags::path)]
    pub data: PathBuf,
    /// Address of the Kubernetes API.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS:PORT")]
    pub api_listen: SocketAddr,
    /// Further host names or addresses for the API's certificate.
    #[arg(long, value_name = "NAME", value_parser = flags::host_name)]
    pub api_name: Vec<String>,
    /// Write each API request as a line of JSON to this file.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub api_audit_log: Option<PathBuf>,
}

/// `api backup` and `api restore`.
#[derive(Debug, Args)]
pub struct ApiFile {
    /// Folder given to `metamorph up`.
    #[arg(long, default_value = "metamorph-data", value_name = "FOLDER", value_parser = flags::path)]
    pub data: PathBuf,
    /// The backup.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// List the keys, and how many machines' boots need each.
    List(Keys),
    /// Make another key, from which new boots are derived from now on; no restart is needed.
    ///
    /// Earlier keys stay until the last boot that began with them is over, and go then by themselves. One that has become known to others is deleted
    /// (`kubectl delete secret`) after this: boots that need it are made anew.
    Rotate(Keys),
}

/// `keys list` and `keys rotate`.
#[derive(Debug, Args)]
pub struct Keys {
    /// Kubeconfig of the API that the server works on. Without it: KUBECONFIG, ~/.kube/config, or the cluster around.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the server's own objects.
    #[arg(long, default_value = "metamorph-system", value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub own_namespace: String,
}

/// `agent-image`.
#[derive(Debug, Subcommand)]
pub enum AgentImageCommand {
    /// Build the agent's system from Debian's kernel and boot loader packages and the agent program, for the architecture of that program; or, with
    /// `--flavor ipa`, a Debian ramdisk with ironic-python-agent.
    Build(AgentImageBuild),
}

/// `host`.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Print Secret and BareMetalHost for a server: `metamorph host add node-0 --address … --user … --password-file … | kubectl apply -f -`
    Add(HostAdd),
    /// Watch what is being done to hosts, live.
    Watch(HostWatch),
    /// List hosts, and what was done to them last: of a cluster, or of a state folder on which nothing needs to run.
    List(HostList),
    /// Say why a host is as it is: its state, the time that is left, its last operations, the causes of its error, and what to do next.
    Explain(HostExplain),
    /// Put the causes of all hosts in error together: which image server, network, model or switch they share, and who puts it right.
    Causes(HostCauses),
    /// Find a server at its rack: have its light switched on, or off again. `metamorph host locate node-0 --on`
    Locate(HostLocate),
}

/// `host add`.
#[derive(Debug, Args)]
pub struct HostAdd {
    /// Name of the host.
    pub name: String,
    /// BMC address: `192.0.2.7`, or with the system where a BMC has several: `redfish-virtualmedia+https://192.0.2.7/redfish/v1/Systems/1`.
    #[arg(long, value_name = "ADDRESS")]
    pub address: String,
    /// BMC user.
    #[arg(long, value_name = "NAME")]
    pub user: String,
    /// BMC password. Other users of this machine can see it in the process list: prefer --password-file.
    #[arg(long, value_name = "PASSWORD", required_unless_present = "password_file")]
    pub password: Option<String>,
    /// File with the BMC password, `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "password")]
    pub password_file: Option<PathBuf>,
    /// Namespace.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// Hardware address of the interface that the server boots from.
    #[arg(long, value_name = "MAC")]
    pub boot_mac: Option<String>,
    /// Boot mode: UEFI, UEFISecureBoot or legacy.
    #[arg(long, value_name = "MODE", value_parser = ["UEFI", "UEFISecureBoot", "legacy"])]
    pub boot_mode: Option<String>,
    /// Image to provision.
    #[arg(long, value_name = "URL", requires = "image_checksum")]
    pub image_url: Option<String>,
    /// Digest of the image, or the URL of a checksum file.
    #[arg(long, value_name = "DIGEST", requires = "image_url")]
    pub image_checksum: Option<String>,
    /// Format of the image: raw or qcow2.
    #[arg(long, value_name = "FORMAT", requires = "image_url", value_parser = ["raw", "qcow2"])]
    pub image_format: Option<String>,
    /// Accept any certificate of the BMC.
    #[arg(long)]
    pub disable_certificate_verification: bool,
    /// Leave the host switched off.
    #[arg(long)]
    pub offline: bool,
}

/// `host watch`.
#[derive(Debug, Args)]
pub struct HostWatch {
    /// Host to watch; all if not given.
    pub name: Option<String>,
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace; all if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
}

/// `host list`.
#[derive(Debug, Args)]
pub struct HostList {
    /// Kubeconfig; without it `KUBECONFIG` or `~/.kube/config`.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Folder given to `provision --state` or `up --data`, whether one of them runs on it or not.
    #[arg(long, value_name = "FOLDER", value_parser = flags::path, conflicts_with = "kubeconfig")]
    pub state: Option<PathBuf>,
    /// Namespace; all if not given.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = flags::namespace)]
    pub namespace: Option<String>,
    /// For people, or the BareMetalHosts as a list in JSON.
    #[arg(long, short, default_value = "text", value_name = "FORMAT", value_enum)]
    pub output: Output,
}

/// The shell's completions.
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "metamorph", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Prints the reference of all commands as Markdown.
pub fn reference() -> anyhow::Result<()> {
    say::out("# Commands\n\nGenerated by `cargo xtask generate` from the program's own help.\n")?;
    let mut root = Cli::command();
    root.build();
    let mut todo = vec![(String::from("metamorph"), root)];
    while let Some((path, mut command)) = todo.pop() {
        let help = command.render_long_help().to_string();
        say::out(&format!("\n## `{path}`\n\n```text\n{}\n```\n", help.trim_end()))?;
        let subcommands: Vec<_> =
            command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help").cloned().collect();
        for sub in subcommands.into_iter().rev() {
            todo.push((format!("{path} {}", sub.get_name()), sub));
        }
    }
    Ok(())
}

/// The life cycle's diagram.
pub fn state_diagram() -> String {
    format!("{}\n", host_lifecycle::diagram().trim_end())
}
