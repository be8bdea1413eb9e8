//! What an expression may refer to, and the compiled expression.

use std::collections::{BTreeMap, HashMap};

use crate::ast::Expr;
use crate::checker::{self, Checked};
use crate::cost::{self, Cost, Sizes};
use crate::eval::{self, Evaluation, Vars};
use crate::parser;
use crate::plan;
use crate::schema::decl::DeclType;
use crate::source::CompileError;
use crate::types::Type;

/// The variables and object types that expressions may use. The functions are always Kubernetes' own.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: HashMap<String, Type>,
    objects: HashMap<String, BTreeMap<String, Type>>,
}

impl Env {
    /// An environment with functions only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable. Its name may be dotted, as `authorizer.requestResource` is.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.variables.insert(name.to_owned(), ty);
        self
    }

    /// Declares an object type by its fields; refer to it by [`Type::object`].
    #[must_use]
    pub fn object(mut self, name: &str, fields: BTreeMap<String, Type>) -> Self {
        self.objects.insert(name.to_owned(), fields);
        self
    }

    /// Adds a field to an object type, which is declared if it is not yet.
    pub fn add_field(&mut self, object: &str, field: &str, ty: Type) {
        self.objects.entry(object.to_owned()).or_default().insert(field.to_owned(), ty);
    }

    /// Declares a variable of a type made from a schema, and the object types within it.
    #[must_use]
    pub fn declared(mut self, name: &str, ty: &DeclType) -> Self {
        self.add_objects(ty);
        self.variable(name, ty.cel_type())
    }

    /// Adds the object types within `ty`.
    pub(crate) fn add_objects(&mut self, ty: &DeclType) {
        if let Some((name, fields)) = ty.object_parts() {
            if self.objects.contains_key(name) {
                return;
            }
            let types = fields.iter().map(|(k, f)| (k.clone(), f.cel_type())).collect();
            self.objects.insert(name.to_owned(), types);
        }
        ty.children().for_each(|child| self.add_objects(child));
    }

    pub(crate) fn variable_type(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    pub(crate) fn fields(&self, object: &str) -> Option<&BTreeMap<String, Type>> {
        self.objects.get(object)
    }

    /// Parses and checks an expression.
    ///
    /// # Errors
    /// All that is wrong with it, in cel-go's words.
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

    /// What keeps the expression from being run though it is well typed: a constant conversion that fails.
    pub fn instantiation_error(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// What evaluation may cost at least and at most, given how large the variables may be.
    pub fn estimate(&self, sizes: &dyn Sizes) -> Cost {
        cost::estimate(&self.ast, &self.checked, sizes)
    }

    /// Evaluates. It ends with a fault when `limit` is passed; the cost says how far it came.
    pub fn eval(&self, vars: &dyn Vars, limit: u64) -> Evaluation {
        eval::run(&self.planned, &self.checked, vars, limit)
    }
}
