//! The progress of a long command: on a terminal, and nowhere else.

use futures::future::join_all;
use serde_json::json;
use tidewaiter_testkit::Terminal;
use tokio::process::Command;

use crate::world::{Land, On, Place};

/// So many labels are more than 1,000 rows, and fewer than 2,000.
const LABELS: usize = 400;

fn command(place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    command.arg("cloud").args(words).arg("--settings").arg(place.settings());
    command
}

/// That it says once how far it is, and that the last line is all that stays.
async fn told(place: &Place, words: &[&str], word: &str) {
    let mut terminal = Terminal::start(&command(place, words));
    assert!(terminal.ended().await.success(), "{}", terminal.shown());
    let progress = format!("{word} 1000 rows\r");
    assert_eq!(terminal.raw().matches(&progress).count(), 1, "{:?}", terminal.raw());
    let left = terminal.shown();
    assert!(
        left.lines().count() == 1 && left.starts_with(&format!("{word} 1")),
        "{left}"
    );
    assert!(!left.contains("1000"), "{left}");
}

#[tokio::test]
async fn a_long_copy_says_on_a_terminal_alone_how_far_it_is() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let make = async |number| {
        let label = json!({"key": format!("cluster.containership.io/key-{number}"), "value": ""});
        server.post(&land.token, &land.labels, &label).await.is(201);
    };
    // As many as a caller may have at once, on a busy machine, too.
    for numbers in (0..LABELS).collect::<Vec<_>>().chunks(16) {
        join_all(numbers.iter().map(|number| make(*number))).await;
    }
    let copy = place.scratch.path().join("copy.jsonl").display().to_string();
    told(&place, &["backup", &copy], "copied").await;
    told(&place.beside(On::Sqlite).await, &["restore", &copy], "restored").await;

    let (code, said) = place.run(&["backup", &format!("{copy}.2")]).await;
    assert!(code == 0 && !said.contains('\r'), "{said}");
    let (code, said) = place.beside(On::Sqlite).await.run(&["restore", &copy]).await;
    assert!(code == 0 && !said.contains('\r'), "{said}");
}
