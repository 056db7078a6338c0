//! Control planes that tests have one after the other: a start costs three seconds of a core, putting the objects back
//! a tenth.
//!
//! Invariants: anyone who gets one finds the objects that there were when it had just been prepared, and no
//! others, and an audit log that begins now. Put back is everything in etcd, past the API server, but for what the API
//! server writes for itself. A control plane whose test failed, stopped a server, or added or removed a CRD is not used
//! again.

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::thread;

use parking_lot::Mutex;

use super::ControlPlane;
use super::etcd::{Change, Etcd, Object, ROOT, plain};

/// The keys of the definitions of custom resources, below [`ROOT`].
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions/";

/// The keys that the API server writes for itself, at any time; below [`ROOT`].
const SERVERS_OWN: [&str; 14] = [
    DEFINITIONS,
    "apiregistration.k8s.io/",
    "configmaps/kube-system/extension-apiserver-authentication",
    "configmaps/kube-system/kube-apiserver-",
    "flowschemas/",
    "ipaddresses/",
    "leases/kube-system/apiserver-",
    "masterleases/",
    "namespaces/default",
    "namespaces/kube-",
    "prioritylevelconfigurations/",
    "ranges/",
    "servicecidrs/",
    "services/",
];

static FREE: Mutex<Vec<Prepared>> = Mutex::new(Vec::new());

/// A control plane that a test has for itself. Dropped, it is the next test's.
#[derive(Debug)]
pub struct Reused(Option<Prepared>);

#[derive(Debug)]
struct Prepared {
    control_plane: ControlPlane,
    /// By key, as it was when the control plane had been prepared; absent where the next test must not have it.
    objects: Option<HashMap<String, Object>>,
    /// The processes that the control plane was prepared with.
    processes: [u32; 2],
}

impl ControlPlane {
    /// One that another test of this binary has left, else a new one. All tests of a binary must prepare theirs alike.
    ///
    /// # Panics
    /// When a component is not installed or does not come up; with the end of its log.
    pub async fn reused(prepare: impl AsyncFnOnce(&Self)) -> Reused {
        let free = FREE.lock().pop();
        if let Some(mut prepared) = free
            && prepared.put_back().await
        {
            return Reused(Some(prepared));
        }
        let control_plane = Self::start().await;
        prepare(&control_plane).await;
        let mut prepared = Prepared::from(control_plane);
        let etcd = prepared.etcd();
        prepared.objects = Some(etcd.objects(true).await);
        Reused(Some(prepared))
    }
}

impl Prepared {
    fn etcd(&self) -> Etcd {
        Etcd::of(self.control_plane.folder())
    }

    /// False when it cannot be used again.
    async fn put_back(&mut self) -> bool {
        let etcd = self.etcd();
        let before = self.objects.as_mut().expect("what is free can be put back");
        // Once more after a change: a request of the test before may have been on its way.
        loop {
            let now = etcd.objects(false).await;
            if definitions(before) != definitions(&now) {
                return false;
            }
            let changes = differences(before, &now);
            if changes.is_empty() {
                break;
            }
            etcd.commit(changes).await;
            for (key, object) in etcd.objects(false).await {
                if let Some(before) = before.get_mut(&key) {
                    before.modified = object.modified;
                }
            }
        }
        // All earlier requests are in the log.
        self.control_plane.audit().await;
        self.control_plane.audit.lock().forget();
        self.control_plane.clients.forget();
        true
    }

    fn is_good(&self) -> bool {
        let ControlPlane { etcd, apiserver, .. } = &self.control_plane;
        let runs = etcd.is_running() && apiserver.is_running();
        self.objects.is_some() && runs && self.processes == [etcd.pid(), apiserver.pid()]
    }
}

/// Returns the changes that restore the objects of before.
fn differences(before: &HashMap<String, Object>, now: &HashMap<String, Object>) -> Vec<Change> {
    let is_own = |key: &str| SERVERS_OWN.iter().any(|own| is_below(own, key));
    let new = now.keys().filter(|key| !before.contains_key(*key));
    let delete = new.filter(|key| !is_own(key)).map(|key| Change::delete(key));
    let differs = |key: &str, object: &Object| now.get(key).is_none_or(|now| now.modified != object.modified);
    let changed = before
        .iter()
        .filter(|(key, object)| differs(key, object) && !is_own(key));
    delete
        .chain(changed.map(|(key, object)| Change::put(key, &object.value)))
        .collect()
}

fn definitions(objects: &HashMap<String, Object>) -> BTreeSet<&str> {
    let keys = objects.keys().filter(|key| is_below(DEFINITIONS, key));
    keys.map(String::as_str).collect()
}

/// Returns true if the key, which is in base64, begins so below [`ROOT`].
fn is_below(folder: &str, key: &str) -> bool {
    plain(key).strip_prefix(ROOT).is_some_and(|key| key.starts_with(folder))
}

impl From<ControlPlane> for Prepared {
    fn from(control_plane: ControlPlane) -> Self {
        let processes = [control_plane.etcd.pid(), control_plane.apiserver.pid()];
        Self {
            control_plane,
            objects: None,
            processes,
        }
    }
}

/// One that no other test gets.
impl From<ControlPlane> for Reused {
    fn from(control_plane: ControlPlane) -> Self {
        Self(Some(control_plane.into()))
    }
}

impl Deref for Reused {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        let prepared = self.0.as_ref().expect("taken only when it is dropped");
        &prepared.control_plane
    }
}

impl Drop for Reused {
    fn drop(&mut self) {
        if let Some(prepared) = self.0.take()
            && !thread::panicking()
            && prepared.is_good()
        {
            FREE.lock().push(prepared);
        }
    }
}
