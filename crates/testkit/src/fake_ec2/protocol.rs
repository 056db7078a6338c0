//! How EC2 reads calls and answers them.

use std::collections::BTreeSet;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Bytes;

use super::Ec2;
use super::answer::{not_found, reservations};
use super::instance::{FakeInstance, Listed, escaped};
use crate::fake_cloud::{Body, Call, Error, Protocol, Scripted, Words, response};

/// As EC2 limits them.
const MAX_IDS: usize = 1000;
const MAX_FILTER_VALUES: usize = 200;

/// The filter that names instances.
const BY_ID: &str = "instance-id";

/// The parameters of one call.
#[derive(Debug, Default)]
pub struct Asked {
    ids: Vec<String>,
    filters: Vec<(String, Vec<String>)>,
}

impl Protocol for Ec2 {
    type Asked = Asked;

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

    fn error((_, code, message): Error<'_>) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error>\
             </Errors><RequestID>fake</RequestID></Response>",
            escaped(code),
            escaped(message)
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

    fn read(request: &Request<Bytes>) -> Option<(Call, Asked)> {
        let asked = Asked::read(request.body())?;
        let by_filter = asked.filters.iter().find(|(name, _)| name == BY_ID);
        let call = Call {
            api: "DescribeInstances",
            names: asked.named().cloned().collect(),
            filter: by_filter.map(|(name, _)| name.clone()),
            ..Call::default()
        };
        Some((call, asked))
    }

    fn knows(request: &Request<Bytes>) -> bool {
        let signature = request.headers().get(AUTHORIZATION);
        signature.is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256 "))
    }

    fn depends_on(&self, asked: &Asked, zones: &BTreeSet<String>) -> bool {
        let in_zones = |id: &String| self.zone_of(id).is_some_and(|zone| zones.contains(zone));
        asked.named().any(in_zones) || asked.ids.is_empty() && !zones.is_empty()
    }

    fn answer(&self, asked: &Asked) -> Result<(usize, String), Scripted> {
        let refuse = |code, message: &str| Scripted::Error {
            status: 400,
            code,
            message: message.to_owned(),
        };
        if asked.ids.len() > MAX_IDS || asked.filters.iter().any(|(_, values)| values.len() > MAX_FILTER_VALUES) {
            return Err(refuse(
                "FilterLimitExceeded",
                "The maximum number of values specified on a single call is exceeded",
            ));
        }
        let known = |id: &&str| self.instances.contains_key(*id);
        let unknown: Vec<&str> = asked.ids.iter().map(String::as_str).filter(|id| !known(id)).collect();
        if !unknown.is_empty() {
            return Err(refuse("InvalidInstanceID.NotFound", &not_found(&unknown)));
        }
        // A thousand ids are looked up, not compared with everything that is listed.
        let named: BTreeSet<&String> = asked.named().collect();
        let candidates: Vec<&Listed> = if named.is_empty() {
            self.instances.values().collect()
        } else {
            named.into_iter().filter_map(|id| self.instances.get(id)).collect()
        };
        let items = candidates.into_iter().filter(|listed| asked.matches(&listed.instance));
        let items: Vec<&str> = items.map(|listed| listed.xml.as_str()).collect();
        Ok((items.len(), reservations(items.into_iter(), None)))
    }
}

impl Ec2 {
    fn zone_of(&self, id: &str) -> Option<&str> {
        self.instances.get(id)?.instance.zone.as_deref()
    }
}

impl Asked {
    /// `None` when the action is not the one that there is.
    fn read(form: &[u8]) -> Option<Self> {
        let mut asked = Self::default();
        let mut describes = false;
        // In the order of the form: `Filter.N.Name` comes before its values, as the SDK writes them.
        for (key, value) in url::form_urlencoded::parse(form) {
            let parts: Vec<&str> = key.split('.').collect();
            match parts.as_slice() {
                ["Action"] => describes = value == "DescribeInstances",
                ["InstanceId", _] => asked.ids.push(value.into_owned()),
                ["Filter", _, "Name"] => asked.filters.push((value.into_owned(), Vec::new())),
                ["Filter", _, "Value", _] => {
                    if let Some((_, values)) = asked.filters.last_mut() {
                        values.push(value.into_owned());
                    }
                }
                _ => {}
            }
        }
        describes.then_some(asked)
    }

    fn named(&self) -> impl Iterator<Item = &String> {
        let by_filter = self.filters.iter().filter(|(name, _)| name == BY_ID);
        self.ids.iter().chain(by_filter.flat_map(|(_, ids)| ids))
    }

    /// Whether the filters other than `instance-id` let it through.
    fn matches(&self, instance: &FakeInstance) -> bool {
        self.filters
            .iter()
            .all(|(name, values)| match (name.as_str(), name.strip_prefix("tag:")) {
                (BY_ID, _) => true,
                ("instance-state-name", _) => instance.state.as_ref().is_some_and(|state| values.contains(state)),
                (_, Some(key)) => instance.has_tag(key, values),
                _ => false,
            })
    }
}
