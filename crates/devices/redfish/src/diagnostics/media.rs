//! Virtual drives (schema VirtualMedia), without the addresses of what is in them.

use bmc::Capability;
use diagnosis::{Media, Reading, Slot};
use serde_json::Value;

use super::facts::last;
use super::reader::{Miss, Reader};
use super::system::no;
use crate::json::{flag, link_at, same_path, word};

/// Most drives.
const MAX_SLOTS: usize = 4;

impl Reader<'_> {
    /// The drives of the system, or else of its manager.
    pub async fn media(&mut self, system: &Value, manager: &Value) -> Reading<Media> {
        let places = [link_at(system, "VirtualMedia"), link_at(manager, "VirtualMedia")];
        let unseen = system.is_null() && manager.is_null();
        let mut missed = None;
        for list in places.into_iter().flatten() {
            self.needed = true;
            let members = self.members("VirtualMedia", &list, MAX_SLOTS).await;
            self.needed = false;
            match members {
                Ok(members) if members.is_empty() => {}
                Ok(members) => {
                    self.has_media = Some(true);
                    let mut slots: Vec<Slot> =
                        members.iter().take(MAX_SLOTS * 2).map(|(path, drive)| self.slot(path, drive)).collect();
                    self.note_refusal(&members, &mut slots);
                    return Reading::Read(Media { slots });
                }
                Err(miss) => missed = Some(miss),
            }
        }
        match missed {
            Some(Miss::Absent(_)) | None if !unseen => {
                self.has_media = Some(false);
                Reading::NotAvailable(no(Capability::VirtualMedia))
            }
            Some(miss) => miss.reading(),
            None => Reading::Skipped("neither the system nor its manager was read".to_owned()),
        }
    }

    /// Adds what the BMC has answered to the last insertion, to the drive that it was for.
    fn note_refusal(&self, members: &[(String, Value)], slots: &mut [Slot]) {
        let (refused, drive) = {
            let state = self.client.core.state();
            (state.refused_medium.clone(), state.slot.as_ref().map(|slot| slot.path.clone()))
        };
        let Some(refused) = refused else { return };
        let meant = |(path, _): &(String, Value)| drive.as_ref().is_none_or(|drive| same_path(drive, path));
        if let Some(slot) = members.iter().position(meant).and_then(|at| slots.get_mut(at)) {
            slot.message = Some(self.clean(&refused));
        }
    }

    fn slot(&self, path: &str, drive: &Value) -> Slot {
        let image = word(drive, "Image").filter(|image| !image.is_empty());
        Slot {
            id: self.text(drive, "Id").unwrap_or_else(|| self.clean(last(path))),
            inserted: flag(drive, "Inserted"),
            connected_via: self.text(drive, "ConnectedVia"),
            image_host: image.and_then(host),
            ours: None,
            transfer: self.text(drive, "TransferProtocolType"),
            write_protected: flag(drive, "WriteProtected"),
            message: self.messages(drive).into_iter().map(|message| message.text).find(|text| !text.is_empty()),
        }
    }
}

/// Host and port of an address: the rest of it is a secret.
fn host(image: &str) -> Option<String> {
    let url = url::Url::parse(image.get(..image.floor_char_boundary(4096))?).ok()?;
    let host = terms::clean(url.host_str()?, 200);
    Some(match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn of_an_image_only_host_and_port_are_told() {
        assert_eq!(host("http://user:pw@192.0.2.1:6180/media/secret.iso").as_deref(), Some("192.0.2.1:6180"));
        assert_eq!(host("https://[2001:db8::1]/x").as_deref(), Some("[2001:db8::1]:443"));
        assert_eq!((host("secret.iso"), host("/media/secret")), (None, None));
    }
}
