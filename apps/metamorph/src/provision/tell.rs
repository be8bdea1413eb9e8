//! The output of a run: lines for people, or one line of JSON per event for programs, with the same facts.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::folder::Folder;
use super::manifests::Problem;
use super::verdict::{Tracked, Verdict, table};
use crate::cli::{Output, Provision};
use crate::host_watch::View;
use crate::say;

/// The output of a run.
pub struct Tell {
    output: Output,
    /// Progress of the hosts.
    pub view: View,
}

impl Tell {
    /// Output for these readers.
    pub fn new(output: Output) -> Self {
        let view = match output {
            Output::Text => View::new(true),
            Output::Json => View::json(),
        };
        Self { output, view }
    }

    /// Writes a line to standard output. A closed pipe does not stop the work on machines.
    fn line(&self, text: &str, event: impl FnOnce() -> Value) {
        let said = match self.output {
            Output::Text => self.view.say(text),
            Output::Json => say::still_read(&format!("{}\n", event())),
        };
        if let Err(error) = said {
            tracing::warn!(error = error.as_ref() as &dyn std::error::Error, "tell of the progress");
        }
    }

    /// A note.
    pub fn note(&self, text: &str) {
        self.line(text, || json!({ "time": Timestamp::now().to_string(), "type": "note", "message": text }));
    }

    /// Warns of input without effect.
    pub fn warn(&self, warning: &Problem) {
        let text = format!("warning: {}: {}", warning.source, warning.message);
        self.line(&text, || {
            json!({ "time": Timestamp::now().to_string(), "type": "warning", "source": warning.source,
                "message": warning.message })
        });
    }

    /// Reports all problems with the input.
    pub fn refuse(&self, problems: &[Problem]) {
        let count = match problems.len() {
            1 => "one mistake".to_owned(),
            count => format!("{count} mistakes"),
        };
        let each = |p: &Problem| format!("\n  {}: {}", p.source, p.message.replace('\n', "\n    "));
        let list: String = problems.iter().map(each).collect();
        say::note(&format!("error: nothing was done, for {count} in what was given:{list}"));
        if self.output == Output::Json {
            let errors: Vec<Value> =
                problems.iter().map(|p| json!({ "source": p.source, "message": p.message })).collect();
            self.line("", || result(Verdict::WrongInput, json!({ "errors": errors })));
        }
    }

    /// Reports that the run itself failed; stored objects are not lost.
    pub fn broke(&self, options: &Provision, error: &anyhow::Error, folder: Option<&Folder>) {
        let kept = folder.filter(|folder| folder.is_kept());
        let is_busy = error.chain().any(|e| matches!(e.downcast_ref(), Some(apiserver::StartError::InUse { .. })));
        let busy = kept.filter(|_| is_busy).map(|folder| in_use(options, folder));
        if let Some(text) = &busy {
            say::note(&format!("error: {text}"));
        } else {
            say::error(error);
            if let Some(folder) = kept {
                say::note(&next(options, Verdict::Broken, folder));
            }
        }
        if self.output == Output::Json {
            let state = kept.map(|folder| folder.path.display().to_string());
            let message = busy.unwrap_or_else(|| format!("{error:#}"));
            let more = json!({ "errors": [{ "message": message }], "state": state });
            self.line("", || result(Verdict::Broken, more));
        }
    }

    /// The end of a run that was only to store the manifests, or was stopped before it worked on machines.
    pub fn end_early(&self, verdict: Verdict, folder: &Folder) {
        let kept = folder.is_kept();
        let path = quoted(&folder.path);
        let text = match verdict {
            Verdict::Stored => format!(
                "The manifests are in {path}. Nothing is done to machines yet: `metamorph provision` without --wait=false, or `metamorph up \
                 --data {path}`, does it."
            ),
            _ => "Stopped before anything was done.".to_owned(),
        };
        self.line(&text, || result(verdict, json!({ "state": kept.then(|| folder.path.display().to_string()) })));
    }

    /// The verdict on all hosts, and how to continue.
    pub fn end(
        &self,
        options: &Provision,
        verdict: Verdict,
        hosts: &[Tracked],
        folder: &Folder,
        took: std::time::Duration,
    ) {
        let done = hosts.iter().filter(|host| host.is_as_declared()).count();
        let of = hosts.len();
        let took = took.as_secs();
        let why = match verdict {
            Verdict::AsDeclared | Verdict::Stored => String::new(),
            Verdict::NeedsChange => "; the others need a change".to_owned(),
            Verdict::TimedOut => format!("; the time-out of {} s is over", options.timeout),
            Verdict::Stopped(_) => "; stopped by a signal".to_owned(),
            Verdict::WrongInput | Verdict::Broken => "; the run failed".to_owned(),
        };
        let gone = folder.temporary && verdict == Verdict::AsDeclared;
        let text = format!("\n{}\n{done} of {of} hosts are as declared after {took} s{why}.", table(hosts));
        self.line(&format!("{text}\n{}", next(options, verdict, folder)), || {
            let hosts: Vec<Value> = hosts.iter().map(Tracked::json).collect();
            let state = (!gone).then(|| folder.path.display().to_string());
            result(verdict, json!({ "hosts": hosts, "seconds": took, "state": state }))
        });
    }
}

fn result(verdict: Verdict, more: Value) -> Value {
    let mut event = json!({ "time": Timestamp::now().to_string(), "type": "result", "verdict": verdict.as_str(),
        "exitCode": verdict.code() });
    if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
        event.extend(more);
    }
    event
}

/// What the user can do with the state.
fn next(options: &Provision, verdict: Verdict, folder: &Folder) -> String {
    let path = quoted(&folder.path);
    if verdict == Verdict::AsDeclared {
        return if folder.temporary {
            "The state was temporary and is removed; --state keeps it, which the next run needs to know these machines again.".to_owned()
        } else {
            format!(
                "The state is in {path}: run again with it after an edit, or hand it over to `metamorph up --data {path}`."
            )
        };
    }
    let files: String = options.files.iter().map(|file| format!(" -f {}", quoted(file))).collect();
    let recursive = if options.recursive { " -R" } else { "" };
    let again = match verdict {
        Verdict::NeedsChange => "when that is corrected, go on with",
        _ => "go on with",
    };
    format!(
        "The state is kept in {path}: {again}\n  metamorph provision{files}{recursive} --state {path} …\nor look at it with `metamorph host list \
         --state {path}`, or hand it over to `metamorph up --data {path}`."
    )
}

/// What the user can do while another server uses the state.
fn in_use(options: &Provision, folder: &Folder) -> String {
    let (path, kubeconfig) = (quoted(&folder.path), quoted(&folder.path.join("kubeconfig")));
    let files: String = options.files.iter().map(|file| format!(" -f {}", quoted(file))).collect();
    let recursive = if options.recursive { " -R" } else { "" };
    format!(
        "the state {path} is in use by another server, `metamorph up` or another run; nothing was done. Give the manifests to that server:\n  \
         kubectl --kubeconfig {kubeconfig} apply{files}{recursive}\nor stop it and run again. Another folder is no way out: two servers would act on the same machines."
    )
}

/// A path, quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_such_as_a_shell_takes() {
        for (path, expected) in [("/tmp/a-1", "/tmp/a-1"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$(x)", "'$(x)'")]
        {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
