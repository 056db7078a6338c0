#!/bin/sh
# Upgrades a node whose kubelet is a systemd unit of its own, without kubeadm.
#
# The node has the programs of each version as /opt/kubernetes/kubelet-VERSION, and its unit starts /usr/local/bin/kubelet, which is a link to one of
# them. Put the new program there before the upgrade, for example with the image of the node or with a package.
#
# It may run again after it was interrupted: each step has the same result.
# tidewaiter: repeatable
set -eu

new="/opt/kubernetes/kubelet-$TIDEWAITER_VERSION"
found=$("$new" --version)
if [ "$found" != "Kubernetes $TIDEWAITER_VERSION" ]; then
    echo "$new is $found, and must be Kubernetes $TIDEWAITER_VERSION" >&2
    exit 1
fi

# The link names a whole program at any time, also after a power cut.
ln -sfn "$new" /usr/local/bin/kubelet.next
mv -Tf /usr/local/bin/kubelet.next /usr/local/bin/kubelet
sync -f /usr/local/bin
systemctl restart kubelet
systemctl is-active kubelet
