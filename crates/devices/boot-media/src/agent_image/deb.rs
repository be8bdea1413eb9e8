//! Reads Debian's packages: an `ar` archive (deb(5)) with two compressed `tar` archives (POSIX ustar, GNU long names).

use std::io::{self, Cursor, Read};

use lzma_rust2::XzReader;
use thiserror::Error;

/// Most bytes of one file taken from a package.
const MAX_FILE: u64 = 256 << 20;
/// Most bytes of an archive after decompression.
const MAX_ARCHIVE: u64 = 4 << 30;
/// Memory that decompression may take, in KiB.
const MAX_DECODER_KIB: u32 = 128 << 10;
/// Longest path.
const MAX_PATH: u64 = 4096;

/// Why a package cannot be read.
#[derive(Debug, Error)]
pub enum DebError {
    /// The outer archive is damaged.
    #[error("it is no Debian package: {0}")]
    NotDeb(&'static str),
    /// Unknown compression of a member.
    #[error("its member {0:?} is compressed in an unknown way; xz, zstd and none are known")]
    Compression(String),
    /// An inner archive is damaged or too large.
    #[error("an archive in it is damaged: {0}")]
    Tar(&'static str),
    /// Decompression failed.
    #[error("decompressing it failed")]
    Read(#[from] io::Error),
}

/// What stands in front of a member of a `tar` archive.
pub(super) struct Header {
    /// Path without a leading `./`.
    pub name: String,
    /// Permission bits.
    pub mode: u32,
    /// What it is.
    pub kind: Kind,
}

/// Kinds of members that a package may have.
pub(super) enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link to this.
    Symlink(String),
    /// The same file as this other one of the archive.
    Same(String),
    /// A device or a pipe, which no package needs here.
    Other,
}

/// A package in memory.
pub(super) struct Deb {
    /// Package name from its control file.
    pub name: String,
    /// Version from its control file.
    pub version: String,
    bytes: Vec<u8>,
    data: Member,
}

#[derive(Clone)]
struct Member {
    name: String,
    start: usize,
    len: usize,
}

impl Deb {
    pub fn open(bytes: Vec<u8>) -> Result<Self, DebError> {
        let members = members(&bytes)?;
        let find = |prefix: &str, what| {
            members.iter().find(|member| member.name.starts_with(prefix)).cloned().ok_or(DebError::NotDeb(what))
        };
        let control = find("control.tar", "it has no control archive")?;
        let data = find("data.tar", "it has no data archive")?;
        let mut text = Vec::new();
        walk_tar(decoder(&bytes, &control)?, &mut |name| name == "control", &mut |_, found| text = found)?;
        let text = String::from_utf8_lossy(&text);
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned()).ok_or(DebError::NotDeb("its control file lacks name or version"))
        };
        let (name, version) = (field("Package")?, field("Version")?);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
            return Err(DebError::NotDeb("its name has characters that no package name has"));
        }
        Ok(Self { name, version, bytes, data })
    }

    /// Walks the regular files once, in the archive's order; paths have no leading `./`.
    pub fn walk(
        &self,
        wanted: &mut dyn FnMut(&str) -> bool,
        take: &mut dyn FnMut(&str, Vec<u8>),
    ) -> Result<(), DebError> {
        walk_tar(decoder(&self.bytes, &self.data)?, wanted, take)
    }

    /// Walks all members once, in the archive's order, with the contents of regular files.
    pub fn members(&self, take: &mut dyn FnMut(Header, Vec<u8>) -> io::Result<()>) -> Result<(), DebError> {
        let mut failed = Ok(());
        walk_entries(decoder(&self.bytes, &self.data)?, &mut |_| true, &mut |header, bytes| {
            if failed.is_ok() {
                failed = take(header, bytes);
            }
        })?;
        Ok(failed?)
    }
}

fn members(bytes: &[u8]) -> Result<Vec<Member>, DebError> {
    let Some(mut rest) = bytes.strip_prefix(b"!<arch>\n") else {
        return Err(DebError::NotDeb("it does not begin like an ar archive"));
    };
    let mut members = Vec::new();
    while !rest.is_empty() && members.len() < 16 {
        let (header, body) = rest.split_at_checked(60).ok_or(DebError::NotDeb("a header is cut off"))?;
        if header[58..] != *b"`\n" {
            return Err(DebError::NotDeb("a header is damaged"));
        }
        let text = |range: std::ops::Range<usize>| String::from_utf8_lossy(&header[range]).trim_end().to_owned();
        let len: usize = text(48..58).parse().map_err(|_| DebError::NotDeb("a member's length is no number"))?;
        if len > body.len() {
            return Err(DebError::NotDeb("a member is cut off"));
        }
        let start = bytes.len() - body.len();
        members.push(Member { name: text(0..16).trim_end_matches('/').to_owned(), start, len });
        rest = body.get(len.next_multiple_of(2)..).unwrap_or_default();
    }
    Ok(members)
}

fn decoder<'a>(bytes: &'a [u8], member: &Member) -> Result<Box<dyn Read + 'a>, DebError> {
    let body = Cursor::new(&bytes[member.start..member.start + member.len]);
    let suffix = member.name.rsplit_once(".tar").map(|(_, suffix)| suffix);
    let reader: Box<dyn Read + 'a> = match suffix {
        Some(".xz") => Box::new(XzReader::new_mem_limit(body, false, MAX_DECODER_KIB)),
        Some(".zst") => Box::new(zstd::Decoder::with_buffer(body)?),
        Some("") => Box::new(body),
        _ => return Err(DebError::Compression(member.name.clone())),
    };
    Ok(Box::new(reader.take(MAX_ARCHIVE)))
}

fn walk_tar(
    reader: Box<dyn Read + '_>,
    wanted: &mut dyn FnMut(&str) -> bool,
    take: &mut dyn FnMut(&str, Vec<u8>),
) -> Result<(), DebError> {
    walk_entries(
        reader,
        &mut |header| matches!(header.kind, Kind::File) && wanted(&header.name),
        &mut |header, bytes| {
            take(&header.name, bytes);
        },
    )
}

fn walk_entries(
    mut reader: Box<dyn Read + '_>,
    wanted: &mut dyn FnMut(&Header) -> bool,
    take: &mut dyn FnMut(Header, Vec<u8>),
) -> Result<(), DebError> {
    let mut header = [0; 512];
    let (mut long_name, mut long_link) = (None, None);
    loop {
        reader.read_exact(&mut header)?;
        if header.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        check_sum(&header)?;
        let size = octal(&header[124..136])?;
        let padded = size.checked_next_multiple_of(512).ok_or(DebError::Tar("a size is too large"))?;
        match header[156] {
            kind @ (b'L' | b'K') if size <= MAX_PATH => {
                let text = read_body(&mut reader, size, padded)?;
                let text = String::from_utf8_lossy(text.split(|&byte| byte == 0).next().unwrap_or(&[])).into_owned();
                *(if kind == b'L' { &mut long_name } else { &mut long_link }) = Some(text);
            }
            b'L' | b'K' => return Err(DebError::Tar("a path is too long")),
            kind => {
                let name = long_name.take().unwrap_or_else(|| short_name(&header));
                let link = long_link.take().unwrap_or_else(|| text_of(&header[157..257]));
                let plain = |path: &str| path.strip_prefix("./").unwrap_or(path).trim_end_matches('/').to_owned();
                let kind = match kind {
                    b'0' | 0 => Kind::File,
                    b'1' => Kind::Same(plain(&link)),
                    b'2' => Kind::Symlink(link),
                    b'5' => Kind::Folder,
                    _ => Kind::Other,
                };
                let mode = u32::try_from(octal(&header[100..108])? & 0o7777).unwrap_or_default();
                let entry = Header { name: plain(&name), mode, kind };
                if wanted(&entry) {
                    if size > MAX_FILE {
                        return Err(DebError::Tar("a file is larger than 256 MiB"));
                    }
                    let body = read_body(&mut reader, size, padded)?;
                    take(entry, body);
                } else if io::copy(&mut reader.by_ref().take(padded), &mut io::sink())? != padded {
                    return Err(DebError::Tar("it is cut off"));
                }
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn read_body(reader: &mut dyn Read, size: u64, padded: u64) -> Result<Vec<u8>, DebError> {
    let mut body = Vec::new();
    let read = reader.take(padded).read_to_end(&mut body)? as u64;
    if read != padded {
        return Err(DebError::Tar("it is cut off"));
    }
    body.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    body.shrink_to_fit();
    Ok(body)
}

fn short_name(header: &[u8; 512]) -> String {
    let (name, prefix) = (text_of(&header[..100]), text_of(&header[345..500]));
    // GNU's own format has other things in the prefix field
    if &header[257..263] == b"ustar\0" && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
}

fn octal(field: &[u8]) -> Result<u64, DebError> {
    let text = field.split(|byte| matches!(byte, 0 | b' ')).find(|part| !part.is_empty()).unwrap_or(b"0");
    let text = std::str::from_utf8(text).map_err(|_| DebError::Tar("a number is not octal"))?;
    u64::from_str_radix(text, 8).map_err(|_| DebError::Tar("a number is not octal"))
}

fn check_sum(header: &[u8; 512]) -> Result<(), DebError> {
    let sum: u64 = header
        .iter()
        .enumerate()
        .map(|(at, &byte)| u64::from(if (148..156).contains(&at) { b' ' } else { byte }))
        .sum();
    if octal(&header[148..156])? == sum { Ok(()) } else { Err(DebError::Tar("a header's checksum is wrong")) }
}

/// A module as the kernel's linker made it: newer packages compress each module. The signature is inside.
pub(super) fn plain_module(path: String, bytes: Vec<u8>) -> Result<(String, Vec<u8>), (String, DebError)> {
    let reader: Result<Box<dyn Read>, io::Error> = if path.ends_with(".xz") {
        Ok(Box::new(XzReader::new_mem_limit(Cursor::new(&bytes), false, MAX_DECODER_KIB)))
    } else if path.ends_with(".zst") {
        zstd::Decoder::with_buffer(Cursor::new(&bytes)).map(|reader| Box::new(reader) as Box<dyn Read>)
    } else {
        return Ok((path, bytes));
    };
    let mut plain = Vec::new();
    let read = reader.and_then(|reader| reader.take(MAX_FILE).read_to_end(&mut plain));
    match read {
        Ok(_) => Ok((path.trim_end_matches(".xz").trim_end_matches(".zst").to_owned(), plain)),
        Err(error) => Err((path, error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = Vec::new();
        let mut put = |name: &str, kind: u8, data: &[u8]| {
            let mut header = [0; 512];
            let short = &name.as_bytes()[..name.len().min(100)];
            header[..short.len()].copy_from_slice(short);
            header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
            header[156] = kind;
            header[257..265].copy_from_slice(b"ustar  \0");
            header[148..156].fill(b' ');
            let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            tar.extend_from_slice(&header);
            tar.extend_from_slice(data);
            tar.resize(tar.len().next_multiple_of(512), 0);
        };
        for (name, data) in files {
            if name.len() > 100 {
                put("././@LongLink", b'L', &[name.as_bytes(), &[0]].concat());
            }
            put(name, b'0', data);
        }
        tar.resize(tar.len() + 1024, 0);
        tar
    }

    fn package(data: &[(&str, &[u8])]) -> Vec<u8> {
        let mut deb = b"!<arch>\n".to_vec();
        let control = tar(&[("./control", b"Package: sample\nVersion: 1:2-3\n")]);
        let data = zstd::encode_all(&tar(data)[..], 1).unwrap();
        for (name, body) in [("debian-binary", &b"2.0\n"[..]), ("control.tar", &control), ("data.tar.zst", &data)] {
            deb.extend_from_slice(
                format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, body.len()).as_bytes(),
            );
            deb.extend_from_slice(body);
            deb.resize(deb.len().next_multiple_of(2), b'\n');
        }
        deb
    }

    fn names(deb: &Deb) -> Result<Vec<(String, usize)>, DebError> {
        let mut found = Vec::new();
        deb.walk(&mut |_| true, &mut |name, bytes| found.push((name.to_owned(), bytes.len())))?;
        Ok(found)
    }

    #[test]
    fn a_package_is_read_long_names_included() {
        let long = format!("./{}/end", "x".repeat(150));
        let deb = Deb::open(package(&[("./a", b"123"), (&long, b""), ("./b", &[1; 512])])).unwrap();
        assert_eq!((deb.name.as_str(), deb.version.as_str()), ("sample", "1:2-3"));
        assert_eq!(names(&deb).unwrap(), [("a".into(), 3), (long[2..].to_owned(), 0), ("b".into(), 512)]);
    }

    #[test]
    fn compressed_modules_are_unpacked_and_lose_their_suffix() {
        let module = b"module".repeat(1000);
        let zst = zstd::encode_all(&module[..], 3).unwrap();
        let options = lzma_rust2::XzOptions::with_preset(1);
        let mut xz = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        std::io::Write::write_all(&mut xz, &module).unwrap();
        let xz = xz.finish().unwrap();
        for (path, bytes) in [("x/a.ko", module.clone()), ("x/a.ko.zst", zst), ("x/a.ko.xz", xz)] {
            let (name, plain) = plain_module(path.to_owned(), bytes.clone()).unwrap();
            assert_eq!((name.as_str(), plain == module), ("x/a.ko", true), "{path}");
            let cut = bytes[..bytes.len() / 2].to_vec();
            assert!(path == "x/a.ko" || plain_module(path.to_owned(), cut).is_err(), "{path}");
        }
    }

    #[test]
    fn damage_is_refused() {
        let good = package(&[("./a", b"123")]);
        assert!(matches!(Deb::open(b"hello".to_vec()), Err(DebError::NotDeb(_))));
        for cut in 0..good.len() - 2 {
            let read = Deb::open(good[..cut].to_vec()).and_then(|deb| names(&deb));
            assert!(read.is_err(), "cut at {cut} was accepted");
        }
        let mut bad_sum = tar(&[("./a", b"1")]);
        bad_sum[0] ^= 1;
        let walked = walk_tar(Box::new(Cursor::new(bad_sum)), &mut |_| true, &mut |_, _| {});
        assert!(matches!(walked, Err(DebError::Tar(_))));
    }
}
