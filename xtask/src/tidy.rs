//! All rules over the whole tree, less the listed exceptions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::report::{Problem, Report};
use crate::source::{self, SourceFile};
use crate::workspace::{Crate, Workspace};
use crate::{dependencies, exceptions, floors, module_floors, modules, supply, words};

/// Folders that hold nothing of ours: what is built, fetched or recorded, at any depth.
const SKIPPED_FOLDERS: [&str; 5] = ["target", ".git", ".cache", "node_modules", "proptest-regressions"];
/// Endings of the text files in which forbidden words are looked for; files without an ending are read as well.
const TEXT_ENDINGS: [&str; 8] = ["rs", "toml", "md", "yaml", "yml", "sh", "cfg", "txt"];
/// The list of forbidden words holds them all.
const WORD_LIST: &str = "xtask/forbidden.txt";
/// Largest file that is read: what is larger is data.
const MAX_FILE_BYTES: u64 = 2 << 20;

/// The lint settings that the budgets rest on: file, text that must stand there, alone on its line.
const SETTINGS: [(&str, &str); 12] = [
    ("clippy.toml", "too-many-lines-threshold = 80"),
    ("clippy.toml", "too-many-arguments-threshold = 7"),
    ("Cargo.toml", "missing_docs = \"warn\""),
    ("Cargo.toml", "expect_used = \"deny\""),
    ("Cargo.toml", "unwrap_used = \"deny\""),
    ("Cargo.toml", "panic = \"deny\""),
    ("Cargo.toml", "todo = \"deny\""),
    ("Cargo.toml", "unimplemented = \"deny\""),
    ("Cargo.toml", "too_many_arguments = \"deny\""),
    ("Cargo.toml", "too_many_lines = \"deny\""),
    ("Cargo.toml", "dbg_macro = \"deny\""),
    ("Cargo.toml", "unused_must_use = \"deny\""),
];

/// Checks the project at `root`. Fails if a file that the rules need cannot be read.
pub fn run(root: &Path) -> Result<Report> {
    let workspace = Workspace::read(root)?;
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"));
    let floors = floors::Floors::parse(&read("xtask/floors.toml")?).context("reading xtask/floors.toml")?;
    let exceptions = exceptions::parse(&read(exceptions::LIST)?).context("reading xtask/exceptions.toml")?;
    let rooms = module_floors::parse(&read(module_floors::LIST)?).context("reading xtask/module-floors.toml")?;
    let word_list = read(WORD_LIST)?;

    let mut problems = floors::check(&floors, &workspace);
    problems.extend(rooms.strangers(&workspace));
    let mut files = 0;
    for krate in &workspace.crates {
        let sources = crate_sources(root, krate, &workspace)?;
        files += sources.len();
        problems.extend(source::check(&sources));
        problems.extend(modules::check(&krate.folder, &sources));
        problems.extend(rooms.check(krate, &sources));
        problems.extend(dependencies::check(root, krate, &sources)?);
        problems.extend(lints_inherited(root, krate)?);
    }
    problems.extend(dependencies::check_workspace(root, &workspace)?);
    problems.extend(settings(root)?);
    problems.extend(supply::check(root)?);
    for (path, text) in text_files(root)? {
        if path != Path::new(WORD_LIST) {
            problems.extend(words::check(&path, &text, &words::parse(&word_list)));
        }
    }
    let mut problems = exceptions::apply(problems, &exceptions);
    problems.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    let summary = match problems.len() {
        0 => format!("tidy: {} crates, {files} source files, {} exceptions", workspace.crates.len(), exceptions.len()),
        n => format!("tidy: {n} problems"),
    };
    let line = |p: &Problem| format!("{}:{}: [{}] {}", p.path.display(), p.line, p.rule, p.text);
    Ok(Report { problems: problems.iter().map(line).collect(), summary })
}

/// What holds the circles of modules in a crate together. Fails if there is no such crate.
pub fn circles(root: &Path, name: &str) -> Result<Report> {
    let workspace = Workspace::read(root)?;
    let krate =
        workspace.crates.iter().find(|c| c.name == name).with_context(|| format!("there is no crate {name}"))?;
    let sources = crate_sources(root, krate, &workspace)?;
    let mut lines = modules::explain(&krate.folder, &sources);
    lines.push("the lowest floors on which its modules could stand:".to_owned());
    lines.extend(module_floors::lowest(&modules::uses(&krate.folder, &sources)));
    Ok(Report { problems: Vec::new(), summary: lines.join("\n") })
}

/// The files below a folder, from the root, in order.
fn files_below(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let attempt = || format!("reading the folder {}", folder.display());
        for entry in fs::read_dir(root.join(&folder)).with_context(attempt)? {
            let entry = entry.with_context(attempt)?;
            let kind = entry.file_type().with_context(attempt)?;
            let path = folder.join(entry.file_name());
            let skipped = SKIPPED_FOLDERS.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !skipped {
                open.push(path);
            } else if kind.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A crate's Rust files. What lies in a crate inside its folder belongs to that one.
fn crate_sources(root: &Path, krate: &Crate, workspace: &Workspace) -> Result<Vec<SourceFile>> {
    let inner = |path: &Path| {
        workspace
            .crates
            .iter()
            .any(|c| c.folder != krate.folder && c.folder.starts_with(&krate.folder) && path.starts_with(&c.folder))
    };
    let mut sources = Vec::new();
    for path in files_below(root, &krate.folder)? {
        if path.extension().is_none_or(|e| e != "rs") || inner(&path) {
            continue;
        }
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("reading {}", path.display()))?;
        let is_test = path.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "benches");
        sources.push(SourceFile { path, text, is_test });
    }
    Ok(sources)
}

/// Text files of the whole tree.
fn text_files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for path in files_below(root, Path::new(""))? {
        let ending = path.extension().map(|e| e.to_string_lossy().into_owned());
        let wanted = ending.is_none_or(|e| TEXT_ENDINGS.contains(&e.as_str()));
        let full = root.join(&path);
        let size = full.metadata().with_context(|| format!("reading {}", path.display()))?.len();
        if !wanted || size > MAX_FILE_BYTES {
            continue;
        }
        // What is no text has no words.
        if let Ok(text) = String::from_utf8(fs::read(&full).with_context(|| format!("reading {}", path.display()))?) {
            files.push((path, text));
        }
    }
    Ok(files)
}

/// A crate that does not take the workspace's lints escapes clippy's part of the budgets.
fn lints_inherited(root: &Path, krate: &Crate) -> Result<Option<Problem>> {
    let path = krate.folder.join("Cargo.toml");
    let text = fs::read_to_string(root.join(&path)).with_context(|| format!("reading {}", path.display()))?;
    let manifest: toml::Table = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let inherited = manifest.get("lints").and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool);
    if inherited == Some(true) {
        return Ok(None);
    }
    let text = "does not take the workspace's lints: write `[lints]`, `workspace = true`".to_owned();
    Ok(Some(Problem { rule: "lint-settings", path, line: 1, amount: 1, text }))
}

fn settings(root: &Path) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for (file, wanted) in SETTINGS {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
        if !text.lines().any(|line| line.trim() == wanted) {
            let text = format!("lacks the line `{wanted}`");
            problems.push(Problem { rule: "lint-settings", path: file.into(), line: 1, amount: 1, text });
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small sound project; each test spoils one thing.
    fn project() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let lines_of =
            |file| SETTINGS.iter().filter(|(f, _)| *f == file).map(|(_, l)| format!("{l}\n")).collect::<String>();
        write("clippy.toml", &lines_of("clippy.toml"));
        let (rust, clippy): (Vec<_>, Vec<_>) = SETTINGS
            .iter()
            .filter(|(f, _)| *f == "Cargo.toml")
            .map(|(_, l)| *l)
            .partition(|l| l.starts_with("missing_docs") || l.starts_with("unused_must_use"));
        let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/model/a\", \"crates/logic/b\"]\n";
        write(
            "Cargo.toml",
            &format!(
                "{manifest}[workspace.lints.rust]\n{}\n[workspace.lints.clippy]\n{}\n",
                rust.join("\n"),
                clippy.join("\n")
            ),
        );
        let package = |name, rest| {
            format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lints]\nworkspace = true\n{rest}"
            )
        };
        write("crates/model/a/Cargo.toml", &package("a", ""));
        write("crates/model/a/src/lib.rs", "//! Doc.\n");
        write("crates/logic/b/Cargo.toml", &package("b", "[dependencies]\na = { path = \"../../model/a\" }\n"));
        write("crates/logic/b/src/lib.rs", "//! Doc.\npub use a as model;\n");
        write("xtask/floors.toml", include_str!("../floors.toml"));
        write("xtask/exceptions.toml", "");
        write("xtask/module-floors.toml", "");
        write(
            "deny.toml",
            "[graph]\ntargets = [\"x86_64-unknown-linux-gnu\"]\n[licenses]\nallow = []\n[bans]\nmultiple-versions = \"deny\"\nskip = []\n\
             [sources]\nunknown-registry = \"deny\"\nunknown-git = \"deny\"\nallow-registry = []\n",
        );
        write("xtask/forbidden.txt", "NEVER(\n");
        dir
    }

    fn append(dir: &tempfile::TempDir, path: &str, text: &str) {
        let path = dir.path().join(path);
        let old = fs::read_to_string(&path).unwrap_or_default();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, old + text).unwrap();
    }

    fn replace(dir: &tempfile::TempDir, path: &str, from: &str, to: &str) {
        let path = dir.path().join(path);
        let old = fs::read_to_string(&path).unwrap();
        assert!(old.contains(from));
        fs::write(path, old.replace(from, to)).unwrap();
    }

    fn problems(dir: &tempfile::TempDir) -> Vec<String> {
        run(&dir.path().canonicalize().unwrap()).unwrap().problems
    }

    fn only(dir: &tempfile::TempDir, start: &str) {
        let found = problems(dir);
        assert!(found.len() == 1 && found[0].starts_with(start), "wanted {start}, found {found:?}");
    }

    #[test]
    fn a_sound_project_passes() {
        assert_eq!(problems(&project()), [""; 0]);
    }

    #[test]
    fn each_kind_of_rule_is_wired_in() {
        let dir = project();
        append(&dir, "crates/model/a/src/lib.rs", "fn f() { g().unwrap(); }\n");
        only(&dir, "crates/model/a/src/lib.rs:2: [no-panic]");

        let dir = project();
        append(&dir, "docs/page.md", "NEVER( say\n");
        only(&dir, "docs/page.md:1: [forbidden-word]");

        let dir = project();
        replace(&dir, "deny.toml", "skip = []", "skip = [\"gone@1.0.0\"]");
        only(&dir, "deny.toml:7: [dependency]");

        let dir = project();
        append(&dir, "crates/model/a/src/deep/b.rs", "fn f() {}\n");
        only(&dir, "crates/model/a/src/deep/b.rs:1: [module-doc]");

        let dir = project();
        append(&dir, "crates/model/a/src/lib.rs", "mod c;\nmod d;\n");
        append(&dir, "crates/model/a/src/c.rs", "//! Doc.\nuse crate::d::D;\n");
        append(&dir, "crates/model/a/src/d.rs", "//! Doc.\nstruct D;\n");
        append(&dir, "xtask/module-floors.toml", "[[crate]]\nname = \"a\"\nfloors = [[\"d\"], [\"c\"]]\n");
        assert_eq!(problems(&dir), [""; 0]);
        replace(&dir, "xtask/module-floors.toml", "[\"d\"], [\"c\"]", "[\"c\"], [\"d\"]");
        only(&dir, "crates/model/a/src:1: [module-floor]");

        let dir = project();
        append(&dir, "xtask/module-floors.toml", "[[crate]]\nname = \"c\"\nfloors = []\n");
        only(&dir, "xtask/module-floors.toml:1: [module-floor]");

        let dir = project();
        replace(&dir, "crates/logic/b/Cargo.toml", "[dependencies]", "[dev-dependencies]");
        append(&dir, "crates/model/a/Cargo.toml", "[dependencies]\nb = { path = \"../../logic/b\" }\n");
        let found = problems(&dir);
        assert!(
            found.iter().any(|p| p.contains("[floors]")) && found.iter().any(|p| p.contains("[cycle]")),
            "{found:?}"
        );
    }

    #[test]
    fn lint_settings_are_watched() {
        let dir = project();
        replace(&dir, "clippy.toml", "= 80", "= 100");
        only(&dir, "clippy.toml:1: [lint-settings]");

        let dir = project();
        replace(&dir, "crates/model/a/Cargo.toml", "workspace = true", "");
        only(&dir, "crates/model/a/Cargo.toml:1: [lint-settings]");
    }

    #[test]
    fn tests_folders_and_skipped_folders_are_known() {
        let dir = project();
        append(&dir, "crates/model/a/tests/t.rs", "//! Doc.\nfn f() { g().unwrap(); }\n");
        append(&dir, ".cache/x.md", "NEVER( say\n");
        append(&dir, "target/x.rs", "NEVER( say\n");
        assert_eq!(problems(&dir), [""; 0]);
    }

    #[test]
    fn exceptions_excuse_and_must_be_needed() {
        let dir = project();
        let entry = "[[exception]]\nrule = \"no-panic\"\npath = \"crates/model/a/src/lib.rs\"\nallowed = 1\nwhy = \"It is a test.\"\n";
        append(&dir, "xtask/exceptions.toml", entry);
        only(&dir, "xtask/exceptions.toml:1: [exceptions]");
        append(&dir, "crates/model/a/src/lib.rs", "fn f() { g().unwrap(); }\n");
        assert_eq!(problems(&dir), [""; 0]);
    }
}
