-- How many bytes are stored, so that a limit costs one row. `owner` is the organization (empty for what belongs to
-- none), the cluster, or the caller whose responses are stored. The numbers beside the lengths are those of
-- `store/stored.rs`. It can be computed again, so a backup does not contain it. All documents are read once: seconds
-- for a million changes.
CREATE TABLE IF NOT EXISTS stored (
    owner TEXT NOT NULL,
    what TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (owner, what)
);
DELETE FROM stored;
INSERT INTO stored (owner, what, bytes)
    SELECT organization_id, 'objects',
        CAST(SUM(OCTET_LENGTH(spec) + OCTET_LENGTH(status) + OCTET_LENGTH(secret) + 512) AS BIGINT)
    FROM objects WHERE kind <> 'tokens' GROUP BY organization_id;
INSERT INTO stored (owner, what, bytes)
    SELECT cluster_id, 'clusterObjects',
        CAST(SUM(OCTET_LENGTH(spec) + OCTET_LENGTH(status) + OCTET_LENGTH(secret) + 512) AS BIGINT)
    FROM objects WHERE kind <> 'tokens' AND cluster_id <> '' GROUP BY cluster_id;
INSERT INTO stored (owner, what, bytes)
    SELECT organization_id, 'audit', CAST(SUM(OCTET_LENGTH(before) + OCTET_LENGTH(after) + 512) AS BIGINT)
    FROM changes WHERE substr(actor, 1, 8) <> 'cluster:' GROUP BY organization_id;
INSERT INTO stored (owner, what, bytes)
    SELECT substr(actor, 9), 'reports', CAST(SUM(OCTET_LENGTH(before) + OCTET_LENGTH(after) + 512) AS BIGINT)
    FROM changes WHERE substr(actor, 1, 8) = 'cluster:' GROUP BY substr(actor, 9);
INSERT INTO stored (owner, what, bytes)
    SELECT principal, 'replays', CAST(SUM(OCTET_LENGTH(answer) + 512) AS BIGINT)
    FROM idempotency GROUP BY principal;

-- The oldest changes of one cluster, and the row that says which were deleted because of the limit.
CREATE INDEX IF NOT EXISTS changes_by_cluster ON changes (actor, sequence) WHERE substr(actor, 1, 8) = 'cluster:';
CREATE INDEX IF NOT EXISTS changes_that_forget ON changes (object_id) WHERE action = 'forget';
