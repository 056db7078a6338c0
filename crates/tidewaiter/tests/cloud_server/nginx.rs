//! The server behind a real nginx: as docs/cloud.md configures it, and as a stream proxy with the PROXY protocol.

use std::net::{IpAddr, Ipv4Addr};

use reqwest::header::{LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response};
use serde_json::json;
use tidewaiter_testkit::{Process, Program, assets, eventually, free_port, issuer};
use url::form_urlencoded::Serializer;

use crate::unit::block;
use crate::world::{EMAIL, Land, On, PASSWORD, Place, SOON, Server};

/// The address from which nginx connects to the server.
const NGINX: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// The addresses of clients of nginx.
const OWNER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
/// The address that a client claims to have.
const CLAIMED: &str = "203.0.113.9";

/// One process, which logs to standard error and writes only into its folder.
const HEAD: &str = "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr warn;\nevents {}\n";
const FOLDERS: &str = "access_log off;
client_body_temp_path body;
proxy_temp_path proxy;
fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi;
scgi_temp_path scgi;
";

/// The configuration of the page for a server at `server`, on a port with TLS and one without.
fn http(tls: u16, plain: u16, server: u16) -> String {
    let recipe = block("proxy_set_header X-Forwarded-For");
    let documented = "http://10.0.0.5:3990";
    assert!(recipe.contains(documented), "{recipe}");
    let recipe = recipe.replace(documented, &format!("http://127.0.0.1:{server}"));
    let certificate = "ssl_certificate tls.crt;\nssl_certificate_key tls.key;\n";
    let listen = format!("listen 127.0.0.1:{tls} ssl;\nlisten 127.0.0.1:{plain};\n{certificate}proxy_bind {NGINX};\n");
    format!("{HEAD}http {{\n{FOLDERS}server {{\n{listen}{recipe}\n}}\n}}\n")
}

/// A stream proxy, which sends the header of version 1: no free nginx sends version 2.
fn stream(port: u16, server: u16) -> String {
    let module = assets::nginx().join("modules/ngx_stream_module.so");
    let listen = format!("listen 127.0.0.1:{port};\nproxy_pass 127.0.0.1:{server};\nproxy_bind {NGINX};\n");
    format!(
        "load_module {};\n{HEAD}stream {{\nserver {{\n{listen}proxy_protocol on;\n}}\n}}\n",
        module.display()
    )
}

/// A server behind nginx.
struct Proxied {
    place: Place,
    _nginx: Process,
    /// Reached through nginx, by the owner.
    server: Server,
    authority: Certificate,
}

impl Proxied {
    /// Starts both: nginx on `port`, with what `configure` returns for the port of the server.
    async fn start(port: u16, settings: &[(&str, &str)], configure: impl FnOnce(u16) -> String) -> Self {
        let place = Place::new(On::Sqlite).await;
        place.without_public_url();
        let base = format!("https://127.0.0.1:{port}");
        place.add_setting("publicUrl", &base);
        place.init().await;
        let folder = place.scratch.path();
        let authority = issuer::certificate(folder);
        let authority = Certificate::from_pem(authority.as_bytes()).unwrap();
        place.add_setting("trustedProxies", &format!("[{NGINX}]"));
        for (name, value) in settings {
            place.add_setting(name, &value.replace("FOLDER", &folder.display().to_string()));
        }
        let configuration = place.secret_file("nginx.conf", &configure(place.port));
        let nginx = Program::new(assets::nginx().join("nginx")).args(["-e", "stderr", "-p"]);
        let nginx = nginx.arg(folder).arg("-c").arg(&configuration);
        let nginx = Process::start(&place.scratch, nginx);
        let mut server = place.start();
        server.base = base;
        server.http = client(OWNER, &authority);
        server.ready().await;
        Self {
            place,
            _nginx: nginx,
            server,
            authority,
        }
    }

    fn client(&self, address: IpAddr) -> Client {
        client(address, &self.authority)
    }

    /// Sends a wrong password, with headers that claim another address. Returns the status.
    async fn wrong_login(&self, client: &Client, email: &str) -> u16 {
        let login = client.post(format!("{}/v3/login/password", self.server.base));
        let login = login.header("x-forwarded-for", CLAIMED);
        let login = login.header("forwarded", format!("for={CLAIMED}"));
        let wrong = json!({"email": email, "password": "a wrong password"});
        login.json(&wrong).send().await.unwrap().status().as_u16()
    }

    /// The audit log and the limits see the address of the client, whatever it claims.
    async fn knows_its_clients(&self, land: &Land) {
        let (client, other) = (self.client(CLIENT), self.client(OTHER));
        assert_eq!(self.wrong_login(&client, EMAIL).await, 401);
        let audit = format!("{}/audit", land.organization);
        eventually("the failed login to be recorded", SOON, async || {
            let rows = self.server.get(&land.token, &audit).await.is(200).json();
            let rows = rows.as_array().unwrap().iter();
            let failed = rows.filter(|row| row["action"] == "failed-login");
            let addresses: Vec<String> = failed.map(|row| row["address"].to_string()).collect();
            if addresses == [format!("\"{CLIENT}\"")] {
                Ok(())
            } else {
                Err(format!("{addresses:?}"))
            }
        })
        .await;
        let mut status = 401;
        for number in 0..100 {
            status = self.wrong_login(&client, &format!("nobody-{number}@example.org")).await;
            if status != 401 {
                break;
            }
        }
        assert_eq!(status, 429);
        assert_eq!(self.wrong_login(&other, "nobody@example.org").await, 401);
    }

    /// Sends the form to sign in as a page of `origin` does.
    async fn sign_in(&self, origin: &str) -> Response {
        let fields = [("email", EMAIL), ("password", PASSWORD), ("return_to", "/account")];
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let form = self.server.http.post(format!("{}/sign-in", self.server.base));
        let form = form.header("origin", origin).body(body);
        let form = form.header("content-type", "application/x-www-form-urlencoded");
        form.send().await.unwrap()
    }

    /// The console accepts forms of its own pages alone, and its cookie is that of this host.
    async fn shows_the_console(&self) {
        assert_eq!(self.sign_in("https://evil.example").await.status(), 403);
        let signed_in = self.sign_in(&self.server.base).await;
        assert_eq!(signed_in.status(), 303);
        assert_eq!(signed_in.headers()[LOCATION], "/account");
        let cookie = signed_in.headers()[SET_COOKIE].to_str().unwrap();
        for part in ["__Host-session=", "; Secure", "; HttpOnly", "; Path=/"] {
            assert!(cookie.contains(part), "{part} in {cookie}");
        }
        let (cookie, _) = cookie.split_once(';').unwrap();
        let page = self.server.http.get(format!("{}/account", self.server.base));
        let page = page.header("cookie", cookie).send().await.unwrap();
        assert_eq!(page.status(), 200);
        assert!(page.text().await.unwrap().contains(EMAIL));
    }

    /// An event arrives when it happens, not when a buffer is full.
    async fn streams_changes(&self, land: &Land) {
        let stream = self
            .server
            .http
            .get(format!("{}{}/events", self.server.base, land.cluster));
        let stream = stream.header("authorization", format!("JWT {}", land.api_key));
        let mut stream = stream.send().await.unwrap().error_for_status().unwrap();
        let mut text = String::new();
        for event in ["event: hello", "event: change"] {
            while !text.contains(event) {
                let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
                text.push_str(str::from_utf8(&chunk).unwrap());
            }
            let label = json!({"key": format!("cluster.containership.io/{}", &event[7..]), "value": "a"});
            self.server.post(&land.token, &land.labels, &label).await.is(201);
        }
    }
}

/// A client of nginx with this address, which follows no redirect.
fn client(address: IpAddr, authority: &Certificate) -> Client {
    let client = Client::builder().no_proxy().redirect(Policy::none()).timeout(SOON);
    let client = client.local_address(address).tls_certs_only([authority.clone()]);
    client.build().unwrap()
}

#[tokio::test]
async fn nginx_with_the_configuration_of_the_page_passes_on_all_that_the_server_needs() {
    let (tls, plain) = (free_port(), free_port());
    let proxied = Proxied::start(tls, &[], |server| http(tls, plain, server)).await;
    let land = Land::make(&proxied.server).await;
    proxied.streams_changes(&land).await;
    proxied.shows_the_console().await;
    proxied.knows_its_clients(&land).await;
    // The port without TLS is for no credentials.
    let client = proxied.client(OTHER);
    let page = client.get(format!("http://127.0.0.1:{plain}/account")).send().await;
    let page = page.unwrap();
    let secure = format!("{}/account", proxied.server.base);
    assert_eq!(
        (page.status().as_u16(), page.headers()[LOCATION].to_str().unwrap()),
        (308, &*secure)
    );
    let login = client.post(format!("http://127.0.0.1:{plain}/v3/login/password"));
    let login = login.json(&json!({"email": EMAIL, "password": PASSWORD}));
    assert_eq!(login.send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn nginx_as_a_stream_proxy_names_its_clients_by_the_proxy_protocol() {
    let port = free_port();
    let settings = [
        ("proxyProtocol", "true"),
        ("tlsCertificate", "FOLDER/tls.crt"),
        ("tlsKey", "FOLDER/tls.key"),
    ];
    let proxied = Proxied::start(port, &settings, |server| stream(port, server)).await;
    let land = Land::make(&proxied.server).await;
    proxied.streams_changes(&land).await;
    proxied.shows_the_console().await;
    proxied.knows_its_clients(&land).await;
    // Others connect without the header.
    let direct = proxied
        .client(OTHER)
        .get(format!("https://127.0.0.1:{}/readyz", proxied.place.port));
    assert_eq!(direct.send().await.unwrap().status(), 200);
}
