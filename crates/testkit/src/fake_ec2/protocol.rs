//! Reads and answers the calls of EC2 and Auto Scaling.

use std::collections::BTreeSet;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Bytes;

use super::Ec2;
use super::answer::{groups_answer, launch_templates, not_found, reservations, warm_pool};
use super::group::FakeGroup;
use super::instance::{Listed, escaped};
use super::parameters::{Action, BY_ID, Parameters};
use crate::fake_cloud::{Body, Call, Error, Protocol, Scripted, Words, response};

/// As EC2 limits them.
const MAX_IDS: usize = 1000;
const MAX_FILTER_VALUES: usize = 200;

/// As many templates as one call may name.
const MAX_TEMPLATES: usize = 200;

/// As many rows as the pages have: by default, and at most.
const GROUPS_PAGE: (usize, usize) = (50, 100);
const WARM_POOL_PAGE: (usize, usize) = (50, 50);
const TEMPLATES_PAGE: (usize, usize) = (200, 200);

/// Instances that are named by id have no pages.
const INSTANCES_PAGE: (usize, usize) = (usize::MAX, 1_000);

impl Protocol for Ec2 {
    type Parameters = Parameters;

    const CONTENT_TYPE: &'static str = "text/xml;charset=UTF-8";
    const BEGINNING: &'static str = "<DescribeInstancesResponse><reservationSet>";
    const WORDS: Words = Words {
        throttled: (503, "RequestLimitExceeded", "Request limit exceeded."),
        failed: (500, "InternalError", "An internal error has occurred"),
        denied: (
            403,
            "UnauthorizedOperation",
            "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/masters/i-1 is \
             not authorized to perform: ec2:DescribeInstances",
        ),
        unauthenticated: (
            401,
            "AuthFailure",
            "AWS was not able to validate the provided access credentials",
        ),
    };

    /// Auto Scaling has a form of its own.
    fn error(api: &str, (_, code, message): Error<'_>) -> String {
        let (code, message) = (escaped(code), escaped(message));
        if matches!(api, "DescribeAutoScalingGroups" | "DescribeWarmPool") {
            return format!(
                "<ErrorResponse xmlns=\"http://autoscaling.amazonaws.com/doc/2011-01-01/\"><Error><Type>Sender</Type>\
                 <Code>{code}</Code><Message>{message}</Message></Error><RequestId>fake</RequestId></ErrorResponse>"
            );
        }
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>\
             </Errors><RequestID>fake</RequestID></Response>"
        )
    }

    /// The instance metadata service, version 2: a session token first, which every question has to bring.
    fn aside(&self, request: &Request<Bytes>) -> Option<Response<Body>> {
        const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
        const TOKEN: &str = "the-session-token";
        let path = request.uri().path();
        path.strip_prefix("/latest/")?;
        let has_token = request
            .headers()
            .get("x-aws-ec2-metadata-token")
            .is_some_and(|token| token == TOKEN);
        let (status, text) = match (request.method(), path) {
            (&Method::PUT, "/latest/api/token") => (StatusCode::OK, TOKEN.to_owned()),
            (&Method::GET, _) if !has_token => (StatusCode::UNAUTHORIZED, String::new()),
            (&Method::GET, "/latest/meta-data/placement/region") => (StatusCode::OK, self.metadata_region.clone()),
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        let mut response = response(status, "text/plain", text);
        response.headers_mut().insert(TTL, HeaderValue::from_static("21600"));
        Some(response)
    }

    fn read(request: &Request<Bytes>) -> Option<(Call, Parameters)> {
        let parameters = Parameters::read(request.body())?;
        let by_filter = parameters.filters.iter().find(|(name, _)| name == BY_ID);
        let call = Call {
            api: parameters.action.name(),
            names: parameters.named().cloned().collect(),
            filter: by_filter.map(|(name, _)| name.clone()),
            ..Call::default()
        };
        Some((call, parameters))
    }

    fn knows(&self, request: &Request<Bytes>) -> bool {
        let signature = request.headers().get(AUTHORIZATION);
        signature.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256 "))
    }

    fn depends_on(&self, parameters: &Parameters, zones: &BTreeSet<String>) -> bool {
        let in_zones = |id: &String| self.zone_of(id).is_some_and(|zone| zones.contains(zone));
        parameters.action == Action::Instances
            && (parameters.named().any(in_zones) || parameters.ids.is_empty() && !zones.is_empty())
    }

    fn answer(&self, parameters: &Parameters) -> Result<(usize, String), Scripted> {
        match parameters.action {
            Action::Instances => self.instances(parameters),
            Action::LaunchTemplates => self.launch_templates(parameters),
            Action::Groups => self.groups(parameters),
            Action::WarmPool => self.warm_pool(parameters),
        }
    }
}

impl Ec2 {
    fn zone_of(&self, id: &str) -> Option<&str> {
        self.instances.get(id)?.instance.zone.as_deref()
    }

    fn instances(&self, parameters: &Parameters) -> Result<(usize, String), Scripted> {
        if parameters.ids.len() > MAX_IDS
            || parameters
                .filters
                .iter()
                .any(|(_, values)| values.len() > MAX_FILTER_VALUES)
        {
            return Err(refuse(
                "FilterLimitExceeded",
                "The maximum number of values specified on a single call is exceeded",
            ));
        }
        let known = |id: &&str| self.instances.contains_key(*id);
        let unknown: Vec<&str> = parameters
            .ids
            .iter()
            .map(String::as_str)
            .filter(|id| !known(id))
            .collect();
        if !unknown.is_empty() {
            return Err(refuse("InvalidInstanceID.NotFound", &not_found(&unknown)));
        }
        // A thousand ids are looked up, not compared with everything that is listed.
        let named: BTreeSet<&String> = parameters.named().collect();
        let candidates: Vec<&Listed> = if named.is_empty() {
            self.instances.values().collect()
        } else {
            named.into_iter().filter_map(|id| self.instances.get(id)).collect()
        };
        let items = candidates
            .into_iter()
            .filter(|listed| parameters.lets_through(&listed.instance));
        let items: Vec<&str> = items.map(|listed| listed.xml.as_str()).collect();
        let (items, token) = page(&items, parameters, INSTANCES_PAGE)?;
        Ok((items.len(), reservations(items.iter().copied(), token.as_deref())))
    }

    fn launch_templates(&self, parameters: &Parameters) -> Result<(usize, String), Scripted> {
        if parameters.ids.len() > MAX_TEMPLATES {
            return Err(refuse("InvalidParameterValue", "Too many launch templates"));
        }
        let mut templates = Vec::new();
        for id in &parameters.ids {
            let Some((default, latest)) = self.launch_templates.get(id) else {
                let message = format!("The specified launch template, with template ID {id}, does not exist.");
                return Err(refuse("InvalidLaunchTemplateId.NotFound", &message));
            };
            templates.push((id.as_str(), *default, *latest));
        }
        let (templates, token) = page(&templates, parameters, TEMPLATES_PAGE)?;
        Ok((templates.len(), launch_templates(templates, token.as_deref())))
    }

    fn groups(&self, parameters: &Parameters) -> Result<(usize, String), Scripted> {
        let ours = |group: &&FakeGroup| {
            parameters.filters.iter().all(|(name, values)| {
                let value = name.strip_prefix("tag:").and_then(|key| group.tags.get(key));
                value.is_some_and(|value| values.contains(value))
            })
        };
        let groups: Vec<&FakeGroup> = self.groups.values().filter(ours).collect();
        let (groups, token) = page(&groups, parameters, GROUPS_PAGE)?;
        let items: String = groups.iter().map(|group| group.xml()).collect();
        Ok((groups.len(), groups_answer(&items, token.as_deref())))
    }

    fn warm_pool(&self, parameters: &Parameters) -> Result<(usize, String), Scripted> {
        let group = self.groups.get(&parameters.group);
        let group = group.ok_or_else(|| refuse("ValidationError", "AutoScalingGroup name not found - null"))?;
        let pool = group.pool.as_deref().unwrap_or_default();
        let (pool, token) = page(pool, parameters, WARM_POOL_PAGE)?;
        Ok((pool.len(), warm_pool(pool, token.as_deref())))
    }
}

fn refuse(code: &'static str, message: &str) -> Scripted {
    Scripted::Error {
        status: 400,
        code,
        message: message.to_owned(),
    }
}

/// The requested page of `all`, and the token of the next.
fn page<'a, T>(
    all: &'a [T],
    parameters: &Parameters,
    (default, most): (usize, usize),
) -> Result<(&'a [T], Option<String>), Scripted> {
    let limit = parameters.limit.as_ref().map(|limit| limit.parse::<usize>());
    let start = parameters.token.as_ref().map(|token| token.parse::<usize>());
    let (Ok(limit), Ok(start)) = (limit.unwrap_or(Ok(default)), start.unwrap_or(Ok(0))) else {
        return Err(refuse("InvalidNextToken", "The token is not valid"));
    };
    if start > all.len() || parameters.limit.is_some() && !(1..=most).contains(&limit) {
        return Err(refuse("ValidationError", "The number of records is not valid"));
    }
    let end = all.len().min(start.saturating_add(limit));
    Ok((&all[start..end], (end < all.len()).then(|| end.to_string())))
}
