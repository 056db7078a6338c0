//! Authentication: the callers of requests, and their passwords.

pub(super) mod authenticator;
pub(super) mod guesses;
pub(super) mod loopback;
pub(super) mod passwords;
pub(super) mod signed_in;
pub(super) mod webauthn;
