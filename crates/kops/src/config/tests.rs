use tidewaiter_kit::Chain;

use super::*;

const AWS: &str = include_str!("../../fixtures/config-aws.json");
const GCE: &str = include_str!("../../fixtures/config-gce.yaml");
const PLAIN: &str = "clusterName: c.example.com\ncloud: aws\nconfigBase: s3://state/c.example.com\n";

fn load(text: &str) -> Loaded {
    ControllerConfig::parse("config.yaml", text.as_bytes()).unwrap()
}

fn error(text: &str) -> String {
    ControllerConfig::parse("config.yaml", text.as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn the_json_that_kops_writes_loads_with_a_warning_for_each_key_that_is_not_implemented() {
    let Loaded { config, warnings } = load(AWS);
    assert_eq!(config.cluster_name.as_str(), "cluster.example.com");
    assert_eq!(config.cloud, Cloud::Aws);
    assert_eq!(
        config.config_base.to_string(),
        "s3://state.example.com/cluster.example.com"
    );
    assert_eq!(config.region.as_deref(), Some("us-test-1"));
    let keys: Vec<&str> = warnings.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(
        keys,
        [
            "cacheNodeidentityInfo",
            "capi",
            "discovery",
            "enableCloudIPAM",
            "secretStore",
            "server"
        ]
    );
    assert!(
        warnings
            .iter()
            .all(|line| line.starts_with("config.yaml: ") && !line.contains('\n')),
        "{warnings:?}"
    );
}

#[test]
fn the_yaml_that_older_kops_writes_loads() {
    let Loaded { config, warnings } = load(GCE);
    assert_eq!((config.cloud, config.region), (Cloud::Gce, None));
    assert_eq!(config.project.as_deref(), Some("test-project"));
    assert_eq!(config.config_base.to_string(), "gs://state/cluster.k8s.local");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}

#[test]
fn a_cluster_that_must_not_be_switched_is_warned_of_with_the_consequence() {
    let do_not = "do not switch from kops-controller";
    for (text, consequence) in [
        (
            format!("{PLAIN}enableCloudIPAM: true\n"),
            "enableCloudIPAM … new Nodes get no pod range",
        ),
        (
            format!("{PLAIN}EnableCloudIpam: true\n"),
            "EnableCloudIpam … new Nodes get no pod range",
        ),
        (format!("{PLAIN}capi: {{enabled: true}}\n"), "capi … the Cluster API"),
        (
            format!("{PLAIN}discovery: {{enabled: true}}\n"),
            "discovery … pods do not learn",
        ),
    ] {
        let warnings = load(&text).warnings;
        let words = consequence.split(" … ").chain([do_not, "while Tidewaiter leads"]);
        let [warning] = &warnings[..] else {
            panic!("{text}: {warnings:?}")
        };
        assert!(words.clone().all(|word| warning.contains(word)), "{warning}");
    }
    // The name decides nothing: kOps publishes no DNS names for such a cluster also without gossip.
    assert_eq!(load(&PLAIN.replace("c.example.com", "c.k8s.local")).warnings, [""; 0]);
    for off in [
        "enableCloudIPAM: false",
        "capi: {enabled: false}",
        "discovery: {enabled: false}",
    ] {
        let warnings = load(&format!("{PLAIN}{off}\n")).warnings;
        assert!(!warnings[0].contains(do_not), "{warnings:?}");
    }
}

#[test]
fn the_warning_about_the_server_names_what_is_used_on_this_cloud() {
    for (cloud, used) in [
        ("aws", "; only the region and the names of nodes are used"),
        ("gce", "; only provider.gce.projectID is used"),
        ("hetzner", ""),
    ] {
        let text = PLAIN.replace("aws", cloud) + "server: {Listen: \":3988\"}\n";
        let expected = format!("config.yaml: server has no effect: Tidewaiter has no bootstrap server{used}");
        assert_eq!(load(&text).warnings, [expected]);
    }
}

#[test]
fn a_state_store_of_an_unsupported_cloud_is_reported_as_that_cloud() {
    for (cloud, base) in [
        ("azure", "azureblob://container/c.example.com"),
        ("scaleway", "scw://state/c.example.com"),
        ("digitalocean", "do://state/c.example.com"),
        ("openstack", "swift://state/c.example.com"),
    ] {
        let text = PLAIN.replace("aws", cloud).replace("s3://state/c.example.com", base);
        let expected =
            format!("config.yaml: cloud: is {cloud}: this version of Tidewaiter supports aws, gce and hetzner only");
        assert_eq!(error(&text), expected);
        // The store can be read without the cloud.
        assert!(!load(&PLAIN.replace("aws", cloud)).config.cloud.is_supported());
    }
    let error = error(&PLAIN.replace("s3://", "azureblob://"));
    assert!(error.starts_with("config.yaml: configBase: "), "{error}");
}

#[test]
fn what_is_implemented_gives_no_warning() {
    assert_eq!(load(PLAIN).warnings, Vec::<String>::new());
    let empty = format!("{PLAIN}secretStore: null\nserver:\n");
    assert_eq!(
        load(&empty).warnings,
        Vec::<String>::new(),
        "a key without a value asks for nothing"
    );
    for (server, expected) in [
        ("{provider: {aws: {Region: us-test-1}}}", 0),
        ("{provider: {aws: {Region: us-test-1, nodesRoles: [a]}}}", 1),
        ("{provider: {aws: {Region: us-test-1}, gce: {}}}", 1),
        ("{Listen: \":3988\", provider: {aws: {Region: us-test-1}}}", 1),
        ("{provider: {aws: {nodesRoles: [a]}}}", 1),
    ] {
        let warnings = load(&format!("{PLAIN}server: {server}\n")).warnings;
        assert_eq!(warnings.len(), expected, "{server}: {warnings:?}");
    }
}

#[test]
fn every_cloud_of_kops_is_known() {
    for cloud in [
        "aws",
        "gce",
        "openstack",
        "digitalocean",
        "hetzner",
        "azure",
        "scaleway",
        "metal",
        "linode",
    ] {
        assert_eq!(load(&PLAIN.replace("aws", cloud)).config.cloud.as_str(), cloud);
    }
}

#[test]
fn keys_are_found_in_any_case_as_go_finds_them() {
    let text = "CLUSTERNAME: c.example.com\nCloud: aws\nconfigbase: s3://state/c\nServer: {Provider: {AWS: {region: eu-test-1}}}\n";
    let Loaded { config, warnings } = load(text);
    assert_eq!(config.region.as_deref(), Some("eu-test-1"));
    assert_eq!(warnings, Vec::<String>::new());
    let twice = error(&format!("{PLAIN}Cloud: gce\n"));
    assert_eq!(twice, "config.yaml: cloud: occurs twice, as Cloud and as cloud");
}

#[test]
fn an_unknown_key_gives_one_warning_that_names_the_nearest_known_one() {
    for (key, nearest) in [
        ("clusterNames", "clusterName"),
        ("configBsae", "configBase"),
        ("secret-store", "secretStore"),
        ("enableCloudIpams", "enableCloudIPAM"),
        ("servers", "server"),
    ] {
        let warnings = load(&format!("{PLAIN}{key}: x\n")).warnings;
        let expected =
            format!("config.yaml: the key \"{key}\" is unknown and has no effect; the nearest known key is {nearest}");
        assert_eq!(warnings, [expected]);
    }
    let evil = format!("{PLAIN}\"a\\n{}\": x\n", "z".repeat(900));
    let warnings = load(&evil).warnings;
    assert!(warnings[0].len() < 400 && !warnings[0].contains('\n'), "{warnings:?}");
}

#[test]
fn a_wrong_value_says_which_key_which_value_and_what_is_allowed() {
    let replaced = |from: &str, to: &str| error(&PLAIN.replace(from, to));
    for (found, expected) in [
        (
            replaced("cloud: aws", "cloud: awss"),
            "config.yaml: cloud: is \"awss\", must be one of aws, gce, hetzner",
        ),
        (
            replaced("cloud: aws", "cloud: [aws]"),
            "config.yaml: cloud: is a list, must be one of aws, gce, hetzner",
        ),
        (
            replaced("clusterName: c.example.com", "clusterName: 7"),
            "config.yaml: clusterName: is the number 7, must be the name of the cluster, for example cluster.example.com",
        ),
        (
            replaced("clusterName: c.example.com\n", ""),
            "config.yaml: clusterName: is missing: must be the name of the cluster, for example cluster.example.com",
        ),
        (
            replaced("clusterName: c.example.com", "clusterName: null"),
            "config.yaml: clusterName: is missing: must be the name of the cluster, for example cluster.example.com",
        ),
        (
            replaced("configBase: s3://state/c.example.com", "configBase: {s3: state}"),
            "config.yaml: configBase: is a mapping, must be s3://BUCKET/PATH, gs://BUCKET/PATH or file:///PATH",
        ),
        (
            replaced("s3://state/c.example.com", "do://state/c"),
            "config.yaml: configBase: \"do://state/c\" is a state store of digitalocean: this version of Tidewaiter supports aws, gce and hetzner only",
        ),
        (
            error(&format!("{PLAIN}server: {{provider: {{aws: {{Region: 3}}}}}}\n")),
            "config.yaml: server.provider.aws.Region: is the number 3, must be the name of a region, for example us-east-1",
        ),
        (
            error(&format!("{PLAIN}server: {{provider: {{aws: {{Region: \"a/b\"}}}}}}\n")),
            "config.yaml: server.provider.aws.Region: is \"a/b\", must be the name of a region, for example us-east-1",
        ),
        (
            error(&format!("{PLAIN}server: :3988\n")),
            "config.yaml: server: is \":3988\", must be a mapping",
        ),
    ] {
        assert_eq!(found, expected);
    }
    let name = replaced("clusterName: c.example.com", "clusterName: ../etc");
    assert!(
        name.starts_with("config.yaml: clusterName: \"../etc\": must be 1 to 253 characters"),
        "{name}"
    );
}

#[test]
fn a_file_that_cannot_be_read_says_so_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("config.yaml");
    for path in [missing.as_path(), folder.path(), &missing.join("below")] {
        let error = ControllerConfig::load(path).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: cannot be read", path.display()));
        assert!(std::error::Error::source(&error).is_some());
    }
    let error = ControllerConfig::load(Path::new("/dev/zero")).unwrap_err();
    assert_eq!(
        Chain(&error).to_string(),
        "/dev/zero: cannot be read: must be a file, but is a device"
    );
}

#[test]
fn the_names_of_nodes_on_aws() {
    for (server, expected) in [
        ("", None),
        ("server: {Listen: x}", None),
        ("server: {provider: {aws: {Region: us-test-1}}}", None),
        ("server: {provider: {aws: {useIPBasedNodeNames: true}}}", Some(true)),
        ("server: {Provider: {AWS: {UseIPBasedNodeNames: false}}}", Some(false)),
        ("server: {useInstanceIDForNodeName: true}", Some(false)),
        (
            "server: {useInstanceIDForNodeName: true, provider: {aws: {useIPBasedNodeNames: true}}}",
            Some(true),
        ),
    ] {
        assert_eq!(
            load(&format!("{PLAIN}{server}\n")).config.address_based_names,
            expected,
            "{server}"
        );
    }
    let text = format!("{PLAIN}server: {{provider: {{aws: {{useIPBasedNodeNames: often}}}}}}\n");
    assert!(
        error(&text).contains("server.provider.aws.useIPBasedNodeNames: is \"often\", must be true or false"),
        "{}",
        error(&text)
    );
}
