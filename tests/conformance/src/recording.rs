//! What the real server said, on disk: of each file of cases a `.yaml` that a person reads (what was asked, status, message) and a `.bodies.yaml`
//! with the rest. Both are written here and never by hand, with no line of more than 200 characters.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use crate::case::{File, fill};

/// Answers by case.
pub type Recorded = Map<String, Value>;

/// Where a long text is broken.
const WIDTH: usize = 180;

/// Both files.
fn paths(folder: &Path, file: &File) -> [PathBuf; 2] {
    let area = folder.join(&file.area);
    [area.join(format!("{}.yaml", file.name)), area.join(format!("{}.bodies.yaml", file.name))]
}

/// What is recorded of a file; nothing, if it was never recorded.
pub fn read(folder: &Path, file: &File) -> Result<Recorded> {
    let [outline, rest] = paths(folder, file);
    if !outline.exists() {
        return Ok(Recorded::new());
    }
    let [outline, rest] = [outline, rest].map(|path| {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        parse(&text).with_context(|| path.display().to_string())
    });
    join(outline?, rest?)
}

/// Writes both, after it has read them again.
pub fn write(folder: &Path, file: &File, recorded: &Recorded) -> Result<()> {
    let [outline, rest] = split(file, recorded);
    let texts = [outline_text(&outline), rest_text(&rest)];
    let again = join(parse(&texts[0])?, parse(&texts[1])?)?;
    ensure!(&again == recorded, "{}: what is written would not be read as what was answered", file.path());
    for (path, text) in paths(folder, file).iter().zip(texts) {
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<Recorded> {
    Ok(serde_saphyr::from_str(text)?)
}

/// What a person looks for first, and the rest.
fn split(file: &File, recorded: &Recorded) -> [Recorded; 2] {
    let (mut outline, mut rest) = (Recorded::new(), Recorded::new());
    for (name, answers) in recorded {
        let answers = answers.as_array().cloned().unwrap_or_default();
        let asked = asked(file, name, answers.len());
        let (mut first, mut others) = (Vec::new(), Vec::new());
        for (index, mut answer) in answers.into_iter().enumerate() {
            let mut line = Map::new();
            line.extend(asked.get(index).map(|text| ("asked".to_owned(), json!(text))));
            let object = answer.as_object_mut();
            line.extend(object.and_then(|o| o.shift_remove_entry("status")));
            let body = answer.get_mut("body").and_then(Value::as_object_mut);
            if let Some(body) = body.filter(|body| body.get("message").is_some_and(Value::is_string)) {
                line.extend(body.shift_remove_entry("message"));
            }
            first.push(Value::Object(line));
            others.push(answer);
        }
        outline.insert(name.clone(), Value::Array(first));
        rest.insert(name.clone(), Value::Array(others));
    }
    [outline, rest]
}

/// Puts both together again.
fn join(outline: Recorded, mut rest: Recorded) -> Result<Recorded> {
    ensure!(outline.len() == rest.len(), "{} cases, and bodies of {}", outline.len(), rest.len());
    for (name, lines) in outline {
        let answers =
            rest.get_mut(&name).and_then(Value::as_array_mut).with_context(|| format!("no bodies of {name}"))?;
        let lines = lines.as_array().with_context(|| format!("{name} is no list"))?;
        ensure!(lines.len() == answers.len(), "{name}: {} answers, and {} bodies", lines.len(), answers.len());
        for (line, answer) in lines.iter().zip(answers) {
            if let Some(status) = line.get("status") {
                answer["status"] = status.clone();
            }
            if let Some(message) = line.get("message") {
                answer["body"]["message"] = message.clone();
            }
        }
    }
    Ok(rest)
}

/// What each answer is to, as the case says it, with the values of its row but for names that are made for the case alone; nothing where that
/// depends on what was answered (a watch that is refused has its answer at once).
fn asked(file: &File, name: &str, answers: usize) -> Vec<String> {
    let Some(case) = file.cases.iter().find(|case| case.name == name) else { return Vec::new() };
    let mut variables = file.variables.clone();
    variables.extend(case.variables.clone());
    variables.retain(|name, _| !["ns", "ns2", "own", "group"].contains(&name.as_str()));
    let compared = case.steps.iter().filter(|step| step["quiet"] != json!(true));
    let all: Vec<String> = compared.filter_map(|step| request(&fill(step, &variables))).collect();
    if all.len() == answers { all } else { Vec::new() }
}

fn request(step: &Value) -> Option<String> {
    let verbs = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "events", "calls"];
    verbs.iter().find_map(|verb| Some(format!("{verb} {}", step.get(verb)?.as_str()?)))
}

fn outline_text(outline: &Recorded) -> String {
    let mut text = String::new();
    for (name, lines) in outline {
        let lines = lines.as_array().map(Vec::as_slice).unwrap_or_default();
        let _ = writeln!(text, "{}:{}", quoted(name, usize::MAX, 0), if lines.is_empty() { " []" } else { "" });
        for line in lines {
            let mut mark = "- ";
            for (key, value) in line.as_object().into_iter().flatten() {
                let value =
                    value.as_str().map_or_else(|| value.to_string(), |value| quoted(value, WIDTH, key.len() + 4));
                let _ = writeln!(text, "{mark}{key}: {value}");
                mark = "  ";
            }
            if mark == "- " {
                text.push_str("- {}\n");
            }
        }
    }
    text
}

/// JSON, one value a line, which is YAML: with long texts broken.
fn rest_text(rest: &Recorded) -> String {
    let mut text = String::new();
    pretty(&Value::Object(rest.clone()), 0, &mut text);
    text.push('\n');
    text
}

fn pretty(value: &Value, indent: usize, out: &mut String) {
    let inner = " ".repeat(indent + 1);
    let mut each = |entries: Vec<(String, &Value)>, [open, close]: [char; 2]| {
        out.push(open);
        for (index, (key, value)) in entries.iter().enumerate() {
            let _ = write!(out, "{}\n{inner}{key}", if index == 0 { "" } else { "," });
            pretty(value, indent + 1, out);
        }
        if !entries.is_empty() {
            let _ = write!(out, "\n{}", " ".repeat(indent));
        }
        out.push(close);
    };
    match value {
        Value::Object(object) => {
            each(object.iter().map(|(k, v)| (format!("{}: ", quoted(k, usize::MAX, 0)), v)).collect(), ['{', '}']);
        }
        Value::Array(array) => each(array.iter().map(|v| (String::new(), v)).collect(), ['[', ']']),
        Value::String(text) => {
            let used = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
            out.push_str(&quoted(text, WIDTH, used));
        }
        other => out.push_str(&other.to_string()),
    }
}

/// A text in double quotes as JSON has them, which YAML reads alike, broken as only YAML can: a backslash at the end of a line continues the
/// text at the first character of the next that is no blank (YAML 1.2, section 7.3.1).
fn quoted(text: &str, width: usize, used: usize) -> String {
    let mut out = String::from("\"");
    let mut column = used + 1;
    for c in text.chars() {
        if column >= width {
            out.push_str("\\\n    ");
            column = 4;
            if c == ' ' {
                out.push('\\');
            }
        }
        let before = out.len();
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // What is not printable, and what some take for the end of a line.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
        column += out.len() - before;
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        let cases = "vars: {x: /x}\ncases:\n- name: a\n  steps:\n  - {GET: \"{x}{ns}\"}\n  - {POST: /y, quiet: true}\n  - {calls: k}\n";
        crate::case::parse("area", "name", cases).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again_and_no_line_is_long() {
        let long = format!("{} {}\u{85}\u{2028}\"\\\n\tä€𝄞", "word ".repeat(200), "x".repeat(1000));
        let answers = json!({ "a": [
            { "status": 404, "headers": { "a": long }, "body": { "message": long, "code": 404, "details": [1.0, 1, -3, 1e300, null, true, {}, []] } },
            { "calls": [{ "message": long }] },
        ], "gone": [{ "status": 200, "headers": {}, "body": long }], "none": [] });
        let folder = tempfile::tempdir().unwrap();
        let recorded = answers.as_object().unwrap();
        write(folder.path(), &file(), recorded).unwrap();
        assert_eq!(&read(folder.path(), &file()).unwrap(), recorded);
        for path in paths(folder.path(), &file()) {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
        }
        let outline = std::fs::read_to_string(&paths(folder.path(), &file())[0]).unwrap();
        assert!(
            outline.starts_with("\"a\":\n- asked: \"GET /x{ns}\"\n  status: 404\n  message: \"word word"),
            "{outline}"
        );
        assert!(outline.contains("- asked: \"calls k\"\n\"gone\":\n- status: 200\n\"none\": []\n"), "{outline}");
    }

    #[test]
    fn halves_that_do_not_belong_together_are_an_error() {
        let map = |value: Value| value.as_object().unwrap().clone();
        for (outline, rest) in [
            (json!({ "a": [] }), json!({})),
            (json!({ "a": [] }), json!({ "b": [] })),
            (json!({ "a": [{ "status": 200 }] }), json!({ "a": [] })),
        ] {
            join(map(outline), map(rest)).unwrap_err();
        }
    }
}
