//! Every command that reads a cluster takes the context of a kubeconfig.

use std::fs;
use std::process::Command;

use tidewaiter_testkit::Scratch;

const KUBECONFIG: &str = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
contexts: [{name: production, context: {cluster: c, user: u}}]
current-context: production
";

#[test]
#[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
fn a_context_that_does_not_exist_is_refused_with_those_that_do() {
    let scratch = Scratch::new("contexts");
    let file = scratch.path().join("kubeconfig");
    fs::write(&file, KUBECONFIG).unwrap();
    for (line, code) in [
        ("explain access --user alice", 2),
        ("explain terminate", 1),
        ("explain node node-1", 2),
        ("explain forgeries", 2),
        ("plugin diff metrics", 1),
        ("plugin approve metrics", 1),
        ("plugin history metrics", 1),
        ("plugin rollback metrics", 1),
        ("release", 1),
        ("upgrade plan to-1-36", 1),
        ("upgrade watch to-1-36", 1),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command
            .args(line.split(' '))
            .args(["--context", "staging", "--kubeconfig"]);
        let output = command.arg(&file).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        let words = "it has no context \"staging\"; its contexts are: production";
        assert!(said.contains(words) && said.lines().count() == 1, "{line}: {said}");
    }
}
