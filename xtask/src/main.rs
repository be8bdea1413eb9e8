//! The project's own checks and its generated documents: `cargo xtask help` lists them.

mod choices;
mod confine;
mod defects;
mod dependencies;
mod exceptions;
mod floors;
mod generate;
mod lexer;
mod libtest;
mod module_floors;
mod modules;
mod mutants;
#[cfg(test)]
mod named_tests;
mod packages;
mod repairs;
mod report;
mod seeded;
mod semantics;
mod slowest;
mod source;
mod supply;
mod switched;
mod tidy;
#[cfg(test)]
mod wing;
mod words;
mod workspace;

use std::ffi::OsString;
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
    /// Runs a command where only the Debian packages of deploy/packages.txt and the named toolchains are to be had.
    Confine {
        /// This is in a mount namespace of its own: it has started itself there.
        #[arg(long, hide = true)]
        inside: bool,
        /// The program and its arguments.
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<OsString>,
    },
    /// Seeds the defects of tests/defects.toml, one after the other, and says by which tests each is seen.
    Defects {
        /// Those alone whose names hold this.
        #[arg(default_value = "")]
        only: String,
    },
    /// Switches the repairs of tests/repairs.toml off: the tests of each must fail then.
    Repairs {
        /// Those alone whose names hold this.
        #[arg(default_value = "")]
        only: String,
    },
    /// Switches the behaviours of tests/semantics.toml off: the tests of each must fail then.
    Semantics {
        /// Those alone whose ids hold this.
        #[arg(default_value = "")]
        only: String,
        /// Print the page for users that is made of the table instead.
        #[arg(long)]
        page: bool,
    },
    /// Chooses the mutants of the pure crates one by one: of each some test must fail.
    Mutants {
        /// What cargo-mutants lists them with, such as --file '**/firmware.rs' or --shard 0/8.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Says what holds the circles of modules in a crate together, and on which floors its modules could stand.
    Circles {
        /// The crate.
        name: String,
    },
    /// Prints the slowest tests of the reports that nextest has written (target/nextest/*/junit.xml).
    Slowest {
        /// How many.
        #[arg(long, default_value_t = 10)]
        count: usize,
    },
}

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let done = root.canonicalize().map_err(anyhow::Error::from).and_then(|root| match Arguments::parse().task {
        Task::Tidy => tidy::run(&root),
        Task::Generate { check } => generate::run(&root, check),
        Task::Confine { inside: false, command } => confine::enter(&command),
        Task::Confine { inside: true, command } => confine::run(&root, &command),
        Task::Defects { only } => defects::run(&root, &only),
        Task::Repairs { only } => repairs::run(&root, &only),
        Task::Semantics { page: true, .. } => semantics::page(&root),
        Task::Semantics { only, .. } => semantics::run(&root, &only),
        Task::Mutants { arguments } => mutants::run(&root, &arguments),
        Task::Circles { name } => tidy::circles(&root, &name),
        Task::Slowest { count } => slowest::run(&root, count),
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
