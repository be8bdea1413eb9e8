//! The Common Expression Language as Kubernetes 1.34 speaks it: parser with macros, type checker, static cost estimate,
//! interpreter with a cost meter, and Kubernetes' function libraries. Pure: no IO, no clock, no threads.
//!
//! An expression goes [`Env::compile`] → [`Program`] → [`Program::eval`]:
//!
//! ```
//! use cel::{Env, Type, Value};
//! let env = Env::new().variable("x", Type::Int);
//! let program = env.compile("x > 1 && x in [2, 3]").unwrap();
//! assert_eq!(program.output_type(), &Type::Bool);
//! let done = program.eval(&[("x", Value::Int(3))], cel::PER_CALL_LIMIT);
//! assert!(matches!(done.result, Ok(Value::Bool(true))));
//! ```
//!
//! For admission: declare `object`, `oldObject`, `request`, `params`, `namespaceObject` as [`Type::Dyn`] (or as an
//! object type with [`Env::object`]), `variables` as an object type whose fields are added one by one, and `authorizer`
//! as [`authorizer_type`]. Values of JSON without a schema come from [`Value::from_json`], lazily computed fields are a
//! [`Value::Lazy`], the authorizer is [`authz::Authorization::value`]. Budgets are the caller's: take what
//! [`Evaluation::cost`] says from them.
//!
//! [`schema`] has the rules of custom resources (`x-kubernetes-validations`): types from structural schemas, the checks
//! of a definition, and validation of objects.

mod ast;
mod checker;
mod cost;
mod decls;
mod env;
mod eval;
mod ext;
mod fault;
mod functions;
mod lexer;
mod library_cost;
mod macros;
mod meter;
mod parser;
mod plan;
mod program;
pub mod schema;
mod sizes;
mod source;
mod types;
mod unify;
mod uses;
mod value;
mod words;

pub use cost::Cost;
pub use env::Env;
pub use eval::{Evaluation, Vars};
pub use ext::{Ext, authz};
pub use fault::Fault;
pub use program::Program;
pub use sizes::{NoSizes, Sizes};
pub use source::{CompileError, Issue};
pub use types::Type;
pub use value::{Fields, Key, List, ListKind, Map, Outcome, Value};
pub use words::is_identifier;

/// What one evaluation may cost (`k8s.io/apiserver/pkg/apis/cel`).
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// What all rules of one object may cost.
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// What all match conditions of one webhook may cost for one request.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// The type of the variable `authorizer`.
pub fn authorizer_type() -> Type {
    Type::object("kubernetes.authorization.Authorizer")
}

/// The type of the variable `authorizer.requestResource`.
pub fn resource_check_type() -> Type {
    Type::object("kubernetes.authorization.ResourceCheck")
}
