//! A small Rust lexer: enough to tell code from comments, strings and tests, with the line of each token.
//!
//! Not a parser: it knows brackets, attributes and where an item ends, which is all that tidy's rules need. Sources that
//! do not compile give odd answers; the compiler speaks up about those.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A name or keyword; raw identifiers come without `r#`.
    Ident,
    /// One character of punctuation, brackets included.
    Punct,
    /// A string, character or number.
    Literal,
    /// A lifetime or loop label.
    Lifetime,
}

/// A token of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: &'a str,
    /// Line on which it starts, counted from 1.
    pub line: usize,
}

impl Token<'_> {
    /// Whether it is this punctuation or name.
    pub fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Ident | Kind::Punct)
    }
}

/// A source file cut into tokens.
#[derive(Debug)]
pub struct Lexed<'a> {
    /// Its tokens, without comments.
    pub tokens: Vec<Token<'a>>,
    /// Whether the file documents itself (`//!` or `/*!`).
    pub module_doc: bool,
    /// Number of lines.
    pub lines: usize,
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn second(&self) -> Option<char> {
        self.rest().chars().nth(1)
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.bump();
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0_usize;
        while !self.rest().is_empty() {
            if self.rest().starts_with("/*") {
                depth += 1;
                self.bump();
            } else if self.rest().starts_with("*/") {
                depth -= 1;
                self.bump();
            }
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    /// The body of a quoted literal, the opening quote being next.
    fn skip_quoted(&mut self, quote: char) {
        self.bump();
        while let Some(c) = self.bump() {
            if c == '\\' {
                self.bump();
            } else if c == quote {
                return;
            }
        }
    }

    /// The body of a raw string, its hashes or opening quote being next.
    fn skip_raw(&mut self) {
        let hashes = self.rest().chars().take_while(|c| *c == '#').count();
        let end = format!("\"{}", "#".repeat(hashes));
        for _ in 0..=hashes {
            self.bump();
        }
        let len = self.rest().find(&end).map_or(self.rest().len(), |i| i + end.len());
        let stop = self.at + len;
        while self.at < stop {
            self.bump();
        }
    }

    fn skip_number(&mut self) {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        self.skip_while(word);
        if self.peek() == Some('.') && self.second().is_some_and(|c| c.is_ascii_digit()) {
            self.bump();
            self.skip_while(word);
        }
    }

    /// A name, or the literal whose prefix that name is (`r"…"`, `b'…'`, `br#"…"#`, `c"…"`), or a raw identifier.
    fn skip_word(&mut self) -> (Kind, usize) {
        let start = self.at;
        self.skip_while(|c| c.is_alphanumeric() || c == '_');
        let word = self.text.get(start..self.at).unwrap_or("");
        let raw = matches!(word, "r" | "br" | "cr");
        match self.peek() {
            Some('"') if raw => self.skip_raw(),
            Some('"') if matches!(word, "b" | "c") => self.skip_quoted('"'),
            Some('\'') if word == "b" => self.skip_quoted('\''),
            Some('#') if raw && self.rest().trim_start_matches('#').starts_with('"') => self.skip_raw(),
            Some('#') if word == "r" && self.second().is_some_and(|c| c.is_alphabetic() || c == '_') => {
                self.bump();
                let name = self.at;
                self.skip_while(|c| c.is_alphanumeric() || c == '_');
                return (Kind::Ident, name);
            }
            _ => return (Kind::Ident, start),
        }
        (Kind::Literal, start)
    }

    /// A character literal or a lifetime, the quote being next.
    fn skip_tick(&mut self) -> Kind {
        let mut ahead = self.rest().chars().skip(1);
        let first = ahead.next();
        let lifetime = first.is_some_and(|c| c.is_alphabetic() || c == '_') && ahead.next() != Some('\'');
        if lifetime {
            self.bump();
            self.skip_while(|c| c.is_alphanumeric() || c == '_');
            return Kind::Lifetime;
        }
        self.skip_quoted('\'');
        Kind::Literal
    }
}

/// Cuts a source file into tokens.
pub fn lex(text: &str) -> Lexed<'_> {
    let mut cursor = Cursor { text, at: 0, line: 1 };
    let mut tokens = Vec::new();
    let mut module_doc = false;
    if text.starts_with("#!") && !text.starts_with("#![") {
        cursor.skip_while(|c| c != '\n');
    }
    while let Some(c) = cursor.peek() {
        let (start, line) = (cursor.at, cursor.line);
        let (kind, start) = match c {
            _ if c.is_whitespace() => {
                cursor.bump();
                continue;
            }
            '/' if cursor.rest().starts_with("//") => {
                module_doc |= tokens.is_empty() && cursor.rest().starts_with("//!");
                cursor.skip_while(|c| c != '\n');
                continue;
            }
            '/' if cursor.rest().starts_with("/*") => {
                module_doc |= tokens.is_empty() && cursor.rest().starts_with("/*!");
                cursor.skip_block_comment();
                continue;
            }
            '"' => {
                cursor.skip_quoted('"');
                (Kind::Literal, start)
            }
            '\'' => (cursor.skip_tick(), start),
            _ if c.is_ascii_digit() => {
                cursor.skip_number();
                (Kind::Literal, start)
            }
            _ if c.is_alphabetic() || c == '_' => cursor.skip_word(),
            _ => {
                cursor.bump();
                (Kind::Punct, start)
            }
        };
        tokens.push(Token { kind, text: text.get(start..cursor.at).unwrap_or(""), line });
    }
    Lexed { tokens, module_doc, lines: text.lines().count() }
}

/// The index of the bracket that closes the one at `open`, or the last token's if none does.
pub fn matching(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        if token.kind != Kind::Punct {
            continue;
        }
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return i;
                }
            }
            _ => {}
        }
    }
    tokens.len().saturating_sub(1)
}

/// The index of an item's last token, its first (after the attributes) being at `start`: its `;` or its closing brace.
pub fn item_end(tokens: &[Token<'_>], start: usize) -> usize {
    let mut i = start;
    while let Some(token) = tokens.get(i) {
        if token.kind == Kind::Punct {
            match token.text {
                ";" => return i,
                "{" => return matching(tokens, i),
                // An attribute on the last field, variant or arm ends with what surrounds it.
                "}" | ")" | "]" => return i.saturating_sub(1),
                "(" | "[" => i = matching(tokens, i),
                _ => {}
            }
        }
        i += 1;
    }
    tokens.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        lex(source).tokens.iter().map(|t| t.text.to_owned()).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let source =
            "// a.unwrap()\n/* b /* c */ d */ let x = \"e.unwrap() \\\" f\"; r#\"g \" h\"# b'\\'' br\"i\" '\"' z";
        assert_eq!(
            texts(source),
            ["let", "x", "=", "\"e.unwrap() \\\" f\"", ";", "r#\"g \" h\"#", "b'\\''", "br\"i\"", "'\"'", "z"]
        );
    }

    #[test]
    fn lifetimes_characters_and_numbers_are_told_apart() {
        let source = "fn f<'a>(x: &'a str) { 'x'; '\\n'; 1.5; 0..7; t.0.unwrap() } r#type";
        let lexed = lex(source);
        let kind = |text: &str| lexed.tokens.iter().find(|t| t.text == text).map(|t| t.kind);
        assert_eq!(kind("'a"), Some(Kind::Lifetime));
        assert_eq!(kind("'x'"), Some(Kind::Literal));
        assert_eq!(kind("1.5"), Some(Kind::Literal));
        assert_eq!(kind("unwrap"), Some(Kind::Ident));
        assert_eq!(kind("type"), Some(Kind::Ident));
        assert_eq!(lexed.tokens.iter().filter(|t| t.is(".")).count(), 4);
    }

    #[test]
    fn lines_go_on_through_strings_and_comments() {
        let lexed = lex("\"a\nb\"\n/* c\n*/ d\nr\"\n\" e");
        let line = |text: &str| lexed.tokens.iter().find(|t| t.text == text).map(|t| t.line);
        assert_eq!(line("d"), Some(4));
        assert_eq!(line("e"), Some(6));
        assert_eq!(lexed.lines, 6);
    }

    #[test]
    fn a_module_doc_comes_before_all_code() {
        assert!(lex("// licence\n//! Doc.\nfn f() {}").module_doc);
        assert!(lex("/*! Doc. */").module_doc);
        assert!(!lex("fn f() {}\n//! late").module_doc);
        assert!(!lex("/// Of the function.\nfn f() {}").module_doc);
    }

    #[test]
    fn items_end_where_they_end() {
        for (source, last) in [
            ("fn f(a: [u8; 3]) -> u8 { g(); } x", "}"),
            ("use a::b; x", ";"),
            ("struct S(u8); x", ";"),
            ("field: u8 } x", "u8"),
        ] {
            let lexed = lex(source);
            assert_eq!(lexed.tokens[item_end(&lexed.tokens, 0)].text, last, "{source}");
        }
    }

    #[test]
    fn unfinished_sources_end() {
        for source in ["\"", "r#\"", "/*", "'", "fn f(", "b'", "r#", "#[cfg(", "'a", "é'"] {
            let lexed = lex(source);
            if !lexed.tokens.is_empty() {
                item_end(&lexed.tokens, 0);
                matching(&lexed.tokens, 0);
            }
        }
    }
}
