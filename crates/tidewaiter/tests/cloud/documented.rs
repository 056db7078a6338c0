//! What docs/cloud.md prints, typed: the commands in their order, with the sample files of the page.

use std::path::Path;

use serde_json::{Value, json};
use tidewaiter_cloud::models::{PluginSpec, Unknown, parse};
use tidewaiter_testkit::{Process, Program, Scratch, eventually, free_port};

use crate::real::LONG;
use crate::world::{PASSWORD, Person, Ran};

const PAGE: &str = include_str!("../../../../docs/cloud.md");

/// The block of the page that contains `text`.
fn block(text: &str) -> &'static str {
    let blocks = PAGE.split("\n```").skip(1).step_by(2);
    let mut found = blocks.filter(|block| block.contains(text));
    let block = found
        .next()
        .unwrap_or_else(|| panic!("docs/cloud.md has no block with {text:?}"));
    // The first line has the language.
    block.split_once('\n').unwrap().1
}

struct Newcomer {
    person: Person,
    url: String,
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
            ("BOB_PASSWORD", "hunter2-hunter2"),
            ("EDITOR", "sed -i 's/list/watch/'"),
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
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let ran = self.types(line).await;
            assert_eq!(ran.code, 0, "{line}\n{}{}", ran.out, ran.err);
            printed += &ran.out;
        }
        printed
    }
}

#[tokio::test]
async fn a_newcomer_types_the_page() {
    let address = format!("127.0.0.1:{}", free_port());
    let newcomer = Newcomer {
        person: Person::new().await,
        url: format!("http://{address}"),
    };
    let person = &newcomer.person;
    let first = block("tidewaiter cloud init --data ./cloud --organization Acme");
    let (init, serve) = first.split_once('\n').unwrap();
    newcomer.types_all(init).await;
    let data = person.path("cloud").display().to_string();
    let serve = serve.trim().replace("./cloud", &data);
    let serve = serve.strip_prefix("tidewaiter ").unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter")).args(serve.split(' '));
    let program = program.env("TIDEWAITER_ADDRESS", &address);
    let program = program.env("TIDEWAITER_HEALTH_ADDRESS", "127.0.0.1:0");
    let server = Process::start(&Scratch::new("cloud-documented"), program);
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
    let attached = newcomer.types_all(block("tidewaiter cloud create cluster")).await;
    assert!(attached.contains("api_key: twk_"), "{attached}");

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
