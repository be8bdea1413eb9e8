//! The list of what tidy lets pass (exceptions.toml): it may only shrink.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::report::Problem;

/// Where the list stands, from the project's root.
pub const LIST: &str = "xtask/exceptions.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    exception: Vec<Exception>,
}

/// One entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    rule: String,
    path: PathBuf,
    allowed: usize,
    why: String,
}

/// Reads the list.
pub fn parse(text: &str) -> anyhow::Result<Vec<Exception>> {
    let list: List = toml::from_str(text)?;
    for entry in &list.exception {
        anyhow::ensure!(!entry.why.trim().is_empty(), "the exception for {} gives no reason", entry.path.display());
    }
    Ok(list.exception)
}

/// Takes the excused problems away, and adds one for each entry that excuses nothing or more than there is.
///
/// Problems of one rule in one file count together: their amounts are summed, so a file with three calls that may panic
/// needs `allowed = 3`.
pub fn apply(problems: Vec<Problem>, exceptions: &[Exception]) -> Vec<Problem> {
    let mut amounts: BTreeMap<(&str, PathBuf), usize> = BTreeMap::new();
    for problem in &problems {
        *amounts.entry((problem.rule, problem.path.clone())).or_default() += problem.amount;
    }
    let amount_of = |e: &Exception| {
        amounts.iter().find(|((rule, path), _)| *rule == e.rule && *path == e.path).map_or(0, |(_, amount)| *amount)
    };
    let mut left: Vec<Problem> = problems
        .into_iter()
        .filter(|p| !exceptions.iter().any(|e| e.rule == p.rule && e.path == p.path && amount_of(e) <= e.allowed))
        .collect();
    for entry in exceptions {
        let amount = amount_of(entry);
        let text = match amount {
            0 => format!("excuses nothing: take the entry for [{}] {} away", entry.rule, entry.path.display()),
            _ if amount < entry.allowed => {
                format!(
                    "allows {} for [{}] {}, needed are {amount}: lower it",
                    entry.allowed,
                    entry.rule,
                    entry.path.display()
                )
            }
            _ => continue,
        };
        left.push(Problem { rule: "exceptions", path: LIST.into(), line: 1, amount: 1, text });
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(rule: &'static str, path: &str, amount: usize) -> Problem {
        Problem { rule, path: path.into(), line: 1, amount, text: String::new() }
    }

    fn list(allowed: usize) -> Vec<Exception> {
        parse(&format!(
            "[[exception]]\nrule = \"no-panic\"\npath = \"a.rs\"\nallowed = {allowed}\nwhy = \"Because.\"\n"
        ))
        .unwrap()
    }

    fn rules(problems: &[Problem]) -> Vec<&'static str> {
        problems.iter().map(|p| p.rule).collect()
    }

    #[test]
    fn an_exact_entry_excuses() {
        let two =
            || vec![problem("no-panic", "a.rs", 1), problem("no-panic", "a.rs", 1), problem("no-panic", "b.rs", 1)];
        let left = apply(two(), &list(2));
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].path, PathBuf::from("b.rs"));
        assert_eq!(apply(two(), &[]).len(), 3);
    }

    #[test]
    fn too_small_an_entry_excuses_nothing() {
        let left = apply(vec![problem("no-panic", "a.rs", 1), problem("no-panic", "a.rs", 1)], &list(1));
        assert_eq!(rules(&left), ["no-panic", "no-panic"]);
    }

    #[test]
    fn unused_and_generous_entries_are_problems() {
        assert_eq!(rules(&apply(vec![], &list(1))), ["exceptions"]);
        assert_eq!(rules(&apply(vec![problem("no-panic", "a.rs", 1)], &list(2))), ["exceptions"]);
        assert_eq!(rules(&apply(vec![problem("file-lines", "a.rs", 1)], &list(1))), ["file-lines", "exceptions"]);
    }

    #[test]
    fn entries_give_reasons() {
        assert!(parse("[[exception]]\nrule = \"a\"\npath = \"b\"\nallowed = 1\nwhy = \" \"\n").is_err());
        assert!(parse("").unwrap().is_empty());
    }
}
