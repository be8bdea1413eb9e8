//! Requests that change a BMC or its system: PATCH, resets, media.

use std::{future::Future, sync::Arc, time::Duration};

use axum::http::header;
use serde_json::{Map, Value};

use super::{
    answer::Answer,
    bios,
    request::Request,
    tree::{self, CHASSIS, DRIVE, MANAGER, TAKEN_TARGETS},
};
use crate::{
    bmc::{Bmc, PowerError, describe, lock},
    media::MediaError,
    settings::{Light, MediaPlace, Settings},
};

/// Answers requests other than reads, sessions and tasks.
pub async fn answer(bmc: &Arc<Bmc>, request: &Request, settings: &Settings) -> Answer {
    let system = tree::system_path(&bmc.config.id);
    let path = request.path.as_str();
    if request.body.is_err() {
        return Answer::malformed();
    }
    let post = request.method == "POST";
    if path == format!("{system}/Actions/ComputerSystem.Reset") {
        return if post { reset(bmc, request, settings).await } else { Answer::not_allowed(&request.method, "POST") };
    }
    if path == format!("{MANAGER}/Actions/Manager.Reset") && post {
        // A restart of the BMC ends sessions and takes media out; the machine runs on.
        lock(&bmc.sessions).clear();
        bmc.eject();
        return Answer::empty(204);
    }
    if let Some(drive) = drive(path, &system, settings) {
        return match (drive, request.method.as_str()) {
            ("/Actions/VirtualMedia.InsertMedia", "POST") => insert(bmc, request, settings).await,
            ("/Actions/VirtualMedia.EjectMedia", "POST") => eject(bmc, settings).await,
            ("", "PATCH") => patch_drive(bmc, request, settings).await,
            ("", method) => Answer::not_allowed(method, "GET, HEAD, PATCH"),
            (_, "POST") => Answer::not_found(path),
            (_, method) => Answer::not_allowed(method, "POST"),
        };
    }
    let Some(current) = tree::resource(bmc, path) else { return Answer::not_found(path) };
    let changeable = changeable(bmc, path);
    if !changeable || request.method != "PATCH" {
        return Answer::not_allowed(&request.method, if changeable { "GET, HEAD, PATCH" } else { "GET, HEAD" });
    }
    if let Some(refusal) = precondition(request, &current, settings) {
        return refusal;
    }
    let Some(patch) = request.object() else { return Answer::malformed() };
    let refused = if path == system {
        patch_system(bmc, patch, settings)
    } else if path == CHASSIS {
        patch_chassis(bmc, patch, settings)
    } else if path.ends_with("/SecureBoot") {
        patch_secure_boot(bmc, patch)
    } else if path.ends_with("/Bios/Settings") {
        bios::patch(bmc, patch)
    } else {
        patch_session_service(bmc, patch)
    };
    refused.err().unwrap_or_else(|| match tree::resource(bmc, path) {
        Some(body) => {
            let tag = tree::etag(&body);
            Answer::resource(body).with(header::ETAG, tag)
        }
        None => Answer::empty(204),
    })
}

/// Whether PATCH changes anything of a resource.
pub(super) fn changeable(bmc: &Bmc, path: &str) -> bool {
    let system = tree::system_path(&bmc.config.id);
    let settings = bmc.settings.borrow().clone();
    path == system
        || path == CHASSIS && settings.light != Light::None
        || path == format!("{system}/SecureBoot")
        || path == format!("{system}/Bios/Settings") && settings.bios
        || path == "/redfish/v1/SessionService"
        || drive(path, &system, &settings) == Some("")
}

/// The part of a path after the CD drive's, under the system or the manager.
fn drive<'a>(path: &'a str, system: &str, settings: &Settings) -> Option<&'a str> {
    let below = |base: &str| path.strip_prefix(base)?.strip_prefix("/VirtualMedia/")?.strip_prefix(DRIVE);
    let rest = match settings.media_at {
        MediaPlace::Both => below(system).or_else(|| below(MANAGER)),
        MediaPlace::System => below(system),
        MediaPlace::Manager => below(MANAGER),
    }?;
    (rest.is_empty() || rest.starts_with("/Actions/")).then_some(rest)
}

fn precondition(request: &Request, current: &Value, settings: &Settings) -> Option<Answer> {
    let wanted = request.header(header::IF_MATCH);
    let tag = tree::etag(current);
    let holds = |wanted: &str| wanted == "*" || wanted.split(',').any(|one| one.trim().trim_start_matches("W/") == tag);
    match wanted {
        None if settings.require_if_match => {
            let message = "A change of this resource needs its entity tag in If-Match.";
            Some(Answer::error(428, "PreconditionRequired", message, &[]))
        }
        Some(wanted) if !holds(wanted) => {
            let message = "The resource was changed since its entity tag was read.";
            Some(Answer::error(412, "PreconditionFailed", message, &[]))
        }
        _ => None,
    }
}

pub(super) fn unknown(name: &str) -> Answer {
    Answer::error(400, "PropertyUnknown", format!("There is no property {name} that can be changed."), &[name])
}

pub(super) fn wrong_value(name: &str, value: &Value) -> Answer {
    let (message, text) = (format!("The property {name} does not take the value {value}."), value.to_string());
    Answer::error(400, "PropertyValueNotInList", message, &[&text, name])
}

/// One of the allowed texts.
fn choice(name: &str, value: &Value, allowed: &[&str]) -> Result<String, Answer> {
    let text = value.as_str().filter(|text| allowed.contains(text));
    text.map(str::to_owned).ok_or_else(|| wrong_value(name, value))
}

fn patch_system(bmc: &Bmc, patch: &Map<String, Value>, settings: &Settings) -> Result<(), Answer> {
    let mut next = bmc.system();
    for (name, value) in patch {
        match name.as_str() {
            "AssetTag" => match value.as_str().filter(|text| text.len() <= 256) {
                Some(text) => next.asset_tag = text.to_owned(),
                None => return Err(wrong_value(name, value)),
            },
            // An iDRAC shows it at the system, too, and takes orders at the chassis.
            "IndicatorLED" | "LocationIndicatorActive" if settings.light != Light::Chassis => {
                next.indicator = indicator(name, value, settings)?;
            }
            "Boot" => {
                let Some(boot) = value.as_object() else { return Err(wrong_value(name, value)) };
                for (name, value) in boot {
                    match name.as_str() {
                        "BootSourceOverrideEnabled" => {
                            next.boot.enabled = choice(name, value, tree::lasting(settings))?;
                            if settings.forgets_continuous && next.boot.enabled == "Continuous" {
                                "Once".clone_into(&mut next.boot.enabled);
                            }
                        }
                        "BootSourceOverrideTarget" => next.boot.target = choice(name, value, &TAKEN_TARGETS)?,
                        "BootSourceOverrideMode" => next.boot.mode = choice(name, value, &["UEFI", "Legacy"])?,
                        other => return Err(unknown(other)),
                    }
                }
                if next.boot.enabled == "Disabled" || next.boot.target == "None" {
                    (next.boot.enabled, next.boot.target) = ("Disabled".to_owned(), "None".to_owned());
                }
            }
            other => return Err(unknown(other)),
        }
    }
    bmc.change_system(|system| {
        (system.boot, system.asset_tag, system.indicator) = (next.boot, next.asset_tag, next.indicator);
    });
    Ok(())
}

fn patch_chassis(bmc: &Bmc, patch: &Map<String, Value>, settings: &Settings) -> Result<(), Answer> {
    for (name, value) in patch {
        let next = indicator(name, value, settings)?;
        bmc.change_system(|system| system.indicator = next);
    }
    Ok(())
}

/// What the light becomes by a change of this property.
fn indicator(name: &str, value: &Value, settings: &Settings) -> Result<String, Answer> {
    match (name, settings.light) {
        ("LocationIndicatorActive", Light::Active) => {
            let lit = value.as_bool().ok_or_else(|| wrong_value(name, value))?;
            Ok(if lit { "Blinking" } else { "Off" }.to_owned())
        }
        ("IndicatorLED", Light::Led | Light::Active) => choice(name, value, &["Off", "Lit", "Blinking"]),
        ("IndicatorLED", Light::Chassis) => Ok(match choice(name, value, &["Lit", "Blinking"])?.as_str() {
            "Lit" => "Off".to_owned(),
            blinks => blinks.to_owned(),
        }),
        _ => Err(unknown(name)),
    }
}

fn patch_secure_boot(bmc: &Bmc, patch: &Map<String, Value>) -> Result<(), Answer> {
    for (name, value) in patch {
        match (name.as_str(), value.as_bool()) {
            ("SecureBootEnable", Some(on)) => bmc.change_system(|system| system.secure_boot = on),
            ("SecureBootEnable", None) => return Err(wrong_value(name, value)),
            (other, _) => return Err(unknown(other)),
        }
    }
    Ok(())
}

fn patch_session_service(bmc: &Bmc, patch: &Map<String, Value>) -> Result<(), Answer> {
    for (name, value) in patch {
        // Limits by the schema of SessionService.
        match (name.as_str(), value.as_u64().filter(|seconds| (30..=86400).contains(seconds))) {
            ("SessionTimeout", Some(seconds)) => {
                bmc.settings.send_modify(|settings| settings.session_idle_seconds = seconds);
            }
            ("SessionTimeout", None) => return Err(wrong_value(name, value)),
            (other, _) => return Err(unknown(other)),
        }
    }
    Ok(())
}

/// Performs an action at once, or as a task if the BMC works that way.
async fn perform<F>(bmc: &Arc<Bmc>, settings: &Settings, name: &str, work: F) -> Answer
where
    F: Future<Output = Answer> + Send + 'static,
{
    if !settings.async_actions && !settings.stuck_tasks {
        return work.await;
    }
    let (id, accepted) = lock(&bmc.tasks).begin(name, (bmc.shared.now)());
    if !settings.stuck_tasks {
        let (bmc, delay) = (bmc.clone(), Duration::from_millis(settings.task_delay_ms));
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let answer = work.await;
            lock(&bmc.tasks).end(id, answer, (bmc.shared.now)());
        });
    }
    accepted
}

async fn reset(bmc: &Arc<Bmc>, request: &Request, settings: &Settings) -> Answer {
    let Some(body) = request.object() else { return Answer::malformed() };
    let Some(kind) = body.get("ResetType").and_then(Value::as_str) else {
        let message = "A reset needs the parameter ResetType.";
        return Answer::error(400, "ActionParameterMissing", message, &["ComputerSystem.Reset", "ResetType"]);
    };
    let known =
        ["On", "ForceOn", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PushPowerButton", "Nmi"];
    if !known.contains(&kind) {
        let message = format!("There is no reset of type {kind:?}.");
        return Answer::error(400, "ActionParameterNotSupported", message, &[kind, "ComputerSystem.Reset"]);
    }
    let (kind, conflict) = (kind.to_owned(), settings.reset_conflict);
    let stuck = settings.power_stuck;
    let target = bmc.clone();
    perform(bmc, settings, &format!("Reset {kind}"), async move {
        if stuck {
            return Answer::empty(204);
        }
        let done = match kind.as_str() {
            "On" | "ForceOn" => target.power_on().await,
            "ForceOff" => target.force_off().await,
            "GracefulShutdown" => target.press_button(false).await,
            "GracefulRestart" => target.press_button(true).await,
            "ForceRestart" => target.force_restart().await,
            "PushPowerButton" if target.power().on => target.press_button(false).await,
            "PushPowerButton" => target.power_on().await,
            _ => Ok(()),
        };
        match done {
            Ok(()) => Answer::empty(204),
            Err(PowerError::Already(_)) if !conflict => Answer::empty(204),
            Err(error @ PowerError::Already(_)) => {
                let message = format!("The reset {kind} cannot be done: {error}.");
                Answer::error(409, "ActionNotSupported", message, &[&kind])
            }
            Err(error) => Answer::error(500, "InternalError", describe(&error), &[]),
        }
    })
    .await
}

async fn insert(bmc: &Arc<Bmc>, request: &Request, settings: &Settings) -> Answer {
    let Some(body) = request.object() else { return Answer::malformed() };
    let Some(image) = body.get("Image").and_then(Value::as_str) else {
        let message = "Inserting a medium needs the parameter Image.";
        return Answer::error(400, "ActionParameterMissing", message, &["VirtualMedia.InsertMedia", "Image"]);
    };
    let known = [
        "Image",
        "Inserted",
        "WriteProtected",
        "TransferMethod",
        "TransferProtocolType",
        "UserName",
        "Password",
        "MediaType",
    ];
    if let Some(other) = body.keys().find(|name| !known.contains(&name.as_str())) {
        let message = format!("The action has no parameter {other}.");
        return Answer::error(400, "ActionParameterUnknown", message, &["VirtualMedia.InsertMedia", other]);
    }
    insert_image(bmc, image, settings).await
}

async fn insert_image(bmc: &Arc<Bmc>, image: &str, settings: &Settings) -> Answer {
    let (target, image, ailments) = (bmc.clone(), image.to_owned(), settings.ailments.clone());
    perform(bmc, settings, "Insert virtual media", async move {
        if let Some(refusal) = super::ill::access::medium(&ailments, &image) {
            return refusal;
        }
        match target.insert(&image).await {
            Ok(true) => Answer::empty(204),
            Ok(false) => {
                let message = "There is a medium in the drive; eject it first.";
                Answer::error(409, "ResourceInUse", message, &[])
            }
            Err(error) => refused_image(&image, &error),
        }
    })
    .await
}

fn refused_image(image: &str, error: &MediaError) -> Answer {
    let id = match error {
        MediaError::Scheme(_) => "ActionParameterValueFormatError",
        MediaError::Suffix(_) | MediaError::Range { .. } => "ResourceAtUriInUnknownFormat",
        MediaError::Status { status: 401 | 403, .. } => "AccessDenied",
        MediaError::Status { .. } => "ResourceMissingAtURI",
        _ => "CouldNotEstablishConnection",
    };
    Answer::error(400, id, format!("The medium cannot be inserted: {}.", describe(error)), &[image])
}

async fn eject(bmc: &Arc<Bmc>, settings: &Settings) -> Answer {
    let target = bmc.clone();
    perform(bmc, settings, "Eject virtual media", async move {
        target.eject();
        Answer::empty(204)
    })
    .await
}

/// Some clients insert and eject by PATCH, which the schema allows.
async fn patch_drive(bmc: &Arc<Bmc>, request: &Request, settings: &Settings) -> Answer {
    let Some(patch) = request.object() else { return Answer::malformed() };
    let known = ["Image", "Inserted", "WriteProtected", "VerifyCertificate"];
    if let Some(other) = patch.keys().find(|name| !known.contains(&name.as_str())) {
        return unknown(other);
    }
    match (patch.get("Image"), patch.get("Inserted").and_then(Value::as_bool)) {
        (Some(Value::String(image)), Some(true) | None) if !image.is_empty() => {
            insert_image(bmc, image, settings).await
        }
        (Some(Value::Null | Value::String(_)), _) | (_, Some(false)) => eject(bmc, settings).await,
        (Some(other), _) => wrong_value("Image", other),
        (None, _) => Answer::empty(204),
    }
}
