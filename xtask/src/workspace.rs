//! The workspace as cargo sees it: our crates, where they lie, what they use.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The workspace's crates.
#[derive(Debug)]
pub struct Workspace {
    /// Sorted by name.
    pub crates: Vec<Crate>,
}

/// One crate of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its folder, from the project's root.
    pub folder: PathBuf,
    /// What it uses.
    pub uses: Vec<Use>,
}

/// A dependency of a crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The crate used.
    pub name: String,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Whether only its tests use it.
    pub dev: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
}

impl Workspace {
    /// Asks cargo. Fails if cargo does, with what cargo said.
    pub fn read(root: &Path) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .current_dir(root)
            .output()
            .context("starting cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Self::parse(root, &output.stdout)
    }

    /// Reads the answer of `cargo metadata --no-deps`.
    pub fn parse(root: &Path, json: &[u8]) -> Result<Self> {
        let metadata: Metadata = serde_json::from_slice(json).context("reading the answer of cargo metadata")?;
        let mut crates = Vec::new();
        for package in metadata.packages {
            let folder = package.manifest_path.parent().unwrap_or(Path::new(""));
            let folder = folder.strip_prefix(root).with_context(|| {
                format!("the crate {} lies outside of the project, in {}", package.name, folder.display())
            })?;
            let uses = package.dependencies.into_iter().map(|d| Use {
                name: d.name,
                ours: d.path.is_some(),
                dev: d.kind.as_deref() == Some("dev"),
            });
            crates.push(Crate { name: package.name, folder: folder.to_owned(), uses: uses.collect() });
        }
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { crates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_answer_is_read() {
        let json = br#"{"packages": [{"name": "b", "manifest_path": "/p/crates/model/b/Cargo.toml", "dependencies": [
            {"name": "a", "kind": null, "path": "/p/crates/model/a"},
            {"name": "serde", "kind": "dev", "source": "registry"}]}]}"#;
        let workspace = Workspace::parse(Path::new("/p"), json).unwrap();
        assert_eq!(workspace.crates.len(), 1);
        assert_eq!(workspace.crates[0].folder, Path::new("crates/model/b"));
        assert_eq!(
            workspace.crates[0].uses,
            [Use { name: "a".into(), ours: true, dev: false }, Use { name: "serde".into(), ours: false, dev: true }]
        );
        assert!(Workspace::parse(Path::new("/elsewhere"), json).is_err());
    }

    #[test]
    fn this_workspace_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
        let workspace = Workspace::read(&root).unwrap();
        assert!(workspace.crates.iter().any(|c| c.name == "xtask" && c.folder == Path::new("xtask")));
    }
}
