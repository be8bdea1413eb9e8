//! JSON and YAML into values, with limits and with duplicate keys told.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Nesting of a document. Deeper ones are refused before they cost stack.
const MAX_DEPTH: usize = 120;
/// Duplicate keys that are told.
const MAX_TOLD: usize = 32;

/// A document and the paths of keys that it has twice (the last one counts).
pub type Parsed = (Value, Vec<String>);

/// Reads JSON.
pub fn from_json(bytes: &[u8]) -> Result<Parsed, String> {
    let twice = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { path: String::new(), depth: MAX_DEPTH, twice: &twice };
    let value = seed.deserialize(&mut deserializer).map_err(|e| e.to_string())?;
    deserializer.end().map_err(|e| e.to_string())?;
    Ok((value, twice.into_inner()))
}

/// Reads one YAML document. Aliases are bounded by the parser's budget.
pub fn from_yaml(bytes: &[u8]) -> Result<Parsed, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    yaml_depth(text)?;
    let mut value: Value = serde_saphyr::from_str(text).map_err(|e| format!("error converting YAML to JSON: {e}"))?;
    bounded(&mut value, MAX_DEPTH)?;
    Ok((value, Vec::new()))
}

/// Why a document is no YAML.
pub struct YamlError(pub String);

/// Reads a body that is YAML, and so may be JSON. A key that is there twice counts for its last value; with `strict` the
/// line that kube-apiserver has for it is given, too.
pub fn from_yaml_or_json(bytes: &[u8], strict: bool) -> Result<(Value, Option<String>), YamlError> {
    if bytes.trim_ascii_start().first() == Some(&b'{')
        && let Ok((value, twice)) = from_json(bytes)
    {
        let told = if twice.is_empty() || !strict { None } else { duplicate(bytes) };
        return Ok((value, told));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| YamlError("yaml: invalid UTF-8".to_owned()))?;
    yaml_depth(text).map_err(YamlError)?;
    let last = serde_saphyr::options::DuplicateKeyPolicy::LastWins;
    let options = serde_saphyr::options! { duplicate_keys: last, with_snippet: false };
    let failed = |e| YamlError(format!("error converting YAML to JSON: yaml: {e}"));
    let mut value: Value = serde_saphyr::from_str_with_options(text, options).map_err(failed)?;
    bounded(&mut value, MAX_DEPTH).map_err(YamlError)?;
    Ok((value, if strict { duplicate(bytes) } else { None }))
}

/// The text about the first key that a YAML document has twice.
fn duplicate(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let error =
        serde_saphyr::from_str_with_options::<Value>(text, serde_saphyr::options! { with_snippet: false }).err()?;
    let serde_saphyr::Error::DuplicateMappingKey { key, location } = error else { return None };
    let key = key.unwrap_or_default();
    let line = location.line();
    Some(format!("line {line}: key \"{key}\" already set in map"))
}

/// Reads a stream of YAML documents; empty ones are left out.
pub fn from_yaml_stream(text: &str) -> Result<Vec<Value>, String> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|e| e.to_string())?;
    Ok(all.into_iter().filter(|v| !v.is_null()).collect())
}

/// Refuses flow nesting and indentation that no honest document has, before the parser recurses into it.
fn yaml_depth(text: &str) -> Result<(), String> {
    let mut open = 0usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'\n' if open < MAX_DEPTH => {}
            _ => {}
        }
        if open > 4096 {
            return Err("yaml: exceeded max depth".to_owned());
        }
    }
    Ok(())
}

fn bounded(value: &mut Value, depth: usize) -> Result<(), String> {
    if depth == 0 {
        return Err("exceeded max depth".to_owned());
    }
    match value {
        Value::Array(list) => list.iter_mut().try_for_each(|v| bounded(v, depth - 1)),
        Value::Object(map) => map.values_mut().try_for_each(|v| bounded(v, depth - 1)),
        _ => Ok(()),
    }
}

struct Seed<'a> {
    path: String,
    depth: usize,
    twice: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        // A whole number is one, however it is written, as it would be once stored.
        let whole = v.fract() == 0.0 && v.abs() < 9.0e18;
        Ok(if whole {
            Value::Number((v as i64).into())
        } else {
            Number::from_f64(v).map_or(Value::Null, Value::Number)
        })
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| A::Error::custom("exceeded max depth"))?;
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            match seq.next_element_seed(Seed { path, depth, twice: self.twice })? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| A::Error::custom("exceeded max depth"))?;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let value = map.next_value_seed(Seed { path: path.clone(), depth, twice: self.twice })?;
            if object.insert(key, value).is_some() {
                let mut twice = self.twice.borrow_mut();
                if twice.len() < MAX_TOLD {
                    twice.push(path);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicates_are_told_and_the_last_counts() {
        let (value, twice) = from_json(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}]}"#).unwrap();
        assert_eq!(value, json!({"a": {"b": 2}, "c": [{"d": 1}]}));
        assert_eq!(twice, ["a.b", "c[0].d"]);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(from_json(deep.as_bytes()).is_err());
        assert!(from_yaml(deep.as_bytes()).is_err());
        let fine = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(from_json(fine.as_bytes()).is_ok());
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let refs = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
        }
        assert!(from_yaml(bomb.as_bytes()).is_err());
    }
}
