//! Finds texts that look like secrets in an object that its readers see in clear text.
//!
//! This protects from mistakes only: it knows usual names of fields and usual forms of keys and tokens. A message names
//! the field and never shows its value.

use serde_json::Value;

use super::fields::At;
use super::{Fields, InvalidField, OpenObject};

/// Names of fields that contain a secret, without separators, in lower case. A name such as `existingSecret` is that of
/// a Secret of Kubernetes.
const NAMES: [&str; 4] = ["secret", "pwd", "pass", "bearer"];
/// The ends of such names: `adminPassword`, `GITHUB_TOKEN`.
const ENDS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "signingkey",
    "encryptionkey",
    "clientsecret",
    "sharedsecret",
];
/// The prefixes of keys and tokens, with the name of each.
const FORMS: [(&str, &str); 8] = [
    ("twk_", "an API key of a cluster"),
    ("ghp_", "a token of GitHub"),
    ("gho_", "a token of GitHub"),
    ("ghs_", "a token of GitHub"),
    ("github_pat_", "a token of GitHub"),
    ("glpat-", "a token of GitLab"),
    ("xoxb-", "a token of Slack"),
    ("xoxp-", "a token of Slack"),
];
/// The minimum length of these, and the length of an access key of AWS.
const LENGTH: usize = 20;
const REMEDY: &str = "all who may read the organization see it here: put it into a Secret in the cluster, and write only the name of the Secret, \
                      for example as existingSecret";

impl Fields<'_> {
    /// An open object that all readers see; empty if it is missing or `null`. What an older version stored can still be
    /// read, whatever it contains.
    pub(super) fn clear_text(&mut self, key: &'static str) -> Result<OpenObject, InvalidField> {
        let at = self.find(key);
        if at.is_input() {
            refuse_secrets(&at)?;
        }
        self.or_default(key)
    }
}

/// Checks that no text in `at` looks like a secret.
fn refuse_secrets(at: &At<'_>) -> Result<(), InvalidField> {
    search(at, None)
}

/// Searches `at`, which is the value of a field with the name `name`.
fn search(at: &At<'_>, name: Option<&str>) -> Result<(), InvalidField> {
    match at.value {
        Value::Object(fields) => {
            // As the variables of a container: {"name": "PASSWORD", "value": "…"}.
            let named = fields.get("name").and_then(Value::as_str);
            for (key, value) in fields {
                if let Some(form) = form(key) {
                    return Err(at.invalid(format!("has a key (not shown) that looks like {form}; {REMEDY}")));
                }
                let name = named.filter(|_| key == "value").unwrap_or(key);
                search(&at.at(key, value), Some(name))?;
            }
            Ok(())
        }
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| search(&at.nth(index, item), name))
        }
        Value::String(text) if !text.is_empty() && !is_reference(text) => match form(text) {
            Some(form) => Err(at.invalid(format!("looks like {form} (not shown); {REMEDY}"))),
            None if name.is_some_and(is_of_secret) => {
                Err(at.invalid(format!("has the name of a secret, and a text (not shown); {REMEDY}")))
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Returns true if fields with this name usually contain a secret.
fn is_of_secret(name: &str) -> bool {
    let plain: String = name.chars().filter(|letter| letter.is_alphanumeric()).collect();
    let plain = plain.to_lowercase();
    NAMES.contains(&&*plain) || ENDS.iter().any(|end| plain.ends_with(end))
}

/// Returns true if the text only refers to a variable: `$(PASSWORD)` or `${PASSWORD}`.
fn is_reference(text: &str) -> bool {
    let name = |open, close| text.strip_prefix(open)?.strip_suffix(close);
    let name = name("$(", ")").or_else(|| name("${", "}"));
    name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

/// Returns the form of a secret that the text contains.
fn form(text: &str) -> Option<&'static str> {
    if text.contains("PRIVATE KEY") && text.contains("-----BEGIN") {
        return Some("a private key");
    }
    if has_password(text) {
        return Some("an address with a password");
    }
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_-.".contains(letter));
    words.find_map(|word| {
        let known = FORMS
            .iter()
            .find(|(start, _)| word.len() >= LENGTH && word.starts_with(start));
        let is_of_aws = word.len() == LENGTH
            && ["AKIA", "ASIA"].iter().any(|start| word.starts_with(start))
            && word
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        let is_jwt = word.starts_with("eyJ") && word.len() >= 2 * LENGTH && word.matches('.').count() == 2;
        known
            .map(|(_, form)| *form)
            .or(is_of_aws.then_some("an access key of AWS"))
            .or(is_jwt.then_some("a JSON Web Token"))
    })
}

/// Returns true if the text contains an address with user and password, as `postgres://USER:PASSWORD@HOST`.
fn has_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest
            .split(|letter: char| "/?#\"'".contains(letter) || letter.is_whitespace())
            .next();
        let user = authority.and_then(|authority| authority.rsplit_once('@'));
        let password = user.and_then(|(user, _)| user.split_once(':'));
        password.is_some_and(|(_, password)| !password.is_empty() && !is_reference(password))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::document::Unknown;
    use super::*;

    #[test]
    fn references_and_settings_are_not_taken_for_secrets() {
        for value in [
            json!({"existingSecret": "grafana", "secretName": "tls", "passwordSecretRef": {"name": "a", "key": "password"}}),
            json!({"imagePullSecrets": [{"name": "quay"}], "automountServiceAccountToken": true, "password": ""}),
            json!({"password": "$(PASSWORD)", "token": "${TOKEN}", "apiKey": null, "tokenTTL": "10m", "secret": {}}),
            json!({"caBundle": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}),
            json!({"url": "https://ci@example.com/a:b@c", "database": "postgres://app:$(PASSWORD)@db/app"}),
            json!({"env": [{"name": "LEVEL", "value": "debug"}, {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "a"}}}]}),
            json!({"region": "ASIA-east-of-somewhere", "prefix": "twk_", "monkey": "banana", "compass": "north", "bucketKey": "a"}),
        ] {
            assert_eq!(refuse_secrets(&At::root(&value, Unknown::Refuse)), Ok(()), "{value}");
        }
    }
}
