//! Errors in one line.

use std::error::Error;

/// The error and its causes, joined by colons; a cause whose text its parent contains is left out.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    // a cause may have causes, but not without end
    for _ in 0..16 {
        let Some(error) = cause else { break };
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

/// `text` cut to at most `max` bytes at a character's boundary.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_once() {
        let inner = std::io::Error::other("no such door");
        let outer = crate::efi::VariableError { action: "writing", name: "X".into(), source: inner };
        assert_eq!(chain(&outer), "writing the UEFI variable X failed: no such door");
        assert_eq!(cut("aé", 2), "a");
    }
}
