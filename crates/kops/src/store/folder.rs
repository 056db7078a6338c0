//! The entries of a folder of this host contains besides files, which an object store cannot: folders, pipes, devices.
//!
//! They are named, never left out and never opened: a pipe that nobody writes to would block its reader for ever.

use std::io;
use std::path::PathBuf;

use object_store::path::Path;
use tidewaiter_kit::files::name_of;
use tokio::fs;

use super::MAX_NAMES;

/// Returns the object in place of a file, in words; `None` if it is a file or nothing.
pub(super) async fn in_place_of(object: &Path) -> Option<&'static str> {
    let found = fs::metadata(on_host(object)).await.ok()?.file_type();
    (!found.is_file()).then(|| name_of(found))
}

/// The names of all entries of a folder, or `None` if there are more than [`MAX_NAMES`]. A folder that does not exist
/// is empty.
pub(super) async fn entries(folder: &Path) -> io::Result<Option<Vec<String>>> {
    let mut entries = match fs::read_dir(on_host(folder)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
        entries => entries?,
    };
    let mut names = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        if names.len() == MAX_NAMES {
            return Ok(None);
        }
        // No file of kOps has a name that is not UTF-8.
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(Some(names))
}

/// Objects are named from the root of the host.
fn on_host(object: &Path) -> PathBuf {
    PathBuf::from("/").join(object.as_ref())
}
