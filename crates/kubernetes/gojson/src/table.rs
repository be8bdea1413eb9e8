//! YAML against what Go's own library said of the same texts: `table.json` holds what `sigs.k8s.io/yaml` 1.6.0 answered for
//! texts and mutations of them.

use serde_json::Value;

use super::*;

fn rows() -> Vec<Value> {
    serde_json::from_str(include_str!("table.json")).unwrap()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// Reports all differences, so that one run shows them.
fn report(differences: &[String]) {
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn yaml_is_read_as_the_go_library_reads_it() {
    let mut differences = Vec::new();
    for row in rows() {
        let (given, read) = (text(&row, "text"), from_yaml(text(&row, "text").as_bytes()));
        let (found, wanted) = match (&read, row.get("json")) {
            (Ok(yaml), Some(wanted)) => {
                let same = gotext::json(&Node::of(&yaml.value).to_value().unwrap().0) == gotext::json(wanted);
                let doubled = yaml.doubled.clone().unwrap_or_default();
                if same && doubled == text(&row, "strict") {
                    continue;
                }
                (format!("{} {doubled}", yaml.value), format!("{wanted} {}", text(&row, "strict")))
            }
            (Err(why), None) if why.to_string() == text(&row, "error") => continue,
            (read, wanted) => (format!("{read:?}"), format!("{wanted:?} {}", text(&row, "error"))),
        };
        differences.push(format!("{given:?}\n  go:   {wanted}\n  here: {found}"));
    }
    report(&differences);
}

#[test]
fn yaml_is_written_as_the_go_library_writes_it() {
    let mut differences = Vec::new();
    for row in rows().iter().filter(|row| row.get("json").is_some_and(Value::is_object)) {
        let written = to_yaml(&row["json"]);
        if written != text(row, "back") {
            differences.push(format!("{}\n  go:   {:?}\n  here: {written:?}", row["json"], text(row, "back")));
        }
    }
    report(&differences);
}
