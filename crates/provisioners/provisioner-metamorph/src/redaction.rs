//! Lines for people who may see a host and not what its BMC and its agents were given: addresses of media and agents' tokens are secrets, and so may be what
//! follows a question mark in the address of an image.

/// From this many letters and digits in a row, a word is taken for a secret or a digest.
const RUN: usize = 24;
/// The same, with the signs that tokens and base64 have.
const LONG_RUN: usize = 40;
/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// Words after which a secret may stand, in lower case.
const BEFORE_SECRETS: [&str; 9] =
    ["password", "passwd", "passphrase", "pwd", "token", "secret", "bearer", "authorization", "apikey"];

/// What of the next words is told by a word for a password.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Nothing,
    /// The next word.
    Word,
    /// All up to this quotation mark.
    Quoted(char),
}

/// The line without what looks like a secret: user, password and query of addresses, what follows a word for a password, and long runs of letters and digits.
pub fn without_secrets(line: &str) -> String {
    let mut follows = Follows::Nothing;
    let mut out = String::new();
    for word in line.split_inclusive(char::is_whitespace) {
        let body = word.trim_end();
        let mut told = String::new();
        // An address is one thing, whatever signs are in it.
        let ends: &[char] = if body.contains("://") { &[] } else { &[',', '&', ';', '{', '}', '(', ')'] };
        for piece in body.split_inclusive(ends) {
            told.push_str(&hide_told(piece, &mut follows));
        }
        out.push_str(&hide_runs(&hide_access(&told)));
        out.push_str(word.get(body.len()..).unwrap_or_default());
    }
    out
}

/// The text without signs before and behind it, in lower case.
fn plain(text: &str) -> String {
    text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase()
}

/// Whether it ends in a word after which a secret stands.
fn names_secret(text: &str) -> bool {
    let text = plain(text);
    BEFORE_SECRETS.iter().any(|name| text.ends_with(name))
}

/// A piece of a word without what is told in it of a password, or is one by what went before.
fn hide_told(piece: &str, follows: &mut Follows) -> String {
    match *follows {
        Follows::Quoted(quote) => {
            if piece.contains(quote) {
                *follows = Follows::Nothing;
            }
            return String::new();
        }
        Follows::Word if !plain(piece).is_empty() => {
            // `Authorization: Bearer …`.
            if names_secret(piece) {
                return piece.to_owned();
            }
            return hide_value(piece, follows);
        }
        Follows::Nothing | Follows::Word => {}
    }
    let told = |(at, _): &(usize, &str)| piece.get(..*at).is_some_and(names_secret);
    if let Some((at, sign)) = piece.match_indices(['=', ':']).find(told) {
        let (name, value) = piece.split_at(at + sign.len());
        if plain(value).is_empty() {
            *follows = Follows::Word;
            return piece.to_owned();
        }
        return format!("{name}{}", hide_value(value, follows));
    }
    if matches!(plain(piece).as_str(), "bearer" | "authorization") {
        *follows = Follows::Word;
    }
    piece.to_owned()
}

/// What stands in place of a secret. One in quotation marks may go on.
fn hide_value(value: &str, follows: &mut Follows) -> String {
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    *follows = match quote {
        Some(quote) if value.matches(quote).count() == 1 => Follows::Quoted(quote),
        _ => Follows::Nothing,
    };
    let end = value.trim_end_matches([',', '&', ';', '{', '}', '(', ')']).len();
    format!("{HIDDEN}{}", value.get(end..).unwrap_or_default())
}

/// The word without user, password and query of each address in it.
fn hide_access(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        // Up to where the next address begins: a password may have any sign but these three.
        let next = after.find("://").and_then(|at| {
            let scheme = after.get(..at)?.rfind(|c: char| !c.is_ascii_alphanumeric())? + 1;
            after.get(..scheme)?.ends_with([',', ';', '|', '"', '\'', '<', '>', '(', '=']).then_some(scheme)
        });
        let (address, others) = after.split_at(next.unwrap_or(after.len()));
        let (authority, path) = address.split_at(address.find(['/', '?', '#']).unwrap_or(address.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) => out.extend([HIDDEN, "@", host]),
            None => out.push_str(authority),
        }
        match path.split_once(['?', '#']) {
            Some((path, _)) => out.extend([path, "?", HIDDEN, if others.is_empty() { "" } else { "," }]),
            None => out.push_str(path),
        }
        rest = others;
    }
    out.push_str(rest);
    out
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
            (&format!("token={name}"), "token=[hidden]"),
            ("https://u:s3,c;r'e|t@h/", "https://[hidden]@h/"),
            (&format!("\"{name}\" was refused"), "\"[hidden]\" was refused"),
            (
                "GET https://u:s3cret@images.example/a.qcow2?sig=s3cret 404",
                "GET https://[hidden]@images.example/a.qcow2?[hidden] 404",
            ),
            ("https://u:p@s3cret@h/", "https://[hidden]@h/"),
            ("http://a/x?y,https://u:s3cret@h/z", "http://a/x?[hidden],https://[hidden]@h/z"),
            ("http://a,https://u:s3cret@h/", "http://a,https://[hidden]@h/"),
            ("password=s3cret", "password=[hidden]"),
            ("user=root Password: s3cret was set", "user=root Password: [hidden] was set"),
            ("{\"token\":\"s3cret\"}", "{\"token\":[hidden]}"),
            ("Authorization: Bearer s3cret, then", "Authorization: Bearer [hidden], then"),
            ("{\"UserName\":\"root\",\"Password\":\"s3cret\"}", "{\"UserName\":\"root\",\"Password\":[hidden]}"),
            ("UserName=root&Password=s3cret&a=b", "UserName=root&Password=[hidden]&a=b"),
            ("error:password=s3cret", "error:password=[hidden]"),
            ("password: \"s3 cret\" was set", "password: [hidden]  was set"),
            ("http://a/\u{201c}https://b/", "http://a/\u{201c}https://b/"),
            ("the password of root was changed", "the password of root was changed"),
            ("token expired at 10:00", "token expired at 10:00"),
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
        fn no_line_breaks_it_and_none_grows_without_bound(
            parts in proptest::collection::vec(".{0,40}", 1..8), sign in proptest::sample::select(vec!["", "://", "=", "password=\"", "token: "]),
        ) {
            let line = parts.join(sign);
            let hidden = without_secrets(&line);
            proptest::prop_assert!(hidden.len() <= line.len() * (HIDDEN.len() + 2));
            let longest = hidden.split(|c: char| !c.is_ascii_alphanumeric()).map(str::len).max();
            proptest::prop_assert!(longest.unwrap_or_default() < RUN);
        }
    }
}
