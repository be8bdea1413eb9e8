//! Where reports of machines come in that have booted a HostDiscovery's medium, and wait for the controller: little, from everybody.
//!
//! The program's endpoint has checked the token, which says of which HostDiscovery and revision the medium is. A report waits here until the controller has
//! decided; the machine asks again meanwhile. What was decided is told to the same machine for a while, without another look.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_protocol::{Heard, Sighting};
use discovery::Sighted;
use sha2::{Digest as _, Sha256};
use terms::clean;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::{Queue, Report};

/// Most reports that are looked at, each of another HostDiscovery: one whose BMCs are silent keeps no other waiting.
const AT_WORK: usize = 4;
/// Most answers that are remembered.
const MAX_ANSWERS: usize = 1024;
/// Most HostDiscoveries without a medium that are remembered.
const MAX_CLOSED: usize = 4096;
/// How long an answer is told again.
const TOLD: Duration = Duration::from_secs(300);
/// How long an answer is told again to a machine that is to report again.
const TOLD_FOR_NOW: Duration = Duration::from_secs(240);
/// How often reports come to the controller at most, for all HostDiscoveries: sustained, and in a burst.
const PACE: Duration = Duration::from_millis(500);
const BURST: u32 = 32;
/// When a machine asks again: for what was decided, for what waits, and where there was no place.
const DECIDED: u32 = 600;
const SOON: u32 = 10;
const BUSY: u32 = 60;
/// The same for what may be otherwise then: a BMC that is silent keeps the others waiting for ten seconds each time.
const UNSETTLED: u32 = 300;

/// Where reports come in.
#[derive(Default)]
pub struct Reception {
    desk: Mutex<Desk>,
    news: Notify,
}

#[derive(Default)]
struct Desk {
    /// Revision of the medium by the uid of its HostDiscovery; `None` where it has none any more.
    open: HashMap<String, Option<u32>>,
    waiting: Queue,
    answers: HashMap<Key, (Instant, Heard)>,
    /// What is being looked at.
    at_work: HashSet<Key>,
    /// What is decided, and not written yet.
    unwritten: HashSet<Key>,
    /// What was left out since that was last told, by uid.
    left_out: HashMap<String, u32>,
    /// When the next report may go to the controller, if no burst is left.
    pace: Option<Instant>,
}

/// What is one report: uid of the HostDiscovery, and a digest of what the machine says of itself and of its BMC. Who says otherwise of a machine than was decided
/// on is heard: it may be that machine.
pub(super) type Key = (String, [u8; 32]);

fn key(uid: &str, sighted: &Sighted) -> Key {
    let said = format!("{}\n{:?}\n{:?}\n{:?}", sighted.digest, sighted.machine, sighted.addresses, sighted.service);
    (uid.to_owned(), Sha256::digest(said).into())
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The medium is of another revision, or its HostDiscovery has none any more.
    Revoked,
    /// This server has not seen its HostDiscovery yet.
    Unknown,
}

impl Reception {
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether reports by this medium are taken: to be asked before one is read.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn takes(&self, uid: &str, revision: u64) -> Result<(), NotTaken> {
        self.lock().takes(uid, revision)
    }

    /// Takes a report, and tells what is known of it.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn hear(&self, uid: &str, revision: u64, from: IpAddr, report: &Sighting) -> Result<Heard, NotTaken> {
        self.takes(uid, revision)?;
        let heard =
            |settled, message: &str, again_seconds| Heard { settled, message: message.to_owned(), again_seconds };
        let sighted = match Sighted::of(report) {
            Ok(sighted) => sighted,
            Err(why) => return Ok(heard(true, &format!("the report is of no use: {why}"), DECIDED)),
        };
        let (now, from) = (Instant::now(), addresses_of(from));
        let mut desk = self.lock();
        // It may have been taken back while the report was read.
        desk.takes(uid, revision)?;
        let key = key(uid, &sighted);
        if let Some((until, answer)) = desk.answers.get(&key)
            && *until > now
        {
            return Ok(answer.clone());
        }
        let waits = heard(false, "the report is being looked at", SOON);
        if desk.at_work.contains(&key) || desk.unwritten.contains(&key) || desk.waiting.holds(&key) {
            return Ok(waits);
        }
        let (is_taken, left_out) = desk.waiting.push(Report { key, sighted, from });
        if let Some(uid) = left_out {
            desk.leaves_out(uid);
        }
        if !is_taken {
            return Ok(heard(false, "too many machines report at once: try again later", BUSY));
        }
        drop(desk);
        self.news.notify_one();
        Ok(waits)
    }

    /// From now on reports by this medium are taken, and by no other of this HostDiscovery.
    pub(super) fn open(&self, uid: &str, revision: u32) {
        let mut desk = self.lock();
        if desk.open.insert(uid.to_owned(), Some(revision)) != Some(Some(revision)) {
            desk.forget(uid);
        }
    }

    /// Nothing of this HostDiscovery is taken any more.
    pub(super) fn close(&self, uid: &str) {
        let mut desk = self.lock();
        // It stays known that there was one: its media are refused, and not told to try again.
        if desk.open.len() < MAX_CLOSED || desk.open.contains_key(uid) {
            desk.open.insert(uid.to_owned(), None);
        }
        desk.forget(uid);
    }

    /// The next report, if its time has come.
    pub(super) fn next(&self) -> Option<Report> {
        let now = Instant::now();
        let mut desk = self.lock();
        // Each report moves the time by a pace; a burst is what the time may lie in the future.
        let at = desk.pace.filter(|at| *at > now).unwrap_or(now);
        if desk.at_work.len() >= AT_WORK || at > now + PACE * BURST {
            return None;
        }
        let Desk { waiting, at_work, .. } = &mut *desk;
        let report = waiting.pop(|uid| !at_work.iter().any(|(of, _)| of == uid))?;
        at_work.insert(report.key.clone());
        desk.pace = Some(at + PACE);
        Some(report)
    }

    /// Whether a report waits and may be looked at.
    pub(super) fn has_next(&self) -> bool {
        let desk = self.lock();
        desk.at_work.len() < AT_WORK && desk.waiting.has(|uid| !desk.at_work.iter().any(|(of, _)| of == uid))
    }

    /// This report is decided on, and that is to be written.
    pub(super) fn decided(&self, key: &Key) {
        let mut desk = self.lock();
        if desk.at_work.remove(key) {
            desk.unwritten.insert(key.clone());
        }
    }

    /// What has been decided on a report, and whether that is all: a machine that is told so may switch itself off.
    pub(super) fn settle(&self, key: &Key, message: &str, settled: bool) {
        let now = Instant::now();
        let mut desk = self.lock();
        let was_at_work = desk.at_work.remove(key);
        // What was decided by a medium that was taken back is told to nobody.
        if !desk.unwritten.remove(key) && !was_at_work {
            return;
        }
        desk.answers.retain(|_, (until, _)| *until > now);
        if desk.answers.len() >= MAX_ANSWERS
            && let Some(oldest) = desk.answers.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone())
        {
            desk.answers.remove(&oldest);
        }
        let (told, again_seconds) = if settled { (TOLD, DECIDED) } else { (TOLD_FOR_NOW, UNSETTLED) };
        let heard = Heard { settled, message: clean(message, 300), again_seconds };
        desk.answers.insert(key.clone(), (now + told, heard));
    }

    /// This report was not decided on: the machine brings it again.
    pub(super) fn give_up(&self, key: &Key) {
        let mut desk = self.lock();
        desk.at_work.remove(key);
        desk.unwritten.remove(key);
    }

    /// Nothing that is looked at is decided on.
    pub(super) fn give_up_all(&self) {
        self.lock().at_work.clear();
    }

    /// A report was turned away before it was read: too many are.
    pub fn leaves_out(&self, uid: &str) {
        self.lock().leaves_out(uid.to_owned());
    }

    /// How many reports were left out of this HostDiscovery since it was last asked.
    pub(super) fn left_out(&self, uid: &str) -> u32 {
        self.lock().left_out.remove(uid).unwrap_or_default()
    }

    /// Resolves when a report has come in.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}

impl Desk {
    fn leaves_out(&mut self, uid: String) {
        let left_out = self.left_out.entry(uid).or_default();
        *left_out = left_out.saturating_add(1);
    }

    fn takes(&self, uid: &str, revision: u64) -> Result<(), NotTaken> {
        match self.open.get(uid) {
            Some(Some(open)) if u64::from(*open) == revision => Ok(()),
            Some(_) => Err(NotTaken::Revoked),
            None => Err(NotTaken::Unknown),
        }
    }

    /// What this HostDiscovery's medium has brought so far counts no more.
    fn forget(&mut self, uid: &str) {
        self.waiting.forget(uid);
        self.answers.retain(|(of, _), _| of != uid);
        self.at_work.retain(|(of, _)| of != uid);
        self.unwritten.retain(|(of, _)| of != uid);
    }
}

/// One peer's address: of IPv6 its network.
fn addresses_of(from: IpAddr) -> IpAddr {
    addresses::peer(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::queue::MAX_OF_PEER;

    fn report(n: u32) -> Sighting {
        let machine = inventory::MachineEvidence {
            system_uuid: Some(format!("00112233-4455-6677-8899-{n:012x}")),
            ..Default::default()
        };
        Sighting { machine, ..Sighting::default() }
    }

    fn peer(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_taken_for_its_own_medium_alone() {
        let reception = Reception::default();
        let hear = |revision| reception.hear("u", revision, peer(1), &report(1));
        assert_eq!(hear(1), Err(NotTaken::Unknown));
        reception.open("u", 1);
        assert!(!hear(1).unwrap().settled);
        reception.open("u", 2);
        assert_eq!(hear(1), Err(NotTaken::Revoked));
        assert!(!reception.has_next(), "what an older medium has reported is dropped");
        hear(2).unwrap();
        reception.close("u");
        assert_eq!((hear(2), reception.has_next()), (Err(NotTaken::Revoked), false));
        assert_eq!(hear(0), Err(NotTaken::Revoked));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_decided_is_told_again_and_not_looked_at_again() {
        let reception = Reception::default();
        reception.open("u", 1);
        let hear = || reception.hear("u", 1, peer(1), &report(1)).unwrap();
        hear();
        let taken = reception.next().unwrap();
        assert!(!hear().settled && !reception.has_next(), "{taken:?} is being looked at");
        reception.decided(&taken.key);
        assert!(!hear().settled && !reception.has_next(), "it is not written yet");
        reception.settle(&taken.key, "its host waits", true);
        assert_eq!((hear().settled, hear().message.as_str()), (true, "its host waits"));
        assert!(!reception.has_next());
        tokio::time::sleep(TOLD).await;
        assert!(!hear().settled && reception.has_next());
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_otherwise_of_a_machine_than_was_decided_on_is_heard() {
        let reception = Reception::default();
        reception.open("u", 1);
        reception.hear("u", 1, peer(1), &report(1)).unwrap();
        let forged = reception.next().unwrap();
        let mut own = report(1);
        own.bmc.channels = vec![agent_protocol::LanChannel { ipv4: Some([192, 0, 2, 7].into()), ..Default::default() }];
        assert!(!reception.hear("u", 1, peer(2), &own).unwrap().settled, "{forged:?} is being looked at");
        reception.settle(&forged.key, "it does not know where its BMC is", true);
        assert!(!reception.hear("u", 1, peer(2), &own).unwrap().settled && reception.has_next());
        assert!(reception.hear("u", 1, peer(1), &report(1)).unwrap().settled);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_leaves_places_to_others_and_comes_at_a_pace() {
        let reception = Reception::default();
        reception.open("u", 1);
        for n in 0..5000 {
            reception.hear("u", 1, peer(1), &report(n)).unwrap();
        }
        let waiting = || reception.lock().waiting.len();
        assert_eq!(waiting(), MAX_OF_PEER);
        assert_eq!(reception.hear("u", 1, peer(2), &report(9000)).unwrap().again_seconds, SOON);
        reception.leaves_out("u");
        assert_eq!((waiting(), reception.left_out("u"), reception.left_out("u")), (MAX_OF_PEER + 1, 4985, 0));
        let begun = Instant::now();
        let (mut taken, mut n) = (0, 10_000);
        while taken < 200 {
            n += 1;
            reception.hear("u", 1, peer(1), &report(n)).unwrap();
            match reception.next() {
                Some(report) => {
                    taken += 1;
                    reception.settle(&report.key, "", true);
                }
                None => tokio::time::sleep(PACE).await,
            }
        }
        assert!(begun.elapsed() >= PACE * (200 - BURST - 2), "{:?}", begun.elapsed());
        assert!(reception.lock().answers.len() <= MAX_ANSWERS);
    }
    #[tokio::test(start_paused = true)]
    async fn what_is_decided_is_told_to_the_machine_that_it_was_decided_of() {
        let reception = Reception::default();
        let hear = |uid, n| reception.hear(uid, 1, peer(1), &report(n)).unwrap();
        for uid in ["a", "b"] {
            reception.open(uid, 1);
            hear(uid, 1);
            hear(uid, 2);
        }
        // One of each is looked at.
        let (first, second) = (reception.next().unwrap(), reception.next().unwrap());
        assert!(first.key.0 == "a" && second.key.0 == "b" && reception.next().is_none() && !reception.has_next());
        reception.settle(&second.key, "of b", true);
        assert_eq!((hear("b", 1).message.as_str(), hear("a", 1).settled), ("of b", false));
        // It is the next one's turn; the first one's look has failed, and was by a medium that is taken back then.
        assert_eq!(reception.next().unwrap().key.0, "b");
        reception.open("a", 2);
        reception.settle(&first.key, "of a", true);
        let again = reception.hear("a", 2, peer(1), &report(1)).unwrap();
        assert!(!again.settled && reception.has_next(), "{again:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn other_parts_under_the_same_identity_are_another_report() {
        let reception = Reception::default();
        reception.open("u", 1);
        reception.hear("u", 1, peer(1), &report(1)).unwrap();
        let forged = reception.next().unwrap();
        reception.settle(&forged.key, "", true);
        let mut own = report(1);
        own.hardware.ram_mebibytes = Some(1024);
        assert!(!reception.hear("u", 1, peer(2), &own).unwrap().settled && reception.has_next());
    }
}
