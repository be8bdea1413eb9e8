//! The compiled expression: parsed, checked, planned; to be estimated and run.

use crate::ast::Expr;
use crate::checker::{self, Checked};
use crate::cost::{self, Cost};
use crate::env::Env;
use crate::eval::{self, Evaluation, Vars};
use crate::parser;
use crate::plan;
use crate::sizes::Sizes;
use crate::source::CompileError;
use crate::types::Type;
use crate::uses;

impl Env {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// All errors in it, with cel-go's messages.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let failed = |issues| CompileError::new(source, issues);
        let (mut ast, ids) = parser::parse(source).map_err(failed)?;
        let checked = checker::check(self, &mut ast, ids).map_err(failed)?;
        let mut issues = Vec::new();
        plan::validate(&ast, &checked, false, &mut issues);
        if !issues.is_empty() {
            return Err(failed(issues));
        }
        let mut planned = ast.clone();
        let fault = plan::fold(&mut planned, &checked).err();
        Ok(Program { output: checked.ty(ast.id).clone(), ast, planned, checked, fault })
    }
}

/// A checked expression.
#[derive(Debug)]
pub struct Program {
    output: Type,
    ast: Expr,
    planned: Expr,
    checked: Checked,
    fault: Option<String>,
}

impl Program {
    /// The type that the expression yields.
    pub fn output_type(&self) -> &Type {
        &self.output
    }

    /// Whether the expression uses the variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.checked.idents.iter().any(|n| n == variable)
    }

    /// The fields that the expression reads of its variables, such as `["self", "spec", "count"]`: chains of names, and of keys that are written as text;
    /// those of a macro's own variables are not among them. Each once, in the order in which they stand, 64 at most.
    pub fn reads(&self) -> Vec<Vec<String>> {
        uses::paths(&self.ast)
    }

    /// The regular expressions that the expression is written with; `None` if it computes one.
    pub fn patterns(&self) -> Option<Vec<&str>> {
        uses::patterns(&self.ast)
    }

    /// Why a well-typed expression cannot be run: a constant conversion that fails.
    pub fn instantiation_error(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The least and greatest cost of an evaluation, given the sizes of the variables.
    pub fn estimate(&self, sizes: &dyn Sizes) -> Cost {
        cost::estimate(&self.ast, &self.checked, sizes)
    }

    /// Evaluates. Ends with a fault when the cost passes `limit`; the cost shows how far it got.
    pub fn eval(&self, vars: &dyn Vars, limit: u64) -> Evaluation {
        eval::run(&self.planned, &self.checked, vars, limit)
    }
}
