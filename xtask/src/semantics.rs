//! What baremetal-operator does with its API, a row a behaviour, and what shows that it is done here: `tests/semantics.toml`.
//!
//! A row names tests, and the edits that switch its behaviour off in a copy of the sources, in the form of [`crate::switched`]: the tests must fail then. What is
//! done otherwise here on purpose, or not at all, says why. The page for users is made of the same rows.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::report::Report;
use crate::seeded::{self, Edit};
use crate::switched::{self, Switch};

/// The table, from the project's root.
const TABLE: &str = "tests/semantics.toml";

/// The parts of the table, with their headings.
const SECTIONS: [(&str, &str); 22] = [
    ("1.1", "BareMetalHost: spec"),
    ("1.2", "BareMetalHost: status"),
    ("1.3", "HardwareData"),
    ("1.4", "HostFirmwareSettings"),
    ("1.5", "FirmwareSchema"),
    ("1.6", "HostFirmwareComponents"),
    ("1.7", "HostUpdatePolicy"),
    ("1.8", "PreprovisioningImage"),
    ("1.9", "DataImage"),
    ("1.10", "BMCEventSubscription"),
    ("1.11", "HostClaim"),
    ("1.12", "HostDeployPolicy"),
    ("1.13", "BareMetalSwitch"),
    ("1.14", "HostNetworkAttachment"),
    ("1.15", "Admission"),
    ("2.1", "Before the state's own work"),
    ("2.2", "States"),
    ("2.3", "Deletion"),
    ("2.4", "Errors and retries"),
    ("2.5", "Annotations and labels"),
    ("2.6", "Conditions"),
    ("2.7", "Fields"),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    behaviour: Vec<Behaviour>,
}

/// A behaviour of baremetal-operator.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Behaviour {
    /// Its name: words in lower case, with hyphens.
    id: String,
    /// The part of the table that it belongs to.
    section: String,
    /// What is done, a line.
    says: String,
    /// Why it is done otherwise here, and how.
    differs: Option<String>,
    /// Why it is not done here; tests may show what happens instead.
    missing: Option<String>,
    /// As [`Switch::batch`].
    batch: Option<u8>,
    /// As [`Switch::tests`].
    #[serde(default)]
    tests: Vec<String>,
    /// As [`Switch::edits`].
    #[serde(default)]
    edit: Vec<Edit>,
}

impl Behaviour {
    /// What the row lacks, or has too much.
    fn fault(&self) -> Option<&'static str> {
        let is_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let texts = [Some(&self.says), self.differs.as_ref(), self.missing.as_ref()];
        if self.id.is_empty() || !self.id.chars().all(is_id) {
            Some("its id is not made of letters in lower case, digits and hyphens")
        } else if !SECTIONS.iter().any(|(section, _)| *section == self.section) {
            Some("there is no such section")
        } else if texts.into_iter().flatten().any(|text| text.trim().is_empty() || text.contains('\n')) {
            Some("a text is empty, or longer than a line")
        } else if self.missing.is_some() && self.tests.is_empty() {
            (self.differs.is_some() || !self.edit.is_empty())
                .then_some("what is missing without a test has no edits, and does not differ")
        } else if self.missing.is_some() && self.differs.is_some() {
            Some("what is missing does not differ")
        } else if self.tests.is_empty() {
            Some("it names no test")
        } else if self.edit.is_empty() && self.differs.is_none() && self.missing.is_none() {
            Some("nothing switches it off")
        } else {
            None
        }
    }
}

impl Table {
    fn read(root: &Path) -> Result<Self> {
        let table: Self =
            toml::from_str(&seeded::read(&root.join(TABLE))?).with_context(|| format!("reading {TABLE}"))?;
        let mut ids = BTreeSet::new();
        for row in &table.behaviour {
            let fault = row.fault();
            ensure!(fault.is_none(), "{TABLE}: {}: {}", row.id, fault.unwrap_or_default());
            ensure!(ids.insert(&row.id), "{TABLE}: {} stands twice", row.id);
        }
        switched::check(root, &table.switches("")).context(TABLE)?;
        Ok(table)
    }

    /// Those with edits whose id holds this.
    fn switches(&self, only: &str) -> Vec<Switch<'_>> {
        let wanted = self.behaviour.iter().filter(|row| row.id.contains(only) && !row.edit.is_empty());
        wanted.map(|row| Switch { name: &row.id, batch: row.batch, tests: &row.tests, edits: &row.edit }).collect()
    }

    /// The page for users.
    fn page(&self) -> String {
        let count = |is: fn(&Behaviour) -> bool| self.behaviour.iter().filter(|row| is(row)).count();
        let (differing, missing) = (count(|row| row.differs.is_some()), count(|row| row.missing.is_some()));
        let same = self.behaviour.len() - differing - missing;
        let mut page = format!(
            "What baremetal-operator does with its API (0.14, `metal3.io/v1alpha1`), and what Metamorph does: {same} behaviours are the same, {differing} are \
             different on purpose, and {missing} are not served. The tests fail when the behaviour is switched off, which `cargo xtask semantics` shows; \
             where something is not served they show what happens instead. What is said of RAID volumes, deploy methods and firmware updates is true of provisioners that \
             have them, as `fixture` does.\n"
        );
        for (section, heading) in SECTIONS {
            page += &format!("\n## {heading}\n\n| behaviour | here | tests |\n|---|---|---|\n");
            for row in self.behaviour.iter().filter(|row| row.section == section) {
                let here = match (&row.differs, &row.missing) {
                    (Some(why), _) => format!("**different**: {why}"),
                    (None, Some(why)) => format!("**not served**: {why}"),
                    (None, None) => "the same".to_owned(),
                };
                let tests: Vec<String> = row.tests.iter().map(|test| format!("`{test}`")).collect();
                let cell = |text: &str| text.replace('|', "\\|");
                page += &format!("| {} | {} | {} |\n", cell(&row.says), cell(&here), tests.join("<br>"));
            }
        }
        page
    }
}

/// Switches behaviours off and runs their tests. With `only`, those whose ids hold it.
///
/// # Errors
/// When the tests cannot be built or run, or one of them fails with nothing switched off.
pub fn run(root: &Path, only: &str) -> Result<Report> {
    switched::run(root, "semantics", &Table::read(root)?.switches(only))
}

/// Prints the page for users.
///
/// # Errors
/// When the table cannot be read.
pub fn page(root: &Path) -> Result<Report> {
    use std::io::Write as _;
    let page = Table::read(root)?.page();
    std::io::stdout().lock().write_all(page.as_bytes()).context("writing the page")?;
    Ok(Report { problems: Vec::new(), summary: String::new() })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::named_tests;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn each_row_is_whole_and_finds_what_switches_it_off() {
        let table = Table::read(&root()).unwrap();
        assert!(table.behaviour.len() >= 200, "{} rows", table.behaviour.len());
        for (section, _) in SECTIONS {
            assert!(table.behaviour.iter().any(|row| row.section == section), "{section} has no row");
        }
    }

    #[test]
    fn each_test_that_a_row_names_is_there() {
        let table = Table::read(&root()).unwrap();
        let tests = table.behaviour.iter().flat_map(|row| row.tests.iter().map(String::as_str));
        assert_eq!(named_tests::absent(&root(), tests), [""; 0]);
    }

    #[test]
    fn a_row_that_is_not_whole_is_told() {
        let row = |text: &str| toml::from_str::<Behaviour>(&format!("section = \"1.1\"\n{text}")).unwrap().fault();
        assert_eq!(row("id = 'a-1'\nsays = 'x'\nmissing = 'y'"), None);
        assert_eq!(row("id = 'a'\nsays = 'x'\ndiffers = 'y'\ntests = ['a b']"), None);
        assert_eq!(row("id = 'a'\nsays = 'x'\nmissing = 'y'\ntests = ['a b']"), None);
        for (text, fault) in [
            ("id = 'A'\nsays = 'x'\nmissing = 'y'", "its id"),
            ("id = 'a'\nsays = ' '\nmissing = 'y'", "a text is empty"),
            ("id = 'a'\nsays = 'x'\nmissing = 'y'\ndiffers = 'z'", "what is missing"),
            ("id = 'a'\nsays = 'x'\nmissing = 'y'\ndiffers = 'z'\ntests = ['a b']", "what is missing"),
            ("id = 'a'\nsays = 'x'", "it names no test"),
            ("id = 'a'\nsays = 'x'\ntests = ['a b']", "nothing switches it off"),
        ] {
            assert!(row(text).is_some_and(|found| found.starts_with(fault)), "{text}");
        }
    }
}
