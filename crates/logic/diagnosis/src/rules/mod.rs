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
mod words;

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
