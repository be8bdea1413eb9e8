//! The tokenizer of YAML 1.1, with the tokens and errors of `go.yaml.in/yaml/v2`.
//!
//! A *simple key* is a token that becomes a key if a `:` follows: its position in the queue of tokens is remembered, so that the mapping's tokens can
//! be inserted before it. A required key of a block mapping is an error without a `:`.

use std::collections::VecDeque;

use super::chars::{alpha, blank, blank_or_end, broken, end_of_line};

/// Characters between a simple key's start and its `:`.
const KEY_LENGTH: usize = 1024;

/// A place in the text; lines count from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    at: usize,
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// An error and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    problem: String,
    line: usize,
    context: usize,
    scanner: bool,
}

impl Fault {
    /// A fault of the scanner.
    pub fn scanned(context: Mark, problem: &str, at: Mark) -> Self {
        Self { problem: problem.to_owned(), line: at.line, context: context.line, scanner: true }
    }

    /// A fault of the parser.
    pub fn parsed(context: Mark, problem: &str, at: Mark) -> Self {
        Self { problem: problem.to_owned(), line: at.line, context: context.line, scanner: false }
    }
}

impl std::error::Error for Fault {}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Line 0, the first, is not reported; the scanner counts lines from 1, the parser from 0.
        let line = match self.line {
            0 => self.context,
            line => line + usize::from(self.scanner),
        };
        if line > 0 {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// End of the text.
    End,
    /// `%YAML`, with the version.
    Version(u32, u32),
    /// `%TAG`, with handle and prefix.
    TagDirective(String, String),
    /// `---`.
    DocumentStart,
    /// `...`.
    DocumentEnd,
    /// A block sequence begins.
    SequenceStart,
    /// A block mapping begins.
    MappingStart,
    /// A list or mapping in lines ends.
    BlockEnd,
    /// `[`.
    Bracket,
    /// `]`.
    BracketEnd,
    /// `{`.
    Brace,
    /// `}`.
    BraceEnd,
    /// `-`.
    Entry,
    /// `,`.
    Comma,
    /// A key follows.
    Key,
    /// A value follows.
    Value,
    /// `*name`.
    Alias(String),
    /// `&name`.
    Anchor(String),
    /// `!tag`: handle and suffix.
    Tag(String, String),
    /// A scalar, and whether it is plain.
    Scalar(String, bool),
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Where it begins.
    pub start: Mark,
    /// Where it ends.
    pub end: Mark,
}

#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    required: bool,
    number: usize,
    mark: Mark,
}

/// Finds tokens.
pub struct Scanner {
    text: Vec<char>,
    pub(super) mark: Mark,
    queue: VecDeque<Token>,
    /// Tokens taken from the queue so far.
    taken: usize,
    keys: Vec<SimpleKey>,
    key_allowed: bool,
    flow: usize,
    indent: Option<usize>,
    indents: Vec<Option<usize>>,
    ended: bool,
}

impl Scanner {
    /// Over a text.
    pub fn new(text: Vec<char>) -> Self {
        Self {
            text,
            mark: Mark::default(),
            queue: VecDeque::new(),
            taken: 0,
            keys: vec![SimpleKey::default()],
            key_allowed: true,
            flow: 0,
            indent: None,
            indents: Vec::new(),
            ended: false,
        }
    }

    /// The next token, without taking it.
    pub fn peek(&mut self) -> Result<&Token, Fault> {
        while self.queue.is_empty() || self.may_be_key()? {
            self.fetch()?;
        }
        self.queue.front().ok_or_else(|| Fault::scanned(self.mark, "unknown problem parsing YAML content", self.mark))
    }

    /// The next token.
    pub fn take(&mut self) -> Result<Token, Fault> {
        let token = self.peek()?.clone();
        self.queue.pop_front();
        self.taken += 1;
        Ok(token)
    }

    /// Whether a mapping may have to begin before the first token.
    fn may_be_key(&mut self) -> Result<bool, Fault> {
        if self.ended {
            return Ok(false);
        }
        match self.keys.iter().position(|key| key.possible && key.number == self.taken) {
            Some(at) => self.valid(at),
            None => Ok(false),
        }
    }

    /// The character `ahead`, or NUL after the end.
    pub(super) fn look(&self, ahead: usize) -> char {
        self.text.get(self.mark.at + ahead).copied().unwrap_or('\0')
    }

    pub(super) fn skip(&mut self) {
        self.mark.at += 1;
        self.mark.column += 1;
    }

    /// Reads a character into a text.
    pub(super) fn read(&mut self, into: &mut String) {
        into.push(self.look(0));
        self.skip();
    }

    /// Reads a line break into a text, normalised.
    pub(super) fn read_break(&mut self, into: &mut String) {
        match self.look(0) {
            '\0' => return,
            '\r' | '\n' | '\u{85}' => into.push('\n'),
            other => into.push(other),
        }
        self.skip_break();
    }

    pub(super) fn skip_break(&mut self) {
        if self.look(0) == '\r' && self.look(1) == '\n' {
            self.mark.at += 1;
        }
        if broken(self.look(0)) {
            self.mark.at += 1;
            self.mark.column = 0;
            self.mark.line += 1;
        }
    }

    pub(super) fn fault(&self, context: Mark, problem: &str) -> Fault {
        Fault::scanned(context, problem, self.mark)
    }

    /// Column of the block that the scanner is in, 0 outside of any plus one.
    pub(super) fn inner_indent(&self) -> usize {
        self.indent.map_or(0, |indent| indent + 1)
    }

    pub(super) fn block_indent(&self) -> Option<usize> {
        self.indent
    }

    pub(super) fn in_flow(&self) -> bool {
        self.flow > 0
    }

    pub(super) fn allow_key(&mut self) {
        self.key_allowed = true;
    }

    fn push(&mut self, kind: Kind, start: Mark) {
        self.queue.push_back(Token { kind, start, end: self.mark });
    }

    /// A token of some characters.
    fn push_signs(&mut self, kind: Kind, signs: usize) {
        let start = self.mark;
        for _ in 0..signs {
            self.skip();
        }
        self.push(kind, start);
    }

    fn valid(&mut self, at: usize) -> Result<bool, Fault> {
        let key = self.keys[at];
        if !key.possible {
            return Ok(false);
        }
        if key.mark.line < self.mark.line || key.mark.at + KEY_LENGTH < self.mark.at {
            if key.required {
                return Err(self.fault(key.mark, "could not find expected ':'"));
            }
            self.keys[at].possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    fn save_key(&mut self) -> Result<(), Fault> {
        if self.key_allowed {
            let required = self.flow == 0 && self.indent == Some(self.mark.column);
            let key = SimpleKey { possible: true, required, number: self.taken + self.queue.len(), mark: self.mark };
            self.drop_key()?;
            if let Some(last) = self.keys.last_mut() {
                *last = key;
            }
        }
        Ok(())
    }

    fn drop_key(&mut self) -> Result<(), Fault> {
        let mark = self.mark;
        if let Some(key) = self.keys.last_mut().filter(|key| key.possible) {
            if key.required {
                return Err(Fault::scanned(key.mark, "could not find expected ':'", mark));
            }
            key.possible = false;
        }
        Ok(())
    }

    /// Begins a block at a column, if that is deeper; inserts its token before the token of that number, or at the end.
    fn roll(&mut self, column: usize, number: Option<usize>, kind: Kind, mark: Mark) {
        if self.flow == 0 && self.indent.is_none_or(|indent| indent < column) {
            self.indents.push(self.indent);
            self.indent = Some(column);
            let token = Token { kind, start: mark, end: mark };
            match number {
                Some(number) => self.queue.insert(number.saturating_sub(self.taken).min(self.queue.len()), token),
                None => self.queue.push_back(token),
            }
        }
    }

    /// Ends the blocks that are further in than a column.
    fn unroll(&mut self, column: Option<usize>) {
        while self.flow == 0 && self.indent > column {
            self.push(Kind::BlockEnd, self.mark);
            self.indent = self.indents.pop().flatten();
        }
    }

    fn pass_blanks(&mut self) {
        loop {
            if self.mark.column == 0 && self.look(0) == '\u{feff}' {
                self.skip();
            }
            while self.look(0) == ' ' || (self.flow > 0 || !self.key_allowed) && self.look(0) == '\t' {
                self.skip();
            }
            if self.look(0) == '#' {
                while !end_of_line(self.look(0)) {
                    self.skip();
                }
            }
            if !broken(self.look(0)) {
                return;
            }
            self.skip_break();
            if self.flow == 0 {
                self.key_allowed = true;
            }
        }
    }

    pub(super) fn document_sign(&self, sign: char) -> bool {
        self.mark.column == 0 && (0..3).all(|at| self.look(at) == sign) && blank_or_end(self.look(3))
    }

    fn fetch(&mut self) -> Result<(), Fault> {
        self.pass_blanks();
        self.unroll(Some(self.mark.column));
        let sign = self.look(0);
        let blank_next = blank_or_end(self.look(1));
        match sign {
            '\0' => self.fetch_end(),
            '%' if self.mark.column == 0 => {
                self.leave_blocks()?;
                let (start, kind) = (self.mark, self.directive()?);
                self.push(kind, start);
                Ok(())
            }
            '-' if self.document_sign('-') => {
                self.leave_blocks()?;
                self.push_signs(Kind::DocumentStart, 3);
                Ok(())
            }
            '.' if self.document_sign('.') => {
                self.leave_blocks()?;
                self.push_signs(Kind::DocumentEnd, 3);
                Ok(())
            }
            '[' | '{' => self.fetch_flow_start(if sign == '[' { Kind::Bracket } else { Kind::Brace }),
            ']' | '}' => self.fetch_flow_end(if sign == ']' { Kind::BracketEnd } else { Kind::BraceEnd }),
            ',' => {
                self.drop_key()?;
                self.key_allowed = true;
                self.push_signs(Kind::Comma, 1);
                Ok(())
            }
            '-' if blank_next => self.fetch_entry(),
            '?' if self.flow > 0 || blank_next => self.fetch_key(),
            ':' if self.flow > 0 || blank_next => self.fetch_value(),
            '*' | '&' => self.fetch_with_key(Self::anchor),
            '!' => self.fetch_with_key(Self::tag),
            '|' | '>' if self.flow == 0 => {
                self.drop_key()?;
                self.key_allowed = true;
                let (start, kind) = (self.mark, self.block_scalar(sign == '|')?);
                self.push(kind, start);
                Ok(())
            }
            '\'' | '"' => self.fetch_with_key(Self::quoted),
            _ if self.begins_plain(sign) => self.fetch_with_key(Self::plain),
            _ => Err(self.fault(self.mark, "found character that cannot start any token")),
        }
    }

    fn begins_plain(&self, sign: char) -> bool {
        let indicator = matches!(
            sign,
            '-' | '?'
                | ':'
                | ','
                | '['
                | ']'
                | '{'
                | '}'
                | '#'
                | '&'
                | '*'
                | '!'
                | '|'
                | '>'
                | '\''
                | '"'
                | '%'
                | '@'
                | '`'
        );
        !(blank_or_end(sign) || indicator)
            || sign == '-' && !blank(self.look(1))
            || self.flow == 0 && matches!(sign, '?' | ':') && !blank_or_end(self.look(1))
    }

    fn leave_blocks(&mut self) -> Result<(), Fault> {
        self.unroll(None);
        self.drop_key()?;
        self.key_allowed = false;
        Ok(())
    }

    fn fetch_end(&mut self) -> Result<(), Fault> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.leave_blocks()?;
        self.ended = true;
        self.push(Kind::End, self.mark);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: Kind) -> Result<(), Fault> {
        self.save_key()?;
        self.keys.push(SimpleKey { mark: self.mark, ..SimpleKey::default() });
        self.flow += 1;
        self.key_allowed = true;
        self.push_signs(kind, 1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: Kind) -> Result<(), Fault> {
        self.drop_key()?;
        if self.flow > 0 {
            self.flow -= 1;
            self.keys.pop();
        }
        self.key_allowed = false;
        self.push_signs(kind, 1);
        Ok(())
    }

    fn fetch_entry(&mut self) -> Result<(), Fault> {
        if self.flow == 0 {
            if !self.key_allowed {
                return Err(self.fault(self.mark, "block sequence entries are not allowed in this context"));
            }
            self.roll(self.mark.column, None, Kind::SequenceStart, self.mark);
        }
        self.drop_key()?;
        self.key_allowed = true;
        self.push_signs(Kind::Entry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Fault> {
        if self.flow == 0 {
            if !self.key_allowed {
                return Err(self.fault(self.mark, "mapping keys are not allowed in this context"));
            }
            self.roll(self.mark.column, None, Kind::MappingStart, self.mark);
        }
        self.drop_key()?;
        self.key_allowed = self.flow == 0;
        self.push_signs(Kind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Fault> {
        let last = self.keys.len().saturating_sub(1);
        if self.valid(last)? {
            let key = self.keys[last];
            let token = Token { kind: Kind::Key, start: key.mark, end: key.mark };
            self.queue.insert(key.number.saturating_sub(self.taken).min(self.queue.len()), token);
            self.roll(key.mark.column, Some(key.number), Kind::MappingStart, key.mark);
            self.keys[last].possible = false;
            self.key_allowed = false;
        } else {
            if self.flow == 0 {
                if !self.key_allowed {
                    return Err(self.fault(self.mark, "mapping values are not allowed in this context"));
                }
                self.roll(self.mark.column, None, Kind::MappingStart, self.mark);
            }
            self.key_allowed = self.flow == 0;
        }
        self.push_signs(Kind::Value, 1);
        Ok(())
    }

    /// A token that may be a simple key.
    fn fetch_with_key(&mut self, scan: fn(&mut Self) -> Result<Kind, Fault>) -> Result<(), Fault> {
        self.save_key()?;
        self.key_allowed = false;
        let (start, kind) = (self.mark, scan(self)?);
        self.push(kind, start);
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while blank(self.look(0)) {
            self.skip();
        }
    }

    /// Blanks, a comment, and the end of the line.
    pub(super) fn rest_of_line(&mut self, start: Mark) -> Result<(), Fault> {
        self.skip_blanks();
        if self.look(0) == '#' {
            while !end_of_line(self.look(0)) {
                self.skip();
            }
        }
        if !end_of_line(self.look(0)) {
            return Err(self.fault(start, "did not find expected comment or line break"));
        }
        self.skip_break();
        Ok(())
    }

    fn directive(&mut self) -> Result<Kind, Fault> {
        let start = self.mark;
        self.skip();
        let mut name = String::new();
        while alpha(self.look(0)) {
            self.read(&mut name);
        }
        if name.is_empty() {
            return Err(self.fault(start, "could not find expected directive name"));
        }
        if !blank_or_end(self.look(0)) {
            return Err(self.fault(start, "found unexpected non-alphabetical character"));
        }
        let kind = match name.as_str() {
            "YAML" => {
                self.skip_blanks();
                let major = self.version_number(start)?;
                if self.look(0) != '.' {
                    return Err(self.fault(start, "did not find expected digit or '.' character"));
                }
                self.skip();
                Kind::Version(major, self.version_number(start)?)
            }
            "TAG" => {
                self.skip_blanks();
                let handle = self.tag_handle(true, start)?;
                if !blank(self.look(0)) {
                    return Err(self.fault(start, "did not find expected whitespace"));
                }
                self.skip_blanks();
                let prefix = self.tag_uri("", start)?;
                if !blank_or_end(self.look(0)) {
                    return Err(self.fault(start, "did not find expected whitespace or line break"));
                }
                Kind::TagDirective(handle, prefix)
            }
            _ => return Err(self.fault(start, "found unknown directive name")),
        };
        self.rest_of_line(start)?;
        Ok(kind)
    }

    fn version_number(&mut self, start: Mark) -> Result<u32, Fault> {
        let (mut value, mut length) = (0, 0);
        while let Some(digit) = self.look(0).to_digit(10) {
            length += 1;
            if length > 2 {
                return Err(self.fault(start, "found extremely long version number"));
            }
            value = value * 10 + digit;
            self.skip();
        }
        if length == 0 {
            return Err(self.fault(start, "did not find expected version number"));
        }
        Ok(value)
    }

    fn anchor(&mut self) -> Result<Kind, Fault> {
        let (start, alias) = (self.mark, self.look(0) == '*');
        self.skip();
        let mut name = String::new();
        while alpha(self.look(0)) {
            self.read(&mut name);
        }
        let next = self.look(0);
        if name.is_empty() || !(blank_or_end(next) || "?:,]}%@`".contains(next)) {
            return Err(self.fault(start, "did not find expected alphabetic or numeric character"));
        }
        Ok(if alias { Kind::Alias(name) } else { Kind::Anchor(name) })
    }

    fn tag(&mut self) -> Result<Kind, Fault> {
        let start = self.mark;
        let (handle, suffix) = if self.look(1) == '<' {
            self.skip();
            self.skip();
            let suffix = self.tag_uri("", start)?;
            if self.look(0) != '>' {
                return Err(self.fault(start, "did not find the expected '>'"));
            }
            self.skip();
            (String::new(), suffix)
        } else {
            let handle = self.tag_handle(false, start)?;
            if handle.len() > 1 && handle.ends_with('!') {
                let suffix = self.tag_uri("", start)?;
                (handle, suffix)
            } else {
                match self.tag_uri(&handle, start)? {
                    suffix if suffix.is_empty() => (suffix, "!".to_owned()),
                    suffix => ("!".to_owned(), suffix),
                }
            }
        };
        if !blank_or_end(self.look(0)) {
            return Err(self.fault(start, "did not find expected whitespace or line break"));
        }
        Ok(Kind::Tag(handle, suffix))
    }

    fn tag_handle(&mut self, directive: bool, start: Mark) -> Result<String, Fault> {
        if self.look(0) != '!' {
            return Err(self.fault(start, "did not find expected '!'"));
        }
        let mut handle = String::new();
        self.read(&mut handle);
        while alpha(self.look(0)) {
            self.read(&mut handle);
        }
        if self.look(0) == '!' {
            self.read(&mut handle);
        } else if directive && handle != "!" {
            return Err(self.fault(start, "did not find expected '!'"));
        }
        Ok(handle)
    }

    /// Reads the rest of a tag whose `head` has been read as a handle.
    fn tag_uri(&mut self, head: &str, start: Mark) -> Result<String, Fault> {
        let mut uri: Vec<u8> = head.strip_prefix('!').unwrap_or_default().as_bytes().to_vec();
        let mut found = !head.is_empty();
        loop {
            let sign = self.look(0);
            if sign == '%' {
                self.uri_octets(start, &mut uri)?;
            } else if alpha(sign) || ";/?:@&=+$,.!~*'()[]".contains(sign) {
                uri.push(sign as u8);
                self.skip();
            } else {
                break;
            }
            found = true;
        }
        if !found {
            return Err(self.fault(start, "did not find expected tag URI"));
        }
        Ok(String::from_utf8_lossy(&uri).into_owned())
    }

    fn uri_octets(&mut self, start: Mark, uri: &mut Vec<u8>) -> Result<(), Fault> {
        let mut left = None;
        loop {
            let digits = (self.look(1).to_digit(16), self.look(2).to_digit(16));
            let ('%', (Some(high), Some(low))) = (self.look(0), digits) else {
                return Err(self.fault(start, "did not find URI escaped octet"));
            };
            let octet = (high * 16 + low) as u8;
            let more = match (left, octet) {
                (None, 0..0x80) => 0,
                (None, 0xc0..0xe0) => 1,
                (None, 0xe0..0xf0) => 2,
                (None, 0xf0..0xf8) => 3,
                (None, _) => return Err(self.fault(start, "found an incorrect leading UTF-8 octet")),
                (Some(left), 0x80..0xc0) => left - 1,
                (Some(_), _) => return Err(self.fault(start, "found an incorrect trailing UTF-8 octet")),
            };
            uri.push(octet);
            for _ in 0..3 {
                self.skip();
            }
            if more == 0 {
                return Ok(());
            }
            left = Some(more);
        }
    }
}
