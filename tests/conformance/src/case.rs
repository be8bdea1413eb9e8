//! Cases as data: reading `cases/AREA/FILE.yaml`, expanding families, and putting values where `{name}` stands.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

/// Values by name: what `{name}` stands for.
pub type Variables = BTreeMap<String, Value>;

/// One file of cases.
#[derive(Debug, Clone)]
pub struct File {
    /// Folder: the area.
    pub area: String,
    /// File name without its ending.
    pub name: String,
    /// Steps done once, before the cases; not compared.
    pub shared: Vec<Value>,
    /// Values that all of its cases know.
    pub variables: Variables,
    /// The cases, families expanded.
    pub cases: Vec<Case>,
}

/// One case: steps, each with its answer.
#[derive(Debug, Clone)]
pub struct Case {
    /// Unique in its file.
    pub name: String,
    /// Steps done before; not compared, but they must succeed.
    pub setup: Vec<Value>,
    /// Steps whose answers are compared.
    pub steps: Vec<Value>,
    /// Values of its own.
    pub variables: Variables,
}

impl File {
    /// `area/name`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.area, self.name)
    }
}

/// Reads every file of the folder whose area or path is wanted.
pub fn read(folder: &Path, wanted: impl Fn(&str, &str) -> bool) -> Result<Vec<File>> {
    let mut all = Vec::new();
    for area in entries(folder)? {
        let area_name = stem(&area);
        if !area.is_dir() {
            continue;
        }
        for path in entries(&area)? {
            let name = stem(&path);
            if wanted(&area_name, &name) {
                let text = std::fs::read_to_string(&path)?;
                let file = parse(&area_name, &name, &text).with_context(|| path.display().to_string())?;
                all.push(file);
            }
        }
    }
    Ok(all)
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let listing = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut all: Vec<_> = listing.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    all.sort();
    Ok(all)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads one file's text.
pub fn parse(area: &str, name: &str, text: &str) -> Result<File> {
    let value: Value = serde_saphyr::from_str(text)?;
    let known = ["shared", "setup", "cases", "vars"];
    let object = value.as_object().context("a file of cases is a map")?;
    for key in object.keys() {
        ensure!(known.contains(&key.as_str()), "unknown key {key}");
    }
    let mut variables = map(&value["vars"]);
    variables.insert("group".into(), json!(format!("{}.example.com", slug(&format!("{area} {name}"), 40))));
    let setup = list(&value["setup"]);
    let mut cases = Vec::new();
    for entry in list(&value["cases"]) {
        expand(&entry, &setup, &mut cases)?;
    }
    let mut seen = BTreeMap::new();
    for case in &mut cases {
        ensure!(seen.insert(case.name.clone(), ()).is_none(), "two cases are named {:?}", case.name);
        let id = slug(&format!("{area} {name} {}", case.name), 50);
        case.variables.insert("ns".into(), json!(id));
        case.variables.insert("ns2".into(), json!(format!("{id}-2")));
        case.variables
            .insert("own".into(), json!(format!("{}.example.org", slug(&format!("{area} {}", case.name), 45))));
    }
    Ok(File { area: area.into(), name: name.into(), shared: list(&value["shared"]), variables, cases })
}

/// One entry: a case, or with `each` as many as there are rows.
fn expand(entry: &Value, setup: &[Value], cases: &mut Vec<Case>) -> Result<()> {
    let object = entry.as_object().context("a case is a map")?;
    for key in object.keys() {
        ensure!(["name", "setup", "steps", "each", "vars"].contains(&key.as_str()), "unknown key {key} of a case");
    }
    let name = entry["name"].as_str().context("a case has a name")?;
    let mut before = setup.to_vec();
    before.extend(list(&entry["setup"]));
    let steps = list(&entry["steps"]);
    ensure!(!steps.is_empty(), "case {name:?} has no steps");
    let rows = if entry["each"].is_null() { vec![Value::Null] } else { list(&entry["each"]) };
    for row in rows {
        let mut variables = map(&entry["vars"]);
        variables.extend(map(&row));
        let name = text(&fill(&json!(name), &variables));
        cases.push(Case { name, setup: before.clone(), steps: steps.clone(), variables });
    }
    Ok(())
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn map(value: &Value) -> Variables {
    value.as_object().map(|m| m.iter().map(|(k, v)| (k.clone(), v.clone())).collect()).unwrap_or_default()
}

/// A name of letters, digits and hyphens, made unique by a hash if it had to be cut.
pub fn slug(name: &str, length: usize) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
    }
    // FNV-1a: names that differ in signs only stay apart too.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    out.truncate(length - 6);
    format!("{}-{:05x}", out.trim_end_matches('-'), hash & 0xf_ffff)
}

/// A value's text for use within another text.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

/// Puts values where `{name}` stands: a text that is nothing else becomes the value itself, of whatever type.
/// What is put in may hold names again, a few times over.
pub fn fill(value: &Value, variables: &Variables) -> Value {
    let mut now = fill_once(value, variables);
    for _ in 0..4 {
        let next = fill_once(&now, variables);
        if next == now {
            break;
        }
        now = next;
    }
    now
}

fn fill_once(value: &Value, variables: &Variables) -> Value {
    match value {
        Value::String(s) => fill_text(s, variables),
        Value::Array(items) => items.iter().map(|v| fill_once(v, variables)).collect(),
        Value::Object(map) => {
            let filled: Map<String, Value> =
                map.iter().map(|(k, v)| (text(&fill_text(k, variables)), fill_once(v, variables))).collect();
            Value::Object(filled)
        }
        other => other.clone(),
    }
}

fn fill_text(s: &str, variables: &Variables) -> Value {
    if let Some(value) = s.strip_prefix('{').and_then(|s| s.strip_suffix('}')).and_then(|n| variables.get(n)) {
        return value.clone();
    }
    let mut out = String::new();
    let mut rest = s;
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let name = rest.find('}').map(|end| &rest[1..end]);
        if let Some((name, value)) = name.and_then(|n| variables.get(n).map(|v| (n, v))) {
            out.push_str(&text(value));
            rest = &rest[name.len() + 2..];
        } else {
            out.push('{');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    Value::String(out)
}

/// Whether `{name}` stands anywhere in the value.
pub fn mentions(value: &Value, name: &str) -> bool {
    value.to_string().contains(&format!("{{{name}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_type_where_they_stand_alone() {
        let variables = Variables::from([("n".into(), json!(3)), ("s".into(), json!("x"))]);
        let filled = fill(&json!({"a": "{n}", "b": "{n}/{s}", "c": "{unknown}", "d": "{\"n\"}"}), &variables);
        assert_eq!(filled, json!({"a": 3, "b": "3/x", "c": "{unknown}", "d": "{\"n\"}"}));
    }

    #[test]
    fn a_family_is_as_many_cases_as_it_has_rows() {
        let file =
            parse("a", "f", "cases:\n- name: 'of {x}'\n  each: [{x: 1}, {x: 2}]\n  steps: [{GET: '/{x}'}]\n").unwrap();
        let names: Vec<_> = file.cases.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["of 1", "of 2"]);
        assert!(parse("a", "f", "cases:\n- {name: x, steps: [{GET: /}]}\n- {name: x, steps: [{GET: /}]}\n").is_err());
    }

    #[test]
    fn slugs_differ_where_names_do() {
        assert_ne!(slug("a b", 20), slug("a-b", 20));
        assert!(slug(&"long ".repeat(20), 30).len() <= 30);
    }
}
