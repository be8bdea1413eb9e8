//! What is switched off in a copy of the sources: each thing names tests, which must fail then.
//!
//! A thing without a batch is switched off at run time: its edits are expressions, and each becomes a choice between two of the same type, made by
//! a variable of the environment. So one build serves all of them, and each is switched off alone. What is no expression is edited in its batch: those of
//! one batch are edited together, in one build, and must not touch each other's tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::report::Report;
use crate::seeded::{self, Edit, say};

/// The variable that names what is switched off.
pub const OFF: &str = "METAMORPH_SWITCHED_OFF";

/// Something that is switched off.
pub struct Switch<'t> {
    /// Its name, which no other has.
    pub name: &'t str,
    /// With which others it is edited; at run time if there is none.
    pub batch: Option<u8>,
    /// Tests that must fail: the binary's id, a space, and the path of the test.
    pub tests: &'t [String],
    /// What switches it off.
    pub edits: &'t [Edit],
}

/// An expression, or statements, that become a choice.
struct Choice<'t> {
    place: Range<usize>,
    name: &'t str,
    replace: &'t str,
    /// Whole statements: what holds them is no expression.
    statements: bool,
}

/// Has a copy of the sources choose at run time, by [`OFF`], between what it does and what each of these edits makes of it: expressions, or statements of
/// which none declares what is used after them. The files as they were before, by their names.
///
/// # Errors
/// When an edit does not find its place, or two overlap.
pub fn seed_choices<'t>(tree: &Path, edits: &[(&'t str, &'t Edit)]) -> Result<BTreeMap<&'t Path, String>> {
    let mut found: BTreeMap<&Path, Vec<Choice<'_>>> = BTreeMap::new();
    for (name, edit) in edits {
        let place = edit.place(&seeded::read(&tree.join(&edit.file))?).with_context(|| format!("\"{name}\""))?;
        let statements = edit.find.contains(';');
        found.entry(&edit.file).or_default().push(Choice { place, name, replace: edit.replace.trim(), statements });
    }
    let mut good = BTreeMap::new();
    for (file, choices) in found {
        let text = seeded::read(&tree.join(file))?;
        seeded::write(&tree.join(file), &chosen(&text, &choices)?)?;
        good.insert(file, text);
    }
    Ok(good)
}

/// Checks that each is named once, has tests, and finds what it edits.
///
/// # Errors
/// What is wrong with the first that is not so.
pub fn check(root: &Path, switches: &[Switch<'_>]) -> Result<()> {
    let mut batches: BTreeMap<u8, BTreeMap<PathBuf, String>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for switch in switches {
        let wrong = || format!("\"{}\"", switch.name);
        ensure!(names.insert(switch.name), "{} stands twice", wrong());
        ensure!(!switch.tests.is_empty() && !switch.edits.is_empty(), "{}: no test, or no edit", wrong());
        let Some(batch) = switch.batch else { continue };
        for edit in switch.edits {
            let texts = batches.entry(batch).or_default();
            let text = match texts.get(&edit.file) {
                Some(text) => text.clone(),
                None => seeded::read(&root.join(&edit.file))?,
            };
            texts.insert(edit.file.clone(), edit.applied(&text).with_context(wrong)?);
        }
    }
    for (file, choices) in choices(root, switches)? {
        chosen(&seeded::read(&root.join(file))?, &choices).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// The choices in each file.
fn choices<'t>(root: &Path, switches: &[Switch<'t>]) -> Result<BTreeMap<&'t Path, Vec<Choice<'t>>>> {
    let mut found: BTreeMap<&Path, Vec<Choice<'_>>> = BTreeMap::new();
    for switch in switches.iter().filter(|switch| switch.batch.is_none()) {
        for edit in switch.edits {
            let place = edit.place(&seeded::read(&root.join(&edit.file))?);
            let place = place.with_context(|| format!("\"{}\"", switch.name))?;
            found.entry(&edit.file).or_default().push(Choice {
                place,
                name: switch.name,
                replace: edit.replace.trim(),
                statements: false,
            });
        }
    }
    Ok(found)
}

/// The text with its choices. One within another, or at the same place, is a choice of what the outer one leaves as it is.
///
/// # Errors
/// When two overlap otherwise.
fn chosen(text: &str, choices: &[Choice<'_>]) -> Result<String> {
    let mut sorted: Vec<&Choice<'_>> = choices.iter().collect();
    sorted.sort_by_key(|choice| (choice.place.start, usize::MAX - choice.place.end));
    within(text, 0..text.len(), &sorted)
}

fn within(text: &str, place: Range<usize>, choices: &[&Choice<'_>]) -> Result<String> {
    let part = |range: Range<usize>| text.get(range).unwrap_or_default();
    let (mut made, mut at, mut rest) = (String::new(), place.start, choices);
    while let Some((outer, after)) = rest.split_first() {
        let inner = after.iter().take_while(|choice| choice.place.start < outer.place.end).count();
        let (inner, after) = after.split_at(inner);
        ensure!(
            inner.iter().all(|choice| choice.place.end <= outer.place.end),
            "\"{}\" overlaps with another",
            outer.name
        );
        made += part(at..outer.place.start);
        let kept = within(text, outer.place.clone(), inner)?;
        let (name, replace) = (outer.name, outer.replace);
        let choice = format!(
            "if ::std::env::var_os({OFF:?}).is_some_and(|off| off == {name:?}) {{ {replace} }} else {{ {kept} }}"
        );
        made += &if outer.statements { choice } else { format!("({choice})") };
        (at, rest) = (outer.place.end, after);
    }
    made += part(at..place.end);
    Ok(made)
}

/// The packages of tests, and what selects these tests in nextest's language.
fn selection<'t>(tests: impl Iterator<Item = &'t str>) -> (Vec<String>, String) {
    let mut packages = BTreeSet::new();
    let mut filter = Vec::new();
    for (binary, test) in tests.filter_map(|test| test.split_once(' ')) {
        packages.insert(binary.split("::").next().unwrap_or(binary).to_owned());
        filter.push(format!("(binary_id(={binary}) & test(={test}))"));
    }
    (packages.into_iter().collect(), filter.join(" | "))
}

/// Switches each off and runs its tests. `what` is what they are called.
///
/// # Errors
/// When the tests cannot be built or run, or one of them fails with nothing switched off.
pub fn run(root: &Path, what: &str, switches: &[Switch<'_>]) -> Result<Report> {
    ensure!(!switches.is_empty(), "there are no {what} of this name");
    let tree = seeded::copied(root, &root.join("target/defects"))?;
    let all: BTreeSet<&str> = switches.iter().flat_map(|switch| switch.tests.iter().map(String::as_str)).collect();
    let (packages, filter) = selection(all.iter().copied());
    let mut good: BTreeMap<&Path, String> = BTreeMap::new();
    let mut seeding = || -> Result<()> {
        for (file, choices) in choices(&tree, switches)? {
            let text = seeded::read(&tree.join(file))?;
            seeded::write(&tree.join(file), &chosen(&text, &choices)?)?;
            good.insert(file, text);
        }
        Ok(())
    };
    let mut problems = Vec::new();
    let mut count = |switch: &Switch<'_>, failed: &BTreeSet<String>| {
        let (seen, unseen): (Vec<&String>, Vec<&String>) = switch.tests.iter().partition(|test| failed.contains(*test));
        say(&format!("{:<90} {} of {} tests fail", switch.name, seen.len(), switch.tests.len()));
        problems.extend(unseen.iter().map(|test| format!("\"{}\": {test} passes without it", switch.name)));
    };
    let mut chosen = || -> Result<()> {
        let built = seeded::build(&tree, &packages)?.context("the sources do not build with nothing switched off")?;
        let sound = built.run(&filter, &[])?;
        ensure!(sound.failed.is_empty(), "these tests fail with nothing switched off: {:?}", sound.failed);
        ensure!(sound.count == all.len(), "{} tests are named, {} were found", all.len(), sound.count);
        for switch in switches.iter().filter(|switch| switch.batch.is_none()) {
            let (_, filter) = selection(switch.tests.iter().map(String::as_str));
            count(switch, &built.run(&filter, &[(OFF, switch.name)])?.failed);
        }
        Ok(())
    };
    let done = seeding().and_then(|()| chosen());
    for (file, text) in good {
        seeded::write(&tree.join(file), &text)?;
    }
    done?;
    let mut broken = Vec::new();
    let batches: BTreeSet<u8> = switches.iter().filter_map(|switch| switch.batch).collect();
    for batch in batches {
        let together: Vec<&Switch<'_>> = switches.iter().filter(|switch| switch.batch == Some(batch)).collect();
        match edited(&tree, &together)? {
            Some(failed) => together.iter().for_each(|switch| count(switch, &failed)),
            None => broken.push(format!("batch {batch} does not compile")),
        }
    }
    problems.extend(broken);
    let summary = format!("{what}: {} switched off, {} tests, {} problems", switches.len(), all.len(), problems.len());
    Ok(Report { problems, summary })
}

/// The tests that fail with these edits; `None` if the sources do not compile then. The sources are as before afterwards.
fn edited(tree: &Path, switches: &[&Switch<'_>]) -> Result<Option<BTreeSet<String>>> {
    let (packages, filter) = selection(switches.iter().flat_map(|switch| switch.tests.iter().map(String::as_str)));
    let mut good: BTreeMap<&Path, String> = BTreeMap::new();
    let mut seeding = || -> Result<()> {
        for edit in switches.iter().flat_map(|switch| switch.edits) {
            let text = edit.seed(tree)?;
            good.entry(&edit.file).or_insert(text);
        }
        Ok(())
    };
    let ran = seeding().and_then(|()| match seeded::build(tree, &packages)? {
        Some(built) => built.run(&filter, &[]).map(Some),
        None => Ok(None),
    });
    for (file, text) in good {
        seeded::write(&tree.join(file), &text)?;
    }
    Ok(ran?.map(|ran| ran.failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_selected_by_binary_and_path() {
        let (packages, filter) = selection(["a::it x::y", "a z", "b z"].into_iter());
        assert_eq!(packages, ["a", "b"]);
        assert_eq!(
            filter,
            "(binary_id(=a::it) & test(=x::y)) | (binary_id(=a) & test(=z)) | (binary_id(=b) & test(=z))"
        );
    }

    #[test]
    fn expressions_become_choices_also_within_each_other() {
        let text = "let a = f(x) + g(y);";
        let choice = |find: &str, name, replace| {
            let at = text.find(find).unwrap();
            Choice { place: at..at + find.len(), name, replace, statements: find.contains(';') }
        };
        let of = |name: &str, replace: &str, kept: &str| {
            format!(
                "(if ::std::env::var_os(\"{OFF}\").is_some_and(|off| off == \"{name}\") {{ {replace} }} else {{ {kept} }})"
            )
        };
        let made = chosen(text, &[choice("x", "one", "0"), choice("f(x)", "two", "1"), choice("g(y)", "three", "2")]);
        let two = of("two", "1", &format!("f({})", of("one", "0", "x")));
        assert_eq!(made.unwrap(), format!("let a = {two} + {};", of("three", "2", "g(y)")));
        let twice = chosen(text, &[choice("g(y)", "one", "0"), choice("g(y)", "two", "1")]).unwrap();
        assert_eq!(twice, format!("let a = f(x) + {};", of("one", "0", &of("two", "1", "g(y)"))));
        assert!(chosen(text, &[choice("f(x) + g", "one", "0"), choice("g(y)", "two", "1")]).is_err());
        // Statements stand for themselves.
        let made = chosen(text, &[choice(text, "one", "h();")]).unwrap();
        assert!(made.starts_with("if ") && made.ends_with(&format!("{{ h(); }} else {{ {text} }}")), "{made}");
    }
}
