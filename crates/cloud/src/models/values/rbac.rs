//! The values in a rule of a role.
//!
//! Source: `ValidatePolicyRule` of Kubernetes' `pkg/apis/rbac/validation`, which hardly restricts single words; here
//! they must also be able to match something.

use super::{pattern_value, text_value};

pattern_value! {
    /// A verb of the API, or `*`. Those of constrained impersonation have a `:`.
    Verb, "verb",
    r"^(\*|[a-z][a-z0-9:\-]{0,62})$",
    example "get",
    "must be '*' or a verb in lower case: get, list, watch, create, update, patch, delete, deletecollection, ..."
}
pattern_value! {
    /// An API group; the empty string is the core group; `*` is all groups.
    ApiGroup, "API group",
    r"^(\*|[a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*)?$",
    most 253, example "apps",
    "must be '*', empty (the core group) or a group such as apps or rbac.authorization.k8s.io"
}
pattern_value! {
    /// A resource, `resource/subresource`, or one with `*` for either. The subresource may be the key of a user's
    /// attribute (`userextras/example.com`).
    Resource, "resource",
    r"^(\*|[a-z][a-z0-9\-]{0,62})(/(\*|[a-z][a-z0-9._\-]{0,62}))*$",
    most 191, example "deployments/scale",
    "must be '*' or a resource in lower case, such as pods or pods/log"
}
text_value! {
    /// The name of an object, of a signer (`example.com/*`), or of a user or group to impersonate. An API server
    /// compares it as a text; only for signers, it also asks for `DOMAIN/*`.
    #[schema(max_length = 253, pattern = r"^(?!\.{1,2}$)[!-~]([ -~]*[!-~])?$", examples("web"))]
    ResourceName, "name of an object", resource_name,
    "must be 1 to 253 printable ASCII characters without a space at either end, and neither '.' nor '..'"
}
pattern_value! {
    /// A non-resource path of the API server, with `*` only as its last character.
    NonResourceUrl, "non-resource URL",
    r"^(\*|/[A-Za-z0-9/\-._~]*\*?)$",
    most 253, example "/healthz",
    "must be '*' or a path such as /healthz or /metrics/*, with '*' only as its last character"
}

fn resource_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && !matches!(text, "." | "..")
        && text.trim() == text
        && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_values;

    macro_rules! table {
        ($type:ty: $good:tt not [$($bad:expr),+]) => {
            assert_values! { $type: $good not [$($bad),+, "a\n", "a\0", "\u{430}", "a".repeat(300)] }
        };
    }

    #[test]
    fn words_of_rules() {
        table! { Verb:
            ["*", "get", "deletecollection", "use", "create-on", "impersonate:user-info", "impersonate-on:user-info:get"]
            not ["", "Get", "get*", "get,list", "1a"]
        }
        table! { ApiGroup:
            ["", "*", "apps", "rbac.authorization.k8s.io"] not ["Apps", "apps/v1", "a..b", ".a", "*.a", "a_b"]
        }
        table! { Resource:
            ["*", "pods", "pods/log", "*/scale", "pods/*", "services/proxy", "userextras/example.com/team_id"]
            not ["", "/", "pods/", "/log", "Pods", "po*", "pods,secrets", "pods//log", "a.b"]
        }
        table! { ResourceName:
            [
                "a", "system:node:x", "a.b", "A_b", "example.com/*", "kubernetes.io/kubelet-serving",
                "https://a/b#c%20", "Domain Admins"
            ]
            not ["", ".", "..", " a", "a ", " "]
        }
        table! { NonResourceUrl:
            ["*", "/", "/healthz", "/metrics/*", "/api*"]
            not ["", "healthz", "/a/*/b", "/a?b", "/a b", "//\\", "**", "/**"]
        }
    }
}
