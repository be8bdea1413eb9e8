//! A raw socket on one port that hears LLDP alone.
//!
//! `AF_PACKET` bound to the EtherType: the kernel hands over each frame of it that the card takes, whether the port is in a bond or not, and none that this
//! machine sends (those are for sockets of all types). The card is told to take the groups' addresses (`SIOCADDMULTI`). A frame that had a VLAN tag comes without it,
//! marked as for somebody else where no VLAN device of ours has that number.

use std::io;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};

use super::card::{self, LldpAgent};
use crate::machine::{Heard, Hearing, Opened, Port};
use crate::net::rtnetlink::{self, Socket};
use crate::tree::Tree;

/// Bytes of a frame that are read: one more than is looked at, so that a longer one is seen to be longer.
const ROOM: usize = lldp::MAX_FRAME + 1;

/// Frames for others that are passed over at a time.
const MAX_PASSED: usize = 64;

/// `IFF_UP` of Linux `if.h`.
const IFF_UP: u32 = 1;

/// Kinds of packets that were meant for this machine: `PACKET_HOST`, `PACKET_BROADCAST`, `PACKET_MULTICAST` of Linux `if_packet.h`.
const FOR_US: std::ops::RangeInclusive<u8> = 0..=2;

/// `struct sockaddr_ll` of Linux `if_packet.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LinkAddress {
    family: u16,
    protocol: u16,
    index: i32,
    hardware_type: u16,
    packet_type: u8,
    length: u8,
    address: [u8; 8],
}

// SAFETY: the pointer is to a whole `sockaddr_ll` that outlives the call.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(std::ptr::from_ref(self).cast(), size_of::<Self>() as SocketAddrLen)
    }
}

/// A port that is listened on.
pub struct LldpPort {
    tree: Tree,
    name: String,
    index: u32,
    socket: OwnedFd,
    /// The port was down, and is set down again at the end.
    brought_up: bool,
    /// What `disable_ipv6` of the port was before it was brought up.
    ipv6: Option<String>,
    /// The card's firmware had an agent of its own, which is started again at the end.
    agent: Option<LldpAgent>,
}

impl LldpPort {
    /// Listens on an interface of this machine.
    ///
    /// # Errors
    /// The kernel's: no such interface, no right to raw sockets.
    pub fn open(tree: &Tree, name: &str) -> io::Result<Self> {
        let number = tree.number(&format!("sys/class/net/{name}/ifindex"));
        let index = number.and_then(|index| i32::try_from(index).ok()).filter(|index| *index > 0);
        let index = index.ok_or(io::ErrorKind::NotFound)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol it hears nothing before it is bound: with one it would hear all ports until then.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let at = LinkAddress {
            family: AddressFamily::PACKET.as_raw(),
            protocol: lldp::ETHERTYPE.to_be(),
            index,
            hardware_type: 0,
            packet_type: 0,
            length: 0,
            address: [0; 8],
        };
        bind(&socket, &at)?;
        for group in lldp::GROUPS {
            if let Err(error) = card::join(&socket, name, group) {
                // Some hear them all the same.
                tracing::debug!(%error, "{name} does not take the address {group:02x?} for LLDP");
            }
        }
        Ok(Self {
            tree: tree.clone(),
            name: name.to_owned(),
            index: index.unsigned_abs(),
            socket,
            brought_up: false,
            ipv6: None,
            agent: None,
        })
    }

    fn is_up(&self) -> bool {
        let flags = self.tree.text(&format!("sys/class/net/{}/flags", self.name)).unwrap_or_default();
        u32::from_str_radix(flags.trim_start_matches("0x"), 16).is_ok_and(|flags| flags & IFF_UP != 0)
    }

    /// Whether the port has no IPv6: one that is brought up only to listen must get no address and no route from whoever advertises them there.
    fn disable_ipv6(&self, value: &str) -> Option<String> {
        let path = format!("proc/sys/net/ipv6/conf/{}/disable_ipv6", self.name);
        let before = self.tree.text(&path)?;
        std::fs::write(self.tree.path(&path), value).ok()?;
        Some(before)
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        Socket::open()?.request(rtnetlink::set_up(self.index, up))
    }
}

impl Port for LldpPort {
    fn next(&mut self) -> io::Result<Heard> {
        let mut room = vec![0; ROOM];
        for _ in 0..MAX_PASSED {
            match recvfrom(&self.socket, &mut room[..], RecvFlags::empty()) {
                Ok((_, length, from)) => {
                    let kind = from.filter(|from| from.addr_len() as usize >= size_of::<LinkAddress>()).map(|from| {
                        // SAFETY: the kernel has written a whole `sockaddr_ll`, as its length says; any bytes are one.
                        unsafe { from.as_ptr().cast::<LinkAddress>().read_unaligned() }.packet_type
                    });
                    if kind.is_some_and(|kind| FOR_US.contains(&kind)) {
                        room.truncate(length);
                        return Ok(Heard::Frame(room));
                    }
                }
                // A port that goes down says so once.
                Err(Errno::INTR | Errno::NETDOWN) => {}
                Err(Errno::AGAIN) => return Ok(Heard::Nothing),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Heard::Nothing)
    }

    fn open_up(&mut self) -> io::Result<Opened> {
        let mut done = Vec::new();
        let mut hearing = Hearing::Always;
        match LldpAgent::stop(&self.socket, &self.name) {
            Ok(Some(agent)) => {
                done.push(format!("the firmware's own LLDP agent is told to let frames through ({agent})"));
                self.agent = Some(agent);
                hearing = Hearing::FromNow;
            }
            Ok(None) => {}
            // Listening goes on: perhaps it swallows nothing.
            Err(error) => {
                done.push(format!("the firmware's own LLDP agent could not be told to let frames through: {error}"));
                hearing = Hearing::Perhaps;
            }
        }
        if !self.is_up() {
            self.ipv6 = self.disable_ipv6("1");
            self.set_up(true)?;
            self.brought_up = true;
            done.push("it was down, and is brought up".to_owned());
        }
        Ok(Opened { said: done, hearing })
    }
}

impl Drop for LldpPort {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take()
            && let Err(error) = agent.restore(&self.socket, &self.name)
        {
            tracing::warn!(%error, "{}: the firmware's own LLDP agent could not be started again", self.name);
        }
        if self.brought_up
            && let Err(error) = self.set_up(false)
        {
            tracing::warn!(%error, "{} could not be set down again", self.name);
        }
        if let Some(before) = &self.ipv6 {
            // It was written before.
            let _ = self.disable_ipv6(before);
        }
        for group in lldp::GROUPS {
            // What was not joined cannot be left.
            let _ = card::leave(&self.socket, &self.name, group);
        }
    }
}
