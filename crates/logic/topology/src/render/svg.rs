//! The picture: switches in a row, hosts below them at the left, and from each interface a line to its switch, where the port is named.
//!
//! Hosts that are at the same switches stand together, as in a rack, so that lines are straight: across from the host, and each switch's own down. Lines
//! cross at right angles only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use terms::clean;

use super::traits;
use crate::build::{HostView, SeenAs, Topology};
use crate::findings::{Kind, Level};

/// Lengths in pixels.
const MARGIN: usize = 24;
const CARD: usize = 490;
const FIRST_SWITCH: usize = MARGIN + CARD + 56;
const COLUMN: usize = 210;
const SWITCH: usize = 190;
const SWITCH_HEIGHT: usize = 44;
const TITLE: usize = 26;
const ROW: usize = 22;
const GAP: usize = 14;

/// Longest texts, in characters, at the size in which they are written.
const SWITCH_TEXT: usize = 24;
const PORT_TEXT: usize = 24;
const HOST_TEXT: usize = 52;
const NIC_TEXT: usize = 16;
const TRAIT_TEXT: usize = 50;
const FINDING_TEXT: usize = 150;

/// Most findings that are written below; all are in the other forms.
const MAX_FINDINGS: usize = 40;

/// Colours of switches, which are used in turn; each can be told from its neighbours by those who see few colours, too.
const COLOURS: [&str; 6] = ["#1f6feb", "#c4590a", "#1a7f37", "#8250df", "#9a6700", "#0a7ea4"];
const WRONG: &str = "#cf222e";
const INK: &str = "#1f2328";
const PALE: &str = "#6e7781";

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // What XML has no place for, however it is written.
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// What is drawn, in two layers: lines are below all else.
#[derive(Default)]
struct Picture {
    lines: String,
    things: String,
    width: usize,
    height: usize,
}

impl Picture {
    fn text(&mut self, x: usize, y: usize, style: &str, text: &str) {
        let _ = writeln!(self.things, "<text x=\"{x}\" y=\"{y}\" {style}>{}</text>", escape(text));
    }

    fn line(&mut self, from: (usize, usize), to: (usize, usize), colour: &str, width: usize) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.lines,
            "<path d=\"M{x1} {y1}L{x2} {y2}\" stroke=\"{colour}\" stroke-width=\"{width}\" fill=\"none\"/>"
        );
    }

    fn size(&mut self, x: usize, y: usize) {
        (self.width, self.height) = (self.width.max(x), self.height.max(y));
    }
}

/// What the drawing of hosts looks up.
struct Known<'a> {
    view: &'a Topology,
    switches: HashMap<&'a str, usize>,
    wrong_ports: HashSet<(&'a str, &'a str)>,
    wrong_hosts: HashSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(view: &'a Topology) -> Self {
        let wrong = view.findings.iter().filter(|finding| finding.level == Level::Contradiction);
        let ports = wrong.clone().filter(|finding| finding.kind == Kind::PortOfTwoHosts);
        Self {
            view,
            switches: view.switches.iter().enumerate().map(|(at, switch)| (switch.id.as_str(), at)).collect(),
            wrong_ports: ports
                .filter_map(|finding| Some((finding.switch_id.as_deref()?, finding.port_id.as_deref()?)))
                .collect(),
            wrong_hosts: wrong.flat_map(|finding| finding.hosts.iter().map(String::as_str)).collect(),
        }
    }

    /// Places of the switches that the host is at, in their order.
    fn of_host(&self, host: &HostView) -> Vec<usize> {
        let at = host.nics.iter().filter_map(|nic| self.switches.get(nic.switch_id.as_deref()?).copied());
        let mut places: Vec<usize> = at.collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

fn bus(column: usize) -> usize {
    FIRST_SWITCH + column * COLUMN + 16
}

fn colour(switch: usize) -> &'static str {
    COLOURS[switch % COLOURS.len()]
}

/// A host's card, and the lines from it; where it ends.
fn host(
    picture: &mut Picture,
    known: &Known<'_>,
    columns: &HashMap<usize, usize>,
    host: &HostView,
    top: usize,
) -> usize {
    let rows = host.nics.len().max(1);
    let height = TITLE + rows * ROW + 6;
    let key = host.key();
    let edge = if known.wrong_hosts.contains(key.as_str()) { WRONG } else { "#d0d7de" };
    let _ = writeln!(
        picture.things,
        "<rect x=\"{MARGIN}\" y=\"{top}\" width=\"{CARD}\" height=\"{height}\" rx=\"6\" fill=\"#ffffff\" stroke=\"{edge}\"/>"
    );
    let stale = if host.stale { " (old facts)" } else { "" };
    let title = format!("{}{stale}", clean(&key, HOST_TEXT - stale.len()));
    picture.text(MARGIN + 10, top + 18, &format!("font-weight=\"600\" fill=\"{INK}\""), &title);
    if host.nics.is_empty() {
        picture.text(
            MARGIN + 10,
            top + TITLE + 15,
            &format!("fill=\"{PALE}\" font-style=\"italic\""),
            "no interface is known",
        );
    }
    for (row, nic) in host.nics.iter().enumerate() {
        let y = top + TITLE + row * ROW + 10;
        picture.text(MARGIN + 18, y + 4, &format!("fill=\"{INK}\""), &clean(&nic.name, NIC_TEXT));
        let mut words = traits(nic);
        if nic.switch_id.is_none() {
            words.push(nic.seen.words().to_owned());
        }
        let style = if nic.switch_id.is_none() { " font-style=\"italic\"" } else { "" };
        let words = clean(&words.join(" · "), TRAIT_TEXT);
        picture.text(MARGIN + 128, y + 4, &format!("fill=\"{PALE}\" font-size=\"12\"{style}"), &words);
        let place = nic.switch_id.as_deref().zip(nic.port_id.as_deref());
        let found = place.and_then(|(switch, port)| Some((switch, port, *known.switches.get(switch)?)));
        let Some((switch, port, at)) = found else { continue };
        let x = bus(columns.get(&at).copied().unwrap_or_default());
        let (ink, is_wrong) =
            if known.wrong_ports.contains(&(switch, port)) { (WRONG, true) } else { (colour(at), false) };
        picture.line((MARGIN + CARD, y), (x, y), ink, 2);
        let _ = writeln!(
            picture.things,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"{ink}\" stroke=\"#ffffff\" stroke-width=\"1.5\"/>"
        );
        let declared = if nic.seen == SeenAs::Declared { " (declared)" } else { "" };
        let mark = if is_wrong { "! " } else { "" };
        let label = format!("{mark}{}{declared}", clean(port, PORT_TEXT - declared.len()));
        let style = format!("fill=\"{}\" font-size=\"12\"", if is_wrong { WRONG } else { INK });
        picture.text(x + 10, y + 4, &style, &label);
    }
    top + height
}

/// Hosts that are at the same switches; where they end.
fn group(picture: &mut Picture, known: &Known<'_>, switches: &[usize], hosts: &[&HostView], top: usize) -> usize {
    let columns: HashMap<usize, usize> =
        switches.iter().enumerate().map(|(column, switch)| (*switch, column)).collect();
    let mut y = top;
    for (column, at) in switches.iter().enumerate() {
        let (x, switch) = (FIRST_SWITCH + column * COLUMN, &known.view.switches[*at]);
        let _ = writeln!(
            picture.things,
            "<rect x=\"{x}\" y=\"{top}\" width=\"{SWITCH}\" height=\"{SWITCH_HEIGHT}\" rx=\"6\" fill=\"{}\"/>",
            colour(*at)
        );
        picture.text(x + 10, top + 19, "fill=\"#ffffff\" font-weight=\"600\"", &clean(switch.title(), SWITCH_TEXT));
        let below = switch.object.as_deref().filter(|_| switch.title() == switch.id).unwrap_or(&switch.id);
        picture.text(x + 10, top + 36, "fill=\"#ffffff\" font-size=\"11\"", &clean(below, SWITCH_TEXT + 3));
    }
    y += if switches.is_empty() {
        picture.text(MARGIN, top + 16, &format!("fill=\"{INK}\" font-weight=\"600\""), "At no known switch");
        TITLE
    } else {
        SWITCH_HEIGHT + GAP
    };
    let mut lowest = HashMap::new();
    for one in hosts {
        for (row, nic) in one.nics.iter().enumerate() {
            if let Some(at) = nic.switch_id.as_deref().and_then(|id| known.switches.get(id)) {
                lowest.insert(*at, y + TITLE + row * ROW + 10);
            }
        }
        y = host(picture, known, &columns, one, y) + GAP;
    }
    for (column, at) in switches.iter().enumerate() {
        if let Some(end) = lowest.get(at) {
            picture.line((bus(column), top + SWITCH_HEIGHT), (bus(column), *end), colour(*at), 3);
        }
    }
    picture.size(FIRST_SWITCH + switches.len().max(1) * COLUMN + MARGIN, y);
    y + GAP
}

fn findings(picture: &mut Picture, view: &Topology, top: usize) {
    let mut y = top;
    let mut left = MAX_FINDINGS;
    for (level, heading, ink) in [(Level::Contradiction, "Contradictions", WRONG), (Level::Note, "Notes", INK)] {
        let said = view.said(level);
        if said.is_empty() || left == 0 {
            continue;
        }
        picture.text(MARGIN, y + 16, &format!("fill=\"{ink}\" font-weight=\"600\""), heading);
        y += TITLE;
        for message in said.iter().take(left) {
            let message = clean(message, FINDING_TEXT);
            picture.text(MARGIN + 10, y + 13, &format!("fill=\"{ink}\" font-size=\"12\""), &message);
            picture.size(MARGIN * 2 + message.chars().count() * 7, 0);
            y += 20;
        }
        if said.len() > left {
            let more = format!("and {} more", said.len() - left);
            picture.text(MARGIN + 10, y + 13, &format!("fill=\"{PALE}\" font-size=\"12\""), &more);
            y += 20;
        }
        left = left.saturating_sub(said.len());
        y += GAP;
    }
    picture.size(0, y);
}

pub(super) fn of(view: &Topology) -> String {
    let known = Known::of(view);
    let mut groups: BTreeMap<(bool, Vec<usize>), Vec<&HostView>> = BTreeMap::new();
    for one in &view.hosts {
        let places = known.of_host(one);
        // Those at no switch come last.
        groups.entry((places.is_empty(), places)).or_default().push(one);
    }
    let mut picture = Picture::default();
    let counted = |number: usize, one: &str, more: &str| format!("{number} {}", if number == 1 { one } else { more });
    let heading = format!(
        "{}, {}",
        counted(view.switches.len(), "switch", "switches"),
        counted(view.hosts.len(), "host", "hosts")
    );
    picture.text(MARGIN, MARGIN + 12, &format!("font-size=\"16\" font-weight=\"600\" fill=\"{INK}\""), &heading);
    let mut y = MARGIN + 32;
    for ((_, switches), hosts) in &groups {
        y = group(&mut picture, &known, switches, hosts, y);
    }
    findings(&mut picture, view, y);
    picture.size(FIRST_SWITCH + COLUMN, y);
    let (width, height) = (picture.width, picture.height + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"13\">\n<title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#f6f8fa\"/>\n{}{}</svg>\n",
        escape(&heading),
        picture.lines,
        picture.things
    )
}
