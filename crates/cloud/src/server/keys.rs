//! Keys, and what they encrypt, sign and hash.

pub mod codes;
pub mod hash;
pub(super) mod script_keys;
pub mod sealing;
pub mod secret_file;
pub mod signing;
pub mod token;
