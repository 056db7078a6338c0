//! The effects of a plan on users, teams, roles and bindings, as they are and as they will be.

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use tidewaiter_api::values::EndTime;
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::{Clock as _, SystemClock};

use super::Planner;
use crate::cloud::impact::{AccessObjects, Impact};
use crate::cloud::plan::{Change, Step};
use crate::cloud::session::text;

impl Planner<'_> {
    /// Returns the access that is gained and lost by the plan; None if it does not concern them.
    pub(super) async fn impact(&mut self) -> Result<Option<Impact>> {
        if !self.plan.steps.iter().any(concerns_access) {
            return Ok(None);
        }
        let now = SystemClock.now();
        let (mut before, mut after) = (AccessObjects::default(), AccessObjects::default());
        for kind in [Kind::User, Kind::Team, Kind::Role, Kind::RoleBinding] {
            let objects = self.all(kind).await?;
            let steps = self.plan.steps.iter().filter(|step| step.kind == kind);
            *of(&mut after, kind) = unended(steps.fold(objects.clone(), carried_out), now);
            *of(&mut before, kind) = unended(objects, now);
        }
        let clusters = self.all(Kind::Cluster).await?;
        Ok(Some(Impact::new(&clusters, &before, &after)))
    }

    /// All objects of a kind of the organization.
    pub(super) async fn all(&mut self, kind: Kind) -> Result<Vec<Value>> {
        let list = self.session.organization()?.below(kind.facts().segment);
        Ok(self.objects(&list).await?.to_vec())
    }
}

/// A new user has no access until a team or a binding grants it.
fn concerns_access(step: &Step) -> bool {
    match step.kind {
        Kind::Team | Kind::Role | Kind::RoleBinding => true,
        Kind::User => matches!(step.change, Change::Delete { .. }),
        _ => false,
    }
}

fn of(objects: &mut AccessObjects, kind: Kind) -> &mut Vec<Value> {
    match kind {
        Kind::User => &mut objects.users,
        Kind::Team => &mut objects.teams,
        Kind::Role => &mut objects.roles,
        _ => &mut objects.bindings,
    }
}

/// The objects after the step.
fn carried_out(mut objects: Vec<Value>, step: &Step) -> Vec<Value> {
    match &step.change {
        Change::Create { stand_in, body } => {
            let mut made = body.clone();
            made["id"] = stand_in.as_str().into();
            objects.push(made);
        }
        Change::Update { id, patch, .. } => {
            let changed = objects.iter_mut().filter(|object| text(object, "id") == id);
            changed.for_each(|object| json_patch::merge(object, patch));
        }
        Change::Delete { id, .. } => objects.retain(|object| text(object, "id") != id),
    }
    objects
}

/// The objects without the users, bindings and memberships that have ended at `now`, which give nothing.
fn unended(mut objects: Vec<Value>, now: Timestamp) -> Vec<Value> {
    let has_ended = |object: &Value, field: &str| {
        let end = EndTime::of_field(text(object, field));
        end.is_some_and(|end| end.has_passed(now))
    };
    objects.retain(|object| !has_ended(object, "expires_at") && !has_ended(object, "role_expires_at"));
    for team in &mut objects {
        let ends = team.get("user_ends").cloned().unwrap_or_default();
        if let Some(users) = team.get_mut("user_ids").and_then(Value::as_array_mut) {
            users.retain(|user| !has_ended(&ends, user.as_str().unwrap_or_default()));
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_ended_gives_nothing() {
        let now = "2027-01-31T18:00:00Z".parse().unwrap();
        let ends = [None, Some("2027-01-31T18:00:00Z"), Some("2027-01-31T18:00:01Z")];
        let objects = ends.map(|end| json!({"id": "b", "expires_at": end}));
        assert_eq!(unended(objects.to_vec(), now), [objects[0].clone(), objects[2].clone()]);
        let member = json!({"id": "u", "role_expires_at": ends[1]});
        let team = json!({"id": "t", "user_ids": ["u", "v", "w"], "user_ends": {"u": ends[1], "v": ends[2]}});
        let left = unended(vec![member, team], now);
        assert_eq!((left.len(), &left[0]["user_ids"]), (1, &json!(["v", "w"])));
    }
}
