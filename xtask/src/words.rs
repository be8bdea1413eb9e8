//! Texts that no file may contain (forbidden.txt).

use std::path::Path;

use crate::report::Problem;

/// The list: one text a line; lines that begin with `#` are comments.
pub fn parse(list: &str) -> Vec<&str> {
    list.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).collect()
}

/// Every place in this file that holds one of the texts.
pub fn check(path: &Path, text: &str, forbidden: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for word in forbidden.iter().filter(|w| line.contains(**w)) {
            let text = format!("contains `{word}`, see xtask/forbidden.txt");
            problems.push(Problem { rule: "forbidden-word", path: path.to_owned(), line: i + 1, amount: 1, text });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_texts_are_seen_with_their_line() {
        let words = parse("# comment\n\nNEVER(\n");
        assert_eq!(words, ["NEVER("]);
        let found = check(Path::new("a.md"), "fine\nNEVER( this\nnever", &words);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].rule, found[0].line), ("forbidden-word", 2));
    }
}
