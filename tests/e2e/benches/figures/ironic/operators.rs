//! Who leads machines through a life: `metamorph up` by itself, the same over an Ironic, and baremetal-operator over one.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::{DiskImage, EmbeddedApi, ImageServer, Ironic, Options, Running, Setup, Sim, World, agent_image, machine};
use serde_json::{Value, json};
use tokio::process::Command;

use super::calls::{Call, Calls};
use super::life::{Life, Site};

/// Longest time for half a life of one machine natively, and what each further one may add.
const NATIVE: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(6)];
/// The same over an Ironic, which takes half a second of a processor for each look at a BMC.
const OVER_IRONIC: [Duration; 2] = [Duration::from_secs(420), Duration::from_secs(100)];

/// The brake on many deprovisionings at once, which would hold the twenty-first for ten minutes; Ironic has none.
const UNBRAKED: [&str; 2] = ["--deprovisioning-limit", "0"];

fn names(hosts: usize) -> Vec<String> {
    (0..hosts).map(|index| format!("node-{index}")).collect()
}

fn patience(of: [Duration; 2], hosts: usize) -> Duration {
    of[0] + of[1] * u32::try_from(hosts).unwrap_or(u32::MAX)
}

fn image(images: &ImageServer) -> anyhow::Result<Value> {
    let image = DiskImage::tiny()?;
    let url = images.put("disk.raw", image.bytes);
    Ok(json!({ "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" }))
}

/// `metamorph up`.
///
/// # Errors
/// When a host does not come to its end, or had an error on its way.
pub async fn native(hosts: usize, idle: Option<Duration>) -> anyhow::Result<Life> {
    let names = names(hosts);
    let machines = names.iter().map(|name| machine(name)).collect();
    let options = Options { machines, tls: false, arguments: Vec::new() };
    let world = World::start(options.with(&UNBRAKED)).await?;
    let site = Site {
        sim: &world.sim,
        client: world.client.clone(),
        image: image(&world.images)?,
        operator: world.server.pid().context("find the server's process")?,
        ironic: None,
        files: world.folder.path().join("data"),
    };
    let life = site.life(&names, patience(NATIVE, hosts), idle).await;
    let life = life.with_context(|| world.server.tail())?;
    ensure!(life.errors.is_empty(), "hosts had errors on their way: {:?}", life.errors);
    Ok(life)
}

/// Starts an Ironic for fake machines, whose media are made of the kernel and ramdisk in this folder.
async fn start(agent: PathBuf) -> anyhow::Result<Ironic> {
    // All agents are processes of this machine: each takes a port of its own. The image is at loopback, too.
    let parameters = "ipa-listen-port=0 metamorph-image-addresses=127.0.0.0/8".to_owned();
    let (loaders, seen_at) = (agent_image()?, Ipv4Addr::LOCALHOST);
    // Its own default, and metal3's.
    Ironic::start(&Setup { agent, loaders, parameters, seen_at, unpacks: true }).await
}

/// `metamorph up --provisioner ironic`, and an Ironic whose media are made of the kernel and ramdisk in this folder; the calls to that Ironic as well.
///
/// # Errors
/// When a host does not come to its end.
pub async fn over_ironic(hosts: usize, idle: Option<Duration>, agent: PathBuf) -> anyhow::Result<(Life, Vec<Call>)> {
    let ironic = start(agent).await?;
    let calls = Calls::start(ironic.endpoint()).await?;
    let list = ironic.list_at(&calls.endpoint)?.display().to_string();
    let names = names(hosts);
    let machines = names.iter().map(|name| machine(name)).collect();
    let options = Options { machines, tls: false, arguments: Vec::new() };
    let world = World::start(options.with(&UNBRAKED).with(&["--provisioner", "ironic", "--ironics", &list])).await?;
    let site = Site {
        sim: &world.sim,
        client: world.client.clone(),
        image: image(&world.images)?,
        operator: world.server.pid().context("find the server's process")?,
        ironic: Some(&ironic),
        files: ironic.folder().to_owned(),
    };
    let life = site.life(&names, patience(OVER_IRONIC, hosts), idle).await;
    Ok((life.with_context(|| world.server.tail())?, calls.seen()))
}

/// baremetal-operator (`manager`, its program) and an Ironic with one machine.
///
/// # Errors
/// When the host does not come to its end.
pub async fn upstream(manager: PathBuf) -> anyhow::Result<(Life, Vec<Call>)> {
    let ironic = start(agent_image()?).await?;
    let calls = Calls::start(ironic.endpoint()).await?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let api = EmbeddedApi::start(folder.path()).await?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, api.server.admin_kubeconfig()).context("write a kubeconfig")?;
    let names = names(1);
    let sim = Sim::start(folder.path(), &[machine(&names[0])], false).await?;
    let images = ImageServer::start().await?;
    let mut command = Command::new(&manager);
    // Its provisioner is a plugin, built beside it.
    command.env("PROVISIONER_PLUGIN_DIR", manager.parent().context("the program's folder")?);
    command.arg("--kubeconfig").arg(&kubeconfig).args(["--namespace=default", "--provisioner=ironic"]);
    command.args(["--webhook-port=0", "--metrics-addr=0", "--health-addr=0"]);
    command.env("IRONIC_ENDPOINT", format!("{}/v1/", calls.endpoint));
    let operator = Running::start(command, &folder.path().join("operator.log"))?;
    let site = Site {
        sim: &sim,
        client: api.client.clone(),
        image: image(&images)?,
        operator: operator.pid().context("find the operator's process")?,
        ironic: Some(&ironic),
        files: ironic.folder().to_owned(),
    };
    let life = site.life(&names, patience(OVER_IRONIC, 1), None).await;
    Ok((life.with_context(|| operator.tail())?, calls.seen()))
}
