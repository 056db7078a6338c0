//! The kinds that the role caches, as much of each as its controllers read.

mod node;
mod record;

pub use node::Node;
pub use record::Record;
