//! The book (README, docs): the commands of each page run, in order, in one shell on a simulated site, and what the page shows of their
//! output is compared. A reader who follows a page does what this test does.
//!
//! What a page says by its form, so that it needs next to no marks:
//!
//! - a block `sh` is commands. All of them have to succeed;
//! - a block `console` is commands after `$ ` (continued after `> `), each with its output behind it. `…` stands for anything, a line of `…` alone
//!   for any lines, and any age is as good as another;
//! - a block whose last command runs until it is ended (`metamorph up`, `bmc-sim`, …) is a terminal of its own. The page goes on when the
//!   program says that it is ready; `<!-- Ctrl-C: metamorph up -->` before a later block ends it;
//! - a block that cannot run here says why in its first line, `# Not run by the tests: REASON`;
//! - all other blocks name a language that no shell runs (`yaml`, `text`).

mod examples;
mod page;
mod stage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use page::{Item, Page};

/// Most blocks that are not run, of all pages together. A new one needs a reason that is better than work.
const MOST_NOT_RUN: usize = 9;

/// A test a page.
macro_rules! pages {
    ($($test:ident $path:literal)*) => {
        /// Pages with commands.
        const PAGES: &[&str] = &[$($path),*];
        $(#[tokio::test]
        async fn $test() {
            stage::run(&page($path)).await;
        })*
    };
}

pages! {
    readme "README.md"
    backup "docs/backup.md"
    bmc "docs/bmc.md"
    erase "docs/erase.md"
    external_provisioners "docs/external-provisioners.md"
    first_server "docs/first-server.md"
    install "docs/install.md"
    keys "docs/keys.md"
    move_ "docs/move.md"
    network_data "docs/network-data.md"
    one_shot "docs/one-shot.md"
    provisioners "docs/provisioners.md"
    requests "docs/requests.md"
    support "docs/support.md"
    troubleshooting "docs/troubleshooting.md"
    without_hardware "docs/without-hardware.md"
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> Page {
    Page::parse(path, &std::fs::read_to_string(root().join(path)).unwrap()).unwrap()
}

/// README, and every page of `docs` and `examples`; what is generated has a test of its own, decisions have no commands.
fn all() -> Vec<Page> {
    let mut paths = vec!["README.md".to_owned()];
    for folder in ["docs", "examples"] {
        let mut found: Vec<String> = std::fs::read_dir(root().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "md"))
            .map(|name| format!("{folder}/{name}"))
            .collect();
        found.sort();
        paths.append(&mut found);
    }
    paths.iter().map(|path| page(path)).collect()
}

#[test]
fn every_page_with_commands_is_run_and_what_is_not_run_says_why() {
    let pages = all();
    let runs = |page: &&Page| page.items.iter().any(|item| matches!(item, Item::Run(_)));
    let with_commands: BTreeSet<&str> = pages.iter().filter(runs).map(|page| page.path.as_str()).collect();
    let listed: BTreeSet<&str> = PAGES.iter().copied().collect();
    assert_eq!(with_commands, listed, "the pages with commands, and those that tests/it/book/mod.rs runs");
    let mut reasons = Vec::new();
    for page in &pages {
        for item in &page.items {
            if let Item::NotRun { line, reason } = item {
                reasons.push(format!("{}:{line}: {reason}", page.path));
            }
        }
    }
    println!("not run:\n  {}", reasons.join("\n  "));
    assert!(reasons.len() <= MOST_NOT_RUN, "{} blocks are not run: {reasons:#?}", reasons.len());
}

#[test]
fn every_page_is_in_the_table_of_contents_and_no_link_leads_nowhere() {
    let pages = all();
    let contents = pages.iter().find(|page| page.path == "docs/README.md").unwrap();
    let mut broken = Vec::new();
    for page in &pages {
        let name = page.path.strip_prefix("docs/").unwrap_or("README.md");
        if name != "README.md" && !page.path.starts_with("examples/") && !contents.links.iter().any(|link| link == name)
        {
            broken.push(format!("docs/README.md does not name {name}"));
        }
        for link in page.links.iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = root().join(&page.path).parent().unwrap().to_owned();
            let target = if path.is_empty() { root().join(&page.path) } else { folder.join(path) };
            let sound = if anchor.is_empty() {
                target.exists()
            } else {
                std::fs::read_to_string(&target).is_ok_and(|text| page::anchors(&text).iter().any(|a| a == anchor))
            };
            if !sound {
                broken.push(format!("{} links to {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn troubleshooting_has_a_line_for_each_cause_and_no_other() {
    let source = std::fs::read_to_string(root().join("crates/provisioners/provisioner/src/failure.rs")).unwrap();
    let causes: BTreeSet<&str> =
        source.lines().filter_map(|line| line.trim().strip_prefix("(Self::")?.split(',').next()).collect();
    assert!(causes.len() > 20, "{causes:?}");
    let text = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let table = text.split("## By cause").nth(1).unwrap().split("\n## ").next().unwrap();
    let first =
        |line: &'_ str| line.strip_prefix("| `").and_then(|rest| rest.split(" | ").next()).map(ToOwned::to_owned);
    let cells: Vec<String> = table.lines().filter_map(first).collect();
    let named: BTreeSet<&str> =
        cells.iter().flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    assert_eq!(named, causes);
}

#[test]
fn the_compiler_that_readme_asks_for_is_the_declared_one() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let declared = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("Rust ({declared} or newer)")), "README does not ask for Rust {declared}");
}

#[test]
fn readme_tells_as_many_cases_of_conformance_as_are_guarded() {
    let minimum = std::fs::read_to_string(root().join("tests/conformance/minimum.yaml")).unwrap();
    let minimum: std::collections::BTreeMap<String, usize> = serde_saphyr::from_str(&minimum).unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let claim = format!("the same {},{:03} questions", minimum["all"] / 1000, minimum["all"] % 1000);
    assert!(readme.contains(&claim), "README does not say \"{claim}\"");
}
