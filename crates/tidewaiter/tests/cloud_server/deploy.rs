//! `deploy/cloud` and the commands by which docs/cloud.md has it deployed: on a real API server, with a server on
//! volumes as a kubelet mounts them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec, Secret};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, ObjectMeta, PostParams};
use reqwest::{Certificate, Client};
use serde_json::json;
use tidewaiter_testkit::{ControlPlane, Identity, Postgres, Process, Program, Scratch, assets, eventually, free_port};
use url::Url;

use crate::world::{PASSWORD, SOON};

const NAMESPACE: &str = "tidewaiter-cloud";
const NAME: &str = "tidewaiter-cloud";
/// The values of the documentation and the manifest that the reader replaces.
const DATABASE: &str = "postgres://tidewaiter@postgres.example.com/tidewaiter";
const ADDRESS: &str = "0.0.0.0:3990";
const HEALTH: &str = "0.0.0.0:3985";
const MOUNTS: &str = "/etc/tidewaiter";

/// The commands of the documentation.
fn commands(repository: &Path) -> String {
    let text = fs::read_to_string(repository.join("docs/cloud.md")).unwrap();
    let mut blocks = text
        .split("```\n")
        .filter(|block| block.contains("kubectl apply -f deploy/cloud"));
    blocks.next().expect("docs/cloud.md says how it is deployed").to_owned()
}

/// A folder from which somebody deploys it.
struct Desk {
    scratch: Scratch,
    cluster: ControlPlane,
    /// Without its password.
    database: Url,
    certificate: Certificate,
}

impl Desk {
    async fn new() -> Self {
        let scratch = Scratch::new("deploy");
        let postgres = Postgres::shared().await;
        let mut database: Url = postgres.url(&postgres.create_database().await).parse().unwrap();
        fs::write(scratch.path().join("database-password"), database.password().unwrap()).unwrap();
        database.set_password(None).unwrap();
        let tls = rcgen::generate_simple_self_signed(["localhost".to_owned(), "cloud.example.com".to_owned()]).unwrap();
        fs::write(scratch.path().join("tls.crt"), tls.cert.pem()).unwrap();
        fs::write(scratch.path().join("tls.key"), tls.signing_key.serialize_pem()).unwrap();
        Self {
            scratch,
            cluster: ControlPlane::start().await,
            database,
            certificate: Certificate::from_pem(tls.cert.pem().as_bytes()).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Types the commands in, in their order. What they said.
    async fn deploy(&self) -> String {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()
            .unwrap();
        let commands = commands(&repository);
        assert!(commands.contains(DATABASE), "{commands}");
        symlink(repository.join("deploy"), self.path("deploy")).unwrap();
        fs::create_dir(self.path("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_tidewaiter"), self.path("bin/tidewaiter")).unwrap();
        symlink(assets::binary("kubectl"), self.path("bin/kubectl")).unwrap();
        let shell = Program::new("/bin/sh")
            .args(["-ec", &commands.replace(DATABASE, self.database.as_str())])
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("HOME", self.scratch.path())
            .env("KUBECONFIG", self.cluster.kubeconfig(&Identity::Admin))
            .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD);
        let shell = Process::start(&self.scratch, shell);
        let status = shell.exited(SOON).await;
        assert!(status.success(), "{}", shell.log());
        shell.log()
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client(&Identity::Admin), NAMESPACE)
    }

    /// Mounts the volumes of the pod. What a kubelet does as root, a test that is not does as itself.
    async fn mount(&self, pod: &PodSpec) {
        let group = pod.security_context.as_ref().unwrap().fs_group.unwrap();
        let group = as_root().then(|| u32::try_from(group).unwrap());
        for mount in pod.containers[0].volume_mounts.as_ref().unwrap() {
            let folder = self
                .path("mounts")
                .join(mount.mount_path.strip_prefix("/etc/tidewaiter/").unwrap());
            let volume = pod
                .volumes
                .as_ref()
                .unwrap()
                .iter()
                .find(|volume| volume.name == mount.name);
            let volume = volume.unwrap();
            if let Some(source) = &volume.secret {
                let secret: Secret = self.api().get(source.secret_name.as_ref().unwrap()).await.unwrap();
                let files = secret
                    .data
                    .unwrap()
                    .into_iter()
                    .map(|(name, content)| (name, content.0));
                project(&folder, files.collect(), source.default_mode, group);
            } else {
                let map: ConfigMap = self.api().get(&volume.config_map.as_ref().unwrap().name).await.unwrap();
                let files = map
                    .data
                    .unwrap()
                    .into_iter()
                    .map(|(name, text)| (name, self.at_home(&text).into_bytes()));
                project(&folder, files.collect(), None, group);
            }
        }
    }

    /// The settings, on this machine.
    fn at_home(&self, settings: &str) -> String {
        let database = format!("{DATABASE}?sslmode=verify-full");
        for wanted in [&*database, ADDRESS, MOUNTS] {
            assert!(settings.contains(wanted), "no {wanted} in {settings}");
        }
        let settings = settings.replace(&database, self.database.as_str());
        settings.replace(MOUNTS, self.path("mounts").to_str().unwrap())
    }

    /// The container of the pod, as its user, on these ports.
    fn serve(&self, pod: &PodSpec, port: u16, health: u16) -> Process {
        let user = pod.security_context.as_ref().unwrap().run_as_user.unwrap().to_string();
        let arguments = pod.containers[0].args.as_ref().unwrap();
        let mounts = self.path("mounts");
        let arguments = arguments
            .iter()
            .map(|argument| argument.replace(MOUNTS, mounts.to_str().unwrap()));
        let binary = self.path("server");
        let program = if as_root() {
            // The folders that this user may enter.
            fs::copy(env!("CARGO_BIN_EXE_tidewaiter"), &binary).unwrap();
            fs::set_permissions(self.scratch.path(), Permissions::from_mode(0o711)).unwrap();
            let setpriv = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", "--"];
            Program::new("/usr/bin/env").args(setpriv).arg(binary)
        } else {
            Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
        };
        let mut program = program
            .name("server")
            .args(arguments)
            .args(["--address", &format!("127.0.0.1:{port}")]);
        for variable in pod.containers[0].env.iter().flatten() {
            let value = variable.value.as_deref().unwrap();
            program = program.env(&variable.name, value.replace(HEALTH, &format!("127.0.0.1:{health}")));
        }
        Process::start(&self.scratch, program)
    }
}

fn as_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A volume as a kubelet fills it: behind links, so that all files change at once.
fn project(folder: &Path, files: BTreeMap<String, Vec<u8>>, mode: Option<i32>, group: Option<u32>) {
    let version = folder.join("..2026_11_22_00_00_00.1");
    fs::create_dir_all(&version).unwrap();
    symlink(version.file_name().unwrap(), folder.join("..data")).unwrap();
    for (name, content) in files {
        let file = version.join(&name);
        fs::write(&file, content).unwrap();
        let mode = u32::try_from(mode.unwrap_or(0o644)).unwrap();
        // Without root the server owns its files, and nobody else may read its keys.
        let mode = if group.is_some() { mode } else { mode & 0o700 };
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        if group.is_some() {
            chown(&file, Some(0), group).unwrap();
        }
        symlink(Path::new("..data").join(&name), folder.join(&name)).unwrap();
    }
}

#[tokio::test]
async fn as_the_documentation_says_it_is_deployed_and_serves() {
    let desk = Desk::new().await;
    let said = desk.deploy().await;
    for wanted in [
        "namespace/tidewaiter-cloud created",
        "priorityclass.scheduling.k8s.io/tidewaiter-cloud created",
        "deployment.apps/tidewaiter-cloud created",
        "service/tidewaiter-cloud created",
        "secret/tidewaiter-cloud-tls created",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    assert!(!said.to_lowercase().contains("warning"), "{said}");

    let deployment: Deployment = desk.api().get(NAME).await.unwrap();
    let spec = deployment.spec.template.spec.unwrap();
    let pods: Api<Pod> = desk.api();
    let pod = |name: &str, spec: &PodSpec| Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(spec.clone()),
        status: None,
    };
    pods.create(&PostParams::default(), &pod("of-the-template", &spec))
        .await
        .unwrap();
    let mut careless = spec.clone();
    careless.containers[0].security_context = None;
    let refused = pods
        .create(&PostParams::default(), &pod("careless", &careless))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("violates PodSecurity \"restricted"),
        "{refused}"
    );

    desk.mount(&spec).await;
    let (port, health) = (free_port(), free_port());
    let server = desk.serve(&spec, port, health);
    let http = Client::builder()
        .tls_certs_only([desk.certificate.clone()])
        .no_proxy()
        .timeout(SOON);
    let (http, base) = (http.build().unwrap(), format!("https://localhost:{port}"));
    let container = &spec.containers[0];
    let ports = container.ports.as_ref().unwrap();
    let probed = ports
        .iter()
        .find(|port| HEALTH.ends_with(&port.container_port.to_string()));
    let probed = IntOrString::String(probed.unwrap().name.clone().unwrap());
    for probe in [&container.readiness_probe, &container.liveness_probe] {
        let asks = probe.as_ref().unwrap().http_get.as_ref().unwrap();
        assert_eq!((&asks.port, &asks.scheme), (&probed, &Some("HTTP".to_owned())));
        let url = format!("http://127.0.0.1:{health}{}", asks.path.as_ref().unwrap());
        eventually("the probe to succeed", SOON, async || {
            assert!(server.is_running(), "{}", server.log());
            let response = reqwest::get(&url).await;
            response.and_then(reqwest::Response::error_for_status).map(drop)
        })
        .await;
    }
    let login = json!({"email": "olivia@example.com", "password": PASSWORD});
    let login = http
        .post(format!("{base}/v3/login/password"))
        .json(&login)
        .send()
        .await
        .unwrap();
    assert_eq!(login.status(), 200, "{}", server.log());
}
