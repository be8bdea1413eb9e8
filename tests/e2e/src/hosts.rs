//! What tests say to hosts and hear of them, as a person would: through kubectl.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::metal3::ProvisioningState;
use api::metamorph::{HostOperation, OperationPhase};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::{DiskImage, World};

/// Longest wait for a host's next state, in seconds. It is long because tests share two processors; none comes near it.
const PATIENCE: u64 = 60;

impl World {
    /// The first state of the host that is `wanted`, of all that `kubectl get --watch` shows.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn wait_for_state(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            // By a selector, so that kubectl watches from the revision of its list. It watches a single object from
            // now on and hides the first event, and with it a change that came between its two requests.
            .args(["get", "bmh", "--field-selector", &format!("metadata.name={name}"), "-o", "json", "--watch"])
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start kubectl; make setup installs it")?;
        let mut lines = BufReader::new(child.stdout.take().context("read what kubectl prints")?).lines();
        let looking = async {
            let mut text = String::new();
            while let Some(line) = lines.next_line().await? {
                text.push_str(&line);
                text.push('\n');
                // kubectl indents objects: this is the end of one.
                if line == "}" {
                    let object: Value = serde_json::from_str(&text).context("understand kubectl")?;
                    text.clear();
                    if wanted(&object) {
                        return Ok(object);
                    }
                }
            }
            bail!("kubectl ended; {}", self.describe(name).await)
        };
        match tokio::time::timeout(Duration::from_secs(PATIENCE), looking).await {
            Ok(result) => result,
            Err(_) => bail!("{name} is not {what} within {PATIENCE} s; {}", self.describe(name).await),
        }
    }

    /// The first error that kubectl shows of the host: it must be of this type, counted, and its message must hold all of `says`.
    ///
    /// # Errors
    /// When there is none in time, or it is another.
    pub async fn expect_error(&self, name: &str, kind: &str, says: &[&str]) -> anyhow::Result<Value> {
        let message = |host: &Value| host["status"]["errorMessage"].as_str().unwrap_or_default().to_owned();
        let host = self.wait_for_state(name, "in error", |host| !message(host).is_empty()).await?;
        let (status, text) = (&host["status"], message(&host));
        ensure!(status["errorType"] == kind, "the error is a {}, not a {kind}: {text}", status["errorType"]);
        ensure!(status["operationalStatus"] == "error", "the host is in error, but {}", status["operationalStatus"]);
        ensure!(status["errorCount"].as_i64() >= Some(1), "the error is counted as {}: {text}", status["errorCount"]);
        for part in says {
            ensure!(text.contains(part), "the message does not say {part:?}: {text}");
        }
        Ok(host)
    }

    /// An operation of the host has failed for this cause, and says what was found and what to do.
    ///
    /// # Errors
    /// When there is none.
    pub async fn expect_cause(&self, name: &str, operation: &str, cause: &str) -> anyhow::Result<()> {
        let text = self.kubectl(&["get", "hostoperations", "-o", "json"], "").await?;
        let list: Value = serde_json::from_str(&text).context("understand kubectl")?;
        let found = list["items"].as_array().into_iter().flatten().find(|o| {
            o["spec"]["host"]["name"] == name && o["spec"]["type"] == operation && o["status"]["phase"] == "Failed"
        });
        let error = &found.with_context(|| format!("no {operation} has failed: {text}"))?["status"]["error"];
        ensure!(error["cause"] == cause, "the operation's error is {error}, not for {cause}");
        for part in ["message", "advice"] {
            ensure!(
                !error[part].as_str().unwrap_or_default().is_empty(),
                "the operation's error has no {part}: {error}"
            );
        }
        Ok(())
    }

    /// Waits until the host is in `state` and well again, with the spec that it had in `before` (the architecture is the
    /// controller's to fill in).
    ///
    /// # Errors
    /// When that does not happen in time, or the spec is another.
    pub async fn expect_recovery(&self, before: &Value, state: ProvisioningState) -> anyhow::Result<()> {
        let name = before["metadata"]["name"].as_str().context("a host's name")?;
        self.expect_well(name, state).await?;
        let after: Value = serde_json::from_str(&self.kubectl(&["get", "bmh", name, "-o", "json"], "").await?)?;
        let spec = |host: &Value| {
            let mut spec = host["spec"].clone();
            spec.as_object_mut().map(|fields| fields.remove("architecture"));
            spec
        };
        ensure!(spec(before) == spec(&after), "the host's spec was {}, now it is {}", before["spec"], after["spec"]);
        Ok(())
    }

    /// Waits until the host is in `state`, without an error and without failures that are still counted.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn expect_well(&self, name: &str, state: ProvisioningState) -> anyhow::Result<()> {
        let host = self.wait_state(name, PATIENCE, state).await?;
        let status = host.status.unwrap_or_default();
        ensure!(status.error_type.is_none(), "an error type is left: {:?}", status.error_type);
        ensure!(status.error_count == 0, "{} failures are still counted", status.error_count);
        Ok(())
    }

    /// Waits until the operation of this name says what is being done, or waited for.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_message(&self, name: &str, says: &str) -> anyhow::Result<()> {
        let api: Api<HostOperation> = Api::default_namespaced(self.client.clone());
        let says_so = |operation: Option<&HostOperation>| {
            let message = operation.and_then(|o| o.status.as_ref()).and_then(|s| s.message.as_deref());
            message.is_some_and(|m| m.contains(says))
        };
        let waited = kube::runtime::wait::await_condition(api, name, says_so);
        let waited = tokio::time::timeout(Duration::from_secs(PATIENCE), waited).await;
        waited
            .with_context(|| format!("{name} has not said \"{says}\" within {PATIENCE} s"))?
            .context("watch the operation")?;
        Ok(())
    }

    /// Waits until no operation of the host is left: the garbage collector follows the host's end.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_no_operations(&self, host: &str) -> anyhow::Result<()> {
        let api: Api<HostOperation> = Api::default_namespaced(self.client.clone());
        for operation in self.operations(host).await? {
            let name = operation.metadata.name.unwrap_or_default();
            let uid = operation.metadata.uid.unwrap_or_default();
            let gone = kube::runtime::wait::conditions::is_deleted(&uid);
            let waited = kube::runtime::wait::await_condition(api.clone(), &name, gone);
            let waited = tokio::time::timeout(Duration::from_secs(PATIENCE), waited).await;
            waited
                .with_context(|| format!("{name} is still there {PATIENCE} s after its host"))?
                .context("watch the operation")?;
        }
        Ok(())
    }

    /// Waits until the operation of this name has succeeded.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn wait_operation(&self, name: &str) -> anyhow::Result<()> {
        let api: Api<HostOperation> = Api::default_namespaced(self.client.clone());
        let succeeded = |operation: Option<&HostOperation>| {
            operation.and_then(|o| o.status.as_ref()).is_some_and(|s| s.phase == OperationPhase::Succeeded)
        };
        let waited = kube::runtime::wait::await_condition(api, name, succeeded);
        match tokio::time::timeout(Duration::from_secs(PATIENCE), waited).await {
            Ok(result) => result.map(|_| ()).context("watch the operation"),
            Err(_) => bail!("{name} has not succeeded within {PATIENCE} s; {}", self.describe(name).await),
        }
    }

    /// Creates or replaces a Secret.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn apply_secret(&self, name: &str, data: Value) -> anyhow::Result<()> {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data });
        self.kubectl(&["apply", "-f", "-"], &secret.to_string()).await.map(|_| ())
    }

    /// Changes a host by a merge patch.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn patch(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        self.kubectl(&["patch", "bmh", name, "--type=merge", "-p", &patch.to_string()], "").await.map(|_| ())
    }

    /// Sets (`key=value`) or removes (`key-`) an annotation of a host.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn annotate(&self, name: &str, annotation: &str) -> anyhow::Result<()> {
        self.kubectl(&["annotate", "--overwrite", "bmh", name, annotation], "").await.map(|_| ())
    }

    /// Deletes a host and waits until it is gone, and with it the Secret of its BMC: one that is applied too early would be collected, too.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.kubectl(&["delete", "bmh", name, "--wait=false"], "").await?;
        self.wait_gone(name, PATIENCE).await?;
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        let is_no_owner = |secret: Option<&Secret>| {
            let mut owners = secret.and_then(|secret| secret.metadata.owner_references.as_ref()).into_iter().flatten();
            owners.all(|owner| owner.name != name)
        };
        let secret = format!("{name}-bmc-secret");
        let collected = kube::runtime::wait::await_condition(secrets, &secret, is_no_owner);
        match tokio::time::timeout(Duration::from_secs(PATIENCE), collected).await {
            Ok(result) => result.map(|_| ()).context("watch the Secret"),
            Err(_) => bail!("the Secret {secret} is not gone with {name} within {PATIENCE} s"),
        }
    }

    /// Puts an image on the server, and gives `spec.image` for it.
    #[must_use]
    pub fn image(&self, name: &str, image: &DiskImage) -> Value {
        let url = self.images.put(name, image.bytes.clone());
        json!({ "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" })
    }
}
