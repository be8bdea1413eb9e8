//! Redaction of secrets in texts from BMCs: plain, escaped for JSON, URLs or HTML, or in Base64.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Replacement for a secret.
const HIDDEN: &str = "[hidden]";
/// A shorter secret occurs in half of all texts by chance: only apparent values are hidden.
const SHORT: usize = 4;
/// Less of a secret's Base64 than this may be anything.
const LEAST_BASE64: usize = 4;
/// Longest row of backslashes that is looked at.
const MOST_ESCAPED: usize = 16;
/// Where a text was cut short.
const CUT: char = '…';

/// Words that occur in many messages.
const EVERYDAY: [&str; 24] = [
    "access",
    "account",
    "admin",
    "administrator",
    "answer",
    "credential",
    "credentials",
    "error",
    "login",
    "password",
    "redfish",
    "request",
    "resource",
    "root",
    "server",
    "service",
    "session",
    "sign",
    "system",
    "token",
    "unauthorized",
    "user",
    "username",
    "wrong",
];

/// Replaces each secret in the text, in any encoding, including one that is cut off by a truncation mark.
///
/// If a secret is an everyday word, hiding every "password" would reveal that this is the password; and one of less than four characters is part of
/// many words. Of those, only apparent values are hidden: in quotation marks, or right after an equals sign or colon; and encoded forms, which do not
/// occur by chance.
pub fn redact(text: &str, secrets: &[&str]) -> String {
    let mut out = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        out = without(&out, secret, if is_plain(secret) { As::Value } else { As::Text });
        for encoded in encodings(secret) {
            out = without(&out, &encoded, As::Base64);
        }
    }
    out
}

/// How to search for a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    /// Anywhere.
    Text,
    /// Only as a value, or in an encoded form.
    Value,
    /// With the adjacent Base64 characters, which hold some of its bits.
    Base64,
}

/// The Basic authorization of this user, as a secret for [`redact`].
pub fn basic(username: &str, password: &str) -> String {
    STANDARD_NO_PAD.encode(format!("{username}:{password}"))
}

/// Whether the secret may occur in a text by chance.
fn is_plain(secret: &str) -> bool {
    secret.chars().count() < SHORT || EVERYDAY.contains(&secret.to_ascii_lowercase().as_str())
}

/// Substrings that every Base64 of a text with the secret contains, for each alignment of the secret.
fn encodings(secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for before in 0..3_usize {
        let padded = [&b"\0\0"[..before], secret.as_bytes()].concat();
        // Leaves out the characters that share bits with the neighbouring bytes.
        let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for encoded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            let sure = encoded.get(first..last).unwrap_or_default();
            if sure.len() >= LEAST_BASE64 && !found.iter().any(|known| known == sure) {
                found.push(sure.to_owned());
            }
        }
    }
    found
}

fn without(text: &str, secret: &str, kind: As) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let first = secret.chars().next();
    let may_begin = |c: char| Some(c) == first || matches!(c, '%' | '&' | '\\') || c == '+' && first == Some(' ');
    while let Some(rest) = text.get(at..) {
        let Some(next) = rest.find(may_begin) else {
            out.push_str(rest);
            break;
        };
        let (before, rest) = rest.split_at(next);
        out.push_str(before);
        at += next;
        let Some(end) = matched(rest, secret) else {
            let one = rest.chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[..one]);
            at += one;
            continue;
        };
        let (found, after) = rest.split_at(end);
        let hides = kind != As::Value || found != secret || is_value(&out, after, secret);
        at += end;
        if kind == As::Base64 {
            out.truncate(out.trim_end_matches(is_base64).len());
            at += after.len() - after.trim_start_matches(is_base64).len();
        }
        out.push_str(if hides { HIDDEN } else { found });
    }
    out
}

/// The end of the longest match of the secret at the text's start, each character in any encoding; also matches a truncated secret.
fn matched(text: &str, secret: &str) -> Option<usize> {
    let mut places = vec![0];
    for (count, wanted) in secret.chars().enumerate() {
        if count >= SHORT
            && let Some(cut) = places.iter().find(|place| text[**place..].starts_with(CUT))
        {
            return Some(*cut);
        }
        let mut next: Vec<usize> = places
            .iter()
            .flat_map(|at| forms(&text[*at..], wanted).into_iter().map(move |length| at + length))
            .collect();
        next.sort_unstable();
        next.dedup();
        if next.is_empty() {
            return None;
        }
        places = next;
    }
    places.last().copied()
}

/// Lengths of all encodings of the character at the text's start.
fn forms(text: &str, wanted: char) -> Vec<usize> {
    let mut found = Vec::new();
    if text.starts_with(wanted) {
        found.push(wanted.len_utf8());
    }
    found.extend(percent(text, wanted));
    if wanted == ' ' && text.starts_with('+') {
        found.push(1);
    }
    found.extend(entity(text, wanted));
    // Repeated escaping adds backslashes.
    let slashes = text.bytes().take(MOST_ESCAPED).take_while(|byte| *byte == b'\\').count();
    for count in 1..=slashes {
        let rest = &text[count..];
        if rest.starts_with(wanted) {
            found.push(count + wanted.len_utf8());
        }
        if let Some(length) = unicode(rest, wanted) {
            found.push(count + length);
        }
    }
    found
}

/// `%C3%A4`; `%25C3%25A4`, if it was done twice.
fn percent(text: &str, wanted: char) -> Vec<usize> {
    if wanted == '%' {
        let Some(digits) = text.strip_prefix('%') else { return Vec::new() };
        let times = (digits.len() - digits.trim_start_matches("25").len()) / 2;
        return (1..=times).map(|times| 1 + 2 * times).collect();
    }
    let mut rest = text;
    for byte in wanted.encode_utf8(&mut [0; 4]).bytes() {
        let Some(digits) = rest.strip_prefix('%') else { return Vec::new() };
        let digits = digits.trim_start_matches("25");
        if !starts_with_hex(digits, 2, u32::from(byte)) {
            return Vec::new();
        }
        rest = &digits[2..];
    }
    vec![text.len() - rest.len()]
}

/// `u00e4`, or two of them for a surrogate pair.
fn unicode(text: &str, wanted: char) -> Option<usize> {
    let mut rest = text;
    for (index, unit) in wanted.encode_utf16(&mut [0; 2]).iter().enumerate() {
        let rest_of = if index == 0 { rest } else { rest.trim_start_matches('\\') };
        let digits = rest_of.strip_prefix('u')?;
        if !starts_with_hex(digits, 4, u32::from(*unit)) {
            return None;
        }
        rest = &digits[4..];
    }
    Some(text.len() - rest.len())
}

fn starts_with_hex(text: &str, digits: usize, value: u32) -> bool {
    text.get(..digits)
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        == Some(value)
}

/// `&quot;`, `&#34;`, `&#x22;`; `&amp;quot;`, if it was done twice. With and without the end, which browsers do without.
fn entity(text: &str, wanted: char) -> Vec<usize> {
    let Some(mut rest) = text.strip_prefix('&') else { return Vec::new() };
    let mut found = Vec::new();
    loop {
        let named = NAMED.iter().filter(|(_, named)| *named == wanted);
        let behind = named.filter_map(|(name, _)| rest.strip_prefix(name)).chain(numbered(rest, wanted));
        for behind in behind {
            let end = text.len() - behind.len();
            found.push(end);
            if behind.starts_with(';') {
                found.push(end + 1);
            }
        }
        match rest.strip_prefix("amp;") {
            Some(again) => rest = again,
            None => return found,
        }
    }
}

const NAMED: [(&str, char); 5] = [("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\'')];

fn numbered(text: &str, wanted: char) -> Option<&str> {
    let number = text.strip_prefix('#')?;
    let (digits, radix) = number.strip_prefix(['x', 'X']).map_or((number, 10), |digits| (digits, 16));
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, behind) = digits.split_at(end);
    (u32::from_str_radix(digits, radix).ok() == Some(u32::from(wanted))).then_some(behind)
}

/// Whether the secret is in quotation marks, or right after an equals sign or colon, in any encoding.
fn is_value(before: &str, after: &str, secret: &str) -> bool {
    const QUOTES: [&str; 6] = ["%22", "%27", "&quot;", "&apos;", "&#34;", "&#39;"];
    let opened = before.ends_with(is_quote) || QUOTES.iter().any(|quote| before.ends_with(quote));
    let after = after.trim_start_matches('\\');
    let closed = after.starts_with(is_quote) || QUOTES.iter().any(|quote| after.starts_with(quote));
    let assigned =
        before.ends_with(['=', ':']) || ["%3D", "%3d", "%3A", "%3a"].iter().any(|sign| before.ends_with(sign));
    // A short one is also the beginning of many values.
    let whole = secret.chars().count() >= SHORT || !after.starts_with(|next: char| next.is_alphanumeric());
    opened && closed || assigned && whole
}

const fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '=')
}

const fn is_quote(c: char) -> bool {
    matches!(c, '\'' | '"' | '`' | '«' | '»' | '‘' | '’' | '“' | '”')
}

/// Shortest secret that is looked for within a text, in bytes: a shorter one may be part of a word, and counts where it is the whole text.
const SHORTEST_WITHIN: usize = 8;

/// Whether a text can be shown whole: printable, and without any of these secrets.
pub fn is_public(text: &str, secrets: &[String]) -> bool {
    let tells =
        |secret: &String| if secret.len() < SHORTEST_WITHIN { text == secret } else { text.contains(secret.as_str()) };
    text.chars().all(terms::is_printable) && !secrets.iter().any(tells)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_hidden() {
        assert_eq!(redact("login calvin failed", &["calvin", "in"]), "login [hidden] failed");
        let text = "the password 'password' of \"Password\":\"password\" or password=password is wrong";
        let redacted = "the password '[hidden]' of \"Password\":\"[hidden]\" or password=[hidden] is wrong";
        assert_eq!(redact(text, &["password"]), redacted);
    }

    #[test]
    fn a_short_secret_is_hidden_where_it_is_a_value_and_leaves_texts_alone() {
        let text = "an unknown user, id=an1 an=an: {\\\"Password\\\":\\\"an\\\"} pwd:an";
        let redacted = "an unknown user, id=an1 an=[hidden]: {\\\"Password\\\":\\\"[hidden]\\\"} pwd:[hidden]";
        assert_eq!(redact(text, &["an"]), redacted);
        assert_eq!(
            redact(&format!("Basic {}=", basic("root", "an")), &["an", &basic("root", "an")]),
            "Basic [hidden]="
        );
    }

    #[test]
    fn what_a_cut_has_left_is_hidden() {
        assert_eq!(redact("wrong: correct ho…; and", &["correct horse"]), "wrong: [hidden]…; and");
    }

    fn json(text: &str) -> String {
        let quoted = serde_json::to_string(text).unwrap();
        quoted[1..quoted.len() - 1].to_owned()
    }

    fn json_all(secret: &str) -> String {
        secret.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()
    }

    fn percent_all(secret: &str) -> String {
        secret.bytes().map(|byte| format!("%{byte:02x}")).collect()
    }

    fn percent_some(secret: &str) -> String {
        url::form_urlencoded::byte_serialize(secret.as_bytes()).collect()
    }

    fn html(secret: &str) -> String {
        let escaped = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        escaped.replace('"', "&quot;").replace('\'', "&#39;")
    }

    /// All forms of the secret, and the first of them done again.
    fn written(secret: &str, user: &str) -> Vec<String> {
        let html_all = secret.chars().map(|c| format!("&#x{:X};", u32::from(c))).collect();
        let pair = format!("{user}:{secret}");
        let mut all = vec![
            secret.to_owned(),
            json(secret),
            json(&json(secret)),
            json_all(secret),
            percent_all(secret),
            percent_some(secret),
        ];
        all.extend([percent_all(secret).replace('%', "%25"), html(secret), html(&html(secret)), html_all]);
        for text in [secret, &pair, &format!("{pair}\n")] {
            all.extend([STANDARD.encode(text), URL_SAFE.encode(text), STANDARD_NO_PAD.encode(text)]);
            all.push(percent_some(&STANDARD.encode(text)));
        }
        all
    }

    proptest! {
        /// No encoding of a secret leaves anything readable, unless the secret is an everyday word.
        #[test]
        fn no_form_of_a_secret_is_left(secret in "[!-~äß€😀][ -~äß€😀]{4,20}[!-~]", user in "[a-z]{1,8}", before in "[a-z ]{0,6}", after in "[a-z ]{0,6}") {
            prop_assume!(!is_plain(&secret) && !"[hidden]".contains(&secret));
            for form in written(&secret, &user) {
                let redacted = redact(&format!("{before} {form} {after}"), &[&secret, &basic(&user, &secret)]);
                prop_assert!(redacted.contains(HIDDEN), "{form}: {redacted}");
                prop_assert!(!redacted.contains(&form) && !redacted.contains(&secret), "{form}: {redacted}");
            }
        }

        /// Texts without the secret stay the same; no input makes it fail.
        #[test]
        fn other_texts_stay(text in "[A-Z ]{0,60}", secret in "[a-z]{4,12}") {
            prop_assert_eq!(redact(&text, &[&secret]), text);
        }

        #[test]
        fn any_text_is_taken(text in ".{0,80}", secret in ".{1,8}") {
            redact(&text, &[&secret]);
        }
    }
}
