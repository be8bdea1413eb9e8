//! What the settings of a firmware may be: the name of their FirmwareSchema, and whether a wish keeps to it.

use std::collections::BTreeMap;

use api::metal3::SettingSchema;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest, Sha256};

/// Longest value that a message shows, in characters.
const MAX_PRINTED: usize = 64;

/// The name that upstream gives it, so that hosts which are alike share one (baremetal-operator `GetSchemaName`): eight digits of the SHA-256 of all
/// names, types, values and bounds, sorted and written as Go's `%v` writes a list.
pub(crate) fn name(schema: &BTreeMap<String, SettingSchema>) -> String {
    let mut parts = Vec::new();
    for (name, setting) in schema {
        parts.push(name.clone());
        parts.push(setting.attribute_type.clone().unwrap_or_default());
        parts.extend(setting.allowable_values.iter().cloned());
        let bounds = [setting.lower_bound, setting.upper_bound, setting.min_length, setting.max_length];
        parts.extend(bounds.into_iter().flatten().map(|bound| bound.to_string()));
        parts.extend(setting.read_only.map(|read_only| read_only.to_string()));
    }
    parts.sort_unstable();
    let digest = Sha256::digest(format!("[{}]", parts.join(" ")).as_bytes());
    digest.iter().take(4).fold("schema-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Names that stand for a secret.
pub(crate) fn is_password(name: &str) -> bool {
    name.to_ascii_lowercase().contains("password")
}

/// Whether a setting is a secret, by its name or its type: it is neither shown nor set.
pub(crate) fn is_secret(name: &str, schema: &SettingSchema) -> bool {
    is_password(name) || schema.attribute_type.as_deref() == Some("Password")
}

/// What a setting's value is as text.
pub fn text(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// Why the setting cannot have this value (baremetal-operator `SettingSchema.Validate`); what the firmware does not say allows any.
pub(crate) fn fault(name: &str, value: &str, schema: &SettingSchema) -> Option<String> {
    if schema.read_only == Some(true) {
        return Some(format!("{name} cannot be set: the firmware says that it is read-only"));
    }
    let printable: String = value.chars().take(MAX_PRINTED).collect();
    let wrong = |what: String| Some(format!("{name} cannot be \"{printable}\": {what}"));
    match schema.attribute_type.as_deref().unwrap_or_default() {
        "Password" => Some(format!("{name} is a password, which is not set here")),
        "Enumeration" if !schema.allowable_values.iter().any(|allowed| allowed == value) => {
            let some = schema.allowable_values.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
            let more = if schema.allowable_values.len() > 8 { ", …" } else { "" };
            wrong(format!("it is one of {some}{more}"))
        }
        "Boolean" if !matches!(value, "true" | "false") => wrong("it is true or false".to_owned()),
        "Integer" => {
            let Ok(number) = value.parse::<i64>() else { return wrong("it is a whole number".to_owned()) };
            // It is compared as text with what the BMC shows.
            if number.to_string() != value {
                return wrong(format!("it is written {number}"));
            }
            match (schema.lower_bound, schema.upper_bound) {
                (Some(least), _) if number < least => wrong(format!("the least is {least}")),
                (_, Some(most)) if number > most => wrong(format!("the most is {most}")),
                _ => None,
            }
        }
        "String" => {
            let length = i64::try_from(value.chars().count()).unwrap_or(i64::MAX);
            match (schema.min_length, schema.max_length) {
                (Some(least), _) if length < least => wrong(format!("it has at least {least} characters")),
                (_, Some(most)) if length > most => wrong(format!("it has at most {most} characters")),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str) -> SettingSchema {
        SettingSchema { attribute_type: Some(kind.to_owned()), ..SettingSchema::default() }
    }

    #[test]
    fn hosts_that_are_alike_share_a_schema_by_upstreams_name() {
        let assignable = SettingSchema { read_only: Some(true), allowable_values: vec!["x".into()], ..of("String") };
        let one = BTreeMap::from([
            ("AssetTag".to_owned(), assignable.clone()),
            ("Delay".to_owned(), SettingSchema { lower_bound: Some(-5), upper_bound: Some(20), ..of("Integer") }),
        ]);
        // printf '[%s]' '-5 20 AssetTag Delay Integer String true x' | sha256sum
        assert_eq!(name(&one), "schema-ebc31059");
        let mut same = one.clone();
        same.get_mut("AssetTag").unwrap().unique = Some(true);
        assert_eq!(name(&same), name(&one), "whether a value is unique does not count, as upstream");
        same.get_mut("AssetTag").unwrap().max_length = Some(3);
        assert_ne!(name(&same), name(&one));
        assert_eq!(name(&BTreeMap::new()), "schema-4f53cda1");
    }

    #[test]
    fn a_value_keeps_to_what_the_firmware_says() {
        let enumeration = SettingSchema { allowable_values: vec!["On".into(), "Off".into()], ..of("Enumeration") };
        let integer = SettingSchema { lower_bound: Some(-1), upper_bound: Some(9), ..of("Integer") };
        let string = SettingSchema { min_length: Some(2), max_length: Some(3), ..of("String") };
        let read_only = SettingSchema { read_only: Some(true), ..of("String") };
        let cases: [(&SettingSchema, &[&str], &[&str]); 7] = [
            (&enumeration, &["On", "Off"], &["on", "", "Of"]),
            (
                &integer,
                &["-1", "0", "9"],
                &["-2", "10", "", "1.0", "x", "+5", "05", "-0", " 5", "99999999999999999999"],
            ),
            (&string, &["ab", "äöü"], &["a", "abcd", ""]),
            (&of("Boolean"), &["true", "false"], &["True", "1", ""]),
            (&of("Password"), &[], &["x"]),
            (&read_only, &[], &["x"]),
            (&SettingSchema::default(), &["x", ""], &[]),
        ];
        for (schema, good, bad) in cases {
            for value in good {
                assert_eq!(fault("N", value, schema), None, "{value}");
            }
            for value in bad {
                assert!(fault("N", value, schema).is_some_and(|text| text.starts_with("N ")), "{value} {schema:?}");
            }
        }
        assert_eq!(fault("N", "+5", &integer).unwrap(), "N cannot be \"+5\": it is written 5");
        let long = fault("N", &"x".repeat(5000), &integer).unwrap();
        assert!(long.len() < 200, "{long}");
    }
}
