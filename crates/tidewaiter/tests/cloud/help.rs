//! `--help`: what a command offers is what it uses.

use crate::world::Person;

/// The flags for the context and the parent objects, from the outermost on.
const PARENTS: [&str; 5] = ["--context", "--organization", "--cluster", "--node-pool", "--user"];

async fn help(person: &Person, command: &str) -> String {
    let words: Vec<&str> = ["cloud"].into_iter().chain(command.split(' ')).collect();
    person.run(&[&words[..], &["--help"]].concat()).await.well()
}

#[tokio::test]
async fn a_command_offers_the_parents_that_it_uses_and_no_others() {
    let person = Person::new().await;
    for (commands, offered) in [
        (
            &["whoami", "catalogue add", "operators remove", "offboard"][..],
            &PARENTS[..1],
        ),
        (
            &[
                "set-role",
                "set-password",
                "end-logins",
                "tokens list",
                "lock",
                "operators add",
                "audit",
            ],
            &PARENTS[..2],
        ),
        (
            &[
                "apply",
                "api-keys delete",
                "release",
                "approve",
                "set-script",
                "script-templates set",
                "pause-upgrade",
                "resume-upgrade",
                "abort-upgrade",
            ],
            &PARENTS[..3],
        ),
        (&["assign"], &PARENTS[..4]),
        (&["get", "create"], &PARENTS),
    ] {
        for command in commands {
            let help = help(&person, command).await;
            let is_offered = |flag: &&str| help.contains(&format!("  {flag} <"));
            let found: Vec<&str> = PARENTS.into_iter().filter(|flag| is_offered(flag)).collect();
            assert_eq!(found, offered, "{command}: {help}");
        }
    }
}

/// A person who begins with one of the commands finds the others.
#[tokio::test]
async fn the_commands_for_scripts_say_what_comes_next() {
    let person = Person::new().await;
    for (command, words) in [
        (
            "set-script",
            &["get upgrades", "sign-script", "scriptKeys", "resume-upgrade"][..],
        ),
        ("script-templates", &["set-script", "closest", "scriptKeys"]),
        (
            "sign-script",
            &[
                "get clusters",
                "get upgrades",
                "kubectl get nodes",
                "minisign -G",
                "TIDEWAITER_SIGNING_PASSWORD",
                "set-script",
                "host install",
            ],
        ),
    ] {
        let help = help(&person, command).await;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in words {
            assert!(help.contains(words), "{command}: no {words} in {help}");
        }
    }
}

/// The server's commands are apart from those of its clients, and an example shows how to begin.
#[tokio::test]
async fn the_commands_are_listed_in_groups_and_each_has_an_example() {
    let person = Person::new().await;
    let out = person.run(&["cloud", "--help"]).await.well();
    let server = out.split("Server (on its machine):\n").nth(1).unwrap();
    let (server, rest) = server.split_once("\n\n").unwrap();
    let names: Vec<&str> = server
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(names, ["init", "serve", "backup", "restore", "recover", "keys"]);
    assert!(
        rest.starts_with("Options:\n")
            && out.contains("Catalogue of plugins:\n")
            && out.contains("\n  TIDEWAITER_CLOUD_TOKEN  "),
        "{out}"
    );
    let out = help(&person, "get").await;
    assert!(out.contains("Examples:\n  tidewaiter cloud get users\n"), "{out}");
}
