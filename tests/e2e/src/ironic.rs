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

#[path = "../../ironic/start.rs"]
mod start;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::disks::tool;
use crate::free_addresses;
use start::{Place, Process, START};

/// Version of its API that is asked for.
const VERSION: &str = "1.110";

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
    /// Whether Ironic unpacks a ramdisk that zstd has packed before it puts it into an ISO, which it does unless it is told otherwise. Kernels unpack it
    /// themselves, and firmware reads slowly.
    pub unpacks: bool,
}

/// An Ironic that runs. It ends with this.
pub struct Ironic {
    process: Process,
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
        let folder = tempfile::tempdir().context("make a folder")?;
        let web = folder.path().join("web");
        std::fs::create_dir(&web)?;
        std::fs::create_dir(folder.path().join("tmp"))?;
        for name in ["vmlinuz", "initramfs"] {
            let file = setup.agent.join(name);
            std::os::unix::fs::symlink(&file, web.join(name)).with_context(|| format!("link {}", file.display()))?;
        }
        boot_loader(&setup.loaders, &web.join("esp.img"))?;
        let files = start::serve(&web).context("serve files")?;
        let [api] = free_addresses(Ipv4Addr::LOCALHOST)?;
        let more = configuration(folder.path(), setup, api.port(), files);
        let place = Place { folder: folder.path(), port: api.port(), proxy: files, more: &more };
        let process = Process::start(&place).context("start Ironic")?;
        let endpoint = format!("http://{api}");
        let mut ironic = Self { process, folder, endpoint, files, seen_at: setup.seen_at, http };
        ironic.wait().await?;
        Ok(ironic)
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < START {
            // The type is listed when its conductor runs.
            if self.get("/v1/drivers").await.is_ok_and(|drivers| drivers.to_string().contains("\"redfish\"")) {
                return Ok(());
            }
            self.process.runs()?;
            // It says nowhere else that it is ready.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("Ironic does not answer; {}", self.tail())
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

    /// The group of its processes.
    #[must_use]
    pub fn group(&self) -> Pid {
        Pid::from_child(self.process.leader())
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
        start::end_of(&self.folder.path().join("ironic.log"))
    }

    /// Logs of agents that it has kept.
    #[must_use]
    pub fn agents_logs(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("logs")).map_or(0, Iterator::count)
    }
}

impl Drop for Ironic {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = kill_process_group(self.group(), Signal::KILL);
    }
}

/// What the tests' configuration leaves open; metal3's choices are in its image's `ironic.conf.j2`.
fn configuration(folder: &Path, setup: &Setup, port: u16, files: u16) -> String {
    let url = format!("http://127.0.0.1:{files}");
    let text = start::boots_machines(folder, &folder.join("web"), &url);
    let (folder, seen_at, parameters, unpacks) =
        (folder.display(), setup.seen_at, &setup.parameters, if setup.unpacks { "False" } else { "True" });
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
disable_zstandard_decompression = {unpacks}
node_history = False
power_state_change_timeout = 120
[deploy]
fast_track = true
[agent]
max_command_attempts = 30
[inspector]
require_managed_boot = False
keep_ports = present
power_off = false
extra_kernel_params = ipa-inspection-collectors=default,logs
[redfish]
kernel_append_params = nofb vga=normal console=ttyS0 {parameters}
"
    )
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
