//! What happens to calls on their way: they are delayed, they get lost, or their answers do. The seed says which.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use futures::StreamExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tower::Service;

/// An error on the way.
#[derive(Debug, Clone, Copy)]
pub struct Lost(&'static str);

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Lost {}

/// Where a server is found that may be another one later.
pub struct Address<S>(Arc<Mutex<Option<S>>>);

impl<S> Default for Address<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S> Clone for Address<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Address<S> {
    /// Calls go to this server from now on.
    pub fn is_now(&self, server: S) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Lost>> + Send>>;

impl<R, S> Service<R> for Address<S>
where
    R: Send + 'static,
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Display,
{
    type Response = S::Response;
    type Error = Lost;
    type Future = Answer<S::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let server = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            let mut server = server.ok_or(Lost("there is no server"))?;
            server.call(request).await.map_err(|_| Lost("the server went away"))
        })
    }
}

/// What is to be expected.
#[derive(Clone)]
pub struct Weather(Arc<Mutex<Sky>>);

struct Sky {
    chance: StdRng,
    /// Calls of a thousand that are lost before the server has them, and answers of a thousand that are lost.
    lost: u32,
    longest: Duration,
    calls: Vec<String>,
    lag: Duration,
    listener: Option<Listener>,
    refusal: Option<Refusal>,
    /// Writes after which nothing gets through any more.
    left: Option<u64>,
}

/// What an API server answers, code and words, that refuses a call of this method and path.
type Refusal = Arc<dyn Fn(&str, &str) -> Option<(u16, String)> + Send + Sync>;

/// Told of each write that a server has answered.
type Listener = Arc<dyn Fn() + Send + Sync>;

/// What becomes of one call.
struct Fate {
    before: Duration,
    after: Duration,
    request_lost: bool,
    answer_lost: bool,
}

impl Weather {
    /// Calm.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Sky {
            chance: StdRng::seed_from_u64(seed),
            lost: 0,
            longest: Duration::ZERO,
            calls: Vec::new(),
            lag: Duration::ZERO,
            listener: None,
            refusal: None,
            left: None,
        })))
    }

    /// From now on, of a thousand requests so many get lost and of a thousand answers too, and each takes up to so long.
    pub fn rough(&self, lost: u32, longest: Duration) {
        let mut sky = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (sky.lost, sky.longest) = (lost, longest);
    }

    /// A number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).chance.random_range(0..end)
    }

    /// Whether something gets lost now.
    pub fn loses(&self) -> bool {
        let mut sky = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = sky.lost;
        sky.chance.random_range(0..1000) < lost
    }

    /// From now on, what watches bring comes up to so much later.
    pub fn lags(&self, lag: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lag = lag;
    }

    /// The calls that have been made in it: method and path.
    pub fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).calls.clone()
    }

    /// From now on, this is called when a server has carried out a write, before anybody hears of it.
    pub fn on_write(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).listener = Some(Arc::new(listener));
    }

    /// From now on, calls for which this has a code and words are answered with them, and no server hears of them.
    pub fn refuses(&self, refusal: impl Fn(&str, &str) -> Option<(u16, String)> + Send + Sync + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refusal = Some(Arc::new(refusal));
    }

    /// After so many more writes nothing gets through, the answer to the last of them neither: as if whoever wrote had died there.
    pub fn cut_after(&self, writes: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).left = Some(writes);
    }

    /// Everything gets through again, and nothing is refused.
    pub fn mend(&self) {
        let mut sky = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (sky.left, sky.refusal) = (None, None);
    }

    /// Whether nothing gets through.
    pub fn is_cut(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).left == Some(0)
    }

    fn refusal(&self, method: &str, path: &str) -> Option<http::Response<Body>> {
        let refusal = self.0.lock().unwrap_or_else(PoisonError::into_inner).refusal.clone()?;
        let (code, message) = refusal(method, path)?;
        let reason = match code {
            409 => "Conflict",
            422 => "Invalid",
            500 => "InternalError",
            _ => "Forbidden",
        };
        let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code});
        let answer = http::Response::builder().status(code).header("content-type", "application/json");
        answer.body(Body::from(status.to_string())).ok()
    }

    fn written(&self) {
        let listener = {
            let mut sky = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            sky.left = sky.left.map(|left| left.saturating_sub(1));
            sky.listener.clone()
        };
        if let Some(listener) = listener {
            listener();
        }
    }

    fn lag(&self) -> Duration {
        let mut sky = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = sky.lag.as_millis() as u64;
        if lag == 0 { Duration::ZERO } else { Duration::from_millis(sky.chance.random_range(0..=lag)) }
    }

    fn fate(&self, call: String) -> Fate {
        let mut sky = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sky.calls.push(call);
        let (lost, longest) = (sky.lost, sky.longest);
        let mut delay = || Duration::from_millis(sky.chance.random_range(0..=longest.as_millis() as u64));
        let (before, after) = (delay(), delay());
        let mut hit = || sky.chance.random_range(0..1000) < lost;
        Fate { before, after, request_lost: hit(), answer_lost: hit() }
    }

    /// A service in it.
    pub fn around<S>(&self, inner: S) -> Outside<S> {
        Outside { weather: self.clone(), inner }
    }
}

/// A service in the weather.
#[derive(Clone)]
pub struct Outside<S> {
    weather: Weather,
    inner: S,
}

impl<T, S, B> Service<http::Request<T>> for Outside<S>
where
    T: Send + 'static,
    S: Service<http::Request<T>, Response = http::Response<B>, Error = Lost> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = http::Response<Body>;
    type Error = Lost;
    type Future = Answer<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<T>) -> Self::Future {
        let fate = self.weather.fate(format!("{} {}", request.method(), request.uri().path()));
        let writes = *request.method() != http::Method::GET;
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let (weather, mut inner) = (self.weather.clone(), self.inner.clone());
        let refusal = self.weather.refusal(request.method().as_str(), request.uri().path());
        Box::pin(async move {
            pass(fate.before).await;
            if let Some(refusal) = refusal {
                return Ok(refusal);
            }
            if fate.request_lost || weather.is_cut() {
                return Err(Lost("the request got lost"));
            }
            let answer = inner.call(request).await?;
            if writes {
                weather.written();
            }
            pass(fate.after).await;
            if fate.answer_lost || weather.is_cut() {
                return Err(Lost("the answer got lost"));
            }
            let lagging = move |body: Body| {
                let pieces = body.into_data_stream().then(move |piece| {
                    let lag = weather.lag();
                    async move {
                        pass(lag).await;
                        piece
                    }
                });
                Body::from_stream(pieces)
            };
            Ok(answer.map(|body| if watch { lagging(Body::new(body)) } else { Body::new(body) }))
        })
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
