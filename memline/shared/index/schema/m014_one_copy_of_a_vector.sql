-- Keep one copy of a vector, its row in `vectors`: the vec0 tables go (`migrations.py`), whatever their numbers.

DELETE FROM meta WHERE key = 'vec_stale';
