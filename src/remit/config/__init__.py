"""Settings: where they come from, who may set what, and each module's own type built from them."""

from remit.config._config import (
    Config,
    default_bindings,
    default_workspace,
    pool_of_model,
)
from remit.config._files import FILE_NAME, ConfigFile, read_config_file
from remit.config._folders import data_folder, make_data_folder, refuse_data_inside, user_config_file
from remit.config._load import load_config, with_default_model
from remit.config._local import LocalServer, find_local_server
from remit.config._repository import find_repository_root
from remit.config._trust import TrustStore, is_inside, refuse_untrusted, untrusted_keys

__all__ = [
    "FILE_NAME",
    "Config",
    "ConfigFile",
    "LocalServer",
    "TrustStore",
    "data_folder",
    "default_bindings",
    "default_workspace",
    "find_local_server",
    "find_repository_root",
    "is_inside",
    "load_config",
    "make_data_folder",
    "pool_of_model",
    "read_config_file",
    "refuse_data_inside",
    "refuse_untrusted",
    "untrusted_keys",
    "user_config_file",
    "with_default_model",
]
