//! The JSONPath subset of printer columns and selectable fields: members, indexes, `[*]`, and filters of one comparison.

use serde_json::Value;

/// Steps that a path may have.
const MAX_STEPS: usize = 64;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Member(String),
    Index(i64),
    All,
    /// `[?(@.path OP value)]`; the operator is `==` or `!=`, or none for "is there".
    Filter(Vec<Step>, Option<(bool, Value)>),
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`; a leading `$` or braces are allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let inner = text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
        let mut parser = Parser { text: inner.as_bytes(), at: 0 };
        let steps = parser.steps(false)?;
        if parser.at < parser.text.len() {
            return Err(format!("unexpected character at {} of {text:?}", parser.at));
        }
        Ok(Self { steps })
    }

    /// All values at the path, in order.
    pub fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        select(&self.steps, root)
    }
}

fn select<'a>(steps: &[Step], root: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![root];
    for step in steps {
        let mut next = Vec::new();
        for value in found {
            take(step, value, &mut next);
        }
        found = next;
    }
    found
}

fn take<'a>(step: &Step, value: &'a Value, out: &mut Vec<&'a Value>) {
    match (step, value) {
        (Step::Member(key), Value::Object(map)) => out.extend(map.get(key)),
        (Step::Index(at), Value::Array(list)) => {
            let at = if *at < 0 { i64::try_from(list.len()).unwrap_or(0) + at } else { *at };
            out.extend(usize::try_from(at).ok().and_then(|at| list.get(at)));
        }
        (Step::All, Value::Array(list)) => out.extend(list),
        (Step::All, Value::Object(map)) => out.extend(map.values()),
        (Step::Filter(path, test), Value::Array(list)) => out.extend(list.iter().filter(|item| {
            let found = select(path, item);
            match test {
                None => !found.is_empty(),
                Some((equal, wanted)) => found.iter().any(|v| (**v == *wanted) == *equal),
            }
        })),
        _ => {}
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let found = self.text[self.at..].starts_with(wanted.as_bytes());
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn steps(&mut self, within_filter: bool) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        while let Some(byte) = self.peek() {
            if steps.len() == MAX_STEPS {
                return Err("the path is too long".to_owned());
            }
            match byte {
                b'.' => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'[') => {}
                        Some(b'*') => {
                            self.at += 1;
                            steps.push(Step::All);
                        }
                        None => break,
                        _ => steps.push(Step::Member(self.member()?)),
                    }
                }
                b'[' => {
                    self.at += 1;
                    steps.push(self.bracket(within_filter)?);
                }
                _ if within_filter => break,
                _ if steps.is_empty() => steps.push(Step::Member(self.member()?)),
                _ => return Err(format!("unexpected character at {}", self.at)),
            }
        }
        Ok(steps)
    }

    fn member(&mut self) -> Result<String, String> {
        let mut name = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => {
                    self.at += 1;
                    name.push(self.peek().ok_or("a path ends with a backslash")?);
                }
                b'.' | b'[' | b']' | b')' | b'=' | b'!' | b' ' | b'<' | b'>' => break,
                other => name.push(other),
            }
            self.at += 1;
        }
        if name.is_empty() {
            return Err(format!("a name is missing at {}", self.at));
        }
        String::from_utf8(name).map_err(|e| e.to_string())
    }

    fn bracket(&mut self, within_filter: bool) -> Result<Step, String> {
        let step = match self.peek() {
            Some(b'*') => {
                self.at += 1;
                Step::All
            }
            Some(quote @ (b'\'' | b'"')) => Step::Member(self.quoted(quote)?),
            Some(b'?') if !within_filter => self.filter()?,
            _ => {
                let start = self.at;
                while self.peek().is_some_and(|b| b.is_ascii_digit() || b == b'-') {
                    self.at += 1;
                }
                let digits = std::str::from_utf8(&self.text[start..self.at]).map_err(|e| e.to_string())?;
                Step::Index(digits.parse().map_err(|_| format!("an index is missing at {start}"))?)
            }
        };
        if self.eat("]") { Ok(step) } else { Err(format!("']' is missing at {}", self.at)) }
    }

    fn quoted(&mut self, quote: u8) -> Result<String, String> {
        self.at += 1;
        let start = self.at;
        while self.peek().is_some_and(|b| b != quote) {
            self.at += 1;
        }
        if self.peek().is_none() {
            return Err("a quote is not closed".to_owned());
        }
        let name = String::from_utf8(self.text[start..self.at].to_vec()).map_err(|e| e.to_string())?;
        self.at += 1;
        Ok(name)
    }

    fn filter(&mut self) -> Result<Step, String> {
        if !self.eat("?(@") {
            return Err(format!("a filter must start with \"?(@\" at {}", self.at));
        }
        let path = self.steps(true)?;
        self.spaces();
        let equal = if self.eat("==") {
            Some(true)
        } else if self.eat("!=") {
            Some(false)
        } else {
            None
        };
        let test = match equal {
            None => None,
            Some(equal) => {
                self.spaces();
                Some((equal, self.literal()?))
            }
        };
        self.spaces();
        if self.eat(")") { Ok(Step::Filter(path, test)) } else { Err(format!("')' is missing at {}", self.at)) }
    }

    fn literal(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some(quote @ (b'\'' | b'"')) => Ok(Value::String(self.quoted(quote)?)),
            _ => {
                let start = self.at;
                while self.peek().is_some_and(|b| !matches!(b, b')' | b' ')) {
                    self.at += 1;
                }
                serde_json::from_slice(&self.text[start..self.at]).map_err(|e| e.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn find(path: &str, value: &Value) -> Vec<Value> {
        JsonPath::parse(path).unwrap().find(value).into_iter().cloned().collect()
    }

    #[test]
    fn paths_of_printer_columns() {
        let value = json!({"metadata": {"labels": {"a.b/c": "x"}}, "status": {"n": 3,
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Live", "status": "False"}]}});
        assert_eq!(find(".status.n", &value), [json!(3)]);
        assert_eq!(find(".status.conditions[?(@.type==\"Live\")].status", &value), [json!("False")]);
        assert_eq!(find(".status.conditions[?(@.type != 'Live')].status", &value), [json!("True")]);
        assert_eq!(find(".status.conditions[-1].type", &value), [json!("Live")]);
        assert_eq!(find(".status.conditions[*].type", &value).len(), 2);
        assert_eq!(find(".metadata.labels['a.b/c']", &value), [json!("x")]);
        assert_eq!(find(r".metadata.labels.a\.b/c", &value), [json!("x")]);
        assert!(find(".spec.none", &value).is_empty());
        assert!(JsonPath::parse(".a[").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[.\\[\\]@?()='a-c*0-9 \\\\-]{0,40}") {
            if let Ok(path) = JsonPath::parse(&text) {
                path.find(&json!({"a": [{"b": 1}], "b": {"c": []}}));
            }
        }
    }
}
