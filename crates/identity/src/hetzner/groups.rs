//! The servers of a cluster by InstanceGroup. Hetzner Cloud has no groups: as in kOps, the label of each server names
//! its InstanceGroup, whose sizes count.
//!
//! A project may make 3,600 calls an hour, and a listing has 50 servers per page. So the listing of a large cluster
//! answers several queries: each replica of the controller, which queries every 25 s, reads a page every 12 s at most.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tidewaiter_api::InstanceGroupName;

use super::Hetzner;
use super::server::member;
use crate::groups::{CloudGroup, CloudGroups, GroupsUnavailable, Member, Sizes, in_time};

/// For so many pages a listing answers one query.
const PAGES_PER_QUERY: u32 = 2;

/// The last listing.
#[derive(Debug, Default)]
pub(super) struct Listed {
    groups: Vec<CloudGroup>,
    /// The number of queries that it still answers.
    left: u32,
}

impl Hetzner {
    async fn ask(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        let mut listed = self.groups.lock().await;
        if listed.left > 0 {
            listed.left -= 1;
            return Ok(listed.groups.clone());
        }
        let (servers, pages) = self
            .caller
            .all(&self.selector)
            .await
            .map_err(|failure| failure.refusal())?;
        let mut members: BTreeMap<InstanceGroupName, Vec<Member>> = BTreeMap::new();
        for (id, server) in &servers {
            if let Some((instance_group, member)) = member(*id, server, &self.cluster)? {
                members.entry(instance_group).or_default().push(member);
            }
        }
        let groups = members.into_iter().map(|(instance_group, members)| CloudGroup {
            name: instance_group.to_string(),
            instance_group,
            role: None,
            sizes: Sizes::OfInstanceGroup,
            members,
        });
        *listed = Listed {
            groups: groups.collect(),
            left: pages.div_ceil(PAGES_PER_QUERY).saturating_sub(1),
        };
        Ok(listed.groups.clone())
    }
}

#[async_trait]
impl CloudGroups for Hetzner {
    async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        in_time(self.ask()).await
    }

    fn location(&self) -> Option<String> {
        Some("the project of the token on Hetzner Cloud".to_owned())
    }
}
