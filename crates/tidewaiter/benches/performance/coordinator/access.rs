//! Roles and bindings of the cloud: the first sync, a second pass, and how soon a permission is given and taken away.
//!
//! The bare client sends the same writes: it applies the custom resources, and what is made of them.
//! The API server itself says who may do what.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tidewaiter_api::access::Subject;
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding};
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_testkit::usage::Memory;
use tidewaiter_testkit::{Audit, AuditEntry, AuditMark, eventually};

use super::applies::{Patch, send, span};
use super::bed::{Bed, LONG, account, control_plane};
use super::{Sizes, now, pause};
use crate::cloud::wire::Wire;
use crate::process::{Role, SOON};
use crate::report::{Chapter, Figure, count, figure, note, quantile};

const ROLES: usize = 200;
/// The number of users to whom each role is bound: every other binding in the namespace `default` only.
const USERS: usize = 5;
const BINDINGS: usize = ROLES * USERS;

/// The interval of the changes. The coordinator lists a kind twice a second at most.
const CHANGE_INTERVAL: Duration = Duration::from_millis(600);
/// The interval of the reviews.
const ASK_EVERY: Duration = Duration::from_millis(2);

const RESOURCES: [&str; 5] = [
    "authorizationroles",
    "authorizationrolebindings",
    "clusterroles",
    "clusterrolebindings",
    "rolebindings",
];

/// A first sync of everything.
struct Synced {
    bed: Bed,
    /// The id of a role that nobody has.
    role: String,
    /// From the first write to the last one.
    seconds: f64,
    writes: usize,
    cpu_seconds: f64,
    memory: Memory,
    /// The same writes, for the bare client.
    patches: Vec<Patch>,
}

/// The results of the coordinator afterwards.
struct Found {
    /// The writes after a restart.
    again: Vec<String>,
    /// Seconds from the request to the cloud until the API server permits, and until it refuses.
    given: Vec<f64>,
    taken: Vec<f64>,
}

/// The number of turns of the coordinator and the bare client: the speed of a machine changes.
const TURNS: usize = 3;

pub async fn measure(program: &Path, sizes: &Sizes) -> Result<Chapter> {
    let (mut syncs, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let sync = Synced::by_coordinator(program).await?;
        note("access: the bare client");
        let cluster = control_plane().await;
        bare.push(span(&send(&cluster, sync.patches.clone()).await?)?);
        syncs.push(sync);
    }
    let last = syncs.last().context("a sync")?;
    let found = afterwards(last, sizes.permissions).await?;
    Ok(chapter(&syncs, &found, &bare))
}

impl Synced {
    async fn by_coordinator(program: &Path) -> Result<Self> {
        note(&format!("access: {ROLES} roles and {BINDINGS} bindings in the cloud"));
        let bed = Bed::start(program, 1).await?;
        let role = fill(&bed).await?;
        note("access: the coordinator");
        let mark = bed.cluster.audit_mark().await;
        let coordinator = bed.coordinator();
        bound(&coordinator).await;
        settle(&coordinator).await?;
        let (memory, cpu_seconds) = (coordinator.memory(), coordinator.cpu_seconds());
        let audit = written(&bed, mark).await;
        let patches = copies(&bed).await?;
        coordinator.stop().await;
        Ok(Self {
            role,
            seconds: span(&audit)?,
            writes: audit.count(),
            cpu_seconds,
            memory,
            patches,
            bed,
        })
    }
}

async fn afterwards(synced: &Synced, permissions: usize) -> Result<Found> {
    let bed = &synced.bed;
    note("access: a second pass");
    let mark = bed.cluster.audit_mark().await;
    let coordinator = bed.coordinator();
    let all = count(ROLES + BINDINGS);
    eventually("a pass over every role and binding", LONG, async || {
        match passes(&coordinator).await {
            Ok(passes) if passes >= all => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    settle(&coordinator).await?;
    let again = written(bed, mark).await;
    let again = again.iter().map(|entry| format!("{} {}", entry.verb, entry.uri));
    let again = again.collect();

    note(&format!(
        "access: a permission is given and taken away, {permissions} times"
    ));
    let (given, taken) = changes(bed, &synced.role, permissions).await?;
    coordinator.stop().await;
    Ok(Found { again, given, taken })
}

fn chapter(syncs: &[Synced], found: &Found, bare: &[f64]) -> Chapter {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count(values.len());
    let of_coordinator: Vec<f64> = syncs.iter().map(|sync| sync.seconds).collect();
    let (sync_seconds, bare_seconds) = (mean(&of_coordinator), mean(bare));
    let most = |of: fn(&Synced) -> f64| syncs.iter().map(of).fold(0.0, f64::max);
    let seconds = |what: &str, key, seconds| figure(what, key, seconds, " s", 2);
    let number = |what: &str, key, number| figure(what, key, count(number), "", 0);
    let mut figures = vec![
        figure(
            "first sync, coordinator / bare client",
            "ratio",
            sync_seconds / bare_seconds,
            "",
            2,
        )
        .at_most(1.25),
        seconds("  coordinator", "seconds", sync_seconds),
        seconds("  bare client", "bareSeconds", bare_seconds),
        figure(
            "  writes, coordinator",
            "writes",
            most(|sync| count(sync.writes)),
            "",
            0,
        ),
        figure(
            "  writes, bare client",
            "bareWrites",
            most(|sync| count(sync.patches.len())),
            "",
            0,
        ),
        seconds(
            "  time on a core, coordinator",
            "cpuSeconds",
            most(|sync| sync.cpu_seconds),
        ),
        figure(
            "  memory of the process alone afterwards",
            "anonymous",
            most(|sync| sync.memory.anonymous),
            " MiB",
            1,
        ),
        number("writes of a second pass", "secondPass", found.again.len()).at_most(0.0),
    ];
    figures.extend(of_change("given", ["given", "givenP50"], &found.given));
    figures.extend(of_change("taken away", ["taken", "takenP50"], &found.taken));
    Chapter {
        key: "access",
        title: format!("{ROLES} roles and {BINDINGS} bindings of the cloud"),
        figures,
        details: json!({"coordinator": of_coordinator, "bare": bare, "given": found.given, "taken": found.taken, "secondPass": found.again}),
    }
}

fn of_change(what: &str, keys: [&'static str; 2], seconds: &[f64]) -> [Figure; 2] {
    let at = |part| quantile(seconds.iter().copied(), part) * 1000.0;
    [
        figure(format!("a permission is {what}, p99"), keys[0], at(0.99), " ms", 0).at_most(1000.0),
        figure("  p50", keys[1], at(0.5), " ms", 0),
    ]
}

/// Makes the roles and their bindings in the cloud. Returns the id of one more role, which nobody has.
async fn fill(bed: &Bed) -> Result<String> {
    let (cloud, mut wire) = (&bed.cloud, Wire::open(bed.cloud.address).await?);
    let collection = format!("{}/roles", cloud.organization);
    let allow = |group: &str, resources: &[&str], verbs: &[&str]| {
        json!({"type": "kubernetes", "api_groups": [group], "resources": resources, "resource_names": [], "non_resource_urls": [],
            "verbs": verbs})
    };
    let reads = ["get", "list", "watch"];
    for number in 0..ROLES {
        let rules = [
            allow("", &["pods", "pods/log", "services"], &reads),
            allow("apps", &["deployments/scale", "statefulsets/scale"], &["get", "patch"]),
        ];
        let role = json!({"name": format!("team-{number}"), "description": "", "rules": rules});
        let role = id(&cloud.ask(&mut wire, "POST", &collection, &role).await?)?;
        for (nth, user) in cloud.users.iter().take(USERS).enumerate() {
            let namespace = if nth % 2 == 0 { Value::Null } else { json!("default") };
            bind(bed, &mut wire, &role, last(user), &namespace).await?;
        }
    }
    measured_role(bed, &mut wire).await
}

/// Makes a role in the cloud that nobody has. Returns its id.
pub async fn measured_role(bed: &Bed, wire: &mut Wire) -> Result<String> {
    let reads = json!({"type": "kubernetes", "api_groups": [""], "resources": ["configmaps"], "resource_names": [],
        "non_resource_urls": [], "verbs": ["get", "list", "watch"]});
    let role = json!({"name": "measured", "description": "", "rules": [reads]});
    id(&bed
        .cloud
        .ask(wire, "POST", &format!("{}/roles", bed.cloud.organization), &role)
        .await?)
}

/// Binds the role. Returns the path of the binding.
async fn bind(bed: &Bed, wire: &mut Wire, role: &str, user: &str, namespace: &Value) -> Result<String> {
    let bindings = format!("{}/role-bindings", bed.cloud.organization);
    let binding = json!({"type": "UserBinding", "user_id": user, "authorization_role_id": role,
        "cluster_id": bed.cloud.clusters[0].id, "namespace": namespace});
    let made = bed.cloud.ask(wire, "POST", &bindings, &binding).await?;
    Ok(format!("{bindings}/{}", id(&made)?))
}

fn id(object: &Value) -> Result<String> {
    Ok(object["id"].as_str().context("an id")?.to_owned())
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Waits until the coordinator has bound everything.
async fn bound(coordinator: &Role) {
    let everywhere = ROLES * USERS.div_ceil(2);
    for (resource, wanted) in [
        ("clusterrolebindings", everywhere),
        ("rolebindings", BINDINGS - everywhere),
    ] {
        let series = format!("tidewaiter_writes_total{{outcome=\"ok\",resource=\"{resource}\",verb=\"patch\"}}");
        eventually(format!("{wanted} of {series}"), LONG, async || {
            match coordinator.series(&series).await {
                Ok(found) if found >= count(wanted) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

/// The passes so far of the two controllers of roles and bindings.
async fn passes(coordinator: &Role) -> Result<f64> {
    coordinator
        .total("tidewaiter_reconciles_total{controller=\"authorization-role")
        .await
}

/// Waits until no more passes take place.
async fn settle(coordinator: &Role) -> Result<()> {
    let mut before = passes(coordinator).await?;
    loop {
        pause(Duration::from_secs(2)).await;
        let now = passes(coordinator).await?;
        if now - before < 1.0 {
            return Ok(());
        }
        before = now;
    }
}

/// Returns the coordinator's writes since then, of roles and bindings.
async fn written(bed: &Bed, mark: AuditMark) -> Audit {
    let concerned = |entry: &AuditEntry| RESOURCES.contains(&entry.object_ref.resource.as_str());
    let audit = bed.cluster.audit().await.since(mark);
    audit.by(&account()).writes().filter(concerned)
}

/// The writes that make everything as the coordinator has made it.
async fn copies(bed: &Bed) -> Result<Vec<Patch>> {
    let (client, ours) = (bed.admin(), format!("{MANAGED_LABEL}={MANAGED_VALUE}"));
    let copies = [
        Patch::copies_of::<AuthorizationRole>(&client, "").await?,
        Patch::copies_of::<AuthorizationRoleBinding>(&client, "").await?,
        Patch::copies_of::<ClusterRole>(&client, &ours).await?,
        Patch::copies_of::<ClusterRoleBinding>(&client, &ours).await?,
        Patch::copies_of::<RoleBinding>(&client, &ours).await?,
    ]
    .concat();
    ensure!(copies.len() >= 2 * (ROLES + BINDINGS), "only {} writes", copies.len());
    Ok(copies)
}

/// Gives a user the role, and takes it away, again and again. Seconds until each had an effect.
pub async fn changes(bed: &Bed, role: &str, times: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut wire = Wire::open(bed.cloud.address).await?;
    let user = last(&bed.cloud.users[0]);
    let reviews: Api<SubjectAccessReview> = Api::all(bed.admin());
    let (mut given, mut taken) = (Vec::new(), Vec::new());
    permitted(&reviews, user, false, now()).await?;
    for _ in 0..times {
        pause(CHANGE_INTERVAL).await;
        let asked = now();
        let binding = bind(bed, &mut wire, role, user, &Value::Null).await?;
        given.push(permitted(&reviews, user, true, asked).await?);
        pause(CHANGE_INTERVAL).await;
        let asked = now();
        bed.cloud.delete(&mut wire, &binding).await?;
        taken.push(permitted(&reviews, user, false, asked).await?);
    }
    Ok((given, taken))
}

/// Seconds since `begin` until the API server says that the user may, or may not, read `ConfigMap`s.
async fn permitted(reviews: &Api<SubjectAccessReview>, user: &str, wanted: bool, begin: Instant) -> Result<f64> {
    let question: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": Subject::User(user.to_owned()).of_rbac().name,
        "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "configmaps"},
    }}))?;
    loop {
        let answer = reviews.create(&PostParams::default(), &question).await?;
        let seconds = begin.elapsed().as_secs_f64();
        if answer.status.context("an answer")?.allowed == wanted {
            return Ok(seconds);
        }
        ensure!(begin.elapsed() < SOON, "the permission is still not {wanted}");
        pause(ASK_EVERY).await;
    }
}
