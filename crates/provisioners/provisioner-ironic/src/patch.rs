//! A JSON patch of a node: what differs from what is wished, and nothing else.

use serde_json::{Map, Value, json};

/// The changes of one node.
#[derive(Debug, Default)]
pub struct Changes(Vec<Value>);

fn pointer(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn is_nothing(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

impl Changes {
    /// A field of the node; `None` gives it back its default.
    pub fn field(&mut self, name: &str, now: Option<Value>, wished: Option<Value>) {
        self.at(&format!("/{}", pointer(name)), now.as_ref(), wished);
    }

    /// A member of an object of the node.
    pub fn member(&mut self, object: &str, now: &Map<String, Value>, name: &str, wished: Option<Value>) {
        self.at(&format!("/{}/{}", pointer(object), pointer(name)), now.get(name), wished);
    }

    /// Several.
    pub fn members(&mut self, object: &str, now: &Map<String, Value>, wished: Vec<(&str, Option<Value>)>) {
        for (name, value) in wished {
            self.member(object, now, name, value);
        }
    }

    fn at(&mut self, path: &str, now: Option<&Value>, wished: Option<Value>) {
        match wished.filter(|value| !value.is_null()) {
            Some(value) if now != Some(&value) => self.0.push(json!({ "op": "add", "path": path, "value": value })),
            None if !is_nothing(now) => self.0.push(json!({ "op": "remove", "path": path })),
            _ => {}
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patch.
    pub fn into_patch(self) -> Vec<Value> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_changed() {
        let now = json!({"same": 1, "other": {"a": "x"}, "old": true, "null": null});
        let now = now.as_object().unwrap();
        let mut changes = Changes::default();
        let wished = vec![
            ("same", Some(json!(1))),
            ("other", Some(json!({"a": "y"}))),
            ("old", None),
            ("null", None),
            ("absent", None),
            ("a/b~c", Some(json!("new"))),
            ("empty", Some(Value::Null)),
        ];
        changes.members("extra", now, wished);
        changes.field("name", Some(json!("a")), Some(json!("a")));
        changes.field("deploy_interface", Some(json!("ramdisk")), None);
        let expected = json!([
            {"op": "add", "path": "/extra/other", "value": {"a": "y"}},
            {"op": "remove", "path": "/extra/old"},
            {"op": "add", "path": "/extra/a~1b~0c", "value": "new"},
            {"op": "remove", "path": "/deploy_interface"},
        ]);
        assert_eq!(Value::Array(changes.into_patch()), expected);
    }
}
