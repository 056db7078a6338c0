//! `tidewaiter cloud operators`: manages the users who administer all organizations of the server.

use anyhow::{Result, anyhow};
use serde_json::Value;
use tidewaiter_cloud::client::{Method, Path, Request};
use tidewaiter_cloud::models::Kind;

use super::apply::confirm;
use super::output::{list, print};
use super::session::{Session, is_called, text};
use crate::cli::OperatorsCommand;

/// Lists, adds or removes operators.
pub(super) async fn main(command: &OperatorsCommand) -> Result<()> {
    let operators = Path::new(["operators"]);
    match command {
        OperatorsCommand::List { place, output } => {
            let session = Session::open(place)?;
            let found = session.list(operators).await?;
            list(
                &session,
                output,
                "Operator",
                &["email", "name", "added_at", "id"],
                &found,
            )
            .await
        }
        OperatorsCommand::Add(args) => {
            let session = Session::open(&args.place)?;
            let users = session.organization()?.below("users");
            let id = session.id(Kind::User, &users, &args.operator).await?;
            session.send(&Request::new(Method::PUT, operators.below(&id))).await?;
            print(&format!("{} is now an operator\n", args.operator))
        }
        OperatorsCommand::Remove { operator, confirmation } => {
            let session = Session::open(&operator.place)?;
            let name = &operator.operator;
            // In whichever organization the user is.
            let found = session.list(operators.clone()).await?;
            let is_meant =
                |user: &&Value| text(user, "id").eq_ignore_ascii_case(name) || is_called(Kind::User, user, name);
            let user = found.iter().find(is_meant);
            let id = user.map(|user| text(user, "id")).ok_or_else(|| {
                anyhow!("{name} is not an operator: tidewaiter cloud operators list shows all operators")
            })?;
            if !confirmation.yes {
                confirm(&format!("Remove the operator {name}?"))?;
            }
            session.send(&Request::new(Method::DELETE, operators.below(id))).await?;
            print(&format!("{name} is no longer an operator\n"))
        }
    }
}
