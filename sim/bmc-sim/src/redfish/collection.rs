//! The form of a collection (DSP0266, "Collections").

use serde_json::{Value, json};

/// A collection of resources at `path`.
pub(crate) fn collection(path: &str, kind: &str, name: &str, members: impl Iterator<Item = String>) -> Value {
    let members: Vec<Value> = members.map(|path| json!({ "@odata.id": path })).collect();
    json!({
        "@odata.type": format!("#{kind}.{kind}"),
        "@odata.id": path,
        "Name": name,
        "Members@odata.count": members.len(),
        "Members": members,
    })
}
