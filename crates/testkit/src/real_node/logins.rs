//! Logins with SSH keys at the sshd of a node.

use super::RealNode;
use crate::assets;
use crate::command::tried;

/// The file that the agent maintains on each node.
pub const AUTHORIZED_KEYS: &str = "/etc/containership/home/.ssh/authorized_keys";

/// The first line of the block in docs/agent.md.
const SSHD_CONFIG: &str = "# /etc/ssh/sshd_config.d/tidewaiter.conf\n";

/// Nobody answers questions, and every host is known.
const OPTIONS: [&str; 5] = [
    "-oBatchMode=yes",
    "-oIdentitiesOnly=yes",
    "-oStrictHostKeyChecking=no",
    "-oUserKnownHostsFile=/dev/null",
    "-oLogLevel=ERROR",
];

impl RealNode {
    /// Configures sshd as docs/agent.md says.
    ///
    /// # Panics
    /// When the page has no such lines, or sshd does not accept them.
    pub async fn accepts_logins(&self) {
        let page = std::fs::read_to_string(assets::repository().join("docs/agent.md")).expect("docs/agent.md");
        let (_, rest) = page.split_once(SSHD_CONFIG).expect("docs/agent.md has lines for sshd");
        let (lines, _) = rest.split_once("```").expect("a block has an end");
        let write = "printf %s \"$1\" >/etc/ssh/sshd_config.d/tidewaiter.conf && sshd -t && systemctl restart ssh";
        self.run(["sh", "-c", write, "sh", lines]).await;
    }

    /// Makes a key pair of this type at this path on the node; returns the public key.
    pub async fn make_key(&self, path: &str, kind: &str, bits: &str) -> String {
        let make = [
            "ssh-keygen",
            "-q",
            "-N",
            "",
            "-C",
            "",
            "-t",
            kind,
            "-b",
            bits,
            "-f",
            path,
        ];
        self.run(make).await;
        self.run(["cat", &format!("{path}.pub")]).await.trim().to_owned()
    }

    /// Logs in at another node as root with the private key at this path, and returns what the command prints there.
    ///
    /// # Errors
    /// The output of ssh, when it is refused or the command fails.
    pub async fn logs_in(&self, to: &Self, key: &str, command: &str) -> Result<String, String> {
        self.ssh(to, key, &[], &["--", command]).await
    }

    /// The same with options of ssh before the host, and other words after it.
    ///
    /// # Errors
    /// The output of ssh.
    pub async fn ssh(&self, to: &Self, key: &str, options: &[&str], words: &[&str]) -> Result<String, String> {
        let mut ssh = self.command();
        // The first value of an option counts.
        ssh.args(["ssh", "-i", key, "-oConnectTimeout=10"])
            .args(options)
            .args(OPTIONS);
        ssh.arg(format!("root@{}", to.address())).args(words);
        tried(&mut ssh).await
    }
}
