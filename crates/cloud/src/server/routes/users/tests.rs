//! The cost of changes of users who are in many teams, on both databases.

use std::ops::ControlFlow;

use serde_json::Map;
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::Postgres;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::*;
use crate::models::Kind;
use crate::server::routes::references::bound_teams;
use crate::server::store::{Author, ChangeFilter, Opened, Store, membership_id};

const ORGANIZATION: &str = "11111111-1111-4111-8111-111111111111";
const USERS: usize = 400;
const TEAMS: usize = 79;

fn user(number: usize) -> String {
    format!("44444444-4444-4444-8444-{number:012}")
}

fn team(name: &str, users: &[String]) -> Document {
    let spec = json!({ "name": name, "description": "", "user_ids": users });
    Kind::Team.read_value(&spec).unwrap()
}

fn row(kind: Kind, id: &str, spec: Map<String, Value>) -> Row {
    Row {
        organization_id: ORGANIZATION.to_owned(),
        parent_id: ORGANIZATION.to_owned(),
        spec,
        ..Row::new(kind, id)
    }
}

async fn insert_team(transaction: &mut Transaction, id: &str, name: &str, users: &[String]) -> Result<Row, Error> {
    let document = team(name, users);
    bound_teams(transaction, ORGANIZATION, &document, None).await?;
    let references = resolve_references(transaction, Kind::Team, ORGANIZATION, ORGANIZATION, &document).await?;
    transaction
        .insert(row(Kind::Team, id, document.spec), &references)
        .await
}

async fn what_changes_is_what_costs(url: Url) {
    let Opened { store, writer, .. } = Store::open(&url, SystemClock::shared()).await.unwrap();
    let shutdown = CancellationToken::new();
    let users: Vec<_> = (0..USERS).map(user).collect();
    let measured = async {
        measure(&store, users).await;
        shutdown.cancel();
    };
    let _ = tokio::join!(measured, writer.run(shutdown.clone()));
}

async fn measure(store: &Store, users: Vec<String>) {
    for some in users.chunks(50) {
        let some = some.to_vec();
        let seeded = store.write(Author::default(), async move |transaction| {
            for id in &some {
                transaction
                    .insert(row(Kind::User, id, Map::new()), &References::default())
                    .await?;
                join(transaction, ORGANIZATION, id, (OrgRole::Owner, None), "").await?;
            }
            Ok(())
        });
        seeded.await.unwrap();
    }
    for number in 0..TEAMS {
        let all = users.clone();
        let seeded = store.write(Author::default(), async move |transaction| {
            let (id, name) = (format!("team {number}"), format!("Team {number}"));
            insert_team(transaction, &id, &name, &all).await
        });
        seeded.await.unwrap();
    }
    // Many users with many teams.
    let all = users.clone();
    let written = store.write(Author::default(), async move |transaction| {
        insert_team(transaction, "last", "Last", &all).await?;
        Ok(transaction.cost)
    });
    let (statements, rows) = written.await.unwrap();
    assert!(statements < 30 && rows < 3 * USERS, "{statements} {rows}");
    // One user more, of many.
    let (all, few) = (users.clone(), users[1..].to_vec());
    let written = store.write(Author::default(), async move |transaction| {
        let before = transaction.existing(Kind::Team, "last").await?;
        let document = team("Last", &few);
        let less = resolve_references(transaction, Kind::Team, ORGANIZATION, ORGANIZATION, &document).await?;
        let before = transaction.update(&before, document.spec, String::new(), &less).await?;
        let begun = transaction.cost;
        let document = team("Last", &all);
        bound_teams(transaction, ORGANIZATION, &document, Some(&before)).await?;
        let references = resolve_references(transaction, Kind::Team, ORGANIZATION, ORGANIZATION, &document).await?;
        transaction
            .update(&before, document.spec, String::new(), &references)
            .await?;
        Ok((transaction.cost.0 - begun.0, transaction.cost.1 - begun.1))
    });
    let (statements, rows) = written.await.unwrap();
    assert!(statements < 20 && rows < 3 * USERS, "{statements} {rows}");
    // A user leaves all teams.
    let going = users[0].clone();
    let written = store.write(Author::default(), async move |transaction| {
        let row = transaction.existing(Kind::User, &going).await?;
        delete_user(transaction, &row).await?;
        Ok(transaction.cost)
    });
    let (statements, rows) = written.await.unwrap();
    assert!(statements < 42 && rows < 2 * TEAMS, "{statements} {rows}");
    check_left(store, &users).await;
}

async fn check_left(store: &Store, users: &[String]) {
    let teams = store.using(Kind::Team, Kind::User, &users[1]).await.unwrap();
    assert_eq!(teams.len(), TEAMS + 1);
    for team in &teams {
        assert_eq!(team.spec["user_ids"], json!(users[1..]), "{}", team.id);
    }
    assert_eq!(store.using(Kind::Team, Kind::User, &users[0]).await.unwrap(), []);
    let membership = membership_id(ORGANIZATION, &users[0]);
    assert_eq!(store.get(Kind::Membership, &membership).await.unwrap(), None);
    let mut audit = Vec::new();
    let all = ChangeFilter::default();
    let each = store.each_change(ORGANIZATION, &all, (i64::MAX, 1_000), |change| {
        audit.push(json!(change));
        Ok(ControlFlow::Continue(()))
    });
    each.await.unwrap();
    let left = |change: &&Value| {
        change["kind"] == "teams"
            && change["before"]["user_ids"] == json!([users[0]])
            && change["after"]["user_ids"] == json!([])
            && change["action"] == "update"
    };
    // One of them is the patch above.
    assert_eq!(audit.iter().filter(left).count(), TEAMS + 2);
}

mod sqlite {
    #[tokio::test]
    async fn what_changes_is_what_costs() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/cloud.db", folder.path().display());
        super::what_changes_is_what_costs(url.parse().unwrap()).await;
    }
}

mod postgres {
    #[tokio::test]
    async fn what_changes_is_what_costs() {
        let server = super::Postgres::shared().await;
        let url = server.url(&server.create_database().await);
        super::what_changes_is_what_costs(url.parse().unwrap()).await;
    }
}
