# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The DeepSeek-V4 sparse-attention indexer, compiled ahead of time by IREE."""

from dsv4_iree.api import load
from dsv4_iree.errors import ArgumentError, ArtifactError, BuildError, IndexerError
from dsv4_iree.indexer import Indexer
from dsv4_iree.spec import SPECS, CacheLayout, Format, IndexerSpec, Rounding

__all__ = [
    "SPECS",
    "ArgumentError",
    "ArtifactError",
    "BuildError",
    "CacheLayout",
    "Format",
    "Indexer",
    "IndexerError",
    "IndexerSpec",
    "Rounding",
    "load",
]
