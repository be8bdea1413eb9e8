//! Programs that the server starts: confined, started again, ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::time::Duration;

use provisioner_external::{Patience, Program, Supervised, supervise};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Pid, test_kill_process};

/// A program that says what it does through a pipe, which is named by the variable `SAYS`.
struct Said {
    lines: Lines<BufReader<File>>,
    supervised: Option<Supervised>,
}

impl Said {
    fn start(folder: &Path, script: &str, grace: Duration) -> Self {
        let pipe = folder.join("says");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let environment = BTreeMap::from([("SAYS".to_owned(), pipe.to_str().unwrap().to_owned())]);
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        let program = Program { path: "/bin/sh".into(), arguments, environment, user: None, group: None };
        let patience = Patience { first: Duration::from_millis(1), grace, ..Patience::default() };
        let supervised = supervise("acme", &program, patience).unwrap();
        // Both ends are this process's, too: the pipe does not end while nobody writes.
        let pipe = File::options().read(true).write(true).open(pipe).unwrap();
        Self { lines: BufReader::new(pipe).lines(), supervised: Some(supervised) }
    }

    fn next(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

#[test]
fn a_program_has_a_folder_and_an_environment_of_its_own_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let inherited = rustix::io::fcntl_dupfd_cloexec(File::open("/dev/null").unwrap(), 50).unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    let script = r#"{ env | sort; echo "at $PWD"; echo "mode $(stat -c %a .)"; for d in /proc/$$/fd/*; do echo "fd ${d##*/}"; done; grep NoNewPrivs /proc/$$/status; echo over; } > "$SAYS"; exec sleep 600"#;
    let mut said = Said::start(folder.path(), script, Duration::from_secs(10));
    let mut lines = Vec::new();
    loop {
        match said.next() {
            line if line == "over" => break,
            line => lines.push(line),
        }
    }
    let socket = said.supervised.as_ref().unwrap().socket.clone();
    let home = socket.parent().unwrap().to_str().unwrap().to_owned();
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split_once('=').map(|(name, _)| name)).collect();
    let expected =
        ["HOME", "LANG", "METAMORPH_PROVISIONER_LISTEN", "METAMORPH_PROVISIONER_NAME", "PATH", "PWD", "SAYS", "TMPDIR"];
    let names: Vec<&str> = names.into_iter().filter(|name| !matches!(*name, "SHLVL" | "_" | "OLDPWD")).collect();
    assert_eq!(names, expected, "{lines:?}");
    let has = |line: &str| assert!(lines.iter().any(|found| found == line), "{line} in {lines:?}");
    has(&format!("at {home}"));
    has(&format!("METAMORPH_PROVISIONER_LISTEN=unix:{}", socket.display()));
    has("mode 700");
    has("NoNewPrivs:\t1");
    let descriptors: Vec<i32> = lines.iter().filter_map(|line| line.strip_prefix("fd ")?.parse().ok()).collect();
    // The shell has some of its own, from 3 and from 10 on.
    assert!(descriptors.len() > 2 && descriptors.iter().all(|number| *number < 50), "{descriptors:?}");
    drop(said.supervised.take());
    assert!(!Path::new(&home).exists(), "its folder goes with it");
    drop(inherited);
}

#[test]
fn one_is_killed_at_once_where_another_server_leads() {
    let folder = tempfile::tempdir().unwrap();
    let stubborn = r#"trap 'echo ended > "$SAYS"; exit 0' TERM; echo "$$" > "$SAYS"; while :; do :; done"#;
    let mut said = Said::start(folder.path(), stubborn, Duration::from_secs(600));
    let pid = said.next();
    said.supervised.take().unwrap().kill();
    assert!(test_kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap()).is_err());
    File::options().write(true).open(folder.path().join("says")).unwrap().write_all(b"over\n").unwrap();
    assert_eq!(said.next(), "over", "it was not asked to end");
}

#[test]
fn one_that_ends_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = Said::start(folder.path(), r#"echo "run" > "$SAYS"; exit 3"#, Duration::from_secs(10));
    for _ in 0..4 {
        assert_eq!(said.next(), "run");
    }
}

#[test]
fn one_that_left_its_socket_behind_finds_the_place_free() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"socket="${METAMORPH_PROVISIONER_LISTEN#unix:}"; if [ -e "$socket" ]; then echo taken > "$SAYS"; else echo free > "$SAYS"; fi; : > "$socket"; exit 3"#;
    let mut said = Said::start(folder.path(), script, Duration::from_secs(10));
    for _ in 0..3 {
        assert_eq!(said.next(), "free");
    }
}

#[test]
fn one_that_is_said_to_hang_is_killed_and_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let stubborn = r#"trap '' TERM; echo "$$" > "$SAYS"; while :; do sleep 1; done"#;
    let mut said = Said::start(folder.path(), stubborn, Duration::from_millis(50));
    let first = said.next();
    said.supervised.as_ref().unwrap().hangs().notify_one();
    let second = said.next();
    assert_ne!(first, second);
    assert!(test_kill_process(Pid::from_raw(first.parse().unwrap()).unwrap()).is_err());
}

#[test]
fn all_are_asked_to_end_before_any_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let polite = r#"trap 'echo ended > "$SAYS"; exit 0' TERM; echo begun > "$SAYS"; while :; do sleep 1; done"#;
    let mut said = Said::start(folder.path(), polite, Duration::from_secs(60));
    assert_eq!(said.next(), "begun");
    said.supervised.as_mut().unwrap().ask_to_end();
    assert_eq!(said.next(), "ended", "it is still there to be waited for");
}

#[test]
fn one_is_asked_to_end_and_killed_with_its_group_if_it_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let polite = r#"trap 'echo ended > "$SAYS"; exit 0' TERM; echo "$$" > "$SAYS"; while :; do sleep 1; done"#;
    let mut said = Said::start(folder.path(), polite, Duration::from_secs(60));
    let pid = said.next();
    drop(said.supervised.take());
    assert_eq!(said.next(), "ended");
    let is_gone = |pid: &str| test_kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap()).is_err();
    assert!(is_gone(&pid));
    let folder = tempfile::tempdir().unwrap();
    let stubborn = r#"trap '' TERM; sh -c 'trap "" TERM; echo $$ > "$SAYS"; while :; do sleep 1; done' & echo "$$" > "$SAYS"; wait"#;
    let mut said = Said::start(folder.path(), stubborn, Duration::from_millis(50));
    let (one, two) = (said.next(), said.next());
    drop(said.supervised.take());
    let is_over = |pid: &str| {
        // Whoever is killed may be waited for by nobody yet.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        is_gone(pid) || status.contains("State:\tZ")
    };
    // The kernel delivers SIGKILL to a group at once, and ends each member in its own time. Who of the two speaks first is chance.
    while !is_over(&one) || !is_over(&two) {
        std::thread::yield_now();
    }
}
