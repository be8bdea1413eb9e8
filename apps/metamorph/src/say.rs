//! Output to people and pipes. A reader may close the pipe early (`metamorph crds | head`): that ends the command without an error.

use std::io::{self, Write};

use anyhow::Context;

/// Writes a command's result to standard output. A closed pipe is not an error.
///
/// # Errors
/// Any other failure of standard output, a full disk for instance.
pub fn out(text: &str) -> anyhow::Result<()> {
    still_read(text)?;
    Ok(())
}

/// Like [`out`]; false if the reader is gone.
///
/// # Errors
/// As [`out`].
pub fn still_read(text: &str) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    taken(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

fn taken(written: io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("write to standard output"),
    }
}

/// Writes a note for the user to standard error. If that is closed, the note is dropped.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// An error and its causes, one a line, on standard error.
pub fn error(error: &anyhow::Error) {
    let causes: String = error.chain().skip(1).map(|cause| format!("\n  because: {cause}")).collect();
    note(&format!("error: {error}{causes}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_no_error_and_a_full_disk_is() {
        assert!(!taken(Err(io::ErrorKind::BrokenPipe.into())).unwrap());
        assert!(taken(Err(io::ErrorKind::StorageFull.into())).is_err());
        assert!(taken(Ok(())).unwrap());
    }
}
