//! Logs and traces of the process: text on a terminal, JSON otherwise, and spans to a collector if one is configured.
//!
//! Logs go to standard error, from a thread of their own: when nobody reads them, the oldest lines wait in a bounded
//! queue, later ones are dropped and counted, and nothing else waits. No secret may reach a log: log single fields,
//! never a whole request or configuration.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc;
use std::time::Duration;
use std::{panic, thread};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tracing::{Subscriber, error, warn};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{EnvFilter, LevelFilter, ParseError};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, fmt};

use crate::metrics::{Metrics, MetricsError};

/// The variables that configure a collector, from OpenTelemetry's specification.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// Libraries that log failures which we log too. kube's watcher logs some of those of lists and watches. The verifier
/// of certificates logs each connection that it refuses, without the host. That of security keys logs what the browser
/// sent.
const LOGGED_TWICE: [(&str, &str); 3] = [
    ("kube_runtime", "error"),
    ("rustls_platform_verifier", "off"),
    ("webauthn_rs", "off"),
];

/// The number of lines that may wait for the reader of standard error: a megabyte, at the usual length.
const MAX_QUEUED_LINES: usize = 4096;

/// The time limit of the last line.
const LAST_LINE_TIMEOUT: Duration = Duration::from_secs(1);

/// The events that are logged, and their format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    default,
    deny_unknown_fields,
    expecting = "a mapping with filter and format"
)]
pub struct LogSettings {
    /// The events, as `target=level,…`: `info`, `warn,tidewaiter_controller=debug`.
    #[serde(deserialize_with = "filter_text")]
    pub filter: String,
    /// The format; when not set, text on a terminal and JSON otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<LogFormat>,
}

/// The format of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One line of JSON.
    Json,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            format: None,
        }
    }
}

/// An error in setting up logs or traces.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is malformed.
    #[error(
        "log.filter is {filter:?}, which is not of the form target=level,… (levels: error, warn, info, debug, trace)"
    )]
    Filter {
        /// The given text.
        filter: String,
        /// The error of the parser.
        #[source]
        source: ParseError,
    },
    /// The collector in the environment cannot be used.
    #[error("traces cannot be sent: see OTEL_EXPORTER_OTLP_ENDPOINT")]
    Exporter(#[source] ExporterBuildError),
    /// Logs are set up already.
    #[error("logs are set up twice")]
    Twice(#[source] TryInitError),
}

/// Logs and traces of this process, until it ends.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    lines: NonBlocking,
    writer: WorkerGuard,
}

/// Starts logging, and tracing if `environment` configures a collector. `service` is the service name of the traces.
///
/// # Errors
/// When the filter or the collector's address is malformed, or logs are set up already.
pub fn start(
    service: &'static str,
    settings: &LogSettings,
    environment: &[(String, String)],
) -> Result<Telemetry, TelemetryError> {
    let filter = filter(&settings.filter)?;
    let collector = environment
        .iter()
        .any(|(name, value)| ENDPOINTS.contains(&name.as_str()) && !value.is_empty());
    let traces = if collector { Some(traces(service)?) } else { None };
    let spans = traces
        .as_ref()
        .map(|traces| tracing_opentelemetry::layer().with_tracer(traces.tracer(service)));
    let (lines, writer) = not_waiting(io::stderr());
    let subscriber = tracing_subscriber::registry()
        .with(filter)
        .with(layer(settings.format, lines.clone()))
        .with(spans);
    subscriber.try_init().map_err(TelemetryError::Twice)?;
    // The default one writes to standard error itself, and would wait for its reader.
    panic::set_hook(Box::new(|panic| error!("{panic}")));
    Ok(Telemetry { traces, lines, writer })
}

impl Telemetry {
    /// Adds the number of dropped lines to `metrics`.
    ///
    /// # Errors
    /// When the metric's name is taken.
    pub fn count_in(&self, metrics: &Metrics) -> Result<(), MetricsError> {
        let dropped = self.lines.error_counter();
        metrics.counter_of(
            "tidewaiter_log_lines_dropped_total",
            "Lines of the log that were dropped because nobody read standard error.",
            move || u64::try_from(dropped.dropped_lines()).unwrap_or(u64::MAX),
        )
    }

    /// Sends the remaining traces, and writes the remaining lines. Blocks until they are sent or the exporter's own
    /// time-out has passed, and for about a second at most for the lines.
    pub fn stop(self) {
        if let Some(Err(error)) = self.traces.map(|traces| traces.shutdown()) {
            warn!(%error, "the last traces were not sent");
        }
        drop(self.writer);
    }
}

/// Writes a line to standard error, as the last thing that the process does. Gives up after a second if nobody reads
/// it.
pub fn last_line(line: &str) {
    let line = format!("{line}\n");
    let (sender, written) = mpsc::channel();
    let write = move || {
        // When standard error is closed, the line cannot be delivered.
        let _ = io::stderr().write_all(line.as_bytes());
        drop(sender);
    };
    if thread::Builder::new().spawn(write).is_ok() {
        // It ends when the sender is dropped.
        let _: Result<(), _> = written.recv_timeout(LAST_LINE_TIMEOUT);
    }
}

/// Writes lines to `out` in a thread of its own. The guard writes what remains when it is dropped.
fn not_waiting(out: impl io::Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let builder = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_QUEUED_LINES);
    builder.thread_name("log").finish(out)
}

/// Reads a filter, with an error that says how one is written. A setting is checked when it is read, so that the error
/// names its source.
fn filter_text<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let text = String::deserialize(value).ok();
    text.filter(|text| filter(text).is_ok()).ok_or_else(|| {
        D::Error::custom(
            "must be of the form level or target=level,… (levels: error, warn, info, debug, trace), for example \
             info,tidewaiter_kit=debug",
        )
    })
}

/// The filter that `text` describes. It leaves out what would be logged twice, unless `text` asks for it by name.
fn filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    let wrong = |source| TelemetryError::Filter {
        filter: text.to_owned(),
        source,
    };
    // The library takes any other word for a target, and would log nothing else.
    for word in text.split(',').filter(|word| !word.contains(['=', '[', ']'])) {
        word.parse::<LevelFilter>().map_err(|error| wrong(error.into()))?;
    }
    // kube logs the whole body of a response that it cannot parse, which may hold anything.
    let bodies = "kube_client::client=error".parse().map_err(wrong)?;
    let filter = EnvFilter::builder().parse(text).map_err(wrong)?.add_directive(bodies);
    let unasked = LOGGED_TWICE.iter().filter(|(target, _)| !text.contains(target));
    unasked
        .map(|(target, level)| format!("{target}={level}"))
        .try_fold(filter, |filter, directive| {
            Ok(filter.add_directive(directive.parse().map_err(wrong)?))
        })
}

fn traces(service: &'static str) -> Result<SdkTracerProvider, TelemetryError> {
    // Its address, headers and timeout come from the OTEL_EXPORTER_OTLP_… variables.
    let exporter = SpanExporter::builder()
        .with_http()
        .build()
        .map_err(TelemetryError::Exporter)?;
    let resource = Resource::builder().with_service_name(service).build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build())
}

fn layer<S>(format: Option<LogFormat>, lines: NonBlocking) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let terminal = io::stderr().is_terminal();
    match format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json }) {
        LogFormat::Text => fmt::layer().with_writer(lines).with_ansi(terminal).boxed(),
        LogFormat::Json => fmt::layer().with_writer(lines).json().flatten_event(true).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Lines;

    /// The lines that a failed list, and a response that kube cannot parse, log with this filter.
    fn logged(text: &str) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(filter(text).unwrap()).with(layer);
        tracing::subscriber::with_default(subscriber, || {
            warn!(target: "kube_runtime::watcher", "watch list error with 403");
            warn!(target: "tidewaiter_kit::cache::watch", "the watch failed");
            error!(target: "rustls_platform_verifier::verification", "failed to verify TLS certificate");
            warn!(target: "kube_client::client", "{{\"password\": \"hunter2\"}}, expected a list");
        });
        lines.text()
    }

    #[test]
    fn a_failed_list_is_logged_once_unless_the_library_is_asked_for() {
        for filter in ["info", "debug", "warn,tidewaiter_kit=debug"] {
            let logged = logged(filter);
            assert_eq!(logged.lines().count(), 1, "{filter}: {logged}");
            assert!(logged.contains("the watch failed"), "{filter}: {logged}");
        }
        let both = logged("info,kube_runtime=debug");
        assert_eq!(both.lines().count(), 2, "{both}");
    }

    #[test]
    fn no_filter_logs_the_body_of_a_response() {
        for filter in ["info", "trace", "kube_client=trace", "kube_client::client=trace"] {
            let logged = logged(filter);
            assert!(!logged.contains("hunter2"), "{filter}: {logged}");
        }
    }

    /// Writes nothing until its sender is dropped.
    struct Stuck {
        released: mpsc::Receiver<()>,
        written: Lines,
    }

    impl io::Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _: Result<(), _> = self.released.recv();
            self.written.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn when_nobody_reads_the_log_lines_are_dropped_and_nobody_waits() {
        let (release, released) = mpsc::channel();
        let written = Lines::default();
        let (lines, writer) = not_waiting(Stuck {
            released,
            written: written.clone(),
        });
        let telemetry = Telemetry {
            traces: None,
            lines: lines.clone(),
            writer,
        };
        let (kit, _) = crate::testing::kit();
        telemetry.count_in(&kit.metrics).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer(Some(LogFormat::Json), lines));
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..MAX_QUEUED_LINES + 100 {
                warn!(number, "nobody reads this");
            }
        });
        let text = kit.metrics.encode().unwrap();
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("tidewaiter_log_lines_dropped_total "));
        // One may be with the writer already.
        assert!(matches!(count, Some("99" | "100")), "{text}");
        assert_eq!(written.text(), "");

        drop(release);
        telemetry.stop();
        let lines = written.text();
        assert!(lines.lines().count() >= MAX_QUEUED_LINES, "{}", lines.lines().count());
        assert!(lines.starts_with('{') && lines.contains("\"number\":0,"), "{lines}");
    }

    #[test]
    fn a_filter_is_checked() {
        for good in [
            "info",
            "off",
            "DEBUG",
            "warn,tidewaiter_kit=debug",
            "tidewaiter_kit[{node=a}]=trace",
        ] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["verbose", "info,verbose", "tidewaiter_kit"] {
            let error = filter(bad).unwrap_err().to_string();
            assert!(error.contains("levels: error, warn, info, debug, trace"), "{error}");
        }
        let error = filter("tidewaiter_kit=loud").unwrap_err();
        assert!(
            error.to_string().starts_with("log.filter is \"tidewaiter_kit=loud\""),
            "{error}"
        );
    }

    #[test]
    fn a_filter_in_the_settings_is_checked_when_it_is_read() {
        use crate::settings::{SettingsError, load};

        let load = |filter: &str| load::<LogSettings>(None, [], &serde_json::json!({"filter": filter}));
        assert_eq!(
            load("warn,tidewaiter_kit=debug").unwrap().values.filter,
            "warn,tidewaiter_kit=debug"
        );
        let error: SettingsError = load("tidewaiter_kit=loud").unwrap_err();
        assert!(
            error.to_string().starts_with(
                "the flags: filter is \"tidewaiter_kit=loud\": must be of the form level or target=level,"
            ),
            "{error}"
        );
    }
}
