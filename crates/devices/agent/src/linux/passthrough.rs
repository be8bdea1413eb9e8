//! Commands to drives through the kernel: `SG_IO` and `NVME_IOCTL_ADMIN_CMD` on the block device.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::ioctl::{Opcode, opcode};

use super::ioctl::call;
use crate::drive::{Completion, Data, Drive, Reply};

/// `SG_IO`, Linux `include/scsi/sg.h`.
const SG_IO: Opcode = 0x2285;
/// `NVME_IOCTL_ADMIN_CMD`, Linux `include/uapi/linux/nvme_ioctl.h`: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_ADMIN: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x41);

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// `struct sg_io_hdr`, interface version 3.
#[repr(C)]
struct SgHeader {
    interface_id: i32,
    direction: i32,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: u32,
    dxferp: *mut c_void,
    cmdp: *const u8,
    sbp: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: i32,
    usr_ptr: *mut c_void,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: i32,
    duration: u32,
    info: u32,
}

/// Directions of a transfer.
const SG_NONE: i32 = -1;
const SG_TO_DEVICE: i32 = -2;
const SG_FROM_DEVICE: i32 = -3;
/// Room for sense data, bytes.
const SENSE: usize = 252;
/// `DRIVER_SENSE`, which some kernels set beside the sense data that they have.
const DRIVER_SENSE: u16 = 0x08;

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| io::Error::other("more is to be moved than one command can"))
}

/// A drive of this machine.
pub struct LinuxDrive(File);

impl LinuxDrive {
    /// Opens the block device, beside whoever has it open.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        options.read(true).write(true).custom_flags(flags).open(path).map(Self)
    }
}

impl Drive for LinuxDrive {
    fn nvme(&self, entry: &[u8; 64], data: Data<'_>, time: Duration) -> io::Result<Completion> {
        let word = |at: usize| crate::drive::le32(entry, at);
        let (addr, data_len) = match data {
            Data::None => (0, 0),
            Data::In(room) => (room.as_mut_ptr() as u64, length(room)?),
            Data::Out(bytes) => (bytes.as_ptr() as u64, length(bytes)?),
        };
        let mut command = NvmeCommand {
            opcode: entry[0],
            nsid: word(4),
            cdw2: word(8),
            cdw3: word(12),
            addr,
            data_len,
            cdw10: [word(40), word(44), word(48), word(52), word(56), word(60)],
            timeout_ms: milliseconds(time),
            ..NvmeCommand::default()
        };
        // The kernel returns the status field, or fails with an error of its own.
        let status = call(&self.0, NVME_ADMIN, &mut command)?;
        Ok(Completion { result: command.result, status: u16::try_from(status).unwrap_or(u16::MAX) })
    }

    fn scsi(&self, cdb: &[u8], data: Data<'_>, time: Duration) -> io::Result<Reply> {
        let mut sense = [0_u8; SENSE];
        let (direction, dxferp, dxfer_len) = match data {
            Data::None => (SG_NONE, std::ptr::null_mut(), 0),
            Data::In(room) => (SG_FROM_DEVICE, room.as_mut_ptr().cast(), length(room)?),
            // The kernel only reads it.
            Data::Out(bytes) => (SG_TO_DEVICE, bytes.as_ptr().cast_mut().cast(), length(bytes)?),
        };
        let mut header = SgHeader {
            interface_id: i32::from(b'S'),
            direction,
            cmd_len: u8::try_from(cdb.len()).map_err(io::Error::other)?,
            mx_sb_len: SENSE as u8,
            iovec_count: 0,
            dxfer_len,
            dxferp,
            cmdp: cdb.as_ptr(),
            sbp: sense.as_mut_ptr(),
            timeout: milliseconds(time),
            flags: 0,
            pack_id: 0,
            usr_ptr: std::ptr::null_mut(),
            status: 0,
            masked_status: 0,
            msg_status: 0,
            sb_len_wr: 0,
            host_status: 0,
            driver_status: 0,
            resid: 0,
            duration: 0,
            info: 0,
        };
        call(&self.0, SG_IO, &mut header)?;
        let driver = header.driver_status & !DRIVER_SENSE;
        if header.host_status != 0 || driver & 0xF != 0 {
            let text = format!(
                "no answer (host status {:02X}h, driver status {:02X}h)",
                header.host_status, header.driver_status
            );
            return Err(io::Error::other(text));
        }
        let written = usize::from(header.sb_len_wr).min(SENSE);
        // A negative number, which no driver has a reason for, is no full answer either.
        let missing = usize::try_from(header.resid.unsigned_abs()).unwrap_or(usize::MAX);
        Ok(Reply { status: header.status, sense: sense[..written].to_vec(), missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_the_kernels() {
        assert_eq!((size_of::<NvmeCommand>(), size_of::<SgHeader>()), (72, 88));
        assert_eq!(NVME_ADMIN, 0xC048_4E41);
    }

    #[test]
    fn what_is_no_drive_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let drive = LinuxDrive::open(file.path()).unwrap();
        assert!(drive.nvme(&[0; 64], Data::None, Duration::from_secs(1)).is_err());
        assert!(drive.scsi(&[0; 6], Data::None, Duration::from_secs(1)).is_err());
    }
}
