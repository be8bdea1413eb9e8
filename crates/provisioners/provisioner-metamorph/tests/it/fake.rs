//! A BMC and its machine, made up: it does what it is told, and what a test wants it to do instead.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bmc::{
    Alert, Bios, BiosSchema, BiosSeen, BmcError, BmcLog, BootDevice, BootStanding, Capability, Connector, DataDrive,
    Diagnostics, Drive, ErrorKind, EventDestination, EventStream, Events, EvidenceBudget, FirmwareInventory,
    FirmwareVersion, HardwareInventory, HealthLevel, Insertion, JobState, Lacking, Lasting, LocationIndicator,
    LogEntry, Logs, Posted, Power, PowerAction, SecureBoot, SecureBootSeen, Sight, Target, VirtualMedia,
};
use diagnosis::{Access, Connection, Contact, Evidence, PowerFacts, Reading};
use inventory::{BmcPin, Inspected, MachineEvidence};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::kit::read_from;

/// After how long a client gives a request up.
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);

/// What tells the machine from others.
pub fn evidence() -> MachineEvidence {
    MachineEvidence {
        manufacturer: Some("Maker".into()),
        system_uuid: Some("4c4c4544-0047-3710-8051-b4c04f4a3132".into()),
        serial_number: Some("S-100".into()),
        macs: vec!["00:1b:21:aa:bb:01".into()],
        disks: vec!["DISK-1".into()],
    }
}

/// What the BMC has been told, and what it says.
#[derive(Default)]
pub struct Bmc {
    pub on: bool,
    /// It does not say whether the machine is on.
    pub hides_power: bool,
    /// It does what it is told when it is to switch the machine on, and its answer is lost.
    pub loses_on: bool,
    /// It restarts the machine, and its answer to that gets lost.
    pub loses_restart: bool,
    /// It restarts the machine, and this comes back.
    pub answers_restart: Option<ErrorKind>,
    /// It does not restart the machine, and this comes back.
    pub fails_restart: Option<fn() -> BmcError>,
    /// It refuses restarts.
    pub refuses_restart: bool,
    /// It refuses boot overrides.
    pub refuses_override: bool,
    /// It never answers to a boot override.
    pub hangs_at_override: bool,
    /// So many orders of power are lost on their way to it.
    pub drops_orders: u32,
    /// It takes these orders of power and does nothing.
    pub ignores: Vec<PowerAction>,
    /// How long the machine takes to follow an order of power.
    pub takes: Duration,
    /// Where the machine is going, and when it is there.
    pub turning: Option<(bool, Instant)>,
    /// It is another BMC, with this pin.
    pub pin: Option<BmcPin>,
    /// It shows another machine.
    pub shows_another: bool,
    /// It shows another one from this call on.
    pub another_after: Option<&'static str>,
    /// It shows neither UUID nor serial number.
    pub nameless: bool,
    /// The MACs that it shows instead of the machine's; `Err` if it fails to.
    pub macs: Option<Result<Vec<String>, ErrorKind>>,
    /// How often it was asked for them.
    pub asked_macs: u32,
    /// It refuses user and password.
    pub refuses_password: bool,
    /// So many looks at it fail.
    pub failing_looks: u32,
    /// Nothing answers.
    pub is_gone: bool,
    pub medium: Option<String>,
    /// It has a second drive.
    pub second_drive: bool,
    /// What is in the second drive.
    pub data: Option<String>,
    /// It takes orders to put a data image in, and never has.
    pub never_reads_data: bool,
    /// Its answers to such orders are lost, and what it does of them is seen later.
    pub loses_answers: bool,
    /// Destination and context of the subscriptions that it has, by id, and how many there have been.
    pub subscriptions: BTreeMap<String, (String, String)>,
    pub subscribed: u32,
    /// The headers that it was last given.
    pub headers: Vec<(String, String)>,
    /// It does what it is told with subscriptions, and its answer is lost.
    pub loses_subscription: bool,
    /// It takes subscriptions, and shows none.
    pub hides_subscriptions: bool,
    /// It refuses subscriptions, or to end them.
    pub refuses_subscriptions: bool,
    /// It does not show what is in its drives.
    pub hides_media: bool,
    /// It does not show its drives, with what is in them.
    pub hides_drives: bool,
    /// It does not show the drive that machines boot from: an empty one stands in for it.
    pub stands_in: bool,
    /// It does not answer when an insertion is called off.
    pub loses_call_off: bool,
    /// A medium that is being put in, and since when.
    pub loading: Option<(String, Instant)>,
    /// How long it reads a medium before it is in.
    pub insertion: Duration,
    /// It looks into a medium and refuses it then.
    pub refuses_medium: bool,
    /// Who asks the media endpoint in its name.
    pub reader: Option<axum::Router>,
    /// The boot override that it shows, if it shows one.
    pub override_ahead: Option<bool>,
    /// It takes a boot override and does not keep it.
    pub forgets_override: bool,
    /// It takes a boot override for one start alone.
    pub keeps_override_once: bool,
    /// How far it says that the machine is.
    pub progress: Option<String>,
    /// What its log calls critical, the newest first, if it has a log.
    pub critical: Option<Vec<LogEntry>>,
    /// Whether the light by which the machine is found is lit, if it has one.
    pub light: Option<bool>,
    /// What it says for a diagnosis, beside its power; and whether it is asked in a connection that has begun.
    pub evidence: Option<diagnosis::Evidence>,
    /// What it does not have, as its first look shows.
    pub lacks: Option<Capability>,
    /// What it says of the machine's health.
    pub health: Option<HealthLevel>,
    /// It has streams of events.
    pub streams: bool,
    /// The end of the stream that is open, from which it tells.
    pub stream: Option<UnboundedSender<Alert>>,
    /// How often a stream was asked for, and what then fails.
    pub listened: u32,
    pub fails_to_stream: Option<ErrorKind>,
    /// How long it takes to open a stream.
    pub slow_to_stream: Duration,
    /// It refuses to end this one, as an account without the right is refused.
    pub keeps_subscription: Option<String>,
    /// It has no virtual drive, as looking for one shows.
    pub has_no_drive: bool,
    /// What it shows of Secure Boot.
    pub secure_boot: Option<SecureBootSeen>,
    /// What is set is shown, and in force, after the next restart; else it never is.
    pub takes_secure_boot: bool,
    /// What was set last.
    pub asked_secure_boot: Option<bool>,
    /// What it shows of the firmware's settings; `None` if it does not at the moment.
    pub bios: Option<BiosSeen>,
    /// Reading them fails so.
    pub bios_fails: Option<ErrorKind>,
    /// What they may be.
    pub bios_schema: Option<BiosSchema>,
    /// What is pending is in force after the next restart; else the firmware never applies it.
    pub applies_bios: bool,
    /// It refuses changes of these settings.
    pub refuses_bios: Option<String>,
    /// The job that it names for a change, and how far that is.
    pub job: Option<(String, JobState)>,
    /// Versions of firmware that it shows.
    pub versions: Vec<FirmwareVersion>,
    /// The hardware that it lists, or how the listing fails; by default nothing is listed.
    pub hardware: Option<Result<Inspected, ErrorKind>>,
    /// How often it was asked for it.
    pub asked_hardware: u32,
    /// It carries out orders, and answers to none of them.
    pub never_answers: bool,
    /// It opens a session for each connection.
    pub opens_sessions: bool,
    /// The sessions that it was last asked to end at a first contact.
    pub left_open: Vec<String>,
    /// Everything that it was told to do.
    pub log: Vec<String>,
    /// How often what BMCs are trusted by has changed.
    pub trust: u64,
    /// How often a connection to it was made.
    pub connections: u32,
}

impl Bmc {
    /// What is in this drive.
    fn slot(&mut self, drive: &str) -> &mut Option<String> {
        if drive == "CD2" { &mut self.data } else { &mut self.medium }
    }

    /// Whether the machine is on by now; a medium that has been read is in.
    fn advance(&mut self) -> bool {
        let insertion = self.insertion;
        if let Some((url, _)) = self.loading.take_if(|(_, since)| since.elapsed() >= insertion) {
            self.medium = Some(url);
        }
        if let Some((on, _)) = self.turning.take_if(|(_, at)| Instant::now() >= *at) {
            self.on = on;
        }
        self.on
    }
}

/// A BMC that is shared with the server.
#[derive(Clone, Default)]
pub struct Fake(pub Arc<Mutex<Bmc>>);

impl Fake {
    /// What it does, and what it has been told.
    pub fn state(&self) -> MutexGuard<'_, Bmc> {
        let mut state = self.0.lock().unwrap();
        state.advance();
        state
    }

    /// Addresses that were to be inserted, in their order.
    pub fn inserted(&self) -> Vec<String> {
        self.state().log.iter().filter_map(|line| line.strip_prefix("insert ")).map(ToOwned::to_owned).collect()
    }

    /// How often the machine was reset.
    pub fn resets(&self) -> usize {
        self.state().log.iter().filter(|line| *line == "Restart").count()
    }
}

#[derive(Clone)]
struct Control(Arc<Mutex<Bmc>>, BmcPin);

impl Control {
    fn has(&self, capability: Capability) -> Result<(), Lacking> {
        let lacks = self.0.lock().unwrap().lacks == Some(capability);
        if lacks { Err(Lacking::new(capability, "looked for in vain")) } else { Ok(()) }
    }

    fn drive_is_there(&self) -> Result<(), BmcError> {
        let lacks = self.0.lock().unwrap().has_no_drive;
        if lacks { Err(Lacking::new(Capability::VirtualMedia, "looked for in vain").into()) } else { Ok(()) }
    }

    fn log_call(&self, what: impl Into<String>) {
        let (mut bmc, what) = (self.0.lock().unwrap(), what.into());
        bmc.shows_another |= bmc.another_after == Some(&*what);
        bmc.log.push(what);
    }
}

#[async_trait]
impl bmc::Bmc for Control {
    async fn begin(&self, stale: &[String]) -> Result<Sight, BmcError> {
        self.0.lock().unwrap().left_open = stale.to_vec();
        self.look().await
    }
    async fn look(&self) -> Result<Sight, BmcError> {
        if !machine_identity::holds(&self.1, &self.pin()) {
            return Err(lost(ErrorKind::AnotherBmc).showing(self.pin()));
        }
        let mut bmc = self.0.lock().unwrap();
        if bmc.refuses_password {
            return Err(lost(ErrorKind::Unauthorized));
        }
        if bmc.is_gone {
            return Err(lost(ErrorKind::Unreachable));
        }
        if bmc.failing_looks > 0 {
            bmc.failing_looks -= 1;
            return Err(lost(ErrorKind::Busy { status: 503 }));
        }
        let on = bmc.advance();
        let powered_on = (!bmc.hides_power).then_some(on);
        let mut evidence = evidence();
        if bmc.shows_another {
            evidence.system_uuid = Some("4c4c4544-0047-3710-8051-b4c04f4a9999".into());
            evidence.serial_number = Some("S-999".into());
        }
        if bmc.nameless {
            (evidence.system_uuid, evidence.serial_number, evidence.macs) = (None, None, Vec::new());
        }
        Ok(Sight { powered_on, model: "Maker M".into(), evidence, health: bmc.health })
    }
    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        let mut bmc = self.0.lock().unwrap();
        bmc.asked_macs += 1;
        bmc.macs.clone().unwrap_or_else(|| Ok(evidence().macs)).map_err(lost)
    }
    fn pin(&self) -> BmcPin {
        let pin = BmcPin { service_uuid: None, key_sha256: Some("ab".repeat(32)) };
        self.0.lock().unwrap().pin.clone().unwrap_or(pin)
    }
    fn calls(&self) -> u32 {
        0
    }
    fn session(&self) -> Option<String> {
        let bmc = self.0.lock().unwrap();
        bmc.opens_sessions.then(|| format!("https://192.0.2.7/redfish/v1/SessionService/Sessions/{}", bmc.connections))
    }
    async fn close(&self) {}
    fn power(&self) -> &dyn Power {
        self
    }
    fn boot_device(&self) -> Result<&dyn BootDevice, Lacking> {
        self.has(Capability::BootDevice)?;
        Ok(self)
    }
    fn virtual_media(&self) -> Result<&dyn VirtualMedia, Lacking> {
        self.has(Capability::VirtualMedia)?;
        Ok(self)
    }
    fn data_drive(&self) -> Result<&dyn DataDrive, Lacking> {
        self.has(Capability::DataDrive)?;
        Ok(self)
    }
    fn events(&self) -> Result<&dyn Events, Lacking> {
        self.has(Capability::Events)?;
        Ok(self)
    }
    fn secure_boot(&self) -> Result<&dyn SecureBoot, Lacking> {
        Ok(self)
    }
    fn bios(&self) -> Result<&dyn Bios, Lacking> {
        self.has(Capability::Bios)?;
        Ok(self)
    }
    fn firmware(&self) -> Result<&dyn FirmwareInventory, Lacking> {
        self.has(Capability::Firmware)?;
        Ok(self)
    }
    fn hardware(&self) -> Result<&dyn HardwareInventory, Lacking> {
        self.has(Capability::Hardware)?;
        Ok(self)
    }
    fn diagnostics(&self) -> Result<&dyn Diagnostics, Lacking> {
        self.has(Capability::Diagnostics)?;
        Ok(self)
    }
    fn logs(&self) -> Result<&dyn Logs, Lacking> {
        if self.0.lock().unwrap().critical.is_some() { Ok(self) } else { Err(Lacking::unspoken(Capability::Logs)) }
    }
    fn location_indicator(&self) -> Result<&dyn LocationIndicator, Lacking> {
        let has = self.0.lock().unwrap().light.is_some();
        if has { Ok(self) } else { Err(Lacking::new(Capability::LocationIndicator, "looked for in vain")) }
    }
}

#[async_trait]
impl LocationIndicator for Control {
    async fn switch(&self, lit: bool) -> Result<String, BmcError> {
        self.log_call(format!("light {lit}"));
        if self.0.lock().unwrap().never_answers {
            std::future::pending::<()>().await;
        }
        self.0.lock().unwrap().light = Some(lit);
        Ok(format!("IndicatorLED is {lit}"))
    }
}

#[async_trait]
impl VirtualMedia for Control {
    async fn find(&self) -> Result<(), BmcError> {
        self.drive_is_there()
    }
    async fn insert(&self, urls: &[String], _certificate: Option<&str>) -> Result<Insertion, BmcError> {
        self.drive_is_there()?;
        let url = urls[0].as_str();
        let (insertion, reader, refuses) = {
            let mut bmc = self.0.lock().unwrap();
            bmc.advance();
            if bmc.medium.as_deref() == Some(url) {
                return Ok(Insertion::Done);
            }
            bmc.log.push(format!("insert {url}"));
            bmc.medium = None;
            bmc.loading = Some((url.to_owned(), Instant::now()));
            (bmc.insertion, bmc.reader.clone(), bmc.refuses_medium)
        };
        if let Some(reader) = reader {
            read_from(reader, url).await.unwrap();
        }
        if refuses {
            self.0.lock().unwrap().loading = None;
            return Err(
                BmcError::new(ErrorKind::Rejected { status: 400 }, "insert the medium", "400 Bad Request").advise("")
            );
        }
        if !insertion.is_zero() {
            tokio::time::sleep(insertion.min(CLIENT_PATIENCE)).await;
        }
        self.0.lock().unwrap().advance();
        Ok(if insertion >= CLIENT_PATIENCE { Insertion::Pending } else { Insertion::Done })
    }
    async fn drive(&self, urls: &[String]) -> Result<Drive, BmcError> {
        self.drive_with(&|there| urls.iter().any(|url| url == there)).await
    }
    async fn drive_with(&self, is_it: &(dyn for<'a> Fn(&'a str) -> bool + Sync)) -> Result<Drive, BmcError> {
        let mut bmc = self.0.lock().unwrap();
        bmc.advance();
        Ok(match &bmc.medium {
            _ if bmc.stands_in => Drive::Empty,
            Some(there) if is_it(there) => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
    }
    async fn eject(&self) -> Result<(), BmcError> {
        self.log_call("eject");
        let mut bmc = self.0.lock().unwrap();
        (bmc.medium, bmc.loading) = (None, None);
        Ok(())
    }
}

#[async_trait]
impl DataDrive for Control {
    async fn choose(&self, _: &str) -> Result<String, BmcError> {
        let bmc = self.0.lock().unwrap();
        match () {
            () if bmc.second_drive && bmc.data.is_none() => Ok("CD2".into()),
            () if bmc.medium.is_none() => Ok("CD1".into()),
            () => {
                Err(BmcError::new(ErrorKind::Unsupported, "attach the data image", "a medium is in it already")
                    .advise(""))
            }
        }
    }
    async fn boot_drive(&self, url: &str) -> Result<String, BmcError> {
        let bmc = self.0.lock().unwrap();
        if bmc.stands_in {
            return Err(lost(ErrorKind::NotFound));
        }
        if !bmc.hides_media && bmc.medium.as_ref().is_some_and(|there| there != url) {
            let found = "another medium is in the virtual drive that machines boot from";
            return Err(BmcError::new(ErrorKind::Unsupported, "put it in", found).advise(""));
        }
        Ok("CD1".into())
    }
    async fn put_in(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        self.log_call(format!("put {url} in {drive}"));
        let insertion = {
            let mut bmc = self.0.lock().unwrap();
            if bmc.loses_answers {
                return Err(lost(ErrorKind::Unreachable));
            }
            if bmc.never_reads_data {
                return Ok(Insertion::Pending);
            }
            if bmc.refuses_medium {
                let found = "400 Bad Request";
                return Err(BmcError::new(ErrorKind::Rejected { status: 400 }, "put it in", found).advise(""));
            }
            if bmc.insertion.is_zero() || drive != "CD1" {
                *bmc.slot(drive) = Some(url.into());
                return Ok(Insertion::Done);
            }
            bmc.loading = Some((url.to_owned(), Instant::now()));
            bmc.insertion
        };
        tokio::time::sleep(insertion.min(CLIENT_PATIENCE)).await;
        self.0.lock().unwrap().advance();
        Ok(if insertion >= CLIENT_PATIENCE { Insertion::Pending } else { Insertion::Done })
    }
    async fn put_into_empty(&self, drive: &str, url: &str) -> Result<Insertion, BmcError> {
        self.put_in(drive, url).await
    }
    async fn content(&self, drive: &str, url: &str) -> Result<Drive, BmcError> {
        self.log_call("look at the drive");
        let mut bmc = self.0.lock().unwrap();
        bmc.advance();
        if bmc.hides_drives {
            return Err(lost(ErrorKind::NotFound));
        }
        if bmc.hides_media {
            return Ok(Drive::Unknown);
        }
        Ok(match bmc.slot(drive) {
            Some(there) if there == url => Drive::Medium,
            Some(_) => Drive::Another,
            None => Drive::Empty,
        })
    }
    async fn take_out(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        self.log_call(format!("empty {drive}"));
        let mut bmc = self.0.lock().unwrap();
        if bmc.hides_drives {
            return Err(lost(ErrorKind::NotFound));
        }
        bmc.slot(drive).take_if(|there| there == url);
        Ok(())
    }
    async fn call_off(&self, drive: &str, url: &str) -> Result<(), BmcError> {
        self.log_call(format!("call off {drive}"));
        let mut bmc = self.0.lock().unwrap();
        if bmc.hides_drives {
            return Err(lost(ErrorKind::NotFound));
        }
        if bmc.loses_call_off {
            return Err(lost(ErrorKind::Unreachable));
        }
        bmc.slot(drive).take_if(|there| there == url);
        bmc.loading = None;
        Ok(())
    }
}

#[async_trait]
impl Events for Control {
    async fn like(&self, wanted: &EventDestination<'_>) -> Result<Vec<String>, BmcError> {
        let bmc = self.0.lock().unwrap();
        let is = |known: &(String, String)| known.0 == wanted.url && known.1 == wanted.context;
        Ok(bmc.subscriptions.iter().filter(|(_, known)| is(known)).map(|(id, _)| id.clone()).collect())
    }
    async fn subscribe(&self, wanted: &EventDestination<'_>) -> Result<Option<String>, BmcError> {
        let mut bmc = self.0.lock().unwrap();
        if bmc.refuses_subscriptions {
            return Err(lost(ErrorKind::Rejected { status: 400 }));
        }
        bmc.subscribed += 1;
        if bmc.hides_subscriptions {
            return Ok(None);
        }
        let id = bmc.subscribed.to_string();
        bmc.subscriptions.insert(id.clone(), (wanted.url.to_owned(), wanted.context.to_owned()));
        bmc.headers = wanted.headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if std::mem::take(&mut bmc.loses_subscription) { Err(lost(ErrorKind::Unanswered)) } else { Ok(Some(id)) }
    }
    async fn has(&self, id: &str, url: &str) -> Result<bool, BmcError> {
        Ok(self.0.lock().unwrap().subscriptions.get(id).is_some_and(|known| known.0 == url))
    }
    async fn unsubscribe(&self, id: &str, url: &str) -> Result<(), BmcError> {
        let mut bmc = self.0.lock().unwrap();
        if bmc.refuses_subscriptions {
            return Err(lost(ErrorKind::Rejected { status: 500 }));
        }
        if bmc.keeps_subscription.as_deref() == Some(id) {
            return Err(lost(ErrorKind::Unauthorized));
        }
        bmc.subscriptions.retain(|known, (to, _)| known != id || to != url);
        Ok(())
    }
    async fn listen(&self) -> Result<Box<dyn EventStream>, BmcError> {
        let slow = {
            let mut bmc = self.0.lock().unwrap();
            bmc.listened += 1;
            bmc.slow_to_stream
        };
        tokio::time::sleep(slow).await;
        let mut bmc = self.0.lock().unwrap();
        if let Some(kind) = bmc.fails_to_stream {
            return Err(lost(kind));
        }
        if !bmc.streams {
            return Err(Lacking::new(Capability::Events, "there is no stream").into());
        }
        let (sender, receiver) = unbounded_channel();
        bmc.stream = Some(sender);
        Ok(Box::new(Coming(receiver)))
    }
    /// Context and severity, with a bar between them.
    fn posted(&self, body: &[u8]) -> Option<Posted> {
        let (context, severity) = std::str::from_utf8(body).ok()?.split_once('|')?;
        let severity = if severity == "OK" { HealthLevel::OK } else { HealthLevel::Warning };
        Some(Posted { context: context.to_owned(), alert: Alert { severity, is_health: false } })
    }
}

/// A stream of events.
struct Coming(UnboundedReceiver<Alert>);

#[async_trait]
impl EventStream for Coming {
    async fn next(&mut self) -> Result<Option<Alert>, BmcError> {
        self.0.recv().await.map(Some).ok_or_else(|| lost(ErrorKind::Unreachable))
    }
}

#[async_trait]
impl BootDevice for Control {
    async fn standing(&self) -> Result<BootStanding, BmcError> {
        self.log_call("look at the boot");
        let mut bmc = self.0.lock().unwrap();
        let powered_on = Some(bmc.advance());
        Ok(BootStanding { powered_on, override_ahead: bmc.override_ahead, progress: bmc.progress.clone() })
    }
    async fn once_from_medium(&self) -> Result<(), BmcError> {
        self.log_call("boot once");
        if self.0.lock().unwrap().hangs_at_override {
            std::future::pending::<()>().await;
        }
        let mut bmc = self.0.lock().unwrap();
        if bmc.refuses_override {
            return Err(lost(ErrorKind::Rejected { status: 400 }));
        }
        let kept = !bmc.forgets_override;
        bmc.override_ahead = bmc.override_ahead.map(|_| kept);
        Ok(())
    }
    async fn each_from_medium(&self) -> Result<Lasting, BmcError> {
        self.log_call("boot each time");
        let once = self.0.lock().unwrap().keeps_override_once;
        Ok(if once { Lasting::NextBoot } else { Lasting::EachBoot })
    }
    async fn normally(&self) -> Result<(), BmcError> {
        self.log_call("boot normally");
        Ok(())
    }
}

#[async_trait]
impl Logs for Control {
    async fn newest_critical(&self, most: usize) -> Result<Vec<LogEntry>, BmcError> {
        self.log_call("read the log");
        Ok(self.0.lock().unwrap().critical.iter().flatten().take(most).cloned().collect())
    }
    async fn all(&self) -> Result<Vec<BmcLog>, BmcError> {
        self.log_call("read all logs");
        let entries: Vec<LogEntry> = self.0.lock().unwrap().critical.iter().flatten().cloned().collect();
        Ok(vec![BmcLog { name: "sel".into(), more: Some(5), entries, unread: None }])
    }
}

#[async_trait]
impl Diagnostics for Control {
    async fn evidence(&self, budget: &EvidenceBudget) -> Evidence {
        self.log_call("read evidence");
        let mut bmc = self.0.lock().unwrap();
        let away = bmc.failing_looks > 0;
        let contact = if away { Contact::TimedOut } else { Contact::Answered };
        let connection = Reading::Read(Connection { contact, ..Connection::default() });
        let state = Some(if bmc.advance() { "On" } else { "Off" }.to_owned());
        let mut found = bmc.evidence.clone().unwrap_or_default();
        found.taken = Some(budget.now);
        found.access = Reading::Read(Access { connection, ..Access::default() });
        if !away {
            found.power = Reading::Read(PowerFacts { state, ..PowerFacts::default() });
        }
        found
    }
}

#[async_trait]
impl SecureBoot for Control {
    async fn seen(&self) -> Result<Option<SecureBootSeen>, BmcError> {
        Ok(self.0.lock().unwrap().secure_boot)
    }
    async fn set(&self, on: bool) -> Result<(), BmcError> {
        self.log_call(format!("secure boot {on}"));
        self.0.lock().unwrap().asked_secure_boot = Some(on);
        Ok(())
    }
}

#[async_trait]
impl Bios for Control {
    async fn seen(&self, _: bool) -> Result<Option<BiosSeen>, BmcError> {
        let bmc = self.0.lock().unwrap();
        bmc.bios_fails.map_or_else(|| Ok(bmc.bios.clone()), |kind| Err(lost(kind)))
    }
    async fn schema(&self) -> Result<Option<BiosSchema>, BmcError> {
        Ok(self.0.lock().unwrap().bios_schema.clone())
    }
    async fn set(&self, wished: &BTreeMap<String, String>) -> Result<Option<String>, BmcError> {
        let named: Vec<String> = wished.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.log_call(format!("set {}", named.join(" ")));
        let mut bmc = self.0.lock().unwrap();
        if let Some(refused) = bmc.refuses_bios.clone() {
            let kind = ErrorKind::Rejected { status: 400 };
            return Err(BmcError::new(kind, "change the BIOS settings", format!("it refuses {refused}")).advise(""));
        }
        if let Some(seen) = bmc.bios.as_mut() {
            seen.pending.extend(wished.clone());
        }
        Ok(bmc.job.as_ref().map(|(job, _)| job.clone()))
    }
    async fn job(&self, job: &str) -> Result<JobState, BmcError> {
        let bmc = self.0.lock().unwrap();
        Ok(bmc.job.as_ref().filter(|(known, _)| known == job).map_or(JobState::Over, |(_, state)| state.clone()))
    }
}

#[async_trait]
impl FirmwareInventory for Control {
    async fn versions(&self) -> Result<Vec<FirmwareVersion>, BmcError> {
        Ok(self.0.lock().unwrap().versions.clone())
    }
}

#[async_trait]
impl HardwareInventory for Control {
    async fn list(&self) -> Result<Inspected, BmcError> {
        let mut bmc = self.0.lock().unwrap();
        bmc.asked_hardware += 1;
        bmc.hardware.clone().unwrap_or_else(|| Ok(Inspected::default())).map_err(lost)
    }
    async fn architecture(&self) -> Result<Option<String>, BmcError> {
        let listed = self.0.lock().unwrap().hardware.clone().transpose().map_err(lost)?;
        Ok(listed.and_then(|listed| listed.hardware.cpu?.arch))
    }
}

#[async_trait]
impl Power for Control {
    async fn change(&self, action: PowerAction) -> Result<(), BmcError> {
        self.log_call(format!("{action:?}"));
        if self.0.lock().unwrap().never_answers {
            let at = Instant::now() + self.0.lock().unwrap().takes;
            self.0.lock().unwrap().turning = Some((action.on(), at));
            std::future::pending::<()>().await;
        }
        let mut bmc = self.0.lock().unwrap();
        let restarts = matches!(action, PowerAction::Restart | PowerAction::SoftRestart);
        if let Some(error) = bmc.fails_restart.filter(|_| restarts) {
            return Err(error());
        }
        if bmc.refuses_restart && action == PowerAction::Restart {
            return Err(lost(ErrorKind::Rejected { status: 400 }));
        }
        if bmc.drops_orders > 0 {
            bmc.drops_orders -= 1;
            return Err(lost(ErrorKind::Unreachable));
        }
        if bmc.ignores.contains(&action) {
            return Ok(());
        }
        let on = !matches!(action, PowerAction::HardOff | PowerAction::SoftOff);
        bmc.turning = Some((on, Instant::now() + bmc.takes));
        bmc.advance();
        if bmc.on && bmc.takes_secure_boot && bmc.asked_secure_boot.is_some() {
            let on = bmc.asked_secure_boot;
            bmc.secure_boot = Some(SecureBootSeen { enable: on, current: on, setup_mode: false });
        }
        let applies = bmc.on && bmc.applies_bios;
        if let Some(seen) = bmc.bios.as_mut().filter(|_| applies) {
            let pending = std::mem::take(&mut seen.pending);
            seen.current.extend(pending);
        }
        if let Some(kind) = bmc.answers_restart.filter(|_| restarts) {
            return Err(lost(kind));
        }
        let loses_restart = bmc.loses_restart && restarts;
        if loses_restart || bmc.loses_on && action == PowerAction::On {
            Err(lost(ErrorKind::Unanswered))
        } else {
            Ok(())
        }
    }
}

fn lost(kind: ErrorKind) -> BmcError {
    BmcError::new(kind, "ask the BMC", "nothing came of it").advise("")
}

/// A restart that was not sent.
pub fn unsent() -> BmcError {
    BmcError { unmade: true, ..lost(ErrorKind::Unreachable) }
}

/// A restart that the BMC has taken, and of which it does not tell whether it was made.
pub fn unconfirmed() -> BmcError {
    let found = "the task /t/3 ended badly: licence missing; it may have been done all the same";
    BmcError::new(ErrorKind::Unanswered, "restart the machine", found).advise("")
}

/// How the server comes to it.
pub struct Wire(pub Arc<Mutex<Bmc>>);

impl Connector for Wire {
    fn connect(&self, target: Target) -> Result<Arc<dyn bmc::Bmc>, BmcError> {
        self.0.lock().unwrap().connections += 1;
        let control = Control(Arc::clone(&self.0), target.pin);
        // As with the first sign-in: what was shown then is expected from then on.
        let seen = bmc::Bmc::pin(&control);
        Ok(Arc::new(if machine_identity::holds(&control.1, &seen) { Control(control.0, seen) } else { control }))
    }

    fn trust(&self) -> u64 {
        self.0.lock().unwrap().trust
    }
}
