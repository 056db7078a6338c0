//! The commands on the pages of docs/, typed in their order, with the sample files of the page.

use std::fs;
use std::path::Path;

use minisign::KeyPair;
use serde_json::{Value, json};
use tidewaiter_cloud::models::{PluginSpec, Unknown, parse};
use tidewaiter_testkit::{Process, Program, Scratch, eventually, free_port};

use crate::real::LONG;
use crate::world::{PASSWORD, Person, Ran};

const PAGE: &str = include_str!("../../../../docs/cloud.md");

/// The block of docs/cloud.md that contains `text`.
fn block(text: &str) -> &'static str {
    block_of(PAGE, text)
}

/// The block of the page that contains `text`.
fn block_of<'a>(page: &'a str, text: &str) -> &'a str {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let mut found = blocks.filter(|block| block.contains(text));
    let block = found.next().unwrap_or_else(|| panic!("no block has {text:?}"));
    // The first line has the language.
    block.split_once('\n').unwrap().1
}

fn page(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(folder.join(name)).unwrap()
}

struct Newcomer {
    person: Person,
    url: String,
    server: Option<Process>,
}

impl Newcomer {
    /// Types a line of the page in a shell, in the home folder.
    async fn types(&self, line: &str) -> Ran {
        let folder = Path::new(env!("CARGO_BIN_EXE_tidewaiter")).parent().unwrap();
        let line = line.replace("https://cloud.example.com", &self.url);
        let script = format!("PATH={}:$PATH\n{line}", folder.display());
        let command = self.person.command(&[]);
        let variables = [
            ("TIDEWAITER_CLOUD_PASSWORD", PASSWORD),
            ("TIDEWAITER_CLOUD_NEW_PASSWORD", PASSWORD),
            ("BOB_PASSWORD", "hunter2-hunter2"),
            ("EDITOR", "sed -i 's/list/watch/'"),
            // Without it, the server would have a certificate.
            ("TIDEWAITER_PUBLIC_URL", &*self.url),
        ];
        let environment = command
            .as_std()
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        let mut shell = tokio::process::Command::new("bash");
        shell.env_clear().envs(environment);
        shell
            .envs(variables)
            .args(["-c", &script])
            .current_dir(self.person.home.path());
        let output = shell
            .kill_on_drop(true)
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .unwrap();
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Types each line; all must succeed. What they print together.
    async fn types_all(&self, lines: &str) -> String {
        let mut printed = String::new();
        let lines = lines.replace("\\\n", "");
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let ran = self.types(line.trim_start_matches("$ ")).await;
            assert_eq!(ran.code, 0, "{line}\n{}{}", ran.out, ran.err);
            printed += &ran.out;
        }
        printed
    }
}

impl Newcomer {
    /// The first steps: a server with its organization and its owner.
    async fn begin() -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let person = Person::new().await;
        let data = person.path("cloud").display().to_string();
        let first = block("tidewaiter cloud init --data ./cloud --organization Acme");
        let (init, serve) = first.split_once('\n').unwrap();
        let serve = serve.trim().replace("./cloud", &data);
        let serve = serve.strip_prefix("tidewaiter ").unwrap();
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter")).args(serve.split(' '));
        let program = program.env("TIDEWAITER_ADDRESS", &address);
        let program = program.env("TIDEWAITER_HEALTH_ADDRESS", "127.0.0.1:0");
        let mut newcomer = Self {
            person,
            url: format!("http://{address}"),
            server: None,
        };
        newcomer.types_all(init).await;
        let server = newcomer
            .server
            .insert(Process::start(&Scratch::new("cloud-documented"), program));
        let ready = format!("{}/readyz", newcomer.url);
        eventually("the server to be ready", LONG, async || {
            if let Some(status) = server.ended() {
                panic!("the server ended: {status}\n{}", server.log_tail());
            }
            reqwest::get(&ready)
                .await
                .and_then(reqwest::Response::error_for_status)
                .map(drop)
        })
        .await;
        newcomer
    }

    /// Logs in, and has the cluster `production`. What would be applied.
    async fn attaches(&self) -> String {
        let typed = block("tidewaiter cloud attach");
        // The server listens on this machine alone, which pods could not reach.
        let url = " --url https://cloud.test";
        self.types_all(&typed.replace(" | kubectl apply --server-side -f -", url))
            .await
    }
}

#[tokio::test]
async fn a_newcomer_types_the_page() {
    let newcomer = Newcomer::begin().await;
    let person = &newcomer.person;
    let attached = newcomer.attaches().await;
    assert!(attached.contains("name: tidewaiter-coordinator-cloud"), "{attached}");

    let sample = block("kind: RoleBinding");
    person.file("team/acme.yaml", sample);
    person.file("team/secrets/quay", "hunter2-robot\n");
    let printed = newcomer.types_all(block("tidewaiter cloud whoami")).await;
    for words in [
        "olivia@example.com",
        "6 to create, 0 to change, 0 to delete, 0 unchanged",
        "created Registry quay.io",
        "changed Role",
        "bob@example.com now has the role admin",
        "the password of bob@example.com is set",
        "all logins of bob@example.com have ended",
        "name: ci",
        "\ntoken:",
        "api_key: twk_",
        "api-keys",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    person.file("team/scope.yaml", block("kind: Scope"));
    let pruned = newcomer
        .types_all("tidewaiter cloud apply -f team/ --prune --yes")
        .await;
    assert!(pruned.contains("0 to delete"), "{pruned}");

    person.file("node-pool.yaml", block("# node-pool.yaml"));
    let pool = newcomer.types_all(block("tidewaiter cloud create node-pool")).await;
    assert!(pool.contains("name: workers"), "{pool}");

    person.file("fluentd.yaml", block("# fluentd.yaml"));
    let listed = newcomer.types_all(block("tidewaiter cloud catalogue add")).await;
    assert!(
        listed.contains("the catalogue has logs fluentd 1.0.0") && listed.contains("false"),
        "{listed}"
    );
    newcomer.types_all(block("tidewaiter cloud backup")).await;
    for kept in ["new/cloud.db", "new/keys", "new/sealing-keys"] {
        assert!(person.path(kept).exists(), "{kept}");
    }
}

#[tokio::test]
async fn an_operator_types_the_pages_on_upgrades_and_signatures() {
    let newcomer = Newcomer::begin().await;
    let person = &newcomer.person;
    newcomer.attaches().await;
    let context = "tidewaiter cloud context set --cluster production";
    newcomer.types_all(context).await;
    person.file("node-pool.yaml", block("# node-pool.yaml"));
    newcomer.types_all(block("tidewaiter cloud create node-pool")).await;
    person.file("upgrade.sh", "#!/bin/sh\nexit 0\n");
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    person.file(".minisign/minisign.key", &pair.sk.to_box(None).unwrap().into_string());
    let (upgrades, coordinator) = (page("upgrades.md"), page("coordinator.md"));

    let described = newcomer.types_all("tidewaiter cloud describe cluster production").await;
    let cluster = id(&described);
    person.file("upgrade.yaml", block_of(&upgrades, "policy: {drain: true"));
    for commands in ["tidewaiter cloud pause-upgrade", "tidewaiter cloud sign-script"] {
        let (create, rest) = block_of(&upgrades, commands).split_once('\n').unwrap();
        let upgrade = newcomer.types_all(create).await;
        let rest = rest.replace("UPGRADE_ID", id(&upgrade)).replace("CLUSTER_ID", cluster);
        newcomer.types_all(&rest).await;
        newcomer
            .types_all(&format!("tidewaiter cloud abort-upgrade {}", id(&upgrade)))
            .await;
    }
    let templates = block_of(&upgrades, "tidewaiter cloud script-templates").replace("v1.36.3     ", "v1.36.3 --yes ");
    newcomer.types_all(&templates).await;

    person.file(
        "manifests.yaml",
        "manifests: [[{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]]",
    );
    let sign = block_of(&coordinator, "tidewaiter cloud sign -f").replace("$ minisign -G\n", "");
    let sign = sign.replace("CLUSTER_ID", cluster).replace("PLUGIN_ID", cluster);
    let signature = newcomer.types_all(&sign).await;
    assert!(signature.contains("trusted comment: "), "{signature}");
}

/// The id of the object that was created.
fn id(printed: &str) -> &str {
    let lines = printed.lines().map(str::trim);
    let mut ids = lines.filter_map(|line| line.strip_prefix("id: "));
    ids.next().unwrap_or_else(|| panic!("no id: {printed}"))
}

/// Each command in a sentence that reads, on every page.
#[tokio::test]
async fn what_the_pages_name_reads() {
    let newcomer = Newcomer::begin().await;
    newcomer.attaches().await;
    newcomer
        .types_all("tidewaiter cloud context set --cluster production")
        .await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // The page for developers has a kind that they add.
    let pages = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("developing.md"));
    let mut number = 0;
    for page in pages {
        let page = fs::read_to_string(page).unwrap();
        let sentences = page.split("```").step_by(2);
        let spans = sentences.flat_map(|text| text.split('`').skip(1).step_by(2));
        for span in spans {
            let command = span.split_whitespace().collect::<Vec<_>>().join(" ");
            let command = command.replace("NAME", "production").replace("list|add|remove", "list");
            let words: Vec<&str> = command.split(' ').collect();
            let reads = matches!(
                words[..],
                ["tidewaiter", "cloud", "get", _, ..]
                    | ["tidewaiter", "cloud", "audit" | "whoami", ..]
                    | ["tidewaiter", "cloud", _, "list", ..]
            );
            if reads {
                newcomer.types_all(&command).await;
                number += 1;
            }
        }
    }
    assert!(number >= 10, "only {number}");
}

/// The pieces of a file of settings that the page shows, as settings.
#[tokio::test]
async fn the_settings_of_the_page_are_settings() {
    let person = Person::new().await;
    for (text, wanted) in [
        (
            "publicUrl: https://cloud.example.com",
            ["address: 0.0.0.0:3990", "tlsKey: /etc/tidewaiter/tls.key"],
        ),
        ("trustedProxies: [10.0.0.0/8]", ["10.0.0.0/8", "clusters: 500"]),
        (
            "clientId: tidewaiter",
            ["groupsClaim: groups", "operations: Operations"],
        ),
    ] {
        let file = person.file("cloud.yaml", block(text));
        let ran = person
            .run(&["cloud", "serve", "--print-config", "--settings", &file])
            .await;
        assert_eq!(ran.code, 0, "{}", ran.err);
        for wanted in wanted {
            assert!(ran.out.contains(wanted), "{wanted} in {}", ran.out);
        }
    }
}

#[test]
fn the_configuration_of_the_page_is_accepted() {
    let configuration: Value = serde_saphyr::from_str(block("existingSecret: grafana-admin")).unwrap();
    let mut plugin = json!({"type": "metrics", "implementation": "grafana", "version": "1.0.0"});
    plugin["configuration"] = configuration["configuration"].clone();
    let text = plugin.to_string();
    assert!(text.contains("existingSecret"), "{text}");
    parse::<PluginSpec>(text.as_bytes(), Unknown::Refuse).unwrap();
}
