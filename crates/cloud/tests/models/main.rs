//! Every kind of the API against one table of examples: what is read is written as it was, what is wrong is refused by
//! the name of its field, and nothing shows a secret.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod kinds;
mod reasons;
mod refusals;
mod round_trips;
mod samples;
mod schemas;
