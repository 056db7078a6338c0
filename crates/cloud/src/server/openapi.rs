//! The description of the API, generated from the table of endpoints: it describes exactly the endpoints in the table.
//! It depends on neither the store nor the clock, so the document is the same for all callers and can be cached.

pub(super) mod bodies;
mod markdown;
mod page;
mod parts;
mod served;

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use utoipa::PartialSchema as _;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{
    Array, ComponentsBuilder, Content, ContentBuilder, InfoBuilder, License, Object, ObjectBuilder, OpenApi,
    OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema, Server, Type,
};

use super::http::endpoint::{Endpoint, Input, Output, Permission};
use crate::models::schema::example;
use crate::models::values::{Slug, TargetVersion, Version};
use crate::models::{Body, Failure, ParameterType, UpgradeScript};

pub use markdown::markdown;
pub use page::page;
pub use served::Served;

const ABOUT: &str = "Manages the users, SSH keys, registries, plugins, labels, roles, node pools and upgrades of clusters.

- An empty optional string means `null`, because some clients cannot omit a field.
- A PATCH is a JSON merge patch (RFC 7386). PATCH and PUT bodies may contain the fields that the server sets, unchanged, so that a response can be edited and sent back.
- `created_at`, `updated_at` and `added_at` are milliseconds since 1970 as a text, as the clients of the original service read them. `addedAt` and `currentStartTime` of an upgrade have their own forms. All other times are RFC 3339.
- The key of a label is whole: it begins with `cluster.containership.io/` or `nodepool.containership.io/`.
- Types of plugins are compared without regard to case.
- `Tidewaiter-Change` is the number of a change in the response to it, and otherwise the number up to which a response is current. The report of a cluster has the number up to which the cluster has followed.
- Without `limit`, a list is returned completely, in the order of creation.
- A newer server may return fields that are not described here.";

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// The document (`OpenAPI` 3.1) of these endpoints.
#[must_use]
pub fn document(endpoints: &[Endpoint]) -> OpenApi {
    // Responses first: a request body with the same name as a response body is renamed.
    let mut schemas = answer_schemas(Body::of::<Failure>());
    for endpoint in endpoints {
        if let Output::One(body) | Output::Made(body) | Output::List(body) = endpoint.answers {
            schemas.extend(answer_schemas(body));
        }
    }
    let mut paths = PathsBuilder::new();
    for endpoint in endpoints {
        let Some(method) = http_method(&endpoint.method) else {
            continue;
        };
        let operation = operation(endpoint, &mut schemas);
        paths = paths.path(&endpoint.path, PathItem::new(method, operation));
    }
    let mut components = ComponentsBuilder::new().schemas_from_iter(schemas);
    components = parts::add(components);
    let info = InfoBuilder::new()
        .title("Tidewaiter cloud API")
        .version("3")
        .description(Some(ABOUT))
        .license(Some(License::new("Apache-2.0")));
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([Server::new("/")]))
        .paths(paths)
        .components(Some(components.build()))
        .build()
}

/// The schema of a response, with all schemas that it refers to.
fn answer_schemas(body: Body) -> Schemas {
    let described = (body.described)();
    let own = described.name.clone();
    let mut schemas = described.answer();
    // The table may use another name than the type.
    if let Some(schema) = schemas.remove(&own) {
        schemas.insert(body.name.to_owned(), schema);
    }
    schemas
}

fn http_method(method: &Method) -> Option<HttpMethod> {
    Some(match *method {
        Method::GET => HttpMethod::Get,
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::PATCH => HttpMethod::Patch,
        Method::DELETE => HttpMethod::Delete,
        _ => return None,
    })
}

fn operation(endpoint: &Endpoint, schemas: &mut Schemas) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(operation_id(endpoint)))
        .summary(Some(&endpoint.summary))
        .description(Some(format!("Requires: {}.", who_may(endpoint.may))))
        .tag(endpoint.tag)
        .request_body(request_body(endpoint, schemas))
        .response(good(endpoint).as_str(), answer(endpoint));
    for parameter in path_parameters(&endpoint.path).chain(query_parameters(endpoint)) {
        operation = operation.parameter(parameter);
    }
    for name in endpoint.shared {
        operation = operation.parameter_ref(Ref::new(format!("#/components/parameters/{name}")));
    }
    for status in refusals(endpoint) {
        operation = operation.response(status.as_str(), parts::response(status));
    }
    if endpoint.may == Permission::Anyone {
        return operation.security(SecurityRequirement::default());
    }
    parts::SCHEMES.iter().fold(operation, |operation, scheme| {
        operation.security(SecurityRequirement::new::<_, [&str; 0], &str>(*scheme, []))
    })
}

/// The verb and the segments of the path: `list_organizations_clusters`.
fn operation_id(endpoint: &Endpoint) -> String {
    let verb = match (&endpoint.method, endpoint.answers) {
        (&Method::GET, Output::List(_)) => "list",
        (&Method::GET, _) => "get",
        (&Method::POST, Output::Made(_)) => "create",
        (&Method::PUT, _) => "replace",
        (&Method::PATCH, _) => "change",
        (&Method::DELETE, _) => "delete",
        _ => "post",
    };
    let words = endpoint.path.split('/');
    let words = words.filter(|word| !word.is_empty() && *word != "v3" && !word.starts_with('{'));
    let words = words.map(|word| word.trim_start_matches('.').replace(['-', '.'], "_"));
    [verb.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

/// The required permission, in words.
pub(super) fn who_may(may: Permission) -> String {
    match may {
        Permission::Anyone => "none".to_owned(),
        Permission::Known => "any valid token".to_owned(),
        Permission::User => "any user, for the own account".to_owned(),
        Permission::Operator => "an operator of this server".to_owned(),
        Permission::Cluster => "the cluster itself".to_owned(),
        Permission::Organization { role, cluster, own } => {
            let mut who = vec![format!("a member of the organization with at least the role {role}")];
            who.extend(own.then(|| "the user".to_owned()));
            who.extend(cluster.then(|| "the cluster itself".to_owned()));
            who.join("; ")
        }
    }
}

fn good(endpoint: &Endpoint) -> StatusCode {
    match endpoint.answers {
        Output::Made(_) => StatusCode::CREATED,
        Output::Nothing => StatusCode::NO_CONTENT,
        _ => StatusCode::OK,
    }
}

/// The possible error responses. The document itself shows which methods are not allowed (405).
fn refusals(endpoint: &Endpoint) -> Vec<StatusCode> {
    let takes_body = endpoint.takes != Input::Nothing;
    let known = !matches!(endpoint.may, Permission::Anyone | Permission::Known);
    let shared = endpoint.shared;
    let refuses = |status| endpoint.refuses == Some(status);
    // A condition in the head of a change, too, unless it is checked.
    let changes = endpoint.method != Method::GET;
    let bad_request = changes || !endpoint.query.is_empty() || shared.contains(&"limit");
    let unauthorized = endpoint.may != Permission::Anyone || refuses(StatusCode::UNAUTHORIZED);
    let conflict = known && changes;
    let precondition = refuses(StatusCode::PRECONDITION_REQUIRED);
    let takes_json = takes_body && endpoint.takes != Input::Text;
    let unprocessable = takes_body || shared.contains(&"Idempotency-Key");
    let rules = [
        (StatusCode::NOT_MODIFIED, shared.contains(&"If-None-Match")),
        (StatusCode::BAD_REQUEST, bad_request),
        (StatusCode::UNAUTHORIZED, unauthorized),
        (StatusCode::FORBIDDEN, known || refuses(StatusCode::FORBIDDEN)),
        (StatusCode::NOT_FOUND, endpoint.path.contains('{')),
        (StatusCode::CONFLICT, conflict),
        (StatusCode::PRECONDITION_FAILED, shared.contains(&"If-Match")),
        (StatusCode::PRECONDITION_REQUIRED, precondition),
        (StatusCode::REQUEST_TIMEOUT, takes_body),
        (StatusCode::PAYLOAD_TOO_LARGE, takes_body),
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, takes_json),
        (StatusCode::UNPROCESSABLE_ENTITY, unprocessable),
        (StatusCode::TOO_MANY_REQUESTS, true),
        (StatusCode::INTERNAL_SERVER_ERROR, true),
        (StatusCode::NOT_IMPLEMENTED, refuses(StatusCode::NOT_IMPLEMENTED)),
        (StatusCode::SERVICE_UNAVAILABLE, true),
    ];
    let applying = rules.into_iter().filter(|(_, may_be)| *may_be);
    applying.map(|(status, _)| status).collect()
}

fn path_parameters(path: &str) -> impl Iterator<Item = Parameter> + '_ {
    let names = path
        .split('/')
        .filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| {
        let schema = match name {
            "type" | "implementation" => Slug::schema(),
            "version" => Version::schema(),
            "target" => target(),
            "method" => text()
                .enum_values(Some(["password", "browser", "device", "api_key"]))
                .into(),
            _ => text().format(Some(parts::uuid())).into(),
        };
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(schema))
            .build()
    })
}

/// The version of a script template.
fn target() -> RefOr<Schema> {
    let mut schema = TargetVersion::schema();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.pattern = object.pattern.take().map(|pattern| format!("^any$|{pattern}"));
        object.description = Some("The version that it upgrades to, or `any`.".to_owned());
    }
    schema
}

fn query_parameters(endpoint: &Endpoint) -> impl Iterator<Item = Parameter> + '_ {
    endpoint.query.iter().map(|parameter| {
        let schema = match parameter.form {
            ParameterType::Bool => ObjectBuilder::new().schema_type(Type::Boolean).into(),
            ParameterType::Id => text().format(Some(parts::uuid())).into(),
            ParameterType::Version => Version::schema(),
            ParameterType::Words(words) => text().enum_values(Some(words.iter().copied())).into(),
            ParameterType::Number(most) => parts::number(1, most).into(),
        };
        ParameterBuilder::new()
            .name(parameter.name)
            .parameter_in(ParameterIn::Query)
            .description(Some(parameter.description))
            .required(if parameter.required {
                Required::True
            } else {
                Required::False
            })
            .schema(Some(schema))
            .build()
    })
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn request_body(endpoint: &Endpoint, schemas: &mut Schemas) -> Option<RequestBody> {
    let (name, schema, types): (_, _, &[&str]) = match (endpoint.takes, endpoint.answers) {
        (Input::Nothing, _) => return None,
        (Input::Text, _) => {
            let script = Body::of::<UpgradeScript>();
            (script.name.to_owned(), request(script), &["text/x-shellscript"])
        }
        (Input::Patch(said), Output::One(shown)) => (
            said.name.replace("Spec", "Patch"),
            (said.described)().patch((shown.described)()),
            &["application/merge-patch+json", "application/json"],
        ),
        (Input::Json(said), Output::One(shown)) if said.name.ends_with("Spec") => (
            said.name.replace("Spec", "Replacement"),
            (said.described)().replacement((shown.described)()),
            &["application/json"],
        ),
        (Input::Json(said) | Input::Patch(said), _) => {
            // The name already belongs to an open response schema.
            let name = if schemas.contains_key(said.name) && !said.name.ends_with("Spec") {
                format!("{}Request", said.name)
            } else {
                said.name.to_owned()
            };
            (name, request(said), &["application/json"])
        }
    };
    let shown = example(&schema, schemas);
    schemas.insert(name.clone(), schema);
    let body = RequestBodyBuilder::new().required(Some(Required::True));
    let body = types.iter().fold(body, |body, media_type| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(&name)));
        let shown = Some(shown.clone()).filter(|_| *media_type != "application/merge-patch+json");
        body.content(*media_type, content.example(shown).build())
    });
    Some(body.build())
}

fn request(body: Body) -> RefOr<Schema> {
    (body.described)().request()
}

fn answer(endpoint: &Endpoint) -> Response {
    let json = |schema: RefOr<Schema>| ("application/json", Content::new(Some(schema)));
    let reference = |body: Body| Ref::from_schema_name(body.name);
    let (description, content) = match endpoint.answers {
        Output::Nothing => ("Success.", None),
        Output::One(body) => ("The object.", Some(json(reference(body).into()))),
        Output::Made(body) => ("The created object.", Some(json(reference(body).into()))),
        Output::List(body) => ("The list.", Some(json(Array::new(reference(body)).into()))),
        Output::Json => (
            "A JSON document.",
            Some(json(Object::with_type(SchemaType::AnyValue).into())),
        ),
        Output::Text(media_type) => ("A text.", Some((media_type, Content::new(Some(text()))))),
        Output::Events => (parts::EVENTS, Some(("text/event-stream", Content::new(Some(text()))))),
    };
    let mut response = ResponseBuilder::new().description(description);
    if let Some((media_type, content)) = content {
        response = response.content(media_type, content);
    }
    let is_object = matches!(endpoint.answers, Output::One(_) | Output::Made(_) | Output::List(_));
    let object = is_object && !endpoint.is_shown_once;
    let shared = endpoint.shared;
    let headers = [
        ("x-request-id", true),
        ("ETag", object || shared.contains(&"If-None-Match")),
        ("Location", good(endpoint) == StatusCode::CREATED),
        ("Link", shared.contains(&"limit")),
        ("Idempotency-Replayed", shared.contains(&"Idempotency-Key")),
    ];
    let headers = headers.into_iter().filter(|(_, there)| *there);
    headers
        .fold(response, |response, (name, _)| {
            response.header_ref(name, parts::header(name))
        })
        .build()
}
