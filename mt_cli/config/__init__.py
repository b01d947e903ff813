"""The configuration: what may be set, its defaults, and how files and overrides become one `Config`.

Knows the names and limits of every option, never what an option does.
"""

from mt_cli.config.bundled import RUN_CONFIG, bundled_configs, config_name, find_config
from mt_cli.config.commented import commented_toml
from mt_cli.config.loading import (
    config_of_bytes,
    differences,
    dump_config,
    load_config,
    parse_config,
    read_toml,
    table_differences,
)
from mt_cli.config.sections import (
    MOST_LAYERS,
    MOST_THREADS,
    Backend,
    Config,
    DataConfig,
    DecodingConfig,
    Device,
    ExportTarget,
    FilesConfig,
    ModelConfig,
    OptimizerKind,
    Precision,
    PrecisionChoice,
    Quantization,
    RuntimeConfig,
    TokenizerConfig,
    TokenizerKind,
    TrainingConfig,
)
from mt_cli.config.values import Language, Section

__all__ = [
    "MOST_LAYERS",
    "MOST_THREADS",
    "RUN_CONFIG",
    "Backend",
    "Config",
    "DataConfig",
    "DecodingConfig",
    "Device",
    "ExportTarget",
    "FilesConfig",
    "Language",
    "ModelConfig",
    "OptimizerKind",
    "Precision",
    "PrecisionChoice",
    "Quantization",
    "RuntimeConfig",
    "Section",
    "TokenizerConfig",
    "TokenizerKind",
    "TrainingConfig",
    "bundled_configs",
    "commented_toml",
    "config_name",
    "config_of_bytes",
    "differences",
    "dump_config",
    "find_config",
    "load_config",
    "parse_config",
    "read_toml",
    "table_differences",
]
