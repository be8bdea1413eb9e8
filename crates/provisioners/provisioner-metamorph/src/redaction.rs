//! Lines for people who may see a host and not what its BMC and its agents were given: addresses of media and agents' tokens are secrets, and so may be what
//! follows a question mark in the address of an image.

/// From this many letters and digits in a row, a word is taken for a secret or a digest.
const RUN: usize = 24;
/// The same, with the signs that tokens and base64 have.
const LONG_RUN: usize = 40;
/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// The line without what looks like a secret: user, password and query of addresses, and long runs of letters and digits.
pub fn without_secrets(line: &str) -> String {
    line.split_inclusive(char::is_whitespace).map(|word| hide_runs(&hide_access(word))).collect()
}

/// The word without user, password and query of an address in it.
fn hide_access(word: &str) -> String {
    let Some((before, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    let trailing = &path[path.trim_end().len()..];
    let path = match path.split_once(['?', '#']) {
        Some((path, _)) => format!("{path}?{HIDDEN}{trailing}"),
        None => path.to_owned(),
    };
    format!("{before}://{authority}{path}")
}

/// The word without long runs.
fn hide_runs(word: &str) -> String {
    let is_sign = |c: char| matches!(c, '_' | '+' | '=' | '-' | '.' | '~');
    let parts = word.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !is_sign(c));
    let hidden = |part: &str| {
        let body = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && !is_sign(c));
        let longest = body.split(is_sign).map(str::len).max().unwrap_or_default();
        if longest >= RUN || (body.len() >= LONG_RUN && !body.contains('.')) {
            format!("{HIDDEN}{}", &part[body.len()..])
        } else {
            part.to_owned()
        }
    };
    parts.map(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_access_is_hidden_and_the_rest_stays() {
        let name = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let rows = [
            ("the fan of CPU 1 has failed", "the fan of CPU 1 has failed"),
            ("", ""),
            ("a  b\tc", "a  b\tc"),
            (
                &format!("mounted http://192.0.2.10:8080/shard/0/media/{name}.iso, read-only"),
                "mounted http://192.0.2.10:8080/shard/0/media/[hidden], read-only",
            ),
            (&format!("token={name}"), "[hidden]"),
            (&format!("\"{name}\" was refused"), "\"[hidden]\" was refused"),
            (
                "GET https://u:s3cret@images.example/a.qcow2?sig=s3cret 404",
                "GET https://[hidden]@images.example/a.qcow2?[hidden] 404",
            ),
            ("https://u:p@s3cret@h/", "https://[hidden]@h/"),
            (
                "https://images.example/debian-12-generic-amd64.qcow2",
                "https://images.example/debian-12-generic-amd64.qcow2",
            ),
            ("serial 4c4c4544-0044-3010-8052-b4c04f564332", "serial 4c4c4544-0044-3010-8052-b4c04f564332"),
            ("eyJhbGciOiJIUzI1NiJ9eyJzdWIiOiIx.abc", "[hidden]"),
            (
                "at machine-of-rack-seventeen.region-one.internal.example.com now",
                "at machine-of-rack-seventeen.region-one.internal.example.com now",
            ),
        ];
        for (line, expected) in rows {
            assert_eq!(without_secrets(line), expected, "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_breaks_it_and_none_grows_without_bound(line in ".{0,300}") {
            let hidden = without_secrets(&line);
            proptest::prop_assert!(hidden.len() <= line.len() + line.matches("://").count() * 2 * HIDDEN.len() + 2);
            let longest = hidden.split(|c: char| !c.is_ascii_alphanumeric()).map(str::len).max();
            proptest::prop_assert!(longest.unwrap_or_default() < RUN);
        }
    }
}
