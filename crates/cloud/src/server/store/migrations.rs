//! The migrations of the tables. One that was released never changes, because databases know its checksum. The macro
//! `sqlx::migrate!` would compile the whole library and SQLite a second time, as a part of the compiler.

use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

macro_rules! migrations {
    ($($file:literal)+) => {
        [$(($file, include_str!(concat!("../../../migrations/", $file, ".sql")))),+]
    };
}

pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let files = migrations! {
        "0001_objects"
        "0002_label_keys"
        "0003_limits"
        "0004_reports"
        "0005_deletions"
        "0006_ssh_keys"
        "0007_stored"
        "0008_tokens"
        "0009_removals"
        "0010_login_grants"
        "0011_second_factor"
    };
    let migrations = files.into_iter().map(|(name, sql)| {
        let version = name.get(..4).and_then(|digits| digits.parse().ok());
        let sql = SqlStr::from_static(sql);
        Migration::new(
            version.unwrap_or_default(),
            name.into(),
            MigrationType::Simple,
            sql,
            false,
        )
    });
    Migrator::with_migrations(migrations.collect())
});

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_file_is_named_in_its_order() {
        let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap();
        let mut files: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let names = MIGRATIONS.iter().map(|migration| {
            assert!(migration.description.starts_with(&format!("{:04}_", migration.version)));
            format!("{}.sql", migration.description)
        });
        assert_eq!(names.collect::<Vec<_>>(), files);
    }
}
