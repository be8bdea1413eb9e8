//! The text of an expression, positions in it, and compile errors.

use std::fmt;

/// A position in an expression: a count of code points from its start; `None` where no position applies.
pub(crate) type Place = Option<u32>;

/// Lines longer than this are not printed below an error.
const MAX_SNIPPET: usize = 16384;

/// One complaint of the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Where, in code points from the start of the expression.
    pub place: Option<u32>,
    /// What is wrong, in cel-go's words.
    pub message: String,
}

impl Issue {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

/// All errors of one expression; displayed like cel-go (`common/error.go`), each with the line and a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    source: String,
    issues: Vec<Issue>,
}

impl CompileError {
    pub(crate) fn new(source: &str, mut issues: Vec<Issue>) -> Self {
        issues.sort_by_key(|i| i.place.map_or(-1, i64::from));
        Self { source: source.to_owned(), issues }
    }

    /// The complaints in the order of their places.
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }
}

impl std::error::Error for CompileError {}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, issue) in self.issues.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            show(f, &self.source, issue)?;
        }
        Ok(())
    }
}

fn show(f: &mut fmt::Formatter<'_>, source: &str, issue: &Issue) -> fmt::Result {
    let Some(place) = issue.place else {
        return write!(f, "ERROR: <input>:-1:0: {}", issue.message);
    };
    let (mut line, mut start) = (1, 0);
    for (at, c) in source.chars().enumerate().take(place as usize) {
        if c == '\n' {
            line += 1;
            start = at + 1;
        }
    }
    let column = place as usize - start;
    write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
    let text: String = source.chars().skip(start).take_while(|c| *c != '\n').collect();
    if text.len() > MAX_SNIPPET {
        return Ok(());
    }
    let text = text.replace('\t', " ");
    write!(f, "\n | {text}\n | ")?;
    let mut chars = text.chars();
    for c in chars.by_ref().take(column) {
        f.write_str(if c.len_utf8() > 1 { "\u{ff0e}" } else { "." })?;
    }
    f.write_str(if chars.next().is_some_and(|c| c.len_utf8() > 1) { "\u{ff3e}" } else { "^" })
}

/// Runs a step of a recursion with room on the stack: on a new part of it if little is left.
pub(crate) fn deep<T>(step: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(512 << 10, 4 << 20, step)
}
