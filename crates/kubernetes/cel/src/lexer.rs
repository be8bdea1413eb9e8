//! Text to tokens.

use crate::source::Issue;

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tok {
    Ident(String),
    Int(String),
    Uint(String),
    Double(String),
    String(String),
    Bytes(Vec<u8>),
    /// An operator, a bracket or a keyword.
    Op(&'static str),
    End,
}

/// A token with its place.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub tok: Tok,
    pub start: u32,
    pub end: u32,
}

const OPS: [&str; 27] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "in", "true", "false",
];

/// Splits `chars` into tokens; the last one is [`Tok::End`].
pub(crate) fn lex(chars: &[char], issues: &mut Vec<Issue>) -> Vec<Token> {
    let mut lexer = Lexer { chars, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let start = lexer.at;
        if start >= chars.len() {
            tokens.push(Token { tok: Tok::End, start: start as u32, end: start as u32 });
            return tokens;
        }
        match lexer.next() {
            Ok(tok) => tokens.push(Token { tok, start: start as u32, end: lexer.at as u32 }),
            Err(message) => {
                issues.push(Issue::new(Some(start as u32), message));
                if lexer.at == start {
                    lexer.at += 1;
                }
            }
        }
        if issues.len() > 30 {
            lexer.at = chars.len();
        }
    }
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                ' ' | '\t' | '\r' | '\n' | '\u{c}' => self.at += 1,
                '/' if self.peek(1) == '/' => {
                    while self.at < self.chars.len() && self.peek(0) != '\n' {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn unknown(&self, start: usize) -> String {
        let end = (self.at + 1).min(self.chars.len());
        let text: String = self.chars.get(start..end).unwrap_or_default().iter().collect();
        format!("Syntax error: token recognition error at: '{}'", text.replace('\n', "\\n").replace('\r', "\\r"))
    }

    fn next(&mut self) -> Result<Tok, String> {
        let c = self.peek(0);
        if c.is_ascii_digit() || (c == '.' && self.peek(1).is_ascii_digit()) {
            return Ok(self.number());
        }
        let (mut ahead, mut raw, mut bytes) = (0, false, false);
        if matches!(self.peek(0), 'b' | 'B') {
            bytes = true;
            ahead = 1;
        }
        if matches!(self.peek(ahead), 'r' | 'R') {
            raw = true;
            ahead += 1;
        }
        if matches!(self.peek(ahead), '"' | '\'') {
            return self.string(ahead, raw, bytes);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let start = self.at;
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == '_' {
                self.at += 1;
            }
            let name: String = self.chars.get(start..self.at).unwrap_or_default().iter().collect();
            return Ok(match name.as_str() {
                "in" => Tok::Op("in"),
                "true" => Tok::Op("true"),
                "false" => Tok::Op("false"),
                "null" => Tok::Op("null"),
                _ => Tok::Ident(name),
            });
        }
        for op in OPS.iter().take(24) {
            let mut wanted = op.chars();
            let (first, second) = (wanted.next(), wanted.next());
            if first == Some(c) && second.is_none_or(|s| s == self.peek(1)) {
                self.at += op.len();
                return Ok(Tok::Op(op));
            }
        }
        let start = self.at;
        if matches!(c, '=' | '&' | '|') {
            self.at += 1;
        }
        Err(self.unknown(start))
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Tok {
        let start = self.at;
        let mut double = false;
        if self.peek(0) == '0' && self.peek(1) == 'x' && self.peek(2).is_ascii_hexdigit() {
            self.at += 2;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
        } else {
            self.digits();
            if self.peek(0) == '.' && self.peek(1).is_ascii_digit() {
                double = true;
                self.at += 1;
                self.digits();
            }
            let sign = usize::from(matches!(self.peek(1), '+' | '-'));
            if matches!(self.peek(0), 'e' | 'E') && self.peek(1 + sign).is_ascii_digit() {
                double = true;
                self.at += 1 + sign;
                self.digits();
            }
        }
        let text: String = self.chars.get(start..self.at).unwrap_or_default().iter().collect();
        if double {
            return Tok::Double(text);
        }
        if matches!(self.peek(0), 'u' | 'U') {
            self.at += 1;
            return Tok::Uint(text);
        }
        Tok::Int(text)
    }

    fn string(&mut self, prefix: usize, raw: bool, bytes: bool) -> Result<Tok, String> {
        let start = self.at;
        self.at += prefix;
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut text = String::new();
        let mut out = Vec::new();
        loop {
            let c = self.peek(0);
            if self.at >= self.chars.len() || (!triple && matches!(c, '\n' | '\r')) {
                return Err(self.unknown(start));
            }
            if c == quote && (!triple || (self.peek(1) == quote && self.peek(2) == quote)) {
                self.at += width;
                break;
            }
            self.at += 1;
            let (decoded, byte) = if c == '\\' && !raw { self.escape(bytes)? } else { (c, false) };
            if !bytes {
                text.push(decoded);
            } else if byte {
                out.push(decoded as u32 as u8);
            } else {
                out.extend(decoded.to_string().bytes());
            }
        }
        Ok(if bytes { Tok::Bytes(out) } else { Tok::String(text) })
    }

    /// The character after a backslash; true if the escape names a byte.
    fn escape(&mut self, bytes: bool) -> Result<(char, bool), String> {
        let c = self.peek(0);
        self.at += 1;
        let (count, radix, skip) = match c {
            'a' => return Ok(('\u{7}', false)),
            'b' => return Ok(('\u{8}', false)),
            'f' => return Ok(('\u{c}', false)),
            'n' => return Ok(('\n', false)),
            'r' => return Ok(('\r', false)),
            't' => return Ok(('\t', false)),
            'v' => return Ok(('\u{b}', false)),
            '\\' | '\'' | '"' | '`' | '?' => return Ok((c, false)),
            'x' | 'X' => (2, 16, 0),
            'u' if !bytes => (4, 16, 0),
            'U' if !bytes => (8, 16, 0),
            '0'..='3' => (3, 8, 1),
            _ => return Err(self.unknown(self.at.saturating_sub(2))),
        };
        self.at -= skip;
        let mut value = 0u32;
        for _ in 0..count {
            let Some(digit) = self.peek(0).to_digit(radix) else {
                return Err(self.unknown(self.at.saturating_sub(1)));
            };
            value = value.wrapping_mul(radix).wrapping_add(digit);
            self.at += 1;
        }
        let decoded = char::from_u32(value).ok_or_else(|| "invalid unicode code point".to_owned())?;
        Ok((decoded, true))
    }
}
