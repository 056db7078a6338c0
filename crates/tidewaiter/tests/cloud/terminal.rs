//! Before a terminal: passwords that are typed, and questions.

use serde_json::json;
use tidewaiter_testkit::Terminal;

use crate::world::{ALICE, CLUSTER, PASSWORD, Person, of_cluster};

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

/// A shell on a terminal in which the person runs this.
fn shell(person: &Person, arguments: &[&str]) -> Terminal {
    Terminal::of_a_shell(&person.command(arguments))
}

/// Answers each prompt by these keys. What the terminal shows in the end.
async fn answered(mut terminal: Terminal, answers: &[(&str, &str)], code: i32) -> String {
    for (prompt, keys) in answers {
        terminal.shows(&[prompt]).await;
        terminal.type_in(keys).await;
    }
    assert!(terminal.ended().await.success(), "{}", terminal.shown());
    let shown = terminal.shown();
    assert!(shown.contains(&format!("ended with {code}")), "{shown}");
    assert!(shown.ends_with(Terminal::AS_IT_WAS), "{shown}");
    assert!(!terminal.raw().contains("hunter2"), "{:?}", terminal.raw());
    shown
}

fn login(person: &Person) -> Terminal {
    let url = &person.cloud.url;
    shell(person, &["cloud", "login", "--server", url, "alice@example.com"])
}

#[tokio::test]
async fn a_typed_password_logs_in_and_is_not_shown() {
    let person = Person::new().await;
    // With what one does about typing errors.
    let keys = "hunter3\u{15}hunter2-passwö\u{7f}ord\r";
    let shown = answered(login(&person), &[("Password of alice@example.com at", keys)], 0).await;
    assert!(shown.contains("logged in to"), "{shown}");
    assert_eq!(person.cloud.logins(), 1);
}

#[tokio::test]
async fn without_a_password_nobody_is_logged_in_and_the_terminal_is_as_it_was() {
    for (keys, code, words) in [
        ("\r", 1, "tidewaiter: the password is empty"),
        (CTRL_D, 1, "tidewaiter: the password: the input ended"),
        (CTRL_C, 130, "ended with 130"),
        ("hunter2\u{3}", 130, "ended with 130"),
    ] {
        let person = Person::new().await;
        let shown = answered(login(&person), &[("Password of", keys)], code).await;
        assert!(shown.lines().any(|line| line == words), "{keys:?}: {shown}");
        assert_eq!(person.cloud.logins(), 0, "{keys:?}");
        assert!(!person.path("config").exists(), "{keys:?}");
    }
}

#[tokio::test]
async fn the_first_owner_types_his_password_twice() {
    let person = Person::new().await;
    let data = person.path("data");
    let (first, again) = ("A password for olivia@example.com:", "Once more:");
    let init = async |answers: &[(&str, &str)], code| {
        let arguments = ["init", "--organization", "Acme", "--email", "olivia@example.com"];
        let data = ["--data", data.to_str().unwrap()];
        let terminal = shell(&person, &[&["cloud"], &arguments[..], &data].concat());
        answered(terminal, answers, code).await
    };
    let password = format!("{PASSWORD}\r");
    for (answers, code, words) in [
        (
            &[(first, &*password), (again, "hunter2-passwort\r")][..],
            2,
            "the two passwords differ",
        ),
        (&[(first, &*password), (again, "\r")], 2, "the two passwords differ"),
        (&[(first, &*password), (again, CTRL_C)], 130, again),
        (&[(first, &*password), (again, CTRL_D)], 2, "the input ended"),
        (&[(first, "\r")], 2, "the password is empty"),
        (&[(first, "hunter2\rhunter2\r")], 2, "must have 12 to 256 characters"),
        (&[(first, CTRL_C)], 130, first),
    ] {
        let shown = init(answers, code).await;
        assert!(shown.contains(words), "{shown}");
        assert!(!data.exists(), "{shown}");
    }
    // Both at once: what is typed ahead is not shown either.
    let shown = init(&[(first, &password.repeat(2))], 0).await;
    assert!(shown.contains("Organization  Acme"), "{shown}");
    assert!(data.join("cloud.db").is_file());
}

/// Puts what the commands delete.
fn put(person: &Person) {
    let label = json!({"id": CLUSTER, "key": "old", "value": "a"});
    person.cloud.put(&of_cluster("labels"), vec![label]);
    let key = json!({"id": ALICE, "created_at": "1767225600000", "owner_id": ALICE});
    person.cloud.put(&of_cluster("api-keys"), vec![key]);
    person
        .cloud
        .put(&of_cluster("script-templates"), vec![json!({"id": "any"})]);
}

/// Somebody with a label that no document names, a key and a template, and the commands that delete them.
async fn about_to_delete() -> (Person, [Vec<String>; 4]) {
    let person = Person::logged_in().await;
    put(&person);
    let file = person.file("a.yaml", "kind: Scope\nprune: [ClusterLabel]\nclusters: [production]\n");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    let commands = [
        words("cloud delete label old"),
        words(&format!("cloud apply --prune -f {file}")),
        words(&format!("cloud api-keys delete {ALICE}")),
        words("cloud script-templates delete"),
    ];
    (person, commands)
}

#[tokio::test]
async fn only_a_yes_deletes() {
    let (person, commands) = about_to_delete().await;
    for command in &commands {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let run = async |keys, code| answered(shell(&person, &command), &[("? [y/N]", keys)], code).await;
        for keys in ["n\r", "\r", "x y\r", CTRL_D] {
            let shown = run(keys, 1).await;
            assert!(
                shown.lines().any(|line| line == "tidewaiter: nothing was changed"),
                "{keys:?}: {shown}"
            );
        }
        run(CTRL_C, 130).await;
        assert!(person.cloud.writes().is_empty(), "{command:?}");
        run("y\r", 0).await;
        let writes = person.cloud.writes();
        assert!(writes.len() == 1 && writes[0].line.starts_with("DELETE "), "{writes:?}");
        put(&person);
    }
}

#[tokio::test]
async fn the_question_names_the_key_and_says_if_it_is_the_last() {
    let (person, [.., key, _]) = about_to_delete().await;
    let key: Vec<&str> = key.iter().map(String::as_str).collect();
    let asked = async || {
        let shown = answered(shell(&person, &key), &[("? [y/N]", "n\r")], 1).await;
        // The terminal breaks long lines.
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown = asked().await;
    let created = format!("Delete ApiKey {ALICE}, created at 2026-01-01T00:00:00Z");
    let last = "the only key of the cluster";
    assert!(shown.contains(&created) && shown.contains(last), "{shown}");
    let keys = [ALICE, CLUSTER].map(|id| json!({ "id": id }));
    person.cloud.put(&of_cluster("api-keys"), keys.to_vec());
    let shown = asked().await;
    assert!(shown.contains(&format!("Delete ApiKey {ALICE}? [y/N]")), "{shown}");
    person
        .cloud
        .put(&of_cluster("api-keys"), vec![json!({"id": "a\u{202e}b"})]);
    let key = shell(&person, &["cloud", "api-keys", "delete", "a\u{202e}b"]);
    let shown = answered(key, &[("? [y/N]", "n\r")], 1).await;
    assert!(shown.contains("Delete ApiKey a\\u{202e}b"), "{shown}");
}
