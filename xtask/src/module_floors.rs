//! The floors within a crate (module-floors.toml): no module uses one of a higher floor, or of its own.
//!
//! The modules are those below the crate's root, each with all that is in it. The table stands beside that of the crates' floors, not in
//! the crates: the plan of the house is read, and reviewed, in one place.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::modules::{self, Uses};
use crate::report::Problem;
use crate::source::SourceFile;
use crate::workspace::{Crate, Workspace};

/// The table.
pub const LIST: &str = "xtask/module-floors.toml";
/// Crates of more files than these declare their floors.
const FREE_FILES: usize = 10;
/// Between modules that use each other.
const CIRCLE: &str = " + ";

/// The table of all crates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    #[serde(default, rename = "crate")]
    crates: Vec<Rooms>,
}

/// One crate's floors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rooms {
    name: String,
    /// Lowest first. `a + b` are modules that use each other.
    floors: Vec<Vec<String>>,
}

/// Reads the table.
pub fn parse(text: &str) -> anyhow::Result<Declared> {
    let declared: Declared = toml::from_str(text)?;
    for (at, rooms) in declared.crates.iter().enumerate() {
        let known = |other: &Rooms| other.name == rooms.name;
        anyhow::ensure!(!declared.crates.iter().take(at).any(known), "the crate {} stands there twice", rooms.name);
    }
    Ok(declared)
}

impl Declared {
    /// Entries of crates that there are not.
    pub fn strangers(&self, workspace: &Workspace) -> Vec<Problem> {
        let unknown = |rooms: &&Rooms| !workspace.crates.iter().any(|krate| krate.name == rooms.name);
        let text = |rooms: &Rooms| format!("there is no crate {}: take its floors away", rooms.name);
        self.crates.iter().filter(unknown).map(|rooms| problem(LIST.into(), text(rooms))).collect()
    }

    /// What in a crate does not fit its floors.
    pub fn check(&self, krate: &Crate, files: &[SourceFile]) -> Vec<Problem> {
        let folder = krate.folder.join("src");
        let uses = modules::uses(&krate.folder, files);
        let texts = match self.crates.iter().find(|rooms| rooms.name == krate.name) {
            Some(rooms) => rooms.judge(&uses),
            None if uses.is_empty() => Vec::new(),
            None if files.iter().filter(|file| file.path.starts_with(&folder)).count() > FREE_FILES => {
                vec![format!("a crate of more than {FREE_FILES} files declares its floors in {LIST}")]
            }
            None => Vec::new(),
        };
        texts.into_iter().map(|text| problem(folder.clone(), text)).collect()
    }
}

fn problem(path: std::path::PathBuf, text: String) -> Problem {
    Problem { rule: "module-floor", path, line: 1, amount: 1, text }
}

impl Rooms {
    fn judge(&self, uses: &Uses) -> Vec<String> {
        let mut texts = Vec::new();
        let mut places: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (floor, groups) in self.floors.iter().enumerate() {
            for (group, names) in groups.iter().enumerate() {
                for name in names.split(CIRCLE) {
                    if places.insert(name, (floor, group)).is_some() {
                        texts.push(format!("the module {name} stands on two floors"));
                    }
                }
            }
        }
        texts.extend(
            uses.keys().filter(|m| !places.contains_key(m.as_str())).map(|m| format!("{m} stands on no floor")),
        );
        let gone = places.keys().filter(|m| !uses.contains_key(**m));
        texts.extend(gone.map(|m| format!("there is no module {m}: take it from its floor")));
        for (user, used) in uses {
            let Some(place) = places.get(user.as_str()) else { continue };
            for (used, paths) in used {
                let Some(other) = places.get(used.as_str()).filter(|other| other.0 >= place.0 && *other != place)
                else {
                    continue;
                };
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let how = if other.0 == place.0 { "stands beside it" } else { "stands above it" };
                texts.push(format!("{user} uses {used}, which {how}: {}", paths.join(", ")));
            }
        }
        let reach = reach(uses);
        for names in self.floors.iter().flatten().filter(|names| names.contains(CIRCLE)) {
            let members: Vec<&str> = names.split(CIRCLE).collect();
            let leads = |a: &str, b: &str| a == b || reach.get(a).is_some_and(|found| found.contains(b));
            if !members.iter().all(|a| members.iter().all(|b| leads(a, b))) {
                texts.push(format!("{names} do not use each other any more: give each its own place"));
            }
        }
        texts
    }
}

/// All modules that each leads to.
fn reach(uses: &Uses) -> BTreeMap<String, BTreeSet<String>> {
    let from = |start: &String| {
        let (mut open, mut seen) = (vec![start], BTreeSet::new());
        while let Some(at) = open.pop() {
            for to in uses.get(at).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(to.clone()) {
                    open.push(to);
                }
            }
        }
        seen
    };
    uses.keys().map(|module| (module.clone(), from(module))).collect()
}

/// The lowest floors on which modules can stand, one a line, as the table has them.
pub fn lowest(uses: &Uses) -> Vec<String> {
    let reach = reach(uses);
    let of = |module: &String| reach.get(module).cloned().unwrap_or_default();
    let mut left: BTreeSet<String> = uses.keys().cloned().collect();
    let mut lines = Vec::new();
    while !left.is_empty() {
        let stands =
            |m: &&String| of(m).iter().filter(|to| left.contains(*to)).all(|to| to == *m || of(to).contains(*m));
        let floor: BTreeSet<String> = left.iter().filter(stands).cloned().collect();
        if floor.is_empty() {
            break;
        }
        let mut groups: Vec<String> = Vec::new();
        for module in &floor {
            let circle: Vec<&str> = floor
                .iter()
                .filter(|o| *o == module || of(module).contains(*o) && of(o).contains(module))
                .map(String::as_str)
                .collect();
            if circle.first() == Some(&module.as_str()) {
                groups.push(format!("\"{}\"", circle.join(CIRCLE)));
            }
        }
        lines.push(format!("    [{}],", groups.join(", ")));
        left.retain(|module| !floor.contains(module));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const TREE: [(&str, &str); 6] = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a/mod.rs", "mod deep; use crate::b::B; pub struct A;"),
        ("a/deep.rs", "use crate::c::C;"),
        ("b.rs", "use crate::a::A; pub struct B;"),
        ("c.rs", "pub struct C;"),
        ("d.rs", "use crate::b::B;"),
    ];

    fn files(tree: &[(&str, &str)]) -> Vec<SourceFile> {
        tree.iter()
            .map(|(path, text)| SourceFile {
                path: PathBuf::from("crates/x/src").join(path),
                text: format!("//! Doc.\n{text}"),
                is_test: false,
            })
            .collect()
    }

    fn uses(tree: &[(&str, &str)]) -> Uses {
        modules::uses(std::path::Path::new("crates/x"), &files(tree))
    }

    fn judged(floors: &[&[&str]], tree: &[(&str, &str)]) -> Vec<String> {
        let floors = floors.iter().map(|floor| floor.iter().map(|m| (*m).to_owned()).collect()).collect();
        Rooms { name: "x".to_owned(), floors }.judge(&uses(tree))
    }

    #[test]
    fn modules_use_lower_floors_and_those_of_their_circle() {
        assert_eq!(judged(&[&["c"], &["a + b"], &["d"]], &TREE), [""; 0]);
        assert_eq!(judged(&[&["c"], &["a + b"], &[], &["d"]], &TREE), [""; 0]);
        assert_eq!(judged(&[&["a + b"], &["c"], &["d"]], &TREE), ["a uses c, which stands above it: c::C"]);
        assert_eq!(
            judged(&[&["c"], &["a", "b"], &["d"]], &TREE),
            ["a uses b, which stands beside it: b::B", "b uses a, which stands beside it: a::A"]
        );
    }

    #[test]
    fn a_table_names_all_modules_once_and_no_circle_that_is_cut() {
        assert_eq!(
            judged(&[&["c", "e"], &["a + b"], &["c"]], &TREE),
            [
                "the module c stands on two floors",
                "d stands on no floor",
                "there is no module e: take it from its floor",
                "a uses c, which stands above it: c::C"
            ]
        );
        let mut tree = TREE;
        tree[3].1 = "pub struct B;";
        let problems = judged(&[&["c"], &["a + b"], &["d"]], &tree);
        assert_eq!(problems, ["a + b do not use each other any more: give each its own place"]);
    }

    #[test]
    fn the_lowest_floors_begin_with_what_uses_nothing_and_keep_circles_together() {
        assert_eq!(lowest(&uses(&TREE)), ["    [\"c\"],", "    [\"a + b\"],", "    [\"d\"],"]);
    }

    #[test]
    fn a_larger_crate_has_floors_and_a_smaller_one_may_do_without() {
        let none = Declared { crates: Vec::new() };
        let krate = Crate { name: "x".to_owned(), folder: PathBuf::from("crates/x"), uses: Vec::new() };
        let tree: Vec<(String, String)> =
            (0..=FREE_FILES).map(|at| (format!("m{at}.rs"), "pub struct A;".to_owned())).collect();
        let tree: Vec<(&str, &str)> = tree.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert_eq!(none.check(&krate, &files(&tree)).len(), 1);
        assert!(none.check(&krate, &files(&tree[1..])).is_empty());
    }

    #[test]
    fn a_crate_stands_there_once() {
        let entry = "[[crate]]\nname = \"x\"\nfloors = []\n";
        assert!(parse(entry).is_ok());
        assert!(parse(&entry.repeat(2)).is_err());
    }
}
