//! Logging in and out, and where one is.

use std::io::{self, Write as _};
use std::path::absolute;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::client::{AccessToken, Answer, Client, ClientError, Method, Path, Request, stated_expiry};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::models::values::{DisplayName, OrganizationId};
use tidewaiter_kit::{Clock as _, SystemClock};
use url::Url;

use super::contexts::{Contexts, Login};
use super::ending;
use super::output::{is_table, print, rows, value};
use super::session::{self, Session, if_found, is_called, is_over, settings, text, with_remedy};
use super::sign_in;
use crate::cli::{CloudFormat, CloudPlace as Place, ContextCommand, LoginArgs, LogoutArgs, WhoamiArgs};
use crate::password::{self, Variable};

/// Logs in, and remembers the token.
pub(super) async fn login(args: &LoginArgs) -> Result<()> {
    let mut contexts = Contexts::load()?;
    let (name, mut login) = wanted(args, &contexts)?;
    let known = contexts.contexts.get(&name).filter(|known| known.token.is_some());
    let (token, client) = logged_in(args, &name, known, &mut login).await?;
    let answer = client
        .request(&Request::new(Method::GET, Path::new(["organizations"])))
        .await?;
    let organizations = answer
        .json()
        .map_err(|reason| anyhow!("the response with the organizations {reason}"))?;
    let organizations = organizations.as_array().cloned().unwrap_or_default();
    let mut forgotten = String::new();
    if args.organization.is_none()
        && let Some(id) = &login.organization
        && !organizations.iter().any(|known| text(known, "id") == id)
        && !is_there(&client, id).await
    {
        forgotten = format!(
            "{} has no organization {}, or you are not a member of it: the context forgets it and its cluster\n",
            login.server,
            quoted(id)
        );
        (login.organization, login.cluster) = (None, None);
    }
    if let ([only], None) = (&organizations[..], &login.organization) {
        login.organization = Some(text(only, "id").to_owned());
    }
    login.token = Some(token);
    let chosen = login.organization.clone();
    let context = name.clone();
    let done = format!("logged in to {} as {}: context {name}\n", login.server, login.email);
    contexts.contexts.insert(name.clone(), login);
    contexts.current = Some(name);
    contexts.save()?;
    print(&format!("{done}{forgotten}"))?;
    ending::tell_in(context).await?;
    if chosen.is_some() {
        return Ok(());
    }
    select(&organizations)
}

/// Says how to select one of the organizations.
fn select(organizations: &[Value]) -> Result<()> {
    if organizations.is_empty() {
        return print("you are a member of no organization, or not any more: ask an admin of yours\n");
    }
    print("you are a member of several organizations; select one: tidewaiter cloud context set --organization ID\n")?;
    rows(&CloudFormat::Wide, "Organization", &["name", "id"], organizations)
}

/// A token, with a client that uses it.
async fn logged_in(
    args: &LoginArgs,
    context: &str,
    known: Option<&Login>,
    login: &mut Login,
) -> Result<(String, Client)> {
    if by_password(args) {
        check_same(context, known, login)?;
        let token = with_password(args, login).await?;
        let client = client(login, &token)?;
        return Ok((token, client));
    }
    let token = if args.device {
        sign_in::with_device(login).await?
    } else {
        sign_in::with_browser(login, !args.no_browser).await?
    };
    let client = client(login, &token)?;
    // Another person may have signed in.
    login.email = email(&client).await?;
    if let Err(error) = check_same(context, known, login) {
        let revoke = Request::new(Method::DELETE, Path::new(["account", "tokens", "current"]));
        client.request(&revoke).await.context("revoking the new login")?;
        return Err(error);
    }
    Ok((token, client))
}

/// Returns true if a password was given, or is to be asked for.
fn by_password(args: &LoginArgs) -> bool {
    let is_given = args.email.is_some() || args.password_file.is_some() || password::is_set(Variable::Account);
    is_given && !args.device && !args.no_browser
}

/// Checks that the context does not have a login of another user or server.
fn check_same(name: &str, known: Option<&Login>, login: &Login) -> Result<()> {
    let Some(known) = known else { return Ok(()) };
    if known.server == login.server && known.email.eq_ignore_ascii_case(&login.email) {
        return Ok(());
    }
    bail!(
        "the context {name} has the login of {} at {}: choose another name with --context, or log out first: tidewaiter cloud logout --context {name}",
        known.email,
        known.server
    )
}

/// The client with a token.
fn client(login: &Login, token: &str) -> Result<Client> {
    let mut settings = settings(login)?;
    let token = token.parse::<AccessToken>();
    settings.token = Some(token.context("the token in the cloud's response")?);
    session::client(&settings, login)
}

/// The e-mail address of the logged-in user.
async fn email(client: &Client) -> Result<String> {
    let request = Request::new(Method::GET, Path::new(["account"]));
    let answer = client.request(&request).await?;
    let account = answer
        .json()
        .map_err(|reason| anyhow!("the response with the account {reason}"))?;
    Ok(text(&account, "email").to_owned())
}

/// False if the cloud answers that it has no such organization, as a new cloud at the address of an old one does.
async fn is_there(client: &Client, organization: &str) -> bool {
    let request = Request::new(Method::GET, Path::new(["organizations", organization]));
    !matches!(
        client.request(&request).await,
        Err(ClientError::NotOurs { .. } | ClientError::Refused { .. })
    )
}

/// The name and the content of the context, with what the flags omit from the context that there is.
fn wanted(args: &LoginArgs, contexts: &Contexts) -> Result<(String, Login)> {
    let ca_file = args.ca_file.as_ref().map(absolute).transpose().context("--ca-file")?;
    let (name, server) = if let Some(server) = &args.server {
        let host = Url::parse(server.as_str()).ok();
        let host = host.and_then(|url| url.host_str().map(str::to_owned));
        (args.context.clone().or(host).unwrap_or_default(), server.to_string())
    } else {
        let (name, known) = contexts.find(args.context.as_deref())?;
        (name.to_owned(), known.server.clone())
    };
    let known = contexts.contexts.get(&name).filter(|known| known.server == server);
    let email = args.email.as_ref().map(ToString::to_string);
    let email = email.or_else(|| known.map(|known| known.email.clone()));
    let organization = args.organization.map(|id| id.to_string());
    // A cluster is of one organization.
    let same = known.filter(|known| organization.is_none() || known.organization == organization);
    let login = Login {
        // Without a password, the person who signs in decides.
        email: email.unwrap_or_default(),
        server,
        ca_file: ca_file.or_else(|| known.and_then(|known| known.ca_file.clone())),
        organization: organization.or_else(|| known.and_then(|known| known.organization.clone())),
        cluster: same.and_then(|known| known.cluster.clone()),
        token: None,
    };
    Ok((name, login))
}

async fn with_password(args: &LoginArgs, login: &Login) -> Result<String> {
    let Login { email, server, .. } = login;
    if email.is_empty() {
        bail!("no e-mail address: run tidewaiter cloud login --server {server} EMAIL");
    }
    let prompt = format!("Password of {email} at {server}");
    let password = password::read(Variable::Account, args.password_file.as_deref(), &prompt, false)?;
    let client = session::client(&settings(login)?, login)?;
    let body = json!({"email": email, "password": password});
    token(&client, login, "password", body).await
}

/// Exchanges the credentials in `body` for a token.
pub(super) async fn token(client: &Client, login: &Login, method: &str, body: Value) -> Result<String> {
    let mut request = Request::new(Method::POST, Path::new(["login", method])).json(body);
    // The server counts attempts.
    request.once = true;
    let answer = client
        .request(&request)
        .await
        .map_err(|error| with_remedy(error, login));
    token_in(&answer.with_context(|| format!("cannot log in to {}", login.server))?)
}

/// The token in the response to a login.
pub(super) fn token_in(answer: &Answer) -> Result<String> {
    let answer = answer
        .json()
        .map_err(|reason| anyhow!("the response to the login {reason}"))?;
    let token = answer.get("token").and_then(Value::as_str);
    token
        .map(str::to_owned)
        .ok_or_else(|| anyhow!("the response to the login contains no token"))
}

/// Revokes the token, and forgets it whether or not the server answers.
pub(super) async fn logout(args: &LogoutArgs) -> Result<()> {
    let place = Place {
        context: args.context.clone(),
        ..Place::default()
    };
    let revoke = Request::new(Method::DELETE, Path::new(["account", "tokens", "current"]));
    let revoked = match Session::of_context(place) {
        Ok(session) => if_found(session.send(&revoke).await).map(drop),
        // There is no token.
        Err(_) => Ok(()),
    };
    let mut contexts = Contexts::load()?;
    let (name, login) = contexts.find_mut(args.context.as_deref())?;
    login.token = None;
    contexts.save()?;
    print(&format!("logged out of {name}\n"))?;
    match revoked {
        Err(error) if !is_over(&error) => {
            Err(error.context("the server did not revoke the token, which stays valid until it expires"))
        }
        _ => Ok(()),
    }
}

/// Shows the logged-in user.
pub(super) async fn whoami(args: &WhoamiArgs) -> Result<()> {
    let session = Session::open(&args.place)?;
    let (account, _) = session.get(Path::new(["account"])).await?;
    let (claims, _) = session.get(Path::new(["authenticate"])).await?;
    let organizations = session.list(Path::new(["organizations"])).await?;
    ending::tell(&session, &account).await;
    let role = |id: &str| {
        let roles = claims
            .get("organizations")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut found = roles.filter(|entry| text(entry, "id") == id);
        found.next().map_or("-", |entry| text(entry, "role")).to_owned()
    };
    let organizations: Vec<Value> = organizations
        .iter()
        .map(|organization| {
            let id = text(organization, "id");
            json!({"id": id, "name": text(organization, "name"), "role": role(id)})
        })
        .collect();
    let whole = json!({
        "id": account.get("id"),
        "name": account.get("name"),
        "email": account.get("email"),
        "expires": claims.get("exp").and_then(Value::as_i64).and_then(|exp| jiff::Timestamp::from_second(exp).ok()).map(|at| at.to_string()),
        "organizations": organizations,
    });
    match &args.printed.output {
        format if is_table(format) => {
            let account = std::slice::from_ref(&whole);
            rows(format, "User", &["email", "name", "expires", "id"], account)?;
            print("\n")?;
            // Flags take its id.
            rows(
                &CloudFormat::Wide,
                "Organization",
                &["name", "role", "id"],
                &organizations,
            )
        }
        CloudFormat::Name => print(&format!(
            "{}\n",
            tidewaiter_api::values::printable(text(&account, "email"))
        )),
        format => value(format, &whole),
    }
}

/// The contexts.
pub(super) async fn context(command: &ContextCommand) -> Result<()> {
    let mut contexts = Contexts::load()?;
    match command {
        ContextCommand::List(printed) => {
            let found: Vec<Value> = contexts
                .contexts
                .iter()
                .map(|(name, login)| {
                    json!({
                        "current": if contexts.current.as_ref() == Some(name) { "*" } else { "" },
                        "name": name,
                        "server": login.server,
                        "email": login.email,
                        "organization": login.organization,
                        "cluster": login.cluster,
                        "logged_in": login.token.is_some(),
                        "state": state(login),
                    })
                })
                .collect();
            let columns = ["current", "name", "server", "email", "organization", "cluster", "state"];
            rows(&printed.output, "Context", &columns, &found)
        }
        ContextCommand::Use { name } => {
            contexts.find(Some(name))?;
            contexts.current = Some(name.clone());
            contexts.save()
        }
        ContextCommand::Set {
            name,
            organization,
            cluster,
        } => {
            let (name, login) = contexts.find_mut(name.as_deref())?;
            if let Some(id) = organization {
                // A cluster is of one organization.
                if login.organization.replace(id.to_string()) != Some(id.to_string()) {
                    login.cluster = None;
                }
            }
            if let Some(cluster) = cluster {
                login.cluster = Some(cluster.clone());
                let organization = login.organization.clone();
                check_cluster(name, organization.as_deref(), cluster).await?;
            }
            contexts.save()
        }
    }
}

/// The state of the login, as far as it is known without the server: it may have been revoked.
fn state(login: &Login) -> String {
    match login.token.as_deref().map(stated_expiry) {
        None => "logged out".to_owned(),
        Some(None) => "logged in".to_owned(),
        Some(Some(end)) if end <= SystemClock.now() => "expired".to_owned(),
        Some(Some(end)) => format!("valid until {end}"),
    }
}

/// Checks that the cluster exists. A context may be set while the cloud cannot be reached.
async fn check_cluster(context: String, organization: Option<&str>, cluster: &str) -> Result<()> {
    let wrong = || format!("--cluster is {}", quoted(cluster));
    cluster.parse::<DisplayName>().with_context(wrong)?;
    let organization = organization.map(str::parse::<OrganizationId>).transpose();
    let place = Place {
        context: Some(context),
        organization: organization.context("the organization of the context")?,
        ..Place::default()
    };
    let listed = async {
        let session = Session::of_context(place)?;
        session.list(session.organization()?.below("clusters")).await
    };
    let clusters = match listed.await {
        Ok(clusters) => clusters,
        Err(error) => {
            // A closed standard error is no reason not to set it.
            let _ = writeln!(
                io::stderr(),
                "tidewaiter: it is not checked that the cluster exists: {error:#}"
            );
            return Ok(());
        }
    };
    let is_meant =
        |object: &Value| text(object, "id").eq_ignore_ascii_case(cluster) || is_called(Kind::Cluster, object, cluster);
    if clusters.iter().any(is_meant) {
        return Ok(());
    }
    let names: Vec<String> = clusters.iter().map(|object| quoted(text(object, "name"))).collect();
    let names = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Err(anyhow!("there is no such cluster; the organization has {names}")).with_context(wrong)
}
