//! Type variables and their substitutions during type checking.

use std::collections::HashMap;
use std::sync::Arc;

use crate::types::Type;

/// Substitutions of type variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mapping {
    found: HashMap<Arc<str>, Type>,
    next: usize,
}

impl Mapping {
    pub fn fresh(&mut self) -> Type {
        self.next += 1;
        Type::Param(format!("_var{}", self.next - 1).into())
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(name) => self.found.get(name),
            _ => None,
        }
    }

    fn add(&mut self, param: &Type, ty: Type) {
        if let Type::Param(name) = param {
            self.found.insert(name.clone(), ty);
        }
    }

    /// Whether a value of `b` can be used where `a` is expected; keeps new substitutions only if so.
    pub fn assignable(&mut self, a: &Type, b: &Type) -> bool {
        let before = self.found.clone();
        let assignable = self.is_assignable(a, b);
        if !assignable {
            self.found = before;
        }
        assignable
    }

    pub fn assignable_all(&mut self, a: &[Type], b: &[Type]) -> bool {
        if a.len() != b.len() {
            return false;
        }
        let before = self.found.clone();
        let assignable = a.iter().zip(b).all(|(a, b)| self.is_assignable(a, b));
        if !assignable {
            self.found = before;
        }
        assignable
    }

    fn is_assignable(&mut self, a: &Type, b: &Type) -> bool {
        if matches!(b, Type::Param(_)) {
            let (valid, known) = self.substitution(a, b);
            if valid || known {
                return valid;
            }
        }
        if matches!(a, Type::Param(_)) {
            return self.substitution(b, a).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null | Type::Optional(_) | Type::Opaque(_) | Type::Object(_) | Type::Duration | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.is_assignable(a, b),
            (Type::Map(ka, va), Type::Map(kb, vb)) => self.is_assignable(ka, kb) && self.is_assignable(va, vb),
            _ => a == b,
        }
    }

    fn substitution(&mut self, ty: &Type, param: &Type) -> (bool, bool) {
        if ty == param {
            return (true, true);
        }
        if let Some(known) = self.find(param).cloned() {
            if *ty == known {
                return (true, true);
            }
            if self.is_assignable(ty, &known) {
                let general = most_general(ty, &known);
                if self.absent(param, &general) {
                    self.add(param, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.absent(param, ty) {
            self.add(param, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    /// Whether `param` does not occur within `ty`.
    fn absent(&self, param: &Type, ty: &Type) -> bool {
        if param == ty {
            return false;
        }
        match ty {
            Type::Param(_) => self.find(ty).is_none_or(|known| self.absent(param, known)),
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => self.absent(param, of),
            Type::Map(key, value) => self.absent(param, key) && self.absent(param, value),
            _ => true,
        }
    }

    /// The type with its variables replaced; unbound ones by `dyn` on request.
    pub fn substitute(&self, ty: &Type, to_dyn: bool) -> Type {
        if let Some(known) = self.find(ty) {
            return self.substitute(known, to_dyn);
        }
        match ty {
            Type::Param(_) if to_dyn => Type::Dyn,
            Type::List(of) => Type::list(self.substitute(of, to_dyn)),
            Type::Optional(of) => Type::optional(self.substitute(of, to_dyn)),
            Type::Map(key, value) => Type::map(self.substitute(key, to_dyn), self.substitute(value, to_dyn)),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(self.substitute(of, to_dyn)))),
            other => other.clone(),
        }
    }
}

/// A declared type with its variables made new.
pub(crate) fn rename(ty: &Type, names: &HashMap<Arc<str>, Type>) -> Type {
    match ty {
        Type::Param(name) => names.get(name).cloned().unwrap_or_else(|| ty.clone()),
        Type::List(of) => Type::list(rename(of, names)),
        Type::Optional(of) => Type::optional(rename(of, names)),
        Type::Map(key, value) => Type::map(rename(key, names), rename(value, names)),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(rename(of, names)))),
        other => other.clone(),
    }
}

/// The names of the variables in a type.
pub(crate) fn params(ty: &Type, into: &mut Vec<Arc<str>>) {
    match ty {
        Type::Param(name) if !into.contains(name) => into.push(name.clone()),
        Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => params(of, into),
        Type::Map(key, value) => {
            params(key, into);
            params(value, into);
        }
        _ => {}
    }
}

/// The more general of two compatible types.
pub(crate) fn most_general(a: &Type, b: &Type) -> Type {
    if less_specific(a, b) { a.clone() } else { b.clone() }
}

fn less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => less_specific(a, b),
        (Type::Map(ka, va), Type::Map(kb, vb)) => less_specific(ka, kb) && less_specific(va, vb),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
