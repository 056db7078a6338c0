//! The attacks. `namespace` is where the role is bound; empty for the whole cluster.

use futures::future::LocalBoxFuture;

use super::acts;
use super::{Escalated, Eve};

pub struct Attack {
    pub name: &'static str,
    pub namespace: &'static str,
    /// Of which at least one amounts to full control there.
    pub rules: &'static [&'static str],
    /// Rules beside them that stay.
    pub neighbours: &'static [&'static str],
    pub act: for<'a> fn(&'a Eve<'a>) -> LocalBoxFuture<'a, Escalated>,
}

/// Rules that an admin of an ordinary namespace has.
pub const ORDINARY: &[&str] = &[
    "get,list,watch,create,update,patch,delete,deletecollection core secrets",
    "create,patch,delete core pods",
    "create,get core pods/exec",
    "create core pods/attach",
    "patch core pods/ephemeralcontainers",
    "get core pods/log",
    "* core configmaps",
    "* * deployments",
    "get,list,watch,create,update,patch,delete,deletecollection apps *",
    "create,patch batch jobs,cronjobs",
    "create,patch rbac roles,rolebindings",
    "get,create core */log,*/exec",
    "create core persistentvolumes",
    "get core nodes/pods",
];

macro_rules! attack {
    ($name:literal, $namespace:literal, [$($rule:literal),*], [$($neighbour:literal),*], $act:expr) => {
        Attack {
            name: $name,
            namespace: $namespace,
            rules: &[$($rule),*],
            neighbours: &[$($neighbour),*],
            act: |eve| Box::pin($act(eve)),
        }
    };
}

pub const ATTACKS: &[Attack] = &[
    attack!(
        "everything",
        "",
        ["* * *"],
        ["get,list,watch apps *", "* * */scale"],
        acts::binds_cluster_admin
    ),
    attack!(
        "everything of a namespace",
        "apps",
        ["* * *"],
        ["get core pods"],
        acts::takes_a_token_of_apps
    ),
    attack!(
        "all verbs one by one",
        "",
        ["get,list,watch,create,update,patch,delete,deletecollection core *"],
        ["get,list,watch core pods,services,nodes,configmaps"],
        acts::takes_a_token
    ),
    attack!(
        "escalate",
        "",
        ["escalate,patch rbac clusterroles"],
        ["get,list,watch rbac *"],
        acts::widens_a_role
    ),
    attack!(
        "bind",
        "",
        ["bind rbac clusterroles", "create rbac clusterrolebindings"],
        ["delete rbac clusterrolebindings"],
        acts::binds_cluster_admin
    ),
    attack!(
        "impersonation of a group",
        "",
        ["impersonate core users,groups"],
        ["* core events", "impersonate apps deployments"],
        acts::impersonates_masters
    ),
    attack!(
        "impersonation of an account of the namespace",
        "apps",
        ["impersonate core serviceaccounts"],
        ["get,list,create core serviceaccounts"],
        acts::impersonates_an_account
    ),
    attack!(
        "impersonation of an attribute",
        "",
        ["impersonate authentication.k8s.io userextras/scopes,uids"],
        ["create authentication.k8s.io tokenreviews"],
        acts::impersonates_an_attribute
    ),
    attack!(
        "constrained impersonation",
        "",
        ["impersonate:user-info authentication.k8s.io users"],
        ["impersonate-on:user-info:list core secrets"],
        acts::impersonates_for_a_list
    ),
    attack!(
        "tokens of accounts",
        "kube-system",
        ["create core serviceaccounts/token"],
        ["get,list core serviceaccounts"],
        acts::takes_a_token
    ),
    attack!(
        "nodes/proxy",
        "",
        ["get core nodes/proxy"],
        [
            "get core nodes/metrics,nodes/stats,nodes/healthz,nodes/configz",
            "get,list core nodes"
        ],
        acts::reaches_the_kubelet
    ),
    attack!(
        "a Secret with a token",
        "kube-system",
        ["create,get core secrets"],
        ["get,list core configmaps"],
        acts::makes_a_token_secret
    ),
    attack!(
        "a Secret that is a login",
        "kube-system",
        ["create core secrets"],
        [],
        acts::makes_a_bootstrap_token
    ),
    attack!(
        "lists of Secrets",
        "",
        ["list core secrets"],
        ["list core configmaps,services"],
        acts::lists_secrets
    ),
    attack!(
        "watches of Secrets",
        "containership-core",
        ["watch core secrets"],
        [],
        acts::watches_secrets
    ),
    attack!(
        "one Secret",
        "containership-core",
        ["get core secrets"],
        [],
        acts::reads_a_secret
    ),
    attack!(
        "a changed Secret",
        "containership-core",
        ["update core secrets"],
        [],
        acts::replaces_a_secret
    ),
    attack!(
        "the response of a patch",
        "containership-core",
        ["patch core secrets"],
        [],
        acts::patches_a_secret
    ),
    attack!(
        "the response of a deletion",
        "containership-core",
        ["delete core secrets"],
        ["delete core configmaps"],
        acts::deletes_a_secret
    ),
    attack!(
        "the response of a deletion of all",
        "containership-core",
        ["deletecollection core secrets"],
        [],
        acts::deletes_all_secrets
    ),
    attack!(
        "a pod",
        "kube-system",
        ["create core pods"],
        [
            "get,list,watch,delete core pods",
            "get core pods/log",
            "create core pods/eviction"
        ],
        acts::runs_a_pod
    ),
    attack!(
        "the image of a pod",
        "kube-system",
        ["patch core pods"],
        [],
        acts::changes_an_image
    ),
    attack!(
        "a container in a pod",
        "kube-system",
        ["patch core pods/ephemeralcontainers"],
        [],
        acts::adds_a_container
    ),
    attack!(
        "a Deployment",
        "",
        ["create apps deployments"],
        ["get,list,delete apps deployments", "patch apps deployments/scale"],
        acts::runs_a_deployment
    ),
    attack!(
        "a Deployment of every group",
        "kube-system",
        ["* * deployments"],
        [],
        acts::runs_a_deployment
    ),
    attack!(
        "a StatefulSet",
        "kube-system",
        ["create apps statefulsets"],
        [],
        acts::runs_a_stateful_set
    ),
    attack!(
        "a ReplicaSet",
        "kube-system",
        ["create apps replicasets"],
        [],
        acts::runs_a_replica_set
    ),
    attack!(
        "a DaemonSet",
        "kube-system",
        ["create apps daemonsets"],
        [],
        acts::makes_a_daemon_set
    ),
    attack!(
        "a Job",
        "kube-system",
        ["create batch jobs"],
        ["get,list batch *"],
        acts::runs_a_job
    ),
    attack!(
        "a CronJob",
        "kube-system",
        ["create batch cronjobs"],
        [],
        acts::makes_a_cron_job
    ),
    attack!(
        "commands in a pod",
        "",
        ["create,get core pods/exec"],
        ["create core pods/portforward"],
        acts::runs_a_command
    ),
    attack!(
        "the input of a pod",
        "kube-system",
        ["create,get core pods/attach"],
        [],
        acts::attaches
    ),
    attack!(
        "the request to remove everything",
        "containership-core",
        ["create core configmaps"],
        ["get,list,delete core configmaps"],
        acts::requests_a_termination
    ),
    attack!(
        "trusted certificates",
        "kube-system",
        ["patch core configmaps"],
        [],
        acts::changes_trust
    ),
    attack!(
        "the Lease of the leader",
        "containership-core",
        ["update,get coordination.k8s.io leases"],
        ["get,list,watch coordination.k8s.io leases"],
        acts::takes_a_lease
    ),
    attack!(
        "an accomplice",
        "kube-system",
        ["create rbac rolebindings"],
        ["get core services"],
        acts::binds_an_accomplice
    ),
    attack!(
        "a role of the cloud",
        "containership-core",
        ["create auth.containership.io authorizationroles,authorizationrolebindings"],
        ["get,list auth.containership.io *"],
        acts::forges_a_role
    ),
    attack!(
        "the size of node pools",
        "containership-core",
        ["update cerebral.containership.io autoscalinggroups,autoscalinggroups/status"],
        ["get,list cerebral.containership.io autoscalinggroups", "* * */scale"],
        acts::scales_nodes
    ),
    attack!(
        "an SSH key on every node",
        "containership-core",
        ["create containership.io users"],
        ["get,list containership.io users,clusterlabels"],
        acts::adds_a_user
    ),
    attack!(
        "the API of the kubelet",
        "",
        ["get core nodes/log,nodes/pods,nodes/checkpoint,nodes/exec,nodes/run,nodes/attach,nodes/portforward"],
        ["get core nodes/healthz,nodes/metrics,nodes/configz,nodes/stats"],
        acts::reads_files_of_nodes
    ),
    attack!(
        "logs of everything",
        "",
        ["get core */log"],
        ["get core pods/log"],
        acts::reads_files_of_nodes
    ),
    attack!(
        "an admission policy",
        "",
        ["create admission mutatingadmissionpolicies,mutatingadmissionpolicybindings"],
        ["get,list admission *"],
        acts::changes_what_others_write
    ),
    attack!(
        "a policy that limits others",
        "",
        ["delete admission validatingadmissionpolicybindings"],
        [],
        acts::deletes_a_limit
    ),
    attack!(
        "an API group",
        "",
        ["create apiregistration.k8s.io apiservices"],
        ["get,list apiregistration.k8s.io apiservices"],
        acts::serves_a_group
    ),
    attack!(
        "the validation of a definition",
        "",
        ["patch apiextensions.k8s.io customresourcedefinitions"],
        ["get,list apiextensions.k8s.io customresourcedefinitions"],
        acts::drops_a_validation
    ),
    attack!(
        "a certificate",
        "",
        [
            "approve certificates signers",
            "update certificates certificatesigningrequests/approval"
        ],
        ["create,get certificates certificatesigningrequests"],
        acts::approves_a_certificate
    ),
    attack!(
        "the certificate of a node",
        "",
        ["create certificates certificatesigningrequests/nodeclient"],
        [
            "create,get certificates certificatesigningrequests",
            "create certificates certificatesigningrequests/selfnodeclient"
        ],
        acts::becomes_a_node
    ),
    attack!(
        "a volume of the host",
        "",
        ["create core persistentvolumes"],
        ["get,list core persistentvolumes", "* core persistentvolumeclaims"],
        acts::mounts_the_host
    ),
    attack!(
        "debugging",
        "",
        ["get /debug/*"],
        ["get /metrics", "get /healthz*"],
        acts::profiles
    ),
    attack!("every path", "", ["get *"], ["get /openapi/*"], acts::profiles),
    attack!(
        "logs of the API server",
        "",
        ["get /logs/*"],
        ["get /livez*"],
        acts::reads_logs
    ),
    attack!(
        "every resource of a group",
        "kube-system",
        ["create,update,patch,delete,deletecollection,get,list,watch example.com *"],
        ["get,list,watch,delete example.com *"],
        acts::writes_anything
    ),
];
