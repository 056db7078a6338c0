//! The files that kOps writes: `cluster-completed.spec` and `instancegroup/<name>` in the state store, and its
//! controller's config.yaml.

use serde_json::{Value, json};

const CREATED: &str = "2026-01-12T09:21:08Z";

/// A `Cluster` of this name in `us-test-1`, as kOps completes it, whose state store is `config_base`.
pub fn cluster(name: &str, config_base: &str) -> ClusterBuilder {
    ClusterBuilder(json!({
        "apiVersion": "kops.k8s.io/v1alpha2",
        "kind": "Cluster",
        "metadata": {"creationTimestamp": CREATED, "generation": 1, "name": name},
        "spec": {
            "api": {"loadBalancer": {"class": "Network", "type": "Public"}},
            "authorization": {"rbac": {}},
            "channel": "stable",
            "cloudConfig": {"awsEBSCSIDriver": {"enabled": true}, "manageStorageClasses": true},
            "cloudProvider": "aws",
            "clusterDNSDomain": "cluster.local",
            "configBase": config_base,
            "containerd": {"logLevel": "info", "version": "2.2.9"},
            "dnsZone": "Z1AFAKE1ZON3YO",
            "etcdClusters": [etcd_cluster("main", config_base), etcd_cluster("events", config_base)],
            "externalDns": {"provider": "dns-controller"},
            "iam": {"allowContainerRegistry": true, "legacy": false, "useServiceAccountExternalPermissions": true},
            "keyStore": format!("{config_base}/pki"),
            "kubeAPIServer": {
                "allowPrivileged": true,
                "anonymousAuth": false,
                "authorizationMode": "Node,RBAC",
                "enableAdmissionPlugins": ["NamespaceLifecycle", "LimitRanger", "ServiceAccount", "NodeRestriction", "ResourceQuota"],
                "image": "registry.k8s.io/kube-apiserver:v1.36.3",
                "securePort": 443,
            },
            "kubelet": kubelet(),
            "kubernetesApiAccess": ["0.0.0.0/0", "::/0"],
            "kubernetesVersion": "1.36.3",
            "masterKubelet": kubelet(),
            "masterPublicName": format!("api.{name}"),
            "networkCIDR": "172.20.0.0/16",
            "networking": {"cilium": {"enableNodePort": true, "version": "v1.18.5"}},
            "nonMasqueradeCIDR": "100.64.0.0/10",
            "podCIDR": "100.96.0.0/11",
            "secretStore": format!("{config_base}/secrets"),
            "serviceClusterIPRange": "100.64.0.0/13",
            "sshAccess": ["0.0.0.0/0", "::/0"],
            "subnets": [{"cidr": "172.20.32.0/19", "name": "us-test-1a", "type": "Private", "zone": "us-test-1a"}],
            "topology": {"dns": {"type": "Public"}},
        },
    }))
}

/// An `InstanceGroup` of this name and cluster with a role as v1alpha2 writes it (`Master`, `Node`, `Bastion`,
/// `APIServer`, …).
pub fn instance_group(name: &str, cluster: &str, role: &str) -> InstanceGroupBuilder {
    InstanceGroupBuilder(json!({
        "apiVersion": "kops.k8s.io/v1alpha2",
        "kind": "InstanceGroup",
        "metadata": {
            "creationTimestamp": CREATED,
            "generation": 1,
            "labels": {"kops.k8s.io/cluster": cluster},
            "name": name,
        },
        "spec": {
            "image": "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260105",
            "machineType": "t3.medium",
            "manager": "CloudGroup",
            "maxSize": 3,
            "minSize": 3,
            "role": role,
            "subnets": ["us-test-1a"],
        },
    }))
}

/// The config.yaml of kops-controller as kOps writes it for this cluster on AWS in `us-test-1`.
pub fn controller_config(cluster: &str, config_base: &str) -> ConfigBuilder {
    ConfigBuilder(json!({
        "clusterName": cluster,
        "cloud": "aws",
        "configBase": config_base,
        "secretStore": format!("{config_base}/secrets"),
        "server": {
            "Listen": ":3988",
            "provider": {"aws": {"nodesRoles": [format!("nodes.{cluster}")], "Region": "us-test-1"}},
            "serverKeyPath": "/etc/kubernetes/kops-controller/pki/kops-controller.key",
            "serverCertificatePath": "/etc/kubernetes/kops-controller/pki/kops-controller.crt",
            "caBasePath": "/etc/kubernetes/kops-controller/pki",
            "signingCAs": ["kubernetes-ca"],
            "certNames": ["kubelet", "kubelet-server", "kube-proxy"],
        },
    }))
}

/// Builds a `Cluster`.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterBuilder(Value);

impl ClusterBuilder {
    /// One more of `spec.kubelet.nodeLabels`.
    pub fn kubelet_label(self, key: &str, value: &str) -> Self {
        self.set(&["spec", "kubelet", "nodeLabels", key], value)
    }

    /// One more of `spec.masterKubelet.nodeLabels`.
    pub fn control_plane_kubelet_label(self, key: &str, value: &str) -> Self {
        self.set(&["spec", "masterKubelet", "nodeLabels", key], value)
    }

    /// Any other field, by its path.
    pub fn set(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        set(&mut self.0, path, value.into());
        self
    }

    /// The file.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        to_yaml(&self.0)
    }
}

/// Builds an `InstanceGroup`.
#[derive(Clone, Debug)]
#[must_use]
pub struct InstanceGroupBuilder(Value);

impl InstanceGroupBuilder {
    /// One more of `spec.nodeLabels`.
    pub fn node_label(self, key: &str, value: &str) -> Self {
        self.set(&["spec", "nodeLabels", key], value)
    }

    /// One more of `spec.kubelet.nodeLabels`.
    pub fn kubelet_label(self, key: &str, value: &str) -> Self {
        self.set(&["spec", "kubelet", "nodeLabels", key], value)
    }

    /// Any other field, by its path.
    pub fn set(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        set(&mut self.0, path, value.into());
        self
    }

    /// Leaves a field out, by its path.
    pub fn without(mut self, path: &[&str]) -> Self {
        remove(&mut self.0, path);
        self
    }

    /// The file.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        to_yaml(&self.0)
    }
}

/// Builds a config.yaml.
#[derive(Clone, Debug)]
#[must_use]
pub struct ConfigBuilder(Value);

impl ConfigBuilder {
    /// Any field, by its path.
    pub fn set(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        set(&mut self.0, path, value.into());
        self
    }

    /// Leaves a field out, by its path.
    pub fn without(mut self, path: &[&str]) -> Self {
        remove(&mut self.0, path);
        self
    }

    /// Returns the configuration as a person would write it.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        to_yaml(&self.0)
    }

    /// Returns the configuration as kOps writes it into its `ConfigMap`: in one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.0.to_string()
    }
}

fn kubelet() -> Value {
    json!({
        "anonymousAuth": false,
        "cgroupDriver": "systemd",
        "cgroupRoot": "/",
        "cloudProvider": "external",
        "clusterDNS": "100.64.0.10",
        "clusterDomain": "cluster.local",
        "enableDebuggingHandlers": true,
        "evictionHard": "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<10%,imagefs.inodesFree<5%",
        "kubeconfigPath": "/var/lib/kubelet/kubeconfig",
        "logLevel": 2,
        "podManifestPath": "/etc/kubernetes/manifests",
        "protectKernelDefaults": true,
        "registerSchedulable": true,
        "shutdownGracePeriod": "30s",
        "shutdownGracePeriodCriticalPods": "10s",
    })
}

fn etcd_cluster(name: &str, config_base: &str) -> Value {
    json!({
        "backups": {"backupStore": format!("{config_base}/backups/etcd/{name}")},
        "cpuRequest": "200m",
        "etcdMembers": [{"encryptedVolume": true, "instanceGroup": "control-plane-us-test-1a", "name": "a"}],
        "manager": {"backupRetentionDays": 90},
        "memoryRequest": "100Mi",
        "name": name,
        "version": "3.6.8",
    })
}

fn set(object: &mut Value, path: &[&str], value: Value) {
    *path.iter().fold(object, |at, key| &mut at[*key]) = value;
}

fn remove(object: &mut Value, path: &[&str]) {
    let (last, parents) = path.split_last().expect("a path has a last key");
    let parent = parents.iter().fold(object, |at, key| &mut at[*key]);
    parent.as_object_mut().expect("a field lies in an object").remove(*last);
}

fn to_yaml(object: &Value) -> String {
    serde_saphyr::to_string(object).expect("JSON is YAML")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Value {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn yaml_holds_what_was_set_to_the_letter() {
        let awkward = "yes: no # \"'\n- 1";
        let group = instance_group("nodes", "c.example.com", "Node")
            .node_label("team", awkward)
            .kubelet_label("n", "1e3");
        let read = parse(&group.to_yaml());
        assert_eq!(read, group.0);
        assert_eq!(read["spec"]["nodeLabels"]["team"], awkward);
        assert_eq!(read["spec"]["kubelet"]["nodeLabels"]["n"], "1e3");
    }

    #[test]
    fn the_cluster_has_both_kubelets() {
        let read = parse(
            &cluster("c", "s3://b/c")
                .kubelet_label("a", "1")
                .control_plane_kubelet_label("b", "true")
                .to_yaml(),
        );
        assert_eq!(read["spec"]["kubelet"]["nodeLabels"], json!({"a": "1"}));
        assert_eq!(read["spec"]["masterKubelet"]["nodeLabels"], json!({"b": "true"}));
    }

    #[test]
    fn the_config_is_the_same_in_both_forms() {
        let config = controller_config("c", "s3://b/c")
            .set(&["cloud"], "gce")
            .without(&["server", "provider"]);
        assert_eq!(
            parse(&config.to_yaml()),
            serde_json::from_str::<Value>(&config.to_json()).unwrap()
        );
        assert!(config.0["server"].get("provider").is_none());
    }
}
