//! The rules for one Rust file: budgets, no way to panic outside tests, documentation, no lint switched off.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::lexer::{self, Kind, Lexed, Token};
use crate::report::Problem;

/// Lines a file may have, its tests not counted.
pub const FILE_LINES: usize = 700;
/// Lines a file of tests may have.
pub const TEST_FILE_LINES: usize = 1000;
/// Variants an error enum may have.
pub const ERROR_VARIANTS: usize = 15;

/// Methods and paths that end the program on an unexpected value.
const PANICKING_METHODS: [&str; 4] = ["unwrap", "expect", "unwrap_err", "expect_err"];
/// Macros that end the program.
const PANICKING_MACROS: [&str; 3] = ["panic", "todo", "unimplemented"];
/// Lints that code outside tests may not switch off; an exception is listed, not annotated.
const GUARDED_LINTS: [&str; 9] = [
    "unwrap_used",
    "expect_used",
    "panic",
    "todo",
    "unimplemented",
    "too_many_lines",
    "too_many_arguments",
    "missing_docs",
    "restriction",
];

/// A Rust file and what is known of it.
pub struct SourceFile {
    /// Path from the project's root.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Whether all of it is test code by its place (below a `tests` or `benches` folder).
    pub is_test: bool,
}

/// Half-open ranges of token indices that are test code.
type Regions = Vec<std::ops::Range<usize>>;

/// Every problem of these files, which are those of one crate: modules declared for tests only make their files tests.
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let lexed: Vec<Lexed<'_>> = files.iter().map(|f| lexer::lex(&f.text)).collect();
    let mut problems = Vec::new();
    for ((file, lexed), is_test) in files.iter().zip(&lexed).zip(are_tests(files, &lexed)) {
        check_file(file, lexed, is_test, &mut problems);
    }
    problems
}

/// What each of a crate's files has outside of tests; nothing if all of it is test code.
pub fn code(files: &[SourceFile]) -> Vec<Vec<Token<'_>>> {
    let lexed: Vec<Lexed<'_>> = files.iter().map(|f| lexer::lex(&f.text)).collect();
    let tests = are_tests(files, &lexed);
    lexed.into_iter().zip(tests).map(|(lexed, test)| if test { Vec::new() } else { outside_tests(lexed) }).collect()
}

fn outside_tests<'a>(lexed: Lexed<'a>) -> Vec<Token<'a>> {
    let regions = test_regions(&lexed.tokens);
    let outside = |i: usize| !regions.iter().any(|r| r.contains(&i));
    lexed.tokens.into_iter().enumerate().filter(|(i, _)| outside(*i)).map(|(_, token)| token).collect()
}

/// Which files are tests as a whole: by their place, by the module that declares them, by an attribute of their own.
fn are_tests(files: &[SourceFile], lexed: &[Lexed<'_>]) -> Vec<bool> {
    let mut test_modules = BTreeSet::new();
    for (file, lexed) in files.iter().zip(lexed) {
        for name in test_module_names(&lexed.tokens) {
            test_modules.insert(module_folder(&file.path).join(name));
        }
    }
    let of_test_module = |file: &SourceFile| {
        let stem = file.path.with_extension("");
        stem.ancestors().any(|folder| test_modules.contains(folder))
    };
    let is_test = |(file, lexed): (&SourceFile, &Lexed<'_>)| {
        file.is_test || of_test_module(file) || has_inner_cfg_test(&lexed.tokens)
    };
    files.iter().zip(lexed).map(is_test).collect()
}

fn check_file(file: &SourceFile, lexed: &Lexed<'_>, is_test: bool, problems: &mut Vec<Problem>) {
    let mut add = |rule: &'static str, line: usize, amount: usize, text: String| {
        problems.push(Problem { rule, path: file.path.clone(), line, amount, text });
    };
    if !lexed.module_doc {
        add("module-doc", 1, 1, "says nothing about itself: begin it with a `//!` comment".into());
    }
    if is_test {
        if lexed.lines > TEST_FILE_LINES {
            let text = format!("has {} lines, a file of tests may have {TEST_FILE_LINES}", lexed.lines);
            add("test-file-lines", 1, lexed.lines, text);
        }
        return;
    }
    let tests = test_regions(&lexed.tokens);
    let lines = lexed.lines - test_lines(&lexed.tokens, &tests);
    if lines > FILE_LINES {
        add("file-lines", 1, lines, format!("has {lines} lines without its tests, a file may have {FILE_LINES}"));
    }
    let outside = |i: usize| !tests.iter().any(|r| r.contains(&i));
    let found = |(line, text): (usize, String), rule| (rule, line, 1, text);
    let panics = panics(&lexed.tokens).into_iter().filter(|(i, _)| outside(*i));
    let lints = switched_off_lints(&lexed.tokens).into_iter().filter(|(i, _)| outside(*i));
    for (rule, line, amount, text) in
        panics.map(|(_, p)| found(p, "no-panic")).chain(lints.map(|(_, p)| found(p, "lint-allowed")))
    {
        add(rule, line, amount, text);
    }
    for (i, name, variants) in error_enums(&lexed.tokens) {
        if variants > ERROR_VARIANTS && outside(i) {
            let text = format!("{name} has {variants} variants, an error enum may have {ERROR_VARIANTS}");
            add("error-variants", line_of(&lexed.tokens, i), variants, text);
        }
    }
}

fn line_of(tokens: &[Token<'_>], i: usize) -> usize {
    tokens.get(i).map_or(1, |t| t.line)
}

/// The folder in which `mod name;` of this file looks for its file.
fn module_folder(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default();
    let root = ["lib", "main", "mod"].iter().any(|name| stem == *name);
    let parent = file.parent().unwrap_or(Path::new(""));
    if root { parent.to_owned() } else { parent.join(stem) }
}

/// The attributes of a file: the index of each `#` with that of its closing bracket.
fn attributes(tokens: &[Token<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let is = |at: usize, text| tokens.get(at).is_some_and(|t| t.is(text));
        let open = if is(i + 1, "!") { i + 2 } else { i + 1 };
        if is(i, "#") && is(open, "[") {
            let close = lexer::matching(tokens, open);
            found.push((i, close));
            i = close;
        }
        i += 1;
    }
    found
}

/// Whether an attribute's inside means "only when testing": `cfg(test)`, `cfg(all(test, …))`, `test`, `tokio::test`.
fn means_test(inside: &[Token<'_>]) -> bool {
    let words: Vec<&str> = inside.iter().map(|t| t.text).collect();
    match words.as_slice() {
        ["cfg", "(", "test", ")"] | ["test"] => true,
        ["cfg", "(", "all", "(", rest @ ..] => {
            let mut depth = 0_usize;
            rest.iter().any(|word| {
                match *word {
                    "(" => depth += 1,
                    ")" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0 && *word == "test"
            })
        }
        _ => {
            let mut path = words.split(|word| *word == "(");
            matches!(path.next(), Some([.., ":", ":", "test"]))
        }
    }
}

fn has_inner_cfg_test(tokens: &[Token<'_>]) -> bool {
    attributes(tokens).iter().any(|(start, end)| {
        tokens.get(start + 1).is_some_and(|t| t.is("!")) && tokens.get(start + 3..*end).is_some_and(means_test)
    })
}

/// The items that exist only when testing, attributes included.
fn test_regions(tokens: &[Token<'_>]) -> Regions {
    let attributes = attributes(tokens);
    let mut regions: Regions = Vec::new();
    for (start, end) in &attributes {
        let inside = tokens.get(start + 2..*end).unwrap_or_default();
        if !means_test(inside) || regions.last().is_some_and(|r| r.contains(start)) {
            continue;
        }
        let mut item = end + 1;
        while let Some((_, next_end)) = attributes.iter().find(|(s, _)| *s == item) {
            item = next_end + 1;
        }
        regions.push(*start..lexer::item_end(tokens, item) + 1);
    }
    regions
}

/// Names of modules in files of their own that exist only when testing.
fn test_module_names<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let of_region = |region: &std::ops::Range<usize>| match tokens.get(region.clone())? {
        [.., module, name, end] if module.is("mod") && end.is(";") => Some(name.text),
        _ => None,
    };
    test_regions(tokens).iter().filter_map(of_region).collect()
}

fn test_lines(tokens: &[Token<'_>], regions: &Regions) -> usize {
    regions
        .iter()
        .map(|r| {
            let last = tokens.get(r.end.saturating_sub(1)).map_or(0, |t| t.line);
            (last + 1).saturating_sub(line_of(tokens, r.start))
        })
        .sum()
}

/// Calls that panic: where, line, and what to say.
fn panics(tokens: &[Token<'_>]) -> Vec<(usize, (usize, String))> {
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        if token.kind != Kind::Ident {
            continue;
        }
        let before = i.checked_sub(1).and_then(|j| tokens.get(j));
        let after = tokens.get(i + 1);
        let method = PANICKING_METHODS.contains(&token.text)
            && before.is_some_and(|t| t.is(".") || t.is(":"))
            && !is_ours(token, tokens.get(i + 1..).unwrap_or_default());
        let macro_call = PANICKING_MACROS.contains(&token.text)
            && after.is_some_and(|t| t.is("!"))
            && !tokens.get(i + 2).is_some_and(|t| t.is("="));
        if method || macro_call {
            let mark = if macro_call { "!" } else { "" };
            let text = format!("uses `{}{mark}`: give back an error instead", token.text);
            found.push((i, (token.line, text)));
        }
    }
    found
}

/// Whether a call of `expect` is a method of ours with that name (a parser's, say): it is given something else than a
/// text. Clippy, which knows the types, sees the rest.
fn is_ours(method: &Token<'_>, after: &[Token<'_>]) -> bool {
    let text = |t: &Token<'_>| t.kind == Kind::Literal || t.is("format");
    let given_text = match after {
        [open, by, first, ..] if open.is("(") && by.is("&") => text(first),
        [open, first, ..] if open.is("(") => text(first),
        _ => true,
    };
    method.text.starts_with("expect") && !given_text
}

/// Attributes that switch a guarded lint off: where, line, and what to say.
fn switched_off_lints(tokens: &[Token<'_>]) -> Vec<(usize, (usize, String))> {
    let mut found = Vec::new();
    for (start, end) in attributes(tokens) {
        let inside = tokens.get(start..end).unwrap_or_default();
        let switches_off = inside
            .windows(2)
            .any(|pair| matches!(pair, [verb, open] if (verb.is("allow") || verb.is("expect")) && open.is("(")));
        let lint = inside.iter().find(|t| t.kind == Kind::Ident && GUARDED_LINTS.contains(&t.text));
        if let (true, Some(lint)) = (switches_off, lint) {
            let text = format!("switches the lint `{}` off: list an exception instead", lint.text);
            found.push((start, (lint.line, text)));
        }
    }
    found
}

/// Enums that are errors (by name, or by `#[error(…)]` on a variant): where, name, number of variants.
fn error_enums<'a>(tokens: &[Token<'a>]) -> Vec<(usize, &'a str, usize)> {
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let Some(name) = tokens.get(i + 1).filter(|t| token.is("enum") && t.kind == Kind::Ident) else { continue };
        let Some(open) = tokens.iter().enumerate().skip(i).find(|(_, t)| t.is("{")).map(|(at, _)| at) else { continue };
        let close = lexer::matching(tokens, open);
        let body = tokens.get(open + 1..close).unwrap_or_default();
        let is_error = name.text.ends_with("Error")
            || body
                .windows(3)
                .any(|w| matches!(w, [hash, open, word] if hash.is("#") && open.is("[") && word.is("error")));
        if is_error {
            found.push((i, name.text, count_variants(body)));
        }
    }
    found
}

/// Variants in an enum's body: names at its own depth that begin one.
fn count_variants(body: &[Token<'_>]) -> usize {
    let (mut count, mut fresh, mut i) = (0, true, 0);
    while let Some(token) = body.get(i) {
        if token.is("(") || token.is("[") || token.is("{") {
            i = lexer::matching(body, i);
        } else if token.is(",") {
            fresh = true;
        } else if fresh && token.kind == Kind::Ident {
            count += 1;
            fresh = false;
        }
        i += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into(), is_test: path.contains("tests/") }
    }

    fn rules(files: &[SourceFile]) -> Vec<(&'static str, usize)> {
        check(files).into_iter().map(|p| (p.rule, p.line)).collect()
    }

    fn one(text: &str) -> Vec<(&'static str, usize)> {
        rules(&[file("crates/model/a/src/a.rs", text)])
    }

    #[test]
    fn a_sound_file_has_no_problem() {
        assert_eq!(one("//! Doc.\nfn f() -> Option<u8> { g()?.unwrap_or(1); None }\n"), []);
    }

    #[test]
    fn test_attributes_of_runtimes_are_known() {
        assert_eq!(one("//! D.\n#[tokio::test(start_paused = true)]\nasync fn f() { a.unwrap() }"), []);
    }

    #[test]
    fn a_missing_module_doc_is_seen() {
        assert_eq!(one("fn f() {}\n"), [("module-doc", 1)]);
    }

    #[test]
    fn panicking_calls_are_seen_outside_tests_only() {
        assert_eq!(one("//! D.\nfn f() {\n  a.unwrap();\n  b.expect(\"x\");\n}"), [("no-panic", 3), ("no-panic", 4)]);
        assert_eq!(one("//! D.\nfn f() { v.map(Option::unwrap); }"), [("no-panic", 2)]);
        assert_eq!(one("//! D.\nfn f() { a.expect(&format!(\"x\")); }"), [("no-panic", 2)]);
        assert_eq!(one("//! D.\nfn f() { parser.expect(Token::Comma)?; hub.expect(&key, 1) }"), []);
        assert_eq!(one("//! D.\nfn f() { json!({\"a\": b.unwrap()}) }"), [("no-panic", 2)]);
        assert_eq!(
            one("//! D.\nfn f() { panic!(\"x\") }\nfn g() { todo!() }\nfn h() { std::unimplemented!() }"),
            [("no-panic", 2), ("no-panic", 3), ("no-panic", 4)]
        );
        assert_eq!(one("//! D.\n/// `a.unwrap()`\nfn f() { \"a.unwrap()\"; }"), []);
        assert_eq!(one("//! D.\n#[cfg(test)]\nmod tests { fn f() { a.unwrap(); panic!() } }"), []);
        assert_eq!(one("//! D.\n#[cfg(test)]\n#[derive(Debug)]\nimpl A { fn f() { a.unwrap() } }"), []);
        assert_eq!(one("//! D.\n#[cfg(all(test, unix))]\nfn f() { a.unwrap() }\nfn g() {}"), []);
        assert_eq!(one("//! D.\n#[tokio::test]\nasync fn f() { a.unwrap() }"), []);
        assert_eq!(one("//! D.\n#[cfg(test)]\nuse x;\nfn f() { a.unwrap() }"), [("no-panic", 4)]);
        assert_eq!(one("//! D.\n#[cfg(not(test))]\nfn f() { a.unwrap() }"), [("no-panic", 3)]);
        assert_eq!(one("//! D.\n#[cfg(any(test, unix))]\nfn f() { a.unwrap() }"), [("no-panic", 3)]);
        assert_eq!(one("//! D.\n#[cfg(all(unix, not(test)))]\nfn f() { a.unwrap() }"), [("no-panic", 3)]);
    }

    #[test]
    fn files_of_test_modules_are_tests() {
        let lib = "//! D.\n#[cfg(test)]\nmod checks;\nmod code;\n";
        let bad = "//! D.\nfn f() { a.unwrap() }";
        let tree = [
            file("c/src/lib.rs", lib),
            file("c/src/checks.rs", bad),
            file("c/src/checks/deep.rs", bad),
            file("c/src/code.rs", bad),
        ];
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, Path::new("c/src/code.rs"));
        let nested = [file("c/src/a.rs", "//! D.\n#[cfg(test)]\npub(crate) mod b;"), file("c/src/a/b.rs", bad)];
        assert_eq!(rules(&nested), []);
        assert_eq!(rules(&[file("c/tests/t.rs", bad)]), []);
        assert_eq!(one("//! D.\n#![cfg(test)]\nfn f() { a.unwrap() }"), []);
    }

    #[test]
    fn budgets_of_lines_leave_tests_out() {
        let code = |n: usize| format!("//! D.\n{}", "fn f() {}\n".repeat(n - 1));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(300));
        assert_eq!(one(&code(700)), []);
        assert_eq!(one(&code(701)), [("file-lines", 1)]);
        assert_eq!(one(&format!("{}{tests}", code(700))), []);
        assert_eq!(rules(&[file("c/tests/t.rs", &code(1000))]), []);
        assert_eq!(rules(&[file("c/tests/t.rs", &code(1001))]), [("test-file-lines", 1)]);
    }

    #[test]
    fn error_enums_are_counted() {
        let body = |n: usize| {
            (0..n)
                .map(|i| format!("/// Doc.\n#[error(\"a, b {{0}}\")]\nV{i}(u8, Box<(u8, u8)>),\n"))
                .collect::<String>()
        };
        let source = |n, name| format!("//! D.\npub enum {name} {{\n{}}}", body(n));
        assert_eq!(one(&source(15, "ReadError")), []);
        assert_eq!(one(&source(16, "ReadError")), [("error-variants", 2)]);
        assert_eq!(one(&source(16, "Fault")), [("error-variants", 2)]);
        let plain = format!("//! D.\nenum Colour {{ {} }}", (0..40).map(|i| format!("V{i},")).collect::<String>());
        assert_eq!(one(&plain), []);
        assert_eq!(one(&plain.replace("Colour", "ColourError")), [("error-variants", 2)]);
    }

    #[test]
    fn switching_a_guarded_lint_off_is_seen() {
        assert_eq!(one("//! D.\n#[allow(clippy::unwrap_used)]\nfn f() {}"), [("lint-allowed", 2)]);
        assert_eq!(one("//! D.\n#![allow(missing_docs)]\nfn f() {}"), [("lint-allowed", 2)]);
        assert_eq!(one("//! D.\n#[expect(clippy::too_many_lines, reason = \"x\")]\nfn f() {}"), [("lint-allowed", 2)]);
        assert_eq!(one("//! D.\n#[cfg_attr(unix, allow(clippy::panic))]\nfn f() {}"), [("lint-allowed", 2)]);
        assert_eq!(one("//! D.\n#[allow(dead_code)]\nfn f() {}"), []);
    }
}
