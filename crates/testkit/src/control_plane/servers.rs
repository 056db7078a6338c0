//! The command lines of the control plane's servers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Identity;
use super::pki::Pki;
use crate::real_node::Network;
use crate::{Program, assets};

/// Of the Services' addresses; no other network of a test has them.
pub(crate) const SERVICES: &str = "10.96.0.0/24";

/// The Service `kubernetes` gets the first one.
pub(super) const FIRST_SERVICE: &str = "10.96.0.1";

/// Everything is logged with who, what and the answer, and nothing with its body. The stage in which a request is only
/// received is left out, so that one request is one entry.
pub(super) const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// etcd on a socket in the folder: no port that another process could take. Its election times suit a member that is
/// alone.
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

/// With nodes, pods reach it through the Service `kubernetes`, and it reaches kubelets as an administrator.
pub(super) fn apiserver(
    folder: &Path,
    pki: &Pki,
    address: SocketAddr,
    nodes: bool,
    authentication: Option<&Path>,
) -> Program {
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.path(name).display());
    let program = Program::new(assets::binary("kube-apiserver"))
        // A fifth of the work of a start is collecting garbage; so it takes 100 MB more.
        .env("GOGC", "400")
        .arg(format!("--etcd-servers={}", etcd_url(folder)))
        .arg(format!("--bind-address={}", address.ip()))
        .arg(format!("--advertise-address={}", address.ip()))
        .arg(format!("--secure-port={}", address.port()))
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
        .arg(format!("--service-cluster-ip-range={SERVICES}"))
        .arg(format!(
            "--audit-policy-file={}",
            folder.join("audit-policy.yaml").display()
        ))
        .arg(format!("--audit-log-path={}", audit_log(folder).display()))
        .arg("--audit-log-maxsize=10000");
    let program = if nodes {
        let client = pki.client(&Identity::user("kube-apiserver-kubelet-client", &["system:masters"]));
        program
            .arg(format!("--kubelet-client-certificate={}", client.certificate.display()))
            .arg(format!("--kubelet-client-key={}", client.key.display()))
            .args([
                "--kubelet-preferred-address-types=InternalIP",
                "--endpoint-reconciler-type=lease",
            ])
    } else {
        program.arg("--endpoint-reconciler-type=none")
    };
    match authentication {
        Some(file) => program.arg(format!("--authentication-config={}", file.display())),
        None => program,
    }
}

/// kube-controller-manager without a port of its own. With nodes, one that is silent is noticed in less than half of
/// the usual time.
pub(super) fn controller_manager(kubeconfig: &Path, pki: &Pki, network: Option<&Network>) -> Program {
    let program = Program::new(assets::binary("kube-controller-manager"))
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
        .arg(format!("--root-ca-file={}", pki.path("ca.crt").display()));
    match network {
        Some(network) => program
            .arg(format!("--cluster-cidr={}", network.pods()))
            .args(["--node-monitor-period=1s", "--node-monitor-grace-period=20s"]),
        None => program,
    }
}

/// kube-scheduler without a port of its own.
pub(super) fn scheduler(kubeconfig: &Path) -> Program {
    Program::new(assets::binary("kube-scheduler"))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--leader-elect=false", "--secure-port=0"])
}

pub(super) fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

/// Returns the socket of etcd.
pub(super) fn etcd_socket(folder: &Path) -> PathBuf {
    folder.join("etcd.sock")
}

fn etcd_url(folder: &Path) -> String {
    format!("unix://{}", etcd_socket(folder).display())
}
