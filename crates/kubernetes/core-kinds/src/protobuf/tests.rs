//! Round trips, byte-exact forms, and bytes that lie.

use super::shape::{Free, free, schema_def};
use super::*;
use crate::{Field, Type, canonical};
use proptest::prelude::*;

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, u64::from(number), bytes);
    out
}

#[test]
fn a_secret_reads_as_its_json() {
    let meta = [field(1, b"s"), field(2, b""), field(8, b""), field(14, b"f")].concat();
    let entry = [field(1, b"k"), field(2, &[0xff, 0x00])].concat();
    let raw = [field(1, &meta), field(2, &entry), field(3, b"Opaque"), field(90, b"later")].concat();
    let object = decode(&envelope("v1", "Secret", &raw), None).unwrap();
    assert_eq!(
        Value::Object(object),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "finalizers": ["f"]},
            "data": {"k": "/wA="}, "type": "Opaque"})
    );
    assert!(decode(&envelope("v1", "Pod", b""), None).unwrap_err().why.to_string().contains("no kind \"Pod\""));
    let unnamed = envelope("", "", &raw);
    assert_eq!(decode(&unnamed, Some(("v1", "Secret"))).unwrap()["kind"], "Secret");
}

#[test]
fn what_go_holds_by_value_is_always_written() {
    let body = encode(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"b": "2", "a": "1"}}),
    );
    let meta = [
        field(1, b"c"),
        field(2, b""),
        field(3, b""),
        field(4, b""),
        field(5, b""),
        field(6, b""),
        vec![7 << 3, 0],
        field(8, b""),
    ]
    .concat();
    let entry = |k: &[u8], v: &[u8]| field(2, &[field(1, k), field(2, v)].concat());
    let raw = [field(1, &meta), entry(b"a", b"1"), entry(b"b", b"2")].concat();
    assert_eq!(body.unwrap(), envelope("v1", "ConfigMap", &raw));
}

#[test]
fn lists_metadata_and_frames_have_their_forms() {
    let item = json!({"metadata": {"name": "c"}});
    let list = |api_version: &str, kind: &str| {
        encode(&json!({"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": "7"}, "items": [item]}))
    };
    assert!(list("v1", "ConfigMapList").is_some());
    let (new, old) =
        (list("meta.k8s.io/v1", "PartialObjectMetadataList"), list("meta.k8s.io/v1beta1", "PartialObjectMetadataList"));
    assert_eq!(new.as_ref().map(Vec::len), old.as_ref().map(|o| o.len() - "beta1".len()));
    assert_eq!(list("example.com/v1", "WidgetList"), None);
    let status =
        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404, "details": {"name": "x"}});
    let frame = frame("ERROR", &status).unwrap();
    assert_eq!(u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - 4);
}

/// A value of any type of the table, as Go's encoder would write it.
fn sample(ty: &Type, field: &Field, seed: u64, depth: u32) -> Value {
    let pick = |n: u64| (seed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17) ^ seed) % n;
    let next = seed.wrapping_mul(31).wrapping_add(7);
    match ty {
        Type::String => json!(format!("t{}", pick(1000))),
        Type::Bytes => json!("AP8="),
        Type::Bool => json!(pick(2) == 0),
        Type::Int32 => json!(i32::MIN.wrapping_add(pick(u64::from(u32::MAX)) as i32)),
        Type::Int64 => json!(seed.cast_signed()),
        Type::Double => json!(pick(1000) as f64 / 8.0 + 0.125),
        Type::Time => json!("2026-01-02T03:04:05Z"),
        Type::MicroTime => json!("1969-12-31T23:59:59.250000Z"),
        Type::Quantity => json!(format!("{}Mi", pick(900) + 1)),
        Type::IntOrString => {
            if pick(2) == 0 {
                json!(pick(70_000))
            } else {
                json!("http")
            }
        }
        Type::Json => match free(field) {
            Free::Text => json!({"f:a": {".": {}}}),
            Free::SchemaOrBool => {
                if pick(2) == 0 {
                    json!(pick(3) == 0)
                } else {
                    json!({"type": "string"})
                }
            }
            Free::SchemaOrSchemas => {
                if pick(2) == 0 {
                    json!([{"type": "string"}])
                } else {
                    json!({"minLength": 0})
                }
            }
            Free::SchemaOrTexts => {
                if pick(2) == 0 {
                    json!(["a"])
                } else {
                    json!({"title": "t"})
                }
            }
        },
        // The wire does not distinguish an empty list from an absent one.
        Type::List(inner) => (0..=pick(2)).map(|n| sample(inner, field, next + n, depth)).collect(),
        Type::Map(inner) => {
            Value::Object((0..pick(3)).map(|n| (format!("k{n}"), sample(inner, field, next + n, depth))).collect())
        }
        Type::Ref(_) if depth == 0 => json!({}),
        Type::Ref(name) => Value::Object(object(Defs::get().def(name).unwrap(), next, depth - 1)),
    }
}

fn object(def: &Def, seed: u64, depth: u32) -> Object {
    let mut out = Object::new();
    for (at, field) in def.fields.iter().enumerate().filter(|(_, f)| !f.path.is_empty()) {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(at as u64);
        if !seed.rotate_left(29).is_multiple_of(4) {
            out.insert(field.name.to_owned(), sample(&field.ty, field, seed, depth));
        }
    }
    canonical::canonicalize(def, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_kind_comes_back_as_it_went(seed in any::<u64>()) {
        for def in Defs::get().all().iter().filter(|d| d.fields.iter().any(|f| !f.path.is_empty())) {
            let Some((group, version, kind)) = def.gvk else { continue };
            let mut value = object(def, seed, 6);
            value.insert("apiVersion".into(), json!(if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }));
            value.insert("kind".into(), json!(kind));
            let mut before = value.clone();
            canonical::canonicalize(def, &mut before);
            let body = encode(&Value::Object(value)).unwrap();
            let after = decode(&body, None).unwrap();
            prop_assert_eq!(&Value::Object(after), &Value::Object(before), "{}", kind);
        }
    }
}

proptest! {
    #[test]
    fn lies_about_lengths_are_errors_and_not_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        for (api_version, kind) in [("v1", "Event"), ("v1", "Node"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
            let _ = decode(&envelope(api_version, kind, &bytes), None);
        }
        let _ = decode(&[b"k8s\0".to_vec(), bytes].concat(), None);
    }
}

#[test]
fn depth_is_bounded() {
    // Schemas within schemas: field "not" of JSONSchemaProps.
    let def = schema_def().unwrap();
    let not = def.field("not").unwrap().path[0];
    let mut inner = Vec::new();
    for _ in 0..2000 {
        let mut outer = Vec::new();
        put_bytes(&mut outer, not, &inner);
        inner = outer;
    }
    assert_eq!(read::message(def, &inner), Err(WireError::TooDeep));
}
