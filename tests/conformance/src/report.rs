//! What is printed: differences in few lines, a table by area, and files by area for those who mend them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::compare::Difference;

/// How a case came out.
#[derive(Debug)]
pub struct Outcome {
    /// Its area.
    pub area: String,
    /// `area/file/case`.
    pub case: String,
    /// Differences that are listed with a reason.
    pub known: usize,
    /// Differences that are not.
    pub differences: Vec<Difference>,
}

/// A case's differences as text: a line each for what is expected and what was found.
pub fn describe(outcome: &Outcome, most: usize) -> String {
    let mut out = format!("✗ {}\n", outcome.case);
    for difference in outcome.differences.iter().take(most) {
        let _ = writeln!(out, "    {}", difference.pointer);
        let _ = writeln!(out, "      reference: {}", short(difference.expected.as_ref()));
        let _ = writeln!(out, "      found:     {}", short(difference.found.as_ref()));
    }
    if outcome.differences.len() > most {
        let _ = writeln!(out, "    … and {} more", outcome.differences.len() - most);
    }
    out
}

fn short(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(nothing)".into() };
    let text = value.to_string();
    if text.chars().count() <= 700 { text } else { text.chars().take(700).chain("…".chars()).collect() }
}

/// Cases by area: agreeing, agreeing but for listed differences, differing.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut areas: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for outcome in outcomes {
        let row = areas.entry(&outcome.area).or_default();
        row[0] += 1;
        let column = if !outcome.differences.is_empty() { 3 } else { 1 + usize::from(outcome.known > 0) };
        row[column] += 1;
    }
    let mut out = format!("{:<24}{:>8}{:>8}{:>8}{:>9}\n", "area", "cases", "agree", "listed", "differ");
    let mut total = [0; 4];
    for (area, row) in areas {
        let _ = writeln!(out, "{area:<24}{:>8}{:>8}{:>8}{:>9}", row[0], row[1], row[2], row[3]);
        total.iter_mut().zip(row).for_each(|(t, n)| *t += n);
    }
    let _ = writeln!(out, "{:<24}{:>8}{:>8}{:>8}{:>9}", "all", total[0], total[1], total[2], total[3]);
    out
}

/// One file per area with every difference.
pub fn write(folder: &Path, outcomes: &[Outcome]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut areas: BTreeMap<&str, String> = BTreeMap::new();
    for outcome in outcomes {
        let text = areas.entry(&outcome.area).or_default();
        if !outcome.differences.is_empty() {
            text.push_str(&describe(outcome, 12));
        }
    }
    for (area, text) in areas {
        std::fs::write(folder.join(format!("differences-{area}.txt")), text)?;
    }
    Ok(())
}
