//! Leader election: of several processes on one API, one works.
//!
//! A Lease (`coordination.k8s.io/v1`) names the leader, which renews it. A candidate takes it when, by the candidate's own clock, it has not
//! changed for the duration that it states (as in client-go `tools/leaderelection`). The leader counts from before it sent its last renewal, so
//! it stops before another may take over; every effect asks [`Leadership::holds`] first.
//!
//! A Lease that is deleted, or whose holder is removed by hand, frees nothing: the leader works on until it notices, and then writes the Lease
//! again. Candidates wait its full duration; only a leader that releases the Lease itself is followed at once.
//!
//! baremetal-operator has a Lease of its own. A candidate does not begin while that is fresh in the same namespace: two operators on the same hosts
//! would each undo what the other does.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::watch;
use tokio::time::Instant;

/// Name of the Lease.
pub const NAME: &str = "metamorph";
/// Name of baremetal-operator's Lease (its `main.go`, `LeaderElectionID`).
pub const UPSTREAMS: &str = "baremetal-operator";
/// Tenths of the Lease's duration for which the leader trusts a renewal, counted from when it was sent.
const TRUSTED: u32 = 8;
/// Renewals, and candidates' checks, within that time.
const LOOKS: u32 = 5;
/// Longest wait for a Lease, whatever duration it states: the longest that this program uses itself.
const LONGEST_LEASE: Duration = Duration::from_secs(3600);
/// Longest pause between two renewals or checks.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Duration, in seconds, of a Lease that its holder has released, beside an empty holder (as in client-go).
const DONE: i32 = 1;

/// A process that wants to lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Unique name of this process: words joined by `_`, a unique one last.
    pub identity: String,
    /// After how long without a renewal another may take over.
    pub duration: Duration,
    /// Whether a Lease that is absent at the first check is taken at once, because no other process can have led.
    pub first: bool,
    /// The API's store, where this process alone has it open: a holder with this as the second-last word of its name had the store open before,
    /// and has ended.
    pub store: Option<String>,
}

/// What is known of a Lease that another holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Empty where the first look found none.
    holder: String,
    renewed: Option<Timestamp>,
    duration: Duration,
    since: Instant,
}

/// What to do about the Lease that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Judgement {
    /// Take it.
    Take,
    /// Wait: as far as this process has seen, it has not expired.
    Wait(Seen),
}

/// Whether a Lease may be taken. The holder's times are compared only with each other, because clocks differ.
fn judge(found: Option<&LeaseSpec>, seen: Option<Seen>, candidate: &Candidate, now: Instant) -> Judgement {
    let holder = holder(found);
    if candidate.succeeds(holder) {
        return Judgement::Take;
    }
    let seen = if holder.is_empty() {
        let done = found.is_some_and(|spec| spec.lease_duration_seconds == Some(DONE));
        if done || (candidate.first && seen.is_none()) {
            return Judgement::Take;
        }
        // The last holder may have renewed it since the last check: its duration begins anew.
        let duration = seen.as_ref().map_or(candidate.duration, |seen| seen.duration);
        let since = seen.filter(|seen| seen.holder.is_empty()).map_or(now, |seen| seen.since);
        Seen { holder: String::new(), renewed: None, duration, since }
    } else {
        let renewed = found.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        let seconds = found.and_then(|spec| spec.lease_duration_seconds);
        // The holder goes by the duration that it states, not by this process's; an absurd one is capped.
        let duration = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(candidate.duration, Duration::from_secs).min(LONGEST_LEASE);
        let since = seen.filter(|seen| seen.holder == holder && seen.renewed == renewed).map_or(now, |seen| seen.since);
        Seen { holder: holder.to_owned(), renewed, duration, since }
    };
    if now.duration_since(seen.since) >= seen.duration { Judgement::Take } else { Judgement::Wait(seen) }
}

/// Whether the Lease that another program was seen with may still be kept: until it has not changed for its duration. Its times are compared with nothing,
/// as its holder's clock may be slow; one that was left long ago holds up a start once, for that long.
fn is_kept(found: Option<&LeaseSpec>, seen: &mut Option<Seen>, candidate: &Candidate, now: Instant) -> bool {
    let Some(spec) = found.filter(|spec| !holder(Some(spec)).is_empty()) else { return false };
    let Judgement::Wait(held) = judge(Some(spec), seen.clone(), candidate, now) else { return false };
    *seen = Some(held);
    true
}

/// Who holds the Lease; empty if nobody does.
fn holder(spec: Option<&LeaseSpec>) -> &str {
    spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// The right to work, for as long as it lasts.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: watch::Receiver<Option<Instant>>,
}

impl Leadership {
    /// Whether this process leads now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    /// Until when it leads if the Lease is not renewed again; `None` if it leads no longer.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        *self.until.borrow()
    }

    /// Resolves when this process no longer leads.
    pub async fn lost(&mut self) {
        loop {
            let until = *self.until.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                changed = self.until.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// The holder of the Lease.
pub struct Leader {
    candidate: Candidate,
    api: Api<Lease>,
    lease: Lease,
    until: watch::Sender<Option<Instant>>,
}

impl Candidate {
    /// Whether the holder is this process, or one that has ended because this one runs.
    fn succeeds(&self, holder: &str) -> bool {
        let of_store = || self.store.as_deref().is_some_and(|store| holder.rsplit('_').nth(1) == Some(store));
        holder == self.identity || of_store()
    }

    fn pause(&self) -> Duration {
        (self.trusted() / LOOKS).min(LONGEST_PAUSE)
    }

    fn trusted(&self) -> Duration {
        self.duration * TRUSTED / 10
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = before.filter(|spec| spec.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            // Rounded up: no candidate may take over before the holder has given up.
            lease_duration_seconds: i32::try_from(self.duration.as_millis().div_ceil(1000)).ok(),
            acquire_time: mine.and_then(|spec| spec.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if mine.is_some() { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }

    /// Waits until this process leads. Each check calls `waiting` with the Lease that is in the way and its holder's name, empty if the Lease names none
    /// and its last holder may not know.
    ///
    /// # Errors
    /// When the Lease can neither be read nor written, for a reason that waiting does not mend (rights, no such namespace).
    pub async fn lead(self, client: &Client, mut waiting: impl FnMut(&str, &str)) -> Result<Leader, kube::Error> {
        let api: Api<Lease> = Api::namespaced(client.clone(), &self.namespace);
        let (mut seen, mut upstreams): (Option<Seen>, Option<Seen>) = (None, None);
        loop {
            let sent = Instant::now();
            match self.attempt(&api, (&mut seen, &mut upstreams), &mut waiting).await {
                Ok(Some(lease)) => {
                    let (until, _) = watch::channel(Some(sent + self.trusted()));
                    return Ok(Leader { candidate: self, api, lease, until });
                }
                // Another candidate was faster.
                Err(kube::Error::Api(e)) if e.code == 409 => {}
                Err(error @ kube::Error::Api(_)) if is_final(&error) => return Err(error),
                Err(error) => tracing::warn!(%error, "take the Lease"),
                Ok(None) => {}
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    async fn attempt(
        &self,
        api: &Api<Lease>,
        (seen, upstreams): (&mut Option<Seen>, &mut Option<Seen>),
        waiting: &mut impl FnMut(&str, &str),
    ) -> Result<Option<Lease>, kube::Error> {
        let found = api.get_opt(NAME).await?;
        let spec = found.as_ref().and_then(|lease| lease.spec.clone());
        let before = seen.clone();
        match judge(spec.as_ref(), seen.take(), self, Instant::now()) {
            Judgement::Wait(held) => {
                waiting(NAME, holder(spec.as_ref()));
                *seen = Some(held);
                Ok(None)
            }
            Judgement::Take if let Some(other) = self.upstream(api, upstreams).await? => {
                waiting(UPSTREAMS, &other);
                *seen = before;
                Ok(None)
            }
            Judgement::Take => self.write(api, found, spec.as_ref()).await.map(Some),
        }
    }

    /// Who keeps baremetal-operator's Lease.
    async fn upstream(&self, api: &Api<Lease>, seen: &mut Option<Seen>) -> Result<Option<String>, kube::Error> {
        let found = match api.get_opt(UPSTREAMS).await {
            // The rights may be for this program's own Lease alone.
            Err(kube::Error::Api(error)) if error.code == 403 => None,
            found => found?,
        };
        let spec = found.and_then(|lease| lease.spec);
        let kept = is_kept(spec.as_ref(), seen, self, Instant::now());
        Ok(kept.then(|| holder(spec.as_ref()).to_owned()))
    }

    /// Replaces the Lease that was found, or creates it.
    async fn write(
        &self,
        api: &Api<Lease>,
        found: Option<Lease>,
        before: Option<&LeaseSpec>,
    ) -> Result<Lease, kube::Error> {
        let spec = Some(self.spec(before));
        let how = PostParams::default();
        if let Some(found) = found {
            return api.replace(NAME, &how, &Lease { spec, ..found }).await;
        }
        let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
        api.create(&how, &Lease { metadata, spec }).await
    }
}

fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(e) if matches!(e.code, 401 | 403 | 404 | 422))
}

impl Leader {
    /// The handle that the rest of the process asks.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership { until: self.until.subscribe() }
    }

    /// Renews the Lease until it is lost, or until `stop` resolves and it is released. Returns whether it was lost.
    pub async fn keep(mut self, stop: impl Future<Output = ()>) -> bool {
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.candidate.pause()) => {}
                () = &mut stop => {
                    self.release().await;
                    return false;
                }
            }
            if !self.renew().await {
                self.until.send_replace(None);
                return true;
            }
        }
    }

    /// One renewal. Whether this process still leads.
    async fn renew(&mut self) -> bool {
        let until = (*self.until.borrow()).unwrap_or_else(Instant::now);
        let sent = Instant::now();
        match tokio::time::timeout_at(until, self.write()).await {
            Ok(Ok(Some(renewed))) => {
                self.lease = renewed;
                self.until.send_replace(Some(sent + self.candidate.trusted()));
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "renew the Lease");
                Instant::now() < until
            }
            Ok(Ok(None)) | Err(_) => false,
        }
    }

    /// Writes the Lease, even if it was deleted or edited by hand; `None` if another process has taken it.
    async fn write(&self) -> Result<Option<Lease>, kube::Error> {
        let mut found = Some(self.lease.clone());
        loop {
            let gone = found.is_none();
            let written = self.candidate.write(&self.api, found, self.lease.spec.as_ref()).await;
            match written {
                Err(kube::Error::Api(error)) if error.code == 409 || (error.code == 404 && !gone) => {}
                written => return written.map(Some),
            }
            found = self.api.get_opt(NAME).await?;
            let holder = holder(found.as_ref().and_then(|lease| lease.spec.as_ref()));
            if !holder.is_empty() && holder != self.candidate.identity {
                tracing::error!(holder, "another process has taken the Lease");
                return Ok(None);
            }
        }
    }

    /// Releases the Lease, so that the next leader need not wait.
    async fn release(&mut self) {
        self.until.send_replace(None);
        let mut lease = self.lease.clone();
        if let Some(spec) = lease.spec.as_mut() {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(DONE);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let how = PostParams::default();
        let releasing = self.api.replace(NAME, &how, &lease);
        match tokio::time::timeout(self.candidate.pause(), releasing).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "let go of the Lease"),
            Err(_) => tracing::warn!("let go of the Lease: no answer in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, renewed: i64, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Timestamp::from_second(renewed).ok().map(MicroTime),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_it_is_free_or_has_not_changed_for_its_time() {
        let fifteen = Duration::from_secs(15);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let judged = |spec: &LeaseSpec, seen, now| judge(Some(spec), seen, &me(fifteen), now);
        assert_eq!(judged(&spec("", 0, 1), None, begin), Judgement::Take);
        assert_eq!(judged(&spec("me", 0, 15), None, begin), Judgement::Take);
        // However old it says it is: the first look begins the time.
        let Judgement::Wait(seen) = judged(&spec("other", 0, 15), None, begin) else { panic!("taken at once") };
        let Judgement::Wait(seen) = judged(&spec("other", 0, 15), Some(seen), at(14)) else { panic!("taken early") };
        assert_eq!(judged(&spec("other", 0, 15), Some(seen.clone()), at(15)), Judgement::Take);
        // A renewal, or another holder, begins it anew.
        for changed in [spec("other", 1, 15), spec("third", 0, 15)] {
            let Judgement::Wait(again) = judged(&changed, Some(seen.clone()), at(15)) else { panic!("taken") };
            assert_eq!(again.since, at(15));
        }
        // A nonsense duration does not hold it for ever.
        let long = spec("other", 0, i32::MAX);
        assert!(matches!(judged(&long, Some(seen.clone()), at(3599)), Judgement::Wait(_)));
        assert_eq!(judged(&long, Some(seen), at(3600)), Judgement::Take);
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_of_the_operator_before_counts_while_it_is_kept() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let candidate = me(Duration::from_secs(60));
        let kept = |spec: &LeaseSpec, seen: &mut Option<Seen>, at| is_kept(Some(spec), seen, &candidate, at);
        let mut seen = None;
        assert!(!is_kept(None, &mut seen, &candidate, at(0)));
        assert!(!kept(&spec("", 1000, 15), &mut seen, at(0)), "released");
        assert!(kept(&spec("bmo", 998, 15), &mut seen, at(0)) && kept(&spec("bmo", 1010, 15), &mut seen, at(12)));
        assert!(kept(&spec("bmo", 1010, 15), &mut seen, at(26)) && !kept(&spec("bmo", 1010, 15), &mut seen, at(27)));
        // Left long ago, or kept by a clock that is slow or fast: that shows only when its time has passed here.
        for renewed in [1, 985, 9000] {
            let mut seen = None;
            let mut kept = |seconds| kept(&spec("bmo", renewed, 15), &mut seen, at(seconds));
            assert!(kept(0) && kept(14) && !kept(15) && !kept(16), "{renewed}");
        }
    }

    fn me(duration: Duration) -> Candidate {
        Candidate { namespace: "n".into(), identity: "me".into(), duration, first: false, store: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_without_a_holder_is_free_when_the_last_one_can_believe_no_longer() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let candidate = me(Duration::from_secs(15));
        let first = Candidate { first: true, ..candidate.clone() };
        let emptied = spec("", 0, 15);
        for free in [None, Some(&LeaseSpec::default()), Some(&emptied)] {
            assert_eq!(judge(free, None, &first, begin), Judgement::Take);
            let Judgement::Wait(seen) = judge(free, None, &candidate, begin) else { panic!("{free:?}: taken at once") };
            let Judgement::Wait(seen) = judge(free, Some(seen), &candidate, at(14)) else {
                panic!("{free:?}: taken early")
            };
            assert_eq!(judge(free, Some(seen), &candidate, at(15)), Judgement::Take);
            // Its holder was seen: it has the time that it gave itself.
            for candidate in [&candidate, &first] {
                let held = judge(Some(&spec("other", 0, 40)), None, candidate, begin);
                let Judgement::Wait(seen) = held else { panic!("taken at once") };
                // It may have renewed it since, so the time begins when it is seen gone.
                let Judgement::Wait(seen) = judge(free, Some(seen), candidate, at(39)) else {
                    panic!("{free:?}: early")
                };
                let Judgement::Wait(seen) = judge(free, Some(seen), candidate, at(78)) else {
                    panic!("{free:?}: early")
                };
                assert_eq!(judge(free, Some(seen), candidate, at(79)), Judgement::Take);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_had_the_store_before_has_ended_and_nobody_else() {
        let now = Instant::now();
        let candidate = Candidate { store: Some("s-1".into()), ..me(Duration::from_secs(15)) };
        let takes = |holder: &str| judge(Some(&spec(holder, 0, 15)), None, &candidate, now) == Judgement::Take;
        assert!(takes("up_host_s-1_u") && takes("provision_some_host_s-1_u"));
        for other in ["host_u", "up_host_s-2_u", "s-1_up_host_u", "s-1", "up_host_u_s-1", "up_host_xs-1_u"] {
            assert!(!takes(other), "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_holder_stops_believing_before_another_may_take_over() {
        let candidate = me(Duration::from_millis(14_200));
        let written = candidate.spec(None);
        assert_eq!(written.lease_duration_seconds, Some(15));
        assert!(candidate.trusted() < candidate.duration && candidate.pause() * 3 < candidate.trusted());
        let (sender, until) = watch::channel(Some(Instant::now() + candidate.trusted()));
        let mut leadership = Leadership { until };
        assert!(leadership.holds());
        let begin = Instant::now();
        leadership.lost().await;
        assert_eq!(Instant::now() - begin, candidate.trusted());
        assert!(!leadership.holds());
        sender.send_replace(Some(Instant::now() + Duration::from_secs(1)));
        assert!(leadership.holds());
        drop(sender);
        leadership.lost().await;
    }
}
