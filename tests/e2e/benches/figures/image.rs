//! Writing images to a disk, against `dd` and `qemu-img` with the same bytes and the same disk.
//!
//! The disk is a file that was written throughout before; all programs write it past the page cache, ours by the agent's code for
//! block devices.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use disk_image::{
    BlockDisk, Checksum, ChecksumType, Compression, DiskFormat, FileSource, Flow, HttpSource, RetryPolicy, Source,
    WriteRequest, write_image,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::process::Usage;
use crate::table::{Limit, Rival, Row, Unit};

/// First argument by which this program starts itself to write one image.
pub const WRITE: &str = "write-one-image";

const MIB: u64 = 1 << 20;
/// Size of the images, in bytes.
pub const IMAGE: u64 = 1536 * MIB;
/// Size of the disk, in bytes.
const DISK: u64 = IMAGE + 64 * MIB;
/// Runs of each program; the best counts: what else the machine does only ever adds time.
const RUNS: usize = 5;

/// Measures.
///
/// # Errors
/// When a tool is missing or fails.
pub fn measure() -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let disk = folder.path().join("disk");
    make_disk(&disk)?;
    let raw = folder.path().join("noise.raw");
    make_image(&raw, Content::Noise)?;
    let raw_pair = race(&raw, "raw", &disk, &|| dd(&raw, &disk))?;
    std::fs::remove_file(&raw).context("remove an image")?;

    let mixed = folder.path().join("mixed.raw");
    make_image(&mixed, Content::Mixed)?;
    let mut rows = vec![
        // On a disk that is faster than one core hashes, no program that verifies what it writes keeps up with one that does not.
        speed_row(
            "raw write, speed over dd oflag=direct and SHA-256 at the same time",
            &raw_pair,
            Over::Beside,
            Some(0.9),
        ),
        speed_row("raw write, speed over dd oflag=direct, unverified", &raw_pair, Over::Alone, None),
    ];
    let mut memory = raw_pair.memory;
    for (figures, options) in [
        (
            [
                "qcow2 write, speed over SHA-256, then qemu-img convert",
                "qcow2 write, speed over qemu-img convert, unverified",
            ],
            &[] as &[&str],
        ),
        (
            [
                "qcow2 (zlib) write, speed over SHA-256, then qemu-img convert",
                "qcow2 (zlib) write, speed over qemu-img convert, unverified",
            ],
            &["-c", "-o", "compression_type=zlib"],
        ),
        (
            [
                "qcow2 (zstd) write, speed over SHA-256, then qemu-img convert",
                "qcow2 (zstd) write, speed over qemu-img convert, unverified",
            ],
            &["-c", "-o", "compression_type=zstd"],
        ),
    ] {
        let image = folder.path().join("image.qcow2");
        run(Command::new("qemu-img")
            .args(["convert", "-f", "raw", "-O", "qcow2"])
            .args(options)
            .arg(&mixed)
            .arg(&image))?;
        let pair = race(&image, "qcow2", &disk, &|| qemu_img(&image, &disk))?;
        compare(&mixed, &disk)?;
        memory = memory.max(pair.memory);
        rows.push(speed_row(figures[0], &pair, Over::After, Some(1.0)));
        rows.push(speed_row(figures[1], &pair, Over::Alone, None));
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    rows.push(Row {
        figure: "Image write, peak memory",
        measured: Some(memory as f64),
        unit: Unit::Bytes,
        limit: Limit::AtMost((64 * MIB) as f64),
        rival: None,
        note: "the whole process; raw and qcow2 have no decoder's window".to_owned(),
    });
    Ok(rows)
}

/// What a run of ours, which verifies what it writes, is compared with.
#[derive(Clone, Copy)]
enum Over {
    /// The rival alone, which verifies nothing.
    Alone,
    /// The checksum, then the rival: what Ironic's agent does with a qcow2 image.
    After,
    /// The rival and the checksum at the same time, until both have ended: the best that programs can do that verify while they write.
    Beside,
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn speed_row(figure: &'static str, pair: &Pair, over: Over, limit: Option<f64>) -> Row {
    let rate = |seconds: f64| IMAGE as f64 / 1e6 / seconds;
    let (theirs, rival) = match over {
        Over::Alone => (pair.theirs, pair.rival),
        Over::After => (pair.hashing + pair.theirs, "SHA-256 and it"),
        Over::Beside => (pair.beside, "both"),
    };
    Row {
        figure,
        measured: Some(theirs / pair.ours),
        unit: Unit::Ratio,
        limit: limit.map_or(Limit::Shown, Limit::AtLeast),
        rival: Rival::here(rival, 1.0),
        note: format!(
            "{:.2} s ({:.0} MB/s) against {theirs:.2} s; {} alone {:.2} s, SHA-256 alone {:.2} s; best of {RUNS}",
            pair.ours,
            rate(pair.ours),
            pair.rival,
            pair.theirs,
            pair.hashing
        ),
    }
}

/// Two programs on the same work: best times in seconds, and the most memory that ours took, in bytes.
struct Pair {
    /// Name of the other.
    rival: &'static str,
    ours: f64,
    theirs: f64,
    /// SHA-256 of the image alone, on one core: what verifies cannot be faster.
    hashing: f64,
    /// The other and SHA-256 at the same time.
    beside: f64,
    memory: u64,
}

/// In turn, so that what else the machine does meets both.
fn race(
    image: &Path,
    format: &str,
    disk: &Path,
    theirs: &dyn Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Pair> {
    let mut memory = 0;
    let (mut own_times, mut their_times) = (Vec::new(), Vec::new());
    let (mut hash_times, mut beside_times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let start = Instant::now();
        let digest = digest(image)?;
        hash_times.push(start.elapsed().as_secs_f64());
        their_times.push(theirs()?.as_secs_f64());
        let start = Instant::now();
        std::thread::scope(|scope| {
            let hashing = scope.spawn(|| self::digest(image));
            theirs()?;
            hashing.join().map_err(|_| anyhow!("the thread that hashes has panicked"))?
        })?;
        beside_times.push(start.elapsed().as_secs_f64());
        let (time, peak) = ours(image, format, &digest, disk)?;
        own_times.push(time.as_secs_f64());
        memory = memory.max(peak);
    }
    let rival = if format == "raw" { "dd" } else { "qemu-img convert" };
    let [ours, theirs, hashing, beside] = [own_times, their_times, hash_times, beside_times].map(|times| best(&times));
    Ok(Pair { rival, ours, theirs, hashing, beside, memory })
}

/// The shortest of times.
pub fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// This program as a process of its own, so that its memory is seen; its time is taken from outside, as the rival's. The image is a file, or the
/// address of one; the disk is a file, or a block device.
///
/// # Errors
/// When the image cannot be written.
pub fn ours(image: &Path, format: &str, digest: &str, disk: &Path) -> anyhow::Result<(Duration, u64)> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.arg(WRITE).arg(image).args([format, digest]).arg(disk).stdin(Stdio::null());
    let start = Instant::now();
    let output = command.output().context("start this program once more")?;
    let time = start.elapsed();
    ensure!(output.status.success(), "writing {} failed: {}", image.display(), String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).context("read what was measured")?;
    Ok((time, answer["peakMemory"].as_u64().context("read the memory that was taken")?))
}

/// What that process does.
///
/// # Errors
/// When the image cannot be written.
pub fn write_one(arguments: &[String]) -> anyhow::Result<()> {
    let [image, format, digest, disk] = arguments else { bail!("image, format, digest and disk are wanted") };
    let format = match format.as_str() {
        "raw" => DiskFormat::Raw,
        "qcow2" => DiskFormat::Qcow2,
        other => bail!("{other} is no format"),
    };
    let disk = Path::new(disk);
    // A file system may take no smaller pieces past the page cache.
    let disk = if disk.starts_with("/dev") { BlockDisk::open(disk)? } else { BlockDisk::open_file(disk, 4096)? };
    let checksum = Checksum::from_hex(digest, ChecksumType::Sha256)?;
    let request = WriteRequest::new(format, Compression::None, checksum);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let source: Box<dyn Source> = if image.starts_with("http://") {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().context("make an HTTP client")?;
        Box::new(HttpSource::open(client, runtime.handle().clone(), image, RetryPolicy::default())?)
    } else {
        Box::new(FileSource::open(Path::new(image))?)
    };
    write_image(source, &request, &disk, &mut |_| Flow::Continue)?;
    let answer = json!({ "peakMemory": Usage::current()?.peak_memory });
    writeln!(std::io::stdout(), "{answer}").context("tell what was measured")
}

fn dd(image: &Path, disk: &Path) -> anyhow::Result<Duration> {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", image.display())).arg(format!("of={}", disk.display()));
    timed(command.args(["bs=1M", "oflag=direct", "conv=notrunc,fdatasync", "status=none"]))
}

fn qemu_img(image: &Path, disk: &Path) -> anyhow::Result<Duration> {
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-n", "-W", "-t", "none", "-f", "qcow2", "-O", "raw"]);
    timed(command.arg(image).arg(disk))
}

fn timed(command: &mut Command) -> anyhow::Result<Duration> {
    let start = Instant::now();
    run(command)?;
    Ok(start.elapsed())
}

/// Runs a tool; what it has printed.
///
/// # Errors
/// When it is missing or fails.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    command.stdin(Stdio::null()).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = command.output().with_context(|| format!("run {command:?}; make setup installs it"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?} failed: {out}{err}");
    Ok(out.into_owned())
}

/// Makes the disk: a file of its full size, in use before, full of 0xFF.
///
/// # Errors
/// When it cannot be written.
pub fn make_disk(path: &Path) -> anyhow::Result<()> {
    let mut file = std::fs::File::create(path).context("make the disk")?;
    let ones = vec![0xff; 4 << 20];
    for _ in 0..DISK / (4 * MIB) {
        file.write_all(&ones).context("fill the disk")?;
    }
    file.sync_all().context("fill the disk")
}

/// What an image holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Noise throughout.
    Noise,
    /// A quarter noise, a quarter text, and nothing.
    Mixed,
    /// An eighth noise, and nothing.
    Zeros,
}

/// Makes an image of [`IMAGE`] bytes.
///
/// # Errors
/// When it cannot be written.
pub fn make_image(path: &Path, content: Content) -> anyhow::Result<()> {
    let file = std::fs::File::create(path).with_context(|| format!("make {}", path.display()))?;
    let mut out = std::io::BufWriter::new(file);
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut block = vec![0; usize::try_from(MIB)?];
    for number in 0..IMAGE / MIB {
        match (content, number % 4) {
            (Content::Mixed, 1 | 2) => block.fill(0),
            (Content::Mixed, 3) => noise.text(&mut block),
            (Content::Zeros, _) if number % 8 != 0 => block.fill(0),
            _ => noise.fill(&mut block),
        }
        out.write_all(&block).with_context(|| format!("write {}", path.display()))?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all().context("write an image")
}

/// Bytes that do not compress, the same each time (xorshift).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, block: &mut [u8]) {
        for chunk in block.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Bytes that compress as programs do, to about a half.
    fn text(&mut self, block: &mut [u8]) {
        for chunk in block.chunks_mut(16) {
            let word = self.next().to_le_bytes();
            for (byte, from) in chunk.iter_mut().zip(word.iter().cycle()) {
                *byte = b'a' + (from & 15);
            }
        }
    }
}

/// SHA-256 of a file, lower-case hex.
///
/// # Errors
/// When it cannot be read.
pub fn digest(path: &Path) -> anyhow::Result<String> {
    let mut file = std::fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut file, &mut block).context("read an image")? {
            0 => return Ok(hex::encode(hash.finalize())),
            count => hash.update(&block[..count]),
        }
    }
}

/// The disk holds the image.
///
/// # Errors
/// When it does not.
pub fn compare(image: &Path, disk: &Path) -> anyhow::Result<()> {
    let bytes = format!("--bytes={IMAGE}");
    run(Command::new("cmp").arg(bytes).arg(image).arg(disk)).map(|_| ()).context("compare the disk with the image")
}
