//! Files by which root of the host decides, and which the agent remembers: they count only if nobody else can write
//! them.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, fstat};

use super::folder::owner;
use super::{Found, Host, HostError};

const OTHERS: &str = "belongs to another user, has a second name, or other users can write it: see who changed it, and \
    correct owner and mode";
const FOLDER_OF_OTHERS: &str =
    "belongs to another user, or other users can write it: see who changed it, and correct owner and mode";

/// The most bytes of a file of the folder itself: the lines of each are read one by one.
const MAX_BYTES: usize = 128 * 1024;

impl Host {
    /// The content of the file `name` of the folder itself; None if the folder or the file is missing.
    ///
    /// # Errors
    /// The file cannot be read, is no file or too large, or somebody else than the owner can write the file or its
    /// folder.
    pub fn read_trusted(&self, name: &str) -> Result<Option<Vec<u8>>, HostError> {
        let Some(folder) = self.trusted_folder()? else {
            return Ok(None);
        };
        let path = self.path_of(&[name]);
        match self.read_own(&folder, name, &path)? {
            Some(content) if content.len() > MAX_BYTES => {
                let problem = format!(
                    "has {} bytes, more than {MAX_BYTES}: remove what does not belong there",
                    content.len()
                );
                Err(HostError::unusable(&path, problem))
            }
            content => Ok(content),
        }
    }

    /// Writes the file `name` of the folder itself: it is on the disk when this returns.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write_trusted(&self, name: &str, content: &[u8], mode: u32) -> Result<(), HostError> {
        let opened = self.ensure(&[])?;
        if let Some(folder) = opened.last() {
            let found = self.find(folder, name)?;
            self.replace(folder, name, content, mode, &found)?;
        }
        Ok(())
    }

    /// The folder itself; None if it is missing.
    ///
    /// # Errors
    /// When it cannot be opened, or somebody else than the owner can write it.
    pub(crate) fn trusted_folder(&self) -> Result<Option<OwnedFd>, HostError> {
        let opened = self.look_if_there(&[])?;
        let Some(folder) = opened.and_then(|opened| opened.folders.into_iter().next_back()) else {
            return Ok(None);
        };
        self.check_own(&folder, &self.root.display().to_string())?;
        Ok(Some(folder))
    }

    /// Refuses a folder that somebody else owns or can write.
    pub(crate) fn check_own(&self, folder: &OwnedFd, path: &str) -> Result<(), HostError> {
        let stat = fstat(folder).map_err(|source| HostError::call("read", path, source))?;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_folder && owner(&stat).uid == self.owner().uid && stat.st_mode & 0o022 == 0 {
            Ok(())
        } else {
            Err(HostError::unusable(path, FOLDER_OF_OTHERS))
        }
    }

    /// The content of a file that only its owner can write; None if it is missing. Errors name it as `path`.
    pub(crate) fn read_own(&self, folder: &OwnedFd, name: &str, path: &str) -> Result<Option<Vec<u8>>, HostError> {
        match self.find(folder, name)? {
            Found::Absent => Ok(None),
            Found::Other(kind) => Err(HostError::unusable(path, format!("is {kind}, and must be a file"))),
            Found::File(file) if file.owner.uid != self.owner().uid || file.mode & 0o022 != 0 || file.links != 1 => {
                Err(HostError::unusable(path, OTHERS))
            }
            Found::File(file) if file.is_cut => Err(HostError::unusable(path, "has more than 8 MiB")),
            Found::File(file) => Ok(Some(file.content)),
        }
    }
}
