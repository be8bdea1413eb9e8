//! Writes values as YAML in the form of `sigs.k8s.io/yaml`: blocks of two spaces, lists not indented below their key, numbers in keys sorted as
//! numbers, strings without quotes where they stay strings, lines folded at 80 columns.

use serde_json::{Map, Value};

use super::chars::{blank_or_end, broken};
use super::resolve::needs_quotes;

/// Column from which on lines are folded.
const WIDTH: usize = 80;
/// Longest key, in bytes, that shares a line with its value.
const KEY_LENGTH: usize = 128;

/// The text of a value.
pub fn to_yaml(value: &Value) -> String {
    written(value, true)
}

/// The same, with keys in their own order.
pub fn to_yaml_in_order(value: &Value) -> String {
    written(value, false)
}

fn written(value: &Value, sorted: bool) -> String {
    let mut writer = Writer { out: String::new(), column: 0, indent: None, whitespace: true, indention: true, sorted };
    writer.node(value, false);
    if writer.column > 0 {
        writer.newline();
    }
    writer.out
}

/// How a scalar is written.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

struct Writer {
    out: String,
    column: usize,
    indent: Option<usize>,
    /// The last character written was blank.
    whitespace: bool,
    /// The line has only indentation and list markers so far.
    indention: bool,
    /// Whether keys are brought in order.
    sorted: bool,
}

impl Writer {
    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn newline(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or(0);
        if !self.indention || self.column > indent || self.column == indent && !self.whitespace {
            self.newline();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn mark(&mut self, mark: &str, apart: bool, indention: bool) {
        if apart && !self.whitespace {
            self.put(' ');
        }
        mark.chars().for_each(|c| self.put(c));
        self.whitespace = false;
        self.indention = self.indention && indention;
    }

    /// Further in by two columns, unless a list keeps its key's.
    fn deeper(&mut self, scalar: bool, same: bool) -> Option<usize> {
        let before = self.indent;
        self.indent = Some(match before {
            None => {
                if scalar {
                    2
                } else {
                    0
                }
            }
            Some(indent) if same => indent,
            Some(indent) => indent + 2,
        });
        before
    }

    /// Writes a value; `member` if it is part of a mapping.
    fn node(&mut self, value: &Value, member: bool) {
        match value {
            Value::Null => self.scalar("null", Style::Plain, false),
            Value::Bool(set) => self.scalar(if *set { "true" } else { "false" }, Style::Plain, false),
            Value::Number(number) => {
                let text =
                    number.as_f64().filter(|_| number.is_f64()).map_or_else(|| number.to_string(), gotext::float);
                self.scalar(&text, Style::Plain, false);
            }
            Value::String(text) => self.scalar(text, style(text), false),
            Value::Array(items) if items.is_empty() => self.mark("[]", true, false),
            Value::Object(map) if map.is_empty() => self.mark("{}", true, false),
            Value::Array(items) => {
                let before = self.deeper(false, member && !self.indention);
                for item in items {
                    self.write_indent();
                    self.mark("-", true, true);
                    self.node(item, false);
                }
                self.indent = before;
            }
            Value::Object(map) => self.mapping(map),
        }
    }

    fn mapping(&mut self, map: &Map<String, Value>) {
        let before = self.deeper(false, false);
        let mut members: Vec<(&String, &Value)> = map.iter().collect();
        if self.sorted {
            members.sort_by(|(a, _), (b, _)| order(a, b));
        }
        for (key, value) in members {
            self.write_indent();
            if key.len() <= KEY_LENGTH && !key.contains(broken) {
                self.scalar(key, style(key), true);
                self.mark(":", false, false);
            } else {
                self.mark("?", true, true);
                self.scalar(key, style(key), false);
                self.write_indent();
                self.mark(":", true, true);
            }
            self.node(value, true);
        }
        self.indent = before;
    }

    fn scalar(&mut self, text: &str, wanted: Style, key: bool) {
        let before = self.deeper(true, false);
        match Analysis::of(text).choose(wanted, key) {
            Style::Plain => self.plain(text, !key),
            Style::Single => self.single(text, !key),
            Style::Double => self.double(text, !key),
            Style::Literal => self.literal(text),
        }
        self.indent = before;
    }

    fn plain(&mut self, text: &str, fold: bool) {
        if !self.whitespace {
            self.put(' ');
        }
        self.words(text, fold, false);
        self.whitespace = false;
        self.indention = false;
    }

    /// Writes text, folding lines at single blanks.
    fn words(&mut self, text: &str, fold: bool, quoted: bool) {
        let chars: Vec<char> = text.chars().collect();
        let (mut spaces, mut breaks) = (false, false);
        for (at, c) in chars.iter().copied().enumerate() {
            if c == ' ' {
                let inner = !quoted || at > 0 && at + 1 < chars.len();
                if fold && inner && !spaces && self.column > WIDTH && chars.get(at + 1) != Some(&' ') {
                    self.write_indent();
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else if broken(c) {
                if !breaks && c == '\n' {
                    self.newline();
                }
                self.newline();
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if quoted && c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
    }

    fn single(&mut self, text: &str, fold: bool) {
        self.mark("'", true, false);
        self.words(text, fold, true);
        self.mark("'", false, false);
    }

    fn double(&mut self, text: &str, fold: bool) {
        self.mark("\"", true, false);
        let chars: Vec<char> = text.chars().collect();
        let mut spaces = false;
        for (at, c) in chars.iter().copied().enumerate() {
            if !printable(c) || c == '\u{feff}' || broken(c) || matches!(c, '"' | '\\') {
                escaped(c).chars().for_each(|c| self.put(c));
                spaces = false;
            } else if c == ' ' {
                if fold && !spaces && self.column > WIDTH && at > 0 && at + 1 < chars.len() {
                    self.write_indent();
                    if chars.get(at + 1) == Some(&' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(' ');
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
        }
        self.mark("\"", false, false);
    }

    fn literal(&mut self, text: &str) {
        self.mark("|", true, false);
        if text.starts_with(|c| c == ' ' || broken(c)) {
            self.mark("2", false, false);
        }
        let mut back = text.chars().rev();
        match (back.next().is_some_and(broken), back.next()) {
            (false, _) => self.mark("-", false, false),
            (true, before) if before.is_none_or(broken) => self.mark("+", false, false),
            _ => {}
        }
        self.newline();
        self.whitespace = true;
        self.indention = true;
        let mut breaks = true;
        for c in text.chars() {
            if broken(c) {
                if c == '\n' {
                    self.newline();
                } else {
                    self.out.push(c);
                    self.column = 0;
                }
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.put(c);
                self.indention = false;
                breaks = false;
            }
        }
    }
}

/// The style that the Go library chooses for a text.
fn style(text: &str) -> Style {
    if text.contains('\n') {
        Style::Literal
    } else if needs_quotes(text) {
        Style::Double
    } else {
        Style::Plain
    }
}

fn printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn escaped(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        other => {
            let code = u32::from(other);
            return match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}

/// In which styles a text can be written.
struct Analysis {
    empty: bool,
    multiline: bool,
    plain: bool,
    single: bool,
    block: bool,
}

impl Analysis {
    fn of(text: &str) -> Self {
        if text.is_empty() {
            return Self { empty: true, multiline: false, plain: true, single: true, block: false };
        }
        let chars: Vec<char> = text.chars().collect();
        let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut special, mut multiline, mut break_space, mut space_break) = (false, false, false, false);
        let (mut space_before, mut break_before, mut blank_before) = (false, false, true);
        for (index, c) in chars.iter().copied().enumerate() {
            // Unlike elsewhere a break is no blank here.
            let blank_after = matches!(at(index + 1), ' ' | '\t' | '\0');
            indicators |= match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                    if index == 0 =>
                {
                    true
                }
                '?' | '-' if index == 0 => blank_after,
                ':' => blank_after,
                '#' => blank_before,
                _ => false,
            };
            special |= !printable(c) && !broken(c) || matches!(c, '\r' | '\u{85}');
            if c == ' ' {
                break_space |= break_before;
            } else if broken(c) {
                multiline = true;
                space_break |= space_before;
            }
            (space_before, break_before, blank_before) = (c == ' ', broken(c), blank_or_end(c));
        }
        let edge = |c: char| c == ' ' || broken(c);
        let trimmed = !edge(at(0)) && !edge(at(chars.len() - 1));
        let free = !special && !space_break;
        Self {
            empty: false,
            multiline,
            plain: trimmed && free && !break_space && !multiline && !indicators,
            single: free && !break_space,
            block: free && at(chars.len() - 1) != ' ',
        }
    }

    fn choose(&self, wanted: Style, key: bool) -> Style {
        let mut style = if key && self.multiline { Style::Double } else { wanted };
        if style == Style::Plain && (!self.plain || self.empty && key) {
            style = Style::Single;
        }
        if style == Style::Single && !self.single || style == Style::Literal && (!self.block || key) {
            style = Style::Double;
        }
        style
    }
}

/// Order of keys: letters after other characters, numbers by value.
fn order(a: &str, b: &str) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    let (left, right): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(l, r)| l != r) else { return left.len().cmp(&right.len()) };
    let (l, r) = (left[at], right[at]);
    match (l.is_alphabetic(), r.is_alphabetic()) {
        (true, true) => return l.cmp(&r),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Zeros in front count only where no other digit is before them.
    let inside =
        (l == '0' || r == '0') && left[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0');
    let digits = |chars: &[char]| {
        let run: Vec<char> = chars[at..].iter().copied().take_while(char::is_ascii_digit).collect();
        let start = u128::from(inside);
        let value = run
            .iter()
            .fold(start, |sum, c| sum.saturating_mul(10).saturating_add(u128::from(c.to_digit(10).unwrap_or(0))));
        (value, run.len())
    };
    digits(&left).cmp(&digits(&right)).then(l.cmp(&r))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_as_the_go_library_does() {
        let long = "word ".repeat(40);
        let value = json!({"a": {"b": [1, {"c": "x", "d": [[1, 2], []]}], "e": {}}, "v10": null, "v9": true, "n": 1.5,
            "yes": "no", "f:m": ".", "t": "2026-01-02T03:04:05Z", "l": "a\nb\n", "m": "a\n b", "p": "x\n\n", "q": "- a",
            "w": "a: b", "x": " a", "y": "a\tb", "z": "it's", "k": "😀", "long": long.trim(), "#": "a #b"});
        let text = "'#': 'a #b'
a:
  b:
  - 1
  - c: x
    d:
    - - 1
      - 2
    - []
  e: {}
f:m: .
k: \"\\U0001F600\"
l: |
  a
  b
long: word word word word word word word word word word word word word word word word
  word word word word word word word word word word word word word word word word
  word word word word word word word word
m: |-
  a
   b
\"n\": 1.5
p: |+
  x

q: '- a'
t: \"2026-01-02T03:04:05Z\"
v9: true
v10: null
w: 'a: b'
x: ' a'
\"y\": \"a\\tb\"
\"yes\": \"no\"
z: it's
";
        assert_eq!(to_yaml(&value), text);
    }

    #[test]
    fn keys_are_sorted_by_their_numbers() {
        let mut keys = ["a10", "a9", "b", "a-", "a", "1", "A", "a01", "a1"];
        keys.sort_by(|a, b| order(a, b));
        assert_eq!(keys, ["1", "A", "a", "a-", "a1", "a01", "a9", "a10", "b"]);
    }
}
