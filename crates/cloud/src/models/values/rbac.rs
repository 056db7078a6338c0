//! The values in a rule of a role.
//!
//! Source: `ValidatePolicyRule` of Kubernetes' `pkg/apis/rbac/validation`, which hardly restricts single words; here
//! they must also be able to match something.

use super::text_value;

text_value! {
    /// A verb of the API, or `*`. Those of constrained impersonation have a `:`.
    #[schema(pattern = r"^(\*|[a-z][a-z0-9:\-]{0,62})$", examples("get"))]
    Verb, "verb", verb,
    "must be '*' or a verb in lower case: get, list, watch, create, update, patch, delete, deletecollection, ..."
}
text_value! {
    /// An API group; the empty string is the core group; `*` is all groups.
    #[schema(max_length = 253, pattern = r"^(\*|[a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*)?$", examples("apps"))]
    ApiGroup, "API group", api_group,
    "must be '*', empty (the core group) or a group such as apps or rbac.authorization.k8s.io"
}
text_value! {
    /// A resource, `resource/subresource`, or one with `*` for either. The subresource may be the key of a user's attribute
    /// (`userextras/example.com`).
    #[schema(max_length = 191, pattern = r"^(\*|[a-z][a-z0-9\-]{0,62})(/(\*|[a-z][a-z0-9._\-]{0,62}))*$", examples("deployments/scale"))]
    Resource, "resource", resource,
    "must be '*' or a resource in lower case, such as pods or pods/log"
}
text_value! {
    /// The name of an object, of a signer (`example.com/*`), or of a user or group to impersonate. An API server compares it
    /// as a text; only for signers, it also asks for `DOMAIN/*`.
    #[schema(max_length = 253, pattern = r"^(?!\.{1,2}$)[!-~]([ -~]*[!-~])?$", examples("web"))]
    ResourceName, "name of an object", resource_name,
    "must be 1 to 253 printable ASCII characters without a space at either end, and neither '.' nor '..'"
}
text_value! {
    /// A non-resource path of the API server, with `*` only as its last character.
    #[schema(max_length = 253, pattern = r"^(\*|/[A-Za-z0-9/\-._~]*\*?)$", examples("/healthz"))]
    NonResourceUrl, "non-resource URL", non_resource_url,
    "must be '*' or a path such as /healthz or /metrics/*, with '*' only as its last character"
}

/// Lower-case letters, digits and `-`, and `more`.
fn word(text: &str, more: &[u8]) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || more.contains(&b))
}

fn verb(text: &str) -> bool {
    text == "*" || word(text, b":")
}

fn api_group(text: &str) -> bool {
    let part = |part: &str| {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(edge) && part.ends_with(edge) && part.chars().all(|c| edge(c) || c == '-')
    };
    text.is_empty() || text == "*" || (text.len() <= 253 && text.split('.').all(part))
}

fn resource(text: &str) -> bool {
    let star_or_word = |part: &str, more: &[u8]| part == "*" || word(part, more);
    match text.split_once('/') {
        Some((resource, subresource)) => {
            star_or_word(resource, b"")
                && subresource.len() <= 127
                && subresource.split('/').all(|part| star_or_word(part, b"._"))
        }
        None => star_or_word(text, b""),
    }
}

fn resource_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && !matches!(text, "." | "..")
        && text.trim() == text
        && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

fn non_resource_url(text: &str) -> bool {
    let path = text.strip_suffix('*').unwrap_or(text);
    text.len() <= 253
        && (text == "*" || path.starts_with('/'))
        && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewaiter_api::InvalidValue;

    fn table<T: std::str::FromStr<Err = InvalidValue>>(good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(text.parse::<T>().is_ok(), "{text:?}");
        }
        for text in bad.iter().chain(&["a\n", "a\0", "\u{430}", &"a".repeat(300)]) {
            assert!(text.parse::<T>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_of_rules() {
        table::<Verb>(
            &[
                "*",
                "get",
                "deletecollection",
                "use",
                "create-on",
                "impersonate:user-info",
                "impersonate-on:user-info:get",
            ],
            &["", "Get", "get*", "get,list", "1a"],
        );
        table::<ApiGroup>(
            &["", "*", "apps", "rbac.authorization.k8s.io"],
            &["Apps", "apps/v1", "a..b", ".a", "*.a", "a_b"],
        );
        table::<Resource>(
            &[
                "*",
                "pods",
                "pods/log",
                "*/scale",
                "pods/*",
                "services/proxy",
                "userextras/example.com/team_id",
            ],
            &[
                "",
                "/",
                "pods/",
                "/log",
                "Pods",
                "po*",
                "pods,secrets",
                "pods//log",
                "a.b",
            ],
        );
        table::<ResourceName>(
            &[
                "a",
                "system:node:x",
                "a.b",
                "A_b",
                "example.com/*",
                "kubernetes.io/kubelet-serving",
                "https://a/b#c%20",
                "Domain Admins",
            ],
            &["", ".", "..", " a", "a ", " "],
        );
        table::<NonResourceUrl>(
            &["*", "/", "/healthz", "/metrics/*", "/api*"],
            &["", "healthz", "/a/*/b", "/a?b", "/a b", "//\\", "**", "/**"],
        );
    }
}
