//! The server as its clients see it, on a real database, over real connections.

mod first_steps;
mod world;
