//! A person from the first sign-in at a certified provider, with a real browser, to the login at a real node; and the
//! end of all of it, when an admin offboards the person.

use serde_json::json;
use tidewaiter_testkit::oidc_provider::{CLIENT_ID, CLIENT_SECRET};
use tidewaiter_testkit::site::{REPOSITORY, Site, WORKERS, client};
use tidewaiter_testkit::{OidcProvider, Process, Program, eventually, free_port};

use crate::browser::Browser;
use crate::world::{EMAIL, Land, On, PASSWORD, Place, SOON, Server, content};
use crate::{coordinator, images, now, took};

/// The private key of the person, on the node.
const KEY: &str = "/root/laptop";

/// The cloud with a provider, and a cluster with a node that follows it.
struct World {
    site: Site,
    place: Place,
    server: Server,
    land: Land,
    _coordinator: Process,
    _provider: OidcProvider,
}

impl World {
    async fn start() -> Self {
        let site = Site::start(images(), &[WORKERS]).await;
        site.nodes[0].accepts_logins().await;
        let place = Place::new(On::Sqlite).await;
        place.without_public_url();
        place.init().await;
        let redirect = format!("https://localhost:{}/sign-in/callback", place.port);
        let provider = OidcProvider::start(&redirect).await;
        let server = serve(&place).await;
        let land = Land::make(&server).await;
        server.process.stop(SOON).await;
        let secret = place.secret_file("client-secret", CLIENT_SECRET);
        let sign_in = json!({"providers": [{
            "name": "certified", "title": "Certified", "issuer": provider.issuer(), "clientId": CLIENT_ID,
            "clientSecretFile": secret, "organization": id(&land.organization), "provision": {"role": "member"},
        }]});
        place.add_setting("signIn", &sign_in.to_string());
        let server = serve(&place).await;
        let coordinator = install(&site, &place, &server, &land).await;
        Self {
            site,
            place,
            server,
            land,
            _coordinator: coordinator,
            _provider: provider,
        }
    }

    /// Runs a command as the owner of the organization; returns its output.
    async fn owner(&self, words: &[&str]) -> String {
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .name("owner")
            .arg("cloud")
            .args(words)
            .env("XDG_CONFIG_HOME", self.place.scratch.path())
            .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD);
        let (code, said) = self.place.run_program(program).await;
        assert_eq!(code, 0, "{words:?}: {said}");
        said
    }

    /// Logs in at the node with the person's key; returns the id of the user there.
    async fn ssh(&self) -> Result<String, String> {
        let node = &self.site.nodes[0];
        let said = node.logs_in(node, KEY, "echo $CONTAINERSHIP_USER_ID").await;
        said.map(|said| said.trim().to_owned())
    }

    /// The page of the cluster.
    fn cluster(&self) -> &str {
        self.land.cluster.trim_start_matches("/v3")
    }

    async fn journey(&self, browser: &Browser) {
        let start = now();
        // The first sign-in creates the user.
        browser.open("/").await;
        browser.follow("Sign in with Certified").await;
        browser.at_provider("alice").await;
        browser.shows("Clusters").await;
        took("the first sign-in at the provider", start);
        self.sees_the_cluster(browser).await;
        let token = creates_a_token(browser).await;
        let account = self.server.get(&token, "/v3/account").await.is(200).field("id");

        let start = now();
        let key = self.site.nodes[0].make_key(KEY, "ed25519", "256").await;
        adds_a_key(browser, &key).await;
        took("a key is added in the console", start);
        let start = now();
        let login_id = account.replace('-', "");
        eventually("a login at the node", SOON, async || match self.ssh().await {
            Ok(id) if id == login_id => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        took("from the key in the cloud to the login by SSH", start);
        self.is_offboarded(browser, &token).await;
    }

    /// The cluster has reported what it mirrors. A report is no event, so the page is opened again.
    async fn sees_the_cluster(&self, browser: &Browser) {
        let start = now();
        browser.follow("prod").await;
        browser.shows_in("h1", "prod").await;
        eventually("the cluster to be in sync", SOON, async || {
            browser.open(self.cluster()).await;
            let shown = browser.text("main").await;
            if shown.contains("Synced") { Ok(()) } else { Err(shown) }
        })
        .await;
        took("the page of the cluster, with its report", start);
    }

    /// Nothing of the person works any more, and signing in at the provider creates no new user.
    async fn is_offboarded(&self, browser: &Browser, token: &str) {
        let authority = self.place.data.join("tls/ca.crt").display().to_string();
        self.owner(&["login", "--server", &self.server.base, "--ca-file", &authority, EMAIL])
            .await;
        let start = now();
        let said = self.owner(&["offboard", "alice@example.net", "--yes"]).await;
        assert!(said.contains("removed: user of Acme"), "{said}");
        took("tidewaiter cloud offboard", start);
        self.server.get(token, "/v3/account").await.is(401);
        eventually("the node to refuse the key", SOON, async || match self.ssh().await {
            Err(said) if said.contains("Permission denied (publickey)") => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        took("from the command to the refused login by SSH", start);
        let start = now();
        browser.open(self.cluster()).await;
        assert_eq!(browser.path().await, "/sign-in");
        browser.forget().await;
        browser.open("/sign-in").await;
        browser.follow("Sign in with Certified").await;
        browser.at_provider("alice").await;
        browser.shows("was removed: ask an admin to invite you").await;
        browser.open(self.cluster()).await;
        assert_eq!(browser.path().await, "/sign-in");
        took("the console refuses the session and the provider's sign-in", start);
    }
}

/// The last segment of a path.
fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// The server, with the certificate of its own authority.
async fn serve(place: &Place) -> Server {
    let server = Server {
        base: format!("https://localhost:{}", place.port),
        http: client(&content(&place.data.join("tls/ca.crt"))),
        ..place.start()
    };
    server.ready().await;
    server
}

/// The release with the agents, and a coordinator beside the cluster.
async fn install(site: &Site, place: &Place, server: &Server, land: &Land) -> Process {
    let (organization, cluster) = (id(&land.organization), id(&land.cluster));
    let values = json!({
        "image": {"repository": REPOSITORY},
        "coordinator": {
            "enabled": true,
            "nodeSelector": {"example.com/none": "none"},
            "settings": {"cloud": {"apiBaseUrl": server.base, "organizationId": organization, "clusterId": cluster}},
        },
        "agent": {"enabled": true},
    });
    site.helm("install tidewaiter deploy/chart", &values).await;
    let authority = place.data.join("tls/ca.crt").display().to_string();
    let endpoints = format!("127.0.0.1:{}", free_port());
    let variables = [
        ("CONTAINERSHIP_CLOUD_API_BASE_URL", server.base.as_str()),
        ("CONTAINERSHIP_CLOUD_CA_FILE", authority.as_str()),
        ("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", organization),
        ("CONTAINERSHIP_CLOUD_CLUSTER_ID", cluster),
        ("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", land.api_key.as_str()),
        ("TIDEWAITER_ENDPOINTS__ADDRESS", endpoints.as_str()),
    ];
    let coordinator = coordinator(site, &variables);
    site.rolled_out("tidewaiter-agent", "daemonset/tidewaiter-agent").await;
    coordinator
}

async fn creates_a_token(browser: &Browser) -> String {
    browser.open("/account").await;
    browser.fill_in("form[action='/account/tokens']", "name", "ci").await;
    browser.press("Create a token").await;
    browser.shows("Copy the token now").await;
    browser.text("pre").await.trim().to_owned()
}

async fn adds_a_key(browser: &Browser, key: &str) {
    browser.open("/account").await;
    browser.fill_in("form[action='/account/keys']", "name", "laptop").await;
    browser.fill_in("form[action='/account/keys']", "key", key).await;
    browser.press("Add a key").await;
    browser.press("Add the key").await;
    browser.shows("The change is made").await;
}

#[tokio::test]
async fn a_person_signs_in_at_the_provider_logs_in_on_a_node_and_is_offboarded() {
    let start = now();
    let world = Box::pin(World::start()).await;
    took("the cloud, the provider and a cluster with a node", start);
    let (start, scratch) = (now(), &world.place.scratch);
    let journey = async |browser: &Browser| Box::pin(world.journey(browser)).await;
    Browser::browse(scratch, &world.server.base, journey).await;
    took("everything from the sign-in to the offboarding", start);
}
