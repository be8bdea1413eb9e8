//! Copies of the sources with edits in them, and the tests that fail there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// Name of the report that the tests write.
const JUNIT: &str = "target/nextest/check/junit.xml";

/// A change of a source file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// From the project's root.
    pub file: PathBuf,
    /// What stands there, once.
    pub find: String,
    /// What it becomes.
    pub replace: String,
}

impl Edit {
    /// The text of the file with the edit in it.
    ///
    /// # Errors
    /// When the text does not hold `find` exactly once, or nothing changes.
    pub fn applied(&self, text: &str) -> Result<String> {
        let count = text.matches(&self.find).count();
        ensure!(count == 1, "what is to be found stands {count} times in {}", self.file.display());
        ensure!(self.find != self.replace, "{} is not changed", self.file.display());
        Ok(text.replacen(&self.find, &self.replace, 1))
    }

    /// Where `find` stands in the text, without the white space around it: an expression.
    ///
    /// # Errors
    /// When it does not stand there exactly once, or is the same as `replace`.
    pub fn place(&self, text: &str) -> Result<std::ops::Range<usize>> {
        let find = self.find.trim();
        let count = text.matches(find).count();
        ensure!(count == 1, "what is to be found stands {count} times in {}: {find}", self.file.display());
        ensure!(find != self.replace.trim(), "{} is not changed", self.file.display());
        let at = text.find(find).unwrap_or_default();
        Ok(at..at + find.len())
    }

    /// Changes the file below `tree` and returns its former text.
    ///
    /// # Errors
    /// As [`Edit::applied`], and when the file cannot be read or written.
    pub fn seed(&self, tree: &Path) -> Result<String> {
        let file = tree.join(&self.file);
        let text = read(&file)?;
        write(&file, &self.applied(&text)?)?;
        Ok(text)
    }
}

/// The text of a file.
///
/// # Errors
/// When it cannot be read.
pub fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// Writes a file.
///
/// # Errors
/// When it cannot be written.
pub fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// Prints a line of progress.
pub fn say(line: &str) {
    use std::io::Write as _;
    // Who has closed standard output does not want to know.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A copy of the sources in this folder, as they are now.
///
/// # Errors
/// When they cannot be listed or copied.
pub fn copied(root: &Path, tree: &Path) -> Result<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let output = output.context("listing the sources with git")?;
    ensure!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("reading the names of the sources")?;
    let there: BTreeSet<PathBuf> = names.split_terminator('\0').map(|name| tree.join(name)).collect();
    remove_others(tree, &there)?;
    for name in names.split_terminator('\0') {
        let (from, to) = (root.join(name), tree.join(name));
        if !from.is_file() {
            continue;
        }
        let text = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
        // What has not changed keeps its time: it is not compiled again.
        if fs::read(&to).is_ok_and(|there| there == text) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(tree))
            .with_context(|| format!("making the folder of {}", to.display()))?;
        fs::write(&to, text).with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(tree.to_owned())
}

/// Removes the files below a folder that are not among these: sources that have gone since the last copy. What was built stays.
fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry.with_context(|| format!("listing {}", folder.display()))?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if name != "target" {
                remove_others(&path, wanted)?;
            }
        } else if !wanted.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// The built tests of a tree.
pub struct Built<'t> {
    tree: &'t Path,
}

/// What the tests of a tree did.
pub struct Ran {
    /// Number of tests that ran.
    pub count: usize,
    /// Those that failed, each with the id of its binary.
    pub failed: BTreeSet<String>,
}

/// Files in which nextest is told what was built, in the tree's target folder.
const BINARIES: &str = "target/seeded-binaries.json";
const PACKAGES: &str = "target/seeded-packages.json";

fn nextest(tree: &Path) -> Command {
    let program = std::env::var_os("NEXTEST_BIN")
        .map_or_else(|| tree.join("../../.cache/tools/bin/cargo-nextest"), PathBuf::from);
    let mut command = Command::new(program);
    command.arg("nextest").current_dir(tree).env("CARGO_TARGET_DIR", tree.join("target"));
    command.env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

/// Writes what a program prints into a file of the tree.
fn printed(command: &mut Command, tree: &Path, file: &str) -> Result<()> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed");
    write(&tree.join(file), &String::from_utf8(output.stdout).context("reading what was built")?)
}

/// Builds the tests of these packages; `None` if the tree does not compile, of which the errors are printed.
///
/// # Errors
/// When the build cannot be started, or nextest does not find what was built.
pub fn build<'t>(tree: &'t Path, packages: &[String]) -> Result<Option<Built<'t>>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages: Vec<&str> = packages.iter().flat_map(|name| ["--package", name]).collect();
    let mut build = Command::new(&cargo);
    build
        .args(["test", "--no-run", "--quiet", "--no-default-features"])
        .args(&packages)
        .current_dir(tree)
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    let built = build.env("CARGO_TARGET_DIR", tree.join("target")).output().context("starting cargo test --no-run")?;
    if !built.status.success() {
        // The warnings before it are about code that is no longer used.
        let text = String::from_utf8_lossy(&built.stderr);
        say(text.find("error").and_then(|at| text.get(at..)).unwrap_or(&text));
        return Ok(None);
    }
    let mut list = nextest(tree);
    list.args(["list", "--cargo-quiet", "--no-default-features", "--list-type", "binaries-only"]);
    list.args(["--message-format", "json"]).args(&packages);
    printed(&mut list, tree, BINARIES)?;
    printed(Command::new(cargo).args(["metadata", "--format-version", "1"]).current_dir(tree), tree, PACKAGES)?;
    Ok(Some(Built { tree }))
}

impl Built<'_> {
    /// Runs the tests that `filter` (nextest's language) selects, with these variables of the environment.
    ///
    /// # Errors
    /// When the tests cannot be started, or none is selected.
    pub fn run(&self, filter: &str, environment: &[(&str, &str)]) -> Result<Ran> {
        self.ran(filter, environment, "--no-fail-fast")
    }

    /// The same until one fails.
    ///
    /// # Errors
    /// As [`Built::run`].
    pub fn run_until_one_fails(&self, filter: &str, environment: &[(&str, &str)]) -> Result<Ran> {
        self.ran(filter, environment, "--fail-fast")
    }

    fn ran(&self, filter: &str, environment: &[(&str, &str)], patience: &str) -> Result<Ran> {
        let report = self.tree.join(JUNIT);
        let _ = fs::remove_file(&report);
        let mut tests = nextest(self.tree);
        tests.args(["run", patience, "--profile", "check", "--ignore-default-filter", "--filterset", filter]);
        tests.args(["--binaries-metadata", BINARIES, "--cargo-metadata", PACKAGES]);
        tests.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(Stdio::null());
        tests.status().context("starting the tests")?;
        let text = fs::read_to_string(&report)
            .with_context(|| format!("reading {}: the tests did not run", report.display()))?;
        let count = text.matches("<testcase").count();
        if count == 0 {
            bail!("{} holds no test", report.display());
        }
        Ok(Ran { count, failed: failures(&text) })
    }
}

/// The failing tests of a report (JUnit's XML as nextest writes it), each with the id of its binary.
fn failures(text: &str) -> BTreeSet<String> {
    let attribute = |tag: &str, name: &str| -> Option<String> {
        Some(tag.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0.to_owned())
    };
    let cases = text.split("<testcase").skip(1);
    let failed = cases.filter_map(|case| {
        let case = case.split("</testcase>").next().unwrap_or(case);
        let (tag, rest) = case.split_once('>')?;
        let failed = !tag.ends_with('/') && (rest.contains("<failure") || rest.contains("<error"));
        failed.then(|| Some(format!("{} {}", attribute(tag, "classname")?, attribute(tag, "name")?))).flatten()
    });
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_are_gone_leave_the_copy_and_what_was_built_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a/check.rs", "a/check/mod.rs", "target/debug/x"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
        }
        remove_others(folder.path(), &BTreeSet::from([at("a/check/mod.rs")])).unwrap();
        assert_eq!(
            ["a/check.rs", "a/check/mod.rs", "target/debug/x"].map(|name| at(name).exists()),
            [false, true, true]
        );
    }

    #[test]
    fn failures_are_read_with_their_binaries() {
        let text = r#"<testsuite name="a"><testcase name="x::y" classname="a::it"><failure type="t">no</failure></testcase>
<testcase name="z" classname="a"/><testcase name="w" classname="a"><system-out>fine</system-out></testcase></testsuite>"#;
        assert_eq!(failures(text), BTreeSet::from(["a::it x::y".to_owned()]));
    }
}
