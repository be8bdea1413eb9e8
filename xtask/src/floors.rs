//! Who may use whom: the floors table (floors.toml) against cargo's graph, cycles, names of folders.

use std::path::Path;

use serde::Deserialize;

use crate::report::Problem;
use crate::workspace::{Crate, Use, Workspace};

/// The floors table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    floor: Vec<Floor>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Floor {
    name: String,
    folder: String,
    #[serde(default)]
    may_use: Vec<String>,
    #[serde(default)]
    may_use_crates: Vec<String>,
    #[serde(default)]
    same_floor: Vec<String>,
    #[serde(default)]
    never_uses: Vec<NeverUses>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeverUses {
    crates: Vec<String>,
    why: String,
}

impl Floors {
    /// Reads the table, and checks that the floors it names exist.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let floors: Self = toml::from_str(text)?;
        for floor in &floors.floor {
            for other in &floor.may_use {
                anyhow::ensure!(
                    floors.floor.iter().any(|f| f.name == *other),
                    "the floor {} may use {other}, which is no floor",
                    floor.name
                );
            }
        }
        Ok(floors)
    }

    fn of(&self, folder: &Path) -> Option<&Floor> {
        self.floor.iter().find(|f| folder.starts_with(&f.folder))
    }
}

impl Floor {
    fn allows(&self, user: &Crate, used: &Crate, used_floor: &Floor) -> bool {
        self.may_use.contains(&used_floor.name)
            || self.may_use_crates.contains(&used.name)
            || (self.name == used_floor.name && self.same_floor.iter().any(|pair| pair_allows(pair, user, used)))
    }
}

fn pair_allows(pair: &str, user: &Crate, used: &Crate) -> bool {
    let matches = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    pair.split_once("->").is_some_and(|(from, to)| matches(from.trim(), &user.name) && matches(to.trim(), &used.name))
}

/// Every problem of the graph.
pub fn check(floors: &Floors, workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for krate in &workspace.crates {
        let mut add = |rule, text| {
            problems.push(Problem { rule, path: krate.folder.join("Cargo.toml"), line: 1, amount: 1, text });
        };
        if krate.folder.file_name() != Some(krate.name.as_ref()) {
            let folder = krate.folder.display();
            add("folder-name", format!("the crate {} lies in {folder}: a folder is named like its crate", krate.name));
        }
        let Some(floor) = floors.of(&krate.folder) else {
            add("floors", format!("the crate {} lies on no floor of xtask/floors.toml", krate.name));
            continue;
        };
        for used in &krate.uses {
            if let Some((rule, text)) = judge(floors, workspace, krate, floor, used) {
                add(rule, text);
            }
        }
    }
    for cycle in cycles(workspace) {
        let path =
            workspace.crates.iter().find(|c| Some(&c.name) == cycle.first()).map(|c| c.folder.join("Cargo.toml"));
        let text = format!("crates use each other in a circle: {}", cycle.join(" -> "));
        problems.push(Problem { rule: "cycle", path: path.unwrap_or_default(), line: 1, amount: 1, text });
    }
    problems
}

fn judge(floors: &Floors, all: &Workspace, user: &Crate, floor: &Floor, used: &Use) -> Option<(&'static str, String)> {
    if !used.ours {
        let never = floor.never_uses.iter().find(|n| !used.dev && n.crates.contains(&used.name))?;
        let text = format!("{} (floor {}) uses {}: {}", user.name, floor.name, used.name, never.why);
        return Some(("never-uses", text));
    }
    let target = all.crates.iter().find(|c| c.name == used.name)?;
    let target_floor = floors.of(&target.folder)?;
    if floor.allows(user, target, target_floor) {
        return None;
    }
    let kind = if used.dev { " in its tests" } else { "" };
    let (from, to) = (&floor.name, &target_floor.name);
    Some(("floors", format!("{} (floor {from}) may not use {} (floor {to}){kind}", user.name, used.name)))
}

/// Circles among our crates, dev-dependencies included, each once, beginning with its first name in the alphabet.
fn cycles(workspace: &Workspace) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    for start in &workspace.crates {
        let mut path = vec![start.name.clone()];
        walk(workspace, start, &start.name, &mut path, &mut found);
    }
    found
}

fn walk(all: &Workspace, at: &Crate, start: &str, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for used in at.uses.iter().filter(|u| u.ours) {
        if used.name == start {
            let mut cycle = path.clone();
            cycle.push(start.to_owned());
            if !found.contains(&cycle) {
                found.push(cycle);
            }
        } else if used.name.as_str() > start
            && !path.contains(&used.name)
            && let Some(next) = all.crates.iter().find(|c| c.name == used.name)
        {
            path.push(next.name.clone());
            walk(all, next, start, path, found);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(folder: &str, uses: &[&str]) -> Crate {
        let uses = uses.iter().map(|name| {
            let (dev, name) = name.strip_prefix("dev:").map_or((false, *name), |n| (true, n));
            let (ours, name) = name.strip_prefix("ext:").map_or((true, name), |n| (false, n));
            Use { name: name.into(), ours, dev }
        });
        let name = folder.rsplit('/').next().unwrap_or_default().to_owned();
        Crate { name, folder: folder.into(), uses: uses.collect() }
    }

    fn rules(crates: &[Crate]) -> Vec<&'static str> {
        let floors = Floors::parse(include_str!("../floors.toml")).unwrap();
        check(&floors, &Workspace { crates: crates.to_vec() }).into_iter().map(|p| p.rule).collect()
    }

    #[test]
    fn the_floors_of_the_design_are_allowed() {
        let house = [
            krate("crates/model/api", &["inventory"]),
            krate("crates/model/inventory", &["ext:serde"]),
            krate("crates/logic/host-lifecycle", &["api"]),
            krate("crates/devices/bmc", &["api"]),
            krate("crates/devices/redfish", &["bmc", "host-lifecycle"]),
            krate("crates/provisioners/provisioner", &["api", "bmc"]),
            krate("crates/provisioners/provisioner-metamorph", &["provisioner", "bmc"]),
            krate("crates/control/operator", &["provisioner", "api", "ext:kube"]),
            krate("apps/metamorph", &["operator", "provisioner-metamorph", "redfish"]),
            krate("sim/bmc-sim", &["api", "inventory"]),
            krate("tests/e2e", &["metamorph", "bmc-sim"]),
            krate("xtask", &["host-lifecycle"]),
        ];
        assert_eq!(rules(&house), [""; 0]);
    }

    #[test]
    fn upward_and_sideways_uses_are_seen() {
        for (user, used) in [
            ("crates/model/api", "crates/logic/host-lifecycle"),
            ("crates/model/inventory", "crates/model/api"),
            ("crates/logic/a", "crates/logic/b"),
            ("crates/logic/a", "crates/devices/bmc"),
            ("crates/devices/bmc", "crates/devices/redfish"),
            ("crates/devices/disk-image", "crates/devices/bmc"),
            ("crates/provisioners/provisioner", "crates/provisioners/provisioner-ironic"),
            ("crates/provisioners/provisioner-ironic", "crates/provisioners/provisioner-metamorph"),
            ("crates/control/operator", "crates/provisioners/provisioner-metamorph"),
            ("crates/provisioners/provisioner-metamorph", "crates/devices/redfish"),
            ("crates/control/operator", "crates/devices/redfish"),
            ("crates/control/operator", "crates/kubernetes/apiserver"),
            ("apps/metamorph", "sim/bmc-sim"),
            ("sim/bmc-sim", "crates/devices/redfish"),
            ("sim/bmc-sim", "crates/model/agent-protocol"),
            ("apps/metamorph", "tests/e2e"),
        ] {
            let used_crate = krate(used, &[]);
            for name in [used_crate.name.clone(), format!("dev:{}", used_crate.name)] {
                let tree = [krate(user, &[&name]), used_crate.clone()];
                assert_eq!(rules(&tree), ["floors"], "{user} -> {name}");
            }
        }
    }

    #[test]
    fn a_crate_on_no_floor_is_seen() {
        assert_eq!(rules(&[krate("somewhere/a", &[])]), ["floors"]);
    }

    #[test]
    fn foreign_crates_have_their_floors_too() {
        assert_eq!(rules(&[krate("crates/logic/a", &["ext:tokio"])]), ["never-uses"]);
        assert_eq!(rules(&[krate("crates/devices/a", &["ext:kube"])]), ["never-uses"]);
        assert_eq!(rules(&[krate("crates/logic/a", &["dev:ext:tokio", "ext:serde"])]), [""; 0]);
    }

    #[test]
    fn folders_are_named_like_their_crates() {
        let mut wrong = krate("crates/logic/a", &[]);
        wrong.name = "b".into();
        assert_eq!(rules(&[wrong]), ["folder-name"]);
    }

    #[test]
    fn circles_through_dev_dependencies_are_seen_once() {
        let tree = [krate("tests/a", &["b"]), krate("tests/b", &["c"]), krate("tests/c", &["dev:a"])];
        assert_eq!(rules(&tree), ["cycle"]);
        let cycle = [krate("xtask/a", &["dev:a"])];
        assert!(rules(&cycle).contains(&"cycle"));
    }

    #[test]
    fn a_table_with_an_unknown_floor_is_refused() {
        assert!(Floors::parse("[[floor]]\nname = \"a\"\nfolder = \"a\"\nmay_use = [\"b\"]").is_err());
        assert!(Floors::parse("[[floor]]\nname = \"a\"\nfolder = \"a\"\nmay = []").is_err());
    }
}
