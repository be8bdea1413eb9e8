//! Native against a real Ironic, side by side: the same simulator, machines, image and agent program, in the same run. Each machine is enrolled,
//! inspected, provisioned and emptied, with metadata cleaning; once by `metamorph up` itself, once by `metamorph up --provisioner ironic` over
//! Ironic 39 with the settings of metal3's ironic-image (`tests/e2e/src/ironic.rs`).
//!
//! The rival's figures are those of Ironic's processes alone, without the operator over them and without a Kubernetes API; ours are those of the
//! whole server, which has both. A fake machine boots in no time: what is measured is outside of boot.

mod calls;
mod life;
mod operators;
mod sampler;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use e2e::{agent_image, agent_image_ipa};

use calls::{Call, Recording};
use life::{Life, Spent};

use crate::table::{Limit, Rival, Row, Unit};

/// Restricts the numbers of machines: `METAMORPH_BENCH_MACHINES=1,5`.
const MACHINES: &str = "METAMORPH_BENCH_MACHINES";
/// baremetal-operator's program, if it is to be run, too.
const OPERATOR: &str = "METAMORPH_BMO";
/// Has what that program does be the recording from now on, and nothing else measured.
const RECORD: &str = "METAMORPH_BENCH_RECORD";
/// How long provisioned hosts are left alone: two rounds of Ironic's power synchronization, which comes each minute.
const IDLE: Duration = Duration::from_secs(120);
/// With how many machines.
const IDLE_AT: usize = 5;
/// The most machines that Ironic is given; with more, natively alone.
const MOST_OVER_IRONIC: usize = 20;
/// The rival.
const IRONIC: &str = "Ironic 39.0";

/// Figures of one machine alone.
const MEDIA: &str = "1 life: bytes of boot media";
const CALLS: &str = "1 life over Ironic: calls to its API";

/// What is measured of a life; a row each.
const KINDS: usize = 7;

macro_rules! named {
    ($lives:literal) => {
        [
            concat!($lives, ": BMC requests a host"),
            concat!($lives, ": bytes over Redfish a host"),
            concat!($lives, ": starts of a machine"),
            concat!($lives, ": wall"),
            concat!($lives, ": processor time a host"),
            concat!($lives, ": peak memory"),
            concat!($lives, ": disk for machines' files"),
        ]
    };
}

const LIVES: [(usize, [&str; KINDS]); 4] = [
    (1, named!("1 life")),
    (5, named!("5 lives at once")),
    (20, named!("20 lives at once")),
    (50, named!("50 lives at once")),
];

/// Units, and at most so many times Ironic's figure.
const LIMITS: [(Unit, f64); KINDS] = [
    (Unit::Count, 0.5),
    (Unit::Bytes, 0.5),
    (Unit::Count, 1.0),
    (Unit::Seconds, 0.5),
    (Unit::Milliseconds, 0.1),
    (Unit::Bytes, 0.5),
    (Unit::Bytes, 0.1),
];

/// Measures.
///
/// # Errors
/// When Ironic does not start, or a host does not come to the end of its life.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    if std::env::var_os(RECORD).is_some() {
        let manager = std::env::var_os(OPERATOR).with_context(|| format!("{OPERATOR} is not set"))?;
        record(&by_upstream(PathBuf::from(manager)).await?)?;
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for (hosts, figures) in LIVES {
        if !is_wanted(hosts)? {
            continue;
        }
        // What fails takes no figure with it that was had before: a run takes long.
        let found = side_by_side(hosts, figures, &mut rows).await;
        keep(&mut rows, figures[0], found);
    }
    Ok(rows)
}

/// Keeps a failure as a row, which breaks the run's limits.
fn keep(rows: &mut Vec<Row>, figure: &'static str, found: anyhow::Result<()>) {
    if let Err(error) = found {
        crate::say(&format!("{figure}: {error:#}"));
        rows.push(crate::unmeasured(figure, &error));
    }
}

async fn side_by_side(hosts: usize, figures: [&'static str; KINDS], rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let idle = (hosts == IDLE_AT).then_some(IDLE);
    let ours = operators::native(hosts, idle).await.with_context(|| format!("{hosts} machines natively"))?;
    say(&format!("{hosts} natively"), &ours);
    if hosts > MOST_OVER_IRONIC {
        rows.extend(of_lives(figures, &ours, None));
        return Ok(());
    }
    let over = operators::over_ironic(hosts, idle, agent_image()?).await;
    let (theirs, calls) = over.with_context(|| format!("{hosts} machines over Ironic"))?;
    say(&format!("{hosts} over Ironic, {} calls", calls.len()), &theirs);
    rows.extend(of_lives(figures, &ours, Some(&theirs)));
    if let (Some(ours), Some(theirs)) = (&ours.idle, &theirs.idle) {
        rows.extend(of_rest(ours, theirs));
    }
    if hosts == 1 {
        let found = media(&ours, &theirs).await.map(|row| rows.push(row));
        keep(rows, MEDIA, found);
        let found = asked(&calls).await.map(|row| rows.push(row));
        keep(rows, CALLS, found);
    }
    Ok(())
}

fn is_wanted(hosts: usize) -> anyhow::Result<bool> {
    let Some(wanted) = std::env::var_os(MACHINES) else { return Ok(true) };
    let wanted = wanted.to_string_lossy().into_owned();
    let numbers: Result<Vec<usize>, _> = wanted.split(',').map(|number| number.trim().parse()).collect();
    Ok(numbers.with_context(|| format!("{MACHINES} is a list of numbers: {wanted:?}"))?.contains(&hosts))
}

fn say(who: &str, life: &Life) {
    crate::say(&format!("{who}: {life:?}"));
}

/// The figures in the order of [`LIVES`].
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn figures_of(life: &Life) -> [f64; KINDS] {
    let (processor, memory) = if life.by_ironic {
        (life.spent.ironic, life.peaks.memory as f64)
    } else {
        (life.spent.operator, life.operator_memory)
    };
    [
        life.each(life.spent.requests),
        life.each(life.spent.bytes),
        life.each(life.boots),
        life.spent.wall,
        life.each(processor) * 1e3,
        memory,
        life.files(),
    ]
}

fn of_lives(figures: [&'static str; KINDS], ours: &Life, theirs: Option<&Life>) -> Vec<Row> {
    let own = figures_of(ours);
    let rival = theirs.map(figures_of);
    let notes = notes(ours, theirs);
    let rows = figures.into_iter().zip(own).zip(LIMITS).zip(notes).enumerate();
    let row = |(at, (((figure, measured), (unit, times)), note))| Row {
        figure,
        measured: Some(measured),
        unit,
        limit: if rival.is_some() { Limit::AtMostOfRival(times) } else { Limit::Shown },
        rival: rival.and_then(|rival: [f64; KINDS]| Rival::here(IRONIC, rival[at])),
        note,
    };
    rows.map(row).collect()
}

fn notes(ours: &Life, theirs: Option<&Life>) -> [String; KINDS] {
    let Some(theirs) = theirs else { return [""; KINDS].map(str::to_owned) };
    let connections = [ours, theirs].map(|life| life.each(life.spent.connections));
    let errors = if theirs.errors.is_empty() {
        String::new()
    } else {
        format!("; over Ironic hosts had errors on their way: {}", theirs.errors.join("; "))
    };
    [
        format!("enrolled, inspected, provisioned, emptied{errors}"),
        format!("connections a host: {:.1} against {:.1}", connections[0], connections[1]),
        "of agent and of system; with fast track, Ironic's agent stays on between works".to_owned(),
        "all of them, from the first declaration until the last is available again; fake machines boot in no time"
            .to_owned(),
        format!(
            "the whole server with its Kubernetes API against Ironic's processes alone; the operator over that Ironic: {:.0} ms",
            theirs.each(theirs.spent.operator) * 1e3
        ),
        format!("the same; the operator over that Ironic: {:.0} MB", theirs.operator_memory / 1e6),
        "at most at any time, for all of them; without databases and logs".to_owned(),
    ]
}

#[allow(clippy::cast_precision_loss, reason = "few hosts")]
fn of_rest(ours: &Spent, theirs: &Spent) -> Vec<Row> {
    let an_hour = |spent: &Spent, sum: f64| sum / IDLE_AT as f64 / spent.wall * 3600.0;
    let window = format!("{IDLE_AT} provisioned hosts, left alone for {:.0} s, extrapolated", IDLE.as_secs_f64());
    let row = |figure, unit, times, measured, rival, note: String| Row {
        figure,
        measured: Some(measured),
        unit,
        limit: Limit::AtMostOfRival(times),
        rival: Rival::here(IRONIC, rival),
        note,
    };
    vec![
        row(
            "At rest: BMC requests a host and hour",
            Unit::Count,
            0.8,
            an_hour(ours, ours.requests),
            an_hour(theirs, theirs.requests),
            window.clone(),
        ),
        row(
            "At rest: bytes over Redfish a host and hour",
            Unit::Bytes,
            0.8,
            an_hour(ours, ours.bytes),
            an_hour(theirs, theirs.bytes),
            window.clone(),
        ),
        row(
            "At rest: processor time a host and hour",
            Unit::Seconds,
            0.5,
            an_hour(ours, ours.operator),
            an_hour(theirs, theirs.ironic),
            format!("{window}; the operator over that Ironic: {:.1} s", an_hour(theirs, theirs.operator)),
        ),
    ]
}

/// Lengths of the media that a machine boots from in its life; Ironic's with its own agent's kernel and ramdisk.
async fn media(ours: &Life, theirs: &Life) -> anyhow::Result<Row> {
    let (with_its_own, _) = operators::over_ironic(1, None, agent_image_ipa()?)
        .await
        .context("a machine over Ironic with its own ramdisk")?;
    say("1 over Ironic, media of its own agent", &with_its_own);
    Ok(Row {
        figure: MEDIA,
        measured: Some(ours.media),
        unit: Unit::Bytes,
        limit: Limit::AtMostOfRival(0.5),
        rival: Rival::here("Ironic 39.0, ironic-python-agent", with_its_own.media),
        note: format!(
            "boots from a medium by its length: {:.0} against {:.0}; with our agent under Ironic {:.1} MB; with its own \
             agent's media Ironic had {:.0} MB of files at most",
            ours.media_boots,
            with_its_own.media_boots,
            theirs.media / 1e6,
            with_its_own.files() / 1e6
        ),
    })
}

/// Calls to Ironic in one life, ours against baremetal-operator's: run here where its program is named, else as recorded.
#[allow(clippy::cast_precision_loss, reason = "few calls")]
async fn asked(calls: &[Call]) -> anyhow::Result<Row> {
    let (rival, from) = if let Some(manager) = std::env::var_os(OPERATOR).map(PathBuf::from) {
        let theirs = by_upstream(manager).await?;
        (Rival::here("baremetal-operator", theirs.len() as f64), "run here".to_owned())
    } else {
        let recording = Recording::read()?;
        let count = recording.calls.len() as f64;
        (Rival::earlier("baremetal-operator", count), format!("recorded of {}", recording.operator))
    };
    if std::env::var_os("METAMORPH_BENCH_VERBOSE").is_some() {
        crate::say(&format!("our calls to Ironic: {calls:#?}"));
    }
    let orders = calls.iter().filter(|call| call.method != "GET").count();
    Ok(Row {
        figure: CALLS,
        measured: Some(calls.len() as f64),
        unit: Unit::Count,
        limit: Limit::AtMostOfRival(1.0 / 3.0),
        rival,
        note: format!("{orders} of them orders; the rival's {from}"),
    })
}

/// What baremetal-operator asks of Ironic in one life.
async fn by_upstream(manager: PathBuf) -> anyhow::Result<Vec<Call>> {
    let (life, calls) = operators::upstream(manager).await.context("a machine by baremetal-operator")?;
    say(&format!("1 by baremetal-operator, {} calls", calls.len()), &life);
    Ok(calls)
}

fn record(calls: &[Call]) -> anyhow::Result<()> {
    let recording = Recording {
        operator: "baremetal-operator 02aa505 (August 2026)".to_owned(),
        ironic: "39.0.0".to_owned(),
        life: "a fake machine of bmc-sim: enrolled, inspected, provisioned, emptied, with metadata cleaning".to_owned(),
        calls: calls.to_vec(),
    };
    let path = Recording::path();
    let text = serde_json::to_string_pretty(&recording)? + "\n";
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}
