//! What comes from elsewhere: licences, sources and doubled versions of dependencies, by deny.toml.
//!
//! The file is cargo-deny's, and says the same to that program. What of it is read here is what it holds; a key that this does not know is an error,
//! so that nothing stands in it without effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use crate::report::Problem;

/// The list.
const LIST: &str = "deny.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licences,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bans {
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Deny,
    skip: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sources {
    #[serde(rename = "unknown-registry")]
    _unknown_registry: Deny,
    #[serde(rename = "unknown-git")]
    _unknown_git: Deny,
    #[serde(rename = "allow-registry")]
    allow_registry: Vec<String>,
}

/// The one setting that is checked.
#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Deny {
    Deny,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A package as cargo knows it; ours have no source.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

/// Asks cargo what Cargo.lock has, and holds it against the rules.
///
/// # Errors
/// The rules cannot be read, or cargo fails.
pub fn check(root: &Path) -> Result<Vec<Problem>> {
    let text = fs::read_to_string(root.join(LIST)).with_context(|| format!("reading {LIST}"))?;
    let rules: Rules = toml::from_str(&text).with_context(|| format!("reading {LIST}"))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let targets = rules.graph.targets.iter().flat_map(|target| ["--filter-platform", target]);
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(targets)
        .current_dir(root)
        .output()
        .context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("reading the answer of cargo metadata")?;
    judge(&text, &rules, &metadata.packages)
}

fn judge(text: &str, rules: &Rules, packages: &[Package]) -> Result<Vec<Problem>> {
    let allowed: Vec<Licensee> = rules
        .licenses
        .allow
        .iter()
        .map(|name| Licensee::parse(name).with_context(|| format!("{LIST}: {name} is no licence")))
        .collect::<Result<_>>()?;
    let at = |entry: &str| text.lines().position(|l| l.contains(&format!("\"{entry}\""))).map_or(1, |line| line + 1);
    let problem =
        |entry: &str, text: String| Problem { rule: "dependency", path: LIST.into(), line: at(entry), amount: 1, text };
    let mut problems = Vec::new();
    let (mut needed, mut versions) = (BTreeSet::new(), BTreeMap::<&str, BTreeSet<&str>>::new());
    for package in packages {
        let Some(source) = &package.source else { continue };
        let named = format!("{} {}", package.name, package.version);
        let known =
            source.strip_prefix("registry+").is_some_and(|url| rules.sources.allow_registry.iter().any(|a| a == url));
        if !known {
            problems.push(problem("", format!("{named} comes from {source}: take it from a registry that is allowed")));
        }
        versions.entry(&package.name).or_default().insert(&package.version);
        match met(package.license.as_deref().unwrap_or_default(), &allowed) {
            Some(by) => needed.extend(by),
            None => problems.push(problem(
                "",
                format!(
                    "{named} has the licence {:?}, which cannot be met with those that are allowed",
                    package.license
                ),
            )),
        }
    }
    let unused =
        allowed.iter().zip(&rules.licenses.allow).filter(|(licence, _)| !needed.contains(&licence.to_string()));
    problems
        .extend(unused.map(|(_, name)| problem(name, format!("no dependency needs the licence {name}: take it away"))));
    let mut skipped: BTreeSet<&str> = rules.bans.skip.iter().map(String::as_str).collect();
    for (name, found) in versions {
        let left: Vec<_> =
            found.into_iter().filter(|version| !skipped.remove(format!("{name}@{version}").as_str())).collect();
        if left.len() > 1 {
            problems.push(problem("", format!("{name} is there in versions {}: use one", left.join(" and "))));
        } else if left.is_empty() {
            problems.push(problem("", format!("all versions of {name} are skipped: take the newest out of the list")));
        }
    }
    problems.extend(
        skipped.iter().map(|entry| problem(entry, format!("{entry} is not there any more: take it out of the list"))),
    );
    Ok(problems)
}

/// Those of the allowed licences that the expression names, if it can be met with them.
fn met(expression: &str, allowed: &[Licensee]) -> Option<Vec<String>> {
    let expression = Expression::parse_mode(expression, ParseMode::LAX).ok()?;
    let find_allowed = |wanted: &spdx::LicenseReq| allowed.iter().find(|licence| licence.satisfies(wanted));
    expression
        .evaluate(|wanted| find_allowed(wanted).is_some())
        .then(|| expression.requirements().filter_map(|r| find_allowed(&r.req)).map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "[graph]\ntargets = [\"t\"]\n[licenses]\nallow = [\"MIT\", \"ISC\"]\n[bans]\nmultiple-versions = \"deny\"\nskip = [\"a@1.0.0\"]\n\
                         [sources]\nunknown-registry = \"deny\"\nunknown-git = \"deny\"\nallow-registry = [\"https://r\"]\n";

    fn judged(rules: &str, packages: &[(&str, &str, &str)]) -> Vec<String> {
        let package = |&(name, license, source): &(&str, &str, &str)| {
            let (name, version) = name.split_once('@').unwrap();
            let source = (!source.is_empty()).then(|| source.to_owned());
            Package { name: name.into(), version: version.into(), license: Some(license.into()), source }
        };
        let packages: Vec<_> = packages.iter().map(package).collect();
        judge(rules, &toml::from_str(rules).unwrap(), &packages).unwrap().into_iter().map(|p| p.text).collect()
    }

    #[test]
    fn what_fits_the_rules_is_no_problem() {
        let packages = [
            ("ours@0.1.0", "", ""),
            ("a@1.0.0", "MIT/Apache-2.0", "registry+https://r"),
            ("a@2.0.0", "Apache-2.0 AND MIT OR ISC", "registry+https://r"),
        ];
        assert_eq!(judged(RULES, &packages), [""; 0]);
    }

    #[test]
    fn licences_sources_and_doubled_versions_are_seen() {
        let fine = [("a@1.0.0", "MIT", "registry+https://r"), ("a@2.0.0", "ISC", "registry+https://r")];
        for (wrong, says) in [
            (("b@1.0.0", "GPL-3.0-only", "registry+https://r"), "licence"),
            (("b@1.0.0", "MIT AND GPL-3.0-only", "registry+https://r"), "licence"),
            (("b@1.0.0", "", "registry+https://r"), "licence"),
            (("b@1.0.0", "MIT", "git+https://r"), "comes from"),
            (("b@1.0.0", "MIT", "registry+https://other"), "comes from"),
            (("a@3.0.0", "MIT", "registry+https://r"), "versions 2.0.0 and 3.0.0"),
        ] {
            let seen = judged(RULES, &[fine[0], fine[1], wrong]);
            assert!(matches!(&seen[..], [one] if one.contains(says)), "{wrong:?}: {seen:?}");
        }
    }

    #[test]
    fn an_entry_that_nothing_needs_is_seen() {
        let one = [("b@1.0.0", "MIT OR ISC", "registry+https://r")];
        assert!(matches!(&judged(RULES, &one)[..], [skip] if skip.contains("a@1.0.0")));
        let both = [("a@1.0.0", "MIT", "registry+https://r")];
        let seen = judged(RULES, &both);
        assert!(
            seen.iter().any(|s| s.contains("ISC")) && seen.iter().any(|s| s.contains("all versions of a")),
            "{seen:?}"
        );
        toml::from_str::<Rules>(&RULES.replace("allow =", "exceptions = []\nallow =")).map(|_| ()).unwrap_err();
        toml::from_str::<Rules>(&RULES.replace("unknown-git = \"deny\"", "unknown-git = \"allow\""))
            .map(|_| ())
            .unwrap_err();
    }
}
