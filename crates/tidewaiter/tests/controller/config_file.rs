//! The operator's input is checked before anything else happens: a wrong configuration file or setting ends the process
//! with code 2 and one line, and nothing was asked of anybody. And what the binary prints for a person or a shell.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::PathBuf;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use tidewaiter_testkit::builders::{ConfigBuilder, controller_config};
use tidewaiter_testkit::{Process, Program, Scratch, eventually, free_port};

use crate::world::SOON;

/// A machine on which nobody else runs the binary: each peer that it might connect to listens, and answers nothing.
struct Machine {
    scratch: Scratch,
    /// The API server, EC2 and the state store in one.
    everybody: TcpListener,
}

/// An address that no machine has, for the MetricsServer: who gets as far as listening there fails with other words.
const NOWHERE: &str = "192.0.2.1:3987";

/// The output and the exit code of a run that has ended.
struct Ran {
    code: Option<i32>,
    said: String,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            scratch: Scratch::new("config-file"),
            everybody: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        machine.file("kubeconfig", &machine.kubeconfig());
        machine.file("good.yaml", &good().to_yaml());
        machine
    }

    fn kubeconfig(&self) -> String {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: a, clusters: [{{name: a, cluster: {{server: \"{}\"}}}}], \
             users: [{{name: a, user: {{}}}}], contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}\n",
            self.url()
        )
    }

    fn url(&self) -> String {
        format!("http://{}", self.everybody.local_addr().unwrap())
    }

    /// Writes a file into the folder in which the binary runs.
    #[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// `tidewaiter controller`, with everything in its environment that a good start needs.
    fn controller(&self, arguments: &str) -> Program {
        tidewaiter("controller")
            .args(["--kubeconfig", "kubeconfig"])
            .args(arguments.split_whitespace())
            .env("TIDEWAITER_ADMIN_ADDRESS", "127.0.0.1:0")
            .env("TIDEWAITER_HEALTH_ADDRESS", "127.0.0.1:0")
            .env("TIDEWAITER_METRICS_ADDRESS", NOWHERE)
            .env("AWS_REGION", "us-test-1")
            .env("AWS_ENDPOINT_URL", self.url())
            .env("AWS_EC2_METADATA_DISABLED", "true")
    }

    async fn run(&self, program: Program) -> Ran {
        let process = Process::start(&self.scratch, program);
        let status = process.exited(SOON).await;
        Ran {
            code: status.code(),
            said: process.log(),
        }
    }

    /// Runs it, and expects code 2, one line with all of `words` (parted by `…`), and that nobody was asked for
    /// anything.
    async fn refuses(&self, program: Program, words: &str) {
        let Ran { code, said } = self.run(program).await;
        let case = format!("{words}:\n{said}");
        assert_eq!(code, Some(2), "{case}");
        assert_eq!(said.lines().count(), 1, "{case}");
        assert!(said.starts_with("tidewaiter: "), "{case}");
        assert!(said.len() < 400, "{case}");
        for word in words.split(" … ") {
            assert!(said.contains(word), "{word}, in {case}");
        }
        self.everybody.set_nonblocking(true).unwrap();
        let asked = self.everybody.accept().map_err(|error| error.kind());
        assert_eq!(asked.unwrap_err(), ErrorKind::WouldBlock, "somebody was asked: {case}");
    }
}

fn tidewaiter(command: &str) -> Program {
    Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .name(format!("tidewaiter-{}", free_port()))
        .args(command.split_whitespace())
}

/// Without the keys that have no effect, each of which gives a warning.
fn good() -> ConfigBuilder {
    from_kops().without(&["secretStore"]).without(&["server"])
}

fn from_kops() -> ConfigBuilder {
    controller_config("c.example.com", "s3://state/c.example.com")
}

#[tokio::test]
async fn a_wrong_configuration_file_ends_it_with_one_line() {
    let machine = Machine::new();
    let region = ["server", "provider", "aws", "Region"];
    for (content, words) in [
        (
            "clusterName: [a".to_owned(),
            "is not valid YAML: line 1: unclosed bracket '['",
        ),
        (": :".to_owned(), "is not valid YAML: line 1: a key is empty or null"),
        (
            "cloud: aws\ncloud: aws".to_owned(),
            "is not valid YAML: line 2: the key \"cloud\" occurs twice in one mapping: remove one",
        ),
        ("\u{0}\u{1}junk".to_owned(), "is not valid YAML"),
        ("<!DOCTYPE html><html></html>".to_owned(), "is HTML or XML, not YAML"),
        (String::new(), "is empty"),
        (
            "just text".to_owned(),
            "must be a mapping of keys to values, but is a text of 9 characters",
        ),
        (
            good().without(&["clusterName"]).to_yaml(),
            "clusterName: is missing: must be the name",
        ),
        (
            good().without(&["cloud"]).to_yaml(),
            "cloud: is missing: must be one of aws, gce",
        ),
        (
            good().without(&["configBase"]).to_yaml(),
            "configBase: is missing: must be s3://BUCKET/PATH",
        ),
        (
            good().set(&["clusterName"], 7).to_yaml(),
            "clusterName: is the number 7, must be",
        ),
        (
            good().set(&["clusterName"], "../etc").to_yaml(),
            "clusterName: \"../etc\": must be",
        ),
        (
            good().set(&["cloud"], "awss").to_yaml(),
            "cloud: is \"awss\", must be one of aws, gce",
        ),
        (
            good().set(&["cloud"], "openstack").to_yaml(),
            "cloud is openstack: this version of Tidewaiter supports aws, gce and hetzner only",
        ),
        (
            good()
                .set(&["cloud"], "azure")
                .set(&["configBase"], "azureblob://state/c.example.com")
                .to_yaml(),
            "cloud: is azure: this version of Tidewaiter supports aws, gce and hetzner only",
        ),
        (
            good().set(&["configBase"], "do://x/y").to_yaml(),
            "configBase: \"do://x/y\" is a state store of digitalocean … supports aws, gce and hetzner only",
        ),
        (
            good().set(&["configBase"], "file://x/y").to_yaml(),
            "configBase: \"file://x/y\" … three slashes",
        ),
        (
            good().set(&["configBase"], true).to_yaml(),
            "configBase: is the boolean true, must be s3://",
        ),
        (
            from_kops().set(&region, "a/b").to_yaml(),
            "server.provider.aws.Region: is \"a/b\", must be the name of a region",
        ),
    ] {
        machine.file("bad.yaml", &content);
        let words = format!("tidewaiter: bad.yaml: … {words}");
        machine.refuses(machine.controller("--conf bad.yaml"), &words).await;
    }
    for (path, words) in [
        (
            "nowhere.yaml",
            "--conf must name the configuration file … nowhere.yaml: cannot be read … No such file",
        ),
        (
            "/",
            "--conf must name … /: cannot be read … must be a file, but is a folder",
        ),
    ] {
        machine
            .refuses(machine.controller("").args(["--conf", path]), words)
            .await;
    }
}

#[tokio::test]
async fn a_wrong_variable_ends_it_with_one_line() {
    let machine = Machine::new();
    let good = || machine.controller("--conf good.yaml");
    for (variable, value, words) in [
        ("ADMIN_ADDRESS", "3984", "adminAddress is 3984: must be ADDRESS:PORT"),
        ("HEALTH_ADDRESS", "3986", "healthAddress is 3986: must be ADDRESS:PORT"),
        (
            "METRICS_ADDRESS",
            ":3987",
            "metricsAddress is \":3987\": must be ADDRESS:PORT",
        ),
        (
            "MAX_UNREADY_NODES",
            "-1",
            "maxUnreadyNodes is -1: must be a whole number from 0 to 4294967295",
        ),
        (
            "NODE_NAMES",
            "maybe",
            "nodeNames is \"maybe\": must be one of enforce, instance-id, private-dns, warn",
        ),
        (
            "FOREIGN_LABELS",
            "maybe",
            "foreignLabels is \"maybe\": must be one of report, remove",
        ),
        (
            "ON_FORGERY",
            "maybe",
            "onForgery is \"maybe\": must be one of report, quarantine",
        ),
        (
            "ON_GROUP_CHANGE",
            "maybe",
            "onGroupChange is \"maybe\": must be one of hold, follow",
        ),
        (
            "IDENTITY_EXPIRY_SECONDS",
            "0",
            "identityExpirySeconds is 0: must be a whole number of seconds from 1 to 4294967295",
        ),
        (
            "DEFINITIONS_POLL_SECONDS",
            "soon",
            "definitionsPollSeconds is \"soon\": must be a whole number",
        ),
        (
            "EC2_ENDPOINT",
            "ec2",
            "ec2Endpoint is \"ec2\": must be http://HOST or https://HOST",
        ),
        (
            "AUTOSCALING_ENDPOINT",
            "ec2",
            "autoscalingEndpoint is \"ec2\": must be http://HOST or https://HOST",
        ),
        (
            "STATE_ENDPOINT",
            "ftp://a",
            "stateEndpoint is \"ftp://a\": must be http://HOST or https://HOST",
        ),
        (
            "EC2_ENDPOINT",
            "https://me:hunter2@ec2",
            "ec2Endpoint is \"(not shown: holds '@')\": must not contain a user or a password",
        ),
        (
            "HETZNER_ENDPOINT",
            "https://hunter2@api.example.com/v1",
            "hetznerEndpoint is \"(not shown: holds '@')\": must not contain a user or a password",
        ),
        (
            "LEASE__NAME",
            "a/b",
            "lease.name is \"a/b\": must be 1 to 253 characters",
        ),
        (
            "LOG",
            "loud",
            "log is \"loud\": must be a mapping with filter and format",
        ),
        ("LOG__FORMAT", "xml", "log.format is \"xml\": must be one of text, json"),
    ] {
        let variable = format!("TIDEWAITER_{variable}");
        let words = format!("tidewaiter: the variable {variable}: … {words}");
        machine.refuses(good().env(variable, value), &words).await;
    }
}

#[tokio::test]
async fn a_wrong_setting_ends_it_with_one_line() {
    let machine = Machine::new();
    let good = || machine.controller("--conf good.yaml");
    for (flag, words) in [
        (
            "--admin-address=here",
            "the flags: adminAddress is \"here\": must be ADDRESS:PORT",
        ),
        (
            "--log-filter=a=loud",
            "the flags: log.filter is \"a=loud\" … target=level … levels: error",
        ),
        (
            "--settings=nowhere",
            "the settings file nowhere cannot be read … No such file",
        ),
    ] {
        machine.refuses(good().arg(flag), words).await;
    }
    for (settings, words) in [
        (
            "adminAdress: 127.0.0.1:1",
            "there is no setting adminAdress … the nearest is adminAddress",
        ),
        (
            "nodeName: warn",
            "the settings file s.yaml: there is no setting nodeName … the nearest is nodeNames",
        ),
        (
            "lease: {nam: x}",
            "there is no setting lease.nam … the nearest is lease.name",
        ),
        (
            "nodeNames: [warn",
            "the settings file s.yaml is not a YAML mapping … line 1",
        ),
        (
            "nodeNames: [warn]",
            "s.yaml: nodeNames is [\"warn\"]: must be one of enforce, instance-id, private-dns, warn",
        ),
        (
            "nodeNames: warn\nnodeNames: warn",
            "the settings file s.yaml is not a YAML mapping: line 2: the key \"nodeNames\" occurs twice in one mapping: remove one",
        ),
        (
            "identityExpirySeconds: 4294967296",
            "identityExpirySeconds is 4294967296: must be a whole number of seconds from 1 to 4294967295",
        ),
        (
            "log: {filter: a=loud}",
            "the settings file s.yaml: log.filter is \"a=loud\": must be",
        ),
        (
            "hetznerEndpoint: https://api.example.com/v1",
            "s.yaml: hetznerEndpoint is \"https://api.example.com/v1\" … without a path such as /v1",
        ),
        (
            "log: debug",
            "s.yaml: log is \"debug\": must be a mapping with filter and format",
        ),
        (
            "definitionsPollSeconds: 0",
            "s.yaml: definitionsPollSeconds is 0 … must be a whole number",
        ),
    ] {
        machine.file("s.yaml", settings);
        machine.refuses(good().arg("--settings=s.yaml"), words).await;
    }
}

#[tokio::test]
async fn what_cannot_be_used_on_this_machine_ends_it_with_one_line() {
    let machine = Machine::new();
    let good = || {
        let good = machine.controller("--conf good.yaml");
        good.env("TIDEWAITER_NODE_NAMES", "private-dns")
    };
    for (variable, setting) in [
        ("TIDEWAITER_ADMIN_ADDRESS", "adminAddress"),
        ("TIDEWAITER_HEALTH_ADDRESS", "healthAddress"),
        ("TIDEWAITER_METRICS_ADDRESS", "metricsAddress"),
    ] {
        let words = format!("{setting} is {NOWHERE}: cannot listen there: Cannot assign");
        machine.refuses(good().env(variable, NOWHERE), &words).await;
    }
    for (variable, value, words) in [
        (
            "AWS_REGION",
            "US east",
            "AWS_REGION: the region \"US east\" is not valid … us-east-1",
        ),
        ("AWS_REGION", "", "the region is not set … set AWS_REGION"),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "no url",
            "see OTEL_EXPORTER_OTLP_ENDPOINT … 'no url'",
        ),
    ] {
        machine.refuses(good().env(variable, value), words).await;
    }
    let own_s3 = good()
        .env("S3_ENDPOINT", "s3.example.com")
        .env("S3_ACCESS_KEY_ID", "id");
    let words = "S3_ENDPOINT is set, and S3_SECRET_ACCESS_KEY is not: set it, too";
    machine.refuses(own_s3, words).await;
    machine.file("hetzner.yaml", &self::good().set(&["cloud"], "hetzner").to_yaml());
    let hetzner = || machine.controller("--conf hetzner.yaml");
    let words = "there is no API token of Hetzner Cloud: set HCLOUD_TOKEN";
    machine.refuses(hetzner(), words).await;
    let two_words = hetzner().env("HCLOUD_TOKEN", "two words");
    let words =
        "HCLOUD_TOKEN: the API token is not valid: must be 1 to 512 printable ASCII characters without spaces\n";
    machine.refuses(two_words, words).await;
    let changed = |from: &str, to: &str| machine.kubeconfig().replace(from, to);
    let without_certificate = changed("user: {}", "user: {client-certificate: /nowhere}").replace("http:", "https:");
    machine.file("nonsense.crt", "nonsense");
    let bad_certificate = changed(
        "user: {}",
        "user: {client-certificate: nonsense.crt, client-key: nonsense.crt}",
    );
    let bad_certificate = bad_certificate.replace("http:", "https:");
    for (kubeconfig, words) in [
        (
            "nonsense",
            "kubeconfig is kubeconfig: it cannot be used … a text of 8 characters",
        ),
        (
            &changed("current-context: a", "current-context: b"),
            "it cannot be used … current context: b",
        ),
        (
            &without_certificate,
            "cannot use the credentials or certificates for the API server (client-certificate /nowhere): … /nowhere",
        ),
        (
            &bad_certificate,
            "cannot use the credentials or certificates for the API server (client-certificate … nonsense.crt, client-key",
        ),
    ] {
        machine.file("kubeconfig", kubeconfig);
        machine.refuses(good(), words).await;
    }
    std::fs::remove_file(machine.scratch.path().join("kubeconfig")).unwrap();
    machine
        .refuses(good(), "kubeconfig is kubeconfig: it cannot be used … No such file")
        .await;
}

#[tokio::test]
async fn a_later_source_of_settings_wins_and_what_is_printed_can_be_loaded() {
    let machine = Machine::new();
    machine.file("good.yaml", &from_kops().to_json());
    machine.file(
        "s.yaml",
        "nodeNames: warn\nidentityExpirySeconds: 60\ndefinitionsPollSeconds: 5\nlease: {name: other}\n",
    );
    let program = machine
        .controller("--conf good.yaml --print-config --settings s.yaml --node-names enforce --on-forgery quarantine --on-group-change follow")
        .env("TIDEWAITER_NODE_NAMES", "warn")
        .env("TIDEWAITER_FOREIGN_LABELS", "remove")
        .env("TIDEWAITER_DEFINITIONS_POLL_SECONDS", "7")
        .env("TIDEWAITER_LOG__FORMAT", "text")
        .env("TIDEWAITER_LEASE__NAMESPACE", "")
        .env("HCLOUD_TOKEN", "secret")
        .env("TIDEWAITER_PROT", "tcp://10.0.0.1:80");
    let Ran { code, said } = machine.run(program).await;
    assert_eq!(code, Some(0), "{said}");
    let (told, printed): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("tidewaiter: "));
    // Settings without an effect are distinguished from those in force: two variables, and two keys of the file that
    // kOps wrote.
    for about in [
        "TIDEWAITER_PROT ",
        "HCLOUD_TOKEN ",
        "good.yaml: secretStore ",
        "good.yaml: server ",
    ] {
        let lines = told
            .iter()
            .filter(|line| line.contains(about) && line.contains("has no effect"));
        assert_eq!(lines.count(), 1, "{about}: {told:?}");
    }
    assert!(told.iter().any(|line| line.contains("nodeNames names no scheme")));
    assert_eq!(told.len(), 5, "{told:?}");
    let printed = printed.join("\n");
    let settings: Value = serde_saphyr::from_str(&printed).unwrap();
    for (pointer, expected) in [
        ("/nodeNames", Value::from("enforce")),
        ("/foreignLabels", "remove".into()),
        ("/onForgery", "quarantine".into()),
        ("/onGroupChange", "follow".into()),
        ("/identityExpirySeconds", 60.into()),
        ("/definitionsPollSeconds", 7.into()),
        ("/lease/name", "other".into()),
        ("/lease/namespace", "kube-system".into()),
        ("/log/format", "text".into()),
        ("/adminAddress", "127.0.0.1:0".into()),
        ("/metricsAddress", NOWHERE.into()),
    ] {
        assert_eq!(settings.pointer(pointer), Some(&expected), "{pointer}: {printed}");
    }

    machine.file("s.yaml", &printed);
    let again = tidewaiter("controller --conf good.yaml --print-config --settings s.yaml");
    let again = machine.run(again).await.said;
    assert!(again.ends_with(&format!("{printed}\n")), "{again}");
}

/// A container that kOps describes starts: its name, its arguments, its file in JSON, its environment.
#[tokio::test]
async fn called_as_kops_controller_it_is_the_controller_role() {
    let machine = Machine::new();
    let kops = machine.scratch.path().join("kops-controller");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidewaiter"), &kops).unwrap();
    machine.file("config.json", &from_kops().to_json());
    for (level, filter) in [("2", "info"), ("4", "debug"), ("8", "trace")] {
        let program = Program::new(&kops)
            .name(format!("kops-controller-{}", free_port()))
            .args([
                format!("--v={level}"),
                "--conf=config.json".to_owned(),
                "--print-config".to_owned(),
            ])
            .env("AWS_REGION", "us-test-1");
        let Ran { code, said } = machine.run(program).await;
        assert_eq!(code, Some(0), "{said}");
        let printed = said
            .lines()
            .filter(|line| !line.starts_with("tidewaiter: "))
            .collect::<Vec<_>>();
        let settings: Value = serde_saphyr::from_str(&printed.join("\n")).unwrap();
        assert_eq!(settings["log"]["filter"], filter, "{said}");
    }
    let program = Program::new(&kops).name("kops-controller-help").arg("--help");
    let Ran { code, said } = machine.run(program).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Usage: kops-controller [OPTIONS]\n"), "{said}");
}

#[tokio::test]
async fn called_as_a_plugin_of_kubectl_it_says_so() {
    let machine = Machine::new();
    let plugin = machine.scratch.path().join("kubectl-tidewaiter");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidewaiter"), &plugin).unwrap();
    let program = Program::new(&plugin).name("kubectl-tidewaiter").arg("--help");
    let Ran { code, said } = machine.run(program).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Usage: kubectl tidewaiter <COMMAND>"), "{said}");
}

#[tokio::test]
async fn it_ends_at_once_when_told_although_it_never_reached_its_api_server() {
    let machine = Machine::new();
    let admin = format!("127.0.0.1:{}", free_port());
    let program = machine
        .controller("--conf good.yaml")
        .env("TIDEWAITER_METRICS_ADDRESS", "127.0.0.1:0")
        .env("TIDEWAITER_ADMIN_ADDRESS", &admin);
    // Nothing listens where it looks for the API server.
    let nobody = machine
        .kubeconfig()
        .replace(&machine.url(), &format!("http://127.0.0.1:{}", free_port()));
    machine.file("kubeconfig", &nobody);
    let process = Process::start(&machine.scratch, program);
    eventually("the admin server to say that it is not ready", SOON, async || {
        let answer = reqwest::get(format!("http://{admin}/readyz")).await.map_err(shown)?;
        let text = answer.text().await.map_err(shown)?;
        if text.contains("[-]cache/node") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    let status = process.stop(SOON).await;
    let log = process.log();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(
        log.contains("SIGTERM") && !log.contains("did not finish in time"),
        "{log}"
    );
}

#[tokio::test]
async fn it_prints_definitions_completions_help_and_version() {
    let machine = Machine::new();
    let print = async |command: &str| {
        let Ran { code, said } = machine.run(tidewaiter(command)).await;
        assert_eq!(code, Some(0), "{command}: {said}");
        said
    };
    let crds = async |command: &str| -> Vec<CustomResourceDefinition> {
        serde_saphyr::from_multiple(&print(command).await).unwrap()
    };
    let (controller, coordinator) = (crds("crds controller").await, crds("crds coordinator").await);
    let agent = crds("crds agent").await;
    assert_eq!((controller.len(), coordinator.len(), agent.len()), (2, 13, 1));
    assert!(crds("crds").await == [controller.clone(), coordinator.clone(), agent.clone()].concat());
    let folders = [
        ("deploy/crds", controller),
        ("deploy/crds/coordinator", coordinator),
        ("deploy/crds/agent", agent),
    ];
    for (folder, printed) in folders
        .into_iter()
        .flat_map(|(folder, crds)| crds.into_iter().map(move |crd| (folder, crd)))
    {
        let plural = &printed.spec.names.plural;
        let deployed = format!("{}/../../{folder}/{plural}.yaml", env!("CARGO_MANIFEST_DIR"));
        let deployed = std::fs::read_to_string(deployed).unwrap();
        assert!(
            serde_saphyr::from_str::<CustomResourceDefinition>(&deployed).unwrap() == printed,
            "{plural}"
        );
    }

    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = print(&format!("completions {shell}")).await;
        for word in ["controller", "crds", "completions", "print-config", "node-names"] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }

    assert_eq!(
        print("--version").await,
        concat!("tidewaiter ", env!("CARGO_PKG_VERSION"), "\n")
    );
    for (command, words) in [
        (
            "--help",
            &[
                "controller",
                "crds",
                "completions",
                "Exit codes:",
                "nothing was started",
            ][..],
        ),
        (
            "controller --help",
            &[
                "--conf <FILE>",
                "--settings <FILE>",
                "--print-config",
                "--node-names <MODE>",
            ],
        ),
    ] {
        let help = print(command).await;
        for word in words {
            assert!(help.contains(word), "{command} does not say {word}: {help}");
        }
        let longest = help.lines().map(str::len).max();
        assert!(longest <= Some(110), "{command} is {longest:?} wide");
    }

    for (command, word) in [
        ("", "Usage: tidewaiter <COMMAND>"),
        ("frob", "unrecognized subcommand 'frob'"),
        (
            "controller --node-names maybe",
            "[possible values: enforce, instance-id, private-dns, warn]",
        ),
        ("controller --frob", "unexpected argument '--frob'"),
    ] {
        let Ran { code, said } = machine.run(tidewaiter(command)).await;
        assert_eq!(code, Some(2), "{command}: {said}");
        assert!(said.contains(word), "{command}: {said}");
    }
}

fn shown(error: impl Display) -> String {
    error.to_string()
}
