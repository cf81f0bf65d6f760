//! Who has a lock.

use crate::kinds::script_tests::tables::Row;

pub(crate) const ROWS: &[Row] = &[
    ("", "inspect", "0 T", "=", ""),
    ("lock={mode:read,a:2}@5", "inspect", "1 T @5 1 a 2 read", "=", ""),
    ("lock={mode:read,a:1,b:3}@5", "inspect", "1 T @5 2 a 1 read", "=", ""),
    ("lock={a:0,mode:read,b:3}@5", "inspect", "1 T @5 2 a 0 read", "=", ""),
    ("lock={mode:read,a:1}", "inspect", "1 T -1 1 a 1 read", "=", ""),
    ("lock={mode:write,a:write:2}@5", "inspect", "1 T @5 1 a 2 write", "=", ""),
    ("lock={mode:write,a:write:0}@1.5s", "inspect", "1 T @1.5s 1 a 0 write", "=", ""),
    ("lock={mode:write,a:3,a:write:2}@5", "inspect", "1 T @5 2 a 2 write", "=", ""),
    ("lock={mode:write,b:3,u:write:1}@5", "inspect", "1 T @5 2 u 1 write", "=", ""),
    ("lock={mode:write,a:kept:write:0}@5", "inspect", "1 T @5 1 a:kept 0 write", "=", ""),
    ("lock={mode:read,a:write:x:1}@5", "inspect", "1 T @5 1 a:write:x 1 read", "=", ""),
    ("lock={mode:read}@5", "inspect", "1 T @5 0 ~ ~ read", "=", ""),
    ("lock={mode:odd,a:1}@5", "inspect", "6 T @5 7", "=", ""),
    ("lock={a:1}@5", "inspect", "6 T @5 7", "=", ""),
    ("lock={a:1}", "inspect", "6 T -1 7", "=", ""),
    ("lock={kind:latch,count:3}@5", "inspect", "6 T @5 10", "=", ""),
    ("lock={kind:latch,count:0}@5", "inspect", "6 T @5 10", "=", ""),
    ("lock={kind:semaphore}@5", "inspect", "6 T @5 11", "=", ""),
    ("lock={kind:semaphore,permits:3}@5", "inspect", "6 T @5 11", "=", ""),
    ("lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1}@5", "inspect", "6 T @5 12", "=", ""),
    ("lock={6e3d30b7-83b1-433a-9335-5e8b9916d3ac:731:1,a:1}@5", "inspect", "6 T @5 7", "=", ""),
    ("lock={kind:1}@5", "inspect", "6 T @5 7", "=", ""),
    ("lock={kind:odd,a:1}@5", "inspect", "6 T @5 7", "=", ""),
    ("lock={mode:odd}@5", "inspect", "6 T @5 7", "=", ""),
    ("lock=text@5", "inspect", "2 T", "=", ""),
    ("lock=[x]", "inspect", "2 T", "=", ""),
];
