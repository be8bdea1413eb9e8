//! The medium of a host's DataImage, in a virtual drive that the agent's medium is not in.
//!
//! Address and drive are recorded before the medium goes in, and until it is out: whoever comes after a killed process knows what to look for, and
//! takes out nothing that somebody else has put in. It goes before the agent is booted, and with the system that was shown it.

use async_trait::async_trait;
use bmc::{Bmc, BmcError, DataDrive, Drive, ErrorKind, Insertion};
use jiff::Timestamp;
use provisioner::{Attached, Cause, DataImages, Failure, Outcome, Purpose, Verdict, Working};
use tokio::time::{Duration, Instant};

use crate::failures::of_bmc;
use crate::host::{NativeHost, shown};
use crate::identity::Effect;
use crate::live::Asked;
use crate::remembered::DataMedium;

/// Seconds between looks at a BMC that is inserting a medium.
const LOOK_AGAIN: u64 = 10;
const ATTACH: &str = "attach the data image";

#[async_trait]
impl DataImages for NativeHost {
    async fn check(&mut self, url: String) -> Outcome<()> {
        let address = self.data_address(&url)?;
        let (bmc, _) = self.proven(Effect::Look).await?;
        let drives = drives(bmc.as_ref())?;
        let drive = drives.choose(&address).await.map_err(|error| self.beside_live_iso(of_bmc(error)))?;
        self.leaves_to_live_iso(drives, &drive).await?;
        Ok(Verdict::Done(()))
    }

    async fn attached(&mut self) -> Outcome<Attached> {
        let Some(medium) = self.journal.data().data_medium else { return Ok(Verdict::Done(Attached::Nothing)) };
        let (bmc, _) = self.proven(Effect::Look).await?;
        let Some(content) = shown(drives(bmc.as_ref())?, &medium.drive, &medium.address).await.map_err(of_bmc)? else {
            return Ok(Verdict::Working(is_hidden()));
        };
        Ok(Verdict::Done(match content {
            Drive::Medium => Attached::Url(medium.url),
            Drive::Unknown => Attached::Something,
            Drive::Another | Drive::Empty if self.data_may_come(&medium) => {
                return Ok(Verdict::Working(still_inserting()));
            }
            Drive::Another | Drive::Empty => Attached::Nothing,
        }))
    }

    async fn attach(&mut self, url: String) -> Outcome<()> {
        let address = self.data_address(&url)?;
        let (bmc, _) = self.proven(Effect::Boot).await?;
        if let Some(working) = self.test_medium_first_out(bmc.as_ref()).await? {
            return Ok(Verdict::Working(working));
        }
        let drives = drives(bmc.as_ref())?;
        let (drive, is_again, earlier) = match self.known_data(drives, &url, &address).await? {
            Known::In => return Ok(Verdict::Done(())),
            Known::Waits(working) => return Ok(Verdict::Working(working)),
            Known::Again(drive, asked) => (drive, true, asked),
            Known::Gone => {
                let chosen = drives.choose(&address).await;
                (chosen.map_err(|error| self.beside_live_iso(of_bmc(error)))?, false, None)
            }
        };
        self.leaves_to_live_iso(drives, &drive).await?;
        self.still_wanted().await?;
        let mut data = self.journal.data();
        data.data_medium =
            Some(DataMedium { url, address: address.clone(), drive: drive.clone(), asked: Some((self.context.now)()) });
        self.journal.write(data, Purpose::Intent).await?;
        self.live.timers().inserting_data = Asked::Unknown;
        match drives.put_in(&drive, &address).await {
            Ok(Insertion::Done) => {
                self.comes_no_more();
                // Else whoever comes after waited for it, if it was lost soon.
                self.write_what_came().await;
                Ok(Verdict::Done(()))
            }
            Ok(Insertion::Pending) => {
                self.live.timers().inserting_data = Asked::At(Instant::now());
                Ok(Verdict::Working(still_inserting()))
            }
            Err(error) if error.kind.is_definite_refusal() => {
                // BMCs refuse what they are asked while they read. An earlier request is not refused by that.
                self.may_come_since(earlier);
                let is_unfit = matches!(error.kind, ErrorKind::NotFound | ErrorKind::Unsupported);
                if !self.may_still_insert(Asked::Unknown, earlier) && (!is_again || is_unfit) {
                    // What is in the drive is not ours, also where that does not show it.
                    self.journal.note(|data| data.data_medium = None);
                }
                self.write_what_came().await;
                Err(not_attached(error))
            }
            // It may have been heard. The next call looks, and asks again.
            Err(error) => {
                self.live.timers().inserting_data = Asked::Lost;
                Err(not_attached(error))
            }
        }
    }

    async fn detach(&mut self) -> Outcome<()> {
        if self.journal.data().data_medium.is_none() {
            return Ok(Verdict::Done(()));
        }
        let (bmc, _) = self.proven(Effect::Boot).await?;
        self.still_wanted().await?;
        if let Some(working) = self.data_medium_out(bmc.as_ref(), false).await? {
            return Ok(Verdict::Working(working));
        }
        let data = self.journal.data();
        self.journal.write(data, Purpose::Note).await?;
        Ok(Verdict::Done(()))
    }
}

impl NativeHost {
    /// What becomes of the medium that is recorded, before the one of this address goes in.
    async fn known_data(&self, drives: &dyn DataDrive, url: &str, address: &str) -> Result<Known, Failure> {
        if let Some(before) = self.journal.data().data_medium {
            let same = before.url == url && before.address == address;
            let here = self.live.timers().inserting_data;
            let asked = matches!(here, Asked::At(_));
            let Some(there) = shown(drives, &before.drive, &before.address).await.map_err(of_bmc)? else {
                return Ok(Known::Waits(is_hidden()));
            };
            match there {
                Drive::Medium if same => {
                    self.comes_no_more();
                    return Ok(Known::In);
                }
                // Another one's insertion is waited for, too: it would come in after this one. What the drive shows until then may be gone, or
                // somebody else's.
                Drive::Empty | Drive::Another | Drive::Unknown if self.data_may_come(&before) => {
                    // An answer that was lost may be one to a request that was: it is asked again, for the same drive.
                    if !same || here != Asked::Lost || there == Drive::Another {
                        return Ok(Known::Waits(still_inserting()));
                    }
                }
                // It is in by the BMC's word; or a BMC that does not show it has had the time to refuse it.
                Drive::Unknown if same && (asked || before.asked.is_none()) => {
                    self.comes_no_more();
                    return Ok(Known::In);
                }
                Drive::Medium | Drive::Unknown if !same => {
                    self.still_wanted().await?;
                    drives.take_out(&before.drive, &before.address).await.map_err(of_bmc)?;
                }
                Drive::Empty | Drive::Another if same && asked => {
                    self.still_wanted().await?;
                    // It would come in when nobody waits for it any more.
                    drives.call_off(&before.drive, &before.address).await.map_err(of_bmc)?;
                    self.comes_no_more();
                    let text = "attach the data image: the BMC was asked to put it in, has not answered that it is, and shows it in no drive";
                    return Err(Failure::new(Cause::BmcRefused, text).advise(
                        "check that the image is there, and that the BMC reaches its server; it is tried again",
                    ));
                }
                Drive::Empty | Drive::Another if !same && before.asked.is_some() => {
                    self.still_wanted().await?;
                    drives.call_off(&before.drive, &before.address).await.map_err(of_bmc)?;
                }
                Drive::Another | Drive::Empty | Drive::Medium | Drive::Unknown => {}
            }
            if same && there == Drive::Unknown {
                // As it may be in, it is put in anew. A BMC that has nothing to eject refuses that.
                self.still_wanted().await?;
                drives.call_off(&before.drive, &before.address).await.map_err(of_bmc)?;
            }
            // What is somebody else's stays in its drive.
            if same && there != Drive::Another {
                return Ok(Known::Again(before.drive, before.asked));
            }
        }
        Ok(Known::Gone)
    }

    /// Takes out the medium that is recorded, if it still is in its drive; why it waits where that shows none, or another, and the BMC may still be putting
    /// ours in: it would come in when nobody knows of it any more. That it is out is durable with the next write of the journal: until then it is looked for
    /// again. `at_once` waits for nothing.
    pub async fn data_medium_out(&self, bmc: &dyn Bmc, at_once: bool) -> Result<Option<Working>, Failure> {
        let Some(medium) = self.journal.data().data_medium else { return Ok(None) };
        // Without a drive there is no medium.
        if let Ok(drives) = bmc.data_drive() {
            let Some(there) = shown(drives, &medium.drive, &medium.address).await.map_err(of_bmc)? else {
                if !at_once {
                    return Ok(Some(is_hidden()));
                }
                let text = "the BMC does not show the drive of the data image, which may be left in it";
                return Err(Failure::new(Cause::BmcRefused, text));
            };
            match there {
                Drive::Medium => drives.take_out(&medium.drive, &medium.address).await.map_err(of_bmc)?,
                Drive::Empty | Drive::Another | Drive::Unknown if !at_once && self.data_may_come(&medium) => {
                    let text = "the BMC was asked to put the data image in and may still do so: it is taken out then";
                    return Ok(Some(looks_again(text)));
                }
                Drive::Empty | Drive::Another if medium.asked.is_some() => {
                    drives.call_off(&medium.drive, &medium.address).await.map_err(of_bmc)?;
                }
                Drive::Unknown => drives.take_out(&medium.drive, &medium.address).await.map_err(of_bmc)?,
                // Another may be somebody else's.
                Drive::Empty | Drive::Another => {}
            }
        }
        self.live.timers().inserting_data = Asked::Unknown;
        self.journal.note(|data| data.data_medium = None);
        Ok(None)
    }

    fn data_address(&self, url: &str) -> Result<String, Failure> {
        self.read_by_bmc(url, ATTACH, "the DataImage's spec.url")
    }

    /// Writes what has become of an insertion, if that can be done: else it is waited for.
    async fn write_what_came(&self) {
        let data = self.journal.data();
        if let Err(error) = self.journal.write(data, Purpose::Note).await {
            tracing::debug!(host = %self.context.key.name, %error, "record what has become of the data image");
        }
    }

    /// Notes that it is in, or was refused.
    fn comes_no_more(&self) {
        self.may_come_since(None);
    }

    /// Notes since when it may come, if it may.
    fn may_come_since(&self, asked: Option<Timestamp>) {
        self.live.timers().inserting_data = Asked::Unknown;
        if self.journal.data().data_medium.is_some_and(|medium| medium.asked != asked) {
            self.journal.note(|data| {
                if let Some(medium) = data.data_medium.as_mut() {
                    medium.asked = asked;
                }
            });
        }
    }

    /// Whether the BMC may still put it in, by the record: the process that has asked it may be gone.
    fn data_may_come(&self, medium: &DataMedium) -> bool {
        let here = self.live.timers().inserting_data;
        self.may_still_insert(here, medium.asked)
    }

    /// Whether a BMC that was asked to put a medium in may still do so: by what this process has seen, or by the record of when it was asked.
    pub fn may_still_insert(&self, here: Asked, recorded: Option<Timestamp>) -> bool {
        let limit = self.shared.settings.timing.insertion;
        // The clock of who has asked may be a little ahead of this one, and either may jump.
        let young = |since| (self.context.now)().duration_since(since).unsigned_abs() < limit;
        matches!(here, Asked::At(since) if since.elapsed() < limit) || recorded.is_some_and(young)
    }
}

fn drives(bmc: &dyn Bmc) -> Result<&dyn DataDrive, Failure> {
    bmc.data_drive().map_err(|lacking| of_bmc(lacking.keeps_from(ATTACH)))
}

/// What becomes of the medium that is recorded, when one is to be put in.
enum Known {
    /// It is that one, and is in.
    In,
    /// Nothing is put in before that.
    Waits(Working),
    /// It is that one, and this drive is asked for it again; since when it may come from an earlier request, or might have.
    Again(String, Option<Timestamp>),
    /// It is in nobody's way.
    Gone,
}

fn still_inserting() -> Working {
    looks_again("the BMC has not answered that the data image is in")
}

fn is_hidden() -> Working {
    looks_again("the BMC does not show the drive of the data image: it is looked for again")
}

fn looks_again(step: &str) -> Working {
    let look_again = Duration::from_secs(LOOK_AGAIN);
    Working { step: step.to_owned(), look_again, ..Working::default() }
}

/// The failure of an insertion. A BMC that refuses a medium has often tried to read it first.
fn not_attached(error: BmcError) -> Failure {
    let refused = error.kind.is_refusal() && error.kind != ErrorKind::Unsupported;
    let failure = of_bmc(error);
    if refused {
        failure.advise("check that the image is there, and that the BMC reaches its server; it is tried again")
    } else {
        failure
    }
}
