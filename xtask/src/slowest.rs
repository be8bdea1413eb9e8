//! The slowest tests of the last runs, by nextest's reports.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::report::Report;

/// One test's name and how long it took, in seconds.
type Timed = (String, f64);

/// Prints `count` lines, the slowest first, and what all tests took together.
///
/// # Errors
/// When there is no report, or one cannot be read.
pub fn run(root: &Path, count: usize) -> Result<Report> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join("nextest");
    let mut tests = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.with_context(|| format!("reading {}", folder.display()))?.path().join("junit.xml");
        if path.exists() {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            tests.extend(parse(&text));
        }
    }
    ensure!(!tests.is_empty(), "{} holds no report: run make test first", folder.display());
    let total: f64 = tests.iter().map(|(_, seconds)| seconds).sum();
    let number = tests.len();
    tests.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut lines: Vec<String> =
        tests.iter().take(count).map(|(name, seconds)| format!("{seconds:8.1} s  {name}")).collect();
    lines.push(format!("{total:8.1} s  all {number} tests together"));
    Ok(Report { problems: Vec::new(), summary: lines.join("\n") })
}

/// The test cases of a report (JUnit's XML as nextest writes it: one tag a line).
fn parse(text: &str) -> Vec<Timed> {
    let attribute = |tag: &str, name: &str| -> Option<String> {
        let value = tag.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0;
        Some(value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
    };
    let tags = text.split("<testcase").skip(1).filter_map(|rest| Some(rest.split_once('>')?.0));
    let timed = tags.filter_map(|tag| {
        let name = format!("{} {}", attribute(tag, "classname")?, attribute(tag, "name")?);
        Some((name, attribute(tag, "time")?.parse().ok()?))
    });
    timed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_with_their_times() {
        let text = r#"<?xml version="1.0"?><testsuites name="run" time="3">
<testsuite name="a" time="3"><testcase name="x::y" classname="a::it" timestamp="t" time="2.500"></testcase>
<testcase name="z" classname="a" time="0.125"/></testsuite></testsuites>"#;
        assert_eq!(parse(text), [("a::it x::y".to_owned(), 2.5), ("a z".to_owned(), 0.125)]);
    }
}
