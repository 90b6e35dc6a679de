"""Matching identities across two modalities: protocols, embeddings, identification.

table = load_match_table("yaleb")
fold = open_set(table, n_splits=10)[0]
x = table.prepared(fold.train)
learned = learn(x[fold.train], table.identity[fold.train])
result = identify(
    learned.embed(x[fold.probe]), table.identity[fold.probe],
    learned.embed(x[fold.gallery]), table.identity[fold.gallery],
)
"""

from ldmnet.matching.casia import read_casia
from ldmnet.matching.embeddings import METHODS, EmbeddingSettings, Learned, extract, face_training, learn, pca
from ldmnet.matching.identify import Identification, cosine_similarity, identify, verification_rate
from ldmnet.matching.low_rank import low_rank_map
from ldmnet.matching.protocols import Fold, given_split, open_set, validation_fold
from ldmnet.matching.sources import load_match_table, read_match_npz, save_match_npz
from ldmnet.matching.table import MatchTable
from ldmnet.matching.triplet import triplet_loss

__all__ = [
    "METHODS",
    "EmbeddingSettings",
    "Fold",
    "Identification",
    "Learned",
    "MatchTable",
    "cosine_similarity",
    "extract",
    "face_training",
    "given_split",
    "identify",
    "learn",
    "load_match_table",
    "low_rank_map",
    "open_set",
    "pca",
    "read_casia",
    "read_match_npz",
    "save_match_npz",
    "triplet_loss",
    "validation_fold",
    "verification_rate",
]
