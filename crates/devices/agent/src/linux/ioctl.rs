//! Calls of the kernel on structures that it reads and writes.

use std::ffi::c_void;
use std::io;

use rustix::fd::AsFd;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

/// An ioctl on a structure of this process, which it reads and writes. Its answer is the number that the kernel returns.
struct On<'a, T> {
    opcode: Opcode,
    value: &'a mut T,
}

// SAFETY: the kernel reads and writes one `T` at the pointer, which is a `repr(C)` copy of what it declares for this opcode; the buffers that a `T` points
// to outlive the call, and have the lengths that it names.
unsafe impl<T> Ioctl for On<'_, T> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self.value).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

/// Makes the call. `value` must be what the kernel declares for this opcode.
pub(super) fn call<T>(descriptor: impl AsFd, opcode: Opcode, value: &mut T) -> io::Result<i32> {
    // SAFETY: see `On`.
    unsafe { rustix::ioctl::ioctl(descriptor, On { opcode, value }) }.map_err(io::Error::from)
}
