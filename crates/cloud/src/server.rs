//! The server of the cloud API.
//!
//! No error, `Debug` output or log line contains a key, a password or a token.
//!
//! Each room uses only those before it: `error` and `refusal`, `keys`, `local_authority` and `acme`, `principal`,
//! `store`, `http`, `access`, `auth`, `openapi`, `oidc`, `state`, `routes`, `console`; then `router`, `serve`, `init`
//! and `recover`, which make a server of them. Only `error` names one that is behind it, the error of the store.

#![expect(missing_docs, reason = "a field or an error that its name explains has no comment")]

mod access;
mod acme;
mod auth;
mod console;
mod digest;
mod error;
pub mod http;
mod init;
pub mod keys;
mod local_authority;
mod oidc;
pub mod openapi;
pub mod principal;
mod recover;
pub mod refusal;
mod reseal;
mod router;
pub mod routes;
mod serve;
mod settings;
mod state;
pub mod store;

pub use acme::AcmeSettings;
pub use error::Error;
pub use http::client_address::TrustedProxies;
pub use http::limits::LimitSettings;
pub use init::{InitOptions, InitSummary, create_organization, has_organization, make_keys};
pub use local_authority::{LocalAuthority, LocalAuthorityError, certificate_name};
pub use oidc::{ProviderSettings, ProvisionSettings, SignInSettings};
pub use recover::{RecoverOptions, RecoverSummary, recover};
pub use routes::LONGEST_TOKEN;
pub use serve::{DRAIN, ServeError, start};
pub use settings::{CertificateSource, ServerParts, TokenLifetimes};
