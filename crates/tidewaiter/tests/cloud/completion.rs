//! Names that complete a word: in the program, and in bash.

use std::fmt::Write as _;

use serde_json::json;

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
async fn bash_completes_names_and_otherwise_commands() {
    let person = Person::logged_in().await;
    let script = person.run(&["completions", "bash"]).await.well();
    let program = env!("CARGO_BIN_EXE_tidewaiter");
    let mut typed = script;
    for (words, place) in [("cloud describe cluster prod", 4), ("cl", 1)] {
        let last = words.split(' ').next_back().unwrap();
        let _ = write!(
            typed,
            "\nCOMP_WORDS=({program} {words}); COMP_CWORD={place}; COMPREPLY=()\n\
             _tidewaiter_names {program} {last} -; echo \"[${{COMPREPLY[*]}}]\"\n"
        );
    }
    let file = person.file("completed.sh", &typed);
    let environment = person.command(&[]);
    let environment = environment.as_std().get_envs();
    let mut bash = tokio::process::Command::new("bash");
    bash.env_clear()
        .envs(environment.filter_map(|(name, value)| Some((name, value?))));
    let output = bash.arg(&file).output().await.unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        shown,
        "[production]\n[cloud]\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
