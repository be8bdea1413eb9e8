//! Proof that the tests of a repair can fail: each repair is switched off in a copy of the sources, and the tests that are about it must fail there.
//!
//! `tests/repairs.toml` lists the repairs. Those of one batch are switched off together, in one build: they do not touch each other's tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::report::Report;
use crate::seeded::{self, Edit, say};

/// The table, from the project's root.
const TABLE: &str = "tests/repairs.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    repair: Vec<Repair>,
}

/// A repair.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repair {
    /// What is wrong without it.
    name: String,
    /// With which others it is switched off.
    batch: u8,
    /// Tests that must fail: the binary's id, a space, and the path of the test.
    tests: Vec<String>,
    /// What switches it off.
    edit: Vec<Edit>,
}

impl Table {
    fn read(root: &Path) -> Result<Self> {
        let text = seeded::read(&root.join(TABLE))?;
        let table: Self = toml::from_str(&text).with_context(|| format!("reading {TABLE}"))?;
        let mut batches: BTreeMap<u8, BTreeMap<PathBuf, String>> = BTreeMap::new();
        for repair in &table.repair {
            let wrong = || format!("{TABLE}: \"{}\"", repair.name);
            ensure!(!repair.tests.is_empty() && !repair.edit.is_empty(), "{}: no test, or no edit", wrong());
            for edit in &repair.edit {
                let texts = batches.entry(repair.batch).or_default();
                let text = match texts.get(&edit.file) {
                    Some(text) => text.clone(),
                    None => seeded::read(&root.join(&edit.file))?,
                };
                texts.insert(edit.file.clone(), edit.applied(&text).with_context(wrong)?);
            }
        }
        Ok(table)
    }

    fn batches(&self) -> BTreeSet<u8> {
        self.repair.iter().map(|repair| repair.batch).collect()
    }
}

/// The packages of tests, and what selects these tests in nextest's language.
fn selection<'t>(tests: impl Iterator<Item = &'t str>) -> (Vec<String>, String) {
    let mut packages = BTreeSet::new();
    let mut filter = Vec::new();
    for (binary, test) in tests.filter_map(|test| test.split_once(' ')) {
        packages.insert(binary.split("::").next().unwrap_or(binary).to_owned());
        filter.push(format!("(binary_id(={binary}) & test(={test}))"));
    }
    (packages.into_iter().collect(), filter.join(" | "))
}

/// Switches repairs off, batch after batch, and runs their tests. With `only`, those whose names hold it.
///
/// # Errors
/// When the tests cannot be built or run, or one of them fails with all repairs in place.
pub fn run(root: &Path, only: &str) -> Result<Report> {
    let table = Table::read(root)?;
    let tree = seeded::copied(root)?;
    let wanted: Vec<&Repair> = table.repair.iter().filter(|repair| repair.name.contains(only)).collect();
    let all: BTreeSet<&str> = wanted.iter().flat_map(|repair| repair.tests.iter().map(String::as_str)).collect();
    let (packages, filter) = selection(all.iter().copied());
    let sound = seeded::tests(&tree, &packages, &filter)?.context("the sources do not build with all repairs")?;
    ensure!(sound.failed.is_empty(), "these tests fail with all repairs: {:?}", sound.failed);
    ensure!(sound.count == all.len(), "{} tests are named, {} were found", all.len(), sound.count);
    let mut problems = Vec::new();
    for batch in table.batches() {
        let repairs: Vec<&&Repair> = wanted.iter().filter(|repair| repair.batch == batch).collect();
        let Some(failed) = switched_off(&tree, &repairs)? else {
            problems.push(format!("batch {batch} does not compile"));
            continue;
        };
        for repair in repairs {
            let (seen, unseen): (Vec<&String>, Vec<&String>) =
                repair.tests.iter().partition(|test| failed.contains(*test));
            say(&format!("{:<90} {} of {} tests fail", repair.name, seen.len(), repair.tests.len()));
            problems.extend(unseen.iter().map(|test| format!("\"{}\": {test} passes without it", repair.name)));
        }
    }
    let summary = format!("repairs: {} switched off, {} tests, {} problems", wanted.len(), all.len(), problems.len());
    Ok(Report { problems, summary })
}

/// The tests that fail without these repairs; `None` if the sources do not compile then. The sources are as before afterwards.
fn switched_off(tree: &Path, repairs: &[&&Repair]) -> Result<Option<BTreeSet<String>>> {
    let (packages, filter) = selection(repairs.iter().flat_map(|repair| repair.tests.iter().map(String::as_str)));
    if packages.is_empty() {
        return Ok(Some(BTreeSet::new()));
    }
    let mut good: BTreeMap<&Path, String> = BTreeMap::new();
    let mut seeding = || -> Result<()> {
        for edit in repairs.iter().flat_map(|repair| &repair.edit) {
            let text = edit.seed(tree)?;
            good.entry(&edit.file).or_insert(text);
        }
        Ok(())
    };
    let ran = seeding().and_then(|()| seeded::tests(tree, &packages, &filter));
    for (file, text) in good {
        seeded::write(&tree.join(file), &text)?;
    }
    Ok(ran?.map(|ran| ran.failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_selected_by_binary_and_path() {
        let (packages, filter) = selection(["a::it x::y", "a z", "b z"].into_iter());
        assert_eq!(packages, ["a", "b"]);
        assert_eq!(
            filter,
            "(binary_id(=a::it) & test(=x::y)) | (binary_id(=a) & test(=z)) | (binary_id(=b) & test(=z))"
        );
    }

    #[test]
    fn each_repair_of_the_table_has_its_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let table = Table::read(&root).unwrap();
        let names: BTreeSet<&str> = table.repair.iter().map(|repair| repair.name.as_str()).collect();
        assert_eq!(names.len(), table.repair.len(), "a name stands twice");
    }
}
