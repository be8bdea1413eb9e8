//! JSON patch (RFC 6902), with limits on what copies may add up to.

use serde_json::Value;

/// Operations of a patch.
const MAX_OPERATIONS: usize = 10_000;
/// Bytes that all copies of a patch may add.
const MAX_COPIED: usize = 3 << 20;

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Sets a member or inserts an item.
    Add(Vec<String>, Value),
    /// Removes what must be there.
    Remove(Vec<String>),
    /// Replaces what must be there.
    Replace(Vec<String>, Value),
    /// Moves from the second path to the first.
    Move(Vec<String>, Vec<String>),
    /// Copies from the second path to the first.
    Copy(Vec<String>, Vec<String>),
    /// The value must be this.
    Test(Vec<String>, Value),
}

/// Reads the operations.
pub fn parse(value: Value) -> Result<Vec<Operation>, String> {
    let Value::Array(list) = value else { return Err("error decoding patch: a JSON patch is a list".to_owned()) };
    if list.len() > MAX_OPERATIONS {
        return Err(format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}", list.len()));
    }
    list.into_iter().map(operation).collect()
}

fn operation(value: Value) -> Result<Operation, String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let pointer = |key: &str| -> Result<Vec<String>, String> {
        let text = text(key).ok_or_else(|| format!("error decoding patch: {key:?} is missing"))?;
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let rest =
            text.strip_prefix('/').ok_or_else(|| format!("error decoding patch: {text:?} is no JSON pointer"))?;
        Ok(rest.split('/').map(|p| p.replace("~1", "/").replace("~0", "~")).collect())
    };
    let given = || value.get("value").cloned().ok_or_else(|| "error decoding patch: \"value\" is missing".to_owned());
    match text("op") {
        Some("add") => Ok(Operation::Add(pointer("path")?, given()?)),
        Some("remove") => Ok(Operation::Remove(pointer("path")?)),
        Some("replace") => Ok(Operation::Replace(pointer("path")?, given()?)),
        Some("move") => Ok(Operation::Move(pointer("path")?, pointer("from")?)),
        Some("copy") => Ok(Operation::Copy(pointer("path")?, pointer("from")?)),
        Some("test") => Ok(Operation::Test(pointer("path")?, value.get("value").cloned().unwrap_or_default())),
        other => Err(format!("Unexpected kind: {}", other.unwrap_or_default())),
    }
}

/// Applies all operations or none (the caller drops the value on an error).
pub fn apply(root: &mut Value, operations: &[Operation]) -> Result<(), String> {
    let mut copied = 0;
    for operation in operations {
        match operation {
            Operation::Add(path, value) => add(root, path, value.clone())?,
            Operation::Remove(path) => {
                remove(root, path)?;
            }
            Operation::Replace(path, value) => {
                let slot = find(root, path)
                    .ok_or_else(|| format!("replace operation does not apply: doc is missing key: {}", shown(path)))?;
                *slot = value.clone();
            }
            Operation::Move(path, from) => {
                if path.starts_with(from) && path != from {
                    return Err(format!("move operation does not apply: {} is within {}", shown(path), shown(from)));
                }
                let value = remove(root, from)?;
                add(root, path, value)?;
            }
            Operation::Copy(path, from) => {
                let value = find(root, from)
                    .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {}", shown(from)))?
                    .clone();
                copied += size(&value);
                if copied > MAX_COPIED {
                    return Err(format!("the copies of the patch add up to more than {MAX_COPIED} bytes"));
                }
                add(root, path, value)?;
            }
            Operation::Test(path, value) => {
                let found = find(root, path).map(|v| &*v).unwrap_or(&Value::Null);
                if found != value {
                    return Err(format!("testing value {} failed", shown(path)));
                }
            }
        }
    }
    Ok(())
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(size).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + size(v) + 4).sum::<usize>() + 2,
        _ => 8,
    }
}

fn shown(path: &[String]) -> String {
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
    if let Some(back) = part.strip_prefix('-') {
        return length.checked_sub(back.parse().ok()?);
    }
    if part.len() > 1 && part.starts_with('0') {
        return None;
    }
    part.parse().ok()
}

fn add(root: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let Some((last, parent)) = path.split_last() else {
        *root = value;
        return Ok(());
    };
    let missing = || format!("add operation does not apply: doc is missing path: {}", shown(path));
    match find(root, parent).ok_or_else(missing)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let at = index(last, list.len()).filter(|at| *at <= list.len());
            let at = at.ok_or_else(|| format!("add operation does not apply: index {last} is out of bounds"))?;
            list.insert(at, value);
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn remove(root: &mut Value, path: &[String]) -> Result<Value, String> {
    let missing = || format!("remove operation does not apply: doc is missing path: {}", shown(path));
    let Some((last, parent)) = path.split_last() else {
        return Ok(root.take());
    };
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
        apply(&mut value, &parse(patch)?)?;
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
            json!([{"op": "replace", "path": "/none", "value": 1}]),
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
        let copies: Vec<Value> = (0..64).map(|i| json!({"op": "copy", "from": "", "path": format!("/x{i}")})).collect();
        assert!(run(json!({"a": "0123456789"}), Value::Array(copies)).unwrap_err().contains("add up"));
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
