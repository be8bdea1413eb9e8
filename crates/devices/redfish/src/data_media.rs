//! A medium of the machine's user: a data image in a drive that the boot medium is not in, or a live ISO in the boot medium's own.
//!
//! The drives are those of the collection in which the boot medium's drive is: some BMCs (iDRAC) show the same drive in the system's collection and
//! in the manager's, under two names.

use bmc::{BmcError, Drive, ErrorKind, Insertion};
use tokio::time::Duration;
use url::Url;

use crate::client::Client;
use crate::exchange::Fault;
use crate::media::{Inserted, MAX_SLOTS, hide, hide_in_other, scheme};
use crate::missing::{HIDDEN, Missing};
use crate::oem_media::unfit_drive;
use crate::resources::{MediaState, Slot, cd_rank, drive_name};
use terms::clean;

const ATTACH: &str = "put the medium into its drive";
const LOOK: &str = "look for the medium in its drive";
const DETACH: &str = "take the medium out of its drive";

/// The collection that a drive is in.
fn list_of(path: &str) -> &str {
    path.trim_end_matches('/').rsplit_once('/').map_or("", |(list, _)| list)
}

/// Whether the drive reads addresses of this scheme, as far as the BMC says.
fn reads(slot: &Slot, url: &str) -> bool {
    slot.protocols.is_empty() || slot.protocols.iter().any(|name| name.eq_ignore_ascii_case(scheme(url)))
}

/// Addresses of ejected media that are remembered.
const MAX_EJECTED: usize = 8;

/// Whether the image that a BMC shows is the one at this address. Some show only its last part, or the beginning of the address.
fn is_at(image: &str, url: &str) -> bool {
    const TELLING: usize = 16;
    if image.contains("://") {
        return image == url
            || image.len() >= TELLING && url.starts_with(image)
            || bare(image).is_some_and(|image| Some(image) == bare(url));
    }
    let bare = url.split(['?', '#']).next().unwrap_or(url);
    let last = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
    !image.is_empty() && (image == url || last(image) == last(bare))
}

/// The address without user, password and default port, which some BMCs leave out.
fn bare(address: &str) -> Option<Url> {
    let mut address = Url::parse(address).ok()?;
    address.set_username("").ok()?;
    address.set_password(None).ok()?;
    Some(address)
}

impl Client {
    /// The drive for a data image: see [`bmc::DataDrive::choose`].
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when no drive is free, or none reads such addresses.
    pub async fn choose_data_drive(&self, url: &str) -> Result<String, BmcError> {
        let hidden = |fault| self.without_media(fault, Some(url));
        let boot = self.cd_slot(ATTACH).await.map_err(hidden)?;
        self.is_no_stand_in(&boot)?;
        let stale = self.core.state().quirks.inserted_is_stale();
        let beside = self.drives_beside(ATTACH, &boot).await.map_err(hidden)?;
        let count = beside.len() + 1;
        let (mut free, full): (Vec<Slot>, Vec<Slot>) = beside.into_iter().partition(|slot| self.is_free(&slot.state));
        // Where `Inserted` stays true after an eject, what such a drive shows may be gone: the BMC tells when something is to go in. The boot medium's drive
        // is left alone for it.
        free.extend(full.into_iter().filter(|_| stale));
        free.extend(Some(boot).filter(|boot| !boot.state.is_occupied()));
        if free.is_empty() {
            let drives = if count == 1 {
                "one virtual drive for CDs".to_owned()
            } else {
                format!("{count} virtual drives for CDs")
            };
            let each = if count == 1 { "it" } else { "each of them" };
            let found = format!("the BMC has {drives}, and a medium is in {each} already");
            let error = self.core.error(ErrorKind::Unsupported, ATTACH, found);
            return Err(error.advise("eject the medium at the BMC, if somebody else has put it in"));
        }
        if let Some(slot) = free.iter().find(|slot| reads(slot, url)) {
            return Ok(slot.path.clone());
        }
        let refused = self.reads_by_others(free.iter(), url);
        Err(refused
            .advise("serve the image by one of these protocols, and name that address in the DataImage's spec.url"))
    }

    /// The boot medium's drive, for a medium that the machine boots from: see [`bmc::DataDrive::boot_drive`].
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when another medium is in it, or it reads no such addresses.
    pub async fn choose_boot_drive(&self, url: &str) -> Result<String, BmcError> {
        let boot = self.cd_slot(ATTACH).await.map_err(|fault| self.without_media(fault, Some(url)))?;
        self.is_no_stand_in(&boot)?;
        let unnamed = self.core.state().quirks.inserted_is_stale() && boot.state.image.is_none();
        if !unnamed && !self.is_free(&boot.state) && !boot.state.image.as_deref().is_some_and(|image| is_at(image, url))
        {
            let found = "another medium is in the virtual drive that machines boot from";
            return Err(self
                .core
                .error(ErrorKind::Unsupported, ATTACH, found)
                .advise("have whoever put it there take it out, or do so at the BMC; it is tried again"));
        }
        if !reads(&boot, url) {
            let refused = self.reads_by_others(std::iter::once(&boot), url);
            return Err(
                refused.advise("serve the image by one of these protocols, and name that address in spec.image.url")
            );
        }
        Ok(boot.path)
    }

    /// None of these drives reads addresses of this kind.
    fn reads_by_others<'a>(&self, drives: impl Iterator<Item = &'a Slot>, url: &str) -> BmcError {
        let mut protocols: Vec<&str> = drives.flat_map(|slot| &slot.protocols).map(String::as_str).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let protocols = clean(&protocols.join(", "), 200);
        let found = format!("the BMC mounts by {protocols} alone, and the image is served by {}", scheme(url));
        self.core.error(ErrorKind::Unsupported, ATTACH, found)
    }

    /// See [`bmc::DataDrive::trust`].
    pub async fn trust_for_drive(&self, drive: &str, url: &str, certificate: &str) {
        if scheme(url) != "https" {
            return;
        }
        if let Ok(Some(slot)) = self.data_slot(ATTACH, drive).await {
            self.give_certificates(ATTACH, &slot, url, certificate).await;
        }
    }

    /// Inserts the medium; see [`bmc::DataDrive::put_in`].
    ///
    /// # Errors
    /// [`BmcError`], without the address.
    pub async fn insert_data_medium(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        self.insert_into_drive(drive, url, true).await
    }

    /// The same, and nothing is ejected for it; see [`bmc::DataDrive::put_into_empty`].
    ///
    /// # Errors
    /// [`BmcError`], without the address.
    pub async fn insert_beside_nothing(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        self.insert_into_drive(drive, url, false).await
    }

    async fn insert_into_drive(&self, drive: &str, url: &str, may_eject: bool) -> Result<Insertion, BmcError> {
        let put = async {
            let Some(slot) = self.data_slot(ATTACH, drive).await? else {
                let found = "the drive that is recorded for it is none of the BMC's virtual drives";
                return Err(self.core.error(ErrorKind::Unsupported, ATTACH, found).into());
            };
            let stale = self.core.state().quirks.inserted_is_stale();
            let there = slot.state.image.as_deref().is_some_and(|image| is_at(image, url));
            if slot.state.is_occupied() && !stale && there {
                return Ok(Inserted::Already);
            }
            // Where `Inserted` stays true after an eject, what the drive shows may be gone, or may be there: only the BMC knows, when something is
            // to go in. What is ejected for it is of the same address.
            let free = self.is_free(&slot.state);
            let may_be_gone = stale && (may_eject || there || slot.state.image.is_none());
            if !free && !may_be_gone {
                let found = "another medium has been put into the drive meanwhile";
                return Err(self.core.error(ErrorKind::Unsupported, ATTACH, found).into());
            }
            if stale && may_eject && there {
                self.eject_from(ATTACH, &slot).await?;
            }
            self.goes_in(url);
            // After a failure nothing is ejected: what is in may be somebody's.
            let shown = slot.state.image.as_deref().filter(|_| !free && !there);
            self.insert_one(ATTACH, &slot, url, true).await.map_err(|fault| Self::beside(fault, shown))
        };
        let inserted: Result<Inserted, Fault> = put.await;
        match inserted {
            Ok(Inserted::Now | Inserted::Already) => Ok(Insertion::Done),
            Ok(Inserted::Pending) => Ok(Insertion::Pending),
            Err(fault) => Err(self.without_media(fault, Some(url))),
        }
    }

    /// The failure of an insertion into a drive that showed this medium: it may be there.
    fn beside(fault: Fault, shown: Option<&str>) -> Fault {
        let Some(shown) = shown else { return fault };
        let urls = [shown.to_owned()];
        match fault {
            Fault::Refused(refusal) if refusal.error.kind.is_refusal() => {
                let mut error = hide(refusal.error, &urls);
                error.kind = ErrorKind::Unsupported;
                error.found.push_str("; the drive shows another medium, which may be in it or gone");
                Fault::Other(error.advise(
                    "check that the image is there, and that the BMC reaches its server; eject the medium at the BMC, if it is in and nobody needs it; it is tried again",
                ))
            }
            fault => Fault::Other(hide_in_other(fault.into(), &urls)),
        }
    }

    /// Whether nothing is in a drive, as far as can be seen: what was ejected here is gone, though some BMCs go on showing it.
    pub(crate) fn is_free(&self, state: &MediaState) -> bool {
        let is_gone = |image: &String| self.was_ejected(image);
        !state.is_occupied()
            || self.core.state().quirks.inserted_is_stale() && state.image.as_ref().is_some_and(is_gone)
    }

    /// Content of a drive that shows this.
    pub(crate) fn content_of(&self, state: &MediaState, is_it: impl Fn(&str) -> bool) -> Drive {
        match state.image.as_deref() {
            _ if state.is_occupied() && self.is_free(state) => Drive::Empty,
            Some(image) if state.is_occupied() && is_it(image) => Drive::Medium,
            Some(_) if state.is_occupied() => Drive::Another,
            _ if !state.is_occupied() && state.inserted.is_some() => Drive::Empty,
            _ => Drive::Unknown,
        }
    }

    /// Content of the drive; see [`bmc::DataDrive::content`].
    ///
    /// # Errors
    /// [`BmcError`]; `NotFound` while the BMC does not show the drive.
    pub async fn data_medium(&self, drive: &str, url: &str) -> Result<Drive, BmcError> {
        let state = match self.shown_slot(LOOK, drive).await {
            Ok(Some(slot)) => slot.state,
            Ok(None) => return Ok(Drive::Empty),
            Err(fault) => return Err(self.without_media(fault, Some(url))),
        };
        Ok(self.content_of(&state, |image| is_at(image, url)))
    }

    /// Ejects the medium, if it is in the drive; see [`bmc::DataDrive::take_out`], and [`bmc::DataDrive::call_off`] for one that `may_come`.
    ///
    /// # Errors
    /// [`BmcError`], without the address; `NotFound` while the BMC does not show the drive.
    pub async fn eject_data_medium(&self, drive: &str, url: &str, may_come: bool) -> Result<(), BmcError> {
        let hidden = |fault| self.without_media(fault, Some(url));
        let slot = match self.shown_slot(DETACH, drive).await {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(()),
            Err(fault) => return Err(hidden(fault)),
        };
        let stale = self.core.state().quirks.inserted_is_stale();
        let there = self.content_of(&slot.state, |image| is_at(image, url));
        match there {
            // Put in by somebody else, since the caller has looked.
            Drive::Another => return Ok(()),
            Drive::Empty if !stale && !may_come => return Ok(()),
            Drive::Empty | Drive::Medium | Drive::Unknown => {}
        }
        let shown = slot.state.image.as_deref();
        if let Err(error) = self.eject_from(DETACH, &slot).await.map_err(hidden) {
            // Nothing is in it.
            if may_come && there != Drive::Medium && error.kind.is_refusal() {
                return Ok(());
            }
            return Err(hide_in_other(error, shown.map(str::to_owned).as_slice()));
        }
        shown.into_iter().for_each(|url| self.came_out(url));
        Ok(())
    }

    /// The medium of this address was ejected.
    pub(crate) fn came_out(&self, url: &str) {
        self.goes_in(url);
        let mut state = self.core.state();
        if state.ejected_media.len() >= MAX_EJECTED {
            state.ejected_media.remove(0);
        }
        state.ejected_media.push(url.to_owned());
    }

    /// One of this address is to be put in.
    pub(crate) fn goes_in(&self, url: &str) {
        // What was shown of it may be another form of its address.
        self.core.state().ejected_media.retain(|ejected| !is_at(ejected, url) && !is_at(url, ejected));
    }

    /// Whether what a drive shows was ejected by this client: some BMCs go on showing it. A name alone may be another's.
    fn was_ejected(&self, image: &str) -> bool {
        image.contains("://") && self.core.state().ejected_media.iter().any(|ejected| is_at(image, ejected))
    }

    /// The drive of this name as it is now. Its name comes from a record that others may have edited: only a drive beside the boot medium's is used. Any
    /// other is `None`: it counts as not shown, as after an update of the BMC that shows the drives elsewhere, or while it hides those of its system.
    async fn data_slot(&self, what: &str, drive: &str) -> Result<Option<Slot>, Fault> {
        let boot = self.cd_slot(what).await?;
        if boot.path == drive {
            return Ok(Some(boot));
        }
        if list_of(drive) != list_of(&boot.path) || drive.contains(['?', '#']) || drive_name(drive).starts_with('.') {
            tracing::warn!(
                drive = clean(drive, 200),
                "the drive that is recorded for a medium is none of the BMC's virtual drives"
            );
            return Ok(None);
        }
        let reply = self.core.get(what, drive).await?;
        Ok(Some(Slot::read(drive, &reply.value)))
    }

    /// The drive for whoever has recorded that a medium is in it. One that the BMC does not show is an error at first: it may be hidden for a moment, with the
    /// medium in it. `None` if it has not been shown for long.
    async fn shown_slot(&self, what: &str, drive: &str) -> Result<Option<Slot>, Fault> {
        match self.data_slot(what, drive).await {
            Ok(None) => {}
            Err(fault) if fault.status() == Some(404) => {}
            Ok(Some(slot)) => {
                self.core.state().missing_drives.retain(|missing| missing.path != drive);
                return Ok(Some(slot));
            }
            Err(fault) => return Err(fault),
        }
        // What is known may be other drives, which stand in for these.
        self.core.state().slot = None;
        let waited = self.is_missed(drive);
        if waited < HIDDEN {
            let found = "the BMC does not show the virtual drive that is recorded for the medium";
            let error = self.core.error(ErrorKind::NotFound, what, found);
            return Err(error.advise("it is looked for again; restart the BMC if it should have the drive").into());
        }
        tracing::warn!(
            drive = clean(drive, 200),
            seconds = waited.as_secs(),
            "the drive that is recorded for a medium has not been shown by the BMC: it counts as gone, with what may be in it"
        );
        Ok(None)
    }

    /// Notes that the BMC does not show this drive; for how long it has not.
    fn is_missed(&self, drive: &str) -> Duration {
        let mut state = self.core.state();
        if let Some(known) = state.missing_drives.iter_mut().find(|missing| missing.path == drive) {
            known.is_missed_again();
            return known.lasts();
        }
        if state.missing_drives.len() >= MAX_SLOTS {
            state.missing_drives.remove(0);
        }
        state.missing_drives.push(Missing::new(drive));
        Duration::ZERO
    }

    /// Nothing that is recorded goes into a drive that stands in for another: it would be looked for elsewhere later.
    fn is_no_stand_in(&self, boot: &Slot) -> Result<(), BmcError> {
        if !self.stands_in(boot) {
            return Ok(());
        }
        let found = "the BMC does not show the virtual drives that it had";
        let error = self.core.error(ErrorKind::NotFound, ATTACH, found);
        Err(error.advise("they are looked for again; restart the BMC if it should have them"))
    }

    /// The other drives for CDs, in the order of preference.
    async fn drives_beside(&self, what: &str, boot: &Slot) -> Result<Vec<Slot>, Fault> {
        if boot.iso_config.is_some() {
            return Ok(Vec::new());
        }
        let mut paths = self.core.members(what, list_of(&boot.path)).await?;
        let quirks = self.core.state().quirks.clone();
        paths.retain(|path| {
            *path != boot.path
                && list_of(path) == list_of(&boot.path)
                && !quirks.takes_no_image_by_address(&drive_name(path))
        });
        paths.sort_by_key(|path| cd_rank(path));
        paths.truncate(MAX_SLOTS);
        let mut found = Vec::new();
        for path in paths {
            match self.core.get(what, &path).await {
                Ok(reply) => {
                    let slot = Slot::read(&path, &reply.value);
                    // A drive without the actions that the boot medium's drive has is not for addresses.
                    let fit = slot.insert.is_some() == boot.insert.is_some() && unfit_drive(&reply.value).is_none();
                    found.extend(Some(slot).filter(|slot| slot.takes_cd && fit));
                }
                Err(fault) if matches!(fault.status(), Some(400 | 403 | 404 | 405)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::is_at;

    #[test]
    fn an_image_is_known_by_what_bmcs_show_of_its_address() {
        let url = "https://media.example/tools/drivers.iso?token=1";
        for shown in [url, "https://media.example/tools", "drivers.iso", "/tools/drivers.iso"] {
            assert!(is_at(shown, url), "{shown}");
        }
        // Some leave out what is secret, or goes without saying.
        let long = "http://user:secret@media.example:80/t.iso";
        for shown in
            ["http://media.example/t.iso", "http://media.example:80/t.iso", "http://user:***@media.example/t.iso"]
        {
            assert!(is_at(shown, long), "{shown}");
        }
        assert!(!is_at("http://media.example:81/t.iso", long));
        for other in ["", "https://", "https://media.example/other/drivers.iso", "rivers.iso"] {
            assert!(!is_at(other, url), "{other}");
        }
    }
}
