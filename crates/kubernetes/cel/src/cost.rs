//! Static cost estimate of an expression (cel-go's `checker/cost.go`).

use std::collections::HashMap;

use crate::ast::{Expr, Fold, Id, Kind};
use crate::checker::Checked;
use crate::library_cost;
use crate::meter::{PATTERN, TRAVERSAL, is_order};
use crate::sizes::Sizes;
use crate::source::deep;
use crate::types::Type;
use crate::value::Value;

/// A span of costs, or of sizes: at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

/// A size: the same spans.
pub(crate) type Size = Cost;

fn factor(n: u64, by: f64) -> u64 {
    let product = (n as f64 * by).ceil();
    if product >= 18_446_744_073_709_551_616.0 { u64::MAX } else { product as u64 }
}

impl Cost {
    pub(crate) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(crate) fn fixed(n: u64) -> Self {
        Self { min: n, max: n }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn by(self, by: f64) -> Self {
        Self { min: factor(self.min, by), max: factor(self.max, by) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The cost of a call without its arguments, and the size of its result.
pub(crate) struct CallCost {
    pub cost: Cost,
    pub result: Option<Size>,
}

/// An argument, as estimators see it.
pub(crate) struct Node<'a> {
    pub path: Vec<String>,
    pub ty: &'a Type,
    pub expr: &'a Expr,
    pub size: Option<Size>,
}

/// The sizes of keys and values of a collection that an expression makes.
#[derive(Debug, Clone, Copy)]
struct Entries {
    list: bool,
    key: Size,
    value: Size,
}

struct Local {
    name: String,
    path: Vec<String>,
    size: Option<Size>,
    entries: Option<Entries>,
}

/// Estimates the cost of an expression.
pub(crate) fn estimate(root: &Expr, checked: &Checked, sizes: &dyn Sizes) -> Cost {
    let mut coster = Coster {
        checked,
        sizes,
        paths: HashMap::new(),
        locals: Vec::new(),
        computed: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(root)
}

struct Coster<'a> {
    checked: &'a Checked,
    sizes: &'a dyn Sizes,
    paths: HashMap<Id, Vec<String>>,
    locals: Vec<Local>,
    computed: HashMap<Id, Size>,
    entries: HashMap<Id, Entries>,
}

impl<'a> Coster<'a> {
    fn cost(&mut self, expr: &'a Expr) -> Cost {
        deep(|| self.cost_here(expr))
    }

    fn cost_here(&mut self, expr: &'a Expr) -> Cost {
        match &expr.kind {
            Kind::Literal(_) => Cost::fixed(0),
            Kind::Ident(name) => {
                let path = self.local(name).map_or_else(|| vec![name.clone()], |l| l.path.clone());
                self.paths.insert(expr.id, path);
                Cost::fixed(1)
            }
            Kind::Select { operand, test: true, .. } => self.cost(operand),
            Kind::Select { operand, field, test: false } => {
                let mut cost = self.cost(operand);
                if matches!(self.checked.ty(operand.id), Type::Map(..) | Type::Object(_) | Type::Param(_)) {
                    cost = cost.plus(Cost::fixed(1));
                }
                let path = self.path_and(operand, field);
                self.paths.insert(expr.id, path);
                cost
            }
            Kind::Call { .. } => self.call(expr),
            Kind::List { elements, .. } => self.list(expr, elements),
            Kind::Map(_) => self.map(expr),
            Kind::Struct { fields, .. } => fields.iter().map(|(_, e)| self.cost(e)).fold(Cost::fixed(40), Cost::plus),
            Kind::Fold(fold) if fold.is_bind() => self.bind(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|l| l.name == name)
    }

    fn path(&self, expr: &Expr) -> Vec<String> {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn path_and(&self, expr: &Expr, last: &str) -> Vec<String> {
        let mut path = self.path(expr);
        path.push(last.to_owned());
        path
    }

    fn node(&mut self, expr: &'a Expr) -> Node<'a> {
        let mut path = self.path(expr);
        if path.first().is_some_and(|p| p == crate::ast::ACCUMULATOR) {
            path.clear();
        }
        Node { path, ty: self.checked.ty(expr.id), expr, size: self.size(expr) }
    }

    fn size(&mut self, expr: &'a Expr) -> Option<Size> {
        if let Some(size) = self.computed.get(&expr.id) {
            return Some(*size);
        }
        let known = match &expr.kind {
            Kind::Literal(Value::String(s)) => Some(s.chars().count() as u64),
            Kind::Literal(Value::Bytes(b)) => Some(b.len() as u64),
            Kind::Literal(_) => Some(1),
            Kind::List { elements, .. } => Some(elements.len() as u64),
            Kind::Map(entries) => Some(entries.len() as u64),
            _ => None,
        };
        if let Some(known) = known {
            return Some(Cost::fixed(known));
        }
        let path = self.path(expr);
        if !path.is_empty()
            && let Some(max) = self.sizes.max_size(&path)
        {
            let size = Size { min: 0, max };
            self.computed.insert(expr.id, size);
            return Some(size);
        }
        if self.checked.ty(expr.id).is_scalar() {
            return Some(Cost::fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|l| l.size),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &'a Expr) -> Size {
        self.size(expr).unwrap_or(Cost::UNKNOWN)
    }

    fn entry_sizes(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|l| l.entries),
            _ => None,
        }
    }

    fn set_size(&mut self, expr: &Expr, size: Option<Size>) {
        if let Some(size) = size {
            self.computed.insert(expr.id, size);
        }
    }

    fn set_entries(&mut self, expr: &Expr, entries: Option<Entries>) {
        if let Some(entries) = entries {
            self.entries.insert(expr.id, entries);
        }
    }

    fn call(&mut self, expr: &'a Expr) -> Cost {
        let Kind::Call { target, function, args } = &expr.kind else { return Cost::fixed(0) };
        if let ("dyn", [arg]) = (function.as_str(), args.as_slice()) {
            let cost = self.cost(arg);
            let (size, entries) = (self.size(arg), self.entry_sizes(arg));
            self.set_size(expr, size);
            self.set_entries(expr, entries);
            return cost.plus(Cost::fixed(1));
        }
        let mut costs = Vec::new();
        let mut nodes = Vec::new();
        for arg in args {
            costs.push(self.cost(arg));
            nodes.push(self.node(arg));
        }
        let Some(overloads) = self.checked.overloads.get(&expr.id) else { return Cost::fixed(0) };
        let mut sum = Cost::fixed(0);
        let receiver = match target {
            Some(target) => {
                sum = self.cost(target);
                Some(self.node(target))
            }
            None => None,
        };
        let mut total = Cost { min: u64::MAX, max: 0 };
        let mut result: Option<Size> = None;
        for overload in overloads {
            let one = self.function(expr, function, overload, receiver.as_ref(), &nodes, &costs);
            total = total.union(one.cost);
            if let Some(size) = one.result {
                result = Some(result.map_or(size, |r| r.union(size)));
            }
            let suffix = match *overload {
                "index_list" => "@items",
                "index_map" => "@values",
                _ => "",
            };
            if let (false, Some(list)) = (suffix.is_empty(), args.first()) {
                result = self.entry_sizes(list).map(|e| e.value);
                let path = self.path_and(list, suffix);
                self.paths.insert(expr.id, path);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        self.set_size(expr, result);
        sum.plus(total)
    }

    fn function(
        &mut self,
        expr: &'a Expr,
        function: &str,
        overload: &str,
        target: Option<&Node<'a>>,
        args: &[Node<'a>],
        costs: &[Cost],
    ) -> CallCost {
        let args_cost = costs.iter().fold(Cost::fixed(0), |sum, c| sum.plus(*c));
        if let Some(found) = library_cost::estimate(self.sizes, function, overload, target, args) {
            return CallCost { cost: found.cost.plus(args_cost), result: found.result };
        }
        match (overload, args) {
            ("logical_or" | "logical_and", _) => {
                let (left, right) = (at(costs, 0), at(costs, 1));
                CallCost { cost: Cost { min: left.min, max: left.plus(right).max }, result: None }
            }
            ("conditional", [_, yes, no]) => {
                let size = self.size_or_unknown(yes.expr).union(self.size_or_unknown(no.expr));
                let entries = self.joint_entries(yes.expr, no.expr);
                self.set_entries(expr, entries);
                let cost = at(costs, 0).plus(at(costs, 1).union(at(costs, 2)));
                CallCost { cost, result: Some(size) }
            }
            ("add_string" | "add_bytes" | "add_list", [left, right]) => {
                let size = or_unknown(left).plus(or_unknown(right));
                let entries = self.joint_entries(left.expr, right.expr);
                self.set_entries(expr, entries);
                let base = if overload == "add_list" { Cost::fixed(1) } else { size.by(TRAVERSAL) };
                CallCost { cost: base.plus(args_cost), result: Some(size) }
            }
            _ => {
                let found = standard(overload, target, args);
                CallCost { cost: found.cost.plus(args_cost), result: found.result }
            }
        }
    }

    fn joint_entries(&self, a: &Expr, b: &Expr) -> Option<Entries> {
        let (a, b) = (self.entry_sizes(a)?, self.entry_sizes(b)?);
        Some(Entries { list: a.list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }

    fn list(&mut self, expr: &'a Expr, elements: &'a [Expr]) -> Cost {
        let mut value = Size { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let mut cost = Cost::fixed(10);
        for element in elements {
            cost = cost.plus(self.cost(element));
            value = value.union(self.size_or_unknown(element));
        }
        self.set_entries(expr, Some(Entries { list: true, key: Cost::fixed(1), value }));
        cost
    }

    fn map(&mut self, expr: &'a Expr) -> Cost {
        let Kind::Map(entries) = &expr.kind else { return Cost::fixed(0) };
        let start = Size { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let (mut key, mut value) = (start, start);
        let mut cost = Cost::fixed(30);
        for entry in entries {
            cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
            key = key.union(self.size_or_unknown(&entry.key));
            value = value.union(self.size_or_unknown(&entry.value));
        }
        self.set_entries(expr, Some(Entries { list: false, key, value }));
        cost
    }

    fn push(&mut self, name: &str, range: &'a Expr, which: Which) {
        let entries = self.entry_sizes(range);
        let list = match entries {
            Some(entries) => entries.list,
            None => matches!(self.checked.ty(range.id), Type::List(_)),
        };
        let (size, step) = match (which, list) {
            (Which::Key, true) => (entries.map(|e| e.key), "@indices"),
            (Which::Key, false) | (Which::Single, false) => (entries.map(|e| e.key), "@keys"),
            (Which::Value, false) => (entries.map(|e| e.value), "@values"),
            (Which::Value, true) | (Which::Single, true) => (entries.map(|e| e.value), "@items"),
        };
        let path = self.path_and(range, step);
        self.locals.push(Local { name: name.to_owned(), path, size, entries: None });
    }

    fn push_accu(&mut self, fold: &'a Fold) {
        let size = self.size(&fold.init);
        let local =
            Local { name: fold.accu.clone(), path: self.path(&fold.init), size, entries: self.entry_sizes(&fold.init) };
        self.locals.push(local);
    }

    fn fold(&mut self, expr: &'a Expr, fold: &'a Fold) -> Cost {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let depth = self.locals.len();
        self.push_accu(fold);
        match &fold.var2 {
            Some(second) => {
                self.push(&fold.var, &fold.range, Which::Key);
                self.push(second, &fold.range, Which::Value);
            }
            None => self.push(&fold.var, &fold.range, Which::Single),
        }
        let condition = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        self.locals.truncate(depth + 1);
        cost = cost.plus(self.cost(&fold.result));
        self.locals.truncate(depth);
        let count = self.size_or_unknown(&fold.range);
        cost = cost.plus(count.times(step.plus(condition)));
        match &fold.init.kind {
            Kind::Literal(_) => {
                let size = self.size(&fold.init);
                self.set_size(expr, size);
            }
            Kind::List { .. } | Kind::Map(_) => {
                self.set_size(expr, Some(count));
                let entries = self.entry_sizes(&fold.step);
                self.set_entries(expr, entries);
            }
            _ => {}
        }
        cost
    }

    fn bind(&mut self, expr: &'a Expr, fold: &'a Fold) -> Cost {
        let cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let depth = self.locals.len();
        self.push_accu(fold);
        let cost = cost.plus(self.cost(&fold.result));
        self.locals.truncate(depth);
        let (size, entries) = (self.size(&fold.result), self.entry_sizes(&fold.result));
        self.set_size(expr, size);
        self.set_entries(expr, entries);
        cost
    }
}

#[derive(Clone, Copy)]
enum Which {
    Key,
    Value,
    Single,
}

fn at(costs: &[Cost], index: usize) -> Cost {
    costs.get(index).copied().unwrap_or(Cost::fixed(0))
}

pub(crate) fn or_unknown(node: &Node<'_>) -> Size {
    node.size.unwrap_or(Cost::UNKNOWN)
}

/// cel-go's own estimates for its standard functions.
fn standard(overload: &str, target: Option<&Node<'_>>, args: &[Node<'_>]) -> CallCost {
    let plain = |cost: Cost| CallCost { cost, result: None };
    match (overload, target, args) {
        ("string_format", Some(target), _) => plain(or_unknown(target).by(TRAVERSAL)),
        ("string_to_bytes", _, [arg]) => {
            let size = or_unknown(arg);
            let result = Size { min: size.min, max: size.max.wrapping_mul(4) };
            CallCost { cost: size.by(TRAVERSAL), result: Some(result) }
        }
        ("bytes_to_string", _, [arg]) => {
            let size = or_unknown(arg);
            CallCost { cost: size.by(TRAVERSAL), result: Some(Size { min: size.min / 4, max: size.max }) }
        }
        ("strings_quote", _, [arg]) => {
            let size = or_unknown(arg);
            let result = Size { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
            CallCost { cost: size.by(TRAVERSAL), result: Some(result) }
        }
        ("starts_with_string" | "ends_with_string", _, [arg]) => plain(or_unknown(arg).by(TRAVERSAL)),
        ("in_list", _, [_, list]) => plain(or_unknown(list).by(1.0)),
        ("matches_string", Some(target), [pattern]) => {
            let text = or_unknown(target).plus(Cost::fixed(1)).by(TRAVERSAL);
            plain(text.times(or_unknown(pattern).by(PATTERN)))
        }
        ("contains_string", Some(target), [part]) => {
            plain(or_unknown(target).by(TRAVERSAL).times(or_unknown(part).by(TRAVERSAL)))
        }
        (_, _, [left, right]) if is_order(overload) || matches!(overload, "equals" | "not_equals") => {
            let max = or_unknown(left).max.min(or_unknown(right).max);
            plain(Cost { min: u64::from(max > 0), max }.by(TRAVERSAL))
        }
        _ => plain(Cost::fixed(1)),
    }
}
