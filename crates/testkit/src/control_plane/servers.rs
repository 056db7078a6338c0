//! The command lines of the control plane's servers.

use std::path::{Path, PathBuf};

use super::pki::Pki;
use crate::{Program, assets};

/// Everything is logged with who, what and the answer, and nothing with its body. The stage in which a request is only received is left
/// out, so that one request is one entry.
pub(super) const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// etcd on a socket in the folder: no port that another process could take. Its election times suit a member that is alone.
pub(super) fn etcd(folder: &Path) -> Program {
    Program::new(assets::binary("etcd"))
        .arg(format!("--data-dir={}", folder.join("etcd").display()))
        .arg(format!("--listen-client-urls={}", etcd_url(folder)))
        .args([
            "--advertise-client-urls=http://127.0.0.1:0",
            "--listen-peer-urls=http://127.0.0.1:0",
        ])
        .args(["--heartbeat-interval=50", "--election-timeout=500"])
        .args([
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=8589934592",
        ])
}

pub(super) fn apiserver(folder: &Path, pki: &Pki, port: u16, authentication: Option<&Path>) -> Program {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.path(name).display());
    let program = Program::new(assets::binary("kube-apiserver"))
        // A fifth of the work of a start is collecting garbage; so it takes 100 MB more.
        .env("GOGC", "400")
        .arg(format!("--etcd-servers={}", etcd_url(folder)))
        .args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
        ])
        .arg(format!("--secure-port={port}"))
        .arg(file("tls-cert-file", "apiserver.crt"))
        .arg(file("tls-private-key-file", "apiserver.key"))
        .arg(file("client-ca-file", "ca.crt"))
        .arg(format!("--cert-dir={}", folder.join("certs").display()))
        .args([
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
        ])
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(file("service-account-key-file", "sa.pub"))
        .arg(file("service-account-signing-key-file", "sa.key"))
        .arg("--service-cluster-ip-range=10.96.0.0/24")
        .arg(format!(
            "--audit-policy-file={}",
            folder.join("audit-policy.yaml").display()
        ))
        .arg(format!("--audit-log-path={}", audit_log(folder).display()))
        .arg("--audit-log-maxsize=10000");
    match authentication {
        Some(file) => program.arg(format!("--authentication-config={}", file.display())),
        None => program,
    }
}

/// kube-controller-manager without a port of its own.
pub(super) fn controller_manager(kubeconfig: &Path, pki: &Pki) -> Program {
    Program::new(assets::binary("kube-controller-manager"))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args([
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials",
        ])
        .arg(format!(
            "--service-account-private-key-file={}",
            pki.path("sa.key").display()
        ))
        .arg(format!("--root-ca-file={}", pki.path("ca.crt").display()))
}

pub(super) fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

/// Where etcd listens.
pub(super) fn etcd_socket(folder: &Path) -> PathBuf {
    folder.join("etcd.sock")
}

fn etcd_url(folder: &Path) -> String {
    format!("unix://{}", etcd_socket(folder).display())
}
