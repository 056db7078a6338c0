//! The commands that do something with an object other than to create, change or delete it. Tokens and API keys are
//! printed when they are created, and never again.

use std::path::Path as File;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Map, Value, json};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{Method, Path, Request};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::models::values::UserId;

use super::apply::confirm;
use super::output::{is_table, list, print, printable_yaml, time};
use super::session::{Session, request, text};
use super::upgrades::{self, Change};
use crate::cli::{
    ActionCommand, ActionUser, ApiKeysCommand, CloudPlace, OrganizationPlace, PolicyArgs, ScopeFlags, SetPasswordArgs,
    TokenOwner, TokensCommand,
};
use crate::password::{self, Variable};
use crate::text_file;

const DAY: u32 = 24 * 60 * 60;

pub(super) async fn main(command: &ActionCommand) -> Result<()> {
    match command {
        ActionCommand::SetRole { user, role, expires_at } => {
            let (session, path) = member(user).await?;
            let mut body = json!({ "role": role.word() });
            if let Some(end) = expires_at {
                body["expires_at"] = end.clone();
            }
            let set = request(Method::PUT, path.below("role"), body, None);
            let set = session.send(&set).await?;
            let until = match text(&set, "expires_at") {
                "" => String::new(),
                end => format!(" until {}", printable(end)),
            };
            print(&format!("{} now has the role {}{until}\n", user.member, role.word()))
        }
        ActionCommand::SetPassword(args) => set_password(args).await,
        ActionCommand::EndLogins(user) => {
            let (session, path) = member(user).await?;
            session
                .send(&Request::new(Method::DELETE, path.below("tokens")))
                .await?;
            print(&format!(
                "all logins of {} have ended, and no sign-in provider is linked\n",
                user.member
            ))
        }
        ActionCommand::Invite(args) => super::invitations::invite(args).await,
        ActionCommand::Invitations(command) => super::invitations::main(command).await,
        ActionCommand::Accept(args) => super::invitations::accept(args).await,
        ActionCommand::Offboard(args) => super::offboard::offboard(args).await,
        ActionCommand::Tokens(command) => tokens(command).await,
        ActionCommand::ApiKeys(command) => api_keys(command).await,
        ActionCommand::Release { list: true, place, .. } => super::decisions::list(place).await,
        ActionCommand::Release {
            withdraw: Some(id),
            place,
            ..
        } => super::decisions::withdraw(place, *id).await,
        ActionCommand::Release { kind, yes, place, .. } => {
            super::decisions::release(place, kind.as_deref().unwrap_or_default(), *yes).await
        }
        ActionCommand::Approve { plugin, yes, place } => super::decisions::approve(place, plugin, *yes).await,
        ActionCommand::SetScript(args) => super::scripts::set(args).await,
        ActionCommand::ScriptTemplates(command) => super::script_templates::main(command).await,
        ActionCommand::PauseUpgrade(args) => upgrades::change(args, Change::Pause).await,
        ActionCommand::ResumeUpgrade(args) => upgrades::change(args, Change::Resume).await,
        ActionCommand::AbortUpgrade(args) => upgrades::change(args, Change::Abort).await,
        ActionCommand::Assign(args) => assign(args, Method::PUT).await,
        ActionCommand::Unassign(args) => assign(args, Method::DELETE).await,
        ActionCommand::Catalogue(command) => super::catalogue::main(command).await,
        ActionCommand::Lock(of) => lock(of, true).await,
        ActionCommand::Unlock(of) => lock(of, false).await,
    }
}

/// The path of a member of the organization.
async fn member(user: &ActionUser) -> Result<(Session, Path)> {
    let session = Session::open(&user.place)?;
    let users = session.organization()?.below("users");
    let id = session.id(Kind::User, &users, &user.member).await?;
    Ok((session, users.below(id)))
}

async fn set_password(args: &SetPasswordArgs) -> Result<()> {
    let new = |prompt: &str| password::read(Variable::NewPassword, args.password_file.as_deref(), prompt, true);
    let (session, path, mut body, mut done) = if let Some(member) = &args.member {
        let user = ActionUser {
            member: member.clone(),
            place: args.place.clone(),
        };
        let (session, path) = self::member(&user).await?;
        let body = json!({ "password": new(&format!("New password of {member}"))? });
        let done = format!("the password of {member} is set\n");
        (session, path.below("password"), body, done)
    } else {
        let session = Session::open(&args.place)?;
        let old = password::current(args.old_password_file.as_deref(), "Your current password")?;
        let body = json!({ "old_password": old, "new_password": new("Your new password")? });
        let path = Path::new(["account", "password"]);
        (session, path, body, "your password is set\n".to_owned())
    };
    if args.end_tokens {
        body["end_tokens"] = Value::Bool(true);
        done += "no sign-in provider is linked any more\n";
    }
    let request = request(Method::PUT, path, body, None);
    // The server counts attempts.
    session.send(&Request { once: true, ..request }).await?;
    print(&done)
}

async fn tokens(command: &TokensCommand) -> Result<()> {
    let owner = match command {
        TokensCommand::List(args) => &args.place,
        TokensCommand::Create { owner, .. } | TokensCommand::Revoke { owner, .. } => owner,
    };
    let session = Session::open(&owner.place)?;
    let path = tokens_of(&session, owner).await?;
    match command {
        TokensCommand::List(args) => {
            let mut found = session.list(path).await?;
            if is_table(&args.output) {
                found.iter_mut().for_each(put_scope_in_words);
            }
            let columns = ["name", "created_at", "expires_at", "scope", "id"];
            list(&session, &args.output, "Token", &columns, &found).await
        }
        TokensCommand::Create { name, days, scope, .. } => {
            let mut body = json!({ "name": name, "expires_in_seconds": days * DAY });
            let scope = scope_of(&session, scope).await?;
            if !scope.is_empty() {
                body["scope"] = scope.into();
            }
            let made = session.send(&request(Method::POST, path.clone(), body, None)).await?;
            print_once(&session, path, &made, &printable_yaml(&made)?).await
        }
        TokensCommand::Revoke {
            token, confirmation, ..
        } => {
            let id = if token.parse::<UserId>().is_ok() {
                token.clone()
            } else {
                let found = session.list(path.clone()).await?;
                let mut named = found.iter().filter(|found| text(found, "name") == token);
                match (named.next(), named.next()) {
                    (Some(found), None) => text(found, "id").to_owned(),
                    (None, _) => return Err(anyhow!("there is no token {token:?}")),
                    _ => return Err(anyhow!("several tokens are named {token:?}: use an id")),
                }
            };
            if !confirmation.yes {
                confirm(&format!(
                    "Revoke the token {token:?}? Programs that use it are refused from then on."
                ))?;
            }
            session.send(&Request::new(Method::DELETE, path.below(&id))).await?;
            print(&format!("revoked {token}\n"))
        }
    }
}

/// Prints `shown` of a token, key or invitation of `list`, which the server shows only once. One that cannot be printed,
/// also because nobody reads on, is withdrawn.
pub(super) async fn print_once(session: &Session, list: Path, made: &Value, shown: &str) -> Result<()> {
    let Err(error) = crate::write_stdout(shown) else {
        return Ok(());
    };
    let id = text(made, "id");
    let withdrawn = session.send(&Request::new(Method::DELETE, list.below(id))).await;
    Err(error.context(match withdrawn {
        Ok(_) => "it could not be printed, so it is withdrawn: create it again".to_owned(),
        Err(reason) => format!("it could not be printed, nor withdrawn ({reason:#}): delete it, its id is {id}"),
    }))
}

/// The path of the tokens of a service account, or of the user.
async fn tokens_of(session: &Session, owner: &TokenOwner) -> Result<Path> {
    let Some(account) = &owner.service_account else {
        return Ok(Path::new(["account", "tokens"]));
    };
    let accounts = session.organization()?.below(Kind::ServiceAccount.facts().segment);
    let id = session.id(Kind::ServiceAccount, &accounts, account).await?;
    Ok(accounts.below(id).below("tokens"))
}

/// The scope of a new token; empty without a flag.
async fn scope_of(session: &Session, flags: &ScopeFlags) -> Result<Map<String, Value>> {
    let mut scope = Map::new();
    if !flags.kinds.is_empty() {
        let kinds: Vec<&str> = flags.kinds.iter().map(|kind| kind.word()).collect();
        scope.insert("kinds".to_owned(), kinds.into());
    }
    if !flags.clusters.is_empty() {
        let list = session.organization()?.below("clusters");
        let mut ids = Vec::new();
        for cluster in &flags.clusters {
            ids.push(session.id(Kind::Cluster, &list, cluster).await?);
        }
        scope.insert("clusters".to_owned(), ids.into());
    }
    if flags.read_only {
        scope.insert("verbs".to_owned(), json!(["read"]));
    }
    Ok(scope)
}

/// Replaces the scope of a token by words: `read registries clusters: 2`.
fn put_scope_in_words(token: &mut Value) {
    let scope = &token["scope"];
    let named = |field: &str| {
        let names = scope[field].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
    };
    let clusters = scope["clusters"].as_array().map(Vec::len);
    let clusters = clusters.map_or_else(String::new, |number| format!("clusters: {number}"));
    let words = [named("verbs"), named("kinds"), clusters];
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    if !words.is_empty() {
        token["scope"] = words.join(" ").into();
    }
}

async fn api_keys(command: &ApiKeysCommand) -> Result<()> {
    let place = match command {
        ApiKeysCommand::List(args) => &args.place,
        ApiKeysCommand::Create(place) | ApiKeysCommand::Delete { place, .. } => place,
    };
    let session = Session::open(place)?;
    let path = session.cluster(None).await?.below("api-keys");
    match command {
        ApiKeysCommand::List(args) => {
            let found = session.list(path).await?;
            let columns = ["id", "created_at", "owner_id"];
            list(&session, &args.output, "ApiKey", &columns, &found).await
        }
        ApiKeysCommand::Create(_) => {
            let made = session.send(&Request::new(Method::POST, path.clone())).await?;
            print_once(&session, path, &made, &printable_yaml(&made)?).await
        }
        ApiKeysCommand::Delete { key, confirmation, .. } => {
            let keys = session.list(path.clone()).await?;
            let found = keys.iter().find(|found| text(found, "id").eq_ignore_ascii_case(key));
            // A person may have typed the key itself, which must not be shown.
            let shown = if key.starts_with("twk_") {
                "of this text".to_owned()
            } else {
                format!("{key:?}")
            };
            let found = found.ok_or_else(|| {
                anyhow!("the cluster has no API key {shown}: tidewaiter cloud api-keys list shows the ids of its keys")
            })?;
            let id = text(found, "id");
            if !confirmation.yes {
                confirm(&deletion_of_key(found, keys.len()))?;
            }
            session.send(&Request::new(Method::DELETE, path.below(id))).await?;
            let last = if keys.len() == 1 {
                "; the cluster has none left, and cannot reach the cloud without one: tidewaiter cloud api-keys create"
            } else {
                ""
            };
            print(&format!("deleted ApiKey {id}{last}\n"))
        }
    }
}

/// The question before a key is deleted, one of this many.
fn deletion_of_key(key: &Value, keys: usize) -> String {
    let id = text(key, "id");
    let created = time(text(key, "created_at")).map_or_else(String::new, |time| format!(", created at {time}"));
    let last = if keys == 1 {
        "; it is the only key of the cluster, which cannot reach the cloud without one"
    } else {
        ""
    };
    format!("Delete ApiKey {id}{created}{last}?")
}

/// The text of a file.
pub(super) fn read(file: &File) -> Result<String> {
    text_file::read_named(file).with_context(|| format!("reading {}", text_file::origin(file)))
}

async fn assign(args: &PolicyArgs, method: Method) -> Result<()> {
    let session = Session::open(&args.place)?;
    let cluster = session.cluster(None).await?;
    let pool = CloudPlace::from(&args.place).node_pool;
    let pool = &pool.ok_or_else(|| anyhow!("no node pool is selected: use --node-pool NAME"))?;
    let pools = cluster.clone().below("node-pools");
    let pool_id = session.id(Kind::NodePool, &pools, pool).await?;
    let policies = cluster.below("autoscaling-policies");
    let id = session.id(Kind::AutoscalingPolicy, &policies, &args.policy).await?;
    let done = if method == Method::PUT {
        "assigned to"
    } else {
        "no longer assigned to"
    };
    let path = pools.below(pool_id).below("autoscaling-policies").below(id);
    session.send(&Request::new(method, path)).await?;
    print(&format!("{} is {done} {pool}\n", args.policy))
}

async fn lock(place: &OrganizationPlace, locked: bool) -> Result<()> {
    let session = Session::open(place)?;
    let path = session.organization()?.below("locked");
    let organization = session
        .send(&request(Method::PUT, path, json!({ "locked": locked }), None))
        .await?;
    let state = if locked { "locked" } else { "unlocked" };
    print(&format!("{} is {state}\n", printable(text(&organization, "name"))))
}
