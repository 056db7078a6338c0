//! Names that complete a word: in the program, and in bash, fish and zsh.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tidewaiter_testkit::{Terminal, assets};
use tokio::process::Command;
use tokio::time::timeout;

use crate::contexts::moved;
use crate::world::{ALICE, CLUSTER, Person, of_organization};

#[tokio::test]
async fn names_of_contexts_and_objects_complete_a_word() {
    let person = Person::logged_in().await;
    let registry = |id: &str, address: &str| json!({"id": id, "serveraddress": address, "provider": "quay"});
    let registries = vec![
        registry(CLUSTER, "quay.io"),
        registry(ALICE, "ghcr.io"),
        // Nothing that the shell would run gets into a command line.
        registry("1", "$(reboot)"),
        registry("2", "quay.io;reboot"),
        registry("3", "--yes"),
    ];
    person.cloud.put(&of_organization("registries"), registries);
    let kubeconfig = person.file(
        "kubeconfig",
        "contexts: [{name: staging, context: {cluster: c, user: u}}, {name: 'a b', context: {cluster: c, user: u}}]\n",
    );
    let kube = ["release", "--kubeconfig", &kubeconfig, "--context"];
    for (before, last, expected) in [
        (&["cloud", "get", "registries"][..], "", "ghcr.io\nquay.io\n"),
        (&["cloud", "delete", "registry", "--yes"], "qu", "quay.io\n"),
        (&["cloud", "set-role"], "", "alice@example.com\n"),
        (&["cloud", "get", "node-pools", "--cluster"], "prod", "production\n"),
        (&["cloud", "get", "node-pools"], "--cluster=prod", "production\n"),
        (&["cloud", "get", "users", "--context=other"], "", ""),
        (&["cloud", "context", "use"], "", "test\n"),
        (&kube, "", "staging\n"),
        (&["cloud", "get", "registries"], "--", ""),
        (&["cloud", "get", "registries", "--context", "other"], "", ""),
        (&["cloud"], "", ""),
    ] {
        let words = [&["complete", "tidewaiter"][..], before, &[last]].concat();
        assert_eq!(person.run(&words).await.well(), expected, "{words:?}");
    }
    let stranger = Person::new().await;
    let words = ["complete", "tidewaiter", "cloud", "get", "users", ""];
    assert_eq!(stranger.run(&words).await.well(), "");
}

#[tokio::test]
async fn a_server_that_does_not_answer_completes_nothing_and_blocks_no_shell() {
    let person = Person::logged_in().await;
    // The kernel accepts connections to it.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    moved(&person, &format!("http://{}", silent.local_addr().unwrap()));
    let words = ["complete", "tidewaiter", "cloud", "get", "users", ""];
    let ran = timeout(Duration::from_secs(10), person.run(&words)).await;
    assert_eq!(ran.expect("it gives up").well(), "");
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidewaiter");

/// A shell of the person.
fn shell(person: &Person, program: impl AsRef<OsStr>) -> Command {
    let command = person.command(&[]);
    let variables = command.as_std().get_envs();
    let mut shell = Command::new(program);
    // No files of the tests complete a word.
    shell
        .current_dir(person.home.path())
        .env_clear()
        .envs(variables.filter_map(|(name, value)| Some((name, value?))));
    shell
}

/// The output of a shell that runs the script.
async fn output(mut shell: Command, person: &Person, script: &str) -> (String, String) {
    let output = shell.arg(person.file("script", script)).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// The file of a kubeconfig with two contexts.
fn kubeconfig(person: &Person) -> String {
    let context = |name: &str| format!("{{name: '{name}', context: {{cluster: c, user: u}}}}");
    let contexts = ["me@staging", "arn:aws:eks:eu:1:cluster/a"].map(context);
    person.file("kubeconfig", &format!("contexts: [{}]\n", contexts.join(", ")))
}

/// Lines in fish and in zsh, and what they are once completed.
const LINES: [(&str, &str); 9] = [
    ("cl", "cloud"),
    ("plugin dif", "plugin diff"),
    ("cloud describe cluster prod", "cloud describe cluster production"),
    ("cloud describe cluster 'prod", "cloud describe cluster 'production'"),
    ("cloud set-role alice@exa", "cloud set-role alice@example.com"),
    (
        "cloud get node-pools --cluster prod",
        "cloud get node-pools --cluster production",
    ),
    (
        "cloud get node-pools --cluster=prod",
        "cloud get node-pools --cluster=production",
    ),
    ("release --context me@st", "release --context me@staging"),
    (
        "release --context arn:aws:e",
        "release --context arn:aws:eks:eu:1:cluster/a",
    ),
];

#[tokio::test]
async fn fish_completes_names_and_otherwise_commands() {
    let person = Person::logged_in().await;
    let folder = Path::new(PROGRAM).parent().unwrap().display();
    let script = person.run(&["completions", "fish"]).await.well();
    let mut typed = format!(
        "set -x PATH {folder} $PATH; set -x KUBECONFIG {}\n{script}",
        kubeconfig(&person)
    );
    let mut expected = String::new();
    for (line, completed) in LINES {
        let _ = writeln!(
            typed,
            "complete --do-complete=\"tidewaiter {line}\" | string replace --regex '\\t.*' ''"
        );
        // It prints the last word, without quotes.
        let word = completed.rsplit(' ').next().unwrap();
        let _ = writeln!(expected, "{}", word.trim_matches('\''));
    }
    let mut fish = shell(&person, assets::shells().join("fish"));
    fish.arg("--no-config");
    let (shown, errors) = output(fish, &person, &typed).await;
    assert_eq!(shown, expected, "{errors}");
}

#[tokio::test]
async fn zsh_completes_names_and_otherwise_commands() {
    let person = Person::logged_in().await;
    let folder = Path::new(PROGRAM).parent().unwrap().display();
    let script = person.run(&["completions", "zsh"]).await.well();
    let script = person.file("completion.zsh", &script);
    let start = format!(
        "autoload -Uz compinit; compinit -D -u\npath=({folder} $path)\nexport KUBECONFIG={}\n\
         source {script}\nPROMPT='> '; echo ready\n",
        kubeconfig(&person)
    );
    let start = person.file("start", &start);
    let mut zsh = shell(&person, assets::shells().join("zsh"));
    // Without the files of the machine, and with a person before it.
    let mut terminal = Terminal::start(zsh.args(["-f", "-i"]));
    terminal.type_in(&format!(". {start}\r")).await;
    terminal.shows(&["ready"]).await;
    for (line, completed) in LINES {
        terminal.type_in(&format!("tidewaiter {line}\t")).await;
        terminal.shows(&[&format!("> tidewaiter {completed}")]).await;
        // Ctrl-U clears the line.
        terminal.type_in("\u{15}").await;
        terminal.becomes("empty", |shown| !shown.contains("> tidewaiter")).await;
    }
    terminal.type_in("exit\r").await;
    terminal.ended().await;
}

/// Splits a line as bash does by default: the `COMP_WORDS`.
fn comp_words(line: &str) -> String {
    ['@', ':', '=']
        .iter()
        .fold(line.to_owned(), |line, c| line.replace(*c, &format!(" {c} ")))
}

#[tokio::test]
async fn bash_completes_names_and_otherwise_commands() {
    let person = Person::logged_in().await;
    let script = person.run(&["completions", "bash"]).await.well();
    let release = format!("release --kubeconfig {} --context", kubeconfig(&person));
    let mut typed = script;
    let mut expected = String::new();
    // The end of the last word is what readline replaces, and thus $2.
    for (line, end, completed) in [
        ("cloud describe cluster prod", "prod", "production"),
        ("cloud describe cluster ", "", "production"),
        ("cloud describe cluster 'prod", "prod", "production"),
        ("cl", "cl", "cloud"),
        ("cloud set-role al", "al", "alice@example.com"),
        ("cloud set-role alice@exa", "@exa", "@example.com"),
        ("cloud get node-pools --cluster=prod", "prod", "production"),
        (&format!("{release} me@st"), "@st", "@staging"),
        (&format!("{release}=me@st"), "@st", "@staging"),
        (&format!("{release} arn:aws:eks:eu:1:cl"), "cl", "cluster/a"),
        (&format!("{release}=arn:aws:e"), "e", "eks:eu:1:cluster/a"),
    ] {
        let line = format!("{PROGRAM} {line}");
        let _ = write!(
            typed,
            "\nCOMP_LINE=\"{line}\"; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=()\n\
             IFS=' ' read -ra COMP_WORDS <<<\"{}\"; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _tidewaiter_names {PROGRAM} '{end}' -; echo \"[${{COMPREPLY[*]}}]\"\n",
            comp_words(&line)
        );
        let _ = writeln!(expected, "[{completed}]");
    }
    let (shown, errors) = output(shell(&person, "bash"), &person, &typed).await;
    assert_eq!(shown, expected, "{errors}");
}
