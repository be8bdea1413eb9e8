//! What the checks have said: a line each, for people or as JSON, and whether one failed.

use serde::Serialize;
use terms::clean;

use crate::say;

/// Longest line of a check, characters.
const MAX_TEXT: usize = 600;

/// How a check ended, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It could not be made, and why is said.
    Skipped,
    /// As it should be.
    Ok,
    /// It may matter.
    Warning,
    /// It keeps hosts from being looked after.
    Failed,
}

/// From where it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum View {
    /// By the Kubernetes API: what the server sees as well.
    #[serde(rename = "api")]
    Api,
    /// From this machine, which may reach other networks than the server does.
    #[serde(rename = "here")]
    Here,
    /// By the host's BMC, as the server has seen it.
    #[serde(rename = "bmc")]
    Bmc,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// How it ended.
    pub level: Level,
    /// What was looked at.
    pub what: String,
    /// From where.
    pub view: View,
    /// What was found.
    pub said: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All of them, in their order.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The checks.
    pub checks: Vec<Check>,
    /// Lines are printed at once.
    #[serde(skip)]
    live: bool,
}

impl Report {
    /// One whose lines are printed when they are known.
    pub fn live() -> Self {
        Self { live: true, ..Self::default() }
    }

    fn add(&mut self, level: Level, view: View, what: &str, said: &str, next: Option<&str>) {
        let check = Check {
            level,
            what: clean(what, MAX_TEXT),
            view,
            said: clean(said, MAX_TEXT),
            next: next.map(|next| clean(next, MAX_TEXT)),
        };
        if self.live {
            // Who reads no more loses lines; the exit code stays.
            let _ = say::out(&check.line());
        }
        self.checks.push(check);
    }

    /// All is well.
    pub fn ok(&mut self, view: View, what: &str, said: &str) {
        self.add(Level::Ok, view, what, said, None);
    }

    /// It may matter.
    pub fn warn(&mut self, view: View, what: &str, said: &str, next: &str) {
        self.add(Level::Warning, view, what, said, Some(next));
    }

    /// It keeps hosts from being looked after.
    pub fn fail(&mut self, view: View, what: &str, said: &str, next: &str) {
        self.add(Level::Failed, view, what, said, Some(next));
    }

    /// It was not looked at.
    pub fn skip(&mut self, view: View, what: &str, why: &str) {
        self.add(Level::Skipped, view, what, why, None);
    }

    /// Whether a check failed.
    pub fn failed(&self) -> bool {
        self.checks.iter().any(|check| check.level == Level::Failed)
    }

    /// For people.
    #[cfg(test)]
    pub fn text(&self) -> String {
        let lines: String = self.checks.iter().map(Check::line).collect();
        lines + &self.summary()
    }

    /// The last line for people.
    pub fn summary(&self) -> String {
        let count = |level: Level| self.checks.iter().filter(|check| check.level == level).count();
        format!(
            "{} ok, {} warnings, {} failed, {} skipped\n",
            count(Level::Ok),
            count(Level::Warning),
            count(Level::Failed),
            count(Level::Skipped)
        )
    }
}

impl Check {
    fn line(&self) -> String {
        let level = match self.level {
            Level::Skipped => "skipped",
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failed => "failed",
        };
        let here = if self.view == View::Here { " (from this machine)" } else { "" };
        let next = self.next.as_ref().map(|next| format!(" — {next}")).unwrap_or_default();
        format!("{level:<8} {}{here}: {}{next}\n", self.what, self.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_a_line_with_what_to_do_and_no_control_characters() {
        let mut report = Report::default();
        report.ok(View::Api, "the API", "it answers");
        report.warn(View::Here, "the BMC", "no \u{1b}[2Jconnection\nat all", "look");
        assert!(!report.failed());
        report.fail(View::Api, "the Lease", "nobody", "start a server");
        report.skip(View::Api, "webhooks", "you have no right to read it");
        assert!(report.failed());
        assert_eq!(
            report.text(),
            "ok       the API: it answers\n\
             warning  the BMC (from this machine): no [2Jconnection at all — look\n\
             failed   the Lease: nobody — start a server\n\
             skipped  webhooks: you have no right to read it\n\
             1 ok, 1 warnings, 1 failed, 1 skipped\n"
        );
    }
}
