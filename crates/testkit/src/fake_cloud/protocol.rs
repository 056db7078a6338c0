//! The differences between fakes of clouds.

use std::collections::BTreeSet;
use std::fmt;

use http::{Request, Response};
use hyper::body::Bytes;

use super::scripted::Scripted;
use super::server::Body;

/// An error as a cloud words it: the HTTP status, the code, the message.
pub type Error<'a> = (u16, &'a str, &'a str);

/// A cloud's words for the errors that all of them have.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Of [`Scripted::Throttled`].
    pub throttled: Error<'static>,
    /// Of [`Scripted::Failed`].
    pub failed: Error<'static>,
    /// Of [`Scripted::Denied`].
    pub denied: Error<'static>,
    /// Of [`Scripted::Unauthenticated`].
    pub unauthenticated: Error<'static>,
}

/// One call as it came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The method, as the cloud's reference names it, for example `instances.aggregatedList`.
    pub api: &'static str,
    /// The names in the call, as identities and refusals name it: instances, or a group or a template with its place.
    pub names: Vec<String>,
    /// The filter of the call, if it has one: its name on EC2, else its text.
    pub filter: Option<String>,
    /// The instances, or other requested objects, in the response.
    pub rows: usize,
    /// The outcome: `ok`, or the code of the error, or the name of the fault.
    pub outcome: String,
}

/// The state of a token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// The tokens that it holds when it is full.
    pub capacity: f64,
    /// The tokens that it holds now.
    pub tokens: f64,
    /// The seconds until it is full.
    pub full_in: f64,
}

/// Reads the calls to a cloud and words its answers. The value is the cloud's contents.
pub trait Protocol: Default + fmt::Debug + Send + 'static {
    /// The parameters of a call.
    type Parameters;

    /// Of its answers.
    const CONTENT_TYPE: &'static str;

    /// The beginning of an answer that breaks off.
    const BEGINNING: &'static str;

    /// Its words for the errors that all clouds have.
    const WORDS: Words;

    /// The body of an error of this method.
    fn error(api: &str, error: Error<'_>) -> String;

    /// The answer to what is no call of the API, such as a question to the machines' metadata service.
    fn aside(&self, _request: &Request<Bytes>) -> Option<Response<Body>> {
        None
    }

    /// Reads a call: for the record, without its answer, and for [`Self::answer`]. `None`: there is no such call.
    fn read(request: &Request<Bytes>) -> Option<(Call, Self::Parameters)>;

    /// Returns true if the request has valid credentials.
    fn knows(&self, request: &Request<Bytes>) -> bool;

    /// The headers of a response about the token bucket.
    #[must_use]
    fn quota(_quota: Quota) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Returns true if the call fares as one of these zones does.
    fn depends_on(&self, _parameters: &Self::Parameters, _zones: &BTreeSet<String>) -> bool {
        false
    }

    /// Returns the number of rows, and the body; or the error.
    ///
    /// # Errors
    /// The refusal of the cloud.
    fn answer(&self, parameters: &Self::Parameters) -> Result<(usize, String), Scripted>;
}
