//! Image formats and compressions, as declared: this module never guesses from an image's content.

use std::io::{self, BufRead, Read};

use crate::error::Error;

/// Largest window (dictionary) of a decoder, in bytes, unless the caller sets another limit: the maximum for `zstd --long=27` and `xz -9e`.
pub const DEFAULT_MAX_WINDOW: u64 = 128 << 20;

/// How the whole file is compressed, from the suffix of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// `.gz` (RFC 1952).
    Gzip,
    /// `.zst`, `.zstd` (RFC 8878).
    Zstd,
    /// `.xz`.
    Xz,
    /// `.bz2`.
    Bzip2,
}

impl Compression {
    /// By the suffix of a URL's path, ignoring case, query and fragment.
    pub fn from_url(url: &str) -> Self {
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let file = path.rsplit('/').next().unwrap_or(path);
        let suffix = file.rsplit_once('.').map(|(_, suffix)| suffix.to_ascii_lowercase());
        match suffix.as_deref() {
            Some("gz") => Self::Gzip,
            Some("zst" | "zstd") => Self::Zstd,
            Some("xz") => Self::Xz,
            Some("bz2") => Self::Bzip2,
            _ => Self::None,
        }
    }

    /// A decoder over `input`. Concatenated streams decode to their contents in sequence.
    pub(crate) fn decoder<'a, R: BufRead + 'a>(self, input: R, max_window: u64) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::None => Box::new(input),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
                decoder.window_log_max(max_window.max(1 << 10).ilog2().min(31))?;
                Box::new(decoder)
            }
            Self::Xz => {
                // The decoder counts its tables too: leave a little room for them.
                let limit = u32::try_from(max_window / 1024 + 1024).unwrap_or(u32::MAX);
                Box::new(lzma_rust2::XzReader::new_mem_limit(input, true, limit))
            }
            Self::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(input)),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "raw",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        }
    }

    /// Classifies a decoder's error; `decoded` is the number of bytes decoded before it.
    pub(crate) fn decode_error(self, e: &io::Error, decoded: u64, max_window: u64) -> Error {
        let name = self.name();
        let text = e.to_string();
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Error::Truncated {
                what: format!("the {name} stream (decompressed so far)"),
                expected: decoded + 1,
                found: decoded,
            },
            io::ErrorKind::OutOfMemory => Error::LimitExceeded {
                what: format!("decompressing {name} needs a window of more bytes than allowed"),
                limit: max_window,
            },
            _ if text.contains("too much memory") => Error::LimitExceeded {
                what: format!("decompressing {name} needs a window of more bytes than allowed"),
                limit: max_window,
            },
            _ => Error::corrupt(format!("the {name} stream is malformed after {decoded} decompressed bytes: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_is_the_suffix_of_the_path() {
        for (url, expect) in [
            ("http://x/a.raw", Compression::None),
            ("http://x/a.raw.gz", Compression::Gzip),
            ("http://x/a.img.ZST?sig=1.xz", Compression::Zstd),
            ("http://x/a.xz#frag.gz", Compression::Xz),
            ("http://x/a.gz/b.bz2", Compression::Bzip2),
            ("http://x.gz/", Compression::None),
            ("http://x/gz", Compression::None),
        ] {
            assert_eq!(Compression::from_url(url), expect, "{url}");
        }
    }
}
