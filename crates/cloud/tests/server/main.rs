//! The server as its clients see it, on a real database, over real connections.

mod described;
mod first_steps;
mod kubernetes;
mod schemathesis;
mod world;
