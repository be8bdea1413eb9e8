//! Shared by the tests: outside programs, and a small agent image folder that no machine could boot.

use std::process::Command;

use boot_media::assets::{INITRAMFS, KERNEL, Loaders, MANIFEST};
use boot_media::{Architecture, Manifest};
use tempfile::TempDir;

/// Runs a program that must exist and succeed; gives its output, both streams.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?} failed:\n{text}");
    text
}

/// A folder with files of odd lengths, whose bytes depend on `seed`.
pub fn fake_assets(seed: u64) -> TempDir {
    fake_assets_of(Architecture::X86_64, seed)
}

/// The same for another architecture.
pub fn fake_assets_of(architecture: Architecture, seed: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let Loaders { shim, grub, mok_manager, .. } = Loaders::of(architecture);
    for (name, len) in [(KERNEL, 300_001), (INITRAMFS, 700_003), (shim, 10_000), (grub, 40_007), (mok_manager, 5)] {
        let mut state = seed.wrapping_mul(0x9E37_79B9).wrapping_add(len);
        let byte = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from(state >> 56).unwrap()
        };
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let manifest = Manifest::describe(folder.path(), "test", "test").unwrap();
    std::fs::write(folder.path().join(MANIFEST), manifest.to_json().unwrap()).unwrap();
    folder
}
