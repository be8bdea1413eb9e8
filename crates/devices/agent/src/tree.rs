//! Reads files below a root: `/` on a real machine, a made-up tree under a simulator. Everything is bounded.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of an attribute.
const MAX_TEXT: u64 = 64 << 10;

/// Most names read from one folder.
const MAX_NAMES: usize = 4096;

/// A file system tree with `sys`, `proc`, `dev`, … below it.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// A tree at `root`. Links in it that are resolved must not leave it.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { root: root.canonicalize().unwrap_or(root) }
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Absolute path of `relative`.
    #[must_use]
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative.trim_start_matches('/'))
    }

    /// Whether there is such a file or folder.
    #[must_use]
    pub fn exists(&self, relative: &str) -> bool {
        self.path(relative).exists()
    }

    /// The first `max` bytes of a file; `None` when it cannot be read.
    #[must_use]
    pub fn bytes(&self, relative: &str, max: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(relative)).ok()?.take(max).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// An attribute: trimmed text without control characters; `None` when it cannot be read or is empty.
    #[must_use]
    pub fn text(&self, relative: &str) -> Option<String> {
        Some(clean(&self.bytes(relative, MAX_TEXT)?)).filter(|text| !text.is_empty())
    }

    /// An attribute that is a whole number.
    #[must_use]
    pub fn number(&self, relative: &str) -> Option<i64> {
        self.text(relative)?.parse().ok()
    }

    /// Names in a folder, sorted; none when it cannot be read.
    #[must_use]
    pub fn names(&self, relative: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(relative)) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MAX_NAMES).collect();
        names.sort();
        names
    }

    /// The target of a link, as a path below the root without a leading `/`; `None` if it is broken or leaves the tree.
    #[must_use]
    pub fn resolve(&self, relative: &str) -> Option<String> {
        let path = self.path(relative).canonicalize().ok()?;
        Some(path.strip_prefix(&self.root).ok()?.to_str()?.to_owned())
    }
}

/// Text of a firmware or device string: lossy UTF-8, control characters and zero bytes made blanks, trimmed.
#[must_use]
pub(crate) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text: String = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    text.trim().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes files of a test tree.
    pub(crate) fn plant(root: &Path, files: &[(&str, &str)]) {
        for (path, content) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn attributes_are_trimmed_and_links_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        plant(folder.path(), &[("sys/a", "  ab\0\n"), ("sys/n", "-7\n"), ("sys/e", "\n")]);
        std::os::unix::fs::symlink("a", folder.path().join("sys/l")).unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("sys/out")).unwrap();
        let tree = Tree::new(folder.path());
        assert_eq!(tree.text("sys/a").as_deref(), Some("ab"));
        assert_eq!(tree.text("sys/e"), None);
        assert_eq!(tree.number("/sys/n"), Some(-7));
        assert_eq!(tree.resolve("sys/l").as_deref(), Some("sys/a"));
        assert_eq!(tree.resolve("sys/out"), None);
        assert_eq!(tree.names("sys"), ["a", "e", "l", "n", "out"]);
    }
}
