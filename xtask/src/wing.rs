//! The wing of the embedded Kubernetes API leaves the house: with the ground that it stands on, it is a workspace of its own.
//!
//! What it needs of the house could be a dependency, which cargo looks for here where the house is not, or a file that its code or a
//! build script reads, for which its sources are searched. Compiling it would prove no more, and takes minutes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What leaves: the wing, and the ground.
const FOLDERS: [&str; 2] = ["crates/kubernetes", "crates/base"];

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found
}

/// Copies the wing into a folder, with a manifest that has the house's versions and lints, and no other member.
fn leave(root: &Path, to: &Path) -> Vec<PathBuf> {
    let mut copied = Vec::new();
    for folder in FOLDERS {
        for file in files(&root.join(folder)) {
            let inside = file.strip_prefix(root).unwrap().to_owned();
            let target = to.join(&inside);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(&file, &target).unwrap();
            copied.push(inside);
        }
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let stays = |line: &str| match line.trim().strip_prefix('"') {
        Some(member) => !FOLDERS.iter().any(|folder| Path::new(member).starts_with(folder)),
        None => false,
    };
    let manifest: Vec<&str> = manifest.lines().filter(|line| !stays(line)).collect();
    fs::write(to.join("Cargo.toml"), manifest.join("\n")).unwrap();
    fs::copy(root.join("Cargo.lock"), to.join("Cargo.lock")).unwrap();
    copied
}

/// What cargo knows of a workspace; what went wrong otherwise.
fn metadata(folder: &Path) -> Result<Value, String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let done = cargo.current_dir(folder).output().unwrap();
    if done.status.success() {
        Ok(serde_json::from_slice(&done.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

/// A path that is written in the code, taken from its file, without `..`.
fn resolved(file: &Path, path: &str) -> Option<PathBuf> {
    let mut at = file.parent()?.to_owned();
    for step in path.split('/') {
        match step {
            ".." => {
                at.pop().then_some(())?;
            }
            step => at.push(step),
        }
    }
    Some(at)
}

/// The files that a source names to be compiled in (`include_str!` and its like, `#[path]`), which no crate of the wing holds.
fn strays(file: &Path, text: &str, crates: &[PathBuf]) -> Vec<String> {
    let folder = crates.iter().find(|folder| file.starts_with(folder));
    let mut found = Vec::new();
    for mark in ["include!(", "include_str!(", "include_bytes!(", "#[path = "] {
        for (at, _) in text.match_indices(mark) {
            let rest = &text[at + mark.len()..];
            let path = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
            let inside = path
                .and_then(|(path, _)| resolved(file, path))
                .zip(folder)
                .is_some_and(|(to, folder)| to.starts_with(folder));
            if !inside {
                found.push(format!("{}: {}", file.display(), rest.lines().next().unwrap_or_default()));
            }
        }
    }
    found
}

#[test]
fn the_wing_is_a_workspace_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copied = leave(root, folder.path());
    let known = metadata(folder.path()).unwrap();
    let place = folder.path().canonicalize().unwrap();
    let ours = known["packages"].as_array().unwrap().iter().filter(|p| p["source"].is_null());
    let manifests = ours.map(|p| PathBuf::from(p["manifest_path"].as_str().unwrap()));
    let crates: Vec<PathBuf> = manifests
        .map(|m| m.canonicalize().unwrap().parent().unwrap().strip_prefix(&place).unwrap().to_owned())
        .collect();
    assert!(crates.iter().any(|folder| folder.ends_with("apiserver")) && crates.len() > 10, "{crates:?}");
    let sources = copied.iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs"));
    let strays: Vec<String> =
        sources.flat_map(|file| strays(file, &fs::read_to_string(root.join(file)).unwrap(), &crates)).collect();
    assert_eq!(strays, [""; 0], "the wing compiles files in that are not its own");
    let scripts: Vec<&PathBuf> = copied.iter().filter(|file| file.ends_with("build.rs")).collect();
    assert!(scripts.is_empty(), "a build script may read what it likes: {scripts:?}");
}

#[test]
fn a_wing_that_needs_the_house_is_seen() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    leave(root, folder.path());
    let manifest = folder.path().join("crates/kubernetes/apiserver/Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("[dependencies]\n", "[dependencies]\nterms.workspace = true\n")).unwrap();
    assert!(metadata(folder.path()).unwrap_err().contains("terms"));
    let crates = [PathBuf::from("crates/kubernetes/cel")];
    let judged = |text: &str| strays(Path::new("crates/kubernetes/cel/src/a.rs"), text, &crates).len();
    assert_eq!(judged("include_str!(\"../data/a.json\")"), 0);
    assert_eq!(judged("include_str!(\"../../../model/a.json\")"), 1);
    assert_eq!(judged("include_bytes!(concat!(\"a\", \"b\"))"), 1);
    assert_eq!(judged("#[path = \"../../gotext/src/lib.rs\"]\nmod a;"), 1);
}
