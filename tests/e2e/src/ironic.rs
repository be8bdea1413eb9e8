//! A real Ironic beside the world: API and conductor on loopback, and the web server that such an installation has.
//!
//! `METAMORPH_IRONIC` names the folder of its programs (`tests/ironic/build` installs them). It is set up as
//! [ironic-image](https://github.com/metal3-io/ironic-image) sets it up where that matters to a machine's life: agents stay on between works (fast
//! track), cleaning removes metadata alone, and time-outs are that image's. What its figures are taken of is this setup, too (`benches/figures/ironic`).
//!
//! **The network** of QEMU's machines is QEMU's own (`-netdev user`): no rights are needed, and no device. A guest reaches what listens on
//! loopback at 10.0.2.2, where [`Setup::seen_at`] has it look for Ironic's API. Ironic calls the agent at a port on loopback that QEMU forwards;
//! the kernel parameters `ipa-advertise-host` and `ipa-advertise-port` tell the agent what to tell Ironic. An image that a guest reads at 10.0.2.2 has
//! no address on the host: Ironic, which looks whether it is there, is sent to the web server as by a proxy.

use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::disks::tool;
use crate::{Running, free_addresses};

/// Its configuration, which the provisioner's own tests have, too.
const CONFIGURATION: &str = include_str!("../../ironic/ironic.conf");
/// How long it may take to start, in pauses of a tenth of a second.
const START: usize = 1800;
/// Version of its API that is asked for.
const VERSION: &str = "1.110";
/// Longest head of a request to the web server.
const MAX_HEAD: usize = 16 << 10;

/// What differs between installations.
pub struct Setup {
    /// Folder with the agent's `vmlinuz` and `initramfs`.
    pub agent: PathBuf,
    /// Folder with the boot loaders `shimx64.efi` and `gcdx64.efi`.
    pub loaders: PathBuf,
    /// More parameters of the agent's kernel.
    pub parameters: String,
    /// Where agents find this machine.
    pub seen_at: Ipv4Addr,
}

/// An Ironic that runs. It ends with this.
pub struct Ironic {
    process: Running,
    folder: TempDir,
    endpoint: String,
    files: u16,
    seen_at: Ipv4Addr,
    http: reqwest::Client,
}

impl Ironic {
    /// Starts it.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start(setup: &Setup) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().context("make an HTTP client")?;
        let programs =
            std::env::var_os("METAMORPH_IRONIC").context("METAMORPH_IRONIC is not set: run make test-ironic")?;
        let programs = PathBuf::from(programs);
        let folder = tempfile::tempdir().context("make a folder")?;
        let web = folder.path().join("web");
        std::fs::create_dir(&web)?;
        std::fs::create_dir(folder.path().join("tmp"))?;
        for name in ["vmlinuz", "initramfs"] {
            let file = setup.agent.join(name);
            std::os::unix::fs::symlink(&file, web.join(name)).with_context(|| format!("link {}", file.display()))?;
        }
        boot_loader(&setup.loaders, &web.join("esp.img"))?;
        let files = serve(&web)?;
        let [api] = free_addresses(Ipv4Addr::LOCALHOST)?;
        let config = folder.path().join("ironic.conf");
        std::fs::write(&config, configuration(folder.path(), setup, api.port(), files))?;
        let tools = tools(folder.path())?;
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
        let log = folder.path().join("output");
        let output = |command: &mut Command| -> anyhow::Result<()> {
            command.stdout(std::fs::File::options().append(true).create(true).open(&log)?);
            Ok(())
        };
        let mut schema = Command::new(programs.join("ironic-dbsync"));
        schema.arg("--config-file").arg(&config).arg("create_schema");
        output(&mut schema)?;
        let ended = Running::start(schema, &log)?.ended(Duration::from_secs(180)).await?;
        ensure!(ended.success(), "ironic-dbsync ended with {ended}");
        // It ends with this process, however that ends; its conductor is a process of its own, and of the same group.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(programs.join("ironic")).arg("--config-file").arg(&config);
        command.env("PATH", path).env("http_proxy", format!("http://127.0.0.1:{files}")).env("no_proxy", "127.0.0.1");
        command.process_group(0);
        output(&mut command)?;
        let process = Running::start(command, &log)?;
        let endpoint = format!("http://{api}");
        let mut ironic = Self { process, folder, endpoint, files, seen_at: setup.seen_at, http };
        ironic.wait().await?;
        Ok(ironic)
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        for _ in 0..START {
            // The type is listed when its conductor runs.
            if self.get("/v1/drivers").await.is_ok_and(|drivers| drivers.to_string().contains("\"redfish\"")) {
                return Ok(());
            }
            ensure!(self.process.is_running(), "Ironic has ended; {}", self.process.tail());
            // It says nowhere else that it is ready.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("Ironic does not answer; {}", self.process.tail())
    }

    /// Asks its API.
    ///
    /// # Errors
    /// When it refuses.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request =
            self.http.get(format!("{}{path}", self.endpoint)).header("X-OpenStack-Ironic-API-Version", VERSION);
        let response = request.send().await.with_context(|| format!("ask Ironic {path}"))?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "Ironic answered {status} to {path}: {text}");
        serde_json::from_str(&text).context("understand Ironic")
    }

    /// The list of Ironics for a server that uses this one, in a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn list(&self) -> anyhow::Result<PathBuf> {
        self.list_at(&self.endpoint)
    }

    /// The same for a server that reaches it at another address.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn list_at(&self, endpoint: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join("ironics.yaml");
        std::fs::write(&path, format!("ironics:\n- name: real\n  endpoint: {endpoint}\n"))?;
        Ok(path)
    }

    /// URL of its API.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The group of its processes, while it runs.
    #[must_use]
    pub fn group(&self) -> Option<Pid> {
        self.process.pid()
    }

    /// The folder with all that it writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Serves a file to machines, and gives its address.
    ///
    /// # Errors
    /// When it cannot be linked.
    pub fn publish(&self, file: &Path) -> anyhow::Result<String> {
        let name = file.file_name().context("a file's name")?;
        std::os::unix::fs::symlink(file, self.folder.path().join("web").join(name)).context("link the file")?;
        Ok(format!("http://{}:{}/{}", self.seen_at, self.files, name.to_string_lossy()))
    }

    /// The end of its log.
    #[must_use]
    pub fn tail(&self) -> String {
        let text = std::fs::read(self.folder.path().join("ironic.log")).unwrap_or_default();
        let end = String::from_utf8_lossy(&text[text.len().saturating_sub(6000)..]).into_owned();
        format!("the end of Ironic's log:\n{end}")
    }

    /// Logs of agents that it has kept.
    #[must_use]
    pub fn agents_logs(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("logs")).map_or(0, Iterator::count)
    }
}

impl Drop for Ironic {
    fn drop(&mut self) {
        if let Some(group) = self.process.pid() {
            // An error means that it has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// What [`CONFIGURATION`] leaves open; metal3's choices are in its image's `ironic.conf.j2`.
fn configuration(folder: &Path, setup: &Setup, port: u16, files: u16) -> String {
    let text = CONFIGURATION.replace("@FOLDER@", &folder.display().to_string()).replace("@PORT@", &port.to_string());
    let (folder, seen_at, parameters) = (folder.display(), setup.seen_at, &setup.parameters);
    let url = format!("http://127.0.0.1:{files}");
    format!(
        "{text}
[DEFAULT]
tempdir = {folder}/tmp
hash_ring_algorithm = sha256
[service_catalog]
endpoint_override = http://{seen_at}:{port}
[conductor]
bootloader = {url}/esp.img
deploy_kernel = {url}/vmlinuz
deploy_ramdisk = {url}/initramfs
deploy_callback_timeout = 4800
node_history = False
power_state_change_timeout = 120
[deploy]
http_url = {url}
http_root = {folder}/web
iso_master_path = {folder}/iso-masters
default_boot_mode = uefi
erase_devices_priority = 0
erase_devices_metadata_priority = 10
fast_track = true
[pxe]
tftp_root = {folder}/tftp
tftp_master_path = {folder}/tftp-masters
instance_master_path = {folder}/masters
images_path = {folder}/images
[agent]
max_command_attempts = 30
deploy_logs_collect = always
deploy_logs_local_path = {folder}/logs
certificates_path = {folder}/certificates
image_download_source = http
[inspector]
require_managed_boot = False
add_ports = all
keep_ports = present
power_off = false
extra_kernel_params = ipa-inspection-collectors=default,logs
[redfish]
kernel_append_params = nofb vga=normal console=ttyS0 {parameters}
"
    )
}

/// Ironic asks for mkisofs, which xorriso is by that name.
fn tools(folder: &Path) -> anyhow::Result<PathBuf> {
    let tools = folder.join("tools");
    std::fs::create_dir(&tools)?;
    let iso = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("xorrisofs"))
        .find(|path| path.exists())
        .context("xorrisofs is missing; make setup installs it")?;
    std::os::unix::fs::symlink(iso, tools.join("mkisofs"))?;
    Ok(tools)
}

/// The image of an EFI system partition that Ironic puts into its ISOs: Debian's signed loaders, and a configuration that goes on with the one
/// that Ironic writes beside kernel and ramdisk. GRUB is the one for CDs, which looks for `.disk/info`.
fn boot_loader(loaders: &Path, image: &Path) -> anyhow::Result<()> {
    let work = tempfile::tempdir().context("make a folder")?;
    let script = work.path().join("grub.cfg");
    std::fs::write(
        &script,
        "search --no-floppy --file --set=root /EFI/BOOT/grub.cfg\nconfigfile ($root)/EFI/BOOT/grub.cfg\n",
    )?;
    let info = work.path().join("info");
    std::fs::write(&info, "The boot loader of an Ironic\n")?;
    let image = image.display().to_string();
    tool("mformat", &["-i", &image, "-C", "-v", "ESP", "-T", "16384", "-h", "16", "-s", "32", "::"])?;
    tool("mmd", &["-i", &image, "::/EFI", "::/EFI/BOOT", "::/.disk", "::/boot", "::/boot/grub"])?;
    for (from, to) in [
        (loaders.join("shimx64.efi"), "EFI/BOOT/BOOTX64.EFI"),
        (loaders.join("gcdx64.efi"), "EFI/BOOT/grubx64.efi"),
        (script, "boot/grub/grub.cfg"),
        (info, ".disk/info"),
    ] {
        tool("mcopy", &["-i", &image, &from.display().to_string(), &format!("::/{to}")])?;
    }
    Ok(())
}

/// Serves the files of a folder, by ranges if they are asked for, whatever host is named: as a web server, and as a proxy to itself.
fn serve(folder: &Path) -> anyhow::Result<u16> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).context("listen for files")?;
    let port = listener.local_addr()?.port();
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let folder = folder.clone();
            std::thread::spawn(move || answer(stream, &folder));
        }
    });
    Ok(port)
}

fn answer(mut stream: TcpStream, folder: &Path) -> Option<()> {
    let (mut read, mut chunk) = (Vec::new(), [0; 1024]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).ok().filter(|count| *count > 0 && read.len() < MAX_HEAD)?;
        read.extend_from_slice(&chunk[..count]);
    }
    let head = String::from_utf8_lossy(&read).into_owned();
    let target = head.split_whitespace().nth(1)?;
    let path = target.strip_prefix("http://").map_or(target, |rest| rest.split_once('/').map_or("", |(_, path)| path));
    let path = Path::new(path.trim_start_matches('/'));
    let is_below = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let Some(mut file) = std::fs::File::open(folder.join(path)).ok().filter(|_| is_below) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
    };
    let length = file.metadata().ok()?.len();
    let range =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let range = range.and_then(|range| {
        let (from, to) = range.trim().split_once('-')?;
        Some((from.parse::<u64>().ok()?, to.parse().unwrap_or(length - 1).min(length - 1)))
    });
    let (status, from, end, named) = range.map_or(("200 OK", 0, length, String::new()), |(from, to)| {
        ("206 Partial Content", from, to + 1, format!("Content-Range: bytes {from}-{to}/{length}\r\n"))
    });
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\n{named}ETag: \"{length}\"\r\nConnection: close\r\n\r\n",
        end.checked_sub(from)?
    );
    stream.write_all(answer.as_bytes()).ok()?;
    if !head.starts_with("HEAD") {
        file.seek(SeekFrom::Start(from)).ok()?;
        std::io::copy(&mut file.take(end - from), &mut stream).ok()?;
    }
    Some(())
}
