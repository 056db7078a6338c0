//! The proxy that leads to the API server: over HTTP or HTTPS with CONNECT, or SOCKS 5, so that the proxy sees neither
//! the token nor the requests.
//!
//! Its password is never shown. The certificate of an HTTPS proxy is checked against the certificates of the system,
//! not against those of the cluster, and it gets no client certificate.

use http::Uri;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use kube::Config;

use super::ClientError;

const SOCKS_PORT: u16 = 1080;

/// A proxy that can be used.
pub(super) struct Proxy {
    pub(super) kind: Kind,
    pub(super) uri: Uri,
    intercept: Intercept,
}

/// The protocol of a proxy.
pub(super) enum Kind {
    Http,
    Https,
    Socks,
}

impl Proxy {
    /// The proxy of `config`, if it has one.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, ClientError> {
        let Some(url) = &config.proxy_url else {
            return Ok(None);
        };
        let refused = |reason| ClientError::Proxy {
            proxy: shown(url),
            reason,
        };
        if config.cluster_url.scheme_str() == Some("http") {
            return Err(refused(
                "the API server has an http:// address, and its token must not pass a proxy in plain text: use https://, or remove proxy-url",
            ));
        }
        let intercept = parse(url);
        let kind = intercept.as_ref().and_then(|proxy| match proxy.uri().scheme_str()? {
            "http" => Some(Kind::Http),
            "https" => Some(Kind::Https),
            "socks5" | "socks5h" => Some(Kind::Socks),
            _ => None,
        });
        let (Some(intercept), Some(kind)) = (intercept, kind) else {
            return Err(refused(
                "must be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT: correct proxy-url, or HTTPS_PROXY",
            ));
        };
        let uri = match kind {
            Kind::Http | Kind::Https => intercept.uri().clone(),
            Kind::Socks => with_port(intercept.uri(), SOCKS_PORT),
        };
        Ok(Some(Self { kind, uri, intercept }))
    }

    /// Connections through an HTTP or HTTPS proxy, to which `connector` leads.
    pub(super) fn tunnel<C>(self, connector: C) -> Tunnel<C> {
        let tunnel = Tunnel::new(self.uri, connector);
        match self.intercept.basic_auth() {
            Some(password) => tunnel.with_auth(password.clone()),
            None => tunnel,
        }
    }

    /// Connections through a SOCKS proxy, which also resolves the name of the API server.
    pub(super) fn socks<C>(self, connector: C) -> SocksV5<C> {
        let socks = SocksV5::new(self.uri, connector);
        match self.intercept.raw_auth() {
            Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
            None => socks,
        }
    }
}

/// Without a scheme it is an HTTP proxy.
fn parse(url: &Uri) -> Option<Intercept> {
    let any = Uri::from_static("https://any");
    Matcher::builder().all(url.to_string()).build().intercept(&any)
}

fn with_port(uri: &Uri, port: u16) -> Uri {
    let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
    let complete = Uri::builder().scheme(scheme).authority(format!("{host}:{port}"));
    match (uri.port(), complete.path_and_query("/").build()) {
        (None, Ok(complete)) => complete,
        _ => uri.clone(),
    }
}

/// The address of the API server, with the proxy that leads to it and where that comes from, for messages.
#[must_use]
pub fn route(config: &Config, environment: &[(String, String)]) -> String {
    let server = shown(&config.cluster_url);
    let Some(proxy) = &config.proxy_url else { return server };
    // Without a proxy in the kubeconfig it is that of the environment.
    let variable = environment.iter().find(|(name, value)| {
        name.eq_ignore_ascii_case("HTTPS_PROXY") && value.parse::<Uri>().is_ok_and(|url| url == *proxy)
    });
    let origin = variable.map_or("proxy-url in the kubeconfig", |(name, _)| name);
    format!("{server} through the proxy {} ({origin})", shown(proxy))
}

/// Without user and password.
fn shown(url: &Uri) -> String {
    let scheme = url
        .scheme_str()
        .map_or_else(String::new, |scheme| format!("{scheme}://"));
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}{}{port}", url.host().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::Leadership;
    use crate::client::fenced;
    use crate::testing::kit;

    fn of(server: &str, proxy: &str) -> Result<Option<Proxy>, ClientError> {
        let mut config = Config::new(server.parse().unwrap());
        config.proxy_url = Some(proxy.parse().unwrap());
        Proxy::of(&config)
    }

    #[test]
    fn a_proxy_is_read_as_kubectl_reads_it() {
        for (url, kind, uri) in [
            ("http://proxy.example:3128", "http", "http://proxy.example:3128/"),
            ("proxy.example:3128", "http", "http://proxy.example:3128/"),
            ("https://u:p@proxy.example/path", "https", "https://proxy.example/"),
            ("socks5://proxy.example", "socks", "socks5://proxy.example:1080/"),
            ("socks5h://[::1]:9", "socks", "socks5h://[::1]:9/"),
        ] {
            let proxy = of("https://api.example.com", url).unwrap().unwrap();
            let its_kind = match proxy.kind {
                Kind::Http => "http",
                Kind::Https => "https",
                Kind::Socks => "socks",
            };
            assert_eq!((its_kind, proxy.uri.to_string().as_str()), (kind, uri), "{url}");
        }
        assert!(
            Proxy::of(&Config::new("https://api.example.com".parse().unwrap()))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn the_way_to_the_server_names_the_proxy_and_its_origin_without_the_password() {
        let mut config = Config::new("https://api.example.com:6443/".parse().unwrap());
        assert_eq!(route(&config, &[]), "https://api.example.com:6443");
        let proxy = "http://user:secret@proxy:3128";
        config.proxy_url = Some(proxy.parse().unwrap());
        for (environment, origin) in [
            (vec![], "proxy-url in the kubeconfig"),
            (vec![("https_proxy".to_owned(), proxy.to_owned())], "https_proxy"),
        ] {
            let expected = format!("https://api.example.com:6443 through the proxy http://proxy:3128 ({origin})");
            assert_eq!(route(&config, &environment), expected);
        }
    }

    #[test]
    fn what_cannot_be_used_is_named_without_its_password() {
        for (server, proxy, words) in [
            (
                "https://api.example.com",
                "ftp://user:secret@proxy:21",
                ["ftp://proxy:21", "socks5://HOST:PORT"],
            ),
            (
                "https://api.example.com",
                "socks4://user:secret@proxy:1080",
                ["socks4://proxy:1080", "proxy-url"],
            ),
            (
                "http://api.example.com",
                "http://user:secret@proxy:3128",
                ["http://proxy:3128", "use https://"],
            ),
        ] {
            let Err(error) = of(server, proxy) else {
                panic!("{proxy} is refused")
            };
            let text = format!("{error} {error:?}");
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_socks_proxy_gets_the_password_and_the_name_of_the_api_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new("https://api.example.com".parse().unwrap());
        let url = format!("socks5://user:p%40ss@{}", listener.local_addr().unwrap());
        config.proxy_url = Some(url.parse().unwrap());
        let (kit, _) = kit();
        let client = fenced(&config, &Leadership::never(kit.clock.clone()), &kit)
            .await
            .unwrap();
        let proxy = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            for (expected, answer) in [
                (&b"\x05\x01\x02"[..], &b"\x05\x02"[..]),
                (b"\x01\x04user\x04p@ss", b"\x01\x00"),
                (b"\x05\x01\x00\x03\x0fapi.example.com\x01\xbb", b""),
            ] {
                let mut received = vec![0; expected.len()];
                stream.read_exact(&mut received).await.unwrap();
                assert_eq!(received, expected);
                stream.write_all(answer).await.unwrap();
            }
        };
        let nodes = Api::<Node>::all(client);
        let (answer, ()) = futures::join!(nodes.get("a"), proxy);
        answer.unwrap_err();
    }
}
