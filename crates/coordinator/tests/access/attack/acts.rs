//! The acts of the attackers. Each succeeds only by what makes its row one of full control, and leaves nothing that the
//! next one needs.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use serde_json::{Value, json};
use tidewaiter_testkit::eventually;

use super::{Escalated, Eve, Forbidden, is_allowed};
use crate::world::{SOON, World, id};

/// An account of kube-controller-manager that may give itself everything.
const STRONG: &str = "clusterrole-aggregation-controller";

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const CORE: &str = "/api/v1/namespaces/containership-core";
const SYSTEM_APPS: &str = "/apis/apps/v1/namespaces/kube-system";
const SYSTEM_BATCH: &str = "/apis/batch/v1/namespaces/kube-system";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// The value of the Secret that nobody may read, in base64.
const CROWN: &str = "Y3Jvd24gamV3ZWxz";

/// A request for a certificate of the user `system:kube-controller-manager`.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIa01JR0xBZ0VBTUNreEp6QWxCZ05WQkFNTUhuTjVjM1JsYlRwcmRXSmxMV052Ym5SeWIyeHNaWEl0YldGdQpZV2RsY2pCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQkdjYkhxR1E0dFYyRVYyMnI4cUZiMWFXCjZTa3BqNWNXclo1QktoKzh2QlViUmJhNGo5VDJOZkNjNEk1UExCblRJb1hXTEtrV0FjckxRajlnTUtRbG4rdWcKQURBS0JnZ3Foa2pPUFFRREFnTklBREJGQWlFQS9odmlSelNlaTdmZHpTT2JTOE1TSGRnVjhCTDVlOHlIQjJReApVNTlaRnRBQ0lHQ1NjM3dDM3ZaN1dmeERSdmFuRVFSR05oNGt6RTlsd2V6U0VSZm02WVZFCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// A request for a certificate of the node `victim-node`.
const NODE_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIek1JR2JBZ0VBTURreEZUQVRCZ05WQkFvTURITjVjM1JsYlRwdWIyUmxjekVnTUI0R0ExVUVBd3dYYzNsegpkR1Z0T201dlpHVTZkbWxqZEdsdExXNXZaR1V3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVE2CmdHY2xNRjdybEhBT1h5MEhKeWVvaXZESFBUYUYwdEJGb01Sd0xrOFBnaHBWSU5jRGxBd000K1pWUmhPOHNhaWcKYWtsUENCU0RndVR0ZkJVUWRrN1lvQUF3Q2dZSUtvWkl6ajBFQXdJRFJ3QXdSQUlnWVMzOEh4R0kvaCtSaGdRQwpiSTZhanJxUkw3bTdiVnNndlpNaGxLbWp2eGNDSUNXUFZXUWJsRVo3WE9xVVdwR1FpUGJteVBYWm1DN0JRanh6CjI3VEZuVE5HCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

const VICTIMS: &str = r#"
{apiVersion: v1, kind: Secret, metadata: {name: crown, namespace: containership-core}, data: {key: Y3Jvd24gamV3ZWxz}}
---
{apiVersion: v1, kind: Pod, metadata: {name: victim, namespace: kube-system}, spec: {containers: [{name: c, image: good}]}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: strong, namespace: apps}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: victim, namespace: containership-core}
spec: {holderIdentity: leader, leaseDurationSeconds: 15}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: strong}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, namespace: apps, name: strong}]
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: victim}, rules: []}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limit}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: limit}
spec: {policyName: limit, validationActions: [Deny]}
"#;

pub async fn prepare(world: &World) {
    world.namespace("apps").await;
    let accounts: Api<ServiceAccount> = world.within("kube-system");
    for account in ["default", STRONG] {
        let created = async || accounts.get(account).await.map(drop);
        eventually(format!("kube-controller-manager to create {account}"), SOON, created).await;
    }
    world.cluster.apply(VICTIMS).await;
}

/// The answer has the secret that only full control shows.
fn has_crown(answer: &Value) {
    assert!(answer.to_string().contains(CROWN), "{answer}");
}

pub async fn binds_cluster_admin(eve: &Eve<'_>) -> Escalated {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"generateName": "evil-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "accomplice"}]});
    eve.send("POST", &format!("{RBAC}/clusterrolebindings"), binding)
        .await
        .map(drop)
}

pub async fn widens_a_role(eve: &Eve<'_>) -> Escalated {
    let everything = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    eve.send("PATCH", &format!("{RBAC}/clusterroles/victim"), everything)
        .await
        .map(drop)
}

async fn token(eve: &Eve<'_>, namespace: &str, account: &str) -> Escalated {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = eve.send("POST", &path, request).await?;
    eve.owns_the_cluster(answer["status"]["token"].as_str().unwrap()).await;
    Ok(())
}

pub async fn takes_a_token(eve: &Eve<'_>) -> Escalated {
    token(eve, "kube-system", STRONG).await
}

pub async fn takes_a_token_of_apps(eve: &Eve<'_>) -> Escalated {
    token(eve, "apps", "strong").await
}

pub async fn impersonates_masters(eve: &Eve<'_>) -> Escalated {
    let headers = [["Impersonate-User", "nobody"], ["Impersonate-Group", "system:masters"]];
    let path = format!("{CORE}/secrets");
    has_crown(&eve.send_as("GET", &path, Value::Null, &headers).await?);
    Ok(())
}

pub async fn impersonates_an_account(eve: &Eve<'_>) -> Escalated {
    let headers = [["Impersonate-User", "system:serviceaccount:apps:strong"]];
    let path = format!("{CORE}/secrets");
    has_crown(&eve.send_as("GET", &path, Value::Null, &headers).await?);
    Ok(())
}

/// The other half, the user, is not in the rule.
pub async fn impersonates_an_attribute(eve: &Eve<'_>) -> Escalated {
    eve.may("impersonate authentication.k8s.io uids").await?;
    eve.may("impersonate authentication.k8s.io userextras/scopes").await
}

pub async fn impersonates_for_a_list(eve: &Eve<'_>) -> Escalated {
    let headers = [["Impersonate-User", "system:kube-controller-manager"]];
    let path = format!("{CORE}/secrets");
    has_crown(&eve.send_as("GET", &path, Value::Null, &headers).await?);
    Ok(())
}

pub async fn reaches_the_kubelet(eve: &Eve<'_>) -> Escalated {
    eve.may("get core nodes/proxy").await
}

pub async fn reads_files_of_nodes(eve: &Eve<'_>) -> Escalated {
    eve.may("get core nodes/log").await
}

pub async fn makes_a_token_secret(eve: &Eve<'_>) -> Escalated {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"generateName": "evil-", "annotations": {"kubernetes.io/service-account.name": STRONG}}});
    let made = eve.send("POST", &format!("{SYSTEM}/secrets"), secret).await?;
    let path = format!("{SYSTEM}/secrets/{}", made["metadata"]["name"].as_str().unwrap());
    let token = eventually("kube-controller-manager to fill the Secret", SOON, async || {
        let secret = eve.get(&path).await.map_err(|_| "forbidden")?;
        secret["data"]["token"]
            .as_str()
            .map(str::to_owned)
            .ok_or("no token yet")
    })
    .await;
    let token = serde_json::from_value::<ByteString>(json!(token)).unwrap();
    eve.owns_the_cluster(std::str::from_utf8(&token.0).unwrap()).await;
    Ok(())
}

pub async fn makes_a_bootstrap_token(eve: &Eve<'_>) -> Escalated {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef"}, "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true"}});
    eve.send("POST", &format!("{SYSTEM}/secrets"), secret).await.map(drop)
}

pub async fn lists_secrets(eve: &Eve<'_>) -> Escalated {
    has_crown(&eve.get("/api/v1/secrets").await?);
    Ok(())
}

pub async fn watches_secrets(eve: &Eve<'_>) -> Escalated {
    let path = format!("{CORE}/secrets?watch=true&resourceVersion=0&timeoutSeconds=1");
    has_crown(&eve.get(&path).await?);
    Ok(())
}

pub async fn reads_a_secret(eve: &Eve<'_>) -> Escalated {
    has_crown(&eve.get(&format!("{CORE}/secrets/crown")).await?);
    Ok(())
}

pub async fn replaces_a_secret(eve: &Eve<'_>) -> Escalated {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "crown"}, "data": {"key": CROWN, "evil": CROWN}});
    eve.send("PUT", &format!("{CORE}/secrets/crown"), secret)
        .await
        .map(drop)
}

pub async fn patches_a_secret(eve: &Eve<'_>) -> Escalated {
    has_crown(
        &eve.send("PATCH", &format!("{CORE}/secrets/crown?dryRun=All"), json!({}))
            .await?,
    );
    Ok(())
}

pub async fn deletes_a_secret(eve: &Eve<'_>) -> Escalated {
    let path = format!("{CORE}/secrets/crown?dryRun=All&propagationPolicy=Foreground");
    has_crown(&eve.send("DELETE", &path, Value::Null).await?);
    Ok(())
}

pub async fn deletes_all_secrets(eve: &Eve<'_>) -> Escalated {
    let path = format!("{CORE}/secrets?dryRun=All");
    has_crown(&eve.send("DELETE", &path, Value::Null).await?);
    Ok(())
}

/// With the token of an account that may give itself everything, and the disk of the node.
fn pod() -> Value {
    json!({"serviceAccountName": STRONG, "restartPolicy": "Always", "containers": [{"name": "c", "image": "evil"}],
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}]})
}

pub async fn runs_a_pod(eve: &Eve<'_>) -> Escalated {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "evil-"}, "spec": pod()});
    eve.send("POST", &format!("{SYSTEM}/pods"), pod).await.map(drop)
}

pub async fn changes_an_image(eve: &Eve<'_>) -> Escalated {
    let patch = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]);
    eve.send("PATCH", &format!("{SYSTEM}/pods/victim"), patch)
        .await
        .map(drop)
}

pub async fn adds_a_container(eve: &Eve<'_>) -> Escalated {
    let patch =
        json!({"spec": {"ephemeralContainers": [{"name": "evil", "image": "evil", "targetContainerName": "c"}]}});
    eve.send("PATCH", &format!("{SYSTEM}/pods/victim/ephemeralcontainers"), patch)
        .await
        .map(drop)
}

/// Creates a workload, and waits for its pod, which runs as the account.
async fn runs(eve: &Eve<'_>, path: &str, kind: &str, replicated: bool) -> Escalated {
    let labels = json!({"evil": kind.to_lowercase(), "by": eve.user});
    let mut spec = json!({"template": {"metadata": {"labels": labels}, "spec": pod()}});
    let version = if path.contains("/batch/") {
        "batch/v1"
    } else {
        "apps/v1"
    };
    if replicated {
        spec["selector"] = json!({"matchLabels": labels});
        spec["replicas"] = json!(1);
    } else {
        spec["template"]["spec"]["restartPolicy"] = json!("Never");
    }
    let workload = json!({"apiVersion": version, "kind": kind, "metadata": {"generateName": "evil-"}, "spec": spec});
    eve.send("POST", path, workload).await?;
    let pods = format!(
        "{SYSTEM}/pods?labelSelector=evil%3D{},by%3D{}",
        kind.to_lowercase(),
        eve.user
    );
    let admin = eve.admin();
    eventually(format!("a pod of a {kind}"), SOON, async || {
        let found = admin.get(&pods).await.map_err(|_| "forbidden")?;
        let account = &found["items"][0]["spec"]["serviceAccountName"];
        if account == STRONG { Ok(()) } else { Err("none") }
    })
    .await;
    Ok(())
}

pub async fn runs_a_deployment(eve: &Eve<'_>) -> Escalated {
    runs(eve, &format!("{SYSTEM_APPS}/deployments"), "Deployment", true).await
}

pub async fn runs_a_stateful_set(eve: &Eve<'_>) -> Escalated {
    runs(eve, &format!("{SYSTEM_APPS}/statefulsets"), "StatefulSet", true).await
}

pub async fn runs_a_replica_set(eve: &Eve<'_>) -> Escalated {
    runs(eve, &format!("{SYSTEM_APPS}/replicasets"), "ReplicaSet", true).await
}

pub async fn runs_a_job(eve: &Eve<'_>) -> Escalated {
    runs(eve, &format!("{SYSTEM_BATCH}/jobs"), "Job", false).await
}

/// There is no node for its pods.
pub async fn makes_a_daemon_set(eve: &Eve<'_>) -> Escalated {
    let labels = json!({"evil": "daemonset"});
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"generateName": "evil-"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod()}}});
    eve.send("POST", &format!("{SYSTEM_APPS}/daemonsets"), set)
        .await
        .map(drop)
}

/// Its first pod is a minute away.
pub async fn makes_a_cron_job(eve: &Eve<'_>) -> Escalated {
    let mut pod = pod();
    pod["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"generateName": "evil-"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}});
    eve.send("POST", &format!("{SYSTEM_BATCH}/cronjobs"), job)
        .await
        .map(drop)
}

/// The API server lets it pass, and then finds no node.
async fn connects(eve: &Eve<'_>, path: &str) -> Escalated {
    match eve.try_send("POST", path, &Value::Null, &[]).await {
        Err(kube::Error::Api(status)) if status.code == 403 => Err(Forbidden),
        _ => Ok(()),
    }
}

pub async fn runs_a_command(eve: &Eve<'_>) -> Escalated {
    connects(eve, &format!("{SYSTEM}/pods/victim/exec?command=id&stdout=true")).await
}

pub async fn attaches(eve: &Eve<'_>) -> Escalated {
    connects(eve, &format!("{SYSTEM}/pods/victim/attach?stdout=true")).await
}

pub async fn requests_a_termination(eve: &Eve<'_>) -> Escalated {
    let marker = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tidewaiter-terminate"}});
    eve.send("POST", &format!("{CORE}/configmaps"), marker).await.map(drop)
}

pub async fn changes_trust(eve: &Eve<'_>) -> Escalated {
    let patch = json!({"metadata": {"annotations": {"evil": "was here"}}});
    let trust = format!("{SYSTEM}/configmaps/extension-apiserver-authentication");
    eve.send("PATCH", &trust, patch).await.map(drop)
}

/// The accomplice keeps what the cloud takes from the attacker.
pub async fn binds_an_accomplice(eve: &Eve<'_>) -> Escalated {
    let own = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reads-services"},
        "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}]});
    let admin = eve.admin();
    let roles = format!("{RBAC}/clusterroles");
    if admin.try_send("POST", &roles, &own, &[]).await.is_err() {
        // The first attempt has made it.
        admin.get(&format!("{roles}/reads-services")).await?;
    }
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"generateName": "evil-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-services"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "accomplice"}]});
    eve.send("POST", &format!("{RBAC}/namespaces/kube-system/rolebindings"), binding)
        .await
        .map(drop)
}

pub async fn forges_a_role(eve: &Eve<'_>) -> Escalated {
    let (role, binding, accomplice) = (id(), id(), id());
    let path = "/apis/auth.containership.io/v3/namespaces/containership-core";
    let rules =
        json!([{"id": id(), "type": "kubernetes", "api_groups": [""], "resources": ["nodes"], "verbs": ["get"]}]);
    let forged = json!({"apiVersion": "auth.containership.io/v3", "kind": "AuthorizationRole", "metadata": {"name": role},
        "spec": {"id": role, "rules": rules}});
    eve.send("POST", &format!("{path}/authorizationroles"), forged).await?;
    let forged = json!({"apiVersion": "auth.containership.io/v3", "kind": "AuthorizationRoleBinding", "metadata": {"name": binding},
        "spec": {"id": binding, "type": "UserBinding", "authorization_role_id": role, "user_id": accomplice}});
    eve.send("POST", &format!("{path}/authorizationrolebindings"), forged)
        .await?;
    let question = json!({"resourceAttributes": {"verb": "get", "resource": "nodes"}});
    eventually("the accomplice to read Nodes", SOON, async || {
        if is_allowed(eve.world, &accomplice, &question).await {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    Ok(())
}

pub async fn adds_a_user(eve: &Eve<'_>) -> Escalated {
    let user = id();
    let forged = json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": user}, "spec": {"id": user, "name": "eve"}});
    eve.send(
        "POST",
        "/apis/containership.io/v3/namespaces/containership-core/users",
        forged,
    )
    .await
    .map(drop)
}

pub async fn changes_what_others_write(eve: &Eve<'_>) -> Escalated {
    let resources =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let mutation = r#"Object{metadata: Object.metadata{labels: {"evil": "was-here"}}}"#;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "evil"},
        "spec": {"matchConstraints": {"resourceRules": resources}, "reinvocationPolicy": "Never", "failurePolicy": "Ignore",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}]}});
    eve.send("POST", &format!("{ADMISSION}/mutatingadmissionpolicies"), policy)
        .await?;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "evil"}, "spec": {"policyName": "evil"}});
    eve.send("POST", &format!("{ADMISSION}/mutatingadmissionpolicybindings"), binding)
        .await?;
    let admin = eve.admin();
    let innocent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "innocent-"}});
    eventually("the policy to change what an admin writes", SOON, async || {
        let path = "/api/v1/namespaces/apps/configmaps";
        let written = admin
            .send("POST", path, innocent.clone())
            .await
            .map_err(|_| "forbidden".to_owned())?;
        let label = &written["metadata"]["labels"]["evil"];
        if label == "was-here" {
            Ok(())
        } else {
            Err(label.to_string())
        }
    })
    .await;
    admin
        .send(
            "DELETE",
            &format!("{ADMISSION}/mutatingadmissionpolicybindings/evil"),
            Value::Null,
        )
        .await?;
    admin
        .send(
            "DELETE",
            &format!("{ADMISSION}/mutatingadmissionpolicies/evil"),
            Value::Null,
        )
        .await
        .map(drop)
}

pub async fn deletes_a_limit(eve: &Eve<'_>) -> Escalated {
    let path = format!("{ADMISSION}/validatingadmissionpolicybindings/limit");
    eve.send("DELETE", &path, Value::Null).await.map(drop)
}

pub async fn serves_a_group(eve: &Eve<'_>) -> Escalated {
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.evil.example.com"},
        "spec": {"group": "evil.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": "apps", "name": "evil"}}});
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    eve.send("POST", path, service).await?;
    // A group without a server delays what reads every group.
    eve.admin()
        .send("DELETE", &format!("{path}/v1.evil.example.com"), Value::Null)
        .await
        .map(drop)
}

/// Options of an SSH key run commands on every node.
pub async fn drops_a_validation(eve: &Eve<'_>) -> Escalated {
    let (user, admin) = (id(), eve.admin());
    let key = json!({"id": id(), "name": "k", "fingerprint": "", "key": "command=\"evil\" ssh-ed25519 AAAA"});
    let user = json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": user},
        "spec": {"id": user, "name": "eve", "ssh_keys": [key]}});
    let users = "/apis/containership.io/v3/namespaces/containership-core/users?dryRun=All";
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let patch = json!([{"op": "replace", "path": schema, "value": free}]);
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/users.containership.io";
    assert!(
        admin.try_send("POST", users, &user, &[]).await.is_err(),
        "such a key is refused"
    );
    eve.send("PATCH", definition, patch).await?;
    eventually("the API server to accept a key with options", SOON, async || {
        admin
            .try_send("POST", users, &user, &[])
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await;
    eve.world.define().await;
    Ok(())
}

pub async fn approves_a_certificate(eve: &Eve<'_>) -> Escalated {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"generateName": "evil-"},
        "spec": {"request": REQUEST, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let mut made = eve.send("POST", path, request).await?;
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    made["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Evil"}]});
    eve.send("PUT", &format!("{path}/{name}/approval"), made)
        .await
        .map(drop)
}

/// kube-controller-manager approves it for anyone who may create `certificatesigningrequests/nodeclient`.
pub async fn becomes_a_node(eve: &Eve<'_>) -> Escalated {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"generateName": "node-"},
        "spec": {"request": NODE_REQUEST, "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"]}});
    let made = eve.send("POST", path, request).await?;
    let name = made["metadata"]["name"].as_str().unwrap();
    eve.may("create certificates certificatesigningrequests/nodeclient")
        .await?;
    let approved = async || {
        let found = eve.get(&format!("{path}/{name}")).await;
        let found = found.map_err(|_| "forbidden".to_owned())?;
        let condition = &found["status"]["conditions"][0];
        if condition["type"] == "Approved" {
            Ok(())
        } else {
            Err(found["status"].to_string())
        }
    };
    eventually("the request to be approved", SOON, approved).await;
    Ok(())
}

/// The holder, which finds its Lease held by another, stops.
pub async fn takes_a_lease(eve: &Eve<'_>) -> Escalated {
    let path = "/apis/coordination.k8s.io/v1/namespaces/containership-core/leases/victim";
    let mut lease = eve.get(path).await?;
    lease["spec"] =
        json!({"holderIdentity": "evil", "leaseDurationSeconds": i32::MAX, "renewTime": "2099-01-01T00:00:00.000000Z"});
    eve.send("PUT", path, lease).await.map(drop)
}

/// `AutoscalingGroup`s are cluster-scoped; a binding in a system namespace counts as one for the whole cluster.
pub async fn scales_nodes(eve: &Eve<'_>) -> Escalated {
    eve.may("update cerebral.containership.io autoscalinggroups").await
}

pub async fn mounts_the_host(eve: &Eve<'_>) -> Escalated {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "evil"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}, "storageClassName": "evil"}});
    eve.send("POST", "/api/v1/persistentvolumes", volume).await?;
    let claims = "/api/v1/namespaces/apps/persistentvolumeclaims";
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "evil"}, "spec": {"storageClassName": "evil",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    eve.send("POST", claims, claim).await?;
    let admin = eve.admin();
    eventually("the claim to have the disk of the host", SOON, async || {
        let claim = admin
            .get(&format!("{claims}/evil"))
            .await
            .map_err(|_| "forbidden".to_owned())?;
        let phase = &claim["status"]["phase"];
        if phase == "Bound" {
            Ok(())
        } else {
            Err(phase.to_string())
        }
    })
    .await;
    Ok(())
}

pub async fn profiles(eve: &Eve<'_>) -> Escalated {
    eve.get("/debug/pprof/goroutine?debug=1").await.map(drop)
}

/// API servers serve them only with `--enable-logs-handler`.
pub async fn reads_logs(eve: &Eve<'_>) -> Escalated {
    eve.may("get /logs/kube-apiserver.log").await
}

pub async fn writes_anything(eve: &Eve<'_>) -> Escalated {
    eve.may("create example.com operators").await
}
