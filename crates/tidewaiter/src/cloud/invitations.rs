//! `tidewaiter cloud invite`, `accept` and `invitations`.
//!
//! The secret of a link is sent to the server of the link alone, in a body, and once: a repetition would be refused.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{BaseUrl, Method, Path, Request};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::{Clock as _, SystemClock};
use url::Url;

use super::actions::print_once;
use super::apply::confirm;
use super::contexts::{Contexts, Login};
use super::output::{list, note, print};
use super::session::{Session, client, request, settings, text, with_remedy_of};
use crate::cli::{AcceptArgs, InvitationsCommand, InviteArgs};
use crate::password::{self, Variable};

/// Invites a person, and prints the link.
pub(super) async fn invite(args: &InviteArgs) -> Result<()> {
    let session = Session::open(&args.place)?;
    let organization = session.organization()?;
    let mut teams = Vec::new();
    for team in &args.team {
        let list = organization.clone().below("teams");
        teams.push(session.id(Kind::Team, &list, team).await?);
    }
    let mut body = json!({"email": args.email.as_str(), "role": args.role.word(), "team_ids": teams});
    if let Some(days) = args.days {
        let end = SystemClock.now() + SignedDuration::from_hours(i64::from(days) * 24);
        let end = Timestamp::from_second(end.as_second()).context("the end of the link")?;
        body["expires_at"] = end.to_string().into();
    }
    if let Some(end) = &args.expires_at {
        body["role_expires_at"] = end.clone();
    }
    let list = organization.below("invitations");
    let made = session.send(&request(Method::POST, list.clone(), body, None)).await?;
    // In quotes for a shell, of which some expand the question mark.
    let link = format!("'{}'\n", printable(text(&made, "link")));
    print_once(&session, list, &made, &link).await?;
    note(&format!(
        "send it to {} alone: it works once, until {}, with tidewaiter cloud accept LINK",
        args.email,
        text(&made, "expires_at")
    ));
    Ok(())
}

/// Lists or revokes invitations.
pub(super) async fn main(command: &InvitationsCommand) -> Result<()> {
    match command {
        InvitationsCommand::List(args) => {
            let session = Session::open(&args.place)?;
            let found = session.list(session.organization()?.below("invitations")).await?;
            let columns = [
                "email",
                "role",
                "expires_at",
                "role_expires_at",
                "owner_id",
                "created_at",
                "id",
            ];
            list(&session, &args.output, "Invitation", &columns, &found).await
        }
        InvitationsCommand::Revoke {
            invitation,
            confirmation,
            place,
        } => {
            let session = Session::open(place)?;
            let path = session.organization()?.below("invitations");
            let found = session.list(path.clone()).await?;
            let is_meant = |found: &&Value| {
                ["id", "email"]
                    .iter()
                    .any(|field| text(found, field).eq_ignore_ascii_case(invitation))
            };
            let found: Vec<&Value> = found.iter().filter(is_meant).collect();
            if found.is_empty() {
                bail!("there is no open invitation {invitation:?}: tidewaiter cloud invitations list");
            }
            if !confirmation.yes {
                confirm(&format!(
                    "Revoke the invitation of {invitation}? Its link stops working."
                ))?;
            }
            for found in found {
                let revoke = Request::new(Method::DELETE, path.clone().below(text(found, "id")));
                session.send(&revoke).await?;
            }
            print(&format!("revoked {invitation}\n"))
        }
    }
}

/// Accepts an invitation, as a new user or with the login of a context.
pub(super) async fn accept(args: &AcceptArgs) -> Result<()> {
    let server = args.link.origin().ascii_serialization();
    let server: BaseUrl = server.parse().context("LINK")?;
    let secret = args.link.query_pairs().find(|(name, _)| name == "secret");
    let (_, secret) = secret.ok_or_else(|| anyhow!("LINK has no secret: give the whole link, in quotes"))?;
    if args.with_login {
        let session = Session::open(&args.place)?;
        let own = &session.login().server;
        if Url::parse(own).map(|own| own.origin()).ok() != Some(args.link.origin()) {
            bail!("LINK is of {server}, and you are logged in to {own}: select the context of {server} with --context");
        }
        let path = Path::new(["account", "invitations"]);
        let accept = request(Method::POST, path, json!({ "secret": secret }), None);
        session.send(&Request { once: true, ..accept }).await?;
        return print("accepted: tidewaiter cloud whoami shows your organizations\n");
    }
    let login = without_login(args, &server)?;
    let client = client(&settings(&login)?, &login)?;
    let name = match &args.name {
        Some(name) => name.to_string(),
        None => typed_name()?,
    };
    let prompt = format!("A password for your account at {server}");
    let password = password::read(Variable::NewPassword, args.password_file.as_deref(), &prompt, true)?;
    let body = json!({ "secret": secret, "name": name, "password": password });
    let accept = request(Method::POST, Path::new(["invitations", "accept"]), body, None);
    let answer = client.request(&Request { once: true, ..accept }).await;
    let answer = answer.map_err(|error| with_remedy_of("tidewaiter cloud accept --ca-file FILE", error, &login))?;
    let accepted = answer
        .json()
        .map_err(|reason| anyhow!("the response to the acceptance {reason}"))?;
    let email = printable(text(&accepted, "email"));
    print(&format!(
        "accepted; log in: tidewaiter cloud login --server {server} {email}\n"
    ))
}

/// The server of the link, without a login.
fn without_login(args: &AcceptArgs, server: &BaseUrl) -> Result<Login> {
    let (contexts, server) = (Contexts::load()?, server.to_string());
    let known = contexts.contexts.values().find(|login| login.server == server);
    let known = known.and_then(|login| login.ca_file.clone());
    Ok(Login {
        server,
        email: String::new(),
        ca_file: args.ca_file.clone().or(known),
        organization: None,
        cluster: None,
        token: None,
    })
}

/// The name that the person types.
fn typed_name() -> Result<String> {
    if !io::stdin().is_terminal() {
        bail!("no name: use --name NAME, or run in a terminal");
    }
    let mut out = io::stderr();
    let asked = write!(out, "Your name: ").and_then(|()| out.flush());
    asked.context("asking")?;
    let mut name = String::new();
    io::stdin().read_line(&mut name).context("the name")?;
    Ok(name.trim().to_owned())
}
