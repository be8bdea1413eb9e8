//! The agent's logs as Ironic gets them: a tar.gz in base64.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipa_protocol::Inventory;

use crate::report::LogRing;

/// The logs: what the agent has said, and what it has found.
pub(super) fn packed(logs: &LogRing, inventory: &Inventory) -> String {
    let lines = logs.kept().into_iter().map(|line| {
        format!(
            "{:>10.3} {:5} {}\n",
            std::time::Duration::from_millis(line.uptime_ms).as_secs_f64(),
            line.level,
            line.text
        )
    });
    let text: String = lines.collect();
    let found = serde_json::to_vec_pretty(inventory).unwrap_or_default();
    let mut tar = Vec::new();
    add(&mut tar, "agent.log", text.as_bytes());
    add(&mut tar, "inventory.json", &found);
    tar.extend([0; 1024]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Into memory: it cannot fail.
    let packed = gzip.write_all(&tar).and_then(|()| gzip.finish()).unwrap_or_default();
    STANDARD.encode(packed)
}

/// A file of the archive (POSIX.1-1988, `ustar`).
fn add(tar: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend(header);
    tar.extend(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_logs_are_an_archive() {
        let ring = LogRing::new();
        ring.push("warn", "the disk is odd");
        let packed = packed(&ring, &Inventory::default());
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(STANDARD.decode(packed).unwrap().as_slice()).read_to_end(&mut tar).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("logs.tar"), &tar).unwrap();
        let listed =
            std::process::Command::new("tar").arg("-xvf").arg("logs.tar").current_dir(folder.path()).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "agent.log\ninventory.json\n");
        assert!(std::fs::read_to_string(folder.path().join("agent.log")).unwrap().ends_with("warn  the disk is odd\n"));
    }
}
