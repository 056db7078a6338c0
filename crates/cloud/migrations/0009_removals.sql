-- Objects that are removed but not yet deleted: those of `kind` with the parent `parent_id` and a position of at most
-- `position`, except `kept`. Each gets an audit row of the author `actor` with `request_id`, whose writes wait in `queue`.
CREATE TABLE IF NOT EXISTS removals (
    parent_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    position BIGINT NOT NULL,
    kept TEXT NOT NULL,
    queue TEXT NOT NULL,
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (parent_id, kind)
);
