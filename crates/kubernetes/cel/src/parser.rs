//! Tokens to a tree, with the macros expanded.

use crate::ast::{Entry, Expr, Id, Kind};
use crate::lexer::{Tok, Token, lex};
use crate::macros::{self, Expansion};
use crate::source::{self, Issue};
use crate::value::Value;
use crate::words;

/// Code points that an expression may have.
const MAX_SIZE: usize = 100_000;
/// How deep the tree may be: every walk over it recurses.
pub(crate) const MAX_DEPTH: usize = 250;
/// Nodes that macros may multiply an expression to.
const MAX_NODES: u32 = 400_000;
/// Most errors reported.
const MAX_ISSUES: usize = 100;

const EXPECTED: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// The tree of `source`, and how many ids it uses.
pub(crate) fn parse(source: &str) -> Result<(Expr, Id), Vec<Issue>> {
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > MAX_SIZE {
        let message = format!("expression code point size exceeds limit: size: {}, limit {MAX_SIZE}", chars.len());
        return Err(vec![Issue::new(None, message)]);
    }
    let mut issues = Vec::new();
    let tokens = lex(&chars, &mut issues);
    let mut parser = Parser { tokens: &tokens, chars: &chars, at: 0, next: 0, depth: 0, issues };
    let parsed = parser.expr();
    if let Ok(expr) = parsed {
        parser.end();
        if parser.issues.is_empty() {
            let whole = expr.height <= MAX_DEPTH && parser.next <= MAX_NODES;
            return if !whole { Err(vec![too_deep()]) } else { Ok((expr, parser.next + 1)) };
        }
    }
    parser.issues.truncate(MAX_ISSUES);
    Err(parser.issues)
}

fn too_deep() -> Issue {
    Issue::new(None, format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

/// Whether an expression can begin with this token.
fn starts_expression(tok: &Tok) -> bool {
    match tok {
        Tok::End => false,
        Tok::Op(op) => matches!(*op, "[" | "{" | "(" | "." | "-" | "!" | "true" | "false" | "null"),
        _ => true,
    }
}

/// An error was recorded: no tree can be had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop;

type Parsed = Result<Expr, Stop>;

pub(crate) struct Parser<'a> {
    tokens: &'a [Token],
    chars: &'a [char],
    at: usize,
    next: Id,
    depth: usize,
    issues: Vec<Issue>,
}

impl Parser<'_> {
    pub fn node(&mut self, place: u32, kind: Kind) -> Expr {
        self.next += 1;
        Expr { id: self.next, place, height: kind.height(), kind }
    }

    /// A copy with new ids.
    pub fn copy(&mut self, expr: &Expr) -> Expr {
        source::deep(|| {
            let mut copy = expr.clone();
            if self.next < MAX_NODES {
                self.renumber(&mut copy);
            }
            copy
        })
    }

    fn renumber(&mut self, expr: &mut Expr) {
        self.next += 1;
        expr.id = self.next;
        match &mut expr.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select { operand, .. } => self.renumber(operand),
            Kind::Call { target, args, .. } => {
                if let Some(target) = target {
                    self.renumber(target);
                }
                args.iter_mut().for_each(|a| self.renumber(a));
            }
            Kind::List { elements, .. } => elements.iter_mut().for_each(|e| self.renumber(e)),
            Kind::Map(entries) => entries.iter_mut().for_each(|e| {
                self.renumber(&mut e.key);
                self.renumber(&mut e.value);
            }),
            Kind::Struct { fields, .. } => fields.iter_mut().for_each(|(_, e)| self.renumber(e)),
            Kind::Fold(f) => {
                let f = f.as_mut();
                for e in [&mut f.range, &mut f.init, &mut f.condition, &mut f.step, &mut f.result] {
                    self.renumber(e);
                }
            }
        }
    }

    fn token(&self) -> &Token {
        // The list is never empty and the cursor never passes its end.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn place(&self) -> u32 {
        self.token().start
    }

    fn is(&self, op: &str) -> bool {
        matches!(&self.token().tok, Tok::Op(found) if *found == op)
    }

    fn advance(&mut self) -> u32 {
        let place = self.place();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        place
    }

    fn eat(&mut self, op: &str) -> Option<u32> {
        self.is(op).then(|| self.advance())
    }

    fn token_text(&self, token: &Token) -> String {
        if token.tok == Tok::End {
            return "<EOF>".into();
        }
        self.chars.get(token.start as usize..token.end as usize).unwrap_or_default().iter().collect()
    }

    fn issue(&mut self, place: u32, message: impl Into<String>) -> Stop {
        if self.issues.len() < MAX_ISSUES {
            self.issues.push(Issue::new(Some(place), message));
        }
        Stop
    }

    fn mismatch(&mut self, expected: &str) -> Stop {
        let token = self.token().clone();
        let input = self.token_text(&token);
        self.issue(token.start, format!("Syntax error: mismatched input '{input}' expecting {expected}"))
    }

    fn extraneous(&mut self, expected: &str) -> Stop {
        let token = self.token().clone();
        let input = self.token_text(&token);
        self.issue(token.start, format!("Syntax error: extraneous input '{input}' expecting {expected}"))
    }

    fn end(&mut self) {
        if self.token().tok == Tok::End {
            return;
        }
        let lone = self.tokens.get(self.at + 1).is_none_or(|t| t.tok == Tok::End);
        if lone {
            self.extraneous("<EOF>")
        } else {
            self.mismatch("<EOF>")
        };
    }

    fn want(&mut self, op: &str, expected: &str) -> Result<u32, Stop> {
        match self.eat(op) {
            Some(place) => Ok(place),
            None if op == ")" && self.token().tok == Tok::End => {
                let place = self.place();
                Err(self.issue(place, "Syntax error: missing ')' at '<EOF>'"))
            }
            None => Err(self.mismatch(expected)),
        }
    }

    /// Fails if the tree is too deep: dropping it recurses as well.
    fn shallow(&mut self, expr: Expr) -> Parsed {
        if expr.height > MAX_DEPTH {
            self.issues = vec![too_deep()];
            return Err(Stop);
        }
        Ok(expr)
    }

    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= MAX_DEPTH || self.next > MAX_NODES {
            self.issues = vec![too_deep()];
            return Err(Stop);
        }
        self.depth += 1;
        let result = source::deep(|| inner(self));
        self.depth -= 1;
        self.shallow(result?)
    }

    fn expr(&mut self) -> Parsed {
        self.nested(|p| {
            let condition = p.or()?;
            let Some(place) = p.eat("?") else { return Ok(condition) };
            let yes = p.or()?;
            p.want(":", "':'")?;
            let no = p.expr()?;
            Ok(p.call(place, "_?_:_", vec![condition, yes, no]))
        })
    }

    fn call(&mut self, place: u32, function: &str, args: Vec<Expr>) -> Expr {
        self.node(place, Kind::Call { target: None, function: function.into(), args })
    }

    fn or(&mut self) -> Parsed {
        self.chain("||", "_||_", Self::and)
    }

    fn and(&mut self) -> Parsed {
        self.chain("&&", "_&&_", Self::relation)
    }

    fn chain(&mut self, op: &str, function: &str, inner: fn(&mut Self) -> Parsed) -> Parsed {
        let mut terms = vec![inner(self)?];
        let mut places = Vec::new();
        while let Some(place) = self.eat(op) {
            places.push(place);
            terms.push(inner(self)?);
        }
        let mut terms: Vec<Option<Expr>> = terms.into_iter().map(Some).collect();
        self.balance(function, &mut terms, &places).ok_or(Stop)
    }

    /// Builds a balanced tree of the terms, so that long chains stay shallow.
    fn balance(&mut self, function: &str, terms: &mut [Option<Expr>], places: &[u32]) -> Option<Expr> {
        if places.is_empty() {
            return terms.first_mut()?.take();
        }
        let middle = places.len() / 2;
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balance(function, left, places.get(..middle)?)?;
        let right = self.balance(function, right, places.get(middle + 1..)?)?;
        Some(self.call(*places.get(middle)?, function, vec![left, right]))
    }

    fn relation(&mut self) -> Parsed {
        self.left(
            &[
                ("<", "_<_"),
                ("<=", "_<=_"),
                (">=", "_>=_"),
                (">", "_>_"),
                ("==", "_==_"),
                ("!=", "_!=_"),
                ("in", "@in"),
            ],
            Self::sum,
        )
    }

    fn sum(&mut self) -> Parsed {
        self.left(&[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Parsed {
        self.left(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    fn left(&mut self, ops: &[(&'static str, &'static str)], inner: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = inner(self)?;
        while let Some((_, function)) = ops.iter().find(|(op, _)| self.is(op)) {
            let place = self.advance();
            let right = inner(self)?;
            let whole = self.call(place, function, vec![left, right]);
            left = self.shallow(whole)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let (op, function) = if self.is("!") {
            ("!", "!_")
        } else if self.is("-") {
            let next = self.tokens.get(self.at + 1).map(|t| &t.tok);
            if let Some(Tok::Int(_) | Tok::Double(_)) = next {
                let place = self.advance();
                let literal = self.number(place, true)?;
                return self.members(literal);
            }
            ("-", "-_")
        } else {
            return self.member();
        };
        let place = self.place();
        let mut count = 0;
        while self.eat(op).is_some() {
            count += 1;
        }
        let operand = self.member()?;
        Ok(if count % 2 == 0 { operand } else { self.call(place, function, vec![operand]) })
    }

    fn number(&mut self, place: u32, negative: bool) -> Parsed {
        let token = self.token().tok.clone();
        self.advance();
        let sign = if negative { "-" } else { "" };
        let value = match &token {
            Tok::Int(text) => {
                let parsed = match text.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16),
                    None => format!("{sign}{text}").parse(),
                };
                parsed.map(Value::Int).map_err(|_| "invalid int literal")
            }
            Tok::Uint(text) => {
                let parsed = match text.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => text.parse(),
                };
                parsed.map(Value::Uint).map_err(|_| "invalid uint literal")
            }
            Tok::Double(text) => match format!("{sign}{text}").parse::<f64>() {
                Ok(n) if n.is_finite() => Ok(Value::Double(n)),
                _ => Err("invalid double literal"),
            },
            _ => Err("invalid int literal"),
        };
        match value {
            Ok(value) => Ok(self.node(place, Kind::Literal(value))),
            Err(message) => Err(self.issue(place, message)),
        }
    }

    fn member(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut operand: Expr) -> Parsed {
        loop {
            operand = self.shallow(operand)?;
            operand = if let Some(place) = self.eat(".") {
                self.selection(operand, place)?
            } else if let Some(place) = self.eat("[") {
                let optional = self.eat("?").is_some();
                let index = self.expr()?;
                self.want("]", "']'")?;
                self.call(place, if optional { "_[?_]" } else { "_[_]" }, vec![operand, index])
            } else {
                return Ok(operand);
            };
        }
    }

    fn selection(&mut self, operand: Expr, place: u32) -> Parsed {
        let optional = self.eat("?").is_some();
        let Tok::Ident(field) = self.token().tok.clone() else {
            let token = self.token().clone();
            let text = self.chars.get(place as usize..token.end as usize).unwrap_or_default();
            let input: String = text.iter().collect();
            return Err(self.issue(token.start, format!("Syntax error: no viable alternative at input '{input}'")));
        };
        let at_field = self.advance();
        if optional {
            let field = self.node(at_field, Kind::Literal(Value::string(&field)));
            return Ok(self.call(place, "_?._", vec![operand, field]));
        }
        if self.is("(") {
            let open = self.advance();
            let args = self.args()?;
            return self.invoke(open, Some(operand), field, args);
        }
        Ok(self.node(place, Kind::Select { operand: Box::new(operand), field, test: false }))
    }

    fn invoke(&mut self, place: u32, target: Option<Expr>, name: String, args: Vec<Expr>) -> Parsed {
        match macros::expand(self, place, target, &name, args) {
            Ok(Expansion::Macro(expanded)) => Ok(expanded),
            Ok(Expansion::Function(target, args)) => {
                Ok(self.node(place, Kind::Call { target: target.map(Box::new), function: name, args }))
            }
            Err((place, message)) => Err(self.issue(place, message)),
        }
    }

    /// Arguments up to the closing parenthesis.
    fn args(&mut self) -> Result<Vec<Expr>, Stop> {
        let mut args = Vec::new();
        if self.eat(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.eat(")").is_some() {
                return Ok(args);
            }
            if self.token().tok == Tok::End {
                self.want(")", "')'")?;
            }
            self.want(",", "{',', ')'}")?;
        }
    }

    fn primary(&mut self) -> Parsed {
        let place = self.place();
        match self.token().tok.clone() {
            Tok::Int(_) | Tok::Uint(_) | Tok::Double(_) => self.number(place, false),
            Tok::String(text) => self.literal(Value::string(&text)),
            Tok::Bytes(bytes) => self.literal(Value::Bytes(bytes.into())),
            Tok::Op("true") => self.literal(Value::Bool(true)),
            Tok::Op("false") => self.literal(Value::Bool(false)),
            Tok::Op("null") => self.literal(Value::Null),
            Tok::Op("(") => {
                self.advance();
                let inner = self.expr()?;
                self.want(")", "')'")?;
                Ok(inner)
            }
            Tok::Op("[") => self.list(),
            Tok::Op("{") => self.map(),
            Tok::Op(".") => {
                self.advance();
                match self.token().tok.clone() {
                    Tok::Ident(name) => self.name(name),
                    _ => Err(self.mismatch("IDENTIFIER")),
                }
            }
            Tok::Ident(name) => self.name(name),
            Tok::Op(_) if self.tokens.get(self.at + 1).is_some_and(|t| starts_expression(&t.tok)) => {
                Err(self.extraneous(EXPECTED))
            }
            _ => Err(self.mismatch(EXPECTED)),
        }
    }

    fn literal(&mut self, value: Value) -> Parsed {
        let place = self.advance();
        Ok(self.node(place, Kind::Literal(value)))
    }

    fn name(&mut self, name: String) -> Parsed {
        let place = self.advance();
        if self.is_struct() {
            return self.structure(name);
        }
        if words::is_reserved(&name) {
            return Err(self.issue(place, format!("reserved identifier: {name}")));
        }
        if self.is("(") {
            let open = self.advance();
            let args = self.args()?;
            return self.invoke(open, None, name, args);
        }
        Ok(self.node(place, Kind::Ident(name)))
    }

    /// Whether a dotted name followed by `{` comes next.
    fn is_struct(&self) -> bool {
        let mut at = self.at;
        loop {
            match self.tokens.get(at).map(|t| &t.tok) {
                Some(Tok::Op("{")) => return true,
                Some(Tok::Op(".")) if matches!(self.tokens.get(at + 1).map(|t| &t.tok), Some(Tok::Ident(_))) => at += 2,
                _ => return false,
            }
        }
    }

    fn structure(&mut self, mut name: String) -> Parsed {
        while self.eat(".").is_some() {
            if let Tok::Ident(part) = self.token().tok.clone() {
                name = format!("{name}.{part}");
            }
            self.advance();
        }
        let place = self.advance();
        let mut fields = Vec::new();
        while self.eat("}").is_none() {
            self.eat("?");
            let Tok::Ident(field) = self.token().tok.clone() else { return Err(self.mismatch("{'}', IDENTIFIER}")) };
            self.advance();
            self.want(":", "':'")?;
            fields.push((field, self.expr()?));
            if !self.is("}") {
                self.want(",", "{'}', ','}")?;
            }
        }
        Ok(self.node(place, Kind::Struct { name, fields }))
    }

    fn list(&mut self) -> Parsed {
        let place = self.advance();
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        while self.eat("]").is_none() {
            optional.push(self.eat("?").is_some());
            elements.push(self.expr()?);
            if !self.is("]") {
                self.want(",", "{']', ','}")?;
            }
        }
        Ok(self.node(place, Kind::List { elements, optional }))
    }

    fn map(&mut self) -> Parsed {
        let place = self.advance();
        let mut entries = Vec::new();
        while self.eat("}").is_none() {
            let optional = self.eat("?").is_some();
            let key = self.expr()?;
            self.want(":", "':'")?;
            let value = self.expr()?;
            entries.push(Entry { key, value, optional });
            if !self.is("}") {
                self.want(",", "{'}', ','}")?;
            }
        }
        Ok(self.node(place, Kind::Map(entries)))
    }
}
