//! Proof that the tests of provisioners and controller can fail: defects seeded on purpose, one after the other, into a copy of the sources. Each must
//! be seen by some class of tests, and each class must be the only one that sees some defect: without it, that one would get through.
//!
//! `tests/defects.toml` lists the classes (tests by a part of their names) and the defects (a piece of source and what it becomes).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::report::Report;
use crate::seeded::{self, Edit, Ran, say};

/// The table, from the project's root.
const TABLE: &str = "tests/defects.toml";

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
struct Defect {
    /// What is wrong then.
    name: String,
    #[serde(flatten)]
    edit: Edit,
}

impl Table {
    fn read(root: &Path) -> Result<Self> {
        let text = seeded::read(&root.join(TABLE))?;
        let table: Self = toml::from_str(&text).with_context(|| format!("reading {TABLE}"))?;
        for defect in &table.defect {
            let text = seeded::read(&root.join(&defect.edit.file))?;
            defect.edit.applied(&text).with_context(|| format!("{TABLE}: \"{}\"", defect.name))?;
        }
        Ok(table)
    }

    fn class(&self, test: &str) -> Option<&str> {
        let matches = |class: &&Class| class.tests.iter().any(|beginning| test.starts_with(beginning.as_str()));
        self.class.iter().find(matches).map(|class| class.name.as_str())
    }

    fn run(&self, tree: &Path) -> Result<Option<BTreeSet<String>>> {
        let Some(built) = seeded::build(tree, &self.packages)? else { return Ok(None) };
        let Ran { failed, .. } = built.run(&self.filter, &[])?;
        Ok(Some(failed))
    }
}

/// Seeds the defects whose names hold `only`, and runs the tests on each.
///
/// # Errors
/// When the tests cannot be built or run, or do not pass without a defect.
pub fn run(root: &Path, only: &str) -> Result<Report> {
    let table = Table::read(root)?;
    let tree = seeded::copied(root, &root.join("target/defects"))?;
    let sound = table.run(&tree)?.context("the sources do not build without a defect")?;
    ensure!(sound.is_empty(), "these tests fail without a defect: {}", list(&sound));
    let (mut problems, mut lines, mut seen) = (Vec::new(), Vec::new(), BTreeMap::new());
    for defect in table.defect.iter().filter(|defect| defect.name.contains(only)) {
        let good = defect.edit.seed(&tree)?;
        let failed = table.run(&tree);
        seeded::write(&tree.join(&defect.edit.file), &good)?;
        let Some(failed) = failed? else {
            problems.push(format!("\"{}\" does not compile", defect.name));
            continue;
        };
        let classes: BTreeSet<&str> = failed.iter().filter_map(|test| table.class(test)).collect();
        if classes.is_empty() {
            problems.push(format!("\"{}\" is not seen", defect.name));
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
                problems.push(format!("no defect is seen by the class \"{}\" alone", class.name));
            }
        }
    }
    let summary = format!("defects: {} seeded, {} problems", seen.len(), problems.len());
    Ok(Report { problems, summary })
}

fn list(tests: &BTreeSet<String>) -> String {
    tests.iter().cloned().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_defect_of_the_table_has_its_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let table = Table::read(&root).unwrap();
        let names: BTreeSet<&str> = table.defect.iter().map(|defect| defect.name.as_str()).collect();
        assert_eq!(names.len(), table.defect.len(), "a name stands twice");
        assert!(table.defect.len() >= 25, "{} defects", table.defect.len());
    }
}
