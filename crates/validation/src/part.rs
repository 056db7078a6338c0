//! A part of an observation, known or not.

use std::fmt::Display;

/// A part of the observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<T> {
    /// Completely observed.
    Known(T),
    /// Not observed, or incomplete; with the reason in words.
    Unknown(String),
}

impl<T> Part<T> {
    /// The part with `map` applied to its value.
    #[must_use]
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Part<U> {
        match self {
            Self::Known(value) => Part::Known(map(value)),
            Self::Unknown(reason) => Part::Unknown(reason),
        }
    }
}

impl<T, E: Display> From<Result<T, E>> for Part<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}
