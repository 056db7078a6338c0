//! Checks that the folder that is mounted into a container is still the one that its path names on the host.

use tidewaiter_kit::files;

/// The list of mounts of this process (`proc_pid_mountinfo(5)`).
const MOUNTS: &str = "/proc/self/mountinfo";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    id: String,
    /// The folder of its file system that is mounted. The kernel updates the name when it is moved, and adds
    /// `//deleted` when it is removed.
    root: String,
}

/// The mount at this path; None when nothing is.
pub(crate) fn of(folder: &str) -> Option<Mount> {
    read(&mounts()?, folder).pop()
}

/// The first path of `known` at which another folder is mounted than at the start. What cannot be read has not changed.
pub(crate) fn lost(known: &[(String, Mount)]) -> Option<&str> {
    let mounts = if known.is_empty() { None } else { mounts() }?;
    let mut known = known.iter();
    let lost = known.find(|(folder, mount)| !read(&mounts, folder).contains(mount));
    lost.map(|(folder, _)| folder.as_str())
}

fn mounts() -> Option<String> {
    let content = files::read(MOUNTS.as_ref()).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

/// The mounts at this path, the topmost last.
fn read(mounts: &str, folder: &str) -> Vec<Mount> {
    let at_folder = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (id, root) = (fields.next()?, fields.nth(2)?);
        (unescaped(fields.next()?) == folder).then(|| Mount {
            id: id.to_owned(),
            root: root.to_owned(),
        })
    });
    at_folder.collect()
}

fn unescaped(path: &str) -> String {
    let path = path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    path.replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
31 22 8:1 /etc/containership /etc/containership rw,relatime master:1 - ext4 /dev/sda1 rw
32 22 8:1 /with\\040space /with\\040space rw - ext4 /dev/sda1 rw
";

    #[test]
    fn a_folder_that_was_moved_or_removed_is_another_one() {
        let folder = "/etc/containership";
        let mount = read(BEFORE, folder).pop().unwrap();
        assert_eq!((mount.id.as_str(), mount.root.as_str()), ("31", folder));
        assert_eq!(read(BEFORE, "/with space").len(), 1);
        assert_eq!(read(BEFORE, "/elsewhere"), []);
        let covered = format!("{BEFORE}40 31 0:5 / /etc/containership rw - tmpfs tmpfs rw\n");
        for (mounts, is_in_place) in [
            (BEFORE.to_owned(), true),
            (covered, true),
            (
                BEFORE.replace("8:1 /etc/containership ", "8:1 /etc/containership.old "),
                false,
            ),
            (
                BEFORE.replace("8:1 /etc/containership ", "8:1 /etc/containership//deleted "),
                false,
            ),
            (String::new(), false),
        ] {
            assert_eq!(read(&mounts, folder).contains(&mount), is_in_place, "{mounts}");
        }
    }
}
