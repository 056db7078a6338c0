//! Container registries and ECR for the processes of tests: over TLS and the real token flow, each on a host name of
//! its own.
//!
//! They are reached through a forward proxy, as `HTTPS_PROXY` names it, because a registry on the loopback address is
//! refused as hostile. Registries are `NAME.registries.test`; their realm is `auth.registries.test`. ECR speaks plain
//! HTTP, as moto does.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::connect_proxy::self_signed;
use crate::{ConnectProxy, Scratch, leaks};

const REALM: &str = "auth.registries.test";

/// Registries that run. They end when this is dropped.
#[derive(Debug)]
pub struct FakeRegistries {
    state: Arc<Mutex<State>>,
    proxy: ConnectProxy,
    ecr: SocketAddr,
    certificate: PathBuf,
    _scratch: Scratch,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    /// By host, the `name:password` that get in.
    accounts: BTreeMap<String, Vec<String>>,
    /// Hosts that accept connections and say nothing.
    silent: Vec<String>,
    /// Host and path of each request.
    seen: Vec<String>,
    ecr: Ecr,
}

/// The state of ECR.
#[derive(Debug, Default)]
struct Ecr {
    /// The code of its error, and what it says.
    refusal: Option<(&'static str, &'static str)>,
    /// The lifetime of a token, in seconds.
    life: i64,
    /// The tokens that were given.
    given: Vec<String>,
    asked: usize,
}

impl FakeRegistries {
    /// Starts them, without an account.
    pub async fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let scratch = Scratch::new("fake-registries");
        let certificate = scratch.path().join("registries.crt");
        let tls = self_signed("*.registries.test", &certificate);
        let mut serving = JoinSet::new();
        let registries = listen(&mut serving, Arc::clone(&state), Some(tls)).await;
        let ecr = listen(&mut serving, Arc::clone(&state), None).await;
        Self {
            state,
            proxy: ConnectProxy::start(registries).await,
            ecr,
            certificate,
            _scratch: scratch,
            _serving: serving,
        }
    }

    /// Returns the environment with which a process reaches them.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("HTTPS_PROXY", format!("http://{}", self.proxy.address())),
            ("SSL_CERT_FILE", self.certificate.display().to_string()),
            ("AWS_ENDPOINT_URL_ECR", format!("http://{}", self.ecr)),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// From now on the registry at `host` lets in these (`name:password`) and nobody else.
    pub fn accept(&self, host: &str, accounts: &[&str]) {
        for (_, password) in accounts.iter().filter_map(|account| account.split_once(':')) {
            leaks::secret(password);
        }
        let accounts = accounts.iter().map(|account| (*account).to_owned()).collect();
        self.state.lock().accounts.insert(host.to_owned(), accounts);
    }

    /// From now on nothing is answered at `host`.
    pub fn silence(&self, host: &str) {
        self.state.lock().silent.push(host.to_owned());
    }

    /// From now on ECR gives tokens that are good for `life` seconds, or has had too many requests.
    pub fn ecr(&self, life: Option<i64>) {
        let mut state = self.state.lock();
        state.ecr.refusal = life.is_none().then_some(("ThrottlingException", "Rate exceeded"));
        state.ecr.life = life.unwrap_or_default();
    }

    /// From now on ECR refuses with this code of AWS, and says this.
    pub fn ecr_refuses(&self, code: &'static str, message: &'static str) {
        self.state.lock().ecr.refusal = Some((code, message));
    }

    /// The tokens that ECR gave so far.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        self.state.lock().ecr.given.clone()
    }

    /// Returns the number of calls to ECR.
    #[must_use]
    pub fn ecr_calls(&self) -> usize {
        self.state.lock().ecr.asked
    }

    /// The hosts that were contacted, whether there is a registry or not.
    #[must_use]
    pub fn contacted(&self) -> Vec<String> {
        let heads = self.proxy.seen();
        let hosts = heads
            .iter()
            .filter_map(|head| head.strip_prefix("CONNECT ")?.split_once(':'));
        hosts.map(|(host, _)| host.to_owned()).collect()
    }

    /// Host and path of each request to a registry.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.state.lock().seen.clone()
    }
}

/// Serves on a free port: registries behind TLS, or ECR.
async fn listen(serving: &mut JoinSet<()>, state: Arc<Mutex<State>>, tls: Option<TlsAcceptor>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            // Or a response waits 40 ms behind the tickets of TLS.
            stream.set_nodelay(true).expect("a socket option");
            connections.spawn(serve(stream, Arc::clone(&state), tls.clone()));
        }
    });
    address
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>, tls: Option<TlsAcceptor>) {
    let is_registry = tls.is_some();
    let service = service_fn(move |request: Request<Incoming>| {
        let state = Arc::clone(&state);
        async move {
            let answer = if is_registry {
                registry(&request, &state)
            } else {
                Some(ecr(&state))
            };
            match answer {
                Some(answer) => Ok::<_, Infallible>(answer),
                None => std::future::pending().await,
            }
        }
    });
    // A client that goes away, or does not trust the certificate, is none of our concern.
    if let Some(tls) = tls {
        if let Ok(stream) = tls.accept(stream).await {
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    } else {
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }
}

fn answer(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer
}

/// None: it never answers.
fn registry(request: &Request<Incoming>, state: &Mutex<State>) -> Option<Response<Full<Bytes>>> {
    let host = text(request.headers(), "host");
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let mut state = state.lock();
    state.seen.push(format!("{host}{path}"));
    if state.silent.contains(&host) {
        return None;
    }
    let credential = text(request.headers(), "authorization");
    let accounts = |host: &str| state.accounts.get(host).cloned().unwrap_or_default();
    if host == REALM {
        let account = credential
            .strip_prefix("Basic ")
            .and_then(|it| STANDARD.decode(it).ok());
        let account = String::from_utf8(account.unwrap_or_default()).unwrap_or_default();
        let mut parameters = url::form_urlencoded::parse(query.as_bytes());
        let of = parameters.find(|(name, _)| name == "service");
        let of = of.map(|(_, host)| host.into_owned()).unwrap_or_default();
        return Some(if accounts(&of).contains(&account) {
            answer(StatusCode::OK, json!({"token": STANDARD.encode(account)}).to_string())
        } else {
            answer(StatusCode::UNAUTHORIZED, String::new())
        });
    }
    let account = credential
        .strip_prefix("Bearer ")
        .and_then(|it| STANDARD.decode(it).ok());
    let account = String::from_utf8(account.unwrap_or_default()).unwrap_or_default();
    if accounts(&host).contains(&account) {
        return Some(answer(StatusCode::OK, "{}".to_owned()));
    }
    let mut refusal = answer(StatusCode::UNAUTHORIZED, String::new());
    let challenge = format!("Bearer realm=\"https://{REALM}/token\",service=\"{host}\"");
    refusal
        .headers_mut()
        .insert("www-authenticate", challenge.parse().expect("a header"));
    Some(refusal)
}

/// `GetAuthorizationToken`, in the JSON form of AWS.
fn ecr(state: &Mutex<State>) -> Response<Full<Bytes>> {
    let ecr = &mut state.lock().ecr;
    ecr.asked += 1;
    if let Some((code, message)) = ecr.refusal {
        let body = json!({"__type": code, "message": message});
        return answer(StatusCode::BAD_REQUEST, body.to_string());
    }
    let token = leaks::secret(format!("ecr-token-{}", ecr.given.len()));
    ecr.given.push(token.clone());
    #[expect(clippy::disallowed_methods, reason = "the time at which the real one expires")]
    let expires = Timestamp::now().as_second() + ecr.life;
    let body = json!({"authorizationData": [{
        "authorizationToken": STANDARD.encode(format!("AWS:{token}")),
        "expiresAt": expires,
        "proxyEndpoint": "https://123456789012.dkr.ecr.us-east-1.amazonaws.com",
    }]});
    answer(StatusCode::OK, body.to_string())
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}
