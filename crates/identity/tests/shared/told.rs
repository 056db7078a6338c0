//! The errors of a cloud, and their messages.

use tidewaiter_testkit::Scripted;

/// An answer, how its call is counted, and what is told of it in brackets.
pub(crate) type Row = (Scripted, &'static str, String);

/// The rows of one cloud, and those in which somebody else speaks: a gateway, a proxy, a captive portal.
pub(crate) fn rows<const N: usize>(cloud: &str, own: [(Scripted, &'static str, &str); N]) -> Vec<Row> {
    let own = own
        .into_iter()
        .map(|(answer, outcome, detail)| (answer, outcome, detail.to_owned()));
    let strange = [
        (Scripted::raw(502, "<html>Bad Gateway"), "failed", 502),
        (Scripted::raw(403, "<html>Forbidden"), "unusable", 403),
        (Scripted::raw(404, "<html>Not here"), "unusable", 404),
        (Scripted::Html, "unusable", 200),
        (Scripted::Garbage, "unusable", 200),
        (Scripted::raw(200, ""), "unusable", 200),
        (Scripted::raw(200, "[]"), "unusable", 200),
    ];
    let strange = strange
        .into_iter()
        .map(|(answer, outcome, status)| (answer, outcome, format!("status {status}, not a response of {cloud}")));
    own.chain(strange).collect()
}

/// Returns the message after the name of the call.
pub(crate) fn told(outcome: &str, detail: &str) -> String {
    let what = match outcome {
        "throttled" => return " is throttled".to_owned(),
        "denied" => "permission denied",
        "no_credentials" => "no valid credentials",
        "failed" => "the cloud failed",
        "unusable" => "unusable response",
        "unreachable" => "not reachable",
        other => panic!("no such outcome: {other}"),
    };
    format!(": {what} ({detail})")
}
