//! What a client knows of its BMC between requests.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use inventory::BmcPin;
use tokio::time::Instant;

use crate::message::ErrorBody;
use crate::missing::Missing;
use crate::quirks::Quirks;
use crate::resources::{PowerState, Root, Slot, System};

/// A client's cached knowledge. A later process needs none of it.
#[derive(Default)]
pub(crate) struct State {
    pub auth: Option<Auth>,
    pub root: Option<Root>,
    pub context_refused: bool,
    /// A sign-in had no definite answer: the BMC may hold a session that this client does not know.
    pub uncertain: bool,
    /// Status and body of the answer by which the last sign-in was refused, or the last request that carried the password itself.
    pub refused_sign_in: Option<(u16, ErrorBody)>,
    pub expand_broken: bool,
    pub system_path: Option<String>,
    pub system: Option<System>,
    pub quirks: Quirks,
    pub power_seen: Option<(PowerState, Instant)>,
    pub slot: Option<Slot>,
    /// The list of drives in which one was found last.
    pub known_list: Option<String>,
    /// A drive, or a list of drives, that was known, which the BMC does not show any more.
    pub hidden_slot: Option<Missing>,
    /// Drives that are recorded for media and that the BMC does not show.
    pub missing_drives: Vec<Missing>,
    pub refused_slots: Vec<String>,
    /// Why a drive that was skipped takes no image.
    pub unfit_media: Option<&'static str>,
    /// Why the last insertion of a medium was refused, if it was.
    pub refused_medium: Option<String>,
    /// Scheme of the address of the last inserted medium.
    pub media_scheme: Option<String>,
    /// Name of the registry of the BIOS settings, empty if `Bios` names none.
    pub bios_registry: Option<String>,
    /// What the settings may be, by that name; `None` within where there is none to be read.
    pub bios_schema: Option<(String, Option<bmc::BiosSchema>)>,
    /// Items of the firmware inventory that are of BIOS, BMC or a network card.
    pub firmware_items: Option<Vec<String>>,
    /// Certificates that the BMC has been given for media servers, by collection.
    pub given_certificates: Vec<(String, String)>,
    /// Addresses of the boot medium that the BMC was given last: secrets that it may name in what it says later.
    pub given_media: Vec<String>,
    /// Addresses of media that were ejected, the last of them: where a BMC goes on showing one, its drive is empty.
    pub ejected_media: Vec<String>,
    /// It has refused a boot change that lacked the mode.
    pub whole_boot_change: bool,
    pub reset_allowed: Option<Vec<String>>,
    pub etags: HashMap<String, String>,
    /// When the current window of waits began, and the total time waited in it.
    pub put_off: Option<(Instant, Duration)>,
    /// The BMC's newest tokens: its texts may repeat them.
    pub tokens: VecDeque<http::HeaderValue>,
    /// The present session's token has been accepted for something; so has any token, ever.
    pub token_served: bool,
    pub tokens_served: bool,
    /// The BMC that was signed in to, if it was.
    pub pin: Option<BmcPin>,
}

/// How requests authenticate.
#[derive(Clone)]
pub(crate) enum Auth {
    Basic,
    Session { token: http::HeaderValue, path: Option<String> },
}

/// Tokens remembered for redaction: the current one, and those whose requests may still be answered.
const TOKENS: usize = 8;

impl State {
    pub fn note_token(&mut self, token: &http::HeaderValue) {
        if self.tokens.len() >= TOKENS {
            self.tokens.pop_front();
        }
        self.tokens.push_back(token.clone());
    }

    pub fn session_path(&self) -> Option<String> {
        match &self.auth {
            Some(Auth::Session { path, .. }) => path.clone(),
            _ => None,
        }
    }
}
