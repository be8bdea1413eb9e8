//! What `metamorph operator` makes of the flags and environment variables of baremetal-operator (its `main.go` and `pkg/provisioner/ironic/factory.go`),
//! so that a Deployment written for that can be tried with this program: those that mean something here are taken over, those that mean nothing are named,
//! and those whose loss would change what is done to machines are refused. None is ignored without a word.
//!
//! This program's own flags come first: a variable counts only where its flag is not given, and what is no flag of baremetal-operator goes through as it is.

use std::ffi::OsString;

/// What becomes of a flag or variable with a value.
enum Meaning {
    /// These arguments.
    Becomes(Vec<String>),
    /// Nothing: it is as this program does it anyway.
    AsIs,
    /// Nothing, which is said.
    Unused(&'static str),
    /// The program does not start.
    Refused(String),
}

use Meaning::{AsIs, Becomes, Refused, Unused};

/// The arguments for this program, and notes for the user.
#[derive(Debug, PartialEq, Eq)]
pub struct Understood {
    /// The whole command line.
    pub arguments: Vec<OsString>,
    /// What has no meaning here.
    pub notes: Vec<String>,
}

/// Flags of baremetal-operator that this program does not have, or has with another meaning: name, and whether it is a switch.
const FLAGS: [(&str, bool); 21] = [
    ("namespace", false),
    ("kubeconfig", false),
    ("provisioner", false),
    ("metrics-addr", false),
    ("health-addr", false),
    ("webhook-port", false),
    ("enable-leader-election", true),
    ("lease-duration-seconds", false),
    ("renew-deadline-seconds", false),
    ("retry-period-seconds", false),
    ("build-preprov-image", true),
    ("hostclaims", true),
    ("dev", true),
    ("kube-api-qps", false),
    ("kube-api-burst", false),
    ("controller-concurrency", false),
    ("max-provisioning-retries", false),
    ("tls-min-version", false),
    ("tls-max-version", false),
    ("tls-cipher-suites", false),
    ("tls-curve-preferences", false),
];

/// Variables of baremetal-operator. Those that begin with `IRONIC_` or `DEPLOY_` are known by their beginning.
const VARIABLES: [&str; 13] = [
    "WATCH_NAMESPACE",
    "POD_NAMESPACE",
    "BMO_CONCURRENCY",
    "PROVISIONER_PLUGIN_DIR",
    "LEASE_DURATION_SECONDS",
    "RENEW_DEADLINE_SECONDS",
    "RETRY_PERIOD_SECONDS",
    "METAL3_AUTH_ROOT_DIR",
    "PROVISIONING_LIMIT",
    "LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE",
    "DIRECT_DEPLOY_FORCE_PERSISTENT_BOOT_DEVICE",
    "PROVISIONING_NETWORK_DISABLED",
    "IRONIC_NETWORKING_ENABLED",
];

const NO_IRONIC: &str = "Ironics are listed in the file of --ironics";
const OWN_AGENT: &str = "machines boot this program's own agent (--agent-image)";
const NO_LIMIT: &str = "hosts are looked after all at once; --provisioning-limit bounds the work on machines";
const PERSISTENT: &str = "the boot device is set for one boot each time, and the machine's own order is left alone";
const LIVE_PERSISTENT: &str =
    "a live ISO's boot device is set for each boot where the BMC keeps that, and is set again before each start";

fn flag(name: &str, to: &str) -> Meaning {
    Becomes(vec![format!("--{name}={to}")])
}

/// Whether this is a switch's value for "on", as Go reads it.
fn is_on(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// `:9440`, which Go takes for all addresses.
fn everywhere(address: &str) -> String {
    if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() }
}

fn one_namespace(value: &str) -> Meaning {
    match value {
        "" => AsIs,
        list if list.contains(',') => Refused(
            "several namespaces are named, and one program looks after one or all: run one for each, or leave it out"
                .to_owned(),
        ),
        one => flag("namespace", one),
    }
}

/// What a flag of baremetal-operator means.
fn meaning_of_flag(name: &str, value: &str) -> Meaning {
    match name {
        "namespace" => one_namespace(value),
        "kubeconfig" if value.is_empty() => AsIs,
        "provisioner" if value == "demo" => {
            Refused("there is no such provisioner: use --provisioner=fixture, or `metamorph demo`".to_owned())
        }
        "kubeconfig" | "provisioner" | "max-provisioning-retries" => flag(name, value),
        // controller-runtime serves none then.
        "metrics-addr" if value == "0" => {
            Unused("metrics are always served: at /metrics of --health-listen unless --metrics-listen is given")
        }
        "metrics-addr" => flag("metrics-listen", &everywhere(value)),
        "health-addr" => flag("health-listen", &everywhere(value)),
        "webhook-port" if value == "0" => AsIs,
        "webhook-port" => flag("webhook-listen", &format!("0.0.0.0:{value}")),
        "enable-leader-election" if is_on(value) => AsIs,
        "enable-leader-election" => Unused("leader election stays on; --lease-duration=0 is without it"),
        "lease-duration-seconds" => flag("lease-duration", value),
        "renew-deadline-seconds" | "retry-period-seconds" => Unused("they follow from --lease-duration"),
        "build-preprov-image" if is_on(value) => {
            Refused(format!("PreprovisioningImages are not built: {OWN_AGENT}; leave the flag out"))
        }
        "hostclaims" if !is_on(value) => Unused("HostClaims are looked after all the same"),
        "dev" if is_on(value) => Unused("--log chooses what is logged"),
        "kube-api-qps" | "kube-api-burst" => Unused("requests to the Kubernetes API are not held back"),
        "controller-concurrency" => Unused(NO_LIMIT),
        "tls-min-version" if matches!(value, "" | "TLS12") => AsIs,
        "tls-min-version" | "tls-max-version" | "tls-cipher-suites" | "tls-curve-preferences" if !value.is_empty() => {
            Refused("TLS 1.2 and 1.3 are spoken with rustls' own choice of ciphers and curves, which cannot be changed: leave the flag out".to_owned())
        }
        _ => AsIs,
    }
}

/// What a variable of baremetal-operator means.
fn meaning_of_variable(name: &str, value: &str) -> Meaning {
    match name {
        "WATCH_NAMESPACE" => one_namespace(value),
        "POD_NAMESPACE" => flag("own-namespace", value),
        "LEASE_DURATION_SECONDS" => flag("lease-duration", value),
        "RENEW_DEADLINE_SECONDS" | "RETRY_PERIOD_SECONDS" => Unused("they follow from --lease-duration"),
        "BMO_CONCURRENCY" => Unused(NO_LIMIT),
        "PROVISIONING_LIMIT" => flag("provisioning-limit", value),
        "PROVISIONER_PLUGIN_DIR" => Unused("provisioners are part of this program"),
        "METAL3_AUTH_ROOT_DIR" => Unused(NO_IRONIC),
        "IRONIC_NETWORKING_ENABLED" if is_on(value) => {
            Unused("switches are not configured: BareMetalSwitch and HostNetworkAttachment are stored alone")
        }
        "LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE" if !matches!(value, "Default" | "Always") => Unused(LIVE_PERSISTENT),
        "DIRECT_DEPLOY_FORCE_PERSISTENT_BOOT_DEVICE" if value != "Default" => Unused(PERSISTENT),
        "PROVISIONING_NETWORK_DISABLED" if !is_on(value) => {
            Unused("no provisioning network is used: agents boot from virtual media")
        }
        _ if name.starts_with("IRONIC_") && name != "IRONIC_NETWORKING_ENABLED" => Unused(NO_IRONIC),
        _ if name.starts_with("DEPLOY_") => Unused(OWN_AGENT),
        _ => AsIs,
    }
}

fn is_known(variable: &str) -> bool {
    VARIABLES.contains(&variable) || variable.starts_with("IRONIC_") || variable.starts_with("DEPLOY_")
}

/// Where the arguments of `operator` begin, if that is the command.
fn operators(arguments: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(argument) = arguments.get(at) {
        let text = argument.to_str()?;
        match text {
            "operator" => return Some(at.saturating_add(1)),
            "--log" => at = at.saturating_add(2),
            _ if text.starts_with("--log=") => at = at.saturating_add(1),
            _ => return None,
        }
    }
    None
}

/// A flag of baremetal-operator and its value, if the argument is one; Go takes one dash as well as two. `next` is the argument after it; true if
/// that is the value.
fn read(argument: &str, next: Option<&str>) -> Option<(&'static str, String, bool)> {
    let plain = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    let (name, value) = plain.split_once('=').map_or((plain, None), |(name, value)| (name, Some(value)));
    let (name, switch) = *FLAGS.iter().find(|(known, _)| *known == name)?;
    match (value, switch, next) {
        (Some(value), ..) => Some((name, value.to_owned(), false)),
        (None, true, _) => Some((name, "true".to_owned(), false)),
        (None, false, Some(next)) => Some((name, next.to_owned(), true)),
        // This program's own parser says what is missing.
        (None, false, None) => None,
    }
}

/// Reads the command line and the environment.
///
/// # Errors
/// A sentence about a flag or variable that cannot be served.
pub fn understand(
    arguments: Vec<OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Understood, String> {
    let Some(begin) = operators(&arguments) else { return Ok(Understood { arguments, notes: Vec::new() }) };
    let mut understood = Understood { arguments: arguments.iter().take(begin).cloned().collect(), notes: Vec::new() };
    let mut rest = arguments.get(begin..).unwrap_or_default().iter();
    while let Some(argument) = rest.next() {
        let next = rest.as_slice().first().and_then(|next| next.to_str());
        let Some((name, value, is_next)) = argument.to_str().and_then(|text| read(text, next)) else {
            understood.arguments.push(argument.clone());
            continue;
        };
        if is_next {
            rest.next();
        }
        understood.take(&format!("--{name}"), meaning_of_flag(name, &value))?;
    }
    let mut variables: Vec<(String, String)> = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, value)| is_known(name) && !value.is_empty())
        .collect();
    variables.sort();
    for (name, value) in variables {
        let meaning = match meaning_of_variable(&name, &value) {
            Becomes(flags) if flags.iter().any(|flag| understood.has(flag)) => AsIs,
            other => other,
        };
        understood.take(&name, meaning)?;
    }
    Ok(understood)
}

impl Understood {
    /// Whether the command line has this flag, with whatever value.
    fn has(&self, flag: &str) -> bool {
        let name = flag.split('=').next().unwrap_or_default();
        self.arguments.iter().filter_map(|given| given.to_str()).any(|given| given.split('=').next() == Some(name))
    }

    fn take(&mut self, name: &str, meaning: Meaning) -> Result<(), String> {
        match meaning {
            Becomes(flags) => self.arguments.extend(flags.into_iter().map(OsString::from)),
            AsIs => {}
            Unused(why) => self.notes.push(format!("{name}, known from baremetal-operator, is not used: {why}")),
            Refused(why) => return Err(format!("{name}, known from baremetal-operator, cannot be served: {why}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, Operator};

    fn understood(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Understood, String> {
        let arguments = ["metamorph"].iter().chain(arguments).map(OsString::from).collect();
        understand(arguments, variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    fn operator(arguments: &[&str], variables: &[(&str, &str)]) -> (Operator, Vec<String>) {
        let Understood { arguments, notes } = understood(arguments, variables).unwrap();
        let Command::Operator(operator) = Cli::try_parse_from(arguments).unwrap().command else { panic!("operator") };
        (operator, notes)
    }

    #[test]
    fn the_deployment_of_baremetal_operator_starts_this_program() {
        let (operator, notes) = operator(
            &[
                "operator",
                "--enable-leader-election",
                "--health-addr=:9440",
                "--metrics-addr=:8443",
                "-webhook-port",
                "9444",
                "--tls-min-version=TLS12",
                "--kube-api-qps=30",
                "--media-host=192.0.2.1",
                "--max-provisioning-retries",
                "7",
                "--namespace=",
            ],
            &[
                ("WATCH_NAMESPACE", "metal"),
                ("POD_NAMESPACE", "baremetal-operator-system"),
                ("PROVISIONING_LIMIT", "30"),
                ("IRONIC_ENDPOINT", "http://172.22.0.2:6385/v1/"),
                ("DEPLOY_KERNEL_URL", "http://172.22.0.2/ironic-python-agent.kernel"),
                ("LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE", "Always"),
                ("DIRECT_DEPLOY_FORCE_PERSISTENT_BOOT_DEVICE", "Never"),
                ("HOME", "/"),
            ],
        );
        assert_eq!(operator.endpoints.health_listen.to_string(), "0.0.0.0:9440");
        assert_eq!(operator.webhook.webhook_listen.to_string(), "0.0.0.0:9444");
        assert_eq!(operator.endpoints.metrics.metrics_listen.unwrap().to_string(), "0.0.0.0:8443");
        assert_eq!(
            (operator.namespace.as_deref(), operator.own_namespace.as_str()),
            (Some("metal"), "baremetal-operator-system")
        );
        assert_eq!((operator.behaviour.provisioning_limit, operator.behaviour.max_provisioning_retries), (30, 7));
        let named: Vec<&str> = notes.iter().map(|note| note.split(',').next().unwrap()).collect();
        let unused =
            ["--kube-api-qps", "DEPLOY_KERNEL_URL", "DIRECT_DEPLOY_FORCE_PERSISTENT_BOOT_DEVICE", "IRONIC_ENDPOINT"];
        assert_eq!(named, unused);
    }

    #[test]
    fn a_flag_counts_before_its_variable() {
        let (operator, _) = operator(
            &["--log", "debug", "operator", "--namespace", "a", "--provisioning-limit", "3"],
            &[("WATCH_NAMESPACE", "b"), ("PROVISIONING_LIMIT", "4")],
        );
        assert_eq!((operator.namespace.as_deref(), operator.behaviour.provisioning_limit), (Some("a"), 3));
    }

    #[test]
    fn what_would_change_what_is_done_to_machines_is_refused_with_a_sentence() {
        for (arguments, variables, says) in [
            (vec!["operator", "--provisioner", "demo"], vec![], "fixture"),
            (vec!["operator", "--namespace=a,b"], vec![], "one or all"),
            (vec!["operator"], vec![("WATCH_NAMESPACE", "a,b")], "one or all"),
            (vec!["operator", "--build-preprov-image"], vec![], "not built"),
            (vec!["operator", "--tls-min-version", "TLS13"], vec![], "TLS 1.2 and 1.3"),
        ] {
            let refused = understood(&arguments, &variables).unwrap_err();
            assert!(refused.contains(says) && refused.contains("baremetal-operator"), "{refused}");
        }
    }

    #[test]
    fn other_commands_and_flags_of_this_program_are_left_alone() {
        let variables = [("WATCH_NAMESPACE", "a"), ("IRONIC_ENDPOINT", "x")];
        for arguments in [vec!["up", "--namespace", "x"], vec!["host", "list"], vec!["--version"], vec![], vec!["crds"]]
        {
            let whole: Vec<OsString> = ["metamorph"].iter().chain(&arguments).map(OsString::from).collect();
            assert_eq!(understood(&arguments, &variables).unwrap(), Understood { arguments: whole, notes: Vec::new() });
        }
        let own = ["operator", "--lease-duration", "0", "--unknown"];
        assert_eq!(understood(&own, &[]).unwrap().arguments.len(), 5);
        // A value that is missing is for this program's own parser to tell.
        assert_eq!(understood(&["operator", "--namespace"], &[]).unwrap().arguments.len(), 3);
    }

    /// Each has its line in the page, and each can be read.
    #[test]
    fn the_page_names_them_all() {
        let page = include_str!("../../../docs/from-baremetal-operator.md");
        for (name, _) in FLAGS {
            assert!(page.contains(&format!("`--{name}`")), "{name}");
        }
        for name in VARIABLES.into_iter().chain(["IRONIC_*", "DEPLOY_*"]) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }
}
