//! `make bench`: the figures that the project promises, measured, beside their limits and the rivals'. Ends with a failure when a
//! limit is broken, something cannot be measured, or a tool is missing.
//!
//! `cargo bench --package e2e -- life image` measures only these parts. How each figure is taken, and where the rivals' come from,
//! is in `docs/benchmarks.md`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a table is what this program is for")]

mod api;
mod classification;
mod cluster;
mod controller;
mod demo;
mod diagnosis;
mod fleet;
mod image;
mod ironic;
mod life;
mod pace;
mod process;
mod push;
mod scan;
mod small_memory;
mod table;
mod thousand;
mod watching;
mod writer;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use table::{Limit, Row, Unit};

/// The program's own allocator: what is measured in this process is as fast as it is there.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The parts, in the order in which they run.
const PARTS: &[&str] = &[
    "life",
    "fleet",
    "ironic",
    "writer",
    "thousand",
    "cluster",
    "controller",
    "classification",
    "push",
    "diagnosis",
    "scan",
    "api",
    "image",
    "small-memory",
    "demo",
];
/// Set by `make bench`: the demo is measured too.
const DEMO: &str = "METAMORPH_BENCH_DEMO";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(done) = apart(&arguments) {
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    // cargo adds options of its own, such as --bench.
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| !a.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.contains(name)) {
        eprintln!("there is no part {unknown}; the parts are {}", PARTS.join(", "));
        return ExitCode::FAILURE;
    }
    match in_runtime(async { Ok(measure(&wanted).await) }) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What this program was started for by itself, if it was: it is apart from all that was measured before.
fn apart(arguments: &[String]) -> Option<anyhow::Result<()>> {
    match arguments {
        [first, rest @ ..] if first == image::WRITE => Some(image::write_one(rest)),
        [first, kind, ..] if first == classification::APART => Some(classification::apart(kind)),
        [first, result, ..] if first == scan::INSIDE => Some(in_runtime(scan::inside(Path::new(result)))),
        _ => None,
    }
}

fn in_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?.block_on(work)
}

async fn measure(wanted: &[&str]) -> ExitCode {
    let mut rows = Vec::new();
    for part in PARTS.iter().copied() {
        let asked_for =
            if wanted.is_empty() { part != "demo" || std::env::var_os(DEMO).is_some() } else { wanted.contains(&part) };
        if !asked_for {
            say(&format!("{part}: not asked for"));
            continue;
        }
        let start = Instant::now();
        let found = run(part).await.unwrap_or_else(|error| {
            say(&format!("{part}: {error:#}"));
            vec![unmeasured(part, &error)]
        });
        // Who breaks a run off after an hour keeps what has been measured.
        say(&format!("{part}: {:.0} s\n{}", start.elapsed().as_secs_f64(), table::render(&found)));
        rows.extend(found);
    }
    println!("\n{}", table::render(&rows));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/table.json");
    if let Err(error) = table::write_json(&rows, &path) {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    let broken: Vec<&str> = rows.iter().filter(|row| !row.holds()).map(|row| row.figure).collect();
    if broken.is_empty() {
        println!("every figure keeps its limit");
        return ExitCode::SUCCESS;
    }
    println!("beyond their limits: {}", broken.join("; "));
    ExitCode::FAILURE
}

async fn run(part: &str) -> anyhow::Result<Vec<Row>> {
    match part {
        "life" => life::measure().await,
        "fleet" => fleet::measure().await,
        "ironic" => ironic::measure().await,
        "writer" => writer::measure().await,
        "thousand" => thousand::measure().await,
        "cluster" => cluster::measure().await,
        "controller" => tokio::task::spawn_blocking(controller::measure).await?,
        "classification" => tokio::task::spawn_blocking(classification::measure).await?,
        "push" => push::measure().await,
        "diagnosis" => diagnosis::measure().await,
        "scan" => tokio::task::spawn_blocking(scan::measure).await?,
        "api" => api::measure().await,
        "image" => tokio::task::spawn_blocking(image::measure).await?,
        "small-memory" => small_memory::measure().await,
        _ => demo::measure().await,
    }
}

/// The row of a part that could not be measured.
fn unmeasured(part: &'static str, error: &anyhow::Error) -> Row {
    let first = error.to_string().lines().next().unwrap_or_default().chars().take(120).collect();
    Row { figure: part, measured: None, unit: Unit::Count, limit: Limit::Shown, rival: None, note: first }
}

/// Progress, for the person who waits.
fn say(text: &str) {
    eprintln!("{text}");
}
