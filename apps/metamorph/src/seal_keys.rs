//! The keys that seal MachineRecords ([`operator::SealKeys`]), in their own series of Secrets ([`crate::kept`]): they must live as long as the
//! records, not as long as a boot. The first start makes the first key; an operator can add others by hand. Earlier keys verify their seals as long
//! as they exist. If all keys are lost, records count as unsealed until the server seals them again.

use anyhow::{Context, anyhow};
use k8s_openapi::ByteString;
use kube::Client;
use operator::SealKeys;
use rand::TryRng;

use crate::kept::{Data, Series};

/// Name of the series.
const NAME: &str = "metamorph-records";
const SECRET: &str = "secret";
/// Most earlier keys: each is tried with a seal that is not the newest's.
const MOST_EARLIER: usize = 4;

/// Reads the keys, or makes the first.
pub async fn load(client: &Client, own_namespace: &str) -> anyhow::Result<SealKeys> {
    let series = Series::new(client, own_namespace, NAME.to_owned(), "the keys that seal MachineRecords");
    let mut keys = Vec::new();
    for kept in series.all_or_first(data).await?.iter().rev().take(MOST_EARLIER + 1) {
        let bytes = kept.bytes(SECRET)?;
        keys.push(bytes.try_into().map_err(|_| anyhow!("{SECRET} of a key has {} bytes, not 32", bytes.len()))?);
    }
    let mut keys = keys.into_iter();
    let newest = keys.next().context("there is no key that seals MachineRecords")?;
    Ok(SealKeys::new(newest, keys.collect()))
}

fn data() -> anyhow::Result<Data> {
    let mut secret = [0; 32];
    rand::rngs::SysRng.try_fill_bytes(&mut secret).context("get random bytes from the system")?;
    Ok(Data::from([(SECRET.to_owned(), ByteString(secret.to_vec()))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::tests::Secrets;

    #[tokio::test]
    async fn a_key_is_made_once_and_kept() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secrets = Secrets::default();
        let client = secrets.client();
        load(&client, "own").await.unwrap();
        load(&client, "own").await.unwrap();
        assert_eq!(secrets.names(), [NAME]);
        let labels = serde_json::json!({ crate::kept::SERIES: NAME });
        let short = Data::from([(SECRET.to_owned(), ByteString(vec![1; 31]))]);
        secrets.put("metamorph-records-2", jiff::Timestamp::now(), labels, &short);
        let refused = load(&client, "own").await.unwrap_err();
        assert!(refused.to_string().contains("31 bytes, not 32"), "{refused:#}");
    }
}
