//! What an expression reads, and by which patterns: for whoever explains its result, or bounds what it may ask for.

use crate::ast::{Expr, Fold, Kind};
use crate::source::deep;
use crate::value::Value;

/// Most fields that are told of one expression.
const MAX_PATHS: usize = 64;

/// The fields of variables that the expression reads, each once and in the order in which they stand; see `Program::reads`.
pub(crate) fn paths(root: &Expr) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    walk(root, &mut Vec::new(), &mut found);
    found
}

/// The chain of names that an expression is, from a variable on: fields, and keys that are written as text.
fn chain(expr: &Expr) -> Option<Vec<String>> {
    let mut back: Vec<&str> = Vec::new();
    let mut at = expr;
    loop {
        match &at.kind {
            Kind::Ident(name) => {
                back.push(name);
                return Some(back.into_iter().rev().map(ToOwned::to_owned).collect());
            }
            Kind::Select { operand, field, .. } => {
                back.push(field);
                at = operand;
            }
            Kind::Call { target: None, function, args } if matches!(function.as_str(), "_[_]" | "_[?_]" | "_?._") => {
                let [operand, Expr { kind: Kind::Literal(Value::String(key)), .. }] = args.as_slice() else {
                    return None;
                };
                back.push(key);
                at = operand;
            }
            _ => return None,
        }
    }
}

fn walk<'a>(expr: &'a Expr, own: &mut Vec<&'a str>, found: &mut Vec<Vec<String>>) {
    if let Some(path) = chain(expr) {
        let is_own = path.first().is_some_and(|name| own.contains(&name.as_str()));
        if !is_own && found.len() < MAX_PATHS && !found.contains(&path) {
            found.push(path);
        }
        return;
    }
    deep(|| match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => {}
        Kind::Select { operand, .. } => walk(operand, own, found),
        Kind::Call { target, args, .. } => {
            target.iter().map(|target| &**target).chain(args).for_each(|part| walk(part, own, found));
        }
        Kind::List { elements, .. } => elements.iter().for_each(|element| walk(element, own, found)),
        Kind::Map(entries) => entries.iter().for_each(|entry| {
            walk(&entry.key, own, found);
            walk(&entry.value, own, found);
        }),
        Kind::Struct { fields, .. } => fields.iter().for_each(|(_, value)| walk(value, own, found)),
        Kind::Fold(fold) => walk_fold(fold, own, found),
    });
}

fn walk_fold<'a>(fold: &'a Fold, own: &mut Vec<&'a str>, found: &mut Vec<Vec<String>>) {
    walk(&fold.range, own, found);
    walk(&fold.init, own, found);
    let depth = own.len();
    own.push(&fold.var);
    own.extend(fold.var2.as_deref());
    own.push(&fold.accu);
    [&fold.condition, &fold.step, &fold.result].into_iter().for_each(|part| walk(part, own, found));
    own.truncate(depth);
}

/// The patterns that the expression is written with; `None` if it computes one.
pub(crate) fn patterns(root: &Expr) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    collect(root, &mut found).then_some(found)
}

/// Whether all patterns are written.
fn collect<'a>(expr: &'a Expr, found: &mut Vec<&'a str>) -> bool {
    deep(|| match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) => true,
        Kind::Select { operand, .. } => collect(operand, found),
        Kind::Call { target, function, args } => {
            let pattern = match function.as_str() {
                "matches" | "find" | "findAll" => args.get(usize::from(target.is_none())),
                _ => None,
            };
            let is_written = match pattern.map(|pattern| &pattern.kind) {
                Some(Kind::Literal(Value::String(pattern))) => {
                    found.push(pattern);
                    true
                }
                Some(_) => false,
                None => true,
            };
            is_written && target.iter().map(|target| &**target).chain(args).all(|part| collect(part, found))
        }
        Kind::List { elements, .. } => elements.iter().all(|element| collect(element, found)),
        Kind::Map(entries) => entries.iter().all(|entry| collect(&entry.key, found) && collect(&entry.value, found)),
        Kind::Struct { fields, .. } => fields.iter().all(|(_, value)| collect(value, found)),
        Kind::Fold(fold) => {
            [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result].into_iter().all(|e| collect(e, found))
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::{Env, Type};

    #[test]
    fn what_an_expression_reads_is_told_by_fields_of_variables() {
        let env = Env::new().variable("a", Type::Dyn).variable("b", Type::list(Type::Dyn));
        let reads = |source: &str| -> Vec<String> {
            let program = env.compile(source).unwrap();
            program.reads().iter().map(|path| path.join(".")).collect()
        };
        assert_eq!(reads("a.x.y > 3 && has(a.z) && a.x.y < 9"), ["a.x.y", "a.z"]);
        assert_eq!(reads("b.exists(i, i.x == a.n)"), ["b", "a.n"]);
        assert_eq!(reads("a.m['k'] == 'v' && a.?o.orValue(1) == 1 && a.l[0].q == 2"), ["a.m.k", "a.o", "a.l"]);
        assert_eq!(reads("b.map(a, a.inner).size() > 0"), ["b"]);
    }

    #[test]
    fn patterns_are_told_if_all_of_them_are_written() {
        let env = Env::new().variable("a", Type::String).variable("b", Type::list(Type::String));
        let patterns = |source: &str| {
            let program = env.compile(source).unwrap();
            program.patterns().map(|all| all.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(
            patterns("a.matches('x+') && matches(a, 'y') && a.find('z') == ''"),
            Some(vec!["x+".into(), "y".into(), "z".into()])
        );
        assert_eq!(patterns("b.exists(p, p.findAll('q', 2).size() > 0)"), Some(vec!["q".into()]));
        assert_eq!(patterns("b.exists(p, a.matches(p))"), None);
        assert_eq!(patterns("a.matches('x' + a)"), None);
        assert_eq!(patterns("a == 'x'"), Some(Vec::new()));
    }
}
