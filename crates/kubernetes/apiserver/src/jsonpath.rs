//! JSONPath for printer columns and selectable fields of custom resources, with the rules of
//! `client-go/util/jsonpath`: members, indexes and slices, unions, wildcards, filters with one comparison, recursive
//! descent. A path that cannot be followed (an index beyond a list, a filter on an object) finds nothing at all.

use serde_json::{Number, Value};

/// Most steps of a path, or of a nested path.
const MAX_STEPS: usize = 64;
/// Deepest nesting of paths.
const MAX_DEPTH: usize = 8;
/// Most values found by a step: consecutive recursive descents multiply them.
const MAX_FOUND: usize = 10_000;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Member(String),
    Slice(Slice),
    /// `.*`
    All,
    /// `..`
    Descent,
    Union(Vec<Vec<Step>>),
    /// `[?(@.path OP value)]`; without an operator it tests existence.
    Filter(Vec<Step>, Option<(Operator, Vec<Step>)>),
    /// A literal, such as the value that a filter compares with.
    Literal(Value),
    /// An unknown word: the path parses, but cannot be evaluated.
    Unknown,
}

/// `[from:to:step]`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slice {
    from: i64,
    to: Option<i64>,
    /// A single item: `to` was not given.
    single: bool,
    step: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    Unknown,
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Why a text is no path, in the words of client-go's parser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Paths within paths, too many.
    #[error("paths are nested too deep")]
    TooDeep,
    /// Too many steps.
    #[error("the path is too long")]
    TooLong,
    /// `....`
    #[error("invalid multiple recursive descent")]
    Descents,
    /// A character that begins no step, quoted.
    #[error("unrecognized character in action: {0}")]
    Character(String),
    /// The text in brackets is no index of a list.
    #[error("invalid array index {0}")]
    Index(String),
    /// A place in a list that no number can hold.
    #[error("array index {0} is not a number")]
    LargeIndex(String),
    /// An escape that there is not, in this text.
    #[error("unquote string {0} error invalid syntax")]
    Quoting(String),
    /// The text ends within this.
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    /// A filter without its bracket.
    #[error("unclosed array expect ]")]
    Unclosed,
    /// No number.
    #[error("cannot parse number {0}")]
    Number(String),
}

/// The path cannot be followed.
struct Blocked;

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`; a leading `$` is allowed.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Ok(Self { steps: parse(text, 0)? })
    }

    /// All values at the path, in order.
    pub fn find<'a>(&'a self, root: &'a Value) -> Vec<&'a Value> {
        select(&self.steps, vec![root]).unwrap_or_default()
    }
}

fn select<'a>(steps: &'a [Step], mut found: Vec<&'a Value>) -> Result<Vec<&'a Value>, Blocked> {
    for step in steps {
        let mut next = Vec::new();
        match step {
            Step::Descent => descend(&found, &mut next)?,
            Step::Union(paths) => {
                for path in paths {
                    next.extend(select(path, found.clone())?);
                }
            }
            // A string literal yields one value, however many were found before.
            Step::Literal(Value::String(_)) => found.truncate(1),
            _ => {}
        }
        for value in found {
            take(step, value, &mut next)?;
        }
        if next.len() > MAX_FOUND {
            return Err(Blocked);
        }
        found = next;
    }
    Ok(found)
}

fn take<'a>(step: &'a Step, value: &'a Value, out: &mut Vec<&'a Value>) -> Result<(), Blocked> {
    match (step, value) {
        (Step::Descent | Step::Union(_), _) => {}
        (Step::Literal(literal), _) => out.push(literal),
        (Step::Unknown, _) => return Err(Blocked),
        (Step::Member(key), Value::Object(map)) => out.extend(map.get(key)),
        (Step::All, Value::Array(list)) => out.extend(list),
        (Step::All, Value::Object(map)) => out.extend(map.values()),
        (Step::Member(_) | Step::All, _) | (Step::Slice(_), Value::Null) => {}
        (Step::Slice(slice), Value::Array(list)) => out.extend(slice.of(list)?),
        (Step::Filter(path, test), Value::Array(list)) => {
            for item in list {
                if passes(path, test.as_ref(), item)? {
                    out.push(item);
                }
            }
        }
        (Step::Slice(_) | Step::Filter(..), _) => return Err(Blocked),
    }
    Ok(())
}

/// Whether an item passes a filter.
fn passes(path: &[Step], test: Option<&(Operator, Vec<Step>)>, item: &Value) -> Result<bool, Blocked> {
    let left = select(path, vec![item]);
    let Some((operator, other)) = test else {
        // A path that cannot be followed counts as existing.
        return Ok(left.map_or(true, |found| !found.is_empty()));
    };
    let left = left?;
    if left.is_empty() {
        return Ok(false);
    }
    let right = select(other, vec![item])?;
    match (left.as_slice(), right.as_slice()) {
        (_, []) => Ok(false),
        ([left], [right]) => operator.holds(left, right),
        _ => Err(Blocked),
    }
}

/// All non-empty values, from the outside to the inside.
fn descend<'a>(values: &[&'a Value], out: &mut Vec<&'a Value>) -> Result<(), Blocked> {
    for value in values {
        let inner: Vec<&Value> = match value {
            Value::Object(map) if !map.is_empty() => map.values().collect(),
            Value::Array(list) if !list.is_empty() => list.iter().collect(),
            Value::String(text) if !text.is_empty() => Vec::new(),
            _ => continue,
        };
        out.push(value);
        if out.len() > MAX_FOUND {
            return Err(Blocked);
        }
        descend(&inner, out)?;
    }
    Ok(())
}

impl Slice {
    fn of<'a>(&self, list: &'a [Value]) -> Result<impl Iterator<Item = &'a Value> + use<'a>, Blocked> {
        let length = i64::try_from(list.len()).map_err(|_| Blocked)?;
        let from = if self.from < 0 { self.from.saturating_add(length) } else { self.from };
        let to = match self.to {
            None => length,
            Some(to) if to < 0 || (to == 0 && self.single) => to.saturating_add(length),
            Some(to) => to,
        };
        let part = if from == to {
            &[]
        } else if (0..length).contains(&from) && (from..=length).contains(&to) {
            let end = |at| usize::try_from(at).map_err(|_| Blocked);
            list.get(end(from)?..end(to)?).ok_or(Blocked)?
        } else {
            return Err(Blocked);
        };
        let step = self.step.unwrap_or(1);
        let step = usize::try_from(step).ok().filter(|step| *step > 0 || part.is_empty()).ok_or(Blocked)?;
        Ok(part.iter().step_by(step.max(1)))
    }
}

impl Operator {
    fn read(text: &str) -> Self {
        match text {
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            ">=" => Self::GreaterOrEqual,
            ">" => Self::Greater,
            _ => Self::Unknown,
        }
    }

    /// Only values of one kind can be compared; whole numbers and others are two kinds.
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Blocked> {
        let order = match (left, right) {
            (Value::Bool(a), Value::Bool(b)) => {
                return match self {
                    Self::Equal => Ok(a == b),
                    Self::NotEqual => Ok(a != b),
                    _ => Err(Blocked),
                };
            }
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
                (Some(a), Some(b)) => Some(a.cmp(&b)),
                (None, None) => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
                _ => return Err(Blocked),
            },
            _ => return Err(Blocked),
        };
        match self {
            Self::Less => Ok(order.is_some_and(|o| o.is_lt())),
            Self::LessOrEqual => Ok(order.is_some_and(|o| o.is_le())),
            Self::Equal => Ok(order.is_some_and(|o| o.is_eq())),
            Self::NotEqual => Ok(!order.is_some_and(|o| o.is_eq())),
            Self::GreaterOrEqual => Ok(order.is_some_and(|o| o.is_ge())),
            Self::Greater => Ok(order.is_some_and(|o| o.is_gt())),
            Self::Unknown => Err(Blocked),
        }
    }
}

fn parse(text: &str, depth: usize) -> Result<Vec<Step>, PathError> {
    if depth > MAX_DEPTH {
        return Err(PathError::TooDeep);
    }
    let mut parser = Parser { rest: text, depth, steps: Vec::new() };
    while !parser.rest.is_empty() {
        parser.step()?;
        if parser.steps.len() > MAX_STEPS {
            return Err(PathError::TooLong);
        }
    }
    Ok(parser.steps)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    steps: Vec<Step>,
}

/// Whether a name ends before this character.
fn ends(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

impl<'a> Parser<'a> {
    /// Takes so many bytes.
    fn cut(&mut self, at: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(at);
        self.rest = rest;
        taken
    }

    fn step(&mut self) -> Result<(), PathError> {
        if let Some(rest) = self.rest.strip_prefix("[?(") {
            self.rest = rest;
            return self.filter();
        }
        if let Some(rest) = self.rest.strip_prefix("..") {
            if self.steps.last() == Some(&Step::Descent) {
                return Err(PathError::Descents);
            }
            self.rest = rest;
            self.steps.push(Step::Descent);
            if rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                self.member();
            }
            return Ok(());
        }
        let first = self.rest.chars().next().unwrap_or_default();
        match first {
            ' ' | '@' | '$' => {
                self.cut(1);
            }
            '.' => {
                self.cut(1);
                self.member();
            }
            '[' => {
                let end = self.rest.find([']', '\n']).filter(|end| self.rest.as_bytes()[*end] == b']');
                let text = self.cut(end.ok_or(PathError::Unterminated("array"))? + 1);
                self.bracket(&text[1..text.len() - 1])?;
            }
            '"' | '\'' => {
                let text = self.quoted(first)?;
                self.steps.push(Step::Literal(Value::String(text)));
            }
            '+' | '-' | '0'..='9' => {
                let signed = self.rest.strip_prefix(['+', '-']).unwrap_or(self.rest);
                let digits = signed.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(signed.len());
                let text = self.cut(self.rest.len() - signed.len() + digits);
                self.steps.push(Step::Literal(number(text)?));
            }
            c if c == '_' || c.is_alphanumeric() => {
                let end = self.rest.find(ends).unwrap_or(self.rest.len());
                let step = match self.cut(end) {
                    "true" => Step::Literal(Value::Bool(true)),
                    "false" => Step::Literal(Value::Bool(false)),
                    _ => Step::Unknown,
                };
                self.steps.push(step);
            }
            other => return Err(PathError::Character(format!("{other:?}"))),
        }
        Ok(())
    }

    /// A member's name up to what ends it; a backslash takes the next character as it is.
    fn member(&mut self) {
        let mut escaped = false;
        let end = self.rest.find(|c| {
            let taken = escaped;
            escaped = !escaped && c == '\\';
            !taken && ends(c)
        });
        let text = self.cut(end.unwrap_or(self.rest.len()));
        self.steps.push(if text == "*" { Step::All } else { Step::Member(text.replace('\\', "")) });
    }

    /// The text between brackets.
    fn bracket(&mut self, text: &str) -> Result<(), PathError> {
        let text = if text == "*" { ":" } else { text };
        if text.contains(',') {
            let paths = text.split(',').map(|part| parse(&format!("[{}]", part.trim_matches(' ')), self.depth + 1));
            self.steps.push(Step::Union(paths.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let name = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).filter(|t| !t.contains('\''));
        if let Some(name) = name {
            // A path of its own: its dots are dots.
            self.steps.extend(parse(&format!(".{name}"), self.depth + 1)?);
            return Ok(());
        }
        let mut parts = text.split(':');
        let mut part = || match parts.next() {
            None => Ok(None),
            Some("") => Ok(Some(None)),
            Some(number) if number.bytes().all(|b| b == b'-' || b.is_ascii_digit()) => {
                number.parse::<i64>().map(|n| Some(Some(n))).map_err(|_| PathError::LargeIndex(number.to_owned()))
            }
            Some(_) => Err(PathError::Index(text.to_owned())),
        };
        let (from, to, step) = (part()?.flatten().unwrap_or(0), part()?, part()?.flatten());
        if part()?.is_some() {
            return Err(PathError::Index(text.to_owned()));
        }
        let single = to.is_none();
        let to = to.unwrap_or(Some(from.saturating_add(1)));
        self.steps.push(Step::Slice(Slice { from, to, single, step }));
        Ok(())
    }

    /// The text behind `[?(`, up to `)]`.
    fn filter(&mut self) -> Result<(), PathError> {
        let (mut quote, mut closed, mut before) = (None, false, ' ');
        let end = self.rest.find(|c| {
            let found = c == ')' && quote.is_some() == closed;
            match quote {
                None if c == '"' || c == '\'' => quote = Some(c),
                Some(opened) if c == opened && before != '\\' => closed = true,
                _ => {}
            }
            before = c;
            found
        });
        let text = self.cut(end.ok_or(PathError::Unterminated("filter"))?);
        self.rest = self.rest.strip_prefix(")]").ok_or(PathError::Unclosed)?;
        let is_sign = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let compared = text.find(is_sign).filter(|at| *at > 0).and_then(|at| {
            let (left, rest) = text.split_at(at);
            let sign = rest.len() - rest.trim_start_matches(is_sign).len();
            // At least one character is the value.
            let sign = if sign == rest.len() { sign - 1 } else { sign };
            (sign > 0).then(|| (left, &rest[..sign], &rest[sign..]))
        });
        let step = match compared {
            None => Step::Filter(parse(text, self.depth + 1)?, None),
            Some((left, sign, right)) => {
                let right = parse(right, self.depth + 1)?;
                Step::Filter(parse(left, self.depth + 1)?, Some((Operator::read(sign), right)))
            }
        };
        self.steps.push(step);
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<String, PathError> {
        self.cut(1);
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.cut(at + 1);
                    return Ok(text);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('r') => text.push('\r'),
                    Some('t') => text.push('\t'),
                    Some('\\') => text.push('\\'),
                    Some(c) if c == quote => text.push(c),
                    _ => return Err(PathError::Quoting(self.rest.to_owned())),
                },
                _ => text.push(c),
            }
        }
        Err(PathError::Unterminated("quoted string"))
    }
}

fn number(text: &str) -> Result<Value, PathError> {
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(whole.into());
    }
    let float = text.parse().ok().and_then(Number::from_f64);
    float.map(Value::Number).ok_or_else(|| PathError::Number(text.to_owned()))
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
            "conditions": [{"type": "Ready", "status": "True", "at": 1}, {"type": "Live", "status": "False", "at": 2}]}});
        assert_eq!(find(".status.n", &value), [json!(3)]);
        assert_eq!(find("$.status.n", &value), [json!(3)]);
        assert_eq!(find(".status.conditions[?(@.type==\"Live\")].status", &value), [json!("False")]);
        assert_eq!(find(".status.conditions[?(@.type != 'Live')].status", &value), [json!("True")]);
        assert_eq!(find(".status.conditions[?(@.at>1)].type", &value), [json!("Live")]);
        assert_eq!(find(".status.conditions[?(@.at<=1)].type", &value), [json!("Ready")]);
        assert!(find(".status.conditions[?(@.other)].type", &value).is_empty());
        assert_eq!(find(".status.conditions[-1].type", &value), [json!("Live")]);
        assert_eq!(find(".status.conditions[-1:].type", &value), [json!("Live")]);
        assert_eq!(find(".status.conditions[0:1].type", &value), [json!("Ready")]);
        assert_eq!(find(".status.conditions[::2].type", &value), [json!("Ready")]);
        assert_eq!(find(".status.conditions[1,0].type", &value), [json!("Live"), json!("Ready")]);
        assert_eq!(find(".status.conditions[*].type", &value).len(), 2);
        assert_eq!(find("..type", &value).len(), 2);
        assert_eq!(find(".metadata.labels['a\\.b/c']", &value), [json!("x")]);
        assert_eq!(find(r".metadata.labels.a\.b/c", &value), [json!("x")]);
        assert!(find(".spec.none", &value).is_empty());
    }

    #[test]
    fn what_cannot_be_gone_through_finds_nothing() {
        let value = json!({"a": [1, 2], "m": {"k": [1]}, "s": [{"v": 1}, {"v": "x"}]});
        for path in [
            ".a[2]",
            ".a[-3]",
            ".a[1:3]",
            ".a[2:1]",
            ".a[::0]",
            ".m[*]",
            ".m[0]",
            ".m[?(@.k)]",
            ".s[?(@.v==1)].v",
            ".s[?(@.v=1)]",
            ".s[?(@.v==word)]",
            ".m['k.x']",
            ".a[5:6].x",
        ] {
            assert!(find(path, &value).is_empty(), "{path}");
        }
        assert!(find(".a[1:1]", &value).is_empty());
        for path in [".a[", ".a[x]", ".a[\"x\"]", ".a[1:2:3:4]", ".a[-]", ".a....b", ".a[?(@.x==1]", "!a", "'x"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn descents_one_after_the_other_are_bounded() {
        let mut value = json!("x");
        for _ in 0..60 {
            value = json!({"a": [value]});
        }
        assert!(find(&"..a".repeat(20), &value).is_empty());
        let deep = format!("{}.x{}", ".a[?(@".repeat(40), ")]".repeat(40));
        assert!(JsonPath::parse(&deep).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[.\\[\\]@?()='a-c*0-9<>!,: \\\\é-]{0,40}") {
            if let Ok(path) = JsonPath::parse(&text) {
                path.find(&json!({"a": [{"b": 1}], "b": {"c": []}}));
            }
        }
    }
}
