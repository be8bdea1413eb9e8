//! How words of BMCs are compared.

/// Whether the text has one of these, whatever its case.
pub(super) fn has(text: &str, words: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// Last part of a MessageId without its registry and version: `Base.1.8.InsufficientPrivilege`, `IDRAC.2.8.SYS403`.
pub(super) fn message_key(id: &str) -> &str {
    id.rsplit('.').next().unwrap_or(id)
}
