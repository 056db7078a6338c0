//! The server behind proxies: the address of the client, plain HTTP, and the PROXY protocol.

use std::net::{IpAddr, Ipv4Addr};

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tidewaiter_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::world::{EMAIL, On, PASSWORD, Place, SOON, Server};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// A server in plain HTTP on all addresses, which trusts the proxy.
async fn behind_the_proxy(protocol: bool) -> (Place, Server) {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    place.add_setting("trustedProxies", &format!("[{PROXY}]"));
    place.add_setting("proxyProtocol", &protocol.to_string());
    let server = place.start_as(|program| program.arg("--address").arg(format!("0.0.0.0:{}", place.port)));
    server.ready().await;
    (place, server)
}

/// A client with this address, which follows no redirect.
fn from(address: IpAddr) -> Client {
    let client = Client::builder().no_proxy().redirect(Policy::none());
    client.local_address(address).build().unwrap()
}

fn login(server: &Server, from: &Client) -> RequestBuilder {
    let login = from.post(format!("{}/v3/login/password", server.base));
    login.json(&json!({"email": EMAIL, "password": PASSWORD}))
}

/// The addresses of the failed logins in the audit log.
async fn addresses(server: &Server, token: &str) -> Vec<String> {
    let get = async |path: &str| {
        let request = from(PROXY).get(format!("{}/v3/organizations{path}", server.base));
        let answer = request.header("authorization", format!("JWT {token}")).send().await;
        answer.unwrap().json::<Value>().await.unwrap()
    };
    let organization = get("").await[0]["id"].as_str().unwrap().to_owned();
    let rows = get(&format!("/{organization}/audit")).await;
    let rows = rows.as_array().unwrap().iter();
    let failed = rows.filter(|row| row["action"] == "failed-login");
    failed.map(|row| row["address"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn plain_http_is_only_for_trusted_proxies_and_not_for_credentials_that_arrived_in_it() {
    let (_place, server) = behind_the_proxy(false).await;
    let (proxy, stranger) = (from(PROXY), from(STRANGER));
    let answer = login(&server, &stranger).send().await.unwrap();
    assert_eq!(answer.status(), 403);
    let text = answer.text().await.unwrap();
    assert!(text.contains("trustedProxies"), "{text}");
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/openapi.json", 403),
        ("/nowhere", 403),
    ] {
        let answer = stranger.get(format!("{}{path}", server.base)).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
    let answer = login(&server, &proxy)
        .header("x-forwarded-proto", "http")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 403);
    let text = answer.text().await.unwrap();
    assert!(text.contains("plain HTTP") && !text.contains(PASSWORD), "{text}");
    let answer = login(&server, &proxy)
        .header("x-forwarded-proto", "https")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn pages_that_a_browser_asks_for_in_plain_http_redirect_to_https() {
    let (_place, server) = behind_the_proxy(false).await;
    let proxy = from(PROXY);
    let get = async |path: &str, scheme: &str| {
        let page = proxy.get(format!("{}{path}", server.base));
        page.header("x-forwarded-proto", scheme).send().await.unwrap()
    };
    for path in ["/", "/sign-in?return_to=%2Faccount", "/assets/console.css"] {
        let answer = get(path, "http").await;
        assert_eq!(answer.status(), 308, "{path}");
        let location = answer.headers()["location"].to_str().unwrap();
        assert_eq!(location, format!("https://cloud.example.org{path}"));
    }
    assert_eq!(get("/sign-in", "https").await.status(), 200);
    assert_eq!(get("/invitation?secret=twi_x", "http").await.status(), 403);
}

#[tokio::test]
async fn the_proxy_names_the_client_by_either_header() {
    let (_place, server) = behind_the_proxy(false).await;
    let proxy = from(PROXY);
    let token = login(&server, &proxy).send().await.unwrap();
    let token: Value = token.json().await.unwrap();
    let wrong = json!({"email": EMAIL, "password": "a wrong password"});
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.1, 198.51.100.1"),
        ("forwarded", "for=203.0.113.2, for=198.51.100.2;proto=https"),
    ] {
        let login = proxy.request(Method::POST, format!("{}/v3/login/password", server.base));
        let answer = login.header(name, value).json(&wrong).send().await.unwrap();
        assert_eq!(answer.status(), 401);
    }
    let token = token["token"].as_str().unwrap();
    eventually("the failed logins to be recorded", SOON, async || {
        let mut addresses = addresses(&server, token).await;
        addresses.sort();
        if addresses == ["198.51.100.1", "198.51.100.2"] {
            Ok(())
        } else {
            Err(format!("{addresses:?}"))
        }
    })
    .await;
}

/// Sends `text` from `address`, and reads until the server closes the connection.
async fn asked(place: &Place, address: IpAddr, text: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let mut stream: TcpStream = socket.connect((Ipv4Addr::LOCALHOST, place.port).into()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn the_connections_of_the_proxy_begin_with_the_header_of_the_proxy_protocol() {
    let (place, _server) = behind_the_proxy(true).await;
    let request = "GET /v3/account HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for (address, header, status) in [
        (
            PROXY,
            "PROXY TCP4 198.51.100.7 127.0.0.1 4711 3990\r\n",
            "HTTP/1.1 401 ",
        ),
        (PROXY, "PROXY UNKNOWN\r\n", "HTTP/1.1 401 "),
        (PROXY, "", ""),
        (STRANGER, "", "HTTP/1.1 403 "),
        (
            STRANGER,
            "PROXY TCP4 127.0.0.2 127.0.0.1 4711 3990\r\n",
            "HTTP/1.1 400 ",
        ),
    ] {
        let answer = asked(&place, address, &format!("{header}{request}")).await;
        assert!(answer.starts_with(status), "{address} {header}: {answer}");
        assert_eq!(answer.is_empty(), status.is_empty(), "{address} {header}: {answer}");
    }
}
