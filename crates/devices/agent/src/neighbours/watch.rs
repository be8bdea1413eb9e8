//! Which ports have been listened on for long enough. No IO; time is given, counted from the beginning of the listening.

use std::collections::BTreeMap;
use std::time::Duration;

use inventory::{LinkReport, LinkSeen};
use lldp::{Ignored, Neighbour};

/// How long a port with a link is listened on: neighbours speak every 30 s (`msgTxInterval`, IEEE 802.1AB-2016, 9.2.5.7), and at once when a link comes up.
pub const PATIENCE: Duration = Duration::from_secs(35);

/// Time after which a port on which nobody spoke is called silent, however long an inspection waits.
const INTERVAL: Duration = Duration::from_secs(30);

/// Longest time that an inspection waits for neighbours, whatever happens to links meanwhile.
pub const LONGEST: Duration = Duration::from_secs(60);

/// How long a port without a link may take to get one: speed and duplex are agreed upon in seconds.
const CARRIER: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Seen {
    own: Vec<[u8; 6]>,
    heard: lldp::Heard,
    /// Since when the link has been up without a break.
    up_since: Option<Duration>,
    /// Since when the port has been up, and had no link.
    idle_since: Option<Duration>,
    /// Since when frames come to it for certain; `None` while it was not opened up.
    hears_since: Option<Duration>,
    /// Nothing more will come.
    ended: bool,
    /// It could not be listened on.
    deaf: bool,
}

impl Seen {
    /// Whether it has been listened on for so long that nobody is there. Of a port that was not opened up nobody knows whether anything could be heard.
    fn is_silent(&self, now: Duration, interval: Duration) -> bool {
        let since = self.up_since.zip(self.hears_since).map(|(up, hears)| up.max(hears));
        self.ended || since.is_some_and(|since| now.saturating_sub(since) >= interval)
    }

    /// Whether it needs no more time.
    fn has_had_time(&self, now: Duration, patience: Duration) -> bool {
        let since = self.up_since.map(|up| up.max(self.hears_since.unwrap_or_default()));
        self.ended || since.is_some_and(|since| now.saturating_sub(since) >= patience)
    }
}

/// All ports.
#[derive(Debug, Default)]
pub struct Watch(BTreeMap<String, Seen>);

impl Watch {
    /// Whether the port is known.
    pub fn knows(&self, port: &str) -> bool {
        self.0.contains_key(port)
    }

    /// A port with these addresses is there.
    pub fn begin(&mut self, port: &str, own: Vec<[u8; 6]>) {
        self.0.entry(port.to_owned()).or_default().own = own;
    }

    /// These ports are there: what was known of others is forgotten.
    pub fn keep(&mut self, ports: &[String]) {
        self.0.retain(|name, _| ports.contains(name));
    }

    /// Frames come to the port for certain, since this time.
    pub fn opened(&mut self, port: &str, since: Duration) {
        self.0.entry(port.to_owned()).or_default().hears_since = Some(since);
    }

    /// The port cannot be listened on; whether that was not known.
    pub fn deaf(&mut self, port: &str) -> bool {
        !std::mem::replace(&mut self.0.entry(port.to_owned()).or_default().deaf, true)
    }

    /// Nothing more will come from the port.
    pub fn end(&mut self, port: &str) {
        self.0.entry(port.to_owned()).or_default().ended = true;
    }

    /// Whether the port has a link now; `None` while it is set down. Who was heard before a link went may be at another port by now, and speaks at once if not.
    pub fn link(&mut self, port: &str, link: Option<bool>, now: Duration) {
        let Some(seen) = self.0.get_mut(port) else { return };
        if link != Some(true) && seen.up_since.is_some() {
            seen.heard = lldp::Heard::default();
        }
        let since = |before: Option<Duration>, is_so| before.filter(|_| is_so).or(is_so.then_some(now));
        seen.up_since = since(seen.up_since, link == Some(true));
        seen.idle_since = since(seen.idle_since, link == Some(false));
    }

    /// A frame has come; what it says that was not known, in words.
    pub fn frame(&mut self, port: &str, frame: &[u8]) -> Result<Option<String>, Ignored> {
        let Some(seen) = self.0.get_mut(port) else { return Ok(None) };
        let neighbour = lldp::neighbour(frame, &seen.own)?;
        let (said, before) = (words(&neighbour), seen.heard.all().len());
        seen.heard.add(neighbour);
        let now = seen.heard.all().len();
        Ok((now > before).then_some(if now == 1 { said } else { format!("{said}: there are {now} neighbours") }))
    }

    /// The port's neighbour.
    pub fn neighbour(&self, port: &str) -> Option<&Neighbour> {
        self.0.get(port)?.heard.neighbour()
    }

    /// The ports that an inspection, which was asked for at `asked`, still waits for.
    pub fn waits(&self, now: Duration, asked: Duration, patience: Duration) -> Vec<&str> {
        let waited = now.saturating_sub(asked);
        let waits = |seen: &Seen| {
            // A port that is being brought up counts from the beginning of the inspection.
            let idle = seen.idle_since.map_or(waited, |since| now.saturating_sub(since));
            let may_come = seen.up_since.is_some() || !patience.is_zero() && idle < CARRIER;
            let has_time = waited < LONGEST && may_come && !seen.has_had_time(now, patience);
            has_time && !seen.deaf && seen.heard.neighbour().is_none()
        };
        self.0.iter().filter(|(_, seen)| waits(seen)).map(|(name, _)| name.as_str()).collect()
    }

    /// What has become of each port by now.
    pub fn links(&self, now: Duration) -> Vec<LinkReport> {
        let is_down =
            |seen: &Seen| seen.idle_since.is_some_and(|since| seen.ended || now.saturating_sub(since) >= CARRIER);
        let report = |(name, seen): (&String, &Seen)| LinkReport {
            nic: name.clone(),
            seen: match seen.heard.neighbour() {
                Some(_) => LinkSeen::Heard,
                None if seen.deaf => LinkSeen::Unheard,
                None if is_down(seen) => LinkSeen::Down,
                None if seen.is_silent(now, INTERVAL) => LinkSeen::Silent,
                None => LinkSeen::Unheard,
            },
            neighbours: u32::try_from(seen.heard.all().len()).unwrap_or(u32::MAX),
        };
        self.0.iter().map(report).collect()
    }
}

fn words(neighbour: &Neighbour) -> String {
    let name = neighbour.system_name.as_ref().unwrap_or(&neighbour.chassis_id);
    format!("{name} ({}), port {}", neighbour.chassis_id, neighbour.port_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const OWN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

    fn frame(from: [u8; 6], chassis: u8) -> Vec<u8> {
        let mut bytes = lldp::GROUPS[0].to_vec();
        bytes.extend(from);
        bytes.extend([0x88, 0xCC, 2, 7, 4, 0, 0x1C, 0x73, 0, 0, chassis, 4, 3, 7, b'p', b'1', 6, 2, 0, 120, 0, 0]);
        bytes
    }

    const SWITCH: [u8; 6] = [0, 0x1C, 0x73, 0, 0, 9];

    fn watch(ports: &[&str]) -> Watch {
        let mut watch = Watch::default();
        for port in ports {
            watch.begin(port, vec![OWN]);
            watch.opened(port, Duration::ZERO);
        }
        watch
    }

    fn seen(watch: &Watch, now: u64) -> Vec<LinkSeen> {
        watch.links(at(now)).iter().map(|link| link.seen).collect()
    }

    #[test]
    fn it_ends_as_soon_as_each_port_with_a_link_was_heard() {
        let mut watch = watch(&["a", "b", "c"]);
        watch.link("a", Some(true), at(0));
        watch.link("b", Some(true), at(0));
        // Set down, and brought up by the inspection.
        watch.link("c", None, at(0));
        assert_eq!(watch.waits(at(5), at(5), PATIENCE), ["a", "b", "c"]);
        watch.link("c", Some(false), at(6));
        let said = watch.frame("a", &frame(SWITCH, 1)).unwrap();
        assert_eq!(said.as_deref(), Some("00:1c:73:00:00:01 (00:1c:73:00:00:01), port p1"));
        assert_eq!(watch.frame("a", &frame(SWITCH, 1)), Ok(None), "known");
        watch.frame("b", &frame(SWITCH, 1)).unwrap();
        // A link may still come up.
        assert_eq!(watch.waits(at(15), at(5), PATIENCE), ["c"]);
        assert!(watch.waits(at(16), at(5), PATIENCE).is_empty());
        assert_eq!(seen(&watch, 16), [LinkSeen::Heard, LinkSeen::Heard, LinkSeen::Down]);
    }

    #[test]
    fn time_before_the_inspection_counts_and_a_late_link_gets_its_own() {
        let mut watch = watch(&["a", "b", "c"]);
        watch.link("a", Some(true), at(0));
        watch.link("b", None, at(0));
        // Up for long, and without a link: it is not waited for.
        watch.link("c", Some(false), at(0));
        // Asked 30 s after the beginning: "a" has 5 s to go.
        assert_eq!(watch.waits(at(30), at(30), PATIENCE), ["a", "b"]);
        watch.link("b", Some(true), at(36));
        assert_eq!(watch.waits(at(34), at(30), PATIENCE), ["a", "b"]);
        assert_eq!(watch.waits(at(36), at(30), PATIENCE), ["b"]);
        assert_eq!(watch.waits(at(70), at(30), PATIENCE), ["b"]);
        assert!(watch.waits(at(71), at(30), PATIENCE).is_empty());
        assert_eq!(seen(&watch, 71), [LinkSeen::Silent, LinkSeen::Silent, LinkSeen::Down]);
        // Links that come and go do not hold an inspection for ever.
        for second in 30..=120 {
            watch.link("b", Some(second % 2 == 0), at(second));
        }
        assert!(watch.waits(at(90), at(30), PATIENCE).is_empty());
        assert_eq!(
            seen(&watch, 120),
            [LinkSeen::Silent, LinkSeen::Unheard, LinkSeen::Down],
            "it was not listened on for long enough"
        );
    }

    #[test]
    fn no_patience_waits_for_nobody_and_calls_nobody_silent_too_early() {
        let mut watch = watch(&["a", "b"]);
        watch.link("a", Some(true), at(0));
        assert!(watch.waits(at(0), at(0), Duration::ZERO).is_empty());
        assert_eq!(
            seen(&watch, 29),
            [LinkSeen::Unheard, LinkSeen::Unheard],
            "a port that is set down has no cable's fault"
        );
        assert_eq!(
            seen(&watch, 30),
            [LinkSeen::Silent, LinkSeen::Unheard],
            "it has been listened on for long enough by chance"
        );
        // No inspection has opened it up: its firmware may have had all frames.
        watch.begin("c", vec![OWN]);
        watch.link("c", Some(true), at(0));
        assert!(watch.waits(at(90), at(90), Duration::ZERO).is_empty());
        assert_eq!(seen(&watch, 90)[2], LinkSeen::Unheard);
    }

    #[test]
    fn a_port_whose_firmware_had_the_frames_is_listened_on_from_its_opening() {
        let mut watch = watch(&["a", "b"]);
        for port in ["a", "b"] {
            watch.link(port, Some(true), at(0));
        }
        // An inspection that is asked for at 40 s.
        watch.opened("a", at(40));
        assert_eq!(watch.waits(at(40), at(40), PATIENCE), ["a"]);
        assert_eq!(seen(&watch, 69), [LinkSeen::Unheard, LinkSeen::Silent]);
        assert_eq!(watch.waits(at(74), at(40), PATIENCE), ["a"]);
        assert!(watch.waits(at(75), at(40), PATIENCE).is_empty());
        assert_eq!(seen(&watch, 75), [LinkSeen::Silent, LinkSeen::Silent]);
    }

    #[test]
    fn a_link_is_down_only_after_it_had_time_to_come_up() {
        let mut watch = watch(&["a", "b"]);
        let little = at(5);
        watch.link("a", Some(false), at(0));
        assert_eq!(
            watch.waits(at(9), at(0), little),
            ["a", "b"],
            "speeds are agreed upon in seconds, whatever the patience"
        );
        assert_eq!(seen(&watch, 9), [LinkSeen::Unheard, LinkSeen::Unheard]);
        // "b" could not be brought up.
        assert!(watch.waits(at(10), at(0), little).is_empty());
        assert_eq!(seen(&watch, 10), [LinkSeen::Down, LinkSeen::Unheard]);
        // A link that is gone just now is no cable that is out.
        watch.link("a", Some(true), at(11));
        watch.link("a", Some(false), at(50));
        assert_eq!(seen(&watch, 50)[0], LinkSeen::Unheard);
    }

    #[test]
    fn who_was_heard_before_a_cable_was_moved_is_forgotten() {
        let mut watch = watch(&["a"]);
        watch.link("a", Some(true), at(0));
        watch.frame("a", &frame(SWITCH, 1)).unwrap();
        watch.link("a", Some(false), at(20));
        assert_eq!(seen(&watch, 30), [LinkSeen::Down], "the cable is out");
        watch.link("a", Some(true), at(31));
        assert_eq!(watch.waits(at(31), at(31), PATIENCE), ["a"]);
        watch.frame("a", &frame(SWITCH, 2)).unwrap();
        assert_eq!(watch.neighbour("a").unwrap().chassis_id, "00:1c:73:00:00:02");
        assert_eq!(watch.links(at(32))[0].neighbours, 1);
        // A card that is gone.
        watch.keep(&[]);
        assert!(!watch.knows("a"));
    }

    #[test]
    fn a_port_that_is_deaf_or_has_ended_is_not_waited_for() {
        let mut watch = watch(&["a", "b"]);
        for port in ["a", "b"] {
            watch.link(port, Some(true), at(0));
        }
        watch.deaf("a");
        watch.end("b");
        assert!(watch.waits(at(0), at(0), PATIENCE).is_empty());
        assert_eq!(seen(&watch, 0), [LinkSeen::Unheard, LinkSeen::Silent]);
    }

    #[test]
    fn own_frames_count_for_nothing_and_a_second_neighbour_is_told() {
        let mut watch = watch(&["a"]);
        assert_eq!(watch.frame("a", &frame(OWN, 7)), Err(Ignored::Own));
        assert!(watch.neighbour("a").is_none());
        watch.frame("a", &frame(SWITCH, 2)).unwrap();
        let said = watch.frame("a", &frame(SWITCH, 1)).unwrap().unwrap();
        assert!(said.ends_with("there are 2 neighbours"), "{said}");
        assert_eq!(watch.neighbour("a").unwrap().chassis_id, "00:1c:73:00:00:01", "by rule, whoever spoke first");
        assert_eq!(watch.links(at(0))[0].neighbours, 2);
        assert_eq!(watch.frame("unknown", &frame(SWITCH, 1)), Ok(None));
    }
}
