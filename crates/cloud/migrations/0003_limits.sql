-- Deleting expired tokens reads only those: `spec` begins with `{"expires_at":"`.
CREATE INDEX IF NOT EXISTS tokens_by_expiry ON objects (substr(spec, 16, 19)) WHERE kind = 'tokens';

-- What clusters reported is deleted earlier than what people changed.
CREATE INDEX IF NOT EXISTS changes_by_clusters ON changes (sequence) WHERE substr(actor, 1, 8) = 'cluster:';

-- How many objects of each kind an organization has, so that a quota costs one row. It can be computed from `objects` again, so a backup
-- does not contain it.
CREATE TABLE IF NOT EXISTS counts (
    organization_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (organization_id, kind)
);
DELETE FROM counts;
INSERT INTO counts (organization_id, kind, count) SELECT organization_id, kind, COUNT(*) FROM objects GROUP BY organization_id, kind;
