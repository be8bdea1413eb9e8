//! The agent's life under Ironic: what is found is sent, the node looked for, the API opened, heartbeats sent until the machine is left.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use agent_protocol::Leave;
use ipa_protocol::{Heartbeat, Interface, LookupConfig, Parameters, Secret};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::api::{Api, ApiError, HttpApi};
use super::certificate::Certificate;
use super::commands::{Commands, PARTING};
use super::steps::{Context, Settings};
use super::{inventory, logs, server};
use crate::commands::Runner;
use crate::report::LogRing;
use crate::text::chain;

/// How often inspection data are sent before the agent goes on without (`A:inspector.py`), and the pauses between.
const INSPECTION_ATTEMPTS: u32 = 5;
const INSPECTION_PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));

/// Longest pause between two lookups (`A:ironic_api_client.py`).
const LOOKUP_PAUSE: Duration = Duration::from_secs(60);

/// Pauses while the node is locked (there).
const LOCKED: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(10), Duration::from_secs(30)];

/// Least time between two heartbeats, and the pause after one that failed, once to twice (`A:agent.py`).
const BEAT: Duration = Duration::from_secs(5);

/// How often a heartbeat is sent again soon if Ironic does not call after it: one that it takes while the node is locked it drops without a word
/// (`I:drivers/modules/agent_base.py`), and the next in its time would come after a minute and a half or more.
const REPEATED: u32 = 6;

/// Part of the heartbeat's time-out after which one is sent, least and most (there).
const PART: (f64, f64) = (0.3, 0.6);

/// Bounds of the heartbeat's time-out: it is Ironic's to say, within reason.
const TIMEOUT: (u64, u64) = (10, 86_400);

/// Parameters of ironic-python-agent's that have an effect here.
const SERVED: [&str; 12] = [
    "ipa-api-url",
    "ipa-agent-token",
    "ipa-insecure",
    "ipa-inspection-callback-url",
    "ipa-inspection-collectors",
    "ipa-lookup-timeout",
    "ipa-listen-port",
    "ipa-advertise-host",
    "ipa-advertise-port",
    "ipa-global-request-id",
    "ipa-ignore-bootloader-failure",
    // Any level is logged anyway.
    "ipa-debug",
];

/// Pause after something that only a person can mend.
const HOPELESS: Duration = Duration::from_secs(10);

/// What Ironic has said of the machine.
#[derive(Clone, Debug)]
pub struct Known {
    /// The node's UUID.
    pub node: String,
    /// What the agent is to do as.
    pub config: LookupConfig,
    /// The token.
    pub token: Secret,
}

fn between(least: f64, most: f64) -> f64 {
    least + (most - least) * rand::random::<f64>()
}

/// Sends what was found, if that is asked for, and looks for the node until it is found. `None`: Ironic has given the token to somebody else, and
/// nothing can be done before it starts the machine anew.
pub async fn introduce<A: Api>(api: &A, runner: &Runner, parameters: &Parameters, ring: &LogRing) -> Option<Known> {
    for (name, _) in parameters.iter().filter(|(name, _)| name.starts_with("ipa-") && !SERVED.contains(name)) {
        tracing::warn!("the kernel parameter {} has no effect on this agent", crate::text::cut(name, 64));
    }
    let mut node = None;
    if parameters.inspects() {
        let machine = runner.machine();
        let data = inventory::data(machine, parameters, &|| logs::packed(ring, &inventory::of(machine, parameters)));
        let mut pause = INSPECTION_PAUSE.0;
        for attempt in 1..=INSPECTION_ATTEMPTS {
            match api.inspected(&data).await {
                Ok(found) => {
                    tracing::info!("Ironic has what was found");
                    node = found;
                    break;
                }
                Err(error) => {
                    tracing::warn!("sending what was found: {error}");
                    if !error.passes() || attempt == INSPECTION_ATTEMPTS {
                        break;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(INSPECTION_PAUSE.1);
                }
            }
        }
    }
    if parameters.api_urls().is_empty() {
        tracing::warn!("no ipa-api-url is given: there is nothing more to do");
        return None;
    }
    looked_up(api, runner, parameters, node).await
}

async fn looked_up<A: Api>(api: &A, runner: &Runner, parameters: &Parameters, node: Option<String>) -> Option<Known> {
    let (begun, mut step, mut locked) = (Instant::now(), 1.0, 0);
    let mut complained = false;
    loop {
        // Interfaces may appear late.
        let found: Vec<Interface> = inventory::of(runner.machine(), parameters).interfaces;
        let mut addresses: Vec<String> = found.into_iter().filter_map(|interface| interface.mac_address).collect();
        addresses.dedup();
        match api.lookup(&addresses, node.as_deref()).await {
            Ok(answer) => {
                tracing::info!("this machine is Ironic's node {}", answer.node.uuid);
                let given = answer.config.token().cloned();
                let Some(token) = given.or_else(|| parameters.token()) else {
                    tracing::error!(
                        "Ironic has given out the token before, and there is none on the medium: the machine has to be started anew by Ironic"
                    );
                    return None;
                };
                return Some(Known { node: answer.node.uuid, config: answer.config, token });
            }
            Err(error @ ApiError::Locked(_)) => {
                tracing::warn!("looking for the node: {error}");
                tokio::time::sleep(LOCKED[locked.min(LOCKED.len() - 1)]).await;
                locked += 1;
            }
            Err(error) => {
                tracing::warn!("looking for the node: {error}");
                if begun.elapsed() > parameters.lookup_timeout() && !complained {
                    complained = true;
                    tracing::error!(
                        "Ironic has not told for {} s which node this is",
                        parameters.lookup_timeout().as_secs()
                    );
                }
                tokio::time::sleep(Duration::from_secs_f64(between(1.0, step).max(1.0))).await;
                step = f64::min(step * 2.0, LOOKUP_PAUSE.as_secs_f64());
            }
        }
    }
}

/// Heartbeats until the machine is to be left; says how.
pub async fn beat<A: Api>(api: &A, commands: &Commands, known: &Known, url: &str, certificate: &str) -> Leave {
    let beat = Heartbeat {
        callback_url: url.to_owned(),
        agent_token: Some(commands.token().clone()),
        agent_version: Some(super::name::VERSION.to_owned()),
        agent_verify_ca: Some(certificate.to_owned()),
        ..Heartbeat::default()
    };
    let timeout = known.config.heartbeat_timeout.clamp(TIMEOUT.0, TIMEOUT.1);
    let mut repeats = REPEATED;
    loop {
        let pause = match api.heartbeat(&known.node, &beat).await {
            Ok(()) if commands.is_unasked() && repeats > 0 => {
                repeats -= 1;
                BEAT.mul_f64(between(1.0, 2.0))
            }
            Ok(()) => Duration::from_secs(timeout).mul_f64(between(PART.0, PART.1)),
            Err(error) => {
                tracing::warn!("heartbeat: {error}");
                BEAT.mul_f64(between(1.0, 2.0))
            }
        };
        let sent = Instant::now();
        tokio::select! {
            biased;
            how = commands.leaving() => {
                // The answer to the order is on its way.
                tokio::time::sleep(PARTING).await;
                return how;
            }
            () = commands.wants_heartbeat() => {
                repeats = REPEATED;
                tokio::time::sleep_until(sent + BEAT).await;
            }
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Lives under Ironic until the machine is to be left.
pub async fn run(api: HttpApi, runner: Arc<Runner>, parameters: Parameters, ring: LogRing) -> Leave {
    let Some(known) = introduce(&api, &runner, &parameters, &ring).await else {
        // The machine is Ironic's to switch off.
        return std::future::pending().await;
    };
    let settings = Settings { node: known.node.clone(), config: known.config.clone(), parameters: parameters.clone() };
    let commands = Arc::new(Commands::new(Arc::new(Context::new(runner.clone(), settings, ring)), known.token.clone()));
    let (listen, advertised) = parameters.ports();
    loop {
        let address = match parameters.get("ipa-advertise-host").and_then(|host| host.parse::<IpAddr>().ok()) {
            Some(address) => Ok(address),
            None => api.own_address().await,
        };
        let opened = match address {
            Ok(address) => open(&api, &runner, address, listen, known.config.tls_min_version.as_deref()).await,
            Err(error) => Err(format!("this machine's address on the way to Ironic is not known: {error}").into()),
        };
        match opened {
            Ok((address, certificate, listener, tls)) => {
                let port = advertised.or_else(|| Some(listener.local_addr().ok()?.port())).unwrap_or(listen);
                let url = format!("https://{}", SocketAddr::new(address, port));
                let now = api.now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                tracing::info!("the API is at {url}");
                let served = tokio::spawn(server::serve(listener, tls, Arc::clone(&commands), now));
                let how = beat(&api, &commands, &known, &url, &certificate).await;
                served.abort();
                return how;
            }
            Err(error) => tracing::error!("{}; trying again in {} s", error, HOPELESS.as_secs()),
        }
        tokio::time::sleep(HOPELESS).await;
    }
}

type Opened = (IpAddr, String, TcpListener, rustls::ServerConfig);

async fn open(
    api: &HttpApi,
    runner: &Runner,
    address: IpAddr,
    port: u16,
    oldest: Option<&str>,
) -> Result<Opened, Box<dyn std::error::Error + Send + Sync>> {
    let name =
        runner.machine().tree().text("proc/sys/kernel/hostname").filter(|name| name != "(none)" && name.len() <= 64);
    let certificate = Certificate::new(name.as_deref().unwrap_or("metamorph-agent"), address, api.now())
        .map_err(|error| chain(&error))?;
    let tls = certificate.server(oldest).map_err(|error| chain(&error))?;
    let any: IpAddr = if address.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let listener =
        TcpListener::bind((any, port)).await.map_err(|error| format!("opening port {port} failed: {error}"))?;
    Ok((address, certificate.pem(), listener, tls))
}
