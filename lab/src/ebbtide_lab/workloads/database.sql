-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Builds a database of more than 200 MB and queries it. The page cache comes from
-- malloc; journal and sync are off, so that the disk decides less.
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
PRAGMA temp_store = MEMORY;

CREATE TABLE reading (id INTEGER PRIMARY KEY, sensor INTEGER, value REAL, note TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 420000)
INSERT INTO reading
SELECT i, (i * 7919) % 997, (i * 104729) % 100003 / 7.0,
       printf('%.*c %08d %08d', 400 + i % 131, 'n', i, (i * 2654435761) % 100000007)
FROM n;
COMMIT;
CREATE INDEX reading_by_sensor ON reading (sensor, value);
CREATE TABLE summary AS
SELECT sensor, count(*) AS readings, avg(value) AS mean, group_concat(id % 10, '') AS digits
FROM reading GROUP BY sensor;

SELECT count(*) FROM reading WHERE note LIKE '%99 0%';
SELECT sum(length(digits)) FROM summary;
SELECT sensor, count(DISTINCT substr(note, -8)) FROM reading WHERE sensor < 200 GROUP BY sensor
ORDER BY 2 DESC LIMIT 3;
SELECT count(*) FROM reading a JOIN reading b ON b.id = a.id + 1 WHERE a.sensor < 300;
SELECT substr(note, -17) FROM reading ORDER BY substr(note, -8) LIMIT 3;
SELECT 'done';
