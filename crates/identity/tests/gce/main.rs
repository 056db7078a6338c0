//! The GCE provider through the real client, against a fake of our own that words its answers as Compute Engine does.

mod chain;
mod cost;
mod setup;
mod trouble;
mod zones;
