//! Proof that the tests of a repair can fail: each repair is switched off in a copy of the sources, and the tests that are about it must fail there.
//!
//! `tests/repairs.toml` lists the repairs, in the form of [`crate::switched`].

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::report::Report;
use crate::seeded::{self, Edit};
use crate::switched::{self, Switch};

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
    /// As [`Switch::batch`].
    batch: Option<u8>,
    /// As [`Switch::tests`].
    tests: Vec<String>,
    /// As [`Switch::edits`].
    edit: Vec<Edit>,
}

impl Table {
    fn read(root: &Path) -> Result<Self> {
        let table: Self =
            toml::from_str(&seeded::read(&root.join(TABLE))?).with_context(|| format!("reading {TABLE}"))?;
        switched::check(root, &table.switches("")).context(TABLE)?;
        Ok(table)
    }

    /// Those whose names hold this.
    fn switches(&self, only: &str) -> Vec<Switch<'_>> {
        let wanted = self.repair.iter().filter(|repair| repair.name.contains(only));
        wanted.map(|Repair { name, batch, tests, edit }| Switch { name, batch: *batch, tests, edits: edit }).collect()
    }
}

/// Switches repairs off and runs their tests. With `only`, those whose names hold it.
///
/// # Errors
/// When the tests cannot be built or run, or one of them fails with all repairs in place.
pub fn run(root: &Path, only: &str) -> Result<Report> {
    switched::run(root, "repairs", &Table::read(root)?.switches(only))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repair_of_the_table_has_its_place() {
        Table::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    }

    #[test]
    fn each_test_that_a_repair_names_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let table = Table::read(&root).unwrap();
        let tests = table.repair.iter().flat_map(|repair| repair.tests.iter().map(String::as_str));
        assert_eq!(crate::named_tests::absent(&root, tests), [""; 0]);
    }
}
