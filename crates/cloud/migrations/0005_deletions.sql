-- Clusters read the last deletions of their organization.
CREATE INDEX IF NOT EXISTS changes_that_delete ON changes (organization_id, sequence) WHERE action = 'delete';
