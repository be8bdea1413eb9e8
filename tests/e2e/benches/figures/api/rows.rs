//! The rows of the table: each figure beside kube-apiserver's of the same run.

use std::time::Duration;

use super::load::Written;
use super::{COUNT, Found, WATCHERS};
use crate::table::{Limit, Rival, Row, Unit};

/// The rival.
const PAIR: &str = "kube-apiserver + etcd";

struct Figure {
    figure: &'static str,
    unit: Unit,
    limit: Limit,
    note: &'static str,
}

impl Figure {
    fn row(self, ours: f64, theirs: f64) -> Row {
        let Self { figure, unit, limit, note } = self;
        let rival = Rival::here(PAIR, theirs);
        Row { figure, measured: Some(ours), unit, limit, rival, note: note.to_owned() }
    }
}

/// All rows; `sync` is what a sync of this disk takes.
pub fn rows(ours: &Found, theirs: &Found, sync: Duration) -> Vec<Row> {
    let mut all = vec![Row {
        figure: "API: a sync of this disk",
        measured: Some(sync.as_secs_f64() * 1e3),
        unit: Unit::Milliseconds,
        limit: Limit::Shown,
        rival: None,
        note: "both wait for one before they acknowledge a write, and so before its event".to_owned(),
    }];
    all.extend(writes(ours, theirs));
    all.extend(watches(ours, theirs));
    all.extend(lists(ours, theirs));
    all.extend(memory(ours, theirs));
    let start = Figure {
        figure: "API: start with 10,000 hosts",
        unit: Unit::Milliseconds,
        limit: Limit::AtMost(1000.0),
        note: "until a host is read",
    };
    all.push(start.row(ours.start.as_secs_f64() * 1e3, theirs.start.as_secs_f64() * 1e3));
    all
}

fn writes(ours: &Found, theirs: &Found) -> Vec<Row> {
    let rate = |figure, limit, note, pick: fn(&Found) -> Written| {
        let row = Figure { figure, unit: Unit::PerSecond, limit: Limit::AtLeastOfRival(limit), note };
        row.row(pick(ours).rate(), pick(theirs).rate())
    };
    let cpu = Figure {
        figure: "API: processor time of 10,000 writes",
        unit: Unit::Seconds,
        limit: Limit::AtMostOfRival(0.2),
        note: "user and system time of the server's processes, over all creates, status patches and applies",
    };
    vec![
        rate(
            "API: creates",
            3.0,
            "10,000 hosts, 16 clients, bodies of 10 KB; the clients run on the same cores",
            |f| f.creates,
        ),
        rate("API: status patches", 3.0, "10,000 hosts get what inspection found: 8 KB", |f| f.patches),
        rate("API: server-side applies", 3.0, "3,000, forced, on hosts of 10 KB", |f| f.applies),
        cpu.row(processor(ours), processor(theirs)),
    ]
}

/// Processor time of 10,000 writes.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn processor(found: &Found) -> f64 {
    let all = [found.creates, found.patches, found.applies];
    let cpu: Duration = all.iter().map(|w| w.cpu).sum();
    let count: usize = all.iter().map(|w| w.count).sum();
    cpu.as_secs_f64() * COUNT as f64 / count as f64
}

fn watches(ours: &Found, theirs: &Found) -> Vec<Row> {
    const NAMES: [[&str; 3]; WATCHERS.len()] = [
        [
            "API: event to 1 watcher, p50",
            "API: event to 1 watcher, p99",
            "API: processor time of an event to 1 watcher",
        ],
        [
            "API: event to 100 watchers, p50",
            "API: event to 100 watchers, p99",
            "API: processor time of an event to 100 watchers",
        ],
        [
            "API: event to 1,000 watchers, p50",
            "API: event to 1,000 watchers, p99",
            "API: processor time of an event to 1,000 watchers",
        ],
    ];
    let mut all = Vec::new();
    for ((names, ours), theirs) in NAMES.into_iter().zip(&ours.latency).zip(&theirs.latency) {
        // Half is the aim. The more watchers, the more of the time is the client's, who decrypts 12 MB for a thousand.
        let (limit, aim) = if ours.watchers < 1000 { (0.5, "") } else { (0.9, "; aim: half of the rival") };
        for (name, note, ours, theirs) in [
            (names[0], "from the sending of a status patch", ours.p50, theirs.p50),
            (names[1], "all watchers of all events", ours.p99, theirs.p99),
            (names[2], "with the write itself", ours.cpu, theirs.cpu),
        ] {
            let limit = Limit::AtMostOfRival(limit);
            let row = Figure { figure: name, unit: Unit::Milliseconds, limit, note }.row(ours, theirs);
            all.push(Row { note: format!("{note}{aim}"), ..row });
        }
    }
    all
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn lists(ours: &Found, theirs: &Found) -> Vec<Row> {
    let seconds = |figure| Figure { figure, unit: Unit::Seconds, limit: Limit::AtMostOfRival(0.5), note: "" };
    let mut plain = seconds("API: list of 10,000 hosts").row(ours.list.0.as_secs_f64(), theirs.list.0.as_secs_f64());
    plain.note = format!("median of 3; {:.0} and {:.0} MB", ours.list.1 as f64 / 1e6, theirs.list.1 as f64 / 1e6);
    let mut packed =
        seconds("API: list of 10,000 hosts, gzip").row(ours.packed.0.as_secs_f64(), theirs.packed.0.as_secs_f64());
    packed.note = format!("median of 3; {:.0} and {:.0} MB", ours.packed.1 as f64 / 1e6, theirs.packed.1 as f64 / 1e6);
    let selected = Figure {
        figure: "API: list of 100 of 10,000 hosts by a label",
        unit: Unit::Milliseconds,
        limit: Limit::AtMostOfRival(0.5),
        note: "median of 3, gzip",
    };
    let selected = selected.row(ours.selected.0.as_secs_f64() * 1e3, theirs.selected.0.as_secs_f64() * 1e3);
    vec![plain, packed, selected]
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn memory(ours: &Found, theirs: &Found) -> Vec<Row> {
    let figure = |figure, limit, note| Figure { figure, unit: Unit::Bytes, limit: Limit::AtMostOfRival(limit), note };
    let peak = "16 clients write, 4 read whole lists, 100 watch; ours: the kernel's mark of the whole run, theirs: the sum as seen \
                every 50 ms then";
    vec![
        figure("API: memory, idle", 0.2, "definitions, no hosts")
            .row(ours.idle.memory as f64, theirs.idle.memory as f64),
        figure("API: memory with 10,000 hosts", 0.1, "after all that")
            .row(ours.after.memory as f64, theirs.after.memory as f64),
        figure("API: peak memory with 10,000 hosts", 0.1, peak).row(ours.peak as f64, theirs.peak as f64),
    ]
}
