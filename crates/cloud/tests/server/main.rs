//! The server as its clients see it, on a real database, over real connections.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests, and what only they use: a test is one story"
)]

mod access;
mod api_rows;
mod browser;
mod catalogue;
mod console;
mod console_organizations;
mod console_pages;
mod console_people;
mod console_sessions;
mod cursors;
mod decisions;
mod described;
mod ends;
mod errors;
mod escalation;
mod etags;
mod fake_provider;
mod faults;
mod fire;
mod first_steps;
mod fixture;
mod homes;
mod invitations;
mod kubernetes;
mod large;
mod locked;
mod login_grants;
mod logins;
mod made;
mod membership_ends;
mod model;
mod names;
mod observed;
mod old_clients;
mod old_types;
mod older_version;
mod operators;
mod proxy;
mod quotas;
mod recover;
mod references;
mod refusals;
mod removals;
mod removed_keys;
mod reports;
mod requests;
mod schemathesis;
mod scopes;
mod scripts;
mod second_factor;
mod secrets_once;
mod service_accounts;
mod sign_in;
mod signed;
mod silent;
mod single_flight;
mod sole_keys;
mod stored;
mod stores;
mod stream;
mod token_quotas;
mod world;
