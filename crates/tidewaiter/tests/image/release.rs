//! The files that `hack/release` adds to an image.
#![allow(clippy::disallowed_methods, reason = "files of the test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tidewaiter_testkit::images::VERSION;
use tidewaiter_testkit::{Scratch, assets};

use crate::{TIME, output};

/// Takes the place of the binary, which takes minutes to compress: prints a version, and runs the binary for all else.
const STAND_IN: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    if (words[1][0] == '-') return printf("tidewaiter VERSION\n") < 0;
    return execv("BINARY", words);
}
"#;

/// A folder with `binary`, and the licences of an image in `dist`.
struct Input(Scratch);

impl Input {
    fn new(version: &str) -> Self {
        let input = Self(Scratch::new("release"));
        input.shell("mkdir dist");
        input.shell(&format!(
            "echo texts >dist/tidewaiter-{VERSION}-linux-amd64.licenses.txt"
        ));
        let source = STAND_IN.replace("VERSION", version);
        let source = source.replace("BINARY", env!("CARGO_BIN_EXE_tidewaiter"));
        fs::write(input.path().join("binary.c"), source).unwrap();
        input.shell("cc -o binary binary.c");
        input
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the output of a script that runs in the folder.
    #[track_caller]
    fn shell(&self, script: &str) -> String {
        let mut bash = Command::new("bash");
        bash.args(["-euc", script]).current_dir(self.path()).env("LC_ALL", "C");
        output(bash.env("SOURCE_DATE_EPOCH", TIME).env_remove("MINISIGN_KEY"))
    }

    /// Returns what `hack/release` of a repository says. The shell reads `before` before the command.
    #[track_caller]
    fn release(&self, before: &str, repository: &Path) -> String {
        let script = repository.join("hack/release");
        self.shell(&format!("{before} {} binary dist 2>&1", script.display()))
    }
}

#[test]
fn a_release_has_what_each_installation_needs() {
    let input = Input::new(VERSION);
    input.shell("minisign -G -W -p key.pub -s key >/dev/null");
    input.release("MINISIGN_KEY=key", &assets::repository());
    input.shell("cd dist; sha256sum -- [!S]* | diff - SHA256SUMS; minisign -V -p ../key.pub -m SHA256SUMS");
    let names = input.shell("cd dist; ls");
    let expected = format!(
        "SHA256SUMS\nSHA256SUMS.minisig\ntidewaiter-{VERSION}-linux-amd64.licenses.txt\n\
         tidewaiter-{VERSION}-x86_64-linux.tar.gz\ntidewaiter-{VERSION}.tgz\ntidewaiter-agent.yaml\n\
         tidewaiter-cloud.yaml\ntidewaiter-controller.yaml\ntidewaiter-coordinator-drain.yaml\n\
         tidewaiter-coordinator-plugins.yaml\ntidewaiter-coordinator-upgrades.yaml\ntidewaiter-coordinator.yaml\n\
         tidewaiter-crds.yaml\ntidewaiter-monitoring.yaml\ntidewaiter-takeover.yaml\ntidewaiter_{VERSION}_amd64.deb\n"
    );
    assert_eq!(names, expected);

    for file in names
        .lines()
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "yaml"))
    {
        let text = fs::read_to_string(input.path().join("dist").join(file)).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert!(
            !objects.is_empty() && objects.iter().all(|object| object["kind"].is_string()),
            "{file}: {objects:?}"
        );
    }

    let find = "find -type f ! -name 'tidewaiter-*.1*' | sort";
    let unpack = "mkdir local; tar -xf dist/*.gz --strip-components=1 -C local; cd local";
    let files = input.shell(&format!("{unpack}; {find}"));
    let expected = "./bin/tidewaiter\n./share/bash-completion/completions/tidewaiter\n./share/doc/tidewaiter/LICENSE\n\
        ./share/doc/tidewaiter/README.md\n./share/doc/tidewaiter/licenses.txt\n\
        ./share/fish/vendor_completions.d/tidewaiter.fish\n./share/man/man1/tidewaiter.1\n\
        ./share/zsh/site-functions/_tidewaiter\n";
    assert_eq!(files, expected);
    let grep = r"grep -q '^\\fB\\-\\-name' tidewaiter-validate.1; grep -q KOPS_CLUSTER_NAME tidewaiter-validate.1";
    input.shell(&format!(
        "cd local/share/man/man1; {grep}; test ! -e tidewaiter-manual.1"
    ));

    let files = input.shell(&format!("dpkg-deb --extract dist/*.deb root; cd root/usr; {find}"));
    let expected = "./bin/tidewaiter\n./lib/systemd/system/tidewaiter-cloud.service\n./lib/sysusers.d/tidewaiter.conf\n\
        ./share/bash-completion/completions/tidewaiter\n./share/doc/tidewaiter/README.md\n\
        ./share/doc/tidewaiter/copyright\n./share/doc/tidewaiter/licenses.txt\n\
        ./share/fish/vendor_completions.d/tidewaiter.fish\n./share/man/man1/tidewaiter.1.gz\n\
        ./share/zsh/vendor-completions/_tidewaiter\n";
    assert_eq!(files, expected);
    assert_eq!(
        input.shell("root/usr/bin/tidewaiter --version"),
        format!("tidewaiter {VERSION}\n")
    );
    input.shell("grep -q '^#compdef tidewaiter$' root/usr/share/zsh/*/_tidewaiter");
    input.shell("grep -q '^ExecStart=/usr/bin/tidewaiter ' root/usr/lib/systemd/system/tidewaiter-cloud.service");
    let fields = input.shell("dpkg-deb --field dist/*.deb Version Architecture Depends");
    let expected = format!("Version: {VERSION}\nArchitecture: amd64\nDepends: libc6 (>= ");
    assert!(fields.starts_with(&expected), "{fields}");
}

#[test]
fn the_same_binary_gives_the_same_release() {
    let [first, second] = ["", "umask 077; TZ=Pacific/Kiritimati"].map(|machine| {
        let input = Input::new(VERSION);
        let said = input.release(machine, &assets::repository());
        assert!(said.contains("SHA256SUMS is NOT SIGNED"), "{said}");
        input.shell("cat dist/SHA256SUMS")
    });
    assert_eq!(first, second);
}

#[test]
fn another_version_is_refused() {
    let said = Input::new("9.9.9").release("!", &assets::repository());
    let expected = format!("calls itself 'tidewaiter 9.9.9', not 'tidewaiter {VERSION}': rebuild it");
    assert!(said.contains(&expected), "{said}");

    // A repository in which only Cargo.toml has the next version.
    let input = Input::new(VERSION);
    let repository = input.path().join("repository");
    fs::create_dir(&repository).unwrap();
    for name in ["CHANGELOG.md", "deploy", "hack"] {
        symlink(assets::repository().join(name), repository.join(name)).unwrap();
    }
    let manifest = fs::read_to_string(assets::repository().join("Cargo.toml")).unwrap();
    let next = manifest.replacen(&format!("version = \"{VERSION}\""), "version = \"9.9.9\"", 1);
    fs::write(repository.join("Cargo.toml"), next).unwrap();
    let said = input.release("!", &repository);
    let chart = "deploy/chart/Chart.yaml lacks 'version: 9.9.9', the version of Cargo.toml";
    assert_eq!(
        said,
        format!("release: {chart}: correct it, and run cargo xtask generate\n")
    );
}
