-- The name of a token, within its user or API key, is its expiry and its id: tokens are counted and deleted by a range of names, not by a
-- position in a document. The documents of earlier versions begin with `{"expires_at":"`. This reads tokens only: three seconds for 100,000.
INSERT INTO names (kind, scope_id, name, id)
    SELECT 'tokens', parent_id, substr(spec, 16, 19) || 'Z ' || id, id FROM objects WHERE kind = 'tokens'
    ON CONFLICT DO NOTHING;
-- With the kind, or SQLite reads all tokens by the index `names_by_id`.
CREATE INDEX IF NOT EXISTS names_of_tokens ON names (kind, name) WHERE kind = 'tokens';
DROP INDEX IF EXISTS tokens_by_expiry;
