//! Checks of the server's own endpoints, from this machine: where media and agents are served, as the server's pods or the person's flags say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Parser as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use url::Url;

use super::report::{Report, View};
use crate::api_reader::Reader;
use crate::cli::{Cli, Command, Endpoints};
use crate::flags;
use crate::probe::{self, Answer, Certificate, Question};

/// A clock that is further away than this breaks certificates and tokens, seconds.
const FAR: i64 = 60;
/// From how long before its end a certificate is warned of.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Arguments of a container that are looked at.
const MOST_ARGUMENTS: usize = 200;
/// Longest value of a variable that is put into arguments, bytes.
const MAX_VALUE: usize = 4096;
/// Most bytes of an answer about health or metrics that are read.
const MAX_BODY: usize = 4 << 20;

/// Addresses that are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Where BMCs read media.
    pub media: Vec<Url>,
    /// Where agents report.
    pub agents: Vec<Url>,
    /// Where health and metrics are.
    pub health: Option<Url>,
}

/// The addresses of these flags, as far as they name any: those that the server finds itself are not told by them.
fn of_flags(endpoints: &Endpoints) -> Told {
    let url = |scheme: &str, authority: String| Url::parse(&format!("{scheme}://{authority}/")).ok();
    let media = endpoints.media_host.iter().flat_map(|host| {
        let plain = url("http", host.authority(endpoints.media_listen.port()));
        // A port that is written is that of plain HTTP.
        let secure = endpoints.media_tls_listen.and_then(|listen| {
            url("https", flags::HostPort { port: Some(listen.port()), ..host.clone() }.authority(listen.port()))
        });
        [plain, secure].into_iter().flatten()
    });
    let agents = endpoints.agent_host.iter();
    Told {
        media: media.collect(),
        agents: agents.filter_map(|host| url("https", host.authority(endpoints.agent_listen.port()))).collect(),
        health: None,
    }
}

/// What a container's arguments say, read as this program reads them.
fn of_arguments(arguments: &[String]) -> Option<Told> {
    let arguments = arguments.iter().take(MOST_ARGUMENTS).map(String::as_str);
    let cli = Cli::try_parse_from(std::iter::once("metamorph").chain(arguments)).ok()?;
    match cli.command {
        Command::Up(up) => Some(of_flags(&up.endpoints)),
        Command::Operator(operator) => Some(of_flags(&operator.endpoints)),
        _ => None,
    }
}

/// A text in which `$(NAME)` stands for the value of a variable, as Kubernetes replaces it: `$$` is `$`, and what is not known stays as it is.
fn expanded(text: &str, known: &BTreeMap<String, String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            match known.get(name) {
                Some(value) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// The variables of a container, as far as its pod tells them: those from ConfigMaps and Secrets are not read.
fn variables(pod: &Value, container: &Value) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for variable in container["env"].as_array().into_iter().flatten().take(MOST_ARGUMENTS) {
        let Some(name) = variable["name"].as_str() else { continue };
        let of_pod = |path: &str| match path {
            "metadata.name"
            | "metadata.namespace"
            | "metadata.uid"
            | "spec.nodeName"
            | "spec.serviceAccountName"
            | "status.hostIP"
            | "status.podIP" => pod.pointer(&format!("/{}", path.replace('.', "/")))?.as_str(),
            _ => None,
        };
        let value = match &variable["valueFrom"] {
            // A value may name those before it.
            Value::Null => Some(expanded(variable["value"].as_str().unwrap_or_default(), &known)),
            from => from["fieldRef"]["fieldPath"].as_str().and_then(of_pod).map(ToOwned::to_owned),
        };
        // References in references could make it endless.
        match value.filter(|value| value.len() <= MAX_VALUE) {
            Some(value) => drop(known.insert(name.to_owned(), value)),
            None => drop(known.remove(name)),
        }
    }
    known
}

/// The arguments of a container, with the values that Kubernetes puts there.
fn arguments(pod: &Value, container: &Value) -> Vec<String> {
    let known = variables(pod, container);
    let texts = container["args"].as_array().into_iter().flatten().take(MOST_ARGUMENTS).filter_map(Value::as_str);
    texts.map(|text| expanded(text, &known)).collect()
}

/// What the pods of the server's namespace say.
pub async fn of_pods(reader: &Reader, own_namespace: &str) -> Option<Told> {
    let mut found = None;
    let path = format!("/api/v1/namespaces/{own_namespace}/pods");
    let read = reader.each(&path, "application/json", "items", |pod| {
        let running = pod["status"]["phase"] == "Running";
        for container in pod["spec"]["containers"].as_array().into_iter().flatten().filter(|_| running) {
            found = of_arguments(&arguments(&pod, container));
            if found.is_some() {
                return false;
            }
        }
        true
    });
    // Where pods cannot be read, nothing is told by them.
    let _ = read.await;
    found
}

/// Says what a certificate is worth.
pub fn certificate(report: &mut Report, view: View, what: &str, certificate: &Certificate, next: &str) {
    let now = Timestamp::now();
    let (from, to) = (certificate.not_before, certificate.not_after);
    // From here, by this machine's clock, it is no verdict.
    let wrong = if view == View::Here { Report::warn } else { Report::fail };
    if from == Timestamp::MIN && to == Timestamp::MAX {
        report.warn(view, what, "its certificate cannot be read", next);
    } else if now > to {
        wrong(report, view, what, &format!("its certificate has expired at {to}, by this machine's clock"), next);
    } else if now < from {
        let said = format!("its certificate is not valid before {from}, by this machine's clock");
        wrong(report, view, what, &said, "set the clocks");
    } else if to.duration_since(now) < SOON {
        report.warn(view, what, &format!("its certificate expires at {to}"), next);
    } else {
        report.ok(view, what, &format!("its certificate is valid until {to}, for {}", certificate.names.join(", ")));
    }
}

/// Says how far a clock is away.
pub fn clock(report: &mut Report, what: &str, answer: &Answer, next: &str) {
    match answer.skew() {
        Some(skew) if skew.abs() > FAR => {
            let side = if skew > 0 { "ahead of" } else { "behind" };
            report.warn(View::Here, what, &format!("its clock is {} s {side} this machine's", skew.abs()), next);
        }
        Some(_) => report.ok(View::Here, what, "its clock agrees with this machine's"),
        None => {}
    }
}

/// Says that somebody answers, and with which status.
fn answers(report: &mut Report, what: &str, answer: &Answer) {
    let said = format!("it answers {} at {}", answer.status, answer.at);
    if answer.status >= 500 {
        let next = "what stands before the server reaches none: look whether the server runs";
        report.warn(View::Here, what, &said, next);
    } else {
        report.ok(View::Here, what, &said);
    }
}

/// Media, agents, health.
pub async fn all(report: &mut Report, told: &Told) {
    if told.media.is_empty() {
        report.skip(View::Here, "media endpoint", "nobody tells where it is: name it by --media-url");
    }
    for url in &told.media {
        let what = format!("media endpoint {}", addresses::without_secrets(url));
        match probe::ask(&Question::get(url)).await {
            Ok(answer) => {
                answers(report, &what, &answer);
                if let Some(found) = &answer.certificate {
                    certificate(
                        report,
                        View::Here,
                        &what,
                        found,
                        "give the server another --media-certificate, or let it make one",
                    );
                }
                clock(report, &what, &answer, "set the clocks: a BMC with a wrong one refuses certificates");
            }
            Err(trouble) => {
                let next = "BMCs must reach it: look at firewalls, Services and --media-host";
                report.warn(View::Here, &what, &trouble.to_string(), next);
            }
        }
    }
    if told.agents.is_empty() {
        report.skip(View::Here, "agent endpoint", "nobody tells where it is: name it by --agent-url");
    }
    for url in &told.agents {
        let what = format!("agent endpoint {}", addresses::without_secrets(url));
        match probe::ask(&Question::get(url)).await {
            Ok(answer) => {
                answers(report, &what, &answer);
                if let Some(found) = &answer.certificate {
                    certificate(report, View::Here, &what, found, "restart the server: it makes another one");
                }
                clock(report, &what, &answer, "set the clocks of server and this machine");
            }
            Err(trouble) => {
                let next = "booted machines must reach it: look at firewalls, Services and --agent-host";
                report.warn(View::Here, &what, &trouble.to_string(), next);
            }
        }
    }
    health(report, told.health.as_ref()).await;
}

async fn health(report: &mut Report, url: Option<&Url>) {
    let Some(base) = url else {
        let why = "the server's own word is at --health-listen, which is not reached from elsewhere by default: name it by --health-url";
        return report.skip(View::Here, "health of the server", why);
    };
    let what = "health of the server";
    let Ok(ready) = base.join("/readyz?verbose") else { return };
    match probe::ask(&Question { body: MAX_BODY, ..Question::get(&ready) }).await {
        Ok(answer) if answer.status == 200 => report.ok(View::Here, what, "it is ready"),
        Ok(answer) => {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("[-]")).collect();
            let said = format!("it answers {}: {}", answer.status, wrong.join("; "));
            report.fail(View::Here, what, &said, "put right what it names");
        }
        Err(trouble) => {
            report.warn(View::Here, what, &trouble.to_string(), "look whether the server runs, and at --health-listen");
            return;
        }
    }
    let Ok(metrics) = base.join("/metrics") else { return };
    let what = "version of the server";
    match probe::ask(&Question { body: MAX_BODY, ..Question::get(&metrics) }).await {
        Ok(answer) if answer.status == 200 => version(report, what, &String::from_utf8_lossy(&answer.body)),
        Ok(answer) => {
            report.skip(View::Here, what, &format!("/metrics answers {}: it may be at --metrics-listen", answer.status))
        }
        Err(trouble) => report.skip(View::Here, what, &trouble.to_string()),
    }
}

fn version(report: &mut Report, what: &str, metrics: &str) {
    let found = metrics.lines().find_map(|line| line.strip_prefix("metamorph_build_info{version=\""));
    let found = found.and_then(|rest| rest.split('"').next());
    let own = env!("CARGO_PKG_VERSION");
    match found {
        Some(found) if found == own => report.ok(View::Here, what, &format!("{own}, as this program")),
        Some(found) => {
            let next = "look with the server's own version: its definitions and flags may differ";
            report.warn(View::Here, what, &format!("{found}, and this program is {own}"), next);
        }
        None => report.skip(View::Here, what, "its metrics do not name it"),
    }
}

/// The agent images of these folders: there, and of which version.
pub fn agent_images(report: &mut Report, folders: &[PathBuf]) {
    if folders.is_empty() {
        let why = "it stands beside the server: name its folder by --agent-image where it is here";
        return report.skip(View::Here, "agent image", why);
    }
    for folder in folders {
        let what = format!("agent image {}", folder.display());
        match flags::agent_version(folder) {
            Ok(version) if version == env!("CARGO_PKG_VERSION") => {
                report.ok(View::Here, &what, &format!("its agent is {version}, as this program"));
            }
            Ok(version) => {
                let said = format!("its agent is {version}, and this program is {}", env!("CARGO_PKG_VERSION"));
                report.warn(View::Here, &what, &said, "build it anew: metamorph agent-image build");
            }
            Err(error) => {
                report.fail(View::Here, &what, &format!("{error:#}"), "build it: metamorph agent-image build");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_arguments_tell_its_addresses() {
        let arguments = |text: &str| text.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
        let told = of_arguments(&arguments(
            "operator --media-host 192.0.2.10 --media-tls-listen 0.0.0.0:6183 --agent-host agents.example:8443 --agent-listen 0.0.0.0:6385",
        ))
        .unwrap();
        let urls = |urls: &[Url]| urls.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(urls(&told.media), ["http://192.0.2.10:6180/", "https://192.0.2.10:6183/"]);
        assert_eq!(urls(&told.agents), ["https://agents.example:8443/"]);
        for other in ["", "run --x", "host watch", "operator --no-such-flag"] {
            assert_eq!(of_arguments(&arguments(other)), None, "{other}");
        }
    }

    #[test]
    fn variables_in_arguments_are_what_kubernetes_makes_of_them() {
        let example = include_str!("../../../../examples/operator.yaml");
        let deployment: Value = serde_saphyr::from_str(example.split("\n---\n").next().unwrap()).unwrap();
        let mut pod = deployment["spec"]["template"].clone();
        pod["status"] = serde_json::json!({ "phase": "Running", "hostIP": "192.0.2.10" });
        let told = of_arguments(&arguments(&pod, &pod["spec"]["containers"][0])).unwrap();
        assert_eq!(told.media.iter().map(Url::as_str).collect::<Vec<_>>(), ["http://192.0.2.10:6180/"]);
        assert_eq!(told.agents.iter().map(Url::as_str).collect::<Vec<_>>(), ["https://192.0.2.10:6385/"]);
        let container = serde_json::json!({ "env": [
            { "name": "A", "value": "a" }, { "name": "B", "value": "$(A)$(LATER)-$$(A)" }, { "name": "LATER", "value": "l" },
            { "name": "SECRET", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } },
            { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            { "name": "EMPTY" },
        ] });
        let known = variables(&serde_json::json!({ "spec": { "nodeName": "n1" } }), &container);
        for (text, expected) in [
            ("x$(A)y$(NODE)", "xayn1"),
            ("$(B)", "a$(LATER)-$(A)"),
            ("$(LATER)", "l"),
            ("$(SECRET)$(UNKNOWN)$(EMPTY)", "$(SECRET)$(UNKNOWN)"),
            ("$$(A) $$$(A) $A $ $(A", "$(A) $a $A $ $(A"),
            ("", ""),
        ] {
            assert_eq!(expanded(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn certificates_are_judged_by_their_dates() {
        let now = Timestamp::now();
        let at = |hours: i64| now + SignedDuration::from_hours(hours);
        for (view, from, to, said) in [
            (View::Api, -2, -1, "failed"),
            (View::Api, 1, 2, "failed"),
            (View::Here, -2, -1, "warning"),
            (View::Here, 1, 2, "warning"),
            (View::Here, -1, 24, "warning"),
            (View::Here, -1, 24 * 365, "ok"),
        ] {
            let mut report = Report::default();
            let seen =
                Certificate { not_before: at(from), not_after: at(to), names: vec!["h".to_owned()], fault: None };
            certificate(&mut report, view, "x", &seen, "renew it");
            assert!(report.text().starts_with(said), "{}", report.text());
        }
    }

    #[test]
    fn another_version_of_the_server_is_told() {
        let own = env!("CARGO_PKG_VERSION");
        for (text, said) in [
            (format!("# x\nmetamorph_build_info{{version=\"{own}\"}} 1\n"), "ok"),
            ("metamorph_build_info{version=\"9.9.9\"} 1".to_owned(), "warning"),
            ("nothing".to_owned(), "skipped"),
        ] {
            let mut report = Report::default();
            version(&mut report, "x", &text);
            assert!(report.text().starts_with(said), "{}", report.text());
        }
    }
}
