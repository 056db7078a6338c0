//! Whether a kOps cluster is healthy: one pure function from what was observed to the verdict, and what shows a verdict.
//!
//! The rules are those of `kops validate cluster`. The same observation gives the same verdict, whatever order its parts come
//! in. What could not be observed is named and never taken for healthy. Only [`observe`](observe()) asks anybody: the rest has
//! no client, no clock and no task.

mod judge;
pub mod objects;
pub mod observation;
pub mod observe;
pub mod verdict;
pub mod view;

pub use judge::{Options, judge};
pub use objects::{Node, Pod, is_judged, matters};
pub use observation::{CloudGroup, Dns, Member, MemberStatus, Observation, Part};
pub use observe::{Sources, observe};
pub use verdict::{Failure, FailureKind, GroupRow, NodeRow, Outcome, PartName, Unknown, Verdict};
