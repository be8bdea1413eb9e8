//! Text functions (cel-go's `ext/strings.go`, version 2).

use super::format_text;
use crate::fault::Fault;
use crate::value::{Outcome, Value};

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let text = |s: &str| Ok(Value::string(s));
    Some(match (name, args) {
        ("contains", [Value::String(s), Value::String(part)]) => Ok(Value::Bool(s.contains(&**part))),
        ("startsWith", [Value::String(s), Value::String(part)]) => Ok(Value::Bool(s.starts_with(&**part))),
        ("endsWith", [Value::String(s), Value::String(part)]) => Ok(Value::Bool(s.ends_with(&**part))),
        ("lowerAscii", [Value::String(s)]) => text(&s.to_ascii_lowercase()),
        ("upperAscii", [Value::String(s)]) => text(&s.to_ascii_uppercase()),
        ("trim", [Value::String(s)]) => text(s.trim()),
        ("charAt", [Value::String(s), Value::Int(at)]) => char_at(s, *at),
        ("indexOf", [Value::String(s), Value::String(part)]) => index_of(s, part, 0),
        ("indexOf", [Value::String(s), Value::String(part), Value::Int(from)]) => index_of(s, part, *from),
        ("lastIndexOf", [Value::String(s), Value::String(part)]) => {
            let length = s.chars().count() as i64;
            if part.is_empty() { Ok(Value::Int(length)) } else { last_index_of(s, part, (length - 1).max(0)) }
        }
        ("lastIndexOf", [Value::String(s), Value::String(part), Value::Int(from)]) => last_index_of(s, part, *from),
        ("replace", [Value::String(s), Value::String(old), Value::String(new)]) => replace(s, old, new, -1),
        ("replace", [Value::String(s), Value::String(old), Value::String(new), Value::Int(n)]) => {
            replace(s, old, new, *n)
        }
        ("split", [Value::String(s), Value::String(by)]) => Ok(split(s, by, -1)),
        ("split", [Value::String(s), Value::String(by), Value::Int(n)]) => Ok(split(s, by, *n)),
        ("substring", [Value::String(s), Value::Int(start)]) => {
            let length = s.chars().count() as i64;
            if *start < 0 || *start > length { Err(out_of_range(*start)) } else { substring(s, *start, length) }
        }
        ("substring", [Value::String(s), Value::Int(start), Value::Int(end)]) => substring(s, *start, *end),
        ("join", [Value::List(list)]) => join(&list.items, ""),
        ("join", [Value::List(list), Value::String(by)]) => join(&list.items, by),
        ("strings.quote", [Value::String(s)]) => text(&quote(s)),
        ("format", [Value::String(s), Value::List(list)]) => format_text::format(s, &list.items),
        _ => return None,
    })
}

fn out_of_range(at: i64) -> Fault {
    Fault::new(format!("index out of range: {at}"))
}

fn char_at(text: &str, at: i64) -> Outcome {
    let index = usize::try_from(at).map_err(|_| out_of_range(at))?;
    match text.chars().nth(index) {
        Some(c) => Ok(Value::string(&c.to_string())),
        None if text.chars().count() == index => Ok(Value::string("")),
        None => Err(out_of_range(at)),
    }
}

/// The byte offset of a code point.
fn offset(text: &str, at: usize) -> usize {
    text.char_indices().nth(at).map_or(text.len(), |(o, _)| o)
}

fn index_of(text: &str, part: &str, from: i64) -> Outcome {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let skip = offset(text, start);
    let rest = text.get(skip..).unwrap_or_default();
    let found = rest.find(part).and_then(|o| rest.get(..o)).map(|before| before.chars().count() + start);
    Ok(Value::Int(found.map_or(-1, |n| n as i64)))
}

fn last_index_of(text: &str, part: &str, from: i64) -> Outcome {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    if start >= text.chars().count() {
        return Ok(Value::Int(-1));
    }
    let end = text.ceil_char_boundary(offset(text, start) + part.len());
    let searched = text.get(..end).unwrap_or_default();
    let found = searched.rfind(part).and_then(|o| searched.get(..o)).map(|before| before.chars().count());
    Ok(Value::Int(found.filter(|n| *n <= start).map_or(-1, |n| n as i64)))
}

/// Most bytes of a replacement's result, which may be much larger than its inputs.
const MAX_REPLACED: usize = 16 << 20;

fn replace(text: &str, old: &str, new: &str, count: i64) -> Outcome {
    let matches = text.matches(old).count().min(usize::try_from(count).unwrap_or(usize::MAX));
    if text.len().saturating_add(matches.saturating_mul(new.len())) > MAX_REPLACED {
        return Err(Fault::new("text too large"));
    }
    let replaced = match usize::try_from(count) {
        Ok(n) => text.replacen(old, new, n),
        Err(_) => text.replace(old, new),
    };
    Ok(Value::string(&replaced))
}

fn split(text: &str, by: &str, count: i64) -> Value {
    if count == 0 {
        return Value::list(Vec::new());
    }
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    if by.is_empty() {
        let mut parts: Vec<&str> = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 == most {
                parts.push(rest);
                break;
            }
            let (head, tail) = rest.split_at(c.len_utf8());
            parts.push(head);
            rest = tail;
        }
        return Value::strings(parts);
    }
    Value::strings(text.splitn(most, by))
}

fn substring(text: &str, start: i64, end: i64) -> Outcome {
    if start > end {
        return Err(Fault::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let length = text.chars().count() as i64;
    for at in [start, end] {
        if at < 0 || at > length {
            return Err(out_of_range(at));
        }
    }
    let (from, to) = (offset(text, start as usize), offset(text, end as usize));
    Ok(Value::string(text.get(from..to).unwrap_or_default()))
}

fn join(items: &[Value], by: &str) -> Outcome {
    let mut out = String::new();
    for (at, item) in items.iter().enumerate() {
        let Value::String(text) = item else {
            return Err(Fault::new(format!("join: invalid input: {}", super::convert::show(item))));
        };
        if at > 0 {
            out.push_str(by);
        }
        out.push_str(text);
        if out.len() > MAX_REPLACED {
            return Err(Fault::new("text too large"));
        }
    }
    Ok(Value::string(&out))
}

/// Escapes only characters with a dedicated escape sequence.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match gotext::escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}
