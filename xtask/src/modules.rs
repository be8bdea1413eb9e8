//! Which module of a crate uses which: no circle of more than a few files.
//!
//! A path (`crate::a::b`, `super::c`, `child::d`, in a `use` or in code) leads to the file of the deepest module that it names; where
//! that file has the name only by a `use` of its own, to the file which that leads to, so that a module which hands on others' names
//! is no part of a circle. Tests are left out. Macros of ours and methods are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::lexer::{self, Kind, Token};
use crate::report::Problem;
use crate::source::{self, SourceFile};

/// Files that may use each other in a circle: a type and its two halves, say.
const CIRCLE_FILES: usize = 3;
/// How many names that lead to other names are followed.
const MAX_HOPS: usize = 8;
/// Words before the name of an item.
const ITEMS: [&str; 10] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "macro_rules"];

/// Files by the files that they use, each with the paths that lead there.
type Graph = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// A module's path within its crate: empty for the crate's root.
type Name = Vec<String>;

/// One file's module.
#[derive(Default)]
struct Module {
    file: usize,
    /// Names of its own.
    items: BTreeSet<String>,
    /// Names that a `use` gives it, with the paths that these lead to from here.
    uses: BTreeMap<String, Name>,
    /// Paths whose names all come here (`use a::*`).
    globs: Vec<Name>,
    /// Every path that its code names, with the place's inner modules resolved.
    paths: BTreeSet<Name>,
}

impl Module {
    /// Whether there is nothing in it but tests.
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.uses.is_empty() && self.globs.is_empty() && self.paths.is_empty()
    }
}

/// Every circle of more than [`CIRCLE_FILES`] files among these, which are the sources of the crate in `folder`.
pub fn check(folder: &Path, files: &[SourceFile]) -> Vec<Problem> {
    let source_folder = folder.join("src");
    let modules = read(&source_folder, files);
    let graph = graph(&modules);
    let mut problems = Vec::new();
    for circle in circles(&graph) {
        if circle.len() > CIRCLE_FILES {
            let names: Vec<String> = circle
                .iter()
                .filter_map(|file| files.get(*file))
                .map(|f| relative_path(&source_folder, &f.path))
                .collect();
            let text = format!("{} files use each other in a circle: {}", circle.len(), names.join(", "));
            let path = source_folder.clone();
            problems.push(Problem { rule: "module-circle", path, line: 1, amount: circle.len(), text });
        }
    }
    problems
}

/// What holds a crate's circles together: each use of a circle's file by another, with the paths by which it is used.
pub fn explain(folder: &Path, files: &[SourceFile]) -> Vec<String> {
    let source_folder = folder.join("src");
    let graph = graph(&read(&source_folder, files));
    let name = |file: &usize| files.get(*file).map_or_else(String::new, |f| relative_path(&source_folder, &f.path));
    let mut lines = Vec::new();
    for circle in circles(&graph) {
        lines.push(format!("a circle of {} files:", circle.len()));
        for (user, uses) in graph.iter().filter(|(user, _)| circle.contains(user)) {
            for (used, paths) in uses.iter().filter(|(used, _)| circle.contains(used)) {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                lines.push(format!("  {} -> {}: {}", name(user), name(used), paths.join(", ")));
            }
        }
    }
    lines
}

/// The modules below a crate's root, each with those that it uses and the paths by which it does.
pub type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Which module below the crate's root uses which. Modules of tests alone are left out.
pub fn uses(folder: &Path, files: &[SourceFile]) -> Uses {
    let source_folder = folder.join("src");
    let top = |file: &usize| files.get(*file).and_then(|f| top_module(&source_folder, &f.path));
    let modules = read(&source_folder, files);
    let tests: BTreeSet<usize> =
        modules.values().filter(|module| module.is_empty()).map(|module| module.file).collect();
    let mut found = Uses::new();
    for (user, used) in graph(&modules) {
        let Some(user) = top(&user).filter(|_| !tests.contains(&user)) else { continue };
        let entry = found.entry(user.clone()).or_default();
        for (used, paths) in used {
            if let Some(used) = top(&used).filter(|used| *used != user) {
                entry.entry(used).or_default().extend(paths);
            }
        }
    }
    found
}

/// The name of the module below the crate's root that a file belongs to; `None` for the root itself.
fn top_module(source_folder: &Path, path: &Path) -> Option<String> {
    module_name(path.strip_prefix(source_folder).ok()?).into_iter().next()
}

fn relative_path(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

/// The modules of a crate, by path.
fn read(source_folder: &Path, files: &[SourceFile]) -> BTreeMap<Name, Module> {
    let mut modules = BTreeMap::new();
    for (index, (file, tokens)) in files.iter().zip(source::code(files)).enumerate() {
        let Ok(inside) = file.path.strip_prefix(source_folder) else { continue };
        let mut module = Module { file: index, ..Module::default() };
        let name = module_name(inside);
        gather(&tokens, &name, &mut module);
        modules.insert(name, module);
    }
    modules
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; `lib.rs` and `main.rs` are the root.
fn module_name(inside: &Path) -> Name {
    let mut name: Name =
        inside.with_extension("").components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
    if name.last().is_some_and(|last| last == "mod")
        || matches!(name.as_slice(), [one] if one == "lib" || one == "main")
    {
        name.pop();
    }
    name
}

/// Collects a file's items, uses and paths.
fn gather(tokens: &[Token<'_>], here: &[String], module: &mut Module) {
    let text = |at: usize| tokens.get(at).map_or("", |t| t.text);
    let mut at = 0;
    while at < tokens.len() {
        let Some(token) = tokens.get(at) else { break };
        if token.kind == Kind::Ident && ITEMS.contains(&token.text) {
            let name = if token.text == "macro_rules" { at + 2 } else { at + 1 };
            module.items.insert(text(name).to_owned());
        }
        if token.is("use") {
            let end = (at..tokens.len()).find(|i| text(*i) == ";").unwrap_or(tokens.len());
            let mut leaves = Vec::new();
            use_tree(tokens.get(at + 1..end).unwrap_or_default(), &[], &mut leaves);
            for (path, alias) in leaves {
                add_use(path, alias, here, module);
            }
            at = end;
        } else if token.kind == Kind::Ident && text(at + 1) == ":" && text(at + 2) == ":" {
            let mut path = vec![token.text.to_owned()];
            while text(at + 1) == ":"
                && text(at + 2) == ":"
                && tokens.get(at + 3).is_some_and(|t| t.kind == Kind::Ident)
            {
                path.push(text(at + 3).to_owned());
                at += 3;
            }
            module.paths.extend(absolute(&path, here));
        }
        at += 1;
    }
}

fn add_use(mut path: Name, alias: Option<String>, here: &[String], module: &mut Module) {
    let glob = path.last().is_some_and(|l| l == "*");
    let is_self = path.last().is_some_and(|l| l == "self");
    if glob || is_self {
        path.pop();
    }
    let Some(full) = absolute(&path, here) else { return };
    if glob {
        module.globs.push(full);
    } else if let Some(name) = alias.or_else(|| path.last().cloned()) {
        module.uses.insert(name, full);
    }
}

/// A path as seen from the crate's root; `None` if it begins in another crate.
///
/// A path that begins with a name of this file (a child, or what a `use` gives it) is one of this file's; whether there is such a name is seen
/// when it is followed.
fn absolute(path: &[String], here: &[String]) -> Option<Name> {
    let mut name: Name = here.to_vec();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => {
            name.clear();
            rest = rest.get(1..)?;
        }
        "self" => rest = rest.get(1..)?,
        "super" => {
            while rest.first().is_some_and(|s| s == "super") {
                name.pop()?;
                rest = rest.get(1..)?;
            }
        }
        "Self" | "std" | "core" | "alloc" => return None,
        _ => {}
    }
    name.extend(rest.iter().cloned());
    Some(name)
}

/// The leaves of a `use`, each with the name that `as` gives it.
fn use_tree(tokens: &[Token<'_>], before: &[String], leaves: &mut Vec<(Name, Option<String>)>) {
    let mut path = before.to_vec();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.text {
            ":" => {}
            "{" => {
                let close = lexer::matching(tokens, at);
                for branch in branches(tokens.get(at + 1..close).unwrap_or_default()) {
                    use_tree(branch, &path, leaves);
                }
                return;
            }
            "as" => {
                leaves.push((path, tokens.get(at + 1).map(|t| t.text.to_owned())));
                return;
            }
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    if path.len() > before.len() {
        leaves.push((path, None));
    }
}

/// What commas divide, at this depth.
fn branches<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let (mut found, mut start, mut at) = (Vec::new(), 0, 0);
    while let Some(token) = tokens.get(at) {
        if token.is("{") {
            at = lexer::matching(tokens, at);
        } else if token.is(",") {
            found.extend(tokens.get(start..at));
            start = at + 1;
        }
        at += 1;
    }
    found.extend(tokens.get(start..));
    found
}

/// The file that a path leads to.
fn lead(modules: &BTreeMap<Name, Module>, path: &[String], hops: usize) -> Option<usize> {
    let depth = (0..=path.len()).rev().find(|n| path.get(..*n).is_some_and(|p| modules.contains_key(p)))?;
    let module = modules.get(path.get(..depth)?)?;
    let Some(next) = path.get(depth) else { return Some(module.file) };
    if module.items.contains(next) || hops == 0 {
        return Some(module.file);
    }
    let rest = path.get(depth + 1..).unwrap_or_default();
    let onward = |to: &Name| {
        let longer: Name = to.iter().chain(rest).cloned().collect();
        (longer != path).then(|| lead(modules, &longer, hops - 1)).flatten()
    };
    if let Some(to) = module.uses.get(next) {
        return onward(to);
    }
    // A name of another crate, or one that a glob brings in.
    module.globs.iter().find_map(|glob| {
        let named: Name = glob.iter().chain(path.get(depth..).unwrap_or_default()).cloned().collect();
        let found = (named != path).then(|| lead(modules, &named, hops - 1)).flatten();
        found.filter(|_| modules.get(glob).is_some_and(|m| has(modules, m, next, hops)))
    })
}

fn has(modules: &BTreeMap<Name, Module>, module: &Module, name: &str, hops: usize) -> bool {
    module.items.contains(name)
        || module.uses.contains_key(name)
        || (hops > 0 && module.globs.iter().filter_map(|g| modules.get(g)).any(|m| has(modules, m, name, hops - 1)))
}

/// Files by the files that they use, with the paths by which they do.
fn graph(modules: &BTreeMap<Name, Module>) -> Graph {
    let mut graph = Graph::new();
    for module in modules.values() {
        let used = graph.entry(module.file).or_default();
        for path in module.paths.iter().chain(module.uses.values()).chain(&module.globs) {
            if let Some(to) = lead(modules, path, MAX_HOPS).filter(|to| *to != module.file) {
                used.entry(to).or_default().insert(path.join("::"));
            }
        }
    }
    graph
}

/// Sets of files each of which leads to all others of its set (Tarjan's strongly connected components), of two files and more.
fn circles(graph: &Graph) -> Vec<Vec<usize>> {
    let reach: BTreeMap<usize, BTreeSet<usize>> = graph.keys().map(|from| (*from, reached(graph, *from))).collect();
    let leads = |from: usize, to: usize| reach.get(&from).is_some_and(|r| r.contains(&to));
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for from in graph.keys().copied() {
        if done.contains(&from) {
            continue;
        }
        let circle: Vec<usize> =
            graph.keys().copied().filter(|to| *to == from || (leads(from, *to) && leads(*to, from))).collect();
        done.extend(circle.iter().copied());
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found
}

fn reached(graph: &Graph, from: usize) -> BTreeSet<usize> {
    let mut open = vec![from];
    let mut seen = BTreeSet::new();
    while let Some(at) = open.pop() {
        for to in graph.get(&at).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(*to) {
                open.push(*to);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn check_tree(tree: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = tree
            .iter()
            .map(|(path, text)| SourceFile {
                path: PathBuf::from("crates/x/src").join(path),
                text: format!("//! Doc.\n{text}"),
                is_test: false,
            })
            .collect();
        check(Path::new("crates/x"), &files).into_iter().map(|p| p.text).collect()
    }

    const RING: [(&str, &str); 4] = [
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use super::c::C; pub struct B;"),
        ("c.rs", "fn f() { crate::d::D::new() } pub struct C;"),
        ("d/mod.rs", "use super::{a::{A, other}, b}; pub struct D;"),
    ];

    #[test]
    fn a_circle_is_seen_by_uses_and_by_paths_in_code() {
        assert_eq!(check_tree(&RING), ["4 files use each other in a circle: a.rs, b.rs, c.rs, d/mod.rs"]);
    }

    #[test]
    fn three_files_may_and_tests_are_left_out() {
        assert_eq!(check_tree(&RING[..3]), [""; 0]);
        let mut tree = RING;
        tree[3].1 = "#[cfg(test)] mod tests { use crate::a::A; } pub struct D;";
        assert_eq!(check_tree(&tree), [""; 0]);
        tree[3].1 = "/// crate::a::A\npub struct D;";
        assert_eq!(check_tree(&tree), [""; 0]);
    }

    #[test]
    fn a_root_that_hands_names_on_is_no_part_of_a_circle() {
        let tree = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use b::*; pub use c::Real as C;"),
            ("a.rs", "use crate::B; pub struct A;"),
            ("b.rs", "use crate::C; pub struct B;"),
            ("c.rs", "pub struct Real;"),
        ];
        assert_eq!(check_tree(&tree), [""; 0]);
        let mut tree = tree;
        tree[0].1 = "mod a; mod b; mod c; pub use a::A; pub use b::*; pub use c::Real as C; pub struct Own;";
        tree[3].1 = "use crate::Own; pub struct Real;";
        assert_eq!(check_tree(&tree), ["4 files use each other in a circle: lib.rs, a.rs, b.rs, c.rs"]);
    }

    #[test]
    fn names_of_other_crates_lead_nowhere() {
        let mut tree = RING;
        tree[3].1 = "use serde::a::A; fn f() { std::a::b(); tokio::spawn() } pub struct D;";
        assert_eq!(check_tree(&tree), [""; 0]);
    }
}
