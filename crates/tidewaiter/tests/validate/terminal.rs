//! On a terminal: a view of what is missing while one waits, nothing of it afterwards, and colours.

use tidewaiter_testkit::Terminal;

use crate::world::{CLUSTER, World};

#[tokio::test]
async fn what_is_missing_is_shown_with_its_age_and_ctrl_c_leaves_nothing_of_it() {
    let world = World::start().await;
    for number in 0..15 {
        world.pending_pod(&format!("dns-{number:02}")).await;
    }
    let mut terminal = Terminal::start(&world.command(&["--wait", "10m", "--interval", "1s"]));
    terminal
        .shows(&[
            "of 10m",
            &format!("{CLUSTER} is not ready"),
            "s  system-cluster-critical pod \"dns-00\" is pending",
            "pod \"dns-11\" is pending",
            "and 3 more",
        ])
        .await;
    // A busy machine may skip a second.
    let has_age = |view: &str, age| view.contains(&format!("{age}s  system-cluster-critical pod \"dns-00\""));
    terminal
        .becomes("older", |view| (2..60).any(|age| has_age(view, age)))
        .await;
    let view = terminal.shown();
    assert!(
        !view.contains("dns-12") && view.matches("is not ready").count() == 1,
        "drawn in its place:\n{view}"
    );
    terminal.type_in("\u{3}").await;
    assert_eq!(terminal.ended().await.code(), Some(130));
    assert!(!terminal.hides_cursor(), "the cursor is there");
    let left = terminal.shown();
    assert!(!left.contains("of 10m") && !left.contains("more"), "{left}");
    let start = left.find("Validating cluster").expect("the verdict is there");
    assert!(
        left[..start].trim().is_empty() && left.contains("Validation Failed"),
        "{left}"
    );
}

#[tokio::test]
async fn with_the_verdict_in_a_file_ctrl_c_leaves_an_empty_terminal() {
    let world = World::start().await;
    world.pending_pod("dns").await;
    let command = world.command(&["--wait", "10m"]);
    let mut terminal = Terminal::redirected(&command, ">/dev/null");
    terminal.shows(&["of 10m", "pod \"dns\" is pending"]).await;
    terminal.type_in("\u{3}").await;
    assert_eq!(terminal.ended().await.code(), Some(130));
    assert!(terminal.raw().contains("^C"), "the terminal says what was typed");
    assert_eq!(terminal.shown(), "");
}

#[tokio::test]
async fn a_terminal_has_colours_unless_one_wants_none() {
    let world = World::start().await;
    world.pending_pod("dns").await;
    let mut colored = Terminal::start(&world.command(&[]));
    assert_eq!(colored.ended().await.code(), Some(2));
    assert!(
        colored.raw().contains("\u{1b}[31mValidation Failed\u{1b}[0m"),
        "{:?}",
        colored.raw()
    );
    for (key, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut command = world.command(&[]);
        command.env(key, value);
        let mut plain = Terminal::start(&command);
        assert_eq!(plain.ended().await.code(), Some(2));
        assert!(plain.shown().contains("Validation Failed"));
        assert!(!plain.raw().contains("\u{1b}[3"), "{key}: {:?}", plain.raw());
    }
}
