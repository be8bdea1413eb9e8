//! The QEMU machine: UEFI firmware under software emulation, disks in files, the virtual CD over NBD.
//!
//! QEMU never gets a kernel or an initial RAM disk: its firmware boots from the medium or from a disk. QEMU ends when the guest resets, and is
//! started again with the boot source of the current override: QEMU's own boot order would not forget the CD. Each machine keeps its firmware
//! variables in one file, enrolled with Microsoft's keys; Secure Boot is switched on or off inside it, so that boot entries survive the switch.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command as Program},
    sync::{mpsc, oneshot},
};

use crate::{
    config::{Architecture, CdBus, DiskBus, DiskConfig, DiskFormat, MachineConfig, NicConfig},
    machine::{
        BootPlan, Command, Exit, Machine, MachineError, Process, Running, Started, child, linux_tree, nvram,
        qmp::{Qmp, shutdown_reason},
    },
    nbd,
};

/// How long QEMU may take to greet, and to end when asked.
const START_LIMIT: Duration = Duration::from_secs(60);
const QUIT_LIMIT: Duration = Duration::from_secs(5);
/// Longest path of a unix socket (108 bytes with the closing zero, `unix(7)`).
const MAX_SOCKET_PATH: usize = 107;

/// What differs between the machines of two architectures.
struct Board {
    machine: &'static str,
    /// With Secure Boot.
    secure_machine: &'static str,
    cpu: &'static str,
    devices: &'static [&'static str],
    /// Besides, with Secure Boot.
    secure_devices: &'static [&'static str],
    /// Files of the firmware: its code, without and with Secure Boot, and variables with Microsoft's keys.
    code: &'static str,
    secure_code: &'static str,
    variables: &'static str,
}

const Q35: Board = Board {
    machine: "q35",
    secure_machine: "q35,smm=on",
    cpu: "max",
    devices: &["-global", "ICH9-LPC.disable_s3=1"],
    // The firmware alone may write the variables, in system management mode.
    secure_devices: &["-global", "driver=cfi.pflash01,property=secure,value=on"],
    code: "OVMF_CODE_4M.fd",
    secure_code: "OVMF_CODE_4M.secboot.fd",
    variables: "OVMF_VARS_4M.ms.fd",
};

/// QEMU's own board, with ACPI as servers have it. Pointer authentication, which `max` has, costs most of the time under emulation.
const VIRT: Board = Board {
    machine: "virt",
    secure_machine: "virt",
    cpu: "cortex-a57",
    devices: &[],
    secure_devices: &[],
    code: "AAVMF_CODE.fd",
    secure_code: "AAVMF_CODE.fd",
    variables: "AAVMF_VARS.ms.fd",
};

/// A QEMU machine.
pub struct QemuMachine {
    config: MachineConfig,
    folder: PathBuf,
    program: PathBuf,
    firmware: PathBuf,
    socket: PathBuf,
    disks: Vec<PathBuf>,
}

impl QemuMachine {
    /// Creates the machine's firmware variables and disks in `folder`, and keeps those of an earlier run. Creates sockets in `run`, whose path should
    /// be short.
    ///
    /// # Errors
    /// A file cannot be made, or a path cannot stand on QEMU's command line.
    pub fn new(
        config: MachineConfig,
        folder: &Path,
        run: &Path,
        program: PathBuf,
        firmware: PathBuf,
    ) -> Result<Self, MachineError> {
        let folder = std::path::absolute(folder).map_err(MachineError::file("finding the folder", folder))?;
        std::fs::create_dir_all(&folder).map_err(MachineError::file("making the folder", &folder))?;
        let mut disks = Vec::new();
        for (index, disk) in config.disks.iter().enumerate() {
            let path = folder.join(format!("{}.raw", linux_tree::disk_name(&config, index)));
            let path = disk.path.clone().unwrap_or(path);
            let path = std::path::absolute(&path).map_err(MachineError::file("finding the disk", &path))?;
            match disk.format {
                DiskFormat::Raw => linux_tree::ensure_sparse(&path, disk.size_bytes)?,
                DiskFormat::Qcow2 => {
                    std::fs::metadata(&path).map_err(MachineError::file("opening the disk", &path))?.len()
                }
            };
            text(&path)?;
            disks.push(path);
        }
        let socket = run.join(format!("{}.nbd", config.id));
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(MachineError::Path(socket));
        }
        let machine = Self { config, folder, program, firmware, socket, disks };
        machine.ensure_variables()?;
        Ok(machine)
    }

    const fn board(&self) -> &'static Board {
        match self.config.architecture {
            Architecture::X86_64 => &Q35,
            Architecture::Aarch64 => &VIRT,
        }
    }

    fn variables(&self) -> PathBuf {
        self.folder.join("efivars.fd")
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    fn ensure_variables(&self) -> Result<(), MachineError> {
        let (from, to) = (self.firmware.join(self.board().variables), self.variables());
        if !to.exists() {
            // A copy under another name first: a simulator killed here must not leave half a file behind.
            let half = to.with_extension("part");
            std::fs::copy(&from, &half).map_err(MachineError::file("copying the firmware variables", &from))?;
            std::fs::rename(&half, &to).map_err(MachineError::file("making the firmware variables", &to))?;
        }
        Ok(())
    }

    /// QEMU's arguments for one start.
    fn arguments(&self, plan: &BootPlan) -> Result<Vec<String>, MachineError> {
        let config = &self.config;
        let mut args = Vec::new();
        let mut push = |parts: &[&str]| args.extend(parts.iter().map(|part| (*part).to_owned()));
        let secure = plan.secure_boot;
        push(&["-name", &config.id, "-nodefaults", "-no-user-config", "-display", "none", "-vga", "none"]);
        let board = self.board();
        push(&["-accel", "tcg", "-machine", if secure { board.secure_machine } else { board.machine }]);
        push(&["-cpu", board.cpu]);
        push(&["-smp", &config.cpus.to_string(), "-m", &config.memory_mib.to_string()]);
        let uuid = config.system_uuid();
        let (maker, model, serial) = (&config.manufacturer, &config.model, config.system_serial());
        push(&["-uuid", &uuid.to_string()]);
        push(&["-smbios", &format!("type=1,manufacturer={maker},product={model},serial={serial},uuid={uuid}")]);
        for file in &config.smbios {
            push(&["-smbios", &format!("file={}", text(file)?)]);
        }
        push(&["-rtc", "base=utc", "-no-reboot", "-device", "virtio-rng-pci"]);
        push(board.devices);
        push(&["-chardev", "stdio,id=monitor,signal=off", "-mon", "chardev=monitor,mode=control"]);
        let console = self.console();
        push(&["-chardev", &format!("file,id=console,path={},append=on", text(&console)?)]);
        push(&["-serial", "chardev:console"]);
        let code = self.firmware.join(if secure { board.secure_code } else { board.code });
        push(&["-drive", &format!("if=pflash,format=raw,unit=0,readonly=on,file={}", text(&code)?)]);
        push(&["-drive", &format!("if=pflash,format=raw,unit=1,file={}", text(&self.variables())?)]);
        if secure {
            push(board.secure_devices);
        }
        if config.disks.iter().any(|disk| disk.bus == DiskBus::Scsi) || config.cd_bus == CdBus::VirtioScsi {
            push(&["-device", "virtio-scsi-pci,id=scsi"]);
        }
        for (index, disk) in config.disks.iter().enumerate() {
            args.extend(self.disk_arguments(index, disk, plan.medium.is_some())?);
        }
        if plan.medium.is_some() {
            args.extend(self.cd_arguments()?);
        }
        args.extend(config.local_bmc.into_iter().flat_map(local_bmc_arguments));
        for (index, nic) in config.nics.iter().enumerate() {
            args.extend(self.nic_arguments(index, nic, plan.number)?);
        }
        Ok(args)
    }

    /// A disk. It gets a place in QEMU's boot order only next to a CD: without a CD, the firmware follows its own variables.
    fn disk_arguments(&self, index: usize, disk: &DiskConfig, with_cd: bool) -> Result<Vec<String>, MachineError> {
        let file = text(&self.disks[index])?;
        let driver = match disk.format {
            DiskFormat::Raw => "raw",
            DiskFormat::Qcow2 => "qcow2",
        };
        let serial = self.config.disk_serial(index);
        let wwn = self.config.disk_wwn(index);
        let rate = if disk.rotational { 7200 } else { 1 };
        let mut device = match disk.bus {
            DiskBus::Virtio => format!("virtio-blk-pci,drive=disk{index},serial={serial}"),
            DiskBus::Nvme => format!("nvme,drive=disk{index},serial={serial}"),
            DiskBus::Scsi => format!(
                "scsi-hd,bus=scsi.0,scsi-id={index},drive=disk{index},serial={serial},device_id={serial},\
                 rotation_rate={rate},wwn={wwn}"
            ),
        };
        let sector = disk.logical_sector_size;
        device += &format!(",logical_block_size={sector},physical_block_size={}", sector.max(4096));
        if with_cd {
            device += &format!(",bootindex={}", index + 1);
        }
        Ok(vec![
            "-blockdev".to_owned(),
            format!("driver=file,node-name=file{index},filename={file},discard=unmap"),
            "-blockdev".to_owned(),
            format!("driver={driver},node-name=disk{index},file=file{index},discard=unmap"),
            "-device".to_owned(),
            device,
        ])
    }

    fn cd_arguments(&self) -> Result<Vec<String>, MachineError> {
        let socket = text(&self.socket)?;
        let mut args = vec![
            "-blockdev".to_owned(),
            format!("driver=nbd,node-name=cd,server.type=unix,server.path={socket},read-only=on"),
        ];
        let devices: &[&str] = match self.config.cd_bus {
            CdBus::Ahci if self.config.architecture == Architecture::Aarch64 => {
                &["ich9-ahci,id=ide", "ide-cd,bus=ide.0,drive=cd,bootindex=0"]
            }
            CdBus::Ahci => &["ide-cd,drive=cd,bootindex=0"],
            CdBus::Usb => &["qemu-xhci", "usb-bot,id=cdusb", "scsi-cd,bus=cdusb.0,lun=0,drive=cd,bootindex=0"],
            CdBus::VirtioScsi => &["scsi-cd,bus=scsi.0,scsi-id=30,drive=cd,bootindex=0"],
        };
        for device in devices {
            args.extend(["-device".to_owned(), (*device).to_owned()]);
        }
        Ok(args)
    }

    fn nic_arguments(&self, index: usize, nic: &NicConfig, boot: u64) -> Result<Vec<String>, MachineError> {
        let mut network = format!("user,id=net{index},restrict=off");
        if let Some(subnet) = &nic.network {
            network += &format!(",net={subnet}");
        }
        if let Some(host) = &nic.host {
            network += &format!(",host={host}");
        }
        for forward in &nic.forwards {
            network += &format!(",hostfwd={forward}");
        }
        let mac = self.config.mac(index);
        // No option ROM: the firmware has its own driver, and must not boot from the network.
        let device = format!("virtio-net-pci,id=nic{index},netdev=net{index},mac={mac},romfile=");
        let mut args = vec!["-netdev".to_owned(), network, "-device".to_owned(), device];
        if nic.capture {
            let path = self.capture(index, boot);
            args.extend([
                "-object".to_owned(),
                format!("filter-dump,id=capture{index},netdev=net{index},file={}", text(&path)?),
            ]);
        }
        Ok(args)
    }

    fn capture(&self, nic: usize, boot: u64) -> PathBuf {
        self.folder.join(format!("nic{nic}-boot{boot}.pcap"))
    }

    async fn launch(&self, args: &[String]) -> Result<(Child, Qmp), MachineError> {
        let log = self.folder.join("qemu.log");
        let errors = std::fs::File::create(&log).map_err(MachineError::file("making", &log))?;
        let mut program = Program::new(&self.program);
        program.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let spawned = child::spawn(&mut program);
        let mut child = spawned.map_err(|source| MachineError::Spawn { program: self.program.clone(), source })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(MachineError::Qemu("it has no standard input and output".to_owned()));
        };
        match tokio::time::timeout(START_LIMIT, Qmp::connect(input, output)).await {
            Ok(Ok(qmp)) => Ok((child, qmp)),
            Ok(Err(error)) => {
                child::kill(&mut child).await;
                let said = std::fs::read(&log).unwrap_or_default();
                let said = String::from_utf8_lossy(&said[..said.len().min(2000)]).trim().to_owned();
                if said.is_empty() { Err(error.into()) } else { Err(MachineError::Qemu(said)) }
            }
            Err(_) => {
                child::kill(&mut child).await;
                Err(MachineError::Qemu(format!("no greeting within {} s", START_LIMIT.as_secs())))
            }
        }
    }
}

/// KCS registers, and whom QEMU sends what is written to them: it looks for that program again when it is gone.
fn local_bmc_arguments(address: SocketAddr) -> Vec<String> {
    vec![
        "-chardev".to_owned(),
        format!("socket,id=bmc,host={},port={},reconnect=1", address.ip(), address.port()),
        "-device".to_owned(),
        "ipmi-bmc-extern,id=bmc0,chardev=bmc".to_owned(),
        "-device".to_owned(),
        "isa-ipmi-kcs,bmc=bmc0".to_owned(),
    ]
}

#[async_trait]
impl Machine for QemuMachine {
    async fn start(&self, plan: &BootPlan) -> Result<Started, MachineError> {
        let variables = self.variables();
        nvram::set_secure_boot(&variables, plan.secure_boot)
            .map_err(MachineError::file("switching Secure Boot in the firmware variables", &variables))?;
        let cd = match &plan.medium {
            Some(medium) => Some(
                nbd::Server::start(&self.socket, Arc::clone(medium))
                    .map_err(MachineError::file("making the socket", &self.socket))?,
            ),
            None => None,
        };
        let args = self.arguments(plan)?;
        let (child, qmp) = self.launch(&args).await?;
        let pid = child.id().unwrap_or_default();
        let (commands, receiver) = mpsc::channel(4);
        let (ended, exit) = oneshot::channel();
        tokio::spawn(supervise(child, qmp, receiver, ended, cd));
        let mut command = vec![self.program.display().to_string()];
        command.extend(args);
        let captured = self.config.nics.iter().enumerate().filter(|(_, nic)| nic.capture);
        let captures: Vec<PathBuf> = captured.map(|(index, _)| self.capture(index, plan.number)).collect();
        let detail = json!({ "boot": plan.number, "commandLine": command, "captures": captures });
        let running = if plan.medium.is_some() { Running::Medium } else { Running::Disk };
        Ok(Started { running, detail, process: Some(Process { pid, commands, exit }) })
    }

    fn parts(&self) -> Value {
        json!({
            "disks": self.disks,
            "serialConsole": self.console(),
            "firmwareVariables": self.variables(),
            "folder": self.folder,
        })
    }
}

/// Follows QEMU to its end, or ends it; the medium is served as long as it runs.
async fn supervise(
    mut child: Child,
    mut qmp: Qmp,
    mut commands: mpsc::Receiver<Command>,
    ended: oneshot::Sender<Exit>,
    cd: Option<nbd::Server>,
) {
    let mut reason = None;
    loop {
        tokio::select! {
            message = qmp.message() => match message {
                Ok(message) => {
                    if let Some(why) = shutdown_reason(&message) {
                        reason = Some(why.to_owned());
                    }
                }
                Err(_) => break,
            },
            command = commands.recv() => match command {
                Some(Command::Button) => {
                    if let Err(error) = qmp.send("system_powerdown").await {
                        tracing::debug!(%error, "pressing the power button");
                    }
                }
                Some(Command::Kill(done)) => {
                    quit(&mut child, &mut qmp).await;
                    drop(cd);
                    // An error means that the caller no longer waits.
                    let _ = done.send(());
                    return;
                }
                None => {
                    child::kill(&mut child).await;
                    return;
                }
            },
        }
    }
    // The monitor is closed: QEMU is about to end.
    if tokio::time::timeout(QUIT_LIMIT, child.wait()).await.is_err() {
        child::kill(&mut child).await;
    }
    drop(cd);
    let exit = match reason.as_deref() {
        Some("guest-reset") => Exit::Reset,
        Some("guest-shutdown" | "host-signal" | "host-qmp-quit" | "host-ui") => Exit::PowerOff,
        Some(other) => Exit::Crashed(format!("QEMU stopped: {other}")),
        None => Exit::Crashed("QEMU ended without saying why".to_owned()),
    };
    // An error means that the power was cut at the same moment.
    let _ = ended.send(exit);
}

/// Asks QEMU to quit, so that it closes qcow2 files properly; kills it if it does not.
async fn quit(child: &mut Child, qmp: &mut Qmp) {
    if qmp.send("quit").await.is_ok() && tokio::time::timeout(QUIT_LIMIT, child.wait()).await.is_ok() {
        return;
    }
    child::kill(child).await;
}

/// A path in the form of QEMU's options.
fn text(path: &Path) -> Result<&str, MachineError> {
    let plain = |path: &&str| !path.contains(',') && !path.chars().any(char::is_control);
    path.to_str().filter(plain).ok_or_else(|| MachineError::Path(path.to_owned()))
}
