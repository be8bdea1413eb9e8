//! The server's keys: the secrets from which tokens and media addresses are derived, and the certificate by which agents know the server.
//!
//! They are a series of Secrets in the Kubernetes API ([`crate::kept`]), so that a restarted server, here or elsewhere, serves the same bytes at the
//! same addresses, and running agents recognise it. New boots use the newest key. Keys rotate automatically after two thirds of a year, and by
//! `metamorph keys rotate` at any time; an earlier key is deleted when no boot needs it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, anyhow};
use api::metamorph::{AgentBoot, HostOperation, MachineRecord};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use provisioner::MayAct;
use provisioner_metamorph::{FIRST_KEY, Key, KeyRing};
use rand::TryRng;
use rcgen::{CertificateParams, DnType, KeyPair};
use redfish::server_id;
use sha2::{Digest, Sha256};

use crate::agent_tls::{AgentCertificates, ServedCertificate};
use crate::kept::{self, CERTIFICATE, Data, KEY, Kept, SERIES, Series};
use crate::renewal;

/// Name of the series.
pub const NAME: &str = "metamorph-identity";
const SECRET: &str = "secret";
const SERVER_ID: &str = "server-id";
/// How long an agent whose work has ended still counts: it leaves its machine only when the server says so.
const RETIREMENT_GRACE: SignedDuration = SignedDuration::from_hours(1);
/// Life of a key: it is replaced after two thirds of that.
const LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// A record may name any number. Larger ones cannot be a key's and are ignored, so that new keys can still be numbered.
const MAX_NUMBER: u32 = 1_000_000;
/// Most earlier keys: each is tried with every token.
const MOST_EARLIER: usize = 16;

/// The series of a server that keeps its keys in this namespace.
pub fn series(client: &Client, namespace: &str) -> Series {
    Series::new(client, namespace, NAME.to_owned(), "this server's keys")
}

/// The keys, as they are now.
pub struct Identity {
    series: Series,
    client: Client,
    own_namespace: String,
    /// The namespace whose boots decide whether a key is still needed; `None` for all.
    scope: Option<String>,
    /// The keys from which media addresses and tokens are derived.
    pub ring: KeyRing,
    /// The certificates served to agents.
    pub certificates: AgentCertificates,
    /// The id that marks this server's sessions on BMCs.
    pub server_id: String,
}

/// The keys of a series, in the forms in which they are used.
struct Read {
    current: Key,
    earlier: Vec<Key>,
    served: Vec<ServedCertificate>,
    server_id: String,
}

impl Identity {
    /// Reads the keys, or makes the first when this is the first start.
    pub async fn load(client: &Client, own_namespace: &str, scope: Option<&str>) -> anyhow::Result<Self> {
        let series = series(client, own_namespace);
        let mut all = series.all().await?;
        if all.is_empty() {
            // The keys of earlier boots are lost: a new key must not reuse their numbers.
            all = series.next(named(client, scope).await?, data(None)?).await?;
        }
        let read = read(&all)?;
        let certificates = AgentCertificates::default();
        certificates.replace(read.served);
        Ok(Self {
            series,
            client: client.clone(),
            own_namespace: own_namespace.to_owned(),
            scope: scope.map(ToOwned::to_owned),
            ring: KeyRing::new(read.current, read.earlier),
            certificates,
            server_id: read.server_id,
        })
    }

    /// Checks the keys: applies added and removed ones, replaces a key at the end of its life, and deletes earlier keys that no boot needs.
    pub async fn look(&self, now: Timestamp) -> anyhow::Result<()> {
        let mut all = self.series.all().await?;
        let newest = all.last();
        let due = newest.filter(|newest| renewal::due(newest.made, now, LIFE)).is_some();
        if due || newest.is_none() {
            // A new key must not reuse a number that boots were derived from.
            let used = self.ring.highest().max(named(&self.client, self.scope.as_deref()).await?);
            let after = newest.map_or(used, |newest| newest.number.max(used));
            all = self.series.next(after, data(Some(&self.server_id))?).await?;
        }
        if due {
            tracing::info!("this server's key has had its time: new boots are derived from another");
        }
        let before = self.ring.current().number;
        self.take(read(&all)?);
        let current = self.ring.current().number;
        if current != before {
            tracing::info!(key = current, before, "boots are derived from another key from now on");
        }
        // Boots never begin with an earlier key, and a key becomes idle only after its last user has recorded the boot.
        let idle: Vec<u32> = all.iter().map(|kept| kept.number).filter(|number| self.ring.idle(*number)).collect();
        if idle.is_empty() {
            return Ok(());
        }
        let needed = needed(&self.boots(now).await?);
        for number in idle.into_iter().filter(|number| !needed.contains(number)) {
            self.series.delete(number).await?;
            all.retain(|kept| kept.number != number);
            tracing::info!(key = number, "deleted a key that no boot needs any more");
        }
        self.take(read(&all)?);
        Ok(())
    }

    fn take(&self, read: Read) {
        self.certificates.replace(read.served);
        self.ring.replace(read.current, read.earlier);
    }

    /// The boots of all operations, with their hosts.
    async fn boots(&self, now: Timestamp) -> anyhow::Result<Vec<(String, AgentBoot)>> {
        boots(&self.client, self.scope.as_deref(), &self.ring, now).await
    }

    /// Checks the keys at once, whenever their Secrets change, and at this interval. Failures are retried; a process that does not lead changes
    /// nothing.
    pub async fn keep(&self, every: Duration, may_act: MayAct) {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(self.client.clone(), &self.own_namespace);
        let selected = watcher::Config::default().labels(&format!("{SERIES}={NAME}"));
        let events = watcher(api, selected).default_backoff().touched_objects();
        let mut events = std::pin::pin!(events);
        loop {
            if may_act()
                && let Err(error) = self.look(Timestamp::now()).await
            {
                let error = format!("{error:#}");
                tracing::warn!(error, "look at this server's keys: it is tried again");
            }
            tokio::select! {
                Some(event) = events.next() => if let Err(error) = event {
                    tracing::debug!(%error, "watch this server's keys");
                },
                () = tokio::time::sleep(every) => {}
            }
        }
    }
}

/// The boots with their hosts (`namespace/name`): those that records hold under one of these keys, whether or not the host exists at the moment; for
/// hosts without such a record, those in their operations. A record vouches only for the host of its own namespace and name.
pub async fn boots(
    client: &Client,
    scope: Option<&str>,
    keys: &KeyRing,
    now: Timestamp,
) -> anyhow::Result<Vec<(String, AgentBoot)>> {
    const ATTEMPT: &str = "look which keys boots are derived from";
    let operations: Api<HostOperation> = scoped(client, scope);
    let records: Api<MachineRecord> = scoped(client, scope);
    let reported = operations.list(&ListParams::default()).await.context(ATTEMPT)?;
    let reported = reported.items.into_iter().filter_map(|reported| {
        let host = format!("{}/{}", reported.metadata.namespace?, reported.spec.host.name);
        let status = reported.status?;
        Some((host, retire_after_grace(status.boot?, status.end_time.map(|end| end.0), now)))
    });
    let recorded = records.list(&ListParams::default()).await.context(ATTEMPT)?;
    let recorded = recorded.items.into_iter().filter_map(|record| {
        let (namespace, name) = (record.metadata.namespace?, record.metadata.name?);
        let part = record.spec.provisioner.as_ref()?;
        let (boot, ended) = provisioner_metamorph::recorded_boot((&namespace, &name), part, keys)?;
        Some((format!("{namespace}/{name}"), retire_after_grace(boot, ended, now)))
    });
    let recorded: Vec<(String, AgentBoot)> = recorded.collect();
    let reported: Vec<_> = reported.filter(|(host, _)| !recorded.iter().any(|(known, _)| known == host)).collect();
    Ok(recorded.into_iter().chain(reported).collect())
}

/// The greatest key number that a boot names, whether or not that key still exists; 0 if none does.
pub async fn named(client: &Client, scope: Option<&str>) -> anyhow::Result<u32> {
    const ATTEMPT: &str = "look which keys boots name";
    let (operations, records): (Api<HostOperation>, Api<MachineRecord>) =
        (scoped(client, scope), scoped(client, scope));
    let all = ListParams::default();
    // Without the kinds installed, nothing names a key.
    let reported = or_none(operations.list(&all).await.map(|list| list.items)).context(ATTEMPT)?;
    let recorded = or_none(records.list(&all).await.map(|list| list.items)).context(ATTEMPT)?;
    let reported = reported.into_iter().filter_map(|reported| Some(reported.status?.boot?.key.unwrap_or(FIRST_KEY)));
    let recorded =
        recorded.iter().filter_map(|record| provisioner_metamorph::recorded_key(record.spec.provisioner.as_ref()?));
    Ok(reported.chain(recorded).filter(|number| *number <= MAX_NUMBER).max().unwrap_or(0))
}

fn or_none<T>(found: Result<Vec<T>, kube::Error>) -> Result<Vec<T>, kube::Error> {
    match found {
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(Vec::new()),
        other => other,
    }
}

/// The boot as it counts for its key. The end of its work is recorded before the agent learns of it, and the agent may learn of it only later: from
/// another process, or when its network is back.
fn retire_after_grace(boot: AgentBoot, ended: Option<Timestamp>, now: Timestamp) -> AgentBoot {
    let over = boot.retired && ended.is_none_or(|ended| now.duration_since(ended) >= RETIREMENT_GRACE);
    AgentBoot { retired: over, ..boot }
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The boots whose work may not be over: each host's newest, unless it is retired.
pub fn open(boots: &[(String, AgentBoot)]) -> Vec<&AgentBoot> {
    let mut newest: BTreeMap<&str, (&AgentBoot, bool)> = BTreeMap::new();
    for (host, boot) in boots {
        let (known, over) = newest.entry(host).or_insert((boot, boot.retired));
        match boot.generation.cmp(&known.generation) {
            Ordering::Greater => (*known, *over) = (boot, boot.retired),
            // One generation may have several records: only the one written last knows that the boot is over.
            Ordering::Equal => *over |= boot.retired,
            Ordering::Less => {}
        }
    }
    newest.into_values().filter(|(_, over)| !over).map(|(boot, _)| boot).collect()
}

/// The keys that these boots need.
fn needed(boots: &[(String, AgentBoot)]) -> BTreeSet<u32> {
    open(boots).into_iter().map(|boot| boot.key.unwrap_or(FIRST_KEY)).collect()
}

/// The keys of a series.
pub fn ring(all: &[Kept]) -> anyhow::Result<KeyRing> {
    let read = read(all)?;
    Ok(KeyRing::new(read.current, read.earlier))
}

fn read(all: &[Kept]) -> anyhow::Result<Read> {
    let mut keys = Vec::new();
    let mut served = Vec::new();
    for kept in all.iter().rev().take(MOST_EARLIER + 1) {
        let secret = kept.bytes(SECRET)?.try_into().map_err(|_| anyhow!("{SECRET} has not 32 bytes"))?;
        let certificate = kept.text(CERTIFICATE)?;
        let certificate_sha256 = hex::encode(Sha256::digest(pem_certificate(&certificate)?));
        served.push(ServedCertificate::of(&certificate, &kept.text(KEY)?, &certificate_sha256)?);
        keys.push(Key { number: kept.number, secret, certificate_sha256, certificate_pem: certificate });
    }
    if all.len() > keys.len() {
        tracing::warn!("there are more than {MOST_EARLIER} earlier keys: boots of the oldest are not served");
    }
    let newest = all.last().context("there is no key")?;
    let mut keys = keys.into_iter();
    let current = keys.next().context("there is no key")?;
    let server_id = newest.text(SERVER_ID).unwrap_or_else(|_| server_id(&current.secret));
    Ok(Read { current, earlier: keys.collect(), served, server_id })
}

/// Adds a key after the newest; new boots use it as soon as the server sees it. Returns its number, which no boot has named ([`named`]).
pub async fn rotate(series: &Series, named: u32) -> anyhow::Result<u32> {
    let all = series.all().await?;
    let newest = all.last().context("there is no key yet: the server makes the first when it starts")?;
    let after = newest.number.max(named);
    anyhow::ensure!(
        all.len() <= MOST_EARLIER,
        "rotate the key: {} are kept, as boots still need them; delete Secrets {NAME}-* that are to be given up first",
        all.len()
    );
    let made = series.next(after, data(Some(&read(&all)?.server_id))?).await?;
    made.last()
        .map(|newest| newest.number)
        .filter(|number| *number > after)
        .context("rotate the key: it was deleted meanwhile")
}

fn pem_certificate(pem: &str) -> anyhow::Result<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    Ok(CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| anyhow!("the certificate is no PEM: {e}"))?.to_vec())
}

/// A new key: the first, or one of the server with this id.
fn data(own_id: Option<&str>) -> anyhow::Result<Data> {
    let mut secret = [0; 32];
    rand::rngs::SysRng.try_fill_bytes(&mut secret).context("get random bytes from the system")?;
    let key = KeyPair::generate().context("make a key")?;
    // Agents pin the certificate itself: its names and dates do not matter.
    let mut params = CertificateParams::new(vec!["metamorph".to_owned()]).context("make a certificate")?;
    params.distinguished_name.push(DnType::CommonName, "Metamorph agent endpoint");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2120, 1, 1);
    let certificate = params.self_signed(&key).context("make a certificate")?;
    let mut data = kept::fields(certificate.pem(), key.serialize_pem());
    data.insert(SECRET.to_owned(), ByteString(secret.to_vec()));
    let id = own_id.map_or_else(|| server_id(&secret), ToOwned::to_owned);
    data.insert(SERVER_ID.to_owned(), ByteString(id.into_bytes()));
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::tests::Secrets;
    use serde_json::json;

    fn boot(generation: u64, key: Option<u32>, retired: bool) -> AgentBoot {
        AgentBoot { generation, key, retired, ..AgentBoot::default() }
    }

    #[test]
    fn a_key_is_needed_until_the_newest_boot_of_each_host_that_began_with_it_is_over() {
        let of = |boots: &[(&str, AgentBoot)]| {
            let boots: Vec<_> = boots.iter().map(|(host, boot)| ((*host).to_owned(), boot.clone())).collect();
            needed(&boots).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [0; 0]);
        assert_eq!(of(&[("a", boot(1, None, false))]), [1]);
        assert_eq!(of(&[("a", boot(1, None, true))]), [0; 0]);
        assert_eq!(of(&[("a", boot(2, Some(2), false)), ("a", boot(1, None, false))]), [2], "an older boot is over");
        assert_eq!(of(&[("a", boot(1, None, false)), ("a", boot(2, Some(2), false))]), [2]);
        assert_eq!(of(&[("a", boot(1, None, false)), ("a", boot(2, Some(2), true))]), [0; 0]);
        for order in [[false, true], [true, false]] {
            let records = order.map(|retired| ("a", boot(3, Some(2), retired)));
            assert_eq!(of(&records), [0; 0], "one of its records says that it is over");
        }
        assert_eq!(of(&[("a", boot(1, None, false)), ("b", boot(9, Some(3), false))]), [1, 3]);
    }

    #[test]
    fn an_agent_that_has_still_to_be_told_to_leave_needs_its_key() {
        let ended = Timestamp::UNIX_EPOCH;
        for (retired, after, over) in [(false, 1000, false), (true, 0, false), (true, 59, false), (true, 60, true)] {
            let now = ended + SignedDuration::from_mins(after);
            let counted = retire_after_grace(boot(1, None, retired), Some(ended), now);
            assert_eq!(counted.retired, over, "{retired} {after}");
        }
        assert!(retire_after_grace(boot(1, None, true), None, ended).retired);
    }

    #[tokio::test]
    async fn rotation_keeps_what_marks_the_sessions_and_the_certificates_of_earlier_boots() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secrets = Secrets::default();
        let client = secrets.client();
        // A key of an earlier version: no label, no id.
        let mut old = data(None).unwrap();
        old.remove(SERVER_ID);
        secrets.put(NAME, Timestamp::now(), json!({}), &old);
        let first = Identity::load(&client, "own", None).await.unwrap();
        assert_eq!(first.ring.current().number, 1);
        assert_eq!(first.server_id, server_id(&first.ring.current().secret));
        assert_eq!(rotate(&series(&client, "own"), 0).await.unwrap(), 2);
        first.look(Timestamp::now()).await.unwrap_err();
        // The operations cannot be listed there; the keys are applied anyway, and none is deleted.
        assert_eq!(first.ring.current().number, 2);
        assert_eq!(secrets.names(), [NAME.to_owned(), format!("{NAME}-2")]);
        let second = Identity::load(&client, "own", None).await.unwrap();
        assert_eq!(second.server_id, first.server_id);
        assert_ne!(second.ring.current().secret, second.ring.of(&boot(1, None, false)).unwrap().secret);
        first.series.delete(1).await.unwrap();
        let third = Identity::load(&client, "own", None).await.unwrap();
        assert_eq!((third.server_id, third.ring.of(&boot(1, None, false))), (first.server_id, None));
    }

    #[tokio::test]
    async fn keys_that_are_lost_do_not_come_back_under_their_number() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secrets = Secrets::default();
        let identity = Identity::load(&secrets.client(), "own", None).await.unwrap();
        identity.series.delete(1).await.unwrap();
        identity.look(Timestamp::now()).await.unwrap();
        assert_eq!((identity.ring.current().number, identity.ring.of(&boot(1, None, false))), (2, None));
    }

    #[tokio::test]
    async fn a_key_gets_a_number_that_no_key_and_no_boot_has_had() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secrets = Secrets::default();
        let identity = Identity::load(&secrets.client(), "own", None).await.unwrap();
        rotate_after(&identity, 1).await;
        let _ = identity.look(Timestamp::now()).await;
        assert_eq!(identity.ring.current().number, 2);
        // The newest is deleted by hand: its boots have no key, and stay without one.
        identity.series.delete(2).await.unwrap();
        let _ = identity.look(Timestamp::now()).await;
        assert_eq!(identity.ring.current().number, 1);
        let _ = identity.look(Timestamp::now() + SignedDuration::from_hours(24 * 300)).await;
        assert_eq!(identity.ring.current().number, 3);

        // All keys are lost with the server's memory; a boot names the last one.
        let secrets = Secrets::default();
        let recorded = |key: u32| {
            let data = json!({ "boot": { "generation": 3, "key": key } });
            let spec = json!({ "host": { "name": "a" }, "bmcAddress": "x", "provisioner": { "name": "metamorph", "version": 1, "revision": 1, "data": data } });
            json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "MachineRecord", "metadata": { "name": "a", "namespace": "n" }, "spec": spec })
        };
        // An impossible key number does not block the next key.
        *secrets.records.lock().unwrap() = vec![recorded(4), recorded(u32::MAX)];
        let identity = Identity::load(&secrets.client(), "own", None).await.unwrap();
        assert_eq!(identity.ring.current().number, 5);
    }

    /// As `metamorph keys rotate` does.
    async fn rotate_after(identity: &Identity, number: u32) {
        assert_eq!(rotate(&identity.series, 0).await.unwrap(), number + 1);
    }

    #[tokio::test]
    async fn a_key_is_rotated_by_itself_after_two_thirds_of_a_year() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secrets = Secrets::default();
        let identity = Identity::load(&secrets.client(), "own", None).await.unwrap();
        let made = Timestamp::now();
        let day = SignedDuration::from_hours(24);
        identity.look(made + day * 243).await.unwrap();
        assert_eq!(identity.ring.current().number, 1);
        let _ = identity.look(made + day * 244).await;
        assert_eq!(identity.ring.current().number, 2);
    }
}
