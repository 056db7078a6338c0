-- Clusters read the last deletions of their organization, and their own.
CREATE INDEX IF NOT EXISTS changes_that_delete ON changes (organization_id, cluster_id, sequence) WHERE action = 'delete';
