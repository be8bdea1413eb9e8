//! The machine's own interface to its BMC: the kernel's `/dev/ipmi0`.
//!
//! Source: Linux `include/uapi/linux/ipmi.h`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::ioctl::{Opcode, opcode};

use super::ioctl::call;
use crate::ipmi::Ipmi;

/// `IPMICTL_SEND_COMMAND`: `_IOR('i', 13, struct ipmi_req)`.
const SEND: Opcode = opcode::read::<Request>(b'i', 13);
/// `IPMICTL_RECEIVE_MSG_TRUNC`: `_IOWR('i', 11, struct ipmi_recv)`.
const RECEIVE: Opcode = opcode::read_write::<Received>(b'i', 11);
/// `IPMI_SYSTEM_INTERFACE_ADDR_TYPE` and `IPMI_BMC_CHANNEL`.
const SYSTEM_INTERFACE: i32 = 0x0c;
const BMC_CHANNEL: i16 = 0x0f;
/// `IPMI_RESPONSE_RECV_TYPE`.
const RESPONSE: i32 = 1;
/// `IPMI_MAX_MSG_LENGTH`.
const MAX_MESSAGE: usize = 272;
/// `sizeof(struct ipmi_addr)`, which any address fits into.
const MAX_ADDRESS: usize = 40;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// `struct ipmi_system_interface_addr`.
#[repr(C)]
struct Address {
    kind: i32,
    channel: i16,
    lun: u8,
}

/// `struct ipmi_msg`.
#[repr(C)]
struct Message {
    function: u8,
    command: u8,
    length: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
struct Request {
    address: *const Address,
    address_length: u32,
    id: std::ffi::c_long,
    message: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct Received {
    kind: i32,
    address: *mut u8,
    address_length: u32,
    id: std::ffi::c_long,
    message: Message,
}

/// The first BMC that the kernel has found.
#[derive(Debug)]
pub struct LocalBmc {
    device: File,
    id: std::ffi::c_long,
}

impl LocalBmc {
    /// Opens it.
    ///
    /// # Errors
    /// When the kernel has found none.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { device: File::options().read(true).write(true).open(path)?, id: 0 })
    }

    /// The next message, which the kernel has: its kind, its id, and its data.
    fn next(&self) -> io::Result<(i32, std::ffi::c_long, Vec<u8>)> {
        let (mut address, mut data) = ([0_u8; MAX_ADDRESS], [0_u8; MAX_MESSAGE]);
        let message = Message { function: 0, command: 0, length: MAX_MESSAGE as u16, data: data.as_mut_ptr() };
        let mut received =
            Received { kind: 0, address: address.as_mut_ptr(), address_length: MAX_ADDRESS as u32, id: 0, message };
        call(&self.device, RECEIVE, &mut received)?;
        let length = usize::from(received.message.length).min(MAX_MESSAGE);
        Ok((received.kind, received.id, data[..length].to_vec()))
    }
}

impl Ipmi for LocalBmc {
    fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<Vec<u8>> {
        self.id += 1;
        let address = Address { kind: SYSTEM_INTERFACE, channel: BMC_CHANNEL, lun: 0 };
        // The kernel only reads it.
        let message = Message {
            function,
            command,
            length: u16::try_from(data.len()).map_err(io::Error::other)?,
            data: data.as_ptr().cast_mut(),
        };
        let mut request =
            Request { address: &raw const address, address_length: size_of::<Address>() as u32, id: self.id, message };
        call(&self.device, SEND, &mut request)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            let mut waited = [PollFd::new(&self.device, PollFlags::IN)];
            if poll(&mut waited, Some(&wait))? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no answer to command {command:02X}h within {} s", PATIENCE.as_secs()),
                ));
            }
            // Late answers to earlier requests, and the BMC's own events, are none to this one.
            let (kind, id, answer) = self.next()?;
            if kind == RESPONSE && id == self.id {
                return Ok(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn structures_are_the_kernels() {
        assert_eq!((size_of::<Address>(), size_of::<Message>()), (8, 16));
        assert_eq!((size_of::<Request>(), size_of::<Received>()), (40, 48));
        assert_eq!((SEND, RECEIVE), (0x8028_690d, 0xc030_690b));
    }

    #[test]
    fn a_machine_without_a_bmc_says_so() {
        assert_eq!(LocalBmc::open(Path::new("/nowhere/ipmi0")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
