//! What an Ironic has the kernel told: its command line, and `parameters.txt` of a removable medium, which goes before it.

use std::fs::File;
use std::io::Read as _;

use fatfs::{FileSystem, FsOptions};
use ipa_protocol::{MAX_PARAMETERS_BYTES, Parameters};

use crate::machine::MediumError;
use crate::tree::Tree;

/// Label of the medium (`I:drivers/modules/image_utils.py`).
const LABEL: &str = "ir-vfd-dev";

/// Largest medium, in 512-byte blocks: 4 GiB, as ironic-python-agent trusts it (`A:utils.py`, `_check_vmedia_device`).
const MAX_BLOCKS: i64 = 8 << 20;

/// The parameters.
pub(super) fn of(tree: &Tree) -> Result<Parameters, MediumError> {
    let line = Parameters::parse(&tree.text("proc/cmdline").unwrap_or_default())?;
    if !line.is_virtual_media() {
        return Ok(line);
    }
    let found = tree.names("sys/block").into_iter().find_map(|device| on_medium(tree, &device));
    match found {
        Some(text) => Ok(line.overridden_by(Parameters::parse(&text)?)),
        None => Ok(line),
    }
}

/// The file, if this is such a medium: removable or behind USB, small, a file system without partitions.
fn on_medium(tree: &Tree, device: &str) -> Option<String> {
    let base = format!("sys/block/{device}");
    let is_removable = tree.number(&format!("{base}/removable")) == Some(1)
        || tree.resolve(&base).is_some_and(|path| path.split('/').any(|part| part.starts_with("usb")));
    let blocks = tree.number(&format!("{base}/size")).unwrap_or_default();
    if !is_removable || !(1..=MAX_BLOCKS).contains(&blocks) {
        return None;
    }
    let file = File::options().read(true).open(tree.path(&format!("dev/{device}"))).ok()?;
    let volume = FileSystem::new(file, FsOptions::new()).ok()?;
    if !volume.volume_label().trim().eq_ignore_ascii_case(LABEL) {
        return None;
    }
    let file = volume.root_dir().open_file("parameters.txt").ok()?;
    let mut text = Vec::new();
    file.take(MAX_PARAMETERS_BYTES as u64 + 1).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::plant;

    /// A tree with a command line and one medium of 1.44 MB, labelled so.
    fn tree(folder: &std::path::Path, line: &str, removable: &str, label: &str) -> Tree {
        plant(
            folder,
            &[
                ("proc/cmdline", line),
                ("sys/block/sdb/removable", removable),
                ("sys/block/sdb/size", "2880\n"),
                ("parameters.txt", "ipa-api-url=http://medium\nipa-debug=1\n"),
                ("dev/sdb", ""),
            ],
        );
        let image = folder.join("dev/sdb");
        std::fs::File::options().write(true).open(&image).unwrap().set_len(1_474_560).unwrap();
        let image = image.to_str().unwrap();
        let file = folder.join("parameters.txt");
        for arguments in [
            vec!["mformat", "-i", image, "-f", "1440", "-v", label, "::"],
            vec!["mcopy", "-i", image, file.to_str().unwrap(), "::/"],
        ] {
            let done = std::process::Command::new(arguments[0]).args(&arguments[1..]).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        }
        Tree::new(folder)
    }

    #[test]
    fn a_removable_medium_goes_before_the_command_line_if_that_says_so() {
        let url = |line: &str, removable: &str, label: &str| {
            let folder = tempfile::tempdir().unwrap();
            let found = of(&tree(folder.path(), line, removable, label)).unwrap();
            found.get("ipa-api-url").map(str::to_owned)
        };
        let line = "quiet ipa-api-url=http://line boot_method=vmedia\n";
        assert_eq!(url(line, "1\n", "ir-vfd-dev").as_deref(), Some("http://medium"));
        assert_eq!(url(line, "0\n", "ir-vfd-dev").as_deref(), Some("http://line"), "a disk is no medium");
        assert_eq!(url(line, "1\n", "another").as_deref(), Some("http://line"));
        assert_eq!(url("ipa-api-url=http://line\n", "1\n", "ir-vfd-dev").as_deref(), Some("http://line"));
    }
}
