//! Processors, from `/proc/cpuinfo` and `/sys/devices/system/cpu`; the kernel of Arm machines names neither model nor clock, which are then the firmware's
//! (DMTF DSP0134, 7.5 processor information).

use inventory::Cpu;

use super::smbios::{structures, tables};
use crate::tree::{Tree, clean};

/// Most bytes of `/proc/cpuinfo`: enough for a thousand processors.
const MAX_CPUINFO: u64 = 4 << 20;

/// SMBIOS structure.
const PROCESSOR: u8 = 4;

/// Most flags of a processor.
const MAX_FLAGS: usize = 1024;

/// Facts of the first processor, and how many there are.
pub(super) fn cpu(tree: &Tree) -> Cpu {
    let info = clean(&tree.bytes("proc/cpuinfo", MAX_CPUINFO).unwrap_or_default());
    let field = |names: &[&str]| {
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(name, _)| names.contains(&name.trim()));
        found.next().map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let mut flags: Vec<String> = field(&["flags", "Features"])
        .map(|text| text.split_whitespace().take(MAX_FLAGS).map(str::to_owned).collect())
        .unwrap_or_default();
    flags.sort();
    flags.dedup();
    let processors = info.lines().filter(|line| line.split_once(':').is_some_and(|(n, _)| n.trim() == "processor"));
    let online = tree.text("sys/devices/system/cpu/online").as_deref().and_then(range_count);
    let fastest = tree.number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").map(|khz| khz as f64 / 1000.0);
    let now = || field(&["cpu MHz"])?.parse::<f64>().ok();
    let socket = socket(tree);
    Cpu {
        arch: Some(std::env::consts::ARCH.to_owned()),
        clock_megahertz: fastest.or_else(now).or(socket.clock).filter(|mhz| mhz.is_finite() && *mhz > 0.0),
        count: online.or_else(|| i64::try_from(processors.count()).ok()).filter(|count| *count > 0),
        flags,
        model: field(&["model name", "Model"]).or(socket.model).map(|text| super::short(&text)),
    }
}

/// What the firmware says of a processor.
#[derive(Default)]
struct Socket {
    model: Option<String>,
    /// In MHz.
    clock: Option<f64>,
}

/// The first socket with a processor (offsets: 0x10 version, 0x16 current speed, 0x18 status, of which bit 6 is "populated").
fn socket(tree: &Tree) -> Socket {
    let tables = tables(tree).unwrap_or_default();
    let mut sockets = structures(&tables).filter(|one| one.kind == PROCESSOR);
    let Some(first) = sockets.find(|one| one.byte(0x18).is_some_and(|status| status & 1 << 6 != 0)) else {
        return Socket::default();
    };
    Socket { model: first.text(0x10), clock: first.word(0x16).map(f64::from) }
}

/// How many numbers a list like `0-3,8` names.
fn range_count(list: &str) -> Option<i64> {
    let mut count = 0_i64;
    for part in list.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (low.trim().parse::<i64>().ok()?, high.trim().parse::<i64>().ok()?);
        count = count.checked_add(high.checked_sub(low)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::smbios;
    use crate::tree::tests::plant;

    #[test]
    fn ranges_are_counted() {
        assert_eq!(range_count("0-3,8"), Some(5));
        assert_eq!(range_count("0"), Some(1));
        assert_eq!(range_count("x"), None);
    }

    #[test]
    fn the_firmware_tells_what_the_kernel_of_arm_machines_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let text = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n";
        let mut body = [0; 0x1A - 4];
        (body[0x10 - 4], body[0x16 - 4], body[0x17 - 4]) = (2, 0xB8, 0x0B);
        let empty = smbios::tests::structure(4, &body, b"CPU 0\0none\0\0");
        body[0x18 - 4] = 0x41;
        let used = smbios::tests::structure(4, &body, b"CPU 1\0Contoso(R) 128-Core Processor\0\0");
        plant(folder.path(), &[("proc/cpuinfo", text)]);
        let tables = folder.path().join("sys/firmware/dmi/tables");
        std::fs::create_dir_all(&tables).unwrap();
        std::fs::write(tables.join("DMI"), [empty, used].concat()).unwrap();
        let found = cpu(&Tree::new(folder.path()));
        assert_eq!(
            (found.model.as_deref(), found.clock_megahertz),
            (Some("Contoso(R) 128-Core Processor"), Some(3000.0))
        );
        assert_eq!((found.flags.len(), found.count), (2, Some(1)));
    }

    #[test]
    fn the_fastest_clock_and_sorted_flags() {
        let folder = tempfile::tempdir().unwrap();
        let text = "processor\t: 0\nmodel name\t: Fast\ncpu MHz\t\t: 2100.0\nflags\t\t: vme fpu\n\nprocessor\t: 1\n";
        plant(folder.path(), &[("proc/cpuinfo", text)]);
        let tree = Tree::new(folder.path());
        let found = cpu(&tree);
        assert_eq!((found.count, found.clock_megahertz), (Some(2), Some(2100.0)));
        assert_eq!(found.flags, ["fpu", "vme"]);
        plant(folder.path(), &[("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3700000")]);
        assert_eq!(cpu(&tree).clock_megahertz, Some(3700.0));
    }
}
