//! Finds the agent program that fake machines boot, so that users need not name it.

use std::{
    env,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// The program's name.
const NAME: &str = "metamorph-agent";
/// Where `make agent` puts it, relative to the folder of optimised programs.
const BUILT: &str = "../x86_64-unknown-linux-gnu/agent/metamorph-agent";

/// It is nowhere.
#[derive(Debug, Error)]
#[error(
    "finding the program {NAME}, which fake machines boot, failed; {looked}; `make agent` builds it, --agent names it"
)]
pub struct NoAgent {
    looked: String,
}

/// The agent program: the given one, else the one in `METAMORPH_AGENT`, next to this program, where `make agent` puts it, or in `PATH`.
///
/// # Errors
/// When it is in none of these places, or the given one does not exist.
pub fn find(given: Option<&Path>) -> Result<PathBuf, NoAgent> {
    let executable = env::current_exe().unwrap_or_default();
    let path = env::var_os("PATH").unwrap_or_default();
    let named = env::var_os("METAMORPH_AGENT").map(PathBuf::from);
    find_in(given, named, executable.parent().unwrap_or(Path::new(".")), &env::split_paths(&path).collect::<Vec<_>>())
}

fn find_in(given: Option<&Path>, named: Option<PathBuf>, beside: &Path, path: &[PathBuf]) -> Result<PathBuf, NoAgent> {
    if let Some(given) = given {
        let there = given.is_file().then(|| given.to_owned());
        return there.ok_or_else(|| NoAgent { looked: format!("{} is no file", given.display()) });
    }
    let mut places: Vec<PathBuf> = named.into_iter().collect();
    places.extend([beside.join(NAME), beside.join(BUILT)]);
    let in_path = path.iter().map(|folder| folder.join(NAME));
    if let Some(found) = places.iter().cloned().chain(in_path).find(|place| place.is_file()) {
        return Ok(found);
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(NoAgent { looked: format!("looked for: {} and the folders of PATH", places.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_where_it_is_built_and_where_it_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let program = folder.path().join("target/release");
        std::fs::create_dir_all(&program).unwrap();
        let bin = folder.path().join("bin");
        let error = find_in(None, None, &program, std::slice::from_ref(&bin)).unwrap_err().to_string();
        assert!(error.contains("target/release/metamorph-agent") && error.contains("make agent"), "{error}");
        let installed = make("bin/metamorph-agent");
        assert_eq!(find_in(None, None, &program, std::slice::from_ref(&bin)).unwrap(), installed);
        let built = make("target/x86_64-unknown-linux-gnu/agent/metamorph-agent");
        let found = find_in(None, None, &program, std::slice::from_ref(&bin)).unwrap();
        assert_eq!(found.canonicalize().unwrap(), built.canonicalize().unwrap());
        let beside = make("target/release/metamorph-agent");
        assert_eq!(
            find_in(None, Some(PathBuf::from("/nonexistent")), &program, std::slice::from_ref(&bin)).unwrap(),
            beside
        );
        let named = make("named");
        assert_eq!(find_in(None, Some(named.clone()), &program, std::slice::from_ref(&bin)).unwrap(), named);
        assert!(
            find_in(Some(Path::new("/nonexistent")), Some(named), &program, &[bin]).is_err(),
            "a given one is meant"
        );
    }
}
