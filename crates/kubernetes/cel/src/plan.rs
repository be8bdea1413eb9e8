//! Preparation of an expression before its first evaluation: checks literals and folds constants.

use crate::ast::{Expr, Kind};
use crate::checker::Checked;
use crate::functions;
use crate::source::{Issue, deep};
use crate::types::Type;
use crate::value::{Key, Map, Value};

/// Visits the children of a node.
fn children<'a>(expr: &'a Expr, visit: &mut dyn FnMut(&'a Expr)) {
    match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => {}
        Kind::Select { operand, .. } => visit(operand),
        Kind::Call { target, args, .. } => {
            if let Some(target) = target {
                visit(target);
            }
            args.iter().for_each(visit);
        }
        Kind::List { elements, .. } => elements.iter().for_each(visit),
        Kind::Map(entries) => entries.iter().for_each(|e| {
            visit(&e.key);
            visit(&e.value);
        }),
        Kind::Struct { fields, .. } => fields.iter().for_each(|(_, e)| visit(e)),
        Kind::Fold(f) => [&f.range, &f.init, &f.condition, &f.step, &f.result].into_iter().for_each(visit),
    }
}

/// Checks literals: durations, timestamps, patterns, and that lists and maps hold one type.
pub(crate) fn validate(expr: &Expr, checked: &Checked, exempt: bool, issues: &mut Vec<Issue>) {
    match &expr.kind {
        Kind::Call { function, args, .. } => literal_argument(function, args, issues),
        Kind::List { elements, optional } if !exempt => {
            let types = elements.iter().zip(optional).map(|(e, optional)| (e, inner(checked.ty(e.id), *optional)));
            same_types(types, issues, true);
        }
        Kind::Map(entries) if !exempt => {
            same_types(entries.iter().map(|e| (&e.key, checked.ty(e.key.id))), issues, false);
            let values = entries.iter().map(|e| (&e.value, inner(checked.ty(e.value.id), e.optional)));
            same_types(values, issues, false);
        }
        _ => {}
    }
    // The arguments of `format` may have any types.
    let exempt = exempt || matches!(&expr.kind, Kind::Call { function, .. } if function == "format");
    children(expr, &mut |child| deep(|| validate(child, checked, exempt, issues)));
}

fn inner(ty: &Type, optional: bool) -> &Type {
    match ty {
        Type::Optional(inner) if optional => inner,
        other => other,
    }
}

fn same_types<'a>(mut all: impl Iterator<Item = (&'a Expr, &'a Type)>, issues: &mut Vec<Issue>, once: bool) {
    let Some((_, first)) = all.next() else { return };
    for (expr, ty) in all {
        if ty != first {
            issues.push(Issue::new(Some(expr.place), format!("expected type '{first}' but found '{ty}'")));
            if once {
                return;
            }
        }
    }
}

fn literal_argument(function: &str, args: &[Expr], issues: &mut Vec<Issue>) {
    let Some(Expr { kind: Kind::Literal(value), place, .. }) = args.first() else { return };
    let wrong = match (function, value) {
        ("matches", Value::String(pattern)) => functions::regexes::compile(pattern).is_err(),
        ("duration" | "timestamp", value) => functions::call(function, std::slice::from_ref(value)).is_err(),
        _ => false,
    };
    if wrong {
        issues.push(Issue::new(Some(*place), format!("invalid {function} argument")));
    }
}

/// Replaces constant lists, maps and conversions by their values.
///
/// # Errors
/// The message of a conversion that fails.
pub(crate) fn fold(expr: &mut Expr, checked: &Checked) -> Result<(), String> {
    deep(|| fold_here(expr, checked))
}

fn fold_here(expr: &mut Expr, checked: &Checked) -> Result<(), String> {
    match &mut expr.kind {
        Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => {}
        Kind::Select { operand, .. } => fold(operand, checked)?,
        Kind::Call { target, args, .. } => {
            if let Some(target) = target {
                fold(target, checked)?;
            }
            for arg in args.iter_mut() {
                fold(arg, checked)?;
            }
        }
        Kind::List { elements, .. } => {
            for element in elements.iter_mut() {
                fold(element, checked)?;
            }
        }
        Kind::Map(entries) => {
            for entry in entries.iter_mut() {
                fold(&mut entry.key, checked)?;
                fold(&mut entry.value, checked)?;
            }
        }
        Kind::Fold(f) => {
            let f = f.as_mut();
            for part in [&mut f.range, &mut f.init, &mut f.condition, &mut f.step, &mut f.result] {
                fold(part, checked)?;
            }
        }
    }
    if let Some(value) = constant(expr)? {
        expr.kind = Kind::Literal(value);
    }
    Ok(())
}

fn literal(expr: &Expr) -> Option<&Value> {
    match &expr.kind {
        Kind::Literal(value) => Some(value),
        _ => None,
    }
}

const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

fn constant(expr: &Expr) -> Result<Option<Value>, String> {
    Ok(match &expr.kind {
        Kind::List { elements, optional } if !optional.contains(&true) => {
            elements.iter().map(|e| literal(e).cloned()).collect::<Option<Vec<_>>>().map(Value::list)
        }
        Kind::Map(entries) if entries.iter().all(|e| !e.optional) => {
            let pair = |e: &crate::ast::Entry| Some((Key::of(literal(&e.key)?)?, literal(&e.value)?.clone()));
            let pairs: Option<Vec<_>> = entries.iter().map(pair).collect();
            let unique = |pairs: Vec<(Key, Value)>| {
                let count = pairs.len();
                let map = Map { entries: pairs.into_iter().collect(), hidden: 0 };
                (map.entries.len() == count).then(|| Value::Map(map.into()))
            };
            pairs.and_then(unique)
        }
        Kind::Call { target: None, function, args } if CONVERSIONS.contains(&function.as_str()) => {
            match args.as_slice() {
                [arg] => match literal(arg) {
                    Some(value) => {
                        let result = functions::call(function, std::slice::from_ref(value));
                        Some(result.map_err(|fault| fault.to_string())?)
                    }
                    None => None,
                },
                _ => None,
            }
        }
        _ => None,
    })
}
