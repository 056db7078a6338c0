//! The cloud's server as its operator runs it: the real binary, on SQLite and on PostgreSQL.

mod copies;
mod crashes;
mod keys;
mod ledger;
mod refusals;
mod secrets;
mod starts;
mod world;
