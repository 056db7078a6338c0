//! The checks of a plan before its first change: the role of the caller, and the versions of plugins. The cloud refuses
//! on the way what they do not find.

use anyhow::{Result, bail};
use serde_json::Value;
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::Path;
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::server::principal::OrgRole;

use super::catalogue::version_path;
use super::plan::{Change, Plan, Step};
use super::session::{Session, if_found, text};

/// Checks the plan. All that the cloud would refuse is in one error.
pub(super) async fn preflight(session: &Session, plan: &Plan) -> Result<()> {
    let role = role(session).await?;
    let mut refused = Vec::new();
    for step in &plan.steps {
        let title = format!("{} {}", step.kind.name(), printable(&step.title));
        let required = step.kind.facts().writers;
        // Users may change what is their own, whatever their role.
        if let Some(role) = role.filter(|role| *role < required && step.kind.parent() != Some(Kind::User)) {
            refused.push(format!(
                "{title} requires the role {required}, and yours is {role}: ask an owner"
            ));
        } else if let Some(reason) = missing_version(session, step).await? {
            refused.push(format!("{title}: {reason}"));
        }
    }
    if !refused.is_empty() {
        bail!("{}", refused.join("; "));
    }
    Ok(())
}

/// The role of the caller in the organization, if the cloud says it.
async fn role(session: &Session) -> Result<Option<OrgRole>> {
    let organization = session.organization_id()?;
    let (claims, _) = session.get(Path::new(["authenticate"])).await?;
    let mut all = claims["organizations"].as_array().into_iter().flatten();
    let own = all.find(|membership| text(membership, "id") == organization);
    Ok(own.and_then(|membership| OrgRole::of(text(membership, "role"))))
}

/// The reason why no plugin can get the version that the step sets; `None` if it sets none, or one that can be used.
async fn missing_version(session: &Session, step: &Step) -> Result<Option<String>> {
    let plugin = match &step.change {
        _ if step.kind != Kind::Plugin => return Ok(None),
        Change::Create { body, .. } => body.clone(),
        Change::Update { id, patch, .. } if patch.get("version").is_some() => {
            let (mut plugin, _) = session.get(step.list.clone().below(id)).await?;
            json_patch::merge(&mut plugin, patch);
            plugin
        }
        Change::Update { .. } | Change::Delete { .. } => return Ok(None),
    };
    let [plugin_type, implementation, version] =
        ["type", "implementation", "version"].map(|field| text(&plugin, field));
    let found = if_found(session.get(version_path(plugin_type, implementation, version)).await)?;
    let reason = match found {
        None => "not in the catalogue",
        Some((found, _)) if found.get("disabled") == Some(&Value::Bool(true)) => "disabled in the catalogue",
        Some(_) => return Ok(None),
    };
    Ok(Some(format!(
        "the version {version} is {reason}: tidewaiter cloud catalogue list shows those that can be used, and an operator \
         adds more (tidewaiter cloud catalogue add)"
    )))
}
