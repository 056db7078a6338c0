//! The kubelet's keyring: with which of the keys in a pull secret it pulls an image.
//!
//! Its rules are those of `pkg/credentialprovider/keyring.go` of Kubernetes 1.36, whose own tables are rows here. It
//! gets the normalized name of an image, so `nginx` is `docker.io/library/nginx`. No key here has a `*`, and those with
//! `[` never match without a port.

use super::*;

/// `BasicDockerKeyring.Add`: host, port and path of a key.
fn index(key: &str) -> String {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://"));
    let rest = rest.unwrap_or(key);
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let path = if path.starts_with("/v1/") || path.starts_with("/v2/") {
        &path[3..]
    } else {
        path
    };
    format!("{host}{}", if path == "/" { "" } else { path })
}

/// `URLsMatch`.
fn matches(index: &str, image: &str) -> bool {
    let split = |text: &str| {
        let (host, path) = text.find('/').map_or((text, ""), |at| text.split_at(at));
        (host.to_owned(), path.to_owned())
    };
    let ((host, path), (image_host, image_path)) = (split(index), split(image));
    let is_class = host.starts_with('[') && host.ends_with(']');
    host == image_host && !is_class && image_path.starts_with(&path)
}

/// `Lookup`.
fn finds(key: &str, image: &str) -> bool {
    let index = index(key);
    let is_default = matches!(image.split_once('/'), Some(("docker.io" | "index.docker.io", _)));
    matches(&index, image) || (is_default && index == "index.docker.io")
}

#[test]
fn the_rules_are_those_of_the_kubelet() {
    for (key, image, is_found) in [
        ("kubernetes.io", "kubernetes.io", true),
        ("kubernetes.io", "kubernetes.com", false),
        ("kubernetes.io:6443", "kubernetes.io:6443/k", true),
        ("kubernetes.io", "kubernetes.io:6443/k", false),
        ("kubernetes.io", "a.kubernetes.io", false),
        ("https://quay.io/coreos", "quay.io/coreos/etcd", true),
        ("quay.io/coreos", "quay.io/other", false),
        ("https://gcr.io/v1/", "gcr.io/google-containers/pause", true),
        ("https://gcr.io/v1", "gcr.io/google-containers/pause", false),
        ("https://index.docker.io/v1/", "docker.io/library/nginx", true),
        ("index.docker.io", "docker.io/library/nginx", true),
        ("docker.io", "docker.io/library/nginx", true),
        ("registry-1.docker.io", "docker.io/library/nginx", false),
        ("https://hub.docker.com/", "docker.io/library/nginx", false),
        ("index.docker.io/team", "docker.io/team/app", false),
        ("https://index.docker.io/v1/", "gcr.io/library/nginx", false),
        ("Registry.example.com", "registry.example.com/app", false),
        ("[2001:db8::7]", "[2001:db8::7]/app", false),
        ("[2001:db8::7]:5000", "[2001:db8::7]:5000/app", true),
    ] {
        assert_eq!(finds(key, image), is_found, "{key} {image}");
    }
}

/// Each way to write the address of a registry is refused, or its images are pulled with its credential, and no others.
#[test]
fn the_kubelet_finds_the_credential_of_each_address() {
    let hosts = [
        ("docker.io", "docker.io"),
        ("index.docker.io", "docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("registry.hub.docker.com", "docker.io"),
        ("Hub.Docker.com", "docker.io"),
        ("quay.io", "quay.io"),
        ("ghcr.io", "ghcr.io"),
        ("gcr.io", "gcr.io"),
        ("europe-docker.pkg.dev", "europe-docker.pkg.dev"),
        ("Team.azurecr.io", "team.azurecr.io"),
        ("registry.gitlab.com", "registry.gitlab.com"),
        (
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
        ),
        ("harbor.example.com:8443", "harbor.example.com:8443"),
        ("10.0.0.7:5000", "10.0.0.7:5000"),
        ("[2001:db8::7]:5000", "[2001:db8::7]:5000"),
    ];
    let paths = [
        "",
        "/",
        "//",
        "/v1",
        "/v1/",
        "/v2",
        "/v2/",
        "/team",
        "/team/",
        "/v2/team",
        "/v1/team/",
    ];
    let mut rows = 0;
    for (host, images) in hosts {
        for scheme in ["", "https://", "http://"] {
            for path in paths {
                let text = format!("{scheme}{host}{path}");
                let address = ServerAddress::parse(&text).unwrap();
                let key = address.key();
                assert!(finds(key, &format!("{images}/team/app")), "{text}: {key}");
                let is_team = path.contains("team") && !host.eq_ignore_ascii_case(DOCKER_HUB_SITE);
                assert_eq!(finds(key, &format!("{images}/other/app")), !is_team, "{text}: {key}");
                assert!(!finds(key, "evil.example.com/team/app"), "{text}: {key}");
                // What worked before stays, byte by byte.
                if finds(&text, &format!("{images}/team/app")) {
                    assert_eq!(key, text);
                }
                rows += 1;
            }
        }
    }
    assert_eq!(rows, 15 * 3 * 11);
}

#[test]
fn the_address_of_docker_hub_has_a_key_that_is_found() {
    for (text, key) in [
        ("docker.io", "docker.io"),
        ("https://docker.io", "https://docker.io"),
        ("docker.io:443", "docker.io"),
        (DOCKER_HUB, DOCKER_HUB),
        ("index.docker.io", "index.docker.io"),
        ("https://index.docker.io/v1", DOCKER_HUB),
        ("registry-1.docker.io", DOCKER_HUB),
        ("https://registry-1.docker.io/v2/", DOCKER_HUB),
        ("https://hub.docker.com/r/team/app", DOCKER_HUB),
        ("registry.hub.docker.com", DOCKER_HUB),
        ("https://registry.hub.docker.com/team", "docker.io/team"),
        ("https://registry.hub.docker.com/v1/repositories", DOCKER_HUB),
        ("https://registry.hub.docker.com/v1/repositories/", DOCKER_HUB),
        ("https://registry.hub.docker.com/v2/repositories/team/app", DOCKER_HUB),
        ("https://docker.io/v1/repositories", DOCKER_HUB),
        ("https://hub.docker.com/r/team/app:1.0", DOCKER_HUB),
    ] {
        assert_eq!(ServerAddress::parse(text).unwrap().key(), key, "{text}");
    }
}
