//! The shared files every medium is made of: the agent image folder, opened once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use terms::Architecture;
use thiserror::Error;

use crate::esp::Esp;
use crate::read_at::{FileAt, ReadAt};

/// Name of the manifest in the agent image folder.
pub const MANIFEST: &str = "manifest.json";
/// Kernel, as Debian signed it.
pub const KERNEL: &str = "vmlinuz";
/// Initial RAM file system with the agent and the kernel's modules.
pub const INITRAMFS: &str = "initramfs";

/// Names of the boot loaders, which have the architecture in them (UEFI specification 2.10, 3.5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaders {
    /// First boot loader, signed by Microsoft.
    pub shim: &'static str,
    /// Second boot loader, GRUB for CDs, signed by Debian.
    pub grub: &'static str,
    /// Shim's key manager, signed by Debian; optional. On the medium it has the same name.
    pub mok_manager: &'static str,
    /// The first boot loader's name on the medium: the one that firmware looks for.
    pub fallback: &'static str,
    /// The second one's, which shim looks for.
    pub second: &'static str,
}

impl Loaders {
    /// Those of an architecture.
    #[must_use]
    pub const fn of(architecture: Architecture) -> Self {
        match architecture {
            Architecture::X86_64 => Self {
                shim: "shimx64.efi",
                grub: "gcdx64.efi",
                mok_manager: "mmx64.efi",
                fallback: "BOOTX64.EFI",
                second: "grubx64.efi",
            },
            Architecture::Aarch64 => Self {
                shim: "shimaa64.efi",
                grub: "gcdaa64.efi",
                mok_manager: "mmaa64.efi",
                fallback: "BOOTAA64.EFI",
                second: "grubaa64.efi",
            },
        }
    }
}

/// Version of the manifest's shape that this program writes and reads.
pub const MANIFEST_FORMAT: u32 = 1;

const MAX_MANIFEST: u64 = 1 << 20;
const MAX_LOADER: u64 = 16 << 20;
const MAX_KERNEL: u64 = 64 << 20;
const MAX_INITRAMFS: u64 = 1 << 30;

/// Which agent an image boots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentKind {
    /// This project's own.
    #[default]
    Metamorph,
    /// `OpenStack`'s ironic-python-agent.
    IronicPythonAgent,
}

/// The content of an agent image folder, and its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Shape of this document: [`MANIFEST_FORMAT`].
    pub format: u32,
    /// Architecture of the machines that it boots. Manifests of before there were several do not name it.
    #[serde(default)]
    pub architecture: Architecture,
    /// The agent in it. Manifests of before there were several do not name it.
    #[serde(default)]
    pub agent: AgentKind,
    /// Release of the kernel, such as `6.1.0-56-amd64`.
    pub kernel_version: String,
    /// Version of the agent program.
    pub agent_version: String,
    /// Bytes of all files together.
    pub total_bytes: u64,
    /// Kernel modules in the initramfs.
    pub modules: usize,
    /// Files by name.
    pub files: BTreeMap<String, FileEntry>,
    /// Source packages of the files, with their licences.
    pub packages: Vec<PackageEntry>,
}

/// One file of the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// SHA-256 of its contents, hexadecimal.
    pub sha256: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Its description and package.
    pub source: String,
}

/// One Debian package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageEntry {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// SHA-256 of the package file, hexadecimal.
    pub sha256: String,
    /// Where the licence is to be found, and which it is in short.
    pub licence: String,
}

impl Manifest {
    /// Describes the files in a folder, for example one assembled by hand with a custom kernel. The boot loaders' names tell the architecture. Ignores
    /// names that this module does not know.
    ///
    /// # Errors
    /// [`AssetsError::Read`] when a file is there and cannot be read.
    pub fn describe(folder: &Path, kernel_version: &str, agent_version: &str) -> Result<Self, AssetsError> {
        let mut files = BTreeMap::new();
        let of_architecture = |known: &Architecture| folder.join(Loaders::of(*known).shim).exists();
        let architecture = Architecture::ALL.into_iter().find(of_architecture).unwrap_or_default();
        let loaders = Loaders::of(architecture);
        for name in [KERNEL, INITRAMFS, loaders.shim, loaders.grub, loaders.mok_manager] {
            let path = folder.join(name);
            match std::fs::read(&path) {
                Ok(bytes) => drop(files.insert(name.to_owned(), FileEntry::new(&bytes, "given by hand"))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(AssetsError::Read { path, source }),
            }
        }
        Ok(Self {
            format: MANIFEST_FORMAT,
            architecture,
            agent: AgentKind::Metamorph,
            kernel_version: kernel_version.to_owned(),
            agent_version: agent_version.to_owned(),
            total_bytes: files.values().map(|entry| entry.bytes).sum(),
            modules: 0,
            files,
            packages: Vec::new(),
        })
    }

    /// Describes an image with our own agent that has just been built.
    pub(crate) fn of(
        architecture: Architecture,
        kernel_version: &str,
        agent_version: &str,
        modules: usize,
        files: &[(&str, Vec<u8>, String)],
        packages: Vec<PackageEntry>,
    ) -> Self {
        Self {
            format: MANIFEST_FORMAT,
            architecture,
            agent: AgentKind::Metamorph,
            kernel_version: kernel_version.to_owned(),
            agent_version: agent_version.to_owned(),
            total_bytes: files.iter().map(|(_, bytes, _)| bytes.len() as u64).sum(),
            modules,
            files: files
                .iter()
                .map(|(name, bytes, source)| ((*name).to_owned(), FileEntry::new(bytes, source)))
                .collect(),
            packages,
        }
    }

    /// The document as stored in [`MANIFEST`].
    ///
    /// # Errors
    /// None in practice: everything in it can be written as JSON.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

impl FileEntry {
    /// Describes contents.
    pub(crate) fn new(bytes: &[u8], source: &str) -> Self {
        Self { sha256: hex::encode(Sha256::digest(bytes)), bytes: bytes.len() as u64, source: source.to_owned() }
    }
}

/// Why an agent image folder cannot be used.
#[derive(Debug, Error)]
pub enum AssetsError {
    /// A file is missing or cannot be read.
    #[error("reading {path:?} of the agent image failed; build it anew with `metamorph agent-image build`")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest is not readable.
    #[error("the agent image's manifest {path:?} is not readable; build it anew with `metamorph agent-image build`")]
    Manifest {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The manifest has another shape.
    #[error(
        "the agent image's manifest has format {found}, this program reads {MANIFEST_FORMAT}: build the image anew"
    )]
    Format {
        /// The version in the manifest.
        found: u32,
    },
    /// The manifest does not name a file that is needed.
    #[error("the agent image's manifest names no {0}: build the image anew")]
    Unnamed(&'static str),
    /// A file differs from the manifest, or is too large.
    #[error("{path:?} of the agent image is not what its manifest says ({what}): build the image anew")]
    Differs {
        /// Which file.
        path: PathBuf,
        /// The property that differs.
        what: &'static str,
    },
    /// The boot loaders do not fit on a FAT image.
    #[error("making the EFI system partition image failed")]
    Esp(#[source] io::Error),
}

/// The shared files, verified and open.
#[derive(Clone, Debug)]
pub struct Assets {
    manifest: Arc<Manifest>,
    pub(crate) kernel: Arc<FileAt>,
    pub(crate) initramfs: Arc<FileAt>,
    pub(crate) esp: Arc<Esp>,
    /// SHA-256 over the names and digests of all shared files.
    pub(crate) digest: [u8; 32],
}

impl Assets {
    /// Opens the folder, verifies each file against the manifest, and builds the EFI system partition image.
    ///
    /// # Errors
    /// [`AssetsError`] when a file is missing, too large, or not what the manifest says.
    pub fn open(folder: &Path) -> Result<Self, AssetsError> {
        let path = folder.join(MANIFEST);
        let text = read_small(&path, MAX_MANIFEST)?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|source| AssetsError::Manifest { path, source })?;
        if manifest.format != MANIFEST_FORMAT {
            return Err(AssetsError::Format { found: manifest.format });
        }
        let kernel = open(folder, &manifest, KERNEL, MAX_KERNEL)?;
        let initramfs = open(folder, &manifest, INITRAMFS, MAX_INITRAMFS)?;
        let names = Loaders::of(manifest.architecture);
        let loader = |name: &'static str| open(folder, &manifest, name, MAX_LOADER).map(Arc::new);
        let mut loaders = vec![(names.fallback, loader(names.shim)?), (names.second, loader(names.grub)?)];
        if manifest.files.contains_key(names.mok_manager) {
            loaders.push((names.mok_manager, loader(names.mok_manager)?));
        }
        let esp = Esp::new(loaders).map_err(AssetsError::Esp)?;
        let mut hash = Sha256::new();
        for (name, entry) in &manifest.files {
            hash.update(format!("{name}\0{}\0{}\0", entry.sha256, entry.bytes));
        }
        hash.update(esp.digest().map_err(AssetsError::Esp)?);
        Ok(Self {
            manifest: Arc::new(manifest),
            kernel: Arc::new(kernel),
            initramfs: Arc::new(initramfs),
            esp: Arc::new(esp),
            digest: hash.finalize().into(),
        })
    }

    /// The folder's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The agent in it.
    pub fn agent(&self) -> AgentKind {
        self.manifest.agent
    }

    /// Architecture of the machines that it boots.
    pub fn architecture(&self) -> Architecture {
        self.manifest.architecture
    }
}

/// Where [`crate::agent_image::build`] keeps the image that it replaces: next to it, with the suffix `.earlier`. Running boots that began with it
/// read it to their end. `None` for a path without a file name, such as `/`.
pub fn earlier(folder: &Path) -> Option<PathBuf> {
    let mut name = folder.file_name()?.to_owned();
    name.push(".earlier");
    Some(folder.with_file_name(name))
}

fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, AssetsError> {
    let failed = |source| AssetsError::Read { path: path.to_owned(), source };
    let file = FileAt::new(File::open(path).map_err(failed)?).map_err(failed)?;
    if file.len() > limit {
        return Err(AssetsError::Differs { path: path.to_owned(), what: "it is too large" });
    }
    let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or_default()];
    file.read_exact_at(0, &mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn open(folder: &Path, manifest: &Manifest, name: &'static str, limit: u64) -> Result<FileAt, AssetsError> {
    let entry = manifest.files.get(name).ok_or(AssetsError::Unnamed(name))?;
    let path = folder.join(name);
    let failed = |source| AssetsError::Read { path: path.clone(), source };
    let file = FileAt::new(File::open(&path).map_err(failed)?).map_err(failed)?;
    if file.len() != entry.bytes || file.len() > limit {
        return Err(AssetsError::Differs { path, what: "its length" });
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut offset = 0;
    while offset < file.len() {
        let part = usize::try_from(file.len() - offset).unwrap_or(usize::MAX).min(buffer.len());
        file.read_exact_at(offset, &mut buffer[..part]).map_err(failed)?;
        hash.update(&buffer[..part]);
        offset += part as u64;
    }
    if hex::encode(hash.finalize()) != entry.sha256 {
        return Err(AssetsError::Differs { path, what: "its SHA-256" });
    }
    Ok(file)
}
