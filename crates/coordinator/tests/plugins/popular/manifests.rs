//! The manifests of the five plugins, by version.

use serde_json::{Value, json};

use crate::shapes::{account, binding, config, definition, namespace, object, role, service, webhooks, workload};

fn tag(version: u8) -> String {
    format!("v0.{version}.0")
}

/// The objects that only the first version has.
fn in_first(version: u8, objects: impl IntoIterator<Item = Value>) -> impl Iterator<Item = Value> {
    objects.into_iter().filter(move |_| version == 1)
}

pub fn metrics_server(version: u8) -> Vec<Vec<Value>> {
    let place = "kube-system/metrics-server";
    let api = object(
        "apiregistration.k8s.io/v1",
        "APIService",
        "v1beta1.metrics.k8s.io",
        json!({"spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"name": "metrics-server", "namespace": "kube-system"}}}),
    );
    let rights = [
        account(place),
        role("system:metrics-server", 2),
        binding("kube-system/metrics-server-auth-reader", "system:metrics-server", place),
        binding("metrics-server:system:auth-delegator", "system:auth-delegator", place),
        binding("system:metrics-server", "system:metrics-server", place),
    ];
    let first = in_first(version, [role("system:aggregated-metrics-reader", 1)]);
    let rest = vec![
        service(place, "ClusterIP"),
        workload("Deployment", place, &tag(version)),
        api,
    ];
    vec![rights.into_iter().chain(first).collect(), rest]
}

pub fn ingress_nginx(version: u8) -> Vec<Vec<Value>> {
    let (main, admission) = (
        "ingress-nginx/ingress-nginx-controller",
        "ingress-nginx/ingress-nginx-admission",
    );
    let rights = ["ingress-nginx/ingress-nginx", admission]
        .into_iter()
        .flat_map(|place| {
            let name = place.split_once('/').unwrap().1;
            [
                account(place),
                role(place, 8),
                role(name, 9),
                binding(place, place, place),
                binding(name, name, place),
            ]
        });
    let class = object(
        "networking.k8s.io/v1",
        "IngressClass",
        "nginx",
        json!({"spec": {"controller": "k8s.io/ingress-nginx"}}),
    );
    let checks = webhooks(
        "ValidatingWebhookConfiguration",
        "ingress-nginx-admission",
        "ingress-nginx/ingress-nginx-controller-admission",
        "networking.k8s.io",
        &["ingresses"],
    );
    let rest = [
        config(main, 3, 1),
        service(main, "LoadBalancer"),
        service("ingress-nginx/ingress-nginx-controller-admission", "ClusterIP"),
        workload("Deployment", main, &tag(version)),
        class,
        checks,
    ];
    // Of a kind that another plugin defines.
    let monitor = object(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        main,
        json!({"spec": {"endpoints": [{"port": "metrics", "interval": "30s"}]}}),
    );
    vec![
        [namespace("ingress-nginx")].into_iter().chain(rights).collect(),
        rest.into_iter().chain(in_first(version, [monitor])).collect(),
    ]
}

pub fn prometheus_operator(version: u8) -> Vec<Vec<Value>> {
    let group = "monitoring.coreos.com";
    let sizes = [
        ("Alertmanager", 300),
        ("PodMonitor", 50),
        ("Probe", 50),
        ("Prometheus", 600),
        ("PrometheusRule", 10),
        ("ScrapeConfig", 100),
        ("ServiceMonitor", 50),
        ("ThanosRuler", 250),
    ];
    let mut definitions: Vec<Value> = sizes
        .iter()
        .map(|(kind, size)| definition(group, kind, "Namespaced", &["v1"], *size))
        .collect();
    let (served, instance): (&[&str], _) = match version {
        1 => (&["v1alpha1"], "v1alpha1"),
        _ => (&["v1alpha1", "v1beta1"], "v1beta1"),
    };
    definitions.push(definition(group, "AlertmanagerConfig", "Namespaced", served, 200));
    let operator = "monitoring/prometheus-operator";
    let rights = [operator, "monitoring/prometheus-k8s", "monitoring/kube-state-metrics"]
        .into_iter()
        .flat_map(|place| {
            let name = place.split_once('/').unwrap().1;
            [account(place), role(name, 12), binding(name, name, place)]
        });
    let instance_of = |version: &str, kind: &str, name: &str, spec: Value| {
        object(
            &format!("{group}/{version}"),
            kind,
            &format!("monitoring/{name}"),
            json!({ "spec": spec }),
        )
    };
    let alert = json!({"alert": "TargetDown", "expr": "100 * (count by (job) (up == 0) / count by (job) (up)) > 10", "for": "10m"});
    let rule = |number: usize| {
        let groups = json!([{"name": format!("group-{number}"), "rules": vec![alert.clone(); 30]}]);
        instance_of(
            "v1",
            "PrometheusRule",
            &format!("rules-{number}"),
            json!({ "groups": groups }),
        )
    };
    let monitor = |number: usize| {
        instance_of(
            "v1",
            "ServiceMonitor",
            &format!("monitor-{number}"),
            json!({"endpoints": [{"port": "http"}]}),
        )
    };
    let dashboards = (0..8).map(|number| config(&format!("monitoring/dashboard-{number}"), 1, 40));
    let rest = [
        service(operator, "ClusterIP"),
        workload("Deployment", operator, &tag(version)),
        workload("Deployment", "monitoring/kube-state-metrics", &tag(version)),
        workload("DaemonSet", "monitoring/node-exporter", &tag(version)),
        workload("StatefulSet", "monitoring/grafana", &tag(version)),
        instance_of("v1", "Prometheus", "k8s", json!({"replicas": 2})),
        instance_of("v1", "Alertmanager", "main", json!({"replicas": 3})),
        instance_of(
            instance,
            "AlertmanagerConfig",
            "main",
            json!({"route": {"receiver": "null"}}),
        ),
    ];
    let first = in_first(version, [monitor(8), rule(6)]);
    let rest = rest
        .into_iter()
        .chain((0..8).map(monitor))
        .chain((0..6).map(rule))
        .chain(dashboards);
    vec![
        definitions,
        [namespace("monitoring")].into_iter().chain(rights).collect(),
        rest.chain(first).collect(),
    ]
}

pub fn cert_manager(version: u8) -> Vec<Vec<Value>> {
    let group = "cert-manager.io";
    let sizes = [("Certificate", 40), ("CertificateRequest", 15), ("Issuer", 150)];
    let mut definitions: Vec<Value> = sizes
        .iter()
        .map(|(kind, size)| definition(group, kind, "Namespaced", &["v1"], *size))
        .collect();
    definitions.push(definition(group, "ClusterIssuer", "Cluster", &["v1"], 150));
    definitions.push(definition("acme.cert-manager.io", "Order", "Namespaced", &["v1"], 15));
    definitions.push(definition(
        "acme.cert-manager.io",
        "Challenge",
        "Namespaced",
        &["v1"],
        150,
    ));
    let parts = [
        "cert-manager/cert-manager",
        "cert-manager/cert-manager-webhook",
        "cert-manager/cert-manager-cainjector",
    ];
    let rights = parts.into_iter().flat_map(|place| {
        let name = place.split_once('/').unwrap().1;
        let roles = (0..4).flat_map(move |number| {
            let role_name = format!("{name}-controller-{number}");
            [role(&role_name, 5), binding(&role_name, &role_name, place)]
        });
        [account(place)].into_iter().chain(roles)
    });
    let rights = rights
        .chain(in_first(version, [role("cert-manager-edit", 3)]))
        .collect();
    let kinds = ["certificates", "certificaterequests", "issuers"];
    let hooks = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"].map(|kind| {
        webhooks(
            kind,
            "cert-manager-webhook",
            "cert-manager/cert-manager-webhook",
            group,
            &kinds,
        )
    });
    let rest = parts
        .into_iter()
        .map(|place| workload("Deployment", place, &tag(version)))
        .chain([service(parts[0], "ClusterIP"), service(parts[1], "ClusterIP")])
        .chain(hooks);
    vec![
        [namespace("cert-manager")].into_iter().chain(definitions).collect(),
        rights,
        rest.collect(),
    ]
}

pub fn cerebral(version: u8) -> Vec<Vec<Value>> {
    let group = "cerebral.containership.io";
    let (served, instance): (&[&str], _) = match version {
        1 => (&["v1alpha1"], "v1alpha1"),
        _ => (&["v1", "-v1alpha1"], "v1"),
    };
    let place = "cerebral/cerebral";
    let instance_of = |kind: &str, name: &str| {
        object(
            &format!("{group}/{instance}"),
            kind,
            name,
            json!({"spec": {"configuration": {"a": "b"}}}),
        )
    };
    // The first two are there already: the mirror needs them.
    let definitions = vec![
        definition(group, "AutoscalingGroup", "Cluster", &["v1alpha1"], 5),
        definition(group, "AutoscalingPolicy", "Cluster", &["v1alpha1"], 5),
        definition(group, "AutoscalingEngine", "Cluster", served, 3),
        definition(group, "MetricsBackend", "Cluster", served, 3),
        namespace("cerebral"),
    ];
    let rest = [
        account(place),
        role("cerebral", 6),
        binding("cerebral", "cerebral", place),
        service(place, "ClusterIP"),
        workload("Deployment", place, &tag(version)),
        instance_of("MetricsBackend", "prometheus"),
    ];
    // The only engine goes with the version in which it was applied.
    let first = in_first(
        version,
        [
            instance_of("MetricsBackend", "influxdb"),
            instance_of("AutoscalingEngine", "containership"),
        ],
    );
    vec![definitions, rest.into_iter().chain(first).collect()]
}
