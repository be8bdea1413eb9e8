//! Arguments of `agent-image build`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `agent-image build`.
#[derive(Debug, Args)]
pub struct AgentImageBuild {
    /// Which agent: this program's own, or `OpenStack`'s ironic-python-agent 13 from PyPI.
    #[arg(long, value_enum, default_value_t = AgentFlavor::Metamorph)]
    pub flavor: AgentFlavor,
    /// The agent program, statically linked, for x86_64 or aarch64: the image is for machines of that architecture.
    #[arg(long, value_name = "FILE", required_if_eq("flavor", "metamorph"))]
    pub agent: Option<PathBuf>,
    /// What belongs into a ramdisk with ironic-python-agent.
    #[command(flatten)]
    pub ramdisk: RamdiskParts,
    /// Folder to build.
    #[arg(long, default_value = "agent-image", value_name = "FOLDER")]
    pub out: PathBuf,
    /// Folder for downloaded packages.
    #[arg(long, default_value = ".cache/debs", value_name = "FOLDER")]
    pub cache: PathBuf,
}

/// Which agent an image is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AgentFlavor {
    /// This program's own.
    Metamorph,
    /// ironic-python-agent.
    Ipa,
}

/// What belongs into a ramdisk with ironic-python-agent.
#[derive(Debug, Args)]
pub struct RamdiskParts {
    /// Folder that is laid over the ramdisk's root: hardware managers, drivers, firmware, certificate authorities
    /// (`usr/local/share/ca-certificates/*.crt`), configuration (`etc/ironic-python-agent.d/*.conf`). May be given several times. With --flavor ipa.
    #[arg(long, value_name = "FOLDER")]
    pub files: Vec<PathBuf>,
    /// Program that is run, as the user who builds, with the ramdisk's root folder as its argument, and may change what is in it. May be given several
    /// times. With --flavor ipa.
    #[arg(long, value_name = "PROGRAM")]
    pub hook: Vec<PathBuf>,
    /// Another of Debian's packages for the ramdisk; its scripts are not run. May be given several times. With --flavor ipa.
    #[arg(long, value_name = "NAME", value_parser = package)]
    pub package: Vec<String>,
    /// Another of Python's packages for the ramdisk, as pip is asked for it, such as a hardware manager; only wheels are taken. May be given several
    /// times. With --flavor ipa.
    #[arg(long, value_name = "REQUIREMENT", value_parser = package)]
    pub python_package: Vec<String>,
}

/// The name of a package, with a version if need be; never an option of the program that it is given to.
fn package(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._=<>!~,[]:".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && text.len() <= 200 && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("this is no name of a package".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_no_option_and_no_path() {
        for good in ["mdadm", "linux-firmware=1:2", "proliantutils>=2.16", "x[y]"] {
            assert!(package(good).is_ok(), "{good}");
        }
        for bad in ["", "-o", "--index-url", "a b", "/etc/passwd", "a;b"] {
            assert!(package(bad).is_err(), "{bad}");
        }
    }
}
