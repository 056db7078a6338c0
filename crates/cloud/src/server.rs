//! The server of the cloud API: who may speak to it, and what it keeps secret.
//!
//! No error, `Debug` or log line of it holds a key, a password or a token.

pub mod access;
mod document;
pub mod endpoints;
pub mod hash;
pub mod kind;
pub mod principal;
pub mod refusal;
pub mod sealing;
pub mod secret_file;
pub mod signing;
pub mod store;
pub mod token;
