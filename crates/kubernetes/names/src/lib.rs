//! Validity of names and labels in Kubernetes, with the messages for invalid ones (apimachinery 0.34,
//! `pkg/util/validation/validation.go` and `pkg/api/validation`).
//!
//! A rule is a function from a text to the messages of all its errors; none for a valid text:
//!
//! ```
//! assert!(names::dns_1123_label("my-name").is_empty());
//! assert_eq!(names::dns_1123_label("my.name"), ["must not contain dots"]);
//! ```
//!
//! Most callers make one error of each message, some one error of all ([`joined`]). Lengths are those of Go's strings, in bytes, although the
//! messages speak of characters. A prefix to which a generated ending will be added is checked as [`masked`].

use std::borrow::Cow;

/// Longest DNS label, name part of a qualified name, and value of a label.
pub const MAX_LABEL: usize = 63;
/// Longest DNS subdomain.
pub const MAX_SUBDOMAIN: usize = 253;

/// From a text to all that is wrong with it.
pub type Rule = fn(&str) -> Vec<String>;

const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
    is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
fn label_form(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Such labels with dots between them.
fn subdomain_form(text: &str) -> bool {
    text.split('.').all(label_form)
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
fn word_form(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric());
    edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// The error message for a text of more than `most` bytes.
pub fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn messages(text: &str, most: usize, wrong: Option<&str>) -> Vec<String> {
    too_long(text, most).into_iter().chain(wrong.map(str::to_owned)).collect()
}

/// A label of RFC 1123: lower-case letters, digits and dashes within.
pub fn dns_1123_label(text: &str) -> Vec<String> {
    let wrong = match text {
        _ if label_form(text) => None,
        _ if subdomain_form(text) => Some("must not contain dots"),
        _ => Some(LABEL_1123),
    };
    messages(text, MAX_LABEL, wrong)
}

/// A subdomain of RFC 1123: such labels, of any length, with dots between them.
pub fn dns_1123_subdomain(text: &str) -> Vec<String> {
    messages(text, MAX_SUBDOMAIN, (!subdomain_form(text)).then_some(SUBDOMAIN))
}

/// A label of RFC 1035: one of RFC 1123 that begins with a letter.
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let good = label_form(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    messages(text, MAX_LABEL, (!good).then_some(LABEL_1035))
}

/// A qualified name, such as the key of a label: a name, perhaps with a subdomain and `/` before it.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = text.splitn(3, '/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        ["", name] => {
            errors.push("prefix part must be non-empty".to_owned());
            *name
        }
        [prefix, name] => {
            errors.extend(dns_1123_subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            *name
        }
        _ => {
            let hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a qualified name {QUALIFIED} {hint}")];
        }
    };
    let length = if name.is_empty() { Some("must be non-empty".to_owned()) } else { too_long(name, MAX_LABEL) };
    let form = (!word_form(name)).then(|| QUALIFIED.to_owned());
    errors.extend(length.into_iter().chain(form).map(|why| format!("name part {why}")));
    errors
}

/// The value of a label: empty, or the name part of a qualified name.
pub fn label_value(text: &str) -> Vec<String> {
    messages(text, MAX_LABEL, (!text.is_empty() && !word_form(text)).then_some(VALUE))
}

/// A name that is a step of a path.
pub fn path_segment(text: &str) -> Vec<String> {
    match text {
        "." | ".." => vec![format!("may not be '{text}'")],
        _ => path_segment_prefix(text),
    }
}

/// The prefix of a name that is a path segment.
pub fn path_segment_prefix(text: &str) -> Vec<String> {
    ['/', '%'].iter().filter(|c| text.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Masks the end of a prefix for other rules: a trailing dash is valid when more follows, so the last two bytes count as one letter.
pub fn masked(prefix: &str) -> Cow<'_, str> {
    let Some(before) = prefix.strip_suffix('-') else { return Cow::Borrowed(prefix) };
    let mut kept = before.chars();
    match kept.next_back() {
        None => Cow::Borrowed(prefix),
        // A cut multi-byte character leaves non-letters.
        Some(last) => Cow::Owned(format!("{}{}a", kept.as_str(), "?".repeat(last.len_utf8() - 1))),
    }
}

/// All that is wrong in one text, where upstream makes one error of it; `None` if all is well.
pub fn joined(errors: Vec<String>) -> Option<String> {
    (!errors.is_empty()).then(|| errors.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    #[test]
    fn what_is_wrong_has_upstreams_message() {
        let long = "a".repeat(64);
        for (rule, text, errors) in [
            (dns_1123_label as Rule, "a-1", &[][..]),
            (dns_1123_label, "a.b", &["must not contain dots"]),
            (dns_1123_label, "", &[LABEL_1123]),
            (dns_1123_label, &format!("{long}."), &["must be no more than 63 characters", LABEL_1123]),
            (dns_1123_subdomain, "a.b-c", &[]),
            (dns_1123_subdomain, "a..b", &[SUBDOMAIN]),
            (dns_1123_subdomain, &long, &[]),
            (dns_1035_label, "1a", &[LABEL_1035]),
            (dns_1035_label, &long, &["must be no more than 63 characters"]),
            (label_value, "", &[]),
            (label_value, "-a", &[VALUE]),
            (label_value, &long, &["must be no more than 63 characters"]),
            (path_segment, "..", &["may not be '..'"]),
            (path_segment, "%/", &["may not contain '/'", "may not contain '%'"]),
            (path_segment, "...", &[]),
            (path_segment_prefix, "..", &[]),
            (path_segment_prefix, "a/", &["may not contain '/'"]),
        ] {
            assert_eq!(rule(text), errors, "{text}");
        }
    }

    #[test]
    fn qualified_names_are_checked_part_by_part() {
        let name = format!("name part {QUALIFIED}");
        for (text, errors) in [
            ("a.b/c_D", vec![]),
            ("c_D", vec![]),
            ("/c", vec!["prefix part must be non-empty".to_owned()]),
            ("a/", vec!["name part must be non-empty".to_owned(), name.clone()]),
            ("", vec!["name part must be non-empty".to_owned(), name]),
            ("A/b", vec![format!("prefix part {SUBDOMAIN}")]),
            (&format!("a/{}", "b".repeat(64)), vec!["name part must be no more than 63 characters".to_owned()]),
        ] {
            assert_eq!(qualified_name(text), errors, "{text}");
        }
        let [error] = qualified_name("a/b/c").try_into().unwrap();
        assert!(
            error.starts_with("a qualified name must consist of") && error.ends_with("'example.com/MyName')"),
            "{error}"
        );
    }

    #[test]
    fn a_dash_at_the_end_is_masked_with_what_is_before_it() {
        for (prefix, seen) in
            [("a", "a"), ("-", "-"), ("ab-", "aa"), ("A-", "a"), ("a--", "aa"), ("é-", "?a"), ("", "")]
        {
            assert_eq!(masked(prefix), seen);
        }
        assert!(dns_1123_label(&masked(&format!("{}-", "a".repeat(63)))).is_empty());
    }

    /// The pattern that the text about a broken rule names.
    fn pattern(message: &str) -> Regex {
        let (_, pattern) = message.split_once("regex used for validation is '").unwrap();
        Regex::new(&format!("^(?:{})$", pattern.split_once("')").unwrap().0)).unwrap()
    }

    proptest! {
        #[test]
        fn rules_are_their_patterns(text in "[a-cA-C0-1._/é\\n-]{0,8}|[a-c-]{60,68}|([a-c]{1,30}[.-]){6,10}c") {
            for (rule, most, message) in [
                (dns_1123_label as Rule, MAX_LABEL, LABEL_1123),
                (dns_1123_subdomain, MAX_SUBDOMAIN, SUBDOMAIN),
                (dns_1035_label, MAX_LABEL, LABEL_1035),
                (label_value, MAX_LABEL, VALUE),
            ] {
                let good = pattern(message).is_match(&text) && text.len() <= most;
                prop_assert_eq!(rule(&text).is_empty(), good, "{:?} {}", text, message);
            }
        }

        #[test]
        fn qualified_names_are_made_of_the_others(prefix in "[a-bA/.é-]{0,4}", name in "[a-bA/_.é-]{0,4}") {
            let whole = format!("{prefix}/{name}");
            let plain = |text: &str| !text.contains('/');
            let good = plain(&name) && !name.is_empty() && label_value(&name).is_empty();
            prop_assert_eq!(plain(&name) && qualified_name(&name).is_empty(), good);
            let good = good && plain(&prefix) && dns_1123_subdomain(&prefix).is_empty();
            prop_assert_eq!(qualified_name(&whole).is_empty(), good);
            prop_assert_eq!(qualified_name(&whole).is_empty(), joined(qualified_name(&whole)).is_none());
        }

        #[test]
        fn a_masked_prefix_is_one_byte_shorter(prefix in "\\PC{0,6}-?") {
            let seen = masked(&prefix);
            let cut = prefix.len() > 1 && prefix.ends_with('-');
            prop_assert_eq!(seen.len(), prefix.len() - usize::from(cut));
        }
    }
}
