//! An error with its causes in one line, without repetition, and readable for a person.

use std::error::Error;
use std::{fmt, io, iter};

use kube::core::Status;
use kube::runtime::watcher;

/// An error and its causes in one line, without repetition.
///
/// For logs: `error = %Chain(&error)`. Replaces kube's Debug dump of a Status by the server's message.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::new();
        let mut next = Some(self.0);
        while let Some(error) = next {
            let (text, cause) = text_and_cause(error);
            // Some libraries repeat the cause in their own text.
            if !line.contains(&text) {
                if !line.is_empty() {
                    line.push_str(": ");
                }
                line.push_str(&text);
            }
            next = cause;
        }
        f.write_str(&line)
    }
}

/// The error and its causes, also those that the standard library hides inside an [`io::Error`].
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| {
        match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}

/// The reason why the certificate of a server cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// By the clock of this machine it has expired, or is not valid yet.
    Time,
    /// It is the certificate of an authority (CA:TRUE), with which no server may prove who it is.
    Authority,
    /// Another authority issued it, or it is for another name.
    Issuer,
}

/// The reason why the certificate of a server cannot be verified; `None` if the error is another one.
#[must_use]
pub fn untrusted(error: &(dyn Error + 'static)) -> Option<Untrusted> {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext, Other};

    let mut errors = causes(error).filter_map(|error| error.downcast_ref());
    errors.find_map(|error| match error {
        rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        ) => Some(Untrusted::Time),
        // rustls has no variant for it, and names the error of its verifier.
        rustls::Error::InvalidCertificate(Other(other)) if other.to_string().contains("CaUsedAsEndEntity") => {
            Some(Untrusted::Authority)
        }
        rustls::Error::InvalidCertificate(_) => Some(Untrusted::Issuer),
        _ => None,
    })
}

/// Returns true if the server answered in another protocol than that of its URL: without TLS, or not in HTTP.
#[must_use]
pub fn is_other_protocol(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|error| {
        let is_not_tls = matches!(error.downcast_ref(), Some(rustls::Error::InvalidMessage(_)));
        is_not_tls || error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)
    })
}

/// The text of an error without its cause, and the cause.
fn text_and_cause<'a>(error: &'a (dyn Error + 'static)) -> (String, Option<&'a (dyn Error + 'static)>) {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => return (answer(status), None),
        Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => {
            return ("the request failed".to_owned(), error.source());
        }
        _ => {}
    }
    let what = match error.downcast_ref::<watcher::Error>() {
        Some(watcher::Error::WatchError(status)) => return (answer(status), None),
        Some(watcher::Error::InitialListFailed(_)) => "cannot list",
        Some(watcher::Error::WatchStartFailed(_)) => "cannot begin to watch",
        Some(watcher::Error::WatchFailed(_)) => "cannot read the watch",
        _ => return (error.to_string(), error.source()),
    };
    (what.to_owned(), error.source())
}

fn answer(status: &Status) -> String {
    let Status {
        code, reason, message, ..
    } = status;
    let remedy = match code {
        401 => format!(" ({EXPIRED})"),
        400 if message.contains(NOT_HTTPS) => {
            " (correct the address of the server: it must begin with https://)".to_owned()
        }
        404 if reason == NO_STATUS => format!(" ({UNDEFINED})"),
        _ => String::new(),
    };
    let reason = match reason.as_str() {
        NO_STATUS => String::new(),
        reason => format!(" {reason}"),
    };
    format!("the API server answered {code}{reason}: {}{remedy}", message.trim_end())
}

/// The meaning of a 401, and the remedy. Permissions are missing only after a 403.
pub(crate) const EXPIRED: &str = "the credentials are not valid or have expired: renew the kubeconfig (with kOps: `kops export kubeconfig --admin`), or the token of the service account";

/// The reason that kube invents for an answer that is no Status.
const NO_STATUS: &str = "Failed to parse error data";

/// The meaning of a 404 that is no Status, and the remedy.
const UNDEFINED: &str =
    "the cluster has no definition of this kind: tidewaiter crds | kubectl apply --server-side -f -";

/// The answer of a Go server on its HTTPS port, to a request in plain HTTP.
const NOT_HTTPS: &str = "HTTP request to an HTTPS server";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        #[source]
        cause: Option<Box<Step>>,
    }

    fn step(text: &'static str, cause: Option<Step>) -> Step {
        Step {
            text,
            cause: cause.map(Box::new),
        }
    }

    #[test]
    fn says_each_cause_once() {
        let root = step("connection refused", None);
        let error = step(
            "no answer",
            Some(step("GET /nodes failed: connection refused", Some(root))),
        );
        assert_eq!(
            Chain(&error).to_string(),
            "no answer: GET /nodes failed: connection refused"
        );
    }

    #[test]
    fn says_what_the_api_server_said() {
        let status = || {
            Box::new(Status {
                code: 409,
                ..Status::failure("the object has been modified", "Conflict")
            })
        };
        let answered = "the API server answered 409 Conflict: the object has been modified";
        assert_eq!(Chain(&kube::Error::Api(status())).to_string(), answered);
        assert_eq!(Chain(&watcher::Error::WatchError(status())).to_string(), answered);
        let error = watcher::Error::WatchStartFailed(kube::Error::Api(status()));
        assert_eq!(Chain(&error).to_string(), format!("cannot begin to watch: {answered}"));
    }

    #[test]
    fn says_why_a_certificate_is_not_accepted() {
        use rustls::CertificateError::{Expired, NotValidYet, UnknownIssuer};

        let error = |error: rustls::CertificateError| io::Error::other(rustls::Error::InvalidCertificate(error));
        for (reason, expected) in [
            (Expired, Untrusted::Time),
            (NotValidYet, Untrusted::Time),
            (UnknownIssuer, Untrusted::Issuer),
        ] {
            assert_eq!(untrusted(&error(reason.clone())), Some(expected), "{reason:?}");
        }
        assert_eq!(untrusted(&io::Error::other("refused")), None);
    }

    #[test]
    fn says_what_helps_where_the_answer_does_not() {
        for (code, message, remedy) in [
            (401, "Unauthorized", "kops export kubeconfig --admin"),
            (
                400,
                "Client sent an HTTP request to an HTTPS server.\n",
                "must begin with https://",
            ),
        ] {
            let status = Status::failure(message, "Failed").with_code(code);
            let said = Chain(&kube::Error::Api(Box::new(status))).to_string();
            assert!(said.contains(message.trim_end()) && said.contains(remedy), "{said}");
        }
    }

    #[test]
    fn a_missing_definition_is_no_parse_error() {
        let status = Status::failure("404 page not found\n", NO_STATUS).with_code(404);
        let said = Chain(&kube::Error::Api(Box::new(status))).to_string();
        let expected = "the API server answered 404: 404 page not found (the cluster has no definition of this kind: ";
        assert!(said.starts_with(expected) && !said.contains(NO_STATUS), "{said}");
    }

    #[test]
    fn says_why_a_request_failed() {
        let error = watcher::Error::InitialListFailed(kube::Error::Service("connection refused".into()));
        assert_eq!(
            Chain(&error).to_string(),
            "cannot list: the request failed: connection refused"
        );
    }
}
