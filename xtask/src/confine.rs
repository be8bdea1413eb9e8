//! Runs a command on a machine that seems to have nothing but what `deploy/packages.txt` lists: what else a test starts or reads
//! is found where it was installed by hand, not on the next fresh machine.
//!
//! There remain: the listed packages and all that they depend on, Debian's essential packages, and the named toolchains (Rust, Go,
//! Python with `pip` alone). In a mount namespace of this run's own, an overlay over `/usr` hides the files of all other packages;
//! their programs are replaced by ones that say which package they are of, exit with 127 and leave a note, which makes the run
//! fail whatever the command made of it. Programs outside of `/usr` are out of `PATH`, and noted in the same way.
//!
//! What other packages have outside of `/usr` (a file in `/etc`, say) is not hidden. Needs root, for the namespace and the overlay.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::packages::{Files, Installed, Listed, merged};
use crate::report::Report;

/// Programs of the named toolchains, which come from wherever they are.
const TOOLCHAINS: [&str; 12] = [
    "cargo",
    "rustc",
    "rustdoc",
    "rustfmt",
    "cargo-fmt",
    "cargo-clippy",
    "clippy-driver",
    "rustup",
    "go",
    "gofmt",
    "python3",
    "pip3",
];
/// What Debian cuts off Python, which is whole elsewhere.
const PYTHON: [&str; 2] = ["python3-venv", "python3-pip"];
/// What a Python has before anything is installed into it.
const PYTHONS_OWN: [&str; 7] =
    ["pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack", "distutils-precedence.pth", "README.txt"];
/// Where Debian's packages put modules of Python.
const DEBIANS: &str = "/usr/lib/python3/dist-packages";
/// Where Debian's programs stand.
const PROGRAMS: [&str; 5] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/usr/games"];

/// What is not to be there, each with what it is of.
#[derive(Default)]
struct Hidden {
    /// Programs, by path.
    programs: BTreeMap<PathBuf, String>,
    /// Other files, by path.
    files: BTreeMap<PathBuf, String>,
    /// Programs outside of `/usr`, by name.
    elsewhere: BTreeMap<String, String>,
    /// What is installed into the toolchain's Python, if that is none of Debian's: its folder, and names in it.
    modules: Option<(PathBuf, BTreeSet<String>)>,
}

/// Starts this program anew in a mount namespace of its own, in the place of this process: what is mounted there goes with it, however it ends.
///
/// # Errors
/// When this is not root, or it cannot be started.
pub fn enter(command: &[OsString]) -> Result<Report> {
    ensure!(rustix::process::geteuid().is_root(), "confining a command takes root, for its mount namespace");
    let program = std::env::current_exe().context("finding this program")?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--"]).arg(program).args(["confine", "--inside", "--"]).args(command);
    Err(unshare.exec()).context("starting unshare")
}

/// Runs the command confined. The report's problems are what it used beside the list, and its own failure.
///
/// # Errors
/// When a toolchain or dpkg's records are missing, or the overlays cannot be made.
pub fn run(root: &Path, command: &[OsString]) -> Result<Report> {
    let listed =
        Listed::parse(&fs::read_to_string(root.join("deploy/packages.txt")).context("reading deploy/packages.txt")?);
    let toolchains = toolchains(&listed)?;
    let hidden = Hidden::find(&listed, &toolchains)?;
    let folder = tempfile::Builder::new().prefix("confined-").tempdir().context("making a folder")?;
    let layers = Memory::mount(folder.path())?;
    let stage = Stage::build(folder.path(), &layers.0, &hidden, &toolchains)?;
    let (status, mentioned) = stage.run(&hidden, command)?;
    let mut problems: BTreeSet<String> =
        fs::read_to_string(&stage.notes).context("reading the notes")?.lines().map(str::to_owned).collect();
    if !status.success() {
        problems.extend(mentioned);
        problems.insert(format!("{} ended with {status}", command[0].display()));
    }
    let summary =
        format!("confined: {} files of other packages were hidden", hidden.programs.len() + hidden.files.len());
    Ok(Report { problems: problems.into_iter().map(|p| format!("confined: {p}")).collect(), summary })
}

/// Memory that is mounted on a folder, for the layers of the overlays, which have tens of thousands of entries. On ext4 each new one takes a search through
/// what was deleted lately, as by the run before: most of a minute.
struct Memory(PathBuf);

impl Memory {
    fn mount(folder: &Path) -> Result<Self> {
        let layers = folder.join("layers");
        fs::create_dir(&layers).context("making a folder of layers")?;
        rustix::mount::mount("confined", &layers, "tmpfs", MountFlags::NODEV, None)
            .context("mounting memory for the layers")?;
        Ok(Self(layers))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Its folder can be removed then. What fails here ends with this process.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Where the toolchains' programs are, and those that the list lets come from elsewhere.
fn toolchains(listed: &Listed) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for name in TOOLCHAINS.into_iter().chain(listed.programs()) {
        if let Some(path) = in_path(name) {
            found.insert(name.to_owned(), path);
        }
    }
    for name in ["cargo", "go", "python3"] {
        ensure!(found.contains_key(name), "{name} is in no folder of PATH");
    }
    // A program in PATH may only look for the real one (pyenv).
    let text = output(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]))?;
    found.insert("python3".to_owned(), PathBuf::from(text.trim()));
    Ok(found)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|p| is_program(p))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(done.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).with_context(|| format!("reading what {command:?} says"))
}

impl Hidden {
    fn find(listed: &Listed, toolchains: &BTreeMap<String, PathBuf>) -> Result<Self> {
        let installed = Installed::query()?;
        let files = Files::read(Path::new("/var/lib/dpkg/info"))?;
        let mut wanted: Vec<String> = listed.packages().map(str::to_owned).collect();
        let mut own_packages: BTreeSet<PathBuf> = BTreeSet::new();
        for program in toolchains.values() {
            let real = merged(&program.canonicalize().with_context(|| format!("finding {}", program.display()))?);
            wanted.extend(files.owners(&real).map(str::to_owned));
            own_packages.insert(real);
            own_packages.insert(merged(program));
        }
        if toolchains.get("python3").is_some_and(|p| p.starts_with("/usr/bin")) {
            wanted.extend(PYTHON.map(str::to_owned));
        }
        let allowed = installed.closure(wanted);
        let mut hidden = Self::default();
        for (path, owners) in files.all().filter(|(path, _)| path.starts_with("/usr")) {
            if owners.iter().any(|owner| allowed.contains(owner)) || own_packages.contains(path) || path.is_dir() {
                continue;
            }
            let Some(owner) = owners.first() else { continue };
            let of = format!("of the Debian package {owner}, which is in no line of deploy/packages.txt");
            // Links among programs are other names of programs (mkfs.vfat).
            let kind = if in_programs(path) { &mut hidden.programs } else { &mut hidden.files };
            kind.insert(path.clone(), of);
        }
        for folder in PROGRAMS.iter().filter_map(|folder| fs::read_dir(folder).ok()) {
            for path in folder.filter_map(|entry| Some(entry.ok()?.path())) {
                // A link is what it leads to (Debian's alternatives).
                let real = merged(&path.canonicalize().unwrap_or_else(|_| path.clone()));
                let unowned = files.owners(&path).next().is_none();
                let allowed = files.owners(&real).any(|owner| allowed.contains(owner)) || own_packages.contains(&real);
                if unowned && !allowed && real.is_file() {
                    hidden.programs.insert(path, "of no Debian package and no named toolchain".to_owned());
                }
            }
        }
        hidden.find_elsewhere(toolchains);
        hidden.modules = modules(toolchains)?;
        Ok(hidden)
    }

    /// Programs in folders of `PATH` that are not below `/usr`.
    fn find_elsewhere(&mut self, toolchains: &BTreeMap<String, PathBuf>) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        for folder in std::env::split_paths(&path).filter(|f| !merged(f).starts_with("/usr")) {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let usual = PROGRAMS.iter().any(|f| Path::new(f).join(&name).exists());
                if !usual && !toolchains.contains_key(name.as_str()) && is_program(&entry.path()) {
                    let of = format!("at {}, of no Debian package and no named toolchain", folder.display());
                    self.elsewhere.entry(name).or_insert(of);
                }
            }
        }
    }

    /// What a line of output says of something that is hidden.
    fn mentioned(&self, line: &str) -> Vec<String> {
        let mut said = Vec::new();
        for (at, _) in line.match_indices('/') {
            let ends = |c: char| c.is_whitespace() || "'\"`:;,()<>[]{}\\".contains(c);
            let end = line[at..].find(ends).map_or(line.len(), |n| at + n);
            let path = merged(Path::new(line[at..end].trim_end_matches('.')));
            if let Some(of) = self.files.get(&path).or_else(|| self.programs.get(&path)) {
                said.push(format!("{} is {of}", path.display()));
            }
        }
        let Some((_, rest)) = line.split_once("No module named '") else { return said };
        let module = rest.split(['\'', '.']).next().unwrap_or_default();
        for file in [format!("{DEBIANS}/{module}.py"), format!("{DEBIANS}/{module}/__init__.py")] {
            said.extend(self.files.get(Path::new(&file)).map(|of| format!("the Python module {module} is {of}")));
        }
        if let Some((folder, names)) = &self.modules
            && names.iter().any(|name| name == module || name.strip_suffix(".py") == Some(module))
        {
            let folder = folder.display();
            said.push(format!("the Python module {module} is in {folder}, where the project installs nothing"));
        }
        said
    }
}

fn in_programs(path: &Path) -> bool {
    path.parent().is_some_and(|folder| PROGRAMS.iter().any(|p| Path::new(p) == folder))
}

/// What was installed into a Python that is none of Debian's.
fn modules(toolchains: &BTreeMap<String, PathBuf>) -> Result<Option<(PathBuf, BTreeSet<String>)>> {
    let Some(python) = toolchains.get("python3").filter(|p| !p.starts_with("/usr/bin")) else { return Ok(None) };
    let text = output(Command::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))?;
    let folder = PathBuf::from(text.trim());
    let names = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let names = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let of_its_own = |name: &String| {
        PYTHONS_OWN
            .iter()
            .any(|known| name == known || name.strip_prefix(known).is_some_and(|rest| rest.starts_with('-')))
    };
    Ok(Some((folder, names.filter(|name| !of_its_own(name)).collect())))
}

/// Folders that the namespace is made of.
struct Stage {
    /// What lies over `/usr`, and the overlay's own folder.
    usr: [PathBuf; 2],
    /// What lies over the toolchain's Python modules.
    modules: Option<(PathBuf, [PathBuf; 2])>,
    path: OsString,
    /// What the replaced programs write to.
    notes: PathBuf,
}

impl Stage {
    fn build(folder: &Path, layers: &Path, hidden: &Hidden, toolchains: &BTreeMap<String, PathBuf>) -> Result<Self> {
        // Tests that run as somebody else find the programs, too.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).context("opening the folder to all")?;
        let notes = folder.join("notes");
        fs::write(&notes, "").context("writing the notes")?;
        fs::set_permissions(&notes, fs::Permissions::from_mode(0o666)).context("opening the notes to all")?;
        fs::set_permissions(layers, fs::Permissions::from_mode(0o755)).context("opening the layers to all")?;
        let usr = pair(layers, "usr")?;
        for (path, of) in &hidden.programs {
            stub(&usr[0].join(path.strip_prefix("/usr")?), of, &notes)?;
        }
        // What is reached by way of something hidden is hidden with it.
        let below = |path: &Path| path.ancestors().skip(1).any(|folder| hidden.files.contains_key(folder));
        for path in hidden.files.keys().filter(|path| !below(path)) {
            whiteout(&usr[0].join(path.strip_prefix("/usr")?))?;
        }
        let modules = match &hidden.modules {
            Some((site, names)) => {
                let pair = pair(layers, "modules")?;
                for name in names {
                    whiteout(&pair[0].join(name))?;
                }
                Some((site.clone(), pair))
            }
            None => None,
        };
        let (tools, refused) = (folder.join("toolchains"), folder.join("refused"));
        fs::create_dir(&tools).and_then(|()| fs::create_dir(&refused)).context("making folders of programs")?;
        // What stands among Debian's programs is found there.
        for (name, path) in toolchains.iter().filter(|(_, path)| !in_programs(path)) {
            std::os::unix::fs::symlink(path, tools.join(name)).with_context(|| format!("linking {name}"))?;
        }
        for (name, of) in &hidden.elsewhere {
            stub(&refused.join(name), of, &notes)?;
        }
        let mut folders = vec![tools];
        folders
            .extend(["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from));
        folders.push(refused);
        let path = std::env::join_paths(folders).context("putting PATH together")?;
        Ok(Self { usr, modules, path, notes })
    }

    /// Runs the command, passes on what it prints, and collects what that says of hidden files.
    fn run(&self, hidden: &Hidden, command: &[OsString]) -> Result<(std::process::ExitStatus, BTreeSet<String>)> {
        // The one over /usr comes last: it may hide the program that mounts.
        let mut mounts: Vec<String> = self.modules.iter().map(|(site, layers)| overlay(site, layers)).collect();
        mounts.push(overlay(Path::new("/usr"), &self.usr));
        let script = format!("{} && exec \"$@\"", mounts.join(" && "));
        let mut confined = Command::new("unshare");
        confined.args(["--mount", "--", "/bin/sh", "-c", &script, "confined"]).args(command);
        confined.env("PATH", &self.path).env("PYTHONNOUSERSITE", "1").stdin(Stdio::null());
        let mut child = confined.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("starting unshare")?;
        let said = Mutex::new(BTreeSet::new());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            let readers =
                [out.map(|o| Box::new(o) as Box<dyn Read + Send>), err.map(|e| Box::new(e) as Box<dyn Read + Send>)];
            for (index, reader) in readers.into_iter().enumerate() {
                let said = &said;
                scope.spawn(move || reader.map(|reader| pass_on(reader, index == 1, hidden, said)));
            }
        });
        let status = child.wait().context("waiting for the command")?;
        let Ok(said) = said.into_inner() else { bail!("reading what the command printed") };
        Ok((status, said))
    }
}

/// Copies lines to standard output or error and notes what they say of hidden files.
fn pass_on(reader: Box<dyn Read + Send>, is_err: bool, hidden: &Hidden, said: &Mutex<BTreeSet<String>>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        // Nobody is left to tell when these are closed.
        let _ = if is_err { std::io::stderr().write_all(&line) } else { std::io::stdout().write_all(&line) };
        let found = hidden.mentioned(&String::from_utf8_lossy(&line));
        if let (false, Ok(mut said)) = (found.is_empty(), said.lock()) {
            said.extend(found);
        }
        line.clear();
    }
}

fn pair(folder: &Path, name: &str) -> Result<[PathBuf; 2]> {
    let layers = [folder.join(name), folder.join(format!("{name}.work"))];
    for layer in &layers {
        fs::create_dir(layer).with_context(|| format!("making {}", layer.display()))?;
    }
    Ok(layers)
}

/// The mount command: folders of ours have no sign in their names that a shell knows.
fn overlay(over: &Path, [upper, work]: &[PathBuf; 2]) -> String {
    let over = over.display();
    format!(
        "mount -t overlay overlay -o 'lowerdir={over},upperdir={},workdir={}' '{over}'",
        upper.display(),
        work.display()
    )
}

/// Overlayfs takes a character device 0/0 for a file that is not there (Documentation/filesystems/overlayfs.rst).
fn whiteout(path: &Path) -> Result<()> {
    parent(path)?;
    mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))
        .with_context(|| format!("hiding {}", path.display()))
}

/// A program that says of what it is, and fails.
fn stub(path: &Path, of: &str, notes: &Path) -> Result<()> {
    parent(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ensure!(!name.contains('\''), "the program {name} has a quote in its name");
    let (said, notes) = (format!("{name} is {of}"), notes.display());
    let script = format!("#!/bin/sh\necho '{said}' >>'{notes}'\necho '{said}' >&2\nexit 127\n");
    fs::write(path, script).with_context(|| format!("writing {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(|| format!("opening {}", path.display()))
}

fn parent(path: &Path) -> Result<()> {
    let folder = path.parent().with_context(|| format!("{} has no folder", path.display()))?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_names_what_is_hidden_names_its_package() {
        let mut hidden = Hidden::default();
        hidden.files.insert("/usr/share/OVMF/CODE.fd".into(), "of ovmf".into());
        hidden.programs.insert("/usr/sbin/mkfs.vfat".into(), "of dosfstools".into());
        hidden.modules = Some(("/site".into(), BTreeSet::from(["yaml".to_owned(), "six.py".to_owned()])));
        assert_eq!(hidden.mentioned("open \"/usr/share/OVMF/CODE.fd\": none"), ["/usr/share/OVMF/CODE.fd is of ovmf"]);
        assert_eq!(hidden.mentioned("/sbin/mkfs.vfat: not found"), ["/usr/sbin/mkfs.vfat is of dosfstools"]);
        for module in ["yaml", "six"] {
            let line = format!("ModuleNotFoundError: No module named '{module}.x'");
            assert_eq!(
                hidden.mentioned(&line),
                [format!("the Python module {module} is in /site, where the project installs nothing")]
            );
        }
        hidden.files.insert("/usr/lib/python3/dist-packages/apt/__init__.py".into(), "of python3-apt".into());
        assert_eq!(hidden.mentioned("No module named 'apt'"), ["the Python module apt is of python3-apt"]);
        assert_eq!(hidden.mentioned("[/usr/share/OVMF/CODE.fd]."), ["/usr/share/OVMF/CODE.fd is of ovmf"]);
        assert!(hidden.mentioned("/usr/share/OVMF is a folder, No module named 'zlib'").is_empty());
    }
}
