//! Logs: to standard error, or to a file while a progress view has the terminal.
//!
//! A bare level applies to this program; libraries log less, because their connection and frame messages bury the relevant lines.

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Levels, from the least to the most verbose.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The parts of this program that log, as their targets are called: crates, the agents' own lines (`agent`), and reads of media (`media`).
const OURS: [&str; 17] = [
    "agent",
    "agent_protocol",
    "api",
    "apiserver",
    "bmc",
    "boot_media",
    "disk_image",
    "host_lifecycle",
    "media",
    "metamorph",
    "operator",
    "provisioner",
    "provisioner_external",
    "provisioner_fixture",
    "provisioner_ironic",
    "provisioner_metamorph",
    "redfish",
];

/// Libraries whose logs can be requested by name.
const LIBRARIES: [&str; 12] = [
    "axum",
    "axum_server",
    "h2",
    "hyper",
    "hyper_util",
    "kube",
    "kube_client",
    "kube_runtime",
    "reqwest",
    "rustls",
    "tower",
    "tower_http",
];

/// Where logs go.
pub enum Target {
    /// Standard error; with colours if that is a terminal and `NO_COLOR` (no-color.org) is not set.
    Stderr,
    /// A file, truncated.
    File(PathBuf),
    /// A file, appended to.
    Append(PathBuf),
}

/// Starts logging.
pub fn start(filter: &str, target: Target) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("read the log filter \"{filter}\""))?;
    // A closed standard error must not end the program: the subscriber's own complaint would go there too, and panic.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(true).log_internal_errors(false);
    match target {
        Target::Stderr => {
            let colours =
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            builder.with_ansi(colours).with_writer(std::io::stderr).init();
        }
        Target::File(path) => {
            let file = File::create(&path).with_context(|| format!("make the log file {}", path.display()))?;
            builder.with_ansi(false).with_writer(Mutex::new(file)).init();
        }
        Target::Append(path) => {
            let mut how = File::options();
            how.append(true).create(true).mode(0o600);
            let file = how.open(&path).with_context(|| format!("open the log file {}", path.display()))?;
            builder.with_ansi(false).with_writer(Mutex::new(file)).init();
        }
    }
    Ok(())
}

/// Parses `--log`, a comma-separated list of `level` and `target=level`, and returns the subscriber's directives.
///
/// # Errors
/// A word that is neither, or a target that nothing logs under: it would silence the lines that the user wanted.
pub fn filter(text: &str) -> Result<String, String> {
    let known = |level: &str| LEVELS.contains(&level.to_ascii_lowercase().as_str());
    let mut directives = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            None if known(part) => {
                directives.push(others(part));
                // Its lines hold whole answers, and the errors that they are about are reported by whoever asked.
                directives.push("kube_client::client=off".to_owned());
                directives.extend(OURS.iter().map(|target| format!("{target}={part}")));
            }
            None => return Err(format!("\"{part}\" is no level; levels are {}", LEVELS.join(", "))),
            Some((target, level)) => {
                let target = target.trim().replace('-', "_");
                let name = target.split("::").next().unwrap_or_default();
                if !OURS.contains(&name) && !LIBRARIES.contains(&name) {
                    return Err(format!(
                        "nothing logs as \"{name}\"; parts of this program are {}; libraries are {}",
                        OURS.join(", "),
                        LIBRARIES.join(", ")
                    ));
                }
                if !known(level.trim()) {
                    return Err(format!("\"{level}\" is no level; levels are {}", LEVELS.join(", ")));
                }
                directives.push(format!("{target}={}", level.trim()));
            }
        }
    }
    if directives.is_empty() {
        return Err(format!("it is empty; levels are {}", LEVELS.join(", ")));
    }
    Ok(directives.join(","))
}

/// The level of libraries for this program's level.
fn others(level: &str) -> String {
    let level = level.to_ascii_lowercase();
    if matches!(level.as_str(), "debug" | "trace") { "info".to_owned() } else { level }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(directives: &str, target: &str) -> Option<String> {
        let named = directives.split(',').filter_map(|d| d.split_once('='));
        let of_target = named.filter(|(name, _)| *name == target).map(|(_, level)| level.to_owned()).next_back();
        of_target.or_else(|| directives.split(',').find(|d| !d.contains('=')).map(ToOwned::to_owned))
    }

    #[test]
    fn a_level_alone_is_about_this_program() {
        let debug = filter("debug").unwrap();
        assert_eq!(level(&debug, "operator").as_deref(), Some("debug"));
        assert_eq!(level(&debug, "hyper_util").as_deref(), Some("info"));
        // An error of the API is reported by whoever asked, and not by the client as well.
        assert!(debug.split(',').any(|directive| directive == "kube_client::client=off"), "{debug}");
        let warn = filter("warn").unwrap();
        assert_eq!((level(&warn, "operator").as_deref(), level(&warn, "h2").as_deref()), (Some("warn"), Some("warn")));
        let mixed = filter("info, redfish=debug,hyper=trace").unwrap();
        assert_eq!(level(&mixed, "redfish").as_deref(), Some("debug"));
        assert_eq!(level(&mixed, "hyper").as_deref(), Some("trace"));
        assert_eq!(level(&mixed, "bmc").as_deref(), Some("info"));
        for text in ["debug", "info, redfish=debug,hyper=trace", "provisioner-metamorph=debug"] {
            assert!(EnvFilter::try_new(filter(text).unwrap()).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_would_silence_everything_is_refused() {
        for text in ["inof", "medium=debug", "info,operator=loud", "", ",", "debug,nonsense"] {
            let refused = filter(text);
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }

    #[test]
    fn all_crates_that_log_are_known() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifest = std::fs::read_to_string(root.join("apps/metamorph/Cargo.toml")).unwrap();
        let folders = [
            "crates/base",
            "crates/kubernetes",
            "crates/control",
            "crates/devices",
            "crates/provisioners",
            "crates/logic",
            "crates/model",
        ];
        let mut names = Vec::new();
        for folder in folders {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let manifest = entry.unwrap().path().join("Cargo.toml");
                let text = std::fs::read_to_string(&manifest).unwrap_or_default();
                if text.lines().any(|line| line.starts_with("tracing")) {
                    names.push(manifest.parent().unwrap().file_name().unwrap().to_string_lossy().replace('-', "_"));
                }
            }
        }
        assert!(manifest.contains("tracing.workspace") && names.len() > 4, "{names:?}");
        // The agent is a program of its own.
        let missing: Vec<_> = names.iter().filter(|name| *name != "agent" && !OURS.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?} log, and a level alone does not reach them");
    }
}
