//! One fixture: the case (what the cloud and DNS say, what is expected), then documents of kOps and of the API server.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidewaiter_kops::GroupSummary;
use tidewaiter_validation::{
    ClaimTable, CloudGroup, Dns, Identities, IdentityRecord, Instances, Member, MemberStatus, Node, Observation,
    Options, Part, Pod, Sizes,
};

pub struct Fixture {
    pub name: String,
    pub seen: Observation,
    pub options: Options,
    pub expect: Expect,
}

/// The expected verdict; a count that is not named must be 0, one that is null must be absent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Expect {
    /// `Ready`, `Failed` or `Unknown`.
    pub outcome: String,
    /// `KIND NAME [GROUP]: MESSAGE`, in order.
    pub failures: Vec<String>,
    #[serde(default)]
    pub tolerated: Vec<String>,
    /// `PART: REASON`, in order.
    #[serde(default)]
    pub unknown: Vec<String>,
    #[serde(default)]
    pub counts: BTreeMap<String, Option<u32>>,
    /// `NAME ROLE STATUS`, in order.
    pub nodes: Vec<String>,
    /// By group: `CURRENT current, READY ready, N outdated, MIN..TARGET..MAX`; `?` where unknown.
    pub groups: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Case {
    #[expect(dead_code, reason = "for who reads the file")]
    about: String,
    #[serde(default)]
    max_unready_nodes: u32,
    #[serde(default)]
    cloud: Vec<CloudCase>,
    /// The place in which the cloud's groups were queried.
    cloud_location: Option<String>,
    /// The addresses of the API's name; without them it is not asked.
    dns: Option<Vec<IpAddr>>,
    /// The records of Nodes that they do not prove: the reason, or `no record`, `other uid`, `other claim`.
    #[serde(default)]
    unproven: BTreeMap<String, String>,
    /// True if there are no records because Tidewaiter is not installed.
    #[serde(default)]
    not_installed: bool,
    /// Parts that are unknown, and why.
    #[serde(default)]
    unknown: BTreeMap<String, String>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CloudCase {
    name: String,
    instance_group: String,
    #[serde(default)]
    min: u32,
    #[serde(default)]
    target: u32,
    #[serde(default)]
    max: u32,
    /// `Unmanaged` or `OfInstanceGroup` in place of sizes.
    sizes: Option<String>,
    members: Vec<MemberCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MemberCase {
    id: String,
    /// Of EC2 in `us-test-1a` by default.
    provider_id: Option<String>,
    node: Option<String>,
    /// Null: nobody may ask.
    #[serde(default = "no")]
    needs_update: Option<bool>,
    #[serde(default)]
    detached: bool,
    #[serde(default)]
    warm_pool: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "a default as serde takes it")]
fn no() -> Option<bool> {
    Some(false)
}

pub fn all() -> Vec<Fixture> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder("fixtures"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| load(file)).collect()
}

pub fn named(name: &str) -> Fixture {
    load(&folder("fixtures").join(format!("{name}.yaml")))
}

/// Found from other crates of the workspace too.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../validation/tests")
        .join(name)
}

fn load(file: &Path) -> Fixture {
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = fs::read_to_string(file).unwrap();
    let mut documents = text.split("\n---\n");
    let case: Case =
        serde_saphyr::from_str(documents.next().unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (mut groups, mut nodes, mut records, mut pods) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for document in documents {
        let value: Value = serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{name}: {error}"));
        match value["kind"].as_str() {
            Some("InstanceGroup") => groups.push(group(&value, document)),
            Some("Node") => {
                let name = value["metadata"]["name"].as_str().unwrap();
                records.extend(record(&value, case.unproven.get(name).map(String::as_str)));
                nodes.push((name.to_owned(), sent::<Node>(&value)));
            }
            Some("Pod") => pods.push(object::<Pod>(&value)),
            other => panic!("{name}: a document of kind {other:?}"),
        }
    }
    let dns = case.dns.map_or(Dns::NotAsked, Dns::Addresses);
    let mut unknown = case.unknown;
    let mut claims = ClaimTable::default();
    for record in records {
        let name = record.node().clone();
        claims.set_record(&name, Some(record));
    }
    for (name, node) in nodes {
        claims.set_node(&name.into(), Some(node));
    }
    let seen = Observation {
        cluster: "cluster.example.com".parse().unwrap(),
        groups: part("InstanceGroups", groups, &mut unknown),
        cloud: part("cloud", instances(case.cloud), &mut unknown),
        identities: if case.not_installed {
            Identities::NotInstalled
        } else {
            Identities::Installed(part("NodeIdentities", (), &mut unknown))
        },
        cloud_location: case.cloud_location,
        nodes: part("Nodes", claims.claims(None), &mut unknown),
        pods: part("Pods", pods, &mut unknown),
        dns: part("dns", dns, &mut unknown),
    };
    assert!(unknown.is_empty(), "{name}: no such part: {unknown:?}");
    Fixture {
        name,
        seen,
        options: Options {
            max_unready_nodes: case.max_unready_nodes,
            counts_only: false,
        },
        expect: case.expect,
    }
}

/// The record of a Node that is proven, unless there is something to say against it.
fn record(node: &Value, against: Option<&str>) -> Option<IdentityRecord> {
    let name = node["metadata"]["name"].as_str().unwrap();
    let (mut uid, mut claim) = (&node["metadata"]["uid"], &node["spec"]["providerID"]);
    let another = json!("aws:///us-test-1a/i-other");
    let (status, reason) = match against {
        Some("no record") => return None,
        Some("other uid") => {
            uid = &another;
            ("True", "Proven")
        }
        Some("other claim") => {
            claim = &another;
            ("True", "Proven")
        }
        Some(reason @ ("Throttled" | "Unavailable")) => ("Unknown", reason),
        Some(reason) => ("False", reason),
        None => ("True", "Proven"),
    };
    let condition = json!({"type": "Verified", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let spec = json!({"nodeUID": uid, "providerID": claim.as_str().unwrap_or_default()});
    let [spec, status] = [spec, json!({"conditions": [condition]})];
    let record = IdentityRecord::new(
        name,
        &serde_json::from_value(spec).unwrap(),
        &serde_json::from_value(status).unwrap(),
    );
    Some(record)
}

/// Through kOps' own parser, as a file of the state store.
fn group(value: &Value, document: &str) -> GroupSummary {
    let name = value["metadata"]["name"].as_str().unwrap();
    GroupSummary::parse(
        &format!("instancegroup/{name}"),
        document.as_bytes(),
        &name.parse().unwrap(),
        &"cluster.example.com".parse().unwrap(),
    )
    .unwrap()
}

/// Through JSON as the API server sends it.
fn sent<K: DeserializeOwned>(value: &Value) -> Arc<K> {
    Arc::new(serde_json::from_slice(&serde_json::to_vec(value).unwrap()).unwrap())
}

/// Reads the object, and converts it as a cache does.
fn object<K: DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug>(value: &Value) -> Arc<K> {
    let sent: Arc<K> = sent(value);
    let kept: K = serde_json::from_slice(&serde_json::to_vec(&*sent).unwrap()).unwrap();
    assert_eq!(kept, *sent);
    Arc::new(kept)
}

fn instances(groups: Vec<CloudCase>) -> Arc<Instances> {
    Arc::new(Instances::new(groups.into_iter().map(cloud_group).collect()))
}

fn cloud_group(case: CloudCase) -> CloudGroup {
    CloudGroup {
        name: case.name,
        instance_group: case.instance_group.parse().unwrap(),
        role: None,
        sizes: match case.sizes.as_deref() {
            None => Sizes::OfCloud {
                target: case.target,
                min: case.min,
                max: case.max,
            },
            Some("Unmanaged") => Sizes::Unmanaged,
            Some("OfInstanceGroup") => Sizes::OfInstanceGroup,
            Some(other) => panic!("no such sizes: {other}"),
        },
        members: case.members.into_iter().map(member).collect(),
    }
}

fn member(case: MemberCase) -> Member {
    let status = match case {
        MemberCase { detached: true, .. } => MemberStatus::Detached,
        MemberCase { needs_update: None, .. } => MemberStatus::Unresolved,
        MemberCase {
            needs_update: Some(true),
            ..
        } => MemberStatus::NeedsUpdate,
        _ => MemberStatus::UpToDate,
    };
    let provider_id = case
        .provider_id
        .unwrap_or_else(|| format!("aws:///us-test-1a/{}", case.id));
    Member {
        id: case.id,
        provider_id: provider_id.parse().unwrap(),
        node_name: case.node.map(|name| name.parse().unwrap()),
        status,
        warm_pool: case.warm_pool,
    }
}

fn part<T>(name: &str, value: T, unknown: &mut BTreeMap<String, String>) -> Part<T> {
    unknown.remove(name).map_or(Part::Known(value), Part::Unknown)
}
