//! The source of an image: a sequence of bytes that can be restarted at any offset.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::Error;

/// A sequential source of an image's bytes, with optional ranges.
pub trait Source: Send {
    /// Address or path for people, without credentials.
    fn name(&self) -> &str;

    /// Length in bytes, if known.
    fn length(&self) -> Option<u64>;

    /// Whether [`Source::restart_at`] is cheap at any offset. Without ranges it reads again from the beginning.
    fn has_ranges(&self) -> bool;

    /// Reads some bytes; 0 at the end. A resumable source resumes on its own.
    ///
    /// # Errors
    /// One of the source's errors ([`Error::SourceUnreachable`], [`Error::Truncated`], …).
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error>;

    /// The next read gives the byte at `offset`, of the same image.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] if the image is seen to be another one, and those of [`Source::read`].
    fn restart_at(&mut self, offset: u64) -> Result<(), Error>;

    /// Counts the bytes that come, also those that are passed over; `None` where they need no time.
    fn arriving(&self) -> Option<Arc<AtomicU64>> {
        None
    }
}

/// Reads until `buf` is full or the source ends; gives the number of bytes.
pub(crate) fn read_full(source: &mut dyn Source, buf: &mut [u8]) -> Result<usize, Error> {
    let mut done = 0;
    while done < buf.len() {
        match source.read(&mut buf[done..])? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// A local file.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    name: String,
    length: u64,
}

impl FileSource {
    /// Opens the file.
    ///
    /// # Errors
    /// [`Error::SourceUnreachable`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let open = || {
            let file = File::open(path)?;
            let length = file.metadata()?.len();
            Ok::<_, std::io::Error>((file, length))
        };
        match open() {
            Ok((file, length)) => Ok(Self { file, name, length }),
            Err(e) => Err(Error::SourceUnreachable { url: name, attempts: 1, offset: 0, source: Box::new(e) }),
        }
    }

    fn fail(&mut self, e: std::io::Error) -> Error {
        let offset = self.file.stream_position().unwrap_or_default();
        Error::SourceUnreachable { url: self.name.clone(), attempts: 1, offset, source: Box::new(e) }
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    fn has_ranges(&self) -> bool {
        true
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.file.read(buf) {
                Ok(count) => return Ok(count),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.fail(e)),
            }
        }
    }

    fn restart_at(&mut self, offset: u64) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(offset)).map(drop).map_err(|e| self.fail(e))
    }
}
