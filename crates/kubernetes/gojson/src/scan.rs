//! Parses JSON into nodes, with the errors of Go's scanner.
//!
//! Accepts the same as `sigs.k8s.io/json`: invalid UTF-8 and unpaired surrogates become U+FFFD, numbers keep their text, and keys keep their order
//! and may be duplicate.

use std::borrow::Cow;

use super::{JsonError, MAX_DEPTH, Node};

/// Parses a document. The error is the text of Go's syntax error.
pub fn parse(text: &[u8]) -> Result<Node<'_>, JsonError> {
    let mut scanner = Scanner { text, at: 0, depth: 0 };
    scanner.space();
    let node = scanner.value()?;
    scanner.space();
    match scanner.peek() {
        None => Ok(node),
        Some(_) => Err(scanner.unexpected("after top-level value")),
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The current byte; at the end a blank, as in Go.
    fn byte(&self) -> u8 {
        self.peek().unwrap_or(b' ')
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The error about the current byte, a blank at the end.
    fn wrong(&self, place: impl Into<Cow<'static, str>>) -> JsonError {
        JsonError::Character { found: self.byte(), place: place.into() }
    }

    /// The same between tokens, where Go reports the end as such.
    fn unexpected(&self, place: &'static str) -> JsonError {
        match self.peek() {
            None => JsonError::End,
            Some(_) => self.wrong(place),
        }
    }

    fn value(&mut self) -> Result<Node<'a>, JsonError> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Node::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Node::Bool(true)),
            Some(b'f') => self.literal("false", Node::Bool(false)),
            Some(b'n') => self.literal("null", Node::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Node<'a>, JsonError>) -> Result<Node<'a>, JsonError> {
        if self.depth == MAX_DEPTH {
            return Err(JsonError::Depth(self.byte()));
        }
        self.depth += 1;
        self.at += 1;
        self.space();
        let node = read(self);
        self.depth -= 1;
        node
    }

    fn object(&mut self) -> Result<Node<'a>, JsonError> {
        let mut members = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.space();
            members.push((key, self.value()?));
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Node::Object(members));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.space();
        }
    }

    fn array(&mut self) -> Result<Node<'a>, JsonError> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Node::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
            self.space();
        }
    }

    fn literal(&mut self, word: &str, node: Node<'a>) -> Result<Node<'a>, JsonError> {
        for expected in word.bytes() {
            if self.byte() != expected {
                return Err(self.wrong(format!("in literal {word} (expecting '{}')", char::from(expected))));
            }
            self.at += 1;
        }
        Ok(node)
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// At least one digit.
    fn some_digits(&mut self, place: &'static str) -> Result<(), JsonError> {
        if !self.byte().is_ascii_digit() {
            return Err(self.wrong(place));
        }
        self.digits();
        Ok(())
    }

    fn number(&mut self) -> Result<Node<'a>, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            b'0' => self.at += 1,
            _ => self.some_digits("in numeric literal")?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(Node::Number(String::from_utf8_lossy(&self.text[start..self.at])))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.at += 1;
        let start = self.at;
        let mut plain = true;
        loop {
            match self.peek() {
                None => return Err(JsonError::End),
                Some(b'"') => break,
                Some(b'\\') => {
                    plain = false;
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..0x20) => return Err(self.wrong("in string literal")),
                Some(_) => self.at += 1,
            }
        }
        let raw = &self.text[start..self.at];
        self.at += 1;
        Ok(if plain { lossy(raw) } else { Cow::Owned(unescape(raw)) })
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.byte() {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte().is_ascii_hexdigit() {
                        return Err(self.wrong("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.wrong("in string escape code")),
        }
        Ok(())
    }
}

/// Text with a replacement character for each byte that is no UTF-8.
fn lossy(raw: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(raw) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let mut out = String::with_capacity(raw.len() + 8);
            push_lossy(&mut out, raw);
            Cow::Owned(out)
        }
    }
}

fn push_lossy(out: &mut String, raw: &[u8]) {
    for chunk in raw.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

/// The text of a string literal whose escapes are valid.
fn unescape(raw: &[u8]) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        push_lossy(&mut out, &rest[..at]);
        rest = &rest[at + 1..];
        let code = rest.first().copied().unwrap_or_default();
        rest = rest.get(1..).unwrap_or_default();
        match code {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let (c, used) = unit(rest);
                out.push(c);
                rest = rest.get(used..).unwrap_or_default();
            }
            other => out.push(char::from(other)),
        }
    }
    push_lossy(&mut out, rest);
    out
}

/// The character of one `\u` escape, or of a surrogate pair, and the bytes consumed.
fn unit(rest: &[u8]) -> (char, usize) {
    let high = hex(rest).unwrap_or(0xfffd);
    if !(0xd800..0xe000).contains(&high) {
        return (char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 4);
    }
    let low = rest.get(4..6).filter(|b| *b == b"\\u").and_then(|_| hex(&rest[6..]));
    match low {
        Some(low) if high < 0xdc00 && (0xdc00..0xe000).contains(&low) => {
            let joined = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            (char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER), 10)
        }
        _ => (char::REPLACEMENT_CHARACTER, 4),
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn errors_are_those_of_gos_scanner() {
        let end = "unexpected end of JSON input";
        for (text, message) in [
            ("", end),
            (" \n", end),
            ("{", end),
            ("{\"a\"", end),
            ("{\"a\":1", end),
            ("[1", end),
            ("[1,", end),
            ("\"a", end),
            ("-", "invalid character ' ' in numeric literal"),
            ("1.", "invalid character ' ' after decimal point in numeric literal"),
            ("1e+", "invalid character ' ' in exponent of numeric literal"),
            ("tru", "invalid character ' ' in literal true (expecting 'e')"),
            ("\"\\", "invalid character ' ' in string escape code"),
            ("\"\\u1", "invalid character ' ' in \\u hexadecimal character escape"),
            ("nil", "invalid character 'i' in literal null (expecting 'u')"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\":2}", "invalid character '\"' after object key:value pair"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("[1 2]", "invalid character '2' after array element"),
            ("01", "invalid character '1' after top-level value"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\'\"", "invalid character '\\'' in string escape code"),
            ("\u{e9}", "invalid character '\u{c3}' looking for beginning of value"),
        ] {
            assert_eq!(error(text), message, "{text}");
        }
        assert_eq!(
            parse(b"\x81").unwrap_err().to_string(),
            "invalid character '\\u0081' looking for beginning of value"
        );
        let deep = format!("{}1", "{\"a\":".repeat(MAX_DEPTH + 1));
        assert_eq!(error(&deep), "invalid character '{' exceeded max depth");
    }

    #[test]
    fn strings_are_made_whole() {
        for (text, read) in [
            (&br#""a\u00e9\n\/""#[..], "aé\n/"),
            (br#""\ud83d\ude00""#, "😀"),
            (br#""\ud83d-\ude00""#, "\u{fffd}-\u{fffd}"),
            (br#""\ud83d\u0041""#, "\u{fffd}A"),
            (b"\"\xff\xfe\"", "\u{fffd}\u{fffd}"),
            (b"\"\xe2\x82\"", "\u{fffd}\u{fffd}"),
            (b"\"\xe2\x82\\t\"", "\u{fffd}\u{fffd}\t"),
        ] {
            assert_eq!(parse(text), Ok(Node::String(Cow::Borrowed(read))));
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..4).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in any_json()) {
            let text = value.to_string();
            prop_assert_eq!(parse(text.as_bytes()).unwrap().to_value().unwrap().0, value);
        }

        #[test]
        fn bytes_are_json_for_both_readers_or_for_none(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            if serde_json::from_slice::<Value>(&bytes).is_ok() {
                prop_assert!(parse(&bytes).is_ok());
            }
            if let (Ok(_), Ok(text)) = (parse(&bytes), std::str::from_utf8(&bytes)) {
                let message = serde_json::from_str::<Value>(text).err().map(|e| e.to_string()).unwrap_or_default();
                prop_assert!(message.is_empty() || message.contains("surrogate") || message.contains("number out of range"), "{}", message);
            }
        }
    }
}
