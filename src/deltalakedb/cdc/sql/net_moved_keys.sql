-- Every key that a row left for another one, or came to.
create temp table moved_keys as
select was as key from events where is_move
union
select key from events where is_move
