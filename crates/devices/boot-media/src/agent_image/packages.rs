//! Downloads the packages through apt, as an ordinary user, into a cache folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};
use terms::Architecture;

use super::BuildError;

/// Package files to build from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebFiles {
    /// `linux-image-<release>`.
    pub kernel: PathBuf,
    /// `shim-signed`.
    pub shim: PathBuf,
    /// `shim-helpers-amd64-signed` or `-arm64-`, for the key manager.
    pub shim_helpers: Option<PathBuf>,
    /// `grub-efi-amd64-signed` or `-arm64-`.
    pub grub: PathBuf,
}

/// Debian's name of an architecture.
const fn debian(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "amd64",
        Architecture::Aarch64 => "arm64",
    }
}

/// Uses packages from the cache if they are current, else downloads them.
pub(super) fn download(
    architecture: Architecture,
    cache: &Path,
    progress: &dyn Fn(&str),
) -> Result<DebFiles, BuildError> {
    fs::create_dir_all(cache).map_err(BuildError::file("creating", cache))?;
    let debian = debian(architecture);
    let apt = Apt::of(debian, cache, progress)?;
    // The package that depends on Debian's current kernel.
    let current = format!("linux-image-{debian}");
    let kernel = concrete_kernel(&current, &apt.run("apt-cache", &["show", "--no-all-versions", &current], cache)?)?;
    let (helpers, grub) = (format!("shim-helpers-{debian}-signed"), format!("grub-efi-{debian}-signed"));
    let mut paths = Vec::new();
    for package in [kernel.as_str(), "shim-signed", &helpers, &grub] {
        paths.push(apt.one(package, cache, progress)?);
    }
    let mut paths = paths.into_iter();
    let mut next = || paths.next().unwrap_or_default();
    Ok(DebFiles { kernel: next(), shim: next(), shim_helpers: Some(next()), grub: next() })
}

/// These packages and all that they depend on, as if nothing was installed: from the cache if they are current, else downloaded. Recommendations are
/// left out.
pub(super) fn closure(
    architecture: Architecture,
    packages: &[&str],
    cache: &Path,
    progress: &dyn Fn(&str),
) -> Result<Vec<PathBuf>, BuildError> {
    let apt = Apt::of(debian(architecture), cache, progress)?;
    let scratch = format!("Dir::Cache={}", cache.display());
    let mut arguments = vec!["--quiet", "--yes", "--print-uris", "--no-install-recommends"];
    for option in ["Dir::State::status=/dev/null", "Debug::NoLocking=1", scratch.as_str()] {
        arguments.extend(["-o", option]);
    }
    arguments.push("install");
    arguments.extend(packages);
    let listing = apt.run("apt-get", &arguments, Path::new("/"))?;
    // It tells weak digests; asked for the files of these versions apt tells strong ones.
    let uris = |listing: &str| -> Vec<String> {
        listing.lines().filter(|line| line.starts_with('\'')).map(str::to_owned).collect()
    };
    let names: Vec<String> =
        uris(&listing).iter().filter_map(|line| versioned(line.split_whitespace().nth(1)?)).collect();
    let asked: Vec<&str> = ["--print-uris", "download"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let listing = uris(&apt.run("apt-get", &asked, Path::new("/"))?);
    let wanted: Vec<Wanted> = listing.iter().filter_map(|line| parse_uri(line)).collect();
    if wanted.is_empty() || wanted.len() != listing.len() || wanted.len() != names.len() {
        let output = "its list of packages is not understood".to_owned();
        return Err(BuildError::Apt { command: "apt-get --print-uris download".to_owned(), output });
    }
    let mut missing = Vec::new();
    for package in &wanted {
        let path = cache.join(&package.file);
        if !(path.exists() && holds(&path, &package.sha256)?) {
            missing.push(package);
        }
    }
    if !missing.is_empty() {
        progress(&format!("Downloading {} packages", missing.len()));
        let apart = cache.join(format!("download-{}", std::process::id()));
        fs::create_dir_all(&apart).map_err(BuildError::file("creating", &apart))?;
        let names: Vec<String> = missing.iter().filter_map(|package| versioned(&package.file)).collect();
        let arguments: Vec<&str> =
            ["--quiet", "download"].into_iter().chain(names.iter().map(String::as_str)).collect();
        apt.run("apt-get", &arguments, &apart)?;
        for package in missing {
            let fetched = apart.join(&package.file);
            if !holds(&fetched, &package.sha256)? {
                return Err(BuildError::Digest { path: fetched });
            }
            let path = cache.join(&package.file);
            fs::rename(&fetched, &path).map_err(BuildError::file("writing", &path))?;
        }
        fs::remove_dir_all(&apart).map_err(BuildError::file("removing", &apart))?;
    }
    Ok(wanted.into_iter().map(|package| cache.join(package.file)).collect())
}

/// apt for the packages of one architecture. For another than this system's it has lists of its own, in the cache folder: the system's are left alone.
struct Apt {
    configuration: Option<PathBuf>,
}

impl Apt {
    /// # Errors
    /// When apt or dpkg is missing, or the lists of another architecture cannot be fetched.
    fn of(debian: &str, cache: &Path, progress: &dyn Fn(&str)) -> Result<Self, BuildError> {
        let here = Self { configuration: None };
        if here.run("dpkg", &["--print-architecture"], cache)?.trim() == debian {
            return Ok(here);
        }
        let cache = std::path::absolute(cache).map_err(BuildError::file("finding", cache))?;
        let state = cache.join(format!("apt-{debian}"));
        for folder in ["lists/partial", "archives/partial"] {
            let folder = state.join(folder);
            fs::create_dir_all(&folder).map_err(BuildError::file("creating", &folder))?;
        }
        let path = state.join("apt.conf");
        let text = configuration(&here.run("apt-config", &["dump"], &state)?, debian, &state);
        fs::write(&path, text).map_err(BuildError::file("writing", &path))?;
        let apart = Self { configuration: Some(path) };
        progress(&format!("Reading the lists of Debian's packages for {debian}"));
        apart.run("apt-get", &["--quiet", "update"], &state)?;
        Ok(apart)
    }

    fn one(&self, package: &str, cache: &Path, progress: &dyn Fn(&str)) -> Result<PathBuf, BuildError> {
        // run in another folder: apt prints nothing for a file that already exists in its folder
        let listing = self.run("apt-get", &["--print-uris", "download", package], Path::new("/"))?;
        let refused =
            || BuildError::Apt { command: format!("apt-get --print-uris download {package}"), output: listing.clone() };
        let wanted = parse_uri(&listing).ok_or_else(refused)?;
        let path = cache.join(&wanted.file);
        if path.exists() && holds(&path, &wanted.sha256)? {
            return Ok(path);
        }
        progress(&format!("Downloading {package}"));
        // into a separate folder, so that an interrupted download is never mistaken for a package
        let apart = cache.join(format!("download-{}", std::process::id()));
        fs::create_dir_all(&apart).map_err(BuildError::file("creating", &apart))?;
        let fetched = apart.join(&wanted.file);
        self.run("apt-get", &["--quiet", "download", package], &apart)?;
        if !holds(&fetched, &wanted.sha256)? {
            return Err(BuildError::Digest { path: fetched });
        }
        fs::rename(&fetched, &path).map_err(BuildError::file("writing", &path))?;
        fs::remove_dir_all(&apart).map_err(BuildError::file("removing", &apart))?;
        Ok(path)
    }

    /// Runs one of apt's programs with these arguments; no shell, plain English.
    fn run(&self, program: &'static str, arguments: &[&str], folder: &Path) -> Result<String, BuildError> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).env("LC_ALL", "C");
        command.envs(self.configuration.iter().map(|path| ("APT_CONFIG", path)));
        let output = command.output().map_err(|source| BuildError::AptMissing { program, source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let end: Vec<&str> = text.lines().rev().take(5).collect();
        let end = end.into_iter().rev().collect::<Vec<_>>().join("; ");
        Err(BuildError::Apt { command: format!("{program} {}", arguments.join(" ")), output: end })
    }
}

/// A configuration by which apt sees the packages of an architecture alone, by the system's sources and keys, with lists in a folder of its own
/// (apt.conf(5)). Of the system's configuration, only how things are fetched is kept: none of its hooks is run for these lists.
fn configuration(system: &str, debian: &str, state: &Path) -> String {
    let fetching = |line: &&str| line.starts_with("Acquire::") && !line.starts_with("Acquire::IndexTargets::");
    let mut text: String = system.lines().filter(fetching).map(|line| format!("{line}\n")).collect();
    let state = state.display().to_string();
    for (key, value) in [
        ("APT::Architecture", debian),
        ("APT::Architectures::", debian),
        ("Dir::State", &state),
        ("Dir::State::lists", "lists"),
        ("Dir::State::status", "/dev/null"),
        ("Dir::Cache", &state),
        ("Dir::Etc::main", "/dev/null"),
        ("Dir::Etc::parts", "/dev/null"),
    ] {
        text += &format!("{key} \"{value}\";\n");
    }
    text
}

/// The kernel that the current meta package depends on.
fn concrete_kernel(current: &str, record: &str) -> Result<String, BuildError> {
    let depends = record.lines().find_map(|line| line.strip_prefix("Depends:")).unwrap_or_default();
    let names = depends.split([',', '|']).filter_map(|item| item.split_whitespace().next());
    let plain = |name: &&str| {
        name.starts_with("linux-image-") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    names.into_iter().find(plain).map(str::to_owned).ok_or_else(|| BuildError::Apt {
        command: format!("apt-cache show {current}"),
        output: "it names no kernel package".to_owned(),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    file: String,
    sha256: String,
}

/// Name and version as `apt-get download` takes them, from a package file's name: a colon is `%3a` there.
fn versioned(file: &str) -> Option<String> {
    let mut parts = file.strip_suffix(".deb")?.split('_');
    let (name, version) = (parts.next()?, parts.next()?);
    (!name.is_empty() && !name.starts_with('-')).then(|| format!("{name}={}", version.replace("%3a", ":")))
}

/// A line of `apt-get --print-uris`: quoted address, file name, size, `SHA256:` and digest.
fn parse_uri(listing: &str) -> Option<Wanted> {
    let line = listing.lines().find(|line| line.starts_with('\''))?;
    let mut fields = line.split_whitespace().skip(1);
    let (file, digest) = (fields.next()?, fields.nth(1)?);
    let sha256 = digest.strip_prefix("SHA256:")?;
    let plain = !file.contains('/') && !file.starts_with('.') && file.ends_with(".deb");
    let digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    (plain && digest).then(|| Wanted { file: file.to_owned(), sha256: sha256.to_ascii_lowercase() })
}

fn holds(path: &Path, sha256: &str) -> Result<bool, BuildError> {
    let mut file = fs::File::open(path).map_err(BuildError::file("opening", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut buffer).map_err(BuildError::file("reading", path))?;
        if read == 0 {
            return Ok(hex::encode(hash.finalize()) == sha256);
        }
        hash.update(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_the_one_that_the_meta_package_names() {
        let record = "Package: linux-image-amd64\nDepends: linux-image-6.1.0-56-amd64 (= 6.1.192-2), other\n";
        assert_eq!(concrete_kernel("x", record).unwrap(), "linux-image-6.1.0-56-amd64");
        assert!(concrete_kernel("x", "Package: x\nDepends: other\n").is_err());
    }

    #[test]
    fn of_the_systems_configuration_only_how_things_are_fetched_is_kept() {
        let system = "APT \"\";\nAPT::Architecture \"amd64\";\nAPT::Update::Post-Invoke-Success:: \"evil\";\nAcquire \"\";\n\
                      Acquire::http::Proxy \"http://proxy:3142\";\nAcquire::IndexTargets::deb::DEP-11 \"\";\n";
        let text = configuration(system, "arm64", Path::new("/cache/apt-arm64"));
        assert!(
            text.starts_with("Acquire::http::Proxy \"http://proxy:3142\";\nAPT::Architecture \"arm64\";\n"),
            "{text}"
        );
        assert!(
            text.contains("\nDir::State \"/cache/apt-arm64\";\n")
                && text.contains("\nDir::Etc::parts \"/dev/null\";\n")
        );
        assert!(!text.contains("evil") && !text.contains("DEP-11") && !text.contains("amd64"), "{text}");
    }

    #[test]
    fn a_line_of_apt_is_understood() {
        let digest = "ab".repeat(32);
        let line = |file: &str| format!("'http://deb/pool/x.deb' {file} 123 SHA256:{digest}\n");
        let expected = Wanted { file: "x_1%3a2_amd64.deb".into(), sha256: digest.clone() };
        assert_eq!(parse_uri(&line("x_1%3a2_amd64.deb")), Some(expected));
        assert_eq!(versioned("x_1%3a2_amd64.deb").as_deref(), Some("x=1:2"));
        assert_eq!(versioned("-o_1_amd64.deb"), None);
        assert_eq!(parse_uri(&line("../x.deb")), None);
        assert_eq!(parse_uri(&line(".x.deb")), None);
        assert_eq!(parse_uri("'http://deb/x.deb' x.deb 123 MD5:00\n"), None);
        assert_eq!(parse_uri(""), None);
    }

    #[test]
    fn a_cached_file_counts_only_with_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, b"abc").unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(holds(&path, sha256).unwrap());
        fs::write(&path, b"abd").unwrap();
        assert!(!holds(&path, sha256).unwrap());
    }
}
