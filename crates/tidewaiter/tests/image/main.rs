//! The image that `hack/image/build` makes, of the binary under test. It is unpacked and run in a chroot; no container
//! runtime is needed.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod release;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tidewaiter_testkit::images::{VERSION, architecture, build_script};
use tidewaiter_testkit::{Images, Scratch, assets};

/// The user of the image: kOps' user for kops-controller.
const USER: &str = "10011:10011";
const NAMES: [&str; 2] = ["tidewaiter", "kops-controller"];
/// 2026-01-02T03:04:05Z
const TIME: &str = "1767323045";

/// The images, built once for the tests that only read them.
static BUILT: LazyLock<Built> = LazyLock::new(|| Built::new(Command::new(build_script())));

/// Returns the output of a command, which succeeds.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (said, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(said).unwrap()
}

/// The images of a build.
struct Built(Images);

impl Built {
    fn new(mut script: Command) -> Self {
        script.env("SOURCE_DATE_EPOCH", TIME);
        let build = Images::build_by(script.into(), Path::new(env!("CARGO_BIN_EXE_tidewaiter")));
        Self(tokio::runtime::Runtime::new().unwrap().block_on(build))
    }

    fn unpack(&self, name: &str) -> Layout {
        let layout = Layout {
            scratch: Scratch::new("image-layout"),
        };
        output(
            Command::new("tar")
                .arg("--extract")
                .arg("--file")
                .arg(self.0.file(name, "tar"))
                .arg("--directory")
                .arg(layout.scratch.path()),
        );
        layout
    }
}

/// An unpacked archive, in the layout of the OCI image specification.
struct Layout {
    scratch: Scratch,
}

impl Layout {
    fn json(&self, path: impl AsRef<Path>) -> Value {
        serde_json::from_slice(&fs::read(self.scratch.path().join(path)).unwrap()).unwrap()
    }

    fn blob(&self, descriptor: &Value) -> PathBuf {
        let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
        self.scratch.path().join("blobs").join(digest)
    }

    fn index(&self) -> Value {
        self.json("index.json")
    }

    fn manifest(&self) -> Value {
        self.json(self.blob(&self.index()["manifests"][0]))
    }

    fn config(&self) -> Value {
        self.json(self.blob(&self.manifest()["config"]))
    }

    fn layers(&self) -> Vec<PathBuf> {
        let manifest = self.manifest();
        manifest["layers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|layer| self.blob(layer))
            .collect()
    }

    /// The root of a container, with the owners and modes of the layers.
    fn root(&self) -> PathBuf {
        let root = self.scratch.path().join("root");
        fs::create_dir(&root).unwrap();
        for layer in self.layers() {
            output(
                Command::new("tar")
                    .args(["--extract", "--preserve-permissions", "--file"])
                    .arg(layer)
                    .arg("--directory")
                    .arg(&root),
            );
        }
        root
    }

    /// Each entry of the layers: mode, owner, and path with the target of a link.
    fn entries(&self) -> BTreeSet<(String, String, String)> {
        let list = |layer: &PathBuf| {
            output(
                Command::new("tar")
                    .args(["--list", "--verbose", "--numeric-owner", "--file"])
                    .arg(layer),
            )
        };
        let entry = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let (mode, owner) = (words.next().unwrap(), words.next().unwrap());
            // The size, the date and the time.
            (mode, owner, words.skip(3).collect::<Vec<_>>().join(" "))
        };
        self.layers()
            .iter()
            .flat_map(|layer| list(layer).lines().map(entry).collect::<Vec<_>>())
            .collect()
    }
}

#[test]
fn the_image_contains_the_binary_and_only_what_it_needs() {
    let (triplet, loader) = match architecture() {
        "amd64" => ("x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2"),
        _ => ("aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1"),
    };
    let library = |name: &str| format!("lib/{triplet}/{name}");
    let package = |name: &str| {
        [
            format!("usr/share/doc/{name}/copyright"),
            format!("var/lib/dpkg/status.d/{name}"),
        ]
    };
    let mut programs = vec!["usr/local/bin/tidewaiter".to_owned(), loader.to_owned()];
    programs.extend(["libc.so.6", "libgcc_s.so.1", "libm.so.6"].map(library));
    let mut files = [
        "etc/nsswitch.conf",
        "etc/os-release",
        "etc/ssl/certs/ca-certificates.crt",
    ]
    .map(str::to_owned)
    .to_vec();
    files.extend(
        ["ca-certificates", "libc6", "libgcc-s1"]
            .iter()
            .flat_map(|name| package(name)),
    );
    let links =
        ["kops-controller", "ko-app/kops-controller"].map(|link| format!("{link} -> /usr/local/bin/tidewaiter"));
    // tar lists a folder with a slash at its end.
    let mut folders = BTreeSet::new();
    for path in programs
        .iter()
        .chain(&files)
        .map(String::as_str)
        .chain(["ko-app/kops-controller"])
    {
        folders.extend(
            Path::new(path)
                .ancestors()
                .skip(1)
                .map(|folder| format!("{}/", folder.display())),
        );
    }
    folders.remove("/");
    let with = |mode: &'static str, paths: Vec<String>| {
        paths
            .into_iter()
            .map(move |path| (mode.to_owned(), "0/0".to_owned(), path))
    };
    let expected: BTreeSet<_> = with("-rwxr-xr-x", programs)
        .chain(with("-rw-r--r--", files))
        .chain(with("lrwxrwxrwx", links.to_vec()))
        .chain(with("drwxr-xr-x", folders.into_iter().collect()))
        .chain(with("drwxrwxrwt", vec!["tmp/".to_owned()]))
        .collect();
    for name in NAMES {
        assert_eq!(BUILT.unpack(name).entries(), expected, "{name}");
    }
}

#[test]
fn the_configuration_names_the_user_the_program_and_the_commit() {
    let commit = output(
        Command::new("git")
            .args(["rev-parse", "HEAD"])
            .current_dir(assets::repository()),
    );
    for (name, program) in [
        ("tidewaiter", "/usr/local/bin/tidewaiter"),
        ("kops-controller", "/kops-controller"),
    ] {
        let layout = BUILT.unpack(name);
        let index = layout.index();
        let reference = &index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"];
        assert_eq!(*reference, json!(format!("registry.invalid/{name}:{VERSION}")));
        let digest = fs::read_to_string(BUILT.0.file(name, "digest")).unwrap();
        assert_eq!(digest.trim_end(), index["manifests"][0]["digest"].as_str().unwrap());

        let config = layout.config();
        assert_eq!(config["architecture"], architecture());
        assert_eq!(config["created"], "2026-01-02T03:04:05Z");
        let run = &config["config"];
        assert_eq!(run["User"], USER);
        assert_eq!(run["Entrypoint"], json!([program]));
        assert_eq!(run["Cmd"], Value::Null);
        let labels = run["Labels"].as_object().unwrap();
        let label = |key: &str| labels[&format!("org.opencontainers.image.{key}")].as_str().unwrap();
        assert_eq!(label("version"), VERSION);
        assert_eq!(label("created"), "2026-01-02T03:04:05Z");
        assert_eq!(label("revision").trim_end_matches("-dirty"), commit.trim());
        assert_eq!(label("licenses"), env!("CARGO_PKG_LICENSE"));
        assert_eq!(label("source"), env!("CARGO_PKG_REPOSITORY"));
        let keys: Vec<&str> = labels
            .keys()
            .filter_map(|key| key.strip_prefix("org.opencontainers.image."))
            .collect();
        let others = ["description", "documentation", "title", "url", "vendor"];
        let known: BTreeSet<&str> = ["version", "created", "revision", "licenses", "source"]
            .into_iter()
            .chain(others)
            .collect();
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), known);
        assert_eq!(labels.len(), known.len(), "{labels:?}");
    }
}

#[test]
fn the_same_binary_gives_the_same_bytes() {
    // The differences between two machines: the mask of new files, the time zone, the language, the names and times of
    // files.
    let mut script = Command::new("bash");
    script
        .args(["-c", "umask 077; exec \"$0\" \"$@\""])
        .arg(build_script())
        .env("TZ", "Pacific/Kiritimati")
        .env("LC_ALL", "C.UTF-8");
    let again = Built::new(script);
    for name in NAMES {
        for ending in ["digest", "tar"] {
            let [first, second] = [&BUILT, &again].map(|built| fs::read(built.0.file(name, ending)).unwrap());
            assert!(first == second, "{name}.{ending} differs");
        }
    }
}

#[test]
fn the_binary_runs_in_the_image_as_its_user() {
    assert!(
        rustix::process::geteuid().is_root(),
        "chroot needs root: run this test as root"
    );
    for name in NAMES {
        let layout = BUILT.unpack(name);
        let root = layout.root();
        let run = |program: &str, argument: &str| {
            output(
                Command::new("chroot")
                    .arg(format!("--userspec={USER}"))
                    .arg(&root)
                    .args([program, argument]),
            )
        };
        assert_eq!(
            run("/usr/local/bin/tidewaiter", "--version"),
            format!("tidewaiter {VERSION}\n")
        );
        // As kOps' DaemonSet starts it, and under the path in kOps' own image.
        for program in ["/kops-controller", "/ko-app/kops-controller"] {
            let said = run(program, "--help");
            assert!(said.contains("Usage: kops-controller [OPTIONS]\n"), "{said}");
        }
    }
}

#[test]
fn only_public_authorities_are_trusted() {
    let trusted = |text: &str| -> BTreeSet<String> {
        let parts = text.split_inclusive("-----END CERTIFICATE-----\n");
        parts
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty())
            .collect()
    };
    let layout = BUILT.unpack("tidewaiter");
    let root = layout.root();
    let bundle = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    let mut public = BTreeSet::new();
    for file in fs::read_dir("/usr/share/ca-certificates/mozilla").unwrap() {
        public.extend(trusted(&fs::read_to_string(file.unwrap().path()).unwrap()));
    }
    assert!(public.len() > 100, "{} authorities", public.len());
    assert_eq!(trusted(&bundle), public);
}

#[test]
fn a_wrong_binary_is_refused() {
    let scratch = Scratch::new("image-refused");
    let missing = scratch.path().join("missing");
    let output = Command::new(build_script())
        .arg(&missing)
        .arg(scratch.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains(missing.to_str().unwrap()) && said.contains("cargo build --release"),
        "{said}"
    );
}

#[test]
fn a_layer_is_compressed_with_zstd_and_an_image_that_is_too_large_is_refused() {
    for name in NAMES {
        let manifest = BUILT.unpack(name).manifest();
        let layers = manifest["layers"].as_array().unwrap();
        let zstd = |layer: &&Value| layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar+zstd";
        assert_eq!(layers.iter().filter(zstd).count(), layers.len(), "{name}: {manifest}");
    }
    let scratch = Scratch::new("image-too-large");
    let output = Command::new(build_script())
        .arg(BUILT.0.binary())
        .arg(scratch.path())
        .env("COMPRESSION_LEVEL", "1")
        // As many bytes as the image may have by default; that of a debug binary has more.
        .env_remove("SIZE_LIMIT")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("bytes compressed, more than 25000000"), "{said}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "{said}");
}
