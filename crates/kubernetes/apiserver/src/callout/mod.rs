//! Calls to webhooks at their URL, or at the endpoint of a Service in this API.

mod resolve;

use http_body_util::{BodyExt as _, Full, Limited};

use crate::objects::Objects;
use crate::webhook::{Answer, Call, Service, Target, connect};

impl Target {
    /// Sends a call and reads the whole response. The error is upstream's text.
    pub async fn post(&self, objects: &Objects, call: &Call) -> Result<Answer, String> {
        let outcome = tokio::time::timeout(call.patience, self.exchange(objects, call)).await;
        outcome
            .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
            .map_err(|why| format!("Post \"{}\": {why}", self.url(call)))
    }

    async fn exchange(&self, objects: &Objects, call: &Call) -> Result<Answer, String> {
        let request = || {
            http::Request::post(self.query(call))
                .header(http::header::HOST, format!("{}:{}", self.host, self.port))
                .header(http::header::CONTENT_TYPE, "application/json")
                .header(http::header::ACCEPT, "application/json, */*")
                .header(http::header::USER_AGENT, "kube-apiserver-admission")
                .body(Full::new(call.body.clone()))
                .map_err(|e| e.to_string())
        };
        // The server may have closed an idle connection, which surfaces as various errors: after any failure on one
        // the call is repeated, so a webhook may see it twice.
        let mut sent = None;
        while let Some(mut kept) = self.idle.take() {
            if let Ok(response) = kept.send_request(request()?).await {
                sent = Some((kept, response));
                break;
            }
        }
        let (sender, response) = match sent {
            Some(sent) => sent,
            None => {
                let mut fresh = self.connect(objects).await?;
                let response = fresh.send_request(request()?).await.map_err(|e| connect::broken(&e))?;
                (fresh, response)
            }
        };
        let code = response.status().as_u16();
        let media = response.headers().get(http::header::CONTENT_TYPE);
        let media = media.and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let body = Limited::new(response.into_body(), call.most).collect().await;
        let body = body.map_err(|_| "http: request body too large".to_owned())?.to_bytes();
        self.idle.keep(sender);
        Ok(Answer { code, media, body })
    }

    async fn connect(&self, objects: &Objects) -> Result<connect::Sender, String> {
        let tls = self.tls()?;
        match &self.service {
            None => connect::dial(&self.host, self.port, &self.host, tls).await,
            Some(Service { ns, name, port }) => {
                let (host, port) = resolve::endpoint(objects, ns, name, *port).await?;
                connect::dial(&host, port, &self.host, tls).await
            }
        }
    }
}
