//! The parser of label selectors, with kube-apiserver's errors.

use serde_json::json;

use crate::selectors::{Op, Requirement};

/// Most requirements of a selector.
const MAX_REQUIREMENTS: usize = 1024;

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Sign(&'a str),
    /// A sequence of signs without meaning.
    Nonsense,
    End,
}

const SIGNS: [&str; 9] = [")", ",", "!", "==", "=", ">", "<", "!=", "("];

fn is_sign(byte: u8) -> bool {
    b"=!(),><".contains(&byte)
}

/// Splits the text into tokens; of consecutive signs the longest known prefix counts.
fn cut(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        if bytes[at].is_ascii_whitespace() {
            at += 1;
        } else if is_sign(bytes[at]) {
            let run = &text[at..bytes[at..].iter().position(|b| !is_sign(*b)).map_or(bytes.len(), |end| at + end)];
            let known = (1..=run.len().min(2)).rev().find_map(|end| SIGNS.iter().find(|s| **s == &run[..end]));
            tokens.push(known.map_or(Token::Nonsense, |sign| Token::Sign(sign)));
            at += known.map_or(run.len(), |sign| sign.len());
        } else {
            while at < bytes.len() && !is_sign(bytes[at]) && !bytes[at].is_ascii_whitespace() {
                at += 1;
            }
            tokens.push(Token::Word(&text[start..at]));
        }
    }
    tokens.push(Token::End);
    tokens
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Sign(text) => text,
            Self::Nonsense | Self::End => "",
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

/// Parses a selector.
pub fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { tokens: cut(text), at: 0 };
    let mut found = Vec::new();
    loop {
        match parser.peek() {
            Token::End => return Ok(found),
            Token::Word(_) | Token::Sign("!") => {}
            other => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text())),
        }
        let requirement = parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
        found.push(requirement);
        if found.len() > MAX_REQUIREMENTS {
            return Err(format!("more than {MAX_REQUIREMENTS} requirements"));
        }
        match parser.next() {
            Token::End => return Ok(found),
            Token::Sign(",") => {
                if !matches!(parser.peek(), Token::Word(_) | Token::Sign("!")) {
                    return Err(format!("found '{}', expected: identifier after ','", parser.peek().text()));
                }
            }
            other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
        }
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Sign("!");
        if absent {
            self.at += 1;
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(why) = wrong(names::qualified_name(key)) {
            return Err(format!("<nil>: Invalid value: {}: {why}", json!(key)));
        }
        let alone = matches!(self.peek(), Token::End | Token::Sign(","));
        let of = |op, values: Vec<String>| Ok(Requirement { key: key.to_owned(), op, values });
        if absent {
            return of(Op::Absent, Vec::new());
        }
        if alone {
            return of(Op::Exists, Vec::new());
        }
        let operator = self.next();
        let values = match operator {
            Token::Word("in" | "notin") => self.values()?,
            Token::Sign("=" | "==" | "!=" | ">" | "<") => vec![self.value()?],
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()));
            }
        };
        let mut bad = Vec::new();
        let mut number = 0;
        if matches!(operator, Token::Sign(">" | "<")) {
            match values[0].parse() {
                Ok(found) => number = found,
                Err(_) => bad.push(format!(
                    "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    json!(values[0])
                )),
            }
        }
        for (at, value) in values.iter().enumerate() {
            if let Some(why) = wrong(names::label_value(value)) {
                bad.push(format!("values[{at}][{key}]: Invalid value: {}: {why}", json!(value)));
            }
        }
        match bad.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
        match operator {
            Token::Word("in") | Token::Sign("=" | "==") => of(Op::In, values),
            Token::Sign(">") => of(Op::Greater(number), Vec::new()),
            Token::Sign("<") => of(Op::Less(number), Vec::new()),
            _ => of(Op::NotIn, values),
        }
    }

    /// A single value, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(value) => {
                self.at += 1;
                Ok(value.to_owned())
            }
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// Values in parentheses, sorted and without duplicates.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Sign("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut found = std::collections::BTreeSet::new();
        match self.peek() {
            Token::Sign(")") => {
                self.at += 1;
                return Ok(vec![String::new()]);
            }
            Token::Word(_) | Token::Sign(",") => {}
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
        loop {
            match self.next() {
                Token::Word(value) => {
                    found.insert(value.to_owned());
                    match self.peek() {
                        Token::Sign(",") => {}
                        Token::Sign(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Sign(",") => {
                    if found.is_empty() {
                        found.insert(String::new());
                    }
                    match self.peek() {
                        Token::Sign(")") => {
                            found.insert(String::new());
                            break;
                        }
                        Token::Sign(",") => {
                            self.at += 1;
                            found.insert(String::new());
                        }
                        _ => {}
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
        self.at += 1;
        Ok(found.into_iter().collect())
    }
}

/// All that is wrong in one text.
fn wrong(messages: Vec<String>) -> Option<String> {
    (!messages.is_empty()).then(|| messages.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_selector_has_upstreams_message() {
        for (text, message) in [
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            ("!!", "unable to parse requirement: found '!', expected: identifier"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a,", "found '', expected: identifier after ','"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an \
                 integer",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), message, "{text}");
        }
        assert!(parse("-a=b").unwrap_err().starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric"
        ));
        assert!(parse("a=-b").unwrap_err().contains("values[0][a]: Invalid value: \"-b\": a valid label must be"));
    }

    #[test]
    fn selectors_are_read() {
        let of = |key: &str, op, values: &[&str]| Requirement {
            key: key.into(),
            op,
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        assert_eq!(parse("in in (in,notin)").unwrap(), [of("in", Op::In, &["in", "notin"])]);
        assert_eq!(parse("a=,b!=c").unwrap(), [of("a", Op::In, &[""]), of("b", Op::NotIn, &["c"])]);
        assert_eq!(parse("a in (,b)").unwrap(), [of("a", Op::In, &["", "b"])]);
        assert_eq!(parse(" !a , b ").unwrap(), [of("a", Op::Absent, &[]), of("b", Op::Exists, &[])]);
        assert_eq!(parse("a>5").unwrap(), [of("a", Op::Greater(5), &[])]);
        assert_eq!(parse("").unwrap(), []);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}", signs in "[a=!(),<> in]{0,40}") {
            let _ = parse(&text);
            let _ = parse(&signs);
        }
    }
}
