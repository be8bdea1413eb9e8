//! Kinds of characters in YAML.

/// Letters, digits, `_` and `-`: names of anchors and directives.
pub fn alpha(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// A space or tab.
pub fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// A line break.
pub fn broken(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// A line break or the end of the text.
pub fn end_of_line(c: char) -> bool {
    c == '\0' || broken(c)
}

/// A blank, a line break or the end of the text.
pub fn blank_or_end(c: char) -> bool {
    blank(c) || end_of_line(c)
}

/// Whether YAML allows the character.
pub fn allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
