//! Resolves the owner of a token: by a request to the cloud, or with the keys that the cloud publishes.

use http::Method;
use jiff::Timestamp;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, decode, decode_header};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::path::{Cluster, Path};
use super::request::Request;
use super::token::AccessToken;
use super::{Client, ClientError};
use crate::models::CLUSTER_AUDIENCE;
use crate::models::values::{ClusterId, OrganizationId};
use crate::signature::signature_only;

/// The longest token that the cloud issues, in bytes.
const MAX_TOKEN: usize = 8 * 1024;
/// The most that the clock of this machine may be behind that of the cloud.
const LEEWAY_SECONDS: i64 = 60;

/// The owner of a token, and the claims of the token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The subject of the token, for the log: `containership.io/user_id#…`.
    pub subject: String,
    /// The organizations of the caller.
    pub organizations: Vec<Membership>,
    /// The claim `metadata["https://containership.io/roles"]`.
    pub roles: Vec<String>,
    /// The cluster whose kube-apiserver the token is for; `None` if it is for the API.
    pub audience: Audience,
}

/// The purpose of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Audience {
    #[default]
    Cloud,
    Cluster(ClusterId),
    /// A cluster whose id is malformed.
    Unknown,
}

/// A membership of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub organization: OrganizationId,
    /// The role of the caller there, if the cloud says it: `owner`, `admin`, `member`, `read_only` or `cluster`.
    pub role: Option<String>,
}

/// The keys with which the cloud signs tokens.
#[derive(Clone, Debug)]
pub struct PublishedKeys(JwkSet);

impl Client {
    /// Returns a client with this token. It shares the connections.
    #[must_use]
    pub fn with_token(&self, token: &AccessToken) -> Self {
        Self {
            transport: self.transport.with_token(token),
            ..self.clone()
        }
    }

    /// Requests the owner of `token` from the cloud, once and without a retry.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the token is not valid; otherwise there is no answer.
    pub async fn authenticate(&self, token: &AccessToken) -> Result<Caller, ClientError> {
        let mut request = Request::new(Method::GET, Path::new(["authenticate"]));
        request.once = true;
        let answer = self.with_token(token).request(&request).await?;
        let said: Said = serde_json::from_slice(answer.bytes())
            .map_err(|_| ClientError::invalid(&request, "it does not say whose the token is"))?;
        Ok(said.into())
    }

    /// The keys with which the cloud signs tokens.
    pub async fn published_keys(&self) -> Result<PublishedKeys, ClientError> {
        let request = Request::new(Method::GET, Path::well_known("jwks.json"));
        let answer = self.request(&request).await?;
        let keys = serde_json::from_slice(answer.bytes());
        let keys = keys.map_err(|_| ClientError::invalid(&request, "it is not a set of keys (RFC 7517)"))?;
        Ok(PublishedKeys(keys))
    }
}

impl PublishedKeys {
    /// Returns true if one of the keys signed `token`, and it has not expired. Whose it is, and whether it was revoked,
    /// the cloud knows.
    #[must_use]
    pub fn signed(&self, token: &str, now: Timestamp) -> bool {
        self.claims(token, now).is_some()
    }

    /// Returns the owner of `token`, if one of the keys signed it for this cluster and it is valid now.
    ///
    /// Only a token for the cluster itself proves a membership: the cloud issues it to members of the cluster's
    /// organization alone, and it expires within minutes. A token for the cloud does not say where its owner is a
    /// member.
    #[must_use]
    pub fn verify(&self, token: &str, cluster: Cluster, now: Timestamp) -> Option<Caller> {
        let claims = self.claims(token, now)?;
        let caller = Caller::from(claims.said);
        let membership = Membership {
            organization: cluster.organization,
            role: None,
        };
        (caller.audience == Audience::Cluster(cluster.id)).then(|| Caller {
            organizations: vec![membership],
            ..caller
        })
    }

    /// The claims of a token that one of the keys signed and that is valid now.
    fn claims(&self, token: &str, now: Timestamp) -> Option<Signed> {
        let header = decode_header(token).ok().filter(|_| token.len() <= MAX_TOKEN)?;
        if header.alg != Algorithm::ES256 || header.crit.is_some() {
            return None;
        }
        let key = DecodingKey::from_jwk(self.0.find(header.kid.as_deref()?)?).ok()?;
        let claims = decode::<Signed>(token, &key, &signature_only()).ok()?.claims;
        let now = now.as_second();
        let valid = now < claims.exp && claims.nbf <= now.saturating_add(LEEWAY_SECONDS);
        valid.then_some(claims)
    }
}

/// The claims of a token.
#[derive(Deserialize)]
struct Signed {
    exp: i64,
    nbf: i64,
    #[serde(flatten)]
    said: Said,
}

/// The response of `/v3/authenticate`, or the claims of a token. Other clouds say less.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    sub: Option<String>,
    user_id: Option<String>,
    cluster_id: Option<String>,
    aud: Option<OneOrMore>,
    organizations: Vec<SaidMembership>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct SaidMembership {
    id: String,
    role: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "https://containership.io/roles")]
    roles: Option<OneOrMore>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
    Other(IgnoredAny),
}

impl OneOrMore {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::More(texts) => texts,
            Self::Other(_) => Vec::new(),
        }
    }
}

impl From<Said> for Caller {
    fn from(said: Said) -> Self {
        let subject = said.sub.or(said.user_id).or(said.cluster_id);
        let audiences = said.aud.map(OneOrMore::into_vec).unwrap_or_default();
        let memberships = said.organizations.into_iter().filter_map(|membership| {
            Some(Membership {
                organization: membership.id.parse().ok()?,
                role: membership.role,
            })
        });
        let roles = said.metadata.and_then(|metadata| metadata.roles);
        Self {
            subject: subject.unwrap_or_default(),
            organizations: memberships.collect(),
            roles: roles.map(OneOrMore::into_vec).unwrap_or_default(),
            audience: audience(&audiences),
        }
    }
}

/// A token for a cluster is for that one alone.
fn audience(audiences: &[String]) -> Audience {
    let mut clusters = audiences
        .iter()
        .filter_map(|audience| audience.strip_prefix(CLUSTER_AUDIENCE));
    match (clusters.next(), clusters.next()) {
        (None, _) => Audience::Cloud,
        (Some(id), None) => id.parse().map_or(Audience::Unknown, Audience::Cluster),
        (Some(_), Some(_)) => Audience::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::jwk::{Jwk, JwkSet};
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::{Value, json};

    use super::*;

    /// A key, and what the cloud publishes of it.
    fn key(id: &str) -> (EncodingKey, Jwk) {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let key = EncodingKey::from_ec_pem(pem.as_bytes()).unwrap();
        let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(id.to_owned());
        (key, jwk)
    }

    fn signed(key: &EncodingKey, kid: Option<&str>, claims: &Value) -> String {
        let header = Header {
            kid: kid.map(str::to_owned),
            ..Header::new(Algorithm::ES256)
        };
        encode(&header, claims, key).unwrap()
    }

    #[test]
    fn only_a_valid_token_for_the_cluster_proves_a_membership() {
        let cluster = Cluster {
            organization: "11111111-1111-4111-8111-111111111111".parse().unwrap(),
            id: ID.parse().unwrap(),
        };
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ((own, published), (strange, _)) = (key("a"), key("a"));
        let keys = PublishedKeys(JwkSet { keys: vec![published] });
        let audience = format!("{CLUSTER_AUDIENCE}{ID}");
        let claims = |changes: Value| {
            let mut claims =
                json!({"sub": "somebody", "aud": audience, "nbf": now.as_second(), "exp": now.as_second() + 600});
            json_patch::merge(&mut claims, &changes);
            claims
        };
        let good = claims(json!({}));
        let verify = |token: &str| keys.verify(token, cluster, now);
        let caller = verify(&signed(&own, Some("a"), &good)).unwrap();
        assert_eq!((caller.subject.as_str(), caller.roles.len()), ("somebody", 0));
        assert_eq!(caller.organizations[0].organization, cluster.organization);
        let roles = claims(json!({"metadata": {"https://containership.io/roles": ["terminate"]}}));
        assert_eq!(verify(&signed(&own, Some("a"), &roles)).unwrap().roles, ["terminate"]);
        // What the token itself says of organizations proves nothing.
        let other = json!([{"id": ID, "role": "owner"}]);
        let caller = verify(&signed(&own, Some("a"), &claims(json!({"organizations": other})))).unwrap();
        assert_eq!((caller.organizations.len(), &caller.organizations[0].role), (1, &None));

        let hmac = encode(&Header::new(Algorithm::HS256), &good, &EncodingKey::from_secret(b"a")).unwrap();
        for (name, token) in [
            ("another key", signed(&strange, Some("a"), &good)),
            ("an unknown key", signed(&own, Some("b"), &good)),
            ("no key", signed(&own, None, &good)),
            (
                "expired",
                signed(&own, Some("a"), &claims(json!({"exp": now.as_second()}))),
            ),
            ("never expires", signed(&own, Some("a"), &claims(json!({"exp": null})))),
            (
                "not valid yet",
                signed(&own, Some("a"), &claims(json!({"nbf": now.as_second() + 61}))),
            ),
            (
                "for the cloud",
                signed(&own, Some("a"), &claims(json!({"aud": "https://cloud.example.com"}))),
            ),
            ("for nobody", signed(&own, Some("a"), &claims(json!({"aud": null})))),
            (
                "for another cluster",
                signed(
                    &own,
                    Some("a"),
                    &claims(json!({"aud": format!("{CLUSTER_AUDIENCE}{}", cluster.organization)})),
                ),
            ),
            (
                "long",
                signed(&own, Some("a"), &claims(json!({"more": "a".repeat(MAX_TOKEN)}))),
            ),
            ("HMAC", hmac),
            ("garbage", "a.b.c".to_owned()),
        ] {
            assert_eq!(verify(&token), None, "{name}");
        }
    }

    const ID: &str = "22222222-2222-4222-8222-222222222222";

    fn said(json: &str) -> Caller {
        serde_json::from_str::<Said>(json).unwrap().into()
    }

    #[test]
    fn a_token_for_a_cluster_is_for_no_other() {
        let of = |audiences: &[&str]| audience(&audiences.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let cluster = format!("{CLUSTER_AUDIENCE}{ID}");
        assert_eq!(of(&[]), Audience::Cloud);
        assert_eq!(of(&["https://cloud.example.com"]), Audience::Cloud);
        assert_eq!(of(&[&cluster]), Audience::Cluster(ID.parse().unwrap()));
        assert_eq!(
            of(&["https://cloud.example.com", &cluster]),
            Audience::Cluster(ID.parse().unwrap())
        );
        assert_eq!(of(&[&cluster, &cluster]), Audience::Unknown);
        assert_eq!(of(&[&format!("{cluster}/")]), Audience::Unknown);
    }

    #[test]
    fn what_is_not_said_is_not_assumed() {
        assert_eq!(said("{}"), Caller::default());
        let caller = said(
            r#"{"sub":"s","aud":7,"organizations":[{"id":"acme","role":"owner"}],"metadata":{"https://containership.io/roles":{"terminate":true}}}"#,
        );
        assert_eq!((caller.organizations, caller.roles), (vec![], vec![]));
        let caller = said(r#"{"metadata":{"https://containership.io/roles":"terminate"}}"#);
        assert_eq!(caller.roles, ["terminate"]);
        assert!(serde_json::from_str::<Said>(r#"{"organizations":"all"}"#).is_err());
    }
}
