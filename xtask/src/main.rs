//! The project's own checks and its generated documents: `cargo xtask tidy` and `cargo xtask generate`.

mod exceptions;
mod floors;
mod generate;
mod lexer;
mod source;
mod tidy;
mod words;
mod workspace;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Checks and generators of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks what the compiler does not: floors, budgets, documentation, forbidden words.
    Tidy,
    /// Writes the documents that are derived from the code (see xtask/generators.toml).
    Generate {
        /// Compare instead of write; fails if a document is stale.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let done = root.canonicalize().map_err(anyhow::Error::from).and_then(|root| match Arguments::parse().task {
        Task::Tidy => tidy::run(&root),
        Task::Generate { check } => generate::run(&root, check),
    });
    let mut err = std::io::stderr().lock();
    // A closed standard error leaves nobody to tell; the exit code still says it.
    match done {
        Ok(report) => {
            for line in &report.problems {
                let _ = writeln!(err, "{line}");
            }
            let _ = writeln!(err, "{}", report.summary);
            if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(err, "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What a task found.
struct Report {
    /// One line each; none means success.
    problems: Vec<String>,
    /// The closing line.
    summary: String,
}
