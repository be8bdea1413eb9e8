//! Child processes that never outlive the simulator, however it ends.

use std::io;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

/// Starts `command` in its own process group. The child is killed when its handle is dropped, and by the kernel if the simulator dies before that.
///
/// # Errors
/// The program cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    command.kill_on_drop(true).process_group(0);
    // SAFETY: between fork and exec only prctl and getppid are called, which are plain system calls: nothing is
    // allocated and no lock is taken.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the request took hold.
            if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
    command.spawn()
}

/// The child's process id while it was not waited for.
fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Kills the child and all it started in its group, and waits for its end.
pub async fn kill(child: &mut Child) {
    if let Some(pid) = pid(child)
        && let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL)
    {
        tracing::debug!(%error, "killing a process group");
    }
    if let Err(error) = child.kill().await {
        tracing::debug!(%error, "killing a child");
    }
}

/// Asks the child to end (SIGTERM).
pub fn terminate(child: &Child) {
    if let Some(pid) = pid(child)
        && let Err(error) = rustix::process::kill_process(pid, Signal::TERM)
    {
        tracing::debug!(%error, "asking a child to end");
    }
}
