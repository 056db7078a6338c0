//! The parts of the document that all endpoints share: parameters, headers, error responses and authentication schemes.

use http::StatusCode;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, Content, ObjectBuilder, Ref, ResponseBuilder, SchemaFormat, Type};

use super::text;

/// The security schemes, of which a request needs either.
pub(super) const SCHEMES: [&str; 2] = ["bearer", "jwt"];

/// The description of a stream of events.
pub(super) const EVENTS: &str = "A stream of events. The first is `hello`, whose id is the current cursor, unless `Last-Event-ID` is valid. `change` has the data `{\"kinds\": [\"users\", …]}`: list these kinds again. `reset` means that the cursor is unknown or more than 10,000 changes old: list everything again. A comment is sent every 15 seconds.";

/// The names and descriptions of headers.
#[rustfmt::skip]
const HEADERS: [(&str, &str); 7] = [
    ("x-request-id", "The id of this request in the server's log; taken from the request if it has one."),
    ("ETag", "The value for `If-Match` and `If-None-Match`."),
    ("Location", "The path of the new object."),
    ("Link", "The next page of the list, as `<…>; rel=\"next\"`; absent on the last page."),
    ("Retry-After", "The number of seconds after which to retry."),
    ("WWW-Authenticate", "`Bearer`"),
    ("Idempotency-Replayed", "`true` if the response is that of an earlier request with this key."),
];

/// A status, its name among the components, its description.
#[rustfmt::skip]
const REFUSALS: [(StatusCode, &str, &str); 14] = [
    (StatusCode::NOT_MODIFIED, "NotModified", "Unchanged since the `ETag` in `If-None-Match`. No body."),
    (StatusCode::BAD_REQUEST, "BadRequest", "The body is not valid JSON, or a query parameter is invalid."),
    (StatusCode::UNAUTHORIZED, "Unauthorized", "The token is missing or invalid."),
    (StatusCode::FORBIDDEN, "Forbidden", "The caller's role does not permit this."),
    (StatusCode::NOT_FOUND, "NotFound", "The object does not exist, or the caller may not see it."),
    (StatusCode::CONFLICT, "Conflict", "The request conflicts with an existing object or with a reference to this one."),
    (StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "The object has changed: `If-Match` is not its current `ETag`."),
    (StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", "The body is too large."),
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "The body has an unsupported content type."),
    (StatusCode::UNPROCESSABLE_ENTITY, "Unprocessable", "A field is invalid; `field` names it."),
    (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "The caller sends too many requests."),
    (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "Internal server error. The server's log has the reason, under `x-request-id`."),
    (StatusCode::NOT_IMPLEMENTED, "NotImplemented", "Machines are not provisioned here: attach a cluster without `template_id`."),
    (StatusCode::SERVICE_UNAVAILABLE, "Unavailable", "The server is unavailable or overloaded."),
];

/// The response of `status`, by its name.
pub(super) fn response(status: StatusCode) -> Ref {
    let found = REFUSALS.iter().find(|(known, ..)| *known == status);
    Ref::from_response_name(found.map_or("InternalError", |(_, name, _)| *name))
}

pub(super) fn header(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

pub(super) fn uuid() -> SchemaFormat {
    SchemaFormat::Custom("uuid".to_owned())
}

pub(super) fn number(least: u32, most: u32) -> ObjectBuilder {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    number.minimum(Some(least)).maximum(Some(most))
}

/// Adds all shared parts.
pub(super) fn add(components: ComponentsBuilder) -> ComponentsBuilder {
    let components = HEADERS.iter().fold(components, |components, (name, description)| {
        let header = HeaderBuilder::new().schema(Some(text()));
        components.header(*name, header.description(Some(*description)).build())
    });
    let components = REFUSALS
        .iter()
        .fold(components, |components, (status, name, description)| {
            let mut response = ResponseBuilder::new()
                .description(*description)
                .header_ref("x-request-id", header("x-request-id"));
            if *status == StatusCode::NOT_MODIFIED {
                response = response.header_ref("ETag", header("ETag"));
            } else {
                response = response.content("application/json", Content::new(Some(Ref::from_schema_name("Failure"))));
            }
            if matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                response = response.header_ref("Retry-After", header("Retry-After"));
            }
            if *status == StatusCode::UNAUTHORIZED {
                response = response.header_ref("WWW-Authenticate", header("WWW-Authenticate"));
            }
            components.response(*name, response.build())
        });
    secured(parameters(components))
}

#[rustfmt::skip]
fn parameters(components: ComponentsBuilder) -> ComponentsBuilder {
    let key = text()
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some("^[ -~]+$"));
    let (query, head) = (|| ParameterIn::Query, || ParameterIn::Header);
    let all = [
        ("limit", query(), number(1, 1_000), "The maximum number of items; `Link` has the next page."),
        ("after", query(), text(), "Return the items after the one with this id, or after the place that the `Link` of a page names."),
        ("If-Match", head(), text(), "The `ETag` that the object must still have, so that no other change is overwritten."),
        ("If-None-Match", head(), text(), "The `ETag` of the version that the caller already has."),
        ("Idempotency-Key", head(), key, "A repeated key within 24 hours gets the same response, and nothing is created twice."),
        ("Last-Event-ID", head(), text(), "The cursor of the last event that the caller has received."),
    ];
    all.into_iter()
        .fold(components, |components, (name, place, schema, description)| {
            let parameter = ParameterBuilder::new().name(name).parameter_in(place);
            components.parameter(
                name,
                parameter.description(Some(description)).schema(Some(schema)).build(),
            )
        })
}

fn secured(components: ComponentsBuilder) -> ComponentsBuilder {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
    let bearer = bearer
        .description(Some("The token of a user, or the API key of a cluster."))
        .build();
    let jwt = ApiKeyValue::with_description(
        "Authorization",
        "The same as `JWT TOKEN`, as the clients of the original service send it.",
    );
    components
        .security_scheme("bearer", SecurityScheme::Http(bearer))
        .security_scheme("jwt", SecurityScheme::ApiKey(ApiKey::Header(jwt)))
}
