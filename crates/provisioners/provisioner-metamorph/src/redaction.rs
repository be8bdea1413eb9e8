//! Lines for people who may see a host and not what its BMC and its agents were given: addresses of media and agents' tokens are secrets, and so may be what
//! follows a question mark in the address of an image.

/// From this many letters and digits in a row, a word is taken for a secret or a digest.
const RUN: usize = 24;
/// The same, with the signs that tokens and base64 have.
const LONG_RUN: usize = 40;
/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// Words after which a secret may stand, in lower case and without signs.
const BEFORE_SECRETS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "token",
    "secret",
    "bearer",
    "authorization",
    "apikey",
    "privatekey",
    "community",
];
/// Words after which one stands behind an equals sign alone: a colon behind them begins what is said of them.
const BEFORE_EQUALS: [&str; 2] = ["credential", "credentials"];
/// Behind this, all of the line gives access.
const COOKIE: &str = "cookie";
/// Schemes of Authorization: what gives access is the word behind.
const SCHEMES: [&str; 4] = ["basic", "digest", "negotiate", "ntlm"];
/// Signs that a name is looked for in before a value, from its end.
const LONGEST_NAME: usize = 64;

/// What of the next words is told by a word for a password.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Nothing,
    /// The next word.
    Word,
    /// A scheme of authorization, and then the next word; or that at once.
    Scheme,
    /// All up to this quotation mark.
    Quoted(char),
    /// All of the line.
    Line,
}

/// What went before in the line.
struct Before {
    follows: Follows,
    /// The last piece is a name of a secret, and its sign may follow.
    named: Option<Name>,
}

/// What a name says of what stands behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Secret,
    /// Of one behind an equals sign.
    Equals,
    Authorization,
    Cookie,
}

impl Name {
    /// What follows behind this sign.
    fn follows(self, sign: char) -> Follows {
        match self {
            Self::Equals if sign == ':' => Follows::Nothing,
            Self::Secret | Self::Equals => Follows::Word,
            Self::Authorization => Follows::Scheme,
            Self::Cookie => Follows::Line,
        }
    }
}

/// The line without what looks like a secret: user, password and query of addresses, what follows a word for a password, and long runs of letters and digits.
pub fn without_secrets(line: &str) -> String {
    let mut before = Before { follows: Follows::Nothing, named: None };
    let mut out = String::new();
    for word in line.split_inclusive(char::is_whitespace) {
        let body = word.trim_end();
        let mut told = String::new();
        // An address is one thing, whatever signs are in it.
        let ends: &[char] = if body.contains("://") { &[] } else { &[',', '&', ';', '{', '}', '(', ')'] };
        for piece in body.split_inclusive(ends) {
            told.push_str(&hide_told(piece, &mut before));
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

/// Whether it ends in a word after which a secret stands: `api-key` as `apikey`.
fn name_of_secret(text: &str) -> Option<Name> {
    let end = text.chars().rev().take(LONGEST_NAME).filter(char::is_ascii_alphanumeric);
    let mut end: Vec<char> = end.map(|c| c.to_ascii_lowercase()).collect();
    end.reverse();
    let end: String = end.into_iter().collect();
    if end.ends_with("authorization") {
        Some(Name::Authorization)
    } else if end.ends_with(COOKIE) {
        Some(Name::Cookie)
    } else if BEFORE_SECRETS.iter().any(|name| end.ends_with(name)) {
        Some(Name::Secret)
    } else {
        BEFORE_EQUALS.iter().any(|name| end.ends_with(name)).then_some(Name::Equals)
    }
}

/// A piece of a word without what is told in it of a password, or is one by what went before.
fn hide_told(piece: &str, before: &mut Before) -> String {
    let named = before.named.take();
    match before.follows {
        Follows::Quoted(quote) => {
            if piece.contains(quote) {
                before.follows = Follows::Nothing;
            }
            return String::new();
        }
        Follows::Line if !plain(piece).is_empty() => return HIDDEN.to_owned(),
        Follows::Word | Follows::Scheme if !plain(piece).is_empty() => return hide_value(piece, before),
        Follows::Nothing | Follows::Word | Follows::Scheme | Follows::Line => {}
    }
    if let Some(name) = named
        && let Some(sign) = piece.chars().next().filter(|sign| matches!(sign, '=' | ':'))
    {
        // `password = …`: the sign stands by itself.
        let end = piece.find(|c| !matches!(c, '=' | ':' | '>')).unwrap_or(piece.len());
        return hide_behind(piece, end, name.follows(sign), before);
    }
    for (at, sign) in piece.match_indices(['=', ':']) {
        let follows =
            piece.get(..at).and_then(name_of_secret).map(|name| name.follows(if sign == ":" { ':' } else { '=' }));
        if let Some(follows) = follows.filter(|follows| *follows != Follows::Nothing) {
            return hide_behind(piece, at + sign.len(), follows, before);
        }
    }
    before.named = name_of_secret(piece);
    let option = piece.trim_start_matches(['"', '\'', '[']).starts_with('-') && !piece.contains(['=', ':']);
    match plain(piece).as_str() {
        "bearer" => before.follows = Follows::Word,
        "authorization" => before.follows = Follows::Scheme,
        // `--password …`.
        _ if option && before.named.is_some() => before.follows = Follows::Word,
        _ => {}
    }
    piece.to_owned()
}

/// A piece without what stands in it from there on, or in the next one.
fn hide_behind(piece: &str, at: usize, follows: Follows, before: &mut Before) -> String {
    let (name, value) = piece.split_at(at);
    before.follows = follows;
    if plain(value).is_empty() {
        return piece.to_owned();
    }
    if follows == Follows::Line {
        return format!("{name}{HIDDEN}");
    }
    format!("{name}{}", hide_value(value, before))
}

/// What stands in place of a secret. One in quotation marks may go on.
fn hide_value(value: &str, before: &mut Before) -> String {
    // `Authorization: Bearer …`, `Authorization: Basic …`.
    let name = name_of_secret(value).is_some_and(|name| name != Name::Equals);
    if name || (before.follows == Follows::Scheme && SCHEMES.contains(&plain(value).as_str())) {
        before.follows = Follows::Word;
        return value.to_owned();
    }
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''));
    before.follows = match quote {
        Some(quote) if value.matches(quote).count() == 1 => Follows::Quoted(quote),
        _ => Follows::Nothing,
    };
    let end = value.trim_end_matches([',', '&', ';', '{', '}', '(', ')']).len();
    format!("{HIDDEN}{}", value.get(end..).unwrap_or_default())
}

/// The word without user, password and query of each address in it.
fn hide_access(word: &str) -> String {
    let mut out = String::new();
    // `user:password@host`; a digest behind the sign is an image's.
    if !word.contains("://")
        && let Some((access, host)) = word.rsplit_once('@')
        && access.contains(':')
        && !["sha256:", "sha512:"].iter().any(|kind| host.starts_with(kind))
    {
        return format!("{HIDDEN}@{host}");
    }
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
        if longest >= RUN || (body.len() >= LONG_RUN && !body.contains('.')) || body.split('.').any(is_drawn) {
            format!("{HIDDEN}{}", &part[body.len()..])
        } else {
            part.to_owned()
        }
    };
    parts.map(hidden).collect()
}

/// Whether it looks drawn at random and written in base64, whose signs cut it into short runs: names of files and machines as long have letters of one case.
fn is_drawn(piece: &str) -> bool {
    let has = |is: fn(&char) -> bool| piece.chars().any(|c| is(&c));
    piece.len() >= LONG_RUN && has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase)
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
            ("Authorization: Basic YWRtaW46aHVudGVy", "Authorization: Basic [hidden]"),
            ("Authorization=Basic YWRtaW46aHVudGVy", "Authorization=Basic [hidden]"),
            ("\"Authorization\":\"Basic YWRtaW46aHVudGVy\"", "\"Authorization\":\"Basic [hidden]"),
            ("Proxy-Authorization: Negotiate abc then", "Proxy-Authorization: Negotiate [hidden] then"),
            ("Authorization: s3cret", "Authorization: [hidden]"),
            ("password: basic", "password: [hidden]"),
            ("password = s3cret now", "password = [hidden] now"),
            ("password =s3cret now", "password =[hidden] now"),
            ("{\"Password\" : \"s3cret\"}", "{\"Password\" : [hidden]}"),
            ("exec x --password s3cret -v", "exec x --password [hidden] -v"),
            ("[\"--api-token\",\"s3cret\"]", "[\"--api-token\",[hidden]"),
            ("api-key: s3cret api_key=s3cret", "api-key: [hidden] api_key=[hidden]"),
            ("X-API-Key: s3cret", "X-API-Key: [hidden]"),
            ("private-key=s3cret passcode=s3cret", "private-key=[hidden] passcode=[hidden]"),
            ("Cookie: s=s3cret; t=s3cret", "Cookie: [hidden] [hidden]"),
            ("Set-Cookie: s=s3cret", "Set-Cookie: [hidden]"),
            ("credential=s3cret", "credential=[hidden]"),
            ("the BMC refuses the credentials: status 401", "the BMC refuses the credentials: status 401"),
            ("community=s3cret", "community=[hidden]"),
            ("at admin:s3cret@192.0.2.7 now", "at [hidden]@192.0.2.7 now"),
            ("root@node-0 says", "root@node-0 says"),
            ("--password-file /run/x", "--password-file /run/x"),
            ("the password of root was changed", "the password of root was changed"),
            ("token expired at 10:00", "token expired at 10:00"),
            (
                "https://images.example/debian-12-generic-amd64.qcow2",
                "https://images.example/debian-12-generic-amd64.qcow2",
            ),
            ("serial 4c4c4544-0044-3010-8052-b4c04f564332", "serial 4c4c4544-0044-3010-8052-b4c04f564332"),
            ("eyJhbGciOiJIUzI1NiJ9eyJzdWIiOiIx.abc", "[hidden]"),
            (
                "http://h/debian-12-genericcloud-amd64-daily-20241105-1921.qcow2",
                "http://h/debian-12-genericcloud-amd64-daily-20241105-1921.qcow2",
            ),
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
        fn what_is_derived_is_hidden_whatever_signs_it_has(key: [u8; 32], number: u64) {
            let uid = "4c4c4544-0044-3010-8052-b4c04f564332";
            let path = boot_media::derive::path(&key, uid, number, &key);
            let (events, context) = boot_media::derive::events(&key, uid);
            let given = [
                path.rsplit('/').next().unwrap_or_default().trim_end_matches(".iso").to_owned(),
                boot_media::derive::token(&key, uid, number),
                boot_media::derive::discovery_credential(&key, uid, number).split('.').nth(1).unwrap_or_default().to_owned(),
                events.clone(),
                context,
            ];
            let line = format!(
                "http://192.0.2.1:80{path} http://192.0.2.1:80{} ({}) {} mounted '{path}', given {}.",
                boot_media::derive::events_path(&events),
                boot_media::derive::credential(&key, uid, number),
                boot_media::derive::discovery_credential(&key, uid, number),
                given[4],
            );
            let hidden = without_secrets(&line);
            for secret in given {
                proptest::prop_assert!(!hidden.contains(&secret), "{hidden}");
            }
        }

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
