-- The keys of labels are stored whole, with the prefix that they have on the node. Neither a key nor a value contains a quotation mark.
UPDATE objects SET spec = REPLACE(spec, '"key":"', '"key":"cluster.containership.io/') WHERE kind = 'labels';
UPDATE names SET name = 'cluster.containership.io/' || name WHERE kind = 'labels';
UPDATE objects SET spec = REPLACE(spec, '"key":"', '"key":"nodepool.containership.io/') WHERE kind = 'node-pool-labels';
UPDATE names SET name = 'nodepool.containership.io/' || name WHERE kind = 'node-pool-labels';

-- The database gets a new epoch at the next start, so that no cursor from before is valid and every cluster lists its labels again.
DELETE FROM meta WHERE name = 'epoch';
