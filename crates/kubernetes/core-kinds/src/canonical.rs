//! Objects of the core kinds as Go's encoder would write them: zero values left out or filled in, times and quantities in
//! canonical form. Clients and field ownership distinguish absent members from null ones.

use serde_json::{Value, json};

use crate::{Def, Defs, Field, Object, Type, quantity};

/// Converts `object` to its stored and served form. Idempotent.
pub fn canonicalize(def: &Def, object: &mut Object) {
    canonicalize_fields(def, object, false);
}

/// Like [`canonicalize`] for an object from a client: keeps an empty list of a field that is always written, because the client that sent it owns it.
pub fn canonicalize_sent(def: &Def, object: &mut Object) {
    canonicalize_fields(def, object, true);
}

fn canonicalize_fields(def: &Def, object: &mut Object, sent: bool) {
    for field in &def.fields {
        if let Some(value) = object.get_mut(field.name) {
            canonicalize_value(&field.ty, value, sent);
            let kept = sent && field.always && matches!(value, Value::Array(_));
            if field.optional || kept || !is_zero(&field.ty, value) {
                continue;
            }
        }
        match absent(field) {
            Some(value) => object.insert(field.name.to_owned(), value),
            None => object.shift_remove(field.name),
        };
    }
}

/// The written value of a field that is absent or zero; `None` if it is not written.
fn absent(field: &Field) -> Option<Value> {
    match (field.always, field.optional) {
        (false, _) => None,
        (true, true) => Some(Value::Null),
        (true, false) => Some(zero(&field.ty)),
    }
}

/// The zero value of a type that is always written.
fn zero(ty: &Type) -> Value {
    match ty {
        Type::String => json!(""),
        Type::Bool => json!(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => json!(0),
        Type::Quantity => json!("0"),
        Type::Time | Type::MicroTime | Type::Bytes | Type::Json | Type::Map(_) | Type::List(_) => Value::Null,
        Type::Ref(name) => {
            let mut object = Object::new();
            if let Some(def) = Defs::get().def(name) {
                canonicalize(def, &mut object);
            }
            Value::Object(object)
        }
    }
}

fn is_zero(ty: &Type, value: &Value) -> bool {
    match (ty, value) {
        (_, Value::Null) => true,
        // A message is never left out, however empty.
        (Type::Ref(_) | Type::Quantity | Type::IntOrString, _) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Bool(set)) => !set,
        (_, Value::Number(number)) => number.as_f64() == Some(0.0),
        (Type::Map(_), Value::Object(map)) => map.is_empty(),
        (Type::List(_), Value::Array(list)) => list.is_empty(),
        _ => false,
    }
}

fn canonicalize_value(ty: &Type, value: &mut Value, sent: bool) {
    match (ty, &mut *value) {
        (Type::Ref(name), Value::Object(object)) => {
            if let Some(def) = Defs::get().def(name) {
                canonicalize_fields(def, object, sent);
            }
        }
        (Type::List(inner), Value::Array(list)) => list.iter_mut().for_each(|v| canonicalize_value(inner, v, sent)),
        (Type::Map(inner), Value::Object(map)) => map.values_mut().for_each(|v| canonicalize_value(inner, v, sent)),
        (Type::Quantity, Value::String(text)) => {
            if let Some(one) = quantity::canonical(text) {
                *text = one;
            }
        }
        (Type::Quantity, Value::Number(number)) => {
            if let Some(one) = quantity::canonical(&gotext::json_number(number)) {
                *value = json!(one);
            }
        }
        (Type::Time | Type::MicroTime, Value::String(text)) => {
            if let Ok(time) = text.parse::<jiff::Timestamp>() {
                *value = written(ty, time);
            }
        }
        _ => {}
    }
}

/// A time in its written form: whole seconds, or microseconds. Go's zero time is null.
pub fn written(ty: &Type, time: jiff::Timestamp) -> Value {
    const GO_ZERO: i64 = -62_135_596_800;
    if time.as_second() == GO_ZERO && time.subsec_nanosecond() == 0 {
        return Value::Null;
    }
    // Rounds towards the past, like Go.
    let micros = time.as_microsecond().div_euclid(if *ty == Type::Time { 1_000_000 } else { 1 });
    let cut = match ty {
        Type::Time => jiff::Timestamp::from_second(micros),
        _ => jiff::Timestamp::from_microsecond(micros),
    };
    let format = if *ty == Type::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    json!(cut.unwrap_or(time).strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonicalized(group: &str, kind: &str, value: Value) -> Value {
        let Value::Object(mut object) = value else { panic!("not an object") };
        canonicalize(Defs::get().kind(group, "v1", kind).unwrap(), &mut object);
        let once = object.clone();
        canonicalize(Defs::get().kind(group, "v1", kind).unwrap(), &mut object);
        assert_eq!(object, once);
        Value::Object(object)
    }

    #[test]
    fn what_go_always_writes_is_there_and_what_it_leaves_out_is_not() {
        let event =
            canonicalized("", "Event", json!({"metadata": {"name": "e", "labels": {}}, "count": 0, "reason": ""}));
        assert_eq!(
            event,
            json!({"metadata": {"name": "e"}, "involvedObject": {}, "source": {}, "firstTimestamp": null,
                "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""})
        );
        let lease = canonicalized(
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"leaseTransitions": 0,
            "renewTime": "2026-01-02T05:04:05.123456789+02:00"}}),
        );
        assert_eq!(lease["spec"], json!({"leaseTransitions": 0, "renewTime": "2026-01-02T03:04:05.123456Z"}));
    }

    #[test]
    fn quantities_and_nested_messages() {
        let node = canonicalized("", "Node", json!({"status": {"capacity": {"cpu": 4, "memory": "2048Mi"}}}));
        assert_eq!(node["status"]["capacity"], json!({"cpu": "4", "memory": "2Gi"}));
        assert_eq!(node["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
        assert_eq!(node["spec"], json!({}));
    }
}
