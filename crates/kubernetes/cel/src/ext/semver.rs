//! Semantic versions, as `blang/semver` reads them.

use std::cmp::Ordering;

use crate::fault::Fault;

/// A version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    pre: Vec<String>,
}

impl Semver {
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let parts = self.pre.iter().zip(&other.pre).map(|(a, b)| compare_part(a, b));
                parts.fold(Ordering::Equal, Ordering::then).then(self.pre.len().cmp(&other.pre.len()))
            }
        })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Err(Fault::new("Version string empty"));
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err(Fault::new("No Major.Minor.Patch elements found"));
        };
        let (rest, build) = rest.split_once('+').map_or((*rest, None), |(a, b)| (a, Some(b)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(a, b)| (a, Some(b)));
        let mut numbers = [0; 3];
        for ((slot, part), name) in numbers.iter_mut().zip([*major, *minor, patch]).zip(["Major", "Minor", "Patch"]) {
            *slot = number(part, name)?;
        }
        let mut identifiers = Vec::new();
        for part in pre.into_iter().flat_map(|p| p.split('.')) {
            identifier(part, "Prerelease")?;
            if part.len() > 1 && part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit()) {
                return Err(Fault::new(format!("Numeric PreRelease version must not contain leading zeroes {part:?}")));
            }
            identifiers.push(part.to_owned());
        }
        for part in build.into_iter().flat_map(|b| b.split('.')) {
            identifier(part, "Build meta data")?;
        }
        Ok(Self { numbers, pre: identifiers })
    }

    pub(crate) fn lenient(text: &str) -> Result<Self, Fault> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            if part.len() > 1 {
                let trimmed = part.trim_start_matches('0');
                let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
                *part = if digit { trimmed.to_owned() } else { format!("0{trimmed}") };
            }
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|p| p.contains(['+', '-'])) {
                return Err(Fault::new("short version cannot contain PreRelease/Build meta data"));
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

fn number(part: &str, name: &str) -> Result<u64, Fault> {
    if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fault::new(format!("Invalid character(s) found in {} number {part:?}", name.to_lowercase())));
    }
    if part.len() > 1 && part.starts_with('0') {
        return Err(Fault::new(format!("{name} number must not contain leading zeroes {part:?}")));
    }
    part.parse().map_err(|_| Fault::new(format!("strconv.ParseUint: parsing {part:?}: value out of range")))
}

fn identifier(part: &str, name: &str) -> Result<(), Fault> {
    if part.is_empty() {
        return Err(Fault::new(format!("{name} is empty")));
    }
    if !part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(Fault::new(format!("Invalid character(s) found in {} {part:?}", name.to_lowercase())));
    }
    Ok(())
}

fn compare_part(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        _ => a.cmp(b),
    }
}
