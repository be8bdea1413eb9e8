//! The parsed expression.

use crate::value::Value;

/// Identifies a node within its expression; dense from 1.
pub(crate) type Id = u32;

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub id: Id,
    /// Code points from the start of the source.
    pub place: u32,
    /// Nodes from here down to the deepest leaf.
    pub height: usize,
    pub kind: Kind,
}

impl Kind {
    /// Calls `visit` with the height of each child.
    fn heights(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            Self::Literal(_) | Self::Ident(_) => {}
            Self::Select { operand, .. } => visit(operand.height),
            Self::Call { target, args, .. } => target.iter().map(|t| &**t).chain(args).for_each(|e| visit(e.height)),
            Self::List { elements, .. } => elements.iter().for_each(|e| visit(e.height)),
            Self::Map(entries) => entries.iter().for_each(|e| visit(e.key.height.max(e.value.height))),
            Self::Struct { fields, .. } => fields.iter().for_each(|(_, e)| visit(e.height)),
            Self::Fold(f) => {
                [&f.range, &f.init, &f.condition, &f.step, &f.result].iter().for_each(|e| visit(e.height));
            }
        }
    }

    /// The height of a node of this kind.
    pub fn height(&self) -> usize {
        let mut highest = 0;
        self.heights(&mut |height| highest = highest.max(height));
        highest + 1
    }
}

/// What a node is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Literal(Value),
    Ident(String),
    Select { operand: Box<Expr>, field: String, test: bool },
    Call { target: Option<Box<Expr>>, function: String, args: Vec<Expr> },
    List { elements: Vec<Expr>, optional: Vec<bool> },
    Map(Vec<Entry>),
    Struct { name: String, fields: Vec<(String, Expr)> },
    Fold(Box<Fold>),
}

/// An entry of a map literal.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

/// A comprehension: the expansion of a macro.
#[derive(Debug, Clone)]
pub(crate) struct Fold {
    pub range: Expr,
    pub var: String,
    pub var2: Option<String>,
    pub accu: String,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

impl Fold {
    /// Whether this only names a value for an expression.
    pub fn is_bind(&self) -> bool {
        matches!(&self.range.kind, Kind::List { elements, .. } if elements.is_empty())
            && matches!(self.condition.kind, Kind::Literal(Value::Bool(false)))
            && self.accu != ACCUMULATOR
    }
}

/// The name of the macros' result variable: none that an expression could spell.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The dotted name that an expression spells, if it does.
pub(crate) fn qualified_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.clone()),
        Kind::Select { operand, field, test: false } => Some(format!("{}.{field}", qualified_name(operand)?)),
        _ => None,
    }
}
