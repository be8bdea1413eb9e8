//! The type checker: the type of every node, and the overloads of each call.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::ast::{Entry, Expr, Fold, Id, Kind, qualified_name};
use crate::decls::{FUNCTIONS, Overload, type_names};
use crate::env::Env;
use crate::schema::escape::keyword;
use crate::source::{self, Issue};
use crate::types::Type;
use crate::unify::{Mapping, most_general, params, rename};
use crate::value::Value;

/// Most errors reported.
const MAX_ISSUES: usize = 100;

/// The checker's results, by node.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub types: Vec<Type>,
    pub overloads: HashMap<Id, Vec<&'static str>>,
    /// The variables that are used.
    pub idents: Vec<String>,
    /// Field selections by a reserved word in unescaped form.
    pub keywords: HashSet<Id>,
}

impl Checked {
    pub fn ty(&self, id: Id) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }
}

/// Checks the tree; names that mean a qualified variable or function are replaced in it.
pub(crate) fn check(env: &Env, root: &mut Expr, ids: Id) -> Result<Checked, Vec<Issue>> {
    let checked = Checked { types: vec![Type::Dyn; ids as usize + 1], ..Checked::default() };
    let mut checker = Checker { env, mapping: Mapping::default(), scopes: Vec::new(), checked, issues: Vec::new() };
    checker.check(root);
    if !checker.issues.is_empty() {
        checker.issues.truncate(MAX_ISSUES);
        return Err(checker.issues);
    }
    let mut checked = checker.checked;
    for ty in &mut checked.types {
        *ty = checker.mapping.substitute(ty, true);
    }
    Ok(checked)
}

/// Most parts of a type: chained macros could double it with each step.
const MAX_TYPE: usize = 2_000;

struct Checker<'a> {
    env: &'a Env,
    mapping: Mapping,
    scopes: Vec<(String, Type)>,
    checked: Checked,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn issue(&mut self, place: u32, message: String) {
        if self.issues.len() < MAX_ISSUES {
            self.issues.push(Issue::new(Some(place), message));
        }
    }

    fn set(&mut self, expr: &Expr, mut ty: Type) {
        let mut left = MAX_TYPE;
        if !ty.is_within(&mut left) {
            self.issue(expr.place, format!("type of expression exceeds limit: {MAX_TYPE}"));
            ty = Type::Error;
        }
        if let Some(slot) = self.checked.types.get_mut(expr.id as usize) {
            *slot = ty;
        }
    }

    fn ty(&self, expr: &Expr) -> Type {
        self.checked.ty(expr.id).clone()
    }

    fn variable(&mut self, name: &str) -> Option<Type> {
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(n, _)| n == name) {
            return Some(ty.clone());
        }
        let ty = self.env.variable_type(name)?.clone();
        if !self.checked.idents.iter().any(|n| n == name) {
            self.checked.idents.push(name.to_owned());
        }
        Some(ty)
    }

    fn ident(&mut self, name: &str) -> Option<Type> {
        self.variable(name).or_else(|| type_names(name).map(|t| Type::Type(Some(Arc::new(t)))))
    }

    fn undeclared(&mut self, expr: &Expr, name: &str) {
        self.set(expr, Type::Error);
        self.issue(expr.place, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn check(&mut self, expr: &mut Expr) {
        source::deep(|| self.check_here(expr));
    }

    fn check_here(&mut self, expr: &mut Expr) {
        match &mut expr.kind {
            Kind::Literal(value) => {
                let ty = value.type_of();
                self.set(expr, ty);
            }
            Kind::Ident(name) => {
                let name = name.clone();
                match self.ident(&name) {
                    Some(ty) => self.set(expr, ty),
                    None => self.undeclared(expr, &name),
                }
            }
            Kind::Select { .. } => self.select(expr),
            Kind::Call { .. } => self.call(expr),
            Kind::List { .. } => self.list(expr),
            Kind::Map(_) => self.map(expr),
            Kind::Struct { name, fields } => {
                let name = name.clone();
                for (_, value) in fields.iter_mut() {
                    self.check(value);
                }
                self.undeclared(expr, &name);
            }
            Kind::Fold(_) => self.fold(expr),
        }
    }

    fn select(&mut self, expr: &mut Expr) {
        if let Some(name) = qualified_name(expr)
            && let Some(ty) = self.qualified(&name)
        {
            expr.kind = Kind::Ident(name);
            self.set(expr, ty);
            return;
        }
        let Kind::Select { operand, field, test } = &mut expr.kind else { return };
        let (field, test) = (field.clone(), *test);
        let found = self.field((expr.id, expr.place), operand, &field, false);
        let ty = if test { Type::Bool } else { self.mapping.substitute(&found, false) };
        self.set(expr, ty);
    }

    /// The type of a dotted name that is declared as a whole, and not the field of a local variable.
    fn qualified(&mut self, name: &str) -> Option<Type> {
        let head = name.split('.').next().unwrap_or_default();
        if self.scopes.iter().any(|(n, _)| n == head) {
            return None;
        }
        self.ident(name)
    }

    fn field(&mut self, (id, place): (Id, u32), operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let ty = self.mapping.substitute(&self.ty(operand), false);
        let (target, unwrapped) = unwrap_optional(&ty);
        let found = match target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(name) => match self.env.fields(name) {
                None => {
                    self.issue(place, format!("unexpected failed resolution of '{name}'"));
                    Type::Error
                }
                Some(fields) => match (fields.get(field), keyword(field).and_then(|k| fields.get(&k))) {
                    (Some(found), _) => found.clone(),
                    (None, Some(found)) => {
                        self.checked.keywords.insert(id);
                        found.clone()
                    }
                    (None, None) => {
                        self.issue(place, format!("undefined field '{field}'"));
                        Type::Error
                    }
                },
            },
            Type::Param(_) => {
                self.mapping.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.issue(place, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if unwrapped || optional { Type::optional(found) } else { found }
    }

    fn optional_select(&mut self, expr: &mut Expr) {
        let at = (expr.id, expr.place);
        let Kind::Call { args, .. } = &mut expr.kind else { return };
        let [operand, field] = args.as_mut_slice() else { return };
        let Kind::Literal(Value::String(name)) = &field.kind else { return };
        let name = name.clone();
        let found = self.field(at, operand, &name, true);
        let ty = self.mapping.substitute(&found, false);
        self.set(expr, ty);
        self.checked.overloads.insert(expr.id, vec!["select_optional_field"]);
    }

    fn call(&mut self, expr: &mut Expr) {
        let Kind::Call { target, function, args } = &mut expr.kind else { return };
        if function == "_?._" {
            return self.optional_select(expr);
        }
        for arg in args.iter_mut() {
            self.check(arg);
        }
        if let Some(receiver) = target {
            let full = qualified_name(receiver).map(|prefix| format!("{prefix}.{function}"));
            if let Some(full) = full.filter(|f| FUNCTIONS.contains_key(f.as_str())) {
                *function = full;
                *target = None;
            } else {
                self.check(receiver);
            }
        }
        let Some(overloads) = FUNCTIONS.get(function.as_str()) else {
            let name = function.clone();
            return self.undeclared(expr, &name);
        };
        let mut types: Vec<Type> = target.iter().map(|t| self.ty(t)).collect();
        types.extend(args.iter().map(|a| self.ty(a)));
        let places: Vec<u32> = args.iter().map(|a| a.place).collect();
        let (member, function) = (target.is_some(), function.clone());
        let ty = self.resolve(expr, &function, overloads, member, types, &places).unwrap_or(Type::Error);
        self.set(expr, ty);
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        function: &str,
        overloads: &'static [Overload],
        member: bool,
        types: Vec<Type>,
        places: &[u32],
    ) -> Option<Type> {
        if matches!(function, "_&&_" | "_||_") {
            return self.logical(expr, overloads, &types, places);
        }
        let mut result: Option<Type> = None;
        let mut ids = Vec::new();
        for overload in overloads.iter().filter(|o| o.member == member && o.args.len() == types.len()) {
            let mut names = Vec::new();
            overload.args.iter().chain([&overload.result]).for_each(|t| params(t, &mut names));
            let names: HashMap<Arc<str>, Type> = names.into_iter().map(|n| (n, self.mapping.fresh())).collect();
            let wanted: Vec<Type> = overload.args.iter().map(|t| rename(t, &names)).collect();
            if !self.mapping.assignable_all(&types, &wanted) {
                continue;
            }
            ids.push(overload.id);
            let found = self.mapping.substitute(&rename(&overload.result, &names), false);
            result = Some(match result {
                None => found,
                Some(before) if before == Type::Dyn || before == found => before,
                Some(_) => Type::Dyn,
            });
        }
        if result.is_none() {
            let arguments: Vec<String> = types.iter().map(|t| self.mapping.substitute(t, true).to_string()).collect();
            let signature = match arguments.split_first() {
                Some((receiver, rest)) if member => format!("{receiver}.({})", rest.join(", ")),
                _ => format!("({})", arguments.join(", ")),
            };
            self.issue(expr.place, format!("found no matching overload for '{function}' applied to '{signature}'"));
            return None;
        }
        self.checked.overloads.insert(expr.id, ids);
        result
    }

    fn logical(&mut self, expr: &Expr, all: &'static [Overload], types: &[Type], places: &[u32]) -> Option<Type> {
        let mut wrong = false;
        for (ty, place) in types.iter().zip(places) {
            if !self.mapping.assignable(ty, &Type::Bool) {
                self.mismatch(*place, &Type::Bool, ty);
                wrong = true;
            }
        }
        if wrong {
            return None;
        }
        self.checked.overloads.insert(expr.id, all.iter().map(|o| o.id).collect());
        Some(Type::Bool)
    }

    fn mismatch(&mut self, place: u32, expected: &Type, found: &Type) {
        self.issue(place, format!("expected type '{expected}' but found '{found}'"));
    }

    fn join(&mut self, before: Option<Type>, now: Type) -> Type {
        let Some(before) = before else { return now };
        if self.mapping.assignable(&before, &now) {
            return most_general(&before, &now);
        }
        // Mixed literals are refused later, except among the arguments of a format.
        Type::Dyn
    }

    /// The type within an optional; reports an error for other types.
    fn required_optional(&mut self, expr: &Expr) -> Type {
        let ty = self.ty(expr);
        if let Type::Optional(inner) = &ty {
            return (**inner).clone();
        }
        if ty != Type::Dyn {
            self.mismatch(expr.place, &Type::optional(ty.clone()), &ty);
        }
        ty
    }

    fn list(&mut self, expr: &mut Expr) {
        let Kind::List { elements, optional } = &mut expr.kind else { return };
        let mut joined = None;
        for (element, optional) in elements.iter_mut().zip(optional.iter()) {
            self.check(element);
            let ty = if *optional { self.required_optional(element) } else { self.ty(element) };
            joined = Some(self.join(joined, ty));
        }
        let of = joined.unwrap_or_else(|| self.mapping.fresh());
        self.set(expr, Type::list(of));
    }

    fn map(&mut self, expr: &mut Expr) {
        let Kind::Map(entries) = &mut expr.kind else { return };
        let (mut keys, mut values) = (None, None);
        for Entry { key, value, optional } in entries.iter_mut() {
            self.check(key);
            let ty = self.ty(key);
            keys = Some(self.join(keys, ty));
            self.check(value);
            let ty = if *optional { self.required_optional(value) } else { self.ty(value) };
            values = Some(self.join(values, ty));
        }
        let key = keys.unwrap_or_else(|| self.mapping.fresh());
        let value = values.unwrap_or_else(|| self.mapping.fresh());
        self.set(expr, Type::map(key, value));
    }

    fn fold(&mut self, expr: &mut Expr) {
        let Kind::Fold(fold) = &mut expr.kind else { return };
        let Fold { range, var, var2, accu, init, condition, step, result } = fold.as_mut();
        self.check(range);
        self.check(init);
        let range_ty = self.mapping.substitute(&self.ty(range), false);
        let accu_ty = self.ty(init);
        let depth = self.scopes.len();
        self.scopes.push((accu.clone(), accu_ty.clone()));
        let two = var2.is_some();
        let (first, second) = match &range_ty {
            Type::List(of) if two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.mapping.assignable(&Type::Dyn, &range_ty);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issue(range.place, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((var.clone(), first));
        if let Some(var2) = var2 {
            self.scopes.push((var2.clone(), second));
        }
        self.check(condition);
        self.assert(condition, &Type::Bool);
        self.check(step);
        self.assert(step, &accu_ty);
        self.scopes.truncate(depth + 1);
        self.check(result);
        self.scopes.truncate(depth);
        let ty = self.mapping.substitute(&self.ty(result), false);
        self.set(expr, ty);
    }

    fn assert(&mut self, expr: &Expr, wanted: &Type) {
        let found = self.ty(expr);
        if !self.mapping.assignable(wanted, &found) {
            self.mismatch(expr.place, wanted, &found);
        }
    }
}

fn unwrap_optional(ty: &Type) -> (&Type, bool) {
    match ty {
        Type::Optional(inner) => (inner, true),
        other => (other, false),
    }
}
