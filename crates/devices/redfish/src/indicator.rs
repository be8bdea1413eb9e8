//! The light by which a person finds a server: `LocationIndicatorActive` of the system or of its chassis (schemas ComputerSystem since 1.13, Chassis since 1.14), or the older
//! `IndicatorLED`.
//!
//! BMCs differ in which of them they show, and in which they take orders at. What is shown is tried in turn, the newer property and the system first; and an answer alone is no light:
//! the property is read again afterwards.

use std::time::Duration;

use bmc::{Backoff, BmcError, Capability, ErrorKind, Lacking};
use serde_json::{Value, json};
use terms::clean;

use crate::client::Client;
use crate::exchange::Fault;
use crate::json::{flag, links, same_path, word, words};
use crate::resources::{ACTIVE, LED};

/// The words that the older property takes.
const ALLOWED: &str = "IndicatorLED@Redfish.AllowableValues";
/// Most chassis of a system whose lights are switched.
const MAX_CHASSIS: usize = 4;
/// Longest word that is told, characters.
const MAX_WORD: usize = 40;
/// Waits before the property is read once more: some BMCs answer before they have done it.
const SHOWN: Backoff = Backoff { first: Duration::from_secs(1), factor: 2, most: Duration::from_secs(2), attempts: 2 };

/// One of the properties.
#[derive(Clone, Copy)]
enum Form {
    Active,
    /// The other; whether `Lit` is how it is when nobody looks for the server.
    Led {
        rests_lit: bool,
    },
}

/// What came of trying the light of one resource.
enum Tried {
    /// It shows no light.
    None,
    /// Its light is of other systems, too.
    Shared,
    /// It shows the light as wished: which light.
    Shows(String),
    /// It does not; whether it shows the light lit, if it tells.
    Not(BmcError, Option<bool>),
}

impl Form {
    /// Those that this resource shows, the newer first. An iDRAC's `IndicatorLED` is `Lit` while nobody looks for the server, and takes `Lit` and `Blinking` only.
    fn shown(resource: &Value, is_dell: bool) -> Vec<Self> {
        let allowed = words(resource.get(ALLOWED));
        let takes = |word: &str| allowed.iter().any(|taken| taken.eq_ignore_ascii_case(word));
        let rests_lit =
            if allowed.is_empty() { is_dell } else { takes("Lit") && takes("Blinking") && (is_dell || !takes("Off")) };
        let active = resource.get(ACTIVE).map(|_| Self::Active);
        let led = resource.get(LED).map(|_| Self::Led { rests_lit });
        active.into_iter().chain(led).collect()
    }

    const fn property(self) -> &'static str {
        match self {
            Self::Active => ACTIVE,
            Self::Led { .. } => LED,
        }
    }

    /// The values that may bring it to the wish, the best first, as the BMC spells them.
    fn values(self, resource: &Value, lit: bool) -> Vec<Value> {
        let wanted: &[&str] = match (self, lit) {
            (Self::Active, _) => return vec![lit.into()],
            (Self::Led { rests_lit: true }, true) => &["Blinking"],
            (Self::Led { rests_lit: true }, false) => &["Lit"],
            (Self::Led { rests_lit: false }, true) => &["Blinking", "Lit"],
            (Self::Led { rests_lit: false }, false) => &["Off"],
        };
        let allowed = words(resource.get(ALLOWED));
        if allowed.is_empty() {
            return wanted.iter().map(|word| (*word).into()).collect();
        }
        let spelled = |word: &&str| allowed.iter().find(|taken| taken.eq_ignore_ascii_case(word));
        wanted.iter().filter_map(spelled).map(|word| word.as_str().into()).collect()
    }

    /// Whether the light is lit; `None` if the BMC does not tell.
    fn is_lit(self, resource: &Value) -> Option<bool> {
        let Self::Led { rests_lit } = self else { return flag(resource, ACTIVE) };
        match word(resource, LED)?.to_ascii_lowercase().as_str() {
            "blinking" => Some(true),
            "lit" => Some(!rests_lit),
            "off" => Some(false),
            _ => None,
        }
    }
}

impl Client {
    /// Switches the light by which a person finds the system: at the first resource that takes the order and shows it so, or, off, at all of them, because
    /// somebody else may have switched another one on. Returns which light that is, a clause.
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when the BMC shows no such light, or takes the order and does not follow.
    pub async fn switch_light(&self, lit: bool) -> Result<String, BmcError> {
        let what = if lit { "switch the locating light on" } else { "switch the locating light off" };
        let system = self.known_system(what).await?;
        let is_dell = self.core.state().quirks.led_rests_lit();
        let chassis = system.chassis.iter().take(MAX_CHASSIS).map(String::as_str);
        let (mut shows, mut failed, mut shared) = (Vec::new(), Vec::new(), Vec::new());
        for path in std::iter::once(system.path.as_str()).chain(chassis) {
            match self.light_of(what, (path, &system.path), lit, is_dell).await? {
                Tried::None => {}
                Tried::Shared => shared.push(path),
                Tried::Shows(which) if lit => return Ok(which),
                Tried::Shows(which) => shows.push(which),
                Tried::Not(error, seen) => failed.push((error, seen.filter(|seen| *seen).map(|_| path))),
            }
        }
        // One that is said to be lit, and stays so, leads people to the server. Several resources may show one light, which another of them has switched.
        let mut stays = None;
        for (at, (_, said_lit)) in failed.iter().enumerate() {
            if let Some(path) = said_lit.filter(|_| !shows.is_empty() && stays.is_none())
                && self.light_now(what, path, is_dell).await? == Some(true)
            {
                stays = Some(at);
            }
        }
        if !shows.is_empty() && stays.is_none() {
            return Ok(shows.join(", and "));
        }
        if failed.is_empty() {
            return Err(self.no_light(what, &system.path, &shared));
        }
        let (mut error, _) = failed.swap_remove(stays.unwrap_or(0));
        let others = failed.into_iter().map(|(other, _)| other.found).filter(|found| *found != error.found);
        error.found = std::iter::once(error.found.clone()).chain(others).collect::<Vec<_>>().join("; ");
        Err(error.advise("switch it at the BMC itself, and look for a newer firmware of the BMC"))
    }

    fn no_light(&self, what: &str, system: &str, shared: &[&str]) -> BmcError {
        let mut found = format!("there is neither {ACTIVE} nor {LED} at {system} or its chassis");
        if !shared.is_empty() {
            found = format!("{found}, and the light of {} is that of other systems, too", shared.join(" and "));
        }
        Lacking::new(Capability::LocationIndicator, self.core.without_secrets(&found))
            .keeps_from(format!("{what} on BMC {}", self.core.address.origin()))
    }

    /// Whether the light of this resource is lit by now, if it tells.
    async fn light_now(&self, what: &str, path: &str, is_dell: bool) -> Result<Option<bool>, BmcError> {
        let now = match self.core.get(what, path).await {
            Ok(reply) => reply.value,
            Err(fault) => return refusal(fault).map(|_| None),
        };
        Ok(Form::shown(&now, is_dell).into_iter().find_map(|form| form.is_lit(&now)))
    }

    /// Tries the light of this resource, the system or a chassis of it.
    async fn light_of(
        &self,
        what: &str,
        (path, system): (&str, &str),
        lit: bool,
        is_dell: bool,
    ) -> Result<Tried, BmcError> {
        let mut seen = match self.core.get(what, path).await {
            Ok(reply) => reply.value,
            Err(fault) => return refusal(fault).map(|error| Tried::Not(error, None)),
        };
        // That of an enclosure would lead to all servers in it.
        let systems = links(seen.get("Links").and_then(|links| links.get("ComputerSystems")));
        if systems.iter().any(|other| !same_path(other, system)) {
            return Ok(Tried::Shared);
        }
        let mut failed: Option<BmcError> = None;
        let forms = Form::shown(&seen, is_dell);
        for form in forms.iter().copied() {
            for value in form.values(&seen, lit) {
                let body = json!({ (form.property()): value });
                let error = match self.order_light(what, path, &body).await {
                    Err(fault) => refusal(fault)?,
                    Ok(()) => {
                        let (now, error) = self.shows_light(what, path, form, lit).await?;
                        let Some(error) = error else {
                            return Ok(Tried::Shows(self.describe_light(form, path, &now)));
                        };
                        seen = now;
                        error
                    }
                };
                failed.get_or_insert(error);
            }
        }
        let told = forms.iter().find_map(|form| form.is_lit(&seen).map(|now| (form, now)));
        Ok(match (told, failed) {
            // What it does not take orders for may be as wished all the same.
            (Some((form, now)), _) if now == lit => Tried::Shows(self.describe_light(*form, path, &seen)),
            (_, Some(error)) => Tried::Not(error, told.map(|(_, now)| now)),
            (_, None) if forms.is_empty() => Tried::None,
            (_, None) => {
                let takes = clean(&words(seen.get(ALLOWED)).join(", "), 200);
                let found = format!("{LED} of {path} takes {takes} only");
                Tried::Not(self.core.error(ErrorKind::Unsupported, what, found), told.map(|(_, now)| now))
            }
        })
    }

    /// Which light it is, and how it is shown: a clause.
    fn describe_light(&self, form: Form, path: &str, resource: &Value) -> String {
        let shown = match resource.get(form.property()) {
            Some(Value::Bool(lit)) => lit.to_string(),
            Some(Value::String(word)) => clean(&self.core.without_secrets(word), MAX_WORD),
            None | Some(Value::Null) => "not known".to_owned(),
            Some(_) => "neither a word nor a truth value".to_owned(),
        };
        self.core.without_secrets(&format!("{} of {path} is {shown}", form.property()))
    }

    async fn order_light(&self, what: &str, path: &str, body: &Value) -> Result<(), Fault> {
        let reply = self.core.patch_when_ready(what, path, body).await?;
        self.core.finish(what, reply).await
    }

    /// The resource as it is in a moment, and what is wrong if it does not show the light as ordered.
    async fn shows_light(
        &self,
        what: &str,
        path: &str,
        form: Form,
        lit: bool,
    ) -> Result<(Value, Option<BmcError>), BmcError> {
        let mut attempt = 0;
        loop {
            let now = match self.core.get(what, path).await {
                Ok(reply) => reply.value,
                Err(fault) => return refusal(fault).map(|error| (Value::Null, Some(error))),
            };
            if form.is_lit(&now) == Some(lit) {
                return Ok((now, None));
            }
            let Some(wait) = SHOWN.wait(attempt) else {
                let shown = self.describe_light(form, path, &now);
                let found = format!("it takes the order and does not follow: {shown}");
                return Ok((now, Some(self.core.error(ErrorKind::Unsupported, what, found))));
            };
            self.core.options.pacer.wait(wait).await;
            attempt += 1;
        }
    }
}

/// The error of a refusal, after which something else may be tried; any other is the end of it.
fn refusal(fault: Fault) -> Result<BmcError, BmcError> {
    let error = BmcError::from(fault);
    if error.kind.is_refusal() { Ok(error) } else { Err(error) }
}
