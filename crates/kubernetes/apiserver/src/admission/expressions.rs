//! Expressions of match conditions and policies: their environment, their compilation, and their evaluation within a
//! budget (`k8s.io/apiserver/pkg/admission/plugin/cel`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use cel::authz::{Authorization, Authorizer, Decision, Request};
use cel::{Env, Fault, Fields, PER_CALL_LIMIT, Program, Type, Value, Vars};

use super::Attributes;
use crate::object::Object;
use crate::rbac::Attributes as Asked;
use crate::rbac::index::Index;
use crate::user::User;
use crate::user::{account_groups, account_name};

/// Error text of a run that exhausted its budget.
pub const SPENT: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

/// How deeply variables may be nested.
const MAX_NESTING: usize = 200;
const REQUEST: &str = "kubernetes.AdmissionRequest";
const NAMESPACE: &str = "kubernetes.Namespace";
const VARIABLES: &str = "kubernetes.variables";

/// Why an expression is unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It is invalid.
    Invalid(String),
    /// It is valid, but cannot be run.
    Internal(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) | Self::Internal(text) => f.write_str(text),
        }
    }
}

fn fields<const N: usize>(fields: [(&str, Type); N]) -> BTreeMap<String, Type> {
    fields.into_iter().map(|(k, t)| (k.to_owned(), t)).collect()
}

fn texts<const N: usize>(names: [&str; N]) -> BTreeMap<String, Type> {
    names.into_iter().map(|n| (n.to_owned(), Type::String)).collect()
}

/// The types of `request` and `namespaceObject`, and both variables.
static COMMON: LazyLock<Env> = LazyLock::new(|| {
    let object = Type::object;
    let strings = || Type::list(Type::String);
    let labels = || Type::map(Type::String, Type::String);
    let mut request = texts(["subResource", "requestSubResource", "name", "namespace", "operation"]);
    request.extend(fields([
        ("kind", object("kubernetes.GroupVersionKind")),
        ("resource", object("kubernetes.GroupVersionResource")),
        ("requestKind", object("kubernetes.GroupVersionKind")),
        ("requestResource", object("kubernetes.GroupVersionResource")),
        ("userInfo", object("kubernetes.UserInfo")),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ]));
    let mut user = texts(["username", "uid"]);
    user.extend(fields([("groups", strings()), ("extra", Type::map(Type::String, strings()))]));
    let mut condition = texts(["status", "type", "message", "reason"]);
    condition.extend(fields([("lastTransitionTime", Type::Timestamp)]));
    let mut metadata = texts(["name", "generateName", "namespace", "UID", "resourceVersion"]);
    metadata.extend(fields([
        ("labels", labels()),
        ("annotations", labels()),
        ("creationTimestamp", Type::Timestamp),
        ("deletionTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("generation", Type::Int),
        ("finalizers", strings()),
    ]));
    let status = fields([("conditions", Type::list(object("kubernetes.NamespaceCondition"))), ("phase", Type::String)]);
    let parts = fields([
        ("metadata", object("kubernetes.NamespaceMetadata")),
        ("spec", object("kubernetes.NamespaceSpec")),
        ("status", object("kubernetes.NamespaceStatus")),
    ]);
    Env::new()
        .object("kubernetes.GroupVersionKind", texts(["group", "version", "kind"]))
        .object("kubernetes.GroupVersionResource", texts(["group", "version", "resource"]))
        .object("kubernetes.UserInfo", user)
        .object(REQUEST, request)
        .object("kubernetes.NamespaceCondition", condition)
        .object("kubernetes.NamespaceStatus", status)
        .object("kubernetes.NamespaceSpec", fields([("finalizers", strings())]))
        .object("kubernetes.NamespaceMetadata", metadata)
        .object(NAMESPACE, parts)
        .variable("request", object(REQUEST))
        .variable("namespaceObject", object(NAMESPACE))
});

/// The environment with `request` and `namespaceObject` only; the caller declares the objects.
pub fn common() -> Env {
    COMMON.clone()
}

/// Declares `variables`, empty at first.
pub fn with_variables(env: Env) -> Env {
    env.object(VARIABLES, BTreeMap::new()).variable("variables", Type::object(VARIABLES))
}

/// Declares one composed variable by its compilation result.
pub fn declare<E>(env: &mut Env, name: &str, program: &Result<Program, E>) {
    env.add_field(VARIABLES, name, program.as_ref().map_or(Type::Dyn, |p| declared(p.output_type())));
}

/// The type of a variable for expressions that use it. Except plain values, lists and maps it is checked at run time.
fn declared(ty: &Type) -> Type {
    match ty {
        Type::List(of) => Type::list(declared(of)),
        Type::Map(key, value) => Type::map(declared(key), declared(value)),
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => ty.clone(),
        _ => Type::Dyn,
    }
}

/// Compiles the expressions of one owner.
#[derive(Debug, Clone)]
pub struct Compiler {
    /// With access to the authorizer.
    full: Env,
    /// Without access to the authorizer.
    plain: Env,
}

impl Compiler {
    /// For expressions with or without parameters and composed variables.
    pub fn new(params: bool, composed: bool) -> Self {
        let mut plain = common().variable("object", Type::Dyn).variable("oldObject", Type::Dyn);
        if params {
            plain = plain.variable("params", Type::Dyn);
        }
        if composed {
            plain = with_variables(plain);
        }
        let full = plain
            .clone()
            .variable("authorizer", cel::authorizer_type())
            .variable("authorizer.requestResource", cel::resource_check_type());
        Self { full, plain }
    }

    /// Compiles an expression that must have exactly one of the `wanted` types; any type if that is empty.
    ///
    /// # Errors
    /// The error in upstream's wording.
    pub fn compile(&self, source: &str, wanted: &[Type], authorizer: bool) -> Result<Program, Problem> {
        let env = if authorizer { &self.full } else { &self.plain };
        let program = env.compile(source).map_err(|error| Problem::Invalid(format!("compilation failed: {error}")))?;
        if !wanted.is_empty() && !wanted.contains(program.output_type()) {
            let found = runtime_type_name(program.output_type());
            let texts: Vec<String> = wanted.iter().map(runtime_type_name).collect();
            return Err(Problem::Invalid(match texts.as_slice() {
                [one] => format!("must evaluate to {one} but got {found}"),
                many => format!("must evaluate to one of [{}] but got {found}", many.join(" ")),
            }));
        }
        match program.instantiation_error() {
            Some(why) => Err(Problem::Internal(format!("program instantiation failed: {why}"))),
            None => Ok(program),
        }
    }

    /// Compiles a variable. Later expressions may use it even if that fails.
    ///
    /// # Errors
    /// As of [`Compiler::compile`].
    pub fn variable(&mut self, name: &str, source: &str) -> Result<Program, Problem> {
        let program = self.compile(source, &[], true);
        for env in [&mut self.full, &mut self.plain] {
            declare(env, name, &program);
        }
        program
    }
}

/// Formats a type by its runtime name, which can differ from the checker's.
fn runtime_type_name(ty: &Type) -> String {
    match ty {
        Type::List(of) => format!("list({})", runtime_type_name(of)),
        Type::Map(key, value) => format!("map({}, {})", runtime_type_name(key), runtime_type_name(value)),
        Type::Optional(of) => format!("optional_type({})", runtime_type_name(of)),
        Type::Type(Some(of)) => format!("type({})", runtime_type_name(of)),
        Type::Param(name) => format!("<{name}>"),
        other => other.runtime_name().to_owned(),
    }
}

/// A compiled expression with its source.
#[derive(Debug)]
pub struct Expression {
    source: String,
    program: Result<Program, Problem>,
}

impl Expression {
    /// Wraps the result of compiling `source`.
    pub fn new(source: &str, program: Result<Program, Problem>) -> Self {
        Self { source: source.to_owned(), program }
    }

    /// Its source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Runs it and charges its cost to the budget.
    ///
    /// # Errors
    /// It has no value, or the budget is exhausted: run nothing more.
    pub fn run(&self, scope: &Scope, left: &mut u64) -> Result<Value, NoValue> {
        let program = match &self.program {
            Ok(program) => program,
            Err(problem) => return Err(NoValue::Failed(format!("compilation error: {problem}"))),
        };
        scope.budget.store(*left, Ordering::Relaxed);
        let done = program.eval(scope, PER_CALL_LIMIT);
        let variables = scope.spent.swap(0, Ordering::Relaxed);
        *left = left.checked_sub(variables).and_then(|l| l.checked_sub(done.cost)).ok_or(NoValue::Spent)?;
        let failed = |fault| NoValue::Failed(format!("expression '{}' resulted in error: {fault}", self.source));
        done.result.map_err(failed)
    }
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoValue {
    /// It does not compile, or its evaluation failed, in upstream's words.
    Failed(String),
    /// The budget is exhausted.
    Spent,
}

/// The values that expressions refer to, except variables.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The object, or null.
    pub object: Value,
    /// The former object, or null.
    pub old: Value,
    /// The request.
    pub request: Value,
    /// The namespace of the object, or null.
    pub namespace: Value,
    /// The parameters, or null.
    pub params: Value,
    /// The values of `authorizer` and `authorizer.requestResource`; `None` where expressions cannot use them.
    pub authorizer: Option<(Value, Value)>,
}

/// The value of an object, null if there is none.
pub fn value_of(object: Option<&Object>) -> Value {
    object.map_or(Value::Null, |o| Value::object(o.iter().map(|(k, v)| (k.as_str(), Value::from_json(v)))))
}

/// Variables by name.
pub type Variables = BTreeMap<String, Result<Program, Problem>>;

/// Values of variables; `None` while one is being computed.
type Known = BTreeMap<String, Option<Result<Value, Fault>>>;

/// An activation in which expressions run one after another. Each variable is computed once.
#[derive(Debug)]
pub struct Scope {
    facts: Facts,
    programs: Option<Arc<Variables>>,
    known: Mutex<Known>,
    /// Cost of variables since the last expression.
    spent: AtomicU64,
    /// Cost after which no more variables are computed.
    budget: AtomicU64,
    /// Number of variables being computed.
    depth: AtomicUsize,
    this: Weak<Self>,
}

impl Scope {
    /// With these facts and, if given, composed variables.
    pub fn new(facts: Facts, programs: Option<Arc<Variables>>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            facts,
            programs,
            known: Mutex::default(),
            spent: AtomicU64::new(0),
            budget: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
            this: Weak::clone(this),
        })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compute(&self, name: &str, program: &Result<Program, Problem>) -> Result<Value, Fault> {
        let quoted = gotext::quote(name);
        match program {
            Err(problem) => Err(Fault::new(format!("composited variable {quoted} fails to compile: {problem}"))),
            // The run has failed already: more values would only use memory.
            Ok(_) if self.spent.load(Ordering::Relaxed) > self.budget.load(Ordering::Relaxed) => Err(Fault::new(SPENT)),
            Ok(_) if self.depth.load(Ordering::Relaxed) >= MAX_NESTING => {
                Err(Fault::new(format!("composited variable {quoted} is nested too deeply")))
            }
            Ok(program) => {
                self.depth.fetch_add(1, Ordering::Relaxed);
                let done = program.eval(self, PER_CALL_LIMIT);
                self.depth.fetch_sub(1, Ordering::Relaxed);
                self.spent.fetch_add(done.cost, Ordering::Relaxed);
                done.result.map_err(|why| Fault::new(format!("composited variable {quoted} fails to evaluate: {why}")))
            }
        }
    }
}

impl Vars for Scope {
    fn get(&self, name: &str) -> Option<Value> {
        let facts = &self.facts;
        Some(match name {
            "object" => facts.object.clone(),
            "oldObject" => facts.old.clone(),
            "request" => facts.request.clone(),
            "namespaceObject" => facts.namespace.clone(),
            "params" => facts.params.clone(),
            "authorizer" => facts.authorizer.as_ref()?.0.clone(),
            "authorizer.requestResource" => facts.authorizer.as_ref()?.1.clone(),
            "variables" => {
                self.programs.as_ref()?;
                Value::Lazy(self.this.upgrade()?)
            }
            _ => return None,
        })
    }
}

impl Fields for Scope {
    fn get(&self, name: &str) -> Option<Result<Value, Fault>> {
        let programs = self.programs.as_ref()?;
        let program = programs.get(name)?;
        match self.known().get(name) {
            Some(Some(found)) => return Some(found.clone()),
            // Two variables of the same name can form a cycle.
            Some(None) => return Some(Err(Fault::new(format!("variable {} refers to itself", gotext::quote(name))))),
            None => {}
        }
        self.known().insert(name.to_owned(), None);
        let found = self.compute(name, program);
        self.known().insert(name.to_owned(), Some(found.clone()));
        Some(found)
    }
}

/// Authorizes for expressions as the user of the request.
struct Judge {
    index: Arc<Index>,
    user: User,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").field("user", &self.user.name).finish_non_exhaustive()
    }
}

impl Authorizer for Judge {
    fn authorize(&self, request: &Request) -> Decision {
        let account = request.service_account.as_ref().map(|(ns, name)| User {
            name: account_name(ns, name),
            groups: account_groups(ns),
            ..User::default()
        });
        let asked = match &request.path {
            Some(path) => Asked { verb: request.verb.clone(), path: path.clone(), ..Asked::default() },
            None => Asked {
                ns: request.namespace.clone(),
                name: request.name.clone(),
                ..Asked::of(&request.verb, &request.group, &request.resource, &request.subresource)
            },
        };
        let decision = self.index.decide(account.as_ref().unwrap_or(&self.user), &asked);
        Decision { allowed: decision.allowed, reason: decision.reason, error: None }
    }
}

/// The values of `authorizer` and `authorizer.requestResource`.
pub fn authorizer(index: &Arc<Index>, about: &Attributes<'_>) -> (Value, Value) {
    let user = about.change.user.clone();
    let judge: Arc<dyn Authorizer> = Arc::new(Judge { index: Arc::clone(index), user });
    let request = Request {
        group: about.resource.group.clone(),
        resource: about.resource.plural.clone(),
        subresource: about.change.sub.clone(),
        namespace: about.ns.to_owned(),
        name: about.name.to_owned(),
        ..Request::default()
    };
    (Authorization::value(Arc::clone(&judge)), Authorization::resource(judge, request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts() -> Facts {
        Facts {
            object: Value::from_json(&json!({"metadata": {"name": "x"}, "spec": {"n": 3}})),
            old: Value::Null,
            request: Value::from_json(&json!({"name": "x", "operation": "CREATE"})),
            namespace: Value::Null,
            params: Value::Null,
            authorizer: None,
        }
    }

    #[test]
    fn expressions_must_yield_what_is_wanted() {
        let compiler = Compiler::new(false, false);
        let error_of = |source: &str, wanted: &[Type]| compiler.compile(source, wanted, true).unwrap_err().to_string();
        assert_eq!(error_of("object.x", &[Type::Bool]), "must evaluate to bool but got dyn");
        assert_eq!(
            error_of("1", &[Type::String, Type::Null]),
            "must evaluate to one of [string null_type] but got int"
        );
        assert!(error_of("variables.x", &[]).contains("undeclared reference to 'variables'"));
        assert!(error_of("params.x == 1", &[Type::Bool]).contains("undeclared reference to 'params'"));
        let wanted = [Type::Bool];
        let check = "authorizer.requestResource.check('get').allowed()";
        assert!(compiler.compile(check, &wanted, true).is_ok());
        assert!(compiler.compile(check, &wanted, false).is_err());
        assert!(compiler.compile("request.userInfo.groups.exists(g, g == 'a')", &wanted, false).is_ok());
        assert!(compiler.compile("request.object == 1", &wanted, false).is_err());
    }

    fn failure(run: Result<Value, NoValue>) -> String {
        match run {
            Err(NoValue::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    fn variables(list: &[(&str, &str)]) -> (Compiler, Arc<Variables>) {
        let mut compiler = Compiler::new(false, true);
        let all = list.iter().map(|(name, source)| ((*name).to_owned(), compiler.variable(name, source))).collect();
        (compiler, Arc::new(all))
    }

    #[test]
    fn variables_are_computed_once_and_their_faults_are_reported() {
        let list =
            [("n", "object.spec.n"), ("odd", "variables.n % 2 == 1"), ("bad", "object.none"), ("c", "[1].map(i)")];
        let (compiler, variables) = variables(&list);
        let scope = Scope::new(facts(), Some(variables));
        let run = |source: &str, left: &mut u64| {
            let program = compiler.compile(source, &[Type::Bool], true);
            Expression::new(source, program).run(&scope, left)
        };
        let mut left = 1_000;
        assert!(matches!(run("variables.odd", &mut left), Ok(Value::Bool(true))));
        let first = 1_000 - left;
        assert!(matches!(run("variables.odd", &mut left), Ok(Value::Bool(true))));
        assert!(1_000 - left < 2 * first, "the second use costs less");
        assert_eq!(
            failure(run("variables.bad == 1", &mut left)),
            "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: \
             none"
        );
        let error = failure(run("variables.c == ['a']", &mut left));
        assert!(error.contains("composited variable \"c\" fails to compile: compilation failed: ERROR"), "{error}");
        assert_eq!(run("variables.odd && [1, 2, 3].all(i, i > 0)", &mut 3).err(), Some(NoValue::Spent));
    }

    #[test]
    fn variables_end_with_the_budget_and_with_the_nesting() {
        let mut list: Vec<(String, String)> = vec![("v0".into(), "object.spec.n".into())];
        list.extend((1..400).map(|n| (format!("v{n}"), format!("variables.v{} + 1", n - 1))));
        let list: Vec<(&str, &str)> = list.iter().map(|(n, e)| (n.as_str(), e.as_str())).collect();
        let (compiler, variables) = variables(&list);
        let run = |source: &str, left: &mut u64| {
            let program = compiler.compile(source, &[Type::Bool], true);
            Expression::new(source, program).run(&Scope::new(facts(), Some(Arc::clone(&variables))), left)
        };
        assert!(matches!(run("variables.v150 == 153", &mut 10_000), Ok(Value::Bool(true))));
        assert!(failure(run("variables.v399 == 402", &mut 10_000)).contains("nested too deeply"));
        assert_eq!(run("variables.v150 == 153", &mut 100).err(), Some(NoValue::Spent));
    }

    #[test]
    fn a_variable_that_refers_to_itself_ends() {
        let (compiler, variables) = variables(&[("a", "1"), ("a", "variables.a + 1")]);
        let scope = Scope::new(facts(), Some(variables));
        let program = compiler.compile("variables.a == 2", &[Type::Bool], false);
        let error = failure(Expression::new("variables.a == 2", program).run(&scope, &mut 10_000));
        assert!(error.ends_with("variable \"a\" refers to itself"), "{error}");
    }
}
