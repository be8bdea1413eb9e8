//! Virtual media of older Supermicro BMCs: one drive, mounted by its configuration.

use bmc::ErrorKind;
use serde_json::{Value, json};

use crate::client::Client;
use crate::exchange::Fault;
use crate::json::link_at;
use crate::resources::{MediaState, Slot};

/// Supermicro before standard virtual media.
const ISO_CONFIG: &str = "its drive is mounted by IsoConfig.Mount alone, which on this firmware takes SMB shares only";

/// The configuration of the one drive that older Supermicro BMCs have, in a list without members.
pub(crate) fn iso_config(list: &Value) -> Option<String> {
    link_at(list.get("Oem")?.get("Supermicro")?, "VirtualMediaConfig")
}

impl Client {
    /// The drive behind Supermicro's configuration: `CD1` of the list, which exists only while a medium is inserted.
    pub(crate) async fn iso_config_slot(&self, what: &str, list: &str, config: String) -> Result<Slot, Fault> {
        let path = format!("{}/CD1", list.trim_end_matches('/'));
        let state = match self.core.get(what, &path).await {
            Ok(reply) => Slot::read(&path, &reply.value).state,
            Err(fault) if matches!(fault.status(), Some(400 | 404)) => {
                MediaState { inserted: Some(false), image: None }
            }
            Err(fault) => return Err(fault),
        };
        Ok(Slot { takes_cd: true, bare: true, iso_config: Some(config), state, ..Slot::read(&path, &Value::Null) })
    }

    /// Sets server and path, then mounts; only the drive shows whether it worked.
    pub(crate) async fn mount_iso_config(&self, what: &str, slot: &Slot, config: &str, url: &str) -> Result<(), Fault> {
        let start = url.find("://").map_or(0, |at| at + 3);
        let split = url[start..].find('/').map_or(url.len(), |at| start + at);
        let (host, path) = url.split_at(split);
        let mounted = async {
            let body = json!({ "Host": host, "Path": path, "Username": "", "Password": "" });
            let reply = self.core.patch(what, config, &body).await?;
            self.core.finish(what, reply).await?;
            let reply = self.core.post(what, &format!("{config}/Actions/IsoConfig.Mount"), &json!({})).await?;
            self.core.finish(what, reply).await?;
            let drive = self.core.get(what, &slot.path).await?;
            Ok(Slot::read(&slot.path, &drive.value).state.is_occupied())
        };
        match mounted.await {
            Ok(true) => Ok(()),
            Err(fault @ Fault::Other(_)) => Err(fault),
            Err(fault) if matches!(fault.status(), Some(401 | 403 | 429 | 503)) => Err(fault),
            Ok(false) | Err(_) => {
                let error = self.core.error(ErrorKind::Unsupported, what, ISO_CONFIG);
                Err(error.advise("update the BMC's firmware to one with standard virtual media").into())
            }
        }
    }

    /// Ejects the medium of Supermicro's configuration.
    pub(crate) async fn unmount_iso_config(&self, what: &str, config: &str) -> Result<(), Fault> {
        let reply = self.core.post(what, &format!("{config}/Actions/IsoConfig.UnMount"), &json!({})).await?;
        self.core.finish(what, reply).await
    }
}
