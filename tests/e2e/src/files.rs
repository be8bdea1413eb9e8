//! Programs and images that tests use. What is missing is an error that says how to make it; nothing is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};

/// The project's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program of this workspace, built by `make binaries`.
///
/// # Errors
/// When it has not been built.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let folder = build_folder()?;
    let path = folder.join(name);
    ensure!(path.exists(), "{} is missing: run make binaries", path.display());
    Ok(path)
}

/// Where cargo has put this program and those beside it.
fn build_folder() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("find this test's program")?;
    Ok(here.parent().and_then(Path::parent).context("find the build folder")?.to_owned())
}

fn is_optimised() -> anyhow::Result<bool> {
    Ok(build_folder()?.ends_with("release"))
}

/// The agent that fake machines run: the one beside this program, or, where optimised programs are built, the static one that
/// servers run too (`METAMORPH_AGENT`).
///
/// # Errors
/// When it has not been built.
pub fn agent_program() -> anyhow::Result<PathBuf> {
    if !is_optimised()? {
        return program("metamorph-agent");
    }
    let default = "target/x86_64-unknown-linux-gnu/agent/metamorph-agent";
    from_environment("METAMORPH_AGENT", default, "make agent")
}

fn from_environment(variable: &str, default: &str, hint: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os(variable).map_or_else(|| root().join(default), PathBuf::from);
    path.canonicalize().with_context(|| format!("find {} ({variable}): run {hint}", path.display()))
}

/// The agent's boot files.
///
/// # Errors
/// When they have not been built.
pub fn agent_image() -> anyhow::Result<PathBuf> {
    if !is_optimised()? {
        return from_environment("METAMORPH_AGENT_IMAGE", ".cache/agent-image-test", "make test-agent-image");
    }
    from_environment("METAMORPH_AGENT_IMAGE", ".cache/agent-image", "make agent-image")
}

/// The agent's boot files for aarch64 machines.
///
/// # Errors
/// When they have not been built.
pub fn agent_image_aarch64() -> anyhow::Result<PathBuf> {
    let default = ".cache/agent-image-aarch64-test";
    from_environment("METAMORPH_AGENT_IMAGE_AARCH64", default, "make test-agent-image-aarch64")
}

/// A ramdisk with ironic-python-agent, and its kernel.
///
/// # Errors
/// When they have not been built.
pub fn agent_image_ipa() -> anyhow::Result<PathBuf> {
    from_environment("METAMORPH_AGENT_IMAGE_IPA", ".cache/agent-image-ipa", "make agent-image-ipa")
}

/// The folder with the demo's operating system.
///
/// # Errors
/// When it has not been built.
pub fn demo_os() -> anyhow::Result<PathBuf> {
    from_environment("METAMORPH_DEMO_OS", ".cache/demo-os/current", "make demo-os")
}

/// A small disk image: GPT, an EFI system partition with a loader in the fallback place, and a data partition.
#[derive(Clone, Debug)]
pub struct DiskImage {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// SHA-256, lower-case hex.
    pub sha256: String,
}

impl DiskImage {
    /// The image, made once a process by sgdisk and mtools.
    ///
    /// # Errors
    /// When a tool is missing or fails.
    pub fn small() -> anyhow::Result<&'static Self> {
        static MADE: OnceLock<DiskImage> = OnceLock::new();
        if let Some(made) = MADE.get() {
            return Ok(made);
        }
        let made = make(12, 10, &SMALL)?;
        Ok(MADE.get_or_init(|| made))
    }

    /// The same in 4 MiB, for many machines at once.
    ///
    /// # Errors
    /// When a tool is missing or fails.
    pub fn tiny() -> anyhow::Result<Self> {
        make(1, 1, &SMALL)
    }

    /// An image that an aarch64 machine boots, with Secure Boot too: shim and GRUB from an agent image for aarch64, which say `message` on its
    /// console and stop.
    ///
    /// # Errors
    /// When a tool is missing or fails, or that image lacks a boot loader.
    pub fn aarch64(agent_image: &Path, message: &str) -> anyhow::Result<Self> {
        let loader = |name: &str| {
            let path = agent_image.join(name);
            std::fs::read(&path).with_context(|| format!("read {}", path.display()))
        };
        let (shim, grub) = (loader("shimaa64.efi")?, loader("gcdaa64.efi")?);
        let script = format!("echo '{message}'\nsleep 3600\n");
        make(
            12,
            10,
            &[
                ("EFI/BOOT/BOOTAA64.EFI", &shim),
                ("EFI/BOOT/grubaa64.efi", &grub),
                (".disk/info", b"A system for tests\n"),
                ("boot/grub/grub.cfg", script.as_bytes()),
            ],
        )
    }

    /// An image of these bytes.
    #[must_use]
    pub fn of(bytes: Vec<u8>) -> Self {
        let sha256 = hex::encode(Sha256::digest(&bytes));
        Self { bytes, sha256 }
    }
}

/// What is on the EFI system partition of small images.
const SMALL: [(&str, &[u8]); 1] = [("EFI/BOOT/BOOTX64.EFI", b"MZ no real loader: fake machines do not run it")];

/// A disk with an EFI system partition of `esp` MiB with these files at 1 MiB, and a data partition of about `data` MiB behind it, of
/// which two fifths hold something.
fn make(esp: u64, data: u64, files: &[(&str, &[u8])]) -> anyhow::Result<DiskImage> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let disk = folder.path().join("disk.raw");
    std::fs::File::create(&disk)?.set_len((esp + data + 2) << 20)?;
    let guid = "5f0d3a2e-0000-4000-8000-00000000000";
    run(Command::new("sgdisk")
        .args(["-o", "-n", &format!("1:2048:+{esp}M"), "-t", "1:ef00", "-u"])
        .arg(format!("1:{guid}1"))
        .args(["-n", "2:0:0", "-t", "2:8300", "-U", &format!("{guid}f")])
        .arg(&disk))?;
    let volume = format!("{}@@1M", disk.display());
    let sectors = (esp * 2048).to_string();
    run(Command::new("mformat")
        .args(["-i", &volume, "-v", "ESP", "-N", "12345678", "-T", &sectors, "-h", "4", "-s", "32", "::"]))?;
    let mut folders = std::collections::BTreeSet::new();
    for (path, bytes) in files {
        for (at, _) in path.match_indices('/') {
            if folders.insert(&path[..at]) {
                run(Command::new("mmd").args(["-i", &volume]).arg(format!("::/{}", &path[..at])))?;
            }
        }
        let file = folder.path().join("file");
        std::fs::write(&file, bytes)?;
        run(Command::new("mcopy").args(["-i", &volume]).arg(&file).arg(format!("::/{path}")))?;
    }
    let mut bytes = std::fs::read(&disk)?;
    // Data that is neither zero nor the same everywhere, so that a misplaced write is seen.
    let start = usize::try_from((esp + 2) << 20)?;
    let filled = usize::try_from((data << 20) * 2 / 5)?;
    for (index, byte) in bytes[start..start + filled].iter_mut().enumerate() {
        *byte = u8::try_from((index / 512 + index) % 251).unwrap_or(0);
    }
    Ok(DiskImage::of(bytes))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}; make setup installs it"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
