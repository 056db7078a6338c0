//! The calls of the Compute Engine API, each counted and with a timeout, and the pagination.
//!
//! Every call contains the id of our project; the rest is names according to RFC 1035 and tokens from Compute Engine.

use std::collections::{HashMap, HashSet};

use google_cloud_compute_v1::model::{
    Instance, InstanceGroupManager, InstanceGroupManagersScopedList, ManagedInstance,
    instance_group_managers_scoped_list, instance_list, instances_scoped_list,
};
use google_cloud_gax::error::Error;
use tidewaiter_api::ClusterName;
use tidewaiter_kit::CloudCalls;
use tracing::debug;

use super::api;
use super::connect::Client;
use super::group::{Group, Members};
use super::instance::{self, Found, last};
use super::links::{Mig, Place, TemplateLink};
use super::names::{Name, ProjectId, Target, Zone};
use crate::failure::Failure;
use crate::page_tokens::PageTokens;
use crate::refusal::{Refusal, UnavailableCause};

/// The maximum page size.
const PAGE: u32 = 500;

/// The maximum number of pages: 100,000 rows, several times what a cluster can have.
const MAX_PAGES: usize = 200;

/// The detail for a zone that a listing leaves out.
pub(super) const NOT_REACHABLE: &str = "the zone is unreachable";

const AGGREGATED_KIND: &str = "compute#instanceAggregatedList";
const GROUPS_KIND: &str = "compute#instanceGroupManagerAggregatedList";
const LIST_KIND: &str = "compute#instanceList";

#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    project: ProjectId,
    cluster: ClusterName,
    calls: CloudCalls,
}

/// An instance as read from a response. Unused data, such as its startup script, is dropped at once.
pub(super) type Reading = Result<Found, Refusal>;

/// The requested instances in a listing.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The instances, each with all its rows.
    pub(super) listed: HashMap<Target, Vec<Reading>>,
    /// The zones that the listing left out.
    pub(super) silent: HashSet<String>,
}

/// A page of a listing: its rows, and the token of the next page.
type Page<T> = (T, Option<String>);

impl Caller {
    pub(super) fn new(client: Client, project: ProjectId, cluster: ClusterName, calls: CloudCalls) -> Self {
        Self {
            client,
            project,
            cluster,
            calls,
        }
    }

    pub(super) fn project(&self) -> &ProjectId {
        &self.project
    }

    /// Reads one instance by name.
    pub(super) async fn instance(&self, target: &Target) -> Result<Reading, Failure> {
        let call = self.client.instances.get();
        let call = call
            .set_project(self.project.as_str())
            .set_zone(target.zone.as_str())
            .set_instance(target.name.as_str());
        let instance = self.counted(api::GET_INSTANCE, call.send()).await?;
        Ok(self.read(api::GET_INSTANCE, target, &instance))
    }

    fn read(&self, api: &'static str, target: &Target, instance: &Instance) -> Reading {
        instance::read(api, target, instance, &self.project, &self.cluster)
    }

    /// Adds the wanted rows of a page of `zone`.
    fn take(&self, api: &'static str, zone: &Zone, page: Vec<Instance>, wanted: &HashSet<&Target>, into: &mut Listing) {
        for instance in page {
            let Some(name) = instance.name.as_deref().and_then(Name::parse) else {
                continue;
            };
            let target = Target {
                zone: zone.clone(),
                name,
            };
            if wanted.contains(&target) {
                let reading = self.read(api, &target, &instance);
                into.listed.entry(target).or_default().push(reading);
            }
        }
    }

    /// Lists all zones in one listing.
    ///
    /// The client cannot request partial success (`returnPartialSuccess`), so one failing zone may fail the whole call.
    /// If the response is partial anyway, the missing zones are returned.
    pub(super) async fn all_zones(&self, filter: &str, wanted: &HashSet<&Target>) -> Result<Listing, Failure> {
        let api = api::LIST_ALL_ZONES;
        let mut listing = Listing::default();
        let (mut tokens, mut token) = (PageTokens::new(MAX_PAGES), None);
        loop {
            let call = self.client.instances.aggregated_list();
            let call = call
                .set_project(self.project.as_str())
                .set_filter(filter)
                .set_max_results(PAGE)
                .set_or_clear_page_token(token);
            let answer = self.counted(api, call.send()).await?;
            if answer.kind.as_deref() != Some(AGGREGATED_KIND) {
                return Err(Failure::unusable(api, "no list of instances"));
            }
            for (scope, list) in answer.items {
                let Some(zone) = scope.strip_prefix("zones/").and_then(Zone::parse) else {
                    continue;
                };
                let nothing_there = instances_scoped_list::warning::Code::NoResultsOnPage;
                // Any warning other than an empty result means that rows may be missing.
                if list.warning.is_some_and(|warning| warning.code != Some(nothing_there)) {
                    listing.silent.insert(zone.as_str().to_owned());
                }
                self.take(api, &zone, list.instances, wanted, &mut listing);
            }
            let unreachable = answer.unreachables.iter().filter_map(|scope| last(scope));
            listing.silent.extend(unreachable.map(str::to_owned));
            token = following(api, &mut tokens, answer.next_page_token)?;
            if token.is_none() {
                return Ok(listing);
            }
        }
    }

    /// Lists one zone, filtered if there is a filter.
    pub(super) async fn one_zone(
        &self,
        zone: &Zone,
        filter: Option<&str>,
        wanted: &HashSet<&Target>,
    ) -> Result<Listing, Failure> {
        let api = api::LIST_ZONE;
        let mut listing = Listing::default();
        let (mut tokens, mut token) = (PageTokens::new(MAX_PAGES), None);
        loop {
            let call = self.client.instances.list();
            let call = call
                .set_project(self.project.as_str())
                .set_zone(zone.as_str())
                .set_or_clear_filter(filter)
                .set_max_results(PAGE)
                .set_or_clear_page_token(token);
            let answer = self.counted(api, call.send()).await?;
            if answer.kind.as_deref() != Some(LIST_KIND) {
                return Err(Failure::unusable(api, "no list of instances"));
            }
            let nothing_there = instance_list::warning::Code::NoResultsOnPage;
            if answer
                .warning
                .is_some_and(|warning| warning.code != Some(nothing_there))
            {
                return Err(Failure::new(api, UnavailableCause::Failed, NOT_REACHABLE));
            }
            self.take(api, zone, answer.items, wanted, &mut listing);
            token = following(api, &mut tokens, answer.next_page_token)?;
            if token.is_none() {
                return Ok(listing);
            }
        }
    }

    /// Lists the members of a managed instance group.
    pub(super) async fn members(&self, mig: &Mig) -> Result<Members, Failure> {
        let mut members = Members::default();
        self.rows(mig, |rows| {
            members.add(rows);
            Ok(())
        })
        .await?;
        Ok(members)
    }

    /// Passes each page of a managed instance group's listing to `take`, and stops at its error.
    pub(super) async fn rows(
        &self,
        mig: &Mig,
        mut take: impl FnMut(Vec<ManagedInstance>) -> Result<(), Failure> + Send,
    ) -> Result<(), Failure> {
        let (mut tokens, mut token) = (PageTokens::new(MAX_PAGES), None);
        loop {
            let (rows, next) = self.page(mig, token).await?;
            take(rows)?;
            token = following(mig.api(), &mut tokens, next)?;
            if token.is_none() {
                return Ok(());
            }
        }
    }

    /// Lists all managed instance groups of the project, in all zones and regions. It fails if any zone or region is
    /// missing from the response.
    pub(super) async fn all_groups(&self) -> Result<Vec<(Place, InstanceGroupManager)>, Failure> {
        let api = api::LIST_ALL_GROUPS;
        let mut groups = Vec::new();
        let (mut tokens, mut token) = (PageTokens::new(MAX_PAGES), None);
        loop {
            let call = self.client.zonal_groups.aggregated_list();
            let call = call
                .set_project(self.project.as_str())
                .set_max_results(PAGE)
                .set_or_clear_page_token(token);
            let answer = self.counted(api, call.send()).await?;
            if answer.kind.as_deref() != Some(GROUPS_KIND) {
                return Err(Failure::unusable(api, "no list of managed instance groups"));
            }
            let nothing_there = instance_group_managers_scoped_list::warning::Code::NoResultsOnPage;
            let in_part = |list: &InstanceGroupManagersScopedList| {
                let warning = list.warning.as_ref();
                warning.is_some_and(|warning| warning.code.as_ref() != Some(&nothing_there))
            };
            if !answer.unreachables.is_empty() || answer.items.values().any(in_part) {
                return Err(Failure::new(
                    api,
                    UnavailableCause::Failed,
                    "a zone or region is unreachable",
                ));
            }
            for (scope, list) in answer.items {
                if let Some(place) = Place::of_scope(&scope) {
                    let here = list.instance_group_managers.into_iter();
                    groups.extend(here.map(|group| (place.clone(), group)));
                }
            }
            token = following(api, &mut tokens, answer.next_page_token)?;
            if token.is_none() {
                return Ok(groups);
            }
        }
    }

    /// Lists one page of a managed instance group. The zonal and the regional client have the same methods, and no
    /// trait.
    async fn page(&self, mig: &Mig, token: Option<String>) -> Result<Page<Vec<ManagedInstance>>, Failure> {
        macro_rules! page {
            ($call:expr) => {{
                let call = $call
                    .set_project(self.project.as_str())
                    .set_instance_group_manager(mig.name.as_str())
                    .set_max_results(PAGE)
                    .set_or_clear_page_token(token);
                let answer = self.counted(mig.api(), call.send()).await?;
                Ok((answer.managed_instances, answer.next_page_token))
            }};
        }
        let Client {
            zonal_groups,
            regional_groups,
            ..
        } = &self.client;
        match &mig.place {
            Place::Zone(zone) => page!(zonal_groups.list_managed_instances().set_zone(zone.as_str())),
            Place::Region(region) => page!(regional_groups.list_managed_instances().set_region(region.as_str())),
        }
    }

    /// Reads a template.
    pub(super) async fn template(&self, link: &TemplateLink) -> Result<Group, Failure> {
        let api = link.api();
        let template = match &link.region {
            None => {
                let call = self.client.global_templates.get();
                let call = call
                    .set_project(self.project.as_str())
                    .set_instance_template(link.name.as_str());
                self.counted(api, call.send()).await?
            }
            Some(region) => {
                let call = self.client.regional_templates.get();
                let call = call
                    .set_project(self.project.as_str())
                    .set_region(region.as_str())
                    .set_instance_template(link.name.as_str());
                self.counted(api, call.send()).await?
            }
        };
        Group::read(api, link, &template)
    }

    async fn counted<T>(
        &self,
        api: &'static str,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Failure> {
        let result = match tokio::time::timeout(self.client.deadline, call).await {
            Ok(answer) => answer.map_err(|error| Failure::of_google(api, &error)),
            Err(_) => Err(Failure::no_credentials_in_time(api)),
        };
        let outcome = result.as_ref().map_or_else(Failure::outcome, |_| "ok");
        self.calls.count(api, outcome);
        debug!(api, outcome, "asked Compute Engine");
        if result.as_ref().is_err_and(Failure::is_about_credentials) {
            self.client.credentials.renew();
        }
        result
    }
}

impl Mig {
    /// The call that lists its members.
    pub(super) fn api(&self) -> &'static str {
        match self.place {
            Place::Zone(_) => api::LIST_ZONAL_GROUP,
            Place::Region(_) => api::LIST_REGIONAL_GROUP,
        }
    }
}

impl TemplateLink {
    /// The call that reads it.
    pub(super) fn api(&self) -> &'static str {
        match self.region {
            None => api::GET_GLOBAL_TEMPLATE,
            Some(_) => api::GET_REGIONAL_TEMPLATE,
        }
    }
}

/// The token of the page to request next; `None` after the last page.
fn following(api: &'static str, tokens: &mut PageTokens, next: Option<String>) -> Result<Option<String>, Failure> {
    tokens.next(next).map_err(|why| Failure::unusable(api, why))
}
