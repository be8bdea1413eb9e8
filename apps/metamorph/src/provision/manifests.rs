//! The input of `provision`: reads files, folders and standard input completely, splits them into objects, and collects every problem.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Most bytes of all manifests together.
const MAX_BYTES: u64 = 64 << 20;
/// Most objects.
const MAX_OBJECTS: usize = 20_000;
/// Most problems reported: a user with so many reads no further.
const MAX_PROBLEMS: usize = 100;
/// Most files of folders.
const MAX_FILES: usize = 10_000;
/// Folders within folders.
const MAX_DEPTH: usize = 32;
/// Lists within lists.
const MAX_LISTS: usize = 4;
/// File extensions of manifests.
const ENDS: [&str; 3] = ["yaml", "yml", "json"];

/// One object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Where it stands: `hosts.yaml, document 2`.
    pub source: String,
    /// `v1`, `metal3.io/v1alpha1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Its namespace, or the default one if it names none; kinds without namespaces ignore it.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The whole object.
    pub value: Value,
}

impl Object {
    /// `Secret default/node-0-bmc`.
    pub fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }

    /// Whether it is of this kind.
    pub fn is(&self, api_version: &str, kind: &str) -> bool {
        self.api_version == api_version && self.kind == kind
    }
}

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands.
    pub source: String,
    /// What was found, what to do.
    pub message: String,
}

/// All that was read.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Objects, in the order in which they stand.
    pub objects: Vec<Object>,
    /// Errors.
    pub problems: Vec<Problem>,
    /// Warnings: input without effect.
    pub warnings: Vec<Problem>,
    left: u64,
}

impl Manifests {
    /// Reads files, folders and `-`.
    pub fn read(given: &[PathBuf], recursive: bool, namespace: &str) -> Self {
        let mut all = Self { left: MAX_BYTES, ..Self::default() };
        let mut standard_input = false;
        for path in given {
            if path == Path::new("-") {
                if std::mem::replace(&mut standard_input, true) {
                    all.wrong("standard input", "-f - is given twice, and it can be read once");
                } else {
                    all.take(&mut std::io::stdin().lock(), "standard input", namespace);
                }
                continue;
            }
            match std::fs::metadata(path) {
                Ok(found) if found.is_dir() => all.folder(path, recursive, namespace),
                // Anything else may be a pipe: `-f <(…)`.
                Ok(_) => all.file(path, namespace),
                Err(error) => all.wrong(&path.display().to_string(), format!("it cannot be read: {error}")),
            }
        }
        all.report_duplicates();
        if all.objects.len() > MAX_OBJECTS {
            let message = format!("{} objects are given, of which {MAX_OBJECTS} are taken at most", all.objects.len());
            all.wrong("all files", message);
        }
        all
    }

    /// Whether the limits are reached, so that further input changes nothing.
    fn is_full(&self) -> bool {
        self.objects.len() > MAX_OBJECTS || self.problems.len() >= MAX_PROBLEMS
    }

    fn wrong(&mut self, source: &str, message: impl Into<String>) {
        self.problems.push(Problem { source: source.to_owned(), message: message.into() });
    }

    fn folder(&mut self, folder: &Path, recursive: bool, namespace: &str) {
        let name = folder.display().to_string();
        match files_of(folder, recursive) {
            Err(error) => self.wrong(&name, format!("the folder cannot be read: {error}")),
            Ok(files) if files.is_empty() => {
                let below = if recursive { "" } else { "; --recursive takes what is in its folders, too" };
                self.wrong(&name, format!("the folder holds no *.yaml, *.yml or *.json{below}"));
            }
            Ok(files) if files.len() > MAX_FILES => {
                self.wrong(&name, format!("the folder holds more than {MAX_FILES} manifests"))
            }
            Ok(files) => files.iter().for_each(|file| self.file(file, namespace)),
        }
    }

    fn file(&mut self, path: &Path, namespace: &str) {
        let name = path.display().to_string();
        match std::fs::File::open(path) {
            Ok(mut file) => self.take(&mut file, &name, namespace),
            Err(error) => self.wrong(&name, format!("it cannot be read: {error}")),
        }
    }

    fn take(&mut self, from: &mut dyn Read, name: &str, namespace: &str) {
        let mut bytes = Vec::new();
        if let Err(error) = from.take(self.left + 1).read_to_end(&mut bytes) {
            return self.wrong(name, format!("it cannot be read: {error}"));
        }
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            self.left = 0;
            return self.wrong(name, format!("all manifests together have more than {} MiB", MAX_BYTES >> 20));
        };
        self.left = left;
        let Ok(text) = String::from_utf8(bytes) else {
            return self.wrong(name, "it is no text in UTF-8");
        };
        let before = (self.objects.len(), self.problems.len());
        let mut number = 0;
        for (line, piece) in documents(&text) {
            if self.is_full() {
                return;
            }
            match gojson::from_yaml_stream(piece) {
                Ok(found) => {
                    for value in found {
                        number += 1;
                        self.document(value, &format!("{name}, document {number}"), namespace, 0);
                    }
                }
                Err(error) => {
                    number += 1;
                    self.wrong(&format!("{name}, document {number} (from line {line})"), error.to_string());
                }
            }
        }
        if before == (self.objects.len(), self.problems.len()) {
            self.wrong(name, "it holds no object");
        }
    }

    /// Reads one document: an object, or a list of objects.
    fn document(&mut self, value: Value, source: &str, namespace: &str, depth: usize) {
        let Value::Object(mut fields) = value else {
            return self.wrong(source, "it is no object with apiVersion, kind and metadata");
        };
        let text = |fields: &Map<String, Value>, key: &str| {
            fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (api_version, kind) = (text(&fields, "apiVersion"), text(&fields, "kind"));
        if kind.ends_with("List")
            && let Some(Value::Array(items)) = fields.get_mut("items")
        {
            if depth == MAX_LISTS {
                return self.wrong(source, format!("lists stand in lists more than {MAX_LISTS} times"));
            }
            for (index, item) in std::mem::take(items).into_iter().enumerate() {
                if self.is_full() {
                    return;
                }
                self.document(item, &format!("{source}, item {}", index + 1), namespace, depth + 1);
            }
            return;
        }
        let metadata = fields.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        // YAML 1.1 reads `n` as false and `12` as a number.
        let mut no_text = Vec::new();
        for (parent, key) in [("", "apiVersion"), ("", "kind"), ("metadata.", "name"), ("metadata.", "namespace")] {
            let value = if parent.is_empty() { fields.get(key) } else { metadata.get(key) };
            if let Some(value) = value.filter(|value| !value.is_string() && !value.is_null()) {
                self.wrong(source, format!("{parent}{key} is read as {value}, which is no text; quote it"));
                no_text.push(key);
            }
        }
        let name = text(&metadata, "name");
        let mut missing = Vec::new();
        for (what, key, value) in
            [("apiVersion", "apiVersion", &api_version), ("kind", "kind", &kind), ("metadata.name", "name", &name)]
        {
            if value.is_empty() && !no_text.contains(&key) {
                missing.push(what);
            }
        }
        if !missing.is_empty() {
            let generated = if metadata.contains_key("generateName") {
                " (a generated name would make another object with each run)"
            } else {
                ""
            };
            return self.wrong(source, format!("it has no {}{generated}", missing.join(", no ")));
        }
        if !no_text.is_empty() {
            return;
        }
        let stated = text(&metadata, "namespace");
        let namespace = if stated.is_empty() { namespace.to_owned() } else { stated };
        if let Err(message) = normalize(&api_version, &kind, &mut fields) {
            return self.wrong(source, message);
        }
        let object = Object { source: source.to_owned(), api_version, kind, namespace, name, value: fields.into() };
        if object.is("metal3.io/v1alpha1", "BareMetalHost") && object.value.get("status").is_some() {
            let message = format!(
                "{}: its status is not applied; to restore one, write it as JSON into the annotation {}",
                object.title(),
                api::metal3::annotation::STATUS
            );
            self.warnings.push(Problem { source: source.to_owned(), message });
        }
        self.objects.push(object);
    }

    /// Reports objects that are given twice: it is unclear which one is meant.
    fn report_duplicates(&mut self) {
        let mut first: BTreeMap<[&str; 4], &str> = BTreeMap::new();
        let mut found = Vec::new();
        for object in &self.objects {
            let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
            let key = [group, &object.kind, &object.namespace, &object.name];
            if let Some(source) = first.get(&key) {
                let message = format!("{} stands in {source}, too; leave one of them out", object.title());
                found.push(Problem { source: object.source.clone(), message });
            } else {
                first.insert(key, &object.source);
            }
        }
        self.problems.append(&mut found);
    }
}

/// Removes fields that the server sets, and moves a Secret's `stringData` into `data`: in server-side apply they are different fields.
fn normalize(api_version: &str, kind: &str, fields: &mut Map<String, Value>) -> Result<(), String> {
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        for key in ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"] {
            metadata.remove(key);
        }
    }
    if (api_version, kind) != ("v1", "Secret") {
        return Ok(());
    }
    let text = match fields.remove("stringData") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(text)) => text,
        Some(_) => return Err("stringData is no map of texts".to_owned()),
    };
    let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    let Value::Object(data) = data else { return Err("data is no map".to_owned()) };
    for (key, value) in text {
        let Value::String(value) = value else { return Err(format!("stringData.{key} is no text; quote it")) };
        data.insert(key, STANDARD.encode(value).into());
    }
    Ok(())
}

/// The documents of a text, with the numbers of their first lines.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut start, mut first, mut at) = (Vec::new(), 0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if marker && at > start {
            found.push((first, &text[start..at]));
            (start, first) = (at, number + 1);
        }
        at += line.len();
    }
    found.push((first, &text[start..]));
    found
}

/// The manifests in a folder, in the order of their names. Names that begin with a dot are skipped: a mounted Secret has such folders.
fn files_of(folder: &Path, recursive: bool) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let mut names =
            std::fs::read_dir(&folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
        names.sort();
        for path in names {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with('.') {
                continue;
            }
            let is = std::fs::metadata(&path)?;
            // Like kubectl: follows links to files (mounted ConfigMaps have them), but not links to folders.
            let is_link = std::fs::symlink_metadata(&path)?.is_symlink();
            let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
            if is.is_dir() && !is_link && recursive && depth < MAX_DEPTH {
                folders.push((path, depth + 1));
            } else if is.is_file() && ENDS.contains(&end) {
                found.push(path);
            }
            if found.len() > MAX_FILES {
                return Ok(found);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str =
        "apiVersion: metal3.io/v1alpha1\nkind: BareMetalHost\nmetadata: {name: a}\nspec: {online: true}\n";

    fn of(text: &str) -> Manifests {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f.yaml");
        std::fs::write(&file, text).unwrap();
        Manifests::read(&[file], false, "default")
    }

    #[test]
    fn folders_that_lead_into_themselves_and_endless_faults_come_to_an_end() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), HOST).unwrap();
        for link in ["l1", "l2", "l3", "l4"] {
            std::os::unix::fs::symlink(".", folder.path().join(link)).unwrap();
        }
        std::os::unix::fs::symlink("a.yaml", folder.path().join("b.yaml")).unwrap();
        let found = files_of(folder.path(), true).unwrap();
        assert_eq!(found, [folder.path().join("a.yaml"), folder.path().join("b.yaml")], "a link to a file is a file");
        assert_eq!(of(&"a\n---\n".repeat(100_000)).problems.len(), MAX_PROBLEMS);
        let list = format!("kind: List\napiVersion: v1\nitems: [{}]\n", "1,".repeat(100_000));
        assert_eq!(of(&list).problems.len(), MAX_PROBLEMS);
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_with_its_place() {
        let text = format!(
            "{HOST}---\n---\nkind: [\n---\nkind: Secret\nmetadata: {{generateName: x}}\n---\nv1\n---\nspec: {{}}\nspec: {{}}\n---\n{HOST}"
        );
        let found = of(&text);
        assert_eq!(found.objects.len(), 2);
        for (at, part) in [
            ("document 2 (from line 6)", "yaml:"),
            ("document 3", "no apiVersion, no metadata.name (a generated name"),
            ("document 4", "no object"),
            ("document 5 (from line 13)", "spec"),
            ("document 6", "BareMetalHost default/a stands in"),
        ] {
            let reported = found.problems.iter().any(|p| p.source.contains(at) && p.message.contains(part));
            assert!(reported, "{at}: {part} is not in {:#?}", found.problems);
        }
        assert_eq!(found.problems.len(), 5, "{:#?}", found.problems);
    }

    #[test]
    fn lists_are_taken_apart_and_secrets_are_data() {
        let found = of(
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ns, uid: u}, stringData: {a: b}, \
             data: {c: ZA==}}\n- {apiVersion: v1, kind: Secret, metadata: {name: t}, stringData: {a: 1}}\n",
        );
        assert_eq!(found.objects.len(), 1);
        assert_eq!(found.objects[0].title(), "Secret ns/s");
        let wanted = serde_json::json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "ns" },
            "data": { "a": "Yg==", "c": "ZA==" } });
        assert_eq!(found.objects[0].value, wanted);
        assert!(found.problems[0].source.ends_with("document 1, item 2"), "{:?}", found.problems);
        assert!(found.problems[0].message.contains("quote it"), "{:?}", found.problems);
    }

    #[test]
    fn markers_within_texts_are_the_markers_that_yaml_sees() {
        let pieces = documents("a: 1\n--- # two\nb: |\n  ---\n  x\n---\n");
        assert_eq!(pieces, [(1, "a: 1\n"), (2, "--- # two\nb: |\n  ---\n  x\n"), (6, "---\n")]);
        assert_eq!(documents("---x: 1\n"), [(1, "---x: 1\n")]);
        assert_eq!(
            of(&format!("--- {{apiVersion: v1, kind: X, metadata: {{name: b}}}}\n---\n{HOST}")).objects.len(),
            2
        );
    }

    #[test]
    fn folders_give_their_manifests_as_a_mounted_volume_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("..data")).unwrap();
        std::fs::write(at("..data/h.yaml"), HOST).unwrap();
        std::os::unix::fs::symlink("..data/h.yaml", at("h.yaml")).unwrap();
        std::fs::create_dir(at("more")).unwrap();
        std::fs::write(at("more/b.json"), HOST.replace("name: a", "name: b")).unwrap();
        std::fs::write(at("notes.txt"), "[").unwrap();
        let read = |recursive| Manifests::read(&[folder.path().to_owned()], recursive, "default");
        let names = |found: Manifests| found.objects.into_iter().map(|o| o.name).collect::<Vec<_>>();
        assert_eq!(names(read(false)), ["a"]);
        assert_eq!(names(read(true)), ["a", "b"]);
        let none = Manifests::read(&[at("more/none"), at("..data/x")], true, "default");
        assert_eq!(none.problems.len(), 2);
        std::fs::remove_file(at("h.yaml")).unwrap();
        assert!(read(false).problems[0].message.contains("--recursive"));
    }

    #[test]
    fn what_yaml_takes_for_something_else_is_no_name() {
        for (metadata, says) in
            [("{name: a, namespace: n}", "namespace is read as false"), ("{name: 12}", "name is read as 12")]
        {
            let found = of(&HOST.replace("{name: a}", metadata));
            assert!(found.objects.is_empty() && found.problems[0].message.contains(says), "{:?}", found.problems);
        }
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let deep = (0..8).fold(
            serde_json::json!({ "kind": "X" }),
            |inner, _| serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [inner] }),
        );
        let deep = deep.to_string();
        assert!(of(&deep).problems[0].message.contains("lists stand in lists"), "{:?}", of(&deep).problems);
        let mut all = Manifests { left: 10, ..Manifests::default() };
        all.take(&mut HOST.as_bytes(), "x", "default");
        assert!(all.problems[0].message.contains("MiB") && all.objects.is_empty());
        all.take(&mut &b"\xff"[..], "y", "default");
        assert_eq!(all.problems.len(), 2);
    }
}
