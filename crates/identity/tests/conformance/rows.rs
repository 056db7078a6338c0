//! The rows, by what they are about.

pub(crate) mod cancellation;
pub(crate) mod cost;
pub(crate) mod identity;
pub(crate) mod poison;
pub(crate) mod throttling;
pub(crate) mod trouble;
pub(crate) mod unchecked;
pub(crate) mod zones;
