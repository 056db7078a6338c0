//! The files that a node has besides those of the root tree: its layer above the tree, below its disk.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::network::Slot;
use super::{Image, KubeletVersion, NodeOptions, copy, write_new};
use crate::control_plane::SERVICES;
use crate::{ControlPlane, Identity, assets};

const PAUSE: &str = "testkit.invalid/pause:1";

/// They would look for the internet, or write to the machine's own console.
const MASKED: [&str; 10] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty@tty1.service",
    // Each takes an inotify instance, and nobody asks for a password.
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    // Settings are the machine's.
    "systemd-sysctl.service",
];

/// Writes the layer (`files`) and the commands of its network (`network`, for `ip -batch`).
pub(super) async fn write(
    folder: &Path,
    control_plane: &ControlPlane,
    slot: Slot,
    version: KubeletVersion,
    options: &NodeOptions,
) {
    let files = folder.join("files");
    let file = |path: &str, content: &str| write_new(&files.join(path), content);
    for path in [
        "opt/node",
        "var/lib/kubelet",
        "var/lib/containerd",
        "etc/kubernetes/manifests",
    ] {
        std::fs::create_dir_all(files.join(path)).expect("a folder");
    }
    write_new(&folder.join("network"), &network(slot));
    file("etc/hostname", &format!("{}\n", options.name));
    file(
        "etc/hosts",
        &format!("127.0.0.1 localhost\n{} {}\n", slot.address(), options.name),
    );
    file("etc/resolv.conf", "");
    // Filled by systemd at the first boot.
    file("etc/machine-id", "");
    credentials(&files, control_plane, "kubelet", &Identity::kubelet(&options.name));
    credentials(
        &files,
        control_plane,
        "kube-proxy",
        &Identity::user("system:kube-proxy", &[]),
    );
    file("etc/kubernetes/kubelet.yaml", &kubelet(options).to_string());
    file("etc/cni/net.d/10-bridge.conflist", &cni(slot).to_string());
    file("etc/containerd/config.toml", &CONTAINERD.replace("PAUSE", PAUSE));
    let registry = format!("http://{}:5000", slot.gateway());
    let hosts = format!("server = \"{registry}\"\n[host.\"{registry}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    file("etc/containerd/certs.d/_default/hosts.toml", &hosts);
    let pause = Image::build(
        folder,
        PAUSE,
        &[(&assets::node_programs().join("pause"), "pause")],
        &["/pause"],
    )
    .await;
    copy(pause.archive(), &files.join("opt/pause.tar"));
    // The processes of pods outlive their units: a reboot would wait 90 s for them.
    file(
        "etc/systemd/system.conf.d/stop.conf",
        "[Manager]\nDefaultTimeoutStopSec=5s\n",
    );
    for (name, unit) in units(control_plane, slot, version, options) {
        file(&format!("etc/systemd/system/{name}.service"), &unit);
        let wanted = files.join("etc/systemd/system/multi-user.target.wants");
        std::fs::create_dir_all(&wanted).expect("a folder");
        symlink(format!("../{name}.service"), wanted.join(format!("{name}.service"))).expect("a link");
    }
    for name in MASKED {
        symlink("/dev/null", files.join("etc/systemd/system").join(name)).expect("a link");
    }
}

/// Its address, and routes to the pods of all other nodes that there may be.
fn network(slot: Slot) -> String {
    let head = format!(
        "link set eth0 up\naddress add {}/24 dev eth0\nroute add {SERVICES} via {}\n",
        slot.address(),
        slot.gateway()
    );
    let routes = slot
        .others()
        .map(|other| format!("route add {} via {}\n", other.pods(), other.address()));
    head + &routes.collect::<String>()
}

fn credentials(files: &Path, control_plane: &ControlPlane, user: &str, identity: &Identity) {
    let pem = control_plane.credentials(identity);
    let path = |what: &str| format!("/etc/kubernetes/{user}.{what}");
    for (what, text) in [("crt", &pem.certificate), ("key", &pem.key), ("ca", &pem.authority)] {
        write_new(&files.join(path(what).trim_start_matches('/')), text);
    }
    let cluster = json!({"server": control_plane.url(), "certificate-authority": path("ca")});
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testkit", "cluster": cluster}],
        "users": [{"name": user, "user": {"client-certificate": path("crt"), "client-key": path("key")}}],
        "contexts": [{"name": "testkit", "context": {"cluster": "testkit", "user": user}}],
        "current-context": "testkit",
    });
    write_new(
        &files.join(format!("etc/kubernetes/{user}.kubeconfig")),
        &kubeconfig.to_string(),
    );
    private(&files.join("etc/kubernetes"));
}

fn private(folder: &Path) {
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).expect("our own folder");
}

fn kubelet(options: &NodeOptions) -> Value {
    let taints = options
        .taints
        .iter()
        .map(|(key, effect)| json!({"key": key, "effect": effect}));
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": "/etc/kubernetes/kubelet.ca"}},
        "cgroupDriver": "cgroupfs",
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failCgroupV1": false,
        "failSwapOn": false,
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        // Its addresses are 30, and the bridge has one.
        "maxPods": 28,
        "providerID": options.provider_id.clone().unwrap_or_default(),
        "registerWithTaints": taints.collect::<Vec<_>>(),
        "staticPodPath": "/etc/kubernetes/manifests",
        // Tests wait for what a kubelet notices and says: it looks more often than by default.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "5%", "imagefs.available": "5%"},
        "evictionPressureTransitionPeriod": "5s",
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
    })
}

fn cni(slot: Slot) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "testkit",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": slot.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

const CONTAINERD: &str = "\
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'PAUSE'
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = '/etc/containerd/certs.d'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/usr/lib/cni']
conf_dir = '/etc/cni/net.d'
";

/// All log to a file that the test can read from outside.
fn units(
    control_plane: &ControlPlane,
    slot: Slot,
    version: KubeletVersion,
    options: &NodeOptions,
) -> Vec<(&'static str, String)> {
    let unit = |name: &'static str, head: &str, command: &str, rest: &str| {
        let unit = format!(
            "[Unit]\nStartLimitIntervalSec=0\n{head}\n[Service]\nExecStart={command}\nRestart=always\n{rest}\n\
             Environment=PATH=/opt/node:/usr/sbin:/usr/bin:/sbin:/bin\n\
             StandardOutput=append:/var/log/{name}.log\nStandardError=inherit\n"
        );
        (name, unit)
    };
    let (name, address, version) = (&options.name, slot.address(), version.as_str());
    let kubelet = format!(
        "/opt/node/kubelet-{version} --config=/etc/kubernetes/kubelet.yaml \
         --kubeconfig=/etc/kubernetes/kubelet.kubeconfig --hostname-override={name} --node-ip={address} --v=2"
    );
    let proxy = format!(
        "/opt/node/kube-proxy --kubeconfig=/etc/kubernetes/kube-proxy.kubeconfig --hostname-override={name} \
         --proxy-mode=iptables --cluster-cidr={} --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 \
         --conntrack-tcp-timeout-close-wait=0",
        control_plane.network().pods()
    );
    let import = "/opt/node/ctr --namespace=k8s.io images import --local /opt/pause.tar";
    let mut units = vec![
        unit(
            "containerd",
            "",
            "/opt/node/containerd",
            &format!("ExecStartPost={import}\nType=notify\nDelegate=yes\nKillMode=process"),
        ),
        unit(
            "kubelet",
            "After=containerd.service\nWants=containerd.service",
            &kubelet,
            "KillMode=process",
        ),
        unit("kube-proxy", "", &proxy, "RestartSec=1"),
    ];
    if options.loopback {
        let command = format!(
            "/usr/bin/socat TCP-LISTEN:443,bind=127.0.0.1,fork,reuseaddr TCP:{}",
            control_plane.address()
        );
        units.push(unit("api-server", "", &command, ""));
    }
    units
}
