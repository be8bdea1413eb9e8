//! Mutants of the pure crates: one build with all of them, the tests that reach each one, and which mutants no test sees.
//!
//! cargo-mutants says what mutants there are; [`choices`] puts them into a copy of the sources. Each test is run once by itself, and says which
//! mutants it reaches: only it can see these. Then each mutant is chosen in turn, and its tests run until one fails, the fast ones first. Mutants that
//! are no choice at run time are left to cargo-mutants, which compiles each by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Resource, Rlimit};

use crate::choices::{self, Genre, MODULE, Mutant};
use crate::libtest::{self, Binary, Ended};
use crate::report::Report;
use crate::seeded::{self, say};

/// The crates, with their folders.
const CRATES: [(&str, &str); 2] =
    [("host-lifecycle", "crates/logic/host-lifecycle"), ("provisioning-plan", "crates/logic/provisioning-plan")];
/// Where the copy is, and all that a run leaves.
const FOLDER: &str = "target/mutants";
/// What is faster is run with others in one process.
const FAST: Duration = Duration::from_millis(60);
/// What is slower is run last, on the mutants that no other test has seen.
const SLOW: Duration = Duration::from_secs(2);
/// What a hanging test is given beside ten times its time.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a test may have of memory, in bytes: a loop without end may fill it.
const MEMORY: u64 = 4 << 30;
/// The same cases each time, fewer of them, and no search for smaller ones: a failure is enough.
const PROPERTIES: [(&str, &str); 4] = [
    ("PROPTEST_RNG_SEED", "9"),
    ("PROPTEST_CASES", "300"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1"),
];
/// Which mutant is chosen: all are noted, and none is chosen, at 0.
const CHOSEN: &str = "METAMORPH_MUTANT";
/// The file in which they are noted.
const REACHED: &str = "METAMORPH_MUTANTS_REACHED";

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// A test fails.
    Caught,
    /// A test does not end.
    Hung,
    /// No test sees it.
    Missed,
    /// It does not compile.
    Unviable,
}

impl Fate {
    const fn word(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Hung => "hung",
            Self::Missed => "missed",
            Self::Unviable => "unviable",
        }
    }
}

/// A test, and what it is known to do.
struct Test {
    binary: usize,
    name: String,
    time: Duration,
    reaches: BTreeSet<u32>,
}

/// Runs the mutants that cargo-mutants lists with these arguments.
///
/// # Errors
/// When the sources do not build without a mutant, a test fails then, or cargo-mutants cannot be run.
pub fn run(root: &Path, arguments: &[String]) -> Result<Report> {
    let begun = Instant::now();
    let listed = listed(root, arguments)?;
    ensure!(!listed.is_empty(), "cargo-mutants lists no mutants for {arguments:?}");
    let mutants: BTreeMap<u32, &Mutant> = (1..).zip(&listed).collect();
    let tree = seeded::copied(root, &root.join(FOLDER).join("tree"))?;
    let mut seeds = Seeds { tree: &tree, mutants: mutants.clone(), left: BTreeSet::new(), unviable: BTreeSet::new() };
    let binaries = seeds.built(&root.join(FOLDER).join("choices"))?;
    let (left, unviable) = (seeds.left, seeds.unviable);
    say(&format!("{} mutants, built after {} s", mutants.len(), begun.elapsed().as_secs()));
    let mut fates: BTreeMap<u32, Fate> = unviable.into_iter().map(|number| (number, Fate::Unviable)).collect();
    let chosen: Vec<u32> =
        mutants.keys().copied().filter(|one| !fates.contains_key(one) && !left.contains(one)).collect();
    let unbounded = rustix::process::getrlimit(Resource::As);
    bound(Rlimit { current: Some(MEMORY), ..unbounded })?;
    let tests = reached(&binaries, &root.join(FOLDER))?;
    say(&format!("{} tests, each run once after {} s", tests.len(), begun.elapsed().as_secs()));
    let (slow, quick): (Vec<Test>, Vec<Test>) = tests.into_iter().partition(|test| test.time > SLOW);
    let mut open = chosen;
    for tests in [quick, slow] {
        fates.extend(in_parallel(&open, |number| fate(&binaries, &tests, *number).map(|fate| (*number, fate)))?);
        write(root, &mutants, &fates)?;
        open.retain(|number| fates.get(number) == Some(&Fate::Missed));
        say(&format!("{} not seen by {} tests after {} s", open.len(), tests.len(), begun.elapsed().as_secs()));
    }
    bound(unbounded)?;
    let alone: Vec<&Mutant> = left.iter().filter_map(|number| mutants.get(number).copied()).collect();
    let by_name = compiled_alone(root, &alone)?;
    for number in &left {
        let Some(mutant) = mutants.get(number) else { continue };
        let fate =
            by_name.get(&mutant.name).with_context(|| format!("cargo-mutants is silent about {}", mutant.name))?;
        fates.insert(*number, *fate);
    }
    write(root, &mutants, &fates)?;
    let count = |wanted: Fate| fates.values().filter(|fate| **fate == wanted).count();
    let summary = format!(
        "mutants: {}, of which {} caught, {} hung, {} unviable, {} missed; {} compiled one by one; {} s",
        mutants.len(),
        count(Fate::Caught),
        count(Fate::Hung),
        count(Fate::Unviable),
        count(Fate::Missed),
        left.len(),
        begun.elapsed().as_secs()
    );
    let missed = mutants.iter().filter(|(number, _)| fates.get(number) == Some(&Fate::Missed));
    Ok(Report { problems: missed.map(|(_, mutant)| format!("missed: {}", mutant.name)).collect(), summary })
}

/// Writes down what has become of each.
fn write(root: &Path, mutants: &BTreeMap<u32, &Mutant>, fates: &BTreeMap<u32, Fate>) -> Result<()> {
    let lines =
        fates.iter().filter_map(|(number, fate)| Some(format!("{}\t{}\n", fate.word(), mutants.get(number)?.name)));
    seeded::write(&root.join(FOLDER).join("outcomes.tsv"), &lines.collect::<String>())
}

/// Bounds what this process, and those that it starts from now on, may have of memory.
fn bound(limit: Rlimit) -> Result<()> {
    rustix::process::setrlimit(Resource::As, limit).context("bounding the memory of tests")
}

/// cargo-mutants, for these crates.
fn cargo_mutants(root: &Path) -> Command {
    let program = std::env::var_os("CARGO_MUTANTS")
        .map_or_else(|| root.join(".cache/tools/mutants/bin/cargo-mutants"), PathBuf::from);
    let mut command = Command::new(program);
    command.arg("mutants").args(CRATES.iter().flat_map(|(name, _)| ["--package", name])).current_dir(root);
    command
}

fn listed(root: &Path, arguments: &[String]) -> Result<Vec<Mutant>> {
    let output = cargo_mutants(root).args(["--list", "--json"]).args(arguments).output();
    let output = output.context("starting cargo-mutants, which deploy/mutants installs")?;
    ensure!(output.status.success(), "cargo-mutants: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("reading what cargo-mutants lists")
}

/// The mutants in a tree.
struct Seeds<'m> {
    tree: &'m Path,
    mutants: BTreeMap<u32, &'m Mutant>,
    /// Those that are compiled by themselves.
    left: BTreeSet<u32>,
    unviable: BTreeSet<u32>,
}

impl Seeds<'_> {
    /// Builds the tree with all mutants that compile: the others are found by the compiler's errors.
    fn built(&mut self, target: &Path) -> Result<Vec<Binary>> {
        let packages = CRATES.map(|(name, _)| name);
        let originals = self.originals()?;
        let mut constant = BTreeSet::new();
        for text in originals.values() {
            constant.extend(choices::names_in_constants(text)?);
        }
        for tests in [false, true] {
            loop {
                let texts = self.seed(&originals, &constant)?;
                let build = libtest::build(self.tree, target, &packages, tests)?;
                match build.binaries {
                    Some(_) if !tests => break,
                    Some(binaries) => return Ok(binaries),
                    None => self.without(&build.errors, &texts)?,
                }
            }
        }
        bail!("nothing was built")
    }

    /// The files of the crates as they were copied.
    fn originals(&self) -> Result<BTreeMap<PathBuf, String>> {
        let files: BTreeSet<&PathBuf> = self.mutants.values().map(|mutant| &mutant.file).collect();
        let roots = CRATES.iter().map(|(_, folder)| Path::new(folder).join("src/lib.rs"));
        let all: BTreeSet<PathBuf> = files.into_iter().cloned().chain(roots).collect();
        all.into_iter().map(|file| seeded::read(&self.tree.join(&file)).map(|text| (file, text))).collect()
    }

    /// Writes the mutants into the tree.
    fn seed(
        &mut self,
        originals: &BTreeMap<PathBuf, String>,
        constant: &BTreeSet<String>,
    ) -> Result<BTreeMap<PathBuf, String>> {
        let mut texts = BTreeMap::new();
        for (file, text) in originals {
            let here = self.mutants.iter().filter(|(number, mutant)| {
                mutant.file == *file && !self.left.contains(*number) && !self.unviable.contains(*number)
            });
            let here = here.map(|(number, mutant)| (*number, *mutant)).collect();
            let chosen = choices::chosen(text, &here, constant).with_context(|| file.display().to_string())?;
            self.left.extend(chosen.left);
            self.unviable.extend(chosen.unviable);
            texts.insert(file.clone(), chosen.text);
        }
        let count = self.mutants.len().to_string();
        for (_, folder) in CRATES {
            let source = Path::new(folder).join("src");
            texts.entry(source.join("lib.rs")).or_default().push_str("\nmod mutant_choice;\n");
            texts.insert(source.join("mutant_choice.rs"), MODULE.replace("COUNT", &count));
        }
        for (file, text) in &texts {
            let path = self.tree.join(file);
            if !fs::read_to_string(&path).is_ok_and(|there| there == *text) {
                seeded::write(&path, text)?;
            }
        }
        Ok(texts)
    }

    /// Takes out what does not compile.
    fn without(&mut self, errors: &[libtest::Fault], texts: &BTreeMap<PathBuf, String>) -> Result<()> {
        let mut found = false;
        for error in errors {
            let numbers = error.places.iter().find_map(|(file, offset)| {
                let numbers = choices::at(texts.get(file)?, *offset);
                (!numbers.is_empty()).then_some(numbers)
            });
            let Some(numbers) = numbers else {
                say(&error.text);
                continue;
            };
            found = true;
            for number in &numbers {
                // A value that does not fit the function's type, and an operator that these operands do not have, are so whoever asks for them. What else the
                // compiler says of a mutant it may say of the choice only.
                let no_operator = matches!(error.code.as_str(), "E0277" | "E0369");
                let unviable = numbers.len() == 1
                    && self.mutants.get(number).is_some_and(|mutant| {
                        mutant.genre == Genre::FnValue || mutant.genre == Genre::BinaryOperator && no_operator
                    });
                if unviable {
                    self.unviable.insert(*number);
                } else {
                    self.left.insert(*number);
                }
            }
        }
        ensure!(found, "the sources do not compile with mutants, and none of these is the reason");
        Ok(())
    }
}

/// Does something with each of them, on all processors.
fn in_parallel<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = each(item);
            let failed = result.is_err();
            if let Ok(mut results) = results.lock() {
                results.push(result);
            }
            if failed {
                next.store(items.len(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().collect()
}

/// All tests, the fastest first, with the mutants that each reaches.
fn reached(binaries: &[Binary], folder: &Path) -> Result<Vec<Test>> {
    let mut names = Vec::new();
    for (binary, program) in binaries.iter().enumerate() {
        names.extend(program.tests()?.into_iter().map(|name| (binary, name)));
    }
    let notes = folder.join("reached");
    fs::create_dir_all(&notes).with_context(|| format!("making {}", notes.display()))?;
    let numbered: Vec<(usize, (usize, String))> = names.into_iter().enumerate().collect();
    let mut tests = in_parallel(&numbered, |(number, (binary, name))| {
        let note = notes.join(number.to_string());
        let _ = fs::remove_file(&note);
        let mut environment = PROPERTIES.to_vec();
        let note_path = note.to_string_lossy();
        environment.extend([(CHOSEN, "0"), (REACHED, note_path.as_ref())]);
        let begun = Instant::now();
        let program = binaries.get(*binary).context("a test without a binary")?;
        let ended = program.run(&[name], &environment, Duration::from_secs(600))?;
        let time = begun.elapsed();
        ensure!(ended == Ended::Passed, "{name} fails without a mutant: {ended:?}");
        let text = fs::read_to_string(&note).unwrap_or_default();
        let reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(Test { binary: *binary, name: name.clone(), time, reaches })
    })?;
    tests.sort_by_key(|test| test.time);
    for slow in tests.iter().rev().take(8).filter(|test| test.time > Duration::from_secs(1)) {
        say(&format!("{:6.1} s  {}", slow.time.as_secs_f64(), slow.name));
    }
    Ok(tests)
}

/// Runs the tests that reach a mutant until one sees it.
fn fate(binaries: &[Binary], tests: &[Test], number: u32) -> Result<Fate> {
    let reaching: Vec<&Test> = tests.iter().filter(|test| test.reaches.contains(&number)).collect();
    let (fast, slow): (Vec<&Test>, Vec<&Test>) = reaching.into_iter().partition(|test| test.time < FAST);
    let mut turns: Vec<Vec<&Test>> =
        (0..binaries.len()).map(|binary| fast.iter().copied().filter(|test| test.binary == binary).collect()).collect();
    turns.extend(slow.into_iter().map(|test| vec![test]));
    let text = number.to_string();
    let mut environment = PROPERTIES.to_vec();
    environment.push((CHOSEN, &text));
    for turn in turns {
        let Some(binary) = turn.first().and_then(|test| binaries.get(test.binary)) else { continue };
        let names: Vec<&str> = turn.iter().map(|test| test.name.as_str()).collect();
        let time: Duration = turn.iter().map(|test| test.time).sum();
        match binary.run(&names, &environment, time * 10 + PATIENCE)? {
            Ended::Passed => {}
            Ended::Failed => return Ok(Fate::Caught),
            Ended::Hung => return Ok(Fate::Hung),
        }
    }
    Ok(Fate::Missed)
}

/// Has cargo-mutants run some mutants, each with a build of its own.
fn compiled_alone(root: &Path, mutants: &[&Mutant]) -> Result<BTreeMap<String, Fate>> {
    if mutants.is_empty() {
        return Ok(BTreeMap::new());
    }
    let folder = root.join(FOLDER).join("alone");
    let mut command = cargo_mutants(root);
    command.args(["--test-tool", "nextest", "--output"]).arg(&folder);
    let tools = std::env::join_paths(
        [root.join(".cache/tools/bin")]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    command.env("PATH", tools.context("a PATH with a colon in a folder")?);
    for mutant in mutants {
        // Fields of structs are listed whatever the expression: of these files alone.
        command.arg("--file").arg(&mutant.file).arg("--re").arg(format!("^{}$", escaped(&mutant.name)));
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    command
        .envs(PROPERTIES)
        .env("CARGO_TARGET_DIR", root.join(FOLDER).join("build"))
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    // Its status says that some were missed, too; what it has not run is not in its lists.
    command.status().context("starting cargo-mutants")?;
    let mut fates = BTreeMap::new();
    let lists = [Fate::Caught, Fate::Hung, Fate::Missed, Fate::Unviable];
    for (fate, file) in lists.into_iter().zip(["caught", "timeout", "missed", "unviable"]) {
        let text = seeded::read(&folder.join("mutants.out").join(format!("{file}.txt")))?;
        fates.extend(text.lines().map(|line| (line.to_owned(), fate)));
    }
    Ok(fates)
}

/// A name as a regular expression.
fn escaped(name: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_/:<>='\"!&%,-".contains(c);
    name.chars().flat_map(|c| (!plain(c)).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_as_they_are() {
        let name = "a/b.rs:1:2: replace f -> Result<(), S> with Ok(vec![\"x\"]) in g";
        assert_eq!(escaped(name), r#"a/b\.rs:1:2: replace f -> Result<\(\), S> with Ok\(vec!\["x"\]\) in g"#);
    }

    #[test]
    fn everything_is_done_once_and_the_first_error_ends_it() {
        let items: Vec<u32> = (0..100).collect();
        let mut done = in_parallel(&items, |item| Ok(*item)).unwrap();
        done.sort_unstable();
        assert_eq!(done, items);
        let failed = in_parallel(&items, |item| if *item == 3 { bail!("no") } else { Ok(()) });
        assert_eq!(failed.unwrap_err().to_string(), "no");
    }
}
