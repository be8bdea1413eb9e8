//! What a failed demo leaves for diagnosis: the final objects, logs and consoles, and a list of them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::metal3::{BareMetalHost, HardwareData};
use api::metamorph::{HostOperation, MachineRecord};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::manifests::NAMESPACE;

/// Name of the file with the objects.
const OBJECTS: &str = "hosts.yaml";
/// Console lines to print.
const CONSOLE_LINES: usize = 12;
/// Most bytes read from a console's end.
const CONSOLE_END: usize = 16 << 10;

/// Writes the current hosts, operations and Events into the folder, without Secrets.
pub async fn write_objects(client: &Client, folder: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    add::<BareMetalHost>(client, &mut text).await?;
    add::<HostOperation>(client, &mut text).await?;
    add::<MachineRecord>(client, &mut text).await?;
    add::<HardwareData>(client, &mut text).await?;
    add::<Event>(client, &mut text).await?;
    add::<CoreEvent>(client, &mut text).await?;
    let path = folder.join(OBJECTS);
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

async fn add<K>(client: &Client, text: &mut String) -> anyhow::Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let found = api.list(&ListParams::default()).await.with_context(|| format!("list {}", K::plural(&())))?;
    for mut object in found {
        object.meta_mut().managed_fields = None;
        let _ = write!(text, "---\n{}", serde_saphyr::to_string(&object).context("write YAML")?);
    }
    Ok(())
}

/// A description of the folder's files for the user; `None` if none of them helps.
pub fn describe(folder: &Path) -> Option<String> {
    let file = |name: &str| folder.join(name);
    let mut files: Vec<(PathBuf, &str)> = vec![
        (file(OBJECTS), "hosts, operations and Events as they were at the end"),
        (file("metamorph.log"), "the server's log, with those of the agents"),
        (file("bmc-sim.log"), "the simulator's log"),
    ];
    let consoles = consoles(folder);
    files.extend(consoles.iter().map(|path| (path.clone(), "a machine's serial console")));
    files.retain(|(path, _)| path.metadata().is_ok_and(|found| found.len() > 0));
    if files.is_empty() {
        return None;
    }
    let mut text = format!("What the demo made is kept in {}:", folder.display());
    for (path, what) in files {
        let name = path.strip_prefix(folder).unwrap_or(&path);
        let _ = write!(text, "\n  {:32} {what}", name.display().to_string());
    }
    for console in consoles {
        let end = end_of(&console);
        if !end.is_empty() {
            let name = console.strip_prefix(folder).unwrap_or(&console);
            let _ = write!(text, "\nThe end of {}:\n  {}", name.display(), end.join("\n  "));
        }
    }
    let _ = write!(text, "\nRemove it when you have seen it: rm -r {}", folder.display());
    Some(text)
}

fn consoles(folder: &Path) -> Vec<PathBuf> {
    let machines = std::fs::read_dir(folder.join("machines"));
    let mut found: Vec<PathBuf> =
        machines.into_iter().flatten().flatten().map(|machine| machine.path().join("console.log")).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found
}

/// The last lines of a console, without control characters.
fn end_of(console: &Path) -> Vec<String> {
    let bytes = std::fs::read(console).unwrap_or_default();
    let end = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(CONSOLE_END)..]).into_owned();
    let plain = |line: &str| line.chars().filter(|c| !c.is_control()).take(160).collect::<String>();
    let lines: Vec<String> = end.lines().map(plain).filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(CONSOLE_LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_helps_is_listed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("metamorph.log"), "").unwrap();
        assert_eq!(describe(folder.path()), None, "an empty log helps nobody");
        let machine = folder.path().join("machines/node-0");
        std::fs::create_dir_all(&machine).unwrap();
        let console: String = (0..50).map(|line| format!("line {line}\x1b[2J\r\n")).collect();
        std::fs::write(machine.join("console.log"), console).unwrap();
        let text = describe(folder.path()).unwrap();
        assert!(text.contains("machines/node-0/console.log") && !text.contains("metamorph.log"), "{text}");
        assert!(text.contains("line 49[2J\n") && !text.contains("line 37") && !text.contains('\x1b'), "{text}");
    }
}
