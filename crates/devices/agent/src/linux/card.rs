//! What a network card is told beside its traffic: which group addresses it takes, and whether its firmware keeps LLDP for itself.
//!
//! Intel's 700 series (driver i40e) and 800 series (ice) have an LLDP agent in their firmware, which takes the frames before the kernel sees them. Their drivers
//! have a private flag for it, which `ethtool --set-priv-flags` shows: `disable-fw-lldp` of i40e, `fw-lldp-agent` of ice. The flags are found by name, so that a
//! driver without them is left alone.

use std::fmt;
use std::io;

use rustix::fd::AsFd;
use rustix::ioctl::Opcode;

use super::ioctl::call;

/// Linux `sockios.h`.
const SIOCADDMULTI: Opcode = 0x8931;
const SIOCDELMULTI: Opcode = 0x8932;
const SIOCETHTOOL: Opcode = 0x8946;

/// Linux `ethtool.h`.
const GET_STRINGS: u32 = 0x1B;
const GET_PRIVATE_FLAGS: u32 = 0x27;
const SET_PRIVATE_FLAGS: u32 = 0x28;
const GET_SET_INFO: u32 = 0x37;
/// `ETH_SS_PRIV_FLAGS`.
const PRIVATE_FLAGS: u32 = 2;
/// `ETH_GSTRING_LEN`.
const STRING: usize = 32;
/// They are bits of a number of 32.
const MOST_FLAGS: u32 = 32;

/// Bytes of an interface's name, with its end.
const IFNAMSIZ: usize = 16;

/// `struct ifreq` of Linux `if.h` with `ifr_hwaddr`.
#[repr(C)]
struct AddressRequest {
    name: [u8; IFNAMSIZ],
    family: u16,
    address: [u8; 14],
    rest: [u8; 8],
}

/// `struct ifreq` with `ifr_data`.
#[repr(C)]
struct DataRequest {
    name: [u8; IFNAMSIZ],
    data: *mut u8,
    rest: [u8; 16],
}

fn padded(name: &str) -> io::Result<[u8; IFNAMSIZ]> {
    let mut bytes = [0; IFNAMSIZ];
    let fits = name.len() < IFNAMSIZ;
    let room = bytes.get_mut(..name.len()).filter(|_| fits).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(name.as_bytes());
    Ok(bytes)
}

fn group(socket: impl AsFd, opcode: Opcode, name: &str, group: [u8; 6]) -> io::Result<()> {
    let mut request = AddressRequest { name: padded(name)?, family: 0, address: [0; 14], rest: [0; 8] };
    request.address[..6].copy_from_slice(&group);
    call(socket, opcode, &mut request).map(|_| ())
}

/// Has the card take a group address, once more.
pub(super) fn join(socket: impl AsFd, name: &str, address: [u8; 6]) -> io::Result<()> {
    group(socket, SIOCADDMULTI, name, address)
}

/// Takes back one [`join`].
pub(super) fn leave(socket: impl AsFd, name: &str, address: [u8; 6]) -> io::Result<()> {
    group(socket, SIOCDELMULTI, name, address)
}

/// Has ethtool's part of the kernel work on a command with its data, which it may write.
fn ethtool(socket: impl AsFd, name: &str, data: &mut [u8]) -> io::Result<()> {
    let mut request = DataRequest { name: padded(name)?, data: data.as_mut_ptr(), rest: [0; 16] };
    call(socket, SIOCETHTOOL, &mut request).map(|_| ())
}

fn numbers<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Names of the driver's private flags, by their bits.
fn names(socket: impl AsFd, name: &str) -> io::Result<Vec<String>> {
    // struct ethtool_sset_info: command, reserved, a mask of 64 bits, one number for each bit that is still set in the answer.
    let mut info = numbers([GET_SET_INFO, 0, 0, 0, 0, 0]);
    info[8..16].copy_from_slice(&(1_u64 << PRIVATE_FLAGS).to_ne_bytes());
    ethtool(&socket, name, &mut info)?;
    let has_flags = info[8..16].iter().any(|byte| *byte != 0);
    let count = if has_flags { number(&info, 16) } else { 0 };
    if !(1..=MOST_FLAGS).contains(&count) {
        return Ok(Vec::new());
    }
    // struct ethtool_gstrings: command, which strings, how many, then they.
    let mut strings = numbers([GET_STRINGS, PRIVATE_FLAGS, count]);
    let head = strings.len();
    // The kernel writes as many as there are, whatever is asked for: that is the number of above. There is room for more, should a driver not know its mind.
    strings.resize(head + STRING * 1024, 0);
    ethtool(&socket, name, &mut strings)?;
    let found = strings[head..].chunks(STRING).take(count as usize);
    Ok(found.map(|bytes| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()).collect())
}

fn flags(socket: impl AsFd, name: &str) -> io::Result<u32> {
    let mut value = numbers([GET_PRIVATE_FLAGS, 0]);
    ethtool(socket, name, &mut value)?;
    Ok(number(&value, 4))
}

fn set_flags(socket: impl AsFd, name: &str, flags: u32) -> io::Result<()> {
    ethtool(socket, name, &mut numbers([SET_PRIVATE_FLAGS, flags]))
}

/// The flag that stops a firmware's agent, by its name, and what it is set to for that.
const STOPS: [(&str, bool); 2] = [("disable-fw-lldp", true), ("fw-lldp-agent", false)];

/// The flag that is to be changed so that frames come through: its bit, its name, and what it is set to. `None`: there is none, or it is set so.
fn to_change(names: &[String], flags: u32) -> Option<(u32, &'static str, bool)> {
    STOPS.into_iter().find_map(|(name, wanted)| {
        let place = names.iter().position(|found| found == name)?;
        let bit = 1_u32.checked_shl(u32::try_from(place).ok()?)?;
        (wanted != (flags & bit != 0)).then_some((bit, name, wanted))
    })
}

/// A firmware's LLDP agent that was stopped.
#[derive(Debug)]
pub(super) struct LldpAgent {
    bit: u32,
    name: &'static str,
    set_to: bool,
}

impl fmt::Display for LldpAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, if self.set_to { "on" } else { "off" })
    }
}

impl LldpAgent {
    /// Stops the agent of the card's firmware, if it has one that runs.
    pub(super) fn stop(socket: impl AsFd, name: &str) -> io::Result<Option<Self>> {
        let Ok(names) = names(&socket, name) else {
            // A driver without private flags says that it does not know the question.
            return Ok(None);
        };
        if !names.iter().any(|name| STOPS.iter().any(|(known, _)| known == name)) {
            return Ok(None);
        }
        let now = flags(&socket, name)?;
        let Some((bit, flag, set_to)) = to_change(&names, now) else { return Ok(None) };
        set_flags(&socket, name, now ^ bit)?;
        Ok(Some(Self { bit, name: flag, set_to }))
    }

    /// Starts it again.
    pub(super) fn restore(&self, socket: impl AsFd, name: &str) -> io::Result<()> {
        let now = flags(&socket, name)?;
        if self.set_to == (now & self.bit != 0) { set_flags(&socket, name, now ^ self.bit) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_the_flag_of_a_firmware_that_listens_itself_is_changed() {
        let i40e = named(&["MFP", "total-port-shutdown", "disable-fw-lldp"]);
        assert_eq!(to_change(&i40e, 0b011), Some((0b100, "disable-fw-lldp", true)));
        assert_eq!(to_change(&i40e, 0b100), None, "it is off already");
        let ice = named(&["link-down-on-close", "fw-lldp-agent"]);
        assert_eq!(to_change(&ice, 0b10), Some((0b10, "fw-lldp-agent", false)));
        assert_eq!(to_change(&ice, 0b01), None);
        assert_eq!(to_change(&named(&["legacy-rx"]), u32::MAX), None);
        let late: Vec<String> = named(&["x"; 32]).into_iter().chain(named(&["fw-lldp-agent"])).collect();
        assert_eq!(to_change(&late, u32::MAX), None, "a place that has no bit");
    }

    #[test]
    fn the_structures_are_the_kernels() {
        assert_eq!((size_of::<AddressRequest>(), size_of::<DataRequest>()), (40, 40));
        assert!(padded("exactly15chars.").is_ok() && padded("sixteen-chars-ab").is_err());
    }

    #[test]
    fn a_card_without_such_a_firmware_is_left_alone() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(LldpAgent::stop(&socket, "lo").unwrap().is_none());
        assert!(LldpAgent::stop(&socket, "there-is-none").unwrap().is_none());
    }
}
