//! Process 1: mounts file systems, keeps the agent alive and reaps every child.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use agent::Tree;
use agent::linux::{Consoles, mount_all, reap_until};

/// Pause before the agent is started again.
const AGAIN: Duration = Duration::from_secs(5);

/// Prepares the system and starts the agent, again and again. Never returns: the kernel panics when process 1 exits.
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
    // output outside the log, such as a panic message, also goes to the console
    let console = std::fs::OpenOptions::new().write(true).open("/dev/console");
    let output = console.map_or_else(|_| Stdio::null(), Stdio::from);
    command.arg("run").stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn()
}

fn say(console: &mut Consoles, text: &str) {
    // if the console cannot be written, there is nowhere else to report to
    let _ = writeln!(console, "metamorph-agent: {text}");
}
