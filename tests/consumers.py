"""Libraries that are handed distributed arrays: a program that prints what came of it.

It is run by test_consumers.py in a process of its own, since SciPy reads SCIPY_ARRAY_API when it
is imported. Each call is made with NumPy's arrays and, on 1, 2 and 3 ranks, with ones cut over all
ranks; a line says whether they agree, and whether the result is distributed.
"""

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ["SCIPY_ARRAY_API"] = "1"

import einops
import einops.array_api
import numpy as np
import opt_einsum
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.signal
import scipy.special
import scipy.stats
import sklearn
import xarray as xr
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import confusion_matrix, r2_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

import distarray
import distarray.numpy as dnp
from distarray.comm import DeviceMesh, run_threads

Call = Callable[[Any, Any, Any, Any], Any]


def field(x: Any) -> xr.DataArray:
    return xr.DataArray(x, dims=("t", "s"), coords={"t": np.arange(24), "odd": ("t", [0, 1] * 12)})


#: Library -> calls of (NumPy or distarray.numpy, two arrays, labels); the results are compared.
CALLS: dict[str, dict[str, Call]] = {
    "scipy": {
        "expit": lambda xp, x, y, k: scipy.special.expit(x),
        "gammaln": lambda xp, x, y, k: scipy.special.gammaln(x),
        "logsumexp": lambda xp, x, y, k: scipy.special.logsumexp(x, axis=0),
        "softmax": lambda xp, x, y, k: scipy.special.softmax(x, axis=1),
        "zscore": lambda xp, x, y, k: scipy.stats.zscore(x),
        "ttest": lambda xp, x, y, k: scipy.stats.ttest_ind(x, y).pvalue,
        "pearsonr": lambda xp, x, y, k: scipy.stats.pearsonr(x[:, 0], y[:, 0]).statistic,
        "rankdata": lambda xp, x, y, k: scipy.stats.rankdata(x, axis=0),
        "whiten": lambda xp, x, y, k: scipy.cluster.vq.whiten(x),
        "kmeans": lambda xp, x, y, k: scipy.cluster.vq.kmeans(x, y[:3, :])[0],
        "rfft": lambda xp, x, y, k: scipy.fft.rfft(x, axis=0),
        "fftconvolve": lambda xp, x, y, k: scipy.signal.fftconvolve(x[:, 0], y[:, 0]),
        "detrend": lambda xp, x, y, k: scipy.signal.detrend(x, axis=0),
        "trapezoid": lambda xp, x, y, k: scipy.integrate.trapezoid(x, axis=0),
    },
    "scikit-learn": {
        "pca": lambda xp, x, y, k: xp.abs(PCA(2, svd_solver="full").fit_transform(x)),
        "covariance pca": lambda xp, x, y, k: xp.abs(
            PCA(2, svd_solver="covariance_eigh").fit(x).components_
        ),
        "scaler": lambda xp, x, y, k: StandardScaler().fit_transform(x),
        "minmax": lambda xp, x, y, k: MinMaxScaler().fit_transform(x),
        "normalizer": lambda xp, x, y, k: Normalizer().fit_transform(x),
        "ridge": lambda xp, x, y, k: Ridge(solver="svd").fit(x, y).predict(x),
        "lda": lambda xp, x, y, k: LinearDiscriminantAnalysis().fit(x, k).predict_proba(x),
        "mixture": lambda xp, x, y, k: (
            GaussianMixture(2, init_params="random", random_state=0).fit(x).means_.sum()
        ),
        "confusion": lambda xp, x, y, k: confusion_matrix(k, 1 - k),
        "r2": lambda xp, x, y, k: r2_score(x, y),
        "rbf": lambda xp, x, y, k: rbf_kernel(x, y),
    },
    "xarray": {
        "mean": lambda xp, x, y, k: field(x).mean("t"),
        "anomaly": lambda xp, x, y, k: (field(x) - field(x).mean("s")).transpose("s", "t"),
        "sel": lambda xp, x, y, k: field(x).sel(t=slice(3, 9)).isel(s=[0, 2]),
        "rolling": lambda xp, x, y, k: field(x).rolling(t=3).mean(),
        "coarsen": lambda xp, x, y, k: field(x).coarsen(t=4).sum(),
        "groupby": lambda xp, x, y, k: field(x).groupby("odd").mean(),
        "dot": lambda xp, x, y, k: xr.dot(field(x), field(y), dim="t"),
        "quantile": lambda xp, x, y, k: field(x).quantile(0.3, "t"),
        "shift": lambda xp, x, y, k: field(x).shift(t=1).fillna(0),
        "concat": lambda xp, x, y, k: xr.concat([field(x), field(y)], "t"),
        "ufunc": lambda xp, x, y, k: xr.apply_ufunc(xp.exp, field(x)),
        "dataset": lambda xp, x, y, k: xr.Dataset({"a": field(x), "b": field(y)}).std().b,
    },
    "einops": {
        "rearrange": lambda xp, x, y, k: einops.array_api.rearrange(x, "(a b) c -> c (b a)", a=4),
        "reduce": lambda xp, x, y, k: einops.array_api.reduce(x, "(a b) c -> a c", "max", a=4),
        "repeat": lambda xp, x, y, k: einops.array_api.repeat(x, "a c -> a c n", n=2),
        "pack": lambda xp, x, y, k: einops.array_api.pack([x, y], "* c")[0],
    },
    "opt_einsum": {
        "contract": lambda xp, x, y, k: opt_einsum.contract("ab,cb,cd->ad", x, y, y),
        "numpy": lambda xp, x, y, k: opt_einsum.contract("ab,cb->ac", x, y, backend="numpy"),
        "expression": lambda xp, x, y, k: opt_einsum.contract_expression(
            "ab,cb->a", x.shape, y.shape
        )(x, y),
    },
}


def values() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    x, y = rng.random((24, 5)), rng.random((24, 5))
    return x, y, (x[:, 0] > 0.5).astype(np.int64)


def bare(result: Any) -> Any:
    return result.data if isinstance(result, xr.DataArray) else result


def verdict(call: Call, mesh: DeviceMesh, wanted: Any) -> str:
    """The outcome of one call with distributed arrays: "distributed", "local" or the fault."""
    arrays = [distarray.distribute(v, mesh, [distarray.Shard(0)], src=None) for v in values()]
    try:
        with sklearn.config_context(array_api_dispatch=True):
            found = bare(call(dnp, *arrays))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    whole = found.full() if isinstance(found, distarray.DistArray) else np.asarray(found)
    if not np.allclose(whole, wanted, equal_nan=True):
        return "another result"
    return "distributed" if isinstance(found, distarray.DistArray) else "local"


def main() -> None:
    warnings.simplefilter("ignore")
    expected = {
        (library, name): np.asarray(bare(call(np, *values())))
        for library, calls in CALLS.items()
        for name, call in calls.items()
    }

    def program(group: Any) -> list[str]:
        mesh = DeviceMesh(group, (group.size,))
        return [
            f"{group.size}\t{library}\t{name}\t"
            + verdict(CALLS[library][name], mesh, wanted).replace("\n", " ")
            for (library, name), wanted in expected.items()
        ]

    for ranks in (1, 2, 3):
        for line in run_threads(ranks, program, timeout=60)[-1]:
            print(line)


if __name__ == "__main__":
    sys.exit(main())
