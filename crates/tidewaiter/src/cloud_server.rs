//! `tidewaiter cloud init`, `serve`, `backup`, `restore`, `recover` and `keys`: the commands on the host of the cloud's
//! server.

mod acme;
mod settings;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tidewaiter_cloud::models::values::DisplayName;
use tidewaiter_cloud::server::keys::hash::Password;
use tidewaiter_cloud::server::keys::sealing::Sealer;
use tidewaiter_cloud::server::keys::secret_file;
use tidewaiter_cloud::server::keys::signing::KeyRing;
use tidewaiter_cloud::server::store::{BackupError, backup, restore};
use tidewaiter_cloud::server::{
    DRAIN, InitOptions, LONGEST_TOKEN, RecoverOptions, ServerParts, create_organization, has_organization, make_keys,
    recover, start,
};
use tidewaiter_kit::SystemClock;
use tidewaiter_kit::role::{self, ProcessSpec};
use tidewaiter_kit::serve::Port;
use tidewaiter_kit::settings::{environment, load};
use tracing::warn;
use url::Url;

use crate::Failure;
use crate::cli::{BackupArgs, InitArgs, KeysCommand, RecoverArgs, RestoreArgs, ServeArgs, ServerCommand, ServerPlace};
use crate::password::{self, Variable};
use crate::settings::print;
use crate::write_stdout;
use settings::ServerSettings;

/// The number of files that the server needs besides its connections.
const RESERVED_FILES: usize = 128;

/// Runs one of the commands.
pub(crate) fn main(command: &ServerCommand) -> Result<(), Failure> {
    match command {
        ServerCommand::Serve(args) => serve(args),
        ServerCommand::Init(args) => run(init(args)),
        ServerCommand::Backup(args) => run(copy_out(args)),
        ServerCommand::Restore(args) => run(copy_in(args)),
        ServerCommand::Recover(args) => run(recover_operator(args)),
        ServerCommand::Keys(command) => keys(command),
    }
}

fn run(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::Running(error.into()))?;
    runtime.block_on(command)
}

/// Reads and checks the settings before anything else is done.
fn read_alone(place: &ServerPlace) -> Result<ServerSettings, Failure> {
    let (settings, _) = read(place, &place.flags).map_err(Failure::Configuration)?;
    Ok(settings)
}

/// The settings of a command that uses the database, and its URL, before anything else is done.
fn read_with_database(place: &ServerPlace) -> Result<(ServerSettings, Url), Failure> {
    let settings = read_alone(place)?;
    let database = settings.database().map_err(Failure::Configuration)?;
    Ok((settings, database))
}

fn refuse_missing(keys: &Path) -> Result<()> {
    if keys.exists() {
        return Ok(());
    }
    bail!(
        "there are no keys in {}: for a new cloud, run tidewaiter cloud init; if the database was restored, put the keys that belong to it there",
        keys.display()
    )
}

/// The effective settings, and warnings for the operator.
fn read(place: &ServerPlace, flags: &impl Serialize) -> Result<(ServerSettings, Vec<String>)> {
    // The variables of the client commands are not settings of the server.
    let variables = environment()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("TIDEWAITER_CLOUD_") && name != Variable::SigningKey.name());
    let settings = load::<ServerSettings>(place.settings.as_deref(), variables, flags)?;
    settings.values.check()?;
    Ok((settings.values, settings.warnings))
}

/// The flags of both groups, as one mapping.
#[derive(Serialize)]
struct Both<'a, A, B> {
    #[serde(flatten)]
    first: &'a A,
    #[serde(flatten)]
    second: &'a B,
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let flags = Both {
        first: &args.place.flags,
        second: &args.serve,
    };
    let (settings, warnings) = read(&args.place, &flags).map_err(Failure::Configuration)?;
    if args.print_config {
        return print(&settings, &[]).map_err(Failure::Running);
    }
    let parts = settings.parts().map_err(Failure::Configuration)?;
    let spec = ProcessSpec {
        name: "tidewaiter-cloud",
        log: settings.log.clone(),
        health_address: settings.health_address,
        environment: environment(),
        warnings,
        threads: None,
        grace: DRAIN,
    };
    role::process(spec, async |process| {
        let admin = Port::open("adminAddress", settings.admin_address).await?;
        let connections = connections_within(parts.connections, raise_limit());
        if connections < parts.connections {
            let set = parts.connections;
            warn!(
                set,
                connections,
                "connections is above what the limit of open files permits: raise that limit (LimitNOFILE)"
            );
        }
        let parts = ServerParts {
            connections,
            ..parts.clone()
        };
        refuse_missing(&parts.keys)?;
        start(parts, &mut process.tasks, &process.kit).await?;
        process.serve_admin(admin);
        Ok::<(), anyhow::Error>(())
    })?;
    Ok(())
}

/// The limit on connections, of which each needs a file: some files are for the database, the keys and the probes.
fn connections_within(set: usize, files: Option<u64>) -> usize {
    let files = files
        .and_then(|files| usize::try_from(files).ok())
        .unwrap_or(usize::MAX);
    set.min(files.saturating_sub(RESERVED_FILES)).max(1)
}

/// Each connected watcher holds a connection, so the limit of open files is raised to its maximum, which it returns.
fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    if let Err(error) = raised {
        warn!(%error, "cannot raise the limit of open files");
        return limit.current;
    }
    limit.maximum
}

async fn init(args: &InitArgs) -> Result<(), Failure> {
    let (settings, database) = read_with_database(&args.place)?;
    settings.public_url().map_err(Failure::Configuration)?;
    let prompt = format!("A password for {}", args.email);
    let password = password::read(Variable::Account, args.password_file.as_deref(), &prompt, true)
        .map_err(Failure::Configuration)?;
    let password = zeroize::Zeroizing::new(password);
    let password = Password::new(&password).context("the password");
    let password = password.map_err(Failure::Configuration)?;
    founded(args, &settings, &database, password)
        .await
        .map_err(Failure::Running)
}

/// Creates the data directory, accessible only to its owner.
fn make_folder(settings: &ServerSettings) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&settings.data);
    made.with_context(|| format!("data is {}: the directory cannot be created", settings.data.display()))
}

async fn founded(args: &InitArgs, settings: &ServerSettings, database: &Url, password: Password<'_>) -> Result<()> {
    let clock = SystemClock::shared();
    make_folder(settings)?;
    let (keys, sealing) = (settings.keys(), settings.sealing_keys());
    let has_keys = keys.exists() && sealing.exists();
    let has_organization = has_organization(database, clock.clone()).await;
    let has_organization = has_organization.map_err(anyhow::Error::from)?;
    if has_organization && !has_keys {
        bail!(
            "the database already has an organization, whose keys are not in {} and {}: put the keys that belong to it there. New ones would \
             not decrypt it",
            keys.display(),
            sealing.display()
        );
    }
    make_keys(&keys, &sealing, &clock)?;
    // A server that exists keeps its certificate, and one that has no certificate has no organization yet.
    if !has_organization && let Some(hosts) = settings.local_hosts(&args.hosts) {
        settings.local_authority().create(&hosts, clock.now())?;
    }
    let founder = InitOptions {
        organization: args.organization.as_str(),
        name: args.name.as_ref().map_or(args.email.as_str(), DisplayName::as_str),
        email: args.email.as_str(),
        password,
    };
    let made = create_organization(database, clock.clone(), founder)
        .await
        .map_err(anyhow::Error::from)?;
    let flags = args.place.to_flags(&settings.data).context("the flags of the server")?;
    // The API is at the root of the host.
    let mut url = settings.public_url()?;
    url.set_path("");
    let url = url.as_str().trim_end_matches('/');
    let (authority, trust) = local_authority(settings)?;
    write_stdout(&format!(
        "Organization  {} ({})\nOwner         {} ({})\nSigning keys  {}\nSealing keys  {}: a backup of the database cannot be decrypted without them; keep them apart from the backup\n{authority}\n\
         Next:\n  tidewaiter cloud serve {flags}\n  tidewaiter cloud login --server {url} {trust}{}\n",
        args.organization,
        made.organization,
        args.email,
        made.owner,
        settings.keys().display(),
        settings.sealing_keys().display(),
        args.email,
    ))
}

/// The line about the certificate, if there is something to say, and the flag with which a login trusts it.
fn local_authority(settings: &ServerSettings) -> Result<(String, String)> {
    if !settings.is_local() {
        let none = "Certificate   none: the publicUrl is that of a proxy; without one, set acme, or tlsCertificate and tlsKey\n";
        let line = if settings.has_other_certificate() { "" } else { none };
        return Ok((line.to_owned(), String::new()));
    }
    let file = settings.local_authority().authority();
    let file = file.display().to_string();
    let trust = shlex::try_join(["--ca-file", file.as_str()]).context("data")?;
    let line = format!(
        "Authority     {file}: made for this server's certificate; browsers warn of it until you import this file into the trusted authorities\n"
    );
    Ok((line, format!("{trust} ")))
}

/// Prints progress on one line of the terminal, overwritten by each update.
fn progress(word: &'static str) -> impl FnMut(u64) + Send {
    let shown = io::stderr().is_terminal();
    move |rows| {
        if shown {
            let _ = write!(io::stderr(), "{word} {rows} rows\r");
        }
    }
}

/// Writes a temporary file and renames it, so that a partial backup is never mistaken for a complete one.
async fn copy_out(args: &BackupArgs) -> Result<(), Failure> {
    let (_, database) = read_with_database(&args.place)?;
    if args.file.exists() {
        let error = anyhow!("already exists; choose another name or remove it first");
        let error = error.context(format!("the copy {}", args.file.display()));
        return Err(Failure::Configuration(error));
    }
    copied_out(args, &database).await.map_err(Failure::Running)
}

async fn copied_out(args: &BackupArgs, database: &Url) -> Result<()> {
    let failed = || format!("the copy {}", args.file.display());
    let part = args.file.with_added_extension("part");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part);
    let mut writer = BufWriter::new(file.with_context(failed)?);
    let copied = backup(database, &mut writer, &mut progress("copied")).await;
    let copied = match copied {
        Ok(copied) => copied,
        Err(error) => {
            let _ = fs::remove_file(&part);
            return Err(of_file(error, &args.file));
        }
    };
    let file = writer
        .into_inner()
        .map_err(io::IntoInnerError::into_error)
        .with_context(failed)?;
    file.sync_all().with_context(failed)?;
    fs::rename(&part, &args.file).with_context(failed)?;
    secret_file::sync_folder_of(&args.file).with_context(failed)?;
    write_stdout(&format!("copied {} rows to {}\n", copied.rows, args.file.display()))
}

/// The error of a copy, which names the file unless the database is to blame.
fn of_file(error: BackupError, file: &Path) -> anyhow::Error {
    let is_of_database = matches!(error, BackupError::Store(_));
    let error = anyhow::Error::from(error);
    if is_of_database {
        error
    } else {
        error.context(format!("the copy {}", file.display()))
    }
}

async fn copy_in(args: &RestoreArgs) -> Result<(), Failure> {
    let (settings, database) = read_with_database(&args.place)?;
    let file = File::open(&args.file).with_context(|| format!("the copy {}", args.file.display()));
    let mut reader = BufReader::new(file.map_err(Failure::Configuration)?);
    make_folder(&settings).map_err(Failure::Configuration)?;
    let copied = restore(&database, &mut reader, &mut progress("restored")).await;
    let copied = copied.map_err(|error| Failure::Running(of_file(error, &args.file)))?;
    let (keys, sealing) = (settings.keys(), settings.sealing_keys());
    let next = if keys.exists() && sealing.exists() {
        String::new()
    } else {
        let (keys, sealing) = (keys.display(), sealing.display());
        format!(
            "A backup contains no keys: put the keys that belong to it into {keys} and {sealing} before you start the server\n"
        )
    };
    write_stdout(&format!("restored {} rows\n{next}", copied.rows)).map_err(Failure::Running)
}

async fn recover_operator(args: &RecoverArgs) -> Result<(), Failure> {
    let (_, database) = read_with_database(&args.place)?;
    let prompt = format!("A new password for {}", args.email);
    let password = password::read(Variable::NewPassword, args.password_file.as_deref(), &prompt, true)
        .map_err(Failure::Configuration)?;
    let password = zeroize::Zeroizing::new(password);
    let password = Password::new(&password).context("the password");
    let person = RecoverOptions {
        email: args.email.as_str(),
        organization: args.organization.map(|id| id.0),
        password: password.map_err(Failure::Configuration)?,
    };
    let recovered = recover(&database, SystemClock::shared(), person).await;
    let recovered = recovered.map_err(|error| Failure::Running(error.into()))?;
    let new = if recovered.is_new { "a new user, " } else { "" };
    let owner = if recovered.is_owner {
        format!(", and the owner of the organization {}", recovered.organization)
    } else {
        String::new()
    };
    write_stdout(&format!(
        "{} ({new}{}) is an operator{owner}. The new password is set, and older logins of this user have ended.\n",
        args.email, recovered.user
    ))
    .map_err(Failure::Running)
}

fn keys(command: &KeysCommand) -> Result<(), Failure> {
    let (KeysCommand::Rotate(place) | KeysCommand::Retire(place) | KeysCommand::Reseal(place)) = command;
    let settings = read_alone(place)?;
    let keys = match command {
        KeysCommand::Reseal(_) => settings.sealing_keys(),
        _ => settings.keys(),
    };
    refuse_missing(&keys).map_err(Failure::Configuration)?;
    change_keys(command, &settings).map_err(Failure::Running)
}

fn change_keys(command: &KeysCommand, settings: &ServerSettings) -> Result<()> {
    let now = SystemClock::shared().now();
    match command {
        KeysCommand::Rotate(_) => {
            KeyRing::rotate(&settings.keys(), now)?;
            write_stdout(
                "added a signing key; servers load it within a minute and sign with it after an hour, when all clients know it \
                 (at once, if it is the only one)\n",
            )
        }
        KeysCommand::Retire(_) => {
            let retired = KeyRing::retire(&settings.keys(), now, LONGEST_TOKEN)?;
            write_stdout(&format!("removed {} signing keys\n", retired.len()))
        }
        KeysCommand::Reseal(_) => {
            Sealer::add_key(&settings.sealing_keys())?;
            write_stdout(
                "added a sealing key; each server encrypts everything again with it within two minutes and logs the completion\n",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_database() {
        for (set, files, connections) in [
            (20_000, Some(1_048_576), 20_000),
            (20_000, None, 20_000),
            (20_000, Some(1_024), 896),
            (100, Some(1_024), 100),
            (100, Some(64), 1),
        ] {
            assert_eq!(connections_within(set, files), connections, "{set} of {files:?}");
        }
    }
}
