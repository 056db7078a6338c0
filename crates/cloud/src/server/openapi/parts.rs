//! The parts of the document that every endpoint shares: parameters, headers, refusals, and how a caller proves who it is.

use http::StatusCode;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, Content, ObjectBuilder, Ref, ResponseBuilder, SchemaFormat, Type};

/// Either of them.
pub(super) const SCHEMES: [&str; 2] = ["bearer", "jwt"];

/// What a stream of events is.
pub(super) const EVENTS: &str = "A stream of events. The first is `hello`, whose id is the cursor now, unless `Last-Event-ID` is \
known. `change` has the data `{\"kinds\": [\"users\", …]}`: what to list again. `reset` says that the cursor is not known here, or \
more than 10,000 changes old: list everything. A comment comes every 15 seconds.";

/// A header's name and what it says.
const HEADERS: [(&str, &str); 7] = [
    (
        "x-request-id",
        "The id of this request in the server's log: that of the request, when it had one.",
    ),
    ("ETag", "What `If-Match` and `If-None-Match` take."),
    ("Location", "Where the new object is."),
    (
        "Link",
        "The next part of the list, as `<…>; rel=\"next\"`; absent in the last one.",
    ),
    ("Retry-After", "After how many seconds to ask again."),
    ("WWW-Authenticate", "`Bearer`"),
    (
        "Idempotency-Replayed",
        "`true` when the answer is that of an earlier request with this key.",
    ),
];

/// A status, its name among the components, what it means.
const REFUSALS: [(StatusCode, &str, &str); 14] = [
    (
        StatusCode::NOT_MODIFIED,
        "NotModified",
        "It is as `If-None-Match` says. No body.",
    ),
    (
        StatusCode::BAD_REQUEST,
        "BadRequest",
        "The body is no JSON, or a parameter of the query is wrong.",
    ),
    (
        StatusCode::UNAUTHORIZED,
        "Unauthorized",
        "There is no token, or none that is valid.",
    ),
    (
        StatusCode::FORBIDDEN,
        "Forbidden",
        "The caller's role does not suffice.",
    ),
    (
        StatusCode::NOT_FOUND,
        "NotFound",
        "There is no such object, or the caller may not see it.",
    ),
    (
        StatusCode::CONFLICT,
        "Conflict",
        "It goes against something that is there already, or that still refers to it.",
    ),
    (
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
        "It has changed since: `If-Match` is not its `ETag`.",
    ),
    (StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", "The body is too large."),
    (
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        "The body has another type.",
    ),
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        "Unprocessable",
        "A field is refused: `field` says which.",
    ),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        "Too many requests of this caller.",
    ),
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalError",
        "The server's own fault: its log has the reason under `x-request-id`.",
    ),
    (
        StatusCode::NOT_IMPLEMENTED,
        "NotImplemented",
        "Machines are not provisioned here: attach a cluster, without `template_id`.",
    ),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "Unavailable",
        "The server cannot answer now.",
    ),
];

/// The response of `status`, by its name.
pub(super) fn response(status: StatusCode) -> Ref {
    let name = REFUSALS
        .iter()
        .find(|(known, ..)| *known == status)
        .map_or("InternalError", |(_, name, _)| *name);
    Ref::from_response_name(name)
}

pub(super) fn header(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

pub(super) fn uuid() -> SchemaFormat {
    SchemaFormat::Custom("uuid".to_owned())
}

pub(super) fn number(least: u32, most: u32) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(least))
        .maximum(Some(most))
}

/// Adds them all.
pub(super) fn add(components: ComponentsBuilder) -> ComponentsBuilder {
    let components = HEADERS.iter().fold(components, |components, (name, description)| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        components.header(
            *name,
            HeaderBuilder::new()
                .schema(Some(text))
                .description(Some(*description))
                .build(),
        )
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

fn parameters(components: ComponentsBuilder) -> ComponentsBuilder {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let key = text()
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some("^[ -~]+$"));
    let id = text().format(Some(uuid()));
    let (query, head) = (|| ParameterIn::Query, || ParameterIn::Header);
    let all = [
        (
            "limit",
            query(),
            number(1, 1_000),
            "At most so many items; `Link` leads to the next ones.",
        ),
        ("after", query(), id, "The items after the one with this id."),
        (
            "If-Match",
            head(),
            text(),
            "The `ETag` that the object must still have: nothing is overwritten unseen.",
        ),
        (
            "If-None-Match",
            head(),
            text(),
            "The `ETag` of what the caller has already.",
        ),
        (
            "Idempotency-Key",
            head(),
            key,
            "The same key within 24 hours gets the same answer, and nothing is made twice.",
        ),
        (
            "Last-Event-ID",
            head(),
            text(),
            "The cursor of the last event that the caller has heard.",
        ),
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
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The token of a user, or the API key of a cluster."))
        .build();
    let jwt = ApiKeyValue::with_description(
        "Authorization",
        "The same as `JWT TOKEN`, as the clients of the old service write it.",
    );
    components
        .security_scheme("bearer", SecurityScheme::Http(bearer))
        .security_scheme("jwt", SecurityScheme::ApiKey(ApiKey::Header(jwt)))
}
