//! Access that ends within a week: it is marked in tables, and its person is told at the login and by `whoami`.

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidewaiter_cloud::client::Path;
use tidewaiter_kit::{Clock as _, SystemClock};

use super::output::note;
use super::session::{Session, text};
use crate::ages;
use crate::cli::CloudPlace;

const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The distance of an end that is soon, for example `in 2d`.
fn soon(end: &str, now: Timestamp) -> Option<String> {
    let end = ages::read(end)?;
    let is_soon = end > now && end.duration_since(now) <= SOON;
    is_soon.then(|| ages::relative(end, now))
}

/// Marks the ends in the rows of a table that are soon.
pub(super) fn mark(rows: &mut [Value], now: Timestamp) {
    for row in rows {
        for field in ["expires_at", "role_expires_at"] {
            if let Some(left) = soon(text(row, field), now) {
                row[field] = format!("{left} (soon)").into();
            }
        }
    }
}

/// Notes what of the access of the person who is logged in to the context ends soon.
pub(super) async fn tell_in(context: String) -> Result<()> {
    let session = Session::of_context(CloudPlace {
        context: Some(context),
        ..CloudPlace::default()
    })?;
    if let Ok((account, _)) = session.get(Path::new(["account"])).await {
        tell(&session, &account).await;
    }
    Ok(())
}

/// Notes what of the person's own access ends soon. What the server does not show is left out.
pub(super) async fn tell(session: &Session, account: &Value) {
    let mut ends = vec![("your access", text(account, "expires_at").to_owned())];
    if let Ok(organization) = session.organization()
        && let own = organization.below("users").below(text(account, "id"))
        && let Ok((member, _)) = session.get(own).await
    {
        let end = text(&member, "role_expires_at").to_owned();
        ends.push(("your membership of the organization", end));
    }
    let now = SystemClock.now();
    for (what, end) in ends {
        if let Some(left) = soon(&end, now) {
            note(&format!("{what} ends {left} ({end}): ask an admin for a later end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_within_a_week_is_marked() {
        let now = "2027-01-31T18:00:00Z".parse().unwrap();
        let row = |end: &str| json!({"expires_at": end, "role_expires_at": null});
        let mut rows = [
            row("2027-02-02T18:00:00Z"),
            row("2027-02-07T18:00:01Z"),
            row("2027-01-31T18:00:00Z"),
            json!({"role_expires_at": "2027-02-03T18:00:00Z"}),
        ];
        mark(&mut rows, now);
        assert_eq!(rows[0], row("in 2d (soon)"));
        assert_eq!(rows[1..3], [row("2027-02-07T18:00:01Z"), row("2027-01-31T18:00:00Z")]);
        assert_eq!(rows[3], json!({"role_expires_at": "in 3d (soon)"}));
    }
}
