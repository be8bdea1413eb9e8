//! The test of what a BMC can read: a tiny medium of this server in the drive that the machine boots from, before a boot depends on it.
//!
//! It goes in only where the BMC shows that drive to be empty (or with the agent's medium of a boot that is over) and nobody is about to use it, is put in by the way that ejects nothing, and nothing starts from it; boot source
//! and power stay as they are. Its address and drive are recorded before it goes in, and until it is out: whoever comes after a killed process takes it out, and so does whatever needs the
//! drive meanwhile. That it was asked for proves that the BMC reaches this server, as nobody else knows its address; that it was not proves nothing.

use async_trait::async_trait;
use bmc::{Bmc, DataDrive, Drive, ErrorKind, Insertion};
use diagnosis::{TestEnd, TestMedium};
use provisioner::{Cause, Failure, Outcome, Purpose, Retry, TestMedia, TestMediumRequest, Verdict, Working};
use provisioning_plan::in_use::Recorded;
use tokio::time::{Duration, Instant};
use url::Url;

use crate::failures::of_bmc;
use crate::host::{NativeHost, shown};
use crate::identity::Effect;
use crate::live::{Asked, Testing};
use crate::remembered::TestInsertion;

/// How long a medium that is in is left for the BMC to ask for.
const WAIT: Duration = Duration::from_secs(60);
/// How long the BMC may go on reading after it has first asked.
const SETTLES: Duration = Duration::from_secs(5);
/// Seconds between looks.
const LOOK_AGAIN: u64 = 3;
/// A test about which nobody has asked for this long is nobody's any more.
const FORGOTTEN: Duration = Duration::from_secs(180);
/// What failures of it begin with.
const TEST: &str = "test what the BMC can read";

#[async_trait]
impl TestMedia for NativeHost {
    async fn test_medium(&mut self, request: TestMediumRequest) -> Outcome<Box<TestMedium>> {
        let known = self.live.testing().clone().filter(|testing| testing.of == request.identity);
        if let Some(ended) = known.as_ref().and_then(|known| known.ended.clone()) {
            return Ok(Verdict::Done(Box::new(ended)));
        }
        match (self.journal.data().test_medium, known) {
            (Some(medium), Some(testing)) if medium.of == testing.of => {
                *self.live.testing() = Some(Testing { asked: Instant::now(), ..testing.clone() });
                self.followed(&medium, &testing).await
            }
            (_, Some(testing)) => {
                let text = "something else needed the drive meanwhile, and has taken it out".to_owned();
                Ok(Verdict::Done(Box::new(self.noted_end(&testing, TestEnd::Other, text))))
            }
            (left, None) => {
                if left.as_ref().is_some_and(|left| self.is_followed(left)) {
                    return Ok(Verdict::working(
                        "another test medium is in the drive: this one follows it",
                        LOOK_AGAIN,
                    ));
                }
                // Whoever needs the drive has taken out what was in it, perhaps without being able to write that down.
                self.is_free_for_test(request.in_use)?;
                if left.is_some() {
                    // Of a process that was killed, or of another request.
                    let (bmc, _) = self.proven(Effect::Boot).await?;
                    if !self.test_medium_out(bmc.as_ref(), false).await? {
                        return Ok(Verdict::Working(may_come_first()));
                    }
                    self.journal.write(self.journal.data(), Purpose::Note).await?;
                }
                let begun = self.begin_test(&request).await;
                if begun.is_err() && self.journal.data().test_medium.is_none() {
                    // Nobody is to read what no BMC was told of.
                    self.shared.media.withdraw_test(self.uid());
                }
                begun
            }
        }
    }
}

impl NativeHost {
    /// Has it put in, where nothing stands against that.
    async fn begin_test(&self, request: &TestMediumRequest) -> Outcome<Box<TestMedium>> {
        self.still_wanted().await?;
        let (bmc, _) = self.proven(Effect::Boot).await?;
        let drives = drives(bmc.as_ref())?;
        self.empties_for_test(bmc.as_ref()).await?;
        let at = (self.context.now)();
        // Another address for each test: BMCs may keep what they have read at one.
        let number = u64::try_from(at.as_second()).unwrap_or_default();
        let root = self.shared.settings.keys.current();
        let offered = self.shared.media.offer_test(&self.place(&root), number).map_err(|error| {
            Failure::new(Cause::Internal, format!("{TEST}: {error}")).advise("report it, with the names of the host")
        })?;
        let mut testing = Testing::new(&request.identity, at);
        let (mut chosen, mut unfit) = (None, None);
        for url in offered.urls {
            testing.server = server_of(&url);
            match drives.boot_drive(&url).await {
                Ok(drive) => {
                    chosen = Some((url, drive));
                    break;
                }
                Err(error) if error.kind == ErrorKind::Unsupported => unfit = Some(error),
                Err(error) => return Err(of_bmc(error)),
            }
        }
        let Some((address, drive)) = chosen else {
            let text = unfit.map_or_else(|| "no address is served to BMCs".to_owned(), |error| error.found);
            let ended = self.noted_end(&testing, TestEnd::Refused, text);
            return Ok(Verdict::Done(Box::new(ended)));
        };
        self.still_wanted().await?;
        let mut data = self.journal.data();
        let (of, since) = (request.identity.clone(), Some(at));
        data.test_medium =
            Some(TestInsertion { of, address: address.clone(), drive: drive.clone(), since, asked: true });
        self.journal.write(data, Purpose::Intent).await?;
        (testing.since, testing.asked) = (Instant::now(), Instant::now());
        *self.live.testing() = Some(testing.clone());
        if let Some(certificates) = self.shared.settings.media_certificates.pem() {
            drives.trust(&drive, &address, &certificates).await;
        }
        match drives.put_into_empty(&drive, &address).await {
            Ok(Insertion::Done) => {
                self.journal.note(|data| data.test_medium.iter_mut().for_each(|medium| medium.asked = false));
                Ok(Verdict::working("the BMC has put the test medium in: it is seen whether it reads it", LOOK_AGAIN))
            }
            Ok(Insertion::Pending) => Ok(Verdict::working(COMES, LOOK_AGAIN)),
            Err(error) if error.kind.is_refusal() => {
                let is_over = error.kind.is_definite_refusal();
                self.ended(bmc.as_ref(), &testing, (TestEnd::Refused, error.found), is_over).await
            }
            Err(error) => {
                // It may have been heard: the record has it taken out.
                *self.live.testing() = None;
                Err(of_bmc(error))
            }
        }
    }

    /// Sees that the drive is empty. The only medium that is taken out for it is the one of this host's last boot of the agent, where that boot is over: it is
    /// on offer no more, so that nobody can read it, and the agent, if it still runs, runs from memory.
    async fn empties_for_test(&self, bmc: &dyn Bmc) -> Result<(), Failure> {
        let media = bmc.virtual_media().map_err(|lacking| of_bmc(lacking.keeps_from(TEST)))?;
        match media.drive(&self.agent_addresses()).await.map_err(of_bmc)? {
            Drive::Empty => Ok(()),
            Drive::Medium if self.shared.media.offered_id(self.uid()).is_none() => {
                self.still_wanted().await?;
                media.eject().await.map_err(of_bmc)?;
                self.live.timers().ejected = true;
                Ok(())
            }
            Drive::Medium => Err(taken("the agent's medium is in the virtual drive")),
            Drive::Another => Err(taken("a medium that this server has not put there is in the virtual drive")),
            Drive::Unknown => Err(taken("the BMC does not show whether a medium is in the virtual drive")),
        }
    }

    /// Why the drive, or the machine, is not free for it, as far as this server knows by itself.
    fn is_free_for_test(&self, in_use: bool) -> Result<(), Failure> {
        let data = self.journal.data();
        if let Some(newest) = self.journal.newest().filter(|newest| !newest.phase.is_final()) {
            return Err(taken(&format!("work is under way on the machine ({})", newest.id)));
        }
        if data.live_medium.is_some() {
            return Err(taken("the virtual drive is that of the host's live ISO"));
        }
        if data.data_medium.is_some() {
            return Err(taken("the host's data image is in a virtual drive"));
        }
        if self.live.timers().firmware.is_some() {
            return Err(taken("the firmware applies settings: the BMC is left alone meanwhile"));
        }
        let told = self.context.deployed.as_ref();
        let is_used = told.is_some_and(|deployed| deployed.image.is_some() || deployed.externally)
            || matches!(data.on_machine(), Recorded::Runs(_));
        if is_used && !in_use {
            return Err(taken("the machine runs a system")
                .advise("consent to it in another request (spec.diagnose.allowInUse), if a medium in the drive does that system no harm"));
        }
        Ok(())
    }

    /// Goes on with what this process has had put in. A BMC that does not answer is asked again for a while: the medium is to come out.
    async fn followed(&self, medium: &TestInsertion, testing: &Testing) -> Outcome<Box<TestMedium>> {
        let is_away = |cause| matches!(cause, Cause::BmcUnreachable | Cause::BmcBusy | Cause::RecordUnavailable);
        match self.looked_at(medium, testing).await {
            Err(failure) if is_away(failure.cause) && self.is_young(testing) => {
                let text = format!("the test medium is still to be taken out: {}", failure.message);
                Ok(Verdict::working(text, LOOK_AGAIN))
            }
            other => other,
        }
    }

    /// The BMC may still be putting in what it was asked for.
    fn is_young(&self, testing: &Testing) -> bool {
        testing.since.elapsed() < self.shared.settings.timing.insertion
    }

    async fn looked_at(&self, medium: &TestInsertion, testing: &Testing) -> Outcome<Box<TestMedium>> {
        let first = self.shared.media.test_reads(self.uid()).first;
        match first {
            None if testing.since.elapsed() < WAIT => return Ok(Verdict::working(WAITS, LOOK_AGAIN)),
            // It may be in the middle of it.
            Some((at, _)) if at.elapsed() < SETTLES => return Ok(Verdict::working(READS, LOOK_AGAIN)),
            _ => {}
        }
        let (bmc, _) = self.proven(Effect::Boot).await?;
        let Some(there) = shown(drives(bmc.as_ref())?, &medium.drive, &medium.address).await.map_err(of_bmc)? else {
            return Ok(Verdict::working(HIDDEN, LOOK_AGAIN));
        };
        let is_in = match there {
            Drive::Medium => true,
            Drive::Empty => false,
            Drive::Another | Drive::Unknown => first.is_some(),
        };
        if !is_in && medium.asked && self.is_young(testing) {
            // It would come in when nobody knows of it any more.
            return Ok(Verdict::working(COMES, LOOK_AGAIN));
        }
        let end = match (first, there) {
            (Some(_), _) => (TestEnd::Read, String::new()),
            (None, Drive::Another) => {
                (TestEnd::Other, "another medium was put into the drive meanwhile, and is left there".to_owned())
            }
            (None, _) => (TestEnd::NotRead, String::new()),
        };
        self.ended(bmc.as_ref(), testing, end, true).await
    }

    /// Takes it out, and keeps how it has ended. Unless it is over with that, it may come in yet: the record has it taken out then.
    async fn ended(
        &self,
        bmc: &dyn Bmc,
        testing: &Testing,
        (end, text): (TestEnd, String),
        is_over: bool,
    ) -> Outcome<Box<TestMedium>> {
        let facts = self.facts(testing, end, text);
        let is_out = self.test_medium_out(bmc, is_over).await?;
        // What was found is not lost with a write that fails: what it leaves in the record is looked for again.
        *self.live.testing() = Some(Testing { ended: Some(facts.clone()), ..testing.clone() });
        if is_out {
            self.journal.write(self.journal.data(), Purpose::Note).await?;
        }
        Ok(Verdict::Done(Box::new(facts)))
    }

    /// The same of a medium that is not, or no more, in the drive.
    fn noted_end(&self, testing: &Testing, end: TestEnd, text: String) -> TestMedium {
        let facts = self.facts(testing, end, text);
        self.shared.media.withdraw_test(self.uid());
        *self.live.testing() = Some(Testing { ended: Some(facts.clone()), ..testing.clone() });
        facts
    }

    fn facts(&self, testing: &Testing, end: TestEnd, text: String) -> TestMedium {
        let reads = self.shared.media.test_reads(self.uid());
        let took = reads.first.map_or_else(|| testing.since.elapsed(), |(at, _)| at.duration_since(testing.since));
        TestMedium {
            end,
            asked: Some(testing.at),
            seconds: took.as_secs(),
            server: testing.server.clone(),
            from: reads.first.map(|(_, from)| from.to_canonical().to_string()),
            requests: reads.requests,
            bytes: reads.bytes,
            text,
        }
        .bounded()
    }

    /// Takes out the test medium that is recorded, if it still is in its drive. That it is out is durable with the next write of the journal: until then it is
    /// looked for again. False while the BMC may still be putting it in, unless that is waited for no longer (`at_once`).
    pub async fn test_medium_out(&self, bmc: &dyn Bmc, at_once: bool) -> Result<bool, Failure> {
        let Some(medium) = self.journal.data().test_medium else { return Ok(true) };
        // Without a drive there is no medium.
        if let Ok(drives) = bmc.data_drive() {
            // A drive that does not show what is in it has ours, if the BMC has said that it is in, or has read it.
            let is_in = !medium.asked || self.shared.media.test_reads(self.uid()).first.is_some();
            let there = shown(drives, &medium.drive, &medium.address).await.map_err(of_bmc)?;
            // It may be in a drive that the BMC does not show.
            let Some(there) = there else { return Ok(false) };
            match there {
                Drive::Medium => drives.take_out(&medium.drive, &medium.address).await.map_err(of_bmc)?,
                Drive::Unknown if is_in => drives.take_out(&medium.drive, &medium.address).await.map_err(of_bmc)?,
                Drive::Empty | Drive::Another | Drive::Unknown if !at_once && self.may_come(&medium) => {
                    return Ok(false);
                }
                Drive::Unknown => tracing::warn!(
                    host = %self.context.key.name,
                    "the virtual drive does not show what is in it, and is left as it is: it may be a test medium, with which no machine starts, or somebody's"
                ),
                Drive::Empty | Drive::Another => {}
            }
        }
        self.shared.media.withdraw_test(self.uid());
        self.journal.note(|data| data.test_medium = None);
        Ok(true)
    }

    /// The same for what needs the drive, or another: why that waits, where the BMC may still be putting the test medium in. It would come in beside, or in place of, what is put in now.
    pub async fn test_medium_first_out(&self, bmc: &dyn Bmc) -> Result<Option<Working>, Failure> {
        Ok((!self.test_medium_out(bmc, false).await?).then(may_come_first))
    }

    /// Whether the BMC may still be putting it in, by the record: the process that has asked it may be gone.
    fn may_come(&self, medium: &TestInsertion) -> bool {
        medium.asked && self.may_still_insert(Asked::Unknown, medium.since)
    }

    /// Whether somebody goes on with it.
    fn is_followed(&self, medium: &TestInsertion) -> bool {
        let testing = self.live.testing();
        testing.as_ref().is_some_and(|testing| {
            testing.of == medium.of && testing.ended.is_none() && testing.asked.elapsed() < FORGOTTEN
        })
    }

    /// Takes out a test medium that nobody asks about any more: its request was deleted, or its process killed. It fails nothing: what cannot be done now is tried at
    /// the next look.
    pub async fn forgotten_test_goes(&self) {
        let Some(medium) = self.journal.data().test_medium else { return };
        // Work that is under way has taken it out before it needed the drive, whose medium is that work's by now.
        let works = self.journal.newest().is_some_and(|newest| !newest.phase.is_final());
        if works || self.is_followed(&medium) {
            return;
        }
        let gone = async {
            let (bmc, _) = self.proven(Effect::Boot).await?;
            if self.test_medium_out(bmc.as_ref(), false).await? {
                self.journal.write(self.journal.data(), Purpose::Note).await?;
            }
            Ok::<(), Failure>(())
        };
        if let Err(failure) = gone.await {
            tracing::warn!(host = %self.context.key.name, "a test medium is still in its drive: {}", failure.message);
        }
    }

    /// The same of a host that is let go. Why that waits, unless it is by force.
    pub async fn test_medium_goes(&self, bmc: &dyn Bmc, force: bool) -> Result<Option<Working>, Failure> {
        if self.journal.data().test_medium.is_none() {
            return Ok(None);
        }
        match self.test_medium_first_out(bmc).await {
            Ok(None) => {}
            not_yet if !force => return not_yet,
            not_yet => {
                let medium = self.journal.data().test_medium.filter(|medium| medium.asked);
                if let Some((medium, drives)) = medium.zip(bmc.data_drive().ok())
                    && let Err(error) = drives.call_off(&medium.drive, &medium.address).await
                {
                    tracing::warn!(host = %self.context.key.name, %error, "call off the test medium");
                }
                let why = not_yet.map_or_else(|failure| failure.message, |_| "it may still come in".to_owned());
                tracing::warn!(host = %self.context.key.name, "let go by force, a test medium may be left in the drive: {why}");
                return Ok(None);
            }
        }
        match self.journal.write(self.journal.data(), Purpose::Note).await {
            // A terminating namespace refuses new objects.
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
                Ok(None)
            }
            other => other.map(|()| None).map_err(Failure::from),
        }
    }
}

/// An earlier one is waited for.
fn may_come_first() -> Working {
    let step = "an earlier test medium may still come into the drive, and is taken out first".to_owned();
    Working { step, look_again: Duration::from_secs(LOOK_AGAIN), ..Working::default() }
}

const WAITS: &str = "waiting for the BMC to read the test medium";
const READS: &str = "the BMC reads the test medium";
const HIDDEN: &str = "the BMC does not show the drive of the test medium: it is looked for again";
const COMES: &str = "the BMC has not answered that the test medium is in: it is waited for, and taken out then";

fn drives(bmc: &dyn Bmc) -> Result<&dyn DataDrive, Failure> {
    bmc.data_drive().map_err(|lacking| of_bmc(lacking.keeps_from(TEST)))
}

/// Scheme, host and port of an address, without what is secret of it.
fn server_of(url: &str) -> String {
    Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// Drive or machine are somebody's: nothing was done.
fn taken(why: &str) -> Failure {
    let mut failure = Failure::new(Cause::MachineInUse, format!("{TEST}: {why}; the test was not made"))
        .advise("ask for it again when that is over");
    failure.retry = Retry::AfterChange;
    failure
}
