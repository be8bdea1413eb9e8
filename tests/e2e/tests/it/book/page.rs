//! A page of the book as what is to be done with it.

use anyhow::{Context, bail, ensure};

/// How a block begins that cannot run.
const NOT_RUN: &str = "# Not run by the tests: ";
/// Languages of blocks that are no commands.
const DISPLAYED: [&str; 5] = ["yaml", "text", "json", "toml", "mermaid"];
/// Programs that run until they are ended, and what they say when they are ready.
const LASTING: [(&str, &str); 6] = [
    ("metamorph up", "Metamorph is up"),
    ("metamorph operator", "looks after the hosts"),
    ("metamorph api serve", "API is up"),
    ("metamorph host watch", "."),
    ("bmc-sim", "\"machines\""),
    ("metamorph provisioner serve", "listening"),
];

/// A page.
pub struct Page {
    /// From the repository's root.
    pub path: String,
    /// In order.
    pub items: Vec<Item>,
    /// Targets of its links.
    pub links: Vec<String>,
}

/// Something to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// Commands.
    Run(Run),
    /// Ends a program that was left running.
    CtrlC {
        /// Its name, as in [`LASTING`].
        program: String,
    },
    /// A block that is not run.
    NotRun {
        /// Line of the page, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
}

/// Commands that belong together.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// Line of the page where they begin, from 1.
    pub line: usize,
    /// For bash.
    pub command: String,
    /// What the page shows of their output.
    pub shows: Vec<String>,
    /// The program that is left running, and what it says when it is ready.
    pub lasting: Option<(&'static str, &'static str)>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// When a block has no end or no language, or nothing in it.
    pub fn parse(path: &str, text: &str) -> anyhow::Result<Self> {
        let mut page = Self { path: path.to_owned(), items: Vec::new(), links: Vec::new() };
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if let Some(program) = line.strip_prefix("<!-- Ctrl-C: ").and_then(|rest| rest.strip_suffix(" -->")) {
                ensure!(
                    LASTING.iter().any(|(name, _)| *name == program),
                    "{path}:{}: nobody leaves {program} running",
                    index + 1
                );
                page.items.push(Item::CtrlC { program: program.to_owned() });
            }
            let Some(language) = line.strip_prefix("```") else {
                page.links.extend(links(line));
                continue;
            };
            let mut body = Vec::new();
            loop {
                match lines.next() {
                    Some((_, "```")) => break,
                    Some((_, line)) => body.push(line),
                    None => bail!("{path}:{}: the block has no end", index + 1),
                }
            }
            page.block(language.trim(), index + 2, &body).with_context(|| format!("{path}:{}", index + 1))?;
        }
        Ok(page)
    }

    fn block(&mut self, language: &str, line: usize, body: &[&str]) -> anyhow::Result<()> {
        let first = body.first().context("the block is empty")?;
        if let Some(reason) = first.strip_prefix(NOT_RUN) {
            ensure!(reason.len() >= 10, "\"{reason}\" is no reason");
            self.items.push(Item::NotRun { line, reason: reason.to_owned() });
            return Ok(());
        }
        match language {
            "sh" => self.items.push(Item::Run(Run::new(line, body.join("\n")))),
            "console" => {
                let mut run: Option<Run> = None;
                for (offset, text) in body.iter().enumerate() {
                    if let Some(command) = text.strip_prefix("$ ") {
                        self.items.extend(run.replace(Run::new(line + offset, command.to_owned())).map(Item::Run));
                        continue;
                    }
                    let run = run.as_mut().context("the block begins with no command (\"$ \")")?;
                    match text.strip_prefix("> ") {
                        Some(more) if run.shows.is_empty() => {
                            *run = Run::new(run.line, format!("{}\n{more}", run.command))
                        }
                        _ => run.shows.push((*text).to_owned()),
                    }
                }
                self.items.extend(run.map(Item::Run));
            }
            language if DISPLAYED.contains(&language) => {}
            other => {
                bail!("the block's language is \"{other}\"; sh and console are run, {} are not", DISPLAYED.join(", "))
            }
        }
        Ok(())
    }
}

impl Run {
    fn new(line: usize, command: String) -> Self {
        let lasting = lasting(&command);
        Self { line, command, shows: Vec::new(), lasting }
    }
}

/// The program that the last line of these commands leaves running.
fn lasting(command: &str) -> Option<(&'static str, &'static str)> {
    let joined = command.replace("\\\n", " ");
    let last = joined.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with('#'))?.trim();
    let (program, rest) = last.split_once(' ').unwrap_or((last, ""));
    let program = program.rsplit('/').next().unwrap_or(program);
    let words = format!("{program} {rest} ");
    LASTING.into_iter().find(|(name, _)| words.starts_with(&format!("{name} ")) && !words.contains('|'))
}

/// Targets of the links in a line.
fn links(line: &str) -> Vec<String> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// What headings of a page can be linked to by, as GitHub makes it of them.
pub fn anchors(text: &str) -> Vec<String> {
    let heading = |line: &str| Some(line.strip_prefix('#')?.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    text.lines()
        .filter_map(heading)
        .map(|text| text.chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Whether output is what a page shows of it. Runs of blanks are one blank, empty lines are none, an age is an age.
pub fn matches(shows: &[String], output: &str) -> bool {
    let shows: Vec<String> = shows.iter().map(|line| plain(line)).filter(|line| !line.is_empty()).collect();
    let output: Vec<String> = output.lines().map(plain).filter(|line| !line.is_empty()).collect();
    lines_match(&shows, &output)
}

fn lines_match(shows: &[String], output: &[String]) -> bool {
    match shows.split_first() {
        None => output.is_empty(),
        Some((any, rest)) if any == "…" => (0..=output.len()).any(|skipped| lines_match(rest, &output[skipped..])),
        Some((line, rest)) => {
            output.split_first().is_some_and(|(found, others)| line_matches(line, found) && lines_match(rest, others))
        }
    }
}

fn line_matches(expected: &str, found: &str) -> bool {
    match expected.split_once('…') {
        None => expected == found,
        Some((before, after)) => found.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| line_matches(after, &rest[at..]))
        }),
    }
}

fn plain(line: &str) -> String {
    let words = line.split_whitespace().map(|word| if is_age(word) { "<age>" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// `5s`, `3m20s`, `4d`.
fn is_age(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}

#[test]
fn a_page_is_read_by_its_blocks() {
    let text = "# A page\n```sh\na | b\nmetamorph up \\\n  --data x\n```\n[x](y.md#z)\n<!-- Ctrl-C: metamorph up -->\n```console\n$ c \\\n> d\nout\n$ e\n```\n\
                ```sh\n# Not run by the tests: there is no such machine\nx\n```\n```yaml\na: b\n```\n";
    let page = Page::parse("p.md", text).unwrap();
    let run = |line, command: &str, shows: &[&str]| {
        let shows = shows.iter().map(|&line| line.to_owned()).collect();
        Item::Run(Run { line, command: command.to_owned(), shows, lasting: None })
    };
    let up = Run {
        line: 3,
        command: "a | b\nmetamorph up \\\n  --data x".to_owned(),
        shows: vec![],
        lasting: Some(LASTING[0]),
    };
    let wanted = [
        Item::Run(up),
        Item::CtrlC { program: "metamorph up".to_owned() },
        run(10, "c \\\nd", &["out"]),
        run(13, "e", &[]),
        Item::NotRun { line: 16, reason: "there is no such machine".to_owned() },
    ];
    assert_eq!(page.items, wanted);
    assert_eq!(page.links, ["y.md#z"]);
    for wrong in [
        "```\nx\n```\n",
        "```bash\nx\n```\n",
        "```sh\nx\n",
        "```console\nx\n```\n",
        "<!-- Ctrl-C: ls -->\n",
        "```sh\n# Not run by the tests: no\n```\n",
    ] {
        assert!(Page::parse("p.md", wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn output_is_compared_but_for_what_differs_each_time() {
    let fit = |shows: &str, output: &str| matches(&shows.lines().map(ToOwned::to_owned).collect::<Vec<_>>(), output);
    assert!(fit("NAME   AGE\na      5s", "NAME AGE\na   3m20s\n"));
    assert!(fit("a … c\n…\nz", "a b c\nx\ny\nz"));
    assert!(fit("fixture-…", "fixture-1"));
    for (shows, output) in
        [("a", "b"), ("a", "a\nb"), ("a\nb", "a"), ("a … c", "a b d"), ("a\n…\nz", "a\nx"), ("a 5s", "a 5"), ("", "a")]
    {
        assert!(!fit(shows, output), "{shows:?} {output:?}");
    }
}

#[test]
fn headings_are_linked_to_as_github_does() {
    assert_eq!(
        anchors("# A page\n## The agent's boot: `x`\ntext\n### a-b c\n"),
        ["a-page", "the-agents-boot-x", "a-b-c"]
    );
}
