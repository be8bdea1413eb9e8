//! Test binaries without nextest: tests by name, in as few processes as possible, which end at the first failure.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The program.
    pub program: PathBuf,
    /// Its package's folder, in which cargo runs it.
    pub folder: PathBuf,
}

/// How tests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All passed.
    Passed,
    /// One failed, or the process broke off.
    Failed,
    /// There was no end.
    Hung,
}

/// What cargo was to build.
pub struct Build {
    /// The tests, if it compiles.
    pub binaries: Option<Vec<Binary>>,
    /// What is wrong otherwise.
    pub errors: Vec<Fault>,
}

/// An error of the compiler.
pub struct Fault {
    /// Where it says that it is, outermost last: a macro's use stands behind what the macro has made.
    pub places: Vec<(PathBuf, usize)>,
    /// Its number, such as `E0308`; empty for a lint.
    pub code: String,
    /// As it is printed.
    pub text: String,
}

/// Builds the libraries of some packages in a tree, or their tests, too. What they depend on is compiled once for both.
///
/// # Errors
/// When cargo cannot be started.
pub fn build(tree: &Path, target: &Path, packages: &[&str], tests: bool) -> Result<Build> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(if tests { &["test", "--no-run"][..] } else { &["build", "--lib", "--keep-going"][..] });
    cargo.args(["--message-format", "json"]).args(packages.iter().flat_map(|name| ["--package", name]));
    cargo.current_dir(tree).env("CARGO_TARGET_DIR", target).env_remove("RUSTC_WORKSPACE_WRAPPER");
    let output = cargo.stderr(Stdio::inherit()).output().context("starting cargo")?;
    let (mut binaries, mut errors) = (Vec::new(), Vec::new());
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        match message["reason"].as_str() {
            Some("compiler-artifact") => {
                let manifest = message["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
                if let (Some(program), Some(folder)) = (message["executable"].as_str(), manifest) {
                    binaries.push(Binary { program: program.into(), folder: folder.to_owned() });
                }
            }
            Some("compiler-message") if message["message"]["level"] == "error" => {
                errors.extend(fault(&message["message"]))
            }
            _ => {}
        }
    }
    ensure!(
        output.status.success() || !errors.is_empty(),
        "cargo does not build the tests, for no reason in the sources"
    );
    Ok(Build { binaries: output.status.success().then_some(binaries), errors })
}

/// The closing message ("aborting due to …") has no place, and is none.
fn fault(message: &Value) -> Option<Fault> {
    let mut places = Vec::new();
    for span in message["spans"].as_array()?.iter().filter(|span| span["is_primary"] == true) {
        let mut span = span;
        while let (Some(file), Some(start)) = (span["file_name"].as_str(), span["byte_start"].as_u64()) {
            places.push((PathBuf::from(file), usize::try_from(start).ok()?));
            span = &span["expansion"]["span"];
        }
    }
    let text = message["rendered"].as_str().unwrap_or_default().to_owned();
    let code = message["code"]["code"].as_str().unwrap_or_default().to_owned();
    (!places.is_empty()).then_some(Fault { places, code, text })
}

/// A child that does not outlive this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Binary {
    /// The names of its tests.
    ///
    /// # Errors
    /// When it does not say them.
    pub fn tests(&self) -> Result<BTreeSet<String>> {
        let output =
            Command::new(&self.program).args(["--list", "--format", "terse"]).current_dir(&self.folder).output();
        let output = output.with_context(|| format!("starting {}", self.program.display()))?;
        ensure!(output.status.success(), "{} does not list its tests", self.program.display());
        let text = String::from_utf8(output.stdout).context("reading the names of tests")?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Runs these tests, one after the other, up to the first that fails.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn run(&self, tests: &[&str], environment: &[(&str, &str)], limit: Duration) -> Result<Ended> {
        let mut command = Command::new(&self.program);
        command.args(["--exact", "--test-threads", "1"]).args(tests).current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder).envs(environment.iter().copied()).env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let mut process = Process(child);
        let output = process.0.stdout.take().context("a process without output")?;
        let (sender, receiver) = mpsc::channel();
        // Ends with the process.
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // A test that fails may print what it likes behind its line: as many bytes of a line as say how it ended.
            while output.by_ref().take(1 << 16).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if line.starts_with(b"test ") && line.ends_with(b" ... FAILED\n") {
                    let _ = sender.send(());
                }
                line.clear();
            }
        });
        match receiver.recv_timeout(limit) {
            Ok(()) => Ok(Ended::Failed),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(Ended::Hung),
            // It has closed its output: it ends.
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let status = process.0.wait().with_context(|| format!("waiting for {}", self.program.display()))?;
                Ok(if status.success() { Ended::Passed } else { Ended::Failed })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_stand_where_a_macro_is_used_too() {
        let outer = json!({"file_name": "src/a.rs", "byte_start": 7, "is_primary": true});
        let within =
            json!({"file_name": "core/macros.rs", "byte_start": 3, "is_primary": true, "expansion": {"span": outer}});
        let beside = json!({"file_name": "src/b.rs", "byte_start": 1, "is_primary": false});
        let message = json!({"spans": [beside, within], "code": {"code": "E0308"}, "rendered": "no"});
        let found = fault(&message).unwrap();
        assert_eq!(found.places, [(PathBuf::from("core/macros.rs"), 3), (PathBuf::from("src/a.rs"), 7)]);
        assert_eq!((found.code.as_str(), found.text.as_str()), ("E0308", "no"));
        assert!(fault(&json!({"spans": [], "rendered": "aborting due to one error"})).is_none());
    }
}
