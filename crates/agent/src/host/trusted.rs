//! Files by which root of the host decides, and which the agent remembers: they count only if nobody else can write
//! them.

use rustix::fs::fstat;
use rustix::io::Errno;

use super::folder::owner;
use super::{Found, Host, HostError, Opened};

const OTHERS: &str = "belongs to another user, has a second name, or other users can write it: see who changed it, and \
    correct owner and mode";

impl Host {
    /// The content of the file `name` of the folder itself; None if the folder or the file is missing.
    ///
    /// # Errors
    /// When it cannot be read, is no file, or somebody else than the owner can write the file or its folder.
    pub fn read_trusted(&self, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        let opened = match self.look(&[]) {
            Err(HostError::Call {
                source: Errno::NOENT, ..
            }) => return Ok(None),
            opened => opened?,
        };
        let Some(folder) = opened.as_ref().and_then(Opened::last) else {
            return Ok(None);
        };
        let path = format!("{}{name}", self.path_of(&[]));
        let unusable = |problem: &str| HostError::Unusable {
            path: path.clone(),
            problem: problem.to_owned(),
        };
        let stat = fstat(folder).map_err(|source| HostError::call("read", &path, source))?;
        if owner(&stat).uid != self.owner().uid || stat.st_mode & 0o022 != 0 {
            return Err(unusable(
                "is in a folder that other users can write: correct its owner and mode",
            ));
        }
        match self.find(folder, name)? {
            Found::Absent => Ok(None),
            Found::Other(kind) => Err(unusable(&format!("is {kind}, and must be a file"))),
            Found::File(file) if file.owner.uid != self.owner().uid || file.mode & 0o022 != 0 || file.links != 1 => {
                Err(unusable(OTHERS))
            }
            Found::File(file) if file.is_cut => Err(unusable("has more than 8 MiB")),
            Found::File(file) => Ok(Some(file.content)),
        }
    }
}
