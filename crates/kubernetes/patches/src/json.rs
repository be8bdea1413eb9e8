//! JSON patch (RFC 6902), with limits on the total size of copies.

use gotext::json_type;
use serde_json::Value;

/// Operations of a patch.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that all copies of a patch may add.
const MAX_COPIED: usize = 3 << 20;

/// Members and indexes from the root on.
pub type Path = Vec<String>;

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Sets a member or inserts an item.
    Add(Path, Value),
    /// Removes an existing value.
    Remove(Path),
    /// Replaces an existing value.
    Replace(Path, Value),
    /// Moves from the second path to the first.
    Move(Path, Path),
    /// Copies from the second path to the first.
    Copy(Path, Path),
    /// The value must be this.
    Test(Path, Value),
    /// An invalid operation, as it was given.
    Bad(Value),
}

/// Why a patch cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not a list of operations.
    #[error("error decoding patch: json: cannot unmarshal {found} into Go {into}")]
    Form {
        /// The JSON type that was found.
        found: &'static str,
        /// What Go would have read it into.
        into: String,
    },
    /// It has so many operations.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooMany(usize),
}

/// Why a patch does not apply. Each prints the words of kube-apiserver's library; paths are as [`Operation`] has them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Inapplicable {
    /// There is no such place to add to.
    #[error("add operation does not apply: doc is missing path: {}", format_path(.0))]
    AddNowhere(Path),
    /// A list has no such place to insert at.
    #[error("add operation does not apply: index {0} is out of bounds")]
    OutOfBounds(String),
    /// There is nothing to remove.
    #[error("remove operation does not apply: doc is missing path: {}", format_path(.0))]
    RemoveNothing(Path),
    /// There is nothing to replace.
    #[error("replace operation does not apply: doc is missing key: {}", format_path(.0))]
    ReplaceNothing(Path),
    /// There is no such place to read from.
    #[error("operation does not apply: doc is missing path: {}", format_path(.0))]
    ReadNowhere(Path),
    /// A value would move into itself.
    #[error("move operation does not apply: {} is within {}", format_path(.path), format_path(.from))]
    MoveWithin {
        /// Where to.
        path: Path,
        /// Where from.
        from: Path,
    },
    /// The copies are too large together.
    #[error("the copies of the patch add up to more than {MAX_COPIED} bytes")]
    CopiesTooLarge,
    /// A tested value is another.
    #[error("testing value {} failed: test failed", format_path(.0))]
    TestFailed(Path),
    /// It is no operation.
    #[error("no operation: {0}")]
    NoOperation(Value),
}

/// Parses the operations; also returns a strict decoder's errors. Errors in a single operation appear only when it is applied, as with
/// kube-apiserver's library.
pub fn parse(value: Value) -> Result<(Vec<Operation>, Vec<String>), Unreadable> {
    let cannot = |found: &Value, into: &str| Unreadable::Form { found: json_type(found), into: into.to_owned() };
    if value.is_null() {
        return Ok((Vec::new(), Vec::new()));
    }
    let Value::Array(list) = value else { return Err(cannot(&value, "value of type []handlers.jsonPatchOp")) };
    let mut errors = Vec::new();
    for (at, operation) in list.iter().enumerate() {
        let Value::Object(members) = operation else {
            return Err(cannot(operation, "value of type handlers.jsonPatchOp"));
        };
        for (key, member) in members {
            match key.as_str() {
                "op" | "path" | "from" if !member.is_string() && !member.is_null() => {
                    return Err(cannot(member, &format!("struct field jsonPatchOp.{key} of type string")));
                }
                "op" | "path" | "from" | "value" => {}
                _ => errors.push(format!("json patch unknown field \"[{at}].{key}\"")),
            }
        }
    }
    if list.len() > MAX_OPERATIONS {
        return Err(Unreadable::TooMany(list.len()));
    }
    Ok((list.into_iter().map(operation).collect(), errors))
}

fn operation(value: Value) -> Operation {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    // A path is split at slashes; the part before the first one is ignored.
    let pointer = |key: &str| -> Option<Path> {
        let parts = text(key)?.split('/').skip(1).map(|p| p.replace("~1", "/").replace("~0", "~")).collect();
        Some(parts)
    };
    let given = value.get("value").cloned().unwrap_or_default();
    let made = match text("op") {
        Some("add") => pointer("path").map(|path| Operation::Add(path, given)),
        Some("remove") => pointer("path").map(Operation::Remove),
        Some("replace") => pointer("path").map(|path| Operation::Replace(path, given)),
        Some("move") => pointer("path").zip(pointer("from")).map(|(path, from)| Operation::Move(path, from)),
        Some("copy") => pointer("path").zip(pointer("from")).map(|(path, from)| Operation::Copy(path, from)),
        Some("test") => pointer("path").map(|path| Operation::Test(path, given)),
        _ => None,
    };
    made.unwrap_or(Operation::Bad(value))
}

/// Applies all operations or none (the caller drops the value on an error).
pub fn apply(root: &mut Value, operations: &[Operation]) -> Result<(), Inapplicable> {
    let mut copied = 0;
    for operation in operations {
        match operation {
            Operation::Add(path, value) => add(root, path, value.clone())?,
            Operation::Remove(path) => {
                remove(root, path)?;
            }
            Operation::Replace(path, value) => replace(root, path, value)?,
            Operation::Move(path, from) => {
                if path.starts_with(from) && path != from {
                    return Err(Inapplicable::MoveWithin { path: path.clone(), from: from.clone() });
                }
                let value = remove(root, from)?;
                add(root, path, value)?;
            }
            Operation::Copy(path, from) => {
                let value = get(root, from)?.cloned().unwrap_or_default();
                copied += size(&value);
                if copied > MAX_COPIED {
                    return Err(Inapplicable::CopiesTooLarge);
                }
                add(root, path, value)?;
            }
            Operation::Test(path, value) => {
                let found = if path.is_empty() { Some(&*root) } else { get(root, path)? };
                if found.unwrap_or(&Value::Null) != value {
                    return Err(Inapplicable::TestFailed(path.clone()));
                }
            }
            Operation::Bad(given) => return Err(Inapplicable::NoOperation(given.clone())),
        }
    }
    Ok(())
}

/// Sets a member, present or not, or a present item.
fn replace(root: &mut Value, path: &[String], value: &Value) -> Result<(), Inapplicable> {
    let Some((last, parent)) = path.split_last() else {
        *root = value.clone();
        return Ok(());
    };
    let missing = || Inapplicable::ReplaceNothing(path.to_owned());
    match find(root, parent).ok_or_else(missing)? {
        Value::Object(map) => {
            map.insert(last.clone(), value.clone());
        }
        Value::Array(list) => {
            let at = index(last, list.len()).filter(|at| *at < list.len()).ok_or_else(missing)?;
            list[at] = value.clone();
        }
        _ => return Err(missing()),
    }
    Ok(())
}

/// The value at a path whose parent exists; `None` for an absent member.
fn get<'a>(root: &'a mut Value, path: &[String]) -> Result<Option<&'a Value>, Inapplicable> {
    let missing = || Inapplicable::ReadNowhere(path.to_owned());
    let (last, parent) = path.split_last().ok_or_else(missing)?;
    match find(root, parent).ok_or_else(missing)? {
        Value::Object(map) => Ok(map.get(last)),
        Value::Array(list) => {
            let at = index(last, list.len()).filter(|at| *at < list.len()).ok_or_else(missing)?;
            Ok(list.get(at))
        }
        _ => Err(missing()),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(size).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + size(v) + 4).sum::<usize>() + 2,
        _ => 8,
    }
}

fn format_path(path: &[String]) -> String {
    path.iter().map(|p| format!("/{p}")).collect()
}

fn find<'a>(root: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    let mut value = root;
    for part in path {
        value = match value {
            Value::Object(map) => map.get_mut(part)?,
            Value::Array(list) => {
                let at = index(part, list.len())?;
                list.get_mut(at)?
            }
            _ => return None,
        };
    }
    Some(value)
}

/// A list index; negative ones count from the end, as in the library that kube-apiserver uses.
fn index(part: &str, length: usize) -> Option<usize> {
    let number: i64 = part.parse().ok()?;
    if number < 0 {
        return length.checked_sub(usize::try_from(number.unsigned_abs()).ok()?);
    }
    usize::try_from(number).ok()
}

fn add(root: &mut Value, path: &[String], value: Value) -> Result<(), Inapplicable> {
    let missing = || Inapplicable::AddNowhere(path.to_owned());
    let (last, parent) = path.split_last().ok_or_else(missing)?;
    match find(root, parent).ok_or_else(missing)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let at = index(last, list.len() + 1).filter(|at| *at <= list.len());
            let at = at.ok_or_else(|| Inapplicable::OutOfBounds(last.clone()))?;
            list.insert(at, value);
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn remove(root: &mut Value, path: &[String]) -> Result<Value, Inapplicable> {
    let missing = || Inapplicable::RemoveNothing(path.to_owned());
    let (last, parent) = path.split_last().ok_or_else(missing)?;
    match find(root, parent).ok_or_else(missing)? {
        Value::Object(map) => map.shift_remove(last).ok_or_else(missing),
        Value::Array(list) => {
            let at = index(last, list.len()).filter(|at| *at < list.len()).ok_or_else(missing)?;
            Ok(list.remove(at))
        }
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn run(mut value: Value, patch: Value) -> Result<Value, String> {
        apply(&mut value, &parse(patch).map_err(|e| e.to_string())?.0).map_err(|e| e.to_string())?;
        Ok(value)
    }

    #[test]
    fn operations() {
        let doc = json!({"a": [1, 2], "b": {"c/d": 3}});
        assert_eq!(
            run(doc.clone(), json!([{"op": "add", "path": "/a/1", "value": 9}])).unwrap()["a"],
            json!([1, 9, 2])
        );
        assert_eq!(
            run(doc.clone(), json!([{"op": "add", "path": "/a/-", "value": 9}])).unwrap()["a"],
            json!([1, 2, 9])
        );
        assert_eq!(run(doc.clone(), json!([{"op": "remove", "path": "/b/c~1d"}])).unwrap()["b"], json!({}));
        assert_eq!(run(doc.clone(), json!([{"op": "move", "from": "/a", "path": "/z"}])).unwrap()["z"], json!([1, 2]));
        assert_eq!(run(doc.clone(), json!([{"op": "copy", "from": "/b", "path": "/z"}])).unwrap()["z"], doc["b"]);
        for bad in [
            json!([{"op": "test", "path": "/a/0", "value": 2}]),
            json!([{"op": "remove", "path": "/none"}]),
            json!([{"op": "replace", "path": "/none/x", "value": 1}]),
            json!([{"op": "add", "path": "", "value": 1}]),
            json!([{"op": "add", "path": "/a/7", "value": 1}]),
            json!([{"op": "move", "from": "/b", "path": "/b/x"}]),
            json!([{"op": "jump", "path": "/a"}]),
            json!({"op": "add"}),
        ] {
            assert!(run(doc.clone(), bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn copies_cannot_explode() {
        let copies: Vec<Value> =
            (0..64).map(|i| json!({"op": "copy", "from": "/a", "path": format!("/a/x{i}")})).collect();
        assert!(run(json!({"a": {"text": "0123456789"}}), Value::Array(copies)).unwrap_err().contains("add up"));
    }

    proptest! {
        #[test]
        fn remove_undoes_add(key in "[a-z]{1,4}", n in any::<i32>()) {
            let doc = json!({"A": 1});
            let path = format!("/{key}");
            let patch = json!([{"op": "add", "path": path, "value": n}, {"op": "test", "path": path, "value": n},
                {"op": "remove", "path": path}]);
            prop_assert_eq!(run(doc.clone(), patch).unwrap(), doc);
        }
    }
}
