//! The command API of one ironic-python-agent, as a client: its own certificate and no other, bounded answers, bounded time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipa_protocol::{COMMANDS_PATH, CommandList, CommandRequest, CommandResult, MAX_RESULT_BYTES, api_error};
use reqwest::{Client, redirect};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use terms::json_values_at_most;
use url::Url;

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for a call: as a conductor's (`[agent]command_timeout`).
const OVERALL: Duration = Duration::from_secs(60);
/// Values in an answer: many times those of a machine with a hundred disks and as many commands.
const MAX_VALUES: usize = 100_000;
/// Bytes of an error's text.
const MAX_FAULT: usize = 64 << 10;

/// Where an agent is, and by what it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `https://192.0.2.7:9999`.
    pub url: Url,
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
    /// Its digest, lower-case hex.
    pub digest: String,
}

/// Why a call has brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It runs another command.
    #[error("the agent is busy with another command")]
    Busy,
    /// It has answered that it will not.
    #[error("the agent answered {status}: {text}")]
    Refused {
        /// HTTP's status.
        status: u16,
        /// What it said.
        text: String,
    },
    /// No answer; whether the command was taken is not known.
    #[error("the agent could not be asked: {0}")]
    Lost(String),
}

/// What an agent can be asked. A trait, so that tests play the agent.
#[async_trait]
pub trait Commands: Send + Sync {
    /// All commands that it was given, oldest first.
    async fn list(&self) -> Result<CommandList, CallError>;
    /// Gives it a command; with `wait`, one that is done at once is done when this answers.
    async fn post(&self, request: &CommandRequest, wait: bool) -> Result<CommandResult, CallError>;
}

/// Over the network.
pub struct HttpCommands {
    client: Client,
    url: Url,
    token: String,
}

impl HttpCommands {
    /// To this peer, with this token.
    pub fn new(peer: &Peer, token: String) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Pinned { certificate: peer.certificate.clone(), provider: Arc::clone(&provider) };
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .timeout(OVERALL)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, url: peer.url.clone(), token })
    }

    fn address(&self, wait: bool) -> Url {
        let mut url = self.url.clone();
        url.set_path(COMMANDS_PATH);
        url.query_pairs_mut()
            .append_pair("wait", if wait { "true" } else { "false" })
            .append_pair("agent_token", &self.token);
        url
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Vec<u8>, CallError> {
        // The address carries the token: no error may show it.
        let lost = |error: reqwest::Error| CallError::Lost(with_reasons(&error.without_url()));
        let mut answer = request.send().await.map_err(lost)?;
        let status = answer.status();
        let most = if status.is_success() { MAX_RESULT_BYTES } else { MAX_FAULT };
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > most {
                return Err(CallError::Lost(format!("its answer has more than {most} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        if json_values_at_most(&body) > MAX_VALUES {
            return Err(CallError::Lost(format!("its answer has more than {MAX_VALUES} values")));
        }
        match status.as_u16() {
            200..=299 => Ok(body),
            409 => Err(CallError::Busy),
            status => Err(CallError::Refused { status, text: api_error(&body) }),
        }
    }
}

#[async_trait]
impl Commands for HttpCommands {
    async fn list(&self) -> Result<CommandList, CallError> {
        let body = self.answer(self.client.get(self.address(false))).await?;
        ipa_protocol::read("the agent's list of commands", &body, MAX_RESULT_BYTES)
            .map_err(|e| CallError::Lost(e.to_string()))
    }

    async fn post(&self, request: &CommandRequest, wait: bool) -> Result<CommandResult, CallError> {
        let body = self.answer(self.client.post(self.address(wait)).json(request)).await?;
        ipa_protocol::read("the agent's answer", &body, MAX_RESULT_BYTES).map_err(|e| CallError::Lost(e.to_string()))
    }
}

/// An error with what it comes from, of which the last says most: a firewall, another certificate, no answer in time.
fn with_reasons(error: &dyn std::error::Error) -> String {
    let reasons = std::iter::successors(Some(error), |error| error.source()).take(8).map(ToString::to_string);
    reasons.collect::<Vec<_>>().join(": ")
}

/// Accepts one certificate: the one that the agent has announced with its token.
#[derive(Debug)]
struct Pinned {
    certificate: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if end_entity.as_ref() == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
