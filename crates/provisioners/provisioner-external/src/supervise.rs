//! Workers that the server starts: confined, kept running, and ended with it.
//!
//! A worker gets a folder of its own (0700, where it is at home and has its socket), an environment without anything of the server's, no descriptor
//! but its standard ones, and no way to more rights. What it writes to its standard output and error goes to the log, a bounded line at a time. One that
//! ends is started again after a pause that doubles. At the stop it gets SIGTERM, and what is left of its process group SIGKILL; if the server dies
//! before that, the kernel ends it, though not what it has started.

use std::fs::Permissions;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::site::Program;
use terms::clean;

/// Longest line that is logged, characters: what is longer goes on as further lines.
const MAX_LINE: usize = 1000;
/// Lines a second that are logged of one worker; the rest is counted.
const MAX_LINES: u32 = 50;
/// How long it is waited for the last words of a program that has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Descriptors that a worker does not inherit begin here, and end there.
const DESCRIPTORS: std::ops::Range<i32> = 3..4096;

/// How patient the supervision is.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The first pause before a program is started again; it doubles.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
    /// One that ran for so long begins with the first pause.
    pub settled: Duration,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            most: Duration::from_secs(60),
            settled: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        }
    }
}

impl Patience {
    /// The pause after a run, and how many failures in a row it was.
    fn after(self, failures: u32, ran: Duration) -> (Duration, u32) {
        let failures = if ran >= self.settled { 0 } else { failures };
        (self.first.saturating_mul(1 << failures.min(16)).min(self.most), failures + 1)
    }
}

/// A worker that is kept running until this is dropped.
pub struct Supervised {
    /// Where it listens.
    pub socket: PathBuf,
    stop: Option<oneshot::Sender<Ending>>,
    hangs: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    // Removed when all is over.
    _folder: TempDir,
}

/// How a worker is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It is asked to.
    Asked,
    /// It is killed: what it does is another server's business.
    Killed,
}

impl Supervised {
    /// Kills it, and all that it has started.
    pub fn kill(mut self) {
        self.tell(Ending::Killed);
    }

    /// The same, and does not wait for its end: dropping this does.
    pub fn begin_to_kill(&mut self) {
        self.tell(Ending::Killed);
    }

    /// Asks it to end, and does not wait for that: dropping this does.
    pub fn ask_to_end(&mut self) {
        self.tell(Ending::Asked);
    }

    /// Whoever finds that it hangs notifies this: it is killed, and started again.
    #[must_use]
    pub fn hangs(&self) -> Arc<Notify> {
        Arc::clone(&self.hangs)
    }

    fn tell(&mut self, ending: Ending) {
        if let Some(stop) = self.stop.take() {
            // Without anybody to hear it, it has ended.
            let _ = stop.send(ending);
        }
    }
}

impl Drop for Supervised {
    /// Ends it, and waits until it has ended.
    fn drop(&mut self) {
        self.tell(Ending::Asked);
        if let Some(thread) = self.thread.take() {
            // A thread that broke off has ended.
            let _ = thread.join();
        }
    }
}

/// Starts a worker, and keeps it running.
///
/// # Errors
/// When its folder cannot be made. A program that cannot be started is tried again.
pub fn supervise(name: &str, program: &Program, patience: Patience) -> io::Result<Supervised> {
    let folder = tempfile::Builder::new().prefix("metamorph-").permissions(Permissions::from_mode(0o700)).tempdir()?;
    if program.user.is_some() {
        chown(folder.path(), program.user, program.group)?;
    }
    let socket = folder.path().join("provisioner.sock");
    let (stop, stopped) = oneshot::channel();
    let hangs = Arc::new(Notify::new());
    let hung = Arc::clone(&hangs);
    let (name, program, home, listens) = (name.to_owned(), program.clone(), folder.path().to_owned(), socket.clone());
    // A thread of its own: the kernel ends the worker when the thread that started it is gone.
    let thread = std::thread::Builder::new().name(format!("worker-{name}")).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(keep(&name, &program, (&home, &listens), patience, (stopped, hung))),
            Err(error) => {
                tracing::error!(provisioner = %name, %error, "the provisioner's program cannot be looked after")
            }
        }
    })?;
    Ok(Supervised { socket, stop: Some(stop), hangs, thread: Some(thread), _folder: folder })
}

async fn keep(
    name: &str,
    program: &Program,
    at: (&Path, &Path),
    patience: Patience,
    (mut stopped, hung): (oneshot::Receiver<Ending>, Arc<Notify>),
) {
    let mut failures = 0;
    loop {
        let begun = Instant::now();
        match start(name, program, at) {
            Ok(mut child) => {
                let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
                let mut said = tokio::spawn(log(name.to_owned(), child.stdout.take(), child.stderr.take()));
                tokio::select! {
                    ending = &mut stopped => {
                        let grace = if ending == Ok(Ending::Killed) { Duration::ZERO } else { patience.grace };
                        end(name, &mut child, group, grace).await;
                        said.abort();
                        return;
                    }
                    () = hung.notified() => {
                        tracing::warn!(provisioner = %name, "the provisioner's program hangs: it is killed, and started again");
                        end(name, &mut child, group, Duration::ZERO).await;
                    }
                    ended = child.wait() => {
                        let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                        tracing::warn!(provisioner = %name, "the provisioner's program ended ({how}), and is started again");
                    }
                }
                // What it has left behind in its group would answer for it.
                if let Some(group) = group {
                    signal(name, group, Signal::KILL);
                }
                // Why it ended stands in what it said last.
                if timeout(LAST_WORDS, &mut said).await.is_err() {
                    said.abort();
                }
            }
            Err(error) => {
                tracing::error!(provisioner = %name, program = %program.path.display(), %error, "the provisioner's program cannot be started")
            }
        }
        let (pause, in_a_row) = patience.after(failures, begun.elapsed());
        failures = in_a_row;
        tokio::select! {
            _ = &mut stopped => return,
            () = sleep(pause) => {}
        }
    }
}

fn start(name: &str, program: &Program, (home, socket): (&Path, &Path)) -> io::Result<Child> {
    // One that was killed has left its socket behind, and not every language's server takes it away.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8").env("HOME", home).env("TMPDIR", home);
    // What its entry sets counts.
    command.envs(&program.environment);
    command.env("METAMORPH_PROVISIONER_NAME", name);
    command.env("METAMORPH_PROVISIONER_LISTEN", format!("unix:{}", socket.display()));
    command.current_dir(home).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true).process_group(0);
    if let (Some(user), Some(group)) = (program.user, program.group) {
        command.uid(user).gid(group);
    }
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only prctl, getppid and fcntl are called, which are plain system calls: nothing is allocated and no lock is
    // taken. A descriptor that is borrowed is not used beyond the call, which fails for one that is not open.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            rustix::thread::set_no_new_privs(true)?;
            for descriptor in DESCRIPTORS {
                // One that is not open cannot be inherited.
                let _ = rustix::io::fcntl_setfd(BorrowedFd::borrow_raw(descriptor), rustix::io::FdFlags::CLOEXEC);
            }
            // The parent may have died before the request took hold.
            if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
    command.spawn()
}

/// Ends a worker with its group.
async fn end(name: &str, child: &mut Child, group: Option<Pid>, grace: Duration) {
    if let Some(group) = group {
        if !grace.is_zero() {
            signal(name, group, Signal::TERM);
            if timeout(grace, child.wait()).await.is_err() {
                tracing::warn!(provisioner = %name, "the provisioner's program does not end, and is killed");
            }
        }
        signal(name, group, Signal::KILL);
    }
    if let Err(error) = child.kill().await {
        tracing::debug!(provisioner = %name, %error, "killing the provisioner's program");
    }
}

fn signal(name: &str, group: Pid, signal: Signal) {
    match rustix::process::kill_process_group(group, signal) {
        // It is gone.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => tracing::debug!(provisioner = %name, %error, "ending the provisioner's program"),
    }
}

async fn log(name: String, out: Option<impl AsyncRead + Unpin>, err: Option<impl AsyncRead + Unpin>) {
    tokio::join!(lines(&name, out), lines(&name, err));
}

async fn lines(name: &str, from: Option<impl AsyncRead + Unpin>) {
    let Some(from) = from else { return };
    let mut reader = BufReader::new(from);
    let (mut second, mut count, mut dropped) = (Instant::now(), 0, 0_u64);
    loop {
        let mut line = Vec::new();
        let most = u64::try_from(4 * MAX_LINE).unwrap_or(u64::MAX);
        match (&mut reader).take(most).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if second.elapsed() >= Duration::from_secs(1) {
            if dropped > 0 {
                tracing::info!(provisioner = %name, dropped, "lines of the provisioner's program were dropped: there were too many");
            }
            (second, count, dropped) = (Instant::now(), 0, 0);
        }
        count += 1;
        let text = clean(&String::from_utf8_lossy(&line), MAX_LINE);
        if count > MAX_LINES {
            dropped += 1;
        } else if !text.is_empty() {
            tracing::info!(provisioner = %name, "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_begin_anew_after_a_long_run() {
        let patience = Patience::default();
        let mut failures = 0;
        let mut pauses = Vec::new();
        for ran in [0, 0, 0, 61, 0, 0, 0, 0, 0, 0, 0, 0] {
            let (pause, next) = patience.after(failures, Duration::from_secs(ran));
            failures = next;
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
