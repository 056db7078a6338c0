//! Container registries and the credentials with which a cluster pulls from them.

use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::values::{Address, Description, Email, OrganizationId, RegistryId, UnixMillis, UserId, words};
use super::{Credentials, Facts, Fields, InvalidField, Kind, Model, Resource, schema};

words! {
    /// The kind of registry, which determines how credentials become a pull secret.
    RegistryProvider, "provider of a registry" {
        /// ECR; a token is asked for with the credentials.
        AmazonEc2Registry = "amazon_ec2_registry",
        /// GCR, with a JSON key.
        GoogleRegistry = "google_registry",
        /// ACR, with `username` and `password`.
        Azure = "azure",
        /// Docker Hub, with `username` and `password`.
        Dockerhub = "dockerhub",
        /// Quay, with `username` and `password`.
        Quay = "quay",
        /// Any other, with `username` and `password`.
        Private = "private",
    }
}

impl RegistryProvider {
    fn takes_password(self) -> bool {
        match self {
            Self::AmazonEc2Registry | Self::GoogleRegistry => false,
            Self::Azure | Self::Dockerhub | Self::Quay | Self::Private => true,
        }
    }
}

/// The settings of a registry. `Serialize` omits the credentials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegistrySpec {
    pub description: Description,
    pub provider: RegistryProvider,
    pub serveraddress: Address,
    pub email: Option<Email>,
    #[serde(skip)]
    pub credentials: Credentials,
}

/// A registry, with its credentials for callers who may see them.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Registry {
    pub id: RegistryId,
    pub added_at: Option<UnixMillis>,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub organization_id: OrganizationId,
    pub owner: Option<UserId>,
    #[serde(flatten)]
    pub spec: RegistrySpec,
}

impl ToSchema for RegistrySpec {}

/// Written by hand, because the derive omits fields that serde skips.
impl PartialSchema for RegistrySpec {
    fn schema() -> RefOr<Schema> {
        let spec = schema::object("The settings of a registry.")
            .property("description", schema::nullable::<Description>())
            .property("provider", RegistryProvider::schema())
            .property("serveraddress", Address::schema())
            .property("email", schema::nullable::<Email>())
            .property("credentials", schema::nullable::<Credentials>());
        spec.required("provider").required("serveraddress").into()
    }
}

impl RegistrySpec {
    fn read(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            description: fields.or_default("description")?,
            provider: fields.required("provider")?,
            serveraddress: fields.required("serveraddress")?,
            email: fields.optional("email")?,
            credentials: fields.or_default("credentials")?,
        })
    }

    /// Checks that the credentials can become a pull secret.
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        if !self.provider.takes_password() {
            return Ok(());
        }
        for name in ["username", "password"] {
            if self.credentials.get(name).is_none() {
                let reason = format!("must have username and password for the provider {}", self.provider);
                return Err(fields.invalid("credentials", reason));
            }
        }
        // They are joined by ':' and encoded, so a ':' in the name would make part of it the password.
        let username = self.credentials.get("username").map_or("", |name| name.expose());
        if username.contains(':') || username.chars().any(char::is_control) {
            return Err(fields.invalid("credentials", "must have a username without ':' and control characters"));
        }
        Ok(())
    }
}

impl Resource for RegistrySpec {
    type Object = Registry;

    const FACTS: Facts = Facts {
        tag: "Registries",
        generated: &["id", "added_at", "created_at", "updated_at", "organization_id", "owner"],
        // Several credentials of one address are permitted: the description distinguishes them.
        key: &["serveraddress", "description"],
        columns: &["serveraddress", "provider", "description"],
        about: "Container registries",
        aliases: &["registry"],
        ..Facts::of::<Self>(Kind::Registry, "registries", &[Kind::Organization])
    };

    fn credentials(&self) -> Option<&Credentials> {
        Some(&self.credentials)
    }
}

impl Model for RegistrySpec {
    const KIND: &'static str = "a registry";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let spec = Self::read(fields)?;
        spec.check(fields)?;
        Ok(spec)
    }
}

impl Model for Registry {
    const KIND: &'static str = RegistrySpec::KIND;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let spec = RegistrySpec::read(fields)?;
        // Callers without permission get `{}` as credentials, all others get all of them.
        if !spec.credentials.revealed().is_empty() {
            spec.check(fields)?;
        }
        Ok(Self {
            id: fields.required("id")?,
            added_at: fields.optional("added_at")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            organization_id: fields.required("organization_id")?,
            owner: fields.optional("owner")?,
            spec,
        })
    }
}
