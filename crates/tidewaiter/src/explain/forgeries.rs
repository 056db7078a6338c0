//! `tidewaiter explain forgeries`: lists the Nodes refused as forged, and what quarantine would change on each.

use tidewaiter_controller::explain::ForgeriesExplained;

use super::node::quarantine;
use super::output::{Table, print};
use super::sources::explainer;
use crate::Failure;
use crate::cli::ExplainForgeriesArgs;

/// Prints the answer.
pub(super) async fn explain(args: &ExplainForgeriesArgs) -> Result<(), Failure> {
    let reader = Box::pin(explainer(&args.sources, false)).await;
    let reader = reader.map_err(Failure::Configuration)?;
    let explained = Box::pin(reader.forgeries()).await;
    let explained = explained.map_err(|error| Failure::Running(error.into()))?;
    print(&args.sources.output, &explained, || tables(&explained)).map_err(Failure::Running)
}

fn tables(found: &ForgeriesExplained) -> Vec<Table> {
    let mut about = Table::new(
        "",
        &[
            "NODES",
            "FORGED",
            "LIMIT OF QUARANTINE",
            "UNCLASSIFIED",
            "ALL LABEL KEYS KNOWN",
        ],
    );
    let counts = [found.nodes, found.forged, found.limit, found.unjudged].map(|count| count.to_string());
    let [nodes, forged, limit, unjudged] = &counts;
    about.row([
        nodes,
        forged,
        limit,
        unjudged,
        if found.keys_known { "yes" } else { "no" },
    ]);
    let mut forgeries = Table::new(
        "FORGED NODES",
        &["NODE", "REFUSED FOR", "NOW", "WITH onForgery: quarantine"],
    );
    for forgery in &found.forgeries {
        let now = if forgery.quarantined {
            "quarantined"
        } else {
            "not quarantined"
        };
        forgeries.row([&forgery.node, &forgery.reason, now, &quarantine(&forgery.treatment)]);
    }
    let mut tables = vec![about];
    tables.extend((!forgeries.is_empty()).then_some(forgeries));
    tables
}
