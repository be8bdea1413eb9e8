//! A medium: an ISO 9660 image that exists only as a list of segments and is put together while it is read.

use std::io;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use terms::Architecture;
use thiserror::Error;

use crate::assets::{Assets, INITRAMFS, KERNEL};
use crate::esp::Esp;
use crate::host_files::{ARCHIVE, HostFiles, HostFilesError};
use crate::iso::write::{FileSpec, Layout, LayoutError, layout};
use crate::read_at::{FileAt, ReadAt};

/// Volume label of every medium.
pub const VOLUME_LABEL: &str = "METAMORPH";
/// Volume label of media that are there to be read alone.
pub const TEST_LABEL: &str = "METAMORPH_TEST";
/// Zeros on such a medium behind its text, bytes, so that it is no image of a few sectors.
const TEST_PADDING: u64 = 2 << 20;

/// The kernel's arguments before the host's own. Process 1 writes to the last console; on a machine without that port the kernel uses the screen.
/// A crash restarts the machine, so that it does not hang unnoticed.
const fn kernel_arguments(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X86_64 => "quiet panic=30 console=tty0 console=ttyS0,115200",
        // The UART of Arm's Base System Architecture.
        Architecture::Aarch64 => "quiet panic=30 console=tty0 console=ttyAMA0,115200",
    }
}

/// Why a medium could not be composed.
#[derive(Debug, Error)]
pub enum MediumError {
    /// The host's part is not acceptable.
    #[error("composing a boot medium failed: the host's part is not acceptable")]
    Host(#[from] HostFilesError),
    /// The image cannot be laid out.
    #[error("composing a boot medium failed: the image cannot be laid out")]
    Layout(#[from] LayoutError),
}

#[derive(Clone, Debug)]
enum Source {
    Bytes(Arc<[u8]>),
    File(Arc<FileAt>),
    Zeros,
}

/// One file of the medium: pieces with their offsets and lengths, and zeros between them.
struct Part {
    len: u64,
    pieces: Vec<(u64, u64, Source)>,
}

impl Part {
    fn whole(len: u64, source: Source) -> Self {
        Self { len, pieces: vec![(0, len, source)] }
    }

    fn of(esp: &Esp) -> Self {
        let head = (0, esp.head().len(), Source::Bytes(esp.head().clone()));
        let files = esp.files().iter().map(|(offset, file)| (*offset, file.len(), Source::File(file.clone())));
        Self { len: esp.len(), pieces: std::iter::once(head).chain(files).collect() }
    }
}

#[derive(Clone, Debug)]
struct Segment {
    /// Offset on the medium.
    start: u64,
    len: u64,
    source: Source,
}

/// A composed medium. Cheap to clone: it holds a few kilobytes of its own and shares the rest.
#[derive(Clone, Debug)]
pub struct Medium {
    segments: Arc<[Segment]>,
    len: u64,
    digest: [u8; 32],
    etag: Arc<str>,
}

impl Medium {
    /// Composes the medium of one host. The same inputs give the same bytes.
    ///
    /// # Errors
    /// [`MediumError`] when a path, an argument or a size is not acceptable.
    pub fn compose(assets: &Assets, host: &HostFiles) -> Result<Self, MediumError> {
        let archive = host.archive()?;
        let grub_config = grub_config(assets.architecture(), &host.arguments()?);
        let bytes = |bytes: &[u8]| Part::whole(bytes.len() as u64, Source::Bytes(Arc::from(bytes)));
        let file = |file: &Arc<FileAt>| Part::whole(file.len(), Source::File(file.clone()));
        let parts = [
            // GRUB for CDs looks for this file when it does not find its folder on the device it was loaded from
            (".disk/info", bytes(b"Metamorph agent\n")),
            ("boot/grub/grub.cfg", bytes(grub_config.as_bytes())),
            (ARCHIVE, bytes(&archive)),
            ("efi.img", Part::of(&assets.esp)),
            (KERNEL, file(&assets.kernel)),
            (INITRAMFS, file(&assets.initramfs)),
        ];
        let specs: Vec<FileSpec<'_>> = parts.iter().map(|(path, part)| FileSpec { path, len: part.len }).collect();
        let layout = layout(VOLUME_LABEL, &specs, Some(3))?;
        let mut hash = Sha256::new();
        hash.update(b"metamorph medium 1\0");
        hash.update(assets.digest);
        for part in [&layout.head[..], grub_config.as_bytes(), &archive] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Ok(Self::of(parts, layout, hash.finalize().into()))
    }

    /// A tiny medium with a text, which no firmware can start anything from: a BMC is given it to see whether it reads what this server serves. The same
    /// text gives the same bytes.
    ///
    /// # Errors
    /// [`MediumError`] when the text does not fit.
    pub fn test(text: &str) -> Result<Self, MediumError> {
        let parts = [
            ("README.TXT", Part::whole(text.len() as u64, Source::Bytes(Arc::from(text.as_bytes())))),
            ("zeros.bin", Part::whole(TEST_PADDING, Source::Zeros)),
        ];
        let specs: Vec<FileSpec<'_>> = parts.iter().map(|(path, part)| FileSpec { path, len: part.len }).collect();
        let layout = layout(TEST_LABEL, &specs, None)?;
        let mut hash = Sha256::new();
        hash.update(b"metamorph test medium 1\0");
        for part in [&layout.head[..], text.as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Ok(Self::of(parts, layout, hash.finalize().into()))
    }

    fn of<'a>(parts: impl IntoIterator<Item = (&'a str, Part)>, layout: Layout, digest: [u8; 32]) -> Self {
        let head_len = layout.head.len() as u64;
        let mut segments = vec![Segment { start: 0, len: head_len, source: Source::Bytes(layout.head.into()) }];
        let mut end = head_len;
        for ((_, part), start) in parts.into_iter().zip(layout.offsets) {
            for (offset, len, source) in part.pieces {
                fill(&mut segments, &mut end, start + offset);
                segments.push(Segment { start: start + offset, len, source });
                end = start + offset + len;
            }
            fill(&mut segments, &mut end, start + part.len);
        }
        fill(&mut segments, &mut end, layout.len);
        let etag = format!("\"{}\"", hex::encode(digest));
        Self { segments: segments.into(), len: layout.len, digest, etag: etag.into() }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: a medium has at least its descriptors.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// SHA-256 over everything that the bytes depend on.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Strong entity tag with its quotes (RFC 9110 8.8.3): the digest, in hexadecimal.
    pub fn etag(&self) -> &str {
        &self.etag
    }

    /// Bytes kept in memory for this host alone.
    pub fn generated_bytes(&self) -> u64 {
        // the first four segments with bytes are the head, .disk/info, grub.cfg and the archive; the fifth is shared
        let in_memory = self.segments.iter().filter(|segment| matches!(segment.source, Source::Bytes(_)));
        in_memory.take(4).map(|segment| segment.len).sum()
    }

    /// Reads up to `buffer.len()` bytes from `offset` on and returns their number; 0 at or beyond the end.
    ///
    /// # Errors
    /// The file system's error for a shared file.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let mut done = 0;
        let mut index = self.segments.partition_point(|segment| segment.start + segment.len <= offset);
        while done < wanted {
            let Some(segment) = self.segments.get(index) else { break };
            let inside = offset + done as u64 - segment.start;
            let part = usize::try_from(segment.len - inside).unwrap_or(usize::MAX).min(wanted - done);
            let target = &mut buffer[done..done + part];
            match &segment.source {
                Source::Bytes(bytes) => bytes.read_exact_at(inside, target)?,
                Source::File(file) => file.read_exact_at(inside, target)?,
                Source::Zeros => target.fill(0),
            }
            done += part;
            index += 1;
        }
        Ok(done)
    }
}

impl ReadAt for Medium {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.read_at(offset, buffer)? == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

fn fill(segments: &mut Vec<Segment>, end: &mut u64, until: u64) {
    if until > *end {
        segments.push(Segment { start: *end, len: until - *end, source: Source::Zeros });
        *end = until;
    }
}

/// GRUB's script: no menu, no key to press; a medium that cannot be read restarts the machine after saying so.
fn grub_config(architecture: Architecture, arguments: &str) -> String {
    let first = kernel_arguments(architecture);
    format!(
        "set timeout=0\n\
         if linux /{KERNEL} {first}{arguments}; then\n\
         \tif initrd /{INITRAMFS} /{ARCHIVE}; then\n\
         \t\tboot\n\
         \tfi\n\
         fi\n\
         echo 'Metamorph: the boot medium could not be read. Restarting in 30 seconds.'\n\
         sleep 30\n\
         reboot\n"
    )
}
