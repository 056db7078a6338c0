//! The queries of `deploy/monitoring` about the server, on a real Prometheus that scrapes a real one.

use std::path::Path;

use serde_json::Value;
use tidewaiter_testkit::Prometheus;
use tidewaiter_testkit::prometheus::{panels, series_of};

use crate::world::{Land, On, Place, SOON, content};

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring");
    content(&folder.join(name))
}

/// The series of the server that alerts read.
fn alerting() -> Vec<String> {
    let rules: Value = serde_saphyr::from_str(&file("prometheusrule.yaml")).unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap().iter();
    let ours = groups.filter(|group| group["name"] == "tidewaiter-cloud-server");
    let rules = ours.flat_map(|group| group["rules"].as_array().unwrap());
    let series = rules.flat_map(|rule| series_of(rule["expr"].as_str().unwrap()));
    // No row is dropped here.
    series.filter(|series| !series.contains("_dropped_")).collect()
}

#[tokio::test]
async fn every_panel_and_every_alert_of_the_cloud_has_something_to_go_by() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let tls = rcgen::generate_simple_self_signed(["cloud.example.org".to_owned()]).unwrap();
    let certificate = place.secret_file("tls.crt", &tls.cert.pem());
    let key = place.secret_file("tls.key", &tls.signing_key.serialize_pem());
    let server = place.serve().await;
    // Requests, for the panels about them.
    Land::make(&server).await;
    let admin = server.admin.strip_prefix("http://").unwrap().to_owned();
    let prometheus = Prometheus::start(&[("cloud", &admin)], None).await;
    let dashboard: Value = serde_json::from_str(&file("grafana-dashboard.json")).unwrap();
    let of_certificate = |query: &&String| query.contains("certificate");
    let queries = [panels(&dashboard, Some("Cloud server")), alerting()].concat();
    assert!(queries.len() >= 5, "{queries:?}");
    for query in queries.iter().filter(|query| !of_certificate(query)) {
        prometheus.finds(query, |samples| !samples.is_empty()).await;
    }
    server.process.stop(SOON).await;
    let _server = place.start_as(|program| {
        program
            .arg("--tls-certificate")
            .arg(certificate)
            .arg("--tls-key")
            .arg(key)
    });
    for query in queries.iter().filter(of_certificate) {
        prometheus.finds(query, |samples| !samples.is_empty()).await;
    }
}
