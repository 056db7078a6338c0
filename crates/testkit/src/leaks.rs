//! Secrets that tests use, and the search for them in whatever others can read.
//!
//! The builders of worlds, clouds and registries name each secret of a test to [`secret`]. The owner of a control plane
//! calls [`search`] when it is dropped. What is searched: every object of the API server but Secrets (so Events, status
//! and conditions, annotations, `ConfigMap`s), every log and every `/metrics` of the processes of a [`Scratch`], and
//! what ran in this process ([`capture_logs`], [`shown`]). A secret is found as it is, and within base64, wherever it
//! begins in it.
//!
//! All secrets of a test binary are one set: no test may show the secret of another one either.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::Value;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::{ControlPlane, Scratch};

/// The shortest text that is searched for: shorter ones are in other words by chance.
const MIN_LENGTH: usize = 6;

/// The number of bytes that are shown around a finding.
const CONTEXT_BYTES: usize = 160;

/// The prefix of the keys of Secrets in the API server's storage.
const SECRETS: &str = "/registry/secrets/";

/// The prefix of the keys of Registries, whose `spec.credentials` may contain secrets.
const REGISTRIES: &str = "/registry/containership.io/registries/";

static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static SHOWN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// From now on nothing may show this text. Returns it.
///
/// # Panics
/// When it is so short that it is a part of other words.
pub fn secret(text: impl Into<String>) -> String {
    let text = text.into();
    assert!(
        text.len() >= MIN_LENGTH,
        "a secret of a test has {MIN_LENGTH} characters"
    );
    KNOWN.lock().insert(text.clone());
    text
}

/// Adds what this process shows to others to what is searched.
pub fn shown(text: &str) {
    let mut shown = SHOWN.lock();
    shown.extend_from_slice(text.as_bytes());
    shown.push(b'\n');
}

/// From now on the logs of this process are searched, from the level debug on. For roles that a test runs in its own
/// process.
pub fn capture_logs() {
    // Another test has done it already, most often.
    let _ = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::DEBUG)
        .with_ansi(false)
        .with_writer(Captured)
        .try_init();
}

/// Searches what a control plane, its processes and this process show.
///
/// # Panics
/// When a secret is found, with its place; not in a test that fails already.
pub fn search(cluster: &ControlPlane, scratch: Option<&Scratch>) {
    if thread::panicking() {
        return;
    }
    let known = KNOWN.lock().clone();
    let Some(patterns) = Patterns::of(&known) else {
        return;
    };
    let mut found = String::new();
    // A destructor cannot wait: the runtime of the test stands still meanwhile.
    let objects = thread::scope(|scope| {
        let read = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(cluster.objects())
        };
        scope.spawn(read).join().expect("etcd answers")
    });
    for (key, value) in objects {
        if let Some(value) = readable(&key, value) {
            patterns.find(&key, &value, &mut found);
        }
    }
    for file in scratch.map(Scratch::path).map(files).unwrap_or_default() {
        let content = std::fs::read(&file).expect("a file of the test");
        patterns.find(&file.display().to_string(), &content, &mut found);
    }
    patterns.find("this process", &SHOWN.lock(), &mut found);
    assert!(found.is_empty(), "a secret of a test is shown:\n{found}");
}

/// Returns the part of an object that others may read; None for a Secret.
fn readable(key: &str, value: Vec<u8>) -> Option<Vec<u8>> {
    if key.starts_with(SECRETS) {
        return None;
    }
    if !key.starts_with(REGISTRIES) {
        return Some(value);
    }
    let mut registry: Value = serde_json::from_slice(&value).expect("custom resources are stored in JSON");
    if let Some(spec) = registry["spec"].as_object_mut() {
        spec.remove("credentials");
    }
    Some(registry.to_string().into_bytes())
}

/// The logs and metrics in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder of the test");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_output = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("log" | "metrics"))
    };
    paths.filter(is_output).collect()
}

/// The texts that are searched for.
struct Patterns {
    texts: Vec<String>,
    automaton: AhoCorasick,
}

impl Patterns {
    /// None without a secret.
    fn of(secrets: &BTreeSet<String>) -> Option<Self> {
        let texts: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        (!texts.is_empty()).then(|| Self {
            automaton: AhoCorasick::new(&texts).expect("few texts"),
            texts,
        })
    }

    fn find(&self, place: &str, content: &[u8], found: &mut String) {
        // The first one: the others often say the same.
        if let Some(text) = self.automaton.find(content) {
            let secret = &self.texts[text.pattern()];
            let around = text.start().saturating_sub(CONTEXT_BYTES)..(text.end() + CONTEXT_BYTES).min(content.len());
            let around = String::from_utf8_lossy(&content[around]);
            writeln!(found, "{place}: {secret}\n    … {} …", around.escape_debug()).expect("a text");
        }
    }
}

/// The text itself, and what every base64 that contains it contains: three forms, by where it begins in it.
fn forms(secret: &str) -> Vec<String> {
    let encoded = (0..3).map(|before| {
        let text = STANDARD.encode([vec![0; before], secret.as_bytes().to_vec()].concat());
        // Each character has six bits; those at the edges belong to the neighbours as well.
        let (first, last) = ((before * 8).div_ceil(6), (before + secret.len()) * 8 / 6);
        text[first..last].to_owned()
    });
    [secret.to_owned()].into_iter().chain(encoded).collect()
}

/// Writes logs to what is searched.
#[derive(Clone, Copy)]
struct Captured;

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        SHOWN.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Captured {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(content: &str) -> bool {
        let patterns = Patterns::of(&["hunter2-searched".to_owned()].into()).unwrap();
        let mut found = String::new();
        patterns.find("a log", content.as_bytes(), &mut found);
        !found.is_empty()
    }

    #[test]
    fn a_secret_is_found_as_it_is_and_within_base64() {
        assert!(found_in("password=hunter2-searched."));
        for before in ["", "u:", "us:", "usr:"] {
            for after in ["", ",", "}}", "\n\n\n"] {
                let encoded = STANDARD.encode(format!("{before}hunter2-searched{after}"));
                assert!(found_in(&format!("auth: {encoded}")), "{before:?} {after:?}");
            }
        }
        assert!(!found_in("hunter2-others"));
        assert!(Patterns::of(&BTreeSet::new()).is_none());
    }

    #[test]
    fn only_the_credentials_of_a_registry_may_say_it() {
        let registry = |field: &str| format!(r#"{{"spec":{{"{field}":"hunter2-searched"}}}}"#).into_bytes();
        let shows = |key: &str, value: Vec<u8>| {
            readable(key, value).is_some_and(|value| found_in(&String::from_utf8(value).unwrap()))
        };
        assert!(!shows("/registry/secrets/n/s", registry("data")));
        assert!(!shows(
            "/registry/containership.io/registries/n/r",
            registry("credentials")
        ));
        assert!(shows(
            "/registry/containership.io/registries/n/r",
            registry("description")
        ));
        assert!(shows("/registry/events/n/e", registry("credentials")));
    }
}
