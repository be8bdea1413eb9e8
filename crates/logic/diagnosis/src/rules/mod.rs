//! The rules, a file a group. Each looks at some sources and says what it has found; it reads nothing else, knows nothing of the others, and more evidence
//! makes it surer, never less sure: what is healthy elsewhere weighs in the order of causes alone.

mod access;
mod boot;
mod failure;
mod logs;
mod media;
mod ours;
mod parts;
mod power;
mod tasks;

use crate::hit::{Case, Hit};

/// All that the rules find.
pub(crate) fn hits(case: &Case<'_>) -> Vec<Hit> {
    let mut hits = Vec::new();
    let groups = [
        failure::judge,
        access::judge,
        power::judge,
        parts::judge,
        media::judge,
        boot::judge,
        ours::judge,
        tasks::judge,
        logs::judge,
    ];
    for judge in groups {
        judge(case, &mut hits);
    }
    hits
}

/// Whether the text has one of these, whatever its case.
fn has(text: &str, words: &[&str]) -> bool {
    let text = text.to_ascii_lowercase();
    words.iter().any(|word| text.contains(word))
}

/// Last part of a MessageId without its registry and version: `Base.1.8.InsufficientPrivilege`, `IDRAC.2.8.SYS403`.
fn message_key(id: &str) -> &str {
    id.rsplit('.').next().unwrap_or(id)
}
