//! A real Postgres, with a cluster of its own in a scratch folder.
//!
//! It refuses to run as root. Where the tests do, it runs as `nobody`, from a copy in its folder: the cache may lie
//! where only root may go.
//!
//! Each of its processes leads a process group of its own, and ends when it notices that the first one has ended. So
//! [`kill`](Postgres::kill) ends them one by one; dropped, it is told to end at once and awaited. One that is not
//! dropped, as the shared one, ends all the same, but leaves its lock in the kernel: a System V segment of 56 bytes.

use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::sync::OnceCell;

use crate::port::free_port_on;
use crate::process::{Process, Program, as_pid, signal};
use crate::{Scratch, assets, eventually};

/// Its files are made in a second; on a busy machine they are not.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

const USER: &str = "tidewaiter";

/// In the folder of one that serves TLS.
const AUTHORITY: &str = "ca.crt";

/// Debian's `nobody`, and its group.
const NOBODY: u32 = 65_534;

/// For tests: a crash of the machine is not to be survived.
const SETTINGS: [&str; 8] = [
    "unix_socket_directories=",
    "fsync=off",
    "jit=off",
    // A query ends when its client has gone, also when all other processes have.
    "client_connection_check_interval=1s",
    // Files of its folder, so that they go with it.
    "dynamic_shared_memory_type=mmap",
    "max_connections=200",
    "shared_buffers=32MB",
    "timezone=UTC",
];

/// A running Postgres. It ends when this is dropped.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    address: Ipv4Addr,
    port: u16,
    password: String,
    databases: AtomicU32,
    scratch: Scratch,
}

impl Postgres {
    /// One that all tests of a process share, with a database each. It lives as long as the process.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Postgres> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// Starts an empty one, and waits until it answers.
    ///
    /// # Panics
    /// When it is not installed, with the line that installs it; when it does not come up, with its log.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, false).await
    }

    /// The same on another address of this machine, where real nodes reach it, over TLS alone. Also the certificate
    /// (PEM) of the authority that has signed its own, which is no public one.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn start_on(address: Ipv4Addr) -> (Self, String) {
        let postgres = Self::start_at(address, true).await;
        let authority = std::fs::read_to_string(postgres.scratch.path().join(AUTHORITY));
        (postgres, authority.expect("our own file"))
    }

    #[expect(clippy::disallowed_methods, reason = "a password that nobody else knows")]
    async fn start_at(address: Ipv4Addr, tls: bool) -> Self {
        let scratch = Scratch::new("postgres");
        let home = Home::prepare(&scratch, address);
        let password = format!("{:016x}", fastrand::u64(..));
        home.initialize(&scratch, &password).await;
        if tls {
            home.serve_tls(&scratch);
        }
        for attempt in 1..=5 {
            let port = free_port_on(address);
            let name = format!("postgres-{attempt}");
            let postgres = Self {
                process: Process::start(&scratch, home.server(port).name(name)),
                scratch: scratch.clone(),
                address,
                port,
                password: password.clone(),
                databases: AtomicU32::new(0),
            };
            if postgres.answers().await {
                return postgres;
            }
            // Somebody else took the port in between.
        }
        panic!("Postgres found no port in five attempts");
    }

    /// The address of a database, with user and password.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://{USER}:{}@{}:{}/{database}",
            self.password, self.address, self.port
        )
    }

    /// Makes an empty database; gives its name.
    pub async fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut connection = self.connect().await.expect("Postgres answers");
        let sql = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        connection.execute(sql).await.expect("a database");
        name
    }

    /// The first of its processes: to pause it, and for its log.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Ends it in good order, cutting its connections (`pg_ctl stop -m fast`).
    pub async fn stop(&self) {
        signal(self.process.pid(), Signal::INT);
        self.process.exited(READY_TIMEOUT).await;
    }

    /// Ends all its processes with SIGKILL, as a crash does. What was committed is there when it starts again.
    pub async fn kill(&self) {
        // A paused one starts no process that would not be seen here.
        self.process.pause();
        let children = children_of(self.process.pid());
        for child in &children {
            signal(*child, Signal::KILL);
        }
        self.process.kill();
        eventually(
            "the processes of Postgres to end",
            READY_TIMEOUT,
            async || match children.iter().find(|child| runs(**child)) {
                Some(child) => Err(format!("{child} runs")),
                None => Ok(()),
            },
        )
        .await;
    }

    /// Starts it again, on the same port and with what it held, and waits until it answers.
    ///
    /// # Panics
    /// When it does not come up, with its log.
    pub async fn start_again(&self) {
        self.process.start_again();
        assert!(self.answers().await, "{}", self.process.log_tail());
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect(&self.url("postgres")).await
    }

    /// Returns true if it answers; `false` when it has ended. Only it knows the password.
    async fn answers(&self) -> bool {
        eventually("Postgres to answer", READY_TIMEOUT, async || {
            match self.connect().await {
                Ok(_) => Ok(true),
                Err(_) if !self.process.is_running() => Ok(false),
                Err(error) => Err(format!("{error}; the end of its log:\n{}", self.process.log_tail())),
            }
        })
        .await
    }
}

impl Drop for Postgres {
    /// It ends its processes and takes its shared memory away, at once (`pg_ctl stop -m immediate`).
    fn drop(&mut self) {
        if self.process.is_running() {
            let pid = self.process.pid();
            signal(pid, Signal::QUIT);
            signal(pid, Signal::CONT);
            let until = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = rustix::process::waitid(WaitId::Pid(as_pid(pid)), until);
        }
    }
}

/// The place of its programs and its files, and the user that it runs as.
struct Home {
    address: Ipv4Addr,
    programs: PathBuf,
    data: PathBuf,
    as_nobody: bool,
}

impl Home {
    fn prepare(scratch: &Scratch, address: Ipv4Addr) -> Self {
        let data = scratch.path().join("data");
        std::fs::create_dir(&data).expect("a folder");
        let installed = assets::postgres();
        let as_nobody = rustix::process::geteuid().is_root();
        if !as_nobody {
            let programs = installed;
            return Self {
                address,
                programs,
                data,
                as_nobody,
            };
        }
        let programs = scratch.path().join("programs");
        let copied = Command::new("cp")
            .args(["--archive", "--"])
            .arg(installed)
            .arg(&programs)
            .status();
        assert!(copied.expect("cp runs").success(), "the programs can be copied");
        chown(&data, Some(NOBODY), Some(NOBODY)).expect("root may give a folder away");
        // To be gone through, not listed.
        allow(scratch.path(), 0o711);
        Self {
            address,
            programs,
            data,
            as_nobody,
        }
    }

    async fn initialize(&self, scratch: &Scratch, password: &str) {
        let password_file = scratch.path().join("password");
        write(&password_file, password);
        if self.as_nobody {
            chown(&password_file, Some(NOBODY), None).expect("root may give a file away");
        }
        let initdb = self
            .program("initdb")
            .args(["--username", USER, "--auth=scram-sha-256"])
            .args(["--encoding=UTF8", "--locale=C", "--no-sync"])
            .arg(format!("--pwfile={}", password_file.display()))
            .arg("--pgdata")
            .arg(&self.data);
        let initdb = Process::start(scratch, initdb.name("initdb"));
        let status = initdb.exited(READY_TIMEOUT).await;
        assert!(status.success(), "initdb: {status}\n{}", initdb.log_tail());
    }

    /// Gives it a certificate for its address, and lets in anyone who comes over TLS, from anywhere.
    fn serve_tls(&self, scratch: &Scratch) {
        let new_key = || KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, new_key()).expect("a certificate authority");
        write(&scratch.path().join(AUTHORITY), &authority.pem());
        let key = new_key();
        let params = CertificateParams::new([self.address.to_string()]).expect("an address");
        let certificate = params.signed_by(&key, &authority).expect("the authority signs");
        for (name, text) in [
            ("server.crt", certificate.pem()),
            ("server.key", key.serialize_pem()),
            ("pg_hba.conf", "hostssl all all all scram-sha-256\n".to_owned()),
            ("postgresql.auto.conf", "ssl = on\n".to_owned()),
        ] {
            let path = self.data.join(name);
            write(&path, &text);
            allow(&path, 0o600);
            if self.as_nobody {
                chown(&path, Some(NOBODY), Some(NOBODY)).expect("root may give a file away");
            }
        }
    }

    fn server(&self, port: u16) -> Program {
        let settings = SETTINGS.iter().flat_map(|setting| ["-c", *setting]);
        let server = self.program("postgres").args(settings).args(["-p", &port.to_string()]);
        let server = server.args(["-c", &format!("listen_addresses={}", self.address)]);
        server.arg("-D").arg(&self.data)
    }

    fn program(&self, name: &str) -> Program {
        let path = self.programs.join(name);
        if !self.as_nobody {
            return Program::new(path);
        }
        let nobody = NOBODY.to_string();
        let program = Program::new("/usr/bin/env").args(["setpriv", "--reuid", &nobody, "--regid", &nobody]);
        program.args(["--clear-groups", "--"]).arg(path)
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("Linux tells the children of a process");
    children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"))
        .collect()
}

/// A process that nobody has waited for yet holds nothing any more.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our own folder");
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write(path: &Path, content: &str) {
    std::fs::write(path, content).expect("a file in our own folder");
}
