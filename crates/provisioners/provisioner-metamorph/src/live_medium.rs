//! The live ISO in the drive that the machine boots from. The BMC reads it at its user's address itself, so that it survives this server.
//!
//! Address and drive are recorded before it goes in, and until it is out. It is in, and the boot source is set, before each start that is ordered here: a
//! restart of a BMC takes media out, and many BMCs keep a boot source for one start only. What somebody else has put into the drive is left there. One that
//! a BMC may still be putting in is waited for before the host goes on without it: it would come in when nobody knows of it any more.

use bmc::{Bmc, BmcError, DataDrive, Drive, ErrorKind, Insertion, Lasting};
use boot_media::derive;
use jiff::Timestamp;
use provisioner::{Cause, Deployed, Failure, Finding, HealthLevel, Method, Purpose, Retry, Working};
use tokio::time::{Duration, Instant};

use crate::failures::of_bmc;
use crate::host::{NativeHost, shown};
use crate::identity::Effect;
use crate::live::Asked;
use crate::media::MediaStore;
use crate::remembered::LiveMedium;

/// Seconds between looks at a BMC that is inserting a medium.
const LOOK_AGAIN: u64 = 10;
/// How often a running machine's ISO is looked for.
const SEEN_EVERY: Duration = Duration::from_secs(300);
/// Longest address that BMCs are given, in bytes.
const MAX_URL: usize = 2048;
/// What failures of a start from it begin with.
pub const BOOT_LIVE: &str = "boot the live ISO";
/// What its owner is told where the BMC keeps the boot source for one start only.
pub const BOOTS_ONCE: &str = "the BMC is not seen to keep the boot source for more than one start: it is set before each start that is ordered here, but a system that restarts by itself starts whatever the firmware finds, such as a disk; if the live system is gone then, reboot the host (annotation reboot.metal3.io)";

impl NativeHost {
    /// The live ISO that the machine is to boot at each start, if there is one.
    pub fn live_boots(&self) -> Option<LiveMedium> {
        self.journal.data().live_medium.filter(|medium| medium.boots)
    }

    /// The address that the BMC is given for a user's medium, or why it cannot be: `what` needs it, `field` has it.
    pub fn read_by_bmc(&self, url: &str, what: &str, field: &str) -> Result<String, Failure> {
        let refuse = |text: String, advice: &str| {
            let mut failure = Failure::new(Cause::InvalidRequest, text).advise(advice);
            failure.retry = Retry::AfterChange;
            failure
        };
        let scheme = url.split("://").next().unwrap_or_default().to_ascii_lowercase();
        let parsed = url::Url::parse(url).ok().filter(|_| url.len() <= MAX_URL && !url.contains('\\'));
        if parsed.is_none() || !matches!(scheme.as_str(), "http" | "https") {
            let text = format!("{what}: BMCs read media by http and https, and this address is neither");
            return Err(refuse(text, &format!("correct {field}")));
        }
        let address = self.bases.image_url(&self.shared.settings.bases, url);
        match self.local(&address) {
            Some(refused) => Err(refuse(format!("{what}: {refused}"), &refused.advice(field))),
            None => Ok(address),
        }
    }

    /// Takes over what the host's status tells of a live system whose record was lost, so that the next start is from it again, and it is taken out
    /// again. Noted until the next write; nothing is done to the machine.
    pub fn recall_live(&self, deployed: Option<&Deployed>) {
        if self.journal.data().live_medium.is_none()
            && let Some(Some(url)) = live_named(deployed)
        {
            self.note_named(url);
        }
    }

    fn note_named(&self, url: String) {
        // An address that is not allowed any more is told at the next start.
        let address = self.bases.image_url(&self.shared.settings.bases, &url);
        let medium = LiveMedium { url, address, boots: true, ..LiveMedium::default() };
        self.journal.note(|data| data.live_medium = Some(medium));
    }

    /// Whether a start is from a live ISO, or must not be any more: by the host's status, and by the record where that does not say.
    pub fn live_matters(&self) -> bool {
        let is_told = live_named(self.context.deployed.as_ref()).is_some();
        self.live_boots().is_some() || is_told && self.journal.data().live_medium.is_some()
    }

    /// Before a start of a machine that is at rest: the recorded ISO is taken out unless it is the one that the host's status names. A record or a
    /// status may have been restored from an earlier time.
    async fn agrees_with_status(&self, bmc: &dyn Bmc) -> Result<Option<Working>, Failure> {
        let told = live_named(self.context.deployed.as_ref());
        let (Some(named), Some(medium)) = (told, self.journal.data().live_medium) else { return Ok(None) };
        if named.as_ref() == Some(&medium.url) && medium.boots {
            return Ok(None);
        }
        self.still_wanted().await?;
        if let Some(working) = self.live_medium_out(bmc).await? {
            return Ok(Some(working));
        }
        if let Some(url) = named {
            self.note_named(url);
        }
        let data = self.journal.data();
        self.journal.write(data, Purpose::Intent).await?;
        Ok(None)
    }

    /// Makes a machine at rest ready for its next start. Why it is not yet.
    pub async fn ready_to_start(&self, bmc: &dyn Bmc) -> Result<Option<Working>, Failure> {
        match self.agrees_with_status(bmc).await? {
            None => self.live_ready(bmc).await,
            waiting => Ok(waiting),
        }
    }

    /// Where the medium of the newest boot of the agent is, or was, on offer; nowhere if there was none, or its key is gone.
    pub fn agent_addresses(&self) -> Vec<String> {
        let boot = self.journal.latest_boot();
        let root = boot.as_ref().and_then(|boot| self.shared.settings.keys.of(boot));
        let known = boot.as_ref().and_then(|boot| Some((boot.generation, boot.medium.as_ref()?))).zip(root);
        let urls =
            known.map(|((generation, digest), root)| MediaStore::addresses(&self.place(&root), generation, digest));
        urls.unwrap_or_default()
    }

    /// Takes an agent's medium out of the drive, if one still is in it: that of the newest boot, or any other of this server, whose record or key may be
    /// gone.
    pub async fn agent_medium_out(&self, bmc: &dyn Bmc) -> Result<(), Failure> {
        let Some(media) = bmc.virtual_media().ok().filter(|_| !self.live.timers().ejected) else { return Ok(()) };
        let boot = self.journal.latest_boot();
        let there = match media.drive(&self.agent_addresses()).await.map_err(of_bmc)? {
            Drive::Another => media.drive_with(&|image| self.serves(image)).await.map_err(of_bmc)?,
            there => there,
        };
        match there {
            // Somebody else's. The agent's may come in yet.
            Drive::Another => return Ok(()),
            Drive::Unknown if boot.is_none() => return Ok(()),
            Drive::Medium | Drive::Unknown => media.eject().await.map_err(of_bmc)?,
            Drive::Empty => {}
        }
        // An empty drive may stand in for one that the BMC hides for a moment, with the medium in it.
        self.live.timers().ejected = there != Drive::Empty;
        Ok(())
    }

    /// Whether this is the address of a medium that this server makes.
    fn serves(&self, image: &str) -> bool {
        let bases = self.bases.media.iter().chain(&self.shared.settings.bases.media);
        let mut paths = bases.filter_map(|base| image.strip_prefix(base.trim_end_matches('/')));
        paths.any(|path| derive::path_id(path).is_some())
    }

    /// Has the next start boot the recorded live ISO: it is in its drive, and the boot source is set. Why that is not so yet, while the BMC reads it.
    pub async fn live_ready(&self, bmc: &dyn Bmc) -> Result<Option<Working>, Failure> {
        let Some(medium) = self.journal.data().live_medium else { return Ok(None) };
        if self.is_live_ready() {
            return Ok(None);
        }
        if let Some(why) = self.live_in(bmc, &medium).await? {
            return Ok(Some(looks_again(why)));
        }
        self.still_wanted().await?;
        let device = bmc.boot_device().map_err(|lacking| of_bmc(lacking.keeps_from(BOOT_LIVE)))?;
        let once = device.each_from_medium().await.map_err(failed)? == Lasting::NextBoot;
        if once && !medium.once {
            self.context.machine.boots_once(BOOTS_ONCE).await;
        }
        if once != medium.once {
            self.journal.note(|data| {
                if let Some(medium) = data.live_medium.as_mut() {
                    medium.once = once;
                }
            });
        }
        let mut timers = self.live.timers();
        (timers.live_ready, timers.live_seen) = (Some(Instant::now()), None);
        Ok(None)
    }

    /// Whether it has been made ready for a start that may not have happened yet. A BMC that has lost an order is given it again soon.
    pub fn is_live_ready(&self) -> bool {
        let ready = self.live.timers().live_ready;
        ready.is_some_and(|at| at.elapsed() < self.shared.settings.timing.power_change)
    }

    /// Puts it in unless it is. Why it is not in yet, while the BMC reads it.
    async fn live_in(&self, bmc: &dyn Bmc, medium: &LiveMedium) -> Result<Option<&'static str>, Failure> {
        let drives = drives(bmc)?;
        let here = self.live.timers().inserting_live;
        let limit = self.shared.settings.timing.insertion;
        // Since when it may come from an earlier request, whatever is answered to the next one.
        let mut earlier = None;
        let there = match medium.drive.as_str() {
            "" => Some(Drive::Empty),
            drive => shown(drives, drive, &medium.address).await.map_err(failed)?,
        };
        let Some(there) = there else { return Ok(Some(HIDDEN)) };
        match there {
            // It is about to go in, and has not been asked for by this process: what is shown may be one that was ejected.
            Drive::Medium if medium.asked && !matches!(here, Asked::At(_)) && !medium.boots => {}
            Drive::Medium => {
                self.live_comes_since(None);
                return Ok(None);
            }
            // A BMC that does not show it has the time to refuse it.
            Drive::Unknown if !matches!(here, Asked::Ahead | Asked::Lost) && self.may_still_come(medium) => {
                return Ok(Some(READS));
            }
            // It has been put in by this process, or long ago.
            Drive::Unknown if matches!(here, Asked::At(_)) || medium.boots => {
                self.live_comes_since(None);
                return Ok(None);
            }
            Drive::Unknown => {
                earlier = self.comes_from_a_lost(medium);
                self.still_wanted().await?;
                drives.take_out(&medium.drive, &medium.address).await.map_err(failed)?;
            }
            Drive::Another => return Err(another()),
            Drive::Empty if here == Asked::Ahead => {}
            Drive::Empty if here == Asked::Lost => earlier = self.comes_from_a_lost(medium),
            Drive::Empty if self.may_still_come(medium) => return Ok(Some(READS)),
            Drive::Empty if matches!(here, Asked::At(_)) => {
                self.still_wanted().await?;
                // It would come in when nobody waits for it any more.
                drives.call_off(&medium.drive, &medium.address).await.map_err(failed)?;
                self.live_comes_since(None);
                let text =
                    format!("{BOOT_LIVE}: {} s after the BMC was asked, it is not in its drive", limit.as_secs());
                return Err(Failure::new(Cause::BmcRefused, text).advise(REACH));
            }
            Drive::Empty => {}
        }
        // The address may have been allowed when it was recorded.
        let address = self.read_by_bmc(&medium.url, BOOT_LIVE, "spec.image.url")?;
        let drive = drives.boot_drive(&address).await.map_err(failed)?;
        let now = (self.context.now)();
        let just = Duration::from_secs(LOOK_AGAIN);
        let is_recorded = here == Asked::Ahead
            && medium.asked
            && medium.since.is_some_and(|since| now.duration_since(since).unsigned_abs() < just)
            && (&medium.drive, &medium.address) == (&drive, &address);
        if !is_recorded {
            let since = Some(now);
            let (drive, address) = (drive.clone(), address.clone());
            let mut data = self.journal.data();
            data.live_medium = Some(LiveMedium { drive, address, asked: true, since, ..medium.clone() });
            self.journal.write(data, Purpose::Intent).await?;
            // Until it is asked for, nothing is waited for, unless it may come from an earlier request.
            self.live.timers().inserting_live = if earlier.is_some() { Asked::Lost } else { Asked::Ahead };
        }
        self.still_wanted().await?;
        self.live.timers().inserting_live = Asked::At(Instant::now());
        match drives.put_in(&drive, &address).await {
            Ok(Insertion::Done) => {
                self.live_comes_since(None);
                Ok(None)
            }
            Ok(Insertion::Pending) => Ok(Some(READS)),
            Err(error) if error.kind.is_definite_refusal() => {
                // BMCs refuse what they are asked while they read. An earlier request is not refused by that.
                self.live_comes_since(earlier);
                Err(not_inserted(error))
            }
            // It may have been heard. The next call looks, and asks again.
            Err(error) => {
                self.live.timers().inserting_live = Asked::Lost;
                Err(not_inserted(error))
            }
        }
    }

    /// Notes that it is about to be asked for, unless it may come already. The next write of the record says so.
    pub fn live_is_ahead(&self) {
        let is_asked = self.journal.data().live_medium.is_some_and(|medium| medium.asked);
        if !is_asked {
            self.live_comes_since(Some((self.context.now)()));
            self.live.timers().inserting_live = Asked::Ahead;
        }
    }

    /// Notes since when the BMC may put it in, if it may.
    fn live_comes_since(&self, since: Option<Timestamp>) {
        self.live.timers().inserting_live = Asked::Unknown;
        let now = (since.is_some(), since);
        if self.journal.data().live_medium.is_some_and(|medium| (medium.asked, medium.since) != now) {
            self.journal.note(|data| {
                if let Some(medium) = data.live_medium.as_mut() {
                    (medium.asked, medium.since) = now;
                }
            });
        }
    }

    /// The BMC has refused to put it in, and it is not in: it has never been where the firmware could boot it.
    pub async fn has_refused_live(&self, bmc: &dyn Bmc) -> bool {
        let Some(medium) = self.journal.data().live_medium.filter(|medium| !medium.asked) else { return false };
        let Ok(drives) = bmc.data_drive() else { return false };
        matches!(drives.content(&medium.drive, &medium.address).await, Ok(Drive::Empty | Drive::Another))
    }

    /// Whether the BMC may still be putting in what it was asked for, by the record: the process that has asked it may be gone.
    fn may_still_come(&self, medium: &LiveMedium) -> bool {
        let here = self.live.timers().inserting_live;
        medium.asked && self.may_still_insert(here, medium.since)
    }

    /// Since when it may come from a request whose answer was lost.
    fn comes_from_a_lost(&self, medium: &LiveMedium) -> Option<Timestamp> {
        let is_lost = self.live.timers().inserting_live == Asked::Lost;
        medium.since.filter(|_| is_lost && self.may_still_come(medium))
    }

    /// Takes out the live ISO that is recorded, if it still is in its drive, and leaves starts to the firmware again. That it is out is durable with the
    /// next write of the journal: until then it is looked for again. Why it is not out yet, while the BMC may still be putting it in.
    pub async fn live_medium_out(&self, bmc: &dyn Bmc) -> Result<Option<Working>, Failure> {
        self.takes_live_out(bmc, false).await
    }

    /// The same; `at_once` waits for nothing.
    pub async fn takes_live_out(&self, bmc: &dyn Bmc, at_once: bool) -> Result<Option<Working>, Failure> {
        let Some(medium) = self.journal.data().live_medium else { return Ok(None) };
        // Without a drive there is no medium.
        if let Ok(drives) = bmc.data_drive() {
            let is_recalled = medium.drive.is_empty();
            let drive = if is_recalled { drives.boot_drive(&medium.address).await } else { Ok(medium.drive.clone()) };
            match drive {
                Ok(drive) => {
                    let Some(there) = shown(drives, &drive, &medium.address).await.map_err(of_bmc)? else {
                        if !at_once {
                            return Ok(Some(looks_again(HIDDEN)));
                        }
                        let text = "the BMC does not show the drive of the live ISO, which may be left in it";
                        return Err(Failure::new(Cause::BmcRefused, text));
                    };
                    if medium.asked && medium.since.is_none() {
                        // An earlier version has not recorded when: then it counts from the first look.
                        let mut timers = self.live.timers();
                        if !matches!(timers.inserting_live, Asked::At(_)) {
                            timers.inserting_live = Asked::At(Instant::now());
                        }
                    }
                    // What it shows besides may be somebody's, or long gone; one that shows nothing may have it, or get it.
                    let is_elsewhere = there != Drive::Medium && !(is_recalled && there == Drive::Unknown);
                    if is_elsewhere && !at_once && self.may_still_come(&medium) {
                        let text = "the BMC was asked to put the live ISO in and may still do so: it is taken out then";
                        return Ok(Some(looks_again(text)));
                    }
                    // What a BMC does not show may be anybody's, where this server has not put it in by its record.
                    let is_ours = there == Drive::Medium || there == Drive::Unknown && !is_recalled;
                    if is_ours {
                        drives.take_out(&drive, &medium.address).await.map_err(of_bmc)?;
                    } else if medium.asked {
                        drives.call_off(&drive, &medium.address).await.map_err(of_bmc)?;
                    }
                }
                // Another medium is in it.
                Err(error) if error.kind == ErrorKind::Unsupported => {}
                Err(error) => return Err(of_bmc(error)),
            }
        }
        if let Ok(device) = bmc.boot_device() {
            device.normally().await.map_err(of_bmc)?;
        }
        {
            let mut timers = self.live.timers();
            (timers.inserting_live, timers.live_ready, timers.live_seen) = (Asked::Unknown, None, None);
        }
        self.journal.note(|data| data.live_medium = None);
        Ok(None)
    }

    /// Why a machine that runs its live system has lost its ISO, if it has: looked at now and then.
    pub async fn live_lost(&self) -> Option<Finding> {
        let medium = self.live_boots()?;
        let seen = self.live.timers().live_seen;
        let instead = match seen {
            Some((at, instead)) if at.elapsed() < SEEN_EVERY => instead,
            _ => {
                let looked = async {
                    let (bmc, _) = self.proven(Effect::Look).await?;
                    content_of(drives(bmc.as_ref())?, &medium).await.map_err(of_bmc)
                };
                let instead = match looked.await {
                    Ok(Drive::Medium | Drive::Unknown) => None,
                    Ok(there) => Some(there),
                    Err(error) => {
                        tracing::debug!(host = %self.context.key.name, %error, "the live ISO's drive cannot be looked at");
                        seen.and_then(|(_, instead)| instead)
                    }
                };
                self.live.timers().live_seen = Some((Instant::now(), instead));
                instead
            }
        };
        lost(instead?)
    }

    /// Fails if a data image would take the drive that belongs to the live ISO.
    pub async fn leaves_to_live_iso(&self, drives: &dyn DataDrive, chosen: &str) -> Result<(), Failure> {
        let Some(medium) = self.journal.data().live_medium else { return Ok(()) };
        let own = match medium.drive.as_str() {
            "" => drives.boot_drive(&medium.address).await.ok(),
            drive => Some(drive.to_owned()),
        };
        if own.as_deref() != Some(chosen) {
            return Ok(());
        }
        let text =
            "attach the data image: the only drive that is left for it is the one that the host's live ISO belongs in";
        Err(Failure::new(Cause::BmcRefused, text).advise("put what it has into the live ISO, and delete the DataImage"))
    }

    /// The failure to find a drive for a data image, told of a host whose live ISO has one.
    pub fn beside_live_iso(&self, failure: Failure) -> Failure {
        if self.journal.data().live_medium.is_none() || failure.cause != Cause::BmcRefused {
            return failure;
        }
        failure.advise(
            "a drive is the live ISO's: with no other one for it, put what the data image has into the live ISO",
        )
    }
}

/// Why it is not in yet.
const READS: &str = "the BMC has not answered that the live ISO is in";
/// Why that is not known.
const HIDDEN: &str = "the BMC does not show the drive of the live ISO: it is looked for again";
/// Advice where a BMC does not put it in.
const REACH: &str = "check that spec.image.url is right, and that the BMC reaches its server; it is tried again";

/// Work that is looked at again soon.
fn looks_again(step: &str) -> Working {
    let look_again = Duration::from_secs(LOOK_AGAIN);
    Working { step: step.to_owned(), look_again, ..Working::default() }
}

/// The live ISO that is on the machine by the host's status, or that none is; `None` where the status does not say.
fn live_named(deployed: Option<&Deployed>) -> Option<Option<String>> {
    let deployed = deployed.filter(|deployed| !deployed.externally)?;
    let image = deployed.image.as_ref().filter(|_| deployed.method == Method::LiveIso);
    Some(image.map(|image| image.url.clone()))
}

/// Content of its drive, which is looked for where the record was lost.
async fn content_of(drives: &dyn DataDrive, medium: &LiveMedium) -> Result<Drive, BmcError> {
    if !medium.drive.is_empty() {
        return drives.content(&medium.drive, &medium.address).await;
    }
    match drives.boot_drive(&medium.address).await {
        Ok(drive) => drives.content(&drive, &medium.address).await,
        Err(error) if error.kind == ErrorKind::Unsupported => Ok(Drive::Another),
        Err(error) => Err(error),
    }
}

fn drives(bmc: &dyn Bmc) -> Result<&dyn DataDrive, Failure> {
    bmc.data_drive().map_err(|lacking| of_bmc(lacking.keeps_from(BOOT_LIVE)))
}

/// A failed exchange with the BMC on the way to a start from it.
pub fn failed(error: BmcError) -> Failure {
    let mut failure = of_bmc(error);
    failure.message = format!("{BOOT_LIVE}: {}", failure.message);
    failure
}

/// The failure of an insertion. A BMC that refuses a medium has often tried to read it first.
fn not_inserted(error: BmcError) -> Failure {
    let refused = error.kind.is_refusal() && error.kind != ErrorKind::Unsupported;
    let failure = failed(error);
    if refused { failure.advise(REACH) } else { failure }
}

/// Somebody else's medium is in the drive when the machine is to start.
fn another() -> Failure {
    let text = format!("{BOOT_LIVE}: another medium is in the drive that it belongs in, and is left there");
    Failure::new(Cause::BmcRefused, text)
        .advise("have whoever put it there take it out, or do so at the BMC; it is tried again")
}

/// What is told of a running system whose ISO is not in its drive any more.
fn lost(instead: Drive) -> Option<Finding> {
    let (found, advice) = match instead {
        Drive::Empty => (
            "its drive is empty, as after a restart of the BMC",
            "the system goes on as far as it needs no more of it; it is put in again at the next start that is ordered here (annotation reboot.metal3.io)",
        ),
        Drive::Another => (
            "another medium is in its drive",
            "take that one out at the BMC: it is left there, and the next start waits for that",
        ),
        Drive::Medium | Drive::Unknown => return None,
    };
    let message = format!("the live ISO is not in the machine any more: {found}");
    Some(Finding { level: HealthLevel::Warning, component: String::new(), message, advice: Some(advice.to_owned()) })
}
