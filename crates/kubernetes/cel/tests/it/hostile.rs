//! Input that means harm: it is refused, or it ends soon. Never a panic.

use cel::{Env, Type, Value};
use proptest::prelude::*;

fn env() -> Env {
    Env::new().variable("x", Type::Dyn).variable("l", Type::list(Type::Int))
}

fn run(source: &str) -> Result<Value, String> {
    let program = env().compile(source).map_err(|e| e.to_string())?;
    let vars = [("x", Value::Int(1)), ("l", Value::list((0..100).map(Value::Int).collect()))];
    program.eval(&vars, cel::PER_CALL_LIMIT).result.map_err(|e| e.to_string())
}

#[test]
fn depth_is_bounded_on_a_small_stack() {
    let on_small_stack = || {
        let nested = format!("{}x{}", "(".repeat(5000), ")".repeat(5000));
        assert!(run(&nested).unwrap_err().contains("expression recursion limit exceeded: 250"));
        let chain = vec!["x"; 5000].join(" + ");
        assert!(run(&chain).unwrap_err().contains("recursion limit"));
        let members = format!("x{}", ".a".repeat(5000));
        assert!(run(&members).unwrap_err().contains("recursion limit"));
        let mixed = format!("{}x{}", "(".repeat(240), format!("{})", ".a".repeat(200)).repeat(240));
        assert!(run(&mixed).unwrap_err().contains("recursion limit"));
        let lists = format!("{}x{} == {}x{}", "[".repeat(240), "]".repeat(240), "[".repeat(240), "]".repeat(240));
        assert!(matches!(run(&lists), Ok(Value::Bool(true))));
        let allowed = vec!["x"; 200].join(" + ");
        assert!(matches!(run(&allowed), Ok(Value::Int(200))));
        let long = vec!["x == 1"; 3000].join(" && ");
        assert!(matches!(run(&long), Ok(Value::Bool(true))), "chains of conditions are balanced");
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(on_small_stack).unwrap().join().unwrap();
}

#[test]
fn cost_ends_what_would_not_end() {
    let cubic = "l.all(a, l.all(b, l.all(c, a + b + c >= 0)))";
    assert_eq!(run(cubic).unwrap_err(), "operation cancelled: actual cost limit exceeded");
}

#[test]
fn lists_that_double_are_bounded() {
    let mut source = "optional.of(l)".to_owned();
    for _ in 0..60 {
        source = format!("{source}.optMap(v, v + v)");
    }
    assert!(run(&format!("{source}.hasValue()")).is_err());
}

#[test]
fn types_that_double_are_bounded() {
    let mut source = "l".to_owned();
    for _ in 0..60 {
        source = format!("{source}.map(v, {{v: v}})");
    }
    assert!(run(&source).is_err());
}

#[test]
fn results_of_macros_have_no_name() {
    assert!(run("l.map(v, __result__)").unwrap_err().contains("undeclared reference to '__result__'"));
}

proptest! {
    #[test]
    fn any_text_is_answered(source in "\\PC{0,60}") {
        let _ = run(&source);
    }

    #[test]
    fn any_tokens_are_answered(parts in proptest::collection::vec(prop::sample::select(vec![
        "x", "l", ".", "(", ")", "[", "]", "{", "}", "?", ":", "+", "-", "*", "/", "%", "&&", "||", "!", "==", "<", "in", "1", "2u",
        "3.5", "'s'", "b'b'", "all", "map", "has", "a", ",", "null", "true", "optMap", "size", "optional.of", "\n", "\\", "`",
    ]), 0..25)) {
        let _ = run(&parts.join(" "));
        let _ = run(&parts.concat());
    }
}
