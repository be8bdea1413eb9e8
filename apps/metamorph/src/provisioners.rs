//! The provisioners of a server: the native one, the one that pretends, and Ironics.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use provisioner::{Capabilities, Provisioner, Registry};
use provisioner_fixture::FixtureProvisioner;
use provisioner_ironic::{HttpTransport, Ironic, IronicProvisioner, read_sites};

use crate::cli::{Backend, Behaviour};

/// The native provisioner, and what it can do.
pub type Native = (Arc<dyn Provisioner>, Capabilities);

/// The provisioners that are asked for, the default first, with the default's capabilities.
pub async fn registry(native: &Native, behaviour: &Behaviour) -> anyhow::Result<(Registry, Capabilities)> {
    let mut made: Vec<(Arc<dyn Provisioner>, Capabilities)> = Vec::new();
    let mut names: Vec<Backend> = Vec::new();
    for name in &behaviour.provisioners {
        if !names.contains(name) {
            names.push(*name);
            made.push(make(*name, native, behaviour.ironics.as_deref()).await?);
        }
    }
    if behaviour.ironics.is_some() && !names.contains(&Backend::Ironic) {
        return Err(anyhow!(
            "--ironics lists Ironics that nobody uses: name the provisioner, too (--provisioner metamorph,ironic)"
        ));
    }
    let mut made = made.into_iter();
    let (default, served) = made.next().unwrap_or_else(|| native.clone());
    Ok((made.fold(Registry::new(default), |registry, (other, _)| registry.with(other)), served))
}

async fn make(
    name: Backend,
    native: &Native,
    list: Option<&Path>,
) -> anyhow::Result<(Arc<dyn Provisioner>, Capabilities)> {
    Ok(match name {
        Backend::Metamorph => native.clone(),
        Backend::Fixture => {
            tracing::warn!(
                "the provisioner \"fixture\" only pretends: its machines exist in the memory of this process"
            );
            let machines = provisioner_fixture::Machines::default();
            (Arc::new(FixtureProvisioner::new(machines)), provisioner_fixture::capabilities())
        }
        Backend::Ironic => (Arc::new(IronicProvisioner::new(ironics(list).await?)), provisioner_ironic::capabilities()),
    })
}

/// The Ironics of the file. None of them is asked yet: one that does not answer keeps no other host waiting.
async fn ironics(list: Option<&Path>) -> anyhow::Result<Vec<Ironic>> {
    let list = list.context("the provisioner \"ironic\" needs to know where Ironic is: list it in a file, and name that by --ironics (docs/ironic.md)")?;
    let attempt = || format!("read the list of Ironics in {}", list.display());
    let text = tokio::fs::read_to_string(list).await.with_context(attempt)?;
    let sites = read_sites(&text).with_context(attempt)?;
    let ironic = |(site, access)| Ironic { site, transport: Arc::new(HttpTransport::new(access)) };
    Ok(sites.into_iter().map(ironic).collect())
}

#[cfg(test)]
mod tests {
    use provisioner_fixture::Machines;

    use super::*;

    fn behaviour(arguments: &[&str]) -> Behaviour {
        use clap::Parser;
        let arguments = ["metamorph", "up", "--agent-image", "/nowhere"].iter().chain(arguments);
        match crate::cli::Cli::parse_from(arguments).command {
            crate::cli::Command::Up(up) => up.behaviour,
            _ => unreachable!(),
        }
    }

    async fn names(arguments: &[&str]) -> anyhow::Result<(String, Vec<String>)> {
        let fixture = Arc::new(FixtureProvisioner::new(Machines::default())) as Arc<dyn Provisioner>;
        let native = (fixture, provisioner_fixture::capabilities());
        let (registry, _) = registry(&native, &behaviour(arguments)).await?;
        Ok((registry.default().name().to_owned(), registry.names()))
    }

    #[tokio::test]
    async fn ironics_are_read_from_the_file_that_lists_them() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("ironics.yaml");
        let list = list.to_str().unwrap();
        std::fs::write(list, "ironics: [{name: one, endpoint: 'http://192.0.2.1:6385'}]").unwrap();
        let (default, all) = names(&["--provisioner", "ironic,fixture,ironic", "--ironics", list]).await.unwrap();
        assert_eq!((default.as_str(), all), ("ironic", vec!["fixture".to_owned(), "ironic".to_owned()]));
        for (arguments, says) in [
            (vec!["--provisioner", "ironic"], "--ironics"),
            (vec!["--ironics", list], "nobody uses"),
            (vec!["--provisioner", "ironic", "--ironics", "/nowhere/at-all"], "/nowhere/at-all"),
        ] {
            let refused = format!("{:#}", names(&arguments).await.unwrap_err());
            assert!(refused.contains(says), "{refused}");
        }
        std::fs::write(list, "ironics: [{name: one}]").unwrap();
        let refused = format!("{:#}", names(&["--provisioner", "ironic", "--ironics", list]).await.unwrap_err());
        assert!(refused.contains("endpoint"), "{refused}");
    }
}
