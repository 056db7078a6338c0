-- Older servers know no second factor, and would take a password alone: none of them starts on these tables.
DELETE FROM objects WHERE kind IN ('security-keys', 'recovery-codes')
    AND parent_id NOT IN (SELECT id FROM objects WHERE kind = 'users');
