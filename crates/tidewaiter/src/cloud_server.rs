//! `tidewaiter cloud init`, `serve`, `backup`, `restore` and `keys`: what is done where the cloud's server runs.

mod settings;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tidewaiter_cloud::server::hash::Password;
use tidewaiter_cloud::server::sealing::Sealer;
use tidewaiter_cloud::server::signing::KeyRing;
use tidewaiter_cloud::server::store::{backup, restore};
use tidewaiter_cloud::server::{DRAIN, Founder, LONGEST_TOKEN, found, make_keys, start};
use tidewaiter_kit::settings::{environment, load, to_yaml};
use tidewaiter_kit::{Checks, Kit, Metrics, SystemClock, Tasks, telemetry};
use tracing::warn;

use crate::cli::{BackupArgs, InitArgs, KeysCommand, RestoreArgs, ServeArgs, ServerCommand, ServerPlace};
use crate::{Failure, password};
use settings::ServerSettings;

/// Runs one of the commands.
pub(crate) fn main(command: &ServerCommand) -> Result<(), Failure> {
    match command {
        ServerCommand::Serve(args) => serve(args),
        ServerCommand::Init(args) => run(init(args)),
        ServerCommand::Backup(args) => run(copy_out(args)),
        ServerCommand::Restore(args) => run(copy_in(args)),
        ServerCommand::Keys(command) => keys(command).map_err(Failure::Running),
    }
}

fn run(command: impl Future<Output = Result<()>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::Running(error.into()))?;
    runtime.block_on(command).map_err(Failure::Running)
}

/// What is in force, and what the operator should know about it.
fn read(place: &ServerPlace, flags: &impl Serialize) -> Result<(ServerSettings, Vec<String>)> {
    // Those of the commands that are clients are no settings of a server.
    let variables = environment()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("TIDEWAITER_CLOUD_"));
    let settings = load::<ServerSettings>(place.settings.as_deref(), variables, flags)?;
    settings.values.check()?;
    Ok((settings.values, settings.warnings))
}

fn say(text: &str) -> Result<()> {
    io::stdout()
        .write_all(text.as_bytes())
        .context("writing to standard output")
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
        let yaml = to_yaml(&settings).map_err(|error| Failure::Running(error.into()))?;
        return say(&yaml).map_err(Failure::Running);
    }
    let telemetry = telemetry::start("tidewaiter-cloud", &settings.log, &environment())
        .map_err(|error| Failure::Configuration(error.into()))?;
    for warning in warnings {
        warn!("{warning}");
    }
    raise_limit();
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Failure::Running(error.into()))?;
    let result = runtime.block_on(served(&settings));
    // Whatever is still blocked has had its grace.
    runtime.shutdown_background();
    telemetry.stop();
    result
}

/// Each client that listens holds a connection, so as many are open as the system allows.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    if let Err(error) = raised {
        warn!(%error, "the limit of open files stays as it is");
    }
}

async fn served(settings: &ServerSettings) -> Result<(), Failure> {
    let clock = SystemClock::shared();
    let metrics = Metrics::new(&clock).map_err(|error| Failure::Running(error.into()))?;
    let kit = Kit {
        clock,
        metrics,
        checks: Checks::new(),
    };
    let mut tasks = Tasks::new().with_grace(DRAIN);
    let parts = settings.parts().map_err(Failure::Configuration)?;
    if !parts.keys.exists() {
        let error = anyhow!(
            "there are no keys in {}: run tidewaiter cloud init first",
            parts.keys.display()
        );
        return Err(Failure::Configuration(error));
    }
    start(parts, &mut tasks, &kit)
        .await
        .map_err(|error| Failure::Configuration(error.into()))?;
    tasks.run().await.map_err(|error| Failure::Running(error.into()))
}

async fn init(args: &InitArgs) -> Result<()> {
    let (settings, _) = read(&args.place, &args.place.flags)?;
    let prompt = format!("A password for {}", args.email);
    let password = zeroize::Zeroizing::new(password::read(args.password_file.as_deref(), &prompt, true)?);
    let password = Password::new(&password).context("the password")?;
    let clock = SystemClock::shared();
    let folder = fs::DirBuilder::new().recursive(true).mode(0o700).create(&settings.data);
    folder.with_context(|| format!("data is {}: the folder cannot be made", settings.data.display()))?;
    make_keys(&settings.keys(), &settings.sealing_keys(), &clock)?;
    let founder = Founder {
        organization: &args.organization,
        name: args.name.as_deref().unwrap_or(&args.email),
        email: &args.email,
        password,
    };
    let made = found(&settings.database()?, clock, founder)
        .await
        .map_err(anyhow::Error::from)?;
    let data = settings.data.display();
    let url = settings.public_url()?.to_string();
    let url = url.trim_end_matches('/');
    say(&format!(
        "Organization  {} ({})\nOwner         {} ({})\nSigning keys  {}\nSealing keys  {}: without them no copy of the database has any credentials; keep them apart from it\n\n\
         Next:\n  tidewaiter cloud serve --data {data}\n  tidewaiter cloud login --server {url} {}\n",
        args.organization,
        made.organization,
        args.email,
        made.owner,
        settings.keys().display(),
        settings.sealing_keys().display(),
        args.email,
    ))
}

/// A progress line on a terminal, over which the next line is written.
fn progress(word: &'static str) -> impl FnMut(u64) + Send {
    let shown = io::stderr().is_terminal();
    move |rows| {
        if shown {
            let _ = write!(io::stderr(), "{word} {rows} rows\r");
        }
    }
}

/// Written beside its name and then given it, so that no half copy is taken for a whole one.
async fn copy_out(args: &BackupArgs) -> Result<()> {
    let (settings, _) = read(&args.place, &args.place.flags)?;
    let failed = || format!("the copy {}", args.file.display());
    if args.file.exists() {
        return Err(anyhow!("is there already; choose another name, or remove it first").context(failed()));
    }
    let part = args.file.with_added_extension("part");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part);
    let mut writer = BufWriter::new(file.with_context(failed)?);
    let copied = backup(&settings.database()?, &mut writer, &mut progress("copied")).await;
    let copied = match copied {
        Ok(copied) => copied,
        Err(error) => {
            let _ = fs::remove_file(&part);
            return Err(error).with_context(failed);
        }
    };
    let file = writer
        .into_inner()
        .map_err(io::IntoInnerError::into_error)
        .with_context(failed)?;
    file.sync_all().with_context(failed)?;
    fs::rename(&part, &args.file).with_context(failed)?;
    sync_folder(&args.file).with_context(failed)?;
    say(&format!("copied {} rows to {}\n", copied.rows, args.file.display()))
}

fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

async fn copy_in(args: &RestoreArgs) -> Result<()> {
    let (settings, _) = read(&args.place, &args.place.flags)?;
    let failed = || format!("the copy {}", args.file.display());
    let mut reader = BufReader::new(File::open(&args.file).with_context(failed)?);
    let (database, mut told) = (settings.database()?, progress("restored"));
    let copied = restore(&database, &mut reader, &mut told).await.with_context(failed)?;
    say(&format!("restored {} rows\n", copied.rows))
}

fn keys(command: &KeysCommand) -> Result<()> {
    let (KeysCommand::Rotate(place) | KeysCommand::Retire(place) | KeysCommand::Reseal(place)) = command;
    let (settings, _) = read(place, &place.flags)?;
    let now = SystemClock::shared().now();
    match command {
        KeysCommand::Rotate(_) => {
            KeyRing::rotate(&settings.keys(), now)?;
            say(
                "added a signing key; servers read it within a minute and sign with it in an hour, when everybody knows it\n",
            )
        }
        KeysCommand::Retire(_) => {
            let retired = KeyRing::retire(&settings.keys(), now, LONGEST_TOKEN)?;
            say(&format!("removed {} signing keys\n", retired.len()))
        }
        KeysCommand::Reseal(_) => {
            Sealer::add_key(&settings.sealing_keys())?;
            say("added a sealing key; servers seal everything with it within two minutes\n")
        }
    }
}
