//! Dependencies that nobody uses: a crate's own, and those that the workspace names for all.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::lexer::{self, Kind, Token};
use crate::report::Problem;
use crate::source::{self, SourceFile};
use crate::workspace::{Crate, Workspace};

/// What a crate's manifest names and its code does not: `dependencies` outside of its tests, `dev-dependencies` anywhere.
///
/// # Errors
/// The manifest cannot be read.
pub fn check(root: &Path, krate: &Crate, files: &[SourceFile]) -> Result<Vec<Problem>> {
    let path = krate.folder.join("Cargo.toml");
    let text = fs::read_to_string(root.join(&path)).with_context(|| format!("reading {}", path.display()))?;
    let manifest: toml::Table = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let code: BTreeSet<&str> = source::code(files).iter().flat_map(|tokens| idents(tokens)).collect();
    let lexed: Vec<_> = files.iter().map(|f| lexer::lex(&f.text)).collect();
    let all: BTreeSet<&str> = lexed.iter().flat_map(|l| idents(&l.tokens)).collect();
    // A crate of tests has no other code.
    let code = if code.is_empty() { &all } else { &code };
    let mut problems = Vec::new();
    for (section, used, hint) in [
        ("dependencies", code, "take it away, or name it in [dev-dependencies] if tests use it"),
        ("dev-dependencies", &all, "take it away"),
    ] {
        for name in manifest.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys) {
            if !is_named(name, used) {
                let line = text.lines().position(|l| l.starts_with(name.as_str())).map_or(1, |at| at + 1);
                let text = format!("[{section}] names {name}, which the code does not use: {hint}");
                problems.push(Problem { rule: "unused-dependency", path: path.clone(), line, amount: 1, text });
            }
        }
    }
    Ok(problems)
}

/// What the workspace names for all and no crate takes.
///
/// # Errors
/// The manifest cannot be read.
pub fn check_workspace(root: &Path, workspace: &Workspace) -> Result<Vec<Problem>> {
    let text = fs::read_to_string(root.join("Cargo.toml")).context("reading Cargo.toml")?;
    let manifest: toml::Table = toml::from_str(&text).context("reading Cargo.toml")?;
    let named = manifest.get("workspace").and_then(|w| w.get("dependencies")).and_then(toml::Value::as_table);
    let used: BTreeSet<&str> = workspace.crates.iter().flat_map(|c| &c.uses).map(|u| u.name.as_str()).collect();
    let unused = named.into_iter().flat_map(toml::Table::keys).filter(|name| !used.contains(name.as_str()));
    let problem = |name: &String| {
        let line = text.lines().position(|l| l.starts_with(&format!("{name} "))).map_or(1, |at| at + 1);
        let text = format!("[workspace.dependencies] names {name}, which no crate uses: take it away");
        Problem { rule: "unused-dependency", path: "Cargo.toml".into(), line, amount: 1, text }
    };
    Ok(unused.map(problem).collect())
}

fn idents<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    tokens.iter().filter(|t| t.kind == Kind::Ident).map(|t| t.text).collect()
}

/// Whether code names a package's library: with `_` for `-`, or with nothing for it (`md-5` is `md5`).
fn is_named(package: &str, idents: &BTreeSet<&str>) -> bool {
    [package.replace('-', "_"), package.replace('-', "")].iter().any(|name| idents.contains(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str, code: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
        let krate = Crate { name: "a".into(), folder: "".into(), uses: Vec::new() };
        let file = |path: &str, text: &str, is_test| SourceFile { path: path.into(), text: text.into(), is_test };
        let files = [file("src/lib.rs", code, false), file("tests/t.rs", "use in_tests::X;", true)];
        check(dir.path(), &krate, &files).unwrap().into_iter().map(|p| p.text).collect()
    }

    #[test]
    fn what_the_code_does_not_name_is_unused() {
        let manifest = "[dependencies]\nmd-5 = \"1\"\nserde-json = \"1\"\nnobody = \"1\"\n";
        let seen = found(manifest, "use md5::Md5; fn f() { serde_json::json!(1) } // nobody::f");
        assert_eq!(seen.len(), 1);
        assert!(seen[0].contains("nobody"), "{seen:?}");
    }

    #[test]
    fn what_tests_alone_name_is_a_dev_dependency() {
        let of = |section: &str| {
            found(&format!("[{section}]\nin-tests = \"1\"\n"), "fn f() {}\n#[cfg(test)]\nmod t { use in_tests::X; }")
        };
        assert_eq!(of("dependencies").len(), 1);
        assert_eq!(of("dev-dependencies"), [""; 0]);
    }

    #[test]
    fn what_the_workspace_names_is_taken_by_a_crate() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Cargo.toml"), "[workspace.dependencies]\na = \"1\"\nb = \"1\"\n").unwrap();
        let uses = vec![crate::workspace::Use { name: "a".into(), ours: false, dev: true }];
        let workspace = Workspace { crates: vec![Crate { name: "x".into(), folder: "x".into(), uses }] };
        let seen = check_workspace(dir.path(), &workspace).unwrap();
        assert_eq!((seen.len(), seen[0].line), (1, 3));
    }
}
