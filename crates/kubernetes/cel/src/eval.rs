//! The interpreter. It counts the cost of evaluation like cel-go (`interpreter/runtimecost.go`), step by step.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{Expr, Fold, Id, Kind};
use crate::checker::Checked;
use crate::fault::Fault;
use crate::functions;
use crate::meter;
use crate::schema::escape::keyword;
use crate::source::deep;
use crate::value::{Key, List, ListKind, Map, Outcome, Value};

/// Elements that the lists joined in one evaluation may have together.
const MAX_JOINED: usize = 4_000_000;

/// The source of variables' values.
pub trait Vars {
    /// The value of a variable; none if it has none now.
    fn get(&self, name: &str) -> Option<Value>;
}

impl Vars for HashMap<String, Value> {
    fn get(&self, name: &str) -> Option<Value> {
        HashMap::get(self, name).cloned()
    }
}

impl Vars for &[(&str, Value)] {
    fn get(&self, name: &str) -> Option<Value> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone())
    }
}

impl<const N: usize> Vars for [(&str, Value); N] {
    fn get(&self, name: &str) -> Option<Value> {
        Vars::get(&self.as_slice(), name)
    }
}

/// Result of an evaluation.
#[derive(Debug)]
pub struct Evaluation {
    /// The value, or the fault.
    pub result: Outcome,
    /// The cost, in cel-go's units.
    pub cost: u64,
}

pub(crate) fn run(root: &Expr, checked: &Checked, vars: &dyn Vars, limit: u64) -> Evaluation {
    let mut machine = Machine { checked, vars, limit, cost: 0, joined: 0, scopes: Vec::new() };
    let result = machine.eval(root);
    Evaluation { result, cost: machine.cost }
}

struct Machine<'a> {
    checked: &'a Checked,
    vars: &'a dyn Vars,
    limit: u64,
    cost: u64,
    joined: usize,
    scopes: Vec<(&'a str, Value)>,
}

fn sound(value: Value) -> Outcome {
    match value {
        Value::Broken(fault) => Err(fault),
        value => Ok(value),
    }
}

/// Result of an attribute: its value, and whether it is optional.
struct Attribute {
    value: Value,
    optional: bool,
}

impl Attribute {
    fn plain(value: Value) -> Self {
        match value {
            Value::Optional(Some(inner)) => Self { value: (*inner).clone(), optional: true },
            value => Self { value, optional: false },
        }
    }

    fn absent() -> Self {
        Self { value: Value::Optional(None), optional: true }
    }

    fn is_absent(&self) -> bool {
        matches!(self.value, Value::Optional(None))
    }

    fn wrapped(self) -> Value {
        match self.value {
            value @ Value::Optional(_) => value,
            value if self.optional => Value::Optional(Some(Arc::new(value))),
            value => value,
        }
    }
}

impl<'a> Machine<'a> {
    fn charge(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Fault::limit()) } else { Ok(()) }
    }

    fn eval(&mut self, expr: &'a Expr) -> Outcome {
        deep(|| self.eval_here(expr))
    }

    fn eval_here(&mut self, expr: &'a Expr) -> Outcome {
        match &expr.kind {
            Kind::Literal(value) => Ok(value.clone()),
            Kind::Ident(name) => {
                let found = self.variable(name);
                // The name of a type is a constant.
                let constant = matches!(found, Ok(Value::Type(_))) && crate::decls::type_names(name).is_some();
                self.charge(u64::from(!constant))?;
                found
            }
            Kind::Select { operand, field, test: true } => self.test(operand, &self.named(expr.id, field)),
            Kind::Select { .. } => self.observed(expr),
            Kind::Call { function, args, .. } => match function.as_str() {
                "_[_]" | "_[?_]" | "_?._" => self.observed(expr),
                "_?_:_" => self.attribute(expr).map(Attribute::wrapped),
                "_&&_" => self.logical(args, false),
                "_||_" => self.logical(args, true),
                "or" | "orValue" => self.alternative(expr),
                _ => self.call(expr),
            },
            Kind::List { elements, optional } => self.list(elements, optional),
            Kind::Map(_) => self.map(expr),
            Kind::Struct { .. } => Err(Fault::overload()),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn variable(&mut self, name: &str) -> Outcome {
        if let Some((_, value)) = self.scopes.iter().rev().find(|(n, _)| *n == name) {
            return sound(value.clone());
        }
        match self.vars.get(name) {
            Some(value) => sound(value),
            None => match crate::decls::type_names(name) {
                Some(ty) => Ok(Value::Type(ty)),
                None => Err(Fault::new(format!("no such attribute(s): {name}"))),
            },
        }
    }

    /// An attribute whose cost is counted, unless it is conditional.
    fn observed(&mut self, expr: &'a Expr) -> Outcome {
        let found = self.attribute(expr);
        if found.as_ref().is_err_and(|f| f.is_limit()) {
            return found.map(Attribute::wrapped);
        }
        if !conditional(expr) {
            self.charge(1)?;
        }
        found.map(Attribute::wrapped)
    }

    fn attribute(&mut self, expr: &'a Expr) -> Result<Attribute, Fault> {
        deep(|| self.attribute_here(expr))
    }

    fn attribute_here(&mut self, expr: &'a Expr) -> Result<Attribute, Fault> {
        match &expr.kind {
            Kind::Ident(name) => self.variable(name).map(Attribute::plain),
            Kind::Select { operand, field, test: false } => {
                let key = Value::string(&self.named(expr.id, field));
                self.qualified(operand, false, |_| Ok(key))
            }
            Kind::Call { function, args, .. } => match (function.as_str(), args.as_slice()) {
                ("_?._", [operand, field]) => self.qualified(operand, true, |m| match m.eval(field)? {
                    Value::String(name) => Ok(Value::string(&m.named(expr.id, &name))),
                    other => Ok(other),
                }),
                ("_[_]", [operand, index]) => self.qualified(operand, false, |m| m.index(index)),
                ("_[?_]", [operand, index]) => self.qualified(operand, true, |m| m.index(index)),
                ("_?_:_", [condition, yes, no]) => match self.eval(condition)? {
                    Value::Bool(true) => self.attribute(yes),
                    Value::Bool(false) => self.attribute(no),
                    _ => Err(Fault::overload()),
                },
                _ => self.eval(expr).map(Attribute::plain),
            },
            _ => self.eval(expr).map(Attribute::plain),
        }
    }

    /// An index that is itself an attribute is not counted as one.
    fn index(&mut self, index: &'a Expr) -> Outcome {
        self.attribute(index).map(Attribute::wrapped)
    }

    fn qualified(
        &mut self,
        operand: &'a Expr,
        optional: bool,
        key: impl FnOnce(&mut Self) -> Outcome,
    ) -> Result<Attribute, Fault> {
        let base = self.attribute(operand)?;
        if base.is_absent() && base.optional {
            return Ok(base);
        }
        if let Value::Optional(None) = base.value {
            return Ok(Attribute::absent());
        }
        let optional = optional || base.optional;
        let key = key(self)?;
        let found = qualify(&base.value, &key, optional);
        match found {
            Ok(Some(value)) => {
                self.charge(1)?;
                let inner = Attribute::plain(sound(value)?);
                Ok(Attribute { optional: optional || inner.optional, value: inner.value })
            }
            Ok(None) => Ok(Attribute::absent()),
            Err(fault) => {
                self.charge(1)?;
                Err(fault)
            }
        }
    }

    /// The field's name in values: a reserved word in unescaped form has its escaped form there.
    fn named<'n>(&self, id: Id, field: &'n str) -> Cow<'n, str> {
        let escaped = if self.checked.keywords.contains(&id) { keyword(field) } else { None };
        escaped.map_or(Cow::Borrowed(field), Cow::Owned)
    }

    fn test(&mut self, operand: &'a Expr, field: &str) -> Outcome {
        let base = self.attribute(operand)?;
        if base.is_absent() {
            return Ok(Value::Bool(false));
        }
        let found = qualify(&base.value, &Value::string(field), true);
        self.charge(1)?;
        match found? {
            Some(value) => sound(value).map(|_| Value::Bool(true)),
            None => Ok(Value::Bool(false)),
        }
    }

    /// The value if present, else the alternative; neither counts as a call.
    fn alternative(&mut self, expr: &'a Expr) -> Outcome {
        let Kind::Call { target: Some(target), function, args } = &expr.kind else { return Err(Fault::overload()) };
        match (self.eval(target)?, args.first()) {
            (some @ Value::Optional(Some(_)), _) if function == "or" => Ok(some),
            (Value::Optional(Some(inner)), _) => Ok((*inner).clone()),
            (Value::Optional(None), Some(other)) => self.eval(other),
            _ => Err(Fault::overload()),
        }
    }

    fn logical(&mut self, args: &'a [Expr], decisive: bool) -> Outcome {
        let mut fault = None;
        for arg in args {
            match self.eval(arg) {
                Ok(Value::Bool(b)) if b == decisive => return Ok(Value::Bool(b)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => fault = fault.or(Some(Fault::overload())),
                Err(f) if f.is_limit() => return Err(f),
                Err(f) => fault = fault.or(Some(f)),
            }
        }
        fault.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn call(&mut self, expr: &'a Expr) -> Outcome {
        let Kind::Call { target, function, args } = &expr.kind else { return Err(Fault::overload()) };
        let overload = match self.checked.overloads.get(&expr.id).map(Vec::as_slice) {
            Some([one]) => *one,
            _ => "",
        };
        if function == "_+_"
            && let [Expr { kind: Kind::Ident(name), .. }, added] = args.as_slice()
            && self.scopes.iter().any(|(n, v)| n == name && matches!(v, Value::List(_)))
        {
            return self.append(name, added);
        }
        if overload == "in_list"
            && let [element, list] = args.as_slice()
            && simple_set(list)
        {
            let element = self.eval(element)?;
            return functions::call(function, &[element, literal(list)]);
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        let mut fault = None;
        for arg in target.iter().map(|t| &**t).chain(args) {
            match self.eval(arg) {
                Ok(value) => values.push(value),
                Err(f) if f.is_limit() => return Err(f),
                Err(f) => {
                    values.push(Value::Broken(f.clone()));
                    fault = fault.or(Some(f));
                }
            }
        }
        let result = match (function.as_str(), fault) {
            ("@not_strictly_false", _) => Ok(Value::Bool(!matches!(values.first(), Some(Value::Bool(false))))),
            (_, Some(fault)) => Err(fault),
            ("_+_", None) => self.add(&values),
            (name, None) => functions::call(name, &values),
        };
        self.charge(meter::call(function, overload, &values, &result))?;
        result
    }

    fn grow(&mut self, by: usize) -> Result<(), Fault> {
        self.joined += by;
        if self.joined > MAX_JOINED { Err(Fault::new("lists too large to be joined")) } else { Ok(()) }
    }

    fn add(&mut self, values: &[Value]) -> Outcome {
        if let [Value::List(a), Value::List(b)] = values {
            self.grow(a.items.len() + b.items.len())?;
        }
        functions::call("_+_", values)
    }

    /// Appends to a list in a variable, in place if the list is not shared.
    fn append(&mut self, name: &str, added: &'a Expr) -> Outcome {
        self.charge(1)?;
        let added = self.eval(added);
        if added.as_ref().is_err_and(|f| f.is_limit()) {
            return added;
        }
        self.charge(1)?;
        let added = added?;
        let Value::List(extra) = &added else { return Err(Fault::overload()) };
        self.grow(extra.items.len())?;
        let slot = self.scopes.iter_mut().rev().find(|(n, _)| *n == name);
        let Some((_, slot)) = slot else { return Err(Fault::overload()) };
        if name != crate::ast::ACCUMULATOR {
            return functions::call("_+_", &[slot.clone(), added]);
        }
        match std::mem::replace(slot, Value::Null) {
            Value::List(mut list) if list.kind == ListKind::Plain => {
                Arc::make_mut(&mut list).items.extend(extra.items.iter().cloned());
                Ok(Value::List(list))
            }
            other => functions::call("_+_", &[other, added]),
        }
    }

    fn list(&mut self, elements: &'a [Expr], optional: &[bool]) -> Outcome {
        let mut items = Vec::with_capacity(elements.len());
        for (element, optional) in elements.iter().zip(optional) {
            match (self.eval(element)?, optional) {
                (Value::Optional(None), true) => {}
                (Value::Optional(Some(inner)), true) => items.push((*inner).clone()),
                (_, true) => return Err(Fault::new("cannot initialize optional list element from non-optional value")),
                (value, false) => items.push(value),
            }
        }
        self.charge(10)?;
        Ok(Value::List(Arc::new(List { items, kind: ListKind::Plain })))
    }

    fn map(&mut self, expr: &'a Expr) -> Outcome {
        let Kind::Map(entries) = &expr.kind else { return Err(Fault::overload()) };
        let mut map = Map::default();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = match (self.eval(&entry.value)?, entry.optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(inner)), true) => (*inner).clone(),
                (_, true) => return Err(Fault::new("cannot initialize optional entry from non-optional value")),
                (value, false) => value,
            };
            let key = Key::of(&key).ok_or_else(|| Fault::new("unsupported key type"))?;
            map.entries.insert(key, value);
        }
        self.charge(30)?;
        Ok(Value::Map(Arc::new(map)))
    }

    fn fold(&mut self, fold: &'a Fold) -> Outcome {
        let range = self.eval(&fold.range)?;
        let init = self.held(&fold.init)?;
        let depth = self.scopes.len();
        self.scopes.push((&fold.accu, init));
        let done = match &range {
            Value::List(list) => {
                let pairs = list.items.iter().enumerate().map(|(at, v)| (Value::Int(at as i64), v.clone()));
                self.each(fold, pairs, false)
            }
            Value::Map(map) => {
                let pairs = map.entries.iter().map(|(k, v)| (k.value(), v.clone()));
                self.each(fold, pairs, true)
            }
            _ => Err(Fault::overload()),
        };
        let result = done.and_then(|()| self.eval(&fold.result));
        self.scopes.truncate(depth);
        result
    }

    /// A value to keep in a variable: faults are kept too, but for the last one.
    fn held(&mut self, expr: &'a Expr) -> Outcome {
        match self.eval(expr) {
            Err(fault) if !fault.is_limit() => Ok(Value::Broken(fault)),
            other => other,
        }
    }

    fn each(&mut self, fold: &'a Fold, pairs: impl Iterator<Item = (Value, Value)>, keyed: bool) -> Result<(), Fault> {
        let depth = self.scopes.len();
        for (key, value) in pairs {
            match &fold.var2 {
                Some(second) => {
                    self.scopes.push((&fold.var, key));
                    self.scopes.push((second, value));
                }
                None => self.scopes.push((&fold.var, if keyed { key } else { value })),
            }
            let go = self.held(&fold.condition)?;
            let next = if matches!(go, Value::Bool(false)) { None } else { Some(self.held(&fold.step)?) };
            self.scopes.truncate(depth);
            let Some(next) = next else { return Ok(()) };
            if let Some((_, accu)) = self.scopes.last_mut() {
                *accu = next;
            }
            // Without any cost, an evaluation would never reach its limit.
            self.charge(0)?;
        }
        Ok(())
    }
}

fn literal(expr: &Expr) -> Value {
    match &expr.kind {
        Kind::Literal(value) => value.clone(),
        _ => Value::Null,
    }
}

/// Whether membership in this constant list is looked up at no cost.
fn simple_set(expr: &Expr) -> bool {
    let Kind::Literal(Value::List(list)) = &expr.kind else { return false };
    let simple =
        |v: &Value| matches!(v, Value::Bool(_) | Value::Double(_) | Value::Int(_) | Value::String(_) | Value::Uint(_));
    list.items.iter().all(simple)
}

/// Whether the base of the attribute is a condition.
fn conditional(expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Select { operand, .. } => conditional(operand),
        Kind::Call { function, args, .. } => match function.as_str() {
            "_[_]" | "_[?_]" | "_?._" => args.first().is_some_and(conditional),
            name => name == "_?_:_",
        },
        _ => false,
    }
}

/// The element, entry or field of `value` by `key`; none if it may be absent and is.
fn qualify(value: &Value, key: &Value, optional: bool) -> Result<Option<Value>, Fault> {
    let missing = || Fault::new(format!("no such key: {}", functions::convert::show(key)));
    match value {
        Value::Map(map) => match Key::of(key).and_then(|k| map.entries.get(&k)) {
            Some(found) => Ok(Some(found.clone())),
            None if optional => Ok(None),
            None => Err(missing()),
        },
        Value::Lazy(fields) => match key {
            Value::String(name) => match fields.get(name) {
                Some(found) => found.map(Some),
                None if optional => Ok(None),
                None => Err(missing()),
            },
            _ => Err(missing()),
        },
        Value::List(list) => {
            let at = match key {
                Value::Int(n) => *n,
                Value::Uint(n) => i64::try_from(*n).unwrap_or(i64::MAX),
                Value::Double(d) if d.fract() == 0.0 => *d as i64,
                Value::Double(d) => return Err(Fault::new(format!("unsupported index value {d} in list"))),
                other => {
                    let ty = other.type_of();
                    return Err(Fault::new(format!("unsupported index type '{}' in list", ty.runtime_name())));
                }
            };
            match usize::try_from(at).ok().and_then(|at| list.items.get(at)) {
                Some(found) => Ok(Some(found.clone())),
                None if optional => Ok(None),
                None => Err(Fault::new(format!("index out of bounds: {at}"))),
            }
        }
        _ if optional => Ok(None),
        _ => Err(missing()),
    }
}
