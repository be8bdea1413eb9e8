//! The table: one row a figure, beside its limit and the rival's.

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// What a number counts.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes, shown in millions.
    Bytes,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// One speed over another.
    Ratio,
    /// Things a second.
    PerSecond,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => format!("{value:.1}"),
            Self::Bytes if value == 0.0 => "0 bytes".to_owned(),
            Self::Bytes => format!("{:.1} MB", value / 1e6),
            Self::Seconds => format!("{value:.1} s"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Ratio => format!("{value:.2} x"),
            Self::PerSecond => format!("{value:.0}/s"),
        }
    }
}

/// Where a figure fails.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// Above this.
    AtMost(f64),
    /// Below this.
    AtLeast(f64),
    /// Above so many times the rival's figure.
    AtMostOfRival(f64),
    /// Below so many times the rival's figure.
    AtLeastOfRival(f64),
    /// Nowhere: it is shown.
    Shown,
}

/// Another program's figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rival {
    /// Which program.
    pub name: &'static str,
    /// Its figure, in the row's unit.
    pub figure: f64,
    /// Whether it was run in this run; if not, it is a figure from an earlier one.
    pub measured_here: bool,
}

impl Rival {
    /// A figure that was measured another time.
    pub const fn earlier(name: &'static str, figure: f64) -> Option<Self> {
        Some(Self { name, figure, measured_here: false })
    }

    /// A figure of this run.
    pub const fn here(name: &'static str, figure: f64) -> Option<Self> {
        Some(Self { name, figure, measured_here: true })
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// What it is.
    pub figure: &'static str,
    /// The measured value; none when measuring failed.
    pub measured: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// Its limit.
    pub limit: Limit,
    /// The rival's.
    pub rival: Option<Rival>,
    /// What a reader should know.
    pub note: String,
}

impl Row {
    /// Whether the figure keeps its limit.
    pub fn holds(&self) -> bool {
        match (self.measured, self.limit) {
            (None, _) => false,
            (Some(_), Limit::Shown) => true,
            (Some(value), Limit::AtMost(limit)) => value <= limit,
            (Some(value), Limit::AtLeast(limit)) => value >= limit,
            // Without the rival's figure such a limit says nothing, and nothing is not enough.
            (Some(value), Limit::AtMostOfRival(times)) => {
                self.rival.as_ref().is_some_and(|r| value <= times * r.figure)
            }
            (Some(value), Limit::AtLeastOfRival(times)) => {
                self.rival.as_ref().is_some_and(|r| value >= times * r.figure)
            }
        }
    }

    fn cells(&self) -> [String; 7] {
        let dash = || "-".to_owned();
        let limit = match self.limit {
            Limit::AtMost(limit) => format!("<= {}", self.unit.show(limit)),
            Limit::AtLeast(limit) => format!(">= {}", self.unit.show(limit)),
            Limit::AtMostOfRival(times) => format!("<= {times} of rival"),
            Limit::AtLeastOfRival(times) => format!(">= {times} of rival"),
            Limit::Shown => dash(),
        };
        let rival = self.rival.as_ref();
        let ratio = match (self.measured, rival) {
            (Some(value), Some(rival)) if rival.figure > 0.0 => format!("{:.3}", value / rival.figure),
            _ => dash(),
        };
        let verdict = match (self.holds(), self.limit) {
            (false, _) => "FAILS",
            (true, Limit::Shown) => "shown",
            (true, _) => "holds",
        };
        [
            self.figure.to_owned(),
            self.measured.map_or_else(|| "not measured".to_owned(), |value| self.unit.show(value)),
            limit,
            rival.map_or_else(dash, |r| format!("{} ({})", self.unit.show(r.figure), r.name)),
            rival.map_or_else(dash, |r| if r.measured_here { "yes" } else { "no" }.to_owned()),
            ratio,
            verdict.to_owned(),
        ]
    }
}

/// The rows as text, columns aligned, and below them what a reader should know of each.
pub fn render(rows: &[Row]) -> String {
    let head = ["figure", "measured", "limit", "rival", "rival measured here", "ratio", "verdict"];
    let mut lines = vec![head.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let mut widths = [0; 7];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    lines.insert(1, widths.map(|width| "-".repeat(width)));
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text.push('\n');
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        text.push_str(&format!("{}: {}\n", row.figure, row.note));
    }
    text
}

/// Writes the rows as JSON, each with its verdict.
///
/// # Errors
/// When the file cannot be written.
pub fn write_json(rows: &[Row], path: &Path) -> anyhow::Result<()> {
    let with_verdict = |row: &Row| {
        let mut value = serde_json::to_value(row).unwrap_or_default();
        value["holds"] = row.holds().into();
        value
    };
    let all: Vec<_> = rows.iter().map(with_verdict).collect();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(&all)?;
    std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
}
