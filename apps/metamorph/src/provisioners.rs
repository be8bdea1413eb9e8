//! The provisioners of a server: the native one, the one that pretends, Ironics, and those that are other programs.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use provisioner::{Capabilities, Provisioner, Registry};
use provisioner_external::{Connect, ExternalProvisioner, Patience, Reached, Site, Supervised, supervise, unix_socket};
use provisioner_fixture::FixtureProvisioner;
use provisioner_ironic::{HttpTransport, Ironic, IronicProvisioner, read_sites};

use crate::cli::{Backend, Behaviour};

/// The native provisioner, and what it can do.
pub type Native = (Arc<dyn Provisioner>, Capabilities);

/// The provisioners of a server.
pub struct Made {
    /// All of them.
    pub registry: Registry,
    /// What the default can do.
    pub served: Capabilities,
    /// Those that are other programs.
    pub external: Externals,
}

/// Provisioners that are other programs.
#[derive(Default)]
pub struct Externals {
    /// Their adapters.
    pub all: Vec<Arc<ExternalProvisioner>>,
    started: Vec<Supervised>,
}

impl Externals {
    /// Another process leads: those that this server has started are killed, before they do anything more.
    pub fn kill(self) {
        self.started.into_iter().for_each(Supervised::kill);
    }

    /// Has them end what is open on machines, and ends those that this server has started.
    pub async fn close(mut self) {
        // One that hangs keeps no other waiting, and not the server that is to lead next.
        futures::future::join_all(self.all.iter().map(|one| one.close())).await;
        self.started.iter_mut().for_each(Supervised::ask_to_end);
        // It is waited until they have ended.
        if tokio::task::spawn_blocking(move || drop(self.started)).await.is_err() {
            tracing::warn!("a provisioner's program may still run");
        }
    }
}

/// The provisioners that are asked for, the default first, with the default's capabilities.
pub async fn registry(native: &Native, behaviour: &Behaviour) -> anyhow::Result<Made> {
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
    let registry = made.fold(Registry::new(default), |registry, (other, _)| registry.with(other));
    let external = match &behaviour.external {
        Some(list) => start(list, &registry.names()).await?,
        None => Externals::default(),
    };
    let registry =
        external.all.iter().fold(registry, |registry, other| registry.with(Arc::clone(other) as Arc<dyn Provisioner>));
    Ok(Made { registry, served, external })
}

/// Reads the list of provisioners that are other programs.
pub async fn read_list(list: &Path) -> anyhow::Result<Vec<Site>> {
    let attempt = || format!("read the list of provisioners in {}", list.display());
    let text = tokio::fs::read_to_string(list).await.with_context(attempt)?;
    let sites = provisioner_external::read_sites(&text).with_context(attempt)?;
    for site in &sites {
        if let Reached::Tls(tls) = &site.reached {
            tls.config().await.map_err(|why| anyhow!("{}: {why}", site.name)).with_context(attempt)?;
        }
        if let Reached::Started(program) = &site.reached {
            let found = tokio::fs::metadata(&program.path).await;
            let found = found.with_context(|| format!("{}: its program {}", site.name, program.path.display()));
            if !found.with_context(attempt)?.is_file() {
                return Err(anyhow!("{}: its program {} is no file", site.name, program.path.display()))
                    .with_context(attempt);
            }
        }
    }
    Ok(sites)
}

/// Those of the list, beside those that the server has itself. None of them is asked yet: one that does not answer keeps no other host waiting.
async fn start(list: &Path, others: &[String]) -> anyhow::Result<Externals> {
    let sites = read_list(list).await?;
    for site in &sites {
        // An id that two may have made is nobody's.
        let overlaps = |own: &str| own.starts_with(&site.id_prefix) || site.id_prefix.starts_with(own);
        let is_known = |name: &String| *name == site.name || overlaps(&format!("{name}-"));
        if let Some(name) = others.iter().find(|name| is_known(name)) {
            return Err(anyhow!(
                "{}: the server has a provisioner \"{name}\" itself: choose another name and idPrefix, or leave it out of --provisioner",
                list.display()
            ));
        }
    }
    let mut external = Externals::default();
    for site in sites {
        tracing::info!(provisioner = %site.name, "the provisioner is another program");
        let connect: Arc<dyn Connect> = match &site.reached {
            Reached::Socket(path, user) => Arc::new(unix_socket(path.clone(), *user)),
            Reached::Tls(tls) => Arc::new(tls.clone()),
            Reached::Started(program) => {
                let started = supervise(&site.name, program, Patience::default());
                let started = started.with_context(|| format!("start the provisioner {}", site.name))?;
                let connect = Arc::new(unix_socket(started.socket.clone(), program.user));
                let hangs = started.hangs();
                external.started.push(started);
                external.all.push(Arc::new(ExternalProvisioner::started(site, connect, hangs)));
                continue;
            }
        };
        external.all.push(Arc::new(ExternalProvisioner::new(site, connect)));
    }
    Ok(external)
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
        let Made { registry, .. } = registry(&native, &behaviour(arguments)).await?;
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

    #[tokio::test]
    async fn programs_are_read_from_the_file_that_lists_them_and_it_is_checked_wholly() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("provisioners.yaml");
        let list = list.to_str().unwrap();
        let write = |entries: &str| std::fs::write(list, format!("provisioners: [{entries}]")).unwrap();
        write("{name: acme, address: 'unix:/nowhere.sock'}, {name: other, address: 'unix:/there.sock'}");
        let (default, all) = names(&["--provisioners", list]).await.unwrap();
        assert_eq!((default.as_str(), all.join(" ").as_str()), ("fixture", "acme fixture other"));
        for (entries, says) in [
            ("{name: fixture, address: 'unix:/x'}", "has a provisioner \"fixture\" itself"),
            ("{name: pretends, idPrefix: fixture-, address: 'unix:/x'}", "itself"),
            ("{name: pretends, idPrefix: fixture-x-, address: 'unix:/x'}", "itself"),
            ("{name: acme, address: 'unix:x'}", "unix:/path"),
            ("{name: acme, command: [/nowhere/at-all]}", "/nowhere/at-all"),
            (
                "{name: acme, address: 'https://h:1', tls: {caFile: /nowhere/ca, certificateFile: /c, keyFile: /k}}",
                "acme: read /c",
            ),
        ] {
            write(entries);
            let refused = format!("{:#}", names(&["--provisioners", list]).await.map(|_| ()).unwrap_err());
            assert!(refused.contains(says), "{refused}");
        }
    }
}
