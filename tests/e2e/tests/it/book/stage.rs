//! Where a page runs: a shell in a network of its own, with a BMC, a web server and a folder that looks like a checkout that was built.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use e2e::{DiskImage, agent_image, agent_program, program, tool};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::page::{Item, Page, matches};

/// Longest time of a page.
const PATIENCE: Duration = Duration::from_secs(240);
/// Own namespaces: the addresses of the pages exist in this network alone, and all processes end with the first one.
const APART: [&str; 7] = ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"];

/// Runs a page; fails where a reader would be stuck.
pub async fn run(page: &Page) {
    let stage = Stage::new();
    let script = stage.path("page.sh");
    std::fs::write(&script, stage.script(page)).unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", stage.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command.args(APART).arg("bash").arg(&script).stdin(Stdio::null()).kill_on_drop(true);
    command.env_clear().env("PATH", path).env("LC_ALL", "C.UTF-8").env("HOME", stage.path("home"));
    command
        .env("BOOK", stage.path("notes"))
        .env("METAMORPH_AGENT", agent_program().unwrap())
        .env("TMPDIR", stage.path("tmp"));
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let ended = match &output {
        Ok(output) => output.as_ref().unwrap().status.success(),
        Err(_) => false,
    };
    assert!(ended, "{}: the reader is stuck: {output:?}\n{}", page.path, stage.stuck(page));
    for item in &page.items {
        let Item::Run(run) = item else { continue };
        let found = stage.note(run.line);
        let wanted = run.shows.join("\n");
        assert!(
            run.shows.is_empty() || matches(&run.shows, &found),
            "{}:{}: $ {}\nshows\n{wanted}\nand says\n{found}",
            page.path,
            run.line,
            run.command
        );
    }
}

/// Everything that a page finds.
struct Stage(tempfile::TempDir);

impl Stage {
    fn new() -> Self {
        let stage = Self(tempfile::tempdir().unwrap());
        let root = super::root().canonicalize().unwrap();
        for folder in ["bin", "home", "tmp", "notes/images", "work/target/release", "work/.cache/demo-os/current"] {
            std::fs::create_dir_all(stage.path(folder)).unwrap();
        }
        for name in ["metamorph", "bmc-sim"] {
            for place in ["bin", "work/target/release"] {
                symlink(program(name).unwrap(), stage.path(place).join(name)).unwrap();
            }
        }
        for folder in ["deploy", "docs", "examples"] {
            symlink(root.join(folder), stage.path("work").join(folder)).unwrap();
        }
        symlink(agent_image().unwrap(), stage.path("work/.cache/agent-image")).unwrap();
        symlink(agent_image().unwrap(), stage.path("work/agent-image")).unwrap();
        stage.images();
        std::fs::write(stage.path("notes/hosts"), "127.0.0.1 localhost\n192.0.2.20 images.example\n").unwrap();
        let site = json!({ "listen": "192.0.2.7", "tls": true, "username": "admin", "password": "the-password", "machines": [
            { "id": "node-0", "kind": "fake", "port": 443, "nics": [{ "mac": "52:54:00:12:34:56" }] } ] });
        std::fs::write(stage.path("notes/site.json"), site.to_string()).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The images that pages name: small ones, each with the digests beside it.
    fn images(&self) {
        let raw = self.path("disk.raw");
        std::fs::write(&raw, DiskImage::tiny().unwrap().bytes).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let debian = self.path("notes/images/debian.qcow2");
        tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &text(&raw), &text(&debian)]).unwrap();
        let demo = self.path("work/.cache/demo-os/current/debian-12.raw.zst");
        tool("zstd", &["--quiet", &text(&raw), "-o", &text(&demo)]).unwrap();
        for image in [debian, demo] {
            let digest = hex::encode(Sha256::digest(std::fs::read(&image).unwrap()));
            let line = format!("{digest}  {}\n", image.file_name().unwrap().to_str().unwrap());
            std::fs::write(image.with_file_name("SHA256SUMS"), line).unwrap();
        }
    }

    /// The page as one script.
    fn script(&self, page: &Page) -> String {
        let mut script = format!("{}\ncd '{}'\n", include_str!("stage.sh"), self.path("work").display());
        let mut running: Vec<(&str, usize)> = Vec::new();
        for item in &page.items {
            match item {
                Item::Run(run) => {
                    let line = run.line;
                    write!(script, "block {line}\n{{\n{}\n}} >\"$BOOK/{line}.out\" 2>&1", run.command).unwrap();
                    if let Some((name, words)) = run.lasting {
                        write!(script, " &\nbackground {line} $! '{words}'").unwrap();
                        running.push((name, line));
                    }
                    script.push('\n');
                }
                Item::CtrlC { program } => {
                    let at = running.iter().rposition(|(name, _)| name == program);
                    let (_, line) =
                        running.remove(at.unwrap_or_else(|| panic!("{}: no {program} is running", page.path)));
                    writeln!(script, "ctrl_c {line}").unwrap();
                }
                Item::NotRun { .. } => {}
            }
        }
        // Whatever is left running ends with the shell.
        script.push_str("exit 0\n");
        script
    }

    /// What a block has said.
    fn note(&self, line: impl std::fmt::Display) -> String {
        std::fs::read_to_string(self.path("notes").join(format!("{line}.out"))).unwrap_or_default()
    }

    /// Where the page did not go on, and what all programs that run say.
    fn stuck(&self, page: &Page) -> String {
        let begun = std::fs::read_to_string(self.path("notes/begun")).unwrap_or_default();
        let last = begun.lines().last().unwrap_or("0");
        let mut text = format!("site: {}\nweb: {}\n", self.note("site"), self.note("web"));
        for item in &page.items {
            let Item::Run(run) = item else { continue };
            if run.lasting.is_some() || run.line.to_string() == last {
                write!(text, "{}:{}: {}\n{}\n", page.path, run.line, run.command, self.note(run.line)).unwrap();
            }
        }
        text
    }
}
