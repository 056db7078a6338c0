//! The coordinator as `deploy/coordinator` starts it.

use super::*;
use crate::write;

const MANIFEST: &str = include_str!("../../../../../deploy/coordinator/deployment.yaml");
/// The ids in it, which an operator replaces.
const NIL: &str = "00000000-0000-4000-8000-000000000000";

impl Scene {
    /// Starts it with the arguments and the settings of the manifest, in which our cloud is filled in, and with `more`.
    pub fn released(&self, more: &str) -> Replica {
        let Cloud {
            url,
            organization,
            cluster,
            key,
            ..
        } = &self.cloud;
        let folder = self.settings.path();
        let (file, key_file) = (folder.join("settings.yaml"), folder.join("api-key"));
        let mut settings = settings();
        for (placeholder, value) in [
            ("https://cloud.example.com".to_owned(), url.clone()),
            (
                "/etc/tidewaiter/cloud/api-key".to_owned(),
                key_file.display().to_string(),
            ),
            (format!("clusterId: {NIL}"), format!("clusterId: {cluster}")),
            (
                format!("organizationId: {NIL}"),
                format!("organizationId: {organization}"),
            ),
        ] {
            assert!(settings.contains(&placeholder), "{placeholder}");
            settings = settings.replace(&placeholder, &value);
        }
        write(&file, &format!("{settings}{more}"));
        write(&key_file, key);
        let indent = "            - ";
        let arguments = format!("{indent}coordinator\n{indent}--settings=/etc/tidewaiter/settings/settings.yaml\n");
        assert!(MANIFEST.contains(&format!("args:\n{arguments}          env:")));
        let arguments = ["coordinator".to_owned(), format!("--settings={}", file.display())];
        let mut variables = self.registries.environment();
        variables.push(("TIDEWAITER_LOG__FILTER", "info".to_owned()));
        self.world.replica_of(&arguments, &variables, None)
    }
}

/// The settings in the manifest.
fn settings() -> String {
    let (_, text) = MANIFEST.split_once("settings.yaml: |\n").unwrap();
    let (text, _) = text.split_once("---").unwrap();
    let lines: Vec<String> = text.lines().map(|line| line.replacen("    ", "", 1)).collect();
    lines.join("\n") + "\n"
}
