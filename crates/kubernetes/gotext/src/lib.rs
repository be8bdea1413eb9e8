//! Formats values like Go, for answers that must equal those of a Go program: its quoting of text, its numbers and its JSON.
//!
//! `%q` is [`quote`], `%v` of JSON's values [`map`], [`number`] and [`float`]. Go's JSON encoder is [`json`] and
//! [`json_number`], and [`encode`] writes numbers in its form. [`error_value`] is a value in Kubernetes' field errors, [`json_type`] its type in the
//! messages of Go's decoder, and [`go_type`] the Go type that holds it.

use std::io;

use serde::Serialize as _;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Number, Value};

/// The character's escape sequence in a quoted text, if it has one.
pub fn escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => return None,
    })
}

/// Text in double quotes, as Go's `%q` (strconv.Quote).
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match (escape(c), u32::from(c)) {
            (Some(escape), _) => out.push_str(escape),
            _ if printable(c) => out.push(c),
            (_, code @ (..0x20 | 0x7f)) => out.push_str(&format!("\\x{code:02x}")),
            (_, code @ ..0x1_0000) => out.push_str(&format!("\\u{code:04x}")),
            (_, code) => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out.push('"');
    out
}

/// The character with a byte's number, in single quotes, as in errors of Go's JSON scanner.
pub fn quote_byte(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        other => {
            let quoted = quote(&char::from(other).to_string());
            format!("'{}'", quoted.get(1..quoted.len() - 1).unwrap_or_default())
        }
    }
}

/// Approximates Go's `unicode.IsPrint`: no controls, no spaces but the plain one, no format characters.
pub fn printable(c: char) -> bool {
    let formatting = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{e000}'..='\u{f8ff}');
    c == ' ' || !(c.is_control() || c.is_whitespace() || formatting)
}

/// The JSON type of a value, as in errors of Go's decoder.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The Go type that holds an untyped JSON value.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A float as Go's `%v`: shortest digits, an exponent below 1e-4 and from 1e6 on.
pub fn float(number: f64) -> String {
    let plain = format!("{number:e}");
    let Some((digits, exponent)) = plain.split_once('e') else { return plain };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) && number != 0.0 => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{number}"),
    }
}

/// A number as Go's `%v`.
pub fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(f) if number.is_f64() => float(f),
        _ => number.to_string(),
    }
}

/// A number as Go's JSON encoder writes it: an exponent below 1e-6 and from 1e21 on.
pub fn json_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => json_float(float),
        _ => number.to_string(),
    }
}

/// A number as its text most likely was before it was read: a whole float with a point.
pub fn as_written(number: &Number) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) if float.fract() == 0.0 && float.abs() < 1e16 => format!("{float:.1}"),
        _ => json_number(number),
    }
}

fn json_float(float: f64) -> String {
    if float != 0.0 && !(1e-6..1e21).contains(&float.abs()) {
        let text = format!("{float:e}");
        return match text.split_once("e-") {
            Some(_) => text,
            None => text.replace('e', "e+"),
        };
    }
    format!("{float}")
}

/// Formats numbers like Go's JSON encoder, everything else by default.
struct GoNumbers;

impl Formatter for GoNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        // The text is read again: Go reads its own `-0` as the integer 0.
        if value == 0.0 { writer.write_all(b"0") } else { writer.write_all(json_float(value).as_bytes()) }
    }
}

/// Appends JSON with numbers in the form of Go's encoder: the float 1 is `1`. Keeps the order of keys; does not escape HTML.
pub fn append(out: &mut Vec<u8>, value: &Value) {
    let written = value.serialize(&mut Serializer::with_formatter(out, GoNumbers));
    debug_assert!(written.is_ok(), "a value has its text, and memory takes it");
}

/// The same as bytes of their own.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    append(&mut out, value);
    out
}

/// The same as a text.
pub fn encoded(value: &Value) -> String {
    String::from_utf8(encode(value)).unwrap_or_default()
}

/// A value as Go's JSON encoder writes it: keys sorted; `<`, `>` and `&` escaped.
pub fn json(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    json_in_order(&sorted)
}

/// The same, with keys in their own order.
pub fn json_in_order(value: &Value) -> String {
    escape_html(&encoded(value))
}

/// Escapes JSON for HTML like Go.
pub fn escape_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// A value as Go's `%v` prints maps, lists and scalars.
pub fn map(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(n) => number(n),
        Value::Bool(b) => b.to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(map).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let mut parts: Vec<String> = members.iter().map(|(k, v)| format!("{k}:{}", map(v))).collect();
            parts.sort();
            format!("map[{}]", parts.join(" "))
        }
    }
}

/// A value in field errors: text quoted, numbers plain, everything else as JSON.
pub fn error_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(n) => number(n),
        other => json(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json as value;

    #[test]
    fn as_go_prints() {
        assert_eq!(quote("a\"\n\u{1}é\u{200b}"), "\"a\\\"\\n\\x01é\\u200b\"");
        for (f, text) in [
            (1.5, "1.5"),
            (1.0, "1"),
            (1e21, "1e+21"),
            (2.5e-7, "2.5e-07"),
            (0.0, "0"),
            (123_456.5, "123456.5"),
            (1e6, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (1e20, "1e+20"),
        ] {
            assert_eq!(float(f), text);
        }
        assert_eq!(encoded(&value!([1.0, -0.0, 1.5, 1e21, 1e16, 7])), "[1,0,1.5,1e+21,10000000000000000,7]");
        assert_eq!(as_written(&Number::from_f64(80.0).unwrap()), "80.0");
        for (f, text) in [(1e21, "1e+21"), (1e20, "100000000000000000000"), (1e-7, "1e-7"), (0.00001, "0.00001")] {
            assert_eq!(json_number(&Number::from_f64(f).unwrap()), text);
        }
        assert_eq!([quote_byte(b'a'), quote_byte(b'"'), quote_byte(b'\'')], ["'a'", "'\"'", "'\\''"]);
        assert_eq!([quote_byte(b'\n'), quote_byte(0x81), quote_byte(b'\\')], ["'\\n'", "'\\u0081'", "'\\\\'"]);
        assert_eq!(error_value(&value!({"b": 1, "a": "<"})), "{\"a\":\"\\u003c\",\"b\":1}");
        assert_eq!(error_value(&value!(null)), "null");
    }

    proptest! {
        #[test]
        fn quoted_text_is_one_line_of_what_can_be_printed(text in any::<String>()) {
            let quoted = quote(&text);
            prop_assert!(quoted.len() >= text.len() + 2 && quoted.chars().all(printable), "{}", quoted);
        }

        #[test]
        fn json_reads_back_as_what_it_was(text in any::<String>(), number in any::<i64>()) {
            let given = value!({text.as_str(): [number, text]});
            prop_assert_eq!(serde_json::from_str::<Value>(&json(&given)).unwrap(), given);
        }

        #[test]
        fn numbers_read_back_to_the_last_digit(number in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL) {
            let held = Number::from_f64(number).unwrap();
            prop_assert_eq!(json_number(&held).parse::<f64>().unwrap(), number);
            prop_assert_eq!(float(number).parse::<f64>().unwrap(), number);
        }
    }
}
