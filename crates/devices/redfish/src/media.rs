//! Virtual media: finds the drive once, ejects its medium, inserts another.

use bmc::{BmcError, Capability, ErrorKind, Lacking};
use serde_json::{Value, json};

use crate::client::Client;
use crate::exchange::{Fault, Refusal, answer_lost};
use crate::hide::redact;
use crate::iso_config::iso_config;
use crate::json::{link_at, links, word};
use crate::missing::{HIDDEN, Missing};
use crate::oem_media::unfit_drive;
use crate::quirks::Quirks;
use crate::resources::{MediaState, Slot, System, cd_rank, drive_name};
use terms::clean;

/// Most drives that are looked at.
pub(crate) const MAX_SLOTS: usize = 16;
/// Most managers that are looked at.
const MAX_MANAGERS: usize = 8;
/// Most certificates of media servers on a BMC: with so many, it gets no other.
const MAX_CERTIFICATES: usize = 16;
/// Lenovo's drives that are passed over.
const LENOVO: &str = "its drives RDOC and Remote take no image by address, and it shows no drive EXT that does";
/// Most forms in which an insertion is tried.
const MAX_FORMS: u32 = 5;

/// Result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The medium was inserted.
    Now,
    /// This very medium was in already.
    Already,
    /// The BMC has not answered in time, or has accepted it and not ended with it, and may still be inserting. A second request would start over.
    Pending,
}

/// The parameters besides the image that this BMC requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    flags: bool,
    transfer: bool,
    login: bool,
}

impl Form {
    fn body(self, url: &str) -> Value {
        let mut body = json!({ "Image": url });
        if self.flags {
            body["Inserted"] = true.into();
            body["WriteProtected"] = true.into();
        }
        if self.transfer {
            let secure = url.starts_with("https:");
            body["TransferProtocolType"] = if secure { "HTTPS" } else { "HTTP" }.into();
            body["TransferMethod"] = "Stream".into();
        }
        if self.login {
            // NVIDIA DGX insists on a user and a password, but sends them only to a server that asks for them.
            body["UserName"] = "none".into();
            body["Password"] = "none".into();
        }
        body
    }

    /// The form to try next, after this refusal.
    fn after(self, refusal: &Refusal) -> Option<Self> {
        if refusal.status != 400 {
            return None;
        }
        let body = &refusal.body;
        let wants_login = body.mentions("UserName") || body.mentions("Password");
        let wants_transfer = body.mentions("TransferProtocolType") || body.mentions("TransferMethod");
        let no_flags = body.mentions("Inserted") || body.mentions("WriteProtected");
        if self.flags && no_flags {
            Some(Self { flags: false, ..self })
        } else if !self.transfer && wants_transfer {
            Some(Self { transfer: true, ..self })
        } else if !self.login && wants_login {
            Some(Self { login: true, transfer: true, ..self })
        } else if self.flags && (body.key_contains("ActionParameter") || body.key_contains("PropertyUnknown")) {
            Some(Self { flags: false, ..self })
        } else {
            None
        }
    }
}

impl Client {
    /// Inserts a medium and replaces any other: three requests the first time (list of drives, drive, insertion), two later; one more if a medium
    /// must be ejected first.
    ///
    /// The address of the medium does not appear in errors.
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when there is no virtual drive for CDs.
    pub async fn insert_media(&self, url: &str) -> Result<Inserted, BmcError> {
        self.insert_media_from(&[url.to_owned()], None).await
    }

    /// The same for a medium with several addresses. Tries the protocols that the drive declares, in order, and goes on to the next address after a
    /// refusal. A BMC that keeps certificates of media servers is given those of `certificate` (PEM) before it reads over HTTPS.
    ///
    /// # Errors
    /// As [`Self::insert_media`]; also when the drive takes none of the protocols.
    pub async fn insert_media_from(&self, urls: &[String], certificate: Option<&str>) -> Result<Inserted, BmcError> {
        let what = "insert the medium";
        urls.iter().for_each(|url| self.goes_in(url));
        self.core.state().given_media = urls.to_vec();
        let mut slot = self.cd_slot(what).await.map_err(|fault| hide(fault.into(), urls))?;
        for _ in 0..MAX_SLOTS {
            let refusal = match self.insert_into(what, &slot, urls, certificate).await {
                Err(Fault::Refused(refusal)) if other_slot_may_help(&refusal) => refusal,
                // It is to be ejected from there, be it one that stands in for another.
                Ok(inserted) => {
                    self.core.state().slot = Some(slot);
                    return Ok(inserted);
                }
                Err(fault) => return Err(hide(fault.into(), urls)),
            };
            tracing::debug!(slot = %slot.path, status = refusal.status, "this drive takes no medium");
            self.refuse_slot(&slot.path);
            slot = match self.cd_slot(what).await {
                Ok(next) => next,
                Err(_) => {
                    self.core.state().refused_slots.clear();
                    return Err(hide(refusal.error, urls));
                }
            };
        }
        Err(self.no_drive(what, &[]))
    }

    /// Finds the drive: two requests or more the first time, none later.
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when there is no virtual drive for CDs.
    pub async fn find_drive(&self) -> Result<(), BmcError> {
        if self.core.state().slot.is_none() {
            self.cd_slot("find the virtual drive").await?;
        }
        Ok(())
    }

    fn refuse_slot(&self, path: &str) {
        let mut state = self.core.state();
        state.refused_slots.push(path.to_owned());
        state.slot = None;
    }

    /// Ejects the medium: one request, once the drive is known. Succeeds if the drive is empty.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn eject_media(&self) -> Result<(), BmcError> {
        let what = "eject the medium";
        let known = self.core.state().slot.clone();
        let slot = match known {
            Some(slot) => slot,
            None => {
                let slot = match self.cd_slot(what).await {
                    Ok(slot) => slot,
                    // Without a drive there is no medium.
                    Err(Fault::Other(error)) if error.kind == ErrorKind::Unsupported => return Ok(()),
                    Err(fault) => return Err(self.without_media(fault, None)),
                };
                let is_ours =
                    slot.state.image.as_ref().is_some_and(|image| self.core.state().given_media.contains(image));
                if self.stands_in(&slot) && !is_ours {
                    let found = "the BMC does not show the virtual drive that the medium may be in";
                    let error = self.core.error(ErrorKind::NotFound, what, found);
                    return Err(error.advise("it is looked for again; restart the BMC if it should have the drive"));
                }
                if !slot.state.is_occupied() && !self.core.state().quirks.inserted_is_stale() {
                    return Ok(());
                }
                slot
            }
        };
        let image = slot.state.image.as_deref();
        self.eject_from(what, &slot).await.map_err(|fault| self.without_media(fault, image))?;
        if self.stands_in(&slot) {
            // The other one is looked for again.
            self.core.state().slot = None;
        }
        let given = self.core.state().given_media.clone();
        given.iter().map(String::as_str).chain(image).for_each(|url| self.came_out(url));
        Ok(())
    }

    /// The failure, without the addresses of media that the BMC may name in it: this one, and those of the boot medium that it was given or has shown.
    pub(crate) fn without_media(&self, fault: Fault, image: Option<&str>) -> BmcError {
        let state = self.core.state();
        let mut urls = state.given_media.clone();
        urls.extend(state.slot.as_ref().and_then(|slot| slot.state.image.clone()));
        urls.extend(image.map(str::to_owned));
        drop(state);
        match fault {
            Fault::Refused(refusal) => hide(refusal.error, &urls),
            Fault::Other(error) => hide_in_other(error, &urls),
        }
    }

    /// Reads the drive's content: one request, once the drive is known.
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when there is no virtual drive for CDs.
    pub async fn media_state(&self) -> Result<MediaState, BmcError> {
        match self.cd_slot("read the virtual drive").await {
            Ok(slot) => Ok(slot.state),
            Err(fault) => Err(self.without_media(fault, None)),
        }
    }

    /// The drive's current state; finds the drive first if it is not known.
    pub(crate) async fn cd_slot(&self, what: &str) -> Result<Slot, Fault> {
        let known = self.core.state().slot.clone();
        if let Some(Slot { path, iso_config, .. }) = known {
            if let Some(config) = iso_config {
                let list = path.rsplit_once('/').map_or("", |(list, _)| list);
                let slot = self.iso_config_slot(what, list, config).await?;
                self.core.state().slot = Some(slot.clone());
                return Ok(slot);
            }
            match self.core.get(what, &path).await {
                Ok(reply) => {
                    let slot = Slot::read(&path, &reply.value);
                    self.core.state().slot = Some(slot.clone());
                    return Ok(slot);
                }
                // The BMC has other drives now, after an update for instance, or hides this one for a moment.
                Err(fault) if fault.status() == Some(404) => {
                    self.core.state().slot = None;
                    self.is_hidden(&path);
                }
                Err(fault) => return Err(fault),
            }
        }
        let slot = self.find_slot(what).await?;
        self.keep_slot(&slot);
        Ok(slot)
    }

    /// Notes that the BMC does not show what was known of it.
    fn is_hidden(&self, path: &str) {
        let mut state = self.core.state();
        match state.hidden_slot.as_mut().filter(|known| known.path == path || !known.is_old()) {
            Some(known) => known.is_missed_again(),
            None => state.hidden_slot = Some(Missing::new(path)),
        }
    }

    /// Whether it stands in for a drive that the BMC may be hiding for a moment.
    pub(crate) fn stands_in(&self, slot: &Slot) -> bool {
        self.core.state().hidden_slot.as_ref().is_some_and(|hidden| {
            let within = format!("{}/", hidden.path.trim_end_matches('/'));
            let is_back = slot.path == hidden.path || slot.path.starts_with(&within);
            !is_back && !hidden.is_old() && hidden.lasts() < HIDDEN
        })
    }

    /// Keeps the drive that was found, unless it is such a one: the other is looked for again.
    fn keep_slot(&self, slot: &Slot) {
        if !self.stands_in(slot) {
            self.is_used(slot);
        }
    }

    /// This is the drive from now on: a medium is in it, or nothing speaks against it.
    fn is_used(&self, slot: &Slot) {
        let mut state = self.core.state();
        (state.hidden_slot, state.slot) = (None, Some(slot.clone()));
        state.known_list = slot.path.rsplit_once('/').map(|(list, _)| list.to_owned());
    }

    /// The system's drives first (since VirtualMedia 1.4 of 2020), then those of its managers.
    async fn find_slot(&self, what: &str) -> Result<Slot, Fault> {
        let system: System = self.known_system(what).await?;
        let (mut forbidden, mut places) = (None, Vec::new());
        if let Some(collection) = system.virtual_media.clone() {
            places.push(collection.clone());
            if let Some(slot) = self.slot_at(what, Place::Drives(collection), &mut forbidden).await? {
                return Ok(slot);
            }
        }
        for manager in self.managers(what, &system).await?.into_iter().take(MAX_MANAGERS) {
            places.push(manager.clone());
            if let Some(slot) = self.slot_at(what, Place::Manager(manager), &mut forbidden).await? {
                return Ok(slot);
            }
        }
        Err(forbidden.unwrap_or_else(|| self.no_drive(what, &places).into()))
    }

    /// A drive at this place, if there is one. A place that the account may not read does not end the search; its error is reported if no drive is
    /// found.
    async fn slot_at(&self, what: &str, place: Place, forbidden: &mut Option<Fault>) -> Result<Option<Slot>, Fault> {
        let mut linked = None;
        let found = match place {
            Place::Drives(collection) => self.slot_in(what, linked.insert(collection)).await,
            Place::Manager(path) => match self.core.get(what, &path).await {
                Ok(reply) => match link_at(&reply.value, "VirtualMedia") {
                    Some(collection) => self.slot_in(what, &collection).await,
                    None => Ok(None),
                },
                Err(fault) => Err(fault),
            },
        };
        match found {
            Err(fault) if fault.status() == Some(404) => {
                // The managers' drives are not the system's. Some BMCs link what they never have.
                let known = self.core.state().known_list.clone();
                let was_there = |collection: &&String| known.as_deref() == Some(collection.trim_end_matches('/'));
                linked.iter().filter(was_there).for_each(|collection| self.is_hidden(collection));
                Ok(None)
            }
            Err(fault) if fault.status() == Some(403) => {
                forbidden.get_or_insert(fault);
                Ok(None)
            }
            other => other,
        }
    }

    async fn slot_in(&self, what: &str, collection: &str) -> Result<Option<Slot>, Fault> {
        let mut drives = match self.core.expanded(what, collection, None).await {
            Ok(drives) => drives,
            Err(fault) if matches!(fault.status(), Some(405 | 501)) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let refused = self.core.state().refused_slots.clone();
        let quirks = self.core.state().quirks.clone();
        let before = drives.len();
        drives.retain(|(path, _)| !quirks.takes_no_image_by_address(&drive_name(path)));
        if drives.len() < before {
            self.core.state().unfit_media = Some(LENOVO);
        }
        drives.sort_by_key(|(path, _)| cd_rank(path));
        drives.truncate(MAX_SLOTS);
        drives.retain(|(path, _)| !refused.contains(path));
        for (path, embedded) in drives {
            // What stands in the collection is whole, or a link alone.
            let read = match embedded.as_object() {
                Some(drive) if drive.len() > 1 => Ok(embedded),
                _ => self.core.get(what, &path).await.map(|reply| reply.value),
            };
            match read {
                Ok(drive) => {
                    let slot = Slot::read(&path, &drive);
                    let unfit = if slot.insert.is_none() { unfit_drive(&drive) } else { None };
                    if unfit.is_some() {
                        self.core.state().unfit_media = unfit;
                    } else if slot.takes_cd {
                        return Ok(Some(slot));
                    }
                }
                // Internal drives of some (Cisco) cannot even be read.
                Err(fault) if matches!(fault.status(), Some(400 | 404 | 405)) => {}
                Err(fault) => return Err(fault),
            }
        }
        // Supermicro's own is beside the drives.
        match iso_config(&self.core.get(what, collection).await?.value) {
            Some(config) => Ok(Some(self.iso_config_slot(what, collection, config).await?)),
            None => Ok(None),
        }
    }

    /// There is no drive at these places, or none that can be used.
    fn no_drive(&self, what: &str, places: &[String]) -> BmcError {
        let unfit = {
            let state = self.core.state();
            state.unfit_media.or_else(|| state.system.as_ref().and_then(|system| system.unfit_media))
        };
        let mut found = "no virtual drive for CDs can be used".to_owned();
        if let Some(unfit) = unfit {
            found = format!("{found}: {unfit}");
        } else if !places.is_empty() {
            found = format!("{found}, looked for at {}", clean(&places.join(", "), 400));
        }
        let mut lacking = Lacking::new(Capability::VirtualMedia, found);
        if unfit.is_some() {
            let advice =
                "media are served by HTTP: look for a firmware or licence of the BMC that mounts from a web server";
            lacking.advice = advice.into();
        }
        let advice = lacking.advice.clone();
        self.core.error(ErrorKind::Unsupported, what, lacking.to_string()).advise(advice)
    }

    async fn insert_into(
        &self,
        what: &str,
        slot: &Slot,
        urls: &[String],
        certificate: Option<&str>,
    ) -> Result<Inserted, Fault> {
        let urls = self.in_order(what, slot, urls)?;
        let stale = self.core.state().quirks.inserted_is_stale();
        let is_in = |url: &&String| slot.state.image.as_deref() == Some(url.as_str());
        if !stale && slot.state.is_occupied() && urls.iter().any(is_in) {
            return Ok(Inserted::Already);
        }
        let ejected = stale || slot.state.is_occupied();
        if ejected {
            self.eject_from(what, slot).await?;
        }
        let mut first = None;
        for url in urls {
            if let Some(chain) = certificate {
                self.give_certificates(what, slot, url, chain).await;
            }
            match self.insert_one(what, slot, url, ejected).await {
                Ok(inserted) => {
                    self.core.state().media_scheme = Some(scheme(url).to_owned());
                    return Ok(inserted);
                }
                Err(Fault::Refused(refusal)) if matches!(refusal.status, 400 | 415 | 422 | 501) => {
                    tracing::debug!(scheme = scheme(url), status = refusal.status, "not from this address");
                    first.get_or_insert(refusal);
                }
                Err(fault) => return Err(fault),
            }
        }
        // Reports the answer for the first address, which should have worked.
        Err(first.map_or_else(|| self.no_drive(what, &[]).into(), Fault::Refused))
    }

    /// The addresses that the drive supports; the protocol that worked before comes first.
    fn in_order<'a>(&self, what: &str, slot: &Slot, urls: &'a [String]) -> Result<Vec<&'a String>, Fault> {
        let takes = |url: &&String| {
            slot.protocols.is_empty() || slot.protocols.iter().any(|name| name.eq_ignore_ascii_case(scheme(url)))
        };
        let mut fit: Vec<&String> = urls.iter().filter(takes).collect();
        if fit.is_empty() {
            let offered: Vec<&str> = urls.iter().map(|url| scheme(url)).collect();
            let protocols = clean(&slot.protocols.join(", "), 200);
            let found =
                format!("the drive mounts by {protocols} alone, and media are served by {}", offered.join(", "));
            let advice =
                "serve media by one of these protocols as well: --media-tls-listen for HTTPS, --media-listen for HTTP";
            return Err(self.core.error(ErrorKind::Unsupported, what, found).advise(advice).into());
        }
        let served = self.core.state().media_scheme.clone();
        fit.sort_by_key(|url| served.as_deref() != Some(scheme(url)));
        Ok(fit)
    }

    /// Installs the certificates of the chain, where the drive reads over HTTPS and the BMC keeps such.
    pub(crate) async fn give_certificates(&self, what: &str, slot: &Slot, url: &str, chain: &str) {
        if let (Some(list), "https") = (&slot.certificates, scheme(url)) {
            for pem in certificates_of(chain) {
                self.give_certificate(what, list, &format!("{pem}\n")).await;
            }
        }
    }

    /// Installs this certificate among those of media servers. A BMC that refuses it may not need it; otherwise the insertion fails with the BMC's
    /// own error.
    async fn give_certificate(&self, what: &str, list: &str, pem: &str) {
        let given = (list.to_owned(), pem.to_owned());
        if self.core.state().given_certificates.contains(&given) {
            return;
        }
        let done = async {
            let members = links(self.core.get(what, list).await?.value.get("Members"));
            for member in members.iter().take(MAX_CERTIFICATES) {
                let known = self.core.get(what, member).await?;
                if word(&known.value, "CertificateString").is_some_and(|there| same_pem(there, pem)) {
                    return Ok(());
                }
            }
            if members.len() >= MAX_CERTIFICATES {
                let found = format!("the BMC keeps {} certificates of media servers already", members.len());
                return Err(self.core.error(ErrorKind::Unsupported, what, found).into());
            }
            let body = json!({ "CertificateString": pem, "CertificateType": "PEM" });
            let reply = self.core.post(what, list, &body).await?;
            self.core.finish(what, reply).await
        };
        let done: Result<(), Fault> = done.await;
        match done.map_err(BmcError::from) {
            Ok(()) => self.core.state().given_certificates.push(given),
            Err(error) => tracing::warn!(%error, "the BMC does not take the media server's certificate"),
        }
    }

    pub(crate) async fn insert_one(
        &self,
        what: &str,
        slot: &Slot,
        url: &str,
        mut ejected: bool,
    ) -> Result<Inserted, Fault> {
        let quirks = self.core.state().quirks.clone();
        let flags = !quirks.insert_takes_only_the_image() && !slot.bare;
        let mut form = Form { flags, transfer: false, login: false };
        let (mut forms, mut waits, mut lost) = (0, 0, false);
        loop {
            let refusal = match self.try_insert(what, slot, form, url).await {
                Ok(true) => return Ok(Inserted::Now),
                Ok(false) => return Ok(Inserted::Pending),
                Err(Fault::Refused(refusal)) => refusal,
                Err(fault) if answer_lost(&fault) && !lost => {
                    let slow = matches!(&fault, Fault::Other(error) if error.kind == ErrorKind::Timeout);
                    match self.has_arrived(what, slot, url, slow).await {
                        Ok(true) => return Ok(Inserted::Now),
                        // Some do not answer at all while they read a medium.
                        _ if slow => return Ok(Inserted::Pending),
                        Ok(false) => {}
                        Err(fault) => return Err(self.not_refused(what, fault)),
                    }
                    lost = true;
                    continue;
                }
                Err(fault) if lost => return Err(self.not_refused(what, fault)),
                Err(fault) => return Err(fault),
            };
            if let Some(next) = form.after(&refusal).filter(|_| forms < MAX_FORMS) {
                form = next;
                forms += 1;
                continue;
            }
            let busy = matches!(refusal.error.kind, ErrorKind::Busy { .. });
            let failed = refusal.status >= 500 && !busy;
            // Something may be in that the drive does not show.
            if (failed || refusal.status == 409 && !busy) && !ejected {
                ejected = true;
                if self.eject_from(what, slot).await.is_ok() {
                    continue;
                }
            }
            // Dell answers 5xx while the eject before still runs; HPE refuses during the self-test.
            let wait = match () {
                () if Quirks::busy_with_self_test(&refusal.body) => self.core.options.ready.wait(waits),
                () if failed => self.core.options.eject.wait(waits),
                () => None,
            };
            let Some(wait) = wait else {
                let fault = Fault::Refused(refusal);
                return Err(if lost { self.not_refused(what, fault) } else { fault });
            };
            self.core.options.pacer.wait(wait).await;
            waits += 1;
        }
    }

    /// The failure of an insertion whose first answer was lost. What the BMC refuses since then is no refusal of that request: it may be at work on it, which is why it
    /// refuses another.
    fn not_refused(&self, what: &str, fault: Fault) -> Fault {
        let error = BmcError::from(fault);
        if !error.kind.is_refusal() {
            return Fault::Other(error);
        }
        let found =
            format!("the BMC's answer was lost, and it does not show whether the medium comes in: {}", error.found);
        Fault::Other(self.core.error(ErrorKind::Unanswered, what, found))
    }

    /// Whether the medium is in after an insertion whose answer was lost; waits up to a minute for a slow BMC.
    async fn has_arrived(&self, what: &str, slot: &Slot, url: &str, slow: bool) -> Result<bool, Fault> {
        for attempt in 0.. {
            let now = self.state_of(what, slot).await?;
            // Some do not report the image. The drive was empty before.
            if now.is_occupied() && now.image.as_deref().is_none_or(|image| image == url) {
                return Ok(true);
            }
            let Some(wait) = self.core.options.ready.wait(attempt).filter(|_| slow) else { break };
            self.core.options.pacer.wait(wait).await;
        }
        Ok(false)
    }

    /// Whether it is in; false if the BMC has accepted it, and is at work on it yet.
    async fn try_insert(&self, what: &str, slot: &Slot, form: Form, url: &str) -> Result<bool, Fault> {
        if let Some(config) = &slot.iso_config {
            return self.mount_iso_config(what, slot, config, url).await.map(|()| true);
        }
        let reply = match &slot.insert {
            Some(action) => self.core.post(what, action, &form.body(url)).await?,
            // Lenovo SD530 and others have no action: the resource itself is changed, and Inserted has to be named.
            None => self.core.patch(what, &slot.path, &Form { flags: true, ..form }.body(url)).await?,
        };
        self.core.taken(what, reply).await
    }

    pub(crate) async fn eject_from(&self, what: &str, slot: &Slot) -> Result<(), Fault> {
        if let Some(config) = &slot.iso_config {
            return self.unmount_iso_config(what, config).await;
        }
        let mut again = true;
        loop {
            let sent = match &slot.eject {
                // HPE refuses a request without body; the others ignore an empty object.
                Some(action) => self.core.post(what, action, &json!({})).await,
                None => self.core.patch(what, &slot.path, &json!({ "Image": null, "Inserted": false })).await,
            };
            let fault = match sent {
                Ok(reply) => return self.core.finish(what, reply).await,
                Err(fault) => fault,
            };
            let lost = answer_lost(&fault);
            if !lost && fault.status().is_none_or(|status| status == 401 || status == 403) {
                return Err(fault);
            }
            // An empty drive means success, whatever the answer was.
            let now = self.state_of(what, slot).await?;
            if !now.is_occupied() && now.inserted.is_some() {
                return Ok(());
            }
            if !(lost && again) {
                return Err(fault);
            }
            again = false;
        }
    }

    async fn state_of(&self, what: &str, slot: &Slot) -> Result<MediaState, Fault> {
        let now = self.core.get(what, &slot.path).await?;
        Ok(Slot::read(&slot.path, &now.value).state)
    }
}

/// Where drives are.
enum Place {
    /// In this collection.
    Drives(String),
    /// In the collection of this manager.
    Manager(String),
}

/// Whether another drive may accept the image: Cisco's internal ones answer 400, others that the action does not exist. If all refuse, the last error
/// is reported.
fn other_slot_may_help(refusal: &Refusal) -> bool {
    matches!(refusal.status, 400 | 404 | 405 | 501) && !matches!(refusal.error.kind, ErrorKind::Busy { .. })
}

/// Redacts the address of a medium, which is a secret: it gives access to the host's configuration.
pub(crate) fn hide(mut error: BmcError, urls: &[String]) -> BmcError {
    for url in urls {
        let path = url.splitn(4, '/').nth(3).unwrap_or(url);
        let name = path.rsplit('/').next().unwrap_or(path);
        let id = name.split('.').next().unwrap_or(name);
        error.found = redact(&error.found, &[url, path, name, id]);
        error.found = without_addresses(&error.found, url.strip_suffix(path).unwrap_or(url));
    }
    error.source = None;
    error
}

/// The same where the failure is none of the answer's: of a task that has failed, for instance. What else it came of is no text of the BMC's.
pub(crate) fn hide_in_other(mut error: BmcError, urls: &[String]) -> BmcError {
    let source = error.source.take();
    BmcError { source, ..hide(error, urls) }
}

/// Removes addresses with this prefix from the text: the BMC, or our processing, may have truncated them. What is shown of a medium may have none.
fn without_addresses(text: &str, base: &str) -> String {
    if base.is_empty() {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(base) {
        let (before, found) = rest.split_at(at);
        // The prefix may have such signs itself.
        let behind = found.get(base.len()..).unwrap_or_default();
        let end = behind.find(|c: char| c.is_whitespace() || "\"',;()<>«»".contains(c)).unwrap_or(behind.len());
        out.push_str(before);
        out.push_str("[hidden]");
        rest = behind.get(end..).unwrap_or_default();
    }
    out + rest
}

/// Scheme of an address.
pub(crate) fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}

/// The certificates of a PEM text, one by one: during a replacement the server has two. Never returns other parts of the text.
fn certificates_of(text: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let beginnings = text.match_indices(BEGIN).map(|(at, _)| text.get(at..).unwrap_or_default());
    beginnings.filter_map(|rest| rest.get(..rest.find(END)? + END.len()))
}

/// Whether two certificates in PEM are the same: blanks and line breaks do not count.
fn same_pem(a: &str, b: &str) -> bool {
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    bare(a) == bare(b)
}
