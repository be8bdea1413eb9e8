//! URLs as people are told them: a log or an Event is read by more of them than the URL is meant for.

use url::Url;

/// The URL without user, password and fragment; `?…` stands for its query, which may hold a signature.
#[must_use]
pub fn without_secrets(url: &Url) -> String {
    let mut printable = url.clone();
    // Both fail only for URLs that can have no user.
    let _ = printable.set_username("");
    let _ = printable.set_password(None);
    printable.set_query(None);
    printable.set_fragment(None);
    format!("{printable}{}", if url.query().is_some() { "?…" } else { "" })
}

/// The same of a text, as somebody has typed it: what holds no secret stays as it is, and of what is no URL nothing is shown that may be one.
#[must_use]
pub fn text_without_secrets(text: &str) -> String {
    match Url::parse(text) {
        Ok(url) if !url.cannot_be_a_base() => {
            let open = url.username().is_empty() && url.password().is_none();
            if open && url.query().is_none() && url.fragment().is_none() {
                text.to_owned()
            } else {
                without_secrets(&url)
            }
        }
        _ => guessed(text),
    }
}

/// What stands before the last `@` may be a password, and what follows `?` or `#` a signature.
fn guessed(text: &str) -> String {
    let is_scheme = |before: &str| before.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let (scheme, rest) = text
        .split_once("://")
        .filter(|(before, _)| is_scheme(before))
        .and_then(|(before, _)| text.split_at_checked(before.len() + 3))
        .unwrap_or(("", text));
    let at = rest.rfind('@');
    let end = rest.find(['?', '#']);
    match (at, end) {
        (None, None) => text.to_owned(),
        (None, Some(end)) => format!("{scheme}{}?…", rest.get(..end).unwrap_or_default()),
        (Some(at), None) => format!("{scheme}{}", rest.get(at + 1..).unwrap_or_default()),
        // Whether the one is part of a password or the other of a query cannot be known.
        (Some(_), Some(_)) => format!("{scheme}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_left_out() {
        let signed = "https://user:pass@images.example/a/b.img?X-Signature=abc#part";
        assert_eq!(text_without_secrets(signed), "https://images.example/a/b.img?…");
        assert_eq!(without_secrets(&Url::parse("http://h/i?a=b").unwrap()), "http://h/i?…");
        for (typed, printable) in [
            ("http://user:pass@h:99999/x", "http://h:99999/x"),
            ("user:pass@h/x", "h/x"),
            ("user:pa//ss@h/x", "h/x"),
            ("user:pa://ss@h/x", "h/x"),
            ("http://user:pa#ss@h/x", "http://…"),
            ("https://[::1/x?sig=secret", "https://[::1/x?…"),
            ("https://[::1/x?sig=@secret", "https://…"),
            ("ftp://user:pass@h/x", "ftp://h/x"),
            ("http://h/i#secret", "http://h/i"),
        ] {
            assert_eq!(text_without_secrets(typed), printable);
        }
        for plain in ["https://images.example/a/b.img", "oci://registry.example/a:1", "no address"] {
            assert_eq!(text_without_secrets(plain), plain);
        }
    }
}
