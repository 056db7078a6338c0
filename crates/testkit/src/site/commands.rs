//! Commands that an operator types: in the folder of the repository, as an administrator of the cluster.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::Site;
use crate::command::{printed, tried};
use crate::{Identity, assets};

impl Site {
    /// Runs Helm with values in a file, and returns what it prints.
    pub async fn helm(&self, words: &str, values: &Value) -> String {
        let file = self.file("values.json", &values.to_string());
        let mut helm = self.helm_alone(words);
        printed(helm.arg("--values").arg(file)).await
    }

    /// Helm with these words, to run.
    pub fn helm_alone(&self, words: &str) -> Command {
        let mut helm = Command::new(assets::helm());
        helm.args(words.split(' '))
            .current_dir(assets::repository())
            .env_clear();
        helm.env("HOME", self.scratch.path())
            .env("KUBECONFIG", self.control_plane.kubeconfig(&Identity::Admin));
        helm
    }

    /// Runs kubectl as an administrator, and returns what it prints.
    pub async fn kubectl(&self, words: &str) -> String {
        printed(&mut self.kubectl_command(words)).await
    }

    /// The same.
    ///
    /// # Errors
    /// The failure.
    pub async fn try_kubectl(&self, words: &str) -> Result<String, String> {
        tried(&mut self.kubectl_command(words)).await
    }

    /// The same with something to read.
    pub async fn kubectl_with(&self, words: &str, input: &str) -> String {
        let mut command = self.kubectl_command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "kubectl {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn kubectl_command(&self, words: &str) -> Command {
        let mut command = Command::from(self.control_plane.kubectl(&Identity::Admin));
        command.args(words.split(' ')).current_dir(assets::repository());
        command
    }

    /// Writes a file for a command to read.
    #[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}
