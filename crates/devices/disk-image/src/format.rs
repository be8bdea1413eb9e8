//! Image formats and compressions, as declared: this module never guesses from an image's content.

use std::io::{self, BufRead, Read};

use terms::Compression;

use crate::error::Error;

/// Largest window (dictionary) of a decoder, in bytes, unless the caller sets another limit: the maximum for `zstd --long=27` and `xz -9e`.
pub const DEFAULT_MAX_WINDOW: u64 = 128 << 20;

/// A decoder over `input`. Concatenated streams decode to their contents in sequence.
pub(crate) fn decoder<'a, R: BufRead + 'a>(
    compression: Compression,
    input: R,
    max_window: u64,
) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(input),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
            decoder.window_log_max(max_window.max(1 << 10).ilog2().min(31))?;
            Box::new(decoder)
        }
        Compression::Xz => {
            // The decoder counts its tables too: leave a little room for them.
            let limit = u32::try_from(max_window / 1024 + 1024).unwrap_or(u32::MAX);
            Box::new(lzma_rust2::XzReader::new_mem_limit(input, true, limit))
        }
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(input)),
    })
}

fn name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "raw",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
        Compression::Xz => "xz",
        Compression::Bzip2 => "bzip2",
    }
}

/// Classifies a decoder's error; `decoded` is the number of bytes decoded before it.
pub(crate) fn decode_error(compression: Compression, e: &io::Error, decoded: u64, max_window: u64) -> Error {
    let name = name(compression);
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
