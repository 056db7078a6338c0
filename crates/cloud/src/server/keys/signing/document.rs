//! The first document that a verifier of tokens requests.

use serde::Serialize;

/// `/.well-known/openid-configuration` (OIDC Discovery 1.0): what a kube-apiserver needs to find the keys. There is no
/// authorization endpoint, because tokens are not obtained that way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Discovery {
    issuer: String,
    jwks_uri: String,
    response_types_supported: [&'static str; 1],
    subject_types_supported: [&'static str; 1],
    id_token_signing_alg_values_supported: [&'static str; 1],
    claims_supported: [&'static str; 9],
}

impl Discovery {
    /// The document of this issuer, exactly as in tokens: verifiers compare the two byte by byte.
    #[must_use]
    pub fn new(issuer: &str) -> Self {
        Self {
            issuer: issuer.to_owned(),
            jwks_uri: format!("{}/.well-known/jwks.json", issuer.trim_end_matches('/')),
            response_types_supported: ["id_token"],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: ["ES256"],
            claims_supported: ["iss", "sub", "aud", "iat", "nbf", "exp", "jti", "groups", "token_use"],
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_says_where_the_keys_are() {
        for (issuer, jwks_uri) in [
            ("https://cloud.example", "https://cloud.example/.well-known/jwks.json"),
            (
                "https://cloud.example/api/",
                "https://cloud.example/api/.well-known/jwks.json",
            ),
        ] {
            let expected = json!({
                "issuer": issuer,
                "jwks_uri": jwks_uri,
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
                "claims_supported": ["iss", "sub", "aud", "iat", "nbf", "exp", "jti", "groups", "token_use"],
            });
            assert_eq!(serde_json::to_value(Discovery::new(issuer)).unwrap(), expected);
        }
    }
}
