//! What the fake answers, in the words of EC2.

use super::instance::FakeInstance;
use crate::fake_cloud::Scripted;

/// These instances in answer to whatever was asked: too many, too few, one twice.
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

/// The message of `InvalidInstanceID.NotFound`, which names every id that is unknown.
pub(super) fn not_found(unknown: &[&str]) -> String {
    match unknown {
        [id] => format!("The instance ID '{id}' does not exist"),
        ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
    }
}
