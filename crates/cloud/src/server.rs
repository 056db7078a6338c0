//! The server of the cloud API.
//!
//! No error, `Debug` output or log line contains a key, a password or a token.

pub mod access;
mod accounts;
mod body;
mod call;
mod catalogue;
mod cloud;
mod clusters;
mod digest;
mod documents;
pub mod endpoints;
mod error;
mod guesses;
pub mod hash;
mod http;
mod identity;
mod init;
mod keys;
mod limits;
mod lists;
mod login;
mod members;
mod metrics;
mod old_paths;
pub mod openapi;
mod operators;
mod organizations;
pub mod principal;
mod proxies;
pub mod refusal;
mod remember;
mod reseal;
mod resources;
mod roles;
mod rules;
mod script_templates;
mod scripts;
pub mod sealing;
pub mod secret_file;
mod serve;
pub mod signing;
mod source;
pub mod store;
mod stream;
mod ties;
pub mod token;
mod users;
mod view;

pub use accounts::LONGEST_TOKEN;
pub use cloud::TokenLifetimes;
pub use error::Error;
pub use init::{InitOptions, InitSummary, found, is_founded, make_keys};
pub use limits::LimitSettings;
pub use proxies::TrustedProxies;
pub use serve::{DRAIN, ServeError, ServerParts, start};
