//! SSH public keys. They become lines of `authorized_keys`, so a key consists only of a type, its data and a comment:
//! no options before it, and no second line.

use std::str::FromStr;

use tidewaiter_api::InvalidValue;
use tidewaiter_api::values::SshKeyLine;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};

use super::{invalid, pattern_value, shown_and_read, written_as_shown};

const KIND: &str = "SSH public key";
const MAX_BYTES: usize = 8 * 1024;
/// Its private key was deleted.
const EXAMPLE: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5 alice@example.com";

/// A public key of a type that OpenSSH supports, in one line: the type, the key in base64 and an optional comment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SshPublicKey {
    line: String,
    fingerprint: Fingerprint,
}

impl SshPublicKey {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.line
    }

    /// The SHA-256 fingerprint, as `ssh-keygen -l` shows it.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

impl FromStr for SshPublicKey {
    type Err = InvalidValue;

    /// An error shows only the beginning: the text may be a private key, and all of these begin alike.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let key = SshKeyLine::parse(text).map_err(|rule| {
            let start: String = text.chars().take(16).collect();
            invalid(KIND, &start, rule)
        })?;
        Ok(Self {
            line: key.as_str().to_owned(),
            fingerprint: Fingerprint(key.fingerprint().to_owned()),
        })
    }
}

written_as_shown!(SshPublicKey);
shown_and_read!(SshPublicKey, "SSH public key");

impl utoipa::ToSchema for SshPublicKey {}

impl utoipa::PartialSchema for SshPublicKey {
    fn schema() -> RefOr<Schema> {
        const PATTERN: &str = r"^[ \t\r\n]*(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|ssh-rsa|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com)[ \t]+AAAA[A-Za-z0-9+/]+={0,3}([ \t][^\x00-\x08\x0a-\x1f\x7f]*)?[ \t\r\n]*$";
        let schema = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(
                "A public key of a type that OpenSSH supports, in one line: the type, the key in base64 and an optional comment.",
            ))
            .max_length(Some(MAX_BYTES))
            .pattern(Some(PATTERN))
            .examples([EXAMPLE]);
        schema.into()
    }
}

pattern_value! {
    /// The fingerprint of a key: `SHA256:` and 43 characters, or MD5 as 16 pairs of hexadecimal digits with `:`
    /// between.
    Fingerprint, "fingerprint",
    r"^(SHA256:[A-Za-z0-9+/]{43}|(MD5:)?([0-9A-Fa-f]{2}:){15}[0-9A-Fa-f]{2})$",
    example "SHA256:m17ZU7hsyzWBFKqJ1CFX9iV5aFCCCwvuDg+IdcK5NY4",
    "must be SHA256: and 43 base64 characters, or 16 pairs of hexadecimal digits separated by ':'; omit it to have it computed"
}

impl Fingerprint {
    /// Returns true if it may be the fingerprint of `key`. MD5 is not compared, because it does not distinguish keys
    /// securely.
    #[must_use]
    pub fn matches(&self, key: &SshPublicKey) -> bool {
        !self.0.starts_with("SHA256:") || self == key.fingerprint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_values;

    // Created for these tests; the private keys were deleted.
    const ED25519: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5 alice@example.com";
    const RSA_2048: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCO7RLDLmVsLWMylWPmR0ViJK+7NGARtZdVlF7K8uPR1mkxCjoW0FdJAr2gFXIflu6DuCQ9l598RGiZJQYiGgjGA4CleXRHSgQ8nED7ckEM+sEmaZ2HxRxsZTbcqXo0ruGNOY1VsVvd+2ZSkNCFFQBfPnDLMxpynHDRsfQWfKHDdZfSey3FXFRrQWhu+G+agnn04hJHbunfnc1cYxzCFrfuioBLkOE+5hJK1EIYFpSUagMLTmxEngSVQ1akZIcgo5CwbIAbSdZ7ZIrTFLpfz3n3EgF2HeIJ+el0lwHam05q4N3FOCBx1HRqymEDaC+kbg4f9sJIm9vbh7nK6E/lfVr1 alice@example.com";
    const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDWnwMuaANuqQ236j6dZz+hz6UNH6BOV8MCKaC+MsRnAaOofL35Rvg2Uaszp5ltFwKlf0CGiYKPR0tbQP6kFcVSFakWjcf73dMDogdbNBG0WJCwOa7KsOPCjHfQ3bTUTr0WZeo4DzlDaGGhbAkbpweDmFX5iAip5NaBGNwzcWxE6w== small";
    const ECDSA: [&str; 3] = [
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRao= alice@example.com",
        "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBFKv4TOfrlvPOqu4ca9MhbJzcqdhQIDftAcI0/SP++kY+kJQtmTZLRlooUW8NurYUcJa9NAyi50A9AGqeusmEZj6P7VbNjjlQwSBPBB6iOQWvwuoSR2dgC+nbPu0zwYRTw== alice@example.com",
        "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAGP3axgrCQjrMm/11omk55ZZw5faFYZy4EJFYEhgJwMSAnzDqC7GqZcy2alj5s5z0dH56B0UVqdHzwDiw4ggop5jgFGv/0vKfgCc5sMnxUTs5pK47MHZS3gRLQEhfjd2+55aTWoAhWuTVSV9p2AyvTj3n9RYWuRypEkEnwD38ySBewhhw== alice@example.com",
    ];
    const SECURITY_KEYS: [&str; 2] = [
        "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIKEsW+O3/J4+f0ONATjM6hhK3v1KmQ9TQ80d79vJTbtQAAAABHNzaDo=",
        "sk-ecdsa-sha2-nistp256@openssh.com AAAAInNrLWVjZHNhLXNoYTItbmlzdHAyNTZAb3BlbnNzaC5jb20AAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRaoAAAAEc3NoOg==",
    ];
    const DSA: &str = "ssh-dss AAAAB3NzaC1kc3MAAACBAN1KwQ1JsDb9cJlAVuJ/Ph+4ltrBh2KykLUiA7EuZSskF2Pmbt0D0a9j+h+HC2j9R58yRNHbMQn4JcuiYM1S5BfUjJX66j1F+YinSjIkI5N0wUfccKaqrtkRM/xmmDb4gjHKWoLoMfPgH+tdMK3VWHpTpSiuB2MGLvsYkBQuDLwlAAAAFQDKnyYZ8YwdAnwq7yJvXhqe7K/NrQAAAIEAu+uG5xZ4Um8vprJIJDxSSDfsOmrpC9QlvFye+x9p3kMERlfxSCLv5M2P1AtABOiF7th4xDc0VCdQeHPh+VE1TIGWWbviBy5E6w7Aa5jo78PZ8uoHpbQfTIwWejSzL03UczzZuWZgNj9m10A6xHhGz5pcvKMGGNkGVU2h+Beod88AAACBAKghZzQj1My9/HA6Naacj8UGCaX4oflJKUYb49Ac+6fHdL4fCFPnx0So1RxphfbOJTx5vrzSdxB7OGw/Gm3OYYXkzFyiW92FUGiSfwBvuRZSlTjkSUwS5Naa+3QZRiah79C6+XoBIxfXVBQXwOptHoPUVBI8SFN74jLZal/LD92F";

    fn rule(text: &str) -> &'static str {
        text.parse::<SshPublicKey>().unwrap_err().rule
    }

    #[test]
    fn keys_of_present_types_stay_as_they_are() {
        for text in [ED25519, RSA_2048].into_iter().chain(ECDSA).chain(SECURITY_KEYS) {
            let key: SshPublicKey = text.parse().unwrap();
            assert_eq!(key.as_str(), text);
            let (bare, again) = (
                text.rsplit_once(" a").map_or(text, |(bare, _)| bare),
                format!(" {text}  "),
            );
            assert_eq!(bare.parse::<SshPublicKey>().unwrap().fingerprint(), key.fingerprint());
            assert_eq!(again.parse::<SshPublicKey>().unwrap(), key);
            let table = text.replace(' ', "\t \t") + "\r\n";
            assert_eq!(table.parse::<SshPublicKey>().unwrap(), key);
        }
        let key: SshPublicKey = ED25519.parse().unwrap();
        assert_eq!(
            key.fingerprint().as_str(),
            "SHA256:m17ZU7hsyzWBFKqJ1CFX9iV5aFCCCwvuDg+IdcK5NY4"
        );
    }

    #[test]
    fn what_is_no_key_or_a_weak_one_is_refused() {
        assert!(rule(DSA).starts_with("must be of type ssh-ed25519"));
        assert!(rule(RSA_1024).contains("2048"));
        let format = "must be \"TYPE BASE64\"";
        for text in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 AAAA",
            &ED25519.replace("ssh-ed25519", "ssh-rsa"),
            &ED25519.replace(" alice", "AAAA alice"),
            &format!("command=\"/bin/sh\" {ED25519}"),
            &format!("no-pty {ED25519}"),
            &format!("@cert-authority {ED25519}"),
        ] {
            assert!(rule(text).starts_with(format), "{text:?}: {}", rule(text));
        }
        for text in [
            format!("{ED25519}\n{ED25519}"),
            format!("{ED25519}\u{7f}"),
            format!("{ED25519}\u{202e}"),
        ] {
            assert_eq!(rule(&text), "must be one line of printable characters", "{text:?}");
        }
        assert!(rule(&format!("{ED25519}{}", "a".repeat(256))).contains("comment"));
        assert!(rule(&"a".repeat(8193)).contains("8192"));
    }

    #[test]
    fn a_private_key_is_not_shown() {
        for text in [
            "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2hunter2hunter2",
            "b3BlbnNzaC1rZXktdjEAhunter2hunter2hunter2",
        ] {
            let error = text.parse::<SshPublicKey>().unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(rule("-----BEGIN OPENSSH PRIVATE KEY-----").contains(".pub"));
    }

    #[test]
    fn fingerprints() {
        let key: SshPublicKey = ED25519.parse().unwrap();
        let other: SshPublicKey = RSA_2048.parse().unwrap();
        assert!(key.fingerprint().matches(&key) && !key.fingerprint().matches(&other));
        let md5 = "16:27:ac:a5:76:28:2d:36:63:1b:56:4d:eb:df:a6:48";
        assert!(md5.parse::<Fingerprint>().unwrap().matches(&key));
        assert!(format!("MD5:{md5}").parse::<Fingerprint>().is_ok());
        assert_values! { Fingerprint:
            []
            not [
                "", "SHA256:", "SHA1:AAAA", &md5[3..], md5.replace('1', "g"), format!("{}=", key.fingerprint()),
                format!("{md5}\n")
            ]
        }
    }
}
