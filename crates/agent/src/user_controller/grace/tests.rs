use rustix::io::Errno;

use super::*;
use crate::host::{Call, HostCalls};

const HOUR: Duration = Duration::from_hours(1);

/// No file can be created.
#[derive(Debug)]
struct Full;

impl HostCalls for Full {
    fn before(&self, call: Call) -> Result<(), Errno> {
        if call == Call::Create {
            Err(Errno::NOSPC)
        } else {
            Ok(())
        }
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn lines() -> BTreeSet<String> {
    BTreeSet::from(["digest".to_owned()])
}

#[test]
fn a_grace_that_cannot_be_recorded_does_not_begin_and_ends_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let full = Host::of_root(folder.path()).with_calls(Arc::new(Full));
    let host = Host::of_root(folder.path());
    let mut grace = Grace::default();
    grace.kept(&full, HOUR, at(0), || Ok(lines())).unwrap_err();
    let kept = grace.kept(&host, HOUR, at(5), || Ok(lines())).unwrap();
    assert_eq!((&*kept, grace.until()), (&Kept::Of(lines()), Some(at(3_605))));
    // The same in memory, so nothing is rendered again.
    let again = grace.kept(&host, HOUR, at(6), || unreachable!()).unwrap();
    assert!(Arc::ptr_eq(&kept, &again));
    let kept = grace.kept(&full, HOUR, at(3_605), || unreachable!()).unwrap();
    assert_eq!((&*kept, grace.until()), (&Kept::default(), None));
}

#[test]
fn a_shorter_setting_counts_at_once_and_none_begins_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::of_root(folder.path());
    let mut grace = Grace::default();
    grace.kept(&host, HOUR, at(0), || Ok(lines())).unwrap();
    let kept = Grace::default()
        .kept(&host, HOUR / 2, at(1_800), || unreachable!())
        .unwrap();
    assert_eq!(*kept, Kept::default());
    let other = tempfile::tempdir().unwrap();
    let host = Host::of_root(other.path());
    Grace::default()
        .kept(&host, Duration::ZERO, at(0), || unreachable!())
        .unwrap();
    let kept = Grace::default().kept(&host, HOUR, at(1), || unreachable!()).unwrap();
    assert_eq!(*kept, Kept::default());
}
