//! Which disks an erase takes, by what, and what is reported of each: on machines made of files, with drives that answer commands.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::commands::Runner;
use agent::drive::{Completion, Data, Drive, Reply};
use agent::fake::FakeMachine;
use agent::machine::{Disks, Facts, Medium, MediumError, Network, NetworkError, Port, Ports, Power};
use agent::report::tls::ServerClock;
use agent::{Machine, Tree};
use agent_protocol::{
    Action, AgentNetwork, DiskMark, DrivePassword, EraseDisks, ErrorCode, HostConfig, Leave, OWNER_EFI_VARIABLE,
    Outcome, Phase,
};
use disk_image::{Disk, Flow};
use inventory::{DiskSelector, EraseMethod, EraseResult, ErasedDisk, Storage};
use tempfile::TempDir;

use crate::common::{add_disk, add_disk_at, machine_root};

const MIB: u64 = 1 << 20;
const SATA: &str = "sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0";
const RAID: &str = "sys/devices/pci0000:00/0000:00:10.0/host4/target4:2:0/4:2:0:0";
const FC: &str = "sys/devices/pci0000:00/0000:08:00.1/host7/rport-7:0-1/target7:0:1/7:0:1:2";
const NVME: &str = "sys/devices/pci0000:00/0000:00:05.0/nvme/nvme0";

/// How a drive of the tests is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It has a Format of all namespaces at once, and does it.
    Nvme,
    /// It says that it does.
    Liar,
    /// It has SECURITY ERASE UNIT; the password that it is locked by at first.
    Ata(Option<&'static str>),
}

/// A drive's password, and whether it is locked.
type Lock = Arc<Mutex<Option<(Vec<u8>, bool)>>>;

/// A drive whose data is a file, by what a command does to that.
struct Virtual {
    kind: Kind,
    files: Vec<PathBuf>,
    lock: Lock,
    erased: Arc<AtomicU32>,
}

impl Virtual {
    fn erase(&self) {
        self.erased.fetch_add(1, Ordering::SeqCst);
        if self.kind == Kind::Liar {
            return;
        }
        for path in &self.files {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            let size = file.metadata().unwrap().len();
            file.set_len(0).unwrap();
            file.set_len(size).unwrap();
        }
    }
}

impl Drive for Virtual {
    fn nvme(&self, entry: &[u8; 64], data: Data<'_>, _: Duration) -> std::io::Result<Completion> {
        match (entry[0], entry[40], data) {
            // Identify Controller: Format (OACS bit 1), of all namespaces (FNA bit 1)
            (0x06, 0x01, Data::In(room)) => (room[256], room[524]) = (0b10, 0b010),
            (0x06, 0x02, Data::In(room)) => (room[0], room[4]) = (1, if self.files.len() > 1 { 2 } else { 0 }),
            (0x06, 0x00, _) => {}
            (0x80, ..) => self.erase(),
            other => panic!("{other:?}"),
        }
        Ok(Completion::default())
    }

    fn scsi(&self, cdb: &[u8], data: Data<'_>, _: Duration) -> std::io::Result<Reply> {
        let mut lock = self.lock.lock().unwrap();
        let refused = Reply { status: 2, sense: vec![0x70, 0, 0x0B, 0, 0, 0, 0, 10], missing: 0 };
        match (cdb[14], data) {
            (0xEC, Data::In(room)) => {
                room[164] = 0b10;
                // supported; enabled; locked
                room[256] =
                    0b001 | u8::from(lock.is_some()) << 1 | u8::from(lock.as_ref().is_some_and(|lock| lock.1)) << 2;
            }
            (0xF1, Data::Out(block)) => *lock = Some((block[2..34].to_vec(), false)),
            (0xF2, Data::Out(block)) => match lock.as_mut() {
                Some((password, locked)) if *password == block[2..34] => *locked = false,
                _ => return Ok(refused),
            },
            (0xF3, Data::None) => {}
            (0xF4, Data::Out(_)) => {
                self.erase();
                *lock = None;
            }
            (0xF6, Data::Out(block)) => match lock.as_ref() {
                Some((password, false)) if *password == block[2..34] => *lock = None,
                _ => return Ok(refused),
            },
            other => panic!("{other:?}"),
        }
        Ok(Reply::default())
    }
}

/// A machine whose drives take commands.
struct Plant {
    machine: FakeMachine,
    drives: Vec<(&'static str, Kind)>,
    locks: Vec<Lock>,
    erased: Arc<AtomicU32>,
    /// All disks are endless, and say so how far they are written.
    endless: Option<Arc<AtomicU64>>,
}

impl Facts for Plant {
    fn tree(&self) -> &Tree {
        self.machine.tree()
    }
}

impl Disks for Plant {
    fn open_disk(&self, device: &str) -> Result<Box<dyn Disk>, disk_image::Error> {
        match &self.endless {
            Some(at) => Ok(Box::new(Endless(Arc::clone(at)))),
            None => self.machine.open_disk(device),
        }
    }

    fn drive(&self, device: &str) -> Option<Box<dyn Drive>> {
        let at = self.drives.iter().position(|(name, _)| device.starts_with(name))?;
        let (name, kind) = self.drives[at];
        let dev = self.tree().path("dev");
        let names = std::fs::read_dir(&dev).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files = names.filter(|device| device.starts_with(name)).map(|device| dev.join(device)).collect();
        let (lock, erased) = (Arc::clone(&self.locks[at]), Arc::clone(&self.erased));
        Some(Box::new(Virtual { kind, files, lock, erased }))
    }
}

impl Network for Plant {
    fn configure(&self, network: &AgentNetwork) -> Result<(), NetworkError> {
        self.machine.configure(network)
    }
    fn addresses(&self) -> Vec<(String, IpAddr)> {
        self.machine.addresses()
    }
}

impl Medium for Plant {
    fn host_config(&self) -> Result<HostConfig, MediumError> {
        self.machine.host_config()
    }
    fn parameters(&self) -> Result<ipa_protocol::Parameters, MediumError> {
        self.machine.parameters()
    }
}

impl Ports for Plant {
    fn ports(&self) -> Vec<String> {
        self.machine.ports()
    }

    fn listen(&self, name: &str) -> std::io::Result<Box<dyn Port>> {
        self.machine.listen(name)
    }
}

impl Power for Plant {
    fn leave(&self, how: Leave) -> std::io::Error {
        self.machine.leave(how)
    }
}

/// A machine in a folder, with these drives by the beginning of their names.
struct Site {
    folder: TempDir,
    plant: Arc<Plant>,
}

impl Site {
    fn new(drives: Vec<(&'static str, Kind)>) -> Self {
        let folder = machine_root();
        let machine = FakeMachine::new(folder.path(), "http://127.0.0.1:9/none.iso", tokio::runtime::Handle::current());
        let lock = |kind: &Kind| match kind {
            Kind::Ata(Some(password)) => {
                let mut bytes = password.as_bytes().to_vec();
                bytes.resize(32, 0);
                Some((bytes, true))
            }
            _ => None,
        };
        let locks = drives.iter().map(|(_, kind)| Arc::new(Mutex::new(lock(kind)))).collect();
        let plant = Arc::new(Plant { machine, drives, locks, erased: Arc::default(), endless: None });
        Self { folder, plant }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Adds a disk with data all over it.
    fn disk(&self, name: &str, place: Option<&str>) {
        match place {
            Some(place) => add_disk_at(self.root(), name, place, 8 * MIB),
            None => add_disk(self.root(), name, 4, 8 * MIB),
        }
        let data: Vec<u8> = (0..8 * MIB).map(|at| (at ^ at >> 9) as u8 | 1).collect();
        std::fs::write(self.root().join("dev").join(name), data).unwrap();
    }

    fn plant(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn erase(&self, order: EraseDisks) -> Outcome {
        self.erase_while(order, |_| Flow::Continue)
    }

    fn erase_while(&self, order: EraseDisks, tell: impl Fn(agent_protocol::Progress) -> Flow) -> Outcome {
        let machine: Arc<dyn Machine> = Arc::clone(&self.plant) as Arc<dyn Machine>;
        let runner = Runner::new(machine, tokio::runtime::Handle::current(), "", Arc::new(ServerClock::default()));
        runner.with_patience(Duration::ZERO).run(Action::EraseDisks(Box::new(order)), &tell)
    }

    fn erased(&self) -> u32 {
        self.plant.erased.load(Ordering::SeqCst)
    }

    /// How many bytes of the disk are what they were.
    fn kept(&self, name: &str) -> u64 {
        let now = std::fs::read(self.root().join("dev").join(name)).unwrap();
        let same = (0_u64..).zip(now).filter(|(at, byte)| *byte == (at ^ at >> 9) as u8 | 1);
        same.count() as u64
    }
}

fn order(method: EraseMethod) -> EraseDisks {
    let mark = DiskMark { owner: "owner-1".into(), host: "ns/node-1".into(), operation: "op".into(), consent: None };
    EraseDisks { mark, method, expected: None, disks: Vec::new(), password: DrivePassword("Metamorph-1".into()) }
}

fn by_serial(serial: &str) -> Vec<DiskSelector> {
    vec![DiskSelector { serial_number: Some(serial.into()), wwn: None }]
}

fn disks(outcome: Outcome) -> Vec<ErasedDisk> {
    match outcome {
        Outcome::Erased { disks } => disks,
        other => panic!("{other:?}"),
    }
}

fn by<'a>(disks: &'a [ErasedDisk], serial: &str) -> &'a ErasedDisk {
    let found = disks.iter().find(|disk| disk.serial_number.as_deref() == Some(serial));
    found.unwrap_or_else(|| panic!("{serial}: {disks:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn overwriting_clears_and_never_purges() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    let done = disks(site.erase(order(EraseMethod::Overwrite)));
    let disk = by(&done, "SN-vda");
    assert_eq!((disk.result, disk.method.as_deref()), (EraseResult::Cleared, Some("overwriting")));
    assert!(disk.evidence.contains("64 samples") && disk.evidence.contains("spare area"), "{}", disk.evidence);
    // A byte in 256 is what it was by chance.
    assert!(site.kept("vda") < MIB / 8, "{}", site.kept("vda"));
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_goes_and_the_report_says_that_the_data_are_there() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    let done = disks(site.erase(order(EraseMethod::Metadata)));
    assert_eq!(by(&done, "SN-vda").result, EraseResult::MetadataRemoved);
    assert_eq!(site.kept("vda"), MIB, "all but what is cleared at both ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_disk_has_no_command_and_is_left() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    let done = disks(site.erase(order(EraseMethod::Purge)));
    let disk = by(&done, "SN-vda");
    assert_eq!(disk.result, EraseResult::NotDone);
    assert!(disk.evidence.contains("Overwrite") && disk.evidence.contains("nothing was changed"), "{}", disk.evidence);
    assert_eq!(site.kept("vda"), 8 * MIB);
}

/// A controller with two namespaces.
fn nvme(kind: Kind) -> Site {
    let site = Site::new(vec![("nvme0", kind)]);
    for (name, number) in [("nvme0n1", "1"), ("nvme0n2", "2")] {
        site.disk(name, Some(NVME));
        site.plant(&format!("{NVME}/block/{name}/nsid"), number);
    }
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespaces_of_one_controller_are_erased_by_one_command() {
    let site = nvme(Kind::Nvme);
    let done = disks(site.erase(order(EraseMethod::Purge)));
    assert_eq!((done.len(), site.erased()), (2, 1));
    for disk in &done {
        assert_eq!(disk.result, EraseResult::Cleared, "{disk:?}");
        assert_eq!(disk.method.as_deref(), Some("NVMe Format (user data erase)"));
        assert!(disk.evidence.starts_with("64 samples held data before, none"), "{}", disk.evidence);
    }
    assert_eq!([site.kept("nvme0n1"), site.kept("nvme0n2")], [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_not_erased_with_another_that_was_named() {
    let site = nvme(Kind::Nvme);
    let named = EraseDisks { disks: by_serial("SN-nvme0n1"), ..order(EraseMethod::Purge) };
    let done = disks(site.erase(named));
    assert_eq!((done.len(), site.erased()), (1, 0));
    assert!(done[0].result == EraseResult::NotDone && done[0].evidence.contains("namespace 2"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_says_done_and_has_its_data_is_found_out() {
    let site = nvme(Kind::Liar);
    let done = disks(site.erase(order(EraseMethod::Purge)));
    assert_eq!(site.erased(), 1);
    for disk in &done {
        assert_eq!(disk.result, EraseResult::NotDone);
        assert!(
            disk.evidence.contains("says that it is done, and 64 of 64 samples read as before"),
            "{}",
            disk.evidence
        );
    }
}

fn ata(lock: Option<&'static str>) -> Site {
    let site = Site::new(vec![("sda", Kind::Ata(lock))]);
    site.disk("sda", Some(SATA));
    site.plant(&format!("{SATA}/vendor"), "ATA     \n");
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_is_erased_under_the_recorded_password_and_has_none_afterwards() {
    let site = ata(None);
    let done = disks(site.erase(order(EraseMethod::Purge)));
    assert_eq!((by(&done, "SN-sda").result, site.erased()), (EraseResult::Cleared, 1), "{done:?}");
    assert!(site.plant.locks[0].lock().unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_was_left_locked_is_opened_first_and_that_is_said() {
    for method in [EraseMethod::Purge, EraseMethod::Overwrite] {
        let site = ata(Some("Metamorph-1"));
        let done = disks(site.erase(order(method)));
        let disk = by(&done, "SN-sda");
        assert!(disk.result == EraseResult::Cleared && disk.evidence.contains("left it locked"), "{disk:?}");
        assert!(site.plant.locks[0].lock().unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_somebody_else_has_locked_stays_as_it_is_and_holds_nobody_up() {
    let site = ata(Some("not ours"));
    site.disk("vda", None);
    let done = disks(site.erase(order(EraseMethod::Overwrite)));
    let disk = by(&done, "SN-sda");
    assert!(disk.result == EraseResult::NotDone && disk.evidence.contains("not the one recorded"), "{disk:?}");
    assert_eq!(by(&done, "SN-vda").result, EraseResult::Cleared);
    assert_eq!(site.kept("sda"), 8 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn drives_behind_a_raid_controller_are_said_not_to_be_reached() {
    let site = Site::new(vec![]);
    site.disk("sda", Some(RAID));
    site.plant(&format!("{}/scsi_host/host4/proc_name", RAID.split("/target").next().unwrap()), "megaraid_sas\n");
    site.plant("sys/class/scsi_host/host4/proc_name", "megaraid_sas\n");
    let done = disks(site.erase(order(EraseMethod::Purge)));
    assert!(by(&done, "SN-sda").evidence.contains("RAID controller (megaraid_sas)"), "{done:?}");
    let hidden = done.iter().find(|disk| disk.name == "host4 (megaraid_sas)").unwrap();
    assert!(hidden.result == EraseResult::NotDone && hidden.evidence.contains("not reached"));
    // Who names the volume asks for it alone; what is said of it says what it is.
    let named = EraseDisks { disks: by_serial("SN-sda"), ..order(EraseMethod::Overwrite) };
    let done = disks(site.erase(named));
    assert_eq!(done.len(), 1);
    assert!(
        done[0].result == EraseResult::Cleared && done[0].evidence.contains("only what the volume shows"),
        "{done:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_other_machines_may_use_is_left_and_reported() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    site.disk("sda", Some(FC));
    let done = disks(site.erase(order(EraseMethod::Overwrite)));
    assert!(by(&done, "SN-sda").evidence.contains("Fibre Channel"));
    assert_eq!([site.kept("sda"), u64::from(site.kept("vda") > MIB)], [8 * MIB, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_that_are_named_have_to_be_there_and_others_are_left() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    add_disk(site.root(), "vdb", 5, 8 * MIB);
    let named = |serial: &str| EraseDisks { disks: by_serial(serial), ..order(EraseMethod::Overwrite) };
    let Outcome::Failed(error) = site.erase(named("SN-gone")) else { panic!("it is not there") };
    assert!(
        error.code == ErrorCode::NoDisk && error.message.contains("no disk has serial number SN-gone"),
        "{error:?}"
    );
    let done = disks(site.erase(named("SN-vdb")));
    assert_eq!((done.len(), site.kept("vda")), (1, 8 * MIB));
    site.plant("sys/devices/pci0000:00/0000:00:05.0/virtio5/block/vdb/serial", "SN-vda\n");
    let Outcome::Failed(error) = site.erase(named("SN-vda")) else { panic!("two have it") };
    assert!(error.message.contains("2 disks have serial number SN-vda"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_of_the_inspection_that_is_absent_stops_an_erase_of_all() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    let gone = Storage {
        name: Some("/dev/disk/by-path/pci-0000:81:00.0-sas-phy4-lun-0".into()),
        serial_number: Some("SN-gone".into()),
        ..Storage::default()
    };
    let expected = Some(vec![gone]);
    let Outcome::Failed(error) = site.erase(EraseDisks { expected, ..order(EraseMethod::Overwrite) }) else {
        panic!("one is absent")
    };
    assert!(error.code == ErrorCode::NoDisk && error.message.contains("SN-gone"), "{error:?}");
    assert_eq!(site.kept("vda"), 8 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_owners_disk_stops_everything_unless_consent_names_it() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    let mark = r#"{"version":1,"owner":"owner-2","host":"ns/other","operation":"op"}"#;
    let variable = [&7_u32.to_le_bytes()[..], mark.as_bytes()].concat();
    let path = site.root().join("sys/firmware/efi/efivars").join(OWNER_EFI_VARIABLE);
    std::fs::write(&path, variable).unwrap();
    let Outcome::Failed(error) = site.erase(order(EraseMethod::Overwrite)) else { panic!("it is another's") };
    assert!(error.code == ErrorCode::ForeignOwner && error.untouched, "{error:?}");
    assert_eq!(site.kept("vda"), 8 * MIB);
    let mut consented = order(EraseMethod::Overwrite);
    assert!(error.message.contains("owner-2"), "{error:?}");
    consented.mark.consent = Some("owner-2".into());
    let done = disks(site.erase(consented));
    assert_eq!(by(&done, "SN-vda").result, EraseResult::Cleared);
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_that_no_system_goes_on_are_reported_where_all_are_meant() {
    let site = Site::new(vec![]);
    for (name, slot) in [("vda", 4), ("vdb", 5), ("vdc", 6)] {
        add_disk(site.root(), name, slot, 8 * MIB);
    }
    let block = |name: &str, file: &str, content: &str| {
        std::fs::write(site.root().join("sys/block").join(name).join(file), content).unwrap();
    };
    block("vdb", "ro", "1\n");
    block("vdc", "size", "0\n");
    let done = disks(site.erase(order(EraseMethod::Overwrite)));
    let of = |serial| (by(&done, serial).result, by(&done, serial).evidence.clone());
    assert_eq!((done.len(), of("SN-vda").0), (3, EraseResult::Cleared));
    for (serial, why) in [("SN-vdb", "read-only"), ("SN-vdc", "size 0")] {
        let (result, evidence) = of(serial);
        assert!(result == EraseResult::NotDone && evidence.contains(why), "{serial}: {evidence}");
    }
    // Who names a disk asks for that alone; and tables go as by a deprovisioning.
    let named = EraseDisks { disks: by_serial("SN-vda"), ..order(EraseMethod::Overwrite) };
    assert_eq!(disks(site.erase(named)).len(), 1);
    assert_eq!(disks(site.erase(order(EraseMethod::Metadata))).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_a_disk_is_not_erased_with_success() {
    let site = Site::new(vec![]);
    // The inspection knew none either.
    for method in [EraseMethod::Metadata, EraseMethod::Overwrite, EraseMethod::Purge] {
        let Outcome::Failed(error) = site.erase(EraseDisks { expected: Some(vec![]), ..order(method) }) else {
            panic!("nothing was erased")
        };
        assert!(error.code == ErrorCode::NoDisk && error.message.contains("no disk was found"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn firmware_that_keeps_a_boot_entry_does_not_lose_the_report() {
    let site = Site::new(vec![]);
    site.disk("vda", None);
    // What cannot be read cannot be removed.
    let entry = "sys/firmware/efi/efivars/Boot0001-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    std::fs::create_dir_all(site.root().join(entry)).unwrap();
    let done = disks(site.erase(order(EraseMethod::Overwrite)));
    let disk = by(&done, "SN-vda");
    assert_eq!(disk.result, EraseResult::Cleared);
    assert!(disk.evidence.contains("64 samples") && disk.evidence.contains("boot entries"), "{}", disk.evidence);
}

/// A disk that takes hours, and keeps nothing.
struct Endless(Arc<AtomicU64>);

impl Disk for Endless {
    fn name(&self) -> &str {
        "/dev/vda"
    }
    fn size(&self) -> u64 {
        64 << 40
    }
    fn logical_sector_size(&self) -> u32 {
        512
    }
    fn read_at(&self, _: u64, buf: &mut [u8]) -> Result<(), disk_image::Error> {
        buf.fill(0);
        Ok(())
    }
    fn write_at(&self, offset: u64, _: &[u8]) -> Result<(), disk_image::Error> {
        self.0.store(offset, Ordering::SeqCst);
        Ok(())
    }
    fn make_zero(&self, _: u64, _: u64) -> Result<(), disk_image::Error> {
        Ok(())
    }
    fn flush(&self) -> Result<(), disk_image::Error> {
        Ok(())
    }
    fn reread_partition_table(&self) -> Result<(), disk_image::Error> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_let_go_writes_no_further() {
    let mut site = Site::new(vec![]);
    site.disk("vda", None);
    let at = Arc::new(AtomicU64::new(0));
    Arc::get_mut(&mut site.plant).unwrap().endless = Some(Arc::clone(&at));
    let told = AtomicU32::new(0);
    let outcome = site.erase_while(order(EraseMethod::Overwrite), |progress| {
        assert_eq!(progress.phase, Phase::Erasing);
        if told.fetch_add(1, Ordering::SeqCst) == 0 { Flow::Continue } else { Flow::Cancel }
    });
    let Outcome::Failed(error) = outcome else { panic!("it was to stop") };
    assert!(error.code == ErrorCode::Refused && error.message.contains("let this machine go"), "{error:?}");
    assert!((1..1 << 42).contains(&at.load(Ordering::SeqCst)), "its end has not been reached");
}
