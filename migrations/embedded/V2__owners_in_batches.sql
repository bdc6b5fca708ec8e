-- Why: an index by owner dirtied a page for each owner and commit, which was the largest part of what a busy service wrote. New orders are
-- noted in a short list instead, and the list is filed in one go when it has grown: then an owner's page is written once for many orders.
-- Whoever asks for an owner's orders looks into both.
-- Version 2.
CREATE TABLE order_owner (owner TEXT NOT NULL, id BLOB NOT NULL, PRIMARY KEY (owner, id)) WITHOUT ROWID;
INSERT INTO order_owner SELECT owner, id FROM orders ORDER BY owner, id;
CREATE TABLE order_fresh (n INTEGER PRIMARY KEY, owner TEXT NOT NULL, id BLOB NOT NULL);
DROP INDEX orders_by_owner;
