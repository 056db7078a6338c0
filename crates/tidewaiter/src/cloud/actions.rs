//! The commands that do something with an object other than to create, change or delete it. Tokens and API keys are printed when they
//! are created, and never again.

use std::fs;
use std::path::Path as File;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};
use tidewaiter_cloud::client::{Body, Method, Path, Request};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::models::{UpgradeScript, values::UserId};

use super::output::{names, print, table, value};
use super::session::{Session, request, text};
use super::upgrades;
use crate::cli::{
    ActionCommand, ActionUser, ApiKeysCommand, CloudFormat, CloudPlace as Place, ListArgs, PolicyArgs, SetPasswordArgs,
    SetScriptArgs, TokensCommand,
};
use crate::password;

const DAY: u32 = 24 * 60 * 60;

pub(super) async fn main(command: &ActionCommand) -> Result<()> {
    match command {
        ActionCommand::SetRole { user, role } => {
            let (session, path) = member(user).await?;
            let body = json!({ "role": role.word() });
            session
                .send(&request(Method::PUT, path.below("role"), body, None))
                .await?;
            print(&format!("{} now has the role {}\n", user.member, role.word()))
        }
        ActionCommand::SetPassword(args) => set_password(args).await,
        ActionCommand::EndLogins(user) => {
            let (session, path) = member(user).await?;
            session
                .send(&Request::new(Method::DELETE, path.below("tokens")))
                .await?;
            print(&format!("all logins of {} have ended\n", user.member))
        }
        ActionCommand::Tokens(command) => tokens(command).await,
        ActionCommand::ApiKeys(command) => api_keys(command).await,
        ActionCommand::SetScript(args) => set_script(args).await,
        ActionCommand::ScriptTemplates(command) => super::script_templates::main(command).await,
        ActionCommand::PauseUpgrade(args) => upgrades::set(args, "paused", true).await,
        ActionCommand::ResumeUpgrade(args) => upgrades::set(args, "paused", false).await,
        ActionCommand::AbortUpgrade(args) => upgrades::set(args, "aborted", true).await,
        ActionCommand::Assign(args) => assign(args, Method::PUT).await,
        ActionCommand::Unassign(args) => assign(args, Method::DELETE).await,
        ActionCommand::Catalogue(command) => super::catalogue::main(command).await,
        ActionCommand::Lock(of) => lock(&of.place, true).await,
        ActionCommand::Unlock(of) => lock(&of.place, false).await,
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
    let new = |prompt: &str| password::read(args.password_file.as_deref(), prompt, true);
    let (session, request, done) = if let Some(member) = &args.member {
        let user = ActionUser {
            member: member.clone(),
            place: args.place.clone(),
        };
        let (session, path) = self::member(&user).await?;
        let body = json!({ "password": new(&format!("New password of {member}"))? });
        let request = request(Method::PUT, path.below("password"), body, None);
        (session, request, format!("the password of {member} is set\n"))
    } else {
        let session = Session::open(&args.place)?;
        let old = password::current(args.old_password_file.as_deref(), "Your current password")?;
        let body = json!({ "old_password": old, "new_password": new("Your new password")? });
        let request = request(Method::PUT, Path::new(["account", "password"]), body, None);
        (session, request, "your password is set\n".to_owned())
    };
    // The server counts attempts.
    session.send(&Request { once: true, ..request }).await?;
    print(&done)
}

/// Prints a list in the wanted format.
pub(super) fn list(args: &ListArgs, kind: &str, columns: &[&str], found: Vec<Value>) -> Result<()> {
    match args.output {
        CloudFormat::Table => print(&table(columns, &found)),
        CloudFormat::Name => print(&names(kind, &found)),
        format => value(format, &Value::from(found)),
    }
}

async fn tokens(command: &TokensCommand) -> Result<()> {
    let path = Path::new(["account", "tokens"]);
    match command {
        TokensCommand::List(args) => {
            let found = Session::open(&args.place)?.list(path).await?;
            list(args, "Token", &["id", "name", "created_at", "expires_at"], found)
        }
        TokensCommand::Create { name, days, of } => {
            let body = json!({ "name": name, "expires_in_seconds": days * DAY });
            let session = Session::open(&of.place)?;
            let made = session.send(&request(Method::POST, path, body, None)).await?;
            value(CloudFormat::Yaml, &made)
        }
        TokensCommand::Revoke { token, of } => {
            let session = Session::open(&of.place)?;
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
            session.send(&Request::new(Method::DELETE, path.below(&id))).await?;
            print(&format!("revoked {token}\n"))
        }
    }
}

async fn api_keys(command: &ApiKeysCommand) -> Result<()> {
    let place = match command {
        ApiKeysCommand::List(args) => &args.place,
        ApiKeysCommand::Create(of) | ApiKeysCommand::Delete { of, .. } => &of.place,
    };
    let session = Session::open(place)?;
    let path = session.cluster(None).await?.below("api-keys");
    match command {
        ApiKeysCommand::List(args) => list(
            args,
            "ApiKey",
            &["id", "created_at", "owner_id"],
            session.list(path).await?,
        ),
        ApiKeysCommand::Create(_) => {
            let made = session.send(&Request::new(Method::POST, path)).await?;
            value(CloudFormat::Yaml, &made)
        }
        ApiKeysCommand::Delete { key, .. } => {
            session.send(&Request::new(Method::DELETE, path.below(key))).await?;
            print(&format!("deleted ApiKey {key}\n"))
        }
    }
}

/// The text of a file.
pub(super) fn read(file: &File) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

async fn set_script(args: &SetScriptArgs) -> Result<()> {
    let script: UpgradeScript = read(&args.filename)?
        .parse()
        .with_context(|| args.filename.display().to_string())?;
    let session = Session::open(&args.place)?;
    let cluster = session.cluster(None).await?;
    let mut path = cluster.clone().below("upgrades").below(&args.upgrade);
    if let Some(node) = &args.node {
        let id = session.id(Kind::Node, &cluster.below("nodes"), node).await?;
        path = path.below("nodes").below(id);
    }
    let mut request = Request::new(Method::PUT, path.below("script"));
    request.body = Some(Body::Script(script));
    session.send(&request).await?;
    print(&format!("the script of Upgrade {} is set\n", args.upgrade))
}

async fn assign(args: &PolicyArgs, method: Method) -> Result<()> {
    let session = Session::open(&args.place)?;
    let cluster = session.cluster(None).await?;
    let pool = args.place.node_pool.as_ref();
    let pool = pool.ok_or_else(|| anyhow!("no node pool is selected: use --node-pool NAME"))?;
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

async fn lock(place: &Place, locked: bool) -> Result<()> {
    let session = Session::open(place)?;
    let path = session.organization()?.below("locked");
    let organization = session
        .send(&request(Method::PUT, path, json!({ "locked": locked }), None))
        .await?;
    let state = if locked { "locked" } else { "unlocked" };
    print(&format!(
        "{} is {state}\n",
        tidewaiter_api::values::printable(text(&organization, "name"))
    ))
}
