//! The names that nearly every handler uses.

pub(super) use axum::response::{IntoResponse as _, Response};
pub(super) use http::StatusCode;
pub(super) use serde_json::{Map, Value, json};
pub(super) use uuid::Uuid;

pub(super) use super::idempotency::{create_idempotent, write};
pub(super) use super::representation::{shown, unix_millis};
pub(super) use crate::models::Kind;
pub(super) use crate::server::Error;
pub(super) use crate::server::access::resource_path::ResourcePath;
pub(super) use crate::server::digest::uuid;
pub(super) use crate::server::http::call::{Call, object};
pub(super) use crate::server::http::response::{Reply, respond, text};
pub(super) use crate::server::principal::{OrgRole, Principal};
pub(super) use crate::server::refusal::Refusal;
pub(super) use crate::server::state::AppState;
pub(super) use crate::server::store::{Listed, References, Row, Source, Transaction};
