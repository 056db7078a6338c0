-- The same for SQLite and PostgreSQL: texts and whole numbers, and no NULL. What is not there is the empty text.

-- One row for each fact about the database itself: its epoch.
CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

-- The number of the last change. Whoever writes holds this row, so that writers take turns and no number is seen before a smaller one.
CREATE TABLE sequence (
    one BIGINT NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO sequence (one, value) VALUES (1, 0);

-- Every object of every kind. `spec` is what a person said (JSON), `status` what a cluster reported (JSON), `secret` what no answer, audit
-- row or event shows: sealed credentials or a hash.
CREATE TABLE objects (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    cluster_id TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    spec TEXT NOT NULL,
    status TEXT NOT NULL,
    secret TEXT NOT NULL,
    PRIMARY KEY (kind, id)
);
CREATE INDEX objects_by_parent ON objects (kind, parent_id, position);
CREATE INDEX objects_by_cluster ON objects (kind, cluster_id, position);

-- What may not be there twice within a scope.
CREATE TABLE names (
    kind TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (kind, scope_id, name)
);
CREATE INDEX names_by_id ON names (kind, id);

-- Which object refers to which.
CREATE TABLE uses (
    used_kind TEXT NOT NULL,
    used_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (used_kind, used_id, kind, id)
);
CREATE INDEX uses_by_id ON uses (kind, id);

-- Every change, as its audit row and as its event. `cluster_id` is empty where every cluster of the organization is concerned.
CREATE TABLE changes (
    sequence BIGINT NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    organization_id TEXT NOT NULL,
    cluster_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    object_id TEXT NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL
);
CREATE INDEX changes_by_organization ON changes (organization_id, sequence);

-- What was answered to a request with an Idempotency-Key. The answer may hold a key that is shown once, so it is sealed, with the digest
-- of the request.
CREATE TABLE idempotency (
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    at BIGINT NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (principal, name)
);
CREATE INDEX idempotency_by_age ON idempotency (at);
