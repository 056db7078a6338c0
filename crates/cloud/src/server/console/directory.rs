//! The paths of organizations.

use crate::client::Path;

/// The path of an organization in the API.
pub(super) fn organization(id: &str) -> Path {
    Path::new(["organizations", id])
}
