//! Finds the real components that tests start: the control plane, what real nodes run, Helm, moto, fake-gcs-server,
//! pebble, Prometheus, Postgres, Schemathesis and oidc-provider.
//!
//! Never downloads or builds anything: what is missing fails the test with the line that installs it. The versions are
//! those that `hack/` pins, read from the same files at compile time.

use std::path::PathBuf;

const GO_MOD: &str = include_str!("../../../hack/kube-assets/go.mod");
const KUBELET_GO_MOD: &str = include_str!("../../../hack/node-assets/kubelet-1.35/go.mod");
const CONTAINERD_GO_MOD: &str = include_str!("../../../hack/node-assets/containerd/go.mod");
const CRANE_GO_MOD: &str = include_str!("../../../hack/node-assets/crane/go.mod");
const NODE_TREE: &str = include_str!("../../../hack/node-tree");
const HELM_GO_MOD: &str = include_str!("../../../hack/helm/go.mod");
const FAKE_GCS_GO_MOD: &str = include_str!("../../../hack/fake-gcs-server/go.mod");
const PEBBLE_GO_MOD: &str = include_str!("../../../hack/pebble/go.mod");
const YAML_ORACLE_GO_MOD: &str = include_str!("../../../hack/yaml-oracle/go.mod");
const MOTO_PINS: &str = include_str!("../../../hack/moto-requirements.txt");
const SCHEMATHESIS_PINS: &str = include_str!("../../../hack/schemathesis-requirements.txt");
const OIDC_PROVIDER: &str = include_str!("../../../hack/oidc-provider/package.json");
const POSTGRESQL: &str = include_str!("../../../hack/postgresql");

/// The control plane's binary of this name (`etcd`, `kube-apiserver`, `kubectl`, `kube-controller-manager`,
/// `kube-scheduler`): from `KUBEBUILDER_ASSETS` when that is set, else from the cache that `hack/kube-assets/build`
/// fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    if let Some(folder) = folder_from("KUBEBUILDER_ASSETS") {
        let path = folder.join(name);
        let folder = folder.display();
        assert!(
            path.is_file(),
            "KUBEBUILDER_ASSETS={folder} lacks {name}: unset it and run hack/kube-assets/build"
        );
        return path;
    }
    let path = cache_folder().join("kube-assets").join(kubernetes_version()).join(name);
    assert!(
        path.is_file(),
        "{} is missing: run hack/kube-assets/build",
        path.display()
    );
    path
}

/// The folder with what real nodes run (`kubelet-<version>`, `containerd`, …), from the cache that
/// `hack/node-assets/build` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn node_programs() -> PathBuf {
    let path = node_programs_folder();
    assert!(
        path.is_dir(),
        "{} is missing: run hack/node-assets/build",
        path.display()
    );
    path
}

/// Returns the folder of the nodes' programs, which may not exist.
pub(crate) fn node_programs_folder() -> PathBuf {
    let required = |go_mod, module| required(go_mod, module).expect("hack/node-assets requires its programs");
    let versions = [
        kubernetes_version(),
        previous_kubelet_version(),
        required(CONTAINERD_GO_MOD, "github.com/containerd/containerd/v2"),
        required(CRANE_GO_MOD, "github.com/google/go-containerregistry"),
    ];
    cache_folder().join("node-assets").join(versions.join("-"))
}

/// The folder whose `root` is the root tree of real nodes, from the cache that `hack/node-tree` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn node_tree() -> PathBuf {
    let suite = NODE_TREE
        .lines()
        .find_map(|line| line.strip_prefix("suite="))
        .expect("hack/node-tree says its suite");
    let path = cache_folder().join(format!("node-tree-{suite}"));
    assert!(path.is_dir(), "{} is missing: run hack/node-tree", path.display());
    path
}

/// Helm, from the cache that `hack/helm/build` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn helm() -> PathBuf {
    let version = HELM_GO_MOD
        .lines()
        .find_map(|line| line.strip_prefix("require helm.sh/helm/v4 "))
        .expect("hack/helm/go.mod requires helm");
    let path = cache_folder().join("helm").join(version).join("helm");
    assert!(path.is_file(), "{} is missing: run hack/helm/build", path.display());
    path
}

/// The reader of YAML that kubectl and kOps use, from the cache that `hack/yaml-oracle/build` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn yaml_oracle() -> PathBuf {
    let version =
        required(YAML_ORACLE_GO_MOD, "sigs.k8s.io/yaml").expect("hack/yaml-oracle/go.mod requires the reader");
    let name = "yaml-oracle";
    let path = cache_folder().join(name).join(version).join(name);
    assert!(
        path.is_file(),
        "{} is missing: run hack/yaml-oracle/build",
        path.display()
    );
    path
}

/// The moto server, from the cache that `hack/moto` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn moto_server() -> PathBuf {
    let version = MOTO_PINS
        .lines()
        .find_map(|line| line.strip_prefix("moto=="))
        .expect("hack/moto-requirements.txt pins moto");
    let path = cache_folder().join(format!("moto-{version}")).join("bin/moto_server");
    assert!(path.is_file(), "{} is missing: run hack/moto", path.display());
    path
}

/// fake-gcs-server, from the cache that `hack/fake-gcs-server/build` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn fake_gcs_server() -> PathBuf {
    let version = FAKE_GCS_GO_MOD
        .lines()
        .find_map(|line| line.strip_prefix("require github.com/fsouza/fake-gcs-server "))
        .expect("hack/fake-gcs-server/go.mod requires fake-gcs-server");
    let name = "fake-gcs-server";
    let path = cache_folder().join(name).join(version).join(name);
    assert!(
        path.is_file(),
        "{} is missing: run hack/fake-gcs-server/build",
        path.display()
    );
    path
}

/// `pebble`, an ACME server, or `pebble-challtestsrv`, its DNS server, from the cache that `hack/pebble/build` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn pebble(name: &str) -> PathBuf {
    let version = PEBBLE_GO_MOD
        .lines()
        .find_map(|line| line.strip_prefix("require github.com/letsencrypt/pebble/v2 "))
        .expect("hack/pebble/go.mod requires pebble");
    let path = cache_folder().join("pebble").join(version).join(name);
    assert!(path.is_file(), "{} is missing: run hack/pebble/build", path.display());
    path
}

/// `prometheus` or `promtool`, from the cache that `hack/prometheus` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn prometheus(name: &str) -> PathBuf {
    let path = cache_folder().join("prometheus").join(name);
    assert!(path.is_file(), "{} is missing: run hack/prometheus", path.display());
    path
}

/// The folder with `initdb` and `postgres`, from the cache that `hack/postgresql` fills.
///
/// # Panics
/// When they are not there, naming the folder and the remedy.
#[must_use]
pub fn postgres() -> PathBuf {
    let version = POSTGRESQL
        .lines()
        .find_map(|line| line.strip_prefix("version="))
        .expect("hack/postgresql says its version");
    let folder = cache_folder().join(format!("postgresql-{version}"));
    for name in ["initdb", "postgres"] {
        let path = folder.join(name);
        assert!(path.is_file(), "{} is missing: run hack/postgresql", path.display());
    }
    folder
}

/// Schemathesis, from the cache that `hack/schemathesis` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn schemathesis() -> PathBuf {
    let version = SCHEMATHESIS_PINS
        .lines()
        .find_map(|line| line.strip_prefix("schemathesis=="))
        .expect("hack/schemathesis-requirements.txt pins schemathesis");
    let path = cache_folder()
        .join(format!("schemathesis-{version}"))
        .join("bin/schemathesis");
    assert!(path.is_file(), "{} is missing: run hack/schemathesis", path.display());
    path
}

/// The folder with `nginx` and its `modules`, from the cache that `hack/nginx` fills.
///
/// # Panics
/// When they are not there, naming the folder and the remedy.
#[must_use]
pub fn nginx() -> PathBuf {
    let folder = cache_folder().join("nginx");
    for name in ["nginx", "modules/ngx_stream_module.so"] {
        let path = folder.join(name);
        assert!(path.is_file(), "{} is missing: run hack/nginx", path.display());
    }
    folder
}

/// The folder with `chromium` and `chromedriver`, from the cache that `hack/chromium` fills.
///
/// # Panics
/// When they are not there, naming the folder and the remedy.
#[must_use]
pub fn chromium() -> PathBuf {
    let folder = cache_folder().join("chromium");
    for name in ["chromium", "chromedriver"] {
        let path = folder.join(name);
        assert!(path.is_file(), "{} is missing: run hack/chromium", path.display());
    }
    folder
}

/// The folder with `zsh` and `fish`, from the cache that `hack/shells` fills.
///
/// # Panics
/// When they are not there, naming the folder and the remedy.
#[must_use]
pub fn shells() -> PathBuf {
    let folder = cache_folder().join("shells");
    for name in ["zsh", "fish"] {
        let path = folder.join(name);
        assert!(path.is_file(), "{} is missing: run hack/shells", path.display());
    }
    folder
}

/// The script of axe-core, from the cache that `hack/axe/build` fills.
///
/// # Panics
/// When it is not there, naming the file and the remedy.
#[must_use]
pub fn axe() -> PathBuf {
    let path = cache_folder().join("axe/node_modules/axe-core/axe.min.js");
    assert!(path.is_file(), "{} is missing: run hack/axe/build", path.display());
    path
}

/// The folder with oidc-provider and its `server.js`, from the cache that `hack/oidc-provider/build` fills.
///
/// # Panics
/// When it is not there, naming the folder and the remedy.
#[must_use]
pub fn oidc_provider() -> PathBuf {
    let version = OIDC_PROVIDER
        .lines()
        .find_map(|line| line.trim().strip_prefix("\"oidc-provider\": \"")?.strip_suffix('"'))
        .expect("hack/oidc-provider/package.json pins oidc-provider");
    let path = cache_folder().join(format!("oidc-provider-{version}"));
    assert!(
        path.join("server.js").is_file(),
        "{} is missing: run hack/oidc-provider/build",
        path.display()
    );
    path
}

/// The Kubernetes version that `hack/kube-assets` pins, as `v1.36.3`.
#[must_use]
pub fn kubernetes_version() -> &'static str {
    required(GO_MOD, "k8s.io/kubernetes").expect("hack/kube-assets/go.mod requires k8s.io/kubernetes")
}

/// That of the kubelet of the release before, which `hack/node-assets` pins, as `v1.35.4`.
#[must_use]
pub fn previous_kubelet_version() -> &'static str {
    required(KUBELET_GO_MOD, "k8s.io/kubernetes")
        .expect("hack/node-assets/kubelet-1.35/go.mod requires k8s.io/kubernetes")
}

/// The version of a module that a go.mod requires, alone or in a list.
fn required(go_mod: &'static str, module: &str) -> Option<&'static str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim();
        line.strip_prefix("require ")
            .unwrap_or(line)
            .strip_prefix(module)?
            .strip_prefix(' ')
    })
}

/// The folder of this repository.
///
/// # Panics
/// When it was moved since this was compiled.
#[must_use]
pub fn repository() -> PathBuf {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().expect("the repository is where it was compiled")
}

/// Returns the folder in which `hack/` puts its builds; the same rule as in `hack/lib/cache.sh`.
#[must_use]
pub fn cache_folder() -> PathBuf {
    if let Some(folder) = folder_from("TIDEWAITER_CACHE") {
        folder
    } else if let Some(folder) = folder_from("XDG_CACHE_HOME") {
        folder.join("tidewaiter")
    } else {
        let home =
            folder_from("HOME").expect("HOME is not set: set TIDEWAITER_CACHE to the folder with the test assets");
        home.join(".cache/tidewaiter")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test process has no settings file: the environment says where the assets lie"
)]
fn folder_from(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_go_mod_pins() {
        let parts: Vec<_> = kubernetes_version().trim_start_matches('v').split('.').collect();
        assert!(
            parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok()),
            "{}",
            kubernetes_version()
        );
    }
}
