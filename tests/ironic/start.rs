//! How tests start a real Ironic: API and conductor in one process on loopback, SQLite, a web server beside it. A module of the provisioner's own tests
//! (`crates/provisioners/provisioner-ironic/tests/it/real.rs`) and of the tests of all programs together (`tests/e2e/src/ironic.rs`).
//!
//! `METAMORPH_IRONIC` names the folder of its programs (`tests/ironic/build` installs them).

use std::fs::File;
use std::io::{Error, Read, Result, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Its configuration but for what a test adds.
const CONFIGURATION: &str = include_str!("ironic.conf");
/// Longest head of a request to the web server.
const MAX_HEAD: usize = 16 << 10;
/// How much of a log is told, in bytes.
const TOLD: usize = 6000;

/// How long it may take to answer: the machine may have much else to do.
pub const START: Duration = Duration::from_secs(180);

/// Where an Ironic is, and what is its own.
pub struct Place<'a> {
    /// The folder that it works in.
    pub folder: &'a Path,
    /// Port of its API.
    pub port: u16,
    /// Port of loopback where what it takes for a proxy listens: images at addresses that are none of this machine's are looked for there.
    pub proxy: u16,
    /// What it is configured with beside [`CONFIGURATION`].
    pub more: &'a str,
}

/// An Ironic that runs. Its first process ends with this; whoever has it ends the group.
pub struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    /// Makes its database and starts it. It ends with the thread that calls this, too. It answers some time later.
    ///
    /// # Errors
    /// When it is not installed, or cannot be started.
    pub fn start(place: &Place<'_>) -> Result<Self> {
        let programs = std::env::var_os("METAMORPH_IRONIC")
            .ok_or_else(|| Error::other("METAMORPH_IRONIC is not set: run make test-ironic"))?;
        let (programs, folder) = (PathBuf::from(programs), place.folder);
        let (config, output) = (folder.join("ironic.conf"), folder.join("output"));
        let text = CONFIGURATION.replace("@FOLDER@", &folder.display().to_string());
        std::fs::write(&config, text.replace("@PORT@", &place.port.to_string()) + place.more)?;
        let log = || File::options().append(true).create(true).open(&output).map(Stdio::from);
        let mut schema = Command::new(programs.join("ironic-dbsync"));
        schema.arg("--config-file").arg(&config).arg("create_schema").stdout(log()?).stderr(log()?);
        let made = schema.status()?;
        if !made.success() {
            return Err(Error::other(format!("ironic-dbsync ended with {made}; {}", end_of(&output))));
        }
        let path = format!("{}:{}", tools(folder)?.display(), std::env::var("PATH").unwrap_or_default());
        // Its conductor is a process of its own, and of the same group.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(programs.join("ironic")).arg("--config-file").arg(&config);
        command.env("PATH", path).env("http_proxy", format!("http://127.0.0.1:{}", place.proxy));
        command.env("no_proxy", "127.0.0.1").stdin(Stdio::null()).stdout(log()?).stderr(log()?).process_group(0);
        Ok(Self { child: command.spawn()?, output })
    }

    /// Its first process, the leader of their group.
    #[must_use]
    pub const fn leader(&self) -> &Child {
        &self.child
    }

    /// An error if it has ended.
    ///
    /// # Errors
    /// With the end of what it has said.
    pub fn runs(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(ended) => Err(Error::other(format!("Ironic has ended with {ended}; {}", end_of(&self.output)))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a log.
#[must_use]
pub fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let end = String::from_utf8_lossy(&text[text.len().saturating_sub(TOLD)..]).into_owned();
    format!("the end of {}:\n{end}", log.display())
}

/// A folder with what Ironic asks for by another name: xorriso is its mkisofs.
fn tools(folder: &Path) -> Result<PathBuf> {
    let tools = folder.join("tools");
    std::fs::create_dir_all(&tools)?;
    let iso = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("xorrisofs"))
        .find(|path| path.exists())
        .ok_or_else(|| Error::other("xorrisofs is missing; make setup installs it"))?;
    std::os::unix::fs::symlink(iso, tools.join("mkisofs"))?;
    Ok(tools)
}

/// Where an Ironic finds and keeps what machines boot, below its folder, with metal3's priorities of erasing. What it publishes is in `web`, which
/// is served at this address.
#[must_use]
pub fn boots_machines(folder: &Path, web: &Path, url: &str) -> String {
    let (folder, web) = (folder.display(), web.display());
    format!(
        "
[deploy]
http_url = {url}
http_root = {web}
iso_master_path = {folder}/iso-masters
default_boot_mode = uefi
erase_devices_priority = 0
erase_devices_metadata_priority = 10
[pxe]
tftp_root = {folder}/tftp
tftp_master_path = {folder}/tftp-masters
instance_master_path = {folder}/masters
images_path = {folder}/images
[agent]
deploy_logs_collect = always
deploy_logs_local_path = {folder}/logs
certificates_path = {folder}/certificates
image_download_source = http
[inspector]
add_ports = all
"
    )
}

/// Serves the files of a folder, by ranges if they are asked for, whatever host is named: as a web server, and as a proxy to itself.
///
/// # Errors
/// When it cannot listen.
pub fn serve(folder: &Path) -> Result<u16> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let port = listener.local_addr()?.port();
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let folder = folder.clone();
            std::thread::spawn(move || answer(stream, &folder));
        }
    });
    Ok(port)
}

fn answer(mut stream: TcpStream, folder: &Path) -> Option<()> {
    let (mut read, mut chunk) = (Vec::new(), [0; 1024]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).ok().filter(|count| *count > 0 && read.len() < MAX_HEAD)?;
        read.extend_from_slice(&chunk[..count]);
    }
    let head = String::from_utf8_lossy(&read).into_owned();
    let target = head.split_whitespace().nth(1)?;
    let path = target.strip_prefix("http://").map_or(target, |rest| rest.split_once('/').map_or("", |(_, path)| path));
    let path = Path::new(path.trim_start_matches('/'));
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    let Some(mut file) = File::open(folder.join(path)).ok().filter(|_| is_below) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
    };
    let length = file.metadata().ok()?.len();
    let range =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    let range = range.and_then(|range| {
        let (from, to) = range.trim().split_once('-')?;
        let last = length.checked_sub(1)?;
        Some((from.parse::<u64>().ok()?, to.parse().unwrap_or(last).min(last)))
    });
    let (status, from, end, named) = range.map_or(("200 OK", 0, length, String::new()), |(from, to)| {
        ("206 Partial Content", from, to + 1, format!("Content-Range: bytes {from}-{to}/{length}\r\n"))
    });
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\n{named}ETag: \"{length}\"\r\nConnection: close\r\n\r\n",
        end.checked_sub(from)?
    );
    stream.write_all(answer.as_bytes()).ok()?;
    if !head.starts_with("HEAD") {
        file.seek(SeekFrom::Start(from)).ok()?;
        std::io::copy(&mut file.take(end - from), &mut stream).ok()?;
    }
    Some(())
}
