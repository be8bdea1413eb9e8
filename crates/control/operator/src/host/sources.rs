//! From which mirrors, and by way of which proxy, a host's image is read: what the ConfigMap `metamorph-images` in the host's namespace says, for what
//! it leaves out the one in the server's own namespace, and then the server's flags.
//!
//! They are read when an image is to be written, and known for [`FRESH`]: there is no watch. A fault in them is told on the host, which waits until it
//! is put right: what is blocked must not be read because a line above it has been mistyped.
//!
//! **A proxy's password** goes to the proxy that its Secret names, and to no other: whoever may write ConfigMaps may not read Secrets by that. That of
//! the server's own namespace or of its flags is for the server's own requests, and for agents only where that is said: whoever may write hosts can read
//! what an agent is given.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use image_sources::{CONFIG_MAP, Document, KEY, Login, Proxy, ProxyChoice, Sources};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use tokio::time::Instant;

use super::context::Context;
use super::secrets::HostDataError;

/// How long a ConfigMap is taken for what it was when it was read.
const FRESH: Duration = Duration::from_secs(10);
/// Most namespaces of which it is remembered.
const MAX_KEPT: usize = 1024;

/// What the server has where no ConfigMap says otherwise.
#[derive(Clone, Debug, Default)]
pub struct ImageDefaults {
    /// The server's own namespace, whose ConfigMap counts for all; none where there is none.
    pub own_namespace: Option<String>,
    /// The proxy of the server's flags.
    pub proxy: Option<Proxy>,
    /// Agents get its login, too.
    pub login_for_agents: bool,
}

/// Documents by namespace, and when they were read.
#[derive(Default)]
pub struct Documents(Mutex<HashMap<String, (Instant, Arc<Document>)>>);

impl Documents {
    /// The document of this namespace.
    async fn of(&self, context: &Context, namespace: &str) -> Result<Arc<Document>, HostDataError> {
        let now = Instant::now();
        let kept = |documents: &Self| {
            let mut all = documents.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, (read, _)| now.duration_since(*read) < FRESH);
            all.get(namespace).map(|(_, document)| Arc::clone(document))
        };
        if let Some(document) = kept(self) {
            return Ok(document);
        }
        let document = Arc::new(read(context, namespace).await?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MAX_KEPT {
            all.insert(namespace.to_owned(), (now, Arc::clone(&document)));
        }
        Ok(document)
    }
}

async fn read(context: &Context, namespace: &str) -> Result<Document, HostDataError> {
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let what = || format!("read the ConfigMap {CONFIG_MAP} in namespace {namespace}");
    let found = api.get_opt(CONFIG_MAP).await.map_err(|error| match error {
        // What it blocks must not be read because it cannot be.
        kube::Error::Api(refused) if refused.code == 403 => {
            HostDataError::Sources(format!("{}: it may not be read: let the server get it (metamorph rbac)", what()))
        }
        error => HostDataError::Api { what: what(), source: Box::new(error) },
    })?;
    let Some(found) = found else { return Ok(Document::default()) };
    let data = found.data.unwrap_or_default();
    let binary = found.binary_data.unwrap_or_default();
    if let Some(other) = data.keys().chain(binary.keys()).find(|key| *key != KEY) {
        return Err(HostDataError::Sources(format!("{}: it has the key {other:.80}, and {KEY} alone is read", what())));
    }
    let Some(text) = data.get(KEY) else {
        return if binary.is_empty() {
            Ok(Document::default())
        } else {
            Err(HostDataError::Sources(format!("{}: {KEY} is no text", what())))
        };
    };
    Document::read(text).map_err(|fault| HostDataError::Sources(format!("{}, {KEY}: {fault}", what())))
}

/// How images of hosts in this namespace are read.
///
/// # Errors
/// When settings are unusable, or the Kubernetes API fails.
pub async fn of_namespace(context: &Context, namespace: &str) -> Result<Sources, HostDataError> {
    let defaults = &context.settings.images;
    let near = context.documents.of(context, namespace).await?;
    let (far, own) = match &defaults.own_namespace {
        Some(own) if own != namespace => (context.documents.of(context, own).await?, own.as_str()),
        _ => (Arc::default(), namespace),
    };
    let mirrors = near.mirrors.clone().or_else(|| far.mirrors.clone()).unwrap_or_default();
    let (choice, of, agents) = match (&near.proxy, &far.proxy) {
        // Whose login it is depends on the namespace that it is kept in, and not on how it was found.
        (Some(choice), _) => (choice, namespace, defaults.own_namespace.as_deref() != Some(namespace)),
        (None, Some(choice)) => (choice, own, false),
        (None, None) => {
            let (proxy, login_withheld) = (defaults.proxy.clone(), !defaults.login_for_agents);
            return Ok(Sources { proxy, mirrors, login_withheld, ..Sources::default() });
        }
    };
    let proxy = chosen(context, choice, of).await?;
    let (login_withheld, proxy_unnamed) = match choice {
        ProxyChoice::Direct => (false, false),
        ProxyChoice::By { secret, agents: said, .. } => (!said.unwrap_or(agents), secret.is_none()),
    };
    Ok(Sources { proxy, mirrors, login_withheld, proxy_unnamed, fault: None })
}

/// The proxy with its login.
async fn chosen(context: &Context, choice: &ProxyChoice, namespace: &str) -> Result<Option<Proxy>, HostDataError> {
    let (proxy, name) = match choice {
        ProxyChoice::Direct => return Ok(None),
        ProxyChoice::By { proxy, secret: None, .. } => return Ok(Some(proxy.clone())),
        ProxyChoice::By { proxy, secret: Some(name), .. } => (proxy, name),
    };
    let what = || format!("read the Secret {name:.253} of the images' proxy in namespace {namespace}");
    let fault = |why: String| HostDataError::Sources(format!("{}: {why}", what()));
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let found = context.bodies.get(&api, namespace, name).await.map_err(|error| match error {
        kube::Error::Api(refused) if refused.code == 403 => fault("it may not be read".to_owned()),
        error => HostDataError::Api { what: what(), source: Box::new(error) },
    })?;
    let secret = found.ok_or_else(|| fault("there is none".to_owned()))?;
    if secret.kind != "kubernetes.io/basic-auth" {
        return Err(fault("it is of another type than kubernetes.io/basic-auth".to_owned()));
    }
    if secret.text("proxy").map(str::trim) != Some(proxy.url.as_str()) {
        let why =
            format!("its key proxy is not {}: a password goes to the proxy that its Secret names alone", proxy.url);
        return Err(fault(why));
    }
    let login = secret.login().as_ref().map_err(|missing| fault(format!("it has no {missing}")))?;
    let login = Login::basic(&login.username, secrecy::ExposeSecret::expose_secret(&login.password));
    let login = login.map_err(|error| fault(error.to_string()))?;
    Ok(Some(Proxy { login: Some(login), ..proxy.clone() }))
}
