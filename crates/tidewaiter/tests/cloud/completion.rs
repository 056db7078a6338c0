//! Names that complete a word: in the program, and in bash.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;
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

/// Splits a line as bash does by default: the `COMP_WORDS`.
fn comp_words(line: &str) -> String {
    ['@', ':', '=']
        .iter()
        .fold(line.to_owned(), |line, c| line.replace(*c, &format!(" {c} ")))
}

#[tokio::test]
async fn bash_completes_names_and_otherwise_commands() {
    let person = Person::logged_in().await;
    let context = |name: &str| format!("{{name: '{name}', context: {{cluster: c, user: u}}}}");
    let kubeconfig = person.file(
        "kubeconfig",
        &format!(
            "contexts: [{}, {}]\n",
            context("me@staging"),
            context("arn:aws:eks:eu:1:cluster/a")
        ),
    );
    let script = person.run(&["completions", "bash"]).await.well();
    let program = env!("CARGO_BIN_EXE_tidewaiter");
    let release = format!("release --kubeconfig {kubeconfig} --context");
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
        let line = format!("{program} {line}");
        let _ = write!(
            typed,
            "\nCOMP_LINE=\"{line}\"; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=()\n\
             IFS=' ' read -ra COMP_WORDS <<<\"{}\"; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _tidewaiter_names {program} '{end}' -; echo \"[${{COMPREPLY[*]}}]\"\n",
            comp_words(&line)
        );
        let _ = writeln!(expected, "[{completed}]");
    }
    let file = person.file("completed.sh", &typed);
    let environment = person.command(&[]);
    let environment = environment.as_std().get_envs();
    let mut bash = tokio::process::Command::new("bash");
    bash.env_clear()
        .envs(environment.filter_map(|(name, value)| Some((name, value?))));
    let output = bash.arg(&file).output().await.unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
