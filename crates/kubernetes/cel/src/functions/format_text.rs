//! `string.format` (cel-go's `ext/formatting.go`).

use std::fmt::Write;

use super::convert;
use crate::fault::Fault;
use crate::value::{Outcome, Value};

/// Most digits after the point.
const MAX_PRECISION: usize = 1000;
/// The largest text.
const MAX_TEXT: usize = 16 << 20;

pub(super) fn format(pattern: &str, args: &[Value]) -> Outcome {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut next = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            out.push('%');
            continue;
        }
        let mut precision = 6;
        if chars.peek() == Some(&'.') {
            chars.next();
            let mut digits = String::new();
            while let Some(d) = chars.next_if(char::is_ascii_digit) {
                digits.push(d);
            }
            precision = digits.parse().map_err(|_| Fault::new("error while parsing precision"))?;
            if precision > MAX_PRECISION {
                return Err(Fault::new("error while parsing precision"));
            }
        }
        let clause = chars.next().ok_or_else(|| Fault::new("unexpected end of string"))?;
        let arg = args.get(next).ok_or_else(|| Fault::new(format!("index {next} out of range")))?;
        next += 1;
        clause_of(clause, arg, precision, &mut out)?;
        if out.len() > MAX_TEXT {
            return Err(Fault::new("text too large"));
        }
    }
    Ok(Value::string(&out))
}

fn clause_of(clause: char, arg: &Value, precision: usize, out: &mut String) -> Result<(), Fault> {
    let wrong = |what: &str, allowed: &str| {
        let ty = arg.type_of();
        Fault::new(format!(
            "error during formatting: {what} clause can only be used on {allowed}, was given {}",
            ty.runtime_name()
        ))
    };
    match (clause, arg) {
        ('s', value) => text(value, out, false)?,
        ('d', Value::Int(n)) => push(out, format_args!("{n}")),
        ('d', Value::Uint(n)) => push(out, format_args!("{n}")),
        ('d', _) => return Err(wrong("decimal", "integers")),
        ('f', Value::Double(d)) => push(out, format_args!("{d:.precision$}")),
        ('f', _) => return Err(wrong("fixed-point", "doubles")),
        ('e', Value::Double(d)) => {
            let text = format!("{d:.precision$e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
            push(out, format_args!("{mantissa}e{sign}{digits:0>2}"));
        }
        ('e', _) => return Err(wrong("scientific", "doubles")),
        ('b', Value::Int(n)) => signed(out, *n, |n| format!("{n:b}")),
        ('b', Value::Uint(n)) => push(out, format_args!("{n:b}")),
        ('b', Value::Bool(b)) => push(out, format_args!("{}", u8::from(*b))),
        ('b', _) => return Err(wrong("only integers and bools can be formatted as binary: binary", "them")),
        ('o', Value::Int(n)) => signed(out, *n, |n| format!("{n:o}")),
        ('o', Value::Uint(n)) => push(out, format_args!("{n:o}")),
        ('o', _) => return Err(wrong("octal", "integers")),
        ('x' | 'X', value) => {
            hex(value, clause == 'X', out).ok_or_else(|| wrong("hex", "integers, byte buffers, and strings"))?
        }
        (other, _) => {
            return Err(Fault::new(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{other}\""
            )));
        }
    }
    Ok(())
}

fn push(out: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(args);
}

fn signed(out: &mut String, n: i64, show: impl Fn(u64) -> String) {
    if n < 0 {
        out.push('-');
    }
    out.push_str(&show(n.unsigned_abs()));
}

fn hex(value: &Value, upper: bool, out: &mut String) -> Option<()> {
    let mut digits = String::new();
    match value {
        Value::Int(n) => signed(&mut digits, *n, |n| format!("{n:x}")),
        Value::Uint(n) => push(&mut digits, format_args!("{n:x}")),
        Value::String(s) => s.bytes().for_each(|b| push(&mut digits, format_args!("{b:02x}"))),
        Value::Bytes(b) => b.iter().for_each(|b| push(&mut digits, format_args!("{b:02x}"))),
        _ => return None,
    }
    out.push_str(&if upper { digits.to_uppercase() } else { digits });
    Some(())
}

/// Nesting of lists and maps that is printed.
fn text(value: &Value, out: &mut String, nested: bool) -> Result<(), Fault> {
    match value {
        Value::List(list) => {
            out.push('[');
            for (at, item) in list.items.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                text(item, out, true)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut pairs = Vec::new();
            for (key, value) in &map.entries {
                let (mut k, mut v) = (String::new(), String::new());
                text(&key.value(), &mut k, true)?;
                text(value, &mut v, true)?;
                pairs.push((k, v));
            }
            pairs.sort();
            out.push('{');
            for (at, (k, v)) in pairs.iter().enumerate() {
                push(out, format_args!("{}{k}:{v}", if at > 0 { ", " } else { "" }));
            }
            out.push('}');
        }
        Value::String(s) if nested => push(out, format_args!("{s:?}")),
        Value::Double(d) if nested => push(out, format_args!("{d:.6}")),
        Value::Timestamp(_) if nested => push(out, format_args!("timestamp({:?})", convert::show(value))),
        Value::Duration(_) if nested => push(out, format_args!("duration({:?})", convert::show(value))),
        other => match convert::to_string(other)? {
            Some(text) => out.push_str(&text),
            None => {
                let ty = other.type_of();
                return Err(Fault::new(format!(
                    "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                    ty.runtime_name()
                )));
            }
        },
    }
    Ok(())
}
