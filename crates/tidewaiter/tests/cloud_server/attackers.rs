//! Attackers of the server of the cloud: clients without an account, from other loopback addresses than the honest
//! client, and members of another organization. The tests and the bench start one after the other beside an honest
//! client.
#![allow(clippy::unwrap_used, reason = "tests, and what they share with the bench")]
#![allow(clippy::disallowed_methods, reason = "names that nobody has used yet")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method};
use rustix::process::setpriority_process;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// The time that an attacker waits for a response.
const LIMIT: Duration = Duration::from_mins(1);
/// Part of a head or body that is too long.
static CHUNK: [u8; 64 * 1024] = [b'a'; 64 * 1024];
/// The number of connections that every attacked server permits, so that the attacks stay small.
pub const CONNECTIONS: usize = 1_000;

/// The attacked organization, and the other one, whose members attack.
pub struct Field {
    pub address: SocketAddr,
    /// The address of somebody who logged in from the honest client's address.
    pub email: String,
    /// `/v3/organizations/ID` of the other organization.
    pub organization: String,
    /// The token of its owner.
    pub token: String,
    /// The path of its cluster, and the key.
    pub cluster: String,
    pub api_key: String,
    /// The path of a user in it, and the ids of all that have no password.
    pub user: String,
    pub users: Vec<String>,
}

pub type Attack = fn(&Arc<Field>) -> JoinSet<()>;

/// Each goes on until its tasks are aborted.
pub const ATTACKS: &[(&str, Attack)] = &[
    ("unfinished bodies of logins", |field| {
        again(field, 600, 2..=5, unfinished)
    }),
    ("logins with invented addresses", |field| {
        again(field, 60, 6..=6, invented_login)
    }),
    ("guesses of the owner's password", |field| {
        again(field, 30, 7..=12, guess)
    }),
    ("invented API keys", |field| again(field, 60, 13..=13, invented_key)),
    ("idle connections", |field| again(field, 3 * CONNECTIONS, 14..=14, idle)),
    ("streams of one key", |field| again(field, 200, 15..=15, stream)),
    ("tokens of another organization", |field| {
        again(field, 32, 16..=16, token)
    }),
    ("writes of another organization", |field| {
        again(field, 64, 17..=17, write)
    }),
    ("one changed list for 64 clusters", |field| {
        again(field, 65, 18..=18, list)
    }),
    ("reports of a cluster", |field| again(field, 32, 19..=19, report)),
    ("unfinished heads", |field| again(field, 3 * CONNECTIONS, 20..=20, head)),
    ("unfinished bodies of a member", |field| {
        again(field, 640, 21..=21, unfinished_script)
    }),
    ("large objects", |field| again(field, 16, 22..=22, large)),
    ("lists that nobody reads", |field| again(field, 200, 23..=23, unread)),
    ("changes of the own password", |field| {
        again(field, 64, 24..=24, password)
    }),
    ("teams of all users", |field| again(field, 8, 25..=25, team)),
    ("logins with the key of a cluster", |field| {
        again(field, 32, 26..=26, key_login)
    }),
    ("removals", |field| again(field, 8, 27..=27, removal)),
];

/// Threads for the attackers. On other machines they would take no time from the server and the honest client: they get
/// what these leave.
pub fn elsewhere() -> io::Result<Runtime> {
    let mut threads = Builder::new_multi_thread();
    threads.enable_all().on_thread_start(|| {
        // Without it, the measurement is worse for the server.
        setpriority_process(None, 19).ok();
    });
    threads.build()
}

/// One of the attackers of an attack.
struct Attacker {
    field: Arc<Field>,
    number: usize,
    /// 127.0.0.`last` is the address.
    last: u8,
    client: Client,
}

/// The same attack `times` at once, each again and again, from loopback addresses with these ends.
fn again<F: Future<Output = ()> + Send + 'static>(
    field: &Arc<Field>,
    times: usize,
    addresses: RangeInclusive<u8>,
    attack: fn(Arc<Attacker>) -> F,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let clients: Vec<(u8, Client)> = addresses.map(|last| (last, client(last))).collect();
    for (number, (last, client)) in (0..times).zip(clients.into_iter().cycle()) {
        let attacker = Arc::new(Attacker {
            field: Arc::clone(field),
            number,
            last,
            client,
        });
        tasks.spawn(async move {
            loop {
                attack(Arc::clone(&attacker)).await;
                // A response that comes at once must not keep all others from running.
                tokio::task::yield_now().await;
            }
        });
    }
    tasks
}

fn client(last: u8) -> Client {
    let client = Client::builder().local_address(IpAddr::from([127, 0, 0, last]));
    client.timeout(LIMIT).no_proxy().build().unwrap()
}

impl Attacker {
    async fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, self.last], 0).into())?;
        socket.connect(self.field.address).await
    }

    /// Opens a connection, writes `text`, and waits until the server closes it. Whatever happens, the attack goes on.
    async fn write(&self, text: &str) -> io::Result<()> {
        self.fill(text, 0).await
    }

    /// As [`write`](Self::write), with [`CHUNK`] after the text, `chunks` times.
    async fn fill(&self, text: &str, chunks: usize) -> io::Result<()> {
        let mut stream = self.connect().await?;
        stream.write_all(text.as_bytes()).await?;
        for _ in 0..chunks {
            stream.write_all(&CHUNK).await?;
        }
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    }

    /// Sends a request and reads the response.
    async fn send(&self, method: Method, path: &str, token: &str, body: Value) -> Option<Value> {
        let request = self
            .client
            .request(method, format!("http://{}{path}", self.field.address));
        let request = if token.is_empty() {
            request
        } else {
            request.bearer_auth(token)
        };
        let request = if body.is_null() { request } else { request.json(&body) };
        request.send().await.ok()?.json().await.ok()
    }

    async fn log_in(&self, email: &str) {
        let body = json!({"email": email, "password": "a wrong password"});
        self.send(Method::POST, "/v3/login/password", "", body).await;
    }
}

async fn unfinished(it: Arc<Attacker>) {
    let head =
        "POST /v3/login/password HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let _ = it.write(head).await;
}

async fn idle(it: Arc<Attacker>) {
    let _ = it.write("").await;
}

async fn invented_login(it: Arc<Attacker>) {
    it.log_in(&format!("{}@example.com", fastrand::u64(..))).await;
}

async fn guess(it: Arc<Attacker>) {
    it.log_in(&it.field.email).await;
}

async fn invented_key(it: Arc<Attacker>) {
    let key = format!("twk_{:032x}_{}", fastrand::u128(..), "A".repeat(43));
    it.send(Method::GET, "/v3/account", &key, Value::Null).await;
}

async fn stream(it: Arc<Attacker>) {
    let Field { cluster, api_key, .. } = &*it.field;
    let head = format!("GET {cluster}/events HTTP/1.1\r\nhost: x\r\nauthorization: JWT {api_key}\r\n\r\n");
    let _ = it.write(&head).await;
}

async fn token(it: Arc<Attacker>) {
    let token = json!({"name": "more", "expires_in_seconds": 3600});
    it.send(Method::POST, "/v3/account/tokens", &it.field.token, token)
        .await;
}

async fn write(it: Arc<Attacker>) {
    let label = json!({"key": format!("cluster.containership.io/k{}", fastrand::u64(..)), "value": ""});
    let path = format!("{}/labels", it.field.cluster);
    it.send(Method::POST, &path, &it.field.token, label).await;
}

async fn list(it: Arc<Attacker>) {
    if it.number == 0 {
        let name = json!({"name": format!("User {}", fastrand::u64(..))});
        it.send(Method::PATCH, &it.field.user, &it.field.token, name).await;
    } else {
        let users = format!("{}/users", it.field.organization);
        it.send(Method::GET, &users, &it.field.api_key, Value::Null).await;
    }
}

async fn report(it: Arc<Attacker>) {
    let status = json!({"status": {"type": "RUNNING", "message": fastrand::u64(..).to_string()}});
    let path = format!("{}/status", it.field.cluster);
    it.send(Method::PUT, &path, &it.field.api_key, status).await;
}

async fn head(it: Arc<Attacker>) {
    let _ = it.fill("GET / HTTP/1.1\r\nhost: x\r\nx: ", 6).await;
}

async fn unfinished_script(it: Arc<Attacker>) {
    let Field { cluster, token, .. } = &*it.field;
    let head = format!(
        "PUT {cluster}/upgrades/44444444-4444-4444-8444-444444444444/script HTTP/1.1\r\nhost: x\r\n\
         authorization: JWT {token}\r\ncontent-type: text/x-shellscript\r\ncontent-length: 1048576\r\n\r\n"
    );
    let _ = it.fill(&head, 15).await;
}

/// Makes an object of almost 64 KiB, which is large as a tree of values.
async fn large(it: Arc<Attacker>) {
    let step = r#"{"threshold":0.5,"comparison_operator":">=","adjustment_type":"absolute","adjustment_value":1}"#;
    let policy = format!(
        r#"{{"name":"p{}","metrics_backend":"prometheus","metric":"cpu","metric_configuration":{{"blob":[{}[]]}},
        "poll_interval":15,"sample_period":600,"scaling_policy":{{"scale_up":{step},"scale_down":{step}}}}}"#,
        fastrand::u64(..),
        "[],".repeat(20_000)
    );
    let Field {
        address,
        cluster,
        token,
        ..
    } = &*it.field;
    let request = it
        .client
        .post(format!("http://{address}{cluster}/autoscaling-policies"));
    let request = request.bearer_auth(token).header("content-type", "application/json");
    if let Ok(answer) = request.body(policy).send().await {
        let _ = answer.bytes().await;
    }
}

/// Makes what the attacks read: a list of 12 MB.
pub async fn prepare(field: &Arc<Field>) {
    let attacker = Arc::new(Attacker {
        field: Arc::clone(field),
        number: 0,
        last: 22,
        client: client(22),
    });
    for _ in 0..200 {
        large(Arc::clone(&attacker)).await;
    }
}

async fn unread(it: Arc<Attacker>) {
    let Field { cluster, token, .. } = &*it.field;
    // Each asks for a response of its own, which no cache has.
    let request = format!(
        "GET {cluster}/autoscaling-policies?by={} HTTP/1.1\r\nhost: x\r\nauthorization: JWT {token}\r\n\r\n",
        fastrand::u64(..)
    );
    let asked = async {
        let mut stream = it.connect().await?;
        stream.write_all(request.as_bytes()).await?;
        // The server closes it, but a connection that is not read is not told.
        std::future::pending::<io::Result<()>>().await
    };
    let _ = asked.await;
}

async fn password(it: Arc<Attacker>) {
    let own = "correct horse battery staple";
    let same = json!({"old_password": own, "new_password": own});
    it.send(Method::PUT, "/v3/account/password", &it.field.token, same)
        .await;
}

async fn team(it: Arc<Attacker>) {
    let team = json!({"name": format!("t{}", fastrand::u64(..)), "description": "", "user_ids": it.field.users});
    let path = format!("{}/teams", it.field.organization);
    it.send(Method::POST, &path, &it.field.token, team).await;
}

async fn key_login(it: Arc<Attacker>) {
    let login = json!({"api_key": it.field.api_key});
    it.send(Method::POST, "/v3/login/api_key", "", login).await;
}

/// Makes a cluster with nodes, and deletes it.
async fn removal(it: Arc<Attacker>) {
    let Field {
        organization, token, ..
    } = &*it.field;
    let clusters = format!("{organization}/clusters");
    let made = it
        .send(
            Method::POST,
            &clusters,
            token,
            json!({"name": format!("c{}", fastrand::u64(..))}),
        )
        .await;
    let Some(id) = made.as_ref().and_then(|made| made["id"].as_str()) else {
        return;
    };
    let cluster = format!("{clusters}/{id}");
    for number in 0..50 {
        let label = json!({"key": format!("cluster.containership.io/k{number}"), "value": ""});
        it.send(Method::POST, &format!("{cluster}/labels"), token, label).await;
    }
    it.send(Method::DELETE, &cluster, token, Value::Null).await;
}
