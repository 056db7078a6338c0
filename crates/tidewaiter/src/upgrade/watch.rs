//! `tidewaiter upgrade watch`: follows an upgrade until it is over.
//!
//! The API server may be away in between: its own node is upgraded, too. After the first look, an error is shown and
//! the next look follows.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use console::Term;
use kube::{Api, Client};
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::values::printable;
use tidewaiter_kit::settings::environment;
use tidewaiter_kit::{Chain, Clock};

use super::look::{NotFound, SeenUpgrade, look_at_upgrade};
use super::news::{ending, is_over, news};
use super::{reader, summary};
use crate::cli::UpgradeWatchArgs;
use crate::cloud::print;
use crate::live::View;
use crate::validate::signals::{Interrupts as _, Signals};

/// The interval at which the upgrade is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One in this number of polls reads everything, even if the upgrade has not changed: Nodes change, too.
const POLLS_TO_A_REFRESH: u64 = 10;

/// The number of polls after which an upgrade that is over need not name its ending: its coordinator was killed in
/// between.
const MAX_FINAL_POLLS: usize = 10;

/// The exit code for an upgrade that has failed.
const FAILED: u8 = 3;

/// The nodes that a terminal shows.
const MAX_SHOWN: usize = 15;

/// Follows the upgrade, and returns the exit code of its end.
pub(super) async fn watch(args: &UpgradeWatchArgs) -> Result<ExitCode> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let (client, clock) = tokio::select! {
        biased;
        interrupt = signals.next() => return Ok(ExitCode::from(interrupt.code())),
        reached = reader(&args.place.cluster) => reached?,
    };
    let variables = environment();
    let term = variables
        .iter()
        .find(|(name, _)| name == "TERM")
        .map(|(_, value)| value.as_str());
    let mut screen = Screen {
        view: View::on(Term::buffered_stdout(), term),
        last: None,
        trouble: None,
    };
    let followed = tokio::select! {
        biased;
        interrupt = signals.next() => Ok(ExitCode::from(interrupt.code())),
        ended = follow(&client, &args.name, &*clock, &mut screen) => ended,
    };
    screen.clear();
    let code = followed?;
    screen.conclude(&*clock)?;
    Ok(code)
}

/// Looks until the upgrade is over and says how it ended.
async fn follow(client: &Client, name: &str, clock: &dyn Clock, screen: &mut Screen) -> Result<ExitCode> {
    let mut looks_left = MAX_FINAL_POLLS;
    let mut round = 0;
    loop {
        match look(
            client,
            name,
            screen.last.as_ref().filter(|_| round % POLLS_TO_A_REFRESH != 0),
        )
        .await
        {
            Ok(None) => {}
            Ok(Some(seen)) => screen.show(&seen, clock)?,
            Err(error) if screen.last.is_none() => return Err(error),
            Err(error) if error.is::<NotFound>() => bail!("the upgrade {name} was deleted"),
            Err(error) => screen.complain(&error, clock)?,
        }
        if let Some(object) = screen.last.as_ref().filter(|object| is_over(object)) {
            looks_left -= 1;
            let ended = ending(object);
            if ended.is_some() || looks_left == 0 {
                let succeeded = ended.is_some_and(|(succeeded, _)| succeeded);
                return Ok(if succeeded {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::from(FAILED)
                });
            }
        }
        round += 1;
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// Reads everything if the upgrade has changed since `known`, and the upgrade alone to find out.
async fn look(client: &Client, name: &str, known: Option<&ClusterUpgrade>) -> Result<Option<SeenUpgrade>> {
    if let Some(known) = known {
        let api = Api::<ClusterUpgrade>::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE);
        let now = api.get_opt(name).await.context("cannot list the ClusterUpgrade")?;
        if now.is_some_and(|now| now.metadata.resource_version == known.metadata.resource_version) {
            return Ok(None);
        }
    }
    look_at_upgrade(client, name).await.map(Some)
}

/// The output: a view on a terminal, otherwise lines.
struct Screen {
    view: Option<View>,
    /// The upgrade at the last look.
    last: Option<ClusterUpgrade>,
    /// The error of the last look, if it failed.
    trouble: Option<String>,
}

impl Screen {
    fn show(&mut self, seen: &SeenUpgrade, clock: &dyn Clock) -> Result<()> {
        if let Some(view) = &mut self.view {
            view.draw(drawn(seen, clock));
        } else {
            for line in news(self.last.as_ref(), &seen.object) {
                print_line(&line, clock)?;
            }
        }
        self.trouble = None;
        self.last = Some(seen.object.clone());
        Ok(())
    }

    /// Shows why nothing new is known, once.
    fn complain(&mut self, error: &anyhow::Error, clock: &dyn Clock) -> Result<()> {
        let line = format!("{}; trying again", Chain(error.as_ref()));
        if self.trouble.as_ref() != Some(&line) {
            match &mut self.view {
                Some(view) => view.draw(vec![printable(&line)]),
                None => print_line(&line, clock)?,
            }
        }
        self.trouble = Some(line);
        Ok(())
    }

    fn clear(&mut self) {
        if let Some(view) = &mut self.view {
            view.clear();
        }
    }

    /// The last line, which stays: how it ended.
    fn conclude(&self, clock: &dyn Clock) -> Result<()> {
        let Some(object) = self.last.as_ref().filter(|object| is_over(object)) else {
            return Ok(());
        };
        match ending(object) {
            Some((true, words)) => print_line(&format!("the upgrade has succeeded: {words}"), clock),
            Some((false, words)) => print_line(&format!("the upgrade has failed: {words}"), clock),
            None => print_line("the upgrade is over, and the coordinator has not said why", clock),
        }
    }
}

fn print_line(line: &str, clock: &dyn Clock) -> Result<()> {
    print(&format!("{:.0} {}\n", clock.now(), printable(line)))
}

/// The summary, then the nodes that are not done.
fn drawn(seen: &SeenUpgrade, clock: &dyn Clock) -> Vec<String> {
    let outlook = seen.outlook(clock.now());
    let mut lines: Vec<String> = summary(seen, &outlook).iter().map(|line| printable(line)).collect();
    let left: Vec<_> = outlook.nodes.iter().filter(|node| !node.done).collect();
    let widest = left
        .iter()
        .take(MAX_SHOWN)
        .map(|node| node.name.len())
        .max()
        .unwrap_or_default();
    lines.extend(left.iter().take(MAX_SHOWN).map(|node| {
        let version = node.version.as_ref().map(ToString::to_string).unwrap_or_default();
        let name = &node.name;
        printable(&format!("  {name:widest$}  {version:10}  {}", node.action))
    }));
    if left.len() > MAX_SHOWN {
        lines.push(format!("  and {} more", left.len() - MAX_SHOWN));
    }
    lines
}
