//! A Postgres of one's own: databases apart, what a crash leaves, and that nothing outlives it.

use sqlx::{Connection, Executor, PgConnection, Row};
use tidewaiter_testkit::{Postgres, eventually};

use crate::SOON;

async fn connect(postgres: &Postgres, database: &str) -> PgConnection {
    PgConnection::connect(&postgres.url(database)).await.unwrap()
}

async fn count(connection: &mut PgConnection) -> i64 {
    connection
        .fetch_one("SELECT count(*) FROM things")
        .await
        .unwrap()
        .get(0)
}

#[tokio::test]
async fn databases_are_apart_and_only_the_password_opens_them() {
    let postgres = Postgres::shared().await;
    let (one, other) = (postgres.create_database().await, postgres.create_database().await);
    let mut connection = connect(postgres, &one).await;
    connection.execute("CREATE TABLE things (id bigint)").await.unwrap();
    let mut stranger = connect(postgres, &other).await;
    stranger.execute("SELECT * FROM things").await.unwrap_err();

    let url = postgres.url(&one);
    let (user, rest) = url.rsplit_once('@').unwrap();
    let refusal = PgConnection::connect(&format!("{user}x@{rest}")).await.unwrap_err();
    assert!(
        refusal.to_string().contains("password authentication failed"),
        "{refusal}"
    );
}

#[tokio::test]
async fn what_was_committed_outlives_a_crash_and_a_stop() {
    let postgres = Postgres::start().await;
    let database = postgres.create_database().await;
    let mut connection = connect(&postgres, &database).await;
    connection.execute("CREATE TABLE things (id bigint)").await.unwrap();
    connection.execute("INSERT INTO things VALUES (1)").await.unwrap();
    // A backend that is busy does not notice that the others are gone.
    let mut busy = connect(&postgres, &database).await;
    busy.execute("SET statement_timeout = '3min'").await.unwrap();
    let mut open = connection.begin().await.unwrap();
    open.execute("INSERT INTO things VALUES (2)").await.unwrap();
    let (answer, ()) = tokio::join!(busy.execute("DO $$ BEGIN LOOP END LOOP; END $$"), async {
        let mut watching = connect(&postgres, &database).await;
        eventually("the query to run", SOON, async || {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%LOOP%'";
            let running: i64 = watching.fetch_one(sql).await.unwrap().get(0);
            if running == 2 { Ok(()) } else { Err(running) }
        })
        .await;
        postgres.kill().await;
    });
    answer.unwrap_err();
    drop(open);

    postgres.start_again().await;
    let log = postgres.process().log();
    assert!(log.contains("was not properly shut down"), "{log}");
    assert_eq!(count(&mut connect(&postgres, &database).await).await, 1);
    postgres.stop().await;
    postgres.start_again().await;
    let log = postgres.process().log();
    assert!(!log.contains("was not properly shut down"), "{log}");
    assert_eq!(count(&mut connect(&postgres, &database).await).await, 1);
}

#[tokio::test]
async fn it_leaves_no_process_no_file_and_no_memory() {
    let postgres = Postgres::start().await;
    let pid = postgres.process().pid();
    let folder = postgres.process().log_path().parent().unwrap().to_owned();
    // The fifth field is the process that made the segment.
    let segments = || {
        let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let makers = table
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().nth(4).unwrap().to_owned());
        makers.filter(|maker| *maker == pid.to_string()).count()
    };
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children: Vec<_> = children.split_whitespace().map(str::to_owned).collect();
    assert_eq!(segments(), 1);
    assert!(!children.is_empty());
    drop(postgres);
    assert_eq!(segments(), 0);
    assert!(!folder.exists());
    // Children of its own end a moment after their signal.
    eventually("its children to be gone", SOON, async || {
        let stats = children
            .iter()
            .map(|child| std::fs::read_to_string(format!("/proc/{child}/stat")));
        let left = stats
            .flatten()
            .find(|stat| stat.contains("(postgres)") && !stat.contains(") Z "));
        left.map_or(Ok(()), Err)
    })
    .await;
}
