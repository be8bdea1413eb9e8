//! Checks of one host: its objects by the Kubernetes API; its BMC and its image from this machine, without a password, which is no verdict on what the server
//! and the machine can reach.

use addresses::Allowed;
use api::metal3::{BareMetalHost, OperationalStatus, annotation, detection_fault, label};
use api::metamorph::HostDiagnosisStatus;
use axum::http::Method;
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, LOCATION};
use bmc::AddressError;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use url::Url;

use super::endpoints::{certificate, clock};
use super::report::{Report, View};
use crate::api_reader::secret_keys;
use crate::api_reader::{Reader, Unread};
use crate::host_explain::current::{advises, is_late, unhealthy};
use crate::probe::{self, Question};

/// Most bytes of a BMC's service root or of a checksum file that are read.
const MAX_BODY: usize = 256 * 1024;
/// Longest text of others, characters.
const MAX_TEXT: usize = 200;
/// Rows of a table: of the objects their metadata alone.
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METAL3: &str = "/apis/metal3.io/v1alpha1";

/// How this machine calls.
pub struct Ways<'a> {
    /// Local addresses that may be called.
    pub allowed: &'a Allowed,
    /// Whom to trust as BMCs, PEM.
    pub bmc_authorities: &'a str,
    /// Whom to trust as servers of images, PEM.
    pub image_authorities: &'a str,
    /// Namespace of the server's own objects.
    pub own_namespace: &'a str,
}

/// All checks of the host.
pub async fn all(report: &mut Report, reader: &Reader, namespace: &str, name: &str, ways: &Ways<'_>) {
    let what = format!("host {namespace}/{name}");
    let path = format!("{METAL3}/namespaces/{namespace}/baremetalhosts/{name}");
    let host = match reader.object(&path).await {
        Ok(host) => host,
        Err(Unread::Absent) => {
            return report.fail(View::Api, &what, "it is not there", "correct --host or --namespace");
        }
        Err(why) => return report.skip(View::Api, &what, &why.to_string()),
    };
    let host: BareMetalHost = match serde_json::from_value(host) {
        Ok(host) => host,
        Err(error) => {
            let said = format!("its object cannot be read: {error}");
            return report.fail(
                View::Api,
                &what,
                &said,
                "correct the object, or look with the version that has written it",
            );
        }
    };
    stands(report, &what, &host);
    namespace_of(report, reader, namespace).await;
    secret(report, reader, namespace, &host).await;
    bmc(report, &host, ways).await;
    firmware(report, reader, namespace, name).await;
    diagnosis(report, reader, namespace, name, &host).await;
    let mirrored = mirrored(reader, namespace, ways.own_namespace).await;
    image(report, &host, ways, mirrored).await;
}

/// Whether images are read by a document of mirrors, so that what an address itself answers is no verdict.
async fn mirrored(reader: &Reader, namespace: &str, own_namespace: &str) -> bool {
    for namespace in [namespace, own_namespace] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{}", image_sources::CONFIG_MAP);
        if !matches!(reader.object(&path).await, Err(Unread::Absent)) {
            return true;
        }
    }
    false
}

/// What keeps a host that shows no error: that it waits, takes too long, or has a machine with a fault.
fn fault(host: &BareMetalHost) -> Option<String> {
    let status = host.status.as_ref()?;
    let said = |text: &str| terms::clean(text, MAX_TEXT);
    if status.operational_status == OperationalStatus::Delayed {
        let why = said(&status.error_message);
        let why = if why.is_empty() { "others come first".to_owned() } else { why };
        return Some(format!("without error, and delayed: {why}"));
    }
    if let Some(ill) = unhealthy(host) {
        return Some(format!(
            "without error, and its machine has a fault: {}: {}",
            said(&ill.reason),
            said(&ill.message)
        ));
    }
    is_late(host, Timestamp::now())
        .then(|| "without error, and it takes longer than the time that is given to it".to_owned())
}

/// State, error, pause, classes.
fn stands(report: &mut Report, what: &str, host: &BareMetalHost) {
    let state = host.state();
    let state = if state.as_str().is_empty() { "not registered yet" } else { state.as_str() };
    let explain = "metamorph host explain says why";
    match host.status.as_ref().and_then(|status| Some((status.error_type?, &status.error_message))) {
        Some((error, message)) => {
            report.warn(
                View::Api,
                what,
                &format!("{state}, {}: {}", error.as_str(), terms::clean(message, MAX_TEXT)),
                explain,
            );
        }
        None => match fault(host) {
            Some(said) => report.warn(View::Api, what, &format!("{state}, {said}"), explain),
            None => report.ok(View::Api, what, &format!("{state}, without error")),
        },
    }
    if host.spec.bmc.is_none() && host.annotation(annotation::DISCOVERED_BY).is_some() {
        let next = format!("approve it (annotation {}=true), or delete it", annotation::APPROVE);
        report.warn(View::Api, what, "it was discovered and is not approved: its BMC is not called", &next);
    }
    if let Some(fault) = detection_fault(host.metadata.labels.as_ref()) {
        report.warn(View::Api, what, &fault, "correct the label of the host");
    }
    if host.annotation(annotation::PAUSED).is_some() {
        report.warn(
            View::Api,
            what,
            "it is paused: nothing is done to it",
            "remove the annotation baremetalhost.metal3.io/paused",
        );
    }
    if host.annotation(annotation::DETACHED).is_some() {
        report.warn(
            View::Api,
            what,
            "it is detached: nothing is done to it",
            "remove the annotation baremetalhost.metal3.io/detached",
        );
    }
    if host.is_deleting() {
        report.warn(View::Api, what, "it is being deleted", explain);
    }
    let ledger = host.annotation(annotation::HOST_CLASSES).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let own = ledger.iter().filter_map(Value::as_object).flatten().map(|(class, _)| terms::clean(class, 64));
    let classes: Vec<String> = host
        .metadata
        .labels
        .iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix(label::CLASS_PREFIX))
        .map(|class| terms::clean(class, 64))
        .chain(own)
        .take(8)
        .collect();
    if classes.is_empty() {
        report.skip(View::Api, "classification", "it bears the label of no HardwareClassification and of no HostClass");
    } else {
        report.ok(View::Api, "classification", &format!("it matches {}", classes.join(", ")));
    }
}

async fn namespace_of(report: &mut Report, reader: &Reader, namespace: &str) {
    let what = format!("namespace {namespace}");
    match reader.object(&format!("/api/v1/namespaces/{namespace}")).await {
        Ok(object) => {
            let labels = serde_json::from_value(object["metadata"]["labels"].clone()).ok();
            if let Some(fault) = detection_fault(labels.as_ref()) {
                report.warn(View::Api, &what, &fault, "correct the label of the namespace");
            }
            match &object["metadata"]["annotations"][annotation::FREEZE] {
                Value::Null => report.ok(View::Api, &what, "it is not frozen"),
                said => {
                    let said = format!("it is frozen: {}", said.as_str().unwrap_or_default());
                    report.warn(
                        View::Api,
                        &what,
                        &said,
                        &format!("remove the annotation {} when its machines may be touched", annotation::FREEZE),
                    );
                }
            }
        }
        Err(why) => report.skip(View::Api, &what, &why.to_string()),
    }
}

/// That the Secret is there, with which keys; never what is in it.
async fn secret(report: &mut Report, reader: &Reader, namespace: &str, host: &BareMetalHost) {
    let Some(bmc) = host.spec.bmc.as_ref().filter(|bmc| !bmc.credentials_name.is_empty()) else {
        return report.skip(View::Api, "Secret of the BMC", "the host names none");
    };
    let name = &bmc.credentials_name;
    let what = format!("Secret {namespace}/{name}");
    // It becomes a part of the path.
    if !names::dns_1123_subdomain(name).is_empty() {
        return report.fail(View::Api, &what, "this is no name of a Secret", "correct spec.bmc.credentialsName");
    }
    let found = reader.text(&format!("/api/v1/namespaces/{namespace}/secrets/{name}"), METADATA).await;
    let found =
        found.and_then(|text| serde_json::from_str::<Value>(&text).map_err(|error| Unread::Failed(error.to_string())));
    match found {
        Ok(object) => {
            let keys = secret_keys(&object["metadata"]);
            let missing: Vec<&str> = ["username", "password"].into_iter().filter(|key| !keys.contains(*key)).collect();
            if missing.is_empty() {
                report.ok(View::Api, &what, "it is there, with username and password");
            } else if keys.is_empty() {
                report.ok(View::Api, &what, "it is there; which keys it has is not known without reading it");
            } else {
                // They may tell of less than there is, after a restore.
                let said = format!("it is there, and its writers tell of no {}", missing.join(" and no "));
                report.warn(View::Api, &what, &said, "look whether it has the keys username and password");
            }
        }
        Err(Unread::Absent) => {
            report.fail(View::Api, &what, "it is not there", "create it, with username and password")
        }
        Err(why) => report.skip(View::Api, &what, &why.to_string()),
    }
}

/// The way to the BMC from here, without a password.
async fn bmc(report: &mut Report, host: &BareMetalHost, ways: &Ways<'_>) {
    let Some(spec) = &host.spec.bmc else { return report.skip(View::Here, "BMC", "the host names none") };
    let address = match bmc::Address::parse(&spec.address) {
        Ok(address) => address,
        Err(error @ (AddressError::NotServed { .. } | AddressError::Removed(_))) => {
            let why = format!("only the provisioner metamorph's addresses are looked at: {error}");
            return report.skip(View::Here, "BMC", &why);
        }
        Err(error) => return report.fail(View::Api, "BMC's address", &error.to_string(), "correct spec.bmc.address"),
    };
    let what = format!("BMC {address}");
    let next = "this says nothing of what the server reaches: see status.errorMessage, or its HostDiagnosis";
    let Ok(url) = Url::parse(&format!("{}/redfish/v1/", address.origin())) else {
        return report.skip(View::Here, &what, "its address is no URL");
    };
    let question = Question {
        allowed: Some(ways.allowed),
        authorities: ways.bmc_authorities,
        by_itself: true,
        body: MAX_BODY,
        ..Question::get(&url)
    };
    let answer = match probe::ask(&question).await {
        Ok(answer) => answer,
        Err(trouble) => return report.warn(View::Here, &what, &trouble.to_string(), next),
    };
    let root: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |field: &str| terms::clean(root[field].as_str().unwrap_or_default(), 60);
    if answer.status == 200 && root["RedfishVersion"].is_string() {
        let said = format!(
            "its Redfish service answers at {}: {} {} {}",
            answer.at,
            text("Vendor"),
            text("Product"),
            text("RedfishVersion")
        );
        report.ok(View::Here, &what, &said);
    } else {
        let said = format!("what answers {} at {} is no Redfish service root", answer.status, answer.at);
        let wrong = matches!(answer.status, 200..=299 | 404);
        report.warn(
            View::Here,
            &what,
            &said,
            if wrong { "check scheme, port and path of spec.bmc.address" } else { next },
        );
    }
    if let Some(found) = &answer.certificate {
        let any = spec.disable_certificate_verification == Some(true);
        match &found.fault {
            Some(fault) if !any => {
                let said = format!("its certificate is not trusted here: {fault}");
                report.warn(View::Here, &what, &said, "see whether the server has its authority (--bmc-ca)");
            }
            _ if any => {
                let said =
                    format!("its certificate is valid until {}, and the host says not to verify it", found.not_after);
                report.ok(View::Here, &what, &said);
            }
            _ => certificate(report, View::Here, &what, found, "give the BMC a new certificate"),
        }
    }
    clock(report, &what, &answer, "set the BMC's clock, best by NTP");
}

/// What the host's objects say of firmware.
async fn firmware(report: &mut Report, reader: &Reader, namespace: &str, name: &str) {
    let what = "firmware";
    match reader.object(&format!("{METAL3}/namespaces/{namespace}/hostfirmwarecomponents/{name}")).await {
        Ok(object) => {
            let all = object["status"]["components"].as_array().into_iter().flatten().take(16);
            let said: Vec<String> = all
                .map(|one| {
                    let text = |field: &str| terms::clean(one[field].as_str().unwrap_or("?"), 40);
                    format!("{} {}", text("component"), text("currentVersion"))
                })
                .collect();
            match said.is_empty() {
                true => report.skip(View::Api, what, "its HostFirmwareComponents lists none"),
                false => {
                    report.ok(View::Api, what, &format!("{}; no list of faulty versions is kept here", said.join(", ")))
                }
            }
        }
        Err(why) => report.skip(View::Api, what, &format!("HostFirmwareComponents: {why}")),
    }
}

async fn diagnosis(report: &mut Report, reader: &Reader, namespace: &str, name: &str, host: &BareMetalHost) {
    let what = "diagnosis";
    let path = format!("/apis/metamorph.metal3.io/v1alpha1/namespaces/{namespace}/hostdiagnoses/{name}");
    match reader.object(&path).await {
        Ok(object) if object["spec"]["host"]["uid"].as_str() == host.metadata.uid.as_deref() => {
            let status = &object["status"];
            if status.is_null() {
                let note = "a HostDiagnosis was begun and has no result yet: look again in a minute";
                return report.skip(View::Api, what, note);
            }
            let said = status["message"].as_str().unwrap_or_default();
            let found = match HostDiagnosisStatus::deserialize(status) {
                Ok(found) => found,
                // Of a later server, for instance.
                Err(error) => {
                    return report.skip(View::Api, what, &format!("the HostDiagnosis cannot be read: {error}"));
                }
            };
            if advises(host, &found, Timestamp::now()) {
                report.warn(View::Api, what, said, "metamorph host explain shows evidence and advice");
            } else {
                report.ok(View::Api, what, "the last one is about an earlier state");
            }
        }
        Ok(_) | Err(Unread::Absent) => report.skip(View::Api, what, "none was made of this host"),
        Err(why) => report.skip(View::Api, what, &why.to_string()),
    }
}

/// The image and its checksum file from here.
async fn image(report: &mut Report, host: &BareMetalHost, ways: &Ways<'_>, mirrored: bool) {
    let Some(image) = host.spec.image.as_ref().filter(|image| !image.url.is_empty()) else {
        return report.skip(View::Here, "image", "the host asks for none");
    };
    let shown = terms::clean(&addresses::text_without_secrets(&image.url), MAX_TEXT);
    let what = format!("image {shown}");
    let url = match Url::parse(&image.url) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Ok(url) if url.scheme() == "oci" => {
            return report.skip(View::Here, &what, "registries are asked by the server, with its logins and mirrors");
        }
        _ => {
            return report.fail(View::Api, &what, "it is no address that images are read at", "correct spec.image.url");
        }
    };
    read(report, &what, &url, ways, mirrored).await;
    let Some(checksum) = image.checksum.as_deref() else { return };
    let Ok(sums) = Url::parse(checksum) else { return };
    if !matches!(sums.scheme(), "http" | "https") {
        return;
    }
    let what = format!("checksum file {}", terms::clean(&addresses::text_without_secrets(checksum), MAX_TEXT));
    let question = Question { body: MAX_BODY, ..of_images(&sums, ways) };
    match probe::ask(&question).await {
        Ok(answer) if answer.status == 200 => {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let file = url.path_segments().and_then(Iterator::last).unwrap_or_default().to_owned();
            if answer.body.len() >= MAX_BODY {
                return report.skip(View::Here, &what, "it is longer than what is read of it here");
            }
            match has_sum(&text, &file) {
                true => report.ok(View::Here, &what, "it is there"),
                false => {
                    let said = format!("no line of it is a digest alone or names {}", terms::clean(&file, 100));
                    report.warn(View::Here, &what, &said, &format!("correct spec.image.checksum; {ELSEWHERE}"));
                }
            }
        }
        Ok(answer) => status(report, &what, answer.status, answer.header(&LOCATION), mirrored),
        Err(trouble) => report.warn(View::Here, &what, &trouble.to_string(), ELSEWHERE),
    }
}

/// Whether a checksum file has a line for the file, or a digest that stands alone. Whether it is the right one, the agent sees.
fn has_sum(text: &str, file: &str) -> bool {
    let is_digest = |word: &str| word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let names = |word: &str| {
        let name = word.trim_start_matches(['*', '(']).trim_end_matches(')');
        !file.is_empty() && name.rsplit('/').next() == Some(file)
    };
    text.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let digest = words.iter().any(|word| is_digest(word));
        digest && (words.len() == 1 || words.iter().any(|word| names(word)))
    })
}

const ELSEWHERE: &str =
    "the agent reads it from the machine's network, by mirrors and proxies of its own: this is no verdict on that";

fn of_images<'a>(url: &'a Url, ways: &Ways<'a>) -> Question<'a> {
    Question { allowed: Some(ways.allowed), authorities: ways.image_authorities, ..Question::get(url) }
}

async fn read(report: &mut Report, what: &str, url: &Url, ways: &Ways<'_>, mirrored: bool) {
    let head = Question { method: Method::HEAD, ..of_images(url, ways) };
    let mut answer = probe::ask(&head).await;
    // Not every server knows HEAD.
    if answer.as_ref().is_ok_and(|answer| matches!(answer.status, 400 | 403 | 404 | 405 | 501)) {
        answer = probe::ask(&Question { range: Some("bytes=0-0"), ..of_images(url, ways) }).await;
    }
    let answer = match answer {
        Ok(answer) => answer,
        Err(trouble) => return report.warn(View::Here, what, &trouble.to_string(), ELSEWHERE),
    };
    if let Some(found) = &answer.certificate {
        match &found.fault {
            Some(fault) => {
                let said = format!("its server's certificate is not trusted here: {fault}");
                report.warn(View::Here, what, &said, "see whether the server has its authority (--image-ca)");
            }
            None => certificate(report, View::Here, what, found, "renew it"),
        }
    }
    if matches!(answer.status, 200 | 206) {
        // Of a part, the whole's length stands behind the slash.
        let size = match answer.status {
            206 => answer.header(&CONTENT_RANGE).and_then(|range| Some(range.rsplit_once('/')?.1.to_owned())),
            _ => answer.header(&CONTENT_LENGTH),
        };
        let size = size.filter(|size| size != "*").map(|size| format!(", {size} bytes")).unwrap_or_default();
        let ranges = answer.status == 206 || answer.header(&ACCEPT_RANGES).is_some_and(|ranges| ranges == "bytes");
        let ranges =
            if ranges { "" } else { "; it does not say that parts of it can be read, so an attempt begins anew" };
        report.ok(View::Here, what, &format!("it can be read{size}{ranges}"));
    } else {
        status(report, what, answer.status, answer.header(&LOCATION), mirrored);
    }
}

fn status(report: &mut Report, what: &str, status: u16, location: Option<String>, mirrored: bool) {
    match status {
        300..=399 => {
            let to = location.map(|to| addresses::text_without_secrets(&to)).unwrap_or_default();
            report.ok(View::Here, what, &format!("it is redirected ({status}) to {to}"));
        }
        401 | 403 | 407 => report.warn(View::Here, what, &format!("its server answers {status}"), ELSEWHERE),
        404 | 410 if mirrored => {
            let said = format!("its server answers {status}; there is, or may be, a ConfigMap of mirrors");
            report.warn(View::Here, what, &said, ELSEWHERE);
        }
        404 | 410 => report.warn(
            View::Here,
            what,
            &format!("its server answers {status}"),
            &format!("correct the address, or put the file there; {ELSEWHERE}"),
        ),
        _ => report.warn(View::Here, what, &format!("its server answers {status}"), "look at the image's server"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(more: &Value) -> BareMetalHost {
        let mut host = json!({ "metadata": { "name": "h", "namespace": "n", "uid": "u" }, "spec": { "online": true } });
        for (key, value) in more.as_object().unwrap() {
            host[key] = value.clone();
        }
        serde_json::from_value(host).unwrap()
    }

    #[tokio::test]
    async fn local_addresses_that_a_host_names_are_not_called() {
        let (mut report, allowed) = (Report::default(), Allowed::default());
        let ways = Ways { allowed: &allowed, bmc_authorities: "", image_authorities: "", own_namespace: "own" };
        let host = host(&json!({ "spec": {
            "online": true, "bmc": { "address": "redfish-virtualmedia://127.0.0.1:1/redfish/v1/Systems/1", "credentialsName": "s" },
            "image": { "url": "http://u:secret@169.254.169.254/latest?key=secret", "checksum": "http://localhost/SUMS" },
        } }));
        bmc(&mut report, &host, &ways).await;
        image(&mut report, &host, &ways, false).await;
        let text = report.text();
        assert_eq!(text.matches("which is not called (--allow-address)").count(), 3, "{text}");
        assert!(!text.contains("secret") && !report.failed(), "{text}");
    }

    #[test]
    fn pause_error_and_classes_are_told() {
        let mut report = Report::default();
        let host = host(&json!({
            "metadata": { "name": "h", "annotations": { "baremetalhost.metal3.io/paused": "" }, "labels": { "hardwareclassification.metal3.io/large": "matches" } },
            "status": { "errorType": "inspection error", "errorMessage": "silent\u{1b}", "errorCount": 1, "operationalStatus": "error", "poweredOn": true, "provisioning": { "ID": "", "state": "inspecting" } },
        }));
        stands(&mut report, "host n/h", &host);
        let text = report.text();
        for words in ["warning  host n/h: inspecting, inspection error: silent", "it is paused", "it matches large"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn a_host_without_error_that_waits_or_has_a_fault_is_not_well() {
        let with = |status: &str, healthy: &str, message: &str| {
            host(&json!({
                "metadata": { "name": "h", "labels": { "error-detect": "on" } },
                "status": { "errorMessage": message, "errorCount": 0, "operationalStatus": status, "poweredOn": true, "provisioning": { "ID": "", "state": "provisioned" },
                    "conditions": [{ "type": "Healthy", "status": healthy, "reason": "PartFailed", "message": "a fan\u{1b}", "lastTransitionTime": "2026-03-01T11:00:00Z" }] },
            }))
        };
        for (host, words) in [
            (
                with("delayed", "True", "20 others"),
                "warning  host n/h: provisioned, without error, and delayed: 20 others",
            ),
            (
                with("OK", "False", ""),
                "warning  host n/h: provisioned, without error, and its machine has a fault: PartFailed: a fan",
            ),
            (with("OK", "True", ""), "ok       host n/h: provisioned, without error"),
        ] {
            let mut report = Report::default();
            stands(&mut report, "host n/h", &host);
            let text = report.text();
            assert!(
                text.contains(words) && text.contains("label error-detect: \"on\" counts as not set"),
                "{words}: {text}"
            );
        }
        let found = json!({ "metadata": { "name": "h", "annotations": { (annotation::DISCOVERED_BY): "rack" } } });
        let mut report = Report::default();
        stands(&mut report, "host n/h", &host(&found));
        assert!(report.text().contains("it was discovered and is not approved"), "{}", report.text());
    }

    #[tokio::test]
    async fn an_address_of_another_provisioner_is_no_fault() {
        let (mut report, allowed) = (Report::default(), Allowed::default());
        let ways = Ways { allowed: &allowed, bmc_authorities: "", image_authorities: "", own_namespace: "own" };
        for address in ["ipmi://192.0.2.7", "nonsense://192.0.2.7"] {
            let spec = json!({ "spec": { "online": true, "bmc": { "address": address, "credentialsName": "s" } } });
            bmc(&mut report, &host(&spec), &ways).await;
        }
        let text = report.text();
        assert!(text.starts_with("skipped  BMC") && text.contains("failed   BMC's address"), "{text}");
        let mut mirrored = Report::default();
        status(&mut mirrored, "image", 404, None, true);
        assert!(!mirrored.failed());
    }

    #[test]
    fn a_checksum_file_has_a_line_for_the_image_or_digests_alone() {
        let sum = "0123456789abcdef0123456789abcdef";
        for (text, found) in [
            (format!("{sum}\n{sum}{sum}\n"), true),
            (format!("# of today\n{sum}\n"), true),
            (format!("{sum}  ./d/a.img\n{sum} *b.img\n"), true),
            (format!("MD5 (a.img) = {sum}\n"), true),
            (format!("{sum}  old-a.img\n{sum}  a.img.sig\n"), false),
            (format!("{sum}  b.img"), false),
            ("<html>sign in</html>".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(has_sum(&text, "a.img"), found, "{text}");
        }
    }

    #[test]
    fn what_a_server_of_images_says_is_weighed() {
        for (code, said) in [(302, "ok"), (403, "warning"), (404, "warning"), (500, "warning")] {
            let mut report = Report::default();
            status(&mut report, "image", code, Some("http://u:secret@h/x?secret".to_owned()), false);
            assert!(report.text().starts_with(said) && !report.text().contains("secret"), "{}", report.text());
        }
    }
}
