//! Access control: the permission that an endpoint requires, and the checks that depend on stored objects.

pub(super) mod operators;
pub(super) mod organizations;
pub(super) mod permission;
pub(super) mod resource_path;
pub(super) mod users;
