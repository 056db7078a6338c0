//! The files and commands for a viewer who looks around while everything runs, and the story in short.

use std::path::Path;

use anyhow::{Context as _, Result};
use tidewaiter_testkit::{Identity, assets};

use crate::cloud::{Cloud, PASSWORD, REGISTRY_PASSWORD, write};
use crate::world::{CLUSTER, Stage, binary, state_store};

pub const SUMMARY: &str = "\
Labels: three Nodes got those of their groups, because EC2 vouches for them. A forged Node got none.
Health: an outage was in the command line, the gauges and the condition, and so was its end.
Cloud: the cluster follows it, restores what is deleted by accident, and holds a mass deletion.
Access: Alice could do what she was permitted to do, as long as she was.
Plugins: a broken version said why, was taken back, and was replaced.";

const COMMANDS: &str = "\
kubectl get nodes,nodeidentities,cloudsyncs
tidewaiter validate
tidewaiter explain forgeries --conf config.yaml
tidewaiter explain access --user Alice
tidewaiter cloud get users
tidewaiter cloud diff -f examples/acme
tidewaiter cloud audit --limit 10
tidewaiter plugin history status";

/// Writes the file for the shell. Returns the commands, one in a line, and what they use.
pub fn commands(stage: &Stage, cloud: &Cloud) -> Result<String> {
    let folder = cloud.folder();
    let kops = std::fs::read_to_string(stage.scratch().path().join("config.yaml")).context("the file of kOps")?;
    write(&folder.join("config.yaml"), &kops)?;
    let file = folder.join("demo.sh");
    write(&file, &shell(stage, folder)?)?;
    Ok(format!(
        ". {}\n{COMMANDS}\n\nolivia@example.com is logged in to {}. Her password, and Alice's: {PASSWORD}\n\
         files:    {} (ca.crt is the authority of the cloud)",
        file.display(),
        cloud.url(),
        folder.display(),
    ))
}

/// The variables for kubectl, the cloud, the state store and AWS, and the folder of the files.
fn shell(stage: &Stage, folder: &Path) -> Result<String> {
    let own = |path: &Path| path.display().to_string();
    let mut variables = vec![
        ("KUBECONFIG", own(&stage.cluster.kubeconfig(&Identity::Admin))),
        // The logins of the owner.
        ("XDG_CONFIG_HOME", own(&folder.join("olivia"))),
        ("KOPS_CLUSTER_NAME", CLUSTER.to_owned()),
        ("KOPS_STATE_STORE", state_store()),
        ("TIDEWAITER_STATE_ENDPOINT", stage.moto.endpoint().to_owned()),
        ("ALICE_PASSWORD", PASSWORD.to_owned()),
        ("BOB_PASSWORD", PASSWORD.to_owned()),
        ("REGISTRY_PASSWORD", REGISTRY_PASSWORD.to_owned()),
    ];
    variables.extend(stage.moto.environment());
    let exports = variables.iter();
    let exports = exports.map(|(name, value)| quoted(value).map(|value| format!("export {name}={value}\n")));
    let (tidewaiter, kubectl) = (binary()?, assets::binary("kubectl"));
    let folders = [&tidewaiter, &kubectl].into_iter().filter_map(|path| path.parent());
    let paths = folders.map(|folder| quoted(&own(folder)).map(|folder| format!("PATH={folder}:$PATH\n")));
    let settings = exports.chain(paths).collect::<Result<String>>()?;
    Ok(format!("{settings}cd {}\n", quoted(&own(folder))?))
}

fn quoted(text: &str) -> Result<String> {
    let quoted = shlex::try_quote(text).context("a value for the shell")?;
    Ok(quoted.into_owned())
}
