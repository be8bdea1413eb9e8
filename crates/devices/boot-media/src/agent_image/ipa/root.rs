//! The ramdisk's root file system as a folder: packages unpacked, files of the operator's laid over it, then written as an archive.
//!
//! It is made by an ordinary user: owners are not kept, the archive has root everywhere. No script of a package is run; what Debian's would do that
//! counts here is done by [`super`].

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use crate::agent_image::deb::{Header, Kind};
use crate::cpio::Writer;

/// Folders of packages from before `/usr` was merged.
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What no agent reads.
const PRUNED: &[&str] = &[
    "usr/share/doc/",
    "usr/share/man/",
    "usr/share/info/",
    "usr/share/locale/",
    "usr/share/lintian/",
    "usr/share/bug/",
    "usr/share/bash-completion/",
    "usr/share/doc-base/",
    "usr/share/zsh/",
    "usr/lib/udev/hwdb.d/",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/python3/dist-packages/lsbsysinit",
    "etc/init.d/",
    "usr/lib/systemd/system/",
];

/// A root file system in a folder.
pub struct Root {
    folder: PathBuf,
}

fn invalid(path: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {what}"))
}

/// The path below the merged `/usr`; `None` for what is left out.
fn place(name: &str) -> Option<String> {
    let first = name.split('/').next().unwrap_or_default();
    let name = if MERGED.contains(&first) { format!("usr/{name}") } else { name.to_owned() };
    let pruned = PRUNED.iter().any(|start| name.starts_with(start));
    (!name.is_empty() && name != "." && !pruned).then_some(name)
}

impl Root {
    /// An empty root in this folder, which is emptied first.
    pub fn new(folder: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(&folder)?;
        let root = Self { folder };
        for name in ["dev", "proc", "run", "sys", "tmp", "root", "var/log", "var/lib", "etc", "usr/bin", "usr/sbin"] {
            fs::create_dir_all(root.folder.join(name))?;
        }
        for name in ["bin", "sbin", "lib"] {
            fs::create_dir_all(root.folder.join("usr").join(name))?;
            symlink(format!("usr/{name}"), root.folder.join(name))?;
        }
        fs::create_dir_all(root.folder.join("usr/lib64"))?;
        symlink("usr/lib64", root.folder.join("lib64"))?;
        symlink("../run", root.folder.join("var/run"))?;
        Ok(root)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where this path of the root is, its parents made. No part of it leads out of the folder, or over a link.
    fn prepared(&self, name: &str) -> io::Result<PathBuf> {
        let mut path = self.folder.clone();
        let mut parts = Path::new(name).components().peekable();
        while let Some(part) = parts.next() {
            let Component::Normal(part) = part else { return Err(invalid(name, "no path of a package")) };
            path.push(part);
            if parts.peek().is_none() {
                break;
            }
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(invalid(name, "it lies beyond a link or a file")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(&path)?,
                Err(error) => return Err(error),
            }
        }
        Ok(path)
    }

    /// Puts a file.
    pub fn file(&self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let path = self.prepared(name)?;
        remove(&path)?;
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o777 | 0o600))
    }

    /// Puts a symbolic link.
    pub fn link(&self, name: &str, target: &str) -> io::Result<()> {
        let path = self.prepared(name)?;
        remove(&path)?;
        symlink(target, path)
    }

    /// Puts a member of a package.
    pub fn member(&self, member: &Header, bytes: &[u8]) -> io::Result<()> {
        let Some(name) = place(&member.name) else { return Ok(()) };
        match &member.kind {
            Kind::File => self.file(&name, member.mode, bytes),
            // A folder that a package has where the merged root has a link stays one.
            Kind::Folder => {
                let path = self.prepared(&name)?;
                if fs::symlink_metadata(&path).is_err() { fs::create_dir(path) } else { Ok(()) }
            }
            Kind::Symlink(target) => self.link(&name, target),
            Kind::Same(other) => match place(other) {
                Some(other) => {
                    let (from, to) = (self.prepared(&other)?, self.prepared(&name)?);
                    remove(&to)?;
                    fs::copy(from, to).map(drop)
                }
                None => Ok(()),
            },
            Kind::Other => Ok(()),
        }
    }

    /// Lays a folder of the operator's over the root: files, folders and links as they are there.
    pub fn lay_over(&self, from: &Path) -> io::Result<()> {
        let mut waiting = vec![PathBuf::new()];
        while let Some(below) = waiting.pop() {
            for entry in fs::read_dir(from.join(&below))? {
                let entry = entry?;
                let below = below.join(entry.file_name());
                let name = below.to_str().ok_or_else(|| invalid(&below.to_string_lossy(), "its name is no UTF-8"))?;
                let (kind, name) = (entry.file_type()?, place(name).unwrap_or_else(|| name.to_owned()));
                if kind.is_dir() {
                    waiting.push(below);
                } else if kind.is_symlink() {
                    let target = fs::read_link(entry.path())?;
                    let target = target.to_str().ok_or_else(|| invalid(&name, "its target is no UTF-8"))?;
                    self.link(&name, target)?;
                } else if kind.is_file() {
                    self.file(&name, entry.metadata()?.permissions().mode(), &fs::read(entry.path())?)?;
                } else {
                    return Err(invalid(&name, "files, folders and symbolic links alone can be laid over"));
                }
            }
        }
        Ok(())
    }

    /// Writes the root as an archive, sorted by path.
    pub fn write<W: Write>(&self, archive: &mut Writer<W>) -> io::Result<()> {
        self.write_below(Path::new(""), archive)
    }

    fn write_below<W: Write>(&self, below: &Path, archive: &mut Writer<W>) -> io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(self.folder.join(below))?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let below = below.join(entry.file_name());
            let name = below.to_str().ok_or_else(|| invalid(&below.to_string_lossy(), "its name is no UTF-8"))?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                archive.directory(name, if name == "tmp" { 0o1777 } else { 0o755 })?;
                self.write_below(&below, archive)?;
            } else if kind.is_symlink() {
                archive.symbolic_link(name, &fs::read_link(&path)?.to_string_lossy())?;
            } else if kind.is_file() {
                archive.file(name, entry.metadata()?.permissions().mode() & 0o777, &fs::read(&path)?)?;
            } else {
                return Err(invalid(name, "a hook has left what is neither file, folder nor link"));
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Err(invalid(&path.to_string_lossy(), "there is a folder of that name")),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::{self, Limits};

    fn put(root: &Root, name: &str, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        root.member(&Header { name: name.to_owned(), mode: 0o755, kind }, bytes)
    }

    #[test]
    fn packages_from_before_usr_was_merged_land_below_usr_and_come_out_sorted() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::new(place.path().join("root")).unwrap();
        put(&root, "bin/tool", Kind::File, b"one").unwrap();
        put(&root, "lib/udev", Kind::Folder, b"").unwrap();
        put(&root, "usr/bin/again", Kind::Same("bin/tool".to_owned()), b"").unwrap();
        put(&root, "usr/share/doc/tool/copyright", Kind::File, b"text").unwrap();
        put(&root, "usr/bin/short", Kind::Symlink("tool".to_owned()), b"").unwrap();
        let over = place.path().join("over");
        fs::create_dir_all(over.join("etc/ironic-python-agent.d")).unwrap();
        fs::write(over.join("etc/ironic-python-agent.d/vendor.conf"), "x").unwrap();
        root.lay_over(&over).unwrap();
        let mut archive = Writer::new(Vec::new());
        root.write(&mut archive).unwrap();
        let files = cpio::read(&archive.finish().unwrap(), Limits::default()).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["etc/ironic-python-agent.d/vendor.conf", "usr/bin/again", "usr/bin/tool"]);
        assert!(
            files.iter().all(|file| file.name.starts_with("etc") || (file.mode, &file.data[..]) == (0o755, b"one"))
        );
    }

    #[test]
    fn no_member_leaves_the_folder_or_goes_over_a_link() {
        let place = tempfile::tempdir().unwrap();
        let root = Root::new(place.path().join("root")).unwrap();
        assert!(put(&root, "../out", Kind::File, b"x").is_err());
        assert!(put(&root, "/etc/out", Kind::File, b"x").is_err());
        put(&root, "etc/elsewhere", Kind::Symlink(place.path().to_string_lossy().into_owned()), b"").unwrap();
        assert!(put(&root, "etc/elsewhere/out", Kind::File, b"x").is_err());
        assert!(!place.path().join("out").exists());
    }
}
