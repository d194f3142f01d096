"""Rights: who may discover, read, write, create and manage what, once `rights.mode` is on."""

from deltalakedb.rights.access import TRUSTED, Access, Rights, acting_with, current_access
from deltalakedb.rights.grants import CATALOG, Grantee, HeldRights, Right, SecuredObject, held_by, is_allowed

__all__ = [
    "CATALOG",
    "TRUSTED",
    "Access",
    "Grantee",
    "HeldRights",
    "Right",
    "Rights",
    "SecuredObject",
    "acting_with",
    "current_access",
    "held_by",
    "is_allowed",
]
