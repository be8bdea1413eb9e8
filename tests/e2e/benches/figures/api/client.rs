//! A client with one connection of its own: HTTP/2 over TLS, as client-go does it. It does little with what it gets, so that the
//! servers have the processor.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use reqwest::{Method, RequestBuilder, Response, StatusCode};

/// Media type of plain JSON.
pub const JSON: &str = "application/json";
/// Media type of merge patches.
pub const MERGE: &str = "application/merge-patch+json";
/// Media type of server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";
/// Times that a request is sent again when the server has too much to do.
const RETRIES: usize = 100;

/// A client. Clones share the connection.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: String,
}

impl Client {
    /// With a token, trusting one CA.
    ///
    /// # Errors
    /// When the CA is none.
    pub fn new(base: String, ca: &str, token: &str) -> anyhow::Result<Self> {
        let ca = reqwest::Certificate::from_pem(ca.as_bytes())?;
        let builder = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).retry(reqwest::retry::never());
        let http = builder.connect_timeout(Duration::from_secs(10)).user_agent("bench/1").build()?;
        Ok(Self { http, base, token: token.to_owned() })
    }

    fn request(&self, method: &str, path: &str) -> anyhow::Result<RequestBuilder> {
        let method = Method::from_bytes(method.as_bytes())?;
        Ok(self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token))
    }

    /// Sends a body and gives the answer's.
    ///
    /// # Errors
    /// When the answer is no success.
    pub async fn send(&self, method: &str, path: &str, media: &'static str, body: String) -> anyhow::Result<Vec<u8>> {
        for _ in 0..RETRIES {
            let request = self.request(method, path)?.header("content-type", media).body(body.clone());
            let response = request.send().await.with_context(|| format!("{method} {path}"))?;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            return whole(response, method, path).await;
        }
        bail!("{method} {path}: too many requests, and so it stayed")
    }

    /// The body at a path.
    ///
    /// # Errors
    /// When the answer is no success.
    pub async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.send("GET", path, JSON, String::new()).await
    }

    /// Reads a list and forgets it; how many bytes came.
    ///
    /// # Errors
    /// When the answer is no success or breaks off.
    pub async fn read(&self, path: &str, encoding: &'static str) -> anyhow::Result<u64> {
        let response = self.request("GET", path)?.header("accept-encoding", encoding).send().await?;
        ensure!(response.status().is_success(), "GET {path}: {}", response.status());
        let got = response.headers().get("content-encoding").and_then(|v| v.to_str().ok()).unwrap_or("identity");
        ensure!(got == encoding, "GET {path}: {encoding} was asked for, {got} came");
        let mut response = response;
        let mut bytes = 0;
        while let Some(chunk) = response.chunk().await.with_context(|| format!("read {path}"))? {
            bytes += chunk.len() as u64;
        }
        Ok(bytes)
    }

    /// Begins a watch.
    ///
    /// # Errors
    /// When the answer is no success.
    pub async fn watch(&self, path: &str) -> anyhow::Result<Response> {
        for _ in 0..RETRIES {
            let response = self.request("GET", path)?.send().await.with_context(|| format!("GET {path}"))?;
            if response.status() == StatusCode::TOO_MANY_REQUESTS {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            ensure!(response.status().is_success(), "GET {path}: {}", response.status());
            return Ok(response);
        }
        bail!("GET {path}: too many requests, and so it stayed")
    }
}

async fn whole(response: Response, method: &str, path: &str) -> anyhow::Result<Vec<u8>> {
    let status = response.status();
    let body = response.bytes().await.with_context(|| format!("{method} {path}"))?;
    ensure!(status.is_success(), "{method} {path}: {status}: {}", String::from_utf8_lossy(&body));
    Ok(body.to_vec())
}
