//! Cases made by chance, always the same from one seed: structural schemas with objects that fit, nearly fit or do not,
//! and schemas that are no longer sound. They are written to `cases/generated/schemas.yaml` and recorded as any other.

mod broken;
mod schema;
mod value;

use std::fmt::Write as _;

use serde_json::{Value, json};

/// How many sound schemas, each a case of several requests.
const SOUND: u64 = 40;
/// How many schemas that are not.
const BROKEN: u64 = 60;
/// More of both, of hundreds that were tried: they showed what the embedded server did otherwise.
const TELLING: [u64; 3] = [109, 173, 249];
const TELLING_BROKEN: [u64; 4] = [223, 280, 323, 391];

/// Where a line is broken.
const WIDTH: usize = 150;

/// Numbers that look like chance (splitmix64).
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(1))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(self.next() % end).unwrap_or_default()
    }

    /// True so many times of a hundred.
    pub fn percent(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    /// One of them.
    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// The keys of an object in an order of their own, however the map keeps them.
fn keys(value: &Value) -> Vec<String> {
    let mut keys: Vec<String> = value.as_object().into_iter().flat_map(|m| m.keys().cloned()).collect();
    keys.sort();
    keys
}

/// The text of the file of cases.
pub fn file() -> String {
    let mut out = String::from("# Made by `cargo run -p conformance -- generate`; see src/generate.\ncases:\n");
    let cases = (0..SOUND).chain(TELLING).map(sound).chain((0..BROKEN).chain(TELLING_BROKEN).map(unsound));
    for case in cases {
        let _ = writeln!(out, "- name: {}\n  steps:", case["name"]);
        for step in case["steps"].as_array().into_iter().flatten() {
            let _ = writeln!(out, "  - {}", filled(step));
        }
    }
    out
}

/// As JSON, which is YAML: broken after commas into lines of at most [`WIDTH`] characters, as far as there are commas.
fn filled(step: &Value) -> String {
    let text = step.to_string();
    let (mut out, mut width, mut start) = (String::new(), 0, 0);
    let (mut in_string, mut escaped) = (false, false);
    let mut breaks = Vec::new();
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' if !in_string => breaks.push(index + 1),
            _ => {}
        }
    }
    for end in breaks.into_iter().chain([text.len()]) {
        let part = &text[start..end];
        if width > 0 && width + part.len() > WIDTH {
            out.push_str("\n      ");
            width = 0;
        }
        out.push_str(part);
        (width, start) = (width + part.len(), end);
    }
    out
}

fn definition(schema: &Value) -> Value {
    json!({
        "group": "{own}",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}}],
    })
}

fn sound(number: u64) -> Value {
    let c = &mut Chance::new(number);
    let schema = schema::whole(c);
    let path = "/apis/{own}/v1/namespaces/{ns}/things";
    let object = |c: &mut Chance, name: &str, wrong: usize| {
        let mut object = value::whole(c, &schema, wrong);
        object["apiVersion"] = json!("{own}/v1");
        object["kind"] = json!("Thing");
        object["metadata"] = json!({"name": name});
        object
    };
    let mut steps = vec![json!({"crd": {"spec": definition(&schema)}})];
    let mut ask = |mut request: Value, body: Value| {
        request["body"] = body;
        request["unordered"] = json!(true);
        steps.push(request);
    };
    ask(json!({"POST": path}), object(c, "a", 0));
    ask(json!({"POST": path}), object(c, "b", 12));
    ask(json!({"POST": format!("{path}?fieldValidation=Strict")}), object(c, "c", 25));
    ask(json!({"PUT": format!("{path}/a")}), object(c, "a", 8));
    let patch = json!({"spec": value::part(c, &schema["properties"]["spec"], 10)});
    ask(json!({"PATCH": format!("{path}/a"), "type": "merge"}), patch);
    let mut applied = object(c, "a", 0);
    // Of several mistakes in what is applied upstream tells some: which, is left to the order of a hash map.
    applied["spec"] = value::part(c, &schema["properties"]["spec"], 0);
    let force = if c.percent(60) { "&force=true" } else { "" };
    ask(json!({"PATCH": format!("{path}/a?fieldManager=other{force}"), "type": "apply"}), applied);
    json!({"name": format!("schema {number}"), "steps": steps})
}

fn unsound(number: u64) -> Value {
    let c = &mut Chance::new(1000 + number);
    let mut schema = schema::whole(c);
    let mut what = Vec::new();
    for _ in 0..=c.below(2) {
        what.push(broken::spoil(c, &mut schema));
    }
    let body = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.{own}"},
        "spec": definition(&schema),
    });
    let step = json!({
        "POST": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All",
        "unordered": true,
        "only": ["/status", "/reason", "/message", "/details", "/code"],
        "body": body,
    });
    json!({"name": format!("broken {number}: {}", what.join(", ")), "steps": [step]})
}

#[cfg(test)]
mod tests {
    /// A person reads cases side by side with code.
    const LONGEST: usize = 200;

    #[test]
    fn no_line_of_a_case_is_longer_than_a_person_reads() {
        let mut found = 0;
        let mut folders = vec![crate::folder("cases")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for (index, line) in text.lines().enumerate() {
                    let length = line.chars().count();
                    assert!(length <= LONGEST, "{}:{}: {length} characters", path.display(), index + 1);
                }
                found += 1;
            }
        }
        assert!(found > 50, "{found} files");
    }

    #[test]
    fn the_file_is_what_the_generator_makes() {
        let path = crate::folder("cases/generated/schemas.yaml");
        let kept: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let made: serde_json::Value = serde_saphyr::from_str(&super::file()).unwrap();
        assert!(kept == made, "cases/generated/schemas.yaml differs: run `cargo run -p conformance -- generate`");
    }
}
