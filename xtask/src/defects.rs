//! Proof that the tests of provisioners and controller can fail: defects seeded on purpose into a copy of the sources, each by itself. Each must be seen by
//! some class of tests, and each class must be the only one that sees some defect: without it, that one would get through.
//!
//! `tests/defects.toml` lists the classes (tests by a part of their names) and the defects (a piece of source and what it becomes). One build has all of them,
//! chosen at run time, but for those that cannot be chosen so ([`Defect::alone`]). The classes are run one after the other, and no more of them once two
//! have seen a defect: neither is it unseen then, nor one that a single class sees.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::report::Report;
use crate::seeded::{self, Built, Edit, say};
use crate::switched::{OFF, seed_choices};

/// The table, from the project's root.
const TABLE: &str = "tests/defects.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Packages whose tests are run.
    packages: Vec<String>,
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
    /// It is no expression, and no statements: it is compiled by itself.
    #[serde(default)]
    alone: bool,
    #[serde(flatten)]
    edit: Edit,
}

impl Class {
    /// Its tests, in nextest's language.
    fn filter(&self) -> String {
        let of = |beginning: &String| {
            let (binary, path) = beginning.split_once(' ').unwrap_or((beginning, ""));
            format!("(binary_id(={binary}) & test(/^{path}/))")
        };
        self.tests.iter().map(of).collect::<Vec<_>>().join(" | ")
    }
}

impl Table {
    fn read(root: &Path) -> Result<Self> {
        let text = seeded::read(&root.join(TABLE))?;
        let table: Self = toml::from_str(&text).with_context(|| format!("reading {TABLE}"))?;
        for defect in &table.defect {
            let text = seeded::read(&root.join(&defect.edit.file))?;
            defect.edit.place(&text).with_context(|| format!("{TABLE}: \"{}\"", defect.name))?;
        }
        Ok(table)
    }

    /// The classes that see what the built tests are run with: at most two.
    fn seen_by(&self, built: &Built<'_>, environment: &[(&str, &str)]) -> Result<BTreeSet<&str>> {
        let mut seen = BTreeSet::new();
        for class in &self.class {
            if seen.len() < 2 && !built.run_until_one_fails(&class.filter(), environment)?.failed.is_empty() {
                seen.insert(class.name.as_str());
            }
        }
        Ok(seen)
    }

    /// The same of a defect that is compiled by itself; `None` if it does not compile. The sources are as before afterwards.
    fn seen_alone(&self, tree: &Path, edit: &Edit) -> Result<Option<BTreeSet<&str>>> {
        let good = edit.seed(tree)?;
        let seen = seeded::build(tree, &self.packages).and_then(|built| match built {
            Some(built) => self.seen_by(&built, &[]).map(Some),
            None => Ok(None),
        });
        seeded::write(&tree.join(&edit.file), &good)?;
        seen
    }

    /// The same of all that are chosen at run time, by their names.
    fn seen_chosen<'t>(&'t self, tree: &Path, defects: &[&'t Defect]) -> Result<BTreeMap<&'t str, BTreeSet<&'t str>>> {
        let built = seeded::build(tree, &self.packages)?.context("the sources do not build without a defect")?;
        let all: Vec<String> = self.class.iter().map(Class::filter).collect();
        let sound = built.run(&all.join(" | "), &[])?.failed;
        ensure!(sound.is_empty(), "these tests fail without a defect: {}", list(&sound));
        let mut seen = BTreeMap::new();
        for defect in defects {
            let classes = self.seen_by(&built, &[(OFF, &defect.name)])?;
            told(&defect.name, &classes);
            seen.insert(defect.name.as_str(), classes);
        }
        Ok(seen)
    }
}

fn told(name: &str, classes: &BTreeSet<&str>) {
    let by = classes.iter().copied().collect::<Vec<_>>().join(", ");
    let more = if classes.len() > 1 { ", perhaps more" } else { "" };
    say(&format!("{name:<90} {by}{more}"));
}

/// Seeds the defects whose names hold `only`, and runs the tests on each.
///
/// # Errors
/// When the tests cannot be built or run, or do not pass without a defect.
pub fn run(root: &Path, only: &str) -> Result<Report> {
    let table = Table::read(root)?;
    let tree = seeded::copied(root, &root.join("target/defects"))?;
    let wanted = table.defect.iter().filter(|defect| defect.name.contains(only));
    let (alone, chosen): (Vec<&Defect>, Vec<&Defect>) = wanted.partition(|defect| defect.alone);
    let edits: Vec<(&str, &Edit)> = chosen.iter().map(|defect| (defect.name.as_str(), &defect.edit)).collect();
    let good = seed_choices(&tree, &edits)?;
    let seen = table.seen_chosen(&tree, &chosen);
    for (file, text) in good {
        seeded::write(&tree.join(file), &text)?;
    }
    let (mut seen, mut problems) = (seen?, Vec::new());
    for defect in alone {
        let Some(classes) = table.seen_alone(&tree, &defect.edit)? else {
            problems.push(format!("\"{}\" does not compile", defect.name));
            continue;
        };
        told(&defect.name, &classes);
        seen.insert(defect.name.as_str(), classes);
    }
    let unseen = seen.iter().filter(|(_, classes)| classes.is_empty());
    problems.extend(unseen.map(|(name, _)| format!("\"{name}\" is not seen")));
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
