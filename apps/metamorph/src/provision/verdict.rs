//! When a run is finished: the state of each host, and the verdict on the run.

use std::time::Duration;

use anyhow::Context;
use api::metal3::{BareMetalHost, HostFirmwareComponents, HostFirmwareSettings};
use host_lifecycle::{Standing, standing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Api;
use kube::{Client, ResourceExt};
use operator::Observer;
use serde_json::{Value, json};

/// How often to look for hosts that the controller does not report as at rest: a deleted host never rests again.
const LOOK_FOR: Duration = Duration::from_secs(5);

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All hosts are as declared.
    AsDeclared,
    /// The manifests are stored; the run was to do no more.
    Stored,
    /// A host cannot become as declared without a change.
    NeedsChange,
    /// The input is wrong; nothing was done.
    WrongInput,
    /// The time-out expired.
    TimedOut,
    /// The run itself failed.
    Broken,
    /// A signal, by its number.
    Stopped(u8),
}

impl Verdict {
    /// The exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::AsDeclared | Self::Stored => 0,
            Self::NeedsChange => 1,
            Self::WrongInput => 2,
            Self::TimedOut => 3,
            Self::Broken => 4,
            // A shell's exit code for a process killed by a signal.
            Self::Stopped(signal) => signal.saturating_add(128),
        }
    }

    /// Its name for programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AsDeclared => "AsDeclared",
            Self::Stored => "Stored",
            Self::NeedsChange => "NeedsChange",
            Self::WrongInput => "WrongInput",
            Self::TimedOut => "TimedOut",
            Self::Broken => "Broken",
            Self::Stopped(_) => "Stopped",
        }
    }
}

/// One host of the manifests.
pub struct Tracked {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    uid: String,
    /// Number of the controller's last look that was judged.
    look: u64,
    /// Its progress towards the declared state.
    standing: Standing,
    /// State in words.
    state: String,
    powered_on: Option<bool>,
}

impl Tracked {
    /// A host that the controller has not looked at yet.
    pub fn new([namespace, name, uid]: [String; 3]) -> Self {
        let standing = Standing::NotYet(String::new());
        Self { namespace, name, uid, look: 0, standing, state: "new".to_owned(), powered_on: None }
    }

    /// Judges the host if the controller has finished another look at it and is now at rest.
    async fn judge(&mut self, client: &Client, observer: &Observer) -> anyhow::Result<()> {
        let Some(rest) = observer.rest(&self.uid) else { return Ok(()) };
        if rest.look == self.look {
            return Ok(());
        }
        let found = self.read(client).await?;
        // The controller writes its results before it rests: unless it works again by now, the host read is final.
        if observer.rest(&self.uid) == Some(rest) {
            self.look = rest.look;
            self.see(found.as_ref(), rest.needs_change);
            self.see_firmware(client).await?;
        }
        Ok(())
    }

    /// Adds what the host's firmware objects say of wishes: one that is refused needs a change, though the host itself is as declared.
    async fn see_firmware(&mut self, client: &Client) -> anyhow::Result<()> {
        let settings: Api<HostFirmwareSettings> = Api::namespaced(client.clone(), &self.namespace);
        let components: Api<HostFirmwareComponents> = Api::namespaced(client.clone(), &self.namespace);
        let what = || format!("read the firmware objects of {}/{}", self.namespace, self.name);
        let settings = settings.get_opt(&self.name).await.with_context(what)?;
        let components = components.get_opt(&self.name).await.with_context(what)?;
        let of_settings = settings.filter(|object| !object.spec.settings.is_empty()).and_then(|object| object.status);
        let of_components =
            components.filter(|object| !object.spec.updates.is_empty()).and_then(|object| object.status);
        let conditions = [
            ("HostFirmwareSettings", of_settings.map(|status| status.conditions)),
            ("HostFirmwareComponents", of_components.map(|status| status.conditions)),
        ];
        for (kind, conditions) in conditions {
            self.standing = with_firmware(self.standing.clone(), kind, &conditions.unwrap_or_default());
        }
        Ok(())
    }

    /// Reads its current state.
    ///
    /// # Errors
    /// When the API does not answer.
    pub async fn look(&mut self, client: &Client) -> anyhow::Result<()> {
        let found = self.read(client).await?;
        // At the end of a run, the verdict stands unless the object contradicts it.
        let stuck = matches!(self.standing, Standing::NeedsChange(_));
        self.see(found.as_ref(), stuck);
        self.see_firmware(client).await
    }

    /// The declared host; a later one of the same name does not count.
    async fn read(&self, client: &Client) -> anyhow::Result<Option<BareMetalHost>> {
        let api: Api<BareMetalHost> = Api::namespaced(client.clone(), &self.namespace);
        let found = api.get_opt(&self.name).await.with_context(|| format!("read {}/{}", self.namespace, self.name))?;
        Ok(found.filter(|host| host.uid().as_deref() == Some(&self.uid)))
    }

    fn see(&mut self, host: Option<&BareMetalHost>, needs_change: bool) {
        let Some(host) = host else {
            "deleted".clone_into(&mut self.state);
            self.standing =
                Standing::NeedsChange("It was deleted while this ran — run again to declare it anew".to_owned());
            return;
        };
        self.state = match host.state().as_str() {
            "" => "new".to_owned(),
            state => state.to_owned(),
        };
        let status = host.status.as_ref();
        self.powered_on = status.map(|status| status.powered_on);
        let error = status.and_then(|status| status.error_type);
        self.standing = match (standing(host), error) {
            (Standing::NotYet(message), Some(kind)) => {
                let message = format!("{}: {message}", kind.as_str());
                if needs_change { Standing::NeedsChange(message) } else { Standing::NotYet(message) }
            }
            (found, _) => found,
        };
    }

    /// Whether it is as declared.
    pub const fn is_as_declared(&self) -> bool {
        matches!(self.standing, Standing::AsDeclared(_))
    }

    /// Whether to wait no longer for it.
    const fn is_over(&self, keep_trying: bool) -> bool {
        self.is_as_declared() || (!keep_trying && matches!(self.standing, Standing::NeedsChange(_)))
    }

    /// Result and message, for people and programs.
    fn result(&self) -> (&'static str, &str) {
        match &self.standing {
            Standing::AsDeclared(what) => ("AsDeclared", what),
            Standing::NotYet(what) => ("NotYet", what),
            Standing::NeedsChange(what) => ("NeedsChange", what),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let (result, message) = self.result();
        json!({ "namespace": self.namespace, "name": self.name, "state": self.state, "poweredOn": self.powered_on,
            "result": result, "message": message })
    }
}

/// How a host stands with what an object of its firmware says.
fn with_firmware(standing: Standing, kind: &str, conditions: &[Condition]) -> Standing {
    let is = |kind: &str, value: &str| {
        conditions.iter().find(|condition| condition.type_ == kind && condition.status == value)
    };
    match (standing, is("Valid", "False"), is("ChangeDetected", "True")) {
        (Standing::AsDeclared(_), Some(refused), _) => {
            Standing::NeedsChange(format!("Its {kind} cannot be fulfilled: {}", refused.message))
        }
        (Standing::AsDeclared(what), None, Some(waits)) => {
            Standing::AsDeclared(format!("{what}; its {kind} waits: {}", waits.message))
        }
        (other, ..) => other,
    }
}

/// The hosts as a table for people.
pub fn table(hosts: &[Tracked]) -> String {
    let mut rows = vec![["HOST", "STATE", "POWER", "RESULT"].map(ToOwned::to_owned)];
    for host in hosts {
        let power = match host.powered_on {
            Some(true) => "on",
            Some(false) => "off",
            None => "?",
        };
        let (result, words) = match host.result() {
            ("AsDeclared", words) => ("as declared", words),
            ("NeedsChange", words) => ("needs a change", words),
            (_, words) => ("not yet", words),
        };
        // Messages contain text from BMCs, agents and image servers: control characters become spaces.
        let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let result = if words.is_empty() { result.to_owned() } else { format!("{result}: {words}") };
        rows.push([format!("{}/{}", host.namespace, host.name), host.state.clone(), power.to_owned(), result]);
    }
    let mut widths = [0; 3];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let [a, b, c] = widths;
    rows.iter().map(|[host, state, power, result]| format!("{host:a$}  {state:b$}  {power:c$}  {result}\n")).collect()
}

/// Waits until each host is as declared, or cannot become so without a change. Such a host does not cut the work on the others short.
///
/// # Errors
/// When the API does not answer.
pub async fn decide(
    client: &Client,
    observer: &Observer,
    hosts: &mut [Tracked],
    keep_trying: bool,
) -> anyhow::Result<Verdict> {
    let mut looks = observer.looks();
    let mut look_for = tokio::time::interval(LOOK_FOR);
    loop {
        looks.mark_unchanged();
        for host in hosts.iter_mut() {
            host.judge(client, observer).await?;
        }
        if hosts.iter().all(|host| host.is_over(keep_trying)) {
            let all = hosts.iter().all(Tracked::is_as_declared);
            return Ok(if all { Verdict::AsDeclared } else { Verdict::NeedsChange });
        }
        tokio::select! {
            changed = looks.changed() => changed.context("watch the controller")?,
            _ = look_for.tick() => {
                for host in hosts.iter_mut().filter(|host| observer.rest(&host.uid).is_none()) {
                    if host.read(client).await?.is_none() {
                        host.see(None, true);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked(status: Value, needs_change: bool) -> Tracked {
        let host = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "u", "generation": 1 },
            "spec": { "online": true, "bmc": { "address": "x", "credentialsName": "c" } }, "status": status });
        let mut tracked = Tracked::new(["n".to_owned(), "a".to_owned(), "u".to_owned()]);
        tracked.see(Some(&serde_json::from_value(host).unwrap()), needs_change);
        tracked
    }

    fn failed(needs_change: bool) -> Tracked {
        tracked(
            json!({ "provisioning": { "ID": "", "state": "registering" }, "operationalStatus": "error",
            "errorType": "registration error", "errorMessage": "reach\u{1b}[2J the BMC" }),
            needs_change,
        )
    }

    #[test]
    fn codes_are_those_that_are_documented() {
        let all = [
            Verdict::AsDeclared,
            Verdict::NeedsChange,
            Verdict::WrongInput,
            Verdict::TimedOut,
            Verdict::Broken,
            Verdict::Stopped(2),
            Verdict::Stopped(15),
        ];
        assert_eq!(all.map(Verdict::code), [0, 1, 2, 3, 4, 130, 143]);
    }

    #[test]
    fn an_error_ends_the_wait_only_if_somebody_has_to_change_something() {
        let (waits, stuck) = (failed(false), failed(true));
        assert!(!waits.is_over(false) && stuck.is_over(false) && !stuck.is_over(true));
        let condition = json!([{ "type": "Ready", "status": "False", "reason": "X", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        let mut well = tracked(
            json!({ "provisioning": { "ID": "x", "state": "available" }, "operationalStatus": "OK", "poweredOn": true,
            "conditions": condition }),
            true,
        );
        assert!(well.is_as_declared() && well.is_over(true), "{:?}", well.standing);
        well.see(None, false);
        assert!(matches!(&well.standing, Standing::NeedsChange(why) if why.contains("deleted")));
    }

    #[test]
    fn a_refused_wish_for_the_firmware_needs_a_change() {
        let condition = |kind: &str, status: &str, message: &str| -> Condition {
            serde_json::from_value(json!({ "type": kind, "status": status, "reason": "X", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" }))
            .unwrap()
        };
        let well = || Standing::AsDeclared("available".to_owned());
        let kind = "HostFirmwareSettings";
        let refused = with_firmware(well(), kind, &[condition("Valid", "False", "no setting X")]);
        assert!(matches!(&refused, Standing::NeedsChange(why) if why.ends_with("cannot be fulfilled: no setting X")));
        let waits = [condition("Valid", "True", ""), condition("ChangeDetected", "True", "made later")];
        let waiting = with_firmware(well(), kind, &waits);
        assert_eq!(waiting, Standing::AsDeclared("available; its HostFirmwareSettings waits: made later".to_owned()));
        let met = [condition("Valid", "True", ""), condition("ChangeDetected", "False", "")];
        assert_eq!(with_firmware(well(), kind, &met), well());
        let not_yet = Standing::NotYet("busy".to_owned());
        assert_eq!(with_firmware(not_yet.clone(), kind, &[condition("Valid", "False", "x")]), not_yet);
    }

    #[test]
    fn the_table_is_read_at_a_terminal_and_cannot_write_to_it() {
        let text = table(&[failed(true)]);
        assert_eq!(
            text,
            "HOST  STATE        POWER  RESULT\nn/a   registering  off    needs a change: registration error: reach [2J the BMC\n"
        );
    }
}
