//! Reserved words of the language (cel-spec, `doc/langdef.md`, "Syntax").

/// The first four belong to the grammar, and the lexer makes tokens of them; the others have no meaning yet.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether the word cannot be used as a name in an expression.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// Whether something in an expression can be named so: ASCII letters, digits and `_`, no digit first, not a reserved word.
pub fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
        && !is_reserved(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Env;
    use proptest::prelude::*;

    #[test]
    fn what_is_reserved_names_no_variable() {
        for word in RESERVED {
            assert!(!is_identifier(word) && !is_identifier("") && !is_identifier("1a"), "{word}");
            assert!(Env::new().variable(word, crate::Type::Int).compile(&format!("{word} == 1")).is_err(), "{word}");
        }
    }

    proptest! {
        #[test]
        fn what_names_a_variable_is_an_identifier(name in "[_a-zA-Z][_a-zA-Z0-9.\\-é]{0,5}") {
            let used = Env::new().variable(&name, crate::Type::Int).compile(&format!("{name} + 1"));
            prop_assert!(used.is_ok() == is_identifier(&name) || name.contains('.') || name.contains('-'));
        }
    }
}
