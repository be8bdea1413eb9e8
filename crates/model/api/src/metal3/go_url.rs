//! URLs as Go's `net/url` and `net` parse them (Go 1.26), as far as upstream's webhook needs: validity, scheme, host.

use std::net::Ipv6Addr;

/// The lower-case scheme of a URL in a request line (`url.ParseRequestURI`), empty for a path; `None` if it is invalid.
#[must_use]
pub fn request_scheme(text: &str) -> Option<String> {
    let (scheme, rest) = scheme(text).ok().filter(|_| is_printable(text))?;
    let rest = rest.split('?').next().unwrap_or_default();
    let sound = match rest.strip_prefix("//") {
        Some(after) if scheme.is_some() || !after.starts_with('/') => host_of(after).is_some(),
        _ if rest.starts_with('/') => percent_is_sound(rest),
        _ => scheme.is_some(),
    };
    sound.then(|| scheme.unwrap_or_default())
}

/// Whether a URL in a request line has a path (`URL.Path`); [`request_scheme`] checks its validity.
#[must_use]
pub fn request_has_path(text: &str) -> bool {
    let Ok((scheme, rest)) = scheme(text) else { return false };
    let rest = rest.split('?').next().unwrap_or_default();
    match rest.strip_prefix("//") {
        Some(after) if scheme.is_some() => after.contains('/'),
        // After a scheme, a rest without a slash is opaque.
        _ => rest.starts_with('/'),
    }
}

/// The lower-case scheme, if any, and the rest; an error if the address begins with a colon.
pub(super) fn scheme(address: &str) -> Result<(Option<String>, &str), ()> {
    for (at, c) in address.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at > 0 => {
                let (scheme, rest) = address.split_at(at);
                return Ok((Some(scheme.to_ascii_lowercase()), rest.strip_prefix(':').unwrap_or_default()));
            }
            ':' => return Err(()),
            _ => return Ok((None, address)),
        }
    }
    Ok((None, address))
}

/// Whether there is no control character in it.
pub(super) fn is_printable(text: &str) -> bool {
    text.bytes().all(|b| b >= b' ' && b != 0x7f)
}

/// The host of `host:port` or `[v6]:port` (`net.SplitHostPort`, then the host name of a URL with that host).
pub(super) fn host_and_port(text: &str) -> Option<&str> {
    let (host, port) = text.rsplit_once(':')?;
    let inner = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains([':', '[', ']']) => return None,
        None => host,
    };
    if port.contains(['[', ']']) || inner.contains(['[', ']']) {
        return None;
    }
    // A port with characters other than digits counts as part of the host.
    Some(if port.bytes().all(|b| b.is_ascii_digit()) { inner } else { text })
}

/// The host in `authority/path`, without user, port and brackets; `None` if it cannot be read.
pub(super) fn host_of(text: &str) -> Option<&str> {
    let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    if !percent_is_sound(path) {
        return None;
    }
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
            (user.chars().all(is_allowed) && percent_is_sound(user)).then_some(host)?
        }
        None => authority,
    };
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.rsplit_once(']')?;
            (name.parse::<Ipv6Addr>().ok().map(|_| name)?, port)
        }
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || !c.is_ascii() || "-._~!$&'()*+,;=:[]<>\"%".contains(c);
    (port_fits && name.chars().all(is_allowed) && percent_is_sound(name)).then_some(name)
}

/// Whether each `%` is followed by two hexadecimal digits.
fn percent_is_sound(text: &str) -> bool {
    text.split('%').skip(1).all(|part| {
        let mut digits = part.bytes();
        let mut digit = || digits.next().is_some_and(|b| b.is_ascii_hexdigit());
        digit() && digit()
    })
}
