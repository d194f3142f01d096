-- Every stay looks twice as far back.
update roots
set root = further.root
from (select id, root from roots) further
where roots.root = further.id and roots.root <> further.root
