//! The clouds, each a fixture.

pub(crate) mod aws;
pub(crate) mod gce;
pub(crate) mod hetzner;
pub(crate) mod moto;
