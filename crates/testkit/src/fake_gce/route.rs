//! Finds the method for a path.

use http::Method;

/// A call of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    GetInstance { zone: String, name: String },
    ListZone { zone: String },
    ListAllZones,
    ListAllGroups,
    ListZonalGroup { zone: String, name: String },
    ListRegionalGroup { region: String, name: String },
    GetGlobalTemplate { name: String },
    GetRegionalTemplate { region: String, name: String },
}

impl Route {
    /// Reads the path, `/compute/v1/projects/…`: the project, and the method.
    pub(super) fn read(method: &Method, path: &str) -> Option<(String, Self)> {
        let parts: Vec<&str> = path.strip_prefix("/compute/v1/projects/")?.split('/').collect();
        let (project, rest) = parts.split_first()?;
        let text = |part: &&str| (*part).to_owned();
        let route = match (method, rest) {
            (&Method::GET, ["aggregated", "instances"]) => Self::ListAllZones,
            (&Method::GET, ["aggregated", "instanceGroupManagers"]) => Self::ListAllGroups,
            (&Method::GET, ["zones", zone, "instances"]) => Self::ListZone { zone: text(zone) },
            (&Method::GET, ["zones", zone, "instances", name]) => Self::GetInstance {
                zone: text(zone),
                name: text(name),
            },
            (&Method::POST, ["zones", zone, "instanceGroupManagers", name, "listManagedInstances"]) => {
                Self::ListZonalGroup {
                    zone: text(zone),
                    name: text(name),
                }
            }
            (&Method::POST, ["regions", region, "instanceGroupManagers", name, "listManagedInstances"]) => {
                Self::ListRegionalGroup {
                    region: text(region),
                    name: text(name),
                }
            }
            (&Method::GET, ["global", "instanceTemplates", name]) => Self::GetGlobalTemplate { name: text(name) },
            (&Method::GET, ["regions", region, "instanceTemplates", name]) => Self::GetRegionalTemplate {
                region: text(region),
                name: text(name),
            },
            _ => return None,
        };
        Some(((*project).to_owned(), route))
    }

    pub(super) fn api(&self) -> &'static str {
        match self {
            Self::GetInstance { .. } => "instances.get",
            Self::ListZone { .. } => "instances.list",
            Self::ListAllZones => "instances.aggregatedList",
            Self::ListAllGroups => "instanceGroupManagers.aggregatedList",
            Self::ListZonalGroup { .. } => "instanceGroupManagers.listManagedInstances",
            Self::ListRegionalGroup { .. } => "regionInstanceGroupManagers.listManagedInstances",
            Self::GetGlobalTemplate { .. } => "instanceTemplates.get",
            Self::GetRegionalTemplate { .. } => "regionInstanceTemplates.get",
        }
    }

    /// Returns the name in the call; None when it is for all zones.
    pub(super) fn what(&self) -> Option<String> {
        match self {
            Self::GetInstance { zone: place, name }
            | Self::ListZonalGroup { zone: place, name }
            | Self::ListRegionalGroup { region: place, name }
            | Self::GetRegionalTemplate { region: place, name } => Some(format!("{place}/{name}")),
            Self::GetGlobalTemplate { name } => Some(format!("global/{name}")),
            Self::ListZone { zone } => Some(zone.clone()),
            Self::ListAllZones | Self::ListAllGroups => None,
        }
    }

    pub(super) fn zone(&self) -> Option<&str> {
        match self {
            Self::GetInstance { zone, .. } | Self::ListZone { zone } | Self::ListZonalGroup { zone, .. } => Some(zone),
            _ => None,
        }
    }
}
