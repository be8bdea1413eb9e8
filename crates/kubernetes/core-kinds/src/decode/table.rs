//! The typed decoder against what Go's own said of the same texts: `table.json` holds what `sigs.k8s.io/json` answered for
//! types of `k8s.io/api` 0.34.4, for texts and mutations of them.

use serde_json::Value;

use super::{DecodeError, read};
use crate::Defs;

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

#[test]
fn objects_are_decoded_as_the_go_library_decodes_them() {
    let mut differences = Vec::new();
    let rows: Vec<Value> = serde_json::from_str(include_str!("table.json")).unwrap();
    for row in rows {
        let def = Defs::get().kind("", "v1", text(&row, "kind")).unwrap();
        let read =
            gojson::parse(text(&row, "text").as_bytes()).map_err(DecodeError::from).and_then(|node| read(def, &node));
        let found = match &read {
            Ok((_, strict)) => strict.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            Err(why) => format!("error: {why}"),
        };
        let wanted = match text(&row, "error") {
            "" => row["strict"]
                .as_array()
                .map_or(String::new(), |all| all.iter().map(|e| e.as_str().unwrap()).collect::<Vec<_>>().join(", ")),
            why => format!("error: {why}"),
        };
        if found != wanted {
            differences.push(format!("{}\n  go:   {wanted}\n  here: {found}", text(&row, "text")));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}
