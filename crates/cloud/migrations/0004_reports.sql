-- What a cluster reports of an object replaces its report before.
CREATE INDEX IF NOT EXISTS changes_by_object ON changes (object_id) WHERE substr(actor, 1, 8) = 'cluster:';
