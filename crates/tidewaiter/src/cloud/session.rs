//! An open session: the client, the context and the parent objects. Names are resolved to ids here.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use tidewaiter_cloud::client::{
    AccessToken, Answer, BaseUrl, Client, ClientError, ClientSettings, ETag, Method, Path, Request, SettingsError,
};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::models::values::UserId;
use tidewaiter_kit::SystemClock;
use tidewaiter_kit::chain::Untrusted;
use tidewaiter_kit::settings::environment;

use super::contexts::{Contexts, Login, ORGANIZATION, TOKEN};
use crate::cli::CloudPlace as Place;

/// The time for which requests to an unavailable server are retried while a user waits.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// The beginning of the header in which the server states its version.
const SERVER: &str = "tidewaiter/";

/// An open login.
pub(super) struct Session {
    client: Client,
    /// The name of its context; `None` for the login of a program.
    context: Option<String>,
    login: Login,
    organization: Option<String>,
    place: Place,
}

/// Settings for `login`, without its token.
pub(super) fn settings(login: &Login) -> Result<ClientSettings> {
    let base: BaseUrl = login.server.parse().context("the server of the context")?;
    let mut settings = ClientSettings::new(base);
    settings.deadline = RETRY_TIMEOUT;
    if let Some(path) = &login.ca_file {
        let read = std::fs::read(path);
        settings.ca = Some(read.with_context(|| format!("the certificates in {}", path.display()))?);
    }
    Ok(settings)
}

/// A client of the server of `login`. An error of the certificates names their file.
pub(super) fn client(settings: &ClientSettings, login: &Login) -> Result<Client> {
    let client = Client::new(settings, SystemClock::shared());
    client.map_err(|error| {
        let is_of_file = matches!(error, SettingsError::Certificates(_) | SettingsError::Build(_));
        let error = anyhow::Error::from(error);
        match &login.ca_file {
            Some(path) if is_of_file => error.context(format!("the file {} (--ca-file)", path.display())),
            _ => error,
        }
    })
}

impl Session {
    /// Opens the login of a program, which is in the environment; without one, the context that `place` names.
    pub(super) fn open(place: impl Into<Place>) -> Result<Self> {
        let place = place.into();
        let Some(login) = Login::of_program(&environment())? else {
            return Self::of_context(place);
        };
        if let Some(context) = &place.context {
            bail!("{TOKEN} is set, and the context {context:?} is selected: unset the one, or omit the other");
        }
        Self::new(None, login, place)
    }

    /// Opens the context that `place` names.
    pub(super) fn of_context(place: Place) -> Result<Self> {
        let contexts = Contexts::load()?;
        let (name, login) = contexts.find(place.context.as_deref())?;
        Self::new(Some(name.to_owned()), login.clone(), place)
    }

    fn new(context: Option<String>, login: Login, mut place: Place) -> Result<Self> {
        let Some(token) = &login.token else {
            let name = context.unwrap_or_default();
            bail!("you are logged out of {name}: run tidewaiter cloud login --context {name}");
        };
        let mut settings = settings(&login)?;
        let source = if context.is_some() {
            "the token of the context"
        } else {
            TOKEN
        };
        settings.token = Some(token.parse::<AccessToken>().context(source)?);
        place.cluster = place.cluster.or_else(|| login.cluster.clone());
        let organization = place.organization.map(|id| id.to_string());
        Ok(Self {
            client: client(&settings, &login)?,
            context,
            organization: organization.or_else(|| login.organization.clone()),
            login,
            place,
        })
    }

    /// The context and the parent objects.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The login of the context.
    pub(super) fn login(&self) -> &Login {
        &self.login
    }

    /// The id of the organization.
    pub(super) fn organization_id(&self) -> Result<&str> {
        self.organization.as_deref().ok_or_else(|| match self.context {
            Some(_) => anyhow!(
                "no organization is selected: use --organization ID or tidewaiter cloud context set --organization ID"
            ),
            None => anyhow!("no organization is selected: use --organization ID, or set {ORGANIZATION}"),
        })
    }

    /// The path of the organization.
    pub(super) fn organization(&self) -> Result<Path> {
        Ok(Path::new(["organizations"]).below(self.organization_id()?))
    }

    /// The path of a cluster.
    pub(super) async fn cluster(&self, cluster: Option<&str>) -> Result<Path> {
        let named = cluster.or(self.place.cluster.as_deref());
        let cluster = named.ok_or_else(|| {
            anyhow!("no cluster is selected: use --cluster NAME or tidewaiter cloud context set --cluster NAME")
        })?;
        let list = self.organization()?.below("clusters");
        let id = self.id(Kind::Cluster, &list, cluster).await?;
        Ok(list.below(id))
    }

    /// The path of the list of a kind, at the place of the command line.
    pub(super) async fn list_path(&self, kind: Kind) -> Result<Path> {
        let parent = match kind.parent() {
            Some(Kind::Organization) => self.organization()?,
            Some(Kind::Cluster) => self.cluster(None).await?,
            Some(Kind::User) => match &self.place.user {
                None => return Ok(Path::new(["account", kind.facts().segment])),
                Some(user) => {
                    let list = self.organization()?.below("users");
                    let id = self.id(Kind::User, &list, user).await?;
                    list.below(id)
                }
            },
            Some(Kind::NodePool) => match &self.place.node_pool {
                // The nodes of a cluster are listed without asking for a pool.
                None if kind == Kind::Node => self.cluster(None).await?,
                None => bail!("no node pool is selected: use --node-pool NAME"),
                Some(pool) => {
                    let list = self.cluster(None).await?.below("node-pools");
                    let id = self.id(Kind::NodePool, &list, pool).await?;
                    list.below(id)
                }
            },
            _ => return Ok(Path::new([kind.facts().segment])),
        };
        Ok(parent.below(kind.facts().segment))
    }

    /// The id of the object in `list` with this name or id.
    pub(super) async fn id(&self, kind: Kind, list: &Path, name: &str) -> Result<String> {
        let found = self.find(kind, list, name).await?;
        found.ok_or_else(|| anyhow!("there is no {} {name:?}", kind.name()))
    }

    /// The id of the object in `list` with this name or id, if there is one of this name.
    pub(super) async fn find(&self, kind: Kind, list: &Path, name: &str) -> Result<Option<String>> {
        // Every id is a UUID, whatever it is of.
        if name.parse::<UserId>().is_ok() {
            return Ok(Some(name.to_lowercase()));
        }
        let found: Vec<Value> = self.list(list.clone()).await?;
        let called = |object: &&Value| is_called(kind, object, name);
        let ids: Vec<&str> = found
            .iter()
            .filter(called)
            .filter_map(|object| object.get("id")?.as_str())
            .collect();
        match ids[..] {
            [id] => Ok(Some(id.to_owned())),
            [] => Ok(None),
            _ => bail!(
                "{} objects of kind {} are named {name:?}: use an id",
                ids.len(),
                kind.name()
            ),
        }
    }

    /// The objects at `path`.
    pub(super) async fn list(&self, path: Path) -> Result<Vec<Value>> {
        let shown = path.to_string();
        match self.get(path).await?.0 {
            Value::Array(objects) => Ok(objects),
            _ => bail!("the response to GET {shown} is not a list"),
        }
    }

    /// The object at `path`, and its version.
    pub(super) async fn get(&self, path: Path) -> Result<(Value, Option<ETag>)> {
        let request = Request::new(Method::GET, path);
        let answer = self.answer(&request).await?;
        let json = answer
            .json()
            .map_err(|reason| anyhow!("the response to {request} {reason}"))?;
        Ok((json, answer.etag))
    }

    async fn answer(&self, request: &Request) -> Result<Answer> {
        self.client.request(request).await.map_err(|error| {
            let (is_ended, is_over) = (error.is_of_ended_access(), is_of_login(&error));
            let error = match self.context {
                Some(_) => with_remedy(error, &self.login),
                None => with_remedy_of("TIDEWAITER_CLOUD_CA_FILE=FILE", error, &self.login),
            };
            match &self.context {
                _ if is_ended => error.context(format!("your access to {} has ended", self.login.server)),
                Some(name) if is_over => error.context(format!(
                    "the login of {name} has expired or was revoked: run tidewaiter cloud login --context {name}"
                )),
                None if is_over => error.context(format!(
                    "the token in {TOKEN} has expired, was revoked or is of another server: set it to another one \
                     (tidewaiter cloud tokens create)"
                )),
                _ => error,
            }
        })
    }

    /// The version of the server.
    pub(super) async fn server_version(&self) -> Result<String> {
        let answer = self.answer(&Request::new(Method::GET, Path::new(["account"]))).await?;
        let server = answer.server.as_deref().and_then(|server| server.strip_prefix(SERVER));
        let version = server.ok_or_else(|| anyhow!("the server does not state it"))?;
        Ok(version.to_owned())
    }

    /// The text of the answer.
    pub(super) async fn text(&self, request: &Request) -> Result<String> {
        let answer = self.answer(request).await?;
        let text = answer
            .text()
            .map_err(|reason| anyhow!("the response to {request} {reason}"))?;
        Ok(text.to_owned())
    }

    /// Sends a body, and reads the answer if there is one.
    pub(super) async fn send(&self, request: &Request) -> Result<Value> {
        Ok(self.send_numbered(request).await?.0)
    }

    /// Sends a change as by [`Self::send`]; also returns its number, if the server says it.
    pub(super) async fn send_numbered(&self, request: &Request) -> Result<(Value, Option<u64>)> {
        let answer = self.answer(request).await?;
        if answer.bytes().is_empty() {
            return Ok((Value::Null, answer.change));
        }
        let json = answer
            .json()
            .map_err(|reason| anyhow!("the response to {request} {reason}"))?;
        Ok((json, answer.change))
    }
}

/// Returns the error, with the remedy before it if the certificate of the server is not trusted.
pub(super) fn with_remedy(error: ClientError, login: &Login) -> anyhow::Error {
    with_remedy_of("tidewaiter cloud login --ca-file FILE", error, login)
}

/// Returns the error as [`with_remedy`] does; with `flag`, the user gives the authority.
pub(super) fn with_remedy_of(flag: &str, error: ClientError, login: &Login) -> anyhow::Error {
    let remedy = match error.untrusted() {
        None => return error.into(),
        Some(Untrusted::Time) => {
            "has expired or is not valid yet: renew it, or correct the clock of this machine".to_owned()
        }
        Some(Untrusted::Authority) => {
            "is that of a certificate authority (CA:TRUE): let the authority issue one with CA:FALSE".to_owned()
        }
        Some(Untrusted::Issuer) if login.ca_file.is_some() => format!(
            "is for another host, or no authority in the file of --ca-file issued it: correct the address, or give the \
             right file with {flag}"
        ),
        Some(Untrusted::Issuer) => format!("is not trusted: give its certificate authority with {flag}"),
    };
    anyhow::Error::from(error).context(format!("the certificate of the server {remedy}"))
}

/// Returns true for a token that is expired, revoked, or of another cloud.
fn is_of_login(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { status: 401, .. })
}

/// Returns true if the server rejected the login.
pub(super) fn is_over(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(is_of_login)
}

/// Returns true if the object has this name. An e-mail address is compared only with the address of a user: anyone may
/// set their display name to the address of another user.
pub(super) fn is_called(kind: Kind, object: &Value, name: &str) -> bool {
    let display_name = (kind != Kind::User || !name.contains('@')).then_some("name");
    let fields = kind.facts().key.iter().copied().chain(display_name);
    let mut texts = fields.filter_map(|field| object.get(field)?.as_str());
    texts.any(|text| text == name || (kind == Kind::User && text.eq_ignore_ascii_case(name)))
}

/// Returns the found value; `None` if the server has no such object, or does not show it to this user.
pub(super) fn if_found<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.downcast_ref(), Some(ClientError::NotOurs { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A request with a body.
pub(super) fn request(method: Method, path: Path, body: Value, if_match: Option<ETag>) -> Request {
    let mut request = Request::new(method, path).json(body);
    request.if_match = if_match;
    request
}

/// A field of an object as a text.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
