//! The conversion of a registry's credentials for a container runtime, by provider.
//!
//! No error and no `Debug` shows a value: they name the field.

use std::collections::BTreeMap;

use serde_json::Value;
use tidewaiter_api::containership::RegistrySpec;
use tidewaiter_api::names::secret_keys;
use tidewaiter_api::values::{SecretText, quoted};

use super::address::{DOCKER_HUB, InvalidAddress, ServerAddress};
use super::stored::SecretData;
use crate::digest::Digest;

const DEFAULT_REGION: &str = "us-east-1";

/// ECR Public, which has an API of its own.
const ECR_PUBLIC: &str = "public.ecr.aws";

/// The domains of ECR in the partitions of AWS, as in the patterns of its public clients.
const ECR_DOMAINS: [&str; 9] = [
    ".amazonaws.com",
    ".amazonaws.eu",
    ".amazonaws.com.cn",
    ".on.aws",
    ".on.amazonwebservices.com.cn",
    ".sc2s.sgov.gov",
    ".c2s.ic.gov",
    ".cloud.adc-e.uk",
    ".csp.hci.ic.gov",
];

/// The labels behind which a name of ECR has its region.
const ECR_LABELS: [&str; 4] = ["ecr", "ecr-fips", "dkr-ecr", "dkr-ecr-fips"];

/// The account of Google's registries that takes a JSON key for a password.
const JSON_KEY_ACCOUNT: &str = "_json_key";

/// The cloud's description of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) provider: String,
    pub(super) serveraddress: String,
    pub(super) email: String,
    pub(super) credentials: BTreeMap<String, SecretText>,
}

impl From<RegistrySpec> for Source {
    fn from(spec: RegistrySpec) -> Self {
        Self {
            provider: spec.provider,
            serveraddress: spec.serveraddress,
            email: spec.email,
            credentials: spec.credentials,
        }
    }
}

/// The way to authenticate at a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    /// With a name and a password.
    Password(Login),
    /// With a token that ECR gives and that expires.
    Ecr(EcrLogin),
}

/// A name and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) address: ServerAddress,
    pub(super) username: SecretText,
    pub(super) password: SecretText,
    pub(super) email: String,
    /// The old form of a pull secret: `kubernetes.io/dockercfg`.
    pub(super) old_form: bool,
}

/// A key of AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EcrLogin {
    /// Besides the address that ECR names.
    pub(super) address: Option<ServerAddress>,
    pub(super) region: String,
    pub(super) access_key_id: SecretText,
    pub(super) secret_access_key: SecretText,
    pub(super) session_token: Option<SecretText>,
    pub(super) email: String,
}

/// The credentials of a registry are not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSource {
    #[error("its Secret in containership-core has no {0} that is text")]
    Field(&'static str),
    #[error("credentials.json must be a JSON object of texts (its content is not shown)")]
    Credentials,
    #[error("the spec of the Registry does not have the form that its definition describes (it is not shown)")]
    Spec,
    #[error("{0}")]
    Address(#[from] InvalidAddress),
    #[error("serveraddress is {0}, which is a host of Docker without images: write https://index.docker.io/v1/")]
    BesideDockerHub(String),
    #[error("provider is {0}: must be amazon_ec2_registry, google_registry, azure, dockerhub, quay or private")]
    Provider(String),
    #[error("the credentials for the provider {provider} must have {field} (the value is not shown)")]
    Missing { provider: String, field: &'static str },
    #[error(
        "serveraddress is {address}, in the region {expected}, but the region in the credentials is {given}, whose tokens are refused there: leave it out"
    )]
    OtherRegion {
        address: String,
        expected: String,
        given: String,
    },
    #[error(
        "serveraddress is public.ecr.aws, for which the provider amazon_ec2_registry has no token: its images are pulled without a credential, so delete the registry"
    )]
    EcrPublic,
    #[error("the region in the credentials must be lower-case letters, digits and '-', for example us-east-1")]
    Region,
}

/// Checks that a pull secret can be made of a registry, before the cloud stores it.
///
/// # Errors
/// What is wrong, without the values of the credentials.
pub fn check_registry(provider: &str, serveraddress: &str, credentials: &Value) -> Result<(), String> {
    let source = Source {
        provider: provider.to_owned(),
        serveraddress: serveraddress.to_owned(),
        email: String::new(),
        credentials: serde_json::from_value(credentials.clone()).map_err(|_| "credentials must be texts".to_owned())?,
    };
    source.credential().map(drop).map_err(|error| error.to_string())
}

impl Source {
    /// From the data of the Secret that the mirror writes.
    pub(super) fn of_data(data: &SecretData) -> Result<Self, InvalidSource> {
        let text = |key| data.get(key).and_then(|bytes| str::from_utf8(&bytes.0).ok());
        let field = |key| text(key).map(str::to_owned).ok_or(InvalidSource::Field(key));
        let credentials = data.get(secret_keys::CREDENTIALS).ok_or(InvalidSource::Credentials)?;
        Ok(Self {
            provider: field(secret_keys::PROVIDER)?,
            serveraddress: field(secret_keys::SERVER_ADDRESS)?,
            email: text(secret_keys::EMAIL).unwrap_or_default().to_owned(),
            // The errors of serde quote what they refuse.
            credentials: serde_json::from_slice(&credentials.0).map_err(|_| InvalidSource::Credentials)?,
        })
    }

    /// From the Registry itself.
    pub(super) fn of_spec(spec: &Value) -> Result<Self, InvalidSource> {
        let spec: RegistrySpec = serde_json::from_value(spec.clone()).map_err(|_| InvalidSource::Spec)?;
        Ok(spec.into())
    }

    /// The credential that its provider requires.
    pub(super) fn credential(&self) -> Result<Credential, InvalidSource> {
        match self.provider.to_ascii_lowercase().as_str() {
            "amazon_ec2_registry" => self.ecr().map(Credential::Ecr),
            "google_registry" => self.google().map(Credential::Password),
            "dockerhub" => self.docker_hub().map(Credential::Password),
            "quay" => self.password(Some("quay.io")).map(Credential::Password),
            "azure" | "private" => self.password(None).map(Credential::Password),
            _ => Err(InvalidSource::Provider(quoted(&self.provider))),
        }
    }

    fn password(&self, default: Option<&str>) -> Result<Login, InvalidSource> {
        let username = self.required("username", &["username"])?;
        let is_name = |name: &str| !name.contains(':') && !name.chars().any(char::is_control);
        if !is_name(username.expose()) {
            return Err(self.missing("a username without ':' and control characters"));
        }
        Ok(Login {
            address: self.address(default)?,
            username,
            password: self.required("password", &["password"])?,
            email: self.email.clone(),
            old_form: false,
        })
    }

    fn docker_hub(&self) -> Result<Login, InvalidSource> {
        let login = self.password(Some(DOCKER_HUB))?;
        if login.address.is_beside_docker_hub() {
            return Err(InvalidSource::BesideDockerHub(login.address.to_string()));
        }
        Ok(login)
    }

    /// The JSON key of a Google service account is the one value that is a JSON object. In the old form, the fields of
    /// the key are the credentials.
    fn google(&self) -> Result<Login, InvalidSource> {
        let is_object =
            |text: &&SecretText| serde_json::from_str::<Value>(text.expose()).is_ok_and(|value| value.is_object());
        let key = self
            .credentials
            .values()
            .find(is_object)
            .cloned()
            .or_else(|| self.key_of_fields())
            .or_else(|| self.credentials.get("password").cloned());
        let username = self
            .credentials
            .get("username")
            .filter(|name| !name.expose().is_empty());
        Ok(Login {
            address: self.address(None)?,
            username: username.cloned().unwrap_or_else(|| JSON_KEY_ACCOUNT.to_owned().into()),
            password: key.ok_or_else(|| self.missing("the JSON key of a service account"))?,
            email: self.email.clone(),
            old_form: true,
        })
    }

    /// The JSON key of which the credentials are the fields.
    fn key_of_fields(&self) -> Option<SecretText> {
        let is_key = ["client_email", "private_key"].iter().all(|field| {
            self.credentials
                .get(*field)
                .is_some_and(|value| !value.expose().is_empty())
        });
        let fields = self.credentials.iter().filter(|(name, _)| *name != "username");
        let fields = || fields.map(|(name, value)| (name.clone(), value.expose().into()));
        is_key.then(|| Value::Object(fields().collect()).to_string().into())
    }

    fn ecr(&self) -> Result<EcrLogin, InvalidSource> {
        let address = match self.serveraddress.as_str() {
            "" => None,
            text => Some(ServerAddress::parse(text)?),
        };
        let domain = address.as_ref().and_then(ServerAddress::domain);
        if domain == Some(ECR_PUBLIC) {
            return Err(InvalidSource::EcrPublic);
        }
        let given = self.find(&["region"]).map(SecretText::expose);
        let expected = domain.and_then(region_of);
        let region = given.or(expected).unwrap_or(DEFAULT_REGION).to_owned();
        let is_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=32).contains(&region.len()) || !region.bytes().all(is_region) {
            return Err(InvalidSource::Region);
        }
        if let (Some(expected), Some(address)) = (expected, &address)
            && expected != region
        {
            return Err(InvalidSource::OtherRegion {
                address: address.to_string(),
                expected: expected.to_owned(),
                given: region,
            });
        }
        Ok(EcrLogin {
            address,
            region,
            access_key_id: self.required("access_key_id", &["accesskeyid", "accesskey", "key"])?,
            secret_access_key: self.required("secret_access_key", &["secretaccesskey", "secretkey", "secret"])?,
            session_token: self.find(&["sessiontoken"]).cloned(),
            email: self.email.clone(),
        })
    }

    fn address(&self, default: Option<&str>) -> Result<ServerAddress, InvalidSource> {
        let text = match (self.serveraddress.as_str(), default) {
            ("", Some(default)) => default,
            (text, _) => text,
        };
        Ok(ServerAddress::parse(text)?)
    }

    fn required(&self, field: &'static str, names: &[&str]) -> Result<SecretText, InvalidSource> {
        self.find(names).cloned().ok_or_else(|| self.missing(field))
    }

    /// The value under one of these names; `AWS_ACCESS_KEY_ID`, `access-key-id` and `accessKeyId` are one.
    fn find(&self, names: &[&str]) -> Option<&SecretText> {
        let plain = |name: &str| {
            let name = name.to_ascii_lowercase().replace(['_', '-'], "");
            name.strip_prefix("aws").map_or_else(|| name.clone(), str::to_owned)
        };
        let mut found = self
            .credentials
            .iter()
            .filter(|(name, _)| names.contains(&plain(name).as_str()));
        found
            .find(|(_, value)| !value.expose().is_empty())
            .map(|(_, value)| value)
    }

    fn missing(&self, field: &'static str) -> InvalidSource {
        InvalidSource::Missing {
            provider: self.provider.clone(),
            field,
        }
    }
}

/// The region of a name of ECR: `ACCOUNT.dkr.ecr.REGION.amazonaws.com`, `ACCOUNT.dkr-ecr.REGION.on.aws`, or the name of
/// an endpoint in a VPC.
fn region_of(domain: &str) -> Option<&str> {
    let is_ecr = ECR_DOMAINS.iter().any(|suffix| domain.ends_with(suffix));
    let mut labels = domain
        .split('.')
        .skip_while(|label| !ECR_LABELS.contains(label))
        .skip(1);
    labels.next().filter(|_| is_ecr)
}

impl EcrLogin {
    /// The digest of the token's inputs.
    pub(super) fn digest(&self) -> Digest {
        let address = self.address.as_ref().map_or("", |address| address.key());
        let token = self.session_token.as_ref().map_or("", SecretText::expose);
        Digest::of([
            address,
            &self.region,
            self.access_key_id.expose(),
            self.secret_access_key.expose(),
            token,
            &self.email,
        ])
    }
}

#[cfg(test)]
mod tests;
