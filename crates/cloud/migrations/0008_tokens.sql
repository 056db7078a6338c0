-- The name of a token, within its user or API key, is its expiry and its id: tokens are counted and deleted by a range of
-- names, not by a position in a document. The documents of earlier versions begin with `{"expires_at":"`. Of a million
-- objects with 100,000 tokens, this takes three seconds with SQLite and thirteen with PostgreSQL.
INSERT INTO names (kind, scope_id, name, id)
    SELECT 'tokens', parent_id, substr(spec, 16, 19) || 'Z ' || id, id FROM objects WHERE kind = 'tokens'
    ON CONFLICT DO NOTHING;
-- The first for PostgreSQL, which ignores a column that the condition of an index states already and would read all of the
-- second; the second for SQLite, which prefers the whole kind in `names_by_id` to the first.
CREATE INDEX IF NOT EXISTS names_of_tokens ON names (name) WHERE kind = 'tokens';
CREATE INDEX IF NOT EXISTS names_of_tokens_by_kind ON names (kind, name) WHERE kind = 'tokens';
DROP INDEX IF EXISTS tokens_by_expiry;
