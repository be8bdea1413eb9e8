//! Mutants as choices at run time: the text of a source file in which `off(N)` chooses the mutant of number N.
//!
//! What mutants there are says cargo-mutants, by place and replacement; each becomes an expression that asks [`MODULE`] which one is chosen, so that
//! one build serves all. What is chosen means what cargo-mutants' text would mean: it replaces one operator, and what that does to the precedence
//! of those around it is kept. What is computed by the compiler (constants) is left to cargo-mutants itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr};

/// What a mutated crate gets beside its modules, as `mutant_choice`. `COUNT` becomes the number of mutants.
pub const MODULE: &str = r#"
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static SEEN: [AtomicBool; COUNT + 1] = [const { AtomicBool::new(false) }; COUNT + 1];

pub(crate) fn off(mutant: u32) -> bool {
    static CHOSEN: OnceLock<Option<u32>> = OnceLock::new();
    let chosen = *CHOSEN.get_or_init(|| std::env::var("METAMORPH_MUTANT").ok().map(|text| text.parse().unwrap()));
    if chosen == Some(0) && !SEEN[mutant as usize].swap(true, Ordering::Relaxed) {
        let file = std::env::var_os("METAMORPH_MUTANTS_REACHED").unwrap();
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        file.write_all(format!("{mutant}\n").as_bytes()).unwrap();
    }
    chosen == Some(mutant)
}
"#;

/// What cargo-mutants prints of a mutant (`--list --json`), as far as it is used.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// File, place and change in words; no other has it.
    pub name: String,
    /// From the project's root.
    pub file: std::path::PathBuf,
    /// The kind of change.
    pub genre: Genre,
    /// What comes in the place of the span.
    pub replacement: String,
    /// What is replaced.
    pub span: Place,
    /// The function that it is in.
    pub function: Option<Function>,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Genre {
    /// The body of a function becomes a value.
    FnValue,
    /// Another operator between two operands.
    BinaryOperator,
    /// An operator before its operand is gone.
    UnaryOperator,
    /// An arm of a `match` is gone.
    MatchArm,
    /// The guard of an arm is `true` or `false`.
    MatchArmGuard,
    /// A field of a struct expression comes from its base.
    StructField,
    /// Something that this program does not know.
    #[serde(other)]
    Other,
}

/// The function that a mutant is in.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// With its arrow; empty for `()`.
    pub return_type: String,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Place {
    /// Where it begins.
    pub start: At,
    /// Where it ends: the first character that is not part of it.
    pub end: At,
}

/// A character of a file.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct At {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

/// A file with its choices.
#[derive(Debug)]
pub struct Chosen {
    /// The new text.
    pub text: String,
    /// Mutants that no compiler takes.
    pub unviable: BTreeSet<u32>,
    /// Mutants that are no choice at run time.
    pub left: BTreeSet<u32>,
}

/// How a piece of the text becomes a choice. Ranges are places in the text, in bytes.
enum Form {
    /// An empty place at the beginning of a function's body, and what is returned there.
    Returns(Vec<(u32, String)>),
    /// Operands of `&&` (`all`) or `||`, and for each operator the mutant in which it is the other one.
    Chain { all: bool, operands: Vec<Range<usize>>, mutants: Vec<Option<u32>> },
    /// A condition, and the mutants that negate it.
    Negated(Vec<u32>),
    /// An expression, and what is cut out of it, and replaced, in each mutant.
    Cut(Vec<(u32, Range<usize>, String)>),
    /// The guard of an arm, and the mutants in which it is `true` and `false`.
    Guard(Option<u32>, Option<u32>),
    /// An empty place behind the pattern of an arm, and the mutant without this arm.
    Arm(u32),
    /// Nothing is left of it.
    Gone,
    /// An empty place behind the last arm of a `match` in which an arm has got a guard, and none takes all that is left. Without that arm it would not
    /// compile, unless the others have all cases; here it panics where one is missing.
    Rest,
}

struct Choice {
    place: Range<usize>,
    form: Form,
}

impl Choice {
    /// Its mutants.
    fn mutants(&self) -> Vec<u32> {
        match &self.form {
            Form::Returns(all) => all.iter().map(|(number, _)| *number).collect(),
            Form::Chain { mutants, .. } => mutants.iter().flatten().copied().collect(),
            Form::Negated(all) => all.clone(),
            Form::Cut(all) => all.iter().map(|(number, ..)| *number).collect(),
            Form::Guard(one, other) => one.iter().chain(other).copied().collect(),
            Form::Arm(number) => vec![*number],
            Form::Gone | Form::Rest => Vec::new(),
        }
    }
}

/// Names that the constants of a file use: a function of such a name has to stay `const`.
///
/// # Errors
/// When the file is no Rust.
pub fn names_in_constants(text: &str) -> Result<BTreeSet<String>> {
    struct Names {
        depth: usize,
        found: BTreeSet<String>,
    }
    impl<'a> Visit<'a> for Names {
        fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
            self.depth += 1;
            visit::visit_item_const(self, item);
            self.depth -= 1;
        }
        fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
            self.depth += 1;
            visit::visit_impl_item_const(self, item);
            self.depth -= 1;
        }
        fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
            self.depth += 1;
            visit::visit_item_static(self, item);
            self.depth -= 1;
        }
        fn visit_ident(&mut self, ident: &'a proc_macro2::Ident) {
            if self.depth > 0 {
                self.found.insert(ident.to_string());
            }
        }
    }
    let mut names = Names { depth: 0, found: BTreeSet::new() };
    names.visit_file(&syn::parse_file(text)?);
    Ok(names.found)
}

/// Puts the mutants of a file into its text, each with its number. Functions whose names are `constant` stay `const`.
///
/// # Errors
/// When the file is no Rust, or a mutant has a place that it does not have.
pub fn chosen(text: &str, mutants: &BTreeMap<u32, &Mutant>, constant: &BTreeSet<String>) -> Result<Chosen> {
    let mut open: BTreeMap<(usize, usize), Vec<(u32, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in mutants {
        let place = range(text, mutant.span).with_context(|| format!("{}: no such place", mutant.name))?;
        open.entry((place.start, place.end)).or_default().push((*number, mutant));
    }
    let mut finder = Finder {
        open,
        constant,
        choices: Vec::new(),
        unviable: BTreeSet::new(),
        left: BTreeSet::new(),
        covered: BTreeSet::new(),
    };
    finder.visit_file(&syn::parse_file(text)?);
    let mut left = finder.left;
    left.extend(finder.open.into_values().flatten().map(|(number, _)| number));
    let mut choices = finder.choices;
    choices.sort_by_key(|choice| {
        (choice.place.start, usize::MAX - choice.place.end, !matches!(choice.form, Form::Guard(..)))
    });
    let text = Writer { text, choices: &choices }.within(0..text.len(), 0)?;
    Ok(Chosen { text, unviable: finder.unviable, left })
}

/// The mutants that a place of a text with choices belongs to: one, if it is in what that one does, else all of the choice around it.
pub fn at(text: &str, offset: usize) -> Vec<u32> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.get(..offset).unwrap_or_default();
    while let Some((_, after)) = rest.split_once("/*[") {
        let Some((mark, after)) = after.split_once("]*/") else { break };
        if mark == "." {
            open.pop();
        } else {
            open.push(mark);
        }
        rest = after;
    }
    open.last().map(|mark| mark.split(',').filter_map(|number| number.parse().ok()).collect()).unwrap_or_default()
}

/// A place in bytes.
fn range(text: &str, place: Place) -> Option<Range<usize>> {
    let offset = |at: At| -> Option<usize> {
        let before: usize = text.split_inclusive('\n').take(at.line.checked_sub(1)?).map(str::len).sum();
        let column = at.column.checked_sub(1)?;
        let line = text.get(before..)?;
        Some(before + line.char_indices().map(|(at, _)| at).nth(column).unwrap_or(line.len()))
    };
    Some(offset(place.start)?..offset(place.end)?)
}

struct Finder<'m> {
    /// Mutants that no choice was found for yet, by their places.
    open: BTreeMap<(usize, usize), Vec<(u32, &'m Mutant)>>,
    constant: &'m BTreeSet<String>,
    choices: Vec<Choice>,
    unviable: BTreeSet<u32>,
    left: BTreeSet<u32>,
    /// Where operators begin that an expression around them has dealt with.
    covered: BTreeSet<usize>,
}

impl<'m> Finder<'m> {
    /// The mutants of this kind at this place.
    fn take(&mut self, place: &Range<usize>, genre: Genre) -> Vec<(u32, &'m Mutant)> {
        let Some(all) = self.open.remove(&(place.start, place.end)) else { return Vec::new() };
        let (these, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, mutant)| mutant.genre == genre);
        if !others.is_empty() {
            self.open.insert((place.start, place.end), others);
        }
        these
    }

    fn push(&mut self, place: Range<usize>, form: Form) {
        let choice = Choice { place, form };
        if !choice.mutants().is_empty() || matches!(choice.form, Form::Gone | Form::Rest) {
            self.choices.push(choice);
        }
    }

    /// Whether what is in this function can be chosen at run time.
    fn begin(&mut self, signature: &syn::Signature, block: &syn::Block) -> bool {
        if let Some(token) = &signature.constness {
            if self.constant.contains(&signature.ident.to_string()) {
                return false;
            }
            self.push(token.span.byte_range(), Form::Gone);
        }
        if let (Some(first), Some(last)) = (block.stmts.first(), block.stmts.last()) {
            let taken = self.take(&(first.span().byte_range().start..last.span().byte_range().end), Genre::FnValue);
            let begin = block.brace_token.span.open().byte_range().end;
            // A value of a type without a name is of one type, whichever is chosen.
            let unnamed = |mutant: &Mutant| mutant.function.as_ref().is_some_and(|f| f.return_type.contains("impl "));
            let (left, taken): (Vec<_>, Vec<_>) = taken.into_iter().partition(|(_, mutant)| unnamed(mutant));
            self.left.extend(left.into_iter().map(|(number, _)| number));
            let values = taken.into_iter().map(|(number, mutant)| (number, mutant.replacement.clone())).collect();
            self.push(begin..begin, Form::Returns(values));
        }
        true
    }

    /// Operands that `&&`, or `||`, joins, and the places of its operators.
    fn joined<'a>(all: bool, expression: &'a Expr, operands: &mut Vec<&'a Expr>, operators: &mut Vec<Range<usize>>) {
        match expression {
            Expr::Binary(inner) if joins(&inner.op) == Some(all) => {
                Self::joined(all, &inner.left, operands, operators);
                operators.push(inner.op.span().byte_range());
                operands.push(&inner.right);
            }
            _ => operands.push(expression),
        }
    }

    fn chain(&mut self, all: bool, node: &syn::ExprBinary) {
        if self.covered.contains(&node.op.span().byte_range().start) {
            return;
        }
        let (mut operands, mut operators) = (Vec::new(), Vec::new());
        Self::joined(all, &node.left, &mut operands, &mut operators);
        operators.push(node.op.span().byte_range());
        operands.push(&node.right);
        self.covered.extend(operators.iter().map(|place| place.start));
        let mut mutants = Vec::new();
        for operator in &operators {
            mutants.push(self.take(operator, Genre::BinaryOperator).first().map(|(number, _)| *number));
        }
        // What binds a name stands between no `||`.
        if operands.iter().any(|operand| matches!(operand, Expr::Let(_))) {
            self.unviable.extend(mutants.into_iter().flatten());
            return;
        }
        let operands = operands.into_iter().map(|operand| operand.span().byte_range()).collect();
        self.push(node.span().byte_range(), Form::Chain { all, operands, mutants });
    }

    /// All the operators of a calculation: which operands each has depends on the others.
    fn calculation(&mut self, expression: &Expr, cuts: &mut Vec<(u32, Range<usize>, String)>) {
        let Expr::Binary(node) = expression else { return };
        if !calculates(&node.op) {
            return;
        }
        self.calculation(&node.left, cuts);
        self.operator(node, cuts);
        self.calculation(&node.right, cuts);
    }

    fn operator(&mut self, node: &syn::ExprBinary, cuts: &mut Vec<(u32, Range<usize>, String)>) {
        let operator = node.op.span().byte_range();
        self.covered.insert(operator.start);
        let taken = self.take(&operator, Genre::BinaryOperator).into_iter();
        cuts.extend(taken.map(|(number, mutant)| (number, operator.clone(), mutant.replacement.clone())));
    }
}

/// Whether it is `&&`; `None` if it is not `||` either.
const fn joins(operator: &BinOp) -> Option<bool> {
    match operator {
        BinOp::And(_) => Some(true),
        BinOp::Or(_) => Some(false),
        _ => None,
    }
}

const fn calculates(operator: &BinOp) -> bool {
    use BinOp::{Add, BitAnd, BitOr, BitXor, Div, Mul, Rem, Shl, Shr, Sub};
    matches!(operator, Add(_) | Sub(_) | Mul(_) | Div(_) | Rem(_) | Shl(_) | Shr(_) | BitAnd(_) | BitOr(_) | BitXor(_))
}

impl<'a> Visit<'a> for Finder<'_> {
    // What is computed by the compiler has no choice.
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}
    fn visit_type(&mut self, _: &'a syn::Type) {}

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if self.begin(&item.sig, &item.block) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if self.begin(&item.sig, &item.block) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if item.default.as_ref().is_none_or(|block| self.begin(&item.sig, block)) {
            visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_expr_binary(&mut self, node: &'a syn::ExprBinary) {
        let place = node.span().byte_range();
        let operator = node.op.span().byte_range();
        match &node.op {
            op if joins(op).is_some() => self.chain(matches!(op, BinOp::And(_)), node),
            BinOp::Eq(_) | BinOp::Ne(_) => {
                let taken = self.take(&operator, Genre::BinaryOperator);
                self.push(place, Form::Negated(taken.into_iter().map(|(number, _)| number).collect()));
            }
            op if calculates(op) && self.covered.contains(&operator.start) => {}
            op if calculates(op) => {
                let mut cuts = Vec::new();
                self.calculation(&node.left, &mut cuts);
                self.operator(node, &mut cuts);
                self.calculation(&node.right, &mut cuts);
                self.push(place, Form::Cut(cuts));
            }
            _ => {
                let mut cuts = Vec::new();
                self.operator(node, &mut cuts);
                self.push(place, Form::Cut(cuts));
            }
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'a syn::ExprUnary) {
        let operator = node.op.span().byte_range();
        let taken = self.take(&operator, Genre::UnaryOperator);
        let form = if matches!(node.op, syn::UnOp::Not(_)) {
            Form::Negated(taken.into_iter().map(|(number, _)| number).collect())
        } else {
            Form::Cut(taken.into_iter().map(|(number, _)| (number, operator.clone(), String::new())).collect())
        };
        self.push(node.span().byte_range(), form);
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_match(&mut self, node: &'a syn::ExprMatch) {
        let taken = |arm: &syn::Arm| -> bool {
            let place = arm.span().byte_range();
            let here = self.open.get(&(place.start, place.end));
            here.is_some_and(|all| all.iter().any(|(_, mutant)| mutant.genre == Genre::MatchArm))
        };
        let any = node.arms.iter().any(taken);
        if any && !node.arms.iter().any(|arm| matches!(arm.pat, syn::Pat::Wild(_))) {
            let behind = node.brace_token.span.close().byte_range().start;
            self.push(behind..behind, Form::Rest);
        }
        visit::visit_expr_match(self, node);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        let behind = arm.pat.span().byte_range().end;
        if let Some((number, _)) = self.take(&arm.span().byte_range(), Genre::MatchArm).first() {
            self.push(behind..behind, Form::Arm(*number));
        }
        if let syn::Pat::Guard(guarded) = &arm.pat {
            let place = guarded.guard.span().byte_range();
            if !matches!(*guarded.guard, Expr::Let(_)) {
                let taken = self.take(&place, Genre::MatchArmGuard);
                let of = |value: &str| {
                    taken.iter().find(|(_, mutant)| mutant.replacement == value).map(|(number, _)| *number)
                };
                self.push(place, Form::Guard(of("true"), of("false")));
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, node: &'a syn::ExprStruct) {
        let mut cuts = Vec::new();
        for pair in node.fields.pairs() {
            let mut place = pair.value().span().byte_range();
            if let Some(comma) = pair.punct() {
                place.end = comma.span().byte_range().end;
            }
            let taken = self.take(&place, Genre::StructField).into_iter();
            cuts.extend(taken.map(|(number, _)| (number, place.clone(), String::new())));
        }
        self.push(node.span().byte_range(), Form::Cut(cuts));
        visit::visit_expr_struct(self, node);
    }
}

/// The condition under which a mutant is chosen.
fn off(number: u32) -> String {
    format!("crate::mutant_choice::off({number})")
}

/// The condition under which one of them is.
fn any(numbers: &[u32]) -> String {
    numbers.iter().map(|number| off(*number)).collect::<Vec<_>>().join(" || ")
}

struct Writer<'t> {
    text: &'t str,
    choices: &'t [Choice],
}

impl Writer<'_> {
    fn part(&self, range: Range<usize>) -> Result<&str> {
        self.text.get(range).context("a place that is none")
    }

    /// A piece of the text with those of its choices that stand at `from` or later.
    fn within(&self, place: Range<usize>, from: usize) -> Result<String> {
        let (mut made, mut at) = (String::new(), place.start);
        let first = self.choices.partition_point(|choice| choice.place.start < place.start).max(from);
        for (index, choice) in self.choices.iter().enumerate().skip(first) {
            if choice.place.start >= place.end {
                break;
            }
            if choice.place.start < at {
                if choice.place.end > at {
                    bail!("choices overlap at {}", choice.place.start);
                }
                continue;
            }
            if choice.place.end > place.end {
                bail!("a choice at {} is torn", choice.place.start);
            }
            made += self.part(at..choice.place.start)?;
            made += &self.choice(index, choice)?;
            at = choice.place.end;
        }
        made += self.part(at..place.end)?;
        Ok(made)
    }

    fn choice(&self, index: usize, choice: &Choice) -> Result<String> {
        let inner = |place: Range<usize>| self.within(place, index + 1);
        let mark = |made: String| {
            let numbers: Vec<String> = choice.mutants().iter().map(u32::to_string).collect();
            format!("/*[{}]*/{made}/*[.]*/", numbers.join(","))
        };
        let kept = || inner(choice.place.clone());
        let made = match &choice.form {
            Form::Gone => return Ok(String::new()),
            Form::Rest => return Ok("_ => unreachable!(), ".to_owned()),
            Form::Returns(values) => {
                let mut made = String::new();
                for (number, value) in values {
                    made += &format!(" if {} {{ return /*[{number}]*/{value}/*[.]*/; }}", off(*number));
                }
                made
            }
            Form::Negated(numbers) => format!("(({}) != ({}))", kept()?, any(numbers)),
            Form::Cut(cuts) => {
                let mut made = "(".to_owned();
                for (number, cut, replacement) in cuts {
                    let before = inner(choice.place.start..cut.start)?;
                    let after = inner(cut.end..choice.place.end)?;
                    made +=
                        &format!("if {} {{ /*[{number}]*/{before}{replacement}{after}/*[.]*/ }} else ", off(*number));
                }
                format!("{made}{{ {} }})", kept()?)
            }
            Form::Guard(yes, no) => {
                let mut made = format!("({})", kept()?);
                if let Some(number) = yes {
                    made = format!("({} || {made})", off(*number));
                }
                if let Some(number) = no {
                    made = format!("!{} && {made}", off(*number));
                }
                made
            }
            Form::Arm(number) => format!(" if !{}", off(*number)),
            Form::Chain { all, operands, mutants } => {
                let (first, rest) = operands.split_first().context("no operand")?;
                let mut made = format!("('chain{index}: {{ let mut holds: bool = {};", inner(first.clone())?);
                for (operand, mutant) in rest.iter().zip(mutants) {
                    let next = format!("{{ holds = {}; }}", inner(operand.clone())?);
                    let chosen = mutant.map_or_else(|| "false".to_owned(), off);
                    // `a && b || c && d` is what cargo-mutants makes of `a && b && c && d`, and `a || b && c || d` of `a || b || c || d`.
                    made += &if *all {
                        format!(
                            " if {chosen} {{ if holds {{ break 'chain{index} true; }} holds = true; }} if holds {next}"
                        )
                    } else {
                        format!(" if holds == {chosen} {next} else if holds {{ break 'chain{index} true; }}")
                    };
                }
                format!("{made} holds }})")
            }
        };
        Ok(mark(made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u32 = 7;

    /// The text in which what stands between `«` and `»` has a mutant of this kind.
    fn with(text: &str, genre: Genre, replacement: &str) -> Chosen {
        let (start, end) = (text.find('«').unwrap(), text.find('»').unwrap() - '«'.len_utf8());
        let text = text.replace(['«', '»'], "");
        let at = |offset: usize| At { line: 1, column: text.get(..offset).unwrap().chars().count() + 1 };
        let mutant = Mutant {
            name: "a mutant".to_owned(),
            file: "a.rs".into(),
            genre,
            replacement: replacement.to_owned(),
            span: Place { start: at(start), end: at(end) },
            function: None,
        };
        chosen(&text, &BTreeMap::from([(NUMBER, &mutant)]), &BTreeSet::from(["stays".to_owned()])).unwrap()
    }

    #[test]
    fn each_kind_of_mutant_becomes_a_choice() {
        use Genre::{BinaryOperator, FnValue, MatchArm, MatchArmGuard, StructField, UnaryOperator};
        let cases = [
            ("fn f() -> u8 { «g()» }", FnValue, "1", "fn f() -> u8 { if OFF { return 1; } g() }"),
            ("const fn f() { «g()» }", FnValue, "()", " fn f() { if OFF { return (); } g() }"),
            ("fn f() { g(ä «==» 2) }", BinaryOperator, "!=", "fn f() { g(((ä == 2) != (OFF))) }"),
            ("fn f() { g(«!»a.b()) }", UnaryOperator, "", "fn f() { g(((!a.b()) != (OFF))) }"),
            ("fn f() { g(«-»1) }", UnaryOperator, "", "fn f() { g((if OFF { 1 } else { -1 })) }"),
            ("fn f() { g(a «<» b) }", BinaryOperator, "==", "fn f() { g((if OFF { a == b } else { a < b })) }"),
            // The operator that comes binds more than its neighbour.
            (
                "fn f() { g(a + b «-» c) }",
                BinaryOperator,
                "/",
                "fn f() { g((if OFF { a + b / c } else { a + b - c })) }",
            ),
            ("fn f() { a «|=» b; }", BinaryOperator, "&=", "fn f() { (if OFF { a &= b } else { a |= b }); }"),
            (
                "fn f() { g(a && b «&&» c) }",
                BinaryOperator,
                "||",
                "fn f() { g(('chain0: { let mut holds: bool = a; \
                 if false { if holds { break 'chain0 true; } holds = true; } if holds { holds = b; } \
                 if OFF { if holds { break 'chain0 true; } holds = true; } if holds { holds = c; } holds })) }",
            ),
            (
                "fn f() { g(a «||» b && c) }",
                BinaryOperator,
                "&&",
                "fn f() { g(('chain0: { let mut holds: bool = a; \
                 if holds == OFF { holds = b && c; } else if holds { break 'chain0 true; } holds })) }",
            ),
            ("fn f() { match a { «1 => b,» _ => c } }", MatchArm, "", "fn f() { match a { 1 if !OFF => b, _ => c } }"),
            (
                "fn f() { match a { «1 => b,» _ if c => d, } }",
                MatchArm,
                "",
                "fn f() { match a { 1 if !OFF => b, _ if c => d, _ => unreachable!(), } }",
            ),
            (
                "fn f() { match a { 1 if «b» => c, _ => d } }",
                MatchArmGuard,
                "true",
                "fn f() { match a { 1 if (OFF || (b)) => c, _ => d } }",
            ),
            (
                "fn f() { match a { 1 if «b» => c, _ => d } }",
                MatchArmGuard,
                "false",
                "fn f() { match a { 1 if !OFF && (b) => c, _ => d } }",
            ),
            (
                "fn f() { g(S { «a: 1,» b: 2, ..c }) }",
                StructField,
                "",
                "fn f() { g((if OFF { S {  b: 2, ..c } } else { S { a: 1, b: 2, ..c } })) }",
            ),
        ];
        for (text, genre, replacement, expected) in cases {
            let made = with(text, genre, replacement);
            assert!(made.left.is_empty() && made.unviable.is_empty(), "{text}");
            syn::parse_file(&made.text).unwrap();
            let plain = made.text.replace("/*[7]*/", "").replace("/*[.]*/", "").replace(&off(NUMBER), "OFF");
            assert_eq!(plain, expected, "{text}");
        }
    }

    #[test]
    fn what_has_no_choice_is_said() {
        let constant = with("const A: u8 = 1 «+» 2;", Genre::BinaryOperator, "-");
        assert_eq!((constant.left.len(), constant.unviable.len()), (1, 0));
        let stays = with("const fn stays() -> u8 { «1» }", Genre::FnValue, "0");
        assert_eq!((stays.left.len(), stays.unviable.len()), (1, 0));
        let binds = with("fn f() { if let A = b «&&» c {} }", Genre::BinaryOperator, "||");
        assert_eq!((binds.left.len(), binds.unviable.len()), (0, 1));
        let names = names_in_constants("const A: u8 = f(g::h); fn i() { j() }").unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["A", "f", "g", "h", "u8"]);
    }

    #[test]
    fn errors_are_those_of_the_innermost_mutant() {
        let text = "a /*[1,2]*/ b /*[3]*/ c /*[.]*/ d /*[.]*/ e";
        let found = |c: char| at(text, text.find(c).unwrap());
        assert_eq!((found('a'), found('b'), found('c')), (vec![], vec![1, 2], vec![3]));
        assert_eq!((found('d'), found('e')), (vec![1, 2], vec![]));
    }

    #[test]
    fn nested_choices_are_all_kept() {
        let text = "fn f() { g(!a && h(b < c)) }";
        let mutant = |at: usize, length, genre, replacement: &str| Mutant {
            name: at.to_string(),
            file: "a.rs".into(),
            genre,
            replacement: replacement.to_owned(),
            span: Place { start: At { line: 1, column: at + 1 }, end: At { line: 1, column: at + length + 1 } },
            function: None,
        };
        let mutants = [
            mutant(11, 1, Genre::UnaryOperator, ""),
            mutant(14, 2, Genre::BinaryOperator, "||"),
            mutant(21, 1, Genre::BinaryOperator, "=="),
            mutant(21, 1, Genre::BinaryOperator, ">"),
        ];
        let made = chosen(text, &(1..).zip(&mutants).collect(), &BTreeSet::new()).unwrap();
        syn::parse_file(&made.text).unwrap();
        assert!(made.left.is_empty() && made.unviable.is_empty());
        for number in 1..=4 {
            assert_eq!(made.text.matches(&off(number)).count(), 1, "{}", made.text);
        }
    }
}
