-- A key of one user is looked for among those of all others.
CREATE INDEX IF NOT EXISTS names_of_ssh_keys ON names (name) WHERE kind = 'ssh-keys';
