//! An operator's setup of a node, so that upgrade scripts run there.

use std::path::Path;

use super::{KubeletVersion, READY_TIMEOUT, RealNode, Unit};
use crate::eventually;

/// As `deploy/host/examples/systemd.sh` expects it.
const LINK: &str = "
ln -sfn /opt/node /opt/kubernetes
ln -sfn /opt/kubernetes/kubelet-$1 /usr/local/bin/kubelet
sed -i s,/opt/node/kubelet-v[0-9.]*,/usr/local/bin/kubelet, /etc/systemd/system/kubelet.service
systemctl daemon-reload
systemctl restart kubelet
";

/// As docs/upgrades.md says it.
const INSTALL: &str = "
printf %s \"$3\" >/root/minisign.pub
tidewaiter host install --cluster $1 --node $2 --key /root/minisign.pub
systemctl daemon-reload
systemctl enable --now tidewaiter-upgrade.path tidewaiter-upgrade.service
";

impl RealNode {
    /// Makes the kubelet a link to this one of the programs below `/opt/kubernetes`, and waits until its Node says so
    /// and is Ready. Also back to an older version, which no upgrade does.
    ///
    /// # Panics
    /// When the Node does not become Ready.
    pub async fn links_kubelet(&self, version: KubeletVersion) {
        self.run(["sh", "-ec", LINK, "sh", version.as_str()]).await;
        self.has_kubelet(version).await;
        self.ready().await;
    }

    /// Waits until its Node says that its kubelet has this version.
    ///
    /// # Panics
    /// When it does not.
    pub async fn has_kubelet(&self, version: KubeletVersion) {
        let what = format_args!("{} to have the kubelet {}", self.name(), version.as_str());
        eventually(what, READY_TIMEOUT, async || {
            let found = self.kubelet_version().await;
            if found == version.as_str() {
                return Ok(());
            }
            let log = self.log(Unit::Kubelet);
            let end = &log[log.floor_char_boundary(log.len().saturating_sub(4_000))..];
            Err(format!("{found}; the end of its log:\n{end}"))
        })
        .await;
    }

    /// The version of its kubelet, as its Node says it.
    ///
    /// # Panics
    /// When there is no Node.
    pub async fn kubelet_version(&self) -> String {
        let info = self.node().await.status.and_then(|status| status.node_info);
        info.map(|info| info.kubelet_version).unwrap_or_default()
    }

    /// Runs `tidewaiter host install` with this program, for this cluster and this public key, and enables the units.
    ///
    /// # Panics
    /// When it fails.
    pub async fn installs_host(&self, program: &Path, cluster: &str, key: &str) {
        self.put(program, "0755", "/usr/local/bin/tidewaiter").await;
        self.run(["sh", "-ec", INSTALL, "sh", cluster, self.name(), key]).await;
    }
}
