#!/bin/sh
# Upgrades a node that kubeadm made, on Debian and Ubuntu with the packages of pkgs.k8s.io. The first control plane node needs
# `kubeadm upgrade apply` before the upgrade begins (https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/kubeadm-upgrade/); this script
# is for the other ones and for the workers.
#
# The sources of apt must have the minor version of the target (/etc/apt/sources.list.d/kubernetes.list).
#
# It may run again after it was interrupted: each step has the same result.
# tidewaiter: repeatable
set -eu
export DEBIAN_FRONTEND=noninteractive

version=${TIDEWAITER_VERSION#v}
apt-get update
apt-mark unhold kubeadm kubelet kubectl
apt-get install -y "kubeadm=$version-*"
kubeadm upgrade node
apt-get install -y "kubelet=$version-*" "kubectl=$version-*"
apt-mark hold kubeadm kubelet kubectl
systemctl daemon-reload
systemctl restart kubelet
