//! `tidewaiter cloud offboard`: removes everything of a person at once, in all organizations of the caller.
//!
//! - The preview names what goes before anything is changed.
//! - First go the logins, if the home is one of the organizations, and the rights of an operator; last the membership
//!   in the home, with which the server deletes the account in one commit: password, tokens and SSH keys, teams and
//!   role bindings.
//! - Every step may be repeated: what is gone is done. After an interruption, the same command continues.
//! - From a member who cannot be removed, all that gives access is taken, as far as the server permits it, and the
//!   command fails with the reason. A refusal in one organization stops nothing in another one.
//! - Service accounts and API keys that the person created stay, because others use them: they are named.

mod report;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{ClientError, Method, Path, Request};
use tidewaiter_cloud::models::Kind;

use super::apply::confirm;
use super::cluster_reports::Made;
use super::output::print;
use super::session::{Session, if_found, request, text};
use crate::cli::OffboardArgs;

/// The remedy for an account whose home is none of the organizations.
const ELSEWHERE: &str = "its home is another organization, where password, logins, tokens and SSH keys stay: ask an \
                         admin there to offboard the person";

/// The person to remove.
struct Leaver {
    id: String,
    is_operator: bool,
    memberships: Vec<Membership>,
    /// The open invitations of the person's e-mail address, by which the person could return, each with the name of its
    /// organization.
    invitations: Vec<(Path, String)>,
}

/// A membership of the person, and what depends on it.
struct Membership {
    organization: Path,
    /// The name of the organization.
    name: String,
    user: Value,
    teams: Vec<Value>,
    bindings: Vec<Value>,
    /// The names of the clusters.
    clusters: Vec<String>,
    /// The service accounts and API keys that the person created.
    created: Vec<String>,
}

/// The outcome of a removal.
struct Outcome<'a> {
    /// What stays, and why.
    stays: Vec<String>,
    /// The changes in the organization of each membership.
    made: Vec<(&'a Membership, Vec<Made>)>,
}

/// Shows what goes, and removes it after confirmation.
pub(super) async fn offboard(args: &OffboardArgs) -> Result<()> {
    let (session, name) = (Session::open(&args.place)?, &args.member);
    let Some(leaver) = Leaver::find(&session, name).await? else {
        let text = "is a member of none of your organizations and no operator: nothing to remove, if the name is right";
        return print(&format!("{} {text} (tidewaiter cloud get users)\n", printable(name)));
    };
    let (account, _) = session.get(Path::new(["account"])).await?;
    if text(&account, "id") == leaver.id {
        bail!("you cannot offboard yourself: ask another admin of your organizations");
    }
    print(&leaver.shown())?;
    if args.dry_run {
        return Ok(());
    }
    if !args.confirmation.yes {
        confirm(&format!("Remove {}, as shown above?", printable(name)))?;
    }
    let outcome = leaver.remove(&session).await;
    let outcome = outcome.context("stopped; what is removed stays so: run the same command again to continue")?;
    print(&leaver.report(&session, &outcome).await)?;
    if !outcome.stays.is_empty() {
        let stays = outcome.stays.join("; ");
        bail!("the account stays, without what is removed above: {stays}");
    }
    Ok(())
}

impl Leaver {
    /// The person with this e-mail address or id; `None` if the caller sees no such person.
    async fn find(session: &Session, name: &str) -> Result<Option<Self>> {
        let organizations = session.list(Path::new(["organizations"])).await?;
        let path = |organization: &Value| Path::new(["organizations"]).below(text(organization, "id"));
        let mut ids = BTreeSet::new();
        for organization in &organizations {
            let users = path(organization).below("users");
            ids.extend(session.find(Kind::User, &users, name).await?);
        }
        let operators = permitted(session, Path::new(["operators"])).await?;
        let is_meant = |user: &&Value| text(user, "email").eq_ignore_ascii_case(name);
        ids.extend(
            operators
                .iter()
                .filter(is_meant)
                .map(|user| text(user, "id").to_owned()),
        );
        if ids.len() > 1 {
            bail!(
                "{} users of your organizations are named {name:?}: use an id",
                ids.len()
            );
        }
        let Some(id) = ids.pop_first() else { return Ok(None) };
        let mut memberships = Vec::new();
        for organization in &organizations {
            let name = text(organization, "name").to_owned();
            memberships.extend(Membership::find(session, path(organization), name, &id).await?);
        }
        let is_operator = operators.iter().any(|user| text(user, "id") == id);
        if !is_operator && memberships.is_empty() {
            return Ok(None);
        }
        let email = memberships
            .first()
            .map_or(name, |membership| text(&membership.user, "email"));
        let invitations = invitations(session, &organizations, email).await?;
        Ok(Some(Self {
            id,
            is_operator,
            memberships,
            invitations,
        }))
    }

    /// The objects that go, as lines.
    fn shown(&self) -> String {
        let mut shown = String::new();
        if self.is_operator {
            shown += "- operator of this server\n";
        }
        let mut keys = BTreeSet::new();
        for membership in &self.memberships {
            let (user, name) = (&membership.user, printable(&membership.name));
            let email = printable(text(user, "email"));
            let _ = writeln!(shown, "- User {email} in {name} ({})", printable(text(user, "role")));
            keys.extend(list(user, "ssh_keys").map(|key| (text(key, "name"), text(key, "fingerprint"))));
            for team in &membership.teams {
                let _ = writeln!(
                    shown,
                    "- membership of the team {} in {name}",
                    printable(text(team, "name"))
                );
            }
            for binding in &membership.bindings {
                let _ = writeln!(shown, "- RoleBinding {} in {name}", printable(text(binding, "id")));
            }
        }
        for (_, name) in &self.invitations {
            let _ = writeln!(shown, "- invitation to {}", printable(name));
        }
        for (name, fingerprint) in keys {
            let _ = writeln!(shown, "- SshKey {}", printable(&format!("{name} {fingerprint}")));
        }
        let _ = match self.home() {
            Some(home) => writeln!(
                shown,
                "SSH and security keys, password, logins and tokens go with the account, whose home is {}, if you may remove it there.",
                printable(&home.name)
            ),
            None => writeln!(shown, "The account stays: {ELSEWHERE}."),
        };
        shown + &self.not_removed()
    }

    /// The membership in the home of the person.
    fn home(&self) -> Option<&Membership> {
        self.memberships.iter().find(|membership| membership.is_home())
    }

    /// Removes the person.
    async fn remove(&self, session: &Session) -> Result<Outcome<'_>> {
        let home = self.home();
        // A person without a login changes nothing any more meanwhile.
        let logins = match home {
            Some(home) => home.end_logins(session, &self.id).await?,
            None => None,
        };
        if self.is_operator {
            let request = Request::new(Method::DELETE, Path::new(["operators"]).below(&self.id));
            removed(session, &request, "operator of this server").await?;
        }
        for (invitation, name) in &self.invitations {
            let request = Request::new(Method::DELETE, invitation.clone());
            removed(session, &request, &format!("invitation to {name}")).await?;
        }
        // The home refuses while there are others.
        let others = self.memberships.iter().filter(|membership| !membership.is_home());
        let (mut stays, mut made) = (Vec::new(), Vec::new());
        for membership in others.chain(home) {
            let request = Request::new(Method::DELETE, membership.of_user(&self.id));
            let error = match removed(session, &request, &format!("user of {}", membership.name)).await {
                Ok(change) => {
                    let bindings = membership.bindings.iter().map(|_| Kind::RoleBinding);
                    let kinds = std::iter::once(Kind::User).chain(bindings.take(1));
                    let changes = kinds.filter_map(|kind| membership.made(kind, &self.id, change));
                    made.push((membership, changes.collect()));
                    continue;
                }
                Err(error) => error,
            };
            let reason = refusal(error)?;
            made.push((membership, membership.revoke(session, &self.id).await?));
            stays.push(printable(&format!("{}: {reason}", membership.name)));
            let logins = logins.as_ref().filter(|_| membership.is_home());
            stays.extend(logins.map(|reason| format!("logins and tokens stay: {}", printable(reason))));
        }
        stays.extend(home.is_none().then(|| ELSEWHERE.to_owned()));
        Ok(Outcome { stays, made })
    }
}

impl Membership {
    async fn find(session: &Session, organization: Path, name: String, id: &str) -> Result<Option<Self>> {
        let below = |segment: &str| organization.clone().below(segment);
        let Some((user, _)) = if_found(session.get(below("users").below(id)).await)? else {
            return Ok(None);
        };
        let mut teams = session.list(below("teams")).await?;
        teams.retain(|team| list(team, "user_ids").any(|user| user.as_str() == Some(id)));
        let mut bindings = session.list(below("role-bindings")).await?;
        bindings.retain(|binding| text(binding, "user_id") == id);
        let clusters = session.list(below("clusters")).await?;
        let is_own = |object: &&Value| text(object, "owner_id") == id;
        let accounts = permitted(session, below("service-accounts")).await?;
        let accounts = accounts.iter().filter(is_own);
        let mut created: Vec<String> = accounts
            .map(|account| format!("ServiceAccount {}", text(account, "name")))
            .collect();
        for cluster in &clusters {
            let keys = below("clusters").below(text(cluster, "id")).below("api-keys");
            let keys = permitted(session, keys).await?;
            let of_cluster = |key: &Value| format!("API key {} of {}", text(key, "id"), text(cluster, "name"));
            created.extend(keys.iter().filter(is_own).map(of_cluster));
        }
        let clusters = clusters.iter().map(|cluster| text(cluster, "name").to_owned());
        Ok(Some(Self {
            clusters: clusters.collect(),
            created,
            organization,
            name,
            user,
            teams,
            bindings,
        }))
    }

    fn is_home(&self) -> bool {
        self.user.get("home") == Some(&Value::Bool(true))
    }

    /// Ends the logins of the person. Returns the reason if the server refuses it: only an owner of the home may.
    async fn end_logins(&self, session: &Session, id: &str) -> Result<Option<String>> {
        let tokens = Request::new(Method::DELETE, self.of_user(id).below("tokens"));
        match removed(session, &tokens, "logins and tokens").await {
            Ok(_) => Ok(None),
            Err(error) => refusal(error).map(Some),
        }
    }

    fn of_user(&self, id: &str) -> Path {
        self.organization.clone().below("users").below(id)
    }

    /// A change of an object of the organization, if the server numbers it.
    fn made(&self, kind: Kind, id: &str, change: Option<u64>) -> Option<Made> {
        let list = self.organization.clone().below(kind.facts().segment);
        Some(Made::new(kind, &list, id, change?))
    }

    /// Takes from a member who cannot be removed all that gives access. Returns the changes that clusters follow.
    async fn revoke(&self, session: &Session, id: &str) -> Result<Vec<Made>> {
        let role = self.of_user(id).below("role");
        let read_only = request(Method::PUT, role, json!({ "role": "read_only" }), None);
        let change = self.take(session, &read_only, "role, but read_only").await?;
        let mut made: Vec<Made> = self.made(Kind::User, id, change).into_iter().collect();
        let bindings = self.organization.clone().below("role-bindings");
        for binding in &self.bindings {
            let binding = text(binding, "id");
            let request = Request::new(Method::DELETE, bindings.clone().below(binding));
            let change = self.take(session, &request, &format!("RoleBinding {binding}")).await?;
            made.extend(self.made(Kind::RoleBinding, binding, change));
        }
        for team in &self.teams {
            let path = self.organization.clone().below("teams").below(text(team, "id"));
            let Some((team, etag)) = if_found(session.get(path.clone()).await)? else {
                continue;
            };
            let others: Vec<&Value> = list(&team, "user_ids")
                .filter(|user| user.as_str() != Some(id))
                .collect();
            let request = request(Method::PATCH, path, json!({ "user_ids": others }), etag);
            let what = format!("member of the team {}", text(&team, "name"));
            self.take(session, &request, &what).await?;
        }
        Ok(made)
    }

    /// Sends the request, and prints what it removed, or why the server refuses it. Returns the number of the change.
    async fn take(&self, session: &Session, request: &Request, what: &str) -> Result<Option<u64>> {
        let error = match removed(session, request, what).await {
            Ok(change) => return Ok(change),
            Err(error) => error,
        };
        let reason = refusal(error)?;
        let stays = printable(&format!("stays in {}: {what}: {reason}", self.name));
        print(&format!("{stays}\n"))?;
        Ok(None)
    }
}

/// The open invitations of the e-mail address, each with the name of its organization, as far as the caller sees them.
async fn invitations(session: &Session, organizations: &[Value], email: &str) -> Result<Vec<(Path, String)>> {
    let mut found = Vec::new();
    for organization in organizations {
        let list = Path::new(["organizations", text(organization, "id"), "invitations"]);
        for invitation in permitted(session, list.clone()).await? {
            if text(&invitation, "email").eq_ignore_ascii_case(email) {
                let path = list.clone().below(text(&invitation, "id"));
                found.push((path, text(organization, "name").to_owned()));
            }
        }
    }
    Ok(found)
}

/// The objects of a list; none if the caller may not read it.
pub(super) async fn permitted(session: &Session, path: Path) -> Result<Vec<Value>> {
    match session.list(path).await {
        Err(error) if refusal_of(&error).is_some() => Ok(Vec::new()),
        found => found,
    }
}

/// Sends the request, and says what it removed, or had removed before. Returns the number of the change.
async fn removed(session: &Session, request: &Request, what: &str) -> Result<Option<u64>> {
    let (done, change) = match if_found(session.send_numbered(request).await)? {
        Some((_, change)) => ("removed", change),
        None => ("was removed before", None),
    };
    print(&format!("{done}: {}\n", printable(what)))?;
    Ok(change)
}

/// The reason why the server refuses a change; any other error is returned.
fn refusal(error: anyhow::Error) -> Result<String> {
    refusal_of(&error).ok_or(error)
}

fn refusal_of(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref()? {
        ClientError::Refused {
            status: 403, message, ..
        } => Some(message.clone()),
        ClientError::Rejected { failure, .. } => Some(failure.message.clone()),
        _ => None,
    }
}

fn list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preview_has_nothing_that_a_terminal_would_obey() {
        let hidden = "a\u{202e}b";
        let key = json!({"name": hidden, "fingerprint": hidden});
        let membership = Membership {
            organization: Path::new(["organizations"]),
            name: hidden.to_owned(),
            user: json!({"email": hidden, "role": hidden, "ssh_keys": [key]}),
            teams: vec![json!({"name": hidden})],
            bindings: vec![json!({"id": hidden})],
            clusters: Vec::new(),
            created: vec![hidden.to_owned()],
        };
        let leaver = Leaver {
            id: hidden.to_owned(),
            is_operator: false,
            memberships: vec![membership],
            invitations: vec![(Path::new(["invitations"]), hidden.to_owned())],
        };
        let shown = leaver.shown();
        assert!(!shown.contains('\u{202e}') && shown.lines().count() == 7, "{shown:?}");
    }
}
