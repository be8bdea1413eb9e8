//! Whether the tests that tables name are there.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of this workspace's packages.
fn packages(root: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let groups = below(&root.join("crates"));
    let others = ["apps", "tests", "sim"].map(|folder| root.join(folder));
    groups.iter().chain(&others).flat_map(|folder| below(folder)).chain([root.join("xtask")]).collect()
}

/// Whether a test of this name (the binary's id, a space, and its path) stands in the sources.
fn exists(packages: &[PathBuf], test: &str) -> bool {
    let Some((binary, path)) = test.split_once(' ') else { return false };
    let (package, target) = binary.split_once("::").map_or((binary, None), |(package, target)| (package, Some(target)));
    let Some(folder) = packages.iter().find(|folder| folder.ends_with(package)) else { return false };
    let mut modules: Vec<&str> = path.split("::").collect();
    let Some(name) = modules.pop() else { return false };
    let target = target.filter(|target| !target.starts_with("bin/"));
    let base = target.map_or_else(|| folder.join("src"), |target| folder.join("tests").join(target));
    let mut files = vec![base.with_extension("rs"), base.join("main.rs"), base.join("lib.rs")];
    for length in 1..=modules.len() {
        let module = base.join(modules.get(..length).unwrap_or_default().join("/"));
        files.extend([module.with_extension("rs"), module.join("mod.rs")]);
    }
    let is_there = |text: String| text.contains(&format!("fn {name}(")) || text.contains(&format!("({name},"));
    files.iter().any(|file| fs::read_to_string(file).is_ok_and(is_there))
}

/// Those of these tests that are not there.
pub fn absent<'t>(root: &Path, tests: impl Iterator<Item = &'t str>) -> Vec<String> {
    let packages = packages(root);
    tests.filter(|test| !exists(&packages, test)).map(ToOwned::to_owned).collect()
}

#[test]
fn a_test_is_found_by_its_path_alone() {
    let packages = packages(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    assert!(exists(&packages, "xtask named_tests::a_test_is_found_by_its_path_alone"));
    assert!(!exists(&packages, "xtask named_tests::no_such_test"));
    assert!(!exists(&packages, "no-such-package named_tests::a_test_is_found_by_its_path_alone"));
}
