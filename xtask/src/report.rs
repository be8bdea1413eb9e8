//! What tasks find, and how they say it.

use std::path::PathBuf;

/// Something that tidy does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the rule.
    pub rule: &'static str,
    /// The file, from the project's root.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// How much there is of it: lines, variants, or 1; what an exception's `allowed` is compared with.
    pub amount: usize,
    /// What is wrong and what to do.
    pub text: String,
}

/// What a task found.
pub struct Report {
    /// One line each; none means success.
    pub problems: Vec<String>,
    /// The closing line.
    pub summary: String,
}
