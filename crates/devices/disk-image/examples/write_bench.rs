//! Measures image writing beside its rivals, on the same target: raw against `dd oflag=direct`, qcow2 against
//! `qemu-img convert`. Prints one line of JSON.
//!
//! `write_bench [--size MIB] [--rounds N] [--dir FOLDER] [--device BLOCK_DEVICE]`
//!
//! The target is a file in the folder (default: the system's temporary one) or the block device, whose content is lost.
//! Rounds alternate between the two, the best time of each counts. `ratio` is the rival's time by ours: above 1 is
//! faster than the rival. Both end with the data on stable storage. We verify a SHA-256 while writing and the rivals do
//! not: `digestSeconds` is what the digest alone takes of a cached image (a floor for us), `ratioWithDigest` compares with
//! a rival that computes it first.
//!
//! `write_bench write FORMAT IMAGE SHA256 TARGET` writes once and prints seconds and peak memory; it runs as a process
//! of its own so that its memory is its own.

#![allow(clippy::print_stdout, reason = "its result")]

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use disk_image::{BlockDisk, Checksum, Compression, Disk, FileSource, Flow, Format, WriteRequest, write_image};
use sha2::{Digest as _, Sha256};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MIB: u64 = 1 << 20;

struct Options {
    size: u64,
    rounds: u32,
    dir: PathBuf,
    device: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, format, image, digest, target] = arguments.as_slice()
        && command == "write"
    {
        return write(format, Path::new(image), digest, Path::new(target));
    }
    let mut options = Options { size: 2048, rounds: 3, dir: std::env::temp_dir(), device: None };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err("each option needs a value".into()) };
        match name.as_str() {
            "--size" => options.size = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--dir" => options.dir = value.into(),
            "--device" => options.device = Some(value.into()),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    bench(&options)
}

/// Opens a file or a block device.
fn open(path: &Path) -> Result<Box<dyn Disk>> {
    if std::fs::metadata(path)?.file_type().is_block_device() {
        return Ok(Box::new(BlockDisk::open(path)?));
    }
    // As dd and qemu-img do here: past the page cache.
    Ok(Box::new(BlockDisk::open_file(path, 4096)?))
}

fn write(format: &str, image: &Path, digest: &str, target: &Path) -> Result<()> {
    let format = if format == "qcow2" { Format::Qcow2 } else { Format::Raw };
    let disk = open(target)?;
    let compression = Compression::from_url(&image.to_string_lossy());
    let request = WriteRequest::new(format, compression, Checksum::from_hex(digest, None)?);
    let start = Instant::now();
    write_image(Box::new(FileSource::open(image)?), &request, disk.as_ref(), &mut |_| Flow::Continue)?;
    println!("{} {}", start.elapsed().as_secs_f64(), peak_memory()?);
    Ok(())
}

/// Peak resident memory of this process in KiB.
fn peak_memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// An image like a system's: a tenth empty, half noise (compressed files), the rest text-like. No partition table.
fn make_image(path: &Path, size: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut block = vec![0_u8; MIB as usize];
    for index in 0..size {
        match index % 10 {
            0 if index > 0 => block.fill(0),
            1..=5 => block.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&next().to_le_bytes())),
            _ => block.chunks_exact_mut(8).for_each(|part| {
                part.copy_from_slice(if next() % 3 == 0 { b"package " } else { b"library\n" });
            }),
        }
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(())
}

fn digest(path: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut block = vec![0; MIB as usize];
    loop {
        match std::io::Read::read(&mut file, &mut block)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            count => hasher.update(&block[..count]),
        }
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The rival's command for a format.
fn rival(format: Format, image: &Path, target: &Path) -> Command {
    if format == Format::Raw {
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", image.display())).arg(format!("of={}", target.display()));
        dd.args(["bs=1M", "oflag=direct", "conv=fsync,notrunc"]);
        return dd;
    }
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-n", "-W", "-t", "none", "-f", "qcow2", "-O", "raw"]).arg(image).arg(target);
    convert
}

fn bench(options: &Options) -> Result<()> {
    let dir = options.dir.join(format!("write-bench-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let result = measure_all(options, &dir);
    std::fs::remove_dir_all(&dir)?;
    println!("{}", result?);
    Ok(())
}

fn measure_all(options: &Options, dir: &Path) -> Result<serde_json::Value> {
    let raw = dir.join("image.raw");
    make_image(&raw, options.size)?;
    let target = match &options.device {
        Some(device) => device.clone(),
        None => {
            let target = dir.join("target");
            File::create(&target)?;
            target
        }
    };
    let mut result = serde_json::Map::new();
    result.insert("sizeMiB".into(), options.size.into());
    result.insert("target".into(), target.display().to_string().into());
    result.insert("raw".into(), measure(options, Format::Raw, &raw, &target)?);
    for (name, compress, kind) in [("qcow2", false, "zlib"), ("qcow2Zlib", true, "zlib"), ("qcow2Zstd", true, "zstd")] {
        let image = dir.join("image.qcow2");
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-f", "raw", "-O", "qcow2", "-o", &format!("compression_type={kind}")]);
        if compress {
            convert.arg("-c");
        }
        run(convert.arg(&raw).arg(&image))?;
        result.insert(name.into(), measure(options, Format::Qcow2, &image, &target)?);
        std::fs::remove_file(image)?;
    }
    Ok(result.into())
}

/// Makes a file that is the target one of a disk in use before: all of it allocated and written. Devices stay as they are.
fn fill(options: &Options, target: &Path) -> Result<()> {
    if options.device.is_some() {
        return Ok(());
    }
    let mut file = File::options().write(true).open(target)?;
    let ones = vec![0xff; MIB as usize];
    for _ in 0..options.size {
        file.write_all(&ones)?;
    }
    file.sync_all()?;
    Ok(())
}

/// Best times of both, and our peak memory.
fn measure(options: &Options, format: Format, image: &Path, target: &Path) -> Result<serde_json::Value> {
    digest(image)?;
    let start = Instant::now();
    let digest = digest(image)?;
    let hashing = start.elapsed().as_secs_f64();
    let name = if format == Format::Raw { "raw" } else { "qcow2" };
    let (mut ours, mut theirs, mut memory) = (f64::MAX, f64::MAX, 0);
    for _ in 0..options.rounds {
        fill(options, target)?;
        let start = Instant::now();
        run(&mut rival(format, image, target))?;
        theirs = theirs.min(start.elapsed().as_secs_f64());
        fill(options, target)?;
        let mut own = Command::new(std::env::current_exe()?);
        let text = run(own.args(["write", name]).arg(image).arg(&digest).arg(target))?;
        let (seconds, peak) = text.trim().split_once(' ').ok_or("no result")?;
        ours = ours.min(seconds.parse()?);
        memory = memory.max(peak.parse::<u64>()?);
    }
    Ok(serde_json::json!({
        "seconds": ours,
        "rival": if format == Format::Raw { "dd oflag=direct" } else { "qemu-img convert -t none" },
        "rivalSeconds": theirs,
        "ratio": theirs / ours,
        "digestSeconds": hashing,
        "ratioWithDigest": (theirs + hashing) / ours,
        "peakRssMiB": memory as f64 / 1024.0,
    }))
}
