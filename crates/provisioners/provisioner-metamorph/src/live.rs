//! What this process holds for a host between reconciles: the connection to its BMC, the ear at it, and when it last asked for slow things.
//! All of it may be lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bmc::{Bmc, BmcError, Connectors, Drive, ErrorKind, Sight, Target};
use boot_media::Architecture;
use diagnosis::TestMedium;
use inventory::BmcPin;
use jiff::Timestamp;
use provisioner::{Attempt, BmcAccess, RecordContent};
use provisioning_plan::power::Power;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::data::Data;
use crate::ear::Ear;
use crate::media::Reads;
use crate::places::Place;
use crate::redaction::without_secrets;

/// For how long a refusal of user and password is believed without another try; the host's own tries begin it anew. BMCs' locks are shorter.
const REFUSAL_LASTS: Duration = Duration::from_secs(3600);
/// Longest text of a BMC's that is kept of a restart, characters.
const MAX_UNTOLD: usize = 300;

/// A host's live side.
pub struct LiveHost {
    /// When this process first looked at the host.
    pub since: Instant,
    connection: tokio::sync::Mutex<Option<Connection>>,
    /// The last try to connect, if the BMC refused user and password: what it said is known without another try.
    refused: Mutex<Option<(Connection, Instant)>>,
    timers: Mutex<Timers>,
    noted: Mutex<Option<Noted>>,
    recorded: Mutex<Option<Noted>>,
    place: Mutex<Option<Place>>,
    reported_failure: Mutex<Option<String>>,
    attempt: Mutex<Attempt>,
    ear: Mutex<Option<Ear>>,
    testing: Mutex<Option<Testing>>,
}

/// A test of what the BMC can read that this process has begun, or has ended.
#[derive(Clone, Debug)]
pub struct Testing {
    /// Its identity.
    pub of: String,
    /// When it began, by the server's clock.
    pub at: Timestamp,
    /// The same, for times that have passed.
    pub since: Instant,
    /// When somebody last asked about it.
    pub asked: Instant,
    /// Scheme, host and port that the BMC was given.
    pub server: String,
    /// How it ended.
    pub ended: Option<TestMedium>,
}

impl Testing {
    /// One that begins now.
    pub fn new(of: &str, at: Timestamp) -> Self {
        let now = Instant::now();
        Self { of: of.to_owned(), at, since: now, asked: now, server: String::new(), ended: None }
    }
}

/// A connection, with what it showed if it is new.
pub type Connected = (Arc<dyn Bmc>, Option<Sight>);

struct Connection {
    /// Digest of address, user, password, verification and trust: a change means a new connection.
    fingerprint: [u8; 32],
    bmc: Arc<dyn Bmc>,
}

/// What this process knows of an insertion that it has asked a BMC for, and that may take minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// Nothing: it goes by the record, which an earlier process may have written.
    #[default]
    Unknown,
    /// It is recorded, and about to be asked for.
    Ahead,
    /// It was asked for then, and the BMC has not answered that it is in.
    At(Instant),
    /// The answer was lost: the BMC may have it, or may never have heard of it. It is asked again.
    Lost,
}

/// What this process knows of a restart that nothing shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Nothing: an earlier process may have ordered it, or its answer was lost.
    #[default]
    Unknown,
    /// It was not ordered, or the host has noted that it was: what is asked for is another.
    Over,
    /// The BMC has taken it, and the host has yet to note that.
    Made,
}

/// What this process knows of slow work and of the machine, and when it last asked.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// What the agent's command last showed, and since when.
    pub progress: Option<(String, Instant)>,
    /// Since when the medium could not be taken out.
    pub eject_failing: Option<Instant>,
    /// Generation that the machine was last reset for, and when.
    pub booted: Option<(u64, Instant)>,
    /// The same, also when that has been given up: for whoever asks why.
    pub tried: Option<(u64, Instant)>,
    /// Generation of the boot that was made because somebody insisted on it; until a call does not insist any more.
    pub forced: Option<u64>,
    /// How much of the medium had been read before that reset.
    pub read_before: Reads,
    /// Generation whose medium the BMC was asked to put in without an answer in time, and when.
    pub inserting: Option<(u64, Instant)>,
    /// Whether the BMC was asked to put the data image in.
    pub inserting_data: Asked,
    /// Whether the BMC was asked to put the live ISO in.
    pub inserting_live: Asked,
    /// When the live ISO was last seen to be in and the boot source was set, for a start that has not been seen since.
    pub live_ready: Option<Instant>,
    /// When the running machine's live ISO was last looked for, and what is in its drive instead.
    pub live_seen: Option<(Instant, Option<Drive>)>,
    /// Generation that was booted once more after the agent had been silent.
    pub again: Option<u64>,
    /// Since when the machine has been seen to be off after a reset for the agent that was not confirmed.
    pub off_since: Option<Instant>,
    /// How much of the medium had been read in the boot before that, bytes.
    pub read_first: u64,
    /// Architecture that the last boot's medium was made for, if nobody has told it.
    pub guessed: Option<Architecture>,
    /// The BMC took the boot override for that and did not show it afterwards.
    pub override_forgotten: bool,
    /// The power that was seen last, and the order that is outstanding.
    pub power: Power,
    /// What this process knows of the restart that is recorded ([`Data::restart`]).
    pub restart: Restart,
    /// What came back of the reset, if that does not tell whether it was made: whether it was is seen by the agent's report.
    pub unanswered: Option<String>,
    /// The reset into the disk, or into a live ISO, has certainly not happened: the BMC itself has refused it, or it was not sent.
    pub reset_refused: bool,
    /// The firmware that is waited for to switch Secure Boot.
    pub secure_boot: Option<SecureBootWait>,
    /// The BMC has shown Secure Boot.
    pub shows_secure_boot: bool,
    /// The firmware that is waited for to apply settings.
    pub firmware: Option<FirmwareWait>,
    /// Since when the BMC has not answered between two steps of hardware managers.
    pub between: Option<Instant>,
    /// The medium is out, as far as this process knows.
    pub ejected: bool,
    /// What last differed about the machine without being decisive.
    pub drift: Option<String>,
    /// MACs that the BMC has shown, and when.
    pub macs: Option<(Vec<String>, Instant)>,
    /// The record has been brought up to date for this connection.
    pub kept_up: bool,
    /// Boot of an agent whose proof has failed, and since when.
    pub uncertain: Option<(String, Instant)>,
    /// Boot of an agent that has not proved to run on this host's machine.
    pub disproved: Option<String>,
}

/// A wait for the firmware to switch Secure Boot.
#[derive(Clone, Debug)]
pub struct SecureBootWait {
    /// Since when.
    pub since: Instant,
    /// This process has asked for it.
    pub asked: bool,
    /// What came back of the machine's restart, if that does not tell whether it was made.
    pub unanswered: Option<String>,
}

/// A wait for the firmware to apply settings.
#[derive(Clone, Debug)]
pub struct FirmwareWait {
    /// The operation that it is for.
    pub of: String,
    /// Since when.
    pub since: Instant,
    /// This process has had the machine restarted.
    pub asked: bool,
    /// What the BMC had last said of an application before that.
    pub mark: Option<String>,
    /// What came back of the order to restart or start the machine, if that does not tell whether it was carried out.
    pub unanswered: Option<String>,
}

/// What came back of a restart of which nobody knows whether it was made: told where what it was for does not come about.
pub fn untold(error: &BmcError) -> String {
    without_secrets(&terms::clean(&error.found, MAX_UNTOLD))
}

/// The same, at the end of what is waited for after such a restart.
pub fn unconfirmed(said: &str) -> String {
    format!("; the restart was not confirmed ({said})")
}

impl Default for LiveHost {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            connection: tokio::sync::Mutex::default(),
            refused: Mutex::default(),
            timers: Mutex::default(),
            noted: Mutex::default(),
            recorded: Mutex::default(),
            place: Mutex::default(),
            reported_failure: Mutex::default(),
            attempt: Mutex::default(),
            ear: Mutex::default(),
            testing: Mutex::default(),
        }
    }
}

impl LiveHost {
    /// The connection to the BMC, remade when access data or the trust in BMCs have changed. The first contact of this process checks access, reads
    /// facts (returned then) and ends the sessions that an earlier process left behind.
    ///
    /// # Errors
    /// When the address cannot be used, or the BMC cannot be reached or refuses.
    pub async fn bmc(
        &self,
        connectors: &Connectors,
        access: &BmcAccess,
        pin: &BmcPin,
        stale: &[String],
    ) -> Result<Connected, BmcError> {
        let fingerprint = fingerprint(access, connectors.trust());
        let mut slot = self.connection.lock().await;
        if let Some(open) = slot.as_ref() {
            if open.fingerprint == fingerprint {
                return Ok((Arc::clone(&open.bmc), None));
            }
            *self.ear() = None;
            open.bmc.close().await;
            *slot = None;
        }
        {
            let mut timers = self.timers();
            (timers.macs, timers.kept_up) = (None, false);
        }
        let bmc = unopened(connectors, access, pin)?;
        *self.refused() = None;
        match bmc.begin(stale).await {
            Ok(sight) => {
                *slot = Some(Connection { fingerprint, bmc: Arc::clone(&bmc) });
                Ok((bmc, Some(sight)))
            }
            Err(error) => {
                bmc.close().await;
                if error.kind == ErrorKind::Unauthorized {
                    *self.refused() = Some((Connection { fingerprint, bmc }, Instant::now()));
                }
                Err(error)
            }
        }
    }

    /// The connection that the BMC has refused, if that was with this access.
    pub fn refused_with(&self, connectors: &Connectors, access: &BmcAccess) -> Option<Arc<dyn Bmc>> {
        let fingerprint = fingerprint(access, connectors.trust());
        let refused = self.refused();
        let (tried, _) = refused.as_ref().filter(|(_, at)| at.elapsed() < REFUSAL_LASTS)?;
        (tried.fingerprint == fingerprint).then(|| Arc::clone(&tried.bmc))
    }

    /// Notes that the BMC has refused this connection.
    pub fn note_refused(&self, connectors: &Connectors, access: &BmcAccess, bmc: Arc<dyn Bmc>) {
        let tried = Connection { fingerprint: fingerprint(access, connectors.trust()), bmc };
        *self.refused() = Some((tried, Instant::now()));
    }

    fn refused(&self) -> MutexGuard<'_, Option<(Connection, Instant)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that is open, if it is for this access.
    pub async fn open(&self, connectors: &Connectors, access: &BmcAccess) -> Option<Arc<dyn Bmc>> {
        let fingerprint = fingerprint(access, connectors.trust());
        let slot = self.connection.lock().await;
        slot.as_ref().filter(|open| open.fingerprint == fingerprint).map(|open| Arc::clone(&open.bmc))
    }

    /// Drops the connection without a call to the BMC that answers there now.
    pub async fn drop_connection(&self) {
        *self.ear() = None;
        *self.connection.lock().await = None;
    }

    /// Ends the connection.
    pub async fn close(&self) {
        *self.ear() = None;
        if let Some(open) = self.connection.lock().await.take() {
            open.bmc.close().await;
        }
    }

    /// What the journal has noted and not recorded.
    pub fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stood in the record when this process read or wrote it last.
    pub fn recorded(&self) -> MutexGuard<'_, Option<Noted>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host's place among those that are worked on; given back when its work has ended.
    pub fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operation whose failure has been reported to the host.
    pub fn reported_failure(&self) -> MutexGuard<'_, Option<String>> {
        self.reported_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attempt to provision it.
    pub fn attempt(&self) -> MutexGuard<'_, Attempt> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is heard of its BMC by itself; there is one only while the connection is open.
    pub fn ear(&self) -> MutexGuard<'_, Option<Ear>> {
        self.ear.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The test of what its BMC can read.
    pub fn testing(&self) -> MutexGuard<'_, Option<Testing>> {
        self.testing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The timers.
    pub fn timers(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that makes no call yet.
///
/// # Errors
/// When the address cannot be used.
pub fn unopened(connectors: &Connectors, access: &BmcAccess, pin: &BmcPin) -> Result<Arc<dyn Bmc>, BmcError> {
    let target = Target::parse(&access.address, &access.username, access.password.clone())?;
    let accept_any_certificate = access.disable_certificate_verification;
    connectors.connect(Target { accept_any_certificate, pin: pin.clone(), ..target })
}

fn fingerprint(access: &BmcAccess, trust: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [access.address.as_str(), &access.username, access.password.expose_secret()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update([u8::from(access.disable_certificate_verification)]);
    hash.update(trust.to_be_bytes());
    hash.finalize().into()
}

/// All hosts' live sides by uid.
#[derive(Default)]
pub struct Live {
    hosts: Mutex<HashMap<String, Arc<LiveHost>>>,
}

impl Live {
    /// The host's live side.
    pub fn host(&self, uid: &str) -> Arc<LiveHost> {
        Arc::clone(self.lock().entry(uid.to_owned()).or_default())
    }

    /// Forgets the host; its live side, if there is one.
    pub fn forget(&self, uid: &str) -> Option<Arc<LiveHost>> {
        self.lock().remove(uid)
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<LiveHost>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<LiveHost>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes that are not recorded yet, with the revision of the record that they build on.
#[derive(Clone, Debug)]
pub struct Noted {
    pub revision: u64,
    /// The record's content at that revision: an edit may leave the number as it is.
    pub stands: Option<RecordContent>,
    pub data: Data,
}

/// A write of the record. If it fails or its call is abandoned, the notes on the way to it are void too: they may tell of a boot that was never
/// recorded.
pub struct Writing<'a>(Option<&'a LiveHost>);

impl<'a> Writing<'a> {
    /// One that begins.
    pub const fn of(live: &'a LiveHost) -> Self {
        Self(Some(live))
    }

    /// It is durable.
    pub fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(live) = self.0 {
            *live.noted() = None;
        }
    }
}
