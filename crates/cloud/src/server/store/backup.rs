//! A backup, in the same format for both databases: lines of JSON, one row each, between a header and a footer with the
//! number of rows and their digest. It is a consistent snapshot, even during writes. Secrets are in it as in the
//! database: encrypted or hashed.

use std::io::{self, BufRead, Write};

use aws_lc_rs::digest::{Context, SHA256};
use futures::TryStreamExt as _;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Executor as _, Row as _};
use url::Url;
use uuid::Uuid;

use super::error::StoreError;
use super::migrations::MIGRATIONS;
use super::{engine, names};

/// A table and its columns. All versions have the same columns.
struct Table {
    name: &'static str,
    /// The first version of the tables that has it.
    since: i64,
    columns: &'static str,
}

#[rustfmt::skip]
const TABLES: &[Table] = &[
    Table { name: "sequence", since: 1, columns: "one, value" },
    Table { name: "objects", since: 1, columns: "kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, updated_at, spec, status, secret" },
    Table { name: "names", since: 1, columns: "kind, scope_id, name, id" },
    Table { name: "uses", since: 1, columns: "used_kind, used_id, kind, id" },
    Table { name: "changes", since: 1, columns: "sequence, at, organization_id, cluster_id, kind, object_id, action, actor, request_id, before, after" },
    Table { name: "removals", since: 9, columns: "parent_id, kind, position, kept, queue, actor, request_id" },
];
/// The columns that contain numbers, in any table.
const NUMBERS: [&str; 4] = ["one", "value", "position", "sequence"];

/// A backup that cannot be created or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the backup cannot be read or written")]
    File(#[from] io::Error),
    #[error("line {line} of the backup: {reason}")]
    Copy { line: u64, reason: String },
    /// The database is one of a newer version.
    #[error("the tables have version {0}, and this version of the server knows {this}; use the newer one", this = version())]
    Newer(i64),
    #[error("the database is not empty: it has {0} objects; restore into a new database")]
    NotEmpty(i64),
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The size of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// The number of rows in all tables.
    pub rows: u64,
}

/// The migrations that fill the tables `counts` and `stored`.
const COUNTING: [i64; 2] = [3, 7];

/// The version of the tables of this server.
fn version() -> i64 {
    let versions = MIGRATIONS.iter().map(|migration| migration.version);
    versions.max().unwrap_or_default()
}

fn hex(context: Context) -> String {
    tidewaiter_signature::hex(context.finish().as_ref())
}

/// Writes a backup of the database at `url`, which may be in use. `told` is called with the number of rows after every
/// thousand.
///
/// # Errors
/// If the database cannot be read or the backup cannot be written.
pub async fn backup(
    url: &Url,
    copy: &mut (dyn Write + Send),
    told: &mut (dyn FnMut(u64) + Send),
) -> Result<BackupSummary, BackupError> {
    let engine = engine::open_for_reading(url)?;
    let pool = engine.pool(engine::READERS).await?;
    let mut connection = pool.acquire().await.map_err(StoreError::from)?;
    connection.execute(engine.statements().snapshot).await?;
    let tables = version_of(&mut connection).await?;
    writeln!(copy, "{}", json!({ "tidewaiter-cloud-backup": 1, "tables": tables }))?;
    let (mut rows, mut digest) = (0, Context::new(&SHA256));
    for table in TABLES.iter().filter(|table| table.since <= tables) {
        // In the order of the first two columns.
        let statement = format!("SELECT {} FROM {} ORDER BY 1, 2", table.columns, table.name);
        let mut found = sqlx::query(AssertSqlSafe(statement)).fetch(&mut *connection);
        while let Some(row) = found.try_next().await? {
            let line = json!([table.name, table.values(&row)?]).to_string();
            digest.update(line.as_bytes());
            writeln!(copy, "{line}")?;
            rows += 1;
            if rows % 1_000 == 0 {
                told(rows);
            }
        }
    }
    writeln!(copy, "{}", json!({ "rows": rows, "sha256": hex(digest) }))?;
    copy.flush()?;
    Ok(BackupSummary { rows })
}

/// The version of the tables, which is that of an older server before the first start of this one.
async fn version_of(connection: &mut AnyConnection) -> Result<i64, BackupError> {
    let statement = "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM _sqlx_migrations WHERE success";
    let (tables,) = sqlx::query_as(statement).fetch_one(connection).await?;
    if tables > version() {
        return Err(BackupError::Newer(tables));
    }
    Ok(tables)
}

/// Restores a backup into the empty database at `url`, completely or not at all. The result is another database:
/// streams start again.
///
/// # Errors
/// If the backup is incomplete or of a newer version, or if the database is not empty.
pub async fn restore(
    url: &Url,
    copy: &mut (dyn BufRead + Send),
    told: &mut (dyn FnMut(u64) + Send),
) -> Result<BackupSummary, BackupError> {
    let engine = engine::of(url)?;
    engine.check().await?;
    let pool = engine.pool(engine::READERS).await?;
    MIGRATIONS.run(&pool).await.map_err(StoreError::from)?;
    let mut connection = pool.acquire().await.map_err(StoreError::from)?;
    connection.close_on_drop();
    connection.execute(engine.statements().begin).await?;
    let (objects,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM objects")
        .fetch_one(&mut *connection)
        .await?;
    if objects > 0 {
        return Err(BackupError::NotEmpty(objects));
    }
    connection.execute("DELETE FROM sequence").await?;
    let (copied, tables) = fill(&mut connection, copy, told).await?;
    // The rows are those of an older version, in the tables of this one. Each migration after the first can be
    // repeated: it changes only rows, or creates what does not exist. Those that count are repeated in any case: a
    // backup has no counts.
    let repeated = |version: i64| version > tables || COUNTING.contains(&version);
    for migration in MIGRATIONS.iter().filter(|migration| repeated(migration.version)) {
        connection.execute(migration.sql.clone()).await?;
    }
    connection.execute("DELETE FROM meta").await?;
    sqlx::query("INSERT INTO meta (name, value) VALUES ('epoch', $1)")
        .bind(Uuid::new_v4().simple().to_string())
        .execute(&mut *connection)
        .await?;
    connection.execute("COMMIT").await?;
    Ok(copied)
}

/// Inserts all rows. Also returns the version of the tables that the backup was made from.
async fn fill(
    connection: &mut AnyConnection,
    copy: &mut (dyn BufRead + Send),
    told: &mut (dyn FnMut(u64) + Send),
) -> Result<(BackupSummary, i64), BackupError> {
    let (mut rows, mut number, mut digest) = (0, 0, Context::new(&SHA256));
    let mut version_of_copy = version();
    let mut text = String::new();
    loop {
        number += 1;
        text.clear();
        let wrong = |reason: &str| BackupError::Copy {
            line: number,
            reason: reason.to_owned(),
        };
        if copy.read_line(&mut text)? == 0 {
            return Err(wrong("the file ends before its footer: the backup is incomplete"));
        }
        let line = text.trim_end_matches('\n');
        let value: Value = serde_json::from_str(line).map_err(|_| wrong("is not valid JSON"))?;
        if number == 1 {
            let tables = value.get("tables").and_then(Value::as_i64);
            match tables.filter(|_| value.get("tidewaiter-cloud-backup") == Some(&json!(1))) {
                None => return Err(wrong("is not the header of a file written by tidewaiter cloud backup")),
                Some(tables) if tables > version() => {
                    return Err(wrong("was written by a newer version; restore it with that version"));
                }
                Some(tables) => version_of_copy = tables,
            }
        } else if let Some(foot) = value.as_object() {
            if foot.get("rows") != Some(&json!(rows)) || foot.get("sha256") != Some(&json!(hex(digest))) {
                return Err(wrong("does not match the lines before it: the backup is damaged"));
            }
            if !copy.fill_buf()?.is_empty() {
                return Err(wrong("is the footer, but more follows it: is the file one backup?"));
            }
            return Ok((BackupSummary { rows }, version_of_copy));
        } else {
            digest.update(line.as_bytes());
            insert(connection, &value)
                .await?
                .ok_or_else(|| wrong("is not a row of a table"))?;
            rows += 1;
            if rows % 1_000 == 0 {
                told(rows);
            }
        }
    }
}

async fn insert(connection: &mut AnyConnection, line: &Value) -> Result<Option<()>, BackupError> {
    let row = || {
        let [name, values] = line.as_array()?.as_slice() else {
            return None;
        };
        let table = TABLES.iter().find(|table| Some(table.name) == name.as_str())?;
        let values = values
            .as_array()
            .filter(|values| values.len() == table.columns().count())?;
        Some((table, values))
    };
    let Some((table, values)) = row() else { return Ok(None) };
    let places: Vec<String> = (1..=values.len()).map(|place| format!("${place}")).collect();
    let (name, columns, places) = (table.name, table.columns, places.join(", "));
    let statement = format!("INSERT INTO {name} ({columns}) VALUES ({places})");
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for (column, value) in table.columns().zip(values) {
        query = if NUMBERS.contains(&column) {
            let Some(number) = value.as_i64() else { return Ok(None) };
            query.bind(number)
        } else {
            let Some(text) = value.as_str() else { return Ok(None) };
            // A copy of an earlier version, or from SQLite, may contain names that PostgreSQL cannot index.
            let is_name = (table.name, column) == ("names", "name");
            query.bind(if is_name { names::stored(text) } else { text.to_owned() })
        };
    }
    query.execute(connection).await?;
    Ok(Some(()))
}

impl Table {
    fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.columns.split(", ")
    }

    fn values(&self, row: &AnyRow) -> Result<Vec<Value>, sqlx::Error> {
        let value = |column| {
            if NUMBERS.contains(&column) {
                row.try_get::<i64, _>(column).map(Value::from)
            } else {
                row.try_get::<String, _>(column).map(Value::from)
            }
        };
        self.columns().map(value).collect()
    }
}

#[cfg(test)]
mod tests;
