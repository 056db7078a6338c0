//! The server of the cloud API: who may speak to it, and what it keeps secret.

pub mod access;
mod document;
pub mod endpoints;
pub mod kind;
pub mod principal;
pub mod refusal;
pub mod store;
