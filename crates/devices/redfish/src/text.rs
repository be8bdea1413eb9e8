//! Texts from BMCs made fit for a status message: bounded, on one line, without secrets.

/// Longest text taken from one field, characters.
pub const MAX_FIELD: usize = 300;

/// The text on one line: control characters and runs of blanks become one blank; cut after `most` characters.
pub fn clean(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    // Bounded before anything else: a text of megabytes is not walked to its end.
    for c in text.chars().take(most.saturating_mul(4)) {
        let c = if c.is_control() || c.is_whitespace() || is_invisible(c) { ' ' } else { c };
        if c == ' ' && (out.is_empty() || out.ends_with(' ')) {
            continue;
        }
        if count == most {
            out.push('…');
            return out;
        }
        out.push(c);
        count += 1;
    }
    out.truncate(out.trim_end().len());
    out
}

/// Characters that reorder or hide text around them.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Words that stand in every second message.
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

/// The text with each secret (of four characters or more) replaced.
///
/// Where a secret is an everyday word, hiding each «password» would tell that this is the password; only what looks like a value is hidden:
/// in quotation marks, or right behind an equals sign or colon.
pub fn redact(text: &str, secrets: &[&str]) -> String {
    let mut out = text.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= 4) {
        if out.contains(secret) {
            out = if EVERYDAY.contains(&secret.to_ascii_lowercase().as_str()) {
                without_values(&out, secret)
            } else {
                out.replace(secret, "[hidden]")
            };
        }
    }
    out
}

fn without_values(text: &str, secret: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(secret) {
        let after = &rest[at + secret.len()..];
        out.push_str(&rest[..at]);
        let quoted = out.ends_with(is_quote) && after.starts_with(is_quote);
        let value = out.ends_with(['=', ':']);
        out.push_str(if quoted || value { "[hidden]" } else { secret });
        rest = after;
    }
    out + rest
}

const fn is_quote(c: char) -> bool {
    matches!(c, '\'' | '"' | '`' | '«' | '»' | '‘' | '’' | '“' | '”')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_bounded_line() {
        assert_eq!(clean(" a\r\n\tb\u{0}\u{1b}[2Jc\u{202e}d ", 100), "a b [2Jc d");
        assert_eq!(clean("abcdef", 3), "abc…");
        assert_eq!(clean(&" ".repeat(1_000_000), 3), "");
        assert_eq!(clean("abc", 3), "abc");
    }

    #[test]
    fn secrets_are_hidden() {
        assert_eq!(redact("login calvin failed", &["calvin", "in"]), "login [hidden] failed");
        let text = "the password 'password' of \"Password\":\"password\" or password=password is wrong";
        let told = "the password '[hidden]' of \"Password\":\"[hidden]\" or password=[hidden] is wrong";
        assert_eq!(redact(text, &["password"]), told);
    }
}
