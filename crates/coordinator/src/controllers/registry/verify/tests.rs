//! Against a registry on the loopback address, which only these tests may contact and over plain HTTP.

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, StatusCode as Code};
use axum::response::{IntoResponse, Response as Answer};
use tidewaiter_kit::SystemClock;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::controllers::registry::address::ServerAddress;

const SECRET: &str = "hunter2";
/// `u:hunter2`
const BASIC: &str = "Basic dTpodW50ZXIy";

struct FakeRegistry {
    url: String,
    /// The path and the credential of each request.
    seen: Arc<Mutex<Vec<(String, String)>>>,
    /// The peer of each connection.
    peers: Arc<Mutex<BTreeSet<SocketAddr>>>,
    _serving: JoinSet<()>,
}

/// Answers each request by its path, with its query, and by its credential; `{}` in a header is its own address.
async fn registry(answer: impl Fn(&str, &str) -> Answer + Clone + Send + Sync + 'static) -> FakeRegistry {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let peers: Arc<Mutex<BTreeSet<SocketAddr>>> = Arc::default();
    let (log, own, connected) = (Arc::clone(&seen), url.clone(), Arc::clone(&peers));
    let handler = move |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request| {
        connected.lock().unwrap().insert(peer);
        let credential = request
            .headers()
            .get("authorization")
            .map_or("", |it| it.to_str().unwrap());
        let path = request.uri().to_string();
        log.lock().unwrap().push((path.clone(), credential.to_owned()));
        let mut answer = answer(&path, credential);
        if let Some(header) = answer.headers().get("www-authenticate") {
            let header = header.to_str().unwrap().replace("{}", &own).parse().unwrap();
            answer.headers_mut().insert("www-authenticate", header);
        }
        std::future::ready(answer)
    };
    let mut serving = JoinSet::new();
    let service = Router::new()
        .fallback(handler)
        .into_make_service_with_connect_info::<SocketAddr>();
    serving.spawn(async move { axum::serve(listener, service).await.unwrap() });
    FakeRegistry {
        url,
        seen,
        peers,
        _serving: serving,
    }
}

fn challenge(text: &str) -> Answer {
    let headers: HeaderMap = [("www-authenticate".parse().unwrap(), text.parse().unwrap())]
        .into_iter()
        .collect();
    (Code::UNAUTHORIZED, headers).into_response()
}

fn login() -> Login {
    Login {
        address: ServerAddress::parse("registry.example.com").unwrap(),
        username: "u".to_owned().into(),
        password: SECRET.to_owned().into(),
        email: String::new(),
        old_form: false,
    }
}

impl FakeRegistry {
    async fn verdict(&self) -> Verdict {
        let verifier = Verifier {
            http: builder().no_proxy().build().unwrap(),
            clock: SystemClock::shared(),
        };
        let verdict = verifier.check_at(&format!("{}/v2/", self.url), &login()).await;
        assert!(!format!("{verdict:?}").contains(SECRET));
        verdict
    }

    /// The hosts that received the password.
    fn told(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|(_, credential)| credential == BASIC)
            .map(|(path, _)| path.clone())
            .collect()
    }
}

const ASKS: &str = "Bearer realm=\"{}/token\",service=\"s\"";

/// A registry with tokens; the realm answers with this.
async fn with_realm(answer: fn() -> Answer) -> FakeRegistry {
    registry(move |path, credential| match path {
        "/v2/" if credential == "Bearer good" => Code::OK.into_response(),
        "/token?service=s" => answer(),
        _ => challenge(ASKS),
    })
    .await
}

#[tokio::test]
async fn a_check_connects_once_to_each_host() {
    // As registries do, with a body that has to be read before the connection can be used again.
    let registry = registry(|path, credential| match path {
        "/v2/" if credential == "Bearer good" => Code::OK.into_response(),
        "/token?service=s" => r#"{"token": "good"}"#.into_response(),
        _ => (challenge(ASKS).into_parts().0, "{\"errors\": []}").into_response(),
    })
    .await;
    assert_eq!(registry.verdict().await, Verdict::Accepted);
    assert_eq!(registry.seen.lock().unwrap().len(), 3);
    assert_eq!(registry.peers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_is_asked_for_and_used() {
    for answer in [r#"{"token": "good"}"#, r#"{"access_token": "good", "expires_in": 60}"#] {
        let answer = match answer {
            r#"{"token": "good"}"# => || r#"{"token": "good"}"#.into_response(),
            _ => || r#"{"access_token": "good", "expires_in": 60}"#.into_response(),
        };
        let registry = with_realm(answer).await;
        assert_eq!(registry.verdict().await, Verdict::Accepted);
        assert_eq!(
            registry.told(),
            ["/token?service=s"],
            "the password goes to the realm alone"
        );
    }
    let refuses = with_realm(|| Code::UNAUTHORIZED.into_response()).await;
    assert_eq!(refuses.verdict().await, Verdict::Refused);
    let forbids = with_realm(|| Code::FORBIDDEN.into_response()).await;
    assert!(matches!(forbids.verdict().await, Verdict::Unknown(why) if why.contains("token endpoint answers 403")));
    let worthless = with_realm(|| r#"{"token": "bad"}"#.into_response()).await;
    assert_eq!(worthless.verdict().await, Verdict::Refused);
}

#[tokio::test]
async fn name_and_password_are_sent_where_they_are_asked_for() {
    let accepts = registry(|_, credential| match credential {
        BASIC => Code::OK.into_response(),
        _ => challenge("Basic realm=\"r\""),
    });
    let accepts = accepts.await;
    assert_eq!(accepts.verdict().await, Verdict::Accepted);
    assert_eq!(accepts.told(), ["/v2/"]);
    let refuses = registry(|_, _| challenge("Basic realm=\"r\"")).await;
    assert_eq!(refuses.verdict().await, Verdict::Refused);
    // It lets anybody read, and still says that it does not know this one.
    let open = registry(|_, credential| match credential {
        "" => Code::OK.into_response(),
        _ => Code::FORBIDDEN.into_response(),
    });
    assert_eq!(open.await.verdict().await, Verdict::Refused);
}

#[tokio::test]
async fn the_password_goes_to_no_other_site() {
    let evil = registry(|_, _| r#"{"token": "good"}"#.into_response()).await;
    let stolen = evil.url.replace("127.0.0.1", "127.0.0.2");
    let header = format!("Bearer realm=\"{stolen}/token\"");
    let registry = registry(move |_, _| challenge(&header)).await;
    assert!(matches!(registry.verdict().await, Verdict::Unknown(why) if why.contains("another site")));
    assert!(registry.told().is_empty() && evil.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let evil = registry(|_, _| Code::OK.into_response()).await;
    let to = evil.url.clone();
    let redirects = move |to: &str| {
        let headers: HeaderMap = [("location".parse().unwrap(), to.parse().unwrap())]
            .into_iter()
            .collect();
        (Code::TEMPORARY_REDIRECT, headers).into_response()
    };
    let target = to.clone();
    let at_once = registry(move |_, _| redirects(&target)).await;
    assert!(matches!(at_once.verdict().await, Verdict::Unknown(why) if why.contains("redirects")));
    let later = registry(move |path, _| match path {
        "/v2/" => challenge(ASKS),
        _ => redirects(&to),
    });
    let later = later.await;
    assert!(matches!(later.verdict().await, Verdict::Unknown(why) if why.contains("redirects")));
    assert!(evil.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_no_answer_neither_accepts_nor_refuses() {
    for answer in [
        || Code::INTERNAL_SERVER_ERROR.into_response(),
        || Code::TOO_MANY_REQUESTS.into_response(),
        || Code::NOT_FOUND.into_response(),
        || Code::NO_CONTENT.into_response(),
        || axum::response::Html("<html>back soon</html>").into_response(),
        || challenge("Negotiate"),
        || challenge("Bearer realm=\"not a URL\""),
    ] as [fn() -> Answer; 7]
    {
        let registry = registry(move |_, _| answer()).await;
        assert!(matches!(registry.verdict().await, Verdict::Unknown(_)));
        assert!(registry.told().is_empty());
    }
    for answer in [
        || "<html>".into_response(),
        || "".into_response(),
        || r#"{"token": 1}"#.into_response(),
        || r#"{"token": ""}"#.into_response(),
        || r#"{"token": "a\r\nx: y"}"#.into_response(),
        || format!(r#"{{"token": "{}"}}"#, "x".repeat(BODY)).into_response(),
        || Code::BAD_GATEWAY.into_response(),
    ] as [fn() -> Answer; 7]
    {
        let registry = with_realm(answer).await;
        assert!(matches!(registry.verdict().await, Verdict::Unknown(_)));
    }
}

#[tokio::test]
async fn plain_http_and_this_machine_are_not_contacted() {
    let verifier = Verifier::new(SystemClock::shared()).unwrap();
    let plain = Login {
        address: ServerAddress::parse("http://registry.example.com").unwrap(),
        ..login()
    };
    assert!(matches!(verifier.check(&plain).await, Verdict::Unknown(why) if why.contains("TLS only")));
    let open = registry(|_, _| Code::OK.into_response()).await;
    let verdict = verifier.check_at(&format!("{}/v2/", open.url), &login()).await;
    assert!(matches!(verdict, Verdict::Unknown(_)) && open.seen.lock().unwrap().is_empty());
    let resolved = Outside.resolve("localhost".parse().unwrap()).await;
    assert_eq!(resolved.map(Iterator::count).unwrap_or_default(), 0);
}
