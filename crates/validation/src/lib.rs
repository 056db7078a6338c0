//! Validates a kOps cluster: one pure function from an observation to a verdict, and views of a verdict.
//!
//! The rules are those of `kops validate cluster`. Equal observations give equal verdicts, whatever the order of their
//! parts. A part that cannot be observed is named and never counts as healthy. Only [`observe`](observe()) does I/O:
//! the rest has no client, no clock and no task.

mod claims;
mod instances;
mod judge;
pub mod objects;
pub mod observation;
pub mod observe;
mod part;
pub mod verdict;
pub mod view;

pub use claims::{ClaimTable, Claims};
pub use instances::Instances;
pub use judge::{LISTED, Options, judge};
pub use objects::{IdentityRecord, IdentityResult, Node, Pod, is_judged, matters};
pub use observation::{CloudGroup, Dns, Identities, Member, MemberStatus, Observation, Part, Sizes};
pub use observe::{Sources, observe};
pub use verdict::{Failure, FailureKind, GroupRow, NodeRow, Outcome, PartName, Unknown, Verdict};
