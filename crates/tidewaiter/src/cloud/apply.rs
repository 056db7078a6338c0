//! `tidewaiter cloud apply` and `diff`: shows the changes that files require, and makes them.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{Method, Request};
use tidewaiter_kit::settings::environment;

use super::api_document::check;
use super::cluster_reports::{self, Made};
use super::documents;
use super::output::print;
use super::plan::{Change, Plan, Step, substitute};
use super::planner::plan;
use super::preflight::preflight;
use super::session::{Session, request, text};
use crate::cli::{ApplyArgs, DiffArgs, DocumentArgs};

/// The exit code of `diff` if there are differences.
const DIFFERENT: u8 = 1;

/// Shows the plan and carries it out.
pub(super) async fn apply(args: &ApplyArgs) -> Result<()> {
    let (session, plan) = shown(&args.documents, args.prune).await?;
    if args.dry_run || (plan.steps.is_empty() && args.wait.is_none()) {
        return Ok(());
    }
    preflight(&session, &plan).await.context("nothing was changed")?;
    let deletions = plan.deletions();
    if deletions > 0 && !args.confirmation.yes {
        confirm(&format!("Delete {deletions}, as shown above?"))?;
    }
    let mut made = carry_out(&session, &plan).await?;
    let Some(limit) = args.wait else { return Ok(()) };
    if made.is_empty() && !plan.steps.is_empty() {
        bail!("the changes are made, but the server is older and does not number them: --wait cannot wait");
    }
    made.extend(plan.unchanged);
    cluster_reports::wait(&session, &made, limit).await
}

/// Shows the plan.
pub(super) async fn diff(args: &DiffArgs) -> Result<ExitCode> {
    let (_, plan) = shown(&args.documents, args.prune).await?;
    Ok(if plan.steps.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DIFFERENT)
    })
}

/// Shows what the documents would change; the plan, and where it is for.
async fn shown(args: &DocumentArgs, prune: bool) -> Result<(Session, Plan)> {
    let documents = documents::read(&args.filename, &environment(), check)?;
    let session = Session::open(&args.place)?;
    let plan = plan(&session, &documents, prune).await?;
    print(&plan.shown()?)?;
    Ok((session, plan))
}

/// Asks the user for confirmation; without a terminal, the answer is no.
pub(crate) fn confirm(question: &str) -> Result<()> {
    if !io::stdin().is_terminal() {
        bail!("there is no terminal to confirm on: add --yes");
    }
    let mut out = io::stderr();
    let asked = write!(out, "{} [y/N] ", printable(question)).and_then(|()| out.flush());
    asked.context("asking")?;
    let mut answer = String::new();
    let typed = io::stdin().read_line(&mut answer).context("the answer")?;
    if typed == 0 {
        // At the end of the input no key has ended the line.
        writeln!(out).context("asking")?;
    }
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was changed");
    }
    Ok(())
}

/// Makes the changes. Returns those that the server numbers.
async fn carry_out(session: &Session, plan: &Plan) -> Result<Vec<Made>> {
    let (mut ids, mut all) = (HashMap::new(), Vec::new());
    for (number, step) in plan.steps.iter().enumerate() {
        let title = format!("{} {}", step.kind.name(), printable(&step.title));
        let (done, made) = carry_out_one(session, step, &mut ids).await.with_context(|| {
            format!(
                "{title}: stopped after {number} of {} changes, which are kept; apply again to continue",
                plan.steps.len()
            )
        })?;
        print(&format!("{done} {title}\n"))?;
        all.extend(made);
    }
    Ok(all)
}

async fn carry_out_one(
    session: &Session,
    step: &Step,
    ids: &mut HashMap<String, String>,
) -> Result<(&'static str, Option<Made>)> {
    let list = step
        .list
        .clone()
        .map(|segment| ids.get(&segment).cloned().unwrap_or(segment));
    let numbered = |id: &str, change: Option<u64>| Some(Made::new(step.kind, &list, id, change?));
    match &step.change {
        Change::Create { stand_in, body } => {
            let mut body = body.clone();
            substitute(&mut body, ids);
            let (made, change) = session
                .send_numbered(&request(Method::POST, list.clone(), body, None))
                .await?;
            let id = text(&made, "id");
            ids.insert(stand_in.clone(), id.to_owned());
            Ok(("created", numbered(id, change)))
        }
        Change::Update { id, etag, patch, .. } => {
            let mut patch = patch.clone();
            substitute(&mut patch, ids);
            let request = request(Method::PATCH, list.clone().below(id), patch, etag.clone());
            let (_, change) = session.send_numbered(&request).await?;
            Ok(("changed", numbered(id, change)))
        }
        Change::Delete { id, etag } => {
            let mut request = Request::new(Method::DELETE, list.clone().below(id));
            request.if_match.clone_from(etag);
            let (_, change) = session.send_numbered(&request).await?;
            Ok(("deleted", numbered(id, change)))
        }
    }
}
