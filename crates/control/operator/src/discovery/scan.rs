//! Asking: many places, few at once, with a pace and an end.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use discovery::{Answer, Place, Shown};
use futures::StreamExt as _;
use jiff::Timestamp;
use provisioner::MayAct;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

/// Places that are asked at once. The connections of those that have just answered may still be open: with them there are never more than 64.
const AT_ONCE: usize = 56;
/// Time from the beginning of one connection to that of the next.
const PACE: Duration = Duration::from_millis(5);
/// Time for one place, whatever its scout does.
const ONE: Duration = Duration::from_secs(15);
/// Time for a scan.
const WHOLE: Duration = Duration::from_secs(900);
/// Most names of BMCs that are resolved for one scan.
const MAX_NAMES: usize = 1024;
/// Names that are resolved at once.
const NAMES_AT_ONCE: usize = 16;
/// Time for a name.
const NAME: Duration = Duration::from_secs(5);
/// Time for all names.
const NAMES: Duration = Duration::from_secs(60);
/// Most addresses of a name.
const MAX_OF_NAME: usize = 8;

/// Asks places for service roots, without a password. The program gives one that knows a protocol.
#[async_trait]
pub trait Scout: Send + Sync {
    /// Asks this place once.
    async fn ask(&self, place: Place) -> Answer;
    /// The addresses of a name.
    async fn resolve(&self, name: &str) -> Vec<IpAddr>;
}

/// What a scan has found.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub began: Timestamp,
    pub asked: u32,
    pub answered: u32,
    pub found: Vec<(Place, Shown)>,
    /// Addresses of the names of hosts' BMCs.
    pub names: HashMap<String, Vec<IpAddr>>,
    pub left_out: Vec<String>,
}

/// Asks all of them. A process that may no longer act asks no more.
pub(super) async fn scan(
    scout: Arc<dyn Scout>,
    places: Vec<Place>,
    names: impl Fn() -> BTreeSet<String>,
    may_act: MayAct,
    began: Timestamp,
) -> Scanned {
    let names_before = names();
    let mut scanned = Scanned { began, names: resolve(&scout, names_before.clone()).await, ..Scanned::default() };
    let all = places.len();
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let asking = futures::stream::unfold((places.into_iter(), pace), |(mut places, mut pace)| async move {
        let place = places.next()?;
        pace.tick().await;
        Some((place, (places, pace)))
    });
    let ask = |place: Place| {
        let (scout, may_act) = (Arc::clone(&scout), Arc::clone(&may_act));
        async move {
            if !may_act() {
                return None;
            }
            Some((place, timeout(ONE, scout.ask(place)).await.unwrap_or(Answer::Nothing)))
        }
    };
    let mut answers = std::pin::pin!(asking.map(ask).buffer_unordered(AT_ONCE));
    let (until, mut hidden, mut local) = (Instant::now() + WHOLE, 0_u32, 0_u32);
    while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
        let Some((place, answer)) = answer else { continue };
        scanned.asked += 1;
        match answer {
            Answer::Shown(shown) => {
                scanned.answered += 1;
                scanned.found.push((place, shown.bounded()));
            }
            Answer::Hidden => hidden += 1,
            Answer::NotAllowed => {
                local += 1;
                scanned.asked -= 1;
            }
            Answer::Nothing => {}
        }
    }
    // Of hosts that were declared meanwhile.
    let new: BTreeSet<String> = names().difference(&names_before).cloned().collect();
    scanned.names.extend(resolve(&scout, new).await);
    let missing = all.saturating_sub(scanned.asked as usize + local as usize);
    if local > 0 {
        scanned.left_out.push(format!(
            "{local} local addresses are not called: the server is to be started with --allow-address if they are meant"
        ));
    }
    if hidden > 0 {
        scanned
            .left_out
            .push(format!("{hidden} services show nothing without a password: declare those that are BMCs yourself"));
    }
    if missing > 0 {
        scanned.left_out.push(format!("{missing} addresses were not asked within {} minutes", WHOLE.as_secs() / 60));
    }
    scanned
}

/// The addresses of the names of BMCs, as many as are told in time.
pub(super) async fn resolve(scout: &Arc<dyn Scout>, names: BTreeSet<String>) -> HashMap<String, Vec<IpAddr>> {
    let until = Instant::now() + NAMES;
    let resolved = futures::stream::iter(names.into_iter().take(MAX_NAMES)).map(|name| async move {
        let mut found = timeout(NAME, scout.resolve(&name)).await.unwrap_or_default();
        found.truncate(MAX_OF_NAME);
        (name, found)
    });
    let mut resolved = std::pin::pin!(resolved.buffer_unordered(NAMES_AT_ONCE));
    let mut all = HashMap::new();
    while let Ok(Some((name, found))) = timeout_at(until, resolved.next()).await {
        all.insert(name, found);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Answers nothing, slowly, and counts.
    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
        asked: AtomicUsize,
    }

    #[async_trait]
    impl Scout for Slow {
        async fn ask(&self, _: Place) -> Answer {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2500)).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            Answer::Nothing
        }

        async fn resolve(&self, _: &str) -> Vec<IpAddr> {
            std::future::pending().await
        }
    }

    fn places(count: u32) -> Vec<Place> {
        let ip = |n: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into();
        (0..count).map(|n| Place { ip: ip(n), port: 443, tls: true }).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_scan_of_silent_addresses_has_a_bound_of_connections_and_of_time() {
        let slow = Arc::new(Slow::default());
        let begun = Instant::now();
        let scout: Arc<dyn Scout> = slow.clone();
        let scanned = scan(scout, places(1022), BTreeSet::new, Arc::new(|| true), Timestamp::default()).await;
        assert_eq!((scanned.asked, scanned.answered, scanned.left_out.len()), (1022, 0, 0));
        assert_eq!(slow.most.load(Ordering::SeqCst), AT_ONCE);
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_may_not_act_asks_nobody_and_a_name_without_an_answer_holds_nobody() {
        let slow = Arc::new(Slow::default());
        let scout: Arc<dyn Scout> = slow.clone();
        let names = || BTreeSet::from(["silent.example".to_owned()]);
        let scanned = scan(scout, places(10), names, Arc::new(|| false), Timestamp::default()).await;
        assert_eq!((scanned.asked, slow.asked.load(Ordering::SeqCst)), (0, 0));
        assert!(scanned.left_out.iter().any(|said| said.contains("10 addresses")), "{:?}", scanned.left_out);
        assert_eq!(scanned.names["silent.example"], Vec::<IpAddr>::new());
    }
}
