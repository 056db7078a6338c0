//! The clouds of kOps, and those that this version supports.

use std::fmt;

use crate::document::{Field, InvalidFile};

/// The clouds that kOps supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is the name of a product")]
pub enum Cloud {
    Aws,
    Gce,
    Openstack,
    DigitalOcean,
    Hetzner,
    Azure,
    Scaleway,
    Metal,
    Linode,
}

impl Cloud {
    const ALL: [Self; 9] = [
        Self::Aws,
        Self::Gce,
        Self::Openstack,
        Self::DigitalOcean,
        Self::Hetzner,
        Self::Azure,
        Self::Scaleway,
        Self::Metal,
        Self::Linode,
    ];

    /// The clouds that this version supports, in words.
    pub const SUPPORTED: &'static str = "this version of Tidewaiter supports aws, gce and hetzner only";

    /// Returns true if this version supports the cloud.
    #[must_use]
    pub fn is_supported(self) -> bool {
        matches!(self, Self::Aws | Self::Gce | Self::Hetzner)
    }

    /// The name that kOps uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Gce => "gce",
            Self::Openstack => "openstack",
            Self::DigitalOcean => "digitalocean",
            Self::Hetzner => "hetzner",
            Self::Azure => "azure",
            Self::Scaleway => "scaleway",
            Self::Metal => "metal",
            Self::Linode => "linode",
        }
    }

    pub(crate) fn read(field: &Field<'_>) -> Result<Self, InvalidFile> {
        let text = field.text(&Self::allowed())?;
        Self::named(text).ok_or_else(|| field.must_be(&Self::allowed()))
    }

    /// Like [`read`](Self::read), but also accepts a mapping with the cloud as its only key, as newer kOps versions
    /// write it.
    pub(crate) fn read_or_key(field: &Field<'_>) -> Result<Self, InvalidFile> {
        let Ok(mapping) = field.mapping("") else {
            return Self::read(field);
        };
        let keys: Vec<_> = mapping.keys().collect();
        let known = match keys[..] {
            [key] => Self::named(key),
            _ => None,
        };
        known.ok_or_else(|| field.must_be(&Self::allowed()))
    }

    fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cloud| cloud.as_str() == text)
    }

    pub(crate) fn allowed() -> String {
        let supported = Self::ALL.into_iter().filter(|cloud| cloud.is_supported());
        format!("one of {}", supported.map(Self::as_str).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
