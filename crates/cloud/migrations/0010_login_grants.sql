-- Logins that wait for a person, or for the program that a person granted them to, as `kind` says: `browser` (by a
-- redirect to the machine of the person) or `device` (by a code that the person types). `digest` is that of the code with
-- which the program gets its token, once. `owner` is the person or the network that the limits are of. `user_id` and
-- `token_id`, the login that granted it, are empty until a person decides. `expires_at` is in seconds since 1970.
CREATE TABLE IF NOT EXISTS login_grants (
    digest TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    user_id TEXT NOT NULL,
    token_id TEXT NOT NULL,
    user_code TEXT NOT NULL,
    client TEXT NOT NULL,
    address TEXT NOT NULL,
    challenge TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS login_grants_by_kind ON login_grants (kind, owner);
CREATE UNIQUE INDEX IF NOT EXISTS login_grants_by_user_code ON login_grants (user_code) WHERE user_code <> '';
