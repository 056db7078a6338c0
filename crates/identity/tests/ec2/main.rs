//! The EC2 provider through the real SDK: against a fake of our own, for every fault, and against moto, which others wrote.

mod fake;
mod moto;
mod setup;
