//! What an ironic-python-agent has written down, out of the archive that `log.collect_system_logs` gives (`A:utils.py`, `collect_system_logs`): a tar.gz in
//! base64, with the journal where there is one, and with the files of `/var/log` else. Pure.

use std::io::{self, Read};

use agent_protocol::LogLine;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;

use crate::redaction::without_secrets;

/// Most bytes of the archive, in base64.
const MAX_PACKED: usize = 8 << 20;
/// Most bytes that are unpacked of it.
const MAX_UNPACKED: u64 = 32 << 20;
/// Bytes at the end of a log that are kept.
const TAIL: usize = 64 << 10;
/// Lines of a log that are kept.
const LINES: usize = 60;
/// Longest line, in characters.
const MAX_LINE: usize = 400;
/// Bytes of a block of the archive (POSIX.1-1988, `ustar`).
const BLOCK: usize = 512;

/// The last lines that the agent has written, oldest first: those of its debugging are left out where there are others.
///
/// # Errors
/// Why there are none.
pub fn lines(packed: &str) -> Result<Vec<LogLine>, String> {
    if packed.len() > MAX_PACKED {
        return Err(format!("the archive of its logs has {} bytes, at most {MAX_PACKED} are read", packed.len()));
    }
    let bytes = STANDARD.decode(packed).map_err(|error| format!("the archive of its logs is not base64: {error}"))?;
    let mut archive = GzDecoder::new(bytes.as_slice()).take(MAX_UNPACKED);
    let log = find(&mut archive).map_err(|error| format!("the archive of its logs cannot be read: {error}"))?;
    let log = log.ok_or("the archive of its logs has neither a journal nor the agent's log")?;
    let text = String::from_utf8_lossy(&log);
    let all: Vec<LogLine> = text.lines().filter(|line| !line.trim().is_empty()).map(line).collect();
    let told: Vec<LogLine> = all.iter().filter(|line| line.level != "debug").cloned().collect();
    let mut kept = if told.is_empty() { all } else { told };
    kept.drain(..kept.len().saturating_sub(LINES));
    Ok(kept)
}

/// A line of the agent's. Its time is in its text; how long the machine had been up then it does not say.
fn line(text: &str) -> LogLine {
    let has = |word: &str| text.split_ascii_whitespace().take(6).any(|found| found.trim_end_matches(':') == word);
    let level = match () {
        () if has("ERROR") || has("CRITICAL") => "error",
        () if has("WARNING") => "warn",
        () if has("DEBUG") => "debug",
        () => "info",
    };
    LogLine { uptime_ms: 0, level: level.to_owned(), text: terms::clean(&without_secrets(text), MAX_LINE) }
}

/// The end of the journal, or else of the agent's log; the last one of either if there are several.
fn find(archive: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let (mut journal, mut own) = (None, None);
    let mut header = [0_u8; BLOCK];
    // An archive that ends early, or is larger than what is read, is read as far as it goes.
    while fill(archive, &mut header)? && header != [0; BLOCK] {
        let size = size(&header).ok_or_else(|| io::Error::other("an entry without a size"))?;
        let name = header.get(..100).unwrap_or_default();
        let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let is_file = matches!(header.get(156), Some(0 | b'0'));
        let content = tail(archive, size)?;
        match name.rsplit('/').next() {
            Some("journal") if is_file => journal = Some(content),
            Some("ironic-python-agent.log" | "agent.log") if is_file => own = Some(content),
            _ => {}
        }
    }
    Ok(journal.or(own))
}

/// Reads a block; whether there was one.
fn fill(archive: &mut impl Read, block: &mut [u8; BLOCK]) -> io::Result<bool> {
    match archive.read_exact(block) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes of an entry: octal digits.
fn size(header: &[u8; BLOCK]) -> Option<u64> {
    let digits = std::str::from_utf8(header.get(124..136)?).ok()?;
    u64::from_str_radix(digits.trim_matches(['\0', ' ']), 8).ok()
}

/// The last [`TAIL`] bytes of an entry, which is read to the end of its last block.
fn tail(archive: &mut impl Read, size: u64) -> io::Result<Vec<u8>> {
    let (mut kept, mut block) = (Vec::new(), [0_u8; BLOCK]);
    let mut left = size;
    while left > 0 && fill(archive, &mut block)? {
        let count = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        kept.extend_from_slice(block.get(..count).unwrap_or_default());
        left -= count as u64;
        if kept.len() > 2 * TAIL {
            kept.drain(..kept.len() - TAIL);
        }
    }
    kept.drain(..kept.len().saturating_sub(TAIL));
    Ok(kept)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::io::Write as _;

    /// An archive as the agent's, of these files.
    pub fn packed(files: &[(&str, &str)]) -> String {
        let mut tar = Vec::new();
        for (name, content) in files {
            let mut header = [0_u8; BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
            header[156] = b'0';
            tar.extend(header);
            tar.extend(content.as_bytes());
            tar.resize(tar.len().next_multiple_of(BLOCK), 0);
        }
        tar.extend([0; 2 * BLOCK]);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).unwrap();
        STANDARD.encode(gzip.finish().unwrap())
    }

    fn texts(packed: &str) -> Vec<String> {
        lines(packed).unwrap().into_iter().map(|line| format!("{}: {}", line.level, line.text)).collect()
    }

    #[test]
    fn the_agents_last_lines_are_found_in_its_archive() {
        let log = "2026-01-02 03:04:05.006 77 DEBUG root [-] a\n\n2026-01-02 03:04:06.006 77 ERROR root [-] no \u{1b}[31mdisk\n\
                   2026-01-02 03:04:07.006 77 WARNING root [-] b\nplain\nread http://user:hunter2@192.0.2.9/disk.raw\n";
        let files = [("ps", "PID"), ("var/log/ironic-python-agent.log", log), ("var/log/lastlog", "\0\0")];
        let seen = texts(&packed(&files));
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert!(seen[0].starts_with("error: 2026-01-02") && !seen[0].contains('\u{1b}') && seen[2] == "info: plain");
        assert!(!seen[3].contains("hunter2"), "{seen:?}");
        // Debugging alone is better than nothing, and a journal than a file.
        assert_eq!(texts(&packed(&[("agent.log", "x DEBUG y\n")])), ["debug: x DEBUG y"]);
        assert_eq!(texts(&packed(&[("journal", "j\n"), ("var/log/ironic-python-agent.log", log)])), ["info: j"]);
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let log: String = (0..20_000).map(|number| format!("line {number} {}\n", "x".repeat(number % 700))).collect();
        let seen = lines(&packed(&[("journal", &log)])).unwrap();
        assert_eq!(seen.len(), LINES);
        assert!(seen.last().unwrap().text.starts_with("line 19999"));
        assert!(seen.iter().all(|line| line.text.chars().count() <= MAX_LINE));
    }

    #[test]
    fn what_is_no_archive_of_logs_is_said() {
        assert!(lines("%").unwrap_err().contains("base64"));
        assert!(lines(&STANDARD.encode("this is no archive at all")).unwrap_err().contains("cannot be read"));
        assert!(lines(&packed(&[("ps", "PID")])).unwrap_err().contains("neither a journal"));
        assert!(lines(&"A".repeat(MAX_PACKED + 4)).unwrap_err().contains("at most"));
        // A size beyond all that is there, and one that is none.
        let mut lying = vec![0_u8; BLOCK];
        lying[..7].copy_from_slice(b"journal");
        lying[124..135].copy_from_slice(b"77777777777");
        lying.extend(b"only this");
        let gzip = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).unwrap();
            STANDARD.encode(gzip.finish().unwrap())
        };
        assert_eq!(lines(&gzip(&lying)).unwrap(), vec![]);
        lying[124..135].copy_from_slice(b"bytes------");
        assert!(lines(&gzip(&lying)).unwrap_err().contains("without a size"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..4096)) {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&bytes).unwrap();
            let _ = lines(&STANDARD.encode(gzip.finish().unwrap()));
        }
    }
}
