//! The Debian packages of `deploy/packages.txt`, and what dpkg knows of those that are installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The list: a package a line, `package:program` where the program may come from elsewhere.
pub struct Listed(Vec<(String, Option<String>)>);

impl Listed {
    /// Reads the list; what `#` begins is a comment.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let entry = |line: &str| match line.split_once(':') {
            Some((package, program)) => (package.to_owned(), Some(program.to_owned())),
            None => (line.to_owned(), None),
        };
        Self(lines.filter(|line| !line.is_empty()).map(entry).collect())
    }

    /// The packages' names.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(package, _)| package.as_str())
    }

    /// Programs that may come from elsewhere.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|(_, program)| program.as_deref())
    }
}

/// One installed package.
#[derive(Default)]
struct Package {
    essential: bool,
    /// Each one is a list of alternatives.
    needs: Vec<Vec<String>>,
}

/// All installed packages.
#[derive(Default)]
pub struct Installed {
    packages: BTreeMap<String, Package>,
    /// Who provides a name that is no package's own.
    providers: BTreeMap<String, Vec<String>>,
}

/// What `Installed::parse` reads: one package a line, fields between tabs.
const FORMAT: &str = "${Package}\t${db:Status-Status}\t${Essential}\t${Provides}\t${Pre-Depends}, ${Depends}\n";

impl Installed {
    /// Asks dpkg.
    ///
    /// # Errors
    /// When dpkg-query is missing or fails.
    pub fn query() -> Result<Self> {
        let output = Command::new("dpkg-query").args(["-W", "-f", FORMAT]).output().context("starting dpkg-query")?;
        ensure!(output.status.success(), "dpkg-query failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [name, "installed", essential, provides, needs] = fields[..] else { continue };
            for provided in provides.split(',').map(name_of).filter(|p| !p.is_empty()) {
                all.providers.entry(provided.to_owned()).or_default().push(name.to_owned());
            }
            let alternatives = |group: &str| -> Vec<String> {
                group.split('|').map(name_of).filter(|n| !n.is_empty()).map(str::to_owned).collect()
            };
            let package = all.packages.entry(name.to_owned()).or_default();
            package.essential |= essential == "yes";
            package.needs.extend(needs.split(',').map(alternatives).filter(|group| !group.is_empty()));
        }
        all
    }

    /// These packages, the essential ones, and what all of them depend on, as far as it is installed.
    pub fn closure(&self, wanted: impl IntoIterator<Item = String>) -> BTreeSet<String> {
        let essential = self.packages.iter().filter(|(_, p)| p.essential).map(|(name, _)| name.clone());
        let mut open: Vec<String> = wanted.into_iter().chain(essential).collect();
        let mut closed = BTreeSet::new();
        while let Some(name) = open.pop() {
            let Some(package) = self.packages.get(&name) else {
                open.extend(self.providers.get(&name).into_iter().flatten().filter(|p| !closed.contains(*p)).cloned());
                continue;
            };
            if closed.insert(name) {
                // Of alternatives, the first that is there is what apt would have taken.
                open.extend(package.needs.iter().filter_map(|group| group.iter().find(|n| self.has(n)).cloned()));
            }
        }
        closed
    }

    fn has(&self, name: &str) -> bool {
        self.packages.contains_key(name) || self.providers.contains_key(name)
    }
}

/// The name in `name:any (>= 1.0)`.
fn name_of(dependency: &str) -> &str {
    let end = dependency.trim().find([' ', '(', ':', '[']).unwrap_or(dependency.trim().len());
    &dependency.trim()[..end]
}

/// Which file is of which packages.
pub struct Files(BTreeMap<PathBuf, Vec<String>>);

impl Files {
    /// Reads dpkg's lists: `PACKAGE.list` or `PACKAGE:ARCHITECTURE.list`, a path a line.
    ///
    /// # Errors
    /// When the folder or a list cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut files: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry.with_context(|| format!("reading {}", folder.display()))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = name.strip_suffix(".list") else { continue };
            let package = name.split(':').next().unwrap_or(name);
            for line in fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?.lines() {
                files.entry(merged(Path::new(line))).or_default().push(package.to_owned());
            }
        }
        Ok(Self(files))
    }

    /// All paths with their packages.
    pub fn all(&self) -> impl Iterator<Item = (&PathBuf, &Vec<String>)> {
        self.0.iter()
    }

    /// The packages that a file is of.
    pub fn owners(&self, path: &Path) -> impl Iterator<Item = &str> {
        self.0.get(&merged(path)).into_iter().flatten().map(String::as_str)
    }
}

/// A path as it is since `/bin`, `/sbin` and `/lib*` are links into `/usr`.
pub fn merged(path: &Path) -> PathBuf {
    let old = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"].iter().any(|old| path.starts_with(old));
    match path.strip_prefix("/") {
        Ok(rest) if old => Path::new("/usr").join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "base\tinstalled\tyes\t\t, libc (>= 2)\n\
        libc\tinstalled\t\t\t, \n\
        tools\tinstalled\t\tnewfs, mkfs (= 1)\tlibc, helper:any | other (>= 3), absent\n\
        other\tinstalled\t\t\t, \n\
        gone\tconfig-files\t\t\t, \n\
        user\tinstalled\t\t\t, mkfs\n\
        stranger\tinstalled\t\t\t, base\n";

    #[test]
    fn what_is_needed_is_found_through_alternatives_and_providers() {
        let installed = Installed::parse(STATUS);
        let closure = |wanted: &[&str]| -> Vec<String> {
            installed.closure(wanted.iter().map(|w| (*w).to_owned())).into_iter().collect()
        };
        assert_eq!(closure(&[]), ["base", "libc"]);
        assert_eq!(closure(&["user"]), ["base", "libc", "other", "tools", "user"]);
        assert_eq!(closure(&["gone", "nowhere"]), ["base", "libc"]);
    }

    #[test]
    fn the_list_has_comments_and_programs() {
        let listed = Listed::parse("# a\nmake\n\nbuild-essential:cc # b\n");
        assert_eq!(listed.packages().collect::<Vec<_>>(), ["make", "build-essential"]);
        assert_eq!(listed.programs().collect::<Vec<_>>(), ["cc"]);
    }

    #[test]
    fn old_paths_are_the_new_ones() {
        assert_eq!(merged(Path::new("/sbin/mke2fs")), Path::new("/usr/sbin/mke2fs"));
        assert_eq!(merged(Path::new("/libexec/x")), Path::new("/libexec/x"));
        assert_eq!(merged(Path::new("/usr/bin/x")), Path::new("/usr/bin/x"));
    }
}
