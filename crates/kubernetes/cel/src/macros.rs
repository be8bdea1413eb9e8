//! Macros: calls that the parser turns into comprehensions and presence tests.

use crate::ast::{ACCUMULATOR, Expr, Fold, Kind};
use crate::parser::Parser;
use crate::value::Value;

/// A complaint at an argument's place.
pub(crate) type MacroError = (u32, String);

const SIMPLE: &str = "argument must be a simple name";
const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

/// What a call turns out to be.
pub(crate) enum Expansion {
    /// A macro's call, expanded.
    Macro(Expr),
    /// A function's call, with its target and arguments.
    Function(Option<Expr>, Vec<Expr>),
}

/// Expands the call if it is a macro's; otherwise returns target and arguments.
pub(crate) fn expand(
    parser: &mut Parser<'_>,
    place: u32,
    target: Option<Expr>,
    name: &str,
    args: Vec<Expr>,
) -> Result<Expansion, MacroError> {
    let mut make = Maker { parser, place };
    let Some(target) = target else {
        if name == "has" && args.len() == 1 {
            return has(place, args).map(Expansion::Macro);
        }
        return Ok(Expansion::Function(None, args));
    };
    let expanded = match (name, args.len()) {
        ("all" | "exists" | "exists_one" | "existsOne" | "filter", 2) if name != "existsOne" => {
            make.single(target, name, args)
        }
        ("map", 2 | 3) => make.map(target, args),
        ("all" | "exists" | "exists_one" | "existsOne", 3) => make.double(target, name, args),
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => make.transform(target, name, args),
        ("optMap" | "optFlatMap", 2) => make.optional(target, name, args),
        _ => return Ok(Expansion::Function(Some(target), args)),
    };
    expanded.map(Expansion::Macro)
}

fn has(place: u32, mut args: Vec<Expr>) -> Result<Expr, MacroError> {
    let Some(mut arg) = args.pop() else { return Err((0, "invalid argument to has() macro".into())) };
    match &mut arg.kind {
        Kind::Select { test, .. } if !*test => {
            *test = true;
            arg.place = place;
            Ok(arg)
        }
        _ => Err((arg.place, "invalid argument to has() macro".into())),
    }
}

fn ident(expr: &Expr, message: &str) -> Result<String, MacroError> {
    match &expr.kind {
        Kind::Ident(name) if name == ACCUMULATOR => Err((expr.place, OVERWRITES.into())),
        Kind::Ident(name) => Ok(name.clone()),
        _ => Err((expr.place, message.into())),
    }
}

struct Maker<'a, 'b> {
    parser: &'a mut Parser<'b>,
    place: u32,
}

impl Maker<'_, '_> {
    fn node(&mut self, kind: Kind) -> Expr {
        self.parser.node(self.place, kind)
    }

    fn accu(&mut self) -> Expr {
        self.node(Kind::Ident(ACCUMULATOR.into()))
    }

    fn literal(&mut self, value: Value) -> Expr {
        self.node(Kind::Literal(value))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.node(Kind::Call { target: None, function: function.into(), args })
    }

    fn member(&mut self, target: Expr, function: &str) -> Expr {
        self.node(Kind::Call { target: Some(Box::new(target)), function: function.into(), args: Vec::new() })
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        let optional = vec![false; elements.len()];
        self.node(Kind::List { elements, optional })
    }

    /// Initial value, condition, step and result of a quantifier over `predicate`.
    fn quantifier(&mut self, name: &str, predicate: Expr) -> [Expr; 4] {
        match name {
            "all" => {
                let accu = self.accu();
                let condition = self.call("@not_strictly_false", vec![accu]);
                let accu = self.accu();
                let step = self.call("_&&_", vec![accu, predicate]);
                [self.literal(Value::Bool(true)), condition, step, self.accu()]
            }
            "exists" => {
                let accu = self.accu();
                let not = self.call("!_", vec![accu]);
                let condition = self.call("@not_strictly_false", vec![not]);
                let accu = self.accu();
                let step = self.call("_||_", vec![accu, predicate]);
                [self.literal(Value::Bool(false)), condition, step, self.accu()]
            }
            _ => {
                let (accu, one) = (self.accu(), self.literal(Value::Int(1)));
                let more = self.call("_+_", vec![accu, one]);
                let same = self.accu();
                let step = self.call("_?_:_", vec![predicate, more, same]);
                let (accu, one) = (self.accu(), self.literal(Value::Int(1)));
                let result = self.call("_==_", vec![accu, one]);
                [self.literal(Value::Int(0)), self.literal(Value::Bool(true)), step, result]
            }
        }
    }

    fn fold(&mut self, range: Expr, var: String, var2: Option<String>, parts: [Expr; 4]) -> Expr {
        let [init, condition, step, result] = parts;
        let accu = ACCUMULATOR.to_owned();
        self.node(Kind::Fold(Box::new(Fold { range, var, var2, accu, init, condition, step, result })))
    }

    fn single(&mut self, target: Expr, name: &str, args: Vec<Expr>) -> Result<Expr, MacroError> {
        let mut args = args.into_iter();
        let (Some(var), Some(predicate)) = (args.next(), args.next()) else {
            return Err((self.place, SIMPLE.into()));
        };
        let message = if name == "filter" { "argument is not an identifier" } else { SIMPLE };
        let var_name = ident(&var, message)?;
        let parts = if name == "filter" {
            let element = self.list(vec![var]);
            self.append(element, Some(predicate))
        } else {
            self.quantifier(name, predicate)
        };
        Ok(self.fold(target, var_name, None, parts))
    }

    /// A fold that appends `element` (a list of one) where `filter` holds.
    fn append(&mut self, element: Expr, filter: Option<Expr>) -> [Expr; 4] {
        let init = self.list(Vec::new());
        let condition = self.literal(Value::Bool(true));
        let accu = self.accu();
        let step = self.call("_+_", vec![accu, element]);
        let step = self.filtered(step, filter);
        [init, condition, step, self.accu()]
    }

    fn filtered(&mut self, step: Expr, filter: Option<Expr>) -> Expr {
        let Some(filter) = filter else { return step };
        let same = self.accu();
        self.call("_?_:_", vec![filter, step, same])
    }

    fn map(&mut self, target: Expr, mut args: Vec<Expr>) -> Result<Expr, MacroError> {
        let Some(last) = args.pop() else { return Err((self.place, SIMPLE.into())) };
        let mut args = args.into_iter();
        let Some(var) = args.next() else { return Err((self.place, SIMPLE.into())) };
        let name = ident(&var, "argument is not an identifier")?;
        let element = self.list(vec![last]);
        let parts = self.append(element, args.next());
        Ok(self.fold(target, name, None, parts))
    }

    fn two(&self, target: &Expr, first: &Expr, second: &Expr) -> Result<(String, String), MacroError> {
        let _ = target;
        let (a, b) = (ident(first, SIMPLE)?, ident(second, SIMPLE)?);
        if a == b {
            return Err((second.place, format!("duplicate variable name: {a}")));
        }
        Ok((a, b))
    }

    fn double(&mut self, target: Expr, name: &str, args: Vec<Expr>) -> Result<Expr, MacroError> {
        let mut args = args.into_iter();
        let (Some(first), Some(second), Some(predicate)) = (args.next(), args.next(), args.next()) else {
            return Err((self.place, SIMPLE.into()));
        };
        let (a, b) = self.two(&target, &first, &second)?;
        let parts = self.quantifier(name, predicate);
        Ok(self.fold(target, a, Some(b), parts))
    }

    fn transform(&mut self, target: Expr, name: &str, mut args: Vec<Expr>) -> Result<Expr, MacroError> {
        let Some(last) = args.pop() else { return Err((self.place, SIMPLE.into())) };
        let mut args = args.into_iter();
        let (Some(first), Some(second)) = (args.next(), args.next()) else {
            return Err((self.place, SIMPLE.into()));
        };
        let (a, b) = self.two(&target, &first, &second)?;
        let filter = args.next();
        let parts = if name == "transformList" {
            let element = self.list(vec![last]);
            self.append(element, filter)
        } else {
            let init = self.node(Kind::Map(Vec::new()));
            let condition = self.literal(Value::Bool(true));
            let accu = self.accu();
            let args = if name == "transformMap" { vec![accu, first, last] } else { vec![accu, last] };
            let step = self.call("cel.@mapInsert", args);
            let step = self.filtered(step, filter);
            [init, condition, step, self.accu()]
        };
        Ok(self.fold(target, a, Some(b), parts))
    }

    fn optional(&mut self, target: Expr, name: &str, args: Vec<Expr>) -> Result<Expr, MacroError> {
        let mut args = args.into_iter();
        let (Some(var), Some(body)) = (args.next(), args.next()) else {
            return Err((self.place, SIMPLE.into()));
        };
        let Kind::Ident(var) = &var.kind else {
            return Err((var.place, format!("{name}() variable name must be a simple identifier")));
        };
        let copy = self.parser.copy(&target);
        let there = self.member(target, "hasValue");
        let init = self.member(copy, "value");
        let range = self.list(Vec::new());
        let condition = self.literal(Value::Bool(false));
        let step = self.node(Kind::Ident(var.clone()));
        let fold =
            Fold { range, var: "#unused".into(), var2: None, accu: var.clone(), init, condition, step, result: body };
        let bound = self.node(Kind::Fold(Box::new(fold)));
        let some = if name == "optMap" { self.call("optional.of", vec![bound]) } else { bound };
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![there, some, none]))
    }
}
