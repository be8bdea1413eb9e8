//! Builds the shared files of a medium with ironic-python-agent: a Debian ramdisk from packages, and the agent from Python's registry (PyPI).
//!
//! Kernel and boot loaders are the same as our own agent's, signed by Debian. The root file system is unpacked into a folder below the cache, as an
//! ordinary user and without running any package's scripts ([`root`]); then come the agent with what it needs in Python, folders of the operator's
//! (`files`), and programs of the operator's (`hooks`), which get the folder's path and may change what is in it: hardware managers, drivers,
//! firmware, certificate authorities. Python's files are compiled last. Process 1 is a short script (`init`): devices, modules, DHCP, then the agent. What is a host's own lies in the
//! medium's second archive, as with our own agent, so nothing is built per host.

mod root;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};
use terms::Architecture;

use super::index::ModuleIndex;
use super::{BuildError, Kernel, Shared, Sources, packages, write_folder};
use crate::assets::{AgentKind, INITRAMFS, Manifest, PackageEntry};
use crate::cpio::Writer;
use root::Root;

/// The agent, as it is asked of PyPI.
pub const REQUIREMENT: &str = "ironic-python-agent>=13,<14";

/// Debian's packages: Python, and the programs that the agent runs (`ironic_python_agent/hardware.py` and its neighbours name them).
const PACKAGES: &[&str] = &[
    "bash",
    "busybox-static",
    "ca-certificates",
    "coreutils",
    "dmidecode",
    "dosfstools",
    "e2fsprogs",
    "efibootmgr",
    "ethtool",
    "gdisk",
    "gzip",
    "hdparm",
    "ipmitool",
    "iproute2",
    "kmod",
    "libc-bin",
    "lshw",
    "lvm2",
    "mdadm",
    "mount",
    "nvme-cli",
    "parted",
    "pciutils",
    "procps",
    "psmisc",
    "python3",
    "qemu-utils",
    "sed",
    "smartmontools",
    "tar",
    "udev",
    "util-linux",
    "util-linux-extra",
];

/// Packages that others depend on for their installation alone: none of the agent's programs needs them.
const LEFT_OUT: &[&str] = &["adduser", "debconf", "dpkg", "init-system-helpers", "passwd", "usrmerge"];

fn is_left_out(package: &str) -> bool {
    LEFT_OUT.contains(&package) || package.contains("perl")
}

/// Modules beside those of our own agent: software RAID, volumes, the file systems of a config drive and of what is on disks.
const MODULES: &[&str] = &["dm_mod", "ext4", "isofs", "loop", "md_mod", "raid0", "raid1", "raid10", "raid456"];

/// Modules of virtual links, which our own agent makes by itself.
const LINKS: &[&str] = &["bonding", "8021q"];

/// Compression level: the archive is large, and is compressed in one go.
const LEVEL: i32 = 12;
/// As our own agent's.
const WINDOW_LOG: u32 = 23;

const GROUPS: &[(&str, u32)] = &[
    ("root", 0),
    ("tty", 5),
    ("disk", 6),
    ("lp", 7),
    ("kmem", 15),
    ("dialout", 20),
    ("cdrom", 24),
    ("tape", 26),
    ("audio", 29),
    ("video", 44),
    ("input", 104),
    ("sgx", 105),
    ("kvm", 106),
    ("render", 107),
    ("nogroup", 65534),
];

/// What to build, and from what.
#[derive(Clone, Debug)]
pub struct IpaOptions {
    /// For machines of this architecture.
    pub architecture: Architecture,
    /// Folder that receives the files; created if missing, files of an older build are replaced.
    pub out_dir: PathBuf,
    /// Folder that keeps downloaded packages, and the root file system while it is made; created if missing.
    pub cache_dir: PathBuf,
    /// More of Debian's packages, by name.
    pub packages: Vec<String>,
    /// More of Python's packages, as `pip` is asked for them; only wheels are taken.
    pub python: Vec<String>,
    /// Folders that are laid over the root, in this order.
    pub files: Vec<PathBuf>,
    /// Programs that are then run, in this order, with the root's folder as their argument and as the folder they are in.
    pub hooks: Vec<PathBuf>,
}

/// Builds the image. Calls `progress` with a short text at the beginning of each step.
///
/// # Errors
/// [`BuildError`]; the manifest of an older build is removed first, so that a half-built folder is never used.
pub fn build(options: &IpaOptions, progress: &dyn Fn(&str)) -> Result<Manifest, BuildError> {
    let architecture = options.architecture;
    let asked = options.packages.iter().map(|asked| asked.split(['=', ':', '/']).next().unwrap_or(asked));
    if let Some(package) = asked.into_iter().find(|package| is_left_out(package)) {
        return Err(BuildError::LeftOut { package: package.to_owned() });
    }
    let cache = std::path::absolute(&options.cache_dir).map_err(BuildError::file("finding", &options.cache_dir))?;
    let mut sources = Sources::default();
    let shared =
        Shared::read(&packages::download(architecture, &cache, progress)?, architecture, &mut sources, progress)?;
    let index = super::select::select(
        architecture,
        &shared.kernel.release,
        &shared.kernel.modules,
        &shared.kernel.builtin,
        MODULES,
    )?;

    let folder = cache.join(format!("ipa-root-{architecture}-{}", std::process::id()));
    let made = |source| BuildError::File { action: "making", path: folder.clone(), source };
    let root = Root::new(folder.clone()).map_err(made)?;
    let wanted: Vec<&str> = PACKAGES.iter().copied().chain(options.packages.iter().map(String::as_str)).collect();
    let debs = packages::closure(architecture, &wanted, &cache, progress)?;
    progress(&format!("Unpacking {} packages", debs.len()));
    let mut python = None;
    for path in &debs {
        let deb = sources.open(path)?;
        if is_left_out(&deb.name) {
            sources.entries.pop();
            continue;
        }
        let version = deb.name.strip_prefix("python3.").and_then(|rest| rest.strip_suffix("-minimal"));
        python = version.map(|minor| format!("3.{minor}")).or(python);
        let mut licence = None;
        let unpacked = deb.members(&mut |member, bytes| {
            if member.name.starts_with("usr/share/doc/") && member.name.ends_with("/copyright") && !bytes.is_empty() {
                licence = Some(bytes.clone());
            }
            root.member(&member, &bytes)
        });
        unpacked.map_err(|source| BuildError::Package { path: path.clone(), source })?;
        sources.licences.extend(licence.map(|text| (deb.name.clone(), text)));
    }
    let python =
        python.ok_or_else(|| BuildError::Lacks { path: cache.clone(), file: "python3.x-minimal".to_owned() })?;
    let version = install_agent(options, &python, root.folder(), &mut sources, progress)?;
    files_of_ours(&root, &index, &shared.kernel).map_err(made)?;
    for over in &options.files {
        progress(&format!("Laying {} over it", over.display()));
        root.lay_over(over).map_err(BuildError::file("laying over", over))?;
    }
    for hook in &options.hooks {
        run_hook(hook, root.folder(), progress)?;
    }
    authorities(&root).map_err(made)?;
    compile(&root, &python, architecture, progress);
    progress("Writing the initramfs");
    let initramfs = archive(&root).map_err(BuildError::Initramfs)?;
    let _ = fs::remove_dir_all(root.folder());

    let mut files = shared.files(architecture);
    files.push((
        INITRAMFS,
        initramfs,
        format!("Debian with ironic-python-agent {version} and {} modules", index.modules.len()),
    ));
    let manifest = Manifest {
        agent: AgentKind::IronicPythonAgent,
        ..Manifest::of(architecture, &shared.kernel.release, &version, index.modules.len(), &files, sources.entries)
    };
    progress("Writing the files");
    write_folder(&options.out_dir, &files, &sources.licences, &manifest)?;
    Ok(manifest)
}

/// Installs the agent and what it needs in Python below the root, and returns its version. Only wheels are taken: nothing of a package is run here.
fn install_agent(
    options: &IpaOptions,
    python: &str,
    root: &Path,
    sources: &mut Sources,
    progress: &dyn Fn(&str),
) -> Result<String, BuildError> {
    progress("Installing ironic-python-agent from PyPI");
    let target = root.join(format!("usr/local/lib/python{python}/dist-packages"));
    let machine = options.architecture.to_string();
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--no-input"]);
    command.args(["--no-warn-conflicts", "--root-user-action=ignore", "--only-binary=:all:"]);
    command.args(["--implementation", "cp", "--python-version", python]);
    // Debian 12 has glibc 2.36.
    for platform in ["manylinux_2_34", "manylinux_2_31", "manylinux_2_28", "manylinux_2_17", "manylinux2014"] {
        command.args(["--platform", &format!("{platform}_{machine}")]);
    }
    command.arg("--target").arg(&target).arg(REQUIREMENT).args(&options.python);
    let output =
        command.output().map_err(|source| BuildError::Program { program: "python3 -m pip".to_owned(), source })?;
    if !output.status.success() {
        return Err(BuildError::Refused {
            program: "python3 -m pip install".to_owned(),
            output: end_of(&output.stderr),
        });
    }
    let _ = fs::remove_dir_all(target.join("bin"));
    let mut version = None;
    let mut found: Vec<PathBuf> = fs::read_dir(&target)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(BuildError::file("reading", &target))?;
    found.sort();
    for folder in found {
        let name = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".dist-info"));
        let Some((package, its_version)) = name.and_then(|name| name.split_once('-')) else { continue };
        let record = fs::read(folder.join("RECORD")).map_err(BuildError::file("reading", &folder))?;
        if package == "ironic_python_agent" {
            version = Some(its_version.to_owned());
        }
        sources.entries.push(PackageEntry {
            name: format!("pypi:{package}"),
            version: its_version.to_owned(),
            sha256: hex::encode(Sha256::digest(&record)),
            licence: format!("in {package}-{its_version}.dist-info of the ramdisk; the digest is its RECORD's; sources: pypi.org/project/{package}"),
        });
    }
    version.ok_or_else(|| BuildError::Lacks { path: target, file: "ironic_python_agent".to_owned() })
}

/// Has the ramdisk's own interpreter compile what is in it for Python, which a machine would do at each boot, and slowly. It runs here in isolation: nothing of
/// what it compiles is imported. The ramdisk works without that, too, so where it cannot be done, or for some files, that is told and no failure.
fn compile(root: &Root, python: &str, architecture: Architecture, progress: &dyn Fn(&str)) {
    progress("Compiling Python's files");
    let folder = root.folder();
    let libraries = folder.join(format!("usr/lib/{architecture}-linux-gnu"));
    // By its own loader and libraries: no program of the ramdisk finds them here by itself.
    let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    command.env_clear().current_dir(folder).arg("--library-path").arg(&libraries);
    command.arg(folder.join(format!("usr/bin/python{python}"))).args(["-I", "-S", "-m", "compileall", "-q"]);
    // Archives keep no times: what was compiled is told by the source's own digest. Tests of packages are never imported.
    command.args(["--invalidation-mode", "checked-hash", "-x", "/tests?/", "-p", "/", "-s"]).arg(folder);
    let places = [format!("usr/lib/python{python}"), "usr/lib/python3".into(), format!("usr/local/lib/python{python}")];
    match command.args(places.iter().filter(|place| folder.join(place).is_dir())).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let told = [output.stdout, output.stderr].concat();
            progress(&format!("Not all of Python's files can be compiled, machines compile them: {}", end_of(&told)));
        }
        Err(error) => progress(&format!("Python's files are compiled by the machines: {error}")),
    }
}

/// Files of the ramdisk that no package has: process 1, and what packages' scripts would have made.
fn files_of_ours(root: &Root, index: &ModuleIndex, kernel: &Kernel) -> std::io::Result<()> {
    root.file("init", 0o755, include_bytes!("init"))?;
    root.file("etc/udhcpc.script", 0o755, include_bytes!("udhcpc.script"))?;
    // Process 1 is no init system that could be asked politely.
    root.file("usr/local/sbin/poweroff", 0o755, b"#!/usr/bin/busybox sh\nexec busybox poweroff -f\n")?;
    root.file("usr/local/sbin/reboot", 0o755, b"#!/usr/bin/busybox sh\nexec busybox reboot -f\n")?;
    // No package of the list has it, and programs run others by it: parted, without it, crashes.
    root.link("usr/bin/sh", "bash")?;
    root.file("etc/hostname", 0o644, b"metamorph\n")?;
    root.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n::1 localhost\n")?;
    root.file("etc/nsswitch.conf", 0o644, b"passwd: files\ngroup: files\nhosts: files dns\n")?;
    root.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    )?;
    let groups: String = GROUPS.iter().map(|(name, id)| format!("{name}:x:{id}:\n")).collect();
    root.file("etc/group", 0o644, groups.as_bytes())?;
    // A link that the module for bonds makes by itself has another address at each boot, and would be taken for one of the machine's.
    let by_name = super::LOAD_BY_NAME.iter().chain(MODULES).filter(|name| !LINKS.contains(name));
    let by_name: String = by_name.map(|name| format!("{name}\n")).collect();
    root.file("etc/metamorph-modules", 0o644, by_name.as_bytes())?;
    let modules = format!("usr/lib/modules/{}", index.release);
    for entry in index.modules.values() {
        let bytes = kernel.modules.get(&entry.path).map(Vec::as_slice).unwrap_or_default();
        root.file(&format!("{modules}/{}", entry.path), 0o644, bytes)?;
    }
    root.file(&format!("{modules}/modules.builtin"), 0o644, kernel.builtin.as_bytes())?;
    // depmod reads the order of modules from there; without one it complains on the console.
    root.file(&format!("{modules}/modules.order"), 0o644, b"")
}

/// Runs a program of the operator's on the root.
fn run_hook(hook: &Path, root: &Path, progress: &dyn Fn(&str)) -> Result<(), BuildError> {
    progress(&format!("Running the hook {}", hook.display()));
    let program = std::path::absolute(hook).map_err(BuildError::file("finding", hook))?;
    let output = Command::new(&program).arg(root).current_dir(root).output();
    let output = output.map_err(|source| BuildError::Program { program: hook.display().to_string(), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(BuildError::Refused { program: format!("the hook {}", hook.display()), output: end_of(&output.stderr) })
}

/// One file of all certificate authorities: Debian's, and those that were laid into `usr/local/share/ca-certificates`.
fn authorities(root: &Root) -> std::io::Result<()> {
    let mut all = BTreeMap::new();
    for start in ["usr/share/ca-certificates", "usr/local/share/ca-certificates"] {
        let mut waiting = vec![root.folder().join(start)];
        while let Some(folder) = waiting.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let path = entry?.path();
                if path.is_dir() {
                    waiting.push(path);
                } else if path.extension().is_some_and(|suffix| suffix == "crt") {
                    let mut text = fs::read(&path)?;
                    text.push(b'\n');
                    all.insert(path, text);
                }
            }
        }
    }
    root.file("etc/ssl/certs/ca-certificates.crt", 0o644, &all.into_values().flatten().collect::<Vec<u8>>())
}

fn archive(root: &Root) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.window_log(WINDOW_LOG)?;
    let mut archive = Writer::new(encoder);
    root.write(&mut archive)?;
    // the kernel opens it for process 1 before anything is mounted
    archive.character_device("dev/console", 0o600, 5, 1)?;
    let mut encoder = archive.finish()?;
    encoder.flush()?;
    encoder.finish()
}

/// The last lines of what a program has printed.
fn end_of(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    let end: Vec<&str> = text.lines().rev().take(5).collect();
    end.into_iter().rev().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_works_on_the_root_and_what_it_says_is_told_when_it_fails() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let root = Root::new(place.path().join("root")).unwrap();
        let hook = place.path().join("hook");
        let write = |text: &str| {
            fs::write(&hook, text).unwrap();
            fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("#!/bin/sh\nmkdir -p \"$1/usr/lib/firmware\" && echo x >usr/lib/firmware/card.bin\n");
        run_hook(&hook, root.folder(), &|_| {}).unwrap();
        assert_eq!(fs::read_to_string(root.folder().join("usr/lib/firmware/card.bin")).unwrap(), "x\n");
        write("#!/bin/sh\necho no such driver >&2\nexit 3\n");
        let told = run_hook(&hook, root.folder(), &|_| {}).unwrap_err().to_string();
        assert!(told.contains("the hook") && told.contains("no such driver"), "{told}");
    }

    #[test]
    fn a_package_that_would_be_left_out_is_refused_by_its_name() {
        let place = tempfile::tempdir().unwrap();
        for asked in ["passwd", "perl", "libnet-snmp-perl=6.0.1-4", "libperl5.36:amd64"] {
            let (out_dir, cache_dir) = (place.path().join("out"), place.path().join("cache"));
            let options = IpaOptions {
                architecture: Architecture::X86_64,
                out_dir,
                cache_dir,
                packages: vec![asked.into()],
                python: Vec::new(),
                files: Vec::new(),
                hooks: Vec::new(),
            };
            let refusal = build(&options, &|_| {}).unwrap_err().to_string();
            assert!(refusal.contains("cannot be put in") && refusal.contains("--files"), "{refusal}");
        }
    }

    #[test]
    fn authorities_of_the_operators_stand_beside_the_public_ones() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::new(place.path().join("root")).unwrap();
        root.file("usr/share/ca-certificates/mozilla/a.crt", 0o644, b"public").unwrap();
        root.file("usr/local/share/ca-certificates/b.crt", 0o644, b"own").unwrap();
        root.file("usr/local/share/ca-certificates/readme", 0o644, b"text").unwrap();
        authorities(&root).unwrap();
        let all = fs::read_to_string(root.folder().join("etc/ssl/certs/ca-certificates.crt")).unwrap();
        assert!(all.contains("public\n") && all.contains("own\n") && !all.contains("text"), "{all}");
    }
}
