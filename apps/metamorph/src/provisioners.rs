//! The provisioners of a server: the native one, the one that pretends, Ironics, and those that are other programs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use operator::{Foreseen, ForeseenAll, RecordReader};
use provisioner::{Capabilities, HostFacts, Provisioner, Registry};
use provisioner_external::{ExternalProvisioner, Patience, Reached, Site, Supervised};
use provisioner_fixture::FixtureProvisioner;
use provisioner_ironic::{HttpTransport, Ironic, IronicProvisioner, read_sites};

use crate::cli::{Backend, Behaviour};

/// How long is waited for programs that were killed.
const KILLED: Duration = Duration::from_secs(5);

/// The native provisioner, and what it can do.
pub type Native = (Arc<dyn Provisioner>, Capabilities);

/// The provisioners of a server.
pub struct Made {
    /// All of them.
    pub registry: Registry,
    /// What the default can do.
    pub served: Capabilities,
    /// What admission knows of them.
    pub foreseen: ForeseenAll,
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
    pub async fn kill(mut self) {
        self.started.iter_mut().for_each(Supervised::begin_to_kill);
        self.ended(KILLED).await;
    }

    /// Has them end what is open on machines, and ends those that this server has started.
    pub async fn close(mut self) {
        // One that hangs keeps no other waiting, and not the server that is to lead next.
        futures::future::join_all(self.all.iter().map(|one| one.close())).await;
        self.started.iter_mut().for_each(Supervised::ask_to_end);
        self.ended(Patience::default().grace + KILLED).await;
    }

    /// Waits until all programs have ended, and no longer than that.
    async fn ended(&mut self, most: Duration) {
        if !dropped_within(std::mem::take(&mut self.started), most).await {
            tracing::warn!("a provisioner's program may still run: it was killed, and has not ended yet");
        }
    }
}

impl Drop for Externals {
    /// All have one grace, and not each its own after the one before it.
    fn drop(&mut self) {
        self.started.iter_mut().for_each(Supervised::ask_to_end);
    }
}

/// Drops something whose end may take long, and waits for that; false if it took longer than this. What the kernel does not let go of holds up neither the
/// others nor the end of this process, which is why no runtime waits for this thread.
async fn dropped_within(what: impl Send + 'static, most: Duration) -> bool {
    let (ended, wait) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        drop(what);
        drop(ended);
    });
    tokio::time::timeout(most, wait).await.is_ok()
}

/// That of Ironics, if it is asked for.
pub async fn ironic(behaviour: &Behaviour) -> anyhow::Result<Option<Arc<IronicProvisioner>>> {
    if !behaviour.provisioners.contains(&Backend::Ironic) {
        return Ok(None);
    }
    Ok(Some(Arc::new(IronicProvisioner::new(ironics(behaviour.ironics.as_deref()).await?))))
}

/// Read the records of this program's provisioners, whether the server uses them or not.
pub const READERS: &[RecordReader] = &[
    provisioner_metamorph::recorded_on_machine,
    provisioner_ironic::recorded_on_machine,
    provisioner_fixture::recorded_on_machine,
];

/// The provisioners that are asked for, the default first, with the default's capabilities.
pub async fn registry(
    native: &Native,
    ironic: Option<Arc<IronicProvisioner>>,
    behaviour: &Behaviour,
) -> anyhow::Result<Made> {
    let mut made: Vec<(Arc<dyn Provisioner>, Capabilities)> = Vec::new();
    let mut names: Vec<Backend> = Vec::new();
    for name in &behaviour.provisioners {
        if !names.contains(name) {
            names.push(*name);
            made.push(make(*name, native, ironic.as_ref())?);
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
    Ok(Made { foreseen: foreseen(&registry), registry, served, external })
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
        let attempt = format!("start the provisioner {}", site.name);
        let (one, started) = ExternalProvisioner::begin(site).context(attempt)?;
        external.all.push(Arc::new(one));
        external.started.extend(started);
    }
    Ok(external)
}

/// What the provisioner of this name, if it is of this program, has against the address of a BMC.
fn address_fault(name: &str) -> fn(&str) -> Option<String> {
    match name {
        provisioner_metamorph::NAME => provisioner_metamorph::address_fault,
        provisioner_ironic::NAME => provisioner_ironic::address_fault,
        _ => |_| None,
    }
}

/// What is known of provisioners that are there.
fn foreseen(registry: &Registry) -> ForeseenAll {
    let default = registry.default();
    let others = registry.iter().filter(|other| other.name() != default.name());
    let known = |one: &Arc<dyn Provisioner>| Foreseen::made(Arc::clone(one), address_fault(one.name()));
    ForeseenAll { all: std::iter::once(default).chain(others).map(known).collect(), is_open: false }
}

/// What is known before they are there; without a behaviour, they are another process's.
pub fn foreseen_by(behaviour: Option<&Behaviour>) -> ForeseenAll {
    let all = [Backend::Metamorph, Backend::Fixture, Backend::Ironic];
    let names = behaviour.map_or_else(|| all.to_vec(), |behaviour| behaviour.provisioners.clone());
    let known = |name: Backend| {
        let named = |name: &'static str, capabilities: fn(&HostFacts) -> Option<Capabilities>| {
            Foreseen::named(name, capabilities, address_fault(name))
        };
        match name {
            Backend::Metamorph => named(provisioner_metamorph::NAME, |_| Some(provisioner_metamorph::capabilities())),
            Backend::Fixture => named(provisioner_fixture::NAME, |_| Some(provisioner_fixture::capabilities())),
            // Whether the Ironic of the namespace pretends is not known yet.
            Backend::Ironic => named(provisioner_ironic::NAME, |_| None),
        }
    };
    let is_open = behaviour.is_none_or(|behaviour| behaviour.external.is_some());
    ForeseenAll { all: names.into_iter().map(known).collect(), is_open }
}

fn make(
    name: Backend,
    native: &Native,
    ironic: Option<&Arc<IronicProvisioner>>,
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
        Backend::Ironic => {
            let ironic = ironic.context("make the provisioner \"ironic\": its Ironics have not been read")?;
            (Arc::clone(ironic) as Arc<dyn Provisioner>, provisioner_ironic::capabilities())
        }
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
    use std::collections::BTreeMap;
    use std::sync::mpsc;

    use provisioner_external::{Program, supervise};
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
        let behaviour = behaviour(arguments);
        let Made { registry, .. } = registry(&native, ironic(&behaviour).await?, &behaviour).await?;
        Ok((registry.default().name().to_owned(), registry.names()))
    }

    /// Each ends only when the other was asked to end as well.
    #[test]
    fn programs_are_all_asked_to_end_before_any_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"trap ': > "$MINE"; while ! [ -e "$OTHER" ]; do sleep 0.01; done; : > "$MINE.over"; exit 0' TERM; : > "$MINE.begun"; while :; do sleep 0.05; done"#;
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let started = [("one", "two"), ("two", "one")].map(|(mine, other)| {
            let environment = BTreeMap::from([("MINE".to_owned(), path(mine)), ("OTHER".to_owned(), path(other))]);
            let arguments = vec!["-c".to_owned(), script.to_owned()];
            let program = Program { path: "/bin/sh".into(), arguments, environment, user: None, group: None };
            let patience = Patience { grace: Duration::from_secs(60), ..Patience::default() };
            supervise(mine, &program, patience).unwrap()
        });
        let external = Externals { all: Vec::new(), started: started.into() };
        let are_there = |names: [&str; 2]| names.iter().all(|name| folder.path().join(name).exists());
        while !are_there(["one.begun", "two.begun"]) {
            std::thread::yield_now();
        }
        drop(external);
        assert!(are_there(["one.over", "two.over"]), "one was killed, which waited for the other");
    }

    /// As a program does of which the kernel does not let go.
    #[tokio::test(start_paused = true)]
    async fn a_program_that_does_not_end_holds_up_the_end_of_the_server_no_longer_than_it_may() {
        struct Stuck(mpsc::Receiver<()>);
        impl Drop for Stuck {
            fn drop(&mut self) {
                assert!(self.0.recv().is_err(), "nobody sends");
            }
        }
        let (lets_go, held) = mpsc::channel();
        let began = tokio::time::Instant::now();
        assert!(!dropped_within(Stuck(held), Duration::from_secs(15)).await);
        assert_eq!(began.elapsed().as_secs(), 15);
        drop(lets_go);
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

    /// The fixture, the default, an Ironic for all and one that pretends in the namespace `fakes`.
    fn two() -> ForeseenAll {
        struct Unasked;
        #[async_trait::async_trait]
        impl provisioner_ironic::Transport for Unasked {
            async fn send(
                &self,
                _: &provisioner_ironic::Request,
            ) -> Result<provisioner_ironic::Response, provisioner_ironic::TransportError> {
                panic!("admission asks nobody");
            }
            fn endpoint(&self) -> String {
                "http://192.0.2.1".into()
            }
        }
        let ironic = |site| Ironic { site, transport: Arc::new(Unasked) };
        let fakes = provisioner_ironic::Site {
            fakes: true,
            namespaces: vec!["fakes".into()],
            ..provisioner_ironic::Site::new("fakes")
        };
        let ironic = IronicProvisioner::new(vec![ironic(provisioner_ironic::Site::new("all")), ironic(fakes)]);
        let registry = Registry::new(Arc::new(FixtureProvisioner::new(Machines::default())) as Arc<dyn Provisioner>);
        foreseen(&registry.with(Arc::new(ironic)))
    }

    /// The same behind the native one, and one of which nothing is known.
    fn four() -> ForeseenAll {
        let mut all = foreseen_by(Some(&behaviour(&[])));
        all.all.extend(two().all);
        all.all.push(Foreseen::named("acme", |_| None, |_| None));
        all
    }

    /// What admission warns of, of a host with this address and these fields.
    fn warnings(
        known: ForeseenAll,
        (annotated, of_namespace): (Option<&str>, Option<&str>),
        (namespace, address): (&str, &str),
        fields: &str,
    ) -> Vec<String> {
        let mut host = serde_json::json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {"online": true, "bootMACAddress": "02:00:00:00:00:01", "bmc": {"address": address, "credentialsName": "s"}}});
        let fields: serde_json::Value = serde_json::from_str(fields).unwrap();
        for (field, value) in fields.as_object().unwrap() {
            match field.as_str() {
                "status" => host["status"] = serde_json::json!({"provisioning": {"ID": value, "state": "available"}}),
                field => host["spec"][field] = value.clone(),
            }
        }
        if let Some(name) = annotated {
            host["metadata"]["annotations"] = serde_json::json!({api::metal3::annotation::PROVISIONER: name});
        }
        let question =
            serde_json::json!({"request": {"uid": "u", "operation": "CREATE", "namespace": namespace, "object": host}});
        let answer = operator::HostAdmission::new(known).answer(&question, of_namespace);
        assert_eq!(answer["response"]["allowed"], true, "a choice is never a reason to refuse: {answer}");
        let found = answer["response"]["warnings"].as_array().cloned().unwrap_or_default();
        found.into_iter().map(|warning| warning.as_str().unwrap().to_owned()).collect()
    }

    const REDFISH: &str = "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1";
    const FIXTURES: &str = "fixture-7a1b3c4d-0000-4000-8000-0123456789ab";

    #[test]
    fn what_the_chosen_provisioner_cannot_do_is_told_before_anybody_waits() {
        let raid = r#"{"raid": {"hardwareRAIDVolumes": [{"level": "1"}]}}"#;
        let soft = r#"{"raid": {"softwareRAIDVolumes": [{"level": "1"}]}}"#;
        let live = r#"{"image": {"url": "http://192.0.2.8/i.iso", "format": "live-iso"}}"#;
        let custom = r#"{"customDeploy": {"method": "x"}}"#;
        let image = |format: &str, url: &str| {
            let sum = "0".repeat(64);
            format!(r#"{{"image": {{"url": "{url}", "format": "{format}", "checksum": "{sum}"}}}}"#)
        };
        let (vmdk, ftp) = (image("vmdk", "http://192.0.2.8/i"), image("raw", "ftp://192.0.2.8/i"));
        let (legacy, arm) = (r#"{"bootMode": "legacy"}"#, r#"{"architecture": "riscv64"}"#);
        let ipmi = "ipmi://192.0.2.7";
        // Chosen by the host, by its namespace or by the server; address; what is asked for; a word of the only warning.
        for (host, namespace, address, asked, says) in [
            (None, None, REDFISH, "{}", None),
            (None, None, REDFISH, raid, Some("hardwareRAIDVolumes")),
            (None, None, REDFISH, soft, Some("softwareRAIDVolumes")),
            (None, None, REDFISH, live, None),
            (None, None, REDFISH, custom, Some("customDeploy")),
            (None, None, REDFISH, legacy, Some("bootMode is legacy")),
            (None, None, REDFISH, vmdk.as_str(), Some("format is vmdk")),
            (None, None, REDFISH, ftp.as_str(), Some("scheme ftp")),
            (None, None, REDFISH, arm, Some("architecture is riscv64")),
            (None, None, ipmi, "{}", Some("IPMI cannot insert virtual media")),
            (Some("ironic"), None, ipmi, "{}", None),
            (Some("ironic"), None, ipmi, soft, None),
            (Some("ironic"), None, REDFISH, raid, None),
            (Some("ironic"), None, REDFISH, vmdk.as_str(), None),
            (Some("ironic"), None, REDFISH, legacy, None),
            (None, Some("ironic"), REDFISH, custom, None),
            (None, Some("ironic"), ipmi, "{}", None),
            (Some("metamorph"), Some("ironic"), REDFISH, custom, Some("customDeploy")),
            (Some("fixture"), None, REDFISH, legacy, None),
            (None, Some("fixture"), REDFISH, raid, None),
            // Of one that has said nothing yet nothing is said.
            (Some("acme"), None, REDFISH, raid, None),
            (
                Some("nobody"),
                None,
                REDFISH,
                raid,
                Some("there is no such provisioner; this server has metamorph, fixture, ironic, acme"),
            ),
            (None, Some("nobody"), REDFISH, raid, Some("the namespace's annotation")),
        ] {
            let found = warnings(four(), (host, namespace), ("n", address), asked);
            let case = format!("{host:?} {namespace:?} {address} {asked}: {found:?}");
            assert_eq!(found.len(), usize::from(says.is_some()), "{case}");
            assert!(found.iter().all(|warning| warning.contains(says.unwrap_or_default())), "{case}");
        }
        // Which Ironic it is makes a difference, too.
        let found = warnings(four(), (Some("ironic"), None), ("fakes", REDFISH), soft);
        assert!(found.len() == 1 && found[0].contains("softwareRAIDVolumes"), "{found:?}");
    }

    #[test]
    fn a_registered_host_is_judged_by_the_provisioner_that_it_has() {
        let of = |id: &str| format!(r#"{{"status": "{id}", "bootMode": "legacy"}}"#);
        let uuid = "7a1b3c4d-0000-4000-8000-0123456789ab";
        let place = ("n", REDFISH);
        // Its namespace's annotation, right or wrong, is for hosts to come.
        for of_namespace in [None, Some("ironic"), Some("nobody")] {
            assert_eq!(warnings(two(), (None, of_namespace), place, &of(FIXTURES)), [""; 0]);
        }
        let found = warnings(two(), (Some("ironic"), None), place, &of(FIXTURES));
        assert!(found.len() == 1 && found[0].contains("the host is registered with \"fixture\""), "{found:?}");
        let found = warnings(two(), (Some("nobody"), None), place, &of(FIXTURES));
        assert!(found.len() == 1 && found[0].contains("there is no such provisioner"), "{found:?}");
        // An id that two may have made is that of the one which is named; where neither is, nothing is said.
        assert_eq!(warnings(four(), (Some("ironic"), None), place, &of(uuid)), [""; 0]);
        let found = warnings(four(), (Some("metamorph"), None), place, &of(uuid));
        assert!(found.len() == 1 && found[0].contains("bootMode is legacy"), "{found:?}");
        let found = warnings(two(), (None, None), place, &of(uuid));
        assert_eq!(found, [""; 0], "it is the Ironic's, which boots by BIOS");
    }
}
