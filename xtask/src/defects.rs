//! Proof that the tests of provisioners and controller can fail: defects seeded on purpose, one after the other, into a copy of the sources. Each must
//! be seen by some class of tests, and each class must be the only one that sees some defect: without it, that one would get through.
//!
//! `tests/defects.toml` lists the classes (tests by a part of their names) and the defects (a piece of source and what it becomes).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::report::Report;

/// The table, from the project's root.
const TABLE: &str = "tests/defects.toml";
/// Name of the report that the tests write.
const JUNIT: &str = "target/nextest/check/junit.xml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Packages whose tests are run.
    packages: Vec<String>,
    /// Which of them, in nextest's language.
    filter: String,
    #[serde(default)]
    class: Vec<Class>,
    defect: Vec<Defect>,
}

/// Tests that go together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    /// Beginnings of the tests' names: the binary's id, a space, and the path of the test.
    tests: Vec<String>,
}

/// A defect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defect {
    /// What is wrong then.
    name: String,
    file: PathBuf,
    /// What stands there, once.
    find: String,
    replace: String,
}

impl Table {
    fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(TABLE)).with_context(|| format!("reading {TABLE}"))?;
        let table: Self = toml::from_str(&text).with_context(|| format!("reading {TABLE}"))?;
        for defect in &table.defect {
            defect.seeded(root)?;
        }
        Ok(table)
    }

    fn class(&self, test: &str) -> Option<&str> {
        let fits = |class: &&Class| class.tests.iter().any(|beginning| test.starts_with(beginning.as_str()));
        self.class.iter().find(fits).map(|class| class.name.as_str())
    }
}

impl Defect {
    /// The file with the defect in it.
    fn seeded(&self, root: &Path) -> Result<String> {
        let text =
            fs::read_to_string(root.join(&self.file)).with_context(|| format!("reading {}", self.file.display()))?;
        let count = text.matches(&self.find).count();
        ensure!(
            count == 1,
            "{TABLE}: «{}»: what is to be found stands {count} times in {}",
            self.name,
            self.file.display()
        );
        ensure!(self.find != self.replace, "{TABLE}: «{}» changes nothing", self.name);
        Ok(text.replacen(&self.find, &self.replace, 1))
    }
}

/// Seeds the defects whose names hold `only`, and runs the tests on each.
///
/// # Errors
/// When the tests cannot be built or run, or do not pass without a defect.
pub fn run(root: &Path, only: &str) -> Result<Report> {
    let table = Table::read(root)?;
    let tree = copied(root)?;
    let sound = failing(&tree, &table)?.context("the sources do not build without a defect")?;
    ensure!(sound.is_empty(), "these tests fail without a defect: {}", list(&sound));
    let (mut problems, mut lines, mut seen) = (Vec::new(), Vec::new(), BTreeMap::new());
    for defect in table.defect.iter().filter(|defect| defect.name.contains(only)) {
        let file = tree.join(&defect.file);
        let good = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        write(&file, &defect.seeded(&tree)?)?;
        let failed = failing(&tree, &table);
        write(&file, &good)?;
        let Some(failed) = failed? else {
            problems.push(format!("«{}» does not compile", defect.name));
            continue;
        };
        let classes: BTreeSet<&str> = failed.iter().filter_map(|test| table.class(test)).collect();
        if classes.is_empty() {
            problems.push(format!("«{}» is not seen", defect.name));
        }
        let by = classes.iter().copied().collect::<Vec<_>>().join(", ");
        say(&format!("{:<64} {:>3} tests: {by}", defect.name, failed.len()));
        lines.push((defect.name.as_str(), classes.clone()));
        seen.insert(defect.name.as_str(), classes);
    }
    if only.is_empty() {
        for class in &table.class {
            let alone = seen.values().any(|classes| classes.len() == 1 && classes.contains(class.name.as_str()));
            if !alone {
                problems.push(format!("no defect is seen by the class «{}» alone", class.name));
            }
        }
    }
    let summary = format!("defects: {} seeded, {} problems", seen.len(), problems.len());
    Ok(Report { problems, summary })
}

fn say(line: &str) {
    use std::io::Write as _;
    // Who has closed standard output does not want to know.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn list(tests: &BTreeSet<String>) -> String {
    tests.iter().cloned().collect::<Vec<_>>().join(", ")
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// A copy of the sources, as they are now.
fn copied(root: &Path) -> Result<PathBuf> {
    let tree = root.join("target/defects");
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let output = output.context("listing the sources with git")?;
    ensure!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).context("reading the names of the sources")?;
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
        fs::create_dir_all(to.parent().unwrap_or(&tree))
            .with_context(|| format!("making the folder of {}", to.display()))?;
        fs::write(&to, text).with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(tree)
}

/// The tests that fail in this tree; `None` if it does not compile.
fn failing(tree: &Path, table: &Table) -> Result<Option<BTreeSet<String>>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages: Vec<&str> = table.packages.iter().flat_map(|name| ["--package", name]).collect();
    let mut build = Command::new(cargo);
    build.args(["test", "--no-run", "--quiet"]).args(&packages).current_dir(tree).env_remove("RUSTC_WORKSPACE_WRAPPER");
    build.env("CARGO_TARGET_DIR", tree.join("target")).env("RUSTFLAGS", "-Awarnings").stderr(Stdio::null());
    if !build.status().context("starting cargo test --no-run")?.success() {
        return Ok(None);
    }
    let report = tree.join(JUNIT);
    let _ = fs::remove_file(&report);
    let nextest = std::env::var_os("NEXTEST_BIN")
        .map_or_else(|| tree.join("../../.cache/tools/bin/cargo-nextest"), PathBuf::from);
    let mut tests = Command::new(nextest);
    tests.args(["nextest", "run", "--cargo-quiet", "--no-fail-fast", "--profile", "check"]);
    tests.args(&packages).args(["--filterset", &table.filter]);
    tests.current_dir(tree).env("CARGO_TARGET_DIR", tree.join("target")).env("RUSTFLAGS", "-Awarnings");
    tests.env_remove("RUSTC_WORKSPACE_WRAPPER").stdout(Stdio::null()).stderr(Stdio::null());
    tests.status().context("starting the tests")?;
    let text =
        fs::read_to_string(&report).with_context(|| format!("reading {}: the tests did not run", report.display()))?;
    let failed = failures(&text);
    if text.contains("<testcase") { Ok(Some(failed)) } else { bail!("{} holds no test", report.display()) }
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
    fn failures_are_read_with_their_binaries() {
        let text = r#"<testsuite name="a"><testcase name="x::y" classname="a::it"><failure type="t">no</failure></testcase>
<testcase name="z" classname="a"/><testcase name="w" classname="a"><system-out>fine</system-out></testcase></testsuite>"#;
        assert_eq!(failures(text), BTreeSet::from(["a::it x::y".to_owned()]));
    }

    #[test]
    fn each_defect_of_the_table_has_its_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let table = Table::read(&root).unwrap();
        let names: BTreeSet<&str> = table.defect.iter().map(|defect| defect.name.as_str()).collect();
        assert_eq!(names.len(), table.defect.len(), "a name stands twice");
        assert!(table.defect.len() >= 25, "{} defects", table.defect.len());
    }
}
