//! The relying party of WebAuthn: its id is the host of the public URL, to which browsers bind each key, and its only
//! origin is that of the public URL.

use url::Url;
use webauthn_rs::{Webauthn, WebauthnBuilder};

/// The relying party of the server; `None` if the public URL has an IP address, which no browser accepts.
pub(crate) fn relying_party(public_url: &Url) -> Option<Webauthn> {
    let builder = WebauthnBuilder::new(public_url.domain()?, public_url).ok()?;
    // The password is the other factor. To verify the user too, keys would need a PIN, and Chromium refuses to ask for
    // the protection of keys by one that the library would want.
    let builder = builder.danger_set_user_presence_only_security_keys(true);
    builder.rp_name("Tidewaiter").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relying_party_has_a_host_name() {
        for (url, has_one) in [
            ("https://cloud.example.org", true),
            ("http://localhost:8443", true),
            ("https://192.0.2.1", false),
            ("https://[2001:db8::1]", false),
        ] {
            assert_eq!(relying_party(&url.parse().unwrap()).is_some(), has_one, "{url}");
        }
    }
}
