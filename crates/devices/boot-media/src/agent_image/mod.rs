//! Builds the shared files of the agent's medium from Debian's packages and the static agent program.
//!
//! Kernel, modules and boot loaders are copied unchanged, so that their signatures stay valid under Secure Boot. The packages are read here, without
//! dpkg's programs. The same inputs give the same result, byte for byte.

mod deb;
mod elf;
pub mod index;
mod initramfs;
pub mod ipa;
mod packages;
mod select;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use terms::Architecture;
use thiserror::Error;

pub use packages::DebFiles;

use crate::assets::{self, INITRAMFS, KERNEL, Loaders, MANIFEST, Manifest, PackageEntry};
use deb::{Deb, DebError};
use index::ModuleIndex;

/// Folder, below the output folder, with the licence texts of the packages.
pub const LICENCES: &str = "licences";

/// What to build, and from what.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The agent program, static. It becomes `/init`, and its architecture is the image's.
    pub agent_binary: PathBuf,
    /// Its version, for the manifest.
    pub agent_version: String,
    /// Folder that receives the files; created if missing, files of an older build are replaced.
    pub out_dir: PathBuf,
    /// Folder that keeps downloaded packages; created if missing.
    pub cache_dir: PathBuf,
    /// Local packages; `None` downloads the current ones through apt.
    pub packages: Option<DebFiles>,
}

/// Why an agent image could not be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// A file or folder could not be read or written.
    #[error("{action} {path:?} failed")]
    File {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The agent program cannot be process 1.
    #[error("the agent program {path:?} cannot be process 1: {what}")]
    Agent {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// apt could not be started.
    #[error("starting {program} failed; Debian's apt is needed, or give the package files")]
    AptMissing {
        /// Which program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// apt refused.
    #[error("{command} failed: {output}; is `apt-get update` needed?")]
    Apt {
        /// What was run.
        command: String,
        /// The end of what it printed.
        output: String,
    },
    /// A downloaded package differs from the package list.
    #[error("{path:?} is not what apt's package list says; delete it and try again")]
    Digest {
        /// Which file.
        path: PathBuf,
    },
    /// A package could not be read.
    #[error("reading the package {path:?} failed")]
    Package {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: DebError,
    },
    /// A package lacks a file.
    #[error("the package {path:?} has no {file}; is it the right package?")]
    Lacks {
        /// Which package.
        path: PathBuf,
        /// What is missing.
        file: String,
    },
    /// A package that is asked for is one of those that are left out.
    #[error(
        "the package {package} cannot be put in: of Debian's own administration and of Perl nothing is kept; lay what you need over the root with --files"
    )]
    LeftOut {
        /// Which package.
        package: String,
    },
    /// A kernel module is damaged, or its dependency is missing.
    #[error("the kernel module {module} cannot be used: {what}")]
    Module {
        /// Which module.
        module: String,
        /// What is wrong.
        what: String,
    },
    /// A program that takes part could not be started.
    #[error("starting {program} failed")]
    Program {
        /// Which program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program that takes part has failed.
    #[error("{program} failed: {output}")]
    Refused {
        /// What was run.
        program: String,
        /// The end of what it printed.
        output: String,
    },
    /// The initramfs could not be written.
    #[error("writing the initramfs failed")]
    Initramfs(#[source] io::Error),
}

impl BuildError {
    fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}

/// The files from the kernel's package.
struct Kernel {
    release: String,
    image: Vec<u8>,
    /// Modules by path below `/lib/modules/<release>/`, those of hopeless folders left out.
    modules: BTreeMap<String, Vec<u8>>,
    builtin: String,
}

/// Builds the image; the steps go to the log.
///
/// # Errors
/// As [`build_with_progress`].
pub fn build(options: &BuildOptions) -> Result<Manifest, BuildError> {
    build_with_progress(options, &|step| tracing::info!("{step}"))
}

/// Builds the image. Calls `progress` with a short text at the beginning of each step.
///
/// # Errors
/// [`BuildError`]; the manifest of an older build is removed first, so that a half-built folder is never used.
pub fn build_with_progress(options: &BuildOptions, progress: &dyn Fn(&str)) -> Result<Manifest, BuildError> {
    let agent = fs::read(&options.agent_binary).map_err(BuildError::file("reading", &options.agent_binary))?;
    let architecture =
        elf::static_program(&agent).map_err(|what| BuildError::Agent { path: options.agent_binary.clone(), what })?;
    let debs = match &options.packages {
        Some(given) => given.clone(),
        None => packages::download(architecture, &options.cache_dir, progress)?,
    };
    let mut sources = Sources::default();
    let shared = Shared::read(&debs, architecture, &mut sources, progress)?;
    let kernel = &shared.kernel;
    progress("Choosing kernel modules");
    let index = select::select(architecture, &kernel.release, &kernel.modules, &kernel.builtin, &[])?;
    progress("Writing the initramfs");
    let initramfs = initramfs::write(&agent, &index, &kernel.modules).map_err(BuildError::Initramfs)?;
    let mut files = shared.files(architecture);
    files.push((INITRAMFS, initramfs, format!("agent {} and {} modules", options.agent_version, index.modules.len())));
    let manifest = Manifest::of(
        architecture,
        &kernel.release,
        &options.agent_version,
        index.modules.len(),
        &files,
        sources.entries,
    );
    progress("Writing the files");
    write_folder(&options.out_dir, &files, &sources.licences, &manifest)?;
    Ok(manifest)
}

/// What every agent's image has: kernel and boot loaders, unchanged.
struct Shared {
    kernel: Kernel,
    shim: Vec<u8>,
    grub: Vec<u8>,
    mok_manager: Option<Vec<u8>>,
}

impl Shared {
    fn read(
        debs: &DebFiles,
        architecture: Architecture,
        sources: &mut Sources,
        progress: &dyn Fn(&str),
    ) -> Result<Self, BuildError> {
        progress("Reading the kernel's package");
        let kernel = read_kernel(&debs.kernel, sources)?;
        progress("Reading the boot loaders' packages");
        let names = Loaders::of(architecture);
        let platform = match architecture {
            Architecture::X86_64 => "x86_64-efi-signed",
            Architecture::Aarch64 => "arm64-efi-signed",
        };
        let shim = sources.one_file(&debs.shim, &format!("usr/lib/shim/{}.signed", names.shim))?;
        let grub = sources.one_file(&debs.grub, &format!("usr/lib/grub/{platform}/{}.signed", names.grub))?;
        let mok_manager = match &debs.shim_helpers {
            Some(path) => Some(sources.one_file(path, &format!("usr/lib/shim/{}.signed", names.mok_manager))?),
            None => None,
        };
        Ok(Self { kernel, shim, grub, mok_manager })
    }

    /// Files by name, with what they are.
    fn files(&self, architecture: Architecture) -> Vec<(&'static str, Vec<u8>, String)> {
        let names = Loaders::of(architecture);
        let mut files = vec![
            (KERNEL, self.kernel.image.clone(), format!("Linux {}, signed by Debian", self.kernel.release)),
            (names.shim, self.shim.clone(), "shim, signed by Microsoft".to_owned()),
            (names.grub, self.grub.clone(), "GRUB for CDs, signed by Debian".to_owned()),
        ];
        let helper = self.mok_manager.clone();
        files.extend(helper.map(|b| (names.mok_manager, b, "shim's key manager, signed by Debian".to_owned())));
        files
    }
}

fn write_folder(
    folder: &Path,
    files: &[(&str, Vec<u8>, String)],
    licences: &BTreeMap<String, Vec<u8>>,
    manifest: &Manifest,
) -> Result<(), BuildError> {
    keep_earlier(folder, manifest);
    let texts = folder.join(LICENCES);
    fs::create_dir_all(&texts).map_err(BuildError::file("creating", &texts))?;
    let path = folder.join(MANIFEST);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(BuildError::file("removing", &path)(error));
        }
        _ => {}
    }
    for (name, bytes, _) in files {
        replace(&folder.join(name), bytes)?;
    }
    for (name, text) in licences {
        replace(&texts.join(name), text)?;
    }
    // the manifest is written last: a folder with one is complete
    let text = manifest.to_json().map_err(|error| BuildError::file("writing", &path)(error.into()))?;
    replace(&path, &text)
}

/// Sets a complete image with different files aside, for running boots that began with it, and deletes the one set aside before. If that fails (a
/// mount point cannot be renamed), the new image overwrites the files in place.
fn keep_earlier(folder: &Path, manifest: &Manifest) {
    let there: Option<Manifest> =
        fs::read(folder.join(MANIFEST)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(aside) = assets::earlier(folder).filter(|_| there.is_some_and(|there| there.files != manifest.files))
    else {
        return;
    };
    let moved = match fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::rename(folder, &aside),
    };
    if let Err(error) = moved {
        tracing::warn!(%error, "the earlier agent image is not kept: boots under way with it end when the server is restarted");
    }
}

/// Writes beside and renames, so that a server that has the older file open keeps it.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    fs::write(&beside, bytes).map_err(BuildError::file("writing", &beside))?;
    fs::rename(&beside, path).map_err(BuildError::file("writing", path))
}

/// Packages read so far, for the manifest, with their licence texts.
#[derive(Default)]
struct Sources {
    entries: Vec<PackageEntry>,
    licences: BTreeMap<String, Vec<u8>>,
}

impl Sources {
    fn open(&mut self, path: &Path) -> Result<Deb, BuildError> {
        let bytes = fs::read(path).map_err(BuildError::file("reading", path))?;
        let sha256 = hex::encode(Sha256::digest(&bytes));
        let deb = Deb::open(bytes).map_err(|source| BuildError::Package { path: path.to_owned(), source })?;
        self.entries.push(PackageEntry {
            name: deb.name.clone(),
            version: deb.version.clone(),
            sha256,
            licence: format!(
                "Debian's own terms, in {LICENCES}/{0}; sources: apt-get source {0}={1}",
                deb.name, deb.version
            ),
        });
        Ok(deb)
    }

    /// Extracts one file from a package.
    fn one_file(&mut self, path: &Path, file: &str) -> Result<Vec<u8>, BuildError> {
        let deb = self.open(path)?;
        let mut found = None;
        self.walk(path, &deb, &mut |name| name == file, &mut |_, bytes| found = Some(bytes))?;
        found.ok_or_else(|| BuildError::Lacks { path: path.to_owned(), file: file.to_owned() })
    }

    /// Walks a package's files once; keeps the licence text and passes on the wanted files.
    fn walk(
        &mut self,
        path: &Path,
        deb: &Deb,
        wanted: &mut dyn FnMut(&str) -> bool,
        take: &mut dyn FnMut(&str, Vec<u8>),
    ) -> Result<(), BuildError> {
        let licence = |name: &str| name.starts_with("usr/share/doc/") && name.ends_with("/copyright");
        let mut texts = Vec::new();
        deb.walk(&mut |name| licence(name) || wanted(name), &mut |name, bytes| {
            if licence(name) { texts.push(bytes) } else { take(name, bytes) }
        })
        .map_err(|source| BuildError::Package { path: path.to_owned(), source })?;
        self.licences.extend(texts.into_iter().map(|text| (deb.name.clone(), text)));
        Ok(())
    }
}

fn read_kernel(path: &Path, sources: &mut Sources) -> Result<Kernel, BuildError> {
    let deb = sources.open(path)?;
    let (mut image, mut builtin, mut modules, mut release) = (None, None, BTreeMap::new(), None);
    // lib/modules, or usr/lib/modules since /usr was merged
    let module = |name: &str| -> Option<(String, String)> {
        let below = name.strip_prefix("usr/").unwrap_or(name).strip_prefix("lib/modules/")?;
        let (release, path) = below.split_once('/')?;
        Some((release.to_owned(), path.to_owned()))
    };
    let mut wanted = |name: &str| {
        name.starts_with("boot/vmlinuz-")
            || module(name).is_some_and(|(_, path)| path == "modules.builtin" || select::is_candidate(&path))
    };
    sources.walk(path, &deb, &mut wanted, &mut |name, bytes| match module(name) {
        None => {
            release = name.strip_prefix("boot/vmlinuz-").map(str::to_owned);
            image = Some(bytes);
        }
        Some((_, path)) if path == "modules.builtin" => builtin = Some(String::from_utf8_lossy(&bytes).into_owned()),
        Some((_, path)) => drop(modules.insert(path, bytes)),
    })?;
    let lacks = |file: &str| BuildError::Lacks { path: path.to_owned(), file: file.to_owned() };
    let mut plain = BTreeMap::new();
    for (path, bytes) in modules {
        let (path, bytes) = deb::plain_module(path, bytes)
            .map_err(|(module, error)| BuildError::Module { module, what: error.to_string() })?;
        plain.insert(path, bytes);
    }
    Ok(Kernel {
        release: release.ok_or_else(|| lacks("boot/vmlinuz-*"))?,
        image: image.ok_or_else(|| lacks("boot/vmlinuz-*"))?,
        modules: plain,
        builtin: builtin.ok_or_else(|| lacks("modules.builtin"))?,
    })
}

/// Modules that the agent loads by name at its start, as no device requests them: EFI variables, the EFI system partition's file system with its code
/// pages, virtual network links, disks, and the BMC's local interface.
pub const LOAD_BY_NAME: &[&str] = &[
    "efivarfs",
    "vfat",
    "nls_cp437",
    "nls_ascii",
    "nls_iso8859_1",
    "nls_utf8",
    "bonding",
    "8021q",
    "sd_mod",
    "ipmi_devintf",
];

/// Checks that the modules in [`LOAD_BY_NAME`] are in an index, or built into the kernel.
fn check_by_name(index: &ModuleIndex) -> Result<(), BuildError> {
    for name in LOAD_BY_NAME {
        index
            .load_order(name)
            .map_err(|error| BuildError::Module { module: (*name).to_owned(), what: error.to_string() })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(agent: &str) -> Manifest {
        let entry = assets::FileEntry::new(agent.as_bytes(), "test");
        let mut manifest = Manifest::describe(Path::new("/nonexistent"), "test", "test").unwrap();
        manifest.files.insert(INITRAMFS.to_owned(), entry);
        manifest
    }

    fn write(folder: &Path, agent: &str) {
        let files = [(INITRAMFS, agent.as_bytes().to_vec(), String::new())];
        write_folder(folder, &files, &BTreeMap::new(), &manifest(agent)).unwrap();
    }

    #[test]
    fn the_image_before_is_kept_beside_the_new_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("agent-image");
        let aside = assets::earlier(&folder).unwrap();
        let read = |folder: &Path| fs::read_to_string(folder.join(INITRAMFS)).ok();
        write(&folder, "one");
        write(&folder, "one");
        assert_eq!(read(&aside), None, "the same image again replaces nothing");
        for (new, before) in [("two", "one"), ("three", "two")] {
            write(&folder, new);
            assert_eq!((read(&folder).as_deref(), read(&aside).as_deref()), (Some(new), Some(before)));
            assert!(aside.join(MANIFEST).exists());
        }
    }
}
