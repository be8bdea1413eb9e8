//! Ten thousand hosts by twenty classes, HardwareClassifications and HostClasses: all pairs, then one change. Each in a process of its own, whose memory
//! nobody has used before.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use api::metal3::{BareMetalHost, HardwareClassification, HardwareData};
use api::metamorph::HostClass;
use classification::{Board, Class, Facts, host_class, status, unmatched};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::image::run;
use crate::process::Usage;
use crate::table::{Limit, Row, Unit};

/// Hosts.
const HOSTS: u64 = 10_000;
/// Classes.
const CLASSES: u64 = 20;

/// First argument by which this program starts itself for one kind of classes.
pub const APART: &str = "classify";

/// What one kind of classes took.
#[derive(Debug, Deserialize, Serialize)]
struct Cost {
    seconds: f64,
    bytes: u64,
    note: String,
}

/// Measures.
///
/// # Errors
/// When a pair is judged that no change concerns, or one is not judged.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub fn measure() -> anyhow::Result<Vec<Row>> {
    let kinds = [
        ("classes", "10,000 hosts by 20 classes: all pairs", "10,000 hosts by 20 classes: memory"),
        ("host-classes", "10,000 hosts by 20 HostClasses: all pairs", "10,000 hosts by 20 HostClasses: memory"),
    ];
    let mut rows = Vec::new();
    for (kind, pairs, memory) in kinds {
        let program = std::env::current_exe().context("find this program")?;
        let Cost { seconds, bytes, note } =
            serde_json::from_str(&run(Command::new(program).args([APART, kind]))?).context("read what it took")?;
        ensure!(bytes > 0, "memory has not grown by ten thousand hosts");
        rows.push(Row {
            figure: pairs,
            measured: Some(seconds),
            unit: Unit::Seconds,
            limit: Limit::AtMost(2.0),
            rival: None,
            note,
        });
        rows.push(Row {
            figure: memory,
            measured: Some(bytes as f64),
            unit: Unit::Bytes,
            limit: Limit::AtMost(300e6),
            rival: None,
            note: "growth of resident memory, hosts and their facts included".to_owned(),
        });
    }
    Ok(rows)
}

/// One kind of classes, in this process; prints what it took.
///
/// # Errors
/// When a pair is judged that no change concerns, or one is not judged.
pub fn apart(kind: &str) -> anyhow::Result<()> {
    let cost = match kind {
        "classes" => classes()?,
        "host-classes" => host_classes()?,
        other => bail!("{other} are no classes"),
    };
    println!("{}", serde_json::to_string(&cost)?);
    Ok(())
}

fn classes() -> anyhow::Result<Cost> {
    let before = Usage::current()?.memory;
    let facts = (0..HOSTS).map(data).collect::<Result<Vec<_>, _>>()?;
    let classes = (0..CLASSES).map(class).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    let mut board = Board::default();
    for class in classes {
        board.put_class("n", class);
    }
    for (number, data) in (0..).zip(&facts) {
        board.put_host(("n", &name(number)), "uid", Some(Facts::Data(Arc::clone(data))), None);
    }
    let (mut labels, mut shown) = (0, 0);
    for (namespace, host) in board.take_hosts() {
        labels += board.labels(&namespace, &host).values().flatten().count();
    }
    for (namespace, name) in board.take_classes() {
        let Some(class) = board.class(&namespace, &name) else { continue };
        let counts = board.counts(&namespace, &name);
        let hosts = board.unmatched(&namespace, &name);
        shown += usize::from(unmatched(class, hosts, counts.hosts.saturating_sub(counts.matched)).is_some());
        ensure!(status(class, &counts, None).error_message.is_none(), "a class has a fault");
    }
    let took = begun.elapsed();
    let judged = board.judgements();
    ensure!(judged == HOSTS * CLASSES, "{judged} pairs were judged, and not {}", HOSTS * CLASSES);
    ensure!(labels > 0 && shown > 0, "no host matches, or every one does");
    let memory = Usage::current()?.memory.saturating_sub(before);

    let begun = Instant::now();
    board.put_host(("n", &name(1)), "uid", Some(Facts::Data(data(2)?)), None);
    let one = begun.elapsed();
    let again = board.judgements() - judged;
    ensure!(again == CLASSES, "{again} pairs were judged for the change of one host");
    Ok(Cost {
        seconds: took.as_secs_f64(),
        bytes: memory,
        note: format!(
            "{judged} judgements, {labels} labels, reasons of {shown} classes; {:.0} times below the limit; one host changes: {again} judgements in {:.0} µs",
            2.0 / took.as_secs_f64().max(1e-9),
            one.as_secs_f64() * 1e6
        ),
    })
}

/// The same by HostClasses: three rules in CEL each, the status of each, and what is to be written to each host.
fn host_classes() -> anyhow::Result<Cost> {
    let before = Usage::current()?.memory;
    let hosts =
        (0..HOSTS).map(|number| Ok((host(number)?, data(number)?))).collect::<Result<Vec<_>, serde_json::Error>>()?;
    let classes = (0..CLASSES).map(host_class).collect::<Result<Vec<_>, _>>()?;
    let now = serde_json::from_value(json!("2026-01-01T00:00:00Z"))?;
    let begun = Instant::now();
    let mut board = host_class::Board::default();
    for class in &classes {
        board.put_class("n", host_class::Class::of(class, None));
    }
    for (host, data) in &hosts {
        board.put_host("n", host, Some(Facts::Data(Arc::clone(data))), None);
    }
    while board.judge(200_000) {}
    let mut labels = 0;
    for (namespace, host) in board.take_hosts() {
        board.refresh(&namespace, &host);
    }
    for (host, _) in &hosts {
        labels += board.plan("n", host).map_or(0, |plan| plan.changes.len());
    }
    let mut shown = 0;
    for (namespace, name) in board.take_classes() {
        let status = board.status(&namespace, &name, (None, None), &now);
        shown += status.map_or(0, |status| status.unmatched.len() + status.hosts.len());
    }
    let took = begun.elapsed();
    let judged = board.judgements();
    ensure!(judged == HOSTS * CLASSES, "{judged} pairs were judged, and not {}", HOSTS * CLASSES);
    ensure!(labels > 0 && shown > 0, "no host is of a class, or every one is");
    let memory = Usage::current()?.memory.saturating_sub(before);
    let begun = Instant::now();
    board.put_host("n", &host(1)?, Some(Facts::Data(data(2)?)), None);
    while board.judge(200_000) {}
    let one = begun.elapsed();
    let again = board.judgements() - judged;
    ensure!(again == CLASSES, "{again} pairs were judged for the change of one host");
    Ok(Cost {
        seconds: took.as_secs_f64(),
        bytes: memory,
        note: format!(
            "three rules in CEL each: {judged} judgements, {labels} labels; {:.1} times below the limit; one host changes: {again} judgements in {:.0} µs",
            2.0 / took.as_secs_f64().max(1e-9),
            one.as_secs_f64() * 1e6
        ),
    })
}

fn host(number: u64) -> Result<Arc<BareMetalHost>, serde_json::Error> {
    let metadata = json!({ "name": name(number), "namespace": "n", "uid": format!("uid-{number}"), "labels": { "rack": format!("r{}", number % 40) } });
    let spec = json!({ "online": true, "bmc": { "address": "redfish://192.0.2.1/redfish/v1/Systems/1", "credentialsName": "bmc" } });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).map(Arc::new)
}

fn host_class(number: u64) -> Result<HostClass, serde_json::Error> {
    let rules = [
        format!("hardware.cpu.count >= {} && hardware.ramMebibytes >= 65536", 8 + number * 2),
        "hardware.storage.exists(d, !d.rotational && d.sizeBytes > 400000000000) || hardware.nics.size() > 3"
            .to_owned(),
        "hardware.systemVendor.productName.matches('^PowerEdge R[67]') && host.labels.rack != 'r0'".to_owned(),
    ];
    let rules: Vec<_> =
        (0..).zip(rules).map(|(n, rule)| json!({ "name": format!("r{n}"), "expression": rule })).collect();
    let result = json!({ "labels": { (format!("example.com/c{number}")): "yes" } });
    serde_json::from_value(
        json!({ "metadata": { "name": format!("class-{number}"), "namespace": "n", "uid": format!("c{number}"), "generation": 1 },
        "spec": { "rules": rules, "result": result } }),
    )
}

fn name(number: u64) -> String {
    format!("host-{number:05}")
}

fn data(number: u64) -> Result<Arc<HardwareData>, serde_json::Error> {
    let disks: Vec<_> = (0..4 + number % 4)
        .map(|disk| json!({ "name": format!("/dev/sd{disk}"), "hctl": format!("0:0:{disk}:0"), "rotational": number.is_multiple_of(2),
            "sizeBytes": (200 + number % 9 * 200) * 1_000_000_000, "model": "MZ7LH1T9", "serialNumber": format!("S{number}-{disk}") }))
        .collect();
    let nics: Vec<_> = (0..2 + number % 3)
        .map(|nic| json!({ "name": format!("eth{nic}"), "mac": format!("02:00:00:00:00:{nic:02x}"), "model": "0x8086 0x1572" }))
        .collect();
    let hardware = json!({
        "cpu": { "arch": "x86_64", "count": 8 * (1 + number % 12), "clockMegahertz": 2400.0, "model": "Xeon", "flags": ["sse", "vmx"] },
        "ramMebibytes": 1024 * 64 * (1 + number % 8), "storage": disks, "nics": nics,
        "systemVendor": { "manufacturer": "Dell Inc.", "productName": "PowerEdge R750", "serialNumber": format!("S{number}") },
        "firmware": { "bios": { "vendor": "Dell Inc.", "version": format!("1.{}.2", number % 15) } },
    });
    let object = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "HardwareData", "metadata": { "name": name(number) },
        "spec": { "hardware": hardware } });
    serde_json::from_value(object).map(Arc::new)
}

fn class(number: u64) -> Result<Class, serde_json::Error> {
    let wanted = json!({
        "cpu": { "architecture": "x86_64", "minimumCount": 8 + number * 2, "minimumSpeedMHz": 1000 },
        "ram": { "minimumSizeGB": 64, "maximumSizeGB": 128 + number * 32 },
        "disk": { "minimumCount": 1, "minimumIndividualSizeGB": 100, "diskSelector": [{ "hctl": "0:0:N:0", "rotational": number.is_multiple_of(2) }] },
        "nic": { "minimumCount": 2, "nicSelector": { "vendor": ["0x8086"] } },
        "systemVendor": { "manufacturer": "Dell Inc.", "productName": "PowerEdge" },
        "firmware": { "bios": { "vendor": "Dell Inc.", "minorVersion": "1.0", "majorVersion": "1.12" } },
    });
    let object =
        json!({ "metadata": { "name": format!("class-{number}") }, "spec": { "hardwareCharacteristics": wanted } });
    let object: HardwareClassification = serde_json::from_value(object)?;
    Ok(Class::of(&object))
}
