//! The answers of the fake, in the words of EC2 and of Auto Scaling.

use std::fmt::Write as _;

use super::group::{self, FakeGroup, FakeMember};
use super::instance::FakeInstance;
use crate::fake_cloud::Scripted;

/// These instances in response to any request: too many, too few, one twice.
#[must_use]
pub fn instances(instances: &[FakeInstance]) -> Scripted {
    listing(instances, None)
}

/// These instances on the first page of several; the token of the next one is `page-2`.
#[must_use]
pub fn page(instances: &[FakeInstance]) -> Scripted {
    listing(instances, Some("page-2"))
}

fn listing(instances: &[FakeInstance], next_token: Option<&str>) -> Scripted {
    let items: Vec<String> = instances.iter().map(FakeInstance::xml).collect();
    Scripted::raw(200, &reservations(items.iter().map(String::as_str), next_token))
}

/// An answer with these items of `reservationSet`.
pub(super) fn reservations<'a>(items: impl Iterator<Item = &'a str>, next_token: Option<&str>) -> String {
    let mut body = String::with_capacity(1 << 16);
    body.push_str(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DescribeInstancesResponse \
         xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>fake</requestId><reservationSet>",
    );
    items.for_each(|item| body.push_str(item));
    body.push_str("</reservationSet>");
    if let Some(token) = next_token {
        body.push_str("<nextToken>");
        body.push_str(token);
        body.push_str("</nextToken>");
    }
    body.push_str("</DescribeInstancesResponse>");
    body
}

/// These groups in response to any request, on a page that is followed by that of `next_token`.
#[must_use]
pub fn groups(groups: &[FakeGroup], next_token: Option<&str>) -> Scripted {
    let items: String = groups.iter().map(FakeGroup::xml).collect();
    Scripted::raw(200, &groups_answer(&items, next_token))
}

/// An answer with these items of `AutoScalingGroups`.
pub(super) fn groups_answer(items: &str, next_token: Option<&str>) -> String {
    let result = format!("<AutoScalingGroups>{items}</AutoScalingGroups>");
    auto_scaling("DescribeAutoScalingGroups", &result, next_token)
}

pub(super) fn warm_pool(members: &[FakeMember], next_token: Option<&str>) -> String {
    auto_scaling("DescribeWarmPool", &group::instances(members), next_token)
}

fn auto_scaling(action: &str, result: &str, next_token: Option<&str>) -> String {
    let token = next_token.map_or_else(String::new, |token| format!("<NextToken>{token}</NextToken>"));
    format!(
        "<{action}Response xmlns=\"http://autoscaling.amazonaws.com/doc/2011-01-01/\"><{action}Result>{result}{token}\
         </{action}Result><ResponseMetadata><RequestId>fake</RequestId></ResponseMetadata></{action}Response>"
    )
}

/// An answer with these launch templates: id, default version, newest version.
pub(super) fn launch_templates(templates: &[(&str, i64, i64)], next_token: Option<&str>) -> String {
    let mut body = "<DescribeLaunchTemplatesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
                    <requestId>fake</requestId><launchTemplates>"
        .to_owned();
    for (id, default, latest) in templates {
        let _ = write!(
            body,
            "<item><launchTemplateId>{id}</launchTemplateId><launchTemplateName>name-of-{id}</launchTemplateName>\
             <defaultVersionNumber>{default}</defaultVersionNumber><latestVersionNumber>{latest}</latestVersionNumber></item>"
        );
    }
    body.push_str("</launchTemplates>");
    if let Some(token) = next_token {
        let _ = write!(body, "<nextToken>{token}</nextToken>");
    }
    body.push_str("</DescribeLaunchTemplatesResponse>");
    body
}

/// The message of `InvalidInstanceID.NotFound`, which names every id that is unknown.
pub(super) fn not_found(unknown: &[&str]) -> String {
    match unknown {
        [id] => format!("The instance ID '{id}' does not exist"),
        ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
    }
}
