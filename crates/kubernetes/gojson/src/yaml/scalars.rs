//! Scalars of YAML: in quotes, plain, and in blocks.

use super::chars::{blank, blank_or_end, broken, end_of_line};
use super::scan::{Fault, Kind, Mark, Scanner};

/// Blanks and line breaks within a scalar, until the next character decides what they mean.
#[derive(Default)]
struct Gap {
    blanks: String,
    first_break: String,
    more_breaks: String,
    broken: bool,
}

impl Gap {
    fn is_empty(&self) -> bool {
        !self.broken && self.blanks.is_empty()
    }

    /// One line break is a space, more of them are one less.
    fn fold(&mut self, into: &mut String) {
        if self.broken {
            if !self.first_break.starts_with('\n') {
                into.push_str(&self.first_break);
                into.push_str(&self.more_breaks);
            } else if self.more_breaks.is_empty() {
                into.push(' ');
            } else {
                into.push_str(&self.more_breaks);
            }
        } else {
            into.push_str(&self.blanks);
        }
        *self = Self::default();
    }
}

impl Scanner {
    /// Reads blanks and line breaks.
    fn gap(&mut self, gap: &mut Gap) {
        let sign = self.look(0);
        if blank(sign) {
            if gap.broken {
                self.skip();
            } else {
                self.read(&mut gap.blanks);
            }
        } else if gap.broken {
            self.read_break(&mut gap.more_breaks);
        } else {
            gap.blanks.clear();
            self.read_break(&mut gap.first_break);
            gap.broken = true;
        }
    }

    /// A scalar in quotes.
    pub(super) fn quoted(&mut self) -> Result<Kind, Fault> {
        let (start, quote) = (self.mark, self.look(0));
        self.skip();
        let mut text = String::new();
        loop {
            if self.document_sign('-') || self.document_sign('.') {
                return Err(self.fault(start, "found unexpected document indicator"));
            }
            if self.look(0) == '\0' {
                return Err(self.fault(start, "found unexpected end of stream"));
            }
            let mut gap = Gap::default();
            while !blank_or_end(self.look(0)) {
                match (self.look(0), self.look(1)) {
                    ('\'', '\'') if quote == '\'' => {
                        text.push('\'');
                        self.skip();
                        self.skip();
                    }
                    (sign, _) if sign == quote => break,
                    ('\\', next) if quote == '"' && broken(next) => {
                        self.skip();
                        self.skip_break();
                        // An escaped line break produces nothing.
                        gap.broken = true;
                        break;
                    }
                    ('\\', _) if quote == '"' => self.escape(start, &mut text)?,
                    _ => self.read(&mut text),
                }
            }
            if self.look(0) == quote {
                break;
            }
            while blank(self.look(0)) || broken(self.look(0)) {
                self.gap(&mut gap);
            }
            gap.fold(&mut text);
        }
        self.skip();
        Ok(Kind::Scalar(text, false))
    }

    fn escape(&mut self, start: Mark, text: &mut String) -> Result<(), Fault> {
        let plain = match self.look(1) {
            '0' => '\0',
            'a' => '\u{7}',
            'b' => '\u{8}',
            't' | '\t' => '\t',
            'n' => '\n',
            'v' => '\u{b}',
            'f' => '\u{c}',
            'r' => '\r',
            'e' => '\u{1b}',
            same @ (' ' | '"' | '\'' | '\\') => same,
            'N' => '\u{85}',
            '_' => '\u{a0}',
            'L' => '\u{2028}',
            'P' => '\u{2029}',
            'x' => return self.code(start, 2, text),
            'u' => return self.code(start, 4, text),
            'U' => return self.code(start, 8, text),
            _ => return Err(self.fault(start, "found unknown escape character")),
        };
        text.push(plain);
        self.skip();
        self.skip();
        Ok(())
    }

    fn code(&mut self, start: Mark, digits: usize, text: &mut String) -> Result<(), Fault> {
        self.skip();
        self.skip();
        let mut value = 0u64;
        for at in 0..digits {
            let digit = self.look(at).to_digit(16);
            let digit = digit.ok_or_else(|| self.fault(start, "did not find expected hexdecimal number"))?;
            value = value * 16 + u64::from(digit);
        }
        let c = u32::try_from(value).ok().and_then(char::from_u32);
        text.push(c.ok_or_else(|| self.fault(start, "found invalid Unicode character escape code"))?);
        for _ in 0..digits {
            self.skip();
        }
        Ok(())
    }

    /// A scalar without quotes.
    pub(super) fn plain(&mut self) -> Result<Kind, Fault> {
        let (start, indent) = (self.mark, self.inner_indent());
        let (mut text, mut gap) = (String::new(), Gap::default());
        loop {
            if self.document_sign('-') || self.document_sign('.') || self.look(0) == '#' {
                break;
            }
            while !blank_or_end(self.look(0)) {
                let sign = self.look(0);
                if sign == ':' && blank_or_end(self.look(1)) || self.in_flow() && ",?[]{}".contains(sign) {
                    break;
                }
                if !gap.is_empty() {
                    gap.fold(&mut text);
                }
                self.read(&mut text);
            }
            if !(blank(self.look(0)) || broken(self.look(0))) {
                break;
            }
            while blank(self.look(0)) || broken(self.look(0)) {
                if gap.broken && self.mark.column < indent && self.look(0) == '\t' {
                    return Err(self.fault(start, "found a tab character that violates indentation"));
                }
                self.gap(&mut gap);
            }
            if !self.in_flow() && self.mark.column < indent {
                break;
            }
        }
        if gap.broken {
            self.allow_key();
        }
        Ok(Kind::Scalar(text, true))
    }

    /// A scalar of lines that are further in.
    pub(super) fn block_scalar(&mut self, literal: bool) -> Result<Kind, Fault> {
        let start = self.mark;
        self.skip();
        let (mut chomping, mut increment) = (' ', 0);
        for _ in 0..2 {
            match self.look(0) {
                sign @ ('+' | '-') if chomping == ' ' => {
                    chomping = sign;
                    self.skip();
                }
                '0' if increment == 0 => {
                    return Err(self.fault(start, "found an indentation indicator equal to 0"));
                }
                digit @ '1'..='9' if increment == 0 => {
                    increment = digit.to_digit(10).map_or(0, |d| d as usize);
                    self.skip();
                }
                _ => break,
            }
        }
        self.rest_of_line(start)?;
        let mut indent = if increment > 0 { self.block_indent().unwrap_or(0) + increment } else { 0 };
        let (mut text, mut first, mut more) = (String::new(), String::new(), String::new());
        self.block_breaks(&mut indent, &mut more, start)?;
        let mut blank_before = false;
        while self.mark.column == indent && self.look(0) != '\0' {
            let blank_now = blank(self.look(0));
            if !literal && !blank_before && !blank_now && first.starts_with('\n') {
                if more.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(&first);
            }
            text.push_str(&more);
            first.clear();
            more.clear();
            blank_before = blank_now;
            while !end_of_line(self.look(0)) {
                self.read(&mut text);
            }
            self.read_break(&mut first);
            self.block_breaks(&mut indent, &mut more, start)?;
        }
        if chomping != '-' {
            text.push_str(&first);
        }
        if chomping == '+' {
            text.push_str(&more);
        }
        Ok(Kind::Scalar(text, false))
    }

    /// Empty lines, and the indentation that the first other one has if none is given.
    fn block_breaks(&mut self, indent: &mut usize, breaks: &mut String, start: Mark) -> Result<(), Fault> {
        let mut widest = 0;
        loop {
            while (*indent == 0 || self.mark.column < *indent) && self.look(0) == ' ' {
                self.skip();
            }
            widest = widest.max(self.mark.column);
            if (*indent == 0 || self.mark.column < *indent) && self.look(0) == '\t' {
                return Err(self.fault(start, "found a tab character where an indentation space is expected"));
            }
            if !broken(self.look(0)) {
                break;
            }
            self.read_break(breaks);
        }
        if *indent == 0 {
            *indent = widest.max(self.inner_indent()).max(1);
        }
        Ok(())
    }
}
