"""The FedSUM family and its baselines, one file per algorithm; `base` is their common interface."""

from .amplified_fedavg import AmplifiedFedAvg
from .amplified_scaffold import AmplifiedSCAFFOLD
from .base import Algorithm, LocalPlan, Message, Round, State
from .check import check, check_once
from .compressed import Compressed
from .compressors import COMPRESSORS, Compressor, Identity, Int8, RandomK, TopK
from .fedadagrad import FedAdagrad
from .fedadam import FedAdam
from .fedasync import FedAsync
from .fedau import FedAU
from .fedavg import FedAvg
from .fedavgm import FedAvgM
from .fedawe import FedAWE
from .fedbuff import FedBuff
from .fedcm import FedCM
from .feddyn import FedDyn
from .fedexp import FedExP
from .fedprox import FedProx
from .fedstale import FedStale
from .fedsum import FedSUM
from .fedsum_b import FedSUMB
from .fedsum_cr import FedSUMCR
from .fedvarp import FedVARP
from .fedyogi import FedYogi
from .focus import FOCUS
from .known_fedavg import KnownFedAvg
from .message_sizes import Card, Traffic, card, count
from .mifa import MIFA
from .scaffold import SCAFFOLD
from .scaffold_m import SCAFFOLDM
from .server_opt import ServerOpt
from .server_optimisers import OPTIMISERS, SGD, Adagrad, Adam, ServerOptimiser, Yogi

ALGORITHMS: dict[str, type[Algorithm]] = {
    cls.__name__: cls
    for cls in (
        FedSUM,
        FedSUMB,
        FedSUMCR,
        FedAvg,
        SCAFFOLD,
        MIFA,
        FedVARP,
        FedAU,
        FedAWE,
        FOCUS,
        FedDyn,
        FedProx,
        FedStale,
        KnownFedAvg,
        FedAvgM,
        FedAdagrad,
        FedYogi,
        FedAdam,
        FedExP,
        FedCM,
        SCAFFOLDM,
        AmplifiedFedAvg,
        AmplifiedSCAFFOLD,
        FedBuff,
        FedAsync,
        ServerOpt,
        Compressed,
    )
}

__all__ = [
    "ALGORITHMS",
    "COMPRESSORS",
    "FOCUS",
    "MIFA",
    "OPTIMISERS",
    "SCAFFOLD",
    "SCAFFOLDM",
    "SGD",
    "Adagrad",
    "Adam",
    "Algorithm",
    "AmplifiedFedAvg",
    "AmplifiedSCAFFOLD",
    "Card",
    "Compressed",
    "Compressor",
    "FedAU",
    "FedAWE",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedAvgM",
    "FedBuff",
    "FedCM",
    "FedDyn",
    "FedExP",
    "FedProx",
    "FedSUM",
    "FedSUMB",
    "FedSUMCR",
    "FedStale",
    "FedVARP",
    "FedYogi",
    "Identity",
    "Int8",
    "KnownFedAvg",
    "LocalPlan",
    "Message",
    "RandomK",
    "Round",
    "ServerOpt",
    "ServerOptimiser",
    "State",
    "TopK",
    "Traffic",
    "Yogi",
    "card",
    "check",
    "check_once",
    "count",
]
