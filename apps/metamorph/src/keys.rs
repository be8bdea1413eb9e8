//! `keys`: the server's keys, listed and rotated.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use provisioner_metamorph::FIRST_KEY;

use crate::cli::{Keys, KeysCommand};
use crate::identity;
use crate::{client, say};

/// Runs the command.
pub async fn run(command: KeysCommand) -> anyhow::Result<()> {
    match command {
        KeysCommand::List(options) => list(&options).await,
        KeysCommand::Rotate(options) => rotate(&options).await,
    }
}

async fn list(options: &Keys) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let all = identity::series(&client, &options.own_namespace).all().await?;
    let mut needing: BTreeMap<u32, usize> = BTreeMap::new();
    for boot in identity::open(&identity::boots(&client, None, &identity::ring(&all)?, Timestamp::now()).await?) {
        *needing.entry(boot.key.unwrap_or(FIRST_KEY)).or_default() += 1;
    }
    let mut text = format!("{:<5}{:<22}{:<9}{}\n", "KEY", "MADE", "USE", "BOOTS");
    for kept in all.iter().rev() {
        let current = all.last().is_some_and(|newest| newest.number == kept.number);
        let made = kept.made.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let boots = needing.get(&kept.number).unwrap_or(&0);
        // A String takes everything.
        let _ = writeln!(text, "{:<5}{made:<22}{:<9}{boots}", kept.number, if current { "current" } else { "earlier" });
    }
    say::out(&text)
}

async fn rotate(options: &Keys) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let named = identity::named(&client, None).await?;
    let number = identity::rotate(&identity::series(&client, &options.own_namespace), named).await?;
    say::out(&format!(
        "New boots are derived from key {number}. Earlier keys stay until no boot needs them: metamorph keys list\n"
    ))
}
