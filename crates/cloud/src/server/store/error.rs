//! The errors of the database.

use std::io;
use std::time::Duration;

use sqlx::migrate::MigrateError;

const SQLITE_TOOBIG: u32 = 18;
const SQLITE_CONSTRAINT: u32 = 19;
const SQLITE_MISMATCH: u32 = 20;

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting with its URL is invalid.
    #[error("{0}")]
    Setting(String),
    /// The file, a file next to it, or their directory is not writable.
    #[error(
        "database is {path}, which cannot be written: the file, the files next to it and their directory must exist and be writable for the user that runs this process"
    )]
    File { path: String, source: io::Error },
    /// The file of the database, or its lock, is not the one that this process opened.
    #[error(
        "{0} was moved, removed or replaced while the server runs: nothing is written. Move it back, or restart the server with the right one"
    )]
    Moved(String),
    /// The database does not respond, or rejects a statement.
    #[error("the database is unusable")]
    Unavailable(#[source] sqlx::Error),
    #[error("the database does not answer within {0:?}")]
    Silent(Duration),
    /// The database rejects one statement because of its data; others are not concerned.
    #[error("the database rejects a statement")]
    Rejected(#[source] sqlx::Error),
    /// It contains data that no version of the server wrote.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    #[error("the database schema does not match this version: {0}")]
    Migrate(#[source] MigrateError),
    /// A write exceeds its time, so that it does not delay others for longer.
    #[error("the write takes too long")]
    TooLong,
    #[error("too many writes are pending")]
    Full,
    #[error("the server is stopping")]
    Stopping,
}

impl StoreError {
    /// Returns true if the connection cannot be used after it.
    pub(super) fn is_of_connection(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Silent(_))
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            // A full disk, a database that is only read, or one that is gone.
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => Self::Unavailable(error),
            error => Self::Migrate(error),
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        if code.is_some_and(|code| rejects(&code)) {
            Self::Rejected(error)
        } else {
            Self::Unavailable(error)
        }
    }
}

/// Returns true if an error with this code is about the data of one statement, and not about the database: a result
/// code of SQLite (sqlite.org/rescode.html) or one of the five characters of an SQLSTATE (PostgreSQL's appendix A).
fn rejects(code: &str) -> bool {
    if code.len() == 5 {
        // Data exceptions, violated constraints, and limits that the data exceeds.
        return ["22", "23", "54"].iter().any(|class| code.starts_with(class));
    }
    let code = code.parse::<u32>().unwrap_or_default() & 0xff;
    [SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH].contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_data_is_not_one_of_the_database() {
        // An index row that is too large, a value that is too long, a name that is taken; and of SQLite.
        for code in ["54000", "22001", "23505", "1555", "2067", "18", "20"] {
            assert!(rejects(code), "{code}");
        }
        // The server stops, the disk is full, the connection is lost; and of SQLite: busy, read-only, an I/O error,
        // full.
        for code in ["57P01", "53100", "08006", "40001", "5", "8", "266", "13", ""] {
            assert!(!rejects(code), "{code}");
        }
    }
}
