//! The cluster that a process works in.

mod contexts;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use kube::Config;
use kube::config::{Context, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::settings::environment;
use crate::{Chain, files, proxy, yaml};

pub use contexts::{kube_config_in, kube_contexts};

/// A cluster that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is neither a kubeconfig nor a service account.
    #[error("no cluster to work in: use --kubeconfig FILE or KUBECONFIG (this is not a pod: {pod})")]
    Missing {
        /// The reason why the service account of a pod cannot be used.
        pod: InClusterError,
        /// The reason why the default kubeconfig cannot be used.
        #[source]
        kubeconfig: KubeconfigError,
    },
    /// `KUBECONFIG` names no file that exists.
    #[error("KUBECONFIG is {value:?}, and there is no such file: correct it, or use --kubeconfig FILE")]
    NoFile {
        /// The value of the variable.
        value: String,
    },
    /// The file that the setting names is not a kubeconfig.
    #[error("kubeconfig is {path}: it cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// The error in it.
        #[source]
        source: FileError,
    },
}

/// The error in a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or parsed.
    #[error("{0}")]
    Read(String),
    /// The proxy is not a URL. Its text may contain a password, so it is not shown.
    #[error("the proxy is not a URL such as http://proxy.example.com:3128: correct proxy-url, or HTTPS_PROXY")]
    Proxy,
    /// The credential plugin is not there.
    #[error(
        "user {user:?} gets its credentials from the command {command:?}, which is not installed{hint}: install it, or correct users[].user.exec"
    )]
    Plugin {
        /// The user's name.
        user: String,
        /// The command.
        command: String,
        /// The kubeconfig's hint on how to install it, in parentheses.
        hint: String,
    },
    /// The token is no value of a header.
    #[error("the token of user {user:?} has a line feed or another control character: write it in one line")]
    Token {
        /// The user's name.
        user: String,
    },
    /// It has no context of the wanted name.
    #[error("it has no context {name:?}; its contexts are: {known}")]
    NoContext {
        /// The wanted name.
        name: String,
        /// The names of its contexts.
        known: String,
    },
    /// A context, a cluster, a user or a certificate in it cannot be used.
    #[error(transparent)]
    Context(KubeconfigError),
}

/// The cluster of the kubeconfig at `path`; without a path that of `KUBECONFIG`, or the one that the pod runs in. Uses
/// the context that is called `context` if there is one, otherwise the current context.
///
/// The proxy is that of the kubeconfig, otherwise the one of the environment, as for kubectl. The API server of a pod's
/// own cluster is always reached directly.
///
/// # Errors
/// When there is no kubeconfig and no service account, or the file cannot be used.
pub async fn kube_config(path: Option<&Path>, context: Option<&str>) -> Result<Config, ClusterError> {
    let environment = environment();
    let Some(path) = path else {
        let missing = match default_config(context, &environment).await {
            Ok(config) => return Ok(config),
            Err(missing) => missing,
        };
        return Config::incluster().map_err(|pod| match missing {
            NoDefault::Unusable(error) => error,
            NoDefault::Missing(kubeconfig) => match variable(&environment) {
                // A file that exists was read before.
                Some(value) if matches!(kubeconfig, KubeconfigError::ReadConfig(..)) => ClusterError::NoFile {
                    value: value.to_owned(),
                },
                _ => ClusterError::Missing { pod, kubeconfig },
            },
        });
    };
    let failed = |source| ClusterError::File {
        path: path.to_owned(),
        source,
    };
    check(path)?;
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(FileError::Read(first_line(&error))))?;
    check_user(&kubeconfig, context, &environment).map_err(failed)?;
    in_context(kubeconfig, context).await.map_err(|error| {
        failed(match error {
            KubeconfigError::ParseProxyUrl(_) => FileError::Proxy,
            error => FileError::Context(error),
        })
    })
}

/// The kubeconfig at `path`; without a path those that count when none is named.
fn paths(path: Option<&Path>) -> Vec<PathBuf> {
    path.map_or_else(|| default_paths(&environment()), |path| vec![path.to_owned()])
}

/// The place where [`kube_config`] finds the cluster, in words.
pub(super) fn origin(path: Option<&Path>) -> String {
    let paths = paths(path);
    let present: Vec<_> = present(&paths)
        .into_iter()
        .map(|path| path.display().to_string())
        .collect();
    if present.is_empty() {
        "the service account of the pod".to_owned()
    } else {
        format!("the kubeconfig {}", present.join(":"))
    }
}

/// The reason why the default kubeconfig does not name a cluster.
enum NoDefault {
    Unusable(ClusterError),
    Missing(KubeconfigError),
}

async fn default_config(context: Option<&str>, environment: &[(String, String)]) -> Result<Config, NoDefault> {
    let paths = default_paths(environment);
    let mut found = present(&paths);
    found
        .iter()
        .try_for_each(|path| check(path))
        .map_err(NoDefault::Unusable)?;
    if found.is_empty() {
        // Its error says that it is missing.
        found.extend(paths.first());
    }
    let merge = |merged: Kubeconfig, path: &&PathBuf| merged.merge(Kubeconfig::read_from(path)?);
    let kubeconfig = found.iter().try_fold(Kubeconfig::default(), merge);
    let kubeconfig = kubeconfig.map_err(NoDefault::Missing)?;
    let unusable = |source| {
        let path = std::env::join_paths(&paths).unwrap_or_default().into();
        NoDefault::Unusable(ClusterError::File { path, source })
    };
    check_user(&kubeconfig, context, environment).map_err(unusable)?;
    // One that names no context says nothing, as for client-go.
    let is_empty = kubeconfig.current_context.as_deref().unwrap_or_default().is_empty();
    in_context(kubeconfig, context).await.map_err(|error| {
        if is_empty {
            NoDefault::Missing(error)
        } else {
            unusable(FileError::Context(error))
        }
    })
}

/// The value of `KUBECONFIG`, unless it is empty.
fn variable(environment: &[(String, String)]) -> Option<&str> {
    let found = environment.iter().find(|(name, _)| name == "KUBECONFIG");
    found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

/// The kubeconfigs that count when none is named.
fn default_paths(environment: &[(String, String)]) -> Vec<PathBuf> {
    let named = variable(environment).into_iter().flat_map(std::env::split_paths);
    let named: Vec<_> = named.filter(|path| !path.as_os_str().is_empty()).collect();
    if named.is_empty() {
        let home = std::env::home_dir();
        return home.into_iter().map(|home| home.join(".kube/config")).collect();
    }
    named
}

/// Those that exist: as for kubectl, the others of `KUBECONFIG` are not an error.
fn present(paths: &[PathBuf]) -> Vec<&PathBuf> {
    paths.iter().filter(|path| path.exists()).collect()
}

/// Checks what the library does not: that the file can be read without waiting, that it means what it means for
/// kubectl, and that an error about it does not quote it.
fn check(path: &Path) -> Result<(), ClusterError> {
    let read = files::read(path).map_err(|error| error.to_string());
    let text = read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let documents = text.and_then(|text| yaml::documents(&text).map_err(|error| error.to_string()));
    let checked = documents.and_then(|documents| match documents.first() {
        Some(Value::String(text)) => Err(format!(
            "it is not a YAML mapping, but a text of {} characters",
            text.chars().count()
        )),
        Some(kubeconfig) => check_names(kubeconfig),
        None => Ok(()),
    });
    checked.map_err(|reason| ClusterError::File {
        path: path.to_owned(),
        source: FileError::Read(reason),
    })
}

/// No name may occur twice in a list: kubectl refuses it, and the library takes the first one.
fn check_names(kubeconfig: &Value) -> Result<(), String> {
    for list in ["clusters", "contexts", "users"] {
        let mut names = HashSet::new();
        let items = kubeconfig[list].as_array().into_iter().flatten();
        let repeated = items
            .filter_map(|item| item["name"].as_str())
            .find(|name| !names.insert(*name));
        if let Some(name) = repeated {
            return Err(format!("{list} has two entries of the name {name:?}: remove one"));
        }
    }
    Ok(())
}

/// Checks what the library panics at, or names nothing of: the token of the context's user, and whether the credential
/// plugin is installed.
fn check_user(
    kubeconfig: &Kubeconfig,
    context: Option<&str>,
    environment: &[(String, String)],
) -> Result<(), FileError> {
    let user = context_of(kubeconfig, context).and_then(|context| context.user.as_deref());
    let named = kubeconfig.auth_infos.iter();
    let mut of_context = named.filter(|named| Some(named.name.as_str()) == user);
    let Some(info) = of_context.find_map(|named| named.auth_info.as_ref()) else {
        return Ok(());
    };
    let token = info.token.as_ref().map(ExposeSecret::expose_secret);
    if token.is_some_and(|token| HeaderValue::from_str(token).is_err()) {
        return Err(FileError::Token {
            user: user.unwrap_or_default().to_owned(),
        });
    }
    let exec = info.exec.as_ref();
    let Some((exec, command)) = exec.and_then(|exec| Some((exec, exec.command.as_deref()?))) else {
        return Ok(());
    };
    let own = exec
        .env
        .iter()
        .flatten()
        .find(|variable| variable.get("name").is_some_and(|name| name == "PATH"));
    let own = own.and_then(|variable| variable.get("value"));
    let inherited = environment
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value);
    let mut folders = own.or(inherited).into_iter().flat_map(std::env::split_paths);
    let is_there = if command.contains('/') {
        Path::new(command).exists()
    } else {
        folders.any(|folder| folder.join(command).is_file())
    };
    if is_there {
        return Ok(());
    }
    Err(FileError::Plugin {
        user: user.unwrap_or_default().to_owned(),
        command: command.to_owned(),
        hint: exec
            .install_hint
            .as_ref()
            .map_or_else(String::new, |hint| format!(" ({hint:?})")),
    })
}

/// The context that is called `name` if there is one, otherwise the current context.
fn context_of<'a>(kubeconfig: &'a Kubeconfig, name: Option<&str>) -> Option<&'a Context> {
    let find = |name: &str| kubeconfig.contexts.iter().find(|context| context.name == name);
    let named = name.and_then(find);
    named
        .or_else(|| find(kubeconfig.current_context.as_deref()?))?
        .context
        .as_ref()
}

/// Reads empty fields and lines of base64 as client-go does: the former are absent, the latter are joined.
fn normalize(kubeconfig: &mut Kubeconfig) {
    let present = |text: String| Some(text).filter(|text| !text.is_empty());
    let joined = |data: String| present(data.replace(['\r', '\n'], ""));
    // The library has put the folder of the kubeconfig before an empty path.
    let path = |path: String| present(path).filter(|path| !path.ends_with('/'));
    let clusters = kubeconfig.clusters.iter_mut();
    for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
        let data = &mut cluster.certificate_authority_data;
        *data = data.take().and_then(joined);
        let authority = &mut cluster.certificate_authority;
        *authority = authority.take().and_then(path);
        cluster.tls_server_name = cluster.tls_server_name.take().and_then(present);
    }
    let users = kubeconfig.auth_infos.iter_mut();
    for user in users.filter_map(|named| named.auth_info.as_mut()) {
        for file in [&mut user.client_certificate, &mut user.client_key, &mut user.token_file] {
            *file = file.take().and_then(path);
        }
        let data = &mut user.client_certificate_data;
        *data = data.take().and_then(joined);
        let key = user.client_key_data.take();
        user.client_key_data = key.and_then(|key| joined(key.expose_secret().to_owned()).map(Into::into));
        user.token.take_if(|token| token.expose_secret().is_empty());
    }
}

async fn in_context(mut kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, KubeconfigError> {
    normalize(&mut kubeconfig);
    add_scheme(&mut kubeconfig, context);
    let named = context.filter(|name| kubeconfig.contexts.iter().any(|context| context.name == *name));
    let has_proxy = has_proxy(&kubeconfig, context);
    let options = KubeConfigOptions {
        context: named.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // The library takes HTTPS_PROXY whatever NO_PROXY says. A proxy in the kubeconfig has no exceptions.
    if !has_proxy && proxy::is_direct(&config.cluster_url, &environment()) {
        config.proxy_url = None;
    }
    Ok(config)
}

/// Completes a `server` without a scheme as client-go does (`DefaultServerURL`): HTTPS if the context has anything for
/// TLS, otherwise HTTP. The library's connections panic without a scheme.
fn add_scheme(kubeconfig: &mut Kubeconfig, context: Option<&str>) {
    let Some(context) = context_of(kubeconfig, context).cloned() else {
        return;
    };
    let named = kubeconfig.auth_infos.iter();
    let user = named.filter(|named| Some(&named.name) == context.user.as_ref());
    let has_certificate = user
        .filter_map(|named| named.auth_info.as_ref())
        .any(|user| user.client_certificate.is_some() || user.client_certificate_data.is_some());
    let named = kubeconfig.clusters.iter_mut();
    let clusters = named.filter(|named| named.name == context.cluster);
    for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
        let is_secure = has_certificate
            || cluster.certificate_authority.is_some()
            || cluster.certificate_authority_data.is_some()
            || cluster.insecure_skip_tls_verify == Some(true);
        let scheme = if is_secure { "https" } else { "http" };
        let server = cluster.server.as_mut();
        if let Some(server) = server.filter(|server| !server.is_empty() && !server.contains("://")) {
            server.insert_str(0, &format!("{scheme}://"));
        }
    }
}

/// True if the cluster of the context has a `proxy-url`.
fn has_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context_of(kubeconfig, context);
    let clusters = kubeconfig.clusters.iter();
    let cluster = clusters
        .filter(|named| context.is_some_and(|context| named.name == context.cluster))
        .find_map(|named| named.cluster.as_ref());
    let proxy = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
    proxy.is_some_and(|url| !url.is_empty())
}

/// The YAML parser names the place in its first line and draws it in the next ones.
fn first_line(error: &KubeconfigError) -> String {
    let text = Chain(error).to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const KUBECONFIG: &str = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                              contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";

    fn file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    #[tokio::test]
    async fn missing_files_of_the_variable_are_skipped_unless_all_are() {
        let file = file(KUBECONFIG);
        let config = async |value: String| default_config(None, &[("KUBECONFIG".to_owned(), value)]).await;
        let there = file.path().display();
        for value in [
            format!("{there}"),
            format!("/nowhere:{there}"),
            format!("{there}:/nowhere"),
        ] {
            let found = config(value.clone()).await.map_err(|_| value).unwrap();
            assert_eq!(found.cluster_url.to_string(), "https://127.0.0.1:1/");
        }
        let missing = config("/nowhere:/nowhere/else".to_owned()).await;
        assert!(matches!(
            missing,
            Err(NoDefault::Missing(KubeconfigError::ReadConfig(..)))
        ));
    }

    #[tokio::test]
    async fn a_server_without_a_scheme_is_completed_as_kubectl_does() {
        for (server, cluster, user, url) in [
            ("127.0.0.1:1", "", "", "http://127.0.0.1:1/"),
            ("api.example.com", "", "token: t", "http://api.example.com/"),
            (
                "127.0.0.1:1",
                ", insecure-skip-tls-verify: true",
                "",
                "https://127.0.0.1:1/",
            ),
            (
                "http://127.0.0.1:1",
                ", insecure-skip-tls-verify: true",
                "",
                "http://127.0.0.1:1/",
            ),
        ] {
            let content = KUBECONFIG.replace("'https://127.0.0.1:1'", &format!("'{server}'{cluster}"));
            let file = file(&format!("{content}users: [{{name: u, user: {{{user}}}}}]\n"));
            let config = kube_config(Some(file.path()), None).await.unwrap();
            assert_eq!(config.cluster_url.to_string(), url, "{server}{cluster}");
        }
    }

    #[tokio::test]
    async fn empty_fields_are_absent_and_lines_of_base64_are_joined() {
        let cluster = "server: 'https://127.0.0.1:1', tls-server-name: '', certificate-authority: '', \
                       certificate-authority-data: \"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFB\\nQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=\\n\"";
        let content = KUBECONFIG.replace("server: 'https://127.0.0.1:1'", cluster);
        let user = "client-certificate-data: '', client-certificate: /c, client-key-data: '', client-key: /k, token: '', tokenFile: ''";
        let file = file(&format!("{content}users: [{{name: u, user: {{{user}}}}}]\n"));
        let config = kube_config(Some(file.path()), None).await.unwrap();
        assert_eq!(
            (config.root_cert, config.tls_server_name),
            (Some(vec![vec![0; 3]]), None)
        );
        let user = config.auth_info;
        assert!(user.client_certificate_data.is_none() && user.client_key_data.is_none());
        assert!(user.token.is_none() && user.token_file.is_none());
        assert_eq!(user.client_certificate.as_deref(), Some("/c"));
    }

    #[tokio::test]
    async fn a_token_of_several_lines_is_refused() {
        let file = file(&format!(
            "{KUBECONFIG}users: [{{name: u, user: {{token: \"secret\\n\"}}}}]\n"
        ));
        let error = kube_config(Some(file.path()), None).await.unwrap_err();
        let said = Chain(&error).to_string();
        assert!(
            said.contains("the token of user \"u\" has a line feed") && !said.contains("secret"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_of_the_file() {
        let file = file(&KUBECONFIG.replace("current-context: x", "current-context: y"));
        let value = file.path().display().to_string();
        let Err(NoDefault::Unusable(error)) = default_config(None, &[("KUBECONFIG".to_owned(), value.clone())]).await
        else {
            panic!("another outcome");
        };
        assert!(Chain(&error).to_string().contains(&value), "{error:?}");
    }

    #[tokio::test]
    async fn a_context_that_is_named_is_used_and_must_exist() {
        let content = KUBECONFIG
            .replace(
                "clusters: [",
                "clusters: [{name: d, cluster: {server: 'https://127.0.0.1:2'}}, ",
            )
            .replace("contexts: [", "contexts: [{name: y, context: {cluster: d, user: u}}, ");
        let file = file(&content);
        let config = kube_config_in(Some(file.path()), "y").await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://127.0.0.1:2/");
        let error = kube_config_in(Some(file.path()), "z").await.unwrap_err();
        let words = "it cannot be used: it has no context \"z\"; its contexts are: y, x";
        assert!(Chain(&error).to_string().ends_with(words), "{error:?}");
        // Another one is never used in its place.
        assert!(kube_config(Some(file.path()), Some("z")).await.is_ok());
    }

    #[tokio::test]
    async fn a_name_that_occurs_twice_is_refused() {
        let users = "users: [{name: u, user: {token: a}}, {name: v, user: {}}, {name: u, user: {token: b}}]\n";
        let file = file(&format!("{KUBECONFIG}{users}"));
        let error = kube_config(Some(file.path()), None).await.unwrap_err();
        let words = "it cannot be used: users has two entries of the name \"u\": remove one";
        assert!(Chain(&error).to_string().ends_with(words), "{error:?}");
    }

    #[tokio::test]
    async fn a_key_that_occurs_twice_is_named() {
        let file = file(&format!("{KUBECONFIG}clusters: []\n"));
        let error = kube_config(Some(file.path()), None).await.unwrap_err();
        let words = "it cannot be used: line 4: the key \"clusters\" occurs twice in one mapping: remove one";
        assert!(Chain(&error).to_string().ends_with(words), "{error:?}");
    }
}
