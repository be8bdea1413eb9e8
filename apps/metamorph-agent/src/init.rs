//! Process 1: mounts, then keeps the agent alive and takes the end of every child.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use agent::Tree;
use agent::linux::{Consoles, mount_all, reap_until};

/// Pause before the agent is started again.
const AGAIN: Duration = Duration::from_secs(5);

/// Prepares the system and starts the agent, again and again. Never returns: the kernel dies with process 1.
pub fn process_one() -> ! {
    let complaints = mount_all();
    let mut console = Consoles::open(&Tree::new("/"));
    for complaint in complaints {
        say(&mut console, &complaint);
    }
    loop {
        let ended = start().and_then(|child| reap_until(child.id()));
        match ended {
            Ok(status) => say(&mut console, &format!("the agent ended ({status}); starting it again in 5 s")),
            Err(error) => say(&mut console, &format!("starting the agent failed: {error}; trying again in 5 s")),
        }
        std::thread::sleep(AGAIN);
    }
}

fn start() -> std::io::Result<std::process::Child> {
    let mut command = Command::new("/proc/self/exe");
    // whatever is printed beside the log, such as the last words of a panic, belongs on the console as well
    let console = std::fs::OpenOptions::new().write(true).open("/dev/console");
    let output = console.map_or_else(|_| Stdio::null(), Stdio::from);
    command.arg("run").stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn()
}

fn say(console: &mut Consoles, text: &str) {
    // nobody is left to tell when the console cannot be written
    let _ = writeln!(console, "metamorph-agent: {text}");
}
